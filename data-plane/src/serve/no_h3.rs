//! Replacement of the HTTP/3 module in a build without the feature `http3`: no socket is hosted, and no
//! connection is ever open.

pub use crate::serve::quic_forward::QuicForward;
pub use context::QuicWorkers;

pub(super) mod context {
    //! Empty replacements of the state that HTTP/3 connections share.

    use crate::serve::quic_forward::QuicForward;
    use std::io;

    /// Empty replacement of the list of workers.
    #[derive(Default)]
    pub struct QuicWorkers;

    impl QuicWorkers {
        /// Closes the sockets: without HTTP/3 the process does not read for its predecessors.
        pub fn succeeding(_: Vec<QuicForward>) -> QuicWorkers {
            QuicWorkers
        }

        /// Returns no sockets: the process has no connections of HTTP/3.
        ///
        /// # Errors
        /// Never fails.
        pub fn hand_over(&self) -> io::Result<Vec<QuicForward>> {
            Ok(Vec::new())
        }

        /// Returns 0.
        pub fn datagrams_dropped(&self) -> u64 {
            0
        }
    }

    /// Empty replacement of the state shared by a worker's HTTP/3 connections.
    #[derive(Default)]
    pub(crate) struct H3Context;

    impl H3Context {
        pub(in crate::serve) fn open(&self) -> usize {
            0
        }

        pub(in crate::serve) fn tell(&self) {}
    }
}

pub(super) mod endpoint {
    //! Endpoints that never host a socket.

    use crate::serve::context::WorkerContext;
    use crate::serve::sessions::Sessions;
    use std::io;
    use std::net::{SocketAddr, UdpSocket};
    use std::rc::Rc;

    pub(in crate::serve) fn begin(_: &Rc<Sessions>) {}

    pub(in crate::serve) async fn host(_: &Rc<Sessions>, _: UdpSocket) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(in crate::serve) async fn configure(_: &Rc<Sessions>) {}

    pub(in crate::serve) fn unlisten(_: &WorkerContext, _: SocketAddr) {}

    pub(in crate::serve) fn leave(_: &WorkerContext) {}

    pub(in crate::serve) fn serves_others(_: &WorkerContext) -> bool {
        false
    }

    pub(in crate::serve) async fn end(_: &WorkerContext) {}
}
