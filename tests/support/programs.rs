//! Real HTTP servers as members behind the proxy, each on a free port.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::wire::wait_until;
use super::{Folder, spawn, tool};

/// A running member. Drop ends the process and its children.
pub struct Program {
    child: Child,
    pub port: u16,
    /// Folder with the configuration and the pages.
    pub folder: Folder,
}

impl Program {
    /// Starts nginx with one worker, the pages in `public`, and `more` in its server block.
    pub fn nginx(folder: Folder, more: &str) -> Program {
        let port = free_port();
        Program::nginx_on(port, folder, more)
    }

    /// Starts nginx on a given port.
    pub fn nginx_on(port: u16, folder: Folder, more: &str) -> Program {
        let root = folder.path("");
        let root = root.display();
        folder.write(
            "nginx.conf",
            format!(
                "worker_processes 1; daemon off; master_process off; pid {root}/nginx.pid;\n\
                 error_log {root}/error.log crit;\nevents {{ worker_connections 4096; }}\n\
                 http {{ access_log off; keepalive_requests 1000000;\n\
                 client_body_temp_path {root}/body; proxy_temp_path {root}/proxy;\n\
                 fastcgi_temp_path {root}/fastcgi; uwsgi_temp_path {root}/uwsgi; scgi_temp_path {root}/scgi;\n\
                 server {{ listen 127.0.0.1:{port}; root {root}/public; {more} }} }}\n"
            ),
        );
        let mut command = Command::new(tool("nginx"));
        command
            .arg("-p")
            .arg(folder.path(""))
            .arg("-c")
            .arg(folder.path("nginx.conf"));
        command.arg("-e").arg(folder.path("error.log"));
        Program::start(command, port, folder)
    }

    /// Starts Apache with one process and the pages in `public`.
    pub fn apache(folder: Folder) -> Program {
        let port = free_port();
        let root = folder.path("");
        let root = root.display();
        let modules: String = ["mpm_event", "authz_core", "dir", "mime"]
            .iter()
            .map(|name| {
                format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n")
            })
            .collect();
        folder.write(
            "apache.conf",
            format!(
                "{modules}ServerRoot {root}\nServerName localhost\nListen 127.0.0.1:{port}\n\
                 PidFile {root}/apache.pid\nErrorLog {root}/error.log\nDocumentRoot {root}/public\n\
                 TypesConfig /dev/null\nStartServers 1\nMaxKeepAliveRequests 0\n"
            ),
        );
        let mut command = Command::new(tool("apache2"));
        command.arg("-X").arg("-f").arg(folder.path("apache.conf"));
        Program::start(command, port, folder)
    }

    /// Starts Caddy with the pages in `public`.
    pub fn caddy(folder: Folder) -> Program {
        let port = free_port();
        let root = folder.path("public");
        folder.write(
            "Caddyfile",
            format!(
                "{{\n admin off\n auto_https off\n}}\n\
                 http://:{port} {{\n bind 127.0.0.1\n root * {}\n file_server\n}}\n",
                root.display()
            ),
        );
        let mut command = Command::new(tool("caddy"));
        command.arg("run").arg("--adapter").arg("caddyfile");
        command.arg("--config").arg(folder.path("Caddyfile"));
        command.env("XDG_DATA_HOME", folder.path("data"));
        command.env("XDG_CONFIG_HOME", folder.path("config"));
        Program::start(command, port, folder)
    }

    /// Starts haproxy as a proxy to another member.
    pub fn haproxy(folder: Folder, behind: u16) -> Program {
        let port = free_port();
        folder.write(
            "haproxy.cfg",
            format!(
                "defaults\n mode http\n timeout connect 5s\n timeout client 60s\n timeout server 60s\n\
                 frontend f\n bind 127.0.0.1:{port}\n default_backend b\n\
                 backend b\n server s 127.0.0.1:{behind}\n"
            ),
        );
        let mut command = Command::new(tool("haproxy"));
        command.arg("-db").arg("-f").arg(folder.path("haproxy.cfg"));
        Program::start(command, port, folder)
    }

    /// Starts uWSGI as an HTTP server of a Python program.
    pub fn uwsgi(folder: Folder, program: &str) -> Program {
        let port = free_port();
        folder.write("app.py", program);
        let mut command = Command::new(tool("uwsgi-core"));
        command.arg("--plugin").arg("python3");
        command
            .arg("--http11-socket")
            .arg(format!("127.0.0.1:{port}"));
        command
            .arg("--master")
            .arg("--die-on-term")
            .arg("--disable-logging");
        command.arg("--wsgi-file").arg(folder.path("app.py"));
        Program::start(command, port, folder)
    }

    /// Starts a program, and waits until the program listens on the port.
    pub fn start(mut command: Command, port: u16, folder: Folder) -> Program {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = spawn(&mut command).expect("a member");
        let program = Program {
            child,
            port,
            folder,
        };
        wait_until(Duration::from_secs(30), "a listening member", || {
            TcpStream::connect(("127.0.0.1", port)).ok()
        });
        program
    }

    /// Returns the URL of the member.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Sends a signal to the member.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .arg(format!("-{name}"))
            .arg(self.child.id().to_string())
            .status();
        assert!(sent.expect("kill").success(), "{name}");
    }

    /// Kills the member and waits for its end.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Ends the member and returns its folder.
    pub fn into_folder(mut self) -> Folder {
        self.kill();
        std::mem::replace(&mut self.folder, Folder::new())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Ends a program with its children. A program that misses SIGTERM, for example while it starts, is killed.
pub fn end(child: &mut Child) {
    if matches!(child.try_wait(), Ok(Some(_)) | Err(_)) {
        return;
    }
    // A master process ends its children on SIGTERM, and a stopped process only reads SIGKILL.
    let pid = child.id().to_string();
    let _ = Command::new("kill").arg("-CONT").arg(&pid).status();
    let _ = Command::new("kill").arg("-TERM").arg(&pid).status();
    for _ in 0..100 {
        if matches!(child.try_wait(), Ok(Some(_)) | Err(_)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// Returns a port that is free now.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}
