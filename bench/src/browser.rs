//! A headless Chromium driven over the DevTools protocol. The cost of a page in a browser
//! can only be measured in a real browser.
//!
//! The browser runs in a temporary home folder with its own certificate store, where the test authority is
//! installed. The alternative, ignoring certificate errors, would disable Chromium's cache. The browser
//! resolves only the given names, so no request leaves the machine.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tungstenite::{Message, WebSocket};

use crate::work_folder::WorkFolder;

/// Error of starting or driving the browser.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program is not installed.
    #[error("{program} is not installed: apt-get install {package}")]
    Missing {
        /// Name of the program.
        program: &'static str,
        /// Debian package of the program.
        package: &'static str,
    },
    /// The browser did not start.
    #[error("{} did not start: {last_line}", program.display())]
    NotStarted {
        /// Path of the browser.
        program: PathBuf,
        /// Last line of the browser's log.
        last_line: String,
    },
    /// The test authority could not be added to the certificate store.
    #[error("certutil could not store the test authority: {0}")]
    Trust(String),
    /// The connection to the browser broke, usually because the browser ended.
    #[error("lost the connection to the browser: {0}")]
    Gone(String),
    /// The browser did not respond in time.
    #[error("the browser did not complete {waiting_for} within {seconds} s")]
    Timeout {
        /// The awaited step.
        waiting_for: String,
        /// Time limit in seconds.
        seconds: u64,
    },
    /// The browser rejected a command.
    #[error("the browser refused {method}: {message}")]
    Refused {
        /// The command.
        method: String,
        /// Message of the browser.
        message: String,
    },
    /// The page could not be loaded.
    #[error("{url}: {message}")]
    Page {
        /// URL of the page.
        url: String,
        /// Error code of the browser: `net::ERR_CONNECTION_REFUSED`.
        message: String,
    },
    /// An I/O error.
    #[error("{0}")]
    System(#[from] io::Error),
}

/// A running browser. Dropping the value ends all processes of the browser.
pub struct Browser {
    process: Process,
    socket: WebSocket<Uninterrupted>,
    version: String,
    program: PathBuf,
    last_id: u64,
    events: VecDeque<Event>,
}

/// An unsolicited message of the browser.
#[derive(Debug, Clone)]
pub struct Event {
    /// Session of the tab, or empty for events of no tab.
    pub session: String,
    /// Name of the event: `Network.loadingFinished`.
    pub method: String,
    /// Parameters of the event.
    pub params: Value,
}

/// Options for starting a browser.
#[derive(Debug, Default)]
pub struct Options<'a> {
    /// PEM of a certificate authority to trust.
    pub authority: Option<&'a str>,
    /// Names that the browser resolves in addition to `localhost`.
    pub hosts: &'a [(&'a str, IpAddr)],
}

impl Browser {
    /// Returns the path of the installed browser.
    pub fn find() -> Result<PathBuf, Error> {
        const NAMES: [&str; 4] = [
            "chromium",
            "chromium-browser",
            "google-chrome",
            "google-chrome-stable",
        ];
        let found = NAMES.iter().find_map(|name| on_path(name));
        found.ok_or(Error::Missing {
            program: "chromium",
            package: "chromium",
        })
    }

    /// Starts the browser and waits until the DevTools connection is established.
    pub fn start(options: &Options) -> Result<Browser, Error> {
        let program = Browser::find()?;
        let home = WorkFolder::create(&std::env::temp_dir())?;
        if let Some(authority) = options.authority {
            trust(home.path(), authority)?;
        }
        let (process, address) = Process::start(&program, home, options.hosts)?;
        let socket = connect(&address)?;
        let mut browser = Browser {
            process,
            socket,
            version: String::new(),
            program,
            last_id: 0,
            events: VecDeque::new(),
        };
        let version = browser.command("", "Browser.getVersion", json!({}))?;
        browser.version = version["product"].as_str().unwrap_or_default().to_owned();
        Ok(browser)
    }

    /// Returns the version: `HeadlessChrome/156.0.8078.79`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Returns the path of the browser.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Opens a tab in a new browser context, with an empty cache, no connections and no TLS sessions.
    pub fn tab(&mut self) -> Result<Tab<'_>, Error> {
        let context = self.command("", "Target.createBrowserContext", json!({}))?;
        let context = text(&context, "browserContextId");
        let target = json!({"url": "about:blank", "browserContextId": context});
        let target = text(
            &self.command("", "Target.createTarget", target)?,
            "targetId",
        );
        let attach = json!({"targetId": target, "flatten": true});
        let session = text(
            &self.command("", "Target.attachToTarget", attach)?,
            "sessionId",
        );
        for method in ["Page.enable", "Network.enable", "Runtime.enable"] {
            self.command(&session, method, json!({}))?;
        }
        self.command(
            &session,
            "Page.setLifecycleEventsEnabled",
            json!({"enabled": true}),
        )?;
        Ok(Tab {
            browser: self,
            context,
            session,
        })
    }

    /// Sends a command and waits for the result. Events received in the meantime are queued.
    fn command(&mut self, session: &str, method: &str, params: Value) -> Result<Value, Error> {
        self.last_id += 1;
        let id = self.last_id;
        let mut command = json!({"id": id, "method": method, "params": params});
        if !session.is_empty() {
            command["sessionId"] = json!(session);
        }
        self.socket
            .send(Message::text(command.to_string()))
            .map_err(gone)?;
        let deadline = Deadline::new(method);
        loop {
            let mut message = self.receive(&deadline)?;
            if message["id"].as_u64() != Some(id) {
                self.events.extend(event(message));
            } else if let Some(message) = message["error"]["message"].as_str() {
                return Err(Error::Refused {
                    method: method.to_owned(),
                    message: message.to_owned(),
                });
            } else {
                return Ok(message["result"].take());
            }
        }
    }

    /// Returns the next event of a tab.
    fn event(&mut self, session: &str, deadline: &Deadline) -> Result<Event, Error> {
        loop {
            while let Some(event) = self.events.pop_front() {
                if event.session == session {
                    return Ok(event);
                }
            }
            let message = self.receive(deadline)?;
            self.events.extend(event(message));
        }
    }

    fn receive(&mut self, deadline: &Deadline) -> Result<Value, Error> {
        loop {
            self.socket
                .get_mut()
                .0
                .set_read_timeout(Some(deadline.left()?))?;
            match self.socket.read() {
                Ok(Message::Text(text)) => {
                    return serde_json::from_str(&text)
                        .map_err(|error| Error::Gone(error.to_string()));
                }
                Ok(_) => {}
                Err(tungstenite::Error::Io(error)) if is_timeout(&error) => {
                    deadline.left()?;
                }
                Err(error) => {
                    return Err(Error::Gone(format!(
                        "{error}; {}",
                        self.process.last_line()
                    )));
                }
            }
        }
    }
}

/// A tab. Dropping the value closes the tab and discards its cache.
pub struct Tab<'a> {
    browser: &'a mut Browser,
    context: String,
    session: String,
}

impl Tab<'_> {
    /// Sends a command of the DevTools protocol and returns the result.
    pub fn command(&mut self, method: &str, params: Value) -> Result<Value, Error> {
        self.browser.command(&self.session, method, params)
    }

    /// Discards all queued events.
    pub fn forget_events(&mut self) {
        self.browser.events.clear();
    }

    /// Passes events to `take` until `take` returns a value.
    pub fn watch<T>(
        &mut self,
        waiting_for: &str,
        mut take: impl FnMut(&Event) -> Option<T>,
    ) -> Result<T, Error> {
        let deadline = Deadline::new(waiting_for);
        loop {
            let event = self.browser.event(&self.session, &deadline)?;
            if let Some(result) = take(&event) {
                return Ok(result);
            }
        }
    }

    /// Opens a page and waits for its load event.
    pub fn open(&mut self, url: &str) -> Result<(), Error> {
        self.forget_events();
        let mut navigation = self.command("Page.navigate", json!({"url": url}))?;
        if let Some(message) = navigation["errorText"].as_str() {
            return Err(Error::Page {
                url: url.to_owned(),
                message: message.to_owned(),
            });
        }
        // The load event of the initial blank page may arrive late, so events are matched by loader.
        let loader = navigation["loaderId"].take();
        self.watch(url, |event| {
            let loaded = event.method == "Page.lifecycleEvent" && event.params["name"] == "load";
            (loaded && event.params["loaderId"] == loader).then_some(())
        })
    }

    /// Evaluates a JavaScript expression in the page and returns its value.
    pub fn evaluate(&mut self, expression: &str) -> Result<Value, Error> {
        let asked = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let mut answer = self.command("Runtime.evaluate", asked)?;
        if let Some(exception) = answer.get("exceptionDetails") {
            let message = exception["exception"]["description"]
                .as_str()
                .unwrap_or("an exception");
            return Err(Error::Refused {
                method: expression.to_owned(),
                message: message.to_owned(),
            });
        }
        Ok(answer["result"]["value"].take())
    }
}

impl Drop for Tab<'_> {
    fn drop(&mut self) {
        let context = json!({"browserContextId": self.context});
        // Fails only if the browser has ended, and the tab with the browser.
        let _ = self
            .browser
            .command("", "Target.disposeBrowserContext", context);
    }
}

/// The browser's processes and home folder.
struct Process {
    child: Child,
    log: mpsc::Receiver<String>,
    _home: WorkFolder,
}

impl Process {
    /// Starts the browser and reads the DevTools address from its log.
    fn start(
        program: &Path,
        home: WorkFolder,
        hosts: &[(&str, IpAddr)],
    ) -> Result<(Process, String), Error> {
        let mut child = command(program, home.path(), hosts).spawn()?;
        let log = lines(child.stderr.take());
        let process = Process {
            child,
            log,
            _home: home,
        };
        let deadline = Deadline::new("its start");
        let mut last_line = String::from("no output");
        loop {
            let Ok(line) = process.log.recv_timeout(deadline.left()?) else {
                return Err(Error::NotStarted {
                    program: program.to_owned(),
                    last_line,
                });
            };
            if let Some(address) = line.strip_prefix("DevTools listening on ") {
                let address = address.trim().to_owned();
                return Ok((process, address));
            }
            last_line = line;
        }
    }

    /// Returns the last log line, for error messages.
    fn last_line(&self) -> String {
        self.log
            .try_iter()
            .last()
            .unwrap_or_else(|| "no output".to_owned())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Chromium consists of about a dozen processes, all in the same process group.
        if let Some(group) = rustix::process::Pid::from_raw(self.child.id() as i32) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = self.child.wait();
        // All processes hold the log pipe. When the pipe ends, the last process has ended and the home
        // folder can be deleted.
        let deadline = Deadline::new("its end");
        while deadline
            .left()
            .is_ok_and(|left| self.log.recv_timeout(left).is_ok())
        {}
    }
}

/// Builds the command line. With `setpriv`, the kernel kills the browser when the starting thread ends for
/// any reason.
fn command(program: &Path, home: &Path, hosts: &[(&str, IpAddr)]) -> Command {
    let mut command = match on_path("setpriv") {
        Some(setpriv) => {
            let mut command = Command::new(setpriv);
            command.args(["--pdeathsig", "KILL", "--"]).arg(program);
            command
        }
        None => Command::new(program),
    };
    let mut rules: Vec<String> = hosts
        .iter()
        .map(|(name, address)| format!("MAP {name} {address}"))
        .collect();
    rules.push("MAP * ~NOTFOUND".into());
    rules.extend(["EXCLUDE localhost", "EXCLUDE 127.0.0.1"].map(String::from));
    command
        .args([
            "--headless",
            "--remote-debugging-port=0",
            "--no-first-run",
            "--no-default-browser-check",
        ])
        .args([
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
        ])
        .args([
            "--disable-extensions",
            "--disable-default-apps",
            "--disable-gpu",
            "--mute-audio",
        ])
        // /dev/shm is often too small in a container.
        .arg("--disable-dev-shm-usage")
        .arg(format!("--host-resolver-rules={}", rules.join(", ")))
        .arg(format!(
            "--user-data-dir={}",
            home.join("profile").display()
        ))
        .env("HOME", home)
        .env_remove("XDG_CONFIG_HOME")
        .env_remove("XDG_CACHE_HOME")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0);
    if rustix::process::geteuid().is_root() {
        // Chromium's sandbox refuses to run as root.
        command.arg("--no-sandbox");
    }
    command.arg("about:blank");
    command
}

/// Adds an authority to the certificate store of a home folder.
fn trust(home: &Path, authority: &str) -> Result<(), Error> {
    let certutil = on_path("certutil").ok_or(Error::Missing {
        program: "certutil",
        package: "libnss3-tools",
    })?;
    let store = home.join(".pki/nssdb");
    std::fs::create_dir_all(&store)?;
    let certificate = home.join("authority.pem");
    std::fs::write(&certificate, authority)?;
    let database = format!("sql:{}", store.display());
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&certutil);
        command
            .args(["-d", &database])
            .args(arguments)
            .env("HOME", home)
            .stdin(Stdio::null());
        let output = command.output()?;
        if output.status.success() {
            return Ok(());
        }
        Err(Error::Trust(
            String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        ))
    };
    run(&["-N", "--empty-password"])?;
    run(&[
        "-A",
        "-n",
        "anthill test authority",
        "-t",
        "C,,",
        "-i",
        &certificate.to_string_lossy(),
    ])
}

/// Returns the lines of the browser's log. The log is read to the end, because a full pipe would block the
/// browser.
fn lines(log: Option<ChildStderr>) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    if let Some(log) = log {
        std::thread::spawn(move || {
            for line in BufReader::new(log).lines().map_while(Result::ok) {
                if !line.is_empty() && sender.send(line).is_err() {
                    // The receiver was dropped. Reading continues, to keep the pipe empty.
                }
            }
        });
    }
    receiver
}

/// Connection that reads again after a signal. The kernel never restarts a read with a timeout.
struct Uninterrupted(TcpStream);

impl Read for Uninterrupted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }
}

impl Write for Uninterrupted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn connect(address: &str) -> Result<WebSocket<Uninterrupted>, Error> {
    let authority = address
        .strip_prefix("ws://")
        .and_then(|rest| rest.split('/').next());
    let stream = TcpStream::connect(authority.unwrap_or_default())?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(PATIENCE_SECONDS)))?;
    let (socket, _) = tungstenite::client(address, Uninterrupted(stream))
        .map_err(|error| Error::Gone(error.to_string()))?;
    Ok(socket)
}

fn event(mut message: Value) -> Option<Event> {
    let method = message["method"].as_str()?.to_owned();
    let session = message["sessionId"].as_str().unwrap_or_default().to_owned();
    Some(Event {
        session,
        method,
        params: message["params"].take(),
    })
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

fn gone(error: tungstenite::Error) -> Error {
    Error::Gone(error.to_string())
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// Time limit of an awaited step.
struct Deadline {
    waiting_for: String,
    at: Instant,
}

impl Deadline {
    fn new(waiting_for: &str) -> Deadline {
        let at = Instant::now() + Duration::from_secs(PATIENCE_SECONDS);
        Deadline {
            waiting_for: waiting_for.to_owned(),
            at,
        }
    }

    fn left(&self) -> Result<Duration, Error> {
        let left = self.at.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let waiting_for = self.waiting_for.clone();
            return Err(Error::Timeout {
                waiting_for,
                seconds: PATIENCE_SECONDS,
            });
        }
        Ok(left)
    }
}

/// Time limit of one step in seconds. A busy single-core machine needs most of the limit to start a
/// browser.
const PATIENCE_SECONDS: u64 = 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_opened_and_evaluated() {
        let mut browser = match Browser::start(&Options::default()) {
            Err(error @ Error::Missing { .. }) if std::env::var("CI").as_deref() != Ok("true") => {
                eprintln!("not tested: {error}");
                return;
            }
            started => started.unwrap_or_else(|error| panic!("{error}")),
        };
        assert!(browser.version().contains("Chrom"), "{}", browser.version());
        let group = browser.process.child.id();
        let mut tab = browser.tab().unwrap();
        tab.open("data:text/html,<title>ants</title><p>1 &lt; 2")
            .unwrap();
        assert_eq!(
            tab.evaluate("document.title + document.body.innerText")
                .unwrap(),
            "ants1 < 2"
        );
        assert!(matches!(
            tab.evaluate("nothing.here"),
            Err(Error::Refused { .. })
        ));
        assert!(matches!(
            tab.open("http://127.0.0.1:1/"),
            Err(Error::Page { .. })
        ));
        assert!(
            matches!(tab.open("http://example.org/"), Err(Error::Page { .. })),
            "a request left the machine"
        );
        drop(tab);
        drop(browser);
        // Killed processes close their descriptors before the kernel marks them as zombies, and are visible
        // until then.
        let deadline = Deadline::new("the end of the last process");
        while !living(group).is_empty() {
            assert!(deadline.left().is_ok(), "left behind: {:?}", living(group));
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_missing_program_is_reported_with_its_package() {
        let message = |program, package| Error::Missing { program, package }.to_string();
        let browser = message("chromium", "chromium");
        assert_eq!(
            browser,
            "chromium is not installed: apt-get install chromium"
        );
        let store = message("certutil", "libnss3-tools");
        assert_eq!(
            store,
            "certutil is not installed: apt-get install libnss3-tools"
        );
    }

    /// Returns the processes of a process group, except zombies.
    fn living(group: u32) -> Vec<String> {
        let stats = std::fs::read_dir("/proc").unwrap().flatten();
        let stats =
            stats.filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
        stats.filter(|stat| is_living_member(stat, group)).collect()
    }

    fn is_living_member(stat: &str, group: u32) -> bool {
        let after_name = stat.rsplit(") ").next().unwrap_or_default();
        let fields: Vec<&str> = after_name.split(' ').collect();
        fields[0] != "Z" && fields[2] == group.to_string()
    }
}
