//! The operating system, thinly wrapped. This file and those below it alone may say `unsafe`.
//!
//! Nearly everything goes through rustix and is safe; what is not carries its SAFETY line. Each
//! wrapper says what the kernel may answer and what the caller should do about it. Linux only.

#![allow(unsafe_code)]

mod aead;
#[cfg(target_arch = "x86_64")]
mod memcpy;
mod allocator;
mod segments;
mod spawn;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::{SocketAddr as UnixAddress, UnixDatagram};
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

use crate::limits::UDP_RECEIVE_BYTES;

pub use crate::base::sys::allocator::Heap;
pub use aead::{Aead, AeadKey, NONCE_BYTES, TAG_BYTES};
pub use rustix::fs::inotify::{ReadFlags, WatchFlags};
pub use spawn::{SpawnOptions, reset_signals, spawn};

// ---- Files ----

/// Sends up to `len` bytes of `in_fd` from `offset` to the socket `out_fd`, copying nothing.
/// Returns the bytes taken; 0 means the file ended early. `WouldBlock` when the socket is full.
pub fn sendfile(
    out_fd: BorrowedFd<'_>,
    in_fd: BorrowedFd<'_>,
    offset: u64,
    len: usize,
) -> io::Result<usize> {
    let mut at = offset;
    Ok(rustix::fs::sendfile(out_fd, in_fd, Some(&mut at), len)?)
}

/// Reads at `offset` only what is in memory already: `None` when the disk would have to be asked
/// (then do it off the worker, with [`pread`]). Fewer bytes than asked for is normal; 0 is the end.
///
/// Where the file system can't tell (tmpfs and some stacked ones on older kernels), it reads
/// plainly: those are in memory, or nobody could know better.
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

/// Reads at `offset`, waiting for the disk if need be. Fewer bytes than asked for is normal; 0 is
/// the end.
pub fn pread(fd: BorrowedFd<'_>, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    Ok(rustix::io::retry_on_intr(|| {
        rustix::io::pread(fd, &mut *buf, offset)
    })?)
}

/// Whether anybody has a file open to write to it.
#[derive(Debug)]
pub enum OpenWriters {
    /// Nobody has, and this is what the file is.
    None(rustix::fs::Stat),
    /// Somebody has.
    Some,
    /// Nobody can tell: the file is another user's, or its file system has no leases.
    Unknown,
}

/// Has anybody opened this file, which we have for reading, to write to it? A lease tells, which the
/// kernel doesn't give while that is so; it is given back at once.
pub fn open_writers(file: BorrowedFd<'_>) -> OpenWriters {
    let stat = || rustix::fs::fstat(file);
    const F_SETSIG: libc::c_int = 10;
    let file = file.as_raw_fd();
    // Who opens the file in between waits for us, and the kernel says so by a signal. SIGIO, if we
    // chose none, would end the process; SIGURG is ignored.
    // SAFETY: the commands take a number and touch no memory; the descriptor is borrowed and so open.
    let set = |command, value: libc::c_int| unsafe { libc::fcntl(file, command, value) } == 0;
    if !set(F_SETSIG, libc::SIGURG) {
        return OpenWriters::Unknown;
    }
    if set(libc::F_SETLEASE, libc::F_RDLCK) {
        // While we have it: who writes next waits until it is given back.
        let stat = stat();
        set(libc::F_SETLEASE, libc::F_UNLCK);
        return stat.map_or(OpenWriters::Unknown, OpenWriters::None);
    }
    match io::Error::last_os_error().kind() {
        io::ErrorKind::WouldBlock => OpenWriters::Some,
        _ => OpenWriters::Unknown,
    }
}

/// What happened below a watched folder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InotifyEvent {
    /// The watch, as [`Inotify::watch`] returned it; -1 for an overflow, which belongs to none.
    pub watch: i32,
    /// What: `CLOSE_WRITE`, `MOVED_TO`, …; `IGNORED` when the watch is gone.
    pub flags: ReadFlags,
    /// Joins the `MOVED_FROM` and the `MOVED_TO` of one rename; else 0.
    pub cookie: u32,
    /// The name in the folder; `None` when the folder itself is meant.
    pub name: Option<OsString>,
}

impl InotifyEvent {
    /// The watch has ended, with its folder or by being removed.
    pub fn is_gone(&self) -> bool {
        self.flags.contains(ReadFlags::IGNORED)
    }

    /// A name came into being, and nothing more is known.
    pub fn is_begun(&self) -> bool {
        self.flags.contains(ReadFlags::CREATE)
    }

    /// Only what is known about a file changed; who did that may be writing to it.
    pub fn is_file_touched(&self) -> bool {
        self.flags.contains(ReadFlags::ATTRIB)
            && !self.flags.contains(ReadFlags::ISDIR)
            && self.name.is_some()
    }

    /// A file has no longer this name; another one may have taken it.
    pub fn is_file_name_removed(&self) -> bool {
        let gone = ReadFlags::DELETE | ReadFlags::MOVED_FROM;
        self.flags.intersects(gone) && !self.flags.contains(ReadFlags::ISDIR)
    }

    /// The folder of this name is another one than before, or none: it came, went or was moved; or
    /// the watched folder itself was moved.
    pub fn is_folder_replaced(&self) -> bool {
        let names =
            ReadFlags::CREATE | ReadFlags::DELETE | ReadFlags::MOVED_FROM | ReadFlags::MOVED_TO;
        self.flags.contains(ReadFlags::MOVE_SELF)
            || self.flags.contains(ReadFlags::ISDIR) && self.flags.intersects(names)
    }

    /// Events were lost: nothing known about any watch holds any more, so scan anew.
    pub fn is_overflow(&self) -> bool {
        self.flags.contains(ReadFlags::QUEUE_OVERFLOW)
    }
}

/// The kernel's news about folders. Readable (for epoll) while events wait.
#[derive(Debug)]
pub struct Inotify(OwnedFd);

impl Inotify {
    /// Everything that can change what a folder's files hold: completed writes, names that come or
    /// go, permissions; and the folder itself going away.
    pub const FOLDER: WatchFlags = WatchFlags::CLOSE_WRITE
        .union(WatchFlags::CREATE)
        .union(WatchFlags::DELETE)
        .union(WatchFlags::MOVE)
        .union(WatchFlags::ATTRIB)
        .union(WatchFlags::DELETE_SELF)
        .union(WatchFlags::MOVE_SELF)
        .union(WatchFlags::ONLYDIR)
        .union(WatchFlags::EXCL_UNLINK);

    /// A new one, non-blocking. Fails with EMFILE when the user has too many (128 by default).
    pub fn new() -> io::Result<Inotify> {
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        Ok(Inotify(inotify::init(flags)?))
    }

    /// Watches `path`; the same file again gives the same number. ENOSPC (`StorageFull`) means that
    /// the user has no watches left: rescan instead.
    pub fn watch(&self, path: &Path, flags: WatchFlags) -> io::Result<i32> {
        Ok(inotify::add_watch(&self.0, path, flags)?)
    }

    /// Watches an open folder, whatever its path has become.
    pub fn watch_fd(&self, folder: BorrowedFd<'_>, flags: WatchFlags) -> io::Result<i32> {
        let path = format!("/proc/self/fd/{}", folder.as_raw_fd());
        Ok(inotify::add_watch(&self.0, path.as_str(), flags)?)
    }

    /// Ends a watch; an `IGNORED` event follows.
    pub fn remove(&self, watch: i32) -> io::Result<()> {
        Ok(inotify::remove_watch(&self.0, watch)?)
    }

    /// Do events wait to be read?
    pub fn has_unread(&self) -> bool {
        // Not FIONREAD, which adds up the lengths of them all.
        let mut waits = [PollFd::new(&self.0, PollFlags::IN)];
        rustix::event::poll(&mut waits, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// All events that wait; empty if none. Never blocks. Bounded by the kernel's own queue
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

/// Registers `inotify` with the runtime of this thread, to wait until it is readable.
pub fn async_inotify(inotify: Arc<Inotify>) -> io::Result<AsyncFd<Arc<Inotify>>> {
    // SAFETY: the descriptor that `as_raw_fd` names is owned by the value itself, private to it, and
    // neither replaced nor closed before the last share of it is dropped, of which the AsyncFd has one.
    unsafe { AsyncFd::register_with_interest(inotify, Interest::READABLE) }.map_err(io::Error::from)
}

/// Registers `fd` with the runtime of this thread, to wait until it is readable.
pub fn async_readable(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd names one open descriptor for as long as it lives, and the AsyncFd owns it.
    unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }.map_err(io::Error::from)
}

/// Registers a descriptor that has several owners with the runtime of this thread.
pub fn async_shared(fd: Arc<OwnedFd>, interest: Interest) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
    // SAFETY: an OwnedFd names one open descriptor for as long as it lives, and the AsyncFd is one of
    // those that own it.
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

/// What was sent on this socket of the file system and isn't read yet, bytes as the kernel counts
/// them: each call to send makes a packet that takes up more than it carries, and counts whole until all
/// of it is read. Over TCP it says what the other end has not acknowledged.
pub fn output_queue_bytes(socket: BorrowedFd<'_>) -> io::Result<usize> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the call writes one int, and the pointer is to one that lives longer than it.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    match done {
        0 => Ok(usize::try_from(bytes).unwrap_or(0)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns the total number of bytes that the peer of a TCP connection has acknowledged; 0 where the
/// kernel does not report the number.
pub fn acknowledged(socket: BorrowedFd<'_>) -> u64 {
    // The buffer holds `struct tcp_info` up to `tcpi_bytes_acked` (Linux 4.1), the field at byte 120.
    let mut info = [0u64; 16];
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
    info[15]
}

/// A listening TCP socket, non-blocking and closed on exec. `v6_only` matters for IPv6 addresses
/// alone. With `reuse_port` several may listen on one address, and another program of the same user
/// could too: ask [`is_free`] first.
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

/// Binds a UDP socket to an address that no other socket has. The receive buffer has [`UDP_RECEIVE_BYTES`], or
/// the largest size that the system allows: `net.core.rmem_max`, which CAP_NET_ADMIN may exceed.
pub fn udp(address: SocketAddr, v6_only: bool) -> io::Result<OwnedFd> {
    let socket = bound(SocketType::DGRAM, address, false, v6_only)?;
    if sockopt::set_socket_recv_buffer_size_force(&socket, UDP_RECEIVE_BYTES).is_err() {
        // The kernel lowers a size above its limit without an error.
        let _ = sockopt::set_socket_recv_buffer_size(&socket, UDP_RECEIVE_BYTES);
    }
    Ok(socket)
}

/// Returns the number of datagrams that the kernel has discarded on this socket, nearly all because the receive
/// buffer was full.
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

/// Whether nobody listens on this address: an error of kind `AddrInUse` if somebody does, even with
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
        // A restart must not wait for the TIME_WAIT of the last run's connections.
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
    // SAFETY: the pointer and the length are those of one live integer, which the kernel only reads.
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

/// Lets connections wait in the kernel until their first bytes are there, `seconds` at most (rounded
/// up to the next time at which the kernel would repeat its SYN-ACK): accepting one then pays.
pub fn defer_accept(listener: BorrowedFd<'_>, seconds: u32) -> io::Result<()> {
    let name = libc::TCP_DEFER_ACCEPT;
    set_option(listener, libc::IPPROTO_TCP, name, seconds)
}

/// Bounds the bytes that the kernel holds for the peers of accepted connections and has not sent yet
/// (TCP_NOTSENT_LOWAT, which accepted sockets inherit). The kernel takes no more while `bytes` wait, and
/// calls the socket writable again at half of them. Bytes on their way to the peer don't count.
pub fn bound_unsent(listener: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    let name = libc::TCP_NOTSENT_LOWAT;
    set_option(listener, libc::IPPROTO_TCP, name, bytes)
}

/// Takes the next connection that waits at `listener`, non-blocking, and who it is from.
/// `WouldBlock` when none waits.
pub fn accept(listener: BorrowedFd<'_>) -> io::Result<(OwnedFd, SocketAddr)> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (socket, peer) = rustix::net::acceptfrom_with(listener, flags)?;
    let peer = peer.ok_or(Errno::CONNABORTED)?;
    Ok((socket, SocketAddr::try_from(peer)?))
}

/// Sends what is written at once: our writes are whole responses, so waiting for more is only delay.
pub fn set_nodelay(socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(sockopt::set_tcp_nodelay(socket, true)?)
}

/// Lets the kernel find out that a silent peer is gone: first probe after `idle`.
pub fn set_keepalive(socket: BorrowedFd<'_>, idle: Duration) -> io::Result<()> {
    sockopt::set_socket_keepalive(socket, true)?;
    Ok(sockopt::set_tcp_keepidle(socket, idle)?)
}

/// Acknowledges what was received at once; the kernel takes this as a hint and may fall back.
pub fn set_quickack(socket: BorrowedFd<'_>, on: bool) -> io::Result<()> {
    Ok(sockopt::set_tcp_quickack(socket, on)?)
}

/// Reads nothing more from the peer. On a listening socket it ends accepting.
pub fn shutdown_read(socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::net::shutdown(socket, Shutdown::Read)?)
}

/// Says that we send nothing more (FIN); the peer's bytes can still be read.
pub fn shutdown_write(socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::net::shutdown(socket, Shutdown::Write)?)
}

/// Ends both ways of a connection.
pub fn shutdown_both(socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::net::shutdown(socket, Shutdown::Both)?)
}

/// The other end, IPv4 as IPv4 even when it came in through an IPv6 socket.
pub fn peer_address(socket: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    let any = rustix::net::getpeername(socket)?.ok_or(Errno::NOTCONN)?;
    let address = SocketAddr::try_from(any).map_err(|_| Errno::AFNOSUPPORT)?;
    Ok(SocketAddr::new(address.ip().to_canonical(), address.port()))
}

/// Our own end, as it was bound (port 0 became a real one).
pub fn socket_address(socket: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    let any = rustix::net::getsockname(socket)?;
    Ok(SocketAddr::try_from(any).map_err(|_| Errno::AFNOSUPPORT)?)
}

/// The addresses by which others on the network reach this machine: those that a packet to the
/// outside would carry, IPv4 first. Nothing is sent. Without a way out, the first local address
/// that isn't a loopback; empty when there is none.
pub fn local_addresses() -> Vec<IpAddr> {
    // Documentation addresses (RFC 5737, RFC 3849): routed like any other, and nobody's.
    let v4 = outgoing("0.0.0.0:0", "192.0.2.1:9").or_else(|| {
        let trie = fs::read_to_string("/proc/net/fib_trie").ok()?;
        first_local_v4(&trie).map(IpAddr::V4)
    });
    let v6 = outgoing("[::]:0", "[2001:db8::1]:9");
    v4.into_iter().chain(v6).collect()
}

fn outgoing(from: &str, to: &str) -> Option<IpAddr> {
    let socket = UdpSocket::bind(from).ok()?;
    // Connecting a datagram socket only asks the routing table.
    socket.connect(to).ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_unspecified() && !address.is_loopback()).then_some(address)
}

/// The first own address in /proc/net/fib_trie: a line `|-- ADDRESS` above one of `host LOCAL`.
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

/// Whether this machine can speak IPv6 at all.
pub fn has_ipv6() -> bool {
    let any = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0);
    bound(SocketType::STREAM, any, false, true).is_ok()
}

// ---- The service manager ----

/// The sockets that systemd (or whoever speaks its protocol) passed in: LISTEN_PID, LISTEN_FDS.
/// Each is checked to be open, and is made non-blocking and closed on exec. The variables are
/// removed, so that neither a second call nor a child takes them for its own.
///
/// Call it once, from `main`, before there is a second thread; with one it returns an error.
pub fn systemd_listen_fds() -> io::Result<Vec<OwnedFd>> {
    let Some(count) = listen_fds_count(
        std::env::var_os("LISTEN_PID").as_deref(),
        std::env::var_os("LISTEN_FDS").as_deref(),
        std::process::id(),
    ) else {
        return Ok(Vec::new());
    };
    must_be_single_threaded()?;
    for name in ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"] {
        // SAFETY: this is the process's only thread (checked above), so nobody reads the
        // environment meanwhile.
        unsafe { std::env::remove_var(name) };
    }
    let mut sockets = Vec::new();
    for number in 3..3 + count {
        // SAFETY: the descriptor is only asked for its flags; if it isn't open, that fails with
        // EBADF and nothing is kept.
        let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
        let flags = rustix::io::fcntl_getfd(borrowed)?;
        rustix::io::fcntl_setfd(borrowed, flags | FdFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(borrowed, true)?;
        // SAFETY: it is open (checked above), was made for this process by whoever started it
        // (LISTEN_PID is ours), and nothing else here knows its number: it becomes ours alone.
        sockets.push(unsafe { OwnedFd::from_raw_fd(number) });
    }
    Ok(sockets)
}

/// Closes on exec whatever whoever started us has left open, so that no program of ours gets it. What
/// can't be looked at stays as it is.
pub fn set_cloexec_on_inherited() {
    let Ok(open) = fs::read_dir("/proc/self/fd") else {
        return;
    };
    let numbers = open.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    for number in numbers.filter(|number: &RawFd| *number > 2) {
        // SAFETY: the descriptor is only asked for its flags and given one more; if it isn't open,
        // that fails with EBADF.
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

/// Tells the service manager about our state (`READY=1`, `RELOADING=1\nMONOTONIC_USEC=…`,
/// `STOPPING=1`, `STATUS=…`), if there is one (NOTIFY_SOCKET). Returns whether it was told.
pub fn notify(state: &str) -> io::Result<bool> {
    match std::env::var_os("NOTIFY_SOCKET") {
        Some(name) if !name.is_empty() => notify_at(&name, state).map(|()| true),
        _ => Ok(false),
    }
}

/// A name that begins with `@` is abstract: it is no file.
fn notify_at(name: &OsStr, state: &str) -> io::Result<()> {
    let address = match name.as_bytes() {
        [b'@', rest @ ..] => UnixAddress::from_abstract_name(rest)?,
        _ => UnixAddress::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.send_to_addr(state.as_bytes(), &address)?;
    Ok(())
}

// ---- Who we are and what we may use ----

/// A user by numbers, as privileges are dropped to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UserIds {
    /// User number.
    pub uid: u32,
    /// The user's first group.
    pub gid: u32,
    /// All groups that it is in, the first one too.
    pub groups: Vec<u32>,
}

/// The user of this name in /etc/passwd, with its groups from /etc/group; `None` if there is none.
/// (Other name services aren't asked: a static binary has none.)
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

/// Whether we are root, and so may bind low ports and become another user.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Becomes `user` for good: groups, group, user, in this order, and then checks that there is no
/// way back. Of root's capabilities only CAP_LEASE stays, with which [`open_writers`] can tell of files that belong
/// to another user. The kernel does this by thread, so there may be only one: call it before the log's
/// writers, the pools and the workers begin (else an error).
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
        return Err(io::Error::other("root could be regained after dropping it"));
    }
    Ok(())
}

/// Keeps this process's capabilities from the programs that it starts, and stays able to use them: a
/// service manager hands CAP_NET_BIND_SERVICE over as an ambient capability, which every program would
/// inherit, and a reload needs it to bind ports below 1024. What exec(2) passes on is the ambient set,
/// and the inheritable set where a file allows it; both are emptied, and the permitted and effective
/// sets stay. Call it before there is a second thread: the kernel does this by thread.
pub fn keep_capabilities() -> io::Result<()> {
    must_be_single_threaded()?;
    match rustix::thread::clear_ambient_capability_set() {
        // The kernel is older than ambient capabilities (4.3).
        Ok(()) | Err(Errno::INVAL) => {}
        Err(error) => return Err(error.into()),
    }
    let mut sets = rustix::thread::capabilities(None)?;
    if !sets.inheritable.is_empty() {
        sets.inheritable = CapabilitySet::empty();
        rustix::thread::set_capabilities(None, sets)?;
    }
    Ok(())
}

fn must_be_single_threaded() -> io::Result<()> {
    match fs::read_dir("/proc/self/task")?.count() {
        1 => Ok(()),
        many => Err(io::Error::other(format!(
            "must run before other threads, and there are {many}"
        ))),
    }
}

/// Raises the limit of open files to the most that is allowed; returns what it is now.
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

/// Looks what the processor is good at, for copying; nothing where that is not ours to do.
pub fn detect_cpu_features() {
    #[cfg(target_arch = "x86_64")]
    memcpy::detect_cpu_features();
}

/// Asks the processor to fetch all of `value` into its cache while we do something else.
#[inline]
pub fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    for line in 0..=size_of::<T>() / CACHE_LINE_BYTES {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let first = std::ptr::from_ref(value).cast::<i8>();
        // SAFETY: a hint; it reads nothing, and an address beyond the value would do no harm.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(first.wrapping_add(line * CACHE_LINE_BYTES)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

/// What the processor fetches at once.
#[cfg(target_arch = "x86_64")]
const CACHE_LINE_BYTES: usize = 64;

/// Gives back the pages of the program's code: most of them were needed for starting up, or for a burst
/// of unusual requests. A page that is needed again is mapped again from the page cache, without reading
/// the disk. Returns bytes given back.
pub fn release_code_pages() -> usize {
    let here = release_code_pages as *const () as usize;
    let Some((start, end)) = fs::read_to_string("/proc/self/maps")
        .ok()
        .and_then(|maps| maps.lines().find_map(|line| code_range(line, here)))
    else {
        return 0;
    };
    // SAFETY: the range is a private mapping of our program's file that is executable and was never
    // writable, so each of its pages is the file's own and comes back the same when it is touched.
    let forgotten = unsafe {
        rustix::mm::madvise(
            std::ptr::with_exposed_provenance_mut(start),
            end - start,
            rustix::mm::Advice::LinuxDontNeed,
        )
    };
    forgotten.map_or(0, |()| end - start)
}

/// The addresses of a line of `/proc/self/maps`, if it is executable, read-only, and `address` lies
/// within.
fn code_range(line: &str, address: usize) -> Option<(usize, usize)> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let start = usize::from_str_radix(start, 16).ok()?;
    let end = usize::from_str_radix(end, 16).ok()?;
    (rest.starts_with("r-xp") && (start..end).contains(&address)).then_some((start, end))
}

/// Gives the calling thread the lowest priority (nice 19): for work that nobody waits for.
pub fn lowest_priority_thread() {
    // Process "0" is the calling thread alone on Linux. Lowering is always allowed; if a sandbox
    // forbids it all the same, the work is done at the usual priority.
    let _ = rustix::process::setpriority_process(None, 19);
}

/// The calling thread goes behind what answers requests, but has its part of a busy processor: about a
/// tenth of what a thread of the usual priority has (sched(7), nice 10).
pub fn low_priority_thread() {
    let _ = rustix::process::setpriority_process(None, 10);
}

/// Processors that we may use (affinity and cgroup quota counted), at least 1.
pub fn cpu_count() -> usize {
    std::thread::available_parallelism().map_or(1, |count| count.get())
}

/// Memory that we may use, bytes: the machine's, or less where a cgroup (v1 or v2) says so.
/// `None` if /proc doesn't tell.
pub fn memory_limit_bytes() -> Option<u64> {
    memory_limit_below(Path::new("/"))
}

fn memory_limit_below(root: &Path) -> Option<u64> {
    let read = |path: &str| fs::read_to_string(root.join(path)).ok();
    let total = read("proc/meminfo").and_then(|text| mem_total_bytes(&text));
    let own_groups = read("proc/self/cgroup").unwrap_or_default();
    let mut limits: Vec<u64> = total.into_iter().collect();
    for line in own_groups.lines() {
        // `hierarchy:controllers:path`; version 2 names no controllers.
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
        // A group is bound by all groups above it too. In a container the path may be one of the
        // host's, of which only the mount's top is to be seen: that is the last of the ancestors.
        for ancestor in Path::new(group.trim_start_matches('/')).ancestors() {
            let path = root.join(mount).join(ancestor).join(file);
            let text = fs::read_to_string(path).unwrap_or_default();
            // No limit is `max` in version 2, an enormous number in version 1.
            limits.extend(text.trim().parse::<u64>());
        }
    }
    limits.into_iter().min()
}

/// Ends the process with all its threads, and runs nothing that was registered for its end.
pub fn exit_at_once(status: i32) -> ! {
    // SAFETY: it takes a number, and doesn't return.
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
