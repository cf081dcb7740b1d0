//! gRPC through the proxy, with Python's grpcio as the member and as the client.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use crate::clients::Authority;
use crate::h3::{python, support};
use crate::support::{Folder, Server, finish, server_table, site_table, spawn};

/// A running member; drop ends it.
struct GrpcMember(Child, u16);

impl GrpcMember {
    fn start(pair: Option<(&Path, &Path)>) -> GrpcMember {
        let mut command = python();
        command.arg(support("grpc_member.py"));
        if let Some((chain, key)) = pair {
            command.arg(chain).arg(key);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = spawn(&mut command).expect("Python");
        let output = child.stdout.take().expect("a pipe");
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).expect("a line");
        let port = line.trim().parse().expect("a port");
        GrpcMember(child, port)
    }
}

impl Drop for GrpcMember {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn config(url: &str, keys: &str) -> String {
    let route = format!(
        "[[site.route]]\npath = \"/\"\nproxy = {{ url = \"{url}\", http2 = true{keys} }}\n"
    );
    format!("{}{}{route}", server_table(""), site_table(""))
}

fn run_client(server: &Server) {
    let mut command = python();
    let port = server.https_port.to_string();
    command.arg(support("grpc_client.py")).arg(port);
    let done = finish(command, b"");
    assert_eq!(done.stdout, "ok\n", "{}", done.stderr);
}

#[test]
fn calls_of_every_kind_reach_a_plain_member() {
    let member = GrpcMember::start(None);
    let url = format!("http://127.0.0.1:{}", member.1);
    run_client(&Server::start(&config(&url, "")));
}

#[test]
fn calls_of_every_kind_reach_a_member_over_tls() {
    let authority = Authority::new("the members' CA");
    let leaf = authority.server(&["127.0.0.1"]);
    let folder = Folder::new()
        .with("public/index.html", "")
        .with("ca.pem", &authority.pem)
        .with("chain.pem", &leaf.certificate)
        .with("key.pem", &leaf.key);
    let (chain, key) = (folder.path("chain.pem"), folder.path("key.pem"));
    let member = GrpcMember::start(Some((&chain, &key)));
    let url = format!("https://127.0.0.1:{}", member.1);
    run_client(&Server::start_in(
        folder,
        &config(&url, ", ca = \"ca.pem\""),
    ));
}
