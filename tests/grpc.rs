//! gRPC through the proxy, with Python's grpcio as the member and as the client.

use crate::clients::Authority;
use crate::h3::PythonMember;
use crate::support::python::{python, script};
use crate::support::{Folder, Server, finish, server_table, site_table};

fn config(url: &str, keys: &str) -> String {
    let route = format!(
        "[[site.route]]\npath = \"/\"\nproxy = {{ url = \"{url}\", http2 = true{keys} }}\n"
    );
    format!("{}{}{route}", server_table(""), site_table(""))
}

fn run_client(server: &Server) {
    let mut command = python();
    let port = server.https_port.to_string();
    command.arg(script("grpc_client.py")).arg(port);
    let done = finish(command, b"");
    assert_eq!(done.stdout, "ok\n", "{}", done.stderr);
}

#[test]
fn calls_of_every_kind_reach_a_plain_member() {
    let member = PythonMember::start("grpc_member.py", &[]);
    let url = format!("http://127.0.0.1:{}", member.port);
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
    let member = PythonMember::start("grpc_member.py", &[&chain, &key]);
    let url = format!("https://127.0.0.1:{}", member.port);
    run_client(&Server::start_in(
        folder,
        &config(&url, ", ca = \"ca.pem\""),
    ));
}
