//! What a server would do if the client took nothing from it, as Spare Cores' benchmark-web reckons
//! it, and the columns of its CSV, so that our matrix can be laid beside their three thousand.
//!
//! The formula gives the server the client's CPU time at equal efficiency. It knows nothing of idle
//! time, so it says too little where the machine isn't busy, and nothing about memory bandwidth or
//! the kernel's work that is charged to nobody.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

use crate::result::{Failures, Parameter, Round, Run, Scenario, Usage};
use crate::statistics::median;

/// The name of the suite whose rows the CSV has: no other's are told apart by its columns.
pub const SUITE: &str = "matrix";

/// The columns of the CSV, in benchmark-web's order.
pub const COLUMNS: [&str; 10] = [
    "size",
    "threads",
    "connections",
    "rps",
    "latency",
    "failed",
    "server_usr",
    "server_sys",
    "client_usr",
    "client_sys",
];

/// `rate / server × (server + client)`, in requests a second; `None` if the server used no CPU time
/// that could be measured.
pub fn rate(rate: f64, server: &Usage, client: &Usage) -> Option<f64> {
    let of_server = server.cpu_seconds();
    (of_server > 0.0).then(|| rate / of_server * (of_server + client.cpu_seconds()))
}

/// One point of the condensed matrix: the best of all thread counts.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// Bytes of the file.
    pub size: u64,
    /// Connections for each of the server's processors.
    pub connections_per_cpu: f64,
    /// Requests a second.
    pub rate: f64,
    /// The same by [`rate`].
    pub rate_extrapolated: f64,
    /// Bytes of files a second.
    pub throughput: f64,
    /// The same, extrapolated.
    pub throughput_extrapolated: f64,
    /// Mean seconds of a request.
    pub latency_seconds: f64,
}

/// The 28 points that Spare Cores shows of its 69 runs: for each size and number of connections the
/// row of the thread count with the most requests a second.
pub fn points(run: &Run, contender: &str, cpus: u32) -> Vec<Point> {
    let mut best: BTreeMap<(String, u64, u64), Point> = BTreeMap::new();
    for (scenario, rounds) in rows(run, contender) {
        let (Some(size), Some(connections)) =
            (count(scenario, "size"), count(scenario, "connections"))
        else {
            continue;
        };
        let of = |value: &dyn Fn(&Round) -> Option<f64>| {
            median(&rounds.iter().filter_map(value).collect::<Vec<_>>())
        };
        let Some(measured) = of(&|round| Some(round.rate())) else {
            continue;
        };
        let extrapolated = of(&|r| rate(r.rate(), &r.server, &r.client)).unwrap_or(0.0);
        let point = Point {
            size,
            connections_per_cpu: connections as f64 / f64::from(cpus.max(1)),
            rate: measured,
            rate_extrapolated: extrapolated,
            throughput: measured * size as f64,
            throughput_extrapolated: extrapolated * size as f64,
            latency_seconds: of(&|r| Some(r.latency.as_ref()?.mean_us / 1e6)).unwrap_or(0.0),
        };
        let key = (protocol(scenario), size, connections);
        let known = best.entry(key).or_insert_with(|| point.clone());
        if known.rate < point.rate {
            *known = point;
        }
    }
    best.into_values().collect()
}

/// One contender's rows as benchmark-web writes them: a line for each size, number of threads and of
/// connections (medians of its rounds), sizes as `1k`, the mean latency in seconds, CPU times in
/// seconds. Its columns don't say what is over TLS, which it never measured: a table has the rows of
/// one protocol. `None` if there are none, as of any other suite.
pub fn csv(run: &Run, contender: &str, tls: bool) -> Option<String> {
    if run.suite != SUITE {
        return None;
    }
    let wanted = if tls { "tls" } else { "plain" };
    let mut text = String::new();
    for (scenario, rounds) in rows(run, contender) {
        let Some(size) = count(scenario, "size") else {
            continue;
        };
        if protocol(scenario) != wanted || rounds.is_empty() {
            continue;
        }
        let of = |value: &dyn Fn(&Round) -> f64| {
            median(&rounds.iter().map(value).collect::<Vec<_>>()).unwrap_or(0.0)
        };
        let mean = |round: &Round| round.latency.as_ref().map_or(0.0, |l| l.mean_us / 1e6);
        let failed = |round: &Round| *round.failures.get(Failures::STATUS).unwrap_or(&0) as f64;
        // A String takes whatever is written to it.
        let _ = writeln!(
            text,
            "{},{},{},{:.2},{:.6},{:.0},{:.2},{:.2},{:.2},{:.2}",
            kilobytes(size),
            count(scenario, "threads").unwrap_or(1),
            count(scenario, "connections").unwrap_or(1),
            of(&Round::rate),
            of(&mean),
            of(&failed),
            of(&|round| round.server.user_seconds),
            of(&|round| round.server.system_seconds),
            of(&|round| round.client.user_seconds),
            of(&|round| round.client.system_seconds),
        );
    }
    (!text.is_empty()).then(|| format!("{}\n{text}", COLUMNS.join(",")))
}

/// Writes a contender's tables: plain HTTP into `file`, TLS into another with `.tls` before its
/// ending. Gives the files that were written.
pub fn write_csv(run: &Run, contender: &str, file: &Path) -> io::Result<Vec<PathBuf>> {
    let files = [
        (false, file.to_owned()),
        (true, file.with_extension("tls.csv")),
    ];
    let mut written = Vec::new();
    for (tls, file) in files {
        if let Some(text) = csv(run, contender, tls) {
            std::fs::write(&file, text)?;
            written.push(file);
        }
    }
    Ok(written)
}

/// `512k`; what is no whole number of kilobytes stays in bytes.
fn kilobytes(bytes: u64) -> String {
    if bytes > 0 && bytes.is_multiple_of(1024) {
        format!("{}k", bytes / 1024)
    } else {
        bytes.to_string()
    }
}

fn rows<'r>(run: &'r Run, contender: &str) -> Vec<(&'r Scenario, &'r [Round])> {
    let mut rows = Vec::new();
    for scenario in &run.scenarios {
        let cell = run
            .cells
            .iter()
            .find(|cell| cell.scenario == scenario.id && cell.contender == contender);
        if let Some(cell) = cell {
            rows.push((scenario, cell.rounds.as_slice()));
        }
    }
    rows
}

fn count(scenario: &Scenario, name: &str) -> Option<u64> {
    match scenario.parameters.get(name)? {
        Parameter::Count(count) => Some(*count),
        _ => None,
    }
}

fn protocol(scenario: &Scenario) -> String {
    match scenario.parameters.get("tls") {
        Some(Parameter::Flag(true)) => "tls".to_owned(),
        _ => "plain".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{Cell, ContenderFacts, Latency, Machine};

    fn usage(user_seconds: f64, system_seconds: f64) -> Usage {
        Usage {
            user_seconds,
            system_seconds,
            ..Usage::default()
        }
    }

    /// The numbers of a row by hand: 120,000 requests a second with 6 s of the server's and 4 s of
    /// the client's CPU are 200,000.
    #[test]
    fn the_formula_gives_the_server_the_clients_time() {
        let found = rate(120_000.0, &usage(2.0, 4.0), &usage(1.0, 3.0)).expect("CPU was used");
        assert!((found - 200_000.0).abs() < 1e-6);
        assert_eq!(rate(1.0, &usage(0.0, 0.0), &usage(1.0, 1.0)), None);
    }

    fn matrix() -> Run {
        let scenario = |threads: u64, connections: u64| Scenario {
            id: format!("plain-1k-{threads}-{connections}"),
            title: String::new(),
            parameters: BTreeMap::from([
                ("size".to_owned(), Parameter::Count(1024)),
                ("threads".to_owned(), Parameter::Count(threads)),
                ("connections".to_owned(), Parameter::Count(connections)),
            ]),
        };
        let round = |requests: u64| Round {
            seconds: 10.0,
            requests,
            failures: BTreeMap::from([(Failures::STATUS.to_owned(), 3)]),
            latency: Some(Latency {
                mean_us: 250.0,
                ..Latency::default()
            }),
            server: usage(2.0, 4.0),
            client: usage(1.0, 3.0),
            ..Round::default()
        };
        let cell = |id: &str, requests| Cell {
            scenario: id.to_owned(),
            contender: "nginx".to_owned(),
            rounds: vec![round(requests)],
            failure: None,
        };
        Run {
            format: crate::result::FORMAT,
            tool: String::new(),
            suite: "matrix".to_owned(),
            title: String::new(),
            begun: String::new(),
            ended: String::new(),
            complete: true,
            command: String::new(),
            machine: Machine::default(),
            contenders: vec![ContenderFacts::default()],
            scenarios: vec![scenario(1, 8), scenario(2, 8)],
            cells: vec![cell("plain-1k-1-8", 400_000), cell("plain-1k-2-8", 500_000)],
            notes: Vec::new(),
        }
    }

    #[test]
    fn the_csv_has_benchmark_webs_columns() {
        assert_eq!(
            csv(&matrix(), "nginx", false).as_deref(),
            Some(
                "size,threads,connections,rps,latency,failed,server_usr,server_sys,client_usr,client_sys\n\
                 1k,1,8,40000.00,0.000250,3,2.00,4.00,1.00,3.00\n\
                 1k,2,8,50000.00,0.000250,3,2.00,4.00,1.00,3.00\n"
            )
        );
        assert_eq!(csv(&matrix(), "nginx", true), None);
        let other = Run {
            suite: "journal".to_owned(),
            ..matrix()
        };
        assert_eq!(csv(&other, "nginx", false), None);
        assert_eq!(kilobytes(1500), "1500");
    }

    /// A key is there once in each: of several rounds the median, TLS apart.
    #[test]
    fn a_table_has_no_key_twice() {
        let mut run = matrix();
        let more: Vec<Round> = [420_000, 900_000]
            .map(|requests| Round {
                requests,
                ..run.cells[0].rounds[0].clone()
            })
            .into();
        run.cells[0].rounds.extend(more);
        let mut tls = run.scenarios[0].clone();
        tls.id = "tls".to_owned();
        tls.parameters
            .insert("tls".to_owned(), Parameter::Flag(true));
        run.scenarios.push(tls);
        let mut cell = run.cells[1].clone();
        cell.scenario = "tls".to_owned();
        run.cells.push(cell);
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("matrix.csv");
        let written = write_csv(&run, "nginx", &file).expect("files");
        assert_eq!(written, [file, folder.path().join("matrix.tls.csv")]);
        let lines = |file: &Path| {
            let text = std::fs::read_to_string(file).expect("a table");
            text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
        };
        let plain = lines(&written[0]);
        assert_eq!(plain.len(), 2, "{plain:?}");
        assert!(plain[0].starts_with("1k,1,8,42000.00,"), "{plain:?}");
        assert!(lines(&written[1])[0].starts_with("1k,1,8,50000.00,"));
    }

    #[test]
    fn the_best_thread_count_stands_for_its_connections() {
        let points = points(&matrix(), "nginx", 2);
        assert_eq!(points.len(), 1);
        assert_eq!(points[0].connections_per_cpu, 4.0);
        assert_eq!(points[0].rate, 50_000.0);
        assert!((points[0].rate_extrapolated - 50_000.0 / 0.6).abs() < 1e-6);
        assert_eq!(points[0].throughput, 50_000.0 * 1024.0);
    }
}
