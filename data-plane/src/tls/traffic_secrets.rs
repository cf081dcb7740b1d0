//! Traffic secrets of TLS 1.3, as taken from a handshake of rustls.

use rustls::KeyLog;
use std::cell::RefCell;
use zeroize::Zeroizing;

/// Traffic secret, as long as the suite's hash, from which the next keys are derived.
pub(super) type TrafficSecret = Zeroizing<[u8; SECRET_BYTES_MAX]>;
const SECRET_BYTES_MAX: usize = 48;

/// Returns zeros, to be overwritten with a secret.
pub(super) fn unknown_secret() -> TrafficSecret {
    Zeroizing::new([0; SECRET_BYTES_MAX])
}

/// First traffic secrets of a connection, from which later secrets are derived.
pub(crate) struct TrafficSecrets {
    pub(super) client: TrafficSecret,
    pub(super) server: TrafficSecret,
}

impl TrafficSecrets {
    fn unknown() -> Box<TrafficSecrets> {
        Box::new(TrafficSecrets {
            client: unknown_secret(),
            server: unknown_secret(),
        })
    }

    /// Returns the secrets of the connection last processed by rustls on the calling thread, if the
    /// handshake has progressed far enough.
    pub(crate) fn take_for_thread() -> Option<Box<TrafficSecrets>> {
        HEARD.take()
    }
}

/// Receiver of traffic secrets during a handshake, by rustls's interface for key logs.
#[derive(Debug)]
pub(super) struct TrafficSecretLog;

thread_local! {
    static HEARD: RefCell<Option<Box<TrafficSecrets>>> = const { RefCell::new(None) };
}

impl KeyLog for TrafficSecretLog {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        let mut heard = HEARD.take().unwrap_or_else(TrafficSecrets::unknown);
        let into = match label {
            CLIENT_SECRET => &mut heard.client,
            SERVER_SECRET => &mut heard.server,
            _ => return,
        };
        if let Some(into) = into.get_mut(..secret.len()) {
            into.copy_from_slice(secret);
            HEARD.set(Some(heard));
        }
    }

    fn will_log(&self, label: &str) -> bool {
        matches!(label, CLIENT_SECRET | SERVER_SECRET)
    }
}

const CLIENT_SECRET: &str = "CLIENT_TRAFFIC_SECRET_0";
const SERVER_SECRET: &str = "SERVER_TRAFFIC_SECRET_0";
