//! Test handlers with the needs of a reverse proxy: interim responses, request bodies held back, and
//! trailers.

use crate::handler::interim::InterimResponse;
use crate::handler::pipe::{PipeRead, pipe};
use crate::handler::test_handler::gates::TestGates;
use crate::handler::{HandlerError, Request, Response, ResponseBody};
use crate::limits;
use std::sync::Arc;
use wire::h1::body_decoder::BodyLength;
use wire::reject::Reject;
use wire::response_fields::ResponseFields;
use wire::status::Status;

/// Sends two interim responses, reads the body to its end, and answers with a short page.
pub(super) async fn hints(mut request: Request) -> Result<Response, HandlerError> {
    for link in ["</a.css>; rel=preload", "</b.js>; rel=preload"] {
        send_interim(&request, "Link", link);
    }
    read_body(&mut request).await?;
    Ok(text(Status::OK, b"after the hints\n".to_vec()))
}

/// Holds the body back until a gate opens, and then returns the body, or refuses the request with the
/// status
/// `?refuse=417`. An interim response shows that the call has begun.
pub(super) async fn hold(
    gates: Arc<TestGates>,
    mut request: Request,
    query: Vec<(String, String)>,
) -> Result<Response, HandlerError> {
    let value = |name: &str| {
        let found = query.iter().find(|(its, _)| its == name);
        found.map(|(_, value)| value.as_str())
    };
    if let Some(gate) = value("open") {
        gates.open(gate);
        return Ok(text(Status::OK, b"open\n".to_vec()));
    }
    request.body.hold(true);
    send_interim(&request, "X-Stage", "held");
    if let Some(gate) = value("gate") {
        gates.wait(gate).await;
    }
    if let Some(status) = value("refuse").and_then(|status| status.parse().ok()) {
        return Ok(text(Status(status), b"refused\n".to_vec()));
    }
    request.body.hold(false);
    let body = read_body(&mut request).await?;
    Ok(text(Status::OK, body))
}

/// Returns the request's body as the body arrives, and then the request's trailers with trailers of the
/// handler. The length of the response is announced if the request has a Content-Length.
pub(super) fn trailers(mut request: Request) -> Response {
    let (mut writer, reader) = pipe(limits::PIPE_BYTES);
    let length = match request.length {
        BodyLength::Length(length) => Some(length),
        BodyLength::None | BodyLength::Chunked => None,
    };
    let work = async move {
        let mut part = Vec::new();
        while let Ok(read) = request.body.take(&mut part, limits::PIPE_BYTES / 4).await {
            if read == PipeRead::End {
                let received = request.body.take_trailers().unwrap_or_default();
                let own = b"X-Own: end\r\nContent-Length: 5\r\nSet-Cookie: a=b\r\n";
                writer.set_trailers([&received[..], own].concat());
                return writer.finish();
            }
            if writer.write_all(&part).await.is_err() {
                return;
            }
            part.clear();
        }
    };
    let body = ResponseBody::Stream {
        length,
        reader,
        work: Box::pin(work),
    };
    Response::new(Status::OK, ResponseFields::new(), body)
}

fn send_interim(request: &Request, name: &str, value: &str) {
    let fields = [(name.as_bytes(), value.as_bytes())];
    request.interim.send(InterimResponse {
        status: Status(103),
        fields: fields.into_iter().collect(),
    });
}

async fn read_body(request: &mut Request) -> Result<Vec<u8>, HandlerError> {
    let mut body = Vec::new();
    loop {
        match request.body.take(&mut body, limits::PIPE_BYTES).await {
            Ok(PipeRead::Bytes(_)) => {}
            Ok(PipeRead::End) => return Ok(body),
            Err(_) => return Err(HandlerError::new("the test", Reject::HANDLER_FAILED)),
        }
    }
}

fn text(status: Status, content: Vec<u8>) -> Response {
    let mut fields = ResponseFields::new();
    fields.push(b"Content-Type", b"text/plain; charset=utf-8");
    Response::new(status, fields, ResponseBody::Whole(content))
}
