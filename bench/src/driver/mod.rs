//! Load generators: the built-in generator, and the programs wrk, ab, siege and h2load.
//!
//! A driver carries out a [`Workload`] and returns a [`Round`]. A driver refuses a workload that it can't carry out
//! exactly, instead of measuring something different under the same name: wrk has no pauses, ab has one
//! thread, siege reports no percentiles.

pub(crate) mod ab;
pub(crate) mod child;
pub(crate) mod h2load;
pub(crate) mod reading;
pub(crate) mod siege;
pub(crate) mod wrk;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use crate::load::{self, Length, Moment, Pace, Protocol, Workload};
use crate::result::{Failures, Latency, Round, Usage};
use child::{Child, ChildError};
use reading::{ReadError, Reading};

/// A load generator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Driver {
    /// The built-in load generator.
    #[default]
    Embedded,
    /// wrk.
    Wrk,
    /// ApacheBench.
    Ab,
    /// siege.
    Siege,
    /// h2load of nghttp2.
    H2load,
}

/// All drivers, in the order of the help text.
pub(crate) const DRIVERS: [Driver; 5] = [
    Driver::Embedded,
    Driver::Wrk,
    Driver::Ab,
    Driver::Siege,
    Driver::H2load,
];

/// Observer of the measured window. The server's resource usage is counted within the window only.
pub(crate) trait Observer: Sync {
    /// Receives the end of the warm-up.
    fn begun(&self);
    /// Receives the end of the last measured request.
    fn ended(&self);
}

/// A round, with descriptions of its failures.
#[derive(Debug)]
pub(crate) struct Measured {
    /// The round, without the server's resource usage.
    pub round: Round,
    /// Description of the first failure of each kind, if the driver reports descriptions.
    pub details: BTreeMap<String, String>,
}

/// Reason for a missing round.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DriverError {
    /// The program is not installed.
    #[error("{driver} is not installed: apt-get install {package}")]
    Missing {
        /// The driver.
        driver: Driver,
        /// Debian package of the program.
        package: &'static str,
    },
    /// The driver can't carry out the workload.
    #[error("{driver} can't {what}")]
    Cannot {
        /// The driver.
        driver: Driver,
        /// The unsupported part of the workload.
        what: &'static str,
    },
    /// The program could not be run.
    #[error("{driver}: {source}")]
    Child {
        /// The driver.
        driver: Driver,
        /// The cause.
        source: ChildError,
    },
    /// The program's output can't be read.
    #[error("{driver}: {source}")]
    Output {
        /// The driver.
        driver: Driver,
        /// The cause.
        source: ReadError,
    },
    /// The built-in generator failed.
    #[error("{0}")]
    Load(#[from] crate::load::Error),
    /// The operator interrupted the run.
    #[error("interrupted")]
    Interrupted,
}

impl fmt::Display for Driver {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

impl Driver {
    /// Returns the name used on the command line and in results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Wrk => "wrk",
            Self::Ab => "ab",
            Self::Siege => "siege",
            Self::H2load => "h2load",
        }
    }

    /// Returns the driver with the given name.
    pub(crate) fn named(name: &str) -> Option<Driver> {
        DRIVERS.into_iter().find(|driver| driver.name() == name)
    }

    fn package(self) -> &'static str {
        match self {
            Self::Embedded => "anthill-bench",
            Self::Wrk => "wrk",
            Self::Ab => "apache2-utils",
            Self::Siege => "siege",
            Self::H2load => "nghttp2-client",
        }
    }

    /// Checks that the program is installed.
    pub(crate) fn find(self) -> Result<(), DriverError> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let here = std::env::split_paths(&path).any(|folder| folder.join(self.name()).is_file());
        if self == Self::Embedded || here {
            return Ok(());
        }
        Err(DriverError::Missing {
            driver: self,
            package: self.package(),
        })
    }

    /// Checks that the driver can carry out a workload.
    pub(crate) fn can(self, workload: &Workload) -> Result<(), DriverError> {
        let resumed = workload
            .tls
            .as_ref()
            .is_some_and(|tls| *tls != plain_tls(tls));
        let paused = matches!(workload.pace, Pace::Closed { pause: Some(_) });
        let siege = self == Self::Siege;
        let wants = [
            (workload.addresses.len() > 1, "ask several addresses"),
            (
                !workload.sources.is_empty(),
                "connect from several local addresses",
            ),
            (workload.paths.len() > 1, "ask for several pages"),
            (
                matches!(workload.pace, Pace::Open { .. }),
                "keep to a fixed rate",
            ),
            (paused && !siege, "pause between requests"),
            (workload.protocol == Protocol::Http3, "speak HTTP/3"),
            (
                workload.protocol == Protocol::Http2 && self != Self::H2load,
                "speak HTTP/2",
            ),
            (
                !workload.keep_alive && self == Self::H2load,
                "close connections after a request",
            ),
            (
                matches!(workload.length, Length::Requests(_))
                    && matches!(self, Self::Wrk | Self::Siege),
                "send a fixed number of requests",
            ),
            (
                workload.expect.status != 200,
                "expect a status other than 200",
            ),
            (resumed, "choose resumption, key exchange groups or trust"),
        ];
        if self == Self::Embedded {
            return Ok(());
        }
        match wants.into_iter().find(|(wanted, _)| *wanted) {
            Some((_, what)) => Err(DriverError::Cannot { driver: self, what }),
            None => Ok(()),
        }
    }

    /// Carries out a workload. Files of the run are written to `folder`. The round lacks the server's resource
    /// usage.
    pub(crate) fn measure(
        self,
        workload: &Workload,
        folder: &Path,
        observer: &dyn Observer,
        stop: &AtomicBool,
    ) -> Result<Measured, DriverError> {
        self.can(workload)?;
        if self == Self::Embedded {
            return embedded(workload, observer, stop);
        }
        self.find()?;
        if self != Self::H2load && workload.warm_up_seconds > 0.0 {
            // wrk, ab and siege have no warm-up of their own. The result of a first run is discarded.
            let mut warm_up = workload.clone();
            warm_up.length = Length::Seconds(workload.warm_up_seconds);
            self.run(&warm_up, folder, None, stop)?;
        }
        let (mut reading, child) = self.run(workload, folder, Some(observer), stop)?;
        let mut details = BTreeMap::new();
        if let Some(wrong) = workload
            .expect
            .length
            .and_then(|length| reading.wrong_length(length))
        {
            let requests = std::mem::take(&mut reading.requests);
            reading.fail(Failures::LENGTH, requests);
            details.insert(Failures::LENGTH.to_owned(), wrong);
        }
        let mut round = reading.into_round(self.name());
        round.command = self.words(workload, Path::new("")).join(" ");
        round.client = Usage {
            user_seconds: child.user_seconds,
            system_seconds: child.system_seconds,
            cpus: u32::try_from(workload.cpus.len()).unwrap_or(u32::MAX),
            peak_pss_bytes: 0,
        };
        Ok(Measured { round, details })
    }

    fn run(
        self,
        workload: &Workload,
        folder: &Path,
        observer: Option<&dyn Observer>,
        stop: &AtomicBool,
    ) -> Result<(Reading, child::Finished), DriverError> {
        let failed = |source| match source {
            ChildError::Interrupted => DriverError::Interrupted,
            source => DriverError::Child {
                driver: self,
                source,
            },
        };
        let unreadable = |source| DriverError::Output {
            driver: self,
            source,
        };
        self.prepare(folder)
            .map_err(|source| failed(ChildError::Io(source)))?;
        let child = Child {
            words: self.words(workload, folder),
            folder,
            cpus: &workload.cpus,
            patience_seconds: patience_seconds(workload),
        };
        if let Some(observer) = observer {
            observer.begun();
        }
        let finished = child.run(stop).map_err(failed)?;
        if let Some(observer) = observer {
            observer.ended();
        }
        let reading = self.read(&finished.output, folder).map_err(unreadable)?;
        Ok((reading, finished))
    }

    /// Removes the files of the previous run and writes settings files.
    fn prepare(self, folder: &Path) -> std::io::Result<()> {
        for old in [AB_PERCENTILES, H2LOAD_LOG] {
            match std::fs::remove_file(folder.join(old)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        if self == Self::Siege {
            std::fs::write(folder.join(SIEGE_SETTINGS), siege_settings())?;
        }
        Ok(())
    }

    fn read(self, output: &str, folder: &Path) -> Result<Reading, ReadError> {
        let file = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
        match self {
            Self::Wrk => wrk::parse(output),
            Self::Siege => siege::parse(output),
            Self::Ab => {
                let mut reading = ab::parse(output)?;
                if let Some(latency) = &mut reading.latency {
                    let finer = ab::parse_percentiles(&file(AB_PERCENTILES))?;
                    latency.percentiles_us.extend(finer);
                }
                Ok(reading)
            }
            Self::H2load => {
                let mut reading = h2load::parse(output)?;
                if let Some(latency) = &mut reading.latency {
                    rank(latency, h2load::parse_log(&file(H2LOAD_LOG))?);
                }
                Ok(reading)
            }
            Self::Embedded => Err(ReadError::Missing("an output")),
        }
    }

    /// Returns the command line. Files of the run are in `folder`.
    fn words(self, workload: &Workload, folder: &Path) -> Vec<String> {
        let mut words = match self {
            Self::Wrk => wrk_words(workload),
            Self::Ab => ab_words(workload, folder),
            Self::Siege => siege_words(workload, folder),
            Self::H2load => h2load_words(workload, folder),
            Self::Embedded => Vec::new(),
        };
        words.push(url(workload));
        words
    }
}

fn embedded(
    workload: &Workload,
    observer: &dyn Observer,
    stop: &AtomicBool,
) -> Result<Measured, DriverError> {
    let outcome = load::run_observed(workload, stop, |moment| match moment {
        Moment::Begin => observer.begun(),
        Moment::End => observer.ended(),
    })?;
    let details = outcome.first_failures.clone();
    Ok(Measured {
        // The caller numbers the rounds.
        round: outcome.into_round(0, workload),
        details,
    })
}

fn wrk_words(workload: &Workload) -> Vec<String> {
    let threads = workload.threads_used();
    let seconds = whole_seconds(seconds(workload));
    let timeout = whole_seconds(workload.timeout_seconds);
    let mut words = split(&format!(
        "wrk -t{threads} -c{} -d{seconds}s --timeout {timeout}s --latency",
        workload.connections
    ));
    words.extend(header("Host", &workload.host));
    if !workload.keep_alive {
        words.extend(header("Connection", "close"));
    }
    words
}

fn ab_words(workload: &Workload, folder: &Path) -> Vec<String> {
    let mut words = split("ab -q -r -e");
    words.push(folder.join(AB_PERCENTILES).display().to_string());
    let connections = workload.connections;
    words.extend(split(&format!(
        "-c {connections} -s {}",
        whole_seconds(workload.timeout_seconds)
    )));
    match workload.length {
        Length::Requests(requests) => words.extend(split(&format!("-n {requests}"))),
        // With `-t` alone, ab stops at 50,000 requests.
        Length::Seconds(seconds) => {
            let seconds = whole_seconds(seconds);
            let most = AB_REQUESTS_PER_SECOND_MAX * seconds;
            words.extend(split(&format!("-t {seconds} -n {most}")));
        }
    }
    if workload.keep_alive {
        words.push("-k".to_owned());
    }
    if workload.expect.length.is_none() {
        words.push("-l".to_owned());
    }
    words.extend(header("Host", &workload.host));
    words
}

fn siege_words(workload: &Workload, folder: &Path) -> Vec<String> {
    let mut words = split("siege -R");
    words.push(folder.join(SIEGE_SETTINGS).display().to_string());
    words.push(format!("-c{}", workload.connections));
    match workload.pace {
        Pace::Closed { pause: Some(pause) } => words.push(format!("-d{}", pause.longest_seconds)),
        _ => words.push("-b".to_owned()),
    }
    words.push(format!("-t{}S", whole_seconds(seconds(workload))));
    words.extend(header("Host", &workload.host));
    let connection = if workload.keep_alive {
        "keep-alive"
    } else {
        "close"
    };
    words.extend(header("Connection", connection));
    words
}

fn h2load_words(workload: &Workload, folder: &Path) -> Vec<String> {
    let streams = match workload.protocol {
        Protocol::Http1 => 1,
        Protocol::Http2 | Protocol::Http3 => workload.streams,
    };
    let mut words = split(&format!(
        "h2load -t{} -c{} -m{streams}",
        workload.threads_used(),
        workload.connections
    ));
    match workload.length {
        Length::Requests(requests) => words.extend(split(&format!("-n {requests}"))),
        Length::Seconds(seconds) => words.extend(split(&format!(
            "-D {} --warm-up-time={}",
            whole_seconds(seconds),
            whole_seconds(workload.warm_up_seconds)
        ))),
    }
    words.push(format!("--log-file={}", folder.join(H2LOAD_LOG).display()));
    if workload.protocol == Protocol::Http1 {
        words.push("--h1".to_owned());
    }
    words.extend(header(":authority", &workload.host));
    words
}

fn url(workload: &Workload) -> String {
    let scheme = if workload.tls.is_some() {
        "https"
    } else {
        "http"
    };
    let address = workload.addresses.first();
    let address = address.map_or(String::new(), ToString::to_string);
    let path = workload.paths.first().map_or("/", String::as_str);
    format!("{scheme}://{address}{path}")
}

fn header(name: &str, value: &str) -> [String; 2] {
    ["-H".to_owned(), format!("{name}: {value}")]
}

fn split(words: &str) -> Vec<String> {
    words.split_whitespace().map(str::to_owned).collect()
}

/// Returns the TLS settings of external programs, which accept any certificate and choose handshakes and
/// groups themselves.
fn plain_tls(tls: &crate::load::Tls) -> crate::load::Tls {
    crate::load::Tls {
        server_name: tls.server_name.clone(),
        ..crate::load::Tls::default()
    }
}

fn seconds(workload: &Workload) -> f64 {
    match workload.length {
        Length::Seconds(seconds) => seconds,
        Length::Requests(_) => 0.0,
    }
}

/// Rounds up to whole seconds, at least 1: the programs accept no fractions.
fn whole_seconds(seconds: f64) -> u64 {
    seconds.ceil().max(1.0) as u64
}

/// Returns the time after which a running program counts as hung.
fn patience_seconds(workload: &Workload) -> f64 {
    let asked = match workload.length {
        Length::Seconds(seconds) => seconds,
        // 0.2 s per request: the slowest server of all measurements, one request at a time.
        Length::Requests(requests) => requests as f64 * 0.2,
    };
    asked.ceil() + workload.warm_up_seconds.ceil() + workload.timeout_seconds.ceil() + 10.0
}

/// Computes the percentiles of all times.
fn rank(latency: &mut Latency, mut times_us: Vec<u64>) {
    times_us.sort_unstable();
    let Some(last) = times_us.len().checked_sub(1) else {
        return;
    };
    for (name, quantile) in [
        ("50", 0.5),
        ("75", 0.75),
        ("90", 0.9),
        ("99", 0.99),
        ("99.9", 0.999),
    ] {
        let nth = (last as f64 * quantile).round() as usize;
        latency
            .percentiles_us
            .insert(name.to_owned(), times_us[nth] as f64);
    }
}

/// Settings file of siege. Without a settings file, siege writes one to the home folder.
fn siege_settings() -> &'static str {
    "json_output = true\nverbose = false\nshow-logfile = false\nlogging = false\nparser = false\n\
     limit = 100000\nprotocol = HTTP/1.1\n"
}

/// Upper bound for the requests of a timed run of ab, which reserves memory for each. No measured server
/// reaches the bound.
const AB_REQUESTS_PER_SECOND_MAX: u64 = 200_000;
const AB_PERCENTILES: &str = "ab.csv";
const H2LOAD_LOG: &str = "h2load.log";
const SIEGE_SETTINGS: &str = "siegerc";
