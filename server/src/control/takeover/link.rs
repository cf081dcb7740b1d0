//! Link between two servers: packets with descriptors over a pair of sockets (SOCK_SEQPACKET).
//!
//! A server that leaves has one end, and its successor the other. The next successor gets a duplicate of the other end.

use super::message::Message;
use crate::control::limits::{TAKEOVER_MESSAGE_BYTES_MAX, TAKEOVER_SOCKETS_A_MESSAGE_MAX};
use base::sys;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::unix::AsyncFd;

/// Received message with its descriptors.
pub(in crate::control) type Received = (Message, Vec<OwnedFd>);

/// Sends a message with descriptors, at most [`TAKEOVER_SOCKETS_A_MESSAGE_MAX`], without waiting.
pub(in crate::control) fn send(
    link: BorrowedFd<'_>,
    message: &Message,
    passed: &[BorrowedFd<'_>],
) -> io::Result<()> {
    send_text(link, message.packet().as_bytes(), passed)
}

/// Sends bytes with descriptors over any Unix socket, without waiting.
pub(in crate::control) fn send_text(
    link: BorrowedFd<'_>,
    text: &[u8],
    passed: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut space =
        [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(TAKEOVER_SOCKETS_A_MESSAGE_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !passed.is_empty() && !control.push(SendAncillaryMessage::ScmRights(passed)) {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(link, &[IoSlice::new(text)], &mut control, flags)?;
    Ok(())
}

/// Receives bytes with descriptors from any Unix socket, without waiting. No bytes mean the end.
pub(in crate::control) fn receive_text(
    link: BorrowedFd<'_>,
    bytes: &mut [u8],
) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space =
        [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(TAKEOVER_SOCKETS_A_MESSAGE_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let mut receive = || recvmsg(link, &mut [IoSliceMut::new(bytes)], &mut control, flags);
    let received = match receive() {
        // If the other side has ended with unread messages, the kernel says so once, before the messages that the other side
        // has sent.
        Err(Errno::CONNRESET) => receive()?,
        received => received?,
    };
    let mut passed = Vec::new();
    for entry in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = entry {
            passed.extend(descriptors);
        }
    }
    Ok((received.bytes, passed))
}

/// Receives a message, without waiting. `UnexpectedEof` is the end of the other side.
fn receive_now(link: BorrowedFd<'_>) -> io::Result<Received> {
    let mut bytes = [0; TAKEOVER_MESSAGE_BYTES_MAX + 1];
    let (length, passed) = receive_text(link, &mut bytes)?;
    if length == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let message = Message::parse(&bytes[..length]).ok_or(io::ErrorKind::InvalidData)?;
    Ok((message, passed))
}

/// Waits for the next message, for at most `patience`.
pub(in crate::control) fn receive(
    link: BorrowedFd<'_>,
    patience: Duration,
) -> io::Result<Received> {
    let until = Instant::now() + patience;
    loop {
        match receive_now(link) {
            Err(error) if is_pause(&error) => wait(link, PollFlags::IN, until)?,
            received => return received,
        }
    }
}

/// Waits until the socket is ready; fails with `TimedOut` at the time `until`.
pub(in crate::control) fn wait(
    link: BorrowedFd<'_>,
    flags: PollFlags,
    until: Instant,
) -> io::Result<()> {
    let left = until.saturating_duration_since(Instant::now());
    let time = Timespec::try_from(left).map_err(io::Error::other)?;
    match poll(&mut [PollFd::new(&link, flags)], Some(&time)) {
        Ok(0) => Err(io::ErrorKind::TimedOut.into()),
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn is_pause(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

/// Pause until the other side has read some of many messages.
const SEND_PAUSE: Duration = Duration::from_millis(5);

/// Link on the runtime of the calling thread.
#[derive(Debug)]
pub(in crate::control) struct AsyncLink(AsyncFd<OwnedFd>);

impl AsyncLink {
    pub(in crate::control) fn new(link: OwnedFd) -> io::Result<AsyncLink> {
        Ok(AsyncLink(sys::async_readable(link)?))
    }

    /// Sends a message, and waits for room.
    pub(in crate::control) async fn send(
        &self,
        message: &Message,
        passed: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        loop {
            match send(self.0.as_fd(), message, passed) {
                Err(error) if is_pause(&error) => tokio::time::sleep(SEND_PAUSE).await,
                sent => return sent,
            }
        }
    }

    /// Sends a message if there is room at once.
    pub(in crate::control) fn send_now(&self, message: &Message) -> io::Result<()> {
        send(self.0.as_fd(), message, &[])
    }

    /// Waits for the next message. Cancelling the wait loses nothing.
    pub(in crate::control) async fn receive(&self) -> io::Result<Received> {
        std::future::poll_fn(|cx| self.poll_receive(cx)).await
    }

    /// Returns the next message if there is one.
    pub(in crate::control) fn poll_receive(
        &self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Received>> {
        loop {
            let mut ready = std::task::ready!(self.0.poll_read_ready(cx))?;
            if let Ok(received) = ready.try_io(|link| receive_now(link.as_fd())) {
                return Poll::Ready(received);
            }
        }
    }
}

impl AsFd for AsyncLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn a_message_has_its_descriptors() {
        let (one, other) = sys::packet_pair().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let message = Message::Sockets("anthill/tcp/a".to_owned());
        send(one.as_fd(), &message, &[listener.as_fd(), listener.as_fd()]).unwrap();
        send(one.as_fd(), &Message::Complete, &[]).unwrap();
        let (received, passed) = receive(other.as_fd(), PATIENCE).unwrap();
        assert_eq!((received, passed.len()), (message, 2));
        for copy in passed {
            let copy = TcpListener::from(copy);
            let addresses = (copy.local_addr().unwrap(), listener.local_addr().unwrap());
            assert_eq!(addresses.0, addresses.1);
        }
        assert_eq!(
            receive(other.as_fd(), PATIENCE).unwrap().0,
            Message::Complete
        );
    }

    #[test]
    fn the_last_message_of_a_side_that_ends_with_unread_messages_is_received() {
        let (one, other) = sys::packet_pair().unwrap();
        send(other.as_fd(), &Message::Complete, &[]).unwrap();
        send(one.as_fd(), &Message::Refused("why".to_owned()), &[]).unwrap();
        drop(one);
        let (received, _) = receive(other.as_fd(), PATIENCE).unwrap();
        assert_eq!(received, Message::Refused("why".to_owned()));
        let end = receive(other.as_fd(), PATIENCE).unwrap_err();
        assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn the_end_silence_and_nonsense_are_errors() {
        let (one, other) = sys::packet_pair().unwrap();
        let kind = |link: &OwnedFd, patience| receive(link.as_fd(), patience).unwrap_err().kind();
        assert_eq!(kind(&other, Duration::ZERO), io::ErrorKind::TimedOut);
        send_text(one.as_fd(), b"nonsense", &[]).unwrap();
        assert_eq!(kind(&other, PATIENCE), io::ErrorKind::InvalidData);
        let long = [b'x'; TAKEOVER_MESSAGE_BYTES_MAX + 100];
        send_text(one.as_fd(), &long, &[]).unwrap();
        assert_eq!(kind(&other, PATIENCE), io::ErrorKind::InvalidData);
        drop(one);
        assert_eq!(kind(&other, PATIENCE), io::ErrorKind::UnexpectedEof);
    }
}
