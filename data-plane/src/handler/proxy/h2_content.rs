//! Content of a member's response over HTTP/2 on its way to the client.

use crate::handler::proxy::h2_upload::H2Upload;
use crate::handler::proxy::retry::AttemptFailure;
use crate::handler::proxy::transfer::{self, Transfer};
use crate::upstream::{H2Failure, H2RequestStream, ResponsePart};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use wire::reject::Reject;

/// Future that moves the content of a response from the member to the client, and the rest of the request's
/// body in the other direction.
pub(super) struct H2ContentTransfer {
    pub(super) transfer: Transfer,
    pub(super) stream: H2RequestStream,
    pub(super) upload: H2Upload,
}

/// End of a transfer. Complete content has the lines of the trailer section.
type TransferEnd = transfer::TransferEnd<Vec<u8>>;

impl Future for H2ContentTransfer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let end = ready!(self.poll_end(cx));
        self.finish(end);
        Poll::Ready(())
    }
}

impl H2ContentTransfer {
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<TransferEnd> {
        if let Poll::Ready(Err(_)) = self.upload.poll_send(&mut self.stream, cx) {
            return Poll::Ready(TransferEnd::ClientGone);
        }
        let (waits, sent_bytes) = (self.upload.waits_for_client(), self.stream.sent_bytes());
        if let Poll::Ready(end) = self.transfer.poll_upload(cx, waits, sent_bytes) {
            return Poll::Ready(end);
        }
        loop {
            let received_bytes = self.stream.received_bytes();
            let room = match ready!(self.transfer.poll_room(cx, received_bytes)) {
                Ok(room) => room,
                Err(end) => return Poll::Ready(end),
            };
            let writer = &mut self.transfer.writer;
            let polled = self.stream.poll_content(cx, room, |bytes| {
                // The pipe has room for all bytes. The next call notices a client that is gone.
                let _ = writer.write_some(bytes);
            });
            match polled {
                Poll::Ready(Ok(ResponsePart::Bytes(_))) => self.transfer.end_silence(),
                Poll::Ready(Ok(ResponsePart::End(trailers))) => {
                    return Poll::Ready(TransferEnd::Complete(trailers));
                }
                Poll::Ready(Err(failure)) => {
                    return Poll::Ready(TransferEnd::Broken(broken(failure)));
                }
                Poll::Pending => return self.poll_silence(cx),
            }
        }
    }

    /// Ends the transfer if the member has been silent for too long. A member may wait for the next message of
    /// the client.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<TransferEnd> {
        if self.upload.waits_for_client() {
            // The client's connection has its own deadline.
            self.transfer.end_silence();
            return Poll::Pending;
        }
        self.transfer.poll_silence(cx)
    }

    /// Completes or breaks off the client's response.
    fn finish(&mut self, end: TransferEnd) {
        let bytes = (self.stream.sent_bytes(), self.stream.received_bytes());
        if let Some(trailers) = self.transfer.finish(end, bytes) {
            if !trailers.is_empty() {
                self.transfer.writer.set_trailers(trailers);
            }
            self.transfer.writer.end();
        }
    }
}

/// Returns the rule for a response that failed within its content.
fn broken(failure: H2Failure) -> Reject {
    match failure {
        H2Failure::Left { .. } | H2Failure::Refused => Reject::UPSTREAM_BROKE_OFF,
        failure => AttemptFailure::of_h2(failure, true).reject,
    }
}
