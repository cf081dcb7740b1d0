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
use crate::driver::{Driver, DriverError, Measured, Watch};
use crate::load::{Expect, Length, Plan};
use crate::machine::temperature_celsius;
use crate::members;
use crate::page_stage::PageStage;
use crate::probe;
use crate::process::{Counting, Measuring, Tree};
use crate::result::{ContenderFacts, Failures, Round, Run, Usage};
use crate::rounds::{Measure, Order, Trouble, Turn};
use crate::site::Site;
use crate::soundness::{self, Load};
use crate::suite::{Act, Case, Setting};

/// State and settings of all turns of a run.
pub struct Stage<'s> {
    /// Known contenders.
    pub catalogue: &'s Catalogue,
    /// The served site.
    pub site: Site,
    /// The suite's acts, with the same indices as the groups.
    pub acts: Vec<Act>,
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
    pub playing: Option<Playing>,
    /// Facts about each contender's start, by name.
    pub facts: BTreeMap<String, ContenderFacts>,
    /// The browser of the page suite.
    pub pages: PageStage,
    /// Reason why CPU time is not counted by control groups, if so.
    pub coarse: Option<String>,
}

/// A running contender and the nodes behind it.
pub struct Playing {
    contender: Contender,
    nodes: Vec<Contender>,
    folder: PathBuf,
}

impl Playing {
    /// Returns the addresses of the nodes or members.
    fn members(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|node| node.address(false)).collect()
    }
}

impl Measure for Stage<'_> {
    fn start(&mut self, turn: Turn<'_>) -> Result<(), Trouble> {
        let act = self.acts[turn.group].clone();
        let entry = self.entry(turn.contender)?.clone();
        let folder = self
            .folder
            .join(format!("{}-{}-{}", turn.contender, turn.group, turn.round));
        let nodes = self.start_nodes(&act, &folder)?;
        let mut setup = self.setup(&act, &folder);
        setup.role = role(act.setting, &nodes);
        if let Setting::Node { share } = act.setting {
            setup.share = Some(share);
        }
        let contender = Contender::start(&entry, &setup);
        let contender = contender.map_err(|error| cannot_start(&entry, error))?;
        self.note(&contender);
        self.playing = Some(Playing {
            contender,
            nodes,
            folder,
        });
        self.leave_if_interrupted(turn)
    }

    fn measure(&mut self, turn: Turn<'_>, scenario: usize) -> Result<Round, Trouble> {
        let act = &self.acts[turn.group];
        let case = &act.cases[scenario];
        let entry = self.entry(turn.contender)?;
        let Some(playing) = &self.playing else {
            return Err(Trouble::failed("the server is not running"));
        };
        if act.setting == Setting::Browser {
            return self.open_page(scenario);
        }
        let plan = self.plan(case, act, entry, playing)?;
        if case.tried {
            self.try_once(&plan)?;
        }
        self.check_members(&plan, act)?;
        let driver = case.driver.unwrap_or(self.driver);
        let direct = if case.direct {
            let plan = members::direct(&plan, playing.members());
            Some(self.load(driver, &plan, playing, &members::Unwatched)?)
        } else {
            None
        };
        let watch = Audience::new(playing, self.server_cpus());
        let measured = self.load(driver, &plan, playing, &watch)?;
        let mut round = watch.applaud(measured.round);
        if let Some(direct) = direct {
            members::compare_direct(&mut round, &direct.round);
        }
        let measured = Measured { round, ..measured };
        self.still_answers(&measured.round, &plan, act, entry)?;
        let left_out = match act.setting {
            Setting::Proxy { .. } => members::left_out(&measured.round),
            _ => None,
        };
        let load = match act.order {
            Order::Rising => Load::Rising,
            _ => Load::of(plan.connections),
        };
        let round = judge(measured, &plan, load)?;
        match left_out {
            Some(why) => Err(Trouble::Unsound {
                why,
                round: Box::new(round),
            }),
            None => Ok(round),
        }
    }

    fn stop(&mut self, _turn: Turn<'_>) {
        let Some(playing) = self.playing.take() else {
            return;
        };
        playing.contender.stop();
        for node in playing.nodes {
            node.stop();
        }
        if !self.keep {
            // Remaining files are removed with the work folder.
            let _ = std::fs::remove_dir_all(&playing.folder);
        }
    }

    fn describe(&self, run: &mut Run) {
        for facts in &mut run.contenders {
            if let Some(seen) = self.facts.get(&facts.name) {
                *facts = seen.clone();
            }
        }
    }
}

impl Stage<'_> {
    fn entry(&self, name: &str) -> Result<&Entry, Trouble> {
        let entry = self.catalogue.contender(name);
        entry.map_err(|unknown| Trouble::failed(unknown.to_string()))
    }

    /// Carries out a plan, and checks that all servers are still running.
    fn load(
        &self,
        driver: Driver,
        plan: &Plan,
        playing: &Playing,
        watch: &dyn Watch,
    ) -> Result<Measured, Trouble> {
        let measured = driver.measure(plan, &playing.folder, watch, self.stop);
        if self.stop.load(Ordering::Relaxed) {
            return Err(Trouble::Interrupted);
        }
        for contender in playing.nodes.iter().chain([&playing.contender]) {
            contender.alive().map_err(|died| {
                Trouble::failed(format!("the server ended during the measurement: {died}"))
            })?;
        }
        measured.map_err(|error| match error {
            DriverError::Interrupted => Trouble::Interrupted,
            error => Trouble::failed(error.to_string()),
        })
    }

    /// Checks that a balancer asks its members in turn. Nodes of a limited share are not checked.
    fn check_members(&self, plan: &Plan, act: &Act) -> Result<(), Trouble> {
        let Setting::Proxy { members, .. } = act.setting else {
            return Ok(());
        };
        let authority = self.site.certificate.authority_pem.as_str();
        let authority = plan.tls.is_some().then_some(authority);
        members::check_turns(plan.addresses[0], authority, members).map_err(Trouble::failed)
    }

    /// Returns a setup on the server's processors and ports for the connections of the act.
    fn setup<'a>(&'a self, act: &Act, folder: &'a std::path::Path) -> Setup<'a> {
        let (tls, keep_alive) = match act.setting {
            Setting::Single {
                tls, keep_alive, ..
            } => (tls, keep_alive),
            Setting::Browser => (true, true),
            Setting::Proxy { tls, .. } => (tls, true),
            Setting::Node { .. } | Setting::Cluster { .. } => (false, true),
        };
        // A balancer has a connection to a member for each stream of its clients.
        let streams = |plan: &Plan| match act.setting {
            Setting::Proxy { .. } => members::streams(plan),
            _ => 1,
        };
        let plans = act.cases.iter().map(|case| &case.plan);
        let connections = plans.map(|plan| plan.connections * streams(plan)).max();
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

    fn start_nodes(&self, act: &Act, folder: &std::path::Path) -> Result<Vec<Contender>, Trouble> {
        let count = match act.setting {
            Setting::Cluster { nodes, .. } => nodes,
            Setting::Proxy { members, .. } => members,
            _ => return Ok(Vec::new()),
        };
        (0..count)
            .map(|number| self.start_node(act, folder, number))
            .collect()
    }

    /// Starts a node of a cluster, or a member of a balancer with a site of its own.
    fn start_node(
        &self,
        act: &Act,
        folder: &std::path::Path,
        number: usize,
    ) -> Result<Contender, Trouble> {
        let entry = self.entry(&self.node)?;
        let folder = folder.join(format!("node-{}", number + 1));
        let copies = self.folder.join("node-programs");
        let mut site = self.site.clone();
        let mut setup = self.setup(act, &folder);
        match act.setting {
            Setting::Cluster { share, .. } => setup.share = Some(share),
            _ => {
                site = site
                    .for_member(&folder, number)
                    .map_err(|error| Trouble::failed(format!("{}: {error}", folder.display())))?;
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
    fn note(&mut self, contender: &Contender) {
        let seen = contender.facts();
        if let Counting::Processes { why } = contender.tree().counting() {
            self.coarse = Some(why);
        }
        let known = self
            .facts
            .entry(seen.name.clone())
            .or_insert_with(|| seen.clone());
        for (file, text) in &seen.configuration {
            let mut same = known.configuration.values();
            if !same.any(|known| without_numbers(known) == without_numbers(text)) {
                let name = format!("{file} ({})", known.configuration.len() + 1);
                known.configuration.insert(name, text.clone());
            }
        }
    }

    /// Returns the case's plan for the running server, after a check of one response.
    fn plan(
        &self,
        case: &Case,
        act: &Act,
        entry: &Entry,
        playing: &Playing,
    ) -> Result<Plan, Trouble> {
        let mut plan = case.plan.clone();
        let address = playing.contender.address(plan.tls.is_some());
        plan.addresses = vec![address];
        if self.pinned {
            plan.cpus = self.cores.client.clone();
        }
        if let (
            Setting::Single {
                published: true, ..
            },
            Some(published),
        ) = (act.setting, &entry.published)
        {
            plan.connections = published.clients;
        }
        let length = self.look(&plan, address, act, entry)?;
        let is_proxied = matches!(act.setting, Setting::Proxy { .. });
        let body = is_proxied.then(|| self.served(&plan.paths[0], act, entry));
        plan.expect = Expect {
            length: Some(length),
            body: body.flatten().map(Arc::from),
            ..Expect::default()
        };
        Ok(plan)
    }

    /// Sends one request, compares the response with the served file, and returns the length of the
    /// content.
    fn look(
        &self,
        plan: &Plan,
        address: SocketAddr,
        act: &Act,
        entry: &Entry,
    ) -> Result<u64, Trouble> {
        let path = &plan.paths[0];
        let authority = self.site.certificate.authority_pem.as_str();
        let answer = probe::get(address, path, plan.tls.is_some().then_some(authority));
        let answer =
            answer.map_err(|error| Trouble::failed(format!("no response to {path}: {error}")))?;
        if answer.status != 200 {
            return Err(Trouble::failed(format!(
                "wrong response to {path}: status {}",
                answer.status
            )));
        }
        match self.served(path, act, entry) {
            Some(right) if right != answer.body => Err(Trouble::failed(format!(
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
        plan: &Plan,
        act: &Act,
        entry: &Entry,
    ) -> Result<(), Trouble> {
        let given_up = round.failures.get(Failures::TIMEOUT).copied().unwrap_or(0);
        if given_up == 0 && round.requests > 0 {
            return Ok(());
        }
        let again = self.look(plan, plan.addresses[0], act, entry);
        let Err(Trouble::Failed { why, .. }) = again else {
            return Ok(());
        };
        Err(Trouble::Failed {
            why: format!(
                "the server hangs: {given_up} requests had no response within {} s; a further request: {why}",
                plan.timeout_seconds
            ),
            round: Some(Box::new(round.clone())),
        })
    }

    /// Returns the expected content of a path, if known in advance.
    fn served(&self, path: &str, act: &Act, entry: &Entry) -> Option<Vec<u8>> {
        let published = matches!(
            act.setting,
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

    /// Checks with one request whether the contender supports the plan.
    fn try_once(&self, plan: &Plan) -> Result<(), Trouble> {
        let once = Plan {
            connections: 1,
            threads: 1,
            length: Length::Requests(1),
            warm_up_seconds: 0.0,
            ..plan.clone()
        };
        let outcome = crate::load::run(&once, self.stop);
        match outcome {
            Ok(outcome) if outcome.requests == 1 => Ok(()),
            Ok(outcome) => {
                let why = outcome.first_failures.into_values().next();
                Err(Trouble::Unable(
                    why.unwrap_or_else(|| "no response".to_owned()),
                ))
            }
            Err(error) => Err(Trouble::Unable(error.to_string())),
        }
    }

    /// Loads the page in the browser: cold, and immediately again for the cached scenario.
    fn open_page(&mut self, scenario: usize) -> Result<Round, Trouble> {
        let Some(playing) = &self.playing else {
            return Err(Trouble::failed("the server is not running"));
        };
        if scenario > 0 {
            let cached = self.pages.cached();
            let cached = cached.ok_or_else(|| Trouble::failed("the cold page load failed"))?;
            return cached.map_err(|error| Trouble::failed(error.to_string()));
        }
        let address = playing.contender.address(true);
        let round = self.pages.cold(&self.site, address);
        playing.contender.alive().map_err(|died| {
            Trouble::failed(format!("the server ended during the measurement: {died}"))
        })?;
        if self.stop.load(Ordering::Relaxed) {
            return Err(Trouble::Interrupted);
        }
        round.map_err(|error| Trouble::failed(error.to_string()))
    }

    /// Stops a contender that started just as the user ended the run.
    fn leave_if_interrupted(&mut self, turn: Turn<'_>) -> Result<(), Trouble> {
        if self.stop.load(Ordering::Relaxed) {
            self.stop(turn);
            return Err(Trouble::Interrupted);
        }
        Ok(())
    }
}

/// Observes the servers during a measurement.
struct Audience<'p> {
    playing: &'p Playing,
    cpus: usize,
    watching: Mutex<Option<Watching>>,
    seen: Mutex<Option<Seen>>,
}

struct Watching {
    server: Measuring,
    nodes: Vec<Measuring>,
}

struct Seen {
    server: Usage,
    nodes: Vec<Usage>,
    temperature_celsius: Option<f64>,
    load_average: Option<f64>,
}

impl<'p> Audience<'p> {
    fn new(playing: &'p Playing, cpus: Vec<usize>) -> Audience<'p> {
        Audience {
            playing,
            cpus: cpus.len(),
            watching: Mutex::default(),
            seen: Mutex::default(),
        }
    }

    fn measure(&self, tree: &Tree) -> Measuring {
        tree.measure(MEMORY_EVERY, self.cpus)
    }

    /// Adds the observations to a round.
    fn applaud(self, mut round: Round) -> Round {
        let seen = self
            .seen
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let Some(seen) = seen else {
            return round;
        };
        let (balancer, seconds) = (seen.server.clone(), round.seconds.max(f64::MIN_POSITIVE));
        round.server = seen.server;
        let mut note = |name: &str, value: f64| round.extra.insert(name.to_owned(), value);
        if let Some(celsius) = seen.temperature_celsius {
            note("temperature_celsius", celsius);
        }
        if !seen.nodes.is_empty() {
            let cpu = seen.nodes.iter().map(Usage::cpu_seconds).sum();
            note("nodes_cpu_seconds", cpu);
            let memory: u64 = seen.nodes.iter().map(|node| node.peak_pss_bytes).sum();
            note("nodes_memory_bytes", memory as f64);
            note("balancer_memory_bytes", balancer.peak_pss_bytes as f64);
            note(
                "balancer_cpu_percent",
                balancer.cpu_seconds() / seconds * 100.0,
            );
            if let Some(share) = members::smallest_share(&seen.nodes) {
                note(members::SMALLEST_SHARE, share);
            }
            if let Some(load) = seen.load_average {
                note("load_average", load);
            }
        }
        round
    }
}

impl Watch for Audience<'_> {
    fn begun(&self) {
        let nodes = self.playing.nodes.iter();
        let watching = Watching {
            nodes: nodes.map(|node| self.measure(node.tree())).collect(),
            server: self.measure(self.playing.contender.tree()),
        };
        *self.watching.lock().unwrap_or_else(PoisonError::into_inner) = Some(watching);
    }

    fn ended(&self) {
        let watching = self
            .watching
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(watching) = watching else {
            return;
        };
        let seen = Seen {
            server: watching.server.finish(),
            nodes: watching.nodes.into_iter().map(Measuring::finish).collect(),
            temperature_celsius: temperature_celsius(),
            load_average: load_average(),
        };
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(seen);
    }
}

/// Returns the round of a working server, or the failure.
fn judge(measured: Measured, plan: &Plan, load: Load) -> Result<Round, Trouble> {
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
                plan.timeout_seconds
            ),
            _ => format!("no correct response: {}", words(&round, &detail)),
        };
        return Err(Trouble::Failed {
            why,
            round: (failed > 0).then(|| Box::new(round)),
        });
    }
    if soundness::failed_in_part(&round, load) {
        let asked = round.requests + failed;
        return Err(Trouble::Unsound {
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

fn cannot_start(entry: &Entry, error: StartError) -> Trouble {
    let text = error.to_string();
    // The caller of the message adds the name itself.
    let text = text
        .strip_prefix(&format!("{}: ", entry.name))
        .unwrap_or(&text);
    Trouble::failed(format!("the server does not start: {text}"))
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
