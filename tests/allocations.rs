//! Heap allocations of a worker for a warm stored page: 0, over plain HTTP and over TLS.
//!
//! A client cannot observe allocations, so the worker runs inside the test process on a thread with counted
//! allocations. Everything else runs on threads without counting.

#![allow(unreachable_pub)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

use anthill::build::{self, SharedResources};
use anthill::config;
use anthill::git::post_receive::PushNotifier;
use base::clock;
use base::log::{RareLines, Sinks};
use base::thread_pool::ThreadPool;
use data_plane::cache::PageCache;
use data_plane::ledger::active_requests::ActiveRequestLedger;
use data_plane::ledger::body_memory::BodyMemory;
use data_plane::ledger::route_counters::RouteLedger;
use data_plane::ledger::shared_limit::RefusalCounters;
use data_plane::ledger::stats::Counters;
use data_plane::serve::worker::{self, Audience, ProcessContext, WorkerCommand, WorkerListener};
use data_plane::site::ContentBudget;
use data_plane::tls::{SelfSigned, TicketKeys};
use data_plane::upstream::{Backends, session_key_file};
use data_plane::world::users::Logins;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use tempfile::TempDir;

#[path = "support/trust.rs"]
mod trust;

/// The system's allocator with a count of the allocations made by threads with [`IS_COUNTED`] set.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Whether the current thread's allocations are counted. The constant initial value and the lack of a
    /// destructor keep an access free of allocations.
    static IS_COUNTED: Cell<bool> = const { Cell::new(false) };
}

fn count() {
    if IS_COUNTED.get() {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    }
}

#[allow(
    unsafe_code,
    reason = "an allocator can't be had without; all of it is handed on to the system's as it came"
)]
// SAFETY: every call passes its unchanged arguments to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the promises of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the promises of `realloc`.
        unsafe { System.realloc(block, layout, bytes) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the promises of `dealloc`.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const WARM: usize = 100;
const COUNTED: u64 = 1_000;
const PAGE_BYTES: usize = 5_100;
const REQUEST: &[u8] = b"GET /page.html HTTP/1.1\r\nHost: localhost\r\nUser-Agent: test\r\n\
    Accept: text/html\r\nAccept-Encoding: gzip, br\r\n\r\n";

#[test]
fn a_warm_page_allocates_nothing() {
    let folder = TempDir::new().expect("a temporary folder");
    let [plain, secure] = start_worker(&folder);
    let mut stream = TcpStream::connect(plain).expect("a connection");
    assert_eq!(allocations(&mut stream), 0, "over plain HTTP");

    let name = ServerName::try_from("localhost").expect("a name");
    let client = ClientConnection::new(trust::client_config(), name).expect("a TLS client");
    let socket = TcpStream::connect(secure).expect("a connection");
    let mut stream = StreamOwned::new(client, socket);
    assert_eq!(allocations(&mut stream), 0, "over TLS");
}

/// Returns the worker's allocations during [`COUNTED`] requests on a warm connection.
fn allocations(stream: &mut (impl Read + Write)) -> u64 {
    let mut response = vec![0; 64 * 1024];
    let started = Instant::now();
    // The first requests load the page and wait for its compression.
    for _ in 0..WARM {
        exchange(stream, &mut response);
        assert!(started.elapsed() < Duration::from_secs(20), "no end");
    }
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    for _ in 0..COUNTED {
        exchange(stream, &mut response);
    }
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

/// Sends one request and reads its response to the end.
fn exchange(stream: &mut (impl Read + Write), response: &mut [u8]) {
    stream.write_all(REQUEST).expect("sent");
    let mut filled = 0;
    loop {
        let read = stream.read(&mut response[filled..]).expect("a response");
        assert!(read > 0, "closed");
        filled += read;
        let head = response[..filled]
            .windows(4)
            .position(|part| part == b"\r\n\r\n");
        if head.is_some_and(|end| filled >= end + 4 + PAGE_BYTES) {
            assert!(response.starts_with(b"HTTP/1.1 200 "));
            return;
        }
    }
}

/// Starts a worker with the same inputs as the control plane, and returns its plain and TLS addresses. The
/// worker ends with the test process.
fn start_worker(folder: &TempDir) -> [SocketAddr; 2] {
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("public")).expect("a folder");
    fs::create_dir(path("state")).expect("a folder");
    // The content is no text: the server would compress text in the background at an unpredictable moment.
    fs::write(path("public/page.html"), content()).expect("a page");
    let config = "[server]\nhttps = [\"127.0.0.1:0\"]\nhttp = [\"127.0.0.1:0\"]\nstate = \"state\"\n\
        [log]\naccess = \"off\"\n[[site]]\nnames = [\"*\"]\nroot = \"public\"\nhttp = \"serve\"\n";
    fs::write(path("anthill.toml"), config).expect("a configuration");
    let config = config::load(&path("anthill.toml")).expect("a sound configuration");
    let now = clock::unix_seconds_now();
    let tickets = TicketKeys::from_state(&path("state"), now).expect("tickets");
    let names = ["localhost".to_owned()];
    let self_signed = SelfSigned::load_or_make(&path("state"), &names, now).expect("a certificate");
    let budget = Arc::new(ContentBudget::new(16 << 20));
    let refusals = Arc::<RefusalCounters>::default();
    let supplies = SharedResources {
        hits: Arc::default(),
        cache: Arc::new(PageCache::new(Instant::now(), budget.clone())),
        budget,
        sinks: Arc::new(Sinks::default()),
        logins: Logins::new(&refusals).expect("a ledger"),
        tickets: Some(Arc::new(tickets)),
        self_signed: Some(Arc::new(self_signed)),
        https_port: None,
        challenges: Arc::default(),
        h3_port: Some(8443),
        programs: Arc::new(data_plane::handler::call::process::ProcessRunner::new(
            1,
            std::path::Path::new("/"),
            &refusals,
        )),
        readers: Arc::new(anthill::git::browse::limiter::BrowseLimiter::new(
            1, &refusals,
        )),
        backends: Arc::new(Backends::new(&refusals)),
        balancers: Arc::new(build::new_balancers(session_key_file::make()).expect("a registry")),
        resolver: Arc::new(data_plane::upstream::resolver::Resolver::system()),
        pseudonym: build::new_pseudonym(),
        body_memory: BodyMemory::new(1 << 20),
        pushes: PushNotifier::new().0,
        change_tracker: Arc::default(),
        refusals,
        routes: Arc::new(RouteLedger::new(1)),
    };
    let world = build::build(&config, &supplies, None, now).expect("a World");
    let shared = Arc::new(ProcessContext {
        open: AtomicUsize::new(0),
        ledger: Arc::default(),
        pool: Arc::new(ThreadPool::new("test-read", 1, 100)),
        quic: Default::default(),
        change_tracker: Arc::default(),
        pending_head_bytes_max: 1 << 20,
        body_memory: supplies.body_memory.clone(),
        active_requests: ActiveRequestLedger::new(1),
        workers: 1,
        refusals: Arc::default(),
        rare_lines: RareLines::default(),
        origin: Instant::now(),
    });
    let (commands, receiver) = tokio::sync::mpsc::unbounded_channel();
    let addresses = [false, true].map(|secure| {
        let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
        socket.set_nonblocking(true).expect("non-blocking");
        let address = socket.local_addr().expect("an address");
        let listening = WorkerListener {
            socket,
            address,
            secure,
            audience: Audience::Public,
            proxy_protocol: Arc::default(),
        };
        assert!(commands.send(WorkerCommand::Listen(listening)).is_ok());
        address
    });
    thread::spawn(move || {
        IS_COUNTED.set(true);
        worker::run(
            Arc::new(world),
            shared,
            Arc::new(Counters::default()),
            receiver,
        )
    });
    // A worker ends once its command channel is dropped, so the channel is leaked.
    std::mem::forget(commands);
    addresses
}

/// Returns bytes that no compression makes smaller.
fn content() -> Vec<u8> {
    let words = (0..PAGE_BYTES as u64).map(|word| word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56);
    words.map(|word| word as u8).collect()
}
