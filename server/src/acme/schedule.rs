//! Schedule of renewals: pure functions of the stored state and the current time.
//!
//! The state outlives restarts, so that a server that crashes repeatedly does not send orders repeatedly.

use crate::acme::limits::{
    ACME_ORDERS_PER_DAY, ACME_ORDERS_PER_HOUR, ACME_RENEWAL_INFO_SECONDS_MAX,
    ACME_RENEWAL_INFO_SECONDS_MIN, ACME_RETRY_SECONDS, ACME_RETRY_SECONDS_MAX,
};
use data_plane::tls::IssuedCertificate;
use wire::json::{Json, quoted};

/// Stored history of one certificate. Times are Unix seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RenewalState {
    /// URL of the directory that issued the current certificate.
    pub(super) directory: String,
    /// Consecutive failures.
    pub(super) failures: u64,
    /// Earliest time of the next order.
    pub(super) next_try: u64,
    /// Times of the orders begun in the last 24 hours.
    pub(super) orders: Vec<u64>,
    /// Time and text of the last failure, cleared by the next success.
    pub(super) failure: Option<(u64, String)>,
    /// Renewal window suggested by the directory: first and last second.
    pub(super) window: Option<(u64, u64)>,
    /// URL of the directory's explanation of the window.
    pub(super) explanation: Option<String>,
    /// Time of the next request for renewal information.
    pub(super) next_info: u64,
    /// Random number from 0 to 999, drawn once for each certificate to spread renewals over time.
    pub(super) dice: u64,
    /// Challenge type that succeeded last.
    pub(super) challenge: Option<String>,
}

/// Action of the renewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RenewalAction {
    /// Obtain a certificate.
    Order,
    /// Request renewal information (RFC 9773).
    AskWhen,
}

/// Returns the next action for a certificate and the time of the action. `issued` is the stored certificate
/// if the certificate covers all names.
pub(super) fn next(
    state: &RenewalState,
    issued: Option<&IssuedCertificate>,
    directory: &str,
    now: u64,
) -> (RenewalAction, u64) {
    let due = match issued {
        Some(issued) if state.directory == directory => renewal(state, issued),
        _ => 0,
    };
    let order = due.max(not_before(state, now));
    if let Some(issued) = issued
        && issued.renewal_id.is_some()
        && state.directory == directory
    {
        let ask = in_reach(state.next_info, now, ACME_RENEWAL_INFO_SECONDS_MAX);
        // Renewal information later than the order would be useless.
        if ask < order {
            return (RenewalAction::AskWhen, ask);
        }
    }
    (RenewalAction::Order, order)
}

/// Returns the time of the renewal: a random time in the directory's window (RFC 9773 §4.2), else about two
/// thirds into the lifetime, with random spread. Regardless of the window, the last tenth of the lifetime
/// remains as a reserve for failed attempts.
pub(super) fn renewal(state: &RenewalState, issued: &IssuedCertificate) -> u64 {
    let life = issued.not_after.saturating_sub(issued.not_before);
    let latest = issued.not_after.saturating_sub(life / 10);
    let at = match state.window {
        Some((start, end)) => start + share(end.saturating_sub(start), state.dice),
        None => issued.not_before + life / 3 * 2 - life / 40 + share(life / 20, state.dice),
    };
    at.min(latest)
}

/// Returns `dice` thousandths of `span`.
fn share(span: u64, dice: u64) -> u64 {
    (u128::from(span) * u128::from(dice.min(999)) / 1_000) as u64
}

/// Returns the earliest time of the next order, bounded by the pause after failures and by the rate limits
/// of public directories.
fn not_before(state: &RenewalState, now: u64) -> u64 {
    let pause = in_reach(state.next_try, now, RETRY_AFTER_SECONDS_MAX);
    // The orders are sorted by time.
    let bounded = |count: usize, seconds: u64| {
        let recent = |at: &&u64| **at + seconds > now && **at <= now;
        let over = (state.orders.iter().filter(recent).count() + 1).saturating_sub(count);
        let freeing = over.checked_sub(1)?;
        let at = state.orders.iter().filter(recent).nth(freeing)?;
        Some(at + seconds)
    };
    let hour = bounded(ACME_ORDERS_PER_HOUR, 3_600).unwrap_or(0);
    let day = bounded(ACME_ORDERS_PER_DAY, 86_400).unwrap_or(0);
    pause.max(hour).max(day)
}

/// Returns `at`, or 0 if `at` lies further ahead than any pause: the clock was wrong when the time was
/// stored.
fn in_reach(at: u64, now: u64, seconds_max: u64) -> u64 {
    if at > now + seconds_max { 0 } else { at }
}

/// Longest accepted Retry-After of a directory. The renewer's own pauses are shorter.
const RETRY_AFTER_SECONDS_MAX: u64 = 7 * 86_400;

/// Returns the pause after the given number of consecutive failures: 1 minute, multiplied by 4 with each
/// failure, up to 1 day. A random spread of ±12.5 % keeps servers that failed together from retrying
/// together. `dice` is 0 to 999.
pub(super) fn pause(failures: u64, retry_after: Option<u64>, dice: u64) -> u64 {
    let doublings = failures.saturating_sub(1).min(10) * 2;
    let pause = (ACME_RETRY_SECONDS << doublings).min(ACME_RETRY_SECONDS_MAX);
    let pause = pause - pause / 8 + share(pause / 4, dice);
    let asked = retry_after.unwrap_or(0).min(RETRY_AFTER_SECONDS_MAX);
    pause.max(asked)
}

/// Returns the time of the next request for renewal information (RFC 9773 §4.3).
pub(super) fn next_info(now: u64, retry_after: Option<u64>) -> u64 {
    let asked = retry_after.unwrap_or(6 * 3_600);
    now + asked.clamp(ACME_RENEWAL_INFO_SECONDS_MIN, ACME_RENEWAL_INFO_SECONDS_MAX)
}

impl RenewalState {
    /// Records an order begun at `now`.
    pub(super) fn begins(&mut self, now: u64) {
        self.orders.retain(|at| *at + 86_400 > now && *at <= now);
        self.orders.push(now);
    }

    /// Returns the content of the state file.
    pub(super) fn to_json(&self) -> String {
        let text = |text: &Option<String>| text.as_ref().map_or("null".to_owned(), |it| quoted(it));
        let orders: Vec<String> = self.orders.iter().map(u64::to_string).collect();
        let (failed_at, failure) = match &self.failure {
            Some((at, what)) => (*at, quoted(what)),
            None => (0, "null".to_owned()),
        };
        let (start, end) = self.window.unwrap_or_default();
        format!(
            "{{\"directory\":{},\"failures\":{},\"next_try\":{},\"orders\":[{}],\"failed_at\":{failed_at},\
             \"failure\":{failure},\"window_start\":{start},\"window_end\":{end},\"explanation\":{},\
             \"next_info\":{},\"dice\":{},\"challenge\":{}}}\n",
            quoted(&self.directory),
            self.failures,
            self.next_try,
            orders.join(","),
            text(&self.explanation),
            self.next_info,
            self.dice,
            text(&self.challenge)
        )
    }

    /// Parses the content of the state file. Missing members get default values.
    pub(super) fn from_json(json: &Json) -> RenewalState {
        let number = |name| json.number(name).unwrap_or(0);
        let text = |name| json.text(name).map(str::to_owned);
        let orders = json.list("orders").iter().filter_map(|at| match at {
            Json::Number(at) => at.parse().ok(),
            _ => None,
        });
        let window = (number("window_start"), number("window_end"));
        RenewalState {
            directory: text("directory").unwrap_or_default(),
            failures: number("failures"),
            next_try: number("next_try"),
            orders: orders.collect(),
            failure: text("failure").map(|what| (number("failed_at"), what)),
            window: (window.1 > 0).then_some(window),
            explanation: text("explanation"),
            next_info: number("next_info"),
            dice: number("dice"),
            challenge: text("challenge"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400;
    const NOW: u64 = 20_000 * DAY;
    const CA: &str = "https://ca.test/";

    fn issued() -> IssuedCertificate {
        IssuedCertificate {
            not_before: NOW,
            not_after: NOW + 90 * DAY,
            renewal_id: Some("a.b".to_owned()),
            missing: Vec::new(),
        }
    }

    fn state() -> RenewalState {
        RenewalState {
            directory: CA.to_owned(),
            next_info: NOW + DAY / 2,
            ..RenewalState::default()
        }
    }

    #[test]
    fn a_missing_certificate_is_ordered_at_once() {
        assert_eq!(
            next(&RenewalState::default(), None, CA, NOW),
            (RenewalAction::Order, 0)
        );
        // A certificate from another directory is replaced at once as well.
        let other = RenewalState {
            directory: "https://other.test/".to_owned(),
            ..state()
        };
        assert_eq!(
            next(&other, Some(&issued()), CA, NOW),
            (RenewalAction::Order, 0)
        );
    }

    #[test]
    fn renewal_is_due_at_two_thirds_with_jitter() {
        for (dice, least, most) in [(0, 57, 58), (500, 59, 61), (999, 62, 63)] {
            let state = RenewalState { dice, ..state() };
            let at = renewal(&state, &issued());
            assert!(at >= NOW + least * DAY && at <= NOW + most * DAY, "{dice}");
        }
        // The proportions hold for lifetimes of six days and of one hour.
        for life in [6 * DAY, 3_600, 3, 0] {
            let short = IssuedCertificate {
                not_after: NOW + life,
                ..issued()
            };
            let at = renewal(&state(), &short);
            assert!(at >= NOW && at <= NOW + life * 2 / 3, "{life}");
        }
    }

    #[test]
    fn the_renewal_window_of_the_directory_is_followed() {
        let mut state = state();
        state.window = Some((NOW + 10 * DAY, NOW + 12 * DAY));
        assert_eq!(renewal(&state, &issued()), NOW + 10 * DAY);
        state.dice = 500;
        assert_eq!(renewal(&state, &issued()), NOW + 11 * DAY);
        // A window in the past means a renewal at once.
        state.window = Some((NOW - 2 * DAY, NOW - DAY));
        assert_eq!(
            next(&state, Some(&issued()), CA, NOW).0,
            RenewalAction::Order
        );
        assert!(next(&state, Some(&issued()), CA, NOW).1 <= NOW);
        // A window too close to the expiry is ignored.
        state.window = Some((NOW + 500 * DAY, u64::MAX));
        assert_eq!(renewal(&state, &issued()), NOW + 81 * DAY);
        // Renewal information is requested again before the renewal.
        assert_eq!(
            next(&state, Some(&issued()), CA, NOW),
            (RenewalAction::AskWhen, NOW + DAY / 2)
        );
        let silent = IssuedCertificate {
            renewal_id: None,
            ..issued()
        };
        assert_eq!(next(&state, Some(&silent), CA, NOW).0, RenewalAction::Order);
    }

    #[test]
    fn pauses_grow_up_to_a_day() {
        let least: Vec<u64> = (1..9).map(|failures| pause(failures, None, 0)).collect();
        assert_eq!(least[..3], [53, 210, 840]);
        assert_eq!(least[7], DAY - DAY / 8);
        assert_eq!(pause(u64::MAX, None, 0), DAY - DAY / 8);
        assert_eq!(pause(1, None, 999), 67);
        assert_eq!(pause(1, Some(7_200), 0), 7_200);
        assert_eq!(pause(1, Some(u64::MAX), 0), 7 * DAY);
        assert_eq!(next_info(NOW, Some(1)), NOW + 3_600);
        assert_eq!(next_info(NOW, Some(u64::MAX)), NOW + DAY);
    }

    #[test]
    fn orders_stay_within_the_rate_limits() {
        let mut state = RenewalState::default();
        for minute in 0..4 {
            assert!(next(&state, None, CA, NOW + minute * 60).1 <= NOW + minute * 60);
            state.begins(NOW + minute * 60);
        }
        assert_eq!(next(&state, None, CA, NOW + 240).1, NOW + 3_600);
        let mut now = NOW + 3_600;
        while state.orders.len() < ACME_ORDERS_PER_DAY {
            now = now.max(next(&state, None, CA, now).1);
            state.begins(now);
        }
        assert_eq!(next(&state, None, CA, now).1, NOW + DAY);
        // A day later, the oldest orders no longer count.
        state.begins(NOW + 3 * DAY);
        assert_eq!(state.orders, [NOW + 3 * DAY]);
    }

    #[test]
    fn times_stored_under_a_wrong_clock_are_ignored() {
        let state = RenewalState {
            next_try: NOW + 1_000 * DAY,
            orders: vec![NOW + 1_000 * DAY; 9],
            ..RenewalState::default()
        };
        assert_eq!(next(&state, None, CA, NOW), (RenewalAction::Order, 0));
    }

    #[test]
    fn the_stored_state_is_read_back() {
        let state = RenewalState {
            failures: 3,
            next_try: 4,
            orders: vec![5, 6],
            failure: Some((7, "no \"way\"\n".to_owned())),
            window: Some((8, 9)),
            explanation: Some("https://ca.test/why".to_owned()),
            dice: 11,
            challenge: Some("http-01".to_owned()),
            ..state()
        };
        for state in [state, RenewalState::default()] {
            let json = Json::parse(state.to_json().as_bytes()).unwrap();
            assert_eq!(RenewalState::from_json(&json), state);
        }
    }
}
