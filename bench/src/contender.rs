//! A contender that runs: configured from its templates, started, asked until it answers, ended.
//!
//! It is ready when a real request has been answered with status 200, not when a port is open: some
//! open theirs long before they can serve. What was written for it and how it was started is kept in
//! its facts, which go into the result.
//!
//! Templates and commands may use these words: `{folder}` (its work folder), `{pages}` (one in it that
//! every user may write to), `{root}`, `{cgi_root}`,
//! `{page}` (the file of the hello page), `{host}`, `{http}`, `{https}`, `{certificate}`, `{key}`,
//! `{combined}`, `{workers}`, `{workers_double}`, `{connections_max}`, `{connections_hundreds}`,
//! `{connections_proxied}` (for which the open files suffice, two each), `{open_files}`, `{access_log}`, and the key of each of its programs; these conditions: `tls`, `keep_alive`,
//! `access_log`, `root` (whether we are root), `workers_many`, `static`, `cgi`, `balancer`,
//! `published`; and these lists: `file` and `small_page` (`{path}`, `{file}`), `member` (`{member}`,
//! `{member_host}`, `{member_port}`, `{number}`).

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

/// What a contender is to do, and where.
#[derive(Debug, Clone)]
pub struct Setup<'a> {
    /// What it is to do.
    pub role: Role,
    /// What it serves, with the certificate.
    pub site: &'a Site,
    /// Its work folder; made if it isn't there.
    pub folder: &'a Path,
    /// A loopback address to listen on.
    pub host: IpAddr,
    /// Its port without TLS; 0 for a free one.
    pub http: u16,
    /// Its port with TLS; 0 for a free one.
    pub https: u16,
    /// Whether it serves over TLS too. Those that can do only one of both do TLS then.
    pub tls: bool,
    /// Processors that it is held to; all of ours if empty.
    pub cpus: Vec<usize>,
    /// Threads or processes that it serves with, where that can be chosen.
    pub workers: usize,
    /// Whether it leaves connections open, where that can be chosen.
    pub keep_alive: bool,
    /// Whether it writes an access log, where that can be chosen.
    pub access_log: bool,
    /// How many connections it has to expect at most.
    pub connections: usize,
    /// Processor time that all of it may use together: 0.1 = a tenth of one processor.
    pub share: Option<f64>,
    /// How long it may take until it answers.
    pub ready_within: Duration,
}

/// What a contender does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// Serves the site's files, or its hello page if it can do no more.
    Static,
    /// That, and runs the site's scripts.
    Cgi,
    /// Forwards to these.
    Balancer {
        /// Where they listen, without TLS.
        members: Vec<SocketAddr>,
    },
    /// Does what it did in the source document: its own body under `/`, the settings of then.
    Published,
}

/// A running contender. Dropping it kills all its processes.
#[derive(Debug)]
pub struct Contender {
    tree: Tree,
    facts: ContenderFacts,
    http: SocketAddr,
    https: SocketAddr,
    logs: Vec<PathBuf>,
}

/// The same, for those who hold one.
pub type Running = Contender;

impl<'a> Setup<'a> {
    /// Serving the site without TLS, with one worker, on free ports of 127.0.0.1.
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
            ready_within: READY_WITHIN,
        }
    }

    /// Whether that contender can do this; else what it can't.
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
    /// Finds, configures and starts it, and waits until it answers.
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
        let plan = Plan::make(entry, setup, &found)?;
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

    /// Its processes.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// What it is, how it was configured and started.
    pub fn facts(&self) -> &ContenderFacts {
        &self.facts
    }

    /// Where it listens; the TLS port is only served if the setup asked for TLS.
    pub fn address(&self, tls: bool) -> SocketAddr {
        if tls { self.https } else { self.http }
    }

    /// Whether all that was started still runs.
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

    /// The last line that it wrote to its log; empty if there is none.
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

    /// Asks it to end, and sees to it that it does.
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

/// All that is decided before anything is started.
struct Plan {
    name: String,
    http: SocketAddr,
    https: SocketAddr,
    launches: Vec<Launch>,
    configuration: BTreeMap<String, String>,
    ready: Ready,
}

/// What has to be answered, and how.
struct Ready {
    path: &'static str,
    /// Unknown for a balancer, whose members may say anything.
    body: Option<Vec<u8>>,
}

impl Ready {
    /// What is wrong with an answer.
    fn judge(&self, answer: &probe::Answer) -> Option<String> {
        let Ready { path, body } = self;
        if answer.status != 200 {
            return Some(format!("it answers {path} with status {}", answer.status));
        }
        let other = body.as_ref().is_some_and(|body| *body != answer.body);
        let bytes = answer.body.len();
        other.then(|| format!("it answers {path} with {bytes} bytes of something else"))
    }
}

impl Plan {
    fn make(entry: &Entry, setup: &Setup, found: &Found) -> Result<Plan, StartError> {
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
        let values = values(setup, found, &folder, &page, http.port(), https.port());
        let content = fs::read(&page).map_err(|error| io(&page, error))?;
        let (path, body) = match setup.role {
            Role::Published => ("/", Some(content)),
            Role::Balancer { .. } => (Site::HELLO, None),
            // What runs the scripts may be another process, ready later.
            Role::Cgi => (Site::SHELL_SCRIPT, Some(Site::SIMPLE.into())),
            Role::Static => (Site::HELLO, Some(content)),
        };
        let mut plan = Plan {
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
                plan.add(entry, start, &values, &folder, &setup.cpus)?;
            }
        }
        Ok(plan)
    }

    /// Writes the files of a process, and makes its command.
    fn add(
        &mut self,
        entry: &Entry,
        start: &Start,
        values: &Values,
        folder: &Path,
        cpus: &[usize],
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
        let program = PathBuf::from(&words[0]);
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
            cpus: cpus.to_vec(),
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

/// What fills the templates.
fn values(
    setup: &Setup,
    found: &Found,
    folder: &Path,
    page: &Path,
    http: u16,
    https: u16,
) -> Values {
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
        .word("http", http)
        .word("https", https)
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

/// What fits into the buffer of a server that answers from its configuration.
fn is_small_page(page: &Page) -> bool {
    page.path.ends_with(".html") && page.bytes <= SMALL_PAGE_BYTES_MAX
}

/// A folder with nothing but the page of the source document.
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

/// As one would type it.
fn command_line(launch: &Launch) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    let quoted = |word: &str| match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
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

fn last_line_of(log: &Path) -> Option<String> {
    let text = fs::read(log).ok()?;
    let text = String::from_utf8_lossy(&text);
    let line = text
        .lines()
        .rev()
        .map(str::trim)
        .find(|line| !line.is_empty())?;
    Some(line.chars().take(LINE_MAX).collect())
}

/// A contender whose process ended by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Died {
    /// The contender.
    pub name: String,
    /// The process, where it consists of several.
    pub process: String,
    /// How it ended.
    pub status: ExitStatus,
    /// The last line of its log; may be empty.
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

/// A contender that could not be started.
#[derive(Debug)]
pub enum StartError {
    /// It isn't installed.
    Missing {
        /// The contender.
        name: String,
        /// What is missing, and where it comes from.
        why: String,
    },
    /// It can't do what is asked.
    Unable {
        /// The contender.
        name: String,
        /// What it would have to be able to do.
        lacks: Ability,
    },
    /// A template or command of the catalogue is unsound.
    Template {
        /// The contender.
        name: String,
        /// The template.
        template: String,
        /// What is wrong.
        why: String,
    },
    /// A port is in use, or none is free.
    Port {
        /// The contender.
        name: String,
        /// Which, and why.
        error: ports::PortError,
    },
    /// It can't be held to a share of the processor.
    Share(ShareError),
    /// A process of it ended before it answered.
    Died(Died),
    /// It never answered as it should.
    NotReady {
        /// The contender.
        name: String,
        /// Where it was asked.
        address: SocketAddr,
        /// For how long.
        seconds: f64,
        /// What it did instead.
        seen: String,
        /// The last line of its log; may be empty.
        line: String,
    },
    /// A file could not be written, or a program not be started.
    Io {
        /// The contender.
        name: String,
        /// The file or program.
        what: String,
        /// Why.
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
            StartError::Unable { name, lacks } => write!(out, "{name} can't do this: {lacks}"),
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
    match line.is_empty() {
        true => out.write_str("; its log is empty"),
        false => write!(out, "; its log ends with: {line}"),
    }
}

/// An interpreter with a framework on the smallest of machines takes several seconds.
const READY_WITHIN: Duration = Duration::from_secs(30);
const READY_POLL: Duration = Duration::from_millis(10);
const STOP_GRACE: Duration = Duration::from_secs(3);

/// Where a page cache is kept, in the work folder.
const PAGES: &str = "pages";
/// Slots that servers allocate beforehand; fewer than the documents' 1,500 would be no fair start.
const CONNECTIONS_MAX: usize = 8_192;
/// Open files of a server that are no connections; haproxy refuses to start without room for them.
const OTHER_FILES: usize = 200;
/// What fits into the buffer of a server that answers from its configuration, beside a head.
const SMALL_PAGE_BYTES_MAX: u64 = 16 * 1024;
/// A line of a log in a message; some write whole documents.
const LINE_MAX: usize = 300;

#[cfg(test)]
mod tests;
