//! Messages of a takeover, as text: pure encoding and parsing.
//!
//! A message is one packet, a word and its arguments, separated by spaces. The last argument may contain spaces. The number
//! of the protocol is in the first message of each side, so a program of another version is refused with a reason before
//! anything has changed.

use crate::control::limits::{TAKEOVER_MESSAGE_BYTES_MAX, TAKEOVER_TEXT_BYTES_MAX};
use base::restarts::{RESTART_REFUSED, RESTART_REQUEST, SERVER_LEAVES, SUCCESSOR_STARTS};
use std::fmt;
use std::net::SocketAddr;

/// Number of the protocol. A change of the meaning of a message has a new number.
pub(in crate::control) const PROTOCOL: u32 = 1;

/// Message of a takeover.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::control) enum Message {
    /// The running server introduces itself; the first message.
    Hello(ServerName),
    /// Listening sockets with a name, in the descriptors of the message.
    Sockets(String),
    /// Socket for the packets of connections over HTTP/3 of one server, in the descriptor of the message.
    Forward {
        /// Address of the UDP socket.
        address: SocketAddr,
        /// First byte of the connection ids of the server.
        generation: u8,
    },
    /// An older server that still has connections, with its link in the descriptor of the message.
    Former(ServerName),
    /// The running server has sent everything.
    Complete,
    /// The successor is ready: the running server is to pause.
    Yield,
    /// The running server accepts no more connections, and has written its state.
    Yielded,
    /// The running server goes on, for the reason.
    Refused(String),
    /// The successor serves: the running server is to leave.
    Serving(ServerName),
    /// Connections of a server that leaves.
    Connections(OpenConnections),
    /// The server that leaves is to open its logs again.
    Reopen,
    /// The server that leaves is to end idle connections at once.
    EndIdle,
    /// To the supervisor: the server is to be replaced.
    Restart,
    /// From the supervisor: a successor starts, with the link to it in the descriptor of the message.
    Successor,
    /// To the supervisor: the successor serves.
    Leaving,
    /// The server that leaves is to stop like a server that serves.
    Stop,
    /// The server that leaves is to end at once.
    End,
}

/// Version and process of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::control) struct ServerName {
    /// Version of the program.
    pub(in crate::control) version: String,
    /// Number of the process.
    pub(in crate::control) process: u32,
}

impl ServerName {
    /// Returns the name of this process.
    pub(in crate::control) fn own() -> ServerName {
        ServerName {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            process: std::process::id(),
        }
    }

    fn parse(text: &str) -> Option<ServerName> {
        let (process, version) = text.split_once(' ')?;
        let is_plain = |byte: u8| byte.is_ascii_graphic();
        let is_version =
            (1..=VERSION_BYTES_MAX).contains(&version.len()) && version.bytes().all(is_plain);
        is_version.then_some(ServerName {
            version: version.to_owned(),
            process: process.parse().ok()?,
        })
    }
}

/// Longest version, 64 bytes: a version has three numbers, and perhaps a word.
const VERSION_BYTES_MAX: usize = 64;

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.process, self.version)
    }
}

/// Connections of a server that leaves.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub(in crate::control) struct OpenConnections {
    /// Open connections.
    pub(in crate::control) all: u64,
    /// Requests under way, with the tunnels.
    pub(in crate::control) requests: u64,
}

impl Message {
    /// Parses a packet; None for nonsense, and for the message of another protocol.
    pub(in crate::control) fn parse(packet: &[u8]) -> Option<Message> {
        if packet.len() > TAKEOVER_MESSAGE_BYTES_MAX {
            return None;
        }
        let text = std::str::from_utf8(packet).ok()?;
        if text.contains(char::is_control) {
            return None;
        }
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let message = match (word, rest) {
            ("hello", _) => Message::Hello(protocol(rest)?),
            ("sockets", _) if is_socket_name(rest) => Message::Sockets(rest.to_owned()),
            ("forward", _) => {
                let (generation, address) = rest.split_once(' ')?;
                Message::Forward {
                    address: address.parse().ok()?,
                    generation: generation.parse().ok()?,
                }
            }
            ("former", _) => Message::Former(ServerName::parse(rest)?),
            ("complete", "") => Message::Complete,
            ("yield", "") => Message::Yield,
            ("yielded", "") => Message::Yielded,
            (RESTART_REFUSED, _) if !rest.is_empty() => Message::Refused(rest.to_owned()),
            ("serving", _) => Message::Serving(protocol(rest)?),
            ("connections", _) => {
                let (all, requests) = rest.split_once(' ')?;
                Message::Connections(OpenConnections {
                    all: all.parse().ok()?,
                    requests: requests.parse().ok()?,
                })
            }
            ("reopen", "") => Message::Reopen,
            ("end-idle", "") => Message::EndIdle,
            (RESTART_REQUEST, "") => Message::Restart,
            (SUCCESSOR_STARTS, "") => Message::Successor,
            (SERVER_LEAVES, "") => Message::Leaving,
            ("stop", "") => Message::Stop,
            ("end", "") => Message::End,
            _ => return None,
        };
        Some(message)
    }

    /// Returns the packet of the message. A longer text is cut off.
    pub(in crate::control) fn packet(&self) -> String {
        match self {
            Message::Hello(name) => format!("hello {PROTOCOL} {name}"),
            Message::Sockets(name) => format!("sockets {name}"),
            Message::Forward {
                address,
                generation,
            } => format!("forward {generation} {address}"),
            Message::Former(name) => format!("former {name}"),
            Message::Complete => "complete".to_owned(),
            Message::Yield => "yield".to_owned(),
            Message::Yielded => "yielded".to_owned(),
            Message::Refused(reason) => format!("{RESTART_REFUSED} {}", one_line(reason)),
            Message::Serving(name) => format!("serving {PROTOCOL} {name}"),
            Message::Connections(open) => format!("connections {} {}", open.all, open.requests),
            Message::Reopen => "reopen".to_owned(),
            Message::EndIdle => "end-idle".to_owned(),
            Message::Restart => RESTART_REQUEST.to_owned(),
            Message::Successor => SUCCESSOR_STARTS.to_owned(),
            Message::Leaving => SERVER_LEAVES.to_owned(),
            Message::Stop => "stop".to_owned(),
            Message::End => "end".to_owned(),
        }
    }
}

/// Parses the name of a server after the number of the protocol.
fn protocol(text: &str) -> Option<ServerName> {
    let (number, name) = text.split_once(' ')?;
    (number.parse() == Ok(PROTOCOL)).then(|| ServerName::parse(name))?
}

fn is_socket_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    !name.is_empty() && bytes.all(|byte| byte.is_ascii_graphic() && byte != b':')
}

fn one_line(text: &str) -> String {
    let mut line = text.replace(char::is_control, " ");
    let mut length = line.len().min(TAKEOVER_TEXT_BYTES_MAX);
    while !line.is_char_boundary(length) {
        length -= 1;
    }
    line.truncate(length);
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all() -> Vec<Message> {
        let name = ServerName {
            version: "0.1.0-rc.1".to_owned(),
            process: 4_711,
        };
        let open = OpenConnections {
            all: 14,
            requests: 2,
        };
        vec![
            Message::Hello(name.clone()),
            Message::Sockets("anthill/tcp/https/[__]_443".to_owned()),
            Message::Forward {
                address: "[fe80::1]:443".parse().unwrap(),
                generation: 255,
            },
            Message::Former(name.clone()),
            Message::Complete,
            Message::Yield,
            Message::Yielded,
            Message::Refused("a deployment is under way".to_owned()),
            Message::Serving(name),
            Message::Connections(open),
            Message::Reopen,
            Message::EndIdle,
            Message::Restart,
            Message::Successor,
            Message::Leaving,
            Message::Stop,
            Message::End,
        ]
    }

    #[test]
    fn messages_are_parsed_as_written() {
        for message in all() {
            let packet = message.packet();
            assert_eq!(Message::parse(packet.as_bytes()), Some(message), "{packet}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let long = format!("refused {}", "x".repeat(TAKEOVER_MESSAGE_BYTES_MAX));
        for packet in [
            "",
            " ",
            "hello",
            "hello 2 1 0.1.0",
            "hello 1 1",
            "hello 1 1 ",
            "hello 1 -1 0.1.0",
            "hello 1 1 0.1.0\n",
            "hello 1 1 0 1",
            "forward 256 127.0.0.1:443",
            "forward 1 localhost:443",
            "sockets",
            "sockets a:b",
            "yield now",
            "refused",
            "connections 1",
            "connections 1 x",
            "Yield",
            &long,
        ] {
            assert_eq!(Message::parse(packet.as_bytes()), None, "{packet:.40}");
        }
        assert_eq!(Message::parse(b"refused \xff"), None);
    }

    #[test]
    fn a_long_reason_is_cut_and_has_one_line() {
        let message = Message::Refused(format!("a\nb{}", "ä".repeat(TAKEOVER_MESSAGE_BYTES_MAX)));
        let packet = message.packet();
        assert!(packet.len() <= TAKEOVER_MESSAGE_BYTES_MAX);
        assert!(packet.starts_with("refused a bää"));
        assert!(Message::parse(packet.as_bytes()).is_some());
    }

    proptest! {
        #[test]
        fn every_parsed_packet_is_written_the_same(packet in "(hello|former|serving|sockets|connections|refused|end)( [ -~]{0,40})?") {
            if let Some(message) = Message::parse(packet.as_bytes()) {
                prop_assert_eq!(Message::parse(message.packet().as_bytes()), Some(message));
            }
        }
    }
}
