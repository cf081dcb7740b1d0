//! The server and Debian's Apache side by side: in front of equal members, and for equal requests, both choose
//! the same sequence of members.
//!
//! Apache runs as a single process, so that the sequence is deterministic.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crate::support::member::{Member, Received, ok};
use crate::support::programs::{Program, free_port};
use crate::support::{Folder, Server, eventually, lossy, server_table, site_table, tool};

/// Requests of one sequence.
const REQUESTS: usize = 60;
/// Requests of one sequence of `bytraffic`. Sequences of clear choices are rarely longer.
const BYTRAFFIC_REQUESTS: usize = 24;

#[test]
fn byrequests_follows_the_weights() {
    for weights in [&[1, 1, 1, 1][..], &[3, 1, 1], &[100, 1, 33], &[2, 5]] {
        let mut random = Random(weights.len() as u64);
        let steps = (0..REQUESTS).map(|_| Step::Get(random.below(3_000)));
        compare("byrequests", weights, &steps.collect::<Vec<_>>());
    }
}

#[test]
fn bytraffic_shares_the_bytes() {
    for (seed, weights) in [&[1, 1, 1, 1][..], &[3, 1, 1], &[2, 5]]
        .into_iter()
        .enumerate()
    {
        compare(
            "bytraffic",
            weights,
            &steps_of_bytraffic(weights, seed as u64),
        );
    }
}

#[test]
fn bybusyness_avoids_members_with_requests_under_way() {
    for (seed, weights) in [&[1, 1, 1, 1][..], &[3, 1, 1], &[2, 5, 1]]
        .into_iter()
        .enumerate()
    {
        compare("bybusyness", weights, &steps_of_bybusyness(seed as u64));
    }
}

/// A step of the clients.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A request for a number of bytes, answered before the next step.
    Get(usize),
    /// A request that stays under way, with a number of its own.
    Hold(usize),
    /// The end of a request under way.
    Release(usize),
}

/// Returns requests for which the choice of `bytraffic` does not depend on the bytes of the heads, which differ
/// between the two servers.
fn steps_of_bytraffic(weights: &[usize], seed: u64) -> Vec<Step> {
    let mut random = Random(seed);
    // A sequence may end where no size leads to a clear choice.
    let sequences = (0..1_000).map(|_| clear_sequence(weights, &mut random));
    let mut whole = sequences.filter(|steps| steps.len() == BYTRAFFIC_REQUESTS);
    whole.next().expect("a sequence of clear choices")
}

/// Returns at most [`BYTRAFFIC_REQUESTS`] requests, for each of which one member has clearly fewer bytes than
/// all other members.
fn clear_sequence(weights: &[usize], random: &mut Random) -> Vec<Step> {
    const HEADS_BYTES_MAX: usize = 1_000;
    const TRIES: usize = 300;
    let mut bytes = vec![0; weights.len()];
    let mut chosen = 0;
    let mut steps = Vec::new();
    let mut tries = 0;
    while steps.len() < BYTRAFFIC_REQUESTS && tries < TRIES {
        let size = 20_000 + random.below(400_000);
        let mut next = bytes.clone();
        next[chosen] += size;
        let shares = next
            .iter()
            .zip(weights)
            .map(|(bytes, weight)| bytes / weight);
        let mut shares: Vec<(usize, usize)> = shares.zip(0..).collect();
        shares.sort_unstable();
        let is_new = shares[0].0 == 0;
        tries += 1;
        if is_new || shares[1].0 - shares[0].0 > HEADS_BYTES_MAX * (steps.len() + 1) {
            chosen = shares[0].1;
            bytes = next;
            steps.push(Step::Get(size));
            tries = 0;
        }
    }
    steps
}

/// Returns requests of which some stay under way for a while.
fn steps_of_bybusyness(seed: u64) -> Vec<Step> {
    let mut random = Random(seed);
    let mut held = Vec::new();
    let steps = (0..REQUESTS).map(|number| match random.below(10) {
        0..4 if held.len() < 12 => {
            held.push(number);
            Step::Hold(number)
        }
        4..6 if !held.is_empty() => Step::Release(held.swap_remove(random.below(held.len()))),
        _ => Step::Get(random.below(3_000)),
    });
    steps.collect()
}

/// Asserts that the server chooses the members that Apache chooses.
fn compare(method: &str, weights: &[usize], steps: &[Step]) {
    let members = Members::start(weights.len());
    let apache = apache(method, weights, &members);
    let expected = members.sequence("apache", apache.port, steps);
    let server = Server::start(&configuration(method, weights, &members));
    let found = members.sequence("anthill", server.http_port, steps);
    assert_eq!(found, expected, "{method} {weights:?} {steps:?}");
    let letters: HashSet<char> = found.chars().collect();
    assert_eq!(
        letters.len(),
        weights.len(),
        "{found}: a member without a request"
    );
}

fn configuration(method: &str, weights: &[usize], members: &Members) -> String {
    let members = members.members.iter().zip(weights);
    let members = members.map(|(member, weight)| {
        let url = member.url();
        format!("{{ url = \"{url}\", weight = {weight} }}")
    });
    let members: Vec<String> = members.collect();
    format!(
        "{}[[balancer]]\nname = \"c\"\nmethod = \"{method}\"\nmembers = [{}]\n{}[[site.route]]\npath = \"/\"\n\
         balance = \"c\"\n",
        server_table(""),
        members.join(", "),
        site_table("http = \"serve\"\n")
    )
}

/// Starts Apache in front of the members, as one process with threads.
fn apache(method: &str, weights: &[usize], members: &Members) -> Program {
    let folder = Folder::new();
    let root = folder.path("");
    let root = root.display();
    let port = free_port();
    let mut config = String::new();
    for module in [
        "mpm_event",
        "authz_core",
        "proxy",
        "proxy_http",
        "proxy_balancer",
        "slotmem_shm",
        &format!("lbmethod_{method}"),
    ] {
        let file = format!("/usr/lib/apache2/modules/mod_{module}.so");
        let _ = writeln!(config, "LoadModule {module}_module {file}");
    }
    if method != "byrequests" {
        let file = "/usr/lib/apache2/modules/mod_lbmethod_byrequests.so";
        let _ = writeln!(config, "LoadModule lbmethod_byrequests_module {file}");
    }
    let _ = writeln!(
        config,
        "ServerRoot {root}\nDefaultRuntimeDir {root}\nMutex file:{root} default\nPidFile {root}/pid\n\
         ErrorLog {root}/errors\nServerName localhost\nListen 127.0.0.1:{port}\nMaxKeepAliveRequests 0\n\
         KeepAliveTimeout 60\n<Proxy balancer://c>"
    );
    for (member, weight) in members.members.iter().zip(weights) {
        let _ = writeln!(
            config,
            "BalancerMember {} loadfactor={weight}",
            member.url()
        );
    }
    let _ = writeln!(
        config,
        "ProxySet lbmethod={method}\n</Proxy>\nProxyPass / balancer://c/"
    );
    folder.write("apache.conf", config);
    let mut command = Command::new(tool("apache2"));
    command.arg("-X").arg("-f").arg(folder.path("apache.conf"));
    // The signals of Apache go to its own process group.
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    Program::start(command, port, folder)
}

/// Members that answer with their letters.
struct Members {
    members: Vec<Member>,
    /// Paths of the requests that are no longer held.
    released: Arc<(Mutex<HashSet<String>>, Condvar)>,
}

impl Members {
    fn start(count: usize) -> Members {
        let released = Arc::<(Mutex<HashSet<String>>, Condvar)>::default();
        let start = |letter: u8| {
            let released = Arc::clone(&released);
            Member::start(move |request| {
                let path = path(request);
                let size = path.rsplit('/').next().and_then(|size| size.parse().ok());
                if path.contains("/hold/") {
                    let (paths, changed) = &*released;
                    let paths = paths.lock().expect("the paths");
                    drop(changed.wait_while(paths, |paths| !paths.contains(path)));
                }
                let mut content = vec![b'x'; size.unwrap_or(0)];
                content.insert(0, letter);
                ok(content)
            })
        };
        Members {
            members: (b'a'..).take(count).map(start).collect(),
            released,
        }
    }

    /// Makes the requests of the steps at a port, and returns the letters of the members. `name` begins the
    /// paths.
    fn sequence(&self, name: &str, port: u16, steps: &[Step]) -> String {
        let mut held = std::collections::HashMap::new();
        let mut letters = String::new();
        for step in steps {
            match *step {
                Step::Get(size) => letters.push(get(port, &format!("/{name}/get/{size}"))),
                Step::Hold(number) => {
                    let path = format!("/{name}/hold/{number}");
                    let mut stream = connect(port);
                    send(&mut stream, &path, "Connection: close\r\n");
                    letters.push(eventually("a held request", || self.member_of(&path)));
                    held.insert(number, stream);
                }
                Step::Release(number) => {
                    self.release(format!("/{name}/hold/{number}"));
                    let mut stream = held.remove(&number).expect("a held request");
                    // The end of the connection follows the end of the accounting.
                    let mut answer = Vec::new();
                    stream.read_to_end(&mut answer).expect("an answer");
                    assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", lossy(&answer));
                }
            }
        }
        for number in held.into_keys() {
            self.release(format!("/{name}/hold/{number}"));
        }
        letters
    }

    /// Returns the letter of the member that received a request of the path.
    fn member_of(&self, wanted: &str) -> Option<char> {
        let has_got = |member: &Member| member.requests().iter().any(|it| path(it) == wanted);
        let (_, letter) = self
            .members
            .iter()
            .zip('a'..)
            .find(|(member, _)| has_got(member))?;
        Some(letter)
    }

    fn release(&self, path: String) {
        self.released.0.lock().expect("the paths").insert(path);
        self.released.1.notify_all();
    }
}

fn path(request: &Received) -> &str {
    request.line().split(' ').nth(1).expect("a path")
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    let patience = Some(Duration::from_secs(60));
    stream.set_read_timeout(patience).expect("a time-out");
    stream
}

fn send(stream: &mut TcpStream, path: &str, fields: &str) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n");
    stream.write_all(request.as_bytes()).expect("a request");
}

/// Makes a request on a connection of its own, and returns the first letter of the content. Both servers close the
/// connection after the accounting of the request; Apache sends the response before.
fn get(port: u16, path: &str) -> char {
    let mut stream = connect(port);
    send(&mut stream, path, "Connection: close\r\n");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    let end = answer.windows(4).position(|it| it == b"\r\n\r\n");
    let end = end.expect("a head");
    let head = lossy(&answer[..end]);
    assert!(head.starts_with("HTTP/1.1 200"), "{path}: {head}");
    char::from(answer[end + 4])
}

/// Generator of pseudo-random numbers (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let number = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((number ^ (number >> 31)) % bound as u64) as usize
    }
}
