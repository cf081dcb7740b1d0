//! Pebble, the ACME test server, with its DNS server, on ports chosen by the test. The DNS server resolves
//! every name to the loopback address.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

use super::{Folder, Lines, built_tool, eventually, run};
use crate::clients::Authority;

/// A running ACME directory. Drop ends Pebble and the DNS server.
pub struct Pebble {
    settings: Settings,
    child: Option<Child>,
    dns: Child,
    pub folder: Folder,
    pub output: Lines,
    pub port: u16,
    management: u16,
    dns_port: u16,
    dns_management: u16,
    /// The server's ports, where Pebble validates names.
    pub http_port: u16,
    pub https_port: u16,
}

/// Settings of Pebble that differ between tests.
#[derive(Clone, Default)]
pub struct Settings {
    /// Percentage of rejected nonces.
    pub nonce_reject: u32,
    /// Upper bound of Pebble's delay before a validation, in seconds.
    pub sleep: Option<u32>,
    /// External account binding: the key identifier and the key. Accounts without a binding are rejected.
    pub binding: Option<(&'static str, &'static str)>,
    /// Whether Pebble sends its http-01 requests to a closed port.
    pub http_01_fails: bool,
}

/// Returns a free port below the kernel's range of ephemeral ports, so that no other socket receives the
/// port by chance before its owner binds.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = 10_000 + (std::process::id() % 500) as u16 * 40;
    loop {
        let port = start + NEXT.fetch_add(1, Ordering::Relaxed) % 2_000;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

impl Pebble {
    pub fn start() -> Pebble {
        Pebble::start_with(Settings::default())
    }

    pub fn start_with(settings: Settings) -> Pebble {
        let authority = Authority::new("the directory's CA");
        let leaf = authority.server(&["localhost"]);
        let folder = Folder::new()
            .with("ca.pem", &authority.pem)
            .with("pebble.crt", &leaf.certificate)
            .with("pebble.key", &leaf.key);
        let (dns_port, dns_management) = (free_port(), free_port());
        let dns = Command::new(built_tool("pebble-challtestsrv"))
            .args(["-http01", "", "-https01", "", "-tlsalpn01", "", "-doh", ""])
            .args(["-defaultIPv4", "127.0.0.1", "-defaultIPv6", ""])
            .args(["-dnsserver", &format!("127.0.0.1:{dns_port}")])
            .args(["-management", &format!("127.0.0.1:{dns_management}")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("pebble-challtestsrv");
        eventually("the server for DNS", || {
            TcpStream::connect(("127.0.0.1", dns_management)).ok()
        });
        let (port, management) = (free_port(), free_port());
        let (http_port, https_port) = (free_port(), free_port());
        let mut pebble = Pebble {
            settings,
            child: None,
            dns,
            folder,
            output: Lines::of(&b""[..]),
            port,
            management,
            dns_port,
            dns_management,
            http_port,
            https_port,
        };
        pebble.run();
        pebble
    }

    /// Starts Pebble on the same ports as before, with empty state.
    pub fn run(&mut self) {
        self.folder.write("pebble.json", self.config());
        let mut command = Command::new(built_tool("pebble"));
        command
            .arg("-config")
            .arg(self.folder.path("pebble.json"))
            .args(["-dnsserver", &format!("127.0.0.1:{}", self.dns_port)])
            .env(
                "PEBBLE_WFE_NONCEREJECT",
                self.settings.nonce_reject.to_string(),
            )
            .env("PEBBLE_AUTHZREUSE", "0");
        match self.settings.sleep {
            Some(seconds) => command.env("PEBBLE_VA_SLEEPTIME", seconds.to_string()),
            None => command.env("PEBBLE_VA_NOSLEEP", "1"),
        };
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("pebble");
        self.output = Lines::of(child.stdout.take().expect("a pipe"));
        self.child = Some(child);
        // Pebble's management interface is a second listener and may be ready after the directory.
        for url in [
            format!("https://localhost:{}/dir", self.port),
            format!("https://localhost:{}/roots/0", self.management),
        ] {
            eventually("the directory", || self.curl(&[&url]).then_some(()));
        }
    }

    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn config(&self) -> String {
        let http_port = if self.settings.http_01_fails {
            free_port()
        } else {
            self.http_port
        };
        let binding = self
            .settings
            .binding
            .map_or_else(String::new, |(kid, key)| {
                format!(
                    "\"externalAccountBindingRequired\": true,\n\
                 \"externalAccountMACKeys\": {{ \"{kid}\": \"{key}\" }},"
                )
            });
        format!(
            "{{ \"pebble\": {{ \"listenAddress\": \"127.0.0.1:{}\",\n\
             \"managementListenAddress\": \"127.0.0.1:{}\",\n\
             \"certificate\": \"{}\",\n\"privateKey\": \"{}\",\n\
             \"httpPort\": {http_port},\n\"tlsPort\": {},\n{binding}\n\
             \"retryAfter\": {{ \"authz\": 1, \"order\": 1 }},\n\"keyAlgorithm\": \"ecdsa\",\n\
             \"profiles\": {{\n\
             \"default\": {{ \"description\": \"90 days\", \"validityPeriod\": 7776000 }},\n\
             \"shortlived\": {{ \"description\": \"6 days\", \"validityPeriod\": 518400 }} }} }} }}\n",
            self.port,
            self.management,
            self.folder.path("pebble.crt").display(),
            self.folder.path("pebble.key").display(),
            self.https_port,
        )
    }

    /// Returns a `[server]` table with the ports of the validations.
    pub fn server_table(&self) -> String {
        format!(
            "[server]\nhttps = [\"127.0.0.1:{}\"]\nhttp = [\"127.0.0.1:{}\"]\nstate = \"state\"\n\
             control = \"anthill.sock\"\nworkers = 1\n",
            self.https_port, self.http_port
        )
    }

    /// Returns a `[tls]` table with the directory and further keys of `acme`.
    pub fn tls_table(&self, more: &str) -> String {
        // Pebble picks a random profile for an order without a profile.
        let profile = if more.contains("profile") {
            ""
        } else {
            ", profile = \"default\""
        };
        format!(
            "[tls]\nacme = {{ email = \"me@example.org\", directory = \"https://localhost:{}/dir\", \
             ca = \"{}\"{profile}{more} }}\n",
            self.port,
            self.folder.path("ca.pem").display()
        )
    }

    /// Returns a whole configuration for one site with the names.
    pub fn config_for(&self, names: &[&str], more: &str) -> String {
        format!(
            "{}{}[[site]]\nnames = {names:?}\nroot = \"public\"\n",
            self.server_table(),
            self.tls_table(more)
        )
    }

    fn curl(&self, arguments: &[&str]) -> bool {
        let mut all = vec!["-sSf", "-k", "--max-time", "10"];
        all.extend(arguments);
        run("curl", &all, b"").success
    }

    /// Returns the root certificate of Pebble's chains.
    pub fn root(&self) -> String {
        let url = format!("https://localhost:{}/roots/0", self.management);
        let ran = run("curl", &["-sSf", "-k", &url], b"");
        assert!(ran.success, "{}", ran.errors());
        ran.text()
    }

    /// Sends a command to the DNS server's management interface.
    pub fn dns(&self, path: &str, json: &str) {
        let url = self.dns_url(path);
        assert!(self.curl(&["-d", json, &url]), "{url} {json}");
    }

    pub fn dns_url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.dns_management)
    }

    /// Sets the directory's renewal information (RFC 9773) for a certificate.
    pub fn set_renewal_info(&self, certificate: &str, response: &str) {
        let escape = |text: &str| {
            text.replace('\\', "\\\\")
                .replace('"', "\\\"")
                .replace('\n', "\\n")
        };
        let json = format!(
            "{{\"Certificate\":\"{}\",\"ARIResponse\":\"{}\"}}",
            escape(certificate),
            escape(response)
        );
        let url = format!("https://localhost:{}/set-renewal-info/", self.management);
        assert!(self.curl(&["-d", &json, &url]), "{json}");
    }

    /// Returns the number of orders created so far.
    pub fn orders(&self) -> usize {
        let lines = self.output.all();
        lines
            .iter()
            .filter(|line| line.contains("Added order"))
            .count()
    }
}

impl Drop for Pebble {
    fn drop(&mut self) {
        self.stop();
        let _ = self.dns.kill();
        let _ = self.dns.wait();
        if std::thread::panicking() {
            let lines = self.output.all();
            let from = lines.len().saturating_sub(60);
            eprintln!("the directory said:\n{}", lines[from..].join("\n"));
        }
    }
}
