//! Measurement of real contenders: start on the server's processors, check of a response, load from the
//! client's processors, and a second check after failures.
//!
//! The measured window is the same on both sides: the driver reports its beginning and end, and at both
//! moments the CPU time of the server's whole process tree is read.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::catalogue::{Catalogue, Entry};
use crate::contender::{Contender, Role, Setup, StartError};
use crate::cores::Cores;
use crate::driver::{Driver, DriverError, Measured, Observer};
use crate::load::{Expect, Length, Workload};
use crate::machine::temperature_celsius;
use crate::members;
use crate::page_measurer::PageMeasurer;
use crate::probe;
use crate::process::{Counting, Measuring, Tree};
use crate::result::{ContenderFacts, Failures, Round, Run, Usage};
use crate::rounds::{Measure, Order, RoundError, Turn};
use crate::site::Site;
use crate::soundness::{self, Load};
use crate::suite::{Case, Group, Setting};

/// State and settings of all turns of a run.
pub(crate) struct Measurer<'s> {
    /// Known contenders.
    pub catalogue: &'s Catalogue,
    /// The served site.
    pub site: Site,
    /// The suite's groups, with the same indices as the batches.
    pub groups: Vec<Group>,
    /// Processors of server and client.
    pub cores: Cores,
    /// True if processes are pinned to their processors.
    pub pinned: bool,
    /// Load generator, unless a case names its own.
    pub driver: Driver,
    /// Port of the servers, with TLS on the next port; a free port if `None`.
    pub port: Option<u16>,
    /// Catalogue name of the server on the nodes of a cluster.
    pub node: String,
    /// Folder for configurations, logs and the drivers' files.
    pub folder: PathBuf,
    /// True if the contenders' files in the folder are kept.
    pub keep: bool,
    /// Flag set when the user ends the run.
    pub stop: &'s AtomicBool,
    /// The running contender.
    pub running: Option<RunningContender>,
    /// Facts about each contender's start, by name.
    pub facts: BTreeMap<String, ContenderFacts>,
    /// The browser of the page suite.
    pub pages: PageMeasurer,
    /// Reason why CPU time is not counted by control groups, if so.
    pub coarse: Option<String>,
}

/// A running contender and the nodes behind it.
pub(crate) struct RunningContender {
    contender: Contender,
    nodes: Vec<Contender>,
    folder: PathBuf,
}

impl RunningContender {
    /// Returns the addresses of the nodes or members.
    fn members(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|node| node.address(false)).collect()
    }
}

impl Measure for Measurer<'_> {
    fn start(&mut self, turn: Turn<'_>) -> Result<(), RoundError> {
        let group = self.groups[turn.batch].clone();
        let entry = self.entry(turn.contender)?.clone();
        let folder = self
            .folder
            .join(format!("{}-{}-{}", turn.contender, turn.batch, turn.round));
        let nodes = self.start_nodes(&group, &folder)?;
        let mut setup = self.setup(&group, &folder);
        setup.role = role(group.setting, &nodes);
        if let Setting::Node { share } = group.setting {
            setup.share = Some(share);
        }
        let contender = Contender::start(&entry, &setup);
        let contender = contender.map_err(|error| cannot_start(&entry, error))?;
        self.record_facts(&contender);
        self.running = Some(RunningContender {
            contender,
            nodes,
            folder,
        });
        self.leave_if_interrupted(turn)
    }

    fn measure(&mut self, turn: Turn<'_>, scenario: usize) -> Result<Round, RoundError> {
        let group = &self.groups[turn.batch];
        let case = &group.cases[scenario];
        let entry = self.entry(turn.contender)?;
        let Some(running) = &self.running else {
            return Err(RoundError::failed("the server is not running"));
        };
        if group.setting == Setting::Browser {
            return self.open_page(scenario);
        }
        let workload = self.workload(case, group, entry, running)?;
        if case.tried {
            self.try_once(&workload)?;
        }
        self.check_members(&workload, group)?;
        let driver = case.driver.unwrap_or(self.driver);
        let direct = if case.direct {
            let workload = members::direct(&workload, running.members());
            Some(self.load(driver, &workload, running, &members::NoObserver)?)
        } else {
            None
        };
        let observer = ServerObserver::new(running, self.server_cpus());
        let measured = self.load(driver, &workload, running, &observer)?;
        let mut round = observer.add_to(measured.round);
        if let Some(direct) = direct {
            members::compare_direct(&mut round, &direct.round);
        }
        let measured = Measured { round, ..measured };
        self.still_answers(&measured.round, &workload, group, entry)?;
        let left_out = match group.setting {
            Setting::Proxy { .. } => members::left_out(&measured.round),
            _ => None,
        };
        let load = match group.order {
            Order::Rising => Load::Rising,
            _ => Load::of(workload.connections),
        };
        let round = judge(measured, &workload, load)?;
        match left_out {
            Some(why) => Err(RoundError::Unsound {
                why,
                round: Box::new(round),
            }),
            None => Ok(round),
        }
    }

    fn stop(&mut self, _turn: Turn<'_>) {
        let Some(running) = self.running.take() else {
            return;
        };
        running.contender.stop();
        for node in running.nodes {
            node.stop();
        }
        if !self.keep {
            // Remaining files are removed with the work folder.
            let _ = std::fs::remove_dir_all(&running.folder);
        }
    }

    fn describe(&self, run: &mut Run) {
        for facts in &mut run.contenders {
            if let Some(observations) = self.facts.get(&facts.name) {
                *facts = observations.clone();
            }
        }
    }
}

impl Measurer<'_> {
    fn entry(&self, name: &str) -> Result<&Entry, RoundError> {
        let entry = self.catalogue.contender(name);
        entry.map_err(|unknown| RoundError::failed(unknown.to_string()))
    }

    /// Carries out a workload, and checks that all servers are still running.
    fn load(
        &self,
        driver: Driver,
        workload: &Workload,
        running: &RunningContender,
        observer: &dyn Observer,
    ) -> Result<Measured, RoundError> {
        let measured = driver.measure(workload, &running.folder, observer, self.stop);
        if self.stop.load(Ordering::Relaxed) {
            return Err(RoundError::Interrupted);
        }
        for contender in running.nodes.iter().chain([&running.contender]) {
            contender.alive().map_err(|died| {
                RoundError::failed(format!("the server ended during the measurement: {died}"))
            })?;
        }
        measured.map_err(|error| match error {
            DriverError::Interrupted => RoundError::Interrupted,
            error => RoundError::failed(error.to_string()),
        })
    }

    /// Checks that a balancer asks its members in turn. Nodes of a limited share are not checked.
    fn check_members(&self, workload: &Workload, group: &Group) -> Result<(), RoundError> {
        let Setting::Proxy { members, .. } = group.setting else {
            return Ok(());
        };
        let authority = self.site.certificate.authority_pem.as_str();
        let authority = workload.tls.is_some().then_some(authority);
        members::check_turns(workload.addresses[0], authority, members).map_err(RoundError::failed)
    }

    /// Returns a setup on the server's processors and ports for the connections of the group.
    fn setup<'a>(&'a self, group: &Group, folder: &'a std::path::Path) -> Setup<'a> {
        let (tls, keep_alive) = match group.setting {
            Setting::Single {
                tls, keep_alive, ..
            } => (tls, keep_alive),
            Setting::Browser => (true, true),
            Setting::Proxy { tls, .. } => (tls, true),
            Setting::Node { .. } | Setting::Cluster { .. } => (false, true),
        };
        // A balancer has a connection to a member for each stream of its clients.
        let streams = |workload: &Workload| match group.setting {
            Setting::Proxy { .. } => members::streams(workload),
            _ => 1,
        };
        let workloads = group.cases.iter().map(|case| &case.workload);
        let connections = workloads
            .map(|workload| workload.connections * streams(workload))
            .max();
        let port = self.port.unwrap_or(0);
        Setup {
            tls,
            keep_alive,
            http: port,
            https: if port == 0 { 0 } else { port.saturating_add(1) },
            cpus: self.server_cpus(),
            workers: self.cores.server.len().max(1),
            connections: connections.unwrap_or(1),
            ..Setup::new(&self.site, folder)
        }
    }

    fn server_cpus(&self) -> Vec<usize> {
        if self.pinned {
            self.cores.server.clone()
        } else {
            Vec::new()
        }
    }

    fn start_nodes(
        &self,
        group: &Group,
        folder: &std::path::Path,
    ) -> Result<Vec<Contender>, RoundError> {
        let count = match group.setting {
            Setting::Cluster { nodes, .. } => nodes,
            Setting::Proxy { members, .. } => members,
            _ => return Ok(Vec::new()),
        };
        (0..count)
            .map(|number| self.start_node(group, folder, number))
            .collect()
    }

    /// Starts a node of a cluster, or a member of a balancer with a site of its own.
    fn start_node(
        &self,
        group: &Group,
        folder: &std::path::Path,
        number: usize,
    ) -> Result<Contender, RoundError> {
        let entry = self.entry(&self.node)?;
        let folder = folder.join(format!("node-{}", number + 1));
        let copies = self.folder.join("node-programs");
        let mut site = self.site.clone();
        let mut setup = self.setup(group, &folder);
        match group.setting {
            Setting::Cluster { share, .. } => setup.share = Some(share),
            _ => {
                site = site.for_member(&folder, number).map_err(|error| {
                    RoundError::failed(format!("{}: {error}", folder.display()))
                })?;
                if self.pinned {
                    setup.cpus = self.cores.client.clone();
                }
            }
        }
        let setup = Setup {
            site: &site,
            host: node_address(number),
            tls: false,
            workers: 1,
            copies: Some(&copies),
            ..setup
        };
        Contender::start(entry, &setup).map_err(|error| cannot_start(entry, error))
    }

    /// Records a contender's facts: each distinct configuration once.
    fn record_facts(&mut self, contender: &Contender) {
        let observations = contender.facts();
        if let Counting::Processes { why } = contender.tree().counting() {
            self.coarse = Some(why);
        }
        let known = self
            .facts
            .entry(observations.name.clone())
            .or_insert_with(|| observations.clone());
        for (file, text) in &observations.configuration {
            let mut same = known.configuration.values();
            if !same.any(|known| without_numbers(known) == without_numbers(text)) {
                let name = format!("{file} ({})", known.configuration.len() + 1);
                known.configuration.insert(name, text.clone());
            }
        }
    }

    /// Returns the case's workload for the running server, after a check of one response.
    fn workload(
        &self,
        case: &Case,
        group: &Group,
        entry: &Entry,
        running: &RunningContender,
    ) -> Result<Workload, RoundError> {
        let mut workload = case.workload.clone();
        let address = running.contender.address(workload.tls.is_some());
        workload.addresses = vec![address];
        if self.pinned {
            workload.cpus = self.cores.client.clone();
        }
        if let (
            Setting::Single {
                published: true, ..
            },
            Some(published),
        ) = (group.setting, &entry.published)
        {
            workload.connections = published.clients;
        }
        let length = self.check_response(&workload, address, group, entry)?;
        let is_proxied = matches!(group.setting, Setting::Proxy { .. });
        let body = is_proxied.then(|| self.served(&workload.paths[0], group, entry));
        workload.expect = Expect {
            length: Some(length),
            body: body.flatten().map(Arc::from),
            ..Expect::default()
        };
        Ok(workload)
    }

    /// Sends one request, compares the response with the served file, and returns the length of the
    /// content.
    fn check_response(
        &self,
        workload: &Workload,
        address: SocketAddr,
        group: &Group,
        entry: &Entry,
    ) -> Result<u64, RoundError> {
        let path = &workload.paths[0];
        let authority = self.site.certificate.authority_pem.as_str();
        let answer = probe::get(address, path, workload.tls.is_some().then_some(authority));
        let answer = answer
            .map_err(|error| RoundError::failed(format!("no response to {path}: {error}")))?;
        if answer.status != 200 {
            return Err(RoundError::failed(format!(
                "wrong response to {path}: status {}",
                answer.status
            )));
        }
        match self.served(path, group, entry) {
            Some(right) if right != answer.body => Err(RoundError::failed(format!(
                "wrong response to {path}: {} bytes that differ from the {} bytes of the page",
                answer.body.len(),
                right.len()
            ))),
            _ => Ok(answer.body.len() as u64),
        }
    }

    /// Checks that the server still responds after timeouts: an overloaded server does, a hanging server
    /// does not.
    fn still_answers(
        &self,
        round: &Round,
        workload: &Workload,
        group: &Group,
        entry: &Entry,
    ) -> Result<(), RoundError> {
        let given_up = round.failures.get(Failures::TIMEOUT).copied().unwrap_or(0);
        if given_up == 0 && round.requests > 0 {
            return Ok(());
        }
        let again = self.check_response(workload, workload.addresses[0], group, entry);
        let Err(RoundError::Failed { why, .. }) = again else {
            return Ok(());
        };
        Err(RoundError::Failed {
            why: format!(
                "the server hangs: {given_up} requests had no response within {} s; a further request: {why}",
                workload.timeout_seconds
            ),
            round: Some(Box::new(round.clone())),
        })
    }

    /// Returns the expected content of a path, if known in advance.
    fn served(&self, path: &str, group: &Group, entry: &Entry) -> Option<Vec<u8>> {
        let published = matches!(
            group.setting,
            Setting::Single {
                published: true,
                ..
            }
        );
        if published {
            let body = entry.published.as_ref()?.body.clone();
            return body.map_or_else(
                || self.site.hello().content().ok(),
                |b| Some(b.into_bytes()),
            );
        }
        let file = match path {
            Site::COMPLEX_SCRIPT | Site::KEPT_SCRIPT => Site::CACHED_PAGE,
            _ if path.starts_with("/cgi-bin/") => return None,
            path => path,
        };
        std::fs::read(self.site.root.join(file.trim_start_matches('/'))).ok()
    }

    /// Checks with one request whether the contender supports the workload.
    fn try_once(&self, workload: &Workload) -> Result<(), RoundError> {
        let once = Workload {
            connections: 1,
            threads: 1,
            length: Length::Requests(1),
            warm_up_seconds: 0.0,
            ..workload.clone()
        };
        let outcome = crate::load::run(&once, self.stop);
        match outcome {
            Ok(outcome) if outcome.requests == 1 => Ok(()),
            Ok(outcome) => {
                let why = outcome.first_failures.into_values().next();
                Err(RoundError::Unable(
                    why.unwrap_or_else(|| "no response".to_owned()),
                ))
            }
            Err(error) => Err(RoundError::Unable(error.to_string())),
        }
    }

    /// Loads the page in the browser: cold, and immediately again for the cached scenario.
    fn open_page(&mut self, scenario: usize) -> Result<Round, RoundError> {
        let Some(running) = &self.running else {
            return Err(RoundError::failed("the server is not running"));
        };
        if scenario > 0 {
            let cached = self.pages.cached();
            let cached = cached.ok_or_else(|| RoundError::failed("the cold page load failed"))?;
            return cached.map_err(|error| RoundError::failed(error.to_string()));
        }
        let address = running.contender.address(true);
        let round = self.pages.cold(&self.site, address);
        running.contender.alive().map_err(|died| {
            RoundError::failed(format!("the server ended during the measurement: {died}"))
        })?;
        if self.stop.load(Ordering::Relaxed) {
            return Err(RoundError::Interrupted);
        }
        round.map_err(|error| RoundError::failed(error.to_string()))
    }

    /// Stops a contender that started just as the user ended the run.
    fn leave_if_interrupted(&mut self, turn: Turn<'_>) -> Result<(), RoundError> {
        if self.stop.load(Ordering::Relaxed) {
            self.stop(turn);
            return Err(RoundError::Interrupted);
        }
        Ok(())
    }
}

/// Observes the servers during a measurement.
struct ServerObserver<'p> {
    running: &'p RunningContender,
    cpus: usize,
    measurements: Mutex<Option<Measurements>>,
    observations: Mutex<Option<Observations>>,
}

struct Measurements {
    server: Measuring,
    nodes: Vec<Measuring>,
}

struct Observations {
    server: Usage,
    nodes: Vec<Usage>,
    temperature_celsius: Option<f64>,
    load_average: Option<f64>,
}

impl<'p> ServerObserver<'p> {
    fn new(running: &'p RunningContender, cpus: Vec<usize>) -> ServerObserver<'p> {
        ServerObserver {
            running,
            cpus: cpus.len(),
            measurements: Mutex::default(),
            observations: Mutex::default(),
        }
    }

    fn measure(&self, tree: &Tree) -> Measuring {
        Measuring::begin(tree, MEMORY_EVERY, self.cpus)
    }

    /// Adds the observations to a round.
    fn add_to(self, mut round: Round) -> Round {
        let observations = self
            .observations
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let Some(observations) = observations else {
            return round;
        };
        let (balancer, seconds) = (
            observations.server.clone(),
            round.seconds.max(f64::MIN_POSITIVE),
        );
        round.server = observations.server;
        let mut note = |name: &str, value: f64| round.extra.insert(name.to_owned(), value);
        if let Some(celsius) = observations.temperature_celsius {
            note("temperature_celsius", celsius);
        }
        if !observations.nodes.is_empty() {
            let cpu = observations.nodes.iter().map(Usage::cpu_seconds).sum();
            note("nodes_cpu_seconds", cpu);
            let memory: u64 = observations
                .nodes
                .iter()
                .map(|node| node.peak_pss_bytes)
                .sum();
            note("nodes_memory_bytes", memory as f64);
            note("balancer_memory_bytes", balancer.peak_pss_bytes as f64);
            note(
                "balancer_cpu_percent",
                balancer.cpu_seconds() / seconds * 100.0,
            );
            if let Some(share) = members::smallest_share(&observations.nodes) {
                note(members::SMALLEST_SHARE, share);
            }
            if let Some(load) = observations.load_average {
                note("load_average", load);
            }
        }
        round
    }
}

impl Observer for ServerObserver<'_> {
    fn begun(&self) {
        let nodes = self.running.nodes.iter();
        let measurements = Measurements {
            nodes: nodes.map(|node| self.measure(node.tree())).collect(),
            server: self.measure(self.running.contender.tree()),
        };
        *self
            .measurements
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(measurements);
    }

    fn ended(&self) {
        let measurements = self
            .measurements
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(measurements) = measurements else {
            return;
        };
        let observations = Observations {
            server: measurements.server.finish(),
            nodes: measurements
                .nodes
                .into_iter()
                .map(Measuring::finish)
                .collect(),
            temperature_celsius: temperature_celsius(),
            load_average: load_average(),
        };
        *self
            .observations
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(observations);
    }
}

/// Returns the round of a working server, or the failure.
fn judge(measured: Measured, workload: &Workload, load: Load) -> Result<Round, RoundError> {
    let Measured { round, details } = measured;
    let failed = round.failed();
    let detail = |kind: &str| {
        details
            .get(kind)
            .map_or(String::new(), |d| format!(" ({d})"))
    };
    if round.requests == 0 {
        let timeouts = round.failures.get(Failures::TIMEOUT).copied();
        let why = match failed {
            0 => format!(
                "the server is too slow: no response in {:.1} s",
                round.seconds
            ),
            _ if timeouts == Some(failed) => format!(
                "the server is too slow: no response within {} s, {failed} times",
                workload.timeout_seconds
            ),
            _ => format!("no correct response: {}", words(&round, &detail)),
        };
        return Err(RoundError::Failed {
            why,
            round: (failed > 0).then(|| Box::new(round)),
        });
    }
    if soundness::failed_in_part(&round, load) {
        let asked = round.requests + failed;
        return Err(RoundError::Unsound {
            why: format!(
                "the server failed in part: {failed} of {asked} requests ({:.1} %): {}",
                failed as f64 / asked as f64 * 100.0,
                words(&round, &detail)
            ),
            round: Box::new(round),
        });
    }
    Ok(round)
}

/// Lists failures: `12 status (503), 3 timeout`.
fn words(round: &Round, detail: &dyn Fn(&str) -> String) -> String {
    let failures = round.failures.iter();
    let words: Vec<String> = failures
        .map(|(kind, count)| format!("{count} {kind}{}", detail(kind)))
        .collect();
    words.join(", ")
}

fn role(setting: Setting, nodes: &[Contender]) -> Role {
    match setting {
        Setting::Cluster { .. } | Setting::Proxy { .. } => Role::Balancer {
            members: nodes.iter().map(|node| node.address(false)).collect(),
        },
        Setting::Single {
            published: true, ..
        } => Role::Published,
        Setting::Single { cgi: true, .. } => Role::Cgi,
        Setting::Single { .. } | Setting::Node { .. } | Setting::Browser => Role::Static,
    }
}

fn cannot_start(entry: &Entry, error: StartError) -> RoundError {
    let text = error.to_string();
    // The caller of the message adds the name itself.
    let text = text
        .strip_prefix(&format!("{}: ", entry.name))
        .unwrap_or(&text);
    RoundError::failed(format!("the server does not start: {text}"))
}

/// Returns the loopback address of a node: 127.0.1.1, 127.0.1.2, …
fn node_address(number: usize) -> IpAddr {
    let last = u8::try_from(number + 1).unwrap_or(u8::MAX);
    IpAddr::V4(Ipv4Addr::new(127, 0, 1, last))
}

/// Returns a configuration without digits: ports and folders differ between starts of the same
/// configuration.
fn without_numbers(text: &str) -> String {
    text.chars().filter(|c| !c.is_ascii_digit()).collect()
}

/// Returns the load average of the last minute.
fn load_average() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// Interval between samples of the server's memory. 200 ms is short enough to find a peak; each sample
/// locks the server's memory map for a moment.
const MEMORY_EVERY: Duration = Duration::from_millis(200);
