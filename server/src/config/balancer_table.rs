//! `[[balancer]]`: a group of HTTP servers that share requests.

use std::time::Duration;

use toml::Spanned;

use crate::config::connection_table::{ConnectionKeys, LONGEST, SHORTEST};
use crate::config::declared_table::declare_table;
use crate::config::limits::{
    CONFIG_IN_A_ROW_MAX, CONFIG_MEMBER_CONNECTIONS_MAX, CONFIG_MEMBER_SET_MAX,
    CONFIG_RETRY_ATTEMPTS_MAX,
};
use crate::config::proxy_values::{
    BalancerName, CheckMethod, CheckPath, ContentText, FailureStatuses, HostField, RouteName,
    StatusRange, TokenName, Weight,
};
use crate::config::values::ListenAddress;
use balancer::settings::{AdminState, BalancingMethod, EjectionSettings, MemberUrl, RetrySettings};

declare_table! {
    /// Keys of a balancer.
    pub(super) struct BalancerTable: "[[balancer]]" {
        /// Name by which routes and `anthill balancer` name the balancer; two balancers cannot share a name.
        name: BalancerName = required, example "\"app\"";
        /// Rule for the choice of a member: equal shares of requests or of bytes by weight, the fewest
        /// requests under way, the load announced in datagrams, a hash of the client's address (`"maglev"`
        /// moves few clients when a member fails), or the better of two random members.
        method: BalancingMethod = default(BalancingMethod::default()),
            also ["lb_policy", "balance", "lbmethod", "policy"], example "\"p2c\"";
        /// [Members](#members), at least one.
        members: Vec<Spanned<MemberTable>> = required,
            also ["server", "servers", "targets", "upstreams", "to", "member", "nodes"],
            example "[\"http://127.0.0.1:9001\", { url = \"http://127.0.0.1:9002\", weight = 2 }]";
        /// Active [checks](#health) of the members.
        health: HealthTable = optional("no checks"),
            also ["check", "health_check", "healthcheck"],
            example "{ path = \"/\", every = \"2s\" }";
        /// Cookie that binds a client to a member, or a table for [sticky sessions](#sticky).
        sticky: StickyTable = optional("no binding"),
            also ["cookie", "stick"], example "\"JSESSIONID\"";
        /// Time over which the weight of a recovered member rises from a tenth to the whole.
        slow_start: Duration = default(Duration::ZERO), within(Duration::ZERO, LONGEST),
            also ["slowstart"], example "\"30s\"";
        /// [Retries](#retries) at further members.
        retries: RetriesTable = table,
            also ["maxattempts", "proxy_next_upstream", "retry"], example "{ attempts = 2 }";
        /// [Ejection](#eject) of members with failing requests. A member with `ignore_errors` is never ejected.
        eject: EjectTable = table, also ["outlier", "passive"], example "{ failures = 5 }";
        /// UDP address that receives the datagrams of Apache's mod_heartbeat, for `method = "heartbeat"`.
        heartbeat: ListenAddress = optional("none"),
            also ["HeartbeatListen"], example "\"0.0.0.0:27999\"";
        ..connection: ConnectionKeys;
    }
}

declare_table! {
    /// Keys of a member.
    pub(super) struct MemberTable: "a member", short url "a URL", "\"http://127.0.0.1:9000\"" {
        /// Location: `http://HOST:PORT`, `https://HOST:PORT` or `http://unix:PATH`. The default ports are 80
        /// and 443.
        url: MemberUrl = required, also ["address", "host", "server"],
            example "\"http://127.0.0.1:9001\"";
        /// Share of the load, relative to the other members.
        weight: Weight = default(Weight(100)), within(Weight(100), Weight(10_000)),
            also ["loadfactor", "factor"], example "1.5";
        /// Number of the member's set. The usable set with the lowest number gets all requests.
        set: u8 = default(0), within(0, CONFIG_MEMBER_SET_MAX), also ["lbset"], example "1";
        /// `true`: hot standby. The member gets requests only if no regular member and no spare of its set is
        /// usable.
        standby: bool = default(false), also ["backup"], example "true";
        /// `true`: hot spare. The member replaces an unusable regular member of the same set.
        spare: bool = default(false), example "true";
        /// Name of the member in [sticky sessions](#sticky) and for `anthill balancer`.
        route: RouteName = optional("none"), also ["jvmRoute", "id", "name", "cookie"], example "\"a\"";
        /// Route of the member that gets the sessions while this member is unusable.
        redirect: RouteName = optional("none"), example "\"b\"";
        /// State at the start: `"draining"` members get only requests of sticky sessions, `"disabled"`
        /// members none, `"stopped"` members neither requests nor checks.
        status: AdminState = default(AdminState::default()), also ["state"],
            example "\"draining\"";
        /// `true`: failed requests and error statuses do not make the member unusable.
        ignore_errors: bool = default(false), example "true";
        /// Number of simultaneous requests, instead of `connections` of the balancer.
        connections: usize = optional("the balancer's"), within(1, CONFIG_MEMBER_CONNECTIONS_MAX),
            also ["max_conns", "maxconn"], example "16";
    }
}

declare_table! {
    /// Keys of active checks.
    pub(super) struct HealthTable: "the table `health`", such as "{ path = \"/health\" }" {
        /// `true`: a check only opens a connection.
        tcp: bool = default(false), example "true";
        /// Path, with or without query, that a check requests.
        path: CheckPath = optional("none; required without `tcp`"),
            also ["uri", "url", "hcuri", "health_uri"], example "\"/health\"";
        /// Method of the request.
        method: CheckMethod = default(CheckMethod::Get), example "\"HEAD\"";
        /// Host field of the request.
        host: HostField = optional("the host of the URL"), example "\"app.example.org\"";
        /// Status, or range of statuses, of a successful check.
        status: StatusRange = default(StatusRange(200, 399)),
            also ["expect", "health_status"], example "200";
        /// Text in the first 64 KiB of the content of a successful check.
        text: ContentText = optional("any content"), also ["body", "health_body"], example "\"ready\"";
        /// Time from the start of a check to the start of the next check.
        every: Duration = default(Duration::from_secs(2)), within(SHORTEST, LONGEST),
            also ["interval", "inter", "hcinterval", "health_interval"], example "\"500ms\"";
        /// Longest duration of a check.
        timeout: Duration = optional("`\"1s\"`, or `every` if shorter"), within(SHORTEST, LONGEST),
            also ["health_timeout"], example "\"500ms\"";
        /// Number of successful checks in a row that make a member usable.
        rise: u32 = default(2), within(1, CONFIG_IN_A_ROW_MAX), also ["passes", "hcpasses"],
            example "1";
        /// Number of failed checks in a row that make a member unusable.
        fall: u32 = default(3), within(1, CONFIG_IN_A_ROW_MAX), also ["fails", "hcfails"], example "2";
    }
}

declare_table! {
    /// Keys of sticky sessions.
    pub(super) struct StickyTable: "the table `sticky`", short cookie "a cookie",
        "{ cookie = \"ROUTE\", signed = true }"
    {
        /// Name of the cookie.
        cookie: TokenName = required, also ["name"], example "\"JSESSIONID\"";
        /// Name of the path parameter with the route, for clients without cookies: `/page;jsessionid=X.a`.
        path_parameter: TokenName = optional("none"), example "\"jsessionid\"";
        /// `true`: the balancer sets the cookie, signed. `false`: the members set the cookie, with their
        /// `route` after the first dot of the value.
        signed: bool = default(false), example "true";
        /// `true`: the requests of a session get 503 while its member is unusable. `false`: another member
        /// gets the requests.
        strict: bool = default(false), also ["nofailover"], example "true";
    }
}

declare_table! {
    /// Keys of retries at further members.
    pub(super) struct RetriesTable: "the table `retries`", such as "{ attempts = 2 }" {
        /// Largest number of further members for one request.
        attempts: u8 = default(RetrySettings::default().attempts_max),
            within(0, CONFIG_RETRY_ATTEMPTS_MAX), also ["tries"], example "2";
        /// Retries per hundred requests of the last seconds. Failed connections do not count.
        budget: u8 = default(RetrySettings::default().budget_percent), within(0, 100), example "10";
    }
}

declare_table! {
    /// Keys of the ejection of failing members.
    pub(super) struct EjectTable: "the table `eject`",
        such as "{ failures = 5 }; without ejection, write ignore_errors = true for each member"
    {
        /// Failed requests in a row that eject a member. A failed connection ejects at once.
        failures: u32 = default(EjectionSettings::default().failures),
            within(1, CONFIG_IN_A_ROW_MAX), also ["max_fails", "fails"], example "5";
        /// First pause without requests; each ejection in a row doubles the pause.
        pause: Duration = default(EjectionSettings::default().pause), within(SHORTEST, LONGEST),
            also ["fail_timeout", "fail_duration", "retry"], example "\"5s\"";
        /// Longest pause.
        pause_max: Duration = default(EjectionSettings::default().pause_max),
            within(SHORTEST, LONGEST), example "\"5m\"";
        /// Statuses of responses that count as failed requests: single statuses, or ranges, from 400 to 599.
        statuses: Vec<FailureStatuses> = default(Vec::new()),
            also ["failonstatus", "unhealthy_status", "status"], example "[500, \"502-504\"]";
    }
}
