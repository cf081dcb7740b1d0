//! QUIC traits of the `h3` crate with counting of received stream bytes.

use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use h3::error::Code;
use h3::quic::{
    Connection, ConnectionErrorIncoming, OpenStreams, RecvStream, SendStream, StreamErrorIncoming,
    StreamId, WriteBuf,
};

use crate::load::streams::Received;

/// A connection or stream that counts received bytes.
pub(super) struct Counted<T> {
    inner: T,
    received: Rc<Received>,
}

impl<T> Counted<T> {
    pub(super) fn new(inner: T, received: &Rc<Received>) -> Counted<T> {
        Counted {
            inner,
            received: Rc::clone(received),
        }
    }

    fn wrap<U>(&self, inner: U) -> Counted<U> {
        Counted::new(inner, &self.received)
    }
}

impl<T: Clone> Clone for Counted<T> {
    fn clone(&self) -> Counted<T> {
        self.wrap(self.inner.clone())
    }
}

impl<B: Buf, T: Connection<B>> Connection<B> for Counted<T> {
    type RecvStream = Counted<T::RecvStream>;
    type OpenStreams = Counted<T::OpenStreams>;

    fn poll_accept_recv(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Self::RecvStream, ConnectionErrorIncoming>> {
        let stream = ready!(self.inner.poll_accept_recv(context))?;
        Poll::Ready(Ok(self.wrap(stream)))
    }

    fn poll_accept_bidi(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Self::BidiStream, ConnectionErrorIncoming>> {
        let stream = ready!(self.inner.poll_accept_bidi(context))?;
        Poll::Ready(Ok(self.wrap(stream)))
    }

    fn opener(&self) -> Self::OpenStreams {
        self.wrap(self.inner.opener())
    }
}

impl<B: Buf, T: OpenStreams<B>> OpenStreams<B> for Counted<T> {
    type BidiStream = Counted<T::BidiStream>;
    type SendStream = T::SendStream;

    fn poll_open_bidi(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Self::BidiStream, StreamErrorIncoming>> {
        let stream = ready!(self.inner.poll_open_bidi(context))?;
        Poll::Ready(Ok(self.wrap(stream)))
    }

    fn poll_open_send(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Self::SendStream, StreamErrorIncoming>> {
        self.inner.poll_open_send(context)
    }

    fn close(&mut self, code: Code, reason: &[u8]) {
        self.inner.close(code, reason);
    }
}

impl<T: RecvStream> RecvStream for Counted<T> {
    type Buf = T::Buf;

    fn poll_data(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Self::Buf>, StreamErrorIncoming>> {
        let data = ready!(self.inner.poll_data(context))?;
        self.received.add(data.as_ref().map_or(0, Buf::remaining));
        Poll::Ready(Ok(data))
    }

    fn stop_sending(&mut self, error_code: u64) {
        self.inner.stop_sending(error_code);
    }

    fn recv_id(&self) -> StreamId {
        self.inner.recv_id()
    }
}

impl<B: Buf, T: SendStream<B>> SendStream<B> for Counted<T> {
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.inner.poll_ready(context)
    }

    fn send_data<D: Into<WriteBuf<B>>>(&mut self, data: D) -> Result<(), StreamErrorIncoming> {
        self.inner.send_data(data)
    }

    fn poll_finish(&mut self, context: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.inner.poll_finish(context)
    }

    fn reset(&mut self, reset_code: u64) {
        self.inner.reset(reset_code);
    }

    fn send_id(&self) -> StreamId {
        self.inner.send_id()
    }
}
