//! nginx as a member of a balancer.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::wire::wait_until;
use super::{Folder, spawn, tool};

/// A running nginx with one server on a free port of the loopback address. Drop kills the process.
pub struct Nginx {
    child: Child,
    pub port: u16,
    pub folder: Folder,
}

impl Nginx {
    /// Starts nginx with TLS. The folder contains the files that `directives` name, and the directives are
    /// those of the server. The files served are in `files`.
    pub fn start_tls(folder: Folder, directives: &str) -> Nginx {
        let port = free_port();
        let config = format!(
            "daemon off;\nmaster_process off;\npid nginx.pid;\nerror_log stderr;\n\
             events {{ worker_connections 4096; }}\n\
             http {{\n access_log off;\n client_body_temp_path body;\n proxy_temp_path proxy;\n \
             fastcgi_temp_path fastcgi;\n uwsgi_temp_path uwsgi;\n scgi_temp_path scgi;\n \
             client_max_body_size 0;\n keepalive_requests 100000;\n\
             server {{\n listen 127.0.0.1:{port} ssl;\n root files;\n{directives}\n}}\n}}\n"
        );
        folder.write("nginx.conf", config);
        folder.write("files/index.html", "hello");
        let mut command = Command::new(tool("nginx"));
        let root = folder.path("");
        command
            .arg("-p")
            .arg(&root)
            .args(["-e", "stderr"])
            .arg("-c")
            .arg(folder.path("nginx.conf"))
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let child = spawn(&mut command).expect("nginx");
        let nginx = Nginx {
            child,
            port,
            folder,
        };
        wait_until(Duration::from_secs(20), "listening", || {
            TcpStream::connect(("127.0.0.1", port)).ok()
        });
        nginx
    }

    /// Returns the URL of the member by its address.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a port of the loopback address on which no program listens.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its address").port()
}
