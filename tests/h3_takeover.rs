//! HTTP/3 while new processes take over the sockets (`anthill serve --replace`).

use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::thread;

use crate::h3::{Holder, run_scenario_at};
use crate::support::lossy::LossyPath;
use crate::support::{Folder, Server, program, server_table, site_table};

fn first_server() -> Server {
    let folder = Folder::new()
        .with("public/index.html", "<p>hello</p>\n")
        .with("public/middle.bin", vec![b'm'; 100_000])
        .with("public/page.txt", "plain text\n".repeat(100));
    let config = server_table("").replace("workers = 1", "workers = 2")
        + &site_table("http = \"serve\"")
        + "[[site.route]]\npath = \"/tunnel\"\ntest = \"tunnel\"\n";
    Server::start_in(folder, &config)
}

/// Starts a process that takes over from the running server with the configuration of `first`.
fn successor(first: &Server) -> Server {
    let config = first.folder.path("anthill.toml");
    let next = start_successor(&config);
    let ports = [next.https_port, next.http_port];
    assert_eq!(ports, [first.https_port, first.http_port]);
    next
}

fn start_successor(config: &Path) -> Server {
    let mut command = Command::new(program());
    command.args(["serve", "--replace"]).arg(config);
    let next = Server::launch(Folder::new(), command);
    next.errors.wait_for("the takeover", |line| {
        line.contains("this server has taken over")
    });
    next
}

fn count_answers(server: &Server) -> usize {
    let lines = server.output.all();
    let answers = lines.iter().filter(|line| line.contains(" HTTP/3.0\" 200"));
    answers.count()
}

/// Each tunnel stays with its process, and the newest process serves new connections.
#[test]
fn tunnels_of_three_predecessors_go_on() {
    let mut servers = vec![first_server()];
    let mut tunnels = vec![Holder::with_tunnel(&servers[0], "/tunnel")];
    for round in 1..4 {
        let next = successor(&servers[0]);
        tunnels.push(Holder::with_tunnel(&next, "/tunnel"));
        servers.push(next);
        for tunnel in &mut tunnels {
            let line = format!("round {round}");
            assert_eq!(tunnel.echo(&line), line);
        }
    }
}

/// The predecessor answers the next request of an open connection, and asks the client for a new connection.
#[test]
fn an_open_connection_is_answered_once_more() {
    let first = first_server();
    let mut kept = Holder::with_site(&first, "localhost");
    assert_eq!(kept.echo("localhost"), "200");
    let second = successor(&first);
    // GOAWAY may arrive before the answer.
    let said = kept.echo("localhost");
    assert!(["200", "200 after goaway"].contains(&&*said), "{said}");
    assert_eq!(kept.echo("goaway"), "goaway");
    assert_eq!(crate::h3::ask_once(&second), "200");
    first.output.wait_until(
        std::time::Duration::from_secs(60),
        "two answers of the first process",
        |lines| (lines.len() >= 2).then_some(()),
    );
    assert_eq!(count_answers(&first), 2);
}

#[test]
fn every_request_is_answered_though_packets_are_lost_during_takeovers() {
    let first = first_server();
    let path = LossyPath::begin(first.https_port, 7);
    let port = path.port();
    let clients = thread::spawn(move || {
        let mut rounds = Vec::new();
        for _ in 0..4 {
            rounds.push(run_scenario_at(port, &["many", "10", "10"]));
        }
        rounds
    });
    let _servers: Vec<_> = (0..3).map(|_| successor(&first)).collect();
    let rounds = clients.join().expect("the clients");
    assert!(
        rounds.iter().all(|said| said == "100 answers"),
        "{rounds:?}"
    );
    assert_eq!(first.counter("panics"), 0);
}

/// A client writes every generation into its packets.
#[test]
fn forged_packets_disturb_no_connection() {
    const PACKETS: usize = 60_000;
    let first = first_server();
    let mut old = Holder::with_tunnel(&first, "/tunnel");
    let second = successor(&first);
    let mut new = Holder::with_tunnel(&second, "/tunnel");
    let forger = UdpSocket::bind("127.0.0.1:0").expect("a port");
    forger
        .connect(("127.0.0.1", first.https_port))
        .expect("a port");
    for at in 0..PACKETS {
        let generation = (at >> 1) as u8;
        let mut packet = vec![generation; 40 + at % 1_200];
        if at % 2 == 0 {
            packet[0] = 0x40;
        } else {
            packet[..6].copy_from_slice(&[0xc0, 0, 0, 0, 1, 7]);
        }
        forger.send(&packet).expect("sent");
    }
    assert_eq!(old.echo("old"), "old");
    assert_eq!(new.echo("new"), "new");
    assert_eq!(crate::h3::ask_once(&second), "200");
    assert_eq!(first.counter("panics"), 0);
}

/// The clients of the predecessor learn by a close that nobody reads their packets.
#[test]
fn connections_of_a_predecessor_are_closed_when_its_successor_is_killed() {
    let first = first_server();
    let mut held = Holder::begin(&first, 3);
    let second = successor(&first);
    drop(second);
    assert_eq!(held.wait_for_ends(3), 3);
}
