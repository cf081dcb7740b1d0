//! Thin wrappers around system calls of Linux. Only this module and its submodules may use `unsafe`.
//!
//! Nearly all calls go through rustix and are safe. Each `unsafe` block has a SAFETY comment. The doc
//! comment of a wrapper names the errors of the kernel that matter, and the right reaction of the caller.

#![allow(unsafe_code)]

mod aead;
#[cfg(target_arch = "x86_64")]
mod memcpy;
mod allocator;
mod notification;
mod segments;
mod spawn;
mod supervision;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::inotify;
use rustix::io::{Errno, FdFlags, ReadWriteFlags};
use rustix::net::sockopt;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType};
use rustix::process::{Resource, Rlimit};
use rustix::thread::{CapabilitySet, Gid, Uid};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

pub use crate::limits::NOTIFICATION_SOCKETS_MAX;
use crate::limits::{THREAD_END_LOOK_MILLISECONDS, THREAD_END_LOOKS_MAX, UDP_RECEIVE_BYTES};

pub use crate::sys::allocator::Heap;
pub use aead::{Aead, AeadKey, NONCE_BYTES, TAG_BYTES};
pub use notification::{
    Notification, NotificationSocket, descriptor_store_room, notify, notify_barrier, notify_with,
    packet_pair,
};
pub use rustix::fs::inotify::{ReadFlags, WatchFlags};
pub use spawn::{ResourceLimits, SpawnOptions, reset_signals, spawn};
pub use supervision::{
    ProcessEnd, SignalQueue, SupervisedProgram, end_with_parent, next_ended_child, send_signal,
};

// ---- Files ----

/// Sends up to `len` bytes of `in_fd` from `offset` to the socket `out_fd` without copying into the
/// process. Returns the number of bytes taken; 0 means that the file ended early. Fails with `WouldBlock`
/// when the socket's buffer is full.
pub fn sendfile(
    out_fd: BorrowedFd<'_>,
    in_fd: BorrowedFd<'_>,
    offset: u64,
    len: usize,
) -> io::Result<usize> {
    let mut at = offset;
    Ok(rustix::fs::sendfile(out_fd, in_fd, Some(&mut at), len)?)
}

/// Reads bytes at `offset` that are in memory already. Returns `None` if the read would wait for the disk;
/// the caller then uses [`pread`] outside of the worker. A result shorter than `buf` is normal; 0 means the
/// end of the file.
///
/// On file systems without support (tmpfs, and some stacked file systems on older kernels) the function
/// reads in the ordinary manner: the content is in memory, or the kernel can't say.
pub fn pread_nowait(fd: BorrowedFd<'_>, buf: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
    let mut into = [IoSliceMut::new(buf)];
    loop {
        return match rustix::io::preadv2(fd, &mut into, offset, ReadWriteFlags::NOWAIT) {
            Ok(read) => Ok(Some(read)),
            Err(Errno::AGAIN) => Ok(None),
            Err(Errno::INTR) => continue,
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => pread(fd, buf, offset).map(Some),
            Err(errno) => Err(errno.into()),
        };
    }
}

/// Reads bytes at `offset` and waits for the disk if necessary. A result shorter than `buf` is normal; 0
/// means the end of the file.
pub fn pread(fd: BorrowedFd<'_>, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    Ok(rustix::io::retry_on_intr(|| {
        rustix::io::pread(fd, &mut *buf, offset)
    })?)
}

/// Processes with a file open for writing.
#[derive(Debug)]
pub enum OpenWriters {
    /// No process has the file open for writing. Contains the status of the file.
    None(rustix::fs::Stat),
    /// At least one process has the file open for writing.
    Some,
    /// The kernel can't tell: the file belongs to another user, or the file system has no leases.
    Unknown,
}

/// Checks if a process has `file` open for writing. `file` must be open for reading. The check takes a read
/// lease, which the kernel refuses while the file is open for writing, and returns the lease at once.
pub fn open_writers(file: BorrowedFd<'_>) -> OpenWriters {
    let stat = || rustix::fs::fstat(file);
    const F_SETSIG: libc::c_int = 10;
    let file = file.as_raw_fd();
    // A process that opens the file meanwhile waits for the end of the lease, and the kernel sends a signal
    // to the holder of the lease. The default signal SIGIO would end the process, and SIGURG is ignored.
    // SAFETY: the commands take a number and touch no memory. The descriptor is borrowed and therefore
    // open.
    let set = |command, value: libc::c_int| unsafe { libc::fcntl(file, command, value) } == 0;
    if !set(F_SETSIG, libc::SIGURG) {
        return OpenWriters::Unknown;
    }
    if set(libc::F_SETLEASE, libc::F_RDLCK) {
        // The status is read under the lease: a process that opens the file for writing waits until the
        // lease is returned.
        let stat = stat();
        set(libc::F_SETLEASE, libc::F_UNLCK);
        return stat.map_or(OpenWriters::Unknown, OpenWriters::None);
    }
    match io::Error::last_os_error().kind() {
        io::ErrorKind::WouldBlock => OpenWriters::Some,
        _ => OpenWriters::Unknown,
    }
}

/// Event in a watched folder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InotifyEvent {
    /// The watch, as returned by [`Inotify::watch`]; -1 for an overflow, which belongs to no watch.
    pub watch: i32,
    /// Type of the event: `CLOSE_WRITE`, `MOVED_TO`, …; `IGNORED` after the end of the watch.
    pub flags: ReadFlags,
    /// Number that connects the `MOVED_FROM` and the `MOVED_TO` of one rename; 0 for all other events.
    pub cookie: u32,
    /// The name in the folder; `None` for an event of the folder itself.
    pub name: Option<OsString>,
}

impl InotifyEvent {
    /// Returns true if the watch has ended, with its folder or by [`Inotify::remove`].
    pub fn is_gone(&self) -> bool {
        self.flags.contains(ReadFlags::IGNORED)
    }

    /// Returns true if a name was created. The content may still be incomplete.
    pub fn is_begun(&self) -> bool {
        self.flags.contains(ReadFlags::CREATE)
    }

    /// Returns true if only the metadata of a file changed. The process behind the change may still be
    /// writing to the file.
    pub fn is_file_touched(&self) -> bool {
        self.flags.contains(ReadFlags::ATTRIB)
            && !self.flags.contains(ReadFlags::ISDIR)
            && self.name.is_some()
    }

    /// Returns true if a file lost its name. Another file may have taken the name.
    pub fn is_file_name_removed(&self) -> bool {
        let gone = ReadFlags::DELETE | ReadFlags::MOVED_FROM;
        self.flags.intersects(gone) && !self.flags.contains(ReadFlags::ISDIR)
    }

    /// Returns true if the name refers to another folder than before, or to none: a folder was created,
    /// removed or moved, or the watched folder itself was moved.
    pub fn is_folder_replaced(&self) -> bool {
        let names =
            ReadFlags::CREATE | ReadFlags::DELETE | ReadFlags::MOVED_FROM | ReadFlags::MOVED_TO;
        self.flags.contains(ReadFlags::MOVE_SELF)
            || self.flags.contains(ReadFlags::ISDIR) && self.flags.intersects(names)
    }

    /// Returns true if events were lost. The caller has to rescan the folders of all watches.
    pub fn is_overflow(&self) -> bool {
        self.flags.contains(ReadFlags::QUEUE_OVERFLOW)
    }
}

/// Inotify instance: reports of the kernel about changes in folders. The descriptor is readable (for epoll)
/// while events wait.
#[derive(Debug)]
pub struct Inotify(OwnedFd);

impl Inotify {
    /// Events that can change the contents of a folder's files: completed writes, created or removed names,
    /// permissions, and the removal of the folder itself.
    pub const FOLDER: WatchFlags = WatchFlags::CLOSE_WRITE
        .union(WatchFlags::CREATE)
        .union(WatchFlags::DELETE)
        .union(WatchFlags::MOVE)
        .union(WatchFlags::ATTRIB)
        .union(WatchFlags::DELETE_SELF)
        .union(WatchFlags::MOVE_SELF)
        .union(WatchFlags::ONLYDIR)
        .union(WatchFlags::EXCL_UNLINK);

    /// Makes a non-blocking instance. Fails with EMFILE when the user has too many instances (128 by
    /// default).
    pub fn new() -> io::Result<Inotify> {
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        Ok(Inotify(inotify::init(flags)?))
    }

    /// Watches `path`. A second watch of the same file returns the same number. Fails with ENOSPC
    /// (`StorageFull`) when the user has no watches left; the caller then has to rescan.
    pub fn watch(&self, path: &Path, flags: WatchFlags) -> io::Result<i32> {
        Ok(inotify::add_watch(&self.0, path, flags)?)
    }

    /// Watches an open folder, regardless of renames of its path.
    pub fn watch_fd(&self, folder: BorrowedFd<'_>, flags: WatchFlags) -> io::Result<i32> {
        let path = format!("/proc/self/fd/{}", folder.as_raw_fd());
        Ok(inotify::add_watch(&self.0, path.as_str(), flags)?)
    }

    /// Ends a watch. An `IGNORED` event follows.
    pub fn remove(&self, watch: i32) -> io::Result<()> {
        Ok(inotify::remove_watch(&self.0, watch)?)
    }

    /// Returns true if events wait to be read.
    pub fn has_unread(&self) -> bool {
        // FIONREAD would be slower, since the kernel adds up the lengths of all events.
        let mut waits = [PollFd::new(&self.0, PollFlags::IN)];
        rustix::event::poll(&mut waits, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// Returns all waiting events, or an empty list. The call never blocks. The kernel bounds the queue
    /// (16,384 events by default, then an overflow event).
    pub fn read(&self) -> io::Result<Vec<InotifyEvent>> {
        let mut buf = [std::mem::MaybeUninit::uninit(); 8 * 1024];
        let mut reader = inotify::Reader::new(&self.0, &mut buf);
        let mut events = Vec::new();
        loop {
            match reader.next() {
                Ok(event) => events.push(InotifyEvent {
                    watch: event.wd(),
                    flags: event.events(),
                    cookie: event.cookie(),
                    name: event
                        .file_name()
                        .map(|name| OsString::from_vec(name.to_bytes().to_vec())),
                }),
                Err(Errno::AGAIN) => return Ok(events),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

/// Registers `inotify` with the runtime of the calling thread, to wait for readability.
pub fn async_inotify(inotify: Arc<Inotify>) -> io::Result<AsyncFd<Arc<Inotify>>> {
    // SAFETY: the value itself owns the descriptor named by `as_raw_fd`. The descriptor is private, and
    // neither replaced nor closed before the last `Arc` is dropped. The AsyncFd holds an `Arc`.
    unsafe { AsyncFd::register_with_interest(inotify, Interest::READABLE) }.map_err(io::Error::from)
}

/// Registers `fd` with the runtime of the calling thread, to wait for readability.
pub fn async_readable(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd names one open descriptor during its whole life, and the AsyncFd owns the OwnedFd.
    unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }.map_err(io::Error::from)
}

/// Registers `socket` with the runtime of the calling thread, to wait for readability and room for writing.
pub fn async_socket(socket: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    let interest = Interest::READABLE | Interest::WRITABLE;
    // SAFETY: an OwnedFd names one open descriptor during its whole life, and the AsyncFd owns the OwnedFd.
    unsafe { AsyncFd::register_with_interest(socket, interest) }.map_err(io::Error::from)
}

/// Registers a descriptor with several owners with the runtime of the calling thread.
pub fn async_shared(fd: Arc<OwnedFd>, interest: Interest) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
    // SAFETY: an OwnedFd names one open descriptor during its whole life, and the AsyncFd is one of the
    // owners.
    unsafe { AsyncFd::register_with_interest(fd, interest) }.map_err(io::Error::from)
}

impl AsFd for Inotify {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Inotify {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

// ---- Sockets ----

/// Returns the bytes sent on a Unix socket and not read yet, as counted by the kernel: each send call makes
/// a packet that takes more memory than its content, and a packet counts whole until read completely. On a
/// TCP socket the result is the number of bytes not acknowledged by the peer.
pub fn output_queue_bytes(socket: BorrowedFd<'_>) -> io::Result<usize> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the call writes one int, and the pointer refers to an int that outlives the call.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    match done {
        0 => Ok(usize::try_from(bytes).unwrap_or(0)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns the nanoseconds of the system's monotonic clock. `Instant` reads the same clock, and its arithmetic costs
/// more than the clock.
pub fn monotonic_nanos() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer refers to a live value, which the call fills.
    unsafe {
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time);
    }
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Numbers of bytes that the peer of a TCP connection has acknowledged and sent in all; 0 where the kernel does not report
/// the numbers.
#[derive(Copy, Clone, Default, PartialEq, Eq, Debug)]
pub struct PeerBytes {
    /// Bytes acknowledged by the peer.
    pub acknowledged: u64,
    /// Bytes received from the peer.
    pub received: u64,
}

/// Returns the bytes that the peer of a TCP connection has moved.
pub fn peer_bytes(socket: BorrowedFd<'_>) -> PeerBytes {
    // The buffer holds `struct tcp_info` up to `tcpi_bytes_acked` (Linux 4.1), the field at byte 120, and
    // `tcpi_bytes_received` behind.
    let mut info = [0u64; 17];
    let mut length = size_of_val(&info) as libc::socklen_t;
    // SAFETY: the pointers refer to a live buffer and to its length, and the kernel writes at most
    // `length` bytes.
    unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        );
    }
    PeerBytes {
        acknowledged: info[15],
        received: info[16],
    }
}

/// Makes a listening TCP socket, non-blocking and closed on exec. `v6_only` only affects IPv6 addresses.
/// With `reuse_port` several sockets may listen on one address, even a socket of another program of the
/// same user. The caller checks with [`is_free`] first.
pub fn listen(
    address: SocketAddr,
    reuse_port: bool,
    backlog: i32,
    v6_only: bool,
) -> io::Result<OwnedFd> {
    let socket = bound(SocketType::STREAM, address, reuse_port, v6_only)?;
    rustix::net::listen(&socket, backlog)?;
    Ok(socket)
}

/// Binds a UDP socket to an address without other sockets. The receive buffer has [`UDP_RECEIVE_BYTES`], or
/// the largest size that the system allows: `net.core.rmem_max`, which CAP_NET_ADMIN may exceed.
pub fn udp(address: SocketAddr, v6_only: bool) -> io::Result<OwnedFd> {
    let socket = bound(SocketType::DGRAM, address, false, v6_only)?;
    if sockopt::set_socket_recv_buffer_size_force(&socket, UDP_RECEIVE_BYTES).is_err() {
        // The kernel lowers a size above its limit without an error.
        let _ = sockopt::set_socket_recv_buffer_size(&socket, UDP_RECEIVE_BYTES);
    }
    Ok(socket)
}

/// Returns the number of datagrams discarded by the kernel on the socket, nearly all because of a full
/// receive buffer.
pub fn datagrams_lost(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let mut info = [0_u32; libc::SK_MEMINFO_DROPS as usize + 1];
    let mut length = size_of_val(&info) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to the array, the size of the array, and the new
    // length to `length`. The array and `length` live longer than the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    match result {
        0 => Ok(info[libc::SK_MEMINFO_DROPS as usize]),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Checks that no socket listens on `address`. Fails with `AddrInUse` otherwise, even if the socket has
/// SO_REUSEPORT. Port 0 is always free.
pub fn is_free(address: SocketAddr, v6_only: bool) -> io::Result<()> {
    bound(SocketType::STREAM, address, false, v6_only).map(drop)
}

fn bound(
    kind: SocketType,
    address: SocketAddr,
    reuse_port: bool,
    v6_only: bool,
) -> io::Result<OwnedFd> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, kind, flags, None)?;
    if kind == SocketType::STREAM {
        // A restart must not wait for connections of the previous process in TIME_WAIT.
        sockopt::set_socket_reuseaddr(&socket, true)?;
    }
    if reuse_port {
        sockopt::set_socket_reuseport(&socket, true)?;
    }
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, v6_only)?;
    }
    rustix::net::bind(&socket, &address)?;
    Ok(socket)
}

/// Sets a socket option that is an integer.
fn set_option(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: u32,
) -> io::Result<()> {
    // SAFETY: the pointer and the length refer to one live integer, which the kernel only reads.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Turns UDP_GRO off, so that each receive call returns a single datagram. A kernel without UDP_GRO
/// needs no setting, and its ENOPROTOOPT is not an error.
pub fn receive_singly(socket: BorrowedFd<'_>) -> io::Result<()> {
    match set_option(socket, libc::SOL_UDP, libc::UDP_GRO, 0) {
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(()),
        done => done,
    }
}

/// Keeps connections in the kernel until the first bytes arrive, at most `seconds` (rounded up to the
/// kernel's next repetition of its SYN-ACK). An accepted connection then has data to read.
pub fn defer_accept(listener: BorrowedFd<'_>, seconds: u32) -> io::Result<()> {
    let name = libc::TCP_DEFER_ACCEPT;
    set_option(listener, libc::IPPROTO_TCP, name, seconds)
}

/// Bounds the bytes that the kernel holds unsent for the peer of a socket (TCP_NOTSENT_LOWAT, which accepted
/// sockets inherit from their listening socket). The kernel takes no further bytes while `bytes` wait, and reports
/// the socket as writable again at half of the bound. Bytes in flight don't count.
pub fn bound_unsent(socket: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    let name = libc::TCP_NOTSENT_LOWAT;
    set_option(socket, libc::IPPROTO_TCP, name, bytes)
}

/// Gives a socket a receive buffer of about `bytes` before the socket connects, and so the window of its first
/// packet. An advertised window can't be taken back later.
///
/// The scale of the window is fixed with the first packet (RFC 7323, section 2.2). For a bounded buffer the kernel
/// would choose the scale 0, and the window could never exceed 64 KiB. The buffer is therefore not marked as bounded
/// until [`keep_receive_buffer`]. A kernel before Linux 5.14 has no SO_BUF_LOCK, and keeps the scale 0.
pub fn begin_receive_buffer(socket: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, bytes)?;
    let _ = unbound_receive_buffer(socket);
    Ok(())
}

/// Bounds the receive buffer of a socket to its present size, after the socket began to connect. The kernel no longer
/// adjusts the buffer to the delay of the network.
pub fn keep_receive_buffer(socket: BorrowedFd<'_>) {
    /// Flag of SO_BUF_LOCK for the receive buffer.
    const SOCK_RCVBUF_LOCK: u32 = 2;
    // A kernel before Linux 5.14 has bounded the buffer already.
    let _ = set_option(
        socket,
        libc::SOL_SOCKET,
        libc::SO_BUF_LOCK,
        SOCK_RCVBUF_LOCK,
    );
}

/// Raises the bound of the receive buffer of an established TCP connection. The window follows up to twice
/// `bytes`, the size of the buffer.
pub fn raise_receive_buffer(socket: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, bytes)?;
    let name = libc::TCP_WINDOW_CLAMP;
    set_option(socket, libc::IPPROTO_TCP, name, 2 * bytes)
}

/// Lets the kernel adjust a bounded receive buffer to the delay of the network (SO_BUF_LOCK, since Linux 5.14).
pub fn unbound_receive_buffer(socket: BorrowedFd<'_>) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_BUF_LOCK, 0)
}

/// Binds `socket` to a local address before the socket connects. The kernel chooses the port when the socket
/// connects (IP_BIND_ADDRESS_NO_PORT), so connections to different peers may share a port.
pub fn bind_without_port(socket: BorrowedFd<'_>, address: IpAddr) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1)?;
    Ok(rustix::net::bind(socket, &SocketAddr::new(address, 0))?)
}

/// Accepts the next connection of `listener` as a non-blocking socket, and returns its peer's address.
/// Fails with `WouldBlock` if no connection waits.
pub fn accept(listener: BorrowedFd<'_>) -> io::Result<(OwnedFd, SocketAddr)> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (socket, peer) = rustix::net::acceptfrom_with(listener, flags)?;
    let peer = peer.ok_or(Errno::CONNABORTED)?;
    Ok((socket, SocketAddr::try_from(peer)?))
}

/// Disables Nagle's algorithm. The server writes whole responses, so a delay has no benefit.
pub fn set_nodelay(socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(sockopt::set_tcp_nodelay(socket, true)?)
}

/// Enables keep-alive probes, which detect a vanished peer. The first probe follows after `idle`.
pub fn set_keepalive(socket: BorrowedFd<'_>, idle: Duration) -> io::Result<()> {
    sockopt::set_socket_keepalive(socket, true)?;
    Ok(sockopt::set_tcp_keepidle(socket, idle)?)
}

/// Turns immediate acknowledgements on or off. The kernel takes the setting as a hint and may return to
/// delayed acknowledgements.
pub fn set_quickack(socket: BorrowedFd<'_>, on: bool) -> io::Result<()> {
    Ok(sockopt::set_tcp_quickack(socket, on)?)
}

/// Shuts down the receiving direction. A listening socket stops accepting.
pub fn shutdown_read(socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::net::shutdown(socket, Shutdown::Read)?)
}

/// Shuts down the sending direction (FIN). The peer's bytes can still be read.
pub fn shutdown_write(socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::net::shutdown(socket, Shutdown::Write)?)
}

/// Shuts down both directions of a connection.
pub fn shutdown_both(socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::net::shutdown(socket, Shutdown::Both)?)
}

/// Returns the user of the process that listens at the other end of a Unix socket (SO_PEERCRED): the user at the time of
/// listen(2).
pub fn peer_user(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the pointers refer to a live `ucred` and to its length, and the kernel writes at most `length` bytes.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        )
    };
    match done {
        0 => Ok(peer.uid),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns the address of the peer. An IPv4 peer of an IPv6 socket gets an IPv4 address.
pub fn peer_address(socket: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    let any = rustix::net::getpeername(socket)?.ok_or(Errno::NOTCONN)?;
    let address = SocketAddr::try_from(any).map_err(|_| Errno::AFNOSUPPORT)?;
    Ok(SocketAddr::new(address.ip().to_canonical(), address.port()))
}

/// Returns the local address of a socket. The kernel has replaced port 0 by a real port.
pub fn socket_address(socket: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    let any = rustix::net::getsockname(socket)?;
    Ok(SocketAddr::try_from(any).map_err(|_| Errno::AFNOSUPPORT)?)
}

/// Returns the addresses by which other machines on the network reach this machine: the source addresses of
/// packets to the outside, IPv4 first. No packet is sent. Without a default route the result is the first
/// local IPv4 address that isn't a loopback address, or empty.
pub fn local_addresses() -> Vec<IpAddr> {
    // Documentation addresses (RFC 5737, RFC 3849) are routed like any other address and belong to no host.
    let v4 = outgoing("0.0.0.0:0", "192.0.2.1:9").or_else(|| {
        let trie = fs::read_to_string("/proc/net/fib_trie").ok()?;
        first_local_v4(&trie).map(IpAddr::V4)
    });
    let v6 = outgoing("[::]:0", "[2001:db8::1]:9");
    v4.into_iter().chain(v6).collect()
}

fn outgoing(from: &str, to: &str) -> Option<IpAddr> {
    let socket = UdpSocket::bind(from).ok()?;
    // `connect` of a datagram socket only consults the routing table.
    socket.connect(to).ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_unspecified() && !address.is_loopback()).then_some(address)
}

/// Returns the first local address in /proc/net/fib_trie: a line `|-- ADDRESS` above a line `host LOCAL`.
fn first_local_v4(trie: &str) -> Option<Ipv4Addr> {
    let mut last = None;
    for line in trie.lines() {
        let line = line.trim_start();
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.trim().parse::<Ipv4Addr>().ok();
        } else if line.ends_with("host LOCAL")
            && let Some(address) = last.filter(|address| !address.is_loopback())
        {
            return Some(address);
        }
    }
    None
}

/// Returns true if the machine supports IPv6.
pub fn has_ipv6() -> bool {
    let any = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0);
    bound(SocketType::STREAM, any, false, true).is_ok()
}

// ---- The service manager ----

/// Returns the sockets passed in by systemd, or by another service manager with the same protocol
/// (LISTEN_PID, LISTEN_FDS), each with its name (LISTEN_FDNAMES) or an empty text. Each socket is checked to be open, and becomes non-blocking and closed on
/// exec. The variables are removed, so that neither a second call nor a child process claims the sockets.
///
/// The function must be called from `main` before a second thread exists, and fails otherwise.
pub fn systemd_listen_fds() -> io::Result<Vec<(String, OwnedFd)>> {
    let Some(count) = listen_fds_count(
        std::env::var_os("LISTEN_PID").as_deref(),
        std::env::var_os("LISTEN_FDS").as_deref(),
        std::process::id(),
    ) else {
        return Ok(Vec::new());
    };
    must_be_single_threaded()?;
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':');
    for name in ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"] {
        // SAFETY: the process has a single thread (checked above), so no other thread reads the environment
        // meanwhile.
        unsafe { std::env::remove_var(name) };
    }
    let mut sockets = Vec::new();
    for number in 3..3 + count {
        // SAFETY: only the flags of the descriptor are read. If the descriptor isn't open, the call fails
        // with EBADF, and no value is kept.
        let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
        let flags = rustix::io::fcntl_getfd(borrowed)?;
        rustix::io::fcntl_setfd(borrowed, flags | FdFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(borrowed, true)?;
        // SAFETY: the descriptor is open (checked above), was made for this process by its parent
        // (LISTEN_PID is the own pid), and no other code knows its number. So the process becomes the only
        // owner.
        let socket = unsafe { OwnedFd::from_raw_fd(number) };
        sockets.push((names.next().unwrap_or_default().to_owned(), socket));
    }
    Ok(sockets)
}

/// Sets close-on-exec on all descriptors inherited from the parent process, so that no child process gets
/// them. A descriptor that can't be inspected stays unchanged.
pub fn set_cloexec_on_inherited() {
    let Ok(open) = fs::read_dir("/proc/self/fd") else {
        return;
    };
    let numbers = open.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    for number in numbers.filter(|number: &RawFd| *number > 2) {
        // SAFETY: only the flags of the descriptor are read and extended. If the descriptor isn't open, the
        // calls fail with EBADF.
        let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
        if let Ok(flags) = rustix::io::fcntl_getfd(borrowed) {
            let _ = rustix::io::fcntl_setfd(borrowed, flags | FdFlags::CLOEXEC);
        }
    }
}

fn listen_fds_count(pid: Option<&OsStr>, fds: Option<&OsStr>, own_pid: u32) -> Option<RawFd> {
    let pid: u32 = pid?.to_str()?.parse().ok()?;
    let count: RawFd = fds?.to_str()?.parse().ok()?;
    (pid == own_pid && (1..=1024).contains(&count)).then_some(count)
}

/// Returns the time after which the service manager ends this process for silence (WATCHDOG_USEC); None without such a time.
pub fn watchdog_time() -> Option<Duration> {
    let of = |name| std::env::var(name).ok();
    let time = watchdog_time_in(of("WATCHDOG_USEC")?, of("WATCHDOG_PID"), std::process::id());
    time.filter(|_| std::env::var_os("NOTIFY_SOCKET").is_some())
}

fn watchdog_time_in(micros: String, pid: Option<String>, own_pid: u32) -> Option<Duration> {
    let micros: u64 = micros.parse().ok().filter(|micros| *micros > 0)?;
    let is_meant = pid.is_none_or(|pid| pid.parse() == Ok(own_pid));
    is_meant.then_some(Duration::from_micros(micros))
}

// ---- Users, privileges and resources ----

/// Numbers of a user for dropping privileges.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UserIds {
    /// User id.
    pub uid: u32,
    /// Id of the primary group.
    pub gid: u32,
    /// Ids of all groups of the user, including the primary group.
    pub groups: Vec<u32>,
}

/// Returns the user `name` of /etc/passwd with the groups of /etc/group, or `None` if the user doesn't
/// exist. Other name services are not consulted, since a static binary has none.
pub fn lookup_user(name: &str) -> io::Result<Option<UserIds>> {
    let passwd = fs::read_to_string("/etc/passwd")?;
    let group = fs::read_to_string("/etc/group").unwrap_or_default();
    Ok(find_user(name, &passwd, &group))
}

fn find_user(name: &str, passwd: &str, group: &str) -> Option<UserIds> {
    let fields = |line: &str| -> Vec<String> { line.split(':').map(str::to_owned).collect() };
    let entry = passwd
        .lines()
        .map(fields)
        .find(|fields| fields.len() >= 4 && fields[0] == name && !name.is_empty())?;
    let number = |text: &str| text.parse::<u32>().ok().filter(|&id| id != u32::MAX);
    let uid = number(&entry[2])?;
    let gid = number(&entry[3])?;
    let mut groups = vec![gid];
    for fields in group.lines().map(fields) {
        let Some(id) = fields.get(2).and_then(|text| number(text)) else {
            continue;
        };
        let is_member = fields
            .get(3)
            .is_some_and(|members| members.split(',').any(|member| member == name));
        if is_member && !groups.contains(&id) {
            groups.push(id);
        }
    }
    Some(UserIds { uid, gid, groups })
}

/// Returns true if the process is root and may therefore bind low ports and change its user.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Changes to `user` permanently: groups, group, user, in this order. Then the function checks that root
/// can't be regained. Of root's capabilities only CAP_LEASE stays, which lets [`open_writers`] examine
/// files of other users. The kernel changes one thread only, so the function must be called before the
/// log's writers, the pools and the workers start, and fails otherwise.
pub fn drop_privileges(user: &UserIds) -> io::Result<()> {
    must_be_single_threaded()?;
    drop_thread_privileges(user)
}

fn drop_thread_privileges(user: &UserIds) -> io::Result<()> {
    let groups: Vec<Gid> = user.groups.iter().map(|&id| Gid::from_raw(id)).collect();
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    rustix::thread::set_thread_groups(&groups)?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    if !uid.is_root() {
        rustix::thread::set_keep_capabilities(true)?;
    }
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    if !uid.is_root() {
        let mut sets = rustix::thread::capabilities(None)?;
        sets.permitted &= CapabilitySet::LEASE;
        sets.effective = sets.permitted;
        sets.inheritable = CapabilitySet::empty();
        rustix::thread::set_capabilities(None, sets)?;
    }
    let root = Uid::from_raw(0);
    let returned = rustix::thread::set_thread_res_uid(root, root, root).is_ok();
    if !uid.is_root() && (returned || rustix::process::geteuid() != uid) {
        return Err(io::Error::other(
            "the process could become root again after dropping the privileges",
        ));
    }
    Ok(())
}

/// Runs `work` in a thread of its own with the ids of `user`, and without root's capabilities apart from CAP_LEASE. The
/// calling thread and all others stay root.
pub fn with_user<T: Send>(user: &UserIds, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    let ended = std::thread::scope(|scope| {
        let thread = scope.spawn(|| drop_thread_privileges(user).map(|()| work()));
        thread.join()
    });
    ended.unwrap_or_else(|_| Err(io::Error::other("the thread of another user panicked")))
}

/// Withholds the process's capabilities from child processes, and keeps them usable in the process. A
/// service manager passes CAP_NET_BIND_SERVICE as an ambient capability, which every child would inherit,
/// and a reload needs the capability to bind ports below 1024. exec(2) passes on the ambient set, and the
/// inheritable set if the file allows. Both sets are emptied, and the permitted and effective sets stay.
/// The function must be called before a second thread exists: the kernel changes one thread only.
pub fn keep_capabilities() -> io::Result<()> {
    must_be_single_threaded()?;
    match rustix::thread::clear_ambient_capability_set() {
        // EINVAL: the kernel is older than ambient capabilities (4.3).
        Ok(()) | Err(Errno::INVAL) => {}
        Err(error) => return Err(error.into()),
    }
    let mut sets = rustix::thread::capabilities(None)?;
    if !sets.inheritable.is_empty() {
        sets.inheritable = CapabilitySet::empty();
        match rustix::thread::set_capabilities(None, sets) {
            // The system call filter of the service refuses capset(2). The empty ambient set is enough for usual
            // programs: the inheritable set concerns only files that root marked with the same capability (setcap(8)).
            Err(Errno::PERM) => {}
            set => set?,
        }
    }
    Ok(())
}

/// Fails if the process has a second thread. The kernel lists a thread for a moment after another thread has joined it,
/// so the function looks again before it fails.
fn must_be_single_threaded() -> io::Result<()> {
    for _ in 0..THREAD_END_LOOKS_MAX {
        if fs::read_dir("/proc/self/task")?.count() == 1 {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(THREAD_END_LOOK_MILLISECONDS));
    }
    Err(io::Error::other(
        "the process must have a single thread, but has several",
    ))
}

/// Raises the limit of open files to the hard limit. Returns the new limit.
pub fn raise_nofile_limit() -> u64 {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    let now = match rustix::process::setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    now.unwrap_or(u64::MAX)
}

/// Detects the processor's features for copying. Has no effect on builds that copy with the C library.
pub fn detect_cpu_features() {
    #[cfg(target_arch = "x86_64")]
    memcpy::detect_cpu_features();
}

/// Prefetches all of `value` into the processor's cache.
#[inline]
pub fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    for line in 0..=size_of::<T>() / CACHE_LINE_BYTES {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let first = std::ptr::from_ref(value).cast::<i8>();
        // SAFETY: a prefetch is a hint and reads nothing. An address beyond the value does no harm.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(first.wrapping_add(line * CACHE_LINE_BYTES)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

/// Bytes of a cache line, the unit of a fetch from memory.
#[cfg(target_arch = "x86_64")]
const CACHE_LINE_BYTES: usize = 64;

/// Returns the pages of the program's code to the system: most pages were needed only during startup or for
/// a burst of unusual requests. The kernel maps a page again from its file cache when needed, without
/// reading the disk. Returns the number of bytes returned.
pub fn release_code_pages() -> usize {
    let here = release_code_pages as *const () as usize;
    let Some((start, end)) = fs::read_to_string("/proc/self/maps")
        .ok()
        .and_then(|maps| maps.lines().find_map(|line| code_range(line, here)))
    else {
        return 0;
    };
    // SAFETY: the range is a private mapping of the program's file, executable and never writable. Each
    // page is a page of the file and comes back unchanged on access.
    let forgotten = unsafe {
        rustix::mm::madvise(
            std::ptr::with_exposed_provenance_mut(start),
            end - start,
            rustix::mm::Advice::LinuxDontNeed,
        )
    };
    forgotten.map_or(0, |()| end - start)
}

/// Returns the address range of a line of `/proc/self/maps`, if the range is executable and read-only and
/// contains `address`.
fn code_range(line: &str, address: usize) -> Option<(usize, usize)> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let start = usize::from_str_radix(start, 16).ok()?;
    let end = usize::from_str_radix(end, 16).ok()?;
    (rest.starts_with("r-xp") && (start..end).contains(&address)).then_some((start, end))
}

/// Gives the calling thread the lowest priority (nice 19), for background work.
pub fn lowest_priority_thread() {
    // Process 0 means the calling thread alone on Linux. Lowering is always allowed. If a sandbox forbids
    // the call, the work runs at the usual priority.
    let _ = rustix::process::setpriority_process(None, 19);
}

/// Gives the calling thread a lower priority than the workers. On a busy processor the thread gets about a
/// tenth of the time of a thread with the usual priority (sched(7), nice 10).
pub fn low_priority_thread() {
    let _ = rustix::process::setpriority_process(None, 10);
}

/// Returns the number of usable processors, at least 1. Affinity and cgroup quota are taken into account.
pub fn cpu_count() -> usize {
    std::thread::available_parallelism().map_or(1, |count| count.get())
}

/// Returns the usable memory in bytes: the memory of the machine, or a smaller limit of a cgroup (v1 or
/// v2). Returns `None` if /proc has no figures.
pub fn memory_limit_bytes() -> Option<u64> {
    memory_limit_below(Path::new("/"))
}

fn memory_limit_below(root: &Path) -> Option<u64> {
    let read = |path: &str| fs::read_to_string(root.join(path)).ok();
    let total = read("proc/meminfo").and_then(|text| mem_total_bytes(&text));
    let own_groups = read("proc/self/cgroup").unwrap_or_default();
    let mut limits: Vec<u64> = total.into_iter().collect();
    for line in own_groups.lines() {
        // Format: `hierarchy:controllers:path`. Version 2 has an empty list of controllers.
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (parts.next(), parts.next()) else {
            continue;
        };
        let (mount, file) = if controllers.is_empty() {
            ("sys/fs/cgroup", "memory.max")
        } else if controllers.split(',').any(|name| name == "memory") {
            ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
        } else {
            continue;
        };
        // The limits of all parent groups apply, too. In a container the path may be a path of the host,
        // and only the top of the mount is visible: the last of the ancestors.
        for ancestor in Path::new(group.trim_start_matches('/')).ancestors() {
            let path = root.join(mount).join(ancestor).join(file);
            let text = fs::read_to_string(path).unwrap_or_default();
            // Without a limit the file contains `max` in version 2, and an enormous number in version 1.
            limits.extend(text.trim().parse::<u64>());
        }
    }
    limits.into_iter().min()
}

/// Ends the process with all threads, without running exit handlers.
pub fn exit_at_once(status: i32) -> ! {
    // SAFETY: the function takes a number and doesn't return.
    unsafe { libc::_exit(status) }
}

fn mem_total_bytes(meminfo: &str) -> Option<u64> {
    let rest = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = rest.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests;
