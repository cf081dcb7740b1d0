//! Handlers for tests and for trying out a configuration.
//!
//! `echo` returns the request's body as the body arrives, `slow` sends a few lines with pauses, `endless`
//! sends data until the peer disconnects, and `page` counts its calls and answers as specified by the
//! query. The further handlers are in [`proxied`] and [`tunnel`].

mod gates;
mod proxied;
mod tunnel;

use crate::handler::pipe::{PipeRead, pipe};
use crate::handler::test_handler::gates::TestGates;
use crate::handler::test_handler::tunnel::TunnelTotals;
use crate::handler::{Handler, HandlerError, LocalBoxFuture, Request, Response, ResponseBody};
use crate::limits;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use wire::fields::Fields;
use wire::h1::body_decoder::BodyLength;
use wire::reject::Reject;
use wire::request_head::Method;
use wire::response_fields::ResponseFields;
use wire::status::Status;

/// Longest time for which the option `hang` of the handler `page` stops a worker.
const HANG_MAX: Duration = Duration::from_secs(60);

/// Kind of test handler.
#[derive(Clone, Debug)]
pub enum TestHandler {
    /// Returns the request's body as the body arrives.
    Echo,
    /// Sends `?lines=N` lines with pauses of `pause_ms=M` milliseconds. The defaults are 10 lines and 100
    /// ms.
    Slow,
    /// Repeats a line without end.
    Endless,
    /// Answers as specified by the query; see [`TestPages`].
    Page(Arc<TestPages>),
    /// Sends interim responses; see [`proxied::hints`].
    Hints,
    /// Holds the request's body back; see [`proxied::hold`].
    Hold(Arc<TestGates>),
    /// Returns the body with trailers; see [`proxied::trailers`].
    Trailers,
    /// Opens a tunnel; see [`tunnel::tunnel`].
    Tunnel(Arc<TunnelTotals>),
}

/// State of `page` between calls.
///
/// The query is a list of `name=value`:
///
/// - `f=Name:value` adds a field to the response.
/// - `status=200,500` sets the status of the first call for a path, and the status of all later calls.
///   `fault` makes the handler fail.
/// - `gate=x` delays the response until a POST request with `open=x`.
/// - `later=x` delays like `gate`, but only from the second call on.
/// - `mid=x` delays in the middle of the content.
/// - `end=x` delays after the content, before the end of the pipe.
/// - `hang=file` stops the thread of the worker, as a fault of the program would, until the file exists.
/// - `cut` ends the response early, in the middle of the content.
/// - `size=n` makes the content `n` bytes long.
/// - `open` leaves the length unspecified.
/// - `revalidates` answers 304 to a client with the response's ETag.
#[derive(Default, Debug)]
pub struct TestPages {
    calls: Mutex<HashMap<Vec<u8>, u64>>,
    gates: TestGates,
}

impl Handler for TestHandler {
    fn handle(&self, request: Request) -> LocalBoxFuture<Result<Response, HandlerError>> {
        let test = self.clone();
        Box::pin(async move {
            match test {
                TestHandler::Page(pages) => return page(pages, request).await,
                TestHandler::Hints => return proxied::hints(request).await,
                TestHandler::Tunnel(totals) => {
                    let query = query_pairs(&request);
                    return tunnel::tunnel(totals, request, query);
                }
                TestHandler::Trailers => return Ok(proxied::trailers(request)),
                TestHandler::Hold(gates) => {
                    let query = query_pairs(&request);
                    return proxied::hold(gates, request, query).await;
                }
                _ => {}
            }
            let (writer, reader) = pipe(limits::PIPE_BYTES);
            let length = match (&test, request.length) {
                (TestHandler::Echo, BodyLength::Length(length)) => Some(length),
                (TestHandler::Echo, BodyLength::None) => Some(0),
                _ => None,
            };
            let work: LocalBoxFuture<()> = match test {
                TestHandler::Echo => Box::pin(echo(request, writer)),
                TestHandler::Slow => Box::pin(slow(request, writer)),
                _ => Box::pin(endless(writer)),
            };
            Ok(Response::new(
                Status::OK,
                [(&b"Content-Type"[..], &b"text/plain; charset=utf-8"[..])]
                    .into_iter()
                    .collect(),
                ResponseBody::Stream {
                    length,
                    reader,
                    work,
                },
            ))
        })
    }

    fn accepts_tunnels(&self) -> bool {
        matches!(self, TestHandler::Tunnel(_))
    }
}

async fn echo(mut request: Request, mut writer: crate::handler::pipe::PipeWriter) {
    let mut chunk = Vec::new();
    loop {
        chunk.clear();
        match request.body.take(&mut chunk, limits::PIPE_BYTES / 4).await {
            Ok(PipeRead::Bytes(_)) => {
                if writer.write_all(&chunk).await.is_err() {
                    return;
                }
            }
            Ok(PipeRead::End) => return writer.finish(),
            Err(_) => return,
        }
    }
}

async fn slow(request: Request, mut writer: crate::handler::pipe::PipeWriter) {
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

async fn endless(mut writer: crate::handler::pipe::PipeWriter) {
    let block = b"all work and no play makes an ant a dull insect\n".repeat(85);
    while writer.write_all(&block).await.is_ok() {}
}

async fn page(pages: Arc<TestPages>, request: Request) -> Result<Response, HandlerError> {
    let asked = query_pairs(&request);
    let value = |name: &str| {
        let found = asked.iter().find(|(its, _)| its == name);
        found.map(|(_, value)| value.clone())
    };
    let fields = asked.iter().filter(|(name, _)| name == "f");
    let fields = fields.filter_map(|(_, field)| field.split_once(':'));
    let fields: ResponseFields = fields
        .map(|(name, value)| (name.as_bytes(), value.trim().as_bytes()))
        .collect();
    if let Some(gate) = value("open").filter(|_| request.method == Method::Post) {
        pages.gates.open(&gate);
    }
    let call = {
        let mut calls = lock(&pages.calls);
        let count = calls.entry(request.target_path().to_vec()).or_default();
        *count += 1;
        *count
    };
    if let Some(file) = value("hang") {
        let end = Instant::now() + HANG_MAX;
        while !Path::new(&file).exists() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    let later = value("later").filter(|_| call > 1);
    if let Some(gate) = value("gate").or(later) {
        pages.gates.wait(&gate).await;
    }
    let statuses = value("status").unwrap_or_else(|| "200".into());
    let status = status_of_call(&statuses, call as usize);
    if status == "fault" {
        return Err(HandlerError::new("the test's page", Reject::HANDLER_FAILED));
    }
    let asked_fields = Fields(&request.fields);
    let tag = fields.first("ETag");
    let known = asked_fields.first("if-none-match");
    let is_known = known.is_some() && known == tag;
    let status = if value("revalidates").is_some() && is_known {
        Status::NOT_MODIFIED
    } else {
        Status(status.parse().unwrap_or(500))
    };
    let known = String::from_utf8_lossy(known.unwrap_or(b"-"));
    let mut content = format!("call {call} {} {known}\n", request.method.name()).into_bytes();
    let size = value("size").and_then(|size| size.parse().ok());
    content.resize(size.unwrap_or(content.len()), b'.');
    let ask = |name| value(name).is_some();
    let is_streamed = ask("mid") || ask("end") || ask("cut") || ask("open");
    let length = (!ask("open")).then_some(content.len() as u64);
    let body = if is_streamed && status != Status::NOT_MODIFIED {
        let (writer, reader) = pipe(limits::PIPE_BYTES);
        let gates = [value("mid"), value("end")];
        let work = parts(pages, writer, content, gates, ask("cut"));
        ResponseBody::Stream {
            length,
            reader,
            work: Box::pin(work),
        }
    } else {
        ResponseBody::Whole(content)
    };
    Ok(Response::new(status, fields, body))
}

/// Returns the status of the call with the number `call`, from a list such as `200,500`. The last entry
/// holds for all further calls.
fn status_of_call(statuses: &str, call: usize) -> &str {
    let mut statuses = statuses.split(',');
    let status = statuses.clone().nth(call - 1);
    status.or_else(|| statuses.next_back()).unwrap_or("200")
}

/// Sends the content in two halves, with a gate after each half.
async fn parts(
    pages: Arc<TestPages>,
    mut writer: crate::handler::pipe::PipeWriter,
    content: Vec<u8>,
    [mid, end]: [Option<String>; 2],
    is_cut: bool,
) {
    let (first, second) = content.split_at(content.len() / 2);
    if writer.write_all(first).await.is_err() {
        return;
    }
    if let Some(gate) = mid {
        pages.gates.wait(&gate).await;
    }
    if !is_cut && writer.write_all(second).await.is_ok() {
        if let Some(gate) = end {
            pages.gates.wait(&gate).await;
        }
        writer.finish();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the names and values of the query.
fn query_pairs(request: &Request) -> Vec<(String, String)> {
    let query = String::from_utf8_lossy(request.query.as_deref().unwrap_or_default());
    query.split('&').map(pair).collect()
}

/// Splits `name=value` and decodes the value's percent-encoding.
fn pair(text: &str) -> (String, String) {
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    let mut parts = value.split('%');
    let mut decoded = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part
            .get(..2)
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match code {
            Some(code) => {
                decoded.push(char::from(code));
                decoded.push_str(&part[2..]);
            }
            None => decoded.push_str(part),
        }
    }
    (name.to_owned(), decoded)
}

/// Returns the value of `name` in a query such as `a=1&b=2`.
fn number(query: &[u8], name: &str) -> Option<u64> {
    let text = std::str::from_utf8(query).ok()?;
    text.split('&')
        .filter_map(|pair| pair.split_once('='))
        .find(|(key, _)| *key == name)
        .and_then(|(_, value)| value.parse().ok())
}
