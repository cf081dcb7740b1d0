//! Status of the server: one plain struct, rendered as JSON. `overview` has the text of `anthill status`.

use crate::admin::backends;
use crate::admin::json_text::{joined, or_null};
use crate::admin::limits::STATUS_ROWS_MAX;
use crate::admin::text_table::duration;
use base::clock::format_utc;
use base::restarts::Restarts;
use data_plane::cache::CacheSummary;
use data_plane::upstream::BackendReport;
use std::fmt::Write;
use std::net::SocketAddr;
use wire::json::quoted;

/// State of a running server at one moment.
#[derive(Clone, Debug)]
pub struct Status {
    /// Version of the program.
    pub version: &'static str,
    /// Process id.
    pub pid: u32,
    /// Unix time of the status, seconds.
    pub now: u64,
    /// Seconds since the start.
    pub up_seconds: u64,
    /// Earlier servers that still have connections, the oldest first.
    pub predecessors: Vec<PredecessorStatus>,
    /// Restarts by the supervisor; None for a server without a supervisor.
    pub restarts: Option<Restarts>,
    /// Number of the configuration.
    pub generation: u64,
    /// Name of the configuration file, as typed by the operator.
    pub configuration: String,
    /// Worker threads.
    pub workers: usize,
    /// Workers that answer nothing, by index, with the seconds since the question.
    pub silent_workers: Vec<(usize, u64)>,
    /// Bound addresses of the sites.
    pub listening: Vec<StatusAddress>,
    /// Bound addresses of the manager.
    pub manager: Vec<StatusAddress>,
    /// Open connections.
    pub connections: u64,
    /// Counters of the workers by name.
    pub counters: Vec<(&'static str, u64)>,
    /// Bytes of contents in memory.
    pub content_bytes: usize,
    /// Limit of `content_bytes`.
    pub content_bytes_max: usize,
    /// Bytes of bodies under way in the memory ledger.
    pub body_bytes: usize,
    /// Limit of `body_bytes`.
    pub body_bytes_max: usize,
    /// The page cache.
    pub pages: CacheSummary,
    /// Dropped log lines.
    pub log_lines_lost: u64,
    /// Datagrams lost on the sockets of HTTP/3.
    pub datagrams_lost: u64,
    /// Refused requests by shared limit: the client had already used its share of the limit.
    pub shares: Vec<(&'static str, u64)>,
    /// Certificates.
    pub certificates: Vec<CertificateStatus>,
    /// True if another server on the same state folder renews the certificates.
    pub renewed_elsewhere: bool,
    /// Deployments.
    pub deployments: Vec<DeploymentStatus>,
    /// Releases of the sites with `release`.
    pub releases: Vec<ReleaseStatus>,
    /// Edits of balancers and members that differ from the configuration.
    pub edits_in_force: usize,
    /// Reason why edits are refused or cannot be stored.
    pub edits_fault: Option<String>,
    /// FastCGI and SCGI backends.
    pub backends: Vec<BackendReport>,
    /// Backends of scripts that the last connection did not reach, each with the reason.
    pub unreachable_backends: Vec<String>,
    /// Refused releases, refused configuration and refused files, each with the reason. The former content stays in
    /// force.
    pub refusals: Vec<String>,
    /// Names without a managed certificate, each with the reason.
    pub unmanaged_names: Vec<(String, &'static str)>,
    /// Backups and exports that the sites send, by their names.
    pub doubtful_files: Vec<DoubtfulFilesStatus>,
}

/// Earlier server that still has connections.
#[derive(Clone, Debug)]
pub struct PredecessorStatus {
    /// Process id.
    pub pid: u32,
    /// Version of the program.
    pub version: String,
    /// Open connections.
    pub connections: u64,
    /// Requests under way.
    pub requests: u64,
}

/// Backups and exports that a site sends, by their names.
#[derive(Clone, Debug)]
pub struct DoubtfulFilesStatus {
    /// Name of the site.
    pub site: String,
    /// Number of the files.
    pub count: u32,
    /// Path of the first file.
    pub first: String,
    /// The condition and its remedy in words.
    pub text: String,
}

/// A certificate of a site.
#[derive(Clone, Debug)]
pub struct CertificateStatus {
    /// Names of the site.
    pub names: Vec<String>,
    /// Names of the site that the operator's certificate does not cover.
    pub missing_names: Vec<String>,
    /// Whole days until the certificate expires; negative after the end.
    pub days_left: i64,
    /// Unix time of the end of the certificate, seconds.
    pub not_after: u64,
    /// True if the site has no certificate file.
    pub is_self_signed: bool,
    /// True if the self-signed certificate serves only until the first certificate is issued.
    pub awaits_certificate: bool,
    /// The renewal, for a managed certificate.
    pub renewal: Option<RenewalStatus>,
}

/// Renewal of a managed certificate.
#[derive(Clone, Debug)]
pub struct RenewalStatus {
    /// Unix time of the next attempt, seconds.
    pub next: u64,
    /// Unix time and reason of the last failure, if no attempt has succeeded since.
    pub failure: Option<(u64, String)>,
}

/// A deployment of a branch to a site.
#[derive(Clone, Debug)]
pub struct DeploymentStatus {
    /// Name of the site.
    pub site: String,
    /// Repository as the configuration names it.
    pub repository: String,
    /// Name of the branch.
    pub branch: String,
    /// False if the repository has no such branch.
    pub has_branch: bool,
    /// True while an attempt is under way.
    pub is_running: bool,
    /// The deployed commit.
    pub deployed: Option<DeployedCommit>,
    /// Unix time and reason of the last failure, if no attempt has succeeded since.
    pub failure: Option<(u64, String)>,
}

/// A deployed commit.
#[derive(Clone, Debug)]
pub struct DeployedCommit {
    /// Full id.
    pub id: String,
    /// Abbreviated id for a terminal.
    pub short_id: String,
    /// Unix time of the deployment, seconds.
    pub since: u64,
}

/// The release of a site.
#[derive(Clone, Debug)]
pub struct ReleaseStatus {
    /// Name of the site in the store.
    pub site: String,
    /// Full id of the last release, and the sequence of its publication; None before the first release.
    pub release: Option<(String, u64)>,
    /// True if the last release is withdrawn, so that the site answers 503.
    pub is_withdrawn: bool,
    /// Whether the site serves its folder until the first release.
    pub serves_folder: bool,
    /// Unix time since which the release is served, or the site answers 503, seconds.
    pub since: u64,
    /// Reason why the published release is not served.
    pub refusal: Option<String>,
}

/// Bound address of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusAddress {
    /// The address.
    pub address: SocketAddr,
    /// True for HTTPS.
    pub is_secure: bool,
    /// Names of the sites with the address in `listen`; empty for an address of `[server]`.
    pub sites: Vec<String>,
}

impl StatusAddress {
    /// Makes an address of `[server]` or of the manager.
    pub fn new(address: SocketAddr, is_secure: bool) -> StatusAddress {
        StatusAddress {
            address,
            is_secure,
            sites: Vec::new(),
        }
    }
}

impl Status {
    /// Returns a counter of the workers by its name; 0 for an unknown name.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        let mut counters = self.counters.iter();
        counters.find(|it| it.0 == name).map_or(0, |it| it.1)
    }

    /// Returns the open connections of HTTP/1.1, HTTP/2 and HTTP/3. A connection without a request yet counts as
    /// HTTP/1.1.
    pub(crate) fn connections_by_version(&self) -> [u64; 3] {
        let open = |opened, closed| self.counter(opened).saturating_sub(self.counter(closed));
        let h2 = open("h2_connections", "h2_connections_closed");
        let h3 = open("h3_connections", "h3_connections_closed");
        [self.connections.saturating_sub(h2 + h3), h2, h3]
    }

    /// Returns the line with the program, the process and the configuration.
    pub(super) fn heading(&self) -> String {
        format!(
            "anthill {}, process {}, up {}, configuration {} ({})\n",
            self.version,
            self.pid,
            duration(self.up_seconds),
            self.generation,
            self.configuration
        )
    }

    /// Appends the addresses, the certificates, the deployments and the releases as lines for a terminal.
    pub(super) fn write_parts(&self, out: &mut String) {
        for (addresses, audience) in [(&self.listening, ""), (&self.manager, " (manager)")] {
            for address in addresses {
                let scheme = if address.is_secure { "https" } else { "http " };
                let _ = write!(out, "  {scheme} {}{audience}", address.address);
                if !address.sites.is_empty() {
                    let _ = write!(out, " (site {})", address.sites.join(", "));
                }
                out.push('\n');
            }
        }
        for it in &self.predecessors {
            let _ = writeln!(
                out,
                "process {} ({}) leaves: {} connections, {} requests under way",
                it.pid, it.version, it.connections, it.requests
            );
        }
        // The certificates that end first come first.
        let mut certificates: Vec<_> = self.certificates.iter().collect();
        certificates.sort_by_key(|certificate| certificate.days_left);
        for certificate in certificates.iter().take(STATUS_ROWS_MAX) {
            certificate.write_text(out, self.now);
        }
        if let Some(next) = certificates.get(STATUS_ROWS_MAX) {
            let more = certificates.len() - STATUS_ROWS_MAX;
            let _ = writeln!(
                out,
                "and {more} more certificates with at least {} days left: `anthill status --json`",
                next.days_left
            );
        }
        if self.renewed_elsewhere {
            out.push_str("certificates are renewed by another server on this state folder\n");
        }
        for deployment in &self.deployments {
            deployment.write_text(out);
        }
        for release in &self.releases {
            release.write_text(out);
        }
    }

    /// Returns the lines of the counters and of memory, without the counters that are 0.
    pub(super) fn counter_lines(&self) -> String {
        let mut out = String::new();
        let mut line = |name: &str, value: &dyn std::fmt::Display| {
            let _ = writeln!(out, "  {:<24} {value}", name.replace('_', " "));
        };
        line("connections", &self.connections);
        let counters = self.counters.iter().chain(&self.shares).copied();
        let more = [
            ("kept pages", self.pages.pages as u64),
            ("cache calls", self.pages.calls),
            ("cache waits", self.pages.collapsed),
            ("log lines lost", self.log_lines_lost),
            ("datagrams lost", self.datagrams_lost),
            ("edits in force", self.edits_in_force as u64),
        ];
        for (name, value) in counters.chain(more).filter(|it| it.1 > 0) {
            line(name, &value);
        }
        let part = |part: usize, whole: usize| format!("{part} of {whole}");
        for (name, bytes, bytes_max) in [
            ("content bytes", self.content_bytes, self.content_bytes_max),
            ("body bytes", self.body_bytes, self.body_bytes_max),
            ("kept page bytes", self.pages.bytes, self.pages.bytes_max),
        ] {
            line(name, &part(bytes, bytes_max));
        }
        out
    }

    /// Renders the status as one JSON object and a line feed.
    pub(crate) fn json(&self) -> String {
        let mut out = format!(
            "{{\"version\":{},\"pid\":{},\"predecessors\":[{}],\"up_seconds\":{},\"restarts\":{},\"generation\":{},\"configuration\":{},\"workers\":{},\"silent_workers\":[{}],",
            quoted(self.version),
            self.pid,
            joined(self.predecessors.iter().map(predecessor_json)),
            self.up_seconds,
            or_null(self.restarts.as_ref().map(restarts_json)),
            self.generation,
            quoted(&self.configuration),
            self.workers,
            joined(self.silent_workers.iter().map(silent_worker_json)),
        );
        let addresses = |list: &[StatusAddress]| {
            joined(list.iter().map(|listener| {
                let address = quoted(&listener.address.to_string());
                let sites = listener.sites.iter();
                let sites = if listener.sites.is_empty() {
                    String::new()
                } else {
                    format!(",\"sites\":[{}]", joined(sites.map(|site| quoted(site))))
                };
                format!(
                    "{{\"address\":{address},\"tls\":{}{sites}}}",
                    listener.is_secure
                )
            }))
        };
        let _ = write!(
            out,
            "\"listening\":[{}],\"manager\":[{}],\"connections\":{},\"counters\":{{{}}},",
            addresses(&self.listening),
            addresses(&self.manager),
            self.connections,
            numbers(&self.counters)
        );
        let _ = write!(
            out,
            "\"content_bytes\":{},\"content_bytes_max\":{},\"log_lines_lost\":{},\"datagrams_lost\":{},",
            self.content_bytes, self.content_bytes_max, self.log_lines_lost, self.datagrams_lost
        );
        let _ = write!(
            out,
            "\"body_bytes\":{},\"body_bytes_max\":{},",
            self.body_bytes, self.body_bytes_max
        );
        let pages = &self.pages;
        let _ = write!(
            out,
            "\"kept_pages\":{},\"kept_page_bytes\":{},\"kept_page_bytes_max\":{},\"cache_calls\":{},\"cache_waits\":{},",
            pages.pages, pages.bytes, pages.bytes_max, pages.calls, pages.collapsed
        );
        let _ = write!(
            out,
            "\"edits\":{{\"in_force\":{},\"fault\":{}}},\"refusals\":[{}],\"unreachable_backends\":[{}],",
            self.edits_in_force,
            or_null(self.edits_fault.as_deref().map(quoted)),
            joined(self.refusals.iter().map(|it| quoted(it))),
            joined(self.unreachable_backends.iter().map(|it| quoted(it)))
        );
        let _ = write!(out, "\"backends\":[{}],", backends::json(&self.backends));
        let _ = writeln!(
            out,
            "\"doubtful_files\":[{}],\"shares\":{{{}}},\"certificates\":[{}],\"deployments\":[{}],\"releases\":[{}]}}",
            joined(self.doubtful_files.iter().map(DoubtfulFilesStatus::json)),
            numbers(&self.shares),
            joined(self.certificates.iter().map(CertificateStatus::json)),
            joined(self.deployments.iter().map(DeploymentStatus::json)),
            joined(self.releases.iter().map(ReleaseStatus::json))
        );
        out
    }
}

fn predecessor_json(predecessor: &PredecessorStatus) -> String {
    let version = quoted(&predecessor.version);
    format!(
        "{{\"pid\":{},\"version\":{version},\"connections\":{},\"requests\":{}}}",
        predecessor.pid, predecessor.connections, predecessor.requests
    )
}

fn restarts_json(restarts: &Restarts) -> String {
    let reason = quoted(&restarts.reason);
    format!("{{\"count\":{},\"reason\":{reason}}}", restarts.count)
}

fn silent_worker_json((index, seconds): &(usize, u64)) -> String {
    format!("{{\"worker\":{index},\"seconds\":{seconds}}}")
}

impl DoubtfulFilesStatus {
    fn json(&self) -> String {
        let (site, first) = (quoted(&self.site), quoted(&self.first));
        format!(
            "{{\"site\":{site},\"count\":{},\"first\":{first}}}",
            self.count
        )
    }
}

impl CertificateStatus {
    fn write_text(&self, out: &mut String, now: u64) {
        let names = self.names.join(", ");
        let _ = if self.awaits_certificate {
            write!(
                out,
                "certificate for {names}: none yet, a self-signed certificate is served"
            )
        } else {
            write!(out, "certificate for {names}: {} days left", self.days_left)
        };
        let Some(renewal) = &self.renewal else {
            out.push_str(if self.is_self_signed {
                ", self-signed\n"
            } else {
                "\n"
            });
            return;
        };
        let verb = match (renewal.next <= now, self.awaits_certificate) {
            (true, _) => "requested now".to_owned(),
            (false, true) => format!("next request at {}", format_utc(renewal.next)),
            (false, false) => format!("renewal at {}", format_utc(renewal.next)),
        };
        let _ = writeln!(out, ", {verb}");
        if let Some((at, failure)) = &renewal.failure {
            let _ = writeln!(out, "  failed at {}: {failure}", format_utc(*at));
        }
    }

    fn json(&self) -> String {
        let names = self.names.iter().map(|name| quoted(name));
        let mut out = format!(
            "{{\"names\":[{}],\"days_left\":{},\"self_signed\":{}",
            joined(names),
            self.days_left,
            self.is_self_signed || self.awaits_certificate
        );
        if let Some(renewal) = &self.renewal {
            let (at, failure) = failure_json(&renewal.failure);
            let _ = write!(
                out,
                ",\"acme\":{{\"next\":{},\"failed_at\":{at},\"failure\":{failure}}}",
                renewal.next
            );
        }
        out.push('}');
        out
    }
}

impl DeploymentStatus {
    fn write_text(&self, out: &mut String) {
        let (site, branch, repository) = (&self.site, &self.branch, &self.repository);
        let _ = write!(out, "{site} is {branch} of {repository}: ");
        let _ = match &self.deployed {
            Some(deployed) => {
                let since = format_utc(deployed.since);
                write!(out, "{} since {since}", deployed.short_id)
            }
            None => write!(out, "nothing is deployed"),
        };
        if !self.has_branch {
            out.push_str(", the branch does not exist");
        }
        if self.is_running {
            out.push_str(", deployment under way");
        }
        out.push('\n');
        if let Some((at, why)) = &self.failure {
            let _ = writeln!(out, "  failed at {}: {why}", format_utc(*at));
        }
    }

    fn json(&self) -> String {
        let deployed = self.deployed.as_ref();
        let (at, failure) = failure_json(&self.failure);
        format!(
            "{{\"site\":{},\"repository\":{},\"branch\":{},\"has_branch\":{},\"commit\":{},\
             \"deployed_at\":{},\"failed_at\":{at},\"failure\":{failure}}}",
            quoted(&self.site),
            quoted(&self.repository),
            quoted(&self.branch),
            self.has_branch,
            or_null(deployed.map(|it| quoted(&it.id))),
            or_null(deployed.map(|it| it.since.to_string())),
        )
    }
}

impl ReleaseStatus {
    fn write_text(&self, out: &mut String) {
        let (site, since) = (&self.site, format_utc(self.since));
        let _ = match &self.release {
            None if self.serves_folder => {
                writeln!(
                    out,
                    "{site} has no release, and serves its folder until the first one"
                )
            }
            None => writeln!(out, "{site} has no release, and answers 503 since {since}"),
            Some((id, sequence)) => {
                let verb = if self.is_withdrawn {
                    "withdrawn"
                } else {
                    "served"
                };
                let id = &id[..RELEASE_DIGITS];
                writeln!(
                    out,
                    "release {id} of {site}, sequence {sequence}: {verb} since {since}"
                )
            }
        };
    }

    fn json(&self) -> String {
        let release = self.release.as_ref();
        format!(
            "{{\"site\":{},\"release\":{},\"sequence\":{},\"withdrawn\":{},\"since\":{},\"refusal\":{},\
             \"serves_folder\":{}}}",
            quoted(&self.site),
            or_null(release.map(|(id, _)| quoted(id))),
            or_null(release.map(|(_, sequence)| sequence.to_string())),
            self.is_withdrawn,
            self.since,
            or_null(self.refusal.as_deref().map(quoted)),
            self.serves_folder,
        )
    }
}

/// Hexadecimal digits of a release in texts, enough to be unique in a store.
const RELEASE_DIGITS: usize = 12;

/// Returns the Unix time and the reason of a failure as JSON values.
fn failure_json(failure: &Option<(u64, String)>) -> (String, String) {
    let failure = failure.as_ref();
    (
        or_null(failure.map(|(at, _)| at.to_string())),
        or_null(failure.map(|(_, why)| quoted(why))),
    )
}

/// Renders names and numbers as the members of a JSON object.
fn numbers(numbers: &[(&'static str, u64)]) -> String {
    let member = |(name, value): &(&'static str, u64)| format!("{}:{value}", quoted(name));
    joined(numbers.iter().map(member))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn example() -> Status {
        let certificate = CertificateStatus {
            names: vec!["a.org".into(), "b.org".into()],
            missing_names: Vec::new(),
            days_left: 42,
            not_after: 3_636_000,
            is_self_signed: false,
            awaits_certificate: false,
            renewal: Some(RenewalStatus {
                next: 86_400,
                failure: None,
            }),
        };
        let deployment = DeploymentStatus {
            site: "a.org".into(),
            repository: "site.git".into(),
            branch: "main".into(),
            has_branch: true,
            is_running: false,
            deployed: Some(DeployedCommit {
                id: "0123456789abcdef".into(),
                short_id: "0123456".into(),
                since: 3_600,
            }),
            failure: None,
        };
        Status {
            version: "1.2.3",
            pid: 17,
            now: 7_200,
            up_seconds: 93_784,
            predecessors: vec![PredecessorStatus {
                pid: 16,
                version: "1.2.2".into(),
                connections: 14,
                requests: 3,
            }],
            restarts: Some(Restarts {
                count: 2,
                reason: "signal 9 (SIGKILL)".into(),
            }),
            generation: 3,
            configuration: "anthill.toml".into(),
            workers: 2,
            silent_workers: vec![(1, 25)],
            listening: vec![
                StatusAddress::new("127.0.0.1:443".parse().unwrap(), true),
                StatusAddress::new("[::]:80".parse().unwrap(), false),
                StatusAddress {
                    sites: vec![":8001".to_owned(), "a.test:8001".to_owned()],
                    ..StatusAddress::new("[::]:8001".parse().unwrap(), true)
                },
            ],
            manager: vec![StatusAddress::new("127.0.0.1:8800".parse().unwrap(), false)],
            connections: 5,
            counters: vec![("requests", 6), ("bytes_sent", 7)],
            content_bytes: 8,
            content_bytes_max: 9,
            body_bytes: 19,
            body_bytes_max: 20,
            pages: CacheSummary {
                pages: 10,
                bytes: 11,
                bytes_max: 12,
                calls: 13,
                collapsed: 14,
            },
            log_lines_lost: 15,
            datagrams_lost: 16,
            shares: vec![("refused_calls", 18)],
            certificates: vec![
                certificate.clone(),
                CertificateStatus {
                    renewal: Some(RenewalStatus {
                        next: 7_200,
                        failure: Some((60, "the \"order\" failed".into())),
                    }),
                    ..certificate.clone()
                },
                CertificateStatus {
                    awaits_certificate: true,
                    ..certificate.clone()
                },
                CertificateStatus {
                    days_left: -1,
                    is_self_signed: true,
                    renewal: None,
                    ..certificate.clone()
                },
                CertificateStatus {
                    renewal: None,
                    missing_names: vec!["b.org".into()],
                    ..certificate
                },
            ],
            renewed_elsewhere: true,
            deployments: vec![
                deployment.clone(),
                DeploymentStatus {
                    has_branch: false,
                    is_running: true,
                    deployed: None,
                    failure: Some((120, "no \"tree\"".into())),
                    ..deployment
                },
            ],
            releases: vec![
                ReleaseStatus {
                    site: "www".into(),
                    release: Some(("ab".repeat(32), 42)),
                    is_withdrawn: false,
                    serves_folder: false,
                    since: 3_600,
                    refusal: Some("the \"pointer\" is wrong".into()),
                },
                ReleaseStatus {
                    site: "shop".into(),
                    release: Some(("cd".repeat(32), 7)),
                    is_withdrawn: true,
                    serves_folder: false,
                    since: 60,
                    refusal: None,
                },
                ReleaseStatus {
                    site: "new".into(),
                    release: None,
                    is_withdrawn: false,
                    serves_folder: false,
                    since: 120,
                    refusal: None,
                },
            ],
            edits_in_force: 0,
            edits_fault: None,
            backends: Vec::new(),
            unreachable_backends: Vec::new(),
            refusals: Vec::new(),
            unmanaged_names: vec![("*".into(), "a certificate cannot name every host")],
            doubtful_files: vec![DoubtfulFilesStatus {
                site: "a.org".into(),
                count: 2,
                first: "/srv/www/dump.sql".into(),
                text: "a.org sends 2 files".into(),
            }],
        }
    }

    #[test]
    fn json_is_one_object() {
        let certificate = r#"{"names":["a.org","b.org"],"days_left":42,"self_signed":"#;
        let deployment = r#"{"site":"a.org","repository":"site.git","branch":"main","#;
        let expected = [
            r#"{"version":"1.2.3","pid":17,"predecessors":[{"pid":16,"version":"1.2.2","connections":14,"requests":3}],"up_seconds":93784,"restarts":{"count":2,"reason":"signal 9 (SIGKILL)"},"generation":3,"#,
            r#""configuration":"anthill.toml","workers":2,"silent_workers":[{"worker":1,"seconds":25}],"#,
            r#""listening":[{"address":"127.0.0.1:443","tls":true},"#,
            r#"{"address":"[::]:80","tls":false},"#,
            r#"{"address":"[::]:8001","tls":true,"sites":[":8001","a.test:8001"]}],"#,
            r#""manager":[{"address":"127.0.0.1:8800","tls":false}],"#,
            r#""connections":5,"counters":{"requests":6,"bytes_sent":7},"#,
            r#""content_bytes":8,"content_bytes_max":9,"log_lines_lost":15,"datagrams_lost":16,"#,
            r#""body_bytes":19,"body_bytes_max":20,"#,
            r#""kept_pages":10,"kept_page_bytes":11,"kept_page_bytes_max":12,"#,
            r#""cache_calls":13,"cache_waits":14,"edits":{"in_force":0,"fault":null},"refusals":[],"unreachable_backends":[],"backends":[],"doubtful_files":[{"site":"a.org","count":2,"first":"/srv/www/dump.sql"}],"shares":{"refused_calls":18},"#,
            r#""certificates":["#,
            certificate,
            r#"false,"acme":{"next":86400,"failed_at":null,"failure":null}},"#,
            certificate,
            r#"false,"acme":{"next":7200,"failed_at":60,"failure":"the \"order\" failed"}},"#,
            certificate,
            r#"true,"acme":{"next":86400,"failed_at":null,"failure":null}},"#,
            r#"{"names":["a.org","b.org"],"days_left":-1,"self_signed":true},"#,
            certificate,
            r#"false}],"deployments":["#,
            deployment,
            r#""has_branch":true,"commit":"0123456789abcdef","deployed_at":3600,"#,
            r#""failed_at":null,"failure":null},"#,
            deployment,
            r#""has_branch":false,"commit":null,"deployed_at":null,"#,
            r#""failed_at":120,"failure":"no \"tree\""}],"releases":["#,
            r#"{"site":"www","release":""#,
            &"ab".repeat(32),
            r#"","sequence":42,"withdrawn":false,"since":3600,"refusal":"the \"pointer\" is wrong","serves_folder":false},"#,
            r#"{"site":"shop","release":""#,
            &"cd".repeat(32),
            r#"","sequence":7,"withdrawn":true,"since":60,"refusal":null,"serves_folder":false},"#,
            r#"{"site":"new","release":null,"sequence":null,"withdrawn":false,"since":120,"refusal":null,"serves_folder":false}]}"#,
            "\n",
        ];
        assert_eq!(example().json(), expected.concat());
    }

    #[test]
    fn durations_have_two_units() {
        for (seconds, text) in [
            (59, "59 s"),
            (61, "1 min 1 s"),
            (3_600, "1 h 0 min"),
            (90_000, "1 d 1 h"),
        ] {
            assert_eq!(duration(seconds), text);
        }
    }
}
