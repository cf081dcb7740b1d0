//! Balancer of anthill.toml with the operator's edits: plain values, the settings for the core, and the text
//! for anthill.toml. Pure.

use crate::admin::value_text::{duration_text, weight_text};
use crate::config::{OperatorError, read_balancer, shown_url};
use balancer::BalancerReport;
use balancer::settings::{
    AdminState, BalancerSettings, BalancingMethod, CheckKind, CheckSettings, MemberCheck,
    MemberRole, MemberSettings, MemberUrl, RetrySettings, StickySettings,
};
use std::sync::Arc;
use std::time::Duration;
use wire::json::quoted;

/// Balancer as configured in anthill.toml.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfiguredBalancer {
    /// Settings with the name of the balancer in the World.
    pub settings: BalancerSettings,
    /// Bound of simultaneous requests of members without a bound of their own.
    pub connections: Option<usize>,
    /// Address for heartbeats.
    pub heartbeat: Option<String>,
    /// True for the balancer of a route with `proxy`, which has no `[[balancer]]` in the file.
    pub is_own: bool,
    /// Routes of the balancer: the name of the site with the path.
    pub paths: Vec<String>,
}

/// Balancer with edits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct EditedBalancer {
    /// Settings with the edits.
    pub settings: BalancerSettings,
    /// URLs of the members as in anthill.toml, in the order of the members.
    pub urls: Vec<String>,
    /// Checks of the members, in the order of the members.
    pub checks: Vec<CheckParts>,
}

/// Checks of a member, divided into the editable values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CheckParts {
    /// Kind of the checks.
    pub method: CheckWord,
    /// Balancer with the condition of successful checks; the empty text for the member's own balancer.
    pub expression: Box<str>,
    /// Time from the start of a check to the start of the next check.
    pub every: Duration,
    /// Successful checks in a row that make the member usable.
    pub rise: u32,
    /// Failed checks in a row that make the member unusable.
    pub fall: u32,
    /// Path of the requests.
    pub path: Box<str>,
    /// True while the checks count as failed.
    pub is_failed: bool,
}

/// Kind of the checks of a member.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum CheckWord {
    /// No checks.
    Off,
    /// A connection.
    Tcp,
    /// A request with GET.
    Get,
    /// A request with HEAD.
    Head,
}

impl CheckWord {
    /// All kinds.
    pub(crate) const ALL: [CheckWord; 4] = [
        CheckWord::Off,
        CheckWord::Tcp,
        CheckWord::Get,
        CheckWord::Head,
    ];

    /// Returns the name for the operator.
    pub(crate) fn name(self) -> &'static str {
        match self {
            CheckWord::Off => "off",
            CheckWord::Tcp => "tcp",
            CheckWord::Get => "get",
            CheckWord::Head => "head",
        }
    }
}

impl CheckParts {
    /// Divides the checks of a balancer. A balancer without checks has the defaults of `health`.
    pub(crate) fn of(check: Option<&CheckSettings>) -> CheckParts {
        let (method, path) = match check.map(|check| &check.kind) {
            None => (CheckWord::Off, "/"),
            Some(CheckKind::Tcp) => (CheckWord::Tcp, "/"),
            Some(CheckKind::Http { is_head, path, .. }) => {
                if *is_head {
                    (CheckWord::Head, &**path)
                } else {
                    (CheckWord::Get, &**path)
                }
            }
        };
        CheckParts {
            method,
            expression: Box::default(),
            every: check.map_or(Duration::from_secs(2), |check| check.every),
            rise: check.map_or(2, |check| check.rise),
            fall: check.map_or(3, |check| check.fall),
            path: path.into(),
            is_failed: false,
        }
    }

    /// Returns the checks for the core. `balancer` are the checks of the member's balancer, and `condition`
    /// the checks with the host, the statuses and the text of a successful check.
    fn member_check(
        &self,
        balancer: Option<&CheckSettings>,
        condition: Option<&CheckSettings>,
    ) -> MemberCheck {
        if (CheckParts {
            is_failed: false,
            ..self.clone()
        }) == CheckParts::of(balancer)
        {
            return MemberCheck::Balancer;
        }
        let (host, status, text) = match condition.map(|check| &check.kind) {
            Some(CheckKind::Http {
                host, status, text, ..
            }) => (host.clone(), *status, text.clone()),
            _ => (None, (200, 399), None),
        };
        let kind = match self.method {
            CheckWord::Off => return MemberCheck::Off,
            CheckWord::Tcp => CheckKind::Tcp,
            CheckWord::Get | CheckWord::Head => CheckKind::Http {
                is_head: self.method == CheckWord::Head,
                path: self.path.clone(),
                host,
                status,
                // The response to HEAD has no content.
                text: text.filter(|_| self.method == CheckWord::Get),
            },
        };
        let timeout = balancer.map_or(Duration::from_secs(1), |check| check.timeout);
        MemberCheck::Own(Arc::new(CheckSettings {
            kind,
            every: self.every,
            timeout: timeout.min(self.every),
            rise: self.rise,
            fall: self.fall,
        }))
    }
}

impl ConfiguredBalancer {
    /// Returns the balancer without edits.
    pub(crate) fn unedited(&self) -> EditedBalancer {
        let members = self.settings.members.iter();
        EditedBalancer {
            checks: vec![self.check_parts(); self.settings.members.len()],
            urls: members.map(|member| shown_url(&member.url)).collect(),
            settings: self.settings.clone(),
        }
    }

    /// Returns the checks of a member without edits.
    fn check_parts(&self) -> CheckParts {
        CheckParts::of(self.settings.check.as_ref())
    }

    /// Adds a member to the balancer with edits: disabled, and otherwise with the defaults.
    pub(crate) fn add_member(&self, edited: &mut EditedBalancer, url: MemberUrl) {
        edited.urls.push(shown_url(&url));
        edited.checks.push(self.check_parts());
        edited.settings.members.push(self.new_member(url));
    }

    /// Returns a member added at runtime: disabled, and otherwise with the defaults.
    fn new_member(&self, url: MemberUrl) -> MemberSettings {
        MemberSettings {
            url,
            weight: 100,
            set: 0,
            role: MemberRole::default(),
            route: Box::default(),
            redirect: Box::default(),
            admin: AdminState::Disabled,
            ignores_errors: false,
            connections_max: self.connections,
            check: Default::default(),
        }
    }

    /// Returns the balancer as a `[[balancer]]` for anthill.toml, with all keys that depend on the members
    /// and on the edits.
    fn text(&self, edited: &EditedBalancer) -> String {
        let connection = &edited.settings.connection;
        let name = if self.is_own {
            "own"
        } else {
            &edited.settings.name
        };
        let mut lines = vec![
            "[[balancer]]".to_owned(),
            format!("name = {}", quoted(name)),
        ];
        let tls = &connection.tls;
        let is_heartbeat = edited.settings.method == BalancingMethod::Heartbeat;
        for (key, text) in [
            ("heartbeat", self.heartbeat.clone().filter(|_| is_heartbeat)),
            ("from", connection.from.map(|from| from.to_string())),
            ("server_name", tls.server_name.as_deref().map(str::to_owned)),
            (
                "ca",
                tls.authorities
                    .as_ref()
                    .map(|file| file.display().to_string()),
            ),
        ] {
            lines.extend(text.map(|text| format!("{key} = {}", quoted(&text))));
        }
        lines.extend(
            self.connections
                .map(|bound| format!("connections = {bound}")),
        );
        lines.extend(self.lines(edited, |_| true));
        lines.join("\n") + "\n"
    }

    /// Returns the error of anthill.toml for the edited balancer, if anthill.toml refuses the balancer.
    pub(crate) fn refusal(&self, edited: &EditedBalancer) -> Option<OperatorError> {
        read_balancer(&self.text(edited)).err()
    }

    /// Returns the lines of the keys `members`, `method`, `sticky`, `retries` and `queue_timeout` that
    /// `is_wanted` accepts.
    pub(crate) fn lines(
        &self,
        edited: &EditedBalancer,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Vec<String> {
        let settings = &edited.settings;
        let mut lines = Vec::new();
        if is_wanted("members") {
            lines.push("members = [".to_owned());
            for member in &settings.members {
                let mark = if self.awaits_route(edited, member) {
                    "# needs a route: "
                } else {
                    ""
                };
                lines.push(format!("    {mark}{},", self.member_item(member)));
            }
            lines.push("]".to_owned());
        }
        if is_wanted("method") {
            lines.push(format!("method = {}", quoted(settings.method.name())));
            if self.heartbeat.is_some() && settings.method != BalancingMethod::Heartbeat {
                lines.push("# remove the line `heartbeat`".to_owned());
            }
        }
        match &settings.sticky {
            Some(sticky) if is_wanted("sticky") => lines.push(sticky_line(sticky)),
            None if is_wanted("sticky") => lines.push("# remove the line `sticky`".to_owned()),
            _ => {}
        }
        if is_wanted("retries") {
            lines.push(retries_line(&settings.retry));
        }
        let queue_timeout = settings.connection.queue_timeout;
        if is_wanted("queue_timeout") && queue_timeout != self.settings.connection.queue_timeout {
            lines.push(format!(
                "queue_timeout = \"{}\"",
                duration_text(queue_timeout)
            ));
        }
        lines
    }

    /// Returns true for an added member that gets no requests yet, and lacks the route that sessions by the
    /// members' own cookies need. The operator sets the route before the member is enabled.
    fn awaits_route(&self, edited: &EditedBalancer, member: &MemberSettings) -> bool {
        let needs_routes = |sticky: &StickySettings| !sticky.is_signed;
        let is_off = matches!(member.admin, AdminState::Disabled | AdminState::Stopped);
        let mut file = self.settings.members.iter();
        is_off
            && member.route.is_empty()
            && edited.settings.sticky.as_ref().is_some_and(needs_routes)
            && !file.any(|known| known.url == member.url)
    }

    /// Returns an item of the list `members`.
    pub(crate) fn member_item(&self, member: &MemberSettings) -> String {
        let url = quoted(&shown_url(&member.url));
        let mut keys = Vec::new();
        let mut key = |name: &str, value: Option<String>| {
            keys.extend(value.map(|value| format!("{name} = {value}")));
        };
        let text = |text: &str| (!text.is_empty()).then(|| quoted(text));
        let flag = |is_set: bool| is_set.then(|| "true".to_owned());
        key(
            "weight",
            (member.weight != 100).then(|| weight_text(member.weight)),
        );
        key("set", (member.set != 0).then(|| member.set.to_string()));
        key("standby", flag(member.role == MemberRole::Standby));
        key("spare", flag(member.role == MemberRole::Spare));
        key("route", text(&member.route));
        key("redirect", text(&member.redirect));
        let is_enabled = member.admin == AdminState::Enabled;
        key("status", (!is_enabled).then(|| quoted(member.admin.name())));
        key("ignore_errors", flag(member.ignores_errors));
        let own_bound = member
            .connections_max
            .filter(|_| member.connections_max != self.connections);
        key("connections", own_bound.map(|bound| bound.to_string()));
        if keys.is_empty() {
            url
        } else {
            format!("{{ url = {url}, {} }}", keys.join(", "))
        }
    }
}

impl EditedBalancer {
    /// Returns the index of the member with a URL.
    pub(crate) fn member_at(&self, url: &str) -> Option<usize> {
        self.urls.iter().position(|known| known == url)
    }

    /// Takes over the results of the checks of a balancer's members.
    pub(crate) fn read_checks(&mut self, report: &BalancerReport) {
        for member in &report.members {
            if let Some(at) = self.member_at(&shown_url(&member.url)) {
                self.checks[at].is_failed = member.is_check_failed;
            }
        }
    }

    /// Removes the member with the index `at`.
    pub(crate) fn remove_member(&mut self, at: usize) {
        self.settings.members.remove(at);
        self.urls.remove(at);
        self.checks.remove(at);
    }

    /// Returns the settings for the core. `all` are all balancers of the file, for the conditions of checks.
    pub(crate) fn core_settings(&self, all: &[ConfiguredBalancer]) -> BalancerSettings {
        let mut settings = self.settings.clone();
        for (at, member) in settings.members.iter_mut().enumerate() {
            member.check = self.member_check(at, all);
        }
        settings
    }

    /// Returns the members with another result of their checks than in `before`, a state of the balancer with equal
    /// members.
    pub(crate) fn forced_checks(&self, before: &EditedBalancer) -> Vec<(MemberUrl, bool)> {
        let results = self.checks.iter().zip(&before.checks);
        let results = results.map(|(new, old)| (new.is_failed, old.is_failed));
        let members = self.settings.members.iter().zip(results);
        let forced = members.filter(|(_, (new, old))| new != old);
        let forced = forced.map(|(member, (new, _))| (member.url.clone(), new));
        forced.collect()
    }

    /// Returns the checks of a member for the core.
    fn member_check(&self, at: usize, all: &[ConfiguredBalancer]) -> MemberCheck {
        let own = self.settings.check.as_ref();
        let Some(parts) = self.checks.get(at) else {
            return MemberCheck::Balancer;
        };
        let named = all.iter().find(|it| *it.settings.name == *parts.expression);
        let condition = named.map_or(own, |it| it.settings.check.as_ref());
        parts.member_check(own, condition)
    }
}

fn sticky_line(sticky: &StickySettings) -> String {
    let mut line = format!("sticky = {{ cookie = {}", quoted(&sticky.cookie));
    if let Some(parameter) = &sticky.path_parameter {
        line.push_str(", path_parameter = ");
        line.push_str(&quoted(parameter));
    }
    if sticky.is_signed {
        line.push_str(", signed = true");
    }
    if sticky.is_strict {
        line.push_str(", strict = true");
    }
    line + " }"
}

fn retries_line(retry: &RetrySettings) -> String {
    let mut line = format!("retries = {{ attempts = {}", retry.attempts_max);
    if retry.budget_percent != RetrySettings::default().budget_percent {
        line.push_str(&format!(", budget = {}", retry.budget_percent));
    }
    line + " }"
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(super) mod fixture {
    use super::*;

    /// Reads a `[[balancer]]` of anthill.toml.
    pub(in crate::admin) fn configured(text: &str) -> ConfiguredBalancer {
        let balancer = read_balancer(text).unwrap();
        ConfiguredBalancer {
            settings: balancer.settings,
            connections: balancer.connections,
            heartbeat: balancer
                .heartbeat
                .map(|address| address.get_ref().to_string()),
            is_own: false,
            paths: Vec::new(),
        }
    }

    /// Returns the balancer `app` with the members `http://10.0.0.1:8080` (route `a`) and
    /// `http://10.0.0.2:8080` (route `b`), and with further keys.
    pub(in crate::admin) fn app(more: &str) -> ConfiguredBalancer {
        configured(&format!(
            "[[balancer]]\nname = \"app\"\n{more}\nmembers = [\n\
             {{ url = \"http://10.0.0.1:8080\", route = \"a\" }},\n\
             {{ url = \"http://10.0.0.2:8080\", route = \"b\" }}]\n"
        ))
    }
}
