//! Processes that read a UDP socket before and still have connections, as the present reader of the socket
//! sees them: each has its generation, and a socket pair that takes the packets for the process.

use crate::limits::H3_FORWARDED_BYTES_MAX;
use crate::serve::h3::connection_id::generation_of;
use crate::serve::h3::forwarded::{ForwardedKind, encode};
use crate::serve::quic_forward::QuicForward;
use quinn::udp::RecvMeta;
use socket2::{Domain, Socket, Type};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Predecessors with connections over one UDP socket.
#[derive(Debug, Default)]
pub(super) struct Forwards {
    /// False if the list is empty. A process without predecessors reads nothing else.
    is_any: AtomicBool,
    predecessors: Mutex<Vec<Predecessor>>,
    /// Datagrams dropped because a predecessor was behind.
    dropped: AtomicU64,
}

#[derive(Debug)]
struct Predecessor {
    generation: u8,
    socket: Socket,
}

/// Time for which a process waits until its predecessors read the socket no more. A predecessor that runs
/// answers within a turn of its event loop. A predecessor that hangs must not delay new connections for longer.
const BEGIN_WAIT_MAX: Duration = Duration::from_secs(1);
/// Pause between two looks for the predecessors' answers.
const BEGIN_LOOK: Duration = Duration::from_millis(1);

/// Makes a pair of sockets: the reader's end, and the end of the process that is forwarded to. The kernel
/// keeps messages whole.
pub(super) fn pair() -> io::Result<(Socket, Socket)> {
    let (reader, predecessor) = Socket::pair(Domain::UNIX, Type::SEQPACKET, None)?;
    reader.set_nonblocking(true)?;
    predecessor.set_nonblocking(true)?;
    // The kernel lowers a size above its limit without an error.
    reader.set_send_buffer_size(H3_FORWARDED_BYTES_MAX)?;
    Ok((reader, predecessor))
}

impl Forwards {
    /// Adds a predecessor.
    pub(super) fn add(&self, generation: u8, socket: Socket) {
        // A predecessor that hangs must not block the reader.
        let _ = socket.set_nonblocking(true);
        self.predecessors().push(Predecessor { generation, socket });
        self.is_any.store(true, Ordering::Relaxed);
    }

    /// Forgets all predecessors.
    pub(super) fn clear(&self) {
        self.is_any.store(false, Ordering::Relaxed);
        self.predecessors().clear();
    }

    /// Returns the number of datagrams dropped because a predecessor was behind.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn predecessors(&self) -> MutexGuard<'_, Vec<Predecessor>> {
        self.predecessors
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns copies of the ends of the pairs to predecessors that still run, for the next process.
    pub(super) fn hand_over(&self, address: SocketAddr) -> io::Result<Vec<QuicForward>> {
        let mut predecessors = self.predecessors();
        predecessors.retain(|predecessor| !predecessor.has_ended());
        let all = predecessors.iter().map(|predecessor| {
            Ok(QuicForward {
                address,
                generation: predecessor.generation,
                socket: predecessor.socket.try_clone()?.into(),
            })
        });
        all.collect()
    }

    /// Has every predecessor stop reading the UDP socket. Returns once all have answered, or when a predecessor
    /// does not answer in time.
    pub(super) async fn begin(&self) {
        let mut waiting: Vec<u8> = Vec::new();
        self.predecessors().retain(|predecessor| {
            let sent = (&predecessor.socket).write(&ForwardedKind::Begin.message());
            match sent {
                Ok(_) => waiting.push(predecessor.generation),
                Err(error) if is_lasting(&error) => return false,
                Err(_) => {}
            }
            true
        });
        let end = Instant::now() + BEGIN_WAIT_MAX;
        loop {
            self.predecessors().retain(|predecessor| {
                if !waiting.contains(&predecessor.generation) {
                    return true;
                }
                let mut answer = [0];
                match (&predecessor.socket).read(&mut answer) {
                    Ok(0) => {
                        waiting.retain(|it| *it != predecessor.generation);
                        return false;
                    }
                    Ok(_) if ForwardedKind::of(answer[0]) == Some(ForwardedKind::Done) => {
                        waiting.retain(|it| *it != predecessor.generation);
                    }
                    Ok(_) => {}
                    Err(error) if is_lasting(&error) => {
                        waiting.retain(|it| *it != predecessor.generation);
                        return false;
                    }
                    Err(_) => {}
                }
                true
            });
            if waiting.is_empty() {
                return;
            }
            if Instant::now() >= end {
                return log::warn!(
                    "a previous process of the server did not give up reading packets of HTTP/3 in {} s; packets may get lost until its end",
                    BEGIN_WAIT_MAX.as_secs()
                );
            }
            sleep(BEGIN_LOOK).await;
        }
    }

    /// Forwards the received datagrams that are for predecessors, and empties their buffers.
    #[inline]
    pub(super) fn take_out(&self, buffers: &[IoSliceMut<'_>], meta: &mut [RecvMeta]) {
        if self.is_any.load(Ordering::Relaxed) {
            self.forward(buffers, meta);
        }
    }

    #[cold]
    fn forward(&self, buffers: &[IoSliceMut<'_>], meta: &mut [RecvMeta]) {
        let mut predecessors = self.predecessors();
        for (buffer, meta) in buffers.iter().zip(meta) {
            let Some(datagram) = buffer.get(..meta.len) else {
                continue;
            };
            let Some(generation) = generation_of(datagram) else {
                continue;
            };
            let mut all = predecessors.iter();
            let Some(at) = all.position(|it| it.generation == generation) else {
                continue;
            };
            match predecessors[at].send(meta, datagram) {
                Ok(_) => meta.len = 0,
                Err(error) if is_lasting(&error) => {
                    predecessors.remove(at);
                    self.is_any
                        .store(!predecessors.is_empty(), Ordering::Relaxed);
                }
                // The predecessor is behind. A network may drop datagrams as well.
                Err(_) => {
                    self.dropped.fetch_add(1, Ordering::Relaxed);
                    meta.len = 0;
                }
            }
        }
    }
}

impl Predecessor {
    fn send(&self, meta: &RecvMeta, datagram: &[u8]) -> io::Result<usize> {
        let header = encode(meta);
        let parts = [IoSlice::new(&header), IoSlice::new(datagram)];
        self.socket
            .send_vectored_with_flags(&parts, libc::MSG_NOSIGNAL)
    }

    /// Returns true if the other end of the pair is closed. Skips late answers.
    fn has_ended(&self) -> bool {
        let mut answer = [0];
        loop {
            match (&self.socket).read(&mut answer) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return is_lasting(&error),
            }
        }
    }
}

/// Returns true for an error after which the other end of a pair never reads again.
fn is_lasting(error: &io::Error) -> bool {
    let passing = [libc::ENOBUFS, libc::ENOMEM, libc::EMSGSIZE];
    let is_passing = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
        || error
            .raw_os_error()
            .is_some_and(|code| passing.contains(&code));
    !is_passing
}
