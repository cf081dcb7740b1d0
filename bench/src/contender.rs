//! A running contender: configured from templates, started, probed until ready, and stopped.
//!
//! A contender is ready when a real request is answered with status 200. An open port is not enough,
//! because some servers open their port long before they can serve. The configuration files and the command
//! lines are kept in the facts of the contender, a part of the result.
//!
//! Placeholders in templates and commands: `{folder}` (work folder), `{pages}` (folder inside the work
//! folder, writable for every user), `{root}`, `{cgi_root}`, `{page}` (file of the hello page), `{host}`,
//! `{http}`, `{https}`, `{certificate}`, `{key}`, `{combined}`, `{workers}`, `{workers_double}`,
//! `{connections_max}`, `{connections_hundreds}`, `{connections_proxied}` (limit for a proxy, with two open
//! files per connection), `{open_files}`, `{access_log}`, and the key of each program of the contender.
//! Conditions: `tls`, `keep_alive`, `access_log`, `root` (the kit runs as root), `workers_many`, `static`,
//! `cgi`, `balancer`, `published`. Lists: `file` and `small_page` (`{path}`, `{file}`), `member`
//! (`{member}`, `{member_host}`, `{member_port}`, `{number}`).

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use crate::catalogue::{Ability, Entry, Start};
use crate::ports;
use crate::probe;
use crate::process::{Launch, ShareError, Tree, raise_open_files};
use crate::program::Found;
use crate::result::ContenderFacts;
use crate::site::{Page, Site};
use crate::template::Values;

/// Task and settings of a contender.
#[derive(Debug, Clone)]
pub struct Setup<'a> {
    /// Task of the contender.
    pub role: Role,
    /// Site to serve, including the certificate.
    pub site: &'a Site,
    /// Work folder, created if missing.
    pub folder: &'a Path,
    /// Loopback address to listen on.
    pub host: IpAddr,
    /// Port without TLS, or 0 for a free port.
    pub http: u16,
    /// Port with TLS, or 0 for a free port.
    pub https: u16,
    /// Whether to serve over TLS in addition to plain HTTP. A contender limited to one of the two serves
    /// TLS only.
    pub tls: bool,
    /// Processors of the contender. Empty for all processors of the kit.
    pub cpus: Vec<usize>,
    /// Number of worker threads or processes, if configurable.
    pub workers: usize,
    /// Whether connections are persistent, if configurable.
    pub keep_alive: bool,
    /// Whether an access log is written, if configurable.
    pub access_log: bool,
    /// Maximum number of connections to expect.
    pub connections: usize,
    /// CPU time limit of all processes together, in processors: 0.1 is a tenth of a processor.
    pub share: Option<f64>,
    /// Folder with copies of the programs, run instead of the installed files. Processes of one file share
    /// memory, so members of the balancer's program would lower the balancer's PSS.
    pub copies: Option<&'a Path>,
    /// Time limit until the contender is ready.
    pub ready_within: Duration,
}

/// Task of a contender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// Serves the files of the site, or only the hello page.
    Static,
    /// Serves the files of the site and runs its scripts.
    Cgi,
    /// Forwards to members.
    Balancer {
        /// Addresses of the members, without TLS.
        members: Vec<SocketAddr>,
    },
    /// Runs as in the source document: with its own content under `/` and the settings of the time.
    Published,
}

/// A running contender. Dropping the value kills all processes.
#[derive(Debug)]
pub struct Contender {
    tree: Tree,
    facts: ContenderFacts,
    http: SocketAddr,
    https: SocketAddr,
    logs: Vec<PathBuf>,
}

/// Alias of [`Contender`].
pub type Running = Contender;

impl<'a> Setup<'a> {
    /// Creates a setup for serving the site without TLS, with one worker, on free ports of 127.0.0.1.
    pub fn new(site: &'a Site, folder: &'a Path) -> Setup<'a> {
        Setup {
            role: Role::Static,
            site,
            folder,
            host: IpAddr::V4(Ipv4Addr::LOCALHOST),
            http: 0,
            https: 0,
            tls: false,
            cpus: Vec::new(),
            workers: 1,
            keep_alive: true,
            access_log: false,
            connections: 1_000,
            share: None,
            copies: None,
            ready_within: READY_WITHIN,
        }
    }

    /// Checks that the entry has the abilities for the setup, or returns the missing ability.
    pub fn suits(&self, entry: &Entry) -> Result<(), Ability> {
        let role = match self.role {
            Role::Static => Ability::Hello,
            Role::Cgi => Ability::Cgi,
            Role::Balancer { .. } => Ability::Balancer,
            Role::Published => Ability::Published,
        };
        let protocol = if self.tls {
            Ability::Https
        } else {
            Ability::Http
        };
        let lacks = |ability: &Ability| !entry.can(*ability);
        [role, protocol].into_iter().find(lacks).map_or(Ok(()), Err)
    }
}

impl Contender {
    /// Finds, configures and starts the contender, and waits until the contender is ready.
    pub fn start(entry: &Entry, setup: &Setup) -> Result<Contender, StartError> {
        let name = entry.name.clone();
        setup.suits(entry).map_err(|lacks| StartError::Unable {
            name: name.clone(),
            lacks,
        })?;
        let found = entry.find();
        let found = found.map_err(|missing| StartError::Missing {
            name: name.clone(),
            why: missing.0,
        })?;
        let plan = StartPlan::make(entry, setup, &found)?;
        let tree = Tree::new(&name, setup.share)?;
        let contender = Contender {
            tree,
            facts: plan.facts(entry, found),
            http: plan.http,
            https: plan.https,
            logs: plan
                .launches
                .iter()
                .map(|launch| launch.log.clone())
                .collect(),
        };
        for launch in &plan.launches {
            contender
                .tree
                .spawn(launch)
                .map_err(|error| plan.failed(&launch.program, error))?;
        }
        contender.await_ready(setup, &plan.ready)?;
        Ok(contender)
    }

    /// Returns the process tree.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Returns the facts: version, configuration and commands.
    pub fn facts(&self) -> &ContenderFacts {
        &self.facts
    }

    /// Returns the address with or without TLS. The TLS port is served only if the setup asked for TLS.
    pub fn address(&self, tls: bool) -> SocketAddr {
        if tls { self.https } else { self.http }
    }

    /// Checks that all started processes are still running.
    pub fn alive(&self) -> Result<(), Died> {
        match self.tree.ended() {
            None => Ok(()),
            Some((process, status)) => Err(Died {
                name: self.facts.name.clone(),
                process,
                status,
                line: self.last_line(),
            }),
        }
    }

    /// Returns the last line of the most recent log, empty if all logs are empty.
    pub fn last_line(&self) -> String {
        let changed = |log: &PathBuf| {
            fs::metadata(log)
                .and_then(|metadata| metadata.modified())
                .ok()
        };
        let mut logs = self.logs.clone();
        logs.sort_by_key(changed);
        logs.iter()
            .rev()
            .find_map(|log| last_line_of(log))
            .unwrap_or_default()
    }

    /// Stops all processes, gracefully if possible.
    pub fn stop(self) {
        self.tree.end(STOP_GRACE);
    }

    fn await_ready(&self, setup: &Setup, ready: &Ready) -> Result<(), StartError> {
        let authority = setup
            .tls
            .then_some(setup.site.certificate.authority_pem.as_str());
        let address = self.address(setup.tls);
        let deadline = Instant::now() + setup.ready_within;
        loop {
            self.alive().map_err(StartError::Died)?;
            let answer = probe::get(address, ready.path, authority);
            let seen = match answer.map(|answer| ready.judge(&answer)) {
                Ok(None) => return Ok(()),
                Ok(Some(seen)) => seen,
                Err(error) => error.to_string(),
            };
            if Instant::now() > deadline {
                return Err(StartError::NotReady {
                    name: self.facts.name.clone(),
                    address,
                    seconds: setup.ready_within.as_secs_f64(),
                    seen,
                    line: self.last_line(),
                });
            }
            std::thread::sleep(READY_POLL);
        }
    }
}

/// Everything decided before the start of a process.
struct StartPlan {
    name: String,
    http: SocketAddr,
    https: SocketAddr,
    launches: Vec<Launch>,
    configuration: BTreeMap<String, String>,
    ready: Ready,
}

/// Request and response by which readiness is recognized.
struct Ready {
    path: &'static str,
    /// Expected content. `None` for a balancer, because the content depends on its members.
    body: Option<Vec<u8>>,
}

impl Ready {
    /// Returns a description of the error in a response, or `None` if the response is correct.
    fn judge(&self, answer: &probe::Answer) -> Option<String> {
        let Ready { path, body } = self;
        if answer.status != 200 {
            return Some(format!("status {} for {path}", answer.status));
        }
        let other = body.as_ref().is_some_and(|body| *body != answer.body);
        let bytes = answer.body.len();
        other.then(|| format!("unexpected content of {bytes} bytes for {path}"))
    }
}

impl StartPlan {
    fn make(entry: &Entry, setup: &Setup, found: &Found) -> Result<StartPlan, StartError> {
        let name = &entry.name;
        let io = |what: &Path, error| StartError::Io {
            name: name.clone(),
            what: what.display().to_string(),
            error,
        };
        let mut ports = ports::Free::new(setup.host);
        let mut port = |wanted| {
            let port = ports.take(wanted);
            port.map_err(|error| StartError::Port {
                name: name.clone(),
                error,
            })
        };
        let http = SocketAddr::new(setup.host, port(setup.http)?);
        let https = SocketAddr::new(setup.host, port(setup.https)?);
        let folder = std::path::absolute(setup.folder).map_err(|error| io(setup.folder, error))?;
        crate::site::create_open(&folder).map_err(|error| io(&folder, error))?;
        let pages = folder.join(PAGES);
        crate::site::create_writable(&pages).map_err(|error| io(&pages, error))?;
        let page = match setup.role {
            Role::Published => {
                published_page(entry, setup.site, &folder).map_err(|error| io(&folder, error))?
            }
            _ => setup.site.hello().file.clone(),
        };
        let places = Places {
            folder: &folder,
            page: &page,
            http: http.port(),
            https: https.port(),
        };
        let values = values(setup, found, &places);
        let content = fs::read(&page).map_err(|error| io(&page, error))?;
        let (path, body) = match setup.role {
            Role::Published => ("/", Some(content)),
            Role::Balancer { .. } => (Site::HELLO, None),
            // The scripts may be run by a separate process, ready later than the server.
            Role::Cgi => (Site::SHELL_SCRIPT, Some(Site::SIMPLE.into())),
            Role::Static => (Site::HELLO, Some(content)),
        };
        let mut plan = StartPlan {
            name: name.clone(),
            http,
            https,
            launches: Vec::new(),
            configuration: BTreeMap::new(),
            ready: Ready { path, body },
        };
        for start in &entry.starts {
            let applies = values
                .hold(&start.when)
                .map_err(|error| plan.template("when", error))?;
            if applies {
                plan.add(entry, start, &values, &folder, setup)?;
            }
        }
        Ok(plan)
    }

    /// Writes the files of a process and builds its command line.
    fn add(
        &mut self,
        entry: &Entry,
        start: &Start,
        values: &Values,
        folder: &Path,
        setup: &Setup,
    ) -> Result<(), StartError> {
        for (file, template) in &start.files {
            let text = entry
                .template(template)
                .map_err(|why| self.template(template, why))?;
            let text = values
                .fill(&text)
                .map_err(|error| self.template(template, error))?;
            let path = folder.join(file);
            fs::write(&path, &text).map_err(|error| self.failed(&path, error))?;
            self.configuration.insert(file.clone(), text);
        }
        let fill = |text: &String| {
            values
                .fill_line(text)
                .map_err(|error| self.template("command", error))
        };
        let words = start
            .command
            .iter()
            .map(fill)
            .collect::<Result<Vec<_>, _>>()?;
        let environment = start
            .environment
            .iter()
            .map(|(variable, text)| Ok((variable.clone(), fill(text)?)))
            .collect::<Result<_, StartError>>()?;
        let mut program = PathBuf::from(&words[0]);
        if let Some(copies) = setup.copies {
            program = copied(&program, copies).map_err(|error| self.failed(&program, error))?;
        }
        let process = program
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        self.launches.push(Launch {
            log: folder.join(format!("{process}.log")),
            name: process,
            program,
            arguments: words[1..].to_vec(),
            environment,
            folder: folder.to_owned(),
            cpus: setup.cpus.clone(),
        });
        Ok(())
    }

    fn facts(&self, entry: &Entry, found: Found) -> ContenderFacts {
        ContenderFacts {
            name: entry.name.clone(),
            title: entry.title.clone(),
            version: found.version,
            program: found.program.display().to_string(),
            program_bytes: found.program_bytes,
            configuration: self.configuration.clone(),
            commands: self.launches.iter().map(command_line).collect(),
            missing: None,
        }
    }

    fn template(&self, template: &str, why: impl ToString) -> StartError {
        StartError::Template {
            name: self.name.clone(),
            template: template.to_owned(),
            why: why.to_string(),
        }
    }

    fn failed(&self, what: &Path, error: io::Error) -> StartError {
        StartError::Io {
            name: self.name.clone(),
            what: what.display().to_string(),
            error,
        }
    }
}

/// Files and ports of a contender.
struct Places<'p> {
    /// Work folder.
    folder: &'p Path,
    /// File of the page that shows that the contender is ready.
    page: &'p Path,
    http: u16,
    https: u16,
}

/// Returns the values of all placeholders, conditions and lists.
fn values(setup: &Setup, found: &Found, places: &Places<'_>) -> Values {
    let Places { folder, page, .. } = *places;
    let mut values = Values::default();
    for (key, path) in &found.paths {
        values.word(key, path.display());
    }
    let root = match setup.role {
        Role::Published => page.parent().unwrap_or(folder),
        _ => &setup.site.root,
    };
    let certificate = &setup.site.certificate;
    let open_files = usize::try_from(raise_open_files()).unwrap_or(usize::MAX);
    let connections_max = (2 * setup.connections).max(CONNECTIONS_MAX);
    values
        .word("folder", folder.display())
        .word("pages", folder.join(PAGES).display())
        .word("root", root.display())
        .word("cgi_root", setup.site.cgi_root.display())
        .word("page", page.display())
        .word("host", setup.host)
        .word("http", places.http)
        .word("https", places.https)
        .word("certificate", certificate.certificate.display())
        .word("key", certificate.key.display())
        .word("combined", certificate.combined.display())
        .word("workers", setup.workers)
        .word("workers_double", 2 * setup.workers)
        .word("connections_max", connections_max)
        .word(
            "connections_hundreds",
            setup.connections.div_ceil(100).max(2) + 1,
        )
        .word(
            "connections_proxied",
            connections_max.min(open_files.saturating_sub(OTHER_FILES) / 2),
        )
        .word("open_files", open_files)
        .word("access_log", folder.join("access.log").display());
    values
        .flag("tls", setup.tls)
        .flag("keep_alive", setup.keep_alive)
        .flag("access_log", setup.access_log)
        .flag("root", rustix::process::geteuid().is_root())
        .flag("workers_many", setup.workers > 1)
        .flag("static", setup.role == Role::Static)
        .flag("cgi", setup.role == Role::Cgi)
        .flag("balancer", matches!(setup.role, Role::Balancer { .. }))
        .flag("published", setup.role == Role::Published);
    values
        .list("file", file_turns(setup.site, |_| true))
        .list("small_page", file_turns(setup.site, is_small_page))
        .list("member", member_turns(&setup.role));
    values
}

fn file_turns(site: &Site, wanted: impl Fn(&Page) -> bool) -> Vec<Vec<(&'static str, String)>> {
    let turn = |page: &Page| {
        vec![
            ("path", page.path.clone()),
            ("file", page.file.display().to_string()),
        ]
    };
    site.files
        .iter()
        .filter(|page| wanted(page))
        .map(turn)
        .collect()
}

fn member_turns(role: &Role) -> Vec<Vec<(&'static str, String)>> {
    let Role::Balancer { members } = role else {
        return Vec::new();
    };
    let turn = |(number, member): (usize, &SocketAddr)| {
        vec![
            ("member", member.to_string()),
            ("member_host", member.ip().to_string()),
            ("member_port", member.port().to_string()),
            ("number", number.to_string()),
        ]
    };
    members.iter().enumerate().map(turn).collect()
}

/// Returns true if a page fits into the buffer of a server that answers from its configuration.
fn is_small_page(page: &Page) -> bool {
    page.path.ends_with(".html") && page.bytes <= SMALL_PAGE_BYTES_MAX
}

/// Creates a folder with only the page of the source document.
fn published_page(entry: &Entry, site: &Site, folder: &Path) -> io::Result<PathBuf> {
    let body = match entry
        .published
        .as_ref()
        .and_then(|published| published.body.as_ref())
    {
        Some(body) => body.clone().into_bytes(),
        None => site.hello().content()?,
    };
    let root = folder.join("published");
    crate::site::create_open(&root)?;
    let page = root.join("index.html");
    fs::write(&page, body)?;
    Ok(page)
}

/// Returns the path of a program's copy in a folder, made with the first call.
fn copied(program: &Path, folder: &Path) -> io::Result<PathBuf> {
    let copy = folder.join(program.file_name().unwrap_or_default());
    if !copy.exists() {
        crate::site::create_open(folder)?;
        fs::copy(program, &copy)?;
    }
    Ok(copy)
}

/// Formats a command line with shell quoting.
fn command_line(launch: &Launch) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    let quoted = |word: &str| {
        if !word.is_empty() && word.chars().all(plain) {
            word.to_owned()
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    };
    let variables = launch
        .environment
        .iter()
        .map(|(variable, text)| format!("{variable}={}", quoted(text)));
    let program = quoted(&launch.program.display().to_string());
    let arguments = launch.arguments.iter().map(|word| quoted(word));
    variables
        .chain([program])
        .chain(arguments)
        .collect::<Vec<_>>()
        .join(" ")
}

/// Returns the last line of a log, after the line of the error if the last line is its advice.
fn last_line_of(log: &Path) -> Option<String> {
    let text = fs::read(log).ok()?;
    let text = String::from_utf8_lossy(&text);
    let mut lines = text
        .lines()
        .rev()
        .map(str::trim)
        .filter(|line| !line.is_empty());
    let last = lines.next()?;
    // The advice below an error of anthill or of a compiler says little without the error.
    let error = if last.starts_with("help: ") {
        lines.find(|line| line.starts_with("error: "))
    } else {
        None
    };
    let line = error.map_or(last.to_owned(), |error| format!("{error}; {last}"));
    Some(line.chars().take(LINE_MAX).collect())
}

/// Error of a contender with an unexpectedly ended process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Died {
    /// Name of the contender.
    pub name: String,
    /// Name of the process, for contenders with several processes.
    pub process: String,
    /// Exit status.
    pub status: ExitStatus,
    /// Last line of the log, possibly empty.
    pub line: String,
}

impl std::error::Error for Died {}

impl std::fmt::Display for Died {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Died {
            name,
            process,
            status,
            line,
        } = self;
        write!(out, "{name}: {process} ended ({status})")?;
        write_line(out, line)
    }
}

/// Error of a contender that could not be started.
#[derive(Debug)]
pub enum StartError {
    /// A program is not installed.
    Missing {
        /// Name of the contender.
        name: String,
        /// The missing program and its installation sources.
        why: String,
    },
    /// The contender lacks an ability.
    Unable {
        /// Name of the contender.
        name: String,
        /// The missing ability.
        lacks: Ability,
    },
    /// A template or command of the catalogue is invalid.
    Template {
        /// Name of the contender.
        name: String,
        /// Name of the template.
        template: String,
        /// Description of the error.
        why: String,
    },
    /// A port is in use, or no port is free.
    Port {
        /// Name of the contender.
        name: String,
        /// The port and the cause.
        error: ports::PortError,
    },
    /// The CPU time of the processes can't be limited.
    Share(ShareError),
    /// A process ended before the contender was ready.
    Died(Died),
    /// The contender was not ready within the time limit.
    NotReady {
        /// Name of the contender.
        name: String,
        /// Address of the probe.
        address: SocketAddr,
        /// Time limit in seconds.
        seconds: f64,
        /// Response or error of the last probe.
        seen: String,
        /// Last line of the log, possibly empty.
        line: String,
    },
    /// A file could not be written or a program could not be started.
    Io {
        /// Name of the contender.
        name: String,
        /// The file or program.
        what: String,
        /// The cause.
        error: io::Error,
    },
}

impl std::error::Error for StartError {}

impl From<ShareError> for StartError {
    fn from(error: ShareError) -> StartError {
        StartError::Share(error)
    }
}

impl std::fmt::Display for StartError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StartError::Missing { name, why } => write!(out, "{name}: {why}"),
            StartError::Unable { name, lacks } => write!(out, "{name} does not support: {lacks}"),
            StartError::Template {
                name,
                template,
                why,
            } => write!(out, "{name}: {template}: {why}"),
            StartError::Port { name, error } => write!(out, "{name}: {error}"),
            StartError::Share(error) => error.fmt(out),
            StartError::Died(died) => died.fmt(out),
            StartError::NotReady {
                name,
                address,
                seconds,
                seen,
                line,
            } => {
                write!(
                    out,
                    "{name} was not ready on {address} after {seconds} s: {seen}"
                )?;
                write_line(out, line)
            }
            StartError::Io { name, what, error } => write!(out, "{name}: {what}: {error}"),
        }
    }
}

fn write_line(out: &mut std::fmt::Formatter<'_>, line: &str) -> std::fmt::Result {
    if line.is_empty() {
        out.write_str("; its log is empty")
    } else {
        write!(out, "; its log ends with: {line}")
    }
}

/// Default time limit for readiness. An interpreter with a framework takes several seconds on the smallest
/// machines.
const READY_WITHIN: Duration = Duration::from_secs(30);
const READY_POLL: Duration = Duration::from_millis(10);
const STOP_GRACE: Duration = Duration::from_secs(3);

/// Folder of the page cache, inside the work folder.
const PAGES: &str = "pages";
/// Minimum of `connections_max`, the number of connection slots that some servers preallocate. A value below
/// the 1,500 connections of the source documents would not be a fair start.
const CONNECTIONS_MAX: usize = 8_192;
/// Open files of a server besides its connections. haproxy refuses to start without room for these files.
const OTHER_FILES: usize = 200;
/// Maximum size of a page that, with its header section, fits into the buffer of a server that answers from
/// its configuration.
const SMALL_PAGE_BYTES_MAX: u64 = 16 * 1024;
/// Maximum number of characters of a log line in a message, since some servers log whole documents.
const LINE_MAX: usize = 300;

#[cfg(test)]
mod tests;
