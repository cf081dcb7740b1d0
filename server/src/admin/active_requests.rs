//! List of the requests under way, the oldest first: plain values, rendered as text and as JSON.

use crate::admin::json_text::{joined, or_null};
use crate::admin::text_table::{LINE_WIDTH, TextTable, duration, micros};
use data_plane::ledger::active_requests::{ActiveRequest, OldestRequests};
use wire::json::quoted;

/// Requests under way at one moment.
#[derive(Clone, Default, Debug)]
pub struct ActiveRequestList {
    /// Time of the list in microseconds on the clock of the workers.
    pub now_us: u64,
    /// Oldest requests, and the number of all.
    pub oldest: OldestRequests,
}

/// Age in microseconds, 10 s, from which the age is shown in seconds.
const SHORT_AGE_US: u64 = 10_000_000;
/// Columns of the text.
const COLUMNS: [&str; 7] = [
    "REQUEST", "AGE", "STATE", "VERSION", "CLIENT", "SITE", "MEMBER",
];
/// Columns with text, at the left.
const LEFT_COLUMNS: [usize; 6] = [0, 2, 3, 4, 5, 6];

impl ActiveRequestList {
    /// Returns the age of a request with its unit.
    pub(crate) fn age(&self, request: &ActiveRequest) -> String {
        match self.age_us(request) {
            age @ ..SHORT_AGE_US => micros(age.max(1)),
            age => duration(age / 1_000_000),
        }
    }

    fn age_us(&self, request: &ActiveRequest) -> u64 {
        self.now_us.saturating_sub(request.started_us)
    }

    /// Returns the number of all requests under way in words, with the number of listed requests if it is smaller.
    pub(crate) fn summary(&self, listed: usize) -> String {
        match self.oldest.count {
            0 => "no request is under way".to_owned(),
            1 => "1 request is under way".to_owned(),
            count if count > listed => {
                format!("{count} requests are under way; the oldest {listed}:")
            }
            count => format!("{count} requests are under way, the oldest first:"),
        }
    }

    /// Renders the list as lines for a terminal. Control characters of clients are escaped.
    pub(crate) fn text(&self) -> String {
        let requests = &self.oldest.requests;
        let mut out = self.summary(requests.len());
        out.push('\n');
        if requests.is_empty() {
            return out;
        }
        let mut table = TextTable::new(&COLUMNS, &LEFT_COLUMNS, LINE_WIDTH);
        for request in requests {
            table.add(self.cells(request), Vec::new());
        }
        out.push_str(&table.text());
        out
    }

    /// Returns the texts of [`COLUMNS`] for a request.
    fn cells(&self, request: &ActiveRequest) -> Vec<String> {
        let (host, path) = (host(request), request.target.path());
        let (host, path) = (host.escape_debug(), path.escape_debug());
        let or_hyphen = |text: &str| if text.is_empty() { "-" } else { text }.to_owned();
        vec![
            format!("{} {host}{path}", request.method),
            self.age(request),
            request.phase.name().to_owned(),
            request.version.to_owned(),
            request.client.to_string(),
            or_hyphen(site(request)),
            or_hyphen(request.member.as_deref().unwrap_or_default()),
        ]
    }

    /// Renders the list as one JSON object and a line feed. Addresses of clients, hosts and paths are left out unless
    /// `shows_clients` is true.
    pub(crate) fn json(&self, shows_clients: bool) -> String {
        let requests = self.oldest.requests.iter();
        let requests = joined(requests.map(|it| self.request_json(it, shows_clients)));
        let count = self.oldest.count;
        format!("{{\"count\":{count},\"requests\":[{requests}]}}\n")
    }

    fn request_json(&self, request: &ActiveRequest, shows_clients: bool) -> String {
        let mut texts = vec![
            ("state", request.phase.name().to_owned()),
            ("version", request.version.to_owned()),
            ("method", request.method.to_owned()),
            ("site", site(request).to_owned()),
        ];
        if shows_clients {
            texts.push(("client", request.client.to_string()));
            texts.push(("host", host(request)));
            texts.push(("path", request.target.path()));
        }
        let mut out = format!("{{\"age_us\":{}", self.age_us(request));
        for (name, text) in texts {
            out = out + ",\"" + name + "\":" + &quoted(&text);
        }
        let member = request.member.as_deref().map(quoted);
        out + ",\"member\":" + &or_null(member) + "}"
    }
}

/// Returns the first name of a request's site; an empty text without a site.
pub(crate) fn site(request: &ActiveRequest) -> &str {
    request.route.as_ref().map_or("", |route| route.site())
}

/// Returns the host of a request as sent by the client.
pub(crate) fn host(request: &ActiveRequest) -> String {
    String::from_utf8_lossy(request.target.host()).into_owned()
}

#[cfg(test)]
mod tests;
