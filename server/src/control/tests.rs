//! Tests of internal failures: the end of a worker, and a panic in a connection. The end-to-end tests cover
//! the rest, with the real program.

use super::front::Signals;
use super::front::{Front, Waited};
use super::plane::ControlPlane;
use crate::config::{ConfigSource, Overrides};
use base::log::{ErrorLog, LogDestination};
use data_plane::handler::route_handler::RouteHandler;
use data_plane::handler::{Handler, HandlerError, LocalBoxFuture, Request, Response};
use data_plane::serve::worker::{Audience, WorkerCommand};
use data_plane::upstream::{BackendAddress, ReusePolicy};
use data_plane::world::{Host, Hosts, Route, RouteTable, RouteTarget, World};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

fn plane(folder: &TempDir) -> (ControlPlane, SocketAddr) {
    let file = folder.path().join("anthill.toml");
    std::fs::create_dir(folder.path().join("public")).unwrap();
    std::fs::write(folder.path().join("public/index.html"), "hello").unwrap();
    let text = "[server]\nhttps = []\nhttp = [\"127.0.0.1:0\"]\nstate = \"state\"\nworkers = 1\n\
                [log]\naccess = \"off\"\n[[site]]\nnames = [\"*\"]\nhttp = \"serve\"\n";
    std::fs::write(&file, text).unwrap();
    let plane = ControlPlane::start(
        ConfigSource::File(file),
        Overrides::default(),
        ErrorLog::default(),
        false,
    )
    .unwrap();
    let (address, _) = plane
        .rebuilder
        .publisher
        .listeners()
        .bound(Audience::Public)
        .next()
        .unwrap();
    (plane, address)
}

/// Sends a GET request and returns the response, read until the server closes the connection.
fn get(stream: &mut TcpStream, path: &str) -> String {
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

fn wait<F: Future>(future: F) -> F::Output {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap().block_on(future)
}

#[test]
fn an_ended_worker_is_restarted_on_the_same_sockets() {
    let folder = tempfile::tempdir().unwrap();
    let (mut plane, address) = plane(&folder);
    assert!(get(&mut TcpStream::connect(address).unwrap(), "/").ends_with("hello"));
    let end = WorkerCommand::Drain(Duration::ZERO);
    assert!(plane.rebuilder.publisher.send(0, end));
    // A client that connects without a running worker waits in the queue of the open socket.
    let index = wait(plane.rebuilder.publisher.worker_ended());
    let mut waiting = TcpStream::connect(address).unwrap();
    wait(plane.rebuilder.publisher.restart(index));
    assert!(get(&mut waiting, "/").ends_with("hello"));
    assert!(get(&mut TcpStream::connect(address).unwrap(), "/").ends_with("hello"));
}

#[test]
fn a_refused_reload_registers_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (mut plane, _) = plane(&folder);
    let publisher = plane.rebuilder.publisher();
    let file = folder.path().join("anthill.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let read = |errors: &str| {
        let text = text.replace("access = \"off\"", &format!("errors = \"{errors}\""))
            + "[[site]]\nnames = [\"a.test\"]\nhttp = \"serve\"\nhits = true\nlog = \"site.log\"\n[[site.route]]\npath = \"/app/\"\n\
               fastcgi = \"unix:app.sock\"\n";
        std::fs::write(&file, text).unwrap();
        let config = ConfigSource::File(file.clone()).read(&Overrides::default());
        config.unwrap()
    };
    let address = BackendAddress::Unix(folder.path().join("app.sock"));
    let registered = || {
        let resources = publisher.resources();
        let backend = || resources.backends.find_or_new(&address, ReusePolicy::Never);
        let counts = || resources.hits.find_or_new("a.test");
        let sink = || {
            let log = LogDestination::File(folder.path().join("site.log"));
            resources.sinks.find_or_new(&log, &[])
        };
        (
            Arc::ptr_eq(&backend(), &backend()),
            Arc::ptr_eq(&counts(), &counts()),
            sink().is_same(&sink()),
        )
    };
    // The error log can't be opened after everything is built.
    let refused = wait(publisher.prepare(read("/dev/null/x"), &ErrorLog::default()));
    assert!(refused.is_err());
    assert_eq!(registered(), (false, false, false));
    let prepared = wait(publisher.prepare(read("errors.log"), &ErrorLog::default()));
    let (_, (_, world)) = prepared.unwrap();
    assert_eq!(
        registered(),
        (false, false, true),
        "the World is not served yet"
    );
    wait(plane.rebuilder.publisher.publish(world));
    let resources = plane.rebuilder.publisher.resources();
    let counts = || resources.hits.find_or_new("a.test");
    assert!(Arc::ptr_eq(&counts(), &counts()));
}

/// Sends a command to the control socket, and returns the answer.
fn ask(socket: &Path, command: &str) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    stream.write_all(format!("{command}\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn the_status_is_answered_and_a_stop_ends_the_work_while_a_world_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let (mut plane, _) = plane(&folder);
    let socket = plane
        .rebuilder
        .publisher
        .config()
        .server
        .control
        .get_ref()
        .clone();
    let client = std::thread::spawn(move || {
        [
            "status json",
            "metrics prometheus",
            "metrics history",
            "stop",
        ]
        .map(|command| ask(&socket, command))
    });
    let control = plane.control.take().unwrap();
    let mut front = Front::new(control, plane.rebuilder.scans.urgency());
    wait(async {
        let mut signals = Signals::new().unwrap();
        front.control.open().unwrap();
        let work = std::future::pending();
        assert!(front.attend(work, &plane.view(), &mut signals).await);
        for request in std::mem::take(&mut front.stopping_for) {
            request.write(Ok("stopped\n".to_owned())).await;
        }
    });
    let answers = client.join().unwrap();
    assert!(answers[0].contains("\"generation\":1"), "{}", answers[0]);
    assert!(answers[1].contains("anthill_"), "{}", answers[1]);
    assert!(answers[2].starts_with("ok\n"), "{}", answers[2]);
    assert_eq!(answers[3], "ok\nstopped\n");
}

#[test]
fn a_waiting_reload_ends_the_reads_under_way() {
    let folder = tempfile::tempdir().unwrap();
    let (mut plane, _) = plane(&folder);
    let control = plane.control.take().unwrap();
    let mut front = Front::new(control, plane.rebuilder.scans.urgency());
    let (release, gate) = std::sync::mpsc::channel::<()>();
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    // The virtual clock passes the wait of the command, and the deadline of a read comes much later.
    let runtime = runtime.enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut signals = Signals::new().unwrap();
        front.hang_up();
        let scans = &plane.rebuilder.scans;
        let work = async {
            let read = scans.run(move || gate.recv()).await;
            assert!(read.unwrap_err().is_given_up());
            assert!(scans.run(|| 1).await.unwrap_err().is_given_up());
            false
        };
        assert!(!front.attend(work, &plane.view(), &mut signals).await);
        assert!(matches!(front.next_waited(), Some(Waited::Hangup)));
        tokio::time::resume();
        assert_eq!(scans.run(|| 1).await, Ok(1));
        assert!(front.next_waited().is_none());
    });
    drop(release);
}

struct Panics;

impl Handler for Panics {
    fn handle(&self, _: Request) -> LocalBoxFuture<Result<Response, HandlerError>> {
        panic!("on purpose")
    }
}

#[test]
fn a_panic_ends_only_the_connection_of_the_request() {
    let folder = tempfile::tempdir().unwrap();
    let (mut plane, address) = plane(&folder);
    let mut world = World::clone(plane.rebuilder.publisher.world());
    let mut host = Host::clone(world.hosts.iter().next().unwrap());
    let panics = Route {
        prefix: (*b"/panics").into(),
        target: Some(RouteTarget::Handler(RouteHandler::new(
            Arc::new(Panics),
            &Arc::default(),
            &Arc::default(),
        ))),
        allow: None,
        deny: None,
        auth: Default::default(),
        any: false,
        guard_methods: None,
        methods: None,
        users: None,
        scripts: None,
        try_end: None,
        has_encoded_slashes: false,
        reader: data_plane::world::PathReader::Server,
        counters: Arc::clone(&host.counters),
    };
    let rules = host.routes.rules().clone();
    host.routes = Arc::new(RouteTable::new(vec![Arc::new(panics)], rules));
    world.hosts = Hosts::new(vec![Arc::new(host)]);
    wait(plane.rebuilder.publisher.publish(world));
    let mut other = TcpStream::connect(address).unwrap();
    other.write_all(b"GET / HTTP/1.1\r\nHost: loc").unwrap();
    assert_eq!(
        get(&mut TcpStream::connect(address).unwrap(), "/panics"),
        ""
    );
    let mut answer = String::new();
    other
        .write_all(b"alhost\r\nConnection: close\r\n\r\n")
        .unwrap();
    other.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("hello"), "{answer}");
    assert_eq!(plane.rebuilder.publisher.stats().totals().panics, 1);
    let is_ended = wait(async {
        tokio::select! {
            biased;
            _ = plane.rebuilder.publisher.worker_ended() => true,
            () = std::future::ready(()) => false,
        }
    });
    assert!(!is_ended, "the worker is still running");
}
