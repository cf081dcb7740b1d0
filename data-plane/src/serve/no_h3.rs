//! Replacement of the HTTP/3 module in a build without the feature `http3`: no socket is hosted, and no
//! connection is ever open.

pub use context::QuicWorkers;

pub(super) mod context {
    //! Empty replacements of the state that HTTP/3 connections share.

    /// Empty replacement of the list of workers.
    #[derive(Default)]
    pub struct QuicWorkers;

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

    pub(in crate::serve) fn host(_: &Rc<Sessions>, _: UdpSocket) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(in crate::serve) fn configure(_: &Rc<Sessions>) {}

    pub(in crate::serve) fn unlisten(_: &WorkerContext, _: SocketAddr) {}

    pub(in crate::serve) fn leave(_: &WorkerContext) {}

    pub(in crate::serve) async fn end(_: &WorkerContext) {}
}
