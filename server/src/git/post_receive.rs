//! Response to a push, held back until the pushed branch is deployed: at the return of `git push`, the server serves
//! the pushed content.

use crate::git::limits::{PUSH_KEEP_ALIVE_SECONDS, PUSH_RESPONSE_WAIT_SECONDS_MAX};
use data_plane::handler::pipe::{PipeBroken, PipeRead, PipeReader, PipeWriter, pipe};
use data_plane::handler::{LocalBoxFuture, Response, ResponseBody};
use data_plane::limits::{PIPE_BYTES, PROGRAM_CHUNK_BYTES};
use std::future::{Future, poll_fn};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};
use wire::pkt_line::{KEEP_ALIVE, PushResponse};

/// Sender of push notices.
#[derive(Clone)]
pub struct PushNotifier(UnboundedSender<PushNotice>);

/// Notice of a completed push; the push may have changed nothing.
pub struct PushNotice {
    /// Repository as named by the request.
    pub repository: PathBuf,
    /// Start of the push. A deployment since the start may include the pushed content.
    pub began: Instant,
    /// Channel for the end of the deployments, with messages for the client.
    pub done: oneshot::Sender<Vec<String>>,
}

impl PushNotifier {
    /// Creates a notifier and the receiver of its notices.
    pub fn new() -> (PushNotifier, UnboundedReceiver<PushNotice>) {
        let (sender, receiver) = unbounded_channel();
        (PushNotifier(sender), receiver)
    }

    /// Records the start of a push to a repository. A notice follows at the end of the push, even if the
    /// client has disconnected.
    pub(crate) fn begin(&self, repository: PathBuf) -> ActivePush {
        ActivePush {
            pushes: self.clone(),
            repository,
            began: Instant::now(),
            is_told: false,
        }
    }
}

/// Message to the client for a push during shutdown, since deployments have stopped.
pub(crate) const STOPPING: &str =
    "not deployed yet: the server is stopping and deploys the branch at the next start";

/// Time limits for a held response.
#[derive(Clone, Copy)]
struct HoldTimes {
    /// Interval of keep-alive packets to the client.
    keep_alive: Duration,
    whole: Duration,
}

const PATIENCE: HoldTimes = HoldTimes {
    keep_alive: Duration::from_secs(PUSH_KEEP_ALIVE_SECONDS),
    whole: Duration::from_secs(PUSH_RESPONSE_WAIT_SECONDS_MAX),
};

/// A push in progress.
pub(crate) struct ActivePush {
    pushes: PushNotifier,
    repository: PathBuf,
    began: Instant,
    is_told: bool,
}

impl ActivePush {
    /// Returns the response with its end delayed until the push is deployed.
    pub(crate) fn hold(self, response: Response) -> Response {
        let ResponseBody::Stream {
            length,
            reader,
            work,
        } = response.body
        else {
            return response;
        };
        let (writer, held) = pipe(PIPE_BYTES);
        let can_grow = length.is_none();
        let body = ResponseBody::Stream {
            length,
            reader: held,
            work: Box::pin(beside(work, self.pass(reader, writer, can_grow, PATIENCE))),
        };
        Response { body, ..response }
    }

    async fn pass(
        mut self,
        mut from: PipeReader,
        mut to: PipeWriter,
        can_grow: bool,
        patience: HoldTimes,
    ) {
        // The client or git has ended, so nothing further can be sent.
        let Ok(answer) = pass_on(&mut from, &mut to).await else {
            return to.break_off(from.break_reason());
        };
        if answer.is_empty() {
            // An empty response needs no notice.
            self.is_told = true;
            return to.finish();
        }
        if let Ok(last) = self
            .closing_messages(answer, &mut to, can_grow, patience)
            .await
            && to.write_all(&last).await.is_ok()
        {
            to.finish();
        }
    }

    /// Waits for the deployments and returns the end of the response.
    async fn closing_messages(
        &mut self,
        answer: PushResponse,
        to: &mut PipeWriter,
        can_grow: bool,
        patience: HoldTimes,
    ) -> Result<Vec<u8>, PipeBroken> {
        let mut done = pin!(self.tell());
        let until = Instant::now() + patience.whole;
        let can_insert = answer.can_insert_message() && can_grow;
        loop {
            let next = (Instant::now() + patience.keep_alive).min(until);
            let messages = match timeout_at(next, done.as_mut()).await {
                Ok(Ok(messages)) => messages,
                // The server is stopping.
                Ok(Err(_)) => vec![STOPPING.to_owned()],
                Err(_) if Instant::now() >= until => {
                    vec!["the deployment takes longer than a push waits, and continues".to_owned()]
                }
                Err(_) if can_insert => {
                    to.write_all(KEEP_ALIVE).await?;
                    continue;
                }
                Err(_) => continue,
            };
            let messages = if can_insert { &messages[..] } else { &[] };
            return Ok(answer.end(messages));
        }
    }

    fn tell(&mut self) -> oneshot::Receiver<Vec<String>> {
        let (done, receiver) = oneshot::channel();
        self.is_told = true;
        // If the receiver has ended, `receiver` reports the closed channel.
        let _ = self.pushes.0.send(PushNotice {
            repository: std::mem::take(&mut self.repository),
            began: self.began,
            done,
        });
        receiver
    }
}

impl Drop for ActivePush {
    /// Sends the notice after a disconnect of the client: the pushed content may have arrived.
    fn drop(&mut self) {
        if !self.is_told {
            drop(self.tell());
        }
    }
}

/// Copies the response except the final flush packet.
async fn pass_on(from: &mut PipeReader, to: &mut PipeWriter) -> Result<PushResponse, PipeBroken> {
    let mut answer = PushResponse::default();
    let (mut chunk, mut out) = (Vec::new(), Vec::new());
    loop {
        if from.take(&mut chunk, PROGRAM_CHUNK_BYTES).await? == PipeRead::End {
            return Ok(answer);
        }
        answer.take(&chunk, &mut out);
        chunk.clear();
        to.write_all(&out).await?;
        out.clear();
    }
}

/// Polls both futures until the second is complete.
async fn beside(work: LocalBoxFuture<()>, other: impl Future<Output = ()>) {
    let mut work = Some(work);
    let mut other = pin!(other);
    poll_fn(|cx| {
        if let Some(running) = &mut work
            && running.as_mut().poll(cx).is_ready()
        {
            work = None;
        }
        other.as_mut().poll(cx)
    })
    .await;
}

/// Returns the directory with git's own files of a repository, bare or not. The ending `.git` of a name may
/// be omitted, as elsewhere in git.
pub(crate) fn git_folder(named: &Path) -> Option<PathBuf> {
    let mut longer = named.as_os_str().to_owned();
    longer.push(".git");
    [named.to_owned(), PathBuf::from(longer)]
        .iter()
        .flat_map(|folder| [folder.join(".git"), folder.clone()])
        .find(|it| {
            it.join("HEAD").is_file() && it.join("objects").is_dir() && it.join("refs").is_dir()
        })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const REPORT: &[u8] = b"0013\x01000eunpack ok\n00000000";
    /// Time limit longer than any test.
    const LONG: Duration = Duration::from_secs(1_000);

    /// Runs a future with a virtual clock, which jumps to the next deadline while the future waits.
    fn wait<T>(work: impl Future<Output = T>) -> T {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().start_paused(true);
        runtime.build().unwrap().block_on(work)
    }

    /// Returns the bytes of a held report received by the client, and true if the response is complete.
    async fn held(push: ActivePush, can_grow: bool, patience: HoldTimes) -> (Vec<u8>, bool) {
        let (mut git, from) = pipe(PIPE_BYTES);
        let (to, mut client) = pipe(PIPE_BYTES);
        let work = Box::pin(async move {
            git.write_all(REPORT).await.unwrap();
            git.finish();
        });
        beside(work, push.pass(from, to, can_grow, patience)).await;
        let mut all = Vec::new();
        loop {
            match client.take(&mut all, PIPE_BYTES).await {
                Ok(PipeRead::Bytes(_)) => {}
                end => return (all, end == Ok(PipeRead::End)),
            }
        }
    }

    fn with(keep_alive: Duration, whole: Duration) -> HoldTimes {
        HoldTimes { keep_alive, whole }
    }

    #[test]
    fn messages_are_inserted_before_the_end() {
        let (pushes, mut listener) = PushNotifier::new();
        let answer = async {
            let pushed = listener.recv().await.unwrap();
            assert_eq!(pushed.repository, Path::new("/a"));
            let _ = pushed.done.send(vec!["done".to_owned()]);
        };
        let push = pushes.begin("/a".into());
        let ((all, is_whole), ()) =
            wait(async { tokio::join!(held(push, true, with(LONG, LONG)), answer) });
        assert!(is_whole);
        assert!(all.ends_with(b"\n0000000a\x02done\n0000"), "{all:?}");
        // A response with an announced length has no room for messages.
        let answer = async {
            let pushed = listener.recv().await.unwrap();
            let _ = pushed.done.send(vec!["done".to_owned()]);
        };
        let push = pushes.begin("/a".into());
        let ((all, is_whole), ()) =
            wait(async { tokio::join!(held(push, false, with(LONG, LONG)), answer) });
        assert!(is_whole && all == REPORT);
    }

    #[test]
    fn a_long_deployment_sends_keep_alive_packets_and_a_message() {
        let (pushes, mut listener) = PushNotifier::new();
        let (all, is_whole) = wait(held(pushes.begin("/a".into()), true, PATIENCE));
        let text = String::from_utf8_lossy(&all).into_owned();
        assert!(is_whole, "{text}");
        let packets = text.matches("0005\x01").count() as u64;
        let intervals = PUSH_RESPONSE_WAIT_SECONDS_MAX / PUSH_KEEP_ALIVE_SECONDS;
        assert!(
            (intervals - 2..=intervals).contains(&packets),
            "{packets} packets"
        );
        assert!(text.contains("\x02the deployment takes longer"), "{text}");
        assert!(listener.try_recv().is_ok());
    }

    #[test]
    fn an_empty_response_reports_no_push() {
        let (pushes, mut listener) = PushNotifier::new();
        let push = pushes.begin("/a".into());
        wait(async {
            let (git, from) = pipe(PIPE_BYTES);
            let (to, mut client) = pipe(PIPE_BYTES);
            git.finish();
            push.pass(from, to, true, with(LONG, LONG)).await;
            let end = client.take(&mut Vec::new(), PIPE_BYTES).await;
            assert_eq!(end, Ok(PipeRead::End));
        });
        assert!(listener.try_recv().is_err());
    }

    #[test]
    fn a_push_without_a_client_or_without_a_listener() {
        let (pushes, mut listener) = PushNotifier::new();
        // The client disconnects; the pushed content may have arrived.
        drop(pushes.begin("/a".into()));
        assert!(
            listener
                .try_recv()
                .is_ok_and(|pushed| pushed.done.is_closed())
        );
        assert!(listener.try_recv().is_err(), "once");
        drop(listener);
        let (all, is_whole) = wait(held(pushes.begin("/a".into()), true, with(LONG, LONG)));
        let text = String::from_utf8_lossy(&all).into_owned();
        assert!(
            is_whole && text.contains("the server is stopping"),
            "{text}"
        );
    }
}
