//! `anthill bench load`: runs the kit's load generator alone, against a running server.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::command::Arguments;
use super::problem::{Done, INCOMPLETE, Problem, print};
use crate::cores;
use crate::interrupt;
use crate::load::{
    self, Error, Expect, Length, Outcome, Pace, Protocol, Resumption, Tls, Workload,
};
use crate::report::number;
use crate::result::Failures;

/// Flag set by Ctrl-C.
static STOP: AtomicBool = AtomicBool::new(false);

pub(super) fn run(arguments: &Arguments) -> Done {
    let workload = workload(arguments)?;
    interrupt::watch(&STOP, || {}).map_err(|error| Problem::failure(error.to_string()))?;
    let outcome = load::run(&workload, &STOP).map_err(|error| match error {
        Error::Workload(_) | Error::ServerName(_) => Problem::usage(error.to_string()),
        error => Problem::failure(error.to_string()),
    })?;
    let failed = outcome.failed();
    let text = if arguments.has("json") {
        let round = serde_json::to_string(&outcome.into_round(0, &workload));
        round.map_err(|error| Problem::failure(error.to_string()))? + "\n"
    } else {
        words(&outcome, &workload)
    };
    print(&text)?;
    Ok(match (STOP.load(Ordering::Relaxed), failed) {
        (true, _) => ExitCode::from(interrupt::INTERRUPTED),
        (false, 0) => ExitCode::SUCCESS,
        (false, _) => ExitCode::from(INCOMPLETE),
    })
}

/// Makes the workload from the command line.
fn workload(arguments: &Arguments) -> Result<Workload, Problem> {
    let url = Url::parse(&arguments.operands[0])?;
    let protocol = protocol(arguments.value("http"))?;
    let positive = |number: &f64| number.is_finite() && *number > 0.0;
    let count = |long| arguments.number(long, "a number, 1 or more", |n: &usize| *n > 0);
    let seconds = |long| arguments.number(long, "a number of seconds", positive);
    let requests = arguments.number("requests", "a number of requests, 1 or more", |n: &u64| {
        *n > 0
    })?;
    let length = match (seconds("seconds")?, requests) {
        (Some(_), Some(_)) => {
            let text = "`--seconds` and `--requests` exclude each other";
            return Err(Problem::usage(text));
        }
        (_, Some(requests)) => Length::Requests(requests),
        (seconds, None) => Length::Seconds(seconds.unwrap_or(SECONDS)),
    };
    let rate = arguments.number("rate", "a number of requests a second", positive)?;
    let usual = Workload::default();
    let resumption = if arguments.has("resumed") {
        Resumption::Resumed
    } else {
        Resumption::Full
    };
    let tls = url.tls.then(|| Tls {
        resumption,
        server_name: url.host.clone(),
        ..Tls::default()
    });
    Ok(Workload {
        addresses: vec![url.address],
        host: url.authority,
        paths: vec![url.path],
        protocol,
        tls,
        connections: count("connections")?.unwrap_or(CONNECTIONS),
        streams: count("streams")?.unwrap_or(usual.streams),
        threads: count("threads")?.unwrap_or(usual.threads),
        keep_alive: !arguments.has("close"),
        pace: rate.map_or(usual.pace, |rate| Pace::Open { rate }),
        length,
        warm_up_seconds: arguments
            .number("warm-up", "a number of seconds", |n: &f64| {
                n.is_finite() && *n >= 0.0
            })?
            .unwrap_or(usual.warm_up_seconds),
        expect: Expect {
            length: arguments.number("bytes", "a number of bytes", |_: &u64| true)?,
            ..Expect::default()
        },
        timeout_seconds: seconds("timeout")?.unwrap_or(usual.timeout_seconds),
        cpus: cpus(arguments)?,
        ..usual
    })
}

fn protocol(version: Option<&str>) -> Result<Protocol, Problem> {
    match version {
        None | Some("1" | "1.1") => Ok(Protocol::Http1),
        Some("2") => Ok(Protocol::Http2),
        Some("3") => Ok(Protocol::Http3),
        Some(other) => Err(
            Problem::usage(format!("`--http {other}`: unknown version of HTTP"))
                .help("1.1, 2 or 3"),
        ),
    }
}

fn cpus(arguments: &Arguments) -> Result<Vec<usize>, Problem> {
    let Some(list) = arguments.value("cpus") else {
        return Ok(Vec::new());
    };
    cores::parse_list(list)
        .ok_or_else(|| Problem::usage(format!("`--cpus {list}`: not a list such as 0-3,8")))
}

/// Parts of the URL to load.
#[derive(Debug, PartialEq, Eq)]
struct Url {
    tls: bool,
    address: SocketAddr,
    /// Value of the `Host` field.
    authority: String,
    /// Host name without port, for TLS.
    host: String,
    path: String,
}

impl Url {
    fn parse(text: &str) -> Result<Url, Problem> {
        let wrong = |why: &str| {
            Problem::usage(format!("`{text}`: {why}")).help("example: https://localhost:8443/")
        };
        let uri: http::Uri = text.parse().map_err(|_| wrong("not a URL"))?;
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong("neither http:// nor https://")),
        };
        let authority = uri.authority().ok_or_else(|| wrong("no host"))?;
        let host = authority.host();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let port = authority.port_u16().unwrap_or(if tls { 443 } else { 80 });
        let addresses = (host, port)
            .to_socket_addrs()
            .map_err(|error| wrong(&error.to_string()))?;
        let address = reachable(addresses).ok_or_else(|| wrong("the host has no address"))?;
        Ok(Url {
            tls,
            address,
            authority: authority.to_string(),
            host: host.to_owned(),
            path: uri
                .path_and_query()
                .map_or("/", |path| path.as_str())
                .to_owned(),
        })
    }
}

/// Returns the first address that accepts a connection, otherwise the first address. A host name may
/// resolve to an IPv6 address without a listener.
fn reachable(mut addresses: impl Iterator<Item = SocketAddr> + Clone) -> Option<SocketAddr> {
    let first = addresses.clone().next();
    let listens = |address: &SocketAddr| TcpStream::connect_timeout(address, REACH).is_ok();
    addresses.find(listens).or(first)
}

/// Formats the outcome as text.
fn words(outcome: &Outcome, workload: &Workload) -> String {
    let mut text = format!("{workload}\n");
    let mut line = |what: &str, value: String| text.push_str(&format!("  {what:<14}{value}\n"));
    line(
        "requests",
        format!("{}, {:.0} /s", outcome.requests, outcome.rate()),
    );
    let bytes = outcome.bytes as f64;
    line(
        "received",
        format!(
            "{}, {}/s",
            number::bytes(bytes),
            number::bytes(bytes / outcome.seconds.max(f64::MIN_POSITIVE))
        ),
    );
    let micros = |value: u64| number::time(value as f64);
    let percentiles = |histogram: &hdrhistogram::Histogram<u64>| {
        let at = |percent: f64| micros(histogram.value_at_percentile(percent));
        let longest = micros(histogram.max());
        format!(
            "{} median, {} 99 %, {} 99.9 %, {longest} longest",
            at(50.0),
            at(99.0),
            at(99.9)
        )
    };
    if !outcome.latency.is_empty() {
        let late = if outcome.failures.contains_key(Failures::TIMEOUT) {
            ", including timeouts"
        } else {
            ""
        };
        line("latency", percentiles(&outcome.latency) + late);
    }
    if let Some(service) = outcome
        .service
        .as_ref()
        .filter(|service| !service.is_empty())
    {
        line("since sent", percentiles(service));
    }
    if !outcome.connect.is_empty() {
        line("connecting", percentiles(&outcome.connect));
    }
    if outcome.full_handshakes + outcome.resumed_handshakes > 0 {
        let (full, resumed) = (outcome.full_handshakes, outcome.resumed_handshakes);
        line("handshakes", format!("{full} full, {resumed} resumed"));
    }
    let limit = if outcome.client_bound {
        ": the client was the limit"
    } else {
        ""
    };
    line(
        "the client",
        format!("{:.0} % busy{limit}", outcome.busy * 100.0),
    );
    for (kind, count) in &outcome.failures {
        let first = outcome.first_failures.get(kind).map_or("", String::as_str);
        line("failed", format!("{count} by {kind}, the first: {first}"));
    }
    text
}

/// Default number of connections and seconds, as in wrk.
const CONNECTIONS: usize = 10;
const SECONDS: f64 = 10.0;

/// Timeout of the connection attempt per address.
const REACH: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_gives_address_host_and_path() {
        let url = |text: &str| Url::parse(text).unwrap_or_else(|problem| panic!("{problem}"));
        let plain = url("http://127.0.0.1:8080/a?b=c");
        assert_eq!(plain.address, SocketAddr::from(([127, 0, 0, 1], 8080)));
        assert_eq!((plain.tls, plain.path.as_str()), (false, "/a?b=c"));
        let secure = url("https://[::1]");
        assert_eq!(secure.address.to_string(), "[::1]:443");
        assert_eq!(
            (secure.authority.as_str(), secure.host.as_str()),
            ("[::1]", "::1")
        );
        assert_eq!(secure.path, "/");
        for text in [
            "localhost:8080/",
            "ftp://localhost/",
            "/",
            "https://",
            "http://a b/",
        ] {
            let problem = Url::parse(text).expect_err(text).to_string();
            assert!(problem.contains("https://localhost:8443/"), "{problem}");
        }
    }
}
