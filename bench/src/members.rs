//! Members behind a measured balancer: proof that the balancer asks all members in turn, and the latency that
//! the balancer adds.

use std::net::SocketAddr;

use crate::driver::Observer;
use crate::load::{Protocol, Workload};
use crate::probe;
use crate::result::{Round, Usage};
use crate::site::Site;

/// Sends a few requests to a balancer, over TLS if a trusted authority (PEM) is given, and returns an error
/// unless each member answers equally many.
pub(crate) fn check_turns(
    balancer: SocketAddr,
    authority: Option<&str>,
    members: usize,
) -> Result<(), String> {
    let mut answers = vec![0; members];
    for _ in 0..members * TURNS {
        let answer = probe::get(balancer, Site::MEMBER, authority);
        let answer = answer.map_err(|error| format!("no response to {}: {error}", Site::MEMBER))?;
        let number = Site::member_of(&answer.body).filter(|_| answer.status == 200);
        let count = number.and_then(|number| answers.get_mut(number));
        *count.ok_or_else(|| {
            let (status, bytes) = (answer.status, answer.body.len());
            format!(
                "the response to {} is of no member: status {status}, {bytes} bytes",
                Site::MEMBER
            )
        })? += 1;
    }
    if answers.iter().all(|count| *count == TURNS) {
        return Ok(());
    }
    let counts: Vec<String> = answers.iter().map(ToString::to_string).collect();
    Err(format!(
        "the members were not asked in turn: {} of {} requests",
        counts.join(", "),
        members * TURNS
    ))
}

/// Returns the smallest CPU time of a member in percent of the mean. Returns `None` for a total below
/// [`TOTAL_SECONDS_MIN`], which would be counted too coarsely.
pub(crate) fn smallest_share(members: &[Usage]) -> Option<f64> {
    let times = || members.iter().map(Usage::cpu_seconds);
    let total: f64 = times().sum();
    let smallest = times().reduce(f64::min)?;
    let mean = total / members.len() as f64;
    (total >= TOTAL_SECONDS_MIN).then(|| smallest / mean * 100.0)
}

/// Returns the reason why a round is unsound, if a member had less than half of the work of a mean member.
pub(crate) fn left_out(round: &Round) -> Option<String> {
    let share = *round.extra.get(SMALLEST_SHARE)?;
    (share < SHARE_PERCENT_MIN).then(|| {
        format!(
            "the members did not share the load: a member had {share:.0} % of the CPU time of the mean \
             member"
        )
    })
}

/// Returns the workload for the same load on the members without the balancer, by plain HTTP/1.1.
pub(crate) fn direct(workload: &Workload, members: Vec<SocketAddr>) -> Workload {
    Workload {
        addresses: members,
        tls: None,
        protocol: Protocol::Http1,
        connections: workload.connections * streams(workload),
        streams: 1,
        ..workload.clone()
    }
}

/// Adds the percentiles of the direct load to a round, and the differences.
pub(crate) fn compare_direct(round: &mut Round, direct: &Round) {
    let (Some(through), Some(direct)) = (&round.latency, &direct.latency) else {
        return;
    };
    for percentile in ["50", "99"] {
        let found = (
            through.percentiles_us.get(percentile),
            direct.percentiles_us.get(percentile),
        );
        let (Some(through), Some(direct)) = found else {
            continue;
        };
        let added = through - direct;
        let extra = &mut round.extra;
        extra.insert(format!("direct_p{percentile}_us"), *direct);
        extra.insert(format!("added_p{percentile}_us"), added);
    }
}

/// Returns the number of simultaneous requests on a connection of a workload.
pub(crate) fn streams(workload: &Workload) -> usize {
    match workload.protocol {
        Protocol::Http1 => 1,
        Protocol::Http2 | Protocol::Http3 => workload.streams,
    }
}

/// Observer of a measurement without figures of the servers.
pub(crate) struct NoObserver;

impl Observer for NoObserver {
    fn begun(&self) {}

    fn ended(&self) {}
}

/// Key of [`smallest_share`] in [`Round::extra`].
pub(crate) const SMALLEST_SHARE: &str = "smallest_member_share_percent";
/// Smallest share of a sound round. Members asked in turn differ by less than a tenth; a third less than the
/// mean would already be visible in the figures.
const SHARE_PERCENT_MIN: f64 = 66.0;
/// Shortest CPU time of all members together that is compared: ten ticks of 10 ms.
const TOTAL_SECONDS_MIN: f64 = 0.1;
/// Requests to each member in [`check_turns`].
const TURNS: usize = 3;

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    use super::*;
    use crate::result::Latency;

    /// Starts a server that answers the nth request with the page of the nth member of a list.
    fn balancer(members: Vec<usize>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("a local address");
        std::thread::spawn(move || {
            for (mut socket, number) in listener.incoming().flatten().zip(members) {
                let mut lines = BufReader::new(&socket).lines();
                while lines
                    .next()
                    .is_some_and(|line| line.is_ok_and(|line| !line.is_empty()))
                {}
                let page = format!("member {number}\n");
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", page.len());
                let _ = socket.write_all((head + &page).as_bytes());
            }
        });
        address
    }

    fn used(seconds: f64) -> Usage {
        Usage {
            user_seconds: seconds,
            ..Usage::default()
        }
    }

    #[test]
    fn members_must_be_asked_equally_often() {
        let address = balancer(vec![0, 1, 0, 1, 1, 0]);
        assert_eq!(check_turns(address, None, 2), Ok(()));
        let address = balancer(vec![0, 1, 0, 1, 0, 0]);
        assert_eq!(
            check_turns(address, None, 2),
            Err("the members were not asked in turn: 4, 2 of 6 requests".to_owned())
        );
        let address = balancer(vec![0, 2]);
        assert_eq!(
            check_turns(address, None, 2),
            Err("the response to /member.html is of no member: status 200, 9 bytes".to_owned())
        );
    }

    #[test]
    fn a_member_without_its_share_makes_a_round_unsound() {
        let share = |times: [f64; 4]| smallest_share(&times.map(used));
        assert_eq!(share([0.5, 0.5, 0.5, 0.5]), Some(100.0));
        assert_eq!(share([0.5, 0.5, 0.5, 0.0]), Some(0.0));
        assert_eq!(share([0.01, 0.01, 0.01, 0.0]), None);
        let round = |share: f64| Round {
            extra: [(SMALLEST_SHARE.to_owned(), share)].into(),
            ..Round::default()
        };
        assert_eq!(left_out(&round(90.0)), None);
        assert_eq!(left_out(&Round::default()), None);
        let why = left_out(&round(20.0)).expect("unsound");
        assert!(why.contains("20 % of the CPU time"), "{why}");
    }

    #[test]
    fn the_added_latency_is_the_difference_of_the_percentiles() {
        let round = |median: f64, p99: f64| Round {
            latency: Some(Latency {
                percentiles_us: [("50".to_owned(), median), ("99".to_owned(), p99)].into(),
                ..Latency::default()
            }),
            ..Round::default()
        };
        let mut through = round(300.0, 900.0);
        compare_direct(&mut through, &round(100.0, 400.0));
        assert_eq!(through.extra["added_p50_us"], 200.0);
        assert_eq!(through.extra["added_p99_us"], 500.0);
        assert_eq!(through.extra["direct_p99_us"], 400.0);
        let mut without = Round::default();
        compare_direct(&mut without, &round(100.0, 400.0));
        assert!(without.extra.is_empty());
    }

    #[test]
    fn the_direct_load_has_as_many_requests_at_a_time() {
        let workload = Workload {
            protocol: Protocol::Http2,
            connections: 20,
            streams: 10,
            ..Workload::default()
        };
        let members = vec!["127.0.1.1:80".parse().expect("an address")];
        let direct = direct(&workload, members.clone());
        assert_eq!((direct.connections, direct.streams), (200, 1));
        assert_eq!(direct.addresses, members);
        assert_eq!(direct.protocol, Protocol::Http1);
    }
}
