//! `anthill bench run`: measures a suite and writes the result file.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use jiff::Timestamp;

use super::command::Arguments;
use super::problem::{Done, INCOMPLETE, Problem, print};
use crate::catalogue::{Catalogue, Entry};
use crate::cores::{self, Cores};
use crate::driver::Driver;
use crate::extrapolate;
use crate::interrupt;
use crate::load::Length;
use crate::machine::Profile;
use crate::measurer::Measurer;
use crate::nearest::nearest;
use crate::page_measurer::PageMeasurer;
use crate::ports;
use crate::process;
use crate::progress::Progress;
use crate::result::{Cell, ContenderFacts, FORMAT, Failures, Machine, Run};
use crate::resume;
use crate::rounds::{Batch, CollectOutcome, RoundCollector, collect};
use crate::site::Site;
use crate::soundness::{is_sound, reason};
use crate::suite::{Extent, Group, Options, Plan, SUITES, Suite};
use crate::work_folder::WorkFolder;

/// Flag set by Ctrl-C.
static STOP: AtomicBool = AtomicBool::new(false);

pub(super) fn run(arguments: &Arguments) -> Done {
    let suite = find(&arguments.operands[0])?;
    let settings = Settings::new(arguments, suite)?;
    let plan = (suite.lay_out)(&settings.options);
    let catalogue = Catalogue::load(arguments.path("catalogue").as_deref());
    let catalogue = catalogue.map_err(|error| Problem::usage(error.to_string()))?;
    let contenders = Contenders::choose(&catalogue, &plan, settings.with.as_deref())?;
    settings.check_driver(&plan)?;
    settings.check_port()?;
    let mut run = settings.begin(suite, &plan, &contenders);
    let failed =
        |error: std::io::Error| Problem::failure(format!("{}: {error}", settings.output.display()));
    settings.try_output().map_err(failed)?;
    if arguments.has("resume") {
        let resumed = resume::take_up(&mut run, &settings.output);
        resumed.map_err(|error| {
            Problem::usage(error.to_string()).help("without --resume the run starts anew")
        })?;
    }
    interrupt::watch(&STOP, interrupt::leave_nothing).map_err(failed)?;
    process::raise_open_files();
    let outcome = settings.measure(&plan, &catalogue, &contenders, &mut run)?;
    settings.end(&outcome, &mut run, &contenders)
}

fn find(name: &str) -> Result<&'static Suite, Problem> {
    if let Some(suite) = SUITES.iter().find(|suite| suite.name == name) {
        return Ok(suite);
    }
    let problem = Problem::usage(format!("unknown suite `{name}`"));
    let near = nearest(name, SUITES.iter().map(|suite| suite.name));
    Err(match near.first() {
        Some(near) => problem.help(format!("did you mean `{near}`?")),
        None => {
            let names: Vec<&str> = SUITES.iter().map(|suite| suite.name).collect();
            problem.help(names.join(", "))
        }
    })
}

/// Settings from the command line.
struct Settings<'t> {
    arguments: &'t Arguments,
    suite: &'static Suite,
    options: Options,
    with: Option<Vec<String>>,
    driver: Driver,
    cores: Cores,
    port: Option<u16>,
    profile: Profile,
    output: PathBuf,
}

impl<'t> Settings<'t> {
    fn new(arguments: &'t Arguments, suite: &'static Suite) -> Result<Settings<'t>, Problem> {
        let cores = cores(arguments)?;
        let positive = |number: &f64| number.is_finite() && *number > 0.0;
        let options = Options {
            extent: extent(arguments)?,
            as_published: arguments.has("as-published"),
            rounds: arguments
                .number("rounds", "a number of rounds, 1 or more", |n: &u32| *n > 0)?,
            seconds: arguments.number("seconds", "a number of seconds", positive)?,
            warm_up_seconds: arguments.number("warm-up", "a number of seconds", |n: &f64| {
                n.is_finite() && *n >= 0.0
            })?,
            timeout_seconds: arguments.number("timeout", "a number of seconds", positive)?,
            server_cpus: cores.server.len(),
            client_cpus: cores.client.len(),
            node: arguments.value("node").unwrap_or("anthill").to_owned(),
            node_share: arguments
                .number("node-share", "a share of a processor, 0 to 1", |n: &f64| {
                    positive(n) && *n <= 1.0
                })?
                .unwrap_or(NODE_SHARE),
        };
        if options.as_published && !suite.as_published {
            let text = format!("`{}` has no published settings", suite.name);
            let able = SUITES.iter().filter(|suite| suite.as_published);
            let names: Vec<&str> = able.map(|suite| suite.name).collect();
            return Err(Problem::usage(text).help(format!(
                "suites with published settings: {}",
                names.join(", ")
            )));
        }
        if arguments.has("csv") && suite.name != extrapolate::SUITE {
            return Err(super::report::no_csv(suite.name));
        }
        let profile = arguments.path("machine").map(|path| Profile::load(&path));
        let profile = profile.transpose();
        let output = arguments.path("output");
        let usual_output = || {
            if arguments.has("resume") {
                PathBuf::from(format!("{}.json", suite.name))
            } else {
                unused(suite.name)
            }
        };
        Ok(Settings {
            arguments,
            suite,
            options,
            with: names(arguments.value("with"))?,
            driver: driver(arguments.value("driver"))?,
            cores,
            port: arguments.number("port", "a port below 65535", |n: &u16| {
                (1..u16::MAX).contains(n)
            })?,
            profile: profile
                .map_err(|error| Problem::usage(error.to_string()))?
                .unwrap_or_default(),
            output: output.unwrap_or_else(usual_output),
        })
    }

    /// Checks before the run whether the result can be written, without changing an existing file.
    fn try_output(&self) -> std::io::Result<()> {
        let folder = self
            .output
            .parent()
            .filter(|path| !path.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder)?;
        if self.output.is_dir() {
            return Err(std::io::Error::other("is a folder"));
        }
        tempfile::tempfile_in(folder).map(drop)
    }

    /// Checks before the run whether all drivers are installed and support their workloads.
    fn check_driver(&self, plan: &Plan) -> Result<(), Problem> {
        let wrong = |error: crate::driver::DriverError| Problem::usage(error.to_string());
        self.driver.find().map_err(wrong)?;
        for case in plan.groups.iter().flat_map(|group| &group.cases) {
            let driver = case.driver.unwrap_or(self.driver);
            driver.find().map_err(wrong)?;
            driver.can(&case.workload).map_err(|error| {
                let text = format!("{}, {}: {error}", self.suite.name, case.scenario.id);
                Problem::usage(text).help("without --driver the kit's own generator is used")
            })?;
        }
        Ok(())
    }

    /// Checks once before the run that the ports are free, so that not every contender fails.
    fn check_port(&self) -> Result<(), Problem> {
        let Some(port) = self.port else {
            return Ok(());
        };
        let mut ports = ports::Free::new(IpAddr::V4(Ipv4Addr::LOCALHOST));
        for port in [port, port + 1] {
            ports.take(port).map_err(|error| {
                let help = "choose another --port N with N and N+1 free, or leave --port out to use free ports";
                Problem::usage(error.to_string()).help(help)
            })?;
        }
        Ok(())
    }

    /// Returns the run before the first measurement.
    fn begin(&self, suite: &Suite, plan: &Plan, contenders: &Contenders<'_>) -> Run {
        let now = Timestamp::now().to_string();
        let mut notes = plan.notes.clone();
        notes.extend(self.notes(plan));
        let mut title = plan.title.clone();
        if self.options.as_published {
            title.push_str(", as published");
        }
        Run {
            format: FORMAT,
            tool: crate::TOOL.to_owned(),
            suite: suite.name.to_owned(),
            title,
            begun: now.clone(),
            ended: now,
            complete: false,
            command: self.arguments.line.clone(),
            machine: Machine::of_this_run(&self.profile),
            contenders: contenders.facts.clone(),
            scenarios: Vec::new(),
            cells: Vec::new(),
            notes,
        }
    }

    fn notes(&self, plan: &Plan) -> Vec<String> {
        let mut notes = Vec::new();
        let list = |cpus: &[usize]| {
            let words: Vec<String> = cpus.iter().map(ToString::to_string).collect();
            words.join(", ")
        };
        let (server, client) = (list(&self.cores.server), list(&self.cores.client));
        notes.push(match (plan.pinned, self.cores.disjoint()) {
            (true, true) => format!(
                "The server was pinned to processor {server} and the client to processor {client}; \
                 rounds were interleaved, and each began with a new start of the server."
            ),
            (true, false) => format!(
                "Server and client share processor {server}, the only one, and reduce each other's CPU \
                 time. Rounds were interleaved."
            ),
            (false, _) => "Server and client were not pinned to processors.".to_owned(),
        });
        if self.driver != Driver::Embedded {
            notes.push(format!(
                "Load by {}: lengths of responses are checked as far as the driver reports them.",
                self.driver
            ));
        }
        notes
    }

    fn measure(
        &self,
        plan: &Plan,
        catalogue: &Catalogue,
        contenders: &Contenders<'_>,
        run: &mut Run,
    ) -> Result<CollectOutcome, Problem> {
        let failed = |error: std::io::Error| Problem::failure(format!("the work folder: {error}"));
        // The temporary folder is removed when dropped at the end of the run.
        let (folder, _temporary) = self.work_folder().map_err(failed)?;
        let site = Site::create(&folder, &plan.sizes()).map_err(failed)?;
        if plan.pinned {
            // All work of the kit runs on the client's processors, so that the server is not slowed down.
            process::pin(&self.cores.client).map_err(failed)?;
        }
        let (batches, groups) = contenders.batches(plan);
        let mut measurer = Measurer {
            catalogue,
            site,
            groups,
            cores: self.cores.clone(),
            pinned: plan.pinned,
            driver: self.driver,
            port: self.port,
            node: self.options.node.clone(),
            folder,
            keep: self.arguments.has("keep"),
            stop: &STOP,
            running: None,
            facts: BTreeMap::new(),
            pages: PageMeasurer::default(),
            coarse: None,
        };
        let mut progress = if self.arguments.has("silent") {
            Progress::silent()
        } else {
            announce(plan, &batches);
            Progress::on_stderr()
        };
        let output = self.output.clone();
        let mut save = |run: &mut Run| {
            run.ended = Timestamp::now().to_string();
            // An existing file is not replaced by a result without rounds.
            if run.cells.iter().all(|cell| cell.rounds.is_empty()) {
                return Ok(());
            }
            run.write(&output)
        };
        let collector = RoundCollector {
            run,
            rounds: plan.rounds,
            stop: &STOP,
            progress: &mut progress,
            save: &mut save,
        };
        let outcome = collect(&batches, &mut measurer, collector);
        let outcome =
            outcome.map_err(|error| Problem::failure(format!("{}: {error}", output.display())))?;
        run.notes.push(resolution(run, measurer.coarse.as_deref()));
        run.notes.extend(late(run));
        Ok(outcome)
    }

    /// Returns the folder named by the user, or a temporary folder.
    fn work_folder(&self) -> std::io::Result<(PathBuf, Option<WorkFolder>)> {
        if let Some(folder) = self.arguments.path("keep") {
            std::fs::create_dir_all(&folder)?;
            return Ok((folder.canonicalize()?, None));
        }
        WorkFolder::remove_stale(&std::env::temp_dir());
        let temporary = WorkFolder::create(&std::env::temp_dir())?;
        let path = temporary.path().to_owned();
        Ok((path, Some(temporary)))
    }

    /// Finishes the run: writes the result, prints the summary and returns the exit status.
    fn end(&self, outcome: &CollectOutcome, run: &mut Run, contenders: &Contenders<'_>) -> Done {
        let unreported = unreported(outcome, run);
        run.complete = !outcome.interrupted && outcome.failures.is_empty() && unreported.is_empty();
        run.ended = Timestamp::now().to_string();
        let failed = |error| Problem::failure(format!("{}: {error}", self.output.display()));
        // The count includes rounds measured before the run was resumed.
        let rounds: usize = run.cells.iter().map(|cell| cell.rounds.len()).sum();
        if rounds > 0 {
            run.write(&self.output).map_err(failed)?;
            print(&crate::summary::text(run))?;
            print(&crate::summary::agreement(run))?;
            if let Some(file) = self.arguments.path("csv") {
                self.write_csv(run, &file)?;
            }
        }
        for failure in unreported {
            eprintln!("failed: {failure}");
        }
        for missing in &contenders.missing_by_name {
            eprintln!("{missing}");
        }
        match rounds {
            0 => {}
            1 => eprintln!("{}: 1 round", self.output.display()),
            _ => eprintln!("{}: {rounds} rounds", self.output.display()),
        }
        if outcome.interrupted {
            return Ok(ExitCode::from(interrupt::INTERRUPTED));
        }
        if rounds == 0 {
            return Err(Problem::usage("nothing could be measured"));
        }
        if run.complete && contenders.missing_by_name.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        Ok(ExitCode::from(INCOMPLETE))
    }

    /// Writes the CSV files of all contenders; with several contenders, the name is part of the file name.
    fn write_csv(&self, run: &Run, file: &Path) -> Result<(), Problem> {
        let measured = |name: &str| {
            let has = |cell: &Cell| cell.contender == name && !cell.rounds.is_empty();
            run.cells.iter().any(has)
        };
        let names: Vec<&str> = run
            .contenders
            .iter()
            .map(|facts| facts.name.as_str())
            .filter(|name| measured(name))
            .collect();
        for name in &names {
            let path = match names.len() {
                1 => file.to_owned(),
                _ => file.with_extension(format!("{name}.csv")),
            };
            super::report::write_csv(run, name, &path)?;
        }
        Ok(())
    }
}

/// Records the failures that show only in all rounds of a cell, or that a resumed run already had. Returns
/// their messages unless already reported.
fn unreported(outcome: &CollectOutcome, run: &mut Run) -> Vec<String> {
    let unsound = |cell: &Cell| !cell.rounds.is_empty() && !is_sound(run, cell);
    let unsound: Vec<bool> = run.cells.iter().map(unsound).collect();
    let mut unreported = Vec::new();
    for (cell, _) in run.cells.iter_mut().zip(unsound).filter(|(_, is)| *is) {
        let why = reason(cell);
        let reported = |known: &String| {
            let of_cell = format!("{}, {}: ", cell.contender, cell.scenario);
            known.starts_with(&of_cell) || *known == format!("{}: {why}", cell.contender)
        };
        if !outcome.failures.iter().any(reported) {
            unreported.push(format!("{}, {}: {why}", cell.contender, cell.scenario));
        }
        cell.failure = Some(why);
    }
    unreported
}

/// Contenders of the run.
struct Contenders<'c> {
    /// Facts in the order of the tables, including missing contenders.
    facts: Vec<ContenderFacts>,
    /// Installed contenders.
    present: Vec<&'c Entry>,
    /// True if the user named the contenders.
    named: bool,
    /// Messages about missing contenders named by the user.
    missing_by_name: Vec<String>,
}

impl<'c> Contenders<'c> {
    fn choose(
        catalogue: &'c Catalogue,
        plan: &Plan,
        with: Option<&[String]>,
    ) -> Result<Contenders<'c>, Problem> {
        let wanted = match with {
            Some(names) => named(catalogue, plan, names)?,
            None => usual(catalogue, plan),
        };
        let mut contenders = Contenders {
            facts: Vec::new(),
            present: Vec::new(),
            named: with.is_some(),
            missing_by_name: Vec::new(),
        };
        for entry in wanted {
            let mut facts = ContenderFacts {
                name: entry.name.clone(),
                title: entry.title.clone(),
                ..ContenderFacts::default()
            };
            match entry.find() {
                Ok(found) => {
                    facts.version = found.version;
                    facts.program = found.program.display().to_string();
                    facts.program_bytes = found.program_bytes;
                    contenders.present.push(entry);
                }
                Err(missing) => {
                    let asked_for = with.is_some_and(|names| names.contains(&entry.name));
                    if asked_for {
                        let text = format!("missing: {}: {}", entry.name, missing.0);
                        contenders.missing_by_name.push(text);
                    }
                    facts.missing = Some(missing.0);
                }
            }
            contenders.facts.push(facts);
        }
        if contenders.batches(plan).0.is_empty() {
            let problem = Problem::usage("none of the contenders is installed");
            return Err(
                problem.help("`anthill bench list` shows all contenders and the missing programs")
            );
        }
        Ok(contenders)
    }

    fn takes_part(&self, group: &Group, entry: &Entry) -> bool {
        let usual = &group.selection.usual;
        group.selection.lacking(entry).is_none()
            && (self.named || usual.is_empty() || usual.contains(&entry.name))
    }

    /// Returns the groups with at least one contender, as batches and as groups with equal indices.
    fn batches(&self, plan: &Plan) -> (Vec<Batch>, Vec<Group>) {
        let (mut batches, mut groups) = (Vec::new(), Vec::new());
        for group in &plan.groups {
            let with_part = self
                .present
                .iter()
                .filter(|entry| self.takes_part(group, entry));
            let contenders: Vec<String> = with_part.map(|entry| entry.name.clone()).collect();
            if contenders.is_empty() {
                continue;
            }
            batches.push(Batch {
                scenarios: group
                    .cases
                    .iter()
                    .map(|case| case.scenario.clone())
                    .collect(),
                contenders,
                order: group.order,
            });
            groups.push(group.clone());
        }
        (batches, groups)
    }
}

/// Returns the entries of the names, plus the contenders required by the suite.
fn named<'c>(
    catalogue: &'c Catalogue,
    plan: &Plan,
    names: &[String],
) -> Result<Vec<&'c Entry>, Problem> {
    let mut wanted: Vec<&Entry> = Vec::new();
    let mut problems: Vec<String> = Vec::new();
    let only = plan
        .groups
        .iter()
        .filter_map(|group| group.selection.only.as_ref());
    for name in names.iter().chain(only.flatten()) {
        let entry = match catalogue.contender(name) {
            Ok(entry) => entry,
            Err(unknown) => {
                problems.push(unknown.to_string());
                continue;
            }
        };
        if wanted.iter().any(|known| known.name == entry.name) {
            continue;
        }
        let lacking: Vec<String> = plan
            .groups
            .iter()
            .filter_map(|group| group.selection.lacking(entry))
            .collect();
        if lacking.len() == plan.groups.len() {
            let why = &lacking[0];
            problems.push(format!("{name} cannot take part in the suite: {why}"));
            continue;
        }
        wanted.push(entry);
    }
    if problems.is_empty() {
        Ok(wanted)
    } else {
        Err(Problem::usage(problems.join("\nerror: ")))
    }
}

/// Returns all entries of the suite's default selection, in the catalogue's order.
fn usual<'c>(catalogue: &'c Catalogue, plan: &Plan) -> Vec<&'c Entry> {
    let has_part = |entry: &&Entry| {
        plan.groups.iter().any(|group| {
            let usual = &group.selection.usual;
            let meant = usual.is_empty() || usual.contains(&entry.name);
            meant && group.selection.lacking(entry).is_none()
        })
    };
    catalogue.entries().iter().filter(has_part).collect()
}

/// Returns an unused file name: `hello.json`, or `hello-2.json` if the first exists, so that earlier
/// results are not overwritten.
pub(super) fn unused(stem: &str) -> PathBuf {
    let mut path = PathBuf::from(format!("{stem}.json"));
    let mut number = 1;
    while path.exists() {
        number += 1;
        path = PathBuf::from(format!("{stem}-{number}.json"));
    }
    path
}

fn names(list: Option<&str>) -> Result<Option<Vec<String>>, Problem> {
    let Some(list) = list else {
        return Ok(None);
    };
    let names = list.split(',').map(|name| name.trim().to_owned());
    let names: Vec<String> = names.filter(|name| !name.is_empty()).collect();
    if names.is_empty() {
        return Err(Problem::usage("`--with` names no contender").help("--with anthill,nginx"));
    }
    Ok(Some(names))
}

fn extent(arguments: &Arguments) -> Result<Extent, Problem> {
    match (arguments.has("quick"), arguments.has("full")) {
        (true, true) => Err(Problem::usage("`--quick` and `--full` exclude each other")),
        (true, false) => Ok(Extent::Quick),
        (false, true) => Ok(Extent::Full),
        (false, false) => Ok(Extent::Usual),
    }
}

fn driver(name: Option<&str>) -> Result<Driver, Problem> {
    let Some(name) = name else {
        return Ok(Driver::default());
    };
    Driver::named(name).ok_or_else(|| {
        let names: Vec<&str> = crate::driver::DRIVERS
            .iter()
            .map(|driver| driver.name())
            .collect();
        Problem::usage(format!("unknown driver `{name}`")).help(names.join(", "))
    })
}

fn cores(arguments: &Arguments) -> Result<Cores, Problem> {
    let usual = Cores::of_this_machine();
    let allowed = process::cpus();
    let list = |option: &str, usual: Vec<usize>| {
        let Some(text) = arguments.value(option) else {
            return Ok(usual);
        };
        let wrong = || Problem::usage(format!("`--{option} {text}`: not a list such as 0-3,8"));
        let list = cores::parse_list(text).ok_or_else(wrong)?;
        match list.iter().find(|cpu| !allowed.contains(cpu)) {
            Some(cpu) => Err(Problem::usage(format!(
                "`--{option} {text}`: processor {cpu} does not exist or is not available to this process"
            ))),
            None => Ok(list),
        }
    };
    let (server, client) = (usual.server, usual.client);
    Ok(Cores {
        server: list("server-cpus", server)?,
        client: list("client-cpus", client)?,
    })
}

/// Prints an estimate of the duration.
fn announce(plan: &Plan, batches: &[Batch]) {
    let groups = plan.groups.iter();
    let mut seconds = 0.0;
    for (group, batch) in groups.zip(batches) {
        let case = |case: &crate::suite::Case| {
            let asked = match case.workload.length {
                Length::Seconds(seconds) => seconds,
                Length::Requests(_) => 1.0,
            };
            let times = if case.direct { 2.0 } else { 1.0 };
            (asked + case.workload.warm_up_seconds) * times
        };
        let each = START_SECONDS + group.cases.iter().map(case).sum::<f64>();
        seconds += each * batch.contenders.len() as f64;
    }
    let minutes = (seconds * f64::from(plan.rounds) / 60.0).ceil();
    eprintln!("{}: about {minutes} min", plan.title);
}

/// Returns the note on timeouts in the percentiles, if requests timed out.
fn late(run: &Run) -> Option<String> {
    let mut rounds = run.cells.iter().flat_map(|cell| &cell.rounds);
    let late = rounds.any(|round| {
        round.driver == Driver::Embedded.name() && round.failures.contains_key(Failures::TIMEOUT)
    });
    late.then(|| {
        "Requests that timed out are included in the percentiles with their duration, at least the \
         timeout."
            .to_owned()
    })
}

/// Returns the note on the resolution of CPU time.
fn resolution(run: &Run, coarse: Option<&str>) -> String {
    let rounds = run.cells.iter().flat_map(|cell| &cell.rounds);
    let used = rounds.map(|round| round.server.cpu_seconds());
    let least = used.filter(|seconds| *seconds > 0.0).reduce(f64::min);
    let tick = run.machine.tick_seconds;
    match (coarse, least) {
        (None, _) => "CPU time is read from the server's control group in microseconds. The group \
                      includes every process of the server, and the reading follows shortly after \
                      the client's last request."
            .to_owned(),
        (Some(why), Some(least)) => format!(
            "CPU time is counted in ticks of {:.0} ms ({why}); the smallest value of a round was {:.2} s, \
             so the resolution is {:.1} %.",
            tick * 1e3,
            least,
            tick / least * 100.0
        ),
        (Some(why), None) => format!("CPU time was too short to be counted ({why})."),
    }
}

/// Default CPU share of a node: with 1 % of a processor, a node serves about as many requests for a static
/// page as a Raspberry Pi of 2013.
const NODE_SHARE: f64 = 0.01;
/// Estimated seconds to start and stop a server.
const START_SECONDS: f64 = 0.7;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resolution_of_cpu_time_is_explained() {
        let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/samples");
        let run = Run::read(&samples.join("sample-hello.json")).expect("a sample");
        let by_group = resolution(&run, None);
        assert!(
            by_group.starts_with(
                "CPU time is read from the server's control group in microseconds. The group \
                 includes every process of the server,"
            ),
            "{by_group}"
        );
        let by_ticks = resolution(&run, Some("no control group"));
        assert!(by_ticks.contains("(no control group)"), "{by_ticks}");
    }
}
