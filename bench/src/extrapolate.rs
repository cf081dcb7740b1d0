//! Extrapolated request rate of a server without the client's load, by the formula of Spare Cores'
//! benchmark-web, and the CSV format of benchmark-web. With the CSV, a matrix of this kit can be compared
//! with the roughly three thousand published by Spare Cores.
//!
//! The formula assigns the client's CPU time to the server at equal efficiency. Idle time is not part of
//! the formula, so the result is too low if the machine is not fully busy. Memory bandwidth and kernel work
//! charged to no process are not part of the formula either.

use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

use crate::result::{Failures, Parameter, Round, Run, Scenario, Usage};
use crate::statistics::median;

/// Name of the only suite with a CSV: the columns do not distinguish scenarios of other suites.
pub(crate) const SUITE: &str = "matrix";

/// Columns of the CSV, in benchmark-web's order.
pub(crate) const COLUMNS: [&str; 10] = [
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

/// Returns `rate / server × (server + client)`, in requests per second; `None` if the server used no
/// measurable CPU time.
pub(crate) fn rate(rate: f64, server: &Usage, client: &Usage) -> Option<f64> {
    let of_server = server.cpu_seconds();
    (of_server > 0.0).then(|| rate / of_server * (of_server + client.cpu_seconds()))
}

/// Returns one contender's rows in benchmark-web's CSV format: a line per size, number of threads and
/// number of connections.
///
/// Values are medians of the rounds. Sizes are written as `1k`, the mean latency and CPU times in seconds.
/// The columns have no field for TLS, which benchmark-web never measured, so a table holds the rows of one
/// protocol only. Returns `None` if the run has no rows of the protocol or is of another suite.
pub(crate) fn csv(run: &Run, contender: &str, tls: bool) -> Option<String> {
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
        // Writing to a String cannot fail.
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

/// Writes a contender's tables and returns the written files: plain HTTP goes into `file`, TLS into a
/// second file with `.tls` before the extension.
pub(crate) fn write_csv(run: &Run, contender: &str, file: &Path) -> io::Result<Vec<PathBuf>> {
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

/// Formats a size: `512k`, or bytes if the size is not a whole number of kilobytes.
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
    use std::collections::BTreeMap;

    use super::*;
    use crate::result::{Cell, ContenderFacts, Latency, Machine};

    fn usage(user_seconds: f64, system_seconds: f64) -> Usage {
        Usage {
            user_seconds,
            system_seconds,
            ..Usage::default()
        }
    }

    /// Checks a row calculated by hand: 120,000 requests/s with 6 s of the server's and 4 s of the client's
    /// CPU time are 200,000 requests/s.
    #[test]
    fn the_formula_assigns_the_clients_cpu_time_to_the_server() {
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

    /// Each combination of parameters is one line: rounds are reduced to the median, and TLS has its own
    /// file.
    #[test]
    fn every_combination_of_parameters_is_one_row() {
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
}
