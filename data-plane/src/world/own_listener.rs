//! Listeners that serve some sites alone, by the key `listen` of the sites.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

/// Number of a listener that serves the sites that name its address, and no other site.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OwnListener {
    number: u32,
    port: u16,
}

/// Addresses of all such listeners since the start of the process, indexed by their numbers.
static ADDRESSES: Mutex<Vec<SocketAddr>> = Mutex::new(Vec::new());

impl OwnListener {
    /// Returns the number of the listener at an address, as the operator wrote the address. An address keeps its number
    /// as long as the process runs: a socket outlives the configuration that it was bound for.
    pub fn at(address: SocketAddr) -> OwnListener {
        let mut addresses = ADDRESSES.lock().unwrap_or_else(PoisonError::into_inner);
        let known = addresses.iter().position(|known| *known == address);
        let number = known.unwrap_or_else(|| {
            addresses.push(address);
            addresses.len() - 1
        });
        OwnListener {
            // Each address of a configuration takes more than a byte of its file.
            number: u32::try_from(number).unwrap_or(u32::MAX),
            port: address.port(),
        }
    }

    /// Returns the port in the configuration.
    pub(crate) fn port(self) -> u16 {
        self.port
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_keeps_its_number() {
        let [one, two] = ["[::]:8001", "127.0.0.1:8001"].map(|it| it.parse().unwrap());
        let number = OwnListener::at(one);
        assert_ne!(OwnListener::at(two), number);
        assert_eq!(OwnListener::at(one), number);
    }
}
