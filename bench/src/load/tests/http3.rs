//! Load generator against HTTP/3 servers that answer correctly, late, wrongly or not at all.

use h3::error::Code;

use super::h3_server::{H3Server, Reply};
use super::server::{certificate, tls};
use super::*;

const HELLO_H3: Reply = Reply::Send(200, b"hello", 2);

fn server(answer: impl Fn(usize) -> Reply + Send + 'static) -> H3Server {
    H3Server::start(tls(&certificate(), &rustls::version::TLS13), answer)
}

fn plan_h3(server: &H3Server, requests: u64) -> Workload {
    Workload {
        protocol: Protocol::Http3,
        tls: Some(Tls::default()),
        length: Length::Requests(requests),
        expect: Expect {
            length: Some(5),
            body: Some(Arc::from(*b"hello")),
            ..Expect::default()
        },
        ..Workload::new(server.address)
    }
}

/// Waits until the server has seen the end of `connections` connections. Hangs if the client never closes.
fn wait_for_closed_connections(server: &H3Server, connections: usize) {
    while server.closed() < connections {
        thread::yield_now();
    }
}

#[test]
fn http3_sends_requests_on_several_streams_and_closes_its_connections() {
    let server = server(|_| HELLO_H3);
    let outcome = go(&Workload {
        connections: 3,
        streams: 4,
        threads: 2,
        ..plan_h3(&server, 100)
    });
    assert_failures(&outcome, &[]);
    assert_eq!(
        (outcome.requests, server.requests(), outcome.latency.len()),
        (100, 100, 100)
    );
    assert!((1..=3).contains(&server.connections()));
    // Content and HTTP/3 frames with 2 bytes of content each. The overhead of QUIC does not count.
    assert!((700..8_000).contains(&outcome.bytes), "{}", outcome.bytes);
    wait_for_closed_connections(&server, server.connections());
}

#[test]
fn without_keep_alive_there_is_a_connection_for_each_request() {
    for (resumption, resumed) in [(Resumption::Full, 0..=0), (Resumption::Resumed, 18..=19)] {
        let server = server(|_| HELLO_H3);
        let outcome = go(&Workload {
            tls: Some(Tls {
                resumption,
                ..Tls::default()
            }),
            connections: 2,
            keep_alive: false,
            ..plan_h3(&server, 20)
        });
        assert_failures(&outcome, &[]);
        assert_eq!(
            (outcome.requests, server.requests(), server.connections()),
            (20, 20, 20)
        );
        assert_eq!(outcome.full_handshakes + outcome.resumed_handshakes, 20);
        assert!(
            resumed.contains(&outcome.resumed_handshakes),
            "{}",
            outcome.resumed_handshakes
        );
        wait_for_closed_connections(&server, 20);
    }
}

#[test]
fn only_certificates_of_the_authority_are_accepted() {
    let certificate = certificate();
    let server = H3Server::start(tls(&certificate, &rustls::version::TLS13), |_| HELLO_H3);
    let trusting = |pem: String| Workload {
        tls: Some(Tls {
            trust: Trust::Authority(pem),
            ..Tls::default()
        }),
        ..plan_h3(&server, 2)
    };
    let outcome = go(&trusting(certificate.cert.pem()));
    assert_failures(&outcome, &[]);
    assert_eq!(outcome.full_handshakes, 1);
    let outcome = go(&trusting(super::server::certificate().cert.pem()));
    assert_failures(&outcome, &[(Failures::CONNECT, 2)]);
    let first = &outcome.first_failures[Failures::CONNECT];
    assert!(first.contains("certificate"), "{first}");
}

#[test]
fn interim_responses_and_trailers_do_not_count_as_content() {
    let server = server(|_| Reply::Full(b"hello"));
    let outcome = go(&plan_h3(&server, 10));
    assert_failures(&outcome, &[]);
    assert_eq!(outcome.requests, 10);
}

#[test]
fn each_wrong_response_is_counted_by_kind() {
    let server = server(|number| match number % 10 {
        1 => Reply::Send(404, b"hello", 5),
        2 => Reply::Send(200, b"hell", 4),
        3 => Reply::Send(200, b"hullo", 1),
        4 => Reply::Reset(Code::H3_INTERNAL_ERROR),
        5 => Reply::Close(Code::H3_INTERNAL_ERROR),
        6 => Reply::Announce(6, b"hello"),
        7 => Reply::Announce(5, b"hello"),
        _ => HELLO_H3,
    });
    let outcome = go(&plan_h3(&server, 100));
    assert_eq!(outcome.requests, 40);
    assert_failures(
        &outcome,
        &[
            (Failures::STATUS, 10),
            (Failures::LENGTH, 20),
            (Failures::CLOSED, 20),
            (Failures::PROTOCOL, 10),
        ],
    );
}

#[test]
fn a_request_unprocessed_by_the_server_is_retried() {
    let server = server(|number| match number % 10 {
        4 => Reply::Reset(Code::H3_REQUEST_REJECTED),
        9 => Reply::Last(b"hello"),
        _ => HELLO_H3,
    });
    let outcome = go(&Workload {
        streams: 3,
        ..plan_h3(&server, 90)
    });
    assert_failures(&outcome, &[]);
    assert_eq!(outcome.requests, 90);
    assert!(server.connections() > 5);
}

#[test]
fn a_missing_response_is_a_timeout() {
    let server = server(|number| if number == 1 { Reply::Never } else { HELLO_H3 });
    let outcome = go(&Workload {
        timeout_seconds: 2.0,
        ..plan_h3(&server, 4)
    });
    assert_failures(&outcome, &[(Failures::TIMEOUT, 1)]);
    assert_eq!(outcome.requests, 3);
}

#[test]
fn a_server_without_http3_is_a_connect_failure() {
    // Bound, but never read.
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    let outcome = go(&Workload {
        addresses: vec![silent.local_addr().expect("a local address")],
        timeout_seconds: 0.2,
        ..plan_h3(&server(|_| HELLO_H3), 2)
    });
    assert_failures(&outcome, &[(Failures::CONNECT, 2)]);
}

#[test]
fn the_open_loop_shows_a_stall() {
    let server = server(|number| match number {
        100 => Reply::Stall(Duration::from_secs(1), b"hello"),
        _ => HELLO_H3,
    });
    let outcome = go(&Workload {
        streams: 4,
        pace: Pace::Open { rate: 500.0 },
        length: Length::Seconds(2.0),
        ..plan_h3(&server, 1)
    });
    assert_failures(&outcome, &[]);
    assert_eq!(outcome.requests, 1000);
    let late = outcome.latency.value_at_percentile(90.0);
    assert!(late > 80_000, "{late}");
    let service = outcome.service.expect("a service histogram");
    assert!(service.value_at_percentile(90.0) < late / 4);
}

#[test]
fn a_stopped_run_ends_at_once() {
    let server = server(|_| HELLO_H3);
    let workload = Workload {
        connections: 4,
        length: Length::Seconds(3600.0),
        ..plan_h3(&server, 1)
    };
    let outcome = run(&workload, &AtomicBool::new(true)).expect("a valid workload");
    assert!(outcome.seconds < 360.0);
    wait_for_closed_connections(&server, server.connections());
}
