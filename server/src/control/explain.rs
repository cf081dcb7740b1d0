//! `anthill explain`: what the server would do with a request, by the configuration alone. Nothing of the network is asked.

use super::route_text::{
    answer_rule_lines, answer_text, covering_targets, covers, files_text, guard_lines, rule_lines,
    target_text,
};
use crate::build::{self, SharedResources};
use crate::config::{
    Config, ConfigSource, OperatorError, Overrides, RouteConfig, SiteConfig, TargetConfig,
};
use base::clock;
use data_plane::serve::explanation::{ExplainedOutcome, ExplainedRequest, Explanation, explain};
use data_plane::world::own_listener::OwnListener;
use data_plane::world::{Host, Route, RouteAuth};
use std::net::{IpAddr, SocketAddr};
use wire::reject::Reject;
use wire::request_target::valid_host;

/// Request to explain, as the operator describes it.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    /// URL; without a scheme, https is meant.
    pub url: String,
    /// Method.
    pub method: String,
    /// Address of the client.
    pub client: IpAddr,
    /// Field lines, each `Name: value`.
    pub fields: Vec<String>,
}

/// Returns the explanation of a request, as lines of text.
///
/// # Errors
/// A mistake in the configuration, or a request that no client could send.
pub(super) fn explained(
    chosen: &ConfigSource,
    overrides: &Overrides,
    question: &Question,
) -> Result<String, OperatorError> {
    let config = chosen.read(overrides)?;
    let now = clock::unix_seconds_now();
    let resources = SharedResources::in_memory(&config, now)?;
    let world = build::build(&config, &resources, None, now)?;
    let url = AskedUrl::parse(&question.url)?;
    let listener = listener(&config, &url)?;
    let head = head(&url, question)?;
    let request = ExplainedRequest {
        listener: listener.own,
        is_secure: url.is_secure,
        client: question.client,
        head: head.as_bytes(),
    };
    let shown = format!("{} {}", question.method, url.shown());
    let mut lines = Lines::default();
    lines.add("request", &format!("{shown}, from {}", question.client));
    if let Some(note) = listener.note {
        lines.add("", &note);
    }
    match explain(&world, &request) {
        Ok(explanation) => lines.explain(&config, &explanation, question),
        Err(reject) => lines.add("answer", &refusal_text(reject)),
    }
    Ok(config.source.hide_variables(lines.0))
}

/// Returns the routes of each site, one a line, with their targets and guards.
pub(super) fn route_lines(config: &Config) -> Vec<String> {
    let mut lines = Vec::new();
    for site in &config.sites {
        lines.push(format!("{}:", site_name(site)));
        let has_root_target = site
            .routes
            .iter()
            .any(|route| route.target.is_some() && route.path.get_ref() == "/");
        let mut routes: Vec<(&str, String)> = Vec::new();
        if !has_root_target {
            routes.push(("/", files_text(site)));
        }
        for route in &site.routes {
            let mut parts = vec![answer_text(config, site, route)];
            parts.extend(guard_lines(route));
            parts.extend(rule_lines(route));
            parts.extend(answer_rule_lines(route));
            let place = place(config, route.span.clone());
            routes.push((route.path.get_ref(), parts.join("; ") + &place));
        }
        let width = routes.iter().map(|(path, _)| path.chars().count()).max();
        let width = width.unwrap_or(0).min(PATH_COLUMNS);
        lines.extend(
            routes
                .iter()
                .map(|(path, text)| format!("  {path:<width$}  {text}")),
        );
    }
    if config.sites.iter().any(|site| site.routes.len() > 1) {
        lines.push(
            "the order does not matter: of the paths that fit a request, the longest with a target answers, and the guards \
             (allow, deny, users, auth, methods) and rates of all of them hold"
                .to_owned(),
        );
    }
    lines
}

/// Widest column for paths in the list of routes.
const PATH_COLUMNS: usize = 40;
/// Width of the column with the names of the facts.
const NAME_COLUMNS: usize = 9;

/// URL of a request.
#[derive(Debug, PartialEq, Eq)]
struct AskedUrl {
    is_secure: bool,
    host: String,
    port: Option<u16>,
    /// Path and query.
    target: String,
}

impl AskedUrl {
    fn parse(text: &str) -> Result<AskedUrl, OperatorError> {
        let refused = |what: String| {
            OperatorError::new(what).help("write a URL such as https://www.example.org/path")
        };
        let (is_secure, rest) = match text.split_once("://") {
            Some(("https", rest)) => (true, rest),
            Some(("http", rest)) => (false, rest),
            Some((scheme, _)) => {
                return Err(refused(format!(
                    "`{scheme}` is not the scheme of a web page"
                )));
            }
            None => (true, text),
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        if let Some((_, host)) = authority.rsplit_once('@') {
            let what = "a URL with a login is not sent to a server".to_owned();
            let help =
                format!("write `{host}`, and the login as --header 'Authorization: Basic …'");
            return Err(OperatorError::new(what).help(help));
        }
        let Some((host, port)) = valid_host(authority.as_bytes()) else {
            let help = match authority {
                "" => "write the name of the host: https://www.example.org/path",
                _ => "write the host in ASCII, as in https://www.example.org:8443/path",
            };
            return Err(OperatorError::new(format!("`{authority}` is not a host")).help(help));
        };
        if target.contains([' ', '\t', '\r', '\n']) {
            let what = format!("`{target}` has a blank");
            return Err(OperatorError::new(what).help("write %20 in place of each blank"));
        }
        let target = match target.strip_prefix('?') {
            Some(_) => format!("/{target}"),
            None if target.is_empty() => "/".to_owned(),
            None => target.to_owned(),
        };
        Ok(AskedUrl {
            is_secure,
            host: String::from_utf8_lossy(host).into_owned(),
            port,
            target,
        })
    }

    fn scheme(&self) -> &'static str {
        if self.is_secure { "https" } else { "http" }
    }

    /// Returns the host, with the port if it is not that of the scheme.
    fn authority(&self) -> String {
        match self.port {
            Some(port) if port != self.usual_port() => format!("{}:{port}", self.host),
            _ => self.host.clone(),
        }
    }

    fn usual_port(&self) -> u16 {
        if self.is_secure { 443 } else { 80 }
    }

    fn shown(&self) -> String {
        format!("{}://{}{}", self.scheme(), self.authority(), self.target)
    }
}

/// Listener of a request.
struct AskedListener {
    /// Listener of sites with `listen`; None for an address of `[server]`.
    own: Option<OwnListener>,
    /// Remark about the port.
    note: Option<String>,
}

/// Returns the listener that a URL leads to.
fn listener(config: &Config, url: &AskedUrl) -> Result<AskedListener, OperatorError> {
    let of_server = |secure: bool| {
        let server = &config.server;
        let addresses = if secure { &server.https } else { &server.http };
        addresses
            .iter()
            .map(move |it| (it.get_ref().address, secure, false))
    };
    let of_sites = config.sites.iter().flat_map(|site| &site.listen);
    let of_sites = of_sites.map(|it| (it.get_ref().address.address, it.get_ref().secure, true));
    let all: Vec<(SocketAddr, bool, bool)> = of_server(true)
        .chain(of_server(false))
        .chain(of_sites)
        .collect();
    let port = url.port.unwrap_or(url.usual_port());
    let address = url.host.trim_matches(['[', ']']).parse::<IpAddr>().ok();
    let fits = |found: &&(SocketAddr, bool, bool)| {
        let is_here = found.0.ip().is_unspecified() || address.is_none_or(|it| it == found.0.ip());
        found.0.port() == port && is_here
    };
    let found: Vec<_> = all.iter().filter(fits).collect();
    if let Some((at, _, is_own)) = found.iter().find(|it| it.1 == url.is_secure) {
        return Ok(AskedListener {
            own: is_own.then(|| OwnListener::at(*at)),
            note: None,
        });
    }
    if let Some((at, secure, _)) = found.first() {
        let (scheme, other) = if *secure {
            ("https", "http")
        } else {
            ("http", "https")
        };
        let what = format!("the address {at} is for {scheme}, and not for {other}");
        return Err(OperatorError::new(what).help(format!("write {scheme}:// in the URL")));
    }
    // A router or a proxy in front may have the port.
    let is_public = url.port.is_none() || config.server.public_port == url.port;
    let has_public = all.iter().any(|it| it.1 == url.is_secure && !it.2);
    if is_public && has_public {
        let first = all.iter().find(|it| it.1 == url.is_secure && !it.2);
        let at = first.map(|it| it.0.port()).unwrap_or_default();
        return Ok(AskedListener {
            own: None,
            note: (config.server.public_port != Some(port)).then(|| {
                format!("the server has no address with port {port}; explained for port {at}")
            }),
        });
    }
    let ports: Vec<String> = all
        .iter()
        .map(|(at, secure, _)| format!("{}://{at}", if *secure { "https" } else { "http" }))
        .collect();
    let what = format!("no address for {} has port {port}", url.scheme());
    Err(OperatorError::new(what).help(format!("the addresses are {}", ports.join(", "))))
}

/// Returns the head of the request in HTTP/1.1.
fn head(url: &AskedUrl, question: &Question) -> Result<String, OperatorError> {
    let method = &question.method;
    let is_token = !method.is_empty()
        && method
            .bytes()
            .all(|it| it.is_ascii_alphanumeric() || it == b'-');
    if !is_token {
        let what = format!("`{}` is not a method", method.escape_debug());
        return Err(OperatorError::new(what).help("write a method such as GET or POST"));
    }
    let mut head = format!("{method} {} HTTP/1.1\r\n", url.target);
    let names: Vec<String> = question
        .fields
        .iter()
        .filter_map(|field| field.split_once(':'))
        .map(|(name, _)| name.trim().to_ascii_lowercase())
        .collect();
    if !names.iter().any(|name| name == "host") {
        head.push_str(&format!("Host: {}\r\n", url.authority()));
    }
    for field in &question.fields {
        let is_line = field
            .split_once(':')
            .is_some_and(|(name, _)| !name.trim().is_empty());
        if !is_line || field.contains(['\r', '\n']) {
            let what = format!("`{}` is not a field of a request", field.escape_debug());
            return Err(OperatorError::new(what).help("write --header 'Name: value'"));
        }
        head.push_str(field);
        head.push_str("\r\n");
    }
    let has_content = matches!(method.as_str(), "POST" | "PUT" | "PATCH");
    if has_content
        && !names
            .iter()
            .any(|name| name == "content-length" || name == "transfer-encoding")
    {
        head.push_str("Content-Length: 0\r\n");
    }
    head.push_str("\r\n");
    Ok(head)
}

/// Lines of an explanation.
#[derive(Default)]
struct Lines(String);

impl Lines {
    fn add(&mut self, name: &str, text: &str) {
        let line = format!("{name:<NAME_COLUMNS$}{text}");
        self.0.push_str(line.trim_end());
        self.0.push('\n');
    }

    /// Adds lines with one name.
    fn add_all<'l>(&mut self, name: &str, lines: impl Iterator<Item = &'l str>) {
        let mut name = name;
        for text in lines.filter(|text| !text.is_empty()) {
            self.add(name, text);
            name = "";
        }
    }

    fn explain(&mut self, config: &Config, explanation: &Explanation<'_>, question: &Question) {
        let Some(host) = explanation.host else {
            let known: Vec<String> = config.sites.iter().map(site_name).collect();
            self.add("site", "none has the name");
            self.add("", &format!("the sites are {}", known.join(", ")));
            self.answer(config, explanation, None);
            return;
        };
        let site = config.sites.iter().find(|site| *site.name == *host.name);
        self.add("site", &site_text(config, host, site));
        let route = explanation.route;
        let shown = match route.and_then(|route| route_config(site?, route, true)) {
            Some(found) => format!(
                "{}{}",
                found.path.get_ref(),
                place(config, found.span.clone())
            ),
            None => match host.site {
                Some(_) => "none; the files of the site answer".to_owned(),
                None => "none".to_owned(),
            },
        };
        self.add("route", &shown);
        let fitting = site
            .iter()
            .flat_map(|site| covering_targets(site, &explanation.path));
        let shorter: Vec<&str> = fitting
            .skip(1)
            .map(|it| it.path.get_ref().as_str())
            .collect();
        if route.is_some() && !shorter.is_empty() {
            let verb = if shorter.len() == 1 { "fits" } else { "fit" };
            let text = format!(
                "the longest path with a target answers; {} {verb} too",
                shorter.join(", ")
            );
            self.add("", &text);
        }
        for guard in &explanation.guards {
            let text = guard_text(config, guard, explanation, site, question);
            self.add("guard", &text);
        }
        let covering = site.iter().flat_map(|site| &site.routes);
        let covering = covering.filter(|route| covers(route, &explanation.path));
        let answering = route.and_then(|route| route_config(site?, route, true));
        for found in covering {
            let mut rules = rule_lines(found);
            // The page cache of a route, and its keys about files, hold for what the route answers.
            let is_answering = answering.is_some_and(|it| it.path == found.path);
            let sends_files = answering.is_none_or(|it| {
                matches!(it.target, Some(TargetConfig::Root(_))) || it.files_first
            });
            if is_answering || found.target.is_none() && sends_files {
                rules.extend(answer_rule_lines(found));
                let paths = found.files.try_paths.as_ref();
                rules.extend(paths.map(|paths| format!("try {}", paths.join(", "))));
            }
            for rule in rules {
                self.add("rule", &format!("{}: {rule}", found.path.get_ref()));
            }
        }
        self.answer(config, explanation, site);
    }

    fn answer(
        &mut self,
        config: &Config,
        explanation: &Explanation<'_>,
        site: Option<&SiteConfig>,
    ) {
        if let Some(reject) = explanation.refusal {
            self.add("answer", &refusal_text(reject));
        }
        match &explanation.outcome {
            ExplainedOutcome::Response {
                head,
                file,
                is_listing,
            } => {
                let head = String::from_utf8_lossy(head);
                let location = head
                    .lines()
                    .find_map(|line| line.strip_prefix("Location: "));
                match (file, location) {
                    (Some(file), _) => self.add("answer", &format!("the file {}", file.display())),
                    (None, Some(location)) => {
                        self.add("answer", &format!("a redirect to {location}"));
                    }
                    (None, None) if *is_listing => self.add("answer", "the list of the folder"),
                    (None, None) => {}
                }
                self.0.push('\n');
                for line in head.lines() {
                    self.0.push_str(line);
                    self.0.push('\n');
                }
            }
            ExplainedOutcome::Handler {
                route,
                rewritten,
                script,
                plan,
            } => {
                if let Some(reject) = plan.refusal {
                    self.add("answer", &refusal_text(reject));
                }
                if let Some(path) = rewritten {
                    self.add("rewrite", &String::from_utf8_lossy(path));
                }
                let found = match (route, script) {
                    (Some(route), _) => site.and_then(|site| route_config(site, route, true)),
                    (None, Some(script)) => site.and_then(|site| script_route(site, script)),
                    (None, None) => None,
                };
                let target = found.and_then(|route| target_text(config, route));
                let target = target.unwrap_or_else(|| "a handler".to_owned());
                let script = script
                    .as_ref()
                    .map(|script| format!(", with the script {}", String::from_utf8_lossy(script)));
                self.add("answer", &(target + &script.unwrap_or_default()));
                if let Some(TargetConfig::Proxy(_)) = found.and_then(|it| it.target.as_ref()) {
                    self.add("members", "`anthill balancer` has the state of the members");
                }
                for (name, text) in &plan.lines {
                    self.add(name, text);
                }
                self.add_all("adds", String::from_utf8_lossy(&plan.fields).lines());
            }
        }
    }
}

fn refusal_text(reject: Reject) -> String {
    let (status, rule, reason) = (reject.status.0, reject.rule, reject.reason);
    format!("{status}, rule R{rule}: {reason} (anthill help R{rule})")
}

fn site_text(config: &Config, host: &Host, site: Option<&SiteConfig>) -> String {
    let preview = if host.preview.is_some() {
        ", a preview"
    } else {
        ""
    };
    match site {
        Some(site) => format!(
            "{}{preview}{}",
            site_name(site),
            place(config, site.span.clone())
        ),
        None => format!("{}{preview}", host.name),
    }
}

/// Returns the name of a site in words.
fn site_name(site: &SiteConfig) -> String {
    if site.name == "*" {
        "any name".to_owned()
    } else {
        site.name.clone()
    }
}

/// Returns the place of a table in the file, in brackets.
fn place(config: &Config, span: std::ops::Range<usize>) -> String {
    match (&config.path, span.is_empty()) {
        (Some(_), false) => format!("  ({})", config.source.location(span.start)),
        _ => String::new(),
    }
}

/// Returns the table of a route, with a target if `has_target`.
fn route_config<'c>(
    site: &'c SiteConfig,
    route: &Route,
    has_target: bool,
) -> Option<&'c RouteConfig> {
    let mut routes = site.routes.iter();
    routes.find(|it| {
        it.path.get_ref().trim_end_matches('/').as_bytes() == &*route.prefix
            && (!has_target || it.target.is_some())
    })
}

/// Returns the route that runs a script of the site.
fn script_route<'c>(site: &'c SiteConfig, script: &[u8]) -> Option<&'c RouteConfig> {
    let routes = site.routes.iter().filter(|route| route.scripts.is_some());
    let routes = routes.filter(|route| covers(route, script));
    routes.max_by_key(|route| route.path.get_ref().len())
}

fn guard_text(
    config: &Config,
    guard: &data_plane::serve::explanation::ExplainedGuard<'_>,
    explanation: &Explanation<'_>,
    site: Option<&SiteConfig>,
    question: &Question,
) -> String {
    let found = site.and_then(|site| {
        let mut routes = site.routes.iter();
        routes.find(|it| {
            let prefix = it.path.get_ref().trim_end_matches('/').as_bytes();
            prefix == &*guard.route.prefix && !guard_lines(it).is_empty()
        })
    });
    let path = found.map_or("/", |route| route.path.get_ref());
    let rules = found.map(guard_lines).unwrap_or_default().join("; ");
    let client = question.client;
    let verdict = if guard.refuses_address {
        format!("refuses {client}")
    } else if guard.refuses_method {
        format!("refuses {}", question.method)
    } else if !guard.is_for_method {
        format!("does not concern {}", question.method)
    } else if guard.route.admits_without_login(client) {
        format!("admits {client} without a login")
    } else if let RouteAuth::By(_) = guard.route.auth
        && !guard.is_auth_off
    {
        "the server decides about the request".to_owned()
    } else if guard.route.users.is_some() {
        match (&explanation.user, explanation.refusal) {
            (Some(user), _) => format!("admits the user {user}"),
            (None, Some(reject)) if reject == Reject::LOGIN_WRONG => "refuses the login".to_owned(),
            _ => "needs a login".to_owned(),
        }
    } else if guard.is_auth_off {
        format!("turned off by `auth = false`: admits {client}")
    } else {
        format!("admits {client}")
    };
    let place = found.map_or_else(String::new, |route| place(config, route.span.clone()));
    format!("{path}: {rules}: {verdict}{place}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> AskedUrl {
        AskedUrl::parse(text).unwrap()
    }

    #[test]
    fn urls_are_read_as_browsers_read_them() {
        let table = [
            ("https://a.test/x?y#z", "https://a.test/x?y"),
            ("a.test", "https://a.test/"),
            ("http://a.test:80?q", "http://a.test/?q"),
            ("https://[::1]:8443/", "https://[::1]:8443/"),
        ];
        for (text, shown) in table {
            assert_eq!(url(text).shown(), shown, "{text}");
        }
        for text in [
            "",
            "ftp://a.test/",
            "https:///x",
            "https://a b/",
            "https://a.test/a b",
            "https://u:p@a.test/",
        ] {
            assert!(AskedUrl::parse(text).is_err(), "{text}");
        }
    }
}
