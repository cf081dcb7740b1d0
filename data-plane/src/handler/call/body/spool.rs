//! Spool files for request bodies of unknown length that don't fit into memory. A body is spooled until
//! complete: a script needs the length in advance (RFC 3875 §4.1.2), and a slow upload then doesn't occupy
//! a script.
//!
//! Spool files have no name, so the kernel removes a file with its descriptor even if the server is killed.
//! A thread pool writes, reads and frees the files, because a worker must not block on the disk. Bytes in
//! the page cache, usually most of the file, are read directly. One ledger for all workers limits the
//! number of bodies and their bytes, in total and for each client, so that a single client can't use up the
//! spool.

use crate::handler::call::body::error::BodyError;
use crate::handler::call::body::rate::RatedPipe;
use crate::handler::pipe::{PipeBroken, PipeRead, PipeReader};
use crate::ledger::shared_limit::{RefusalCounters, SharedLimit};
use crate::limits::{
    BODY_BUFFER_BYTES, SPOOL_PEER_PARTS, SPOOL_QUEUE_MAX, SPOOL_THREADS, SPOOLS_MAX,
};
use base::client_network::ClientNetwork;
use base::log::FAILURE_LINES;
use base::network_table::{Holding, NetworkTable};
use base::sys;
use base::thread_pool::{ThreadPool, ThreadPoolError};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::future::{Future, poll_fn};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use wire::reject::Reject;

/// Spool of request bodies, with the limits on their number and bytes.
pub struct BodySpool {
    folder: PathBuf,
    pool: ThreadPool,
    ledger: Mutex<SpoolLedger>,
    refusals: Arc<RefusalCounters>,
}

#[derive(Default)]
struct SpoolLedger {
    all: SpoolUsage,
    /// Usage of each client with a spooled body.
    peers: NetworkTable<SpoolUsage>,
}

/// Number of bodies and their bytes.
#[derive(Copy, Clone, Default)]
struct SpoolUsage {
    count: usize,
    bytes: u64,
}

impl Holding for SpoolUsage {
    fn is_none(&self) -> bool {
        self.count == 0
    }
}

/// A complete request body in a spool file.
pub struct SpooledBody {
    slot: SpoolSlot,
    length: u64,
    at: u64,
    reading: Option<PendingRead>,
}

/// A read in progress on the thread pool.
type PendingRead = Pin<Box<dyn Future<Output = Result<io::Result<Vec<u8>>, ThreadPoolError>>>>;

impl BodySpool {
    /// Makes a spool with files in `folder`, which must exist when the first body is spooled. Refusals for
    /// a client's share are counted in `refusals`.
    pub(crate) fn new(folder: &Path, refusals: &Arc<RefusalCounters>) -> BodySpool {
        BodySpool {
            folder: folder.to_owned(),
            pool: ThreadPool::new("anthill-spool", SPOOL_THREADS, SPOOL_QUEUE_MAX),
            ledger: Mutex::default(),
            refusals: Arc::clone(refusals),
        }
    }

    /// Removes files that a killed server left in the folder. Only a server that starts calls the
    /// function: a file with such a name may belong to a running server, which unlinks the file next.
    pub fn remove_leftovers(&self) {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten();
        for entry in entries.filter_map(Result::ok) {
            let name = entry.file_name();
            if name.as_encoded_bytes().starts_with(NAME_PREFIX.as_bytes()) {
                // Without the permission, the first body fails too and reports the reason.
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }

    /// Returns the number of bytes in spool files, of all bodies.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> u64 {
        self.ledger().all.bytes
    }

    /// Spools a body of the client `peer` to its end. The bytes of `ahead` have arrived already. All bodies
    /// together may have `bytes_max` bytes.
    pub(crate) async fn store(
        self: &Arc<Self>,
        peer: IpAddr,
        body: PipeReader,
        ahead: Vec<u8>,
        bytes_max: u64,
    ) -> Result<SpooledBody, BodyError> {
        let mut slot = SpoolSlot::enter(self, peer).ok_or(BodyError::SpoolFull)?;
        let spool = Arc::clone(self);
        let open = move |file: &mut Option<File>| {
            *file = Some(open_unnamed(&spool.folder)?);
            Ok(())
        };
        slot.run(open).await?;
        let mut body = RatedPipe::new(body, Duration::ZERO);
        let (mut part, mut length) = (ahead, 0);
        let mut is_last = false;
        loop {
            if !slot.grow(part.len() as u64, bytes_max) {
                return Err(BodyError::SpoolFull);
            }
            length += part.len() as u64;
            let write = move |file: &mut Option<File>| {
                opened(file)?.write_all(&part)?;
                Ok(part)
            };
            part = slot.run(write).await?;
            part.clear();
            if is_last {
                break;
            }
            let filled = poll_fn(|cx| fill(&mut body, &mut part, &slot, bytes_max, cx));
            is_last = filled.await?;
            if is_last && part.is_empty() {
                break;
            }
        }
        Ok(SpooledBody {
            slot,
            length,
            at: 0,
            reading: None,
        })
    }

    /// Returns true if the spool has no room for another part of this client, because either the client's
    /// share or the whole spool is used up.
    fn is_full(&self, peer: ClientNetwork, bytes_max: u64) -> bool {
        let ledger = self.ledger();
        let is_full = |sum: SpoolUsage, parts: u64| {
            sum.count >= SPOOLS_MAX / parts as usize
                || sum.bytes + BODY_BUFFER_BYTES as u64 > bytes_max / parts
        };
        let mut own = ledger.peers.each_of(peer);
        is_full(ledger.all, 1) || own.any(|own| is_full(own, SPOOL_PEER_PARTS))
    }

    fn ledger(&self) -> MutexGuard<'_, SpoolLedger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Converts an error of the disk into an error response. A failed disk is reported to the operator. A
    /// lack of descriptors is temporary and refuses only the body.
    fn failed(&self, why: &io::Error) -> BodyError {
        let folder = self.folder.display();
        let what =
            |rule| format!("the request body can't be spooled in {folder}: {why} (rule R{rule})");
        match why.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE) => {
                BodyError::NoDescriptor(what(Reject::BODIES_FULL.rule))
            }
            _ => BodyError::DiskFailed(what(Reject::BODY_NOT_KEPT.rule)),
        }
    }
}

/// Fills `part` with as many bytes as are written at once. Returns true with the last bytes of the body.
/// When the spool is full, a client that sends next to nothing is refused to make room.
fn fill(
    body: &mut RatedPipe,
    part: &mut Vec<u8>,
    slot: &SpoolSlot,
    bytes_max: u64,
    cx: &mut Context<'_>,
) -> Poll<Result<bool, BodyError>> {
    while part.len() < BODY_BUFFER_BYTES {
        let left = BODY_BUFFER_BYTES - part.len();
        let taken = body.poll_take(cx, part, left);
        if taken.is_pending()
            && body.is_too_slow()
            && slot.held.spool.is_full(slot.held.peer, bytes_max)
        {
            return Poll::Ready(Err(BodyError::TooSlow));
        }
        match ready!(taken) {
            Ok(PipeRead::Bytes(_)) => {}
            Ok(PipeRead::End) => return Poll::Ready(Ok(true)),
            Err(PipeBroken) => return Poll::Ready(Err(BodyError::Broken)),
        }
    }
    Poll::Ready(Ok(false))
}

/// Opens a file without a name in `folder`.
fn open_unnamed(folder: &Path) -> io::Result<File> {
    let own = Mode::RUSR | Mode::WUSR;
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::openat(CWD, folder, flags | OFlags::TMPFILE, own) {
        // Some network and stacked file systems lack O_TMPFILE, and older kernels treat the call as an
        // attempt to open a directory for writing.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => open_named(folder),
        made => Ok(made?.into()),
    }
}

/// Creates a named file and removes the name at once, for file systems without O_TMPFILE. The name is
/// random, since another server may use the folder.
fn open_named(folder: &Path) -> io::Result<File> {
    let own = Mode::RUSR | Mode::WUSR;
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::CREATE | OFlags::EXCL;
    let random = RandomState::new().build_hasher().finish();
    let name = folder.join(format!("{NAME_PREFIX}{random:016x}"));
    let made = rustix::fs::openat(CWD, &name, flags, own)?;
    match std::fs::remove_file(&name) {
        // NotFound: another starting server has removed the file in its sweep.
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(made.into()),
    }
}

const NAME_PREFIX: &str = ".body.";

impl SpooledBody {
    /// Returns the length of the body in bytes.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Takes bytes of the body as [`PipeReader::poll_take`] does. A read error of the disk breaks the pipe.
    pub(crate) fn poll_take(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        max: usize,
    ) -> Poll<Result<PipeRead, PipeBroken>> {
        let left = usize::try_from(self.length - self.at).unwrap_or(usize::MAX);
        if left == 0 {
            return Poll::Ready(Ok(PipeRead::End));
        }
        let read = match &mut self.reading {
            Some(reading) => match reading.as_mut().poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(read) => {
                    self.reading = None;
                    read.unwrap_or_else(|gone| Err(io::Error::other(gone)))
                }
            },
            None => match self.read_now(left.min(max)) {
                Ok(Some(bytes)) => Ok(bytes),
                Ok(None) => {
                    self.reading = Some(self.read_later(left.min(max)));
                    return self.poll_take(cx, out, max);
                }
                Err(error) => Err(error),
            },
        };
        match read {
            Ok(bytes) if !bytes.is_empty() => {
                self.at += bytes.len() as u64;
                out.extend_from_slice(&bytes);
                Poll::Ready(Ok(PipeRead::Bytes(bytes.len())))
            }
            other => {
                let why = other.err().unwrap_or(io::ErrorKind::UnexpectedEof.into());
                let rule = Reject::BODY_NOT_KEPT.rule;
                FAILURE_LINES.log(rule, log::Level::Error, &|| {
                    format!("a spooled request body can't be read from the disk: {why}")
                });
                Poll::Ready(Err(PipeBroken))
            }
        }
    }

    /// Reads bytes from the page cache. Returns None if the bytes have to come from the disk.
    fn read_now(&self, max: usize) -> io::Result<Option<Vec<u8>>> {
        let mut bytes = vec![0; max];
        let file = self.slot.held.file();
        let read = sys::pread_nowait(opened(&file)?.as_fd(), &mut bytes, self.at)?;
        Ok(read.map(|read| {
            bytes.truncate(read);
            bytes
        }))
    }

    fn read_later(&self, max: usize) -> PendingRead {
        let (held, at) = (Arc::clone(&self.slot.held), self.at);
        Box::pin(self.slot.held.spool.pool.run(move || {
            let mut bytes = vec![0; max];
            let read = sys::pread(opened(&held.file())?.as_fd(), &mut bytes, at)?;
            bytes.truncate(read);
            Ok(bytes)
        }))
    }
}

/// Place of a body in the spool, with the file. Dropping the slot frees both on the thread pool, after the
/// job in progress: the kernel may take long to free a large file.
struct SpoolSlot {
    held: Arc<SpoolFile>,
}

impl SpoolSlot {
    fn enter(spool: &Arc<BodySpool>, peer: IpAddr) -> Option<SpoolSlot> {
        let peer = peer.into();
        let mut ledger = spool.ledger();
        let has_share = |own: SpoolUsage| own.count >= SPOOLS_MAX / SPOOL_PEER_PARTS as usize;
        if ledger.peers.each_of(peer).any(has_share) {
            spool.refusals.increment(SharedLimit::SpooledBytes);
            return None;
        }
        if ledger.all.count >= SPOOLS_MAX {
            return None;
        }
        ledger.all.count += 1;
        ledger.peers.change(peer, |own| own.count += 1);
        drop(ledger);
        let spool = Arc::clone(spool);
        let held = SpoolFile {
            file: Mutex::default(),
            bytes: AtomicU64::new(0),
            peer,
            spool,
        };
        Some(SpoolSlot {
            held: Arc::new(held),
        })
    }

    /// Runs a job with the file on the thread pool.
    async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Option<File>) -> io::Result<T> + Send + 'static,
    ) -> Result<T, BodyError> {
        let (held, spool) = (Arc::clone(&self.held), &self.held.spool);
        let done = spool.pool.run(move || job(&mut held.file())).await;
        let done = done.map_err(|_| BodyError::SpoolFull)?;
        done.map_err(|why| spool.failed(&why))
    }

    /// Reserves `bytes` more bytes. Returns false if the spool or the client's share has no room.
    fn grow(&mut self, bytes: u64, bytes_max: u64) -> bool {
        let mut ledger = self.held.spool.ledger();
        let SpoolLedger { all, peers } = &mut *ledger;
        let fits =
            |sum: &SpoolUsage, max| sum.bytes.checked_add(bytes).is_some_and(|sum| sum <= max);
        let fits_own = |own: SpoolUsage| fits(&own, bytes_max / SPOOL_PEER_PARTS);
        let fits_share = peers.each_of(self.held.peer).all(fits_own);
        if !fits_share {
            self.held
                .spool
                .refusals
                .increment(SharedLimit::SpooledBytes);
        }
        let has_room = fits_share && fits(all, bytes_max);
        if has_room {
            all.bytes += bytes;
            peers.change(self.held.peer, |own| own.bytes += bytes);
            self.held.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        has_room
    }
}

impl Drop for SpoolSlot {
    fn drop(&mut self) {
        let release = SpoolRelease(Arc::clone(&self.held));
        // The pool's queue has room for one release of each slot. If the pool refuses the job, the file is
        // freed on the current thread.
        let _ = self.held.spool.pool.spawn(move || drop(release));
    }
}

/// File and ledger entry of a body, shared with the jobs on the thread pool.
struct SpoolFile {
    /// None before the file is opened and after the file is freed.
    file: Mutex<Option<File>>,
    bytes: AtomicU64,
    peer: ClientNetwork,
    spool: Arc<BodySpool>,
}

impl SpoolFile {
    /// Locks the file. Only one job at a time uses a file, so the lock is never contended.
    fn file(&self) -> MutexGuard<'_, Option<File>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn opened(file: &Option<File>) -> io::Result<&File> {
    file.as_ref().ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Release of a slot: closes the file first, then updates the ledger.
struct SpoolRelease(Arc<SpoolFile>);

impl Drop for SpoolRelease {
    fn drop(&mut self) {
        drop(self.0.file().take());
        let bytes = self.0.bytes.load(Ordering::Relaxed);
        let mut ledger = self.0.spool.ledger();
        ledger.all.count -= 1;
        ledger.all.bytes -= bytes;
        ledger.peers.change(self.0.peer, |own| {
            own.count -= 1;
            own.bytes -= bytes;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handler::pipe::pipe;

    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn wait<F: Future>(future: F) -> F::Output {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().build();
        runtime.unwrap().block_on(future)
    }

    fn body(bytes: &[u8]) -> PipeReader {
        let (mut writer, reader) = pipe(bytes.len());
        writer.write_some(bytes).unwrap();
        writer.finish();
        reader
    }

    fn spool() -> (tempfile::TempDir, Arc<BodySpool>) {
        let folder = tempfile::tempdir().unwrap();
        let spool = Arc::new(BodySpool::new(folder.path(), &Arc::default()));
        (folder, spool)
    }

    fn read(mut spooled: SpooledBody) -> Vec<u8> {
        let mut all = Vec::new();
        while wait(poll_fn(|cx| spooled.poll_take(cx, &mut all, 10_000))) != Ok(PipeRead::End) {}
        all
    }

    /// Waits until the pool has freed the dropped bodies.
    fn settled(spool: &BodySpool, count: usize) {
        while spool.ledger().all.count > count {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_body_is_read_back_unchanged_and_its_space_is_freed() {
        let (folder, spool) = spool();
        let bytes: Vec<u8> = (0..300_000u32).map(|at| (at % 251) as u8).collect();
        for ahead in [0, 1, 70_000, bytes.len()] {
            let rest = body(&bytes[ahead..]);
            let spooled = spool.store(ONE, rest, bytes[..ahead].to_vec(), u64::MAX);
            let spooled = wait(spooled).ok().unwrap();
            assert_eq!(spooled.length(), bytes.len() as u64);
            assert_eq!(spool.bytes(), bytes.len() as u64);
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
            assert!(read(spooled) == bytes);
            settled(&spool, 0);
            assert_eq!(spool.bytes(), 0);
            assert!(spool.ledger().peers.is_empty());
        }
    }

    #[test]
    fn a_body_is_read_back_by_the_thread_pool() {
        let (_folder, spool) = spool();
        let spooled = spool.store(ONE, body(b"lo"), b"hel".to_vec(), 20);
        let mut spooled = wait(spooled).ok().unwrap();
        spooled.reading = Some(spooled.read_later(4));
        assert_eq!(read(spooled), b"hello");
    }

    #[test]
    fn bytes_and_bodies_are_limited_in_total_and_for_each_client() {
        let (_folder, spool) = spool();
        let peers = [
            "127.0.0.1",
            "127.0.0.2",
            "2001:db8::1",
            "2001:db8:1:1::1",
            "127.0.0.5",
        ];
        let peers = peers.map(|peer| peer.parse().unwrap());
        let spooled = |peer, bytes: &[u8]| wait(spool.store(peer, body(bytes), Vec::new(), 400));
        let first = spooled(peers[0], &[b'x'; 60]).ok().unwrap();
        assert_eq!(
            spooled(peers[0], &[b'x'; 41]).err(),
            Some(BodyError::SpoolFull)
        );
        settled(&spool, 1);
        assert_eq!(spool.bytes(), 60);
        let others = peers[1..4].iter().map(|peer| spooled(*peer, &[b'x'; 100]));
        let others: Vec<_> = others.map(Result::ok).map(Option::unwrap).collect();
        assert_eq!(
            spooled(peers[4], &[b'x'; 41]).err(),
            Some(BodyError::SpoolFull)
        );
        drop((first, others));
        settled(&spool, 0);
        let mut all = Vec::new();
        for peer in &peers[..4] {
            all.extend((0..SPOOLS_MAX / 4).map(|_| spooled(*peer, b"").ok().unwrap()));
            if peers[2] == *peer {
                // Of the same /64 network, and of the same /48.
                for neighbour in ["2001:db8::2", "2001:db8:0:ff::1"] {
                    let neighbour = neighbour.parse().unwrap();
                    assert_eq!(spooled(neighbour, b"").err(), Some(BodyError::SpoolFull));
                }
            }
        }
        assert_eq!(spooled(peers[4], b"").err(), Some(BodyError::SpoolFull));
        drop(all);
        settled(&spool, 0);
        assert!(spooled(peers[0], &[b'x'; 100]).is_ok());
    }

    #[test]
    fn a_broken_body_and_a_missing_folder_are_errors() {
        let (folder, spool) = spool();
        let (writer, reader) = pipe(10);
        drop(writer);
        let spooled = wait(spool.store(ONE, reader, b"ab".to_vec(), 100));
        assert_eq!(spooled.err(), Some(BodyError::Broken));
        let spool = Arc::new(BodySpool::new(&folder.path().join("gone"), &Arc::default()));
        let spooled = wait(spool.store(ONE, body(b"a"), Vec::new(), 100));
        let Some(BodyError::DiskFailed(why)) = spooled.err() else {
            panic!("expected an error of the disk");
        };
        assert!(why.contains("gone: No such file"), "{why}");
        settled(&spool, 0);
        assert_eq!(spool.bytes(), 0);
        let why = io::Error::from_raw_os_error(libc::EMFILE);
        assert_eq!(spool.failed(&why).reject(), Reject::BODIES_FULL);
    }

    #[test]
    fn a_slow_client_is_refused_when_the_spool_is_full() {
        let (_folder, spool) = spool();
        let (_one, slow) = pipe(10);
        let (_two, other) = pipe(10);
        let most = SPOOLS_MAX / SPOOL_PEER_PARTS as usize;
        let all: Vec<_> = (1..most).map(|_| SpoolSlot::enter(&spool, ONE)).collect();
        let two = [127, 0, 0, 2].into();
        wait(async {
            let mut other = Box::pin(spool.store(two, other, b"ab".to_vec(), 1 << 20));
            let mut slow = Box::pin(spool.store(ONE, slow, b"ab".to_vec(), 1 << 20));
            let ended = poll_fn(|cx| {
                assert!(other.as_mut().poll(cx).is_pending());
                slow.as_mut().poll(cx)
            });
            assert_eq!(ended.await.err(), Some(BodyError::TooSlow));
        });
        drop(all);
    }

    #[test]
    fn named_files_leave_no_name() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join(".body.0123456789abcdef");
        std::fs::write(&name, "left behind").unwrap();
        std::fs::write(folder.path().join("other"), "").unwrap();
        let names = || std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(names(), 2);
        let spool = BodySpool::new(folder.path(), &Arc::default());
        assert_eq!(names(), 2);
        spool.remove_leftovers();
        assert_eq!(names(), 1);
        let files: Vec<File> = (0..3).map(|_| open_named(folder.path()).unwrap()).collect();
        assert_eq!(names(), 1);
        for mut file in files {
            file.write_all(b"whole").unwrap();
        }
    }
}
