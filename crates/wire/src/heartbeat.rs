//! Datagram with which Apache's mod_heartbeat and Tomcat's HeartbeatListener announce the load of a server
//! once a second.
//!
//! Any machine can send datagrams, so the reader is strict. The caller accepts datagrams from members only.

/// Announcement of a server.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Heartbeat {
    /// Workers that wait for requests.
    pub ready: u32,
    /// Workers that serve requests.
    pub busy: u32,
    /// Port of the server, which only Tomcat announces.
    pub port: Option<u16>,
}

impl Heartbeat {
    /// Parses `v=1&ready=N&busy=M` with an optional `port=P`, each once and in any order; `None` for any other
    /// datagram.
    pub fn parse(datagram: &[u8]) -> Option<Heartbeat> {
        let (mut version, mut ready, mut busy, mut port) = (None, None, None, None);
        for pair in datagram.split(|byte| *byte == b'&') {
            let (slot, digits) = match pair {
                [b'v', b'=', digits @ ..] => (&mut version, digits),
                [b'r', b'e', b'a', b'd', b'y', b'=', digits @ ..] => (&mut ready, digits),
                [b'b', b'u', b's', b'y', b'=', digits @ ..] => (&mut busy, digits),
                [b'p', b'o', b'r', b't', b'=', digits @ ..] => (&mut port, digits),
                _ => return None,
            };
            if slot.replace(number(digits)?).is_some() {
                return None;
            }
        }
        let port = match port {
            None => None,
            Some(port) => Some(u16::try_from(port).ok().filter(|port| *port > 0)?),
        };
        (version == Some(1)).then_some(Heartbeat {
            ready: ready?,
            busy: busy?,
            port,
        })
    }
}

/// Parses a number of 1 to 10 digits.
fn number(digits: &[u8]) -> Option<u32> {
    let is_number = (1..=10).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    let digits = std::str::from_utf8(digits).ok()?;
    is_number.then_some(digits)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn heartbeats_are_parsed() {
        let table = [
            ("v=1&ready=75&busy=0", 75, 0, None),
            ("v=1&ready=4294967295&busy=10", u32::MAX, 10, None),
            ("v=1&ready=1&busy=2&port=8080", 1, 2, Some(8_080)),
            ("port=1&busy=2&ready=1&v=1", 1, 2, Some(1)),
        ];
        for (datagram, ready, busy, port) in table {
            let expected = Heartbeat { ready, busy, port };
            assert_eq!(
                Heartbeat::parse(datagram.as_bytes()),
                Some(expected),
                "{datagram}"
            );
        }
    }

    #[test]
    fn other_datagrams_are_refused() {
        for datagram in [
            "",
            "v=1",
            "v=1&ready=1",
            "v=1&busy=1",
            "ready=1&busy=1",
            "v=2&ready=1&busy=1",
            "v=&ready=1&busy=1",
            "v=1&ready=&busy=1",
            "v=1&ready=-1&busy=1",
            "v=1&ready=+1&busy=1",
            "v=1&ready=1.5&busy=1",
            "v=1&ready= 1&busy=1",
            "v=1&ready=4294967296&busy=1",
            "v=1&ready=00000000001&busy=1",
            "v=1&ready=1&ready=1&busy=1",
            "v=1&v=1&ready=1&busy=1",
            "v=1&ready=1&busy=1&",
            "&v=1&ready=1&busy=1",
            "v=1&&ready=1&busy=1",
            "v=1&ready=1&busy=1\n",
            "v=1&ready=1&busy=1\0",
            "v=1&ready=1&busy=1&x=1",
            "v=1&ready=1&busy=1&port=0",
            "v=1&ready=1&busy=1&port=65536",
            "V=1&Ready=1&Busy=1",
            "v=1;ready=1;busy=1",
            "v:1&ready:1&busy:1",
        ] {
            assert_eq!(Heartbeat::parse(datagram.as_bytes()), None, "{datagram:?}");
        }
    }

    proptest! {
        #[test]
        fn announcements_are_read_back(ready in any::<u32>(), busy in any::<u32>(), cut in 0..60usize) {
            let datagram = format!("v=1&ready={ready}&busy={busy}");
            let expected = Heartbeat { ready, busy, port: None };
            prop_assert_eq!(Heartbeat::parse(datagram.as_bytes()), Some(expected));
            // A datagram cut within its last number has another meaning, and any other cut has none.
            let whole_pairs = datagram.rfind('=').map_or(0, |at| at + 1);
            let cut = cut.min(whole_pairs);
            prop_assert_eq!(Heartbeat::parse(&datagram.as_bytes()[..cut]), None);
        }
    }
}
