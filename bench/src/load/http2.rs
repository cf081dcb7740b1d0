//! HTTP/2 connections by the `h2` crate, over TCP or TLS.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use h2::{Error, Reason, RecvStream};
use http::Request;
use rustls::HandshakeKind;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::spawn_local;
use tokio_rustls::TlsConnector;

use super::link::TlsStart;
use super::share::{Report, Share};
use super::streams::{self, Ask, Dial, Dialled, Received, RequestError};
use super::tally::{Failure, ResponseSummary};
use super::timeline::Timeline;
use super::workload::Workload;
use crate::result::Failures;

/// Runs the thread's share of the connections.
pub(super) fn run(
    workload: &Arc<Workload>,
    timeline: &Arc<Timeline>,
    share: Share,
) -> io::Result<Report> {
    let received = Received::new(timeline);
    let dial = Http2 {
        tls: share.tls.clone(),
        received: Rc::clone(&received),
    };
    streams::run(workload, timeline, &share, &received, || Ok(dial))
}

struct Http2 {
    tls: Option<TlsStart>,
    received: Rc<Received>,
}

/// An established connection.
#[derive(Clone)]
struct Connection(SendRequest<Bytes>);

impl Dial for Http2 {
    type Sender = Connection;

    async fn dial(
        &self,
        address: SocketAddr,
        source: Option<IpAddr>,
    ) -> Result<Dialled<Connection>, Failure> {
        let failed = |error: io::Error| Failure::new(Failures::CONNECT, error);
        let socket = connect(address, source).await.map_err(failed)?;
        socket.set_nodelay(true).map_err(failed)?;
        let Some(tls) = &self.tls else {
            let sender = self.begin(socket).await?;
            return Ok(Dialled {
                sender,
                resumed: None,
            });
        };
        let connector = TlsConnector::from(Arc::clone(&tls.config));
        let stream = connector
            .connect(tls.name.clone(), socket)
            .await
            .map_err(failed)?;
        let (_, session) = stream.get_ref();
        if session.alpn_protocol() != Some(b"h2") {
            return Err(Failure::new(
                Failures::CONNECT,
                "the server did not choose HTTP/2",
            ));
        }
        let resumed = session.handshake_kind() == Some(HandshakeKind::Resumed);
        let sender = self.begin(stream).await?;
        Ok(Dialled {
            sender,
            resumed: Some(resumed),
        })
    }
}

impl Http2 {
    async fn begin(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    ) -> Result<Connection, Failure> {
        let stream = Counted {
            stream,
            received: Rc::clone(&self.received),
        };
        let (sender, connection) = Builder::new()
            .enable_push(false)
            .initial_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .handshake(stream)
            .await
            .map_err(|error| Failure::new(Failures::CONNECT, error))?;
        // The end of the connection is reported by the requests on the connection.
        spawn_local(connection);
        Ok(Connection(sender))
    }
}

/// Connects a socket, from the local address `source` if given.
async fn connect(address: SocketAddr, source: Option<IpAddr>) -> io::Result<TcpStream> {
    let Some(source) = source else {
        return TcpStream::connect(address).await;
    };
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    socket.bind(SocketAddr::new(source, 0))?;
    socket.connect(address).await
}

impl Ask for Connection {
    async fn ask(
        self,
        request: Request<()>,
        expected: Option<&[u8]>,
    ) -> Result<ResponseSummary, RequestError> {
        let mut sender = self.0.ready().await.map_err(request_error)?;
        let (response, _) = sender.send_request(request, true).map_err(request_error)?;
        let (head, body) = response.await.map_err(request_error)?.into_parts();
        let (length, differs) = read(body, expected)
            .await
            .map_err(|error| request_error(error).in_content())?;
        Ok(ResponseSummary {
            status: head.status.as_u16(),
            length,
            differs,
        })
    }
}

/// Reads the content to the end. Returns the length, and whether the content differs from `expected`.
async fn read(mut body: RecvStream, expected: Option<&[u8]>) -> Result<(u64, bool), Error> {
    let (mut length, mut differs) = (0, false);
    while let Some(piece) = body.data().await {
        let piece = piece?;
        differs |= expected
            .is_some_and(|expected| expected.get(length..length + piece.len()) != Some(&piece[..]));
        length += piece.len();
        body.flow_control().release_capacity(piece.len())?;
    }
    // Trailers belong to the response too.
    body.trailers().await?;
    Ok((length as u64, differs))
}

/// Classifies an error by its effect on the request and the connection (RFC 9113 §8.7).
fn request_error(error: Error) -> RequestError {
    let reason = error.reason();
    if (error.is_go_away() && error.is_remote() && reason == Some(Reason::NO_ERROR))
        || (error.is_reset() && reason == Some(Reason::REFUSED_STREAM))
    {
        return RequestError::Untouched;
    }
    let kind = if error.is_library() {
        Failures::PROTOCOL
    } else {
        Failures::CLOSED
    };
    let failure = Failure::new(kind, &error);
    if error.is_reset() {
        RequestError::Request(failure)
    } else {
        RequestError::Connection(failure)
    }
}

/// A stream that counts received bytes.
struct Counted<S> {
    stream: S,
    received: Rc<Received>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        self.received.add(buffer.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Flow-control window, as large as that of h2load, so that the window never blocks the server.
const WINDOW_BYTES: u32 = (1 << 30) - 1;
