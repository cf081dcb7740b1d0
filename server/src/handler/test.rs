//! Handlers that show the live-call machinery at work, for tests and for trying a set-up out.
//!
//! `echo` sends the request's body back as it comes, `slow` makes a few lines with pauses between
//! them, `endless` writes until the peer leaves.

use super::pipe::{Taken, pipe};
use super::{Body, Fault, Handler, LocalBoxFuture, Request, Response};
use crate::limits;
use crate::wire::body::BodyLength;
use crate::wire::status::Status;
use std::borrow::Cow;
use std::time::Duration;

/// Which of the three.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Test {
    /// The request's body, as it comes.
    Echo,
    /// `?lines=N&pause_ms=M` lines (10, 100 ms if not said).
    Slow,
    /// A line for ever.
    Endless,
}

impl Handler for Test {
    fn handle(&self, request: Request) -> LocalBoxFuture<Result<Response, Fault>> {
        let test = *self;
        Box::pin(async move {
            let (writer, reader) = pipe(limits::PIPE_BYTES);
            let length = match (test, request.length) {
                (Test::Echo, BodyLength::Length(length)) => Some(length),
                (Test::Echo, BodyLength::None) => Some(0),
                _ => None,
            };
            let work: LocalBoxFuture<()> = match test {
                Test::Echo => Box::pin(echo(request, writer)),
                Test::Slow => Box::pin(slow(request, writer)),
                Test::Endless => Box::pin(endless(writer)),
            };
            Ok(Response {
                status: Status::OK,
                fields: vec![(
                    Cow::Borrowed("Content-Type"),
                    b"text/plain; charset=utf-8".to_vec(),
                )],
                body: Body::Stream {
                    length,
                    reader,
                    work,
                },
            })
        })
    }
}

async fn echo(mut request: Request, mut writer: super::pipe::Writer) {
    let mut chunk = Vec::new();
    loop {
        chunk.clear();
        match request.body.take(&mut chunk, limits::PIPE_BYTES / 4).await {
            Ok(Taken::Bytes(_)) => {
                if writer.write_all(&chunk).await.is_err() {
                    return;
                }
            }
            Ok(Taken::End) => return writer.finish(),
            Err(_) => return,
        }
    }
}

async fn slow(request: Request, mut writer: super::pipe::Writer) {
    let query = request.query.as_deref().unwrap_or_default();
    let lines = number(query, "lines").unwrap_or(10).min(10_000);
    let pause = Duration::from_millis(number(query, "pause_ms").unwrap_or(100).min(60_000));
    for line in 0..lines {
        if line > 0 {
            tokio::time::sleep(pause).await;
        }
        if writer
            .write_all(format!("line {line}\n").as_bytes())
            .await
            .is_err()
        {
            return;
        }
    }
    writer.finish();
}

async fn endless(mut writer: super::pipe::Writer) {
    let block = b"all work and no play makes an ant a dull insect\n".repeat(85);
    while writer.write_all(&block).await.is_ok() {}
}

/// The value of `name` in a query of `a=1&b=2`.
fn number(query: &[u8], name: &str) -> Option<u64> {
    let text = std::str::from_utf8(query).ok()?;
    text.split('&')
        .filter_map(|pair| pair.split_once('='))
        .find(|(key, _)| *key == name)
        .and_then(|(_, value)| value.parse().ok())
}
