//! Messages between a server and its service manager, by the protocol of systemd (sd_notify(3)): the sending side, and
//! the receiving side of a supervisor.
//!
//! A message is a datagram with a line `NAME=VALUE` for each statement, and may carry descriptors. Any process of the
//! machine may send to an abstract socket, so the kernel names the sender of each datagram (SCM_CREDENTIALS).

use crate::limits::{NOTIFICATION_BYTES_MAX, NOTIFICATION_SOCKETS_MAX, NOTIFY_MILLISECONDS_MAX};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
    SocketType, socketpair, sockopt,
};
use std::ffi::{OsStr, OsString};
use std::io::{self, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};
use std::time::Duration;

/// Reports the server's state to the service manager (`READY=1`, `RELOADING=1\nMONOTONIC_USEC=…`,
/// `STOPPING=1`, `STATUS=…`), if NOTIFY_SOCKET names one. Returns true if the state was sent. A service manager that takes
/// no messages fails the call with `WouldBlock` after a moment.
pub fn notify(state: &str) -> io::Result<bool> {
    notify_with(state, &[])
}

/// Reports a state to the service manager, together with at most [`NOTIFICATION_SOCKETS_MAX`] descriptors (`FDSTORE=1`).
pub fn notify_with(state: &str, passed: &[BorrowedFd<'_>]) -> io::Result<bool> {
    match notify_socket() {
        Some(name) => notify_at(&name, state, passed).map(|()| true),
        None => Ok(false),
    }
}

/// Waits until the service manager has handled all reports before, for at most `patience`.
pub fn notify_barrier(patience: Duration) -> io::Result<()> {
    notify_socket().map_or(Ok(()), |name| barrier_at(&name, patience))
}

/// Returns the two ends of a link between processes that keeps the bounds of messages (SOCK_SEQPACKET), in non-blocking mode.
pub fn packet_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let kind = SocketType::SEQPACKET;
    Ok(socketpair(AddressFamily::UNIX, kind, flags, None)?)
}

fn notify_socket() -> Option<OsString> {
    std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty())
}

/// Returns the number of descriptors that the service manager keeps for the next start of this process (FDSTORE, set by
/// systemd since version 254); 0 without such a store.
pub fn descriptor_store_room() -> usize {
    let room = std::env::var("FDSTORE").ok();
    let room = room.filter(|_| notify_socket().is_some());
    room.and_then(|room| room.parse().ok()).unwrap_or(0)
}

/// Sends `state` to the socket `name`. A name with `@` at the start is abstract and not a file. A full queue of the
/// receiver fails the call with `WouldBlock` after [`NOTIFY_MILLISECONDS_MAX`].
fn notify_at(name: &OsStr, state: &str, passed: &[BorrowedFd<'_>]) -> io::Result<()> {
    let address = match name.as_bytes() {
        [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest)?,
        _ => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(Duration::from_millis(NOTIFY_MILLISECONDS_MAX)))?;
    socket.connect_addr(&address)?;
    if passed.is_empty() {
        socket.send(state.as_bytes())?;
        return Ok(());
    }
    let mut space =
        [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(NOTIFICATION_SOCKETS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(passed)) {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let text = [IoSlice::new(state.as_bytes())];
    rustix::net::sendmsg(&socket, &text, &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Waits until the receiver has handled all messages before (sd_notify_barrier(3)), for at most `patience`. The receiver
/// closes the passed descriptor.
fn barrier_at(name: &OsStr, patience: Duration) -> io::Result<()> {
    let (mut waiting, passed) = UnixStream::pair()?;
    notify_at(name, "BARRIER=1", &[passed.as_fd()])?;
    drop(passed);
    waiting.set_read_timeout(Some(patience))?;
    waiting.read(&mut [0]).map(drop)
}

/// Message of a process to its supervisor.
#[derive(Debug)]
pub struct Notification {
    /// Number of the sending process; 0 for a process that the PID namespace of the receiver does not show.
    pub sender: u32,
    /// The lines of the message.
    pub text: String,
    /// Descriptors that came with the message, closed on exec.
    pub passed: Vec<OwnedFd>,
}

/// Socket of a supervisor for the messages of its server.
#[derive(Debug)]
pub struct NotificationSocket {
    socket: UnixDatagram,
    name: String,
}

impl NotificationSocket {
    /// Binds an abstract socket with a name of its own. The socket needs no folder, and a server that has given its
    /// privileges up can still send to the socket.
    pub fn bind() -> io::Result<NotificationSocket> {
        let number = super::monotonic_nanos();
        let name = format!("anthill-supervisor/{}/{number}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name)?;
        let socket = UnixDatagram::bind_addr(&address)?;
        sockopt::set_socket_passcred(&socket, true)?;
        Ok(NotificationSocket { socket, name })
    }

    /// Returns the name of the socket for NOTIFY_SOCKET.
    pub fn name(&self) -> String {
        format!("@{}", self.name)
    }

    /// Returns the next message, or None if no message waits. Text beyond [`NOTIFICATION_BYTES_MAX`] and descriptors beyond
    /// [`NOTIFICATION_SOCKETS_MAX`] are cut off.
    pub fn receive(&self) -> io::Result<Option<Notification>> {
        let mut text = [0_u8; NOTIFICATION_BYTES_MAX];
        // An array of u64 has the alignment of `cmsghdr`.
        let mut control = [0_u64; CONTROL_BYTES / 8];
        let mut part = libc::iovec {
            iov_base: text.as_mut_ptr().cast(),
            iov_len: text.len(),
        };
        // SAFETY: `msghdr` is plain data, for which zeros are valid: no name, no buffers.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        let flags = (RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC).bits() as libc::c_int;
        // SAFETY: all pointers refer to live buffers, and the lengths are those of the buffers.
        let length = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, flags) };
        let Ok(length) = usize::try_from(length) else {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            };
        };
        // SAFETY: `recvmsg` has filled `message`, and its buffers are live.
        let (sender, passed) = unsafe { control_contents(&message) };
        Ok(Some(Notification {
            sender,
            text: String::from_utf8_lossy(&text[..length]).into_owned(),
            passed,
        }))
    }
}

impl AsFd for NotificationSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Bytes of the control messages of a datagram: the sender and the descriptors, each with a header.
const CONTROL_BYTES: usize = 128 + NOTIFICATION_SOCKETS_MAX * 8;

/// Returns the sender and the descriptors of a received message.
///
/// # Safety
/// `recvmsg` has filled the message, and the buffer of the control messages is live. The function may be called once, since
/// the caller owns the descriptors afterwards.
unsafe fn control_contents(message: &libc::msghdr) -> (u32, Vec<OwnedFd>) {
    let (mut sender, mut passed) = (0, Vec::new());
    // SAFETY: the macros of the C library stay within the buffer and the length that the kernel has set. The kernel writes
    // whole entries, of the type that the header names, and the descriptors of SCM_RIGHTS belong to this process alone.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while let Some(entry) = header.as_ref() {
            let data = libc::CMSG_DATA(entry);
            #[allow(clippy::unnecessary_cast, reason = "musl declares 32 bits")]
            let length = entry.cmsg_len as usize - (data as usize - header as usize);
            match (entry.cmsg_level, entry.cmsg_type) {
                (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) => {
                    let peer = data.cast::<libc::ucred>().read_unaligned();
                    sender = u32::try_from(peer.pid).unwrap_or(0);
                }
                (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                    let numbers = data.cast::<libc::c_int>();
                    let count = length / size_of::<libc::c_int>();
                    passed.extend(
                        (0..count)
                            .map(|nth| OwnedFd::from_raw_fd(numbers.add(nth).read_unaligned())),
                    );
                }
                _ => {}
            }
            header = libc::CMSG_NXTHDR(message, entry);
        }
    }
    (sender, passed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_message_reaches_a_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let server = UnixDatagram::bind(&path).unwrap();
        notify_at(path.as_os_str(), "READY=1", &[]).unwrap();
        let mut bytes = [0; 64];
        let read = server.recv(&mut bytes).unwrap();
        assert_eq!(&bytes[..read], b"READY=1");
    }

    #[test]
    fn a_message_has_its_sender_its_text_and_its_descriptors() {
        let socket = NotificationSocket::bind().unwrap();
        assert!(socket.receive().unwrap().is_none());
        let listeners = [0; 3].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
        let passed: Vec<_> = listeners.iter().map(AsFd::as_fd).collect();
        let name = socket.name();
        notify_at(name.as_ref(), "READY=1", &[]).unwrap();
        notify_at(name.as_ref(), "FDSTORE=1\nFDNAME=a", &passed).unwrap();
        let first = socket.receive().unwrap().unwrap();
        assert_eq!(
            (first.sender, &*first.text),
            (std::process::id(), "READY=1")
        );
        assert!(first.passed.is_empty());
        let second = socket.receive().unwrap().unwrap();
        assert_eq!(second.text, "FDSTORE=1\nFDNAME=a");
        let copies = second.passed.into_iter().map(TcpListener::from);
        let ports = copies.map(|it| it.local_addr().unwrap().port());
        let expected = listeners.map(|it| it.local_addr().unwrap().port());
        assert_eq!(ports.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_full_queue_fails_the_message() {
        let socket = NotificationSocket::bind().unwrap();
        let name = socket.name();
        let mut sent = 0;
        let error = loop {
            match notify_at(name.as_ref(), "WATCHDOG=1", &[]) {
                Ok(()) => sent += 1,
                Err(error) => break error,
            }
        };
        assert!(sent > 0);
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn a_barrier_ends_when_the_receiver_has_closed_the_descriptor() {
        let socket = NotificationSocket::bind().unwrap();
        let name = socket.name();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut text = String::new();
                while text != "BARRIER=1" {
                    let message = socket.receive().unwrap();
                    text = message.map_or_else(String::new, |it| it.text);
                    std::thread::yield_now();
                }
            });
            barrier_at(name.as_ref(), Duration::from_secs(60)).unwrap();
        });
    }
}
