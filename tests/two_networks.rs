//! A balancer between two networks: clients in front, members behind, and connections to the members from the
//! address that `from` names. Each test makes the networks from namespaces, so that no address of the machine
//! is in use.

use std::process::{Child, Command, Stdio};

use crate::lifecycle::is_root;
use crate::support::{Folder, Lines, Ran, Server, eventually, run, site_table, spawn, tool};

/// Script of the network namespace between the two networks. The member `a` has the last number 11, and the
/// member `b` 12. The route to the members has a source address that the members have no way to, so that only
/// connections from a back address succeed.
const NETWORKS: &str = r#"
mount --bind "$HOSTS" /etc/hosts
own=$(readlink /proc/self/ns/net)
trap 'kill $all' EXIT
namespace() {
    unshare --net sleep infinity < /dev/null &
    all="$all $!"
    until [ "$(readlink /proc/$!/ns/net)" != "$own" ]; do sleep 0.01; done
}
inside() { nsenter --target "$1" --net ip $2; }
all=
namespace; front=$!
namespace; a=$!
namespace; b=$!
ip link set lo up
ip link add name front type veth peer name eth0 netns "$front"
ip addr add 10.6.0.1/24 dev front
ip addr add fd00:6::1/64 dev front nodad
ip link set front up
inside "$front" "addr add 10.6.0.2/24 dev eth0"
inside "$front" "link set eth0 up"
ip link add name back type bridge
for number in 1 9; do
    ip addr add 10.7.0.$number/24 dev back
    ip addr add fd00:7::$number/64 dev back nodad
done
ip link set back up
for member in a:11 b:12; do
    name=${member%:*}
    eval "pid=\$$name"
    ip link add name "back-$name" type veth peer name eth0 netns "$pid"
    ip link set "back-$name" master back up
    inside "$pid" "addr add 10.7.0.${member#*:}/24 dev eth0"
    inside "$pid" "addr add fd00:7::${member#*:}/64 dev eth0 nodad"
    inside "$pid" "link set eth0 up"
done
ip route change 10.7.0.0/24 dev back src 10.6.0.1
ip -6 route add fd00:7::/64 dev back src fd00:6::1 metric 1
echo "ready $front $a $b"
cat
"#;

/// Program of a member: answers each request with the member's name, the address of the peer and
/// X-Forwarded-For, and writes the address and the path of each request.
const MEMBER: &str = r#"
import http.server, socket, sys

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        peer = self.client_address[0].removeprefix("::ffff:")
        client = self.headers.get("X-Forwarded-For", "-")
        body = f"{sys.argv[1]} {peer} {client}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        print(peer, self.path, flush=True)

    def log_message(self, *arguments):
        pass

class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6

print("ready", flush=True)
Server(("::", 8000), Handler).serve_forever()
"#;

/// The two networks with their members. Drop ends all processes, and with them the namespaces.
struct Networks {
    /// Holder of the namespace between the networks.
    middle: Child,
    front: String,
    members: Vec<Child>,
    /// Lines of the members `a` and `b`.
    requests: [Lines; 2],
    /// Folder with the file of host names in use.
    _folder: Folder,
}

impl Networks {
    fn start() -> Networks {
        let folder = Folder::new().with("member.py", MEMBER).with(
            "hosts",
            "127.0.0.1 localhost\n10.7.0.11 both.test\nfd00:7::11 both.test\nfd00:7::11 six.test\n",
        );
        for name in ["ip", "mount", "nsenter", "python3"] {
            tool(name);
        }
        let mut command = Command::new(tool("unshare"));
        command.args(["--net", "--mount"]);
        if !is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(["sh", "-euc", NETWORKS]);
        command.env("HOSTS", folder.path("hosts"));
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut middle = spawn(&mut command).expect("unshare");
        let errors = Lines::of(middle.stderr.take().expect("a pipe"));
        let lines = Lines::of(middle.stdout.take().expect("a pipe"));
        let ready = lines.wait_until(std::time::Duration::from_secs(60), "networks", |lines| {
            let ready = lines.iter().find(|line| line.starts_with("ready "));
            // The shell ends at the first command that fails.
            let failure = errors.all().pop();
            ready.cloned().or(failure)
        });
        let pids: Vec<&str> = ready.split(' ').collect();
        let ["ready", front, a, b] = pids[..] else {
            panic!("no networks: network namespaces need root, or user namespaces: {ready}");
        };
        let mut members = Vec::new();
        let requests = [("a", a), ("b", b)].map(|(name, pid)| {
            let mut command = inside(pid, &[]);
            command
                .arg("python3")
                .arg(folder.path("member.py"))
                .arg(name);
            // Python reports connections that the balancer closes.
            command.stdout(Stdio::piped()).stderr(Stdio::null());
            let mut member = spawn(&mut command).expect("a member");
            let lines = Lines::of(member.stdout.take().expect("a pipe"));
            members.push(member);
            lines.wait_for("the member's start", |line| line == "ready");
            lines
        });
        Networks {
            middle,
            front: front.to_owned(),
            members,
            requests,
            _folder: folder,
        }
    }

    /// Starts a server between the networks, with members by their URLs and further keys of the balancer.
    fn serve(&self, urls: &[&str], keys: &str) -> Server {
        let mut command = inside(&self.middle.id().to_string(), &["--mount"]);
        command.arg(crate::support::program());
        let folder = Folder::new().with("public/index.html", "");
        Server::start_by(command, folder, &config(urls, keys))
    }

    /// Runs `ip` between the networks.
    fn ip(&self, words: &str) {
        let mut command = inside(&self.middle.id().to_string(), &[]);
        command.arg("ip").args(words.split(' '));
        let status = spawn(&mut command).and_then(|mut ip| ip.wait());
        assert!(status.expect("ip").success(), "ip {words}");
    }

    /// Runs curl in the front network.
    fn curl(&self, url: &str) -> Ran {
        let mut arguments = entry(&self.front);
        let curl = [
            "curl",
            "-sS",
            "--max-time",
            "60",
            "-w",
            " %{http_code}",
            url,
        ];
        arguments.extend(curl.map(str::to_owned));
        run("nsenter", &arguments, b"")
    }

    /// Returns the content and the status of a page of the server.
    fn get(&self, server: &Server, path: &str) -> String {
        let ran = self.curl(&format!("http://10.6.0.1:{}{path}", server.http_port));
        assert!(ran.success, "{path}: {}", ran.errors());
        ran.text()
    }

    /// Returns the addresses from which the members got requests of a path.
    fn peers(&self, path: &str) -> Vec<String> {
        let lines = self.requests.iter().flat_map(Lines::all);
        let peers = lines.filter_map(|line| {
            let (peer, its) = line.split_once(' ')?;
            (its == path).then(|| peer.to_owned())
        });
        let mut peers: Vec<String> = peers.collect();
        peers.sort();
        peers.dedup();
        peers
    }
}

impl Drop for Networks {
    fn drop(&mut self) {
        for member in &mut self.members {
            let _ = member.kill();
            let _ = member.wait();
        }
        // The script ends with its input.
        drop(self.middle.stdin.take());
        let _ = self.middle.wait();
    }
}

/// Returns the arguments of nsenter for the network namespace of a process.
pub fn entry(pid: &str) -> Vec<String> {
    let mut arguments = vec!["--target", pid, "--net"];
    if !is_root() {
        arguments.extend(["--user", "--preserve-credentials"]);
    }
    arguments.into_iter().map(str::to_owned).collect()
}

/// Returns nsenter for the network namespace and further namespaces of a process.
fn inside(pid: &str, further: &[&str]) -> Command {
    let mut command = Command::new(tool("nsenter"));
    command.args(entry(pid)).args(further);
    command
}

fn config(urls: &[&str], keys: &str) -> String {
    format!(
        "[server]\nhttps = [\"10.6.0.1:0\"]\nhttp = [\"10.6.0.1:0\"]\nstate = \"state\"\n\
         control = \"anthill.sock\"\nworkers = 1\n\
         [[balancer]]\nname = \"app\"\nmembers = {urls:?}\nconnect_timeout = \"500ms\"\n\
         eject = {{ pause = \"100ms\", pause_max = \"100ms\" }}\n{keys}\n{}\
         [[site.route]]\npath = \"/\"\nbalance = \"app\"\n",
        site_table("http = \"serve\"\n")
    )
}

/// Members by their addresses, and the address to connect from, in both families.
const FAMILIES: [([&str; 2], &str); 2] = [
    (
        ["http://10.7.0.11:8000", "http://10.7.0.12:8000"],
        "10.7.0.9",
    ),
    (
        ["http://[fd00:7::11]:8000", "http://[fd00:7::12]:8000"],
        "fd00:7::9",
    ),
];

/// Checks that decide quickly.
const CHECKS: &str =
    "health = { path = \"/health\", every = \"500ms\", timeout = \"500ms\", rise = 2, fall = 2 }";

#[test]
fn members_see_the_address_of_the_balancer_behind() {
    let networks = Networks::start();
    let refused = networks.curl("http://10.7.0.11:8000/");
    assert!(!refused.success, "the client has a way to the member");
    for (members, from) in FAMILIES {
        let keys = format!("from = \"{from}\"\n{CHECKS}");
        let server = networks.serve(&members, &keys);
        let answers: Vec<String> = (0..4).map(|_| networks.get(&server, "/page")).collect();
        let expected = ["a", "b", "a", "b"].map(|name| format!("{name} {from} 10.6.0.2 200"));
        assert_eq!(answers, expected);
        for lines in &networks.requests {
            lines.wait_for("a check", |line| line == format!("{from} /health"));
        }
        // The control socket is the same in all networks.
        let list = server.ask(&["balancer", "list"]);
        assert!(
            list.code == Some(0) && list.stdout.contains(" up "),
            "{list:?}"
        );

        // The system's choice is an address that the members have no way to.
        server.reload(&config(&members, ""));
        assert!(networks.get(&server, "/lost").ends_with(" 504"));
        server
            .output
            .wait_for("the rule", |line| line.contains("rule=R747"));
        // No machine has the address.
        let foreign = from.replace('9', "99");
        server.reload(&config(&members, &format!("from = \"{foreign}\"")));
        assert!(networks.get(&server, "/lost").ends_with(" 503"));
        server
            .output
            .wait_for("the rule", |line| line.contains("rule=R766"));
        server.errors.wait_for("the reason", |line| {
            line.contains("this machine has no address")
        });
        server.reload(&config(&members, &keys));
        assert!(networks.get(&server, "/again").contains(from));
    }
    let own = FAMILIES.map(|(_, from)| from);
    for path in ["/page", "/health", "/again"] {
        assert_eq!(networks.peers(path), own, "{path}");
    }
    assert!(networks.peers("/lost").is_empty());
}

#[test]
fn a_lost_network_of_a_member_loses_no_request() {
    let networks = Networks::start();
    for (members, from) in FAMILIES {
        let server = networks.serve(&members, &format!("from = \"{from}\"\n{CHECKS}"));
        for name in ["a", "b"] {
            assert!(networks.get(&server, "/").starts_with(name));
        }
        let begin = format!("balancer app: {} changed from ", members[0]);
        networks.ip("link set back-a down");
        for _ in 0..4 {
            assert_eq!(networks.get(&server, "/"), format!("b {from} 10.6.0.2 200"));
        }
        server.errors.wait_for("failed checks", |line| {
            line.contains(&begin) && line.contains(" to check failed: ")
        });
        for _ in 0..4 {
            assert!(networks.get(&server, "/").starts_with("b "));
        }
        networks.ip("link set back-a up");
        server.errors.wait_for("passed checks", |line| {
            line.contains(&begin) && line.ends_with(" to up: checks passed")
        });
        eventually("an answer of the member", || {
            networks.get(&server, "/").starts_with("a ").then_some(())
        });
    }
}

#[test]
fn names_are_used_with_the_addresses_of_the_family_of_from() {
    let networks = Networks::start();
    let both = ["http://both.test:8000"];
    let server = networks.serve(&both, "");
    for (_, from) in FAMILIES {
        // Each request has a new connection, and each connection begins at the next address of the name.
        server.reload(&config(&both, &format!("from = \"{from}\"\nidle = 0")));
        for _ in 0..4 {
            assert_eq!(networks.get(&server, "/"), format!("a {from} 10.6.0.2 200"));
        }
    }
    server.reload(&config(&["http://six.test:8000"], "from = \"10.7.0.9\""));
    assert!(networks.get(&server, "/").ends_with(" 502"));
    server
        .output
        .wait_for("the rule", |line| line.contains("rule=R742"));
    server.errors.wait_for("the reason", |line| {
        line.contains("the host name six.test has no IPv4 address, as `from` requires")
    });
}
