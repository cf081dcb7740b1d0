//! Load generator against servers that answer correctly, late, wrongly or not at all.

mod h2_server;
mod h3_server;
mod http3;
mod server;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{io, thread};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use h2::Reason;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};
use rustls::{HandshakeKind, NamedGroup};

use super::*;
use crate::result::Failures;
use h2_server::{H2Server, Reply};
use server::{Server, certificate, tls};

const HELLO: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
const HELLO_CLOSE: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";

fn workload(server: &Server, requests: u64) -> Workload {
    Workload {
        length: Length::Requests(requests),
        expect: Expect {
            length: Some(5),
            ..Expect::default()
        },
        ..Workload::new(server.address)
    }
}

fn go(workload: &Workload) -> Outcome {
    run(workload, &AtomicBool::new(false)).expect("a valid workload")
}

/// Asserts that the outcome has exactly the expected failures.
#[track_caller]
fn assert_failures(outcome: &Outcome, expected: &[(&str, u64)]) {
    let expected: BTreeMap<String, u64> = expected
        .iter()
        .map(|&(kind, count)| (kind.to_owned(), count))
        .collect();
    assert_eq!(outcome.failures, expected, "{:?}", outcome.first_failures);
}

#[test]
fn every_request_is_sent_once_and_counted_once() {
    let server = Server::fixed(HELLO);
    let outcome = go(&Workload {
        connections: 4,
        threads: 2,
        ..workload(&server, 100)
    });
    assert_failures(&outcome, &[]);
    assert_eq!(outcome.requests, 100);
    assert_eq!(outcome.bytes, 100 * HELLO.len() as u64);
    assert_eq!(outcome.latency.len(), 100);
    assert_eq!(server.requests(), 100);
    // One connection may have sent all requests before the remaining connections were established.
    assert!((1..=4).contains(&server.connections()));
    assert!(outcome.seconds > 0.0);
    let host = format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", server.address);
    assert!(server.heads().iter().all(|head| *head == host));
}

#[test]
fn without_keep_alive_each_request_has_its_connection() {
    let server = Server::plain(|stream, _| stream.write_all(HELLO).is_err());
    let outcome = go(&Workload {
        connections: 3,
        keep_alive: false,
        ..workload(&server, 20)
    });
    assert_failures(&outcome, &[]);
    assert_eq!(
        (outcome.requests, server.requests(), server.connections()),
        (20, 20, 20)
    );
    assert_eq!(outcome.connect.len(), 20);
    assert!(
        server
            .heads()
            .iter()
            .all(|head| head.contains("\r\nConnection: close\r\n"))
    );
}

#[test]
fn the_client_closes_after_a_timeout_if_the_server_does_not_close() {
    let server = Server::fixed(HELLO);
    let outcome = go(&Workload {
        keep_alive: false,
        ..workload(&server, 3)
    });
    assert_failures(&outcome, &[]);
    assert_eq!((outcome.requests, server.connections()), (3, 3));
}

#[test]
fn the_client_reconnects_after_the_server_closes() {
    let server = Server::plain(|stream, number| match number % 5 {
        4 => stream.write_all(HELLO_CLOSE).is_err(),
        _ => stream.write_all(HELLO).is_ok(),
    });
    let outcome = go(&workload(&server, 100));
    assert_failures(&outcome, &[]);
    assert_eq!((outcome.requests, server.connections()), (100, 20));
}

#[test]
fn all_body_framings_are_read_byte_by_byte() {
    let bodies: [&[u8]; 3] = [
        HELLO,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x\r\nllo\r\n0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\nhello",
    ];
    for body in bodies {
        let until_close = body.starts_with(b"HTTP/1.0");
        let server = Server::plain(move |stream, _| {
            body.iter()
                .try_for_each(|byte| stream.write_all(&[*byte]))
                .is_ok()
                && !until_close
        });
        let expect = Expect {
            body: Some(Arc::from(*b"hello")),
            length: Some(5),
            status: 200,
        };
        let outcome = go(&Workload {
            connections: 2,
            expect,
            ..workload(&server, 10)
        });
        assert_failures(&outcome, &[]);
        assert_eq!(outcome.requests, 10);
    }
}

#[test]
fn head_has_no_content() {
    let server = Server::fixed(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n");
    let expect = Expect {
        length: Some(0),
        ..Expect::default()
    };
    let outcome = go(&Workload {
        method: Method::Head,
        expect,
        ..workload(&server, 10)
    });
    assert_failures(&outcome, &[]);
    assert!(server.heads()[0].starts_with("HEAD / HTTP/1.1\r\n"));
}

#[test]
fn paths_are_requested_in_rotation() {
    let server = Server::fixed(HELLO);
    let paths = vec!["/a".to_owned(), "/b".to_owned(), "/c".to_owned()];
    go(&Workload {
        paths,
        ..workload(&server, 6)
    });
    let pending: Vec<_> = server
        .heads()
        .iter()
        .map(|head| head[5..6].to_owned())
        .collect();
    assert_eq!(pending.concat(), "abcabc");
}

/// Starts a server that stalls all connections once, for 1 s.
fn stalling() -> Server {
    let stalled = std::sync::Mutex::new(false);
    Server::plain(move |stream, number| {
        let mut stalled = stalled.lock().expect("no panic");
        if number >= 50 && !*stalled {
            *stalled = true;
            thread::sleep(Duration::from_secs(1));
        }
        drop(stalled);
        stream.write_all(HELLO).is_ok()
    })
}

#[test]
fn the_open_loop_shows_a_stall_that_the_closed_loop_hides() {
    let server = stalling();
    let workload = Workload {
        connections: 2,
        // A stall that begins late must also end within the run.
        length: Length::Seconds(4.0),
        ..workload(&server, 1)
    };
    let closed = go(&workload);
    assert_failures(&closed, &[]);
    let longest = closed.latency.max();
    assert!(longest >= 900_000, "{longest}");
    assert!(closed.latency.value_at_percentile(90.0) < longest / 4);

    let server = stalling();
    let pace = Pace::Open { rate: 500.0 };
    let open = go(&Workload {
        addresses: vec![server.address],
        pace,
        length: Length::Seconds(2.0),
        ..workload
    });
    assert_failures(&open, &[]);
    // All requests due within the 2 s were sent, and half of the responses were late.
    assert_eq!(open.requests, 1000);
    let late = open.latency.value_at_percentile(90.0);
    assert!(late > 80_000, "{late}");
    // Measured from the sending, only the requests in flight show the stall, as in a closed loop.
    let service = open.service.expect("a service histogram");
    assert!(service.value_at_percentile(90.0) < late / 4);
    assert!(service.max() >= 900_000);
}

#[test]
fn the_open_loop_sends_exactly_the_due_requests() {
    let server = Server::fixed(HELLO);
    let pace = Pace::Open { rate: 300.0 };
    let outcome = go(&Workload {
        connections: 5,
        threads: 3,
        pace,
        length: Length::Seconds(0.5),
        ..workload(&server, 1)
    });
    assert_failures(&outcome, &[]);
    assert_eq!((outcome.requests, server.requests()), (150, 150));
    let pace = Pace::Open { rate: 1000.0 };
    let outcome = go(&Workload {
        connections: 5,
        pace,
        keep_alive: false,
        ..workload(&server, 40)
    });
    assert_failures(&outcome, &[]);
    assert_eq!((outcome.requests, server.requests()), (40, 190));
}

#[test]
fn a_request_without_a_free_connection_times_out() {
    let server = Server::plain(|_, _| true);
    let pace = Pace::Open { rate: 100.0 };
    let length = Length::Seconds(0.5);
    let outcome = go(&Workload {
        pace,
        length,
        // Long enough for every handshake to end in time.
        timeout_seconds: 1.0,
        ..workload(&server, 1)
    });
    assert_eq!(outcome.requests, 0);
    assert_failures(&outcome, &[(Failures::TIMEOUT, 50)]);
    assert_eq!(outcome.latency.len(), 50);
}

#[test]
fn users_pause_between_their_requests() {
    let server = Server::fixed(HELLO);
    let pace = Pace::Closed {
        pause: Some(Pause {
            shortest_seconds: 0.05,
            longest_seconds: 0.1,
        }),
    };
    let outcome = go(&Workload {
        connections: 4,
        pace,
        length: Length::Seconds(3.0),
        ..workload(&server, 1)
    });
    assert_failures(&outcome, &[]);
    assert!(
        (1..=4 * 61).contains(&outcome.requests),
        "{}",
        outcome.requests
    );
    assert_eq!(server.connections(), 4);
}

#[test]
fn wrong_responses_are_classified_and_described() {
    let cases: [(&'static [u8], &str, &str); 7] = [
        (
            b"HTTP/1.1 503 No\r\nContent-Length: 5\r\n\r\nhello",
            Failures::STATUS,
            "status 503 instead of 200",
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhell",
            Failures::LENGTH,
            "4 bytes of content instead of 5",
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhullo",
            Failures::LENGTH,
            "content differs from the expected content",
        ),
        (
            b"SSH-2.0-Server\r\n\r\n",
            Failures::PROTOCOL,
            "invalid status line",
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\n",
            Failures::PROTOCOL,
            "invalid Content-Length",
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello!",
            Failures::PROTOCOL,
            http1::EXCESS_BYTES,
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            Failures::LENGTH,
            "0 bytes of content instead of 5",
        ),
    ];
    for (bytes, kind, what) in cases {
        let server = Server::fixed(bytes);
        let expect = Expect {
            body: Some(Arc::from(*b"hello")),
            length: Some(5),
            status: 200,
        };
        let outcome = go(&Workload {
            connections: 2,
            expect,
            ..workload(&server, 10)
        });
        assert_eq!(outcome.requests, 0, "{what}");
        assert_failures(&outcome, &[(kind, 10)]);
        assert_eq!(outcome.first_failures[kind], what);
    }
}

#[test]
fn each_wrong_response_is_counted_by_kind() {
    let server = Server::plain(|stream, number| match number % 10 {
        1 => stream
            .write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nhello")
            .is_ok(),
        2 => stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel")
            .is_err(),
        3 => stream.write_all(b"HTTP/1.1 200 OK\r\nConte").is_err(),
        4 => false,
        5 => stream.write_all(b"nonsense\r\n").is_ok(),
        _ => stream.write_all(HELLO).is_ok(),
    });
    let outcome = go(&workload(&server, 100));
    assert_eq!(outcome.requests, 50);
    assert_failures(
        &outcome,
        &[
            (Failures::STATUS, 10),
            (Failures::CLOSED, 20),
            (Failures::LENGTH, 10),
            (Failures::PROTOCOL, 10),
        ],
    );
    assert_eq!(outcome.failed(), 50);
}

#[test]
fn a_missing_response_is_a_timeout() {
    let server = Server::plain(|stream, number| number % 2 == 0 || stream.write_all(HELLO).is_ok());
    // Long enough for every answered request to end in time on a busy machine.
    let outcome = go(&Workload {
        timeout_seconds: 2.5,
        ..workload(&server, 4)
    });
    assert_failures(&outcome, &[(Failures::TIMEOUT, 2)]);
    assert_eq!(outcome.requests, 2);
    assert_eq!(
        outcome.first_failures[Failures::TIMEOUT],
        "timed out after 2.5 s"
    );
    // Half of the requests took at least the timeout, and the percentiles show the timeout.
    assert_eq!(outcome.latency.len(), 4);
    assert!(outcome.latency.value_at_percentile(75.0) >= 2_500_000 - 5_000);
    assert!(outcome.latency.value_at_percentile(50.0) < 2_500_000);
}

#[test]
fn a_refused_connection_is_a_connect_failure() {
    // Bound but not listening: the port refuses connections and can't be assigned to another process.
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("a port");
    let address = getsockname(&socket)
        .expect("a local address")
        .try_into()
        .expect("an address of IP");
    for keep_alive in [true, false] {
        let length = Length::Requests(6);
        let outcome = go(&Workload {
            connections: 2,
            keep_alive,
            length,
            ..Workload::new(address)
        });
        assert_eq!(outcome.requests, 0);
        assert_failures(&outcome, &[(Failures::CONNECT, 6)]);
        assert!(outcome.first_failures[Failures::CONNECT].contains("refused"));
    }
}

#[test]
fn the_warm_up_is_not_counted() {
    let server = Server::fixed(HELLO);
    // Long enough for both connections to be established within the warm-up on a busy machine.
    let outcome = go(&Workload {
        connections: 2,
        warm_up_seconds: 2.0,
        ..workload(&server, 50)
    });
    assert_failures(&outcome, &[]);
    assert_eq!((outcome.requests, outcome.latency.len()), (50, 50));
    assert!(server.requests() > 50);
    assert!(outcome.connect.is_empty());
}

#[test]
fn a_stopped_run_keeps_its_figures() {
    let server = Server::fixed(HELLO);
    let stop = AtomicBool::new(false);
    let workload = Workload {
        length: Length::Seconds(3600.0),
        ..workload(&server, 1)
    };
    let outcome = thread::scope(|scope| {
        let running = scope.spawn(|| run(&workload, &stop));
        while server.requests() < 100 {
            thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
        running.join().expect("no panic").expect("a valid workload")
    });
    assert!(outcome.requests >= 99);
    assert!(outcome.seconds > 0.0 && outcome.seconds < 360.0);
    assert_failures(&outcome, &[]);
}

#[test]
fn the_begin_and_end_of_the_window_are_reported() {
    let server = Server::fixed(HELLO);
    for length in [Length::Seconds(0.2), Length::Requests(10)] {
        let mut moments = Vec::new();
        let workload = Workload {
            length,
            warm_up_seconds: 0.1,
            ..workload(&server, 1)
        };
        run_observed(&workload, &AtomicBool::new(false), |moment| {
            moments.push(moment)
        })
        .expect("a valid workload");
        assert_eq!(moments, [Moment::Begin, Moment::End]);
    }
}

#[test]
fn the_cpu_time_of_the_generator_is_reported() {
    let server = Server::fixed(HELLO);
    let outcome = go(&Workload {
        connections: 2,
        cpus: vec![0],
        length: Length::Seconds(0.5),
        ..workload(&server, 1)
    });
    let spent = outcome.user_seconds + outcome.system_seconds;
    assert!(spent > 0.0 && spent < 5.0, "{spent}");
    assert_eq!(outcome.cpus, 1);
}

#[test]
fn invalid_workloads_are_rejected_with_a_reason() {
    let good = Workload::default();
    let fails = |workload: &Workload| {
        run(workload, &AtomicBool::new(false))
            .expect_err("an invalid workload")
            .to_string()
    };
    assert_eq!(
        fails(&Workload {
            addresses: Vec::new(),
            ..good.clone()
        }),
        "the plan names no address"
    );
    assert_eq!(
        fails(&Workload {
            paths: Vec::new(),
            ..good.clone()
        }),
        "the plan names no path"
    );
    let path = "/a b\r\nX: y".to_owned();
    assert!(
        fails(&Workload {
            paths: vec![path],
            ..good.clone()
        })
        .contains("is not a valid request URL")
    );
    let pace = Pace::Open { rate: 0.0 };
    assert_eq!(
        fails(&Workload {
            pace,
            ..good.clone()
        }),
        "the rate must be greater than zero and finite"
    );
    let cpus = vec![100_000];
    assert!(
        fails(&Workload {
            cpus,
            ..good.clone()
        })
        .starts_with("cannot pin a thread to processor 100000")
    );
    let connections = 1 << 40;
    assert!(
        fails(&Workload {
            connections,
            ..good.clone()
        })
        .contains("ulimit -n")
    );
    let secure = Tls {
        trust: Trust::Authority("nonsense".to_owned()),
        ..Tls::default()
    };
    assert!(
        fails(&Workload {
            tls: Some(secure),
            ..good
        })
        .starts_with("cannot read the certificate of the authority")
    );
}

#[test]
fn a_round_holds_the_whole_histogram() {
    let server = Server::fixed(HELLO);
    let workload = workload(&server, 100);
    let outcome = go(&workload);
    let (latency, seconds) = (outcome.latency.clone(), outcome.seconds);
    let round = outcome.into_round(3, &workload);
    assert_eq!(
        (round.number, round.driver.as_str(), round.requests),
        (3, "embedded", 100)
    );
    assert_eq!(round.seconds, seconds);
    let summary = round.latency.expect("a latency");
    let bytes = STANDARD
        .decode(summary.histogram.expect("a histogram"))
        .expect("base64");
    let read: Histogram<u64> = Deserializer::new()
        .deserialize(&mut io::Cursor::new(bytes))
        .expect("a histogram");
    assert_eq!(read, latency);
    assert_eq!(
        summary.percentiles_us["50"],
        latency.value_at_percentile(50.0) as f64
    );
    assert!(!summary.from_due_time);
}

fn secure(server: &Server, tls: Tls) -> Workload {
    Workload {
        tls: Some(tls),
        keep_alive: false,
        connections: 2,
        ..workload(server, 20)
    }
}

#[test]
fn handshakes_are_full_or_resumed_as_configured() {
    let certificate = certificate();
    for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
        for resumption in [Resumption::Full, Resumption::Resumed] {
            let server = Server::tls(tls(&certificate, version), |stream, _| {
                stream.write_all(HELLO).is_err()
            });
            let outcome = go(&secure(
                &server,
                Tls {
                    resumption,
                    ..Tls::default()
                },
            ));
            assert_failures(&outcome, &[]);
            assert_eq!(outcome.requests, 20);
            let handshakes = server.handshakes();
            let resumed = handshakes
                .iter()
                .filter(|(kind, _)| *kind == HandshakeKind::Resumed)
                .count();
            assert_eq!(
                (handshakes.len(), outcome.full_handshakes),
                (20, 20 - resumed as u64)
            );
            assert_eq!(outcome.resumed_handshakes, resumed as u64);
            // The first handshake of each of the two connections has no session to resume.
            let expected = if resumption == Resumption::Full {
                0..=0
            } else {
                18..=19
            };
            assert!(
                expected.contains(&resumed),
                "{resumed} of {version:?} {resumption:?}"
            );
        }
    }
}

#[test]
fn the_client_closes_the_socket_after_close_notify() {
    let server = Server::tls(tls(&certificate(), &rustls::version::TLS13), |stream, _| {
        stream.write_all(HELLO).is_err()
    });
    let outcome = go(&Workload {
        length: Length::Requests(60),
        ..secure(&server, Tls::default())
    });
    assert_failures(&outcome, &[]);
    assert_eq!(outcome.requests, 60);
    // The server closes its sockets after the client. A client that waited for the server would need 1 s
    // for each request, with two requests at a time.
    assert!(outcome.seconds < 15.0, "{} s", outcome.seconds);
}

#[test]
fn a_kept_connection_makes_one_handshake() {
    let server = Server::tls(tls(&certificate(), &rustls::version::TLS13), |stream, _| {
        stream.write_all(HELLO).is_ok()
    });
    let outcome = go(&Workload {
        keep_alive: true,
        ..secure(&server, Tls::default())
    });
    assert_failures(&outcome, &[]);
    assert_eq!((outcome.requests, outcome.resumed_handshakes), (20, 0));
    // One connection may have sent all requests before the second was established.
    assert!(
        (1..=2).contains(&outcome.full_handshakes),
        "{} handshakes",
        outcome.full_handshakes
    );
    assert_eq!(outcome.bytes, 20 * HELLO.len() as u64);
}

#[test]
fn the_key_exchange_uses_the_configured_group() {
    let cases = [
        (Groups::X25519, NamedGroup::X25519),
        (Groups::X25519MLKEM768, NamedGroup::X25519MLKEM768),
        (Groups::Default, NamedGroup::X25519MLKEM768),
    ];
    for (groups, expected) in cases {
        let config = tls(&certificate(), &rustls::version::TLS13);
        let server = Server::tls(config, |stream, _| stream.write_all(HELLO).is_err());
        let outcome = go(&secure(
            &server,
            Tls {
                groups,
                ..Tls::default()
            },
        ));
        assert_failures(&outcome, &[]);
        assert!(
            server
                .handshakes()
                .iter()
                .all(|(_, group)| *group == Some(expected))
        );
    }
}

#[test]
fn only_the_given_authority_is_trusted() {
    let (known, other) = (certificate(), certificate());
    for (trusted, failures) in [(&known, 0), (&other, 20)] {
        let server = Server::tls(tls(&known, &rustls::version::TLS13), |stream, _| {
            stream.write_all(HELLO).is_err()
        });
        let trust = Trust::Authority(trusted.cert.pem());
        let outcome = go(&secure(
            &server,
            Tls {
                trust,
                ..Tls::default()
            },
        ));
        assert_eq!(outcome.requests, 20 - failures);
        assert_eq!(
            outcome
                .failures
                .get(Failures::CONNECT)
                .copied()
                .unwrap_or(0),
            failures
        );
    }
}

#[test]
fn a_large_response_over_tls_is_whole() {
    let body: Arc<[u8]> = (0..3_000_000u32)
        .map(|number| (number % 251) as u8)
        .collect();
    let sent = Arc::clone(&body);
    let server = Server::tls(
        tls(&certificate(), &rustls::version::TLS13),
        move |stream, _| {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", sent.len());
            stream.write_all(head.as_bytes()).is_ok() && stream.write_all(&sent).is_ok()
        },
    );
    let expect = Expect {
        length: Some(body.len() as u64),
        body: Some(body),
        status: 200,
    };
    let outcome = go(&Workload {
        expect,
        keep_alive: true,
        ..secure(&server, Tls::default())
    });
    assert_failures(&outcome, &[]);
    assert_eq!(outcome.requests, 20);
}

#[test]
fn a_handshake_with_a_plain_http_server_fails() {
    let server = Server::fixed(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    let outcome = go(&Workload {
        timeout_seconds: 0.2,
        length: Length::Requests(2),
        ..secure(&server, Tls::default())
    });
    assert_failures(&outcome, &[(Failures::CONNECT, 2)]);
}

fn plan_h2(server: &H2Server, requests: u64) -> Workload {
    Workload {
        protocol: Protocol::Http2,
        length: Length::Requests(requests),
        expect: Expect {
            length: Some(5),
            body: Some(Arc::from(*b"hello")),
            ..Expect::default()
        },
        ..Workload::new(server.address)
    }
}

const HELLO_H2: Reply = Reply::Send(200, b"hello", 2);

#[test]
fn http2_sends_requests_on_several_streams() {
    let server = H2Server::start(None, |_| HELLO_H2);
    let outcome = go(&Workload {
        connections: 3,
        streams: 4,
        threads: 2,
        ..plan_h2(&server, 100)
    });
    assert_failures(&outcome, &[]);
    assert_eq!(
        (outcome.requests, server.requests(), outcome.latency.len()),
        (100, 100, 100)
    );
    assert!((1..=3).contains(&server.connections()));
    assert!(outcome.bytes >= 500);
}

#[test]
fn http2_without_keep_alive_has_a_connection_for_each_request() {
    let server = H2Server::start(None, |_| HELLO_H2);
    let outcome = go(&Workload {
        connections: 2,
        keep_alive: false,
        ..plan_h2(&server, 20)
    });
    assert_failures(&outcome, &[]);
    assert_eq!(
        (outcome.requests, server.requests(), server.connections()),
        (20, 20, 20)
    );
}

#[test]
fn http2_handshakes_are_full_or_resumed_as_configured() {
    for (resumption, resumed) in [(Resumption::Full, 0..=0), (Resumption::Resumed, 18..=19)] {
        let server = H2Server::start(Some(tls(&certificate(), &rustls::version::TLS13)), |_| {
            HELLO_H2
        });
        let secure = Some(Tls {
            resumption,
            ..Tls::default()
        });
        let outcome = go(&Workload {
            tls: secure,
            connections: 2,
            keep_alive: false,
            ..plan_h2(&server, 20)
        });
        assert_failures(&outcome, &[]);
        assert_eq!(outcome.requests, 20);
        assert_eq!(outcome.full_handshakes + outcome.resumed_handshakes, 20);
        assert!(
            resumed.contains(&outcome.resumed_handshakes),
            "{}",
            outcome.resumed_handshakes
        );
    }
}

#[test]
fn a_server_without_http2_is_a_failure() {
    let mut config = tls(&certificate(), &rustls::version::TLS13);
    config.alpn_protocols.clear();
    let server = H2Server::start(Some(config), |_| HELLO_H2);
    let outcome = go(&Workload {
        tls: Some(Tls::default()),
        ..plan_h2(&server, 3)
    });
    assert_failures(&outcome, &[(Failures::CONNECT, 3)]);
    assert_eq!(
        outcome.first_failures[Failures::CONNECT],
        "the server did not choose HTTP/2"
    );
    let server = Server::fixed(HELLO);
    let outcome = go(&Workload {
        protocol: Protocol::Http2,
        ..workload(&server, 3)
    });
    assert_failures(&outcome, &[(Failures::PROTOCOL, 3)]);
}

#[test]
fn each_wrong_http2_response_is_counted_by_kind() {
    let server = H2Server::start(None, |number| match number % 10 {
        1 => Reply::Send(404, b"hello", 5),
        2 => Reply::Send(200, b"hell", 4),
        3 => Reply::Send(200, b"hullo", 1),
        4 => Reply::Reset(Reason::INTERNAL_ERROR),
        5 => Reply::Hang,
        _ => HELLO_H2,
    });
    let outcome = go(&plan_h2(&server, 100));
    assert_eq!(outcome.requests, 50);
    assert_failures(
        &outcome,
        &[
            (Failures::STATUS, 10),
            (Failures::LENGTH, 20),
            (Failures::CLOSED, 20),
        ],
    );
}

#[test]
fn a_request_unprocessed_by_an_http2_server_is_retried() {
    let server = H2Server::start(None, |number| match number % 10 {
        4 => Reply::Reset(Reason::REFUSED_STREAM),
        9 => Reply::Last(b"hello"),
        _ => HELLO_H2,
    });
    let outcome = go(&Workload {
        streams: 3,
        ..plan_h2(&server, 90)
    });
    assert_failures(&outcome, &[]);
    assert_eq!(outcome.requests, 90);
    assert!(server.connections() > 10);
}

#[test]
fn a_missing_http2_response_is_a_timeout() {
    let server = H2Server::start(
        None,
        |number| if number == 1 { Reply::Never } else { HELLO_H2 },
    );
    let outcome = go(&Workload {
        timeout_seconds: 2.0,
        ..plan_h2(&server, 4)
    });
    assert_failures(&outcome, &[(Failures::TIMEOUT, 1)]);
    assert_eq!(outcome.requests, 3);
}

#[test]
fn the_open_loop_of_http2_shows_a_stall() {
    let server = H2Server::start(None, |number| match number {
        100 => Reply::Stall(Duration::from_secs(1), b"hello"),
        _ => HELLO_H2,
    });
    let (pace, length) = (Pace::Open { rate: 500.0 }, Length::Seconds(2.0));
    let outcome = go(&Workload {
        streams: 4,
        pace,
        length,
        ..plan_h2(&server, 1)
    });
    assert_failures(&outcome, &[]);
    assert_eq!(outcome.requests, 1000);
    let late = outcome.latency.value_at_percentile(90.0);
    assert!(late > 80_000, "{late}");
    let service = outcome.service.expect("a service histogram");
    assert!(service.value_at_percentile(90.0) < late / 4);
}

#[test]
fn http2_users_pause_and_stop() {
    let server = H2Server::start(None, |_| HELLO_H2);
    let pace = Pace::Closed {
        pause: Some(Pause {
            shortest_seconds: 0.05,
            longest_seconds: 0.1,
        }),
    };
    let workload = Workload {
        connections: 4,
        pace,
        length: Length::Seconds(3.0),
        warm_up_seconds: 0.1,
        ..plan_h2(&server, 1)
    };
    let outcome = go(&workload);
    assert_failures(&outcome, &[]);
    assert!(
        (1..=4 * 61).contains(&outcome.requests),
        "{}",
        outcome.requests
    );
    let stop = AtomicBool::new(true);
    let outcome = run(
        &Workload {
            length: Length::Seconds(3600.0),
            ..workload
        },
        &stop,
    )
    .expect("a valid workload");
    assert!(outcome.seconds < 360.0);
}

/// A server that answers no request sees the local address of each connection attempt.
#[test]
fn connections_rotate_through_the_local_addresses() {
    let sources: Vec<IpAddr> = ["127.0.0.7", "127.0.0.8", "127.0.0.9"]
        .map(|source| source.parse().expect("an address"))
        .into();
    for protocol in [Protocol::Http1, Protocol::Http2, Protocol::Http3] {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("a local address");
        let datagrams = UdpSocket::bind(address).expect("the port of the same number");
        let tls = (protocol == Protocol::Http3).then(Tls::default);
        let workload = Workload {
            sources: sources.clone(),
            protocol,
            tls,
            connections: sources.len(),
            timeout_seconds: 0.2,
            length: Length::Requests(3),
            ..Workload::new(address)
        };
        let seen = Arc::new(Mutex::new(BTreeSet::new()));
        let (of_tcp, of_udp) = (Arc::clone(&seen), Arc::clone(&seen));
        let note = |seen: &Mutex<BTreeSet<IpAddr>>, peer: SocketAddr| {
            seen.lock().expect("no panic").insert(peer.ip());
        };
        thread::spawn(move || {
            while let Ok((_, peer)) = listener.accept() {
                note(&of_tcp, peer);
            }
        });
        thread::spawn(move || {
            while let Ok((_, peer)) = datagrams.recv_from(&mut [0; 2_000]) {
                note(&of_udp, peer);
            }
        });
        let outcome = go(&workload);
        assert_eq!(outcome.requests, 0, "{protocol}");
        // The connections are open, but the threads of the server may still be asleep.
        let all = || seen.lock().expect("no panic").clone();
        while all().len() < sources.len() {
            thread::yield_now();
        }
        assert!(all().iter().eq(&sources), "{protocol}: {:?}", all());
    }
}

#[test]
fn a_local_address_of_another_family_is_rejected() {
    let workload = Workload {
        sources: vec![Ipv6Addr::LOCALHOST.into()],
        ..Workload::default()
    };
    let error = workload
        .check()
        .expect_err("an invalid workload")
        .to_string();
    assert_eq!(
        error,
        "::1 can't connect to 127.0.0.1:80: one is IPv4, the other IPv6"
    );
}
