//! Strict clients: a test CA, curl with the test CA as its only trust anchor, openssl's s_client, and the
//! program `anthill` from an operator's shell.

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256, SignatureAlgorithm,
};

use crate::support::{Folder, Ran, Server, lossy, run, spawn};

/// Deadline of every wait.
const PATIENCE: Duration = Duration::from_secs(60);

/// Calls `look` repeatedly until `look` returns a value. Fails with `what` after the deadline.
pub fn wait_until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "no {what} within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A certificate authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub pem: String,
}

/// A certificate and its key, both PEM.
#[derive(Clone)]
pub struct Leaf {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    pub fn new(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.distinguished_name = common_name(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a CA").pem();
        Authority {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    /// Issues an ECDSA P-256 server certificate for the names.
    pub fn server(&self, names: &[&str]) -> Leaf {
        let usage = ExtendedKeyUsagePurpose::ServerAuth;
        self.leaf(names, usage, &PKCS_ECDSA_P256_SHA256)
    }

    /// Issues an RSA server certificate for the names.
    pub fn rsa(&self, names: &[&str]) -> Leaf {
        self.leaf(names, ExtendedKeyUsagePurpose::ServerAuth, &PKCS_RSA_SHA256)
    }

    pub fn client(&self, name: &str) -> Leaf {
        let usage = ExtendedKeyUsagePurpose::ClientAuth;
        self.leaf(&[name], usage, &PKCS_ECDSA_P256_SHA256)
    }

    fn leaf(
        &self,
        names: &[&str],
        usage: ExtendedKeyUsagePurpose,
        algorithm: &'static SignatureAlgorithm,
    ) -> Leaf {
        let mut params = leaf_params(names);
        params.extended_key_usages = vec![usage];
        self.issue(&params, algorithm)
    }

    /// Issues a server certificate that expired at the beginning of the year 2001.
    pub fn expired(&self, names: &[&str]) -> Leaf {
        let mut params = leaf_params(names);
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        params.not_after = rcgen::date_time_ymd(2001, 1, 1);
        self.issue(&params, &PKCS_ECDSA_P256_SHA256)
    }

    fn issue(&self, params: &CertificateParams, algorithm: &'static SignatureAlgorithm) -> Leaf {
        let key = KeyPair::generate_for(algorithm).expect("a key");
        Leaf {
            certificate: params.signed_by(&key, &self.issuer).expect("a leaf").pem(),
            key: key.serialize_pem(),
        }
    }
}

fn leaf_params(names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names.clone()).expect("names");
    params.distinguished_name = common_name(&names[0]);
    params
}

fn common_name(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

impl Leaf {
    /// Returns the certificate and the key as one PEM text, the format of combined files.
    pub fn combined(&self) -> String {
        self.certificate.clone() + &self.key
    }
}

/// A parsed response.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    /// Parses the last response of the bytes; curl prints the responses before a redirect or a login too.
    pub fn parse(bytes: &[u8]) -> Answer {
        let text = lossy(bytes);
        let (head, body) = text
            .split_once("\r\n\r\n")
            .unwrap_or_else(|| panic!("no whole head in {text:?}"));
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
        Answer {
            status: status.unwrap_or_else(|| panic!("no status in {head:?}")),
            head: head.to_owned(),
            body: body.to_owned(),
        }
    }

    /// Returns the value of a field, which must not occur twice.
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut values = self.head.lines().skip(1).filter_map(|line| {
            let (its, value) = line.split_once(':')?;
            its.eq_ignore_ascii_case(name).then(|| value.trim())
        });
        let value = values.next();
        assert_eq!(values.next(), None, "{name} twice in {}", self.head);
        value
    }

    pub fn location(&self) -> &str {
        self.field("location")
            .unwrap_or_else(|| panic!("no Location in {}", self.head))
    }
}

/// Sends one plain request and closes the connection.
pub fn ask(server: &Server, host: &str, target: &str) -> Answer {
    let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    Answer::parse(&server.http_raw(request.as_bytes()))
}

/// Runs curl with the arguments. Every name resolves to the loopback address, `ca.pem` is the only trust
/// anchor, and the URL's path is sent without normalisation.
pub fn curl<A: AsRef<OsStr>>(folder: &Folder, arguments: &[A]) -> Ran {
    let ca = folder.path("ca.pem");
    let mut all = [
        "-sSi",
        "--max-time",
        "30",
        "--path-as-is",
        "--connect-to",
        "::127.0.0.1:",
    ]
    .map(OsStr::new)
    .to_vec();
    if ca.is_file() {
        all.extend([OsStr::new("--cacert"), ca.as_os_str()]);
    } else {
        all.push(OsStr::new("-k"));
    }
    all.extend(arguments.iter().map(AsRef::as_ref));
    run("curl", &all, b"")
}

/// Requests `https://NAME/TARGET` with further arguments of curl, and returns the response.
pub fn visit_with(server: &Server, name: &str, target: &str, more: &[&str]) -> Answer {
    let url = format!("https://{name}:{}{target}", server.https_port);
    let mut arguments = more.to_vec();
    arguments.push(&url);
    let ran = curl(&server.folder, &arguments);
    assert!(ran.success, "curl {arguments:?}: {}", ran.errors());
    Answer::parse(&ran.stdout)
}

pub fn visit(server: &Server, name: &str, target: &str) -> Answer {
    visit_with(server, name, target, &[])
}

/// A connection made by openssl's s_client.
pub struct Session {
    pub connected: bool,
    /// s_client's description of the connection, followed by the server's bytes.
    pub text: String,
    pub errors: String,
}

impl Session {
    /// Connects to a port with the arguments and requests `/` of `host`.
    pub fn open(port: u16, host: &str, arguments: &[&str]) -> Session {
        let address = format!("127.0.0.1:{port}");
        let mut all = vec!["s_client", "-ign_eof", "-connect", &address];
        if !arguments.contains(&"-noservername") {
            all.extend(["-servername", host]);
        }
        all.extend(arguments);
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let ran = run("openssl", &all, request.as_bytes());
        Session {
            connected: ran.success,
            text: ran.text(),
            errors: ran.errors(),
        }
    }

    /// Returns true if the server presented the certificate.
    pub fn presents(&self, leaf: &Leaf) -> bool {
        let plain = |text: &str| text.replace(['\r', '\n'], "");
        plain(&self.text).contains(&plain(&leaf.certificate))
    }

    /// Returns true if the session was resumed.
    pub fn is_resumed(&self) -> bool {
        assert!(self.connected, "{}{}", self.text, self.errors);
        let resumed = self.text.contains("\nReused, ");
        assert!(
            resumed || self.text.contains("\nNew, "),
            "neither new nor reused:\n{}",
            self.text
        );
        resumed
    }

    /// Returns true if the handshake succeeded and the response has status 200.
    pub fn is_served(&self) -> bool {
        self.text.contains("HTTP/1.1 200 ")
    }
}

/// The result of a command run by an operator.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// Runs `anthill` with the arguments in `folder` until the command ends.
pub fn anthill<A: AsRef<OsStr>>(folder: &Path, arguments: &[A]) -> Ended {
    anthill_with_input(folder, arguments, "")
}

/// Runs `anthill` with the arguments and `input` on its standard input.
pub fn anthill_with_input<A: AsRef<OsStr>>(folder: &Path, arguments: &[A], input: &str) -> Ended {
    let mut command = Command::new("timeout");
    command
        .arg("30")
        .arg(crate::support::program())
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = spawn(&mut command).expect("the server's binary");
    // The command may end without reading all input, so a write error is ignored.
    let _ = child
        .stdin
        .take()
        .expect("a pipe")
        .write_all(input.as_bytes());
    let ran = child.wait_with_output().expect("its output");
    Ended {
        code: ran.status.code(),
        stdout: lossy(&ran.stdout),
        stderr: lossy(&ran.stderr),
    }
}

/// Sends a command to the running server (`reload`, `status`).
pub fn command(server: &Server, word: &str) -> Ended {
    anthill(&server.folder.path("."), &[word, "anthill.toml"])
}

/// Reloads the server with the configuration, which must be accepted.
pub fn reload(server: &Server, config: &str) {
    server.folder.write("anthill.toml", config);
    let ended = command(server, "reload");
    assert_eq!(ended.code, Some(0), "{ended:?}");
}
