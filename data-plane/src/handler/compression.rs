//! Compression of the responses of members and scripts with gzip.
//!
//! The decision depends on the heads, and on the length of the content. A response that is compressed for some clients names
//! `Accept-Encoding` in Vary for all clients. The compressed length of a page that has both a secret and text of an attacker reveals the secret (BREACH), so
//! a response for one user is compressed only for requests that no foreign page can make.

use crate::handler::pipe::{PipeBroken, PipeRead, PipeReader, PipeWriter, counted_pipe, pipe};
use crate::handler::{LocalBoxFuture, Request, Response, ResponseBody};
use crate::ledger::body_memory::{BodyAccount, BodyPurpose, BodyReservation};
use crate::limits::{
    COMPRESSED_AT_ONCE_BYTES, COMPRESSED_BYTES_MIN, COMPRESSION_FLUSH_MILLISECONDS,
    COMPRESSION_SLICE_BYTES, COMPRESSOR_BYTES, PIPE_BYTES, PIPE_BYTES_MIN,
};
use base::clock::monotonic_ms;
use base::cpu_load::CpuLoad;
use flate2::{Compress, CompressError, Compression, FlushCompress, Status as CoderStatus};
use release::mime::compressible;
use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::timeout;
use wire::cache_control::CacheControl;
use wire::fields::{AcceptedCodings, ContentCoding, Fields, items};
use wire::request_head::{Method, RequestHead};
use wire::response_fields::ResponseFields;
use wire::status::Status;

/// Rule of a route for the compression of its responses.
#[derive(Copy, Clone, Default, PartialEq, Eq, Debug)]
pub enum CompressionRule {
    /// No response is compressed.
    Never,
    /// Texts are compressed, those for one user only where no foreign page can measure the length.
    #[default]
    Texts,
    /// All texts are compressed.
    Always,
}

/// Facts in the head of a request that decide about the compression of the response.
#[derive(Copy, Clone, Debug)]
pub(crate) struct CompressionQuestion {
    rule: CompressionRule,
    accepts_gzip: bool,
    /// True if the client knows a response by a weak tag, which may be that of a compressed response.
    knows_weak_tag: bool,
    /// True if the response may be for one user.
    is_personal: bool,
}

impl CompressionQuestion {
    /// Reads the head of a request. Returns None if the rule or the request excludes every change of the response. The usual
    /// request costs no search among its fields.
    pub(crate) fn of(rule: CompressionRule, head: &RequestHead<'_>) -> Option<CompressionQuestion> {
        // A tunnel is no text.
        if rule == CompressionRule::Never || head.upgrade.is_some() {
            return None;
        }
        let known = &head.known_fields;
        let accepts_gzip = !known.accept_encoding.is_none() && {
            let gzip = ContentCoding::Gzip as usize;
            let available: [bool; 4] = std::array::from_fn(|coding| coding == gzip);
            let accepted = AcceptedCodings::from_values(&known.accept_encoding);
            accepted.choose(&available) == ContentCoding::Gzip
        };
        Some(CompressionQuestion {
            rule,
            accepts_gzip,
            knows_weak_tag: known.if_none_match.lines().any(has_weak_tag),
            is_personal: known.cookie || known.authorization.is_some(),
        })
    }

    /// Returns true if the handler has to know weak tags by their strong form.
    pub(super) fn knows_weak_tag(&self) -> bool {
        self.knows_weak_tag
    }

    /// Returns true if the response may be compressed.
    pub(super) fn accepts_gzip(&self) -> bool {
        self.accepts_gzip
    }

    /// Adds the facts about `request` that its head does not give.
    pub(super) fn with(self, request: &Request) -> CompressionRequest {
        let site = Fields(&request.fields).first("sec-fetch-site");
        CompressionRequest {
            question: CompressionQuestion {
                is_personal: self.is_personal || request.user.is_some(),
                ..self
            },
            is_head: request.method == Method::Head,
            is_own: matches!(site, Some(b"same-origin" | b"none")),
            memory: request.memory.clone(),
        }
    }
}

/// Request of a client that accepts gzip, or that knows a response by a weak tag.
pub(super) struct CompressionRequest {
    question: CompressionQuestion,
    is_head: bool,
    /// True if the request comes from a page of the same origin, or from the user.
    is_own: bool,
    /// Account of the call.
    memory: BodyAccount,
}

impl CompressionRequest {
    /// Returns the response, compressed where the rule allows. Waits for the beginning of a content of unknown length.
    pub(super) async fn apply(self, mut response: Response) -> Response {
        if *response.status == Status::NOT_MODIFIED && self.question.knows_weak_tag {
            // The tag of the stored response is the weak one.
            weaken_tag(&mut response.fields);
            return response;
        }
        // The target of an internal redirect, a file or the page of a handler, already has its own coding.
        if response.has_operator_fields || !vary_if_text(&mut response) {
            return response;
        }
        if !self.question.accepts_gzip || !self.may_compress(&response.fields) {
            return response;
        }
        let mut memory = BodyReservation::new(&self.memory);
        if !self.is_head && !memory.try_grow(COMPRESSOR_BYTES, BodyPurpose::ReadAhead) {
            return response;
        }
        let body = std::mem::replace(&mut response.body, ResponseBody::Empty);
        let (body, is_coded) = match body {
            _ if self.is_head => (nothing_of_unknown_length(), true),
            ResponseBody::Whole(bytes) => compressed_whole(bytes, memory),
            ResponseBody::Empty => (body, false),
            ResponseBody::Stream {
                length,
                reader,
                work,
            } => {
                let work = Some(work);
                compressed_stream(length, PlainContent { reader, work }, memory).await
            }
        };
        response.body = body;
        if is_coded {
            describe_as_gzip(&mut response.fields);
        }
        response
    }

    /// Returns true if the length of the compressed response may be seen.
    fn may_compress(&self, fields: &ResponseFields) -> bool {
        if self.question.rule == CompressionRule::Always || self.is_own {
            return true;
        }
        let control = CacheControl::read(fields.all("cache-control"));
        let is_for_one =
            self.question.is_personal || control.private || fields.first("set-cookie").is_some();
        !is_for_one
    }
}

/// Adds the strong form of each weak tag to If-None-Match of a request. A compressed response has the weak form of its
/// handler's tag, and many handlers compare tags as texts. Returns None if the lines have no weak tag.
pub(super) fn with_strong_tags(lines: &[u8]) -> Option<Vec<u8>> {
    let fields = Fields(lines);
    if !fields.all("if-none-match").any(has_weak_tag) {
        return None;
    }
    let mut out = Vec::with_capacity(lines.len() + 64);
    for (name, value) in fields {
        for part in [name, b": ", value] {
            out.extend_from_slice(part);
        }
        if name.eq_ignore_ascii_case(b"if-none-match") {
            for strong in items(value).filter_map(|tag| tag.strip_prefix(b"W/")) {
                out.extend_from_slice(b", ");
                out.extend_from_slice(strong);
            }
        }
        out.extend_from_slice(b"\r\n");
    }
    Some(out)
}

/// Returns true if a value of If-None-Match has a weak tag.
fn has_weak_tag(value: &[u8]) -> bool {
    items(value).any(|tag| tag.starts_with(b"W/\""))
}

/// Names Accept-Encoding in Vary of a text for a client that does not accept gzip.
pub(super) fn note_variation(response: &mut Response) {
    if !response.has_operator_fields {
        vary_if_text(response);
    }
}

/// Names Accept-Encoding in Vary, and returns true, if the response is a text that compression makes shorter, and no other
/// party has coded it or forbids changes of its bytes.
fn vary_if_text(response: &mut Response) -> bool {
    let is_long = match &response.body {
        ResponseBody::Empty => false,
        ResponseBody::Whole(bytes) => bytes.len() >= COMPRESSED_BYTES_MIN,
        ResponseBody::Stream { length, .. } => {
            length.is_none_or(|length| length >= COMPRESSED_BYTES_MIN as u64)
        }
    };
    if !is_long || matches!(response.status.0, 100..=199 | 204 | 205 | 206 | 304) {
        return false;
    }
    let fields = Fields(response.fields.lines());
    let media_type = fields.first("content-type").map(std::str::from_utf8);
    if !media_type.is_some_and(|it| it.is_ok_and(compressible)) {
        return false;
    }
    let [has_coding, has_range, has_control, has_vary] =
        fields.contain(["content-encoding", "content-range", "cache-control", "vary"]);
    let forbids = || {
        let mut directives = fields.all("cache-control").flat_map(items);
        directives.any(|directive| directive.eq_ignore_ascii_case(b"no-transform"))
    };
    if has_coding || has_range || (has_control && forbids()) {
        return false;
    }
    let is_coding = |name: &[u8]| name == b"*" || name.eq_ignore_ascii_case(b"accept-encoding");
    if !has_vary || !fields.all("vary").flat_map(items).any(is_coding) {
        response.fields.push(b"Vary", b"Accept-Encoding");
    }
    true
}

/// Turns the fields of the plain content into those of the compressed content.
fn describe_as_gzip(fields: &mut ResponseFields) {
    fields.retain(|name, _| {
        !OF_THE_PLAIN_BYTES
            .iter()
            .any(|it| it.eq_ignore_ascii_case(name))
    });
    weaken_tag(fields);
    fields.push(b"Content-Encoding", b"gzip");
}

/// Fields that hold for the plain bytes alone.
const OF_THE_PLAIN_BYTES: [&[u8]; 6] = [
    b"Content-Length",
    b"Accept-Ranges",
    b"Content-MD5",
    b"Digest",
    b"Content-Digest",
    b"Repr-Digest",
];

/// Makes a strong ETag weak: the compressed bytes differ from those of the handler (RFC 9110 §8.8.1).
fn weaken_tag(fields: &mut ResponseFields) {
    if fields
        .first("etag")
        .is_none_or(|tag| tag.starts_with(b"W/"))
    {
        return;
    }
    let mut weak = ResponseFields::new();
    for (name, value) in fields.iter() {
        if name.eq_ignore_ascii_case(b"etag") && !value.starts_with(b"W/") {
            weak.push(name, &[b"W/", value].concat());
        } else {
            weak.push(name, value);
        }
    }
    *fields = weak;
}

/// Returns the body of a response to HEAD. The length of the compressed content is not known.
fn nothing_of_unknown_length() -> ResponseBody {
    let (writer, reader) = pipe(1);
    writer.finish();
    ResponseBody::Stream {
        length: None,
        reader,
        work: Box::pin(std::future::ready(())),
    }
}

/// Returns a compressor for a content of the given length. While all processors are busy, the content is compressed with
/// less effort.
fn compressor(length: Option<u64>) -> Compress {
    static LOAD: CpuLoad = CpuLoad::new();
    let level = if LOAD.is_busy(monotonic_ms()) {
        LEVEL_WHILE_BUSY
    } else {
        LEVEL
    };
    // A window that is as large as the content finds the same repetitions, and takes less memory.
    let window_bits = match length {
        Some(..=4_096) => 12,
        Some(..=8_192) => 13,
        Some(..=16_384) => 14,
        _ => 15,
    };
    Compress::new_gzip(Compression::new(level), window_bits)
}

/// Level of compression: beyond 4, a text becomes 2 % shorter for 45 % more time.
const LEVEL: u32 = 4;
/// Level while all processors are busy: 2.5 times as fast, and a text is 10 to 40 % longer.
const LEVEL_WHILE_BUSY: u32 = 1;

/// Returns the compressed form of a whole content, and true; the content itself where that fails.
fn compressed_whole(bytes: Vec<u8>, memory: BodyReservation) -> (ResponseBody, bool) {
    let length = Some(bytes.len() as u64);
    if bytes.len() > COMPRESSED_AT_ONCE_BYTES {
        let (mut writer, reader) = pipe(PIPE_BYTES);
        let write = async move {
            if writer.write_all(&bytes).await.is_ok() {
                writer.finish();
            }
        };
        let work: LocalBoxFuture<()> = Box::pin(write);
        let content = PlainContent {
            reader,
            work: Some(work),
        };
        return (
            CompressedStream::body(content, Vec::new(), length, memory),
            true,
        );
    }
    let mut coded = Vec::with_capacity(bytes.len() / 4 + 64);
    match code(
        &mut compressor(length),
        &bytes,
        FlushCompress::Finish,
        &mut coded,
    ) {
        Ok(()) => (ResponseBody::Whole(coded), true),
        Err(_) => (ResponseBody::Whole(bytes), false),
    }
}

/// Returns the compressed form of a streamed content, and true; a content that turns out to be short remains as it is.
async fn compressed_stream(
    length: Option<u64>,
    mut content: PlainContent,
    memory: BodyReservation,
) -> (ResponseBody, bool) {
    let mut beginning = Vec::new();
    if length.is_none() && content.read_beginning(&mut beginning).await {
        let length = Some(beginning.len() as u64);
        return (content.with_beginning(beginning, length), false);
    }
    (
        CompressedStream::body(content, beginning, length, memory),
        true,
    )
}

/// Appends the compressed form of `bytes` to `out`.
fn code(
    coder: &mut Compress,
    bytes: &[u8],
    flush: FlushCompress,
    out: &mut Vec<u8>,
) -> Result<(), CompressError> {
    let begin = coder.total_in();
    loop {
        let taken = (coder.total_in() - begin) as usize;
        // A flush needs some bytes of room to know that it is complete.
        out.reserve((bytes.len() - taken) / 4 + 64);
        let room = out.capacity() - out.len();
        let length = out.len();
        let status = coder.compress_vec(&bytes[taken..], out, flush)?;
        let is_all = (coder.total_in() - begin) as usize == bytes.len();
        let is_full = out.len() - length == room;
        match status {
            CoderStatus::StreamEnd => return Ok(()),
            _ if is_all && !is_full && !matches!(flush, FlushCompress::Finish) => return Ok(()),
            _ => {}
        }
    }
}

/// Content of a handler, with the future that makes it.
struct PlainContent {
    reader: PipeReader,
    work: Option<LocalBoxFuture<()>>,
}

impl PlainContent {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        plain: &mut Vec<u8>,
    ) -> Poll<Result<PipeRead, PipeBroken>> {
        self.poll_work(cx);
        self.reader.poll_take(cx, plain, COMPRESSION_SLICE_BYTES)
    }

    fn poll_work(&mut self, cx: &mut Context<'_>) {
        if let Some(work) = &mut self.work
            && work.as_mut().poll(cx).is_ready()
        {
            self.work = None;
        }
    }

    /// Reads a part of the content. Returns None if the handler makes a pause.
    async fn read_before_pause(
        &mut self,
        plain: &mut Vec<u8>,
    ) -> Option<Result<PipeRead, PipeBroken>> {
        // Without a timer where bytes wait already.
        match poll_fn(|cx| Poll::Ready(self.poll_read(cx, plain))).await {
            Poll::Ready(read) => Some(read),
            Poll::Pending => {
                let pause = Duration::from_millis(COMPRESSION_FLUSH_MILLISECONDS);
                timeout(pause, poll_fn(|cx| self.poll_read(cx, plain)))
                    .await
                    .ok()
            }
        }
    }

    /// Reads the beginning of the content, until it is long enough for compression or the handler makes a pause. Returns
    /// true if the whole content is read and shorter.
    async fn read_beginning(&mut self, plain: &mut Vec<u8>) -> bool {
        while plain.len() < COMPRESSED_BYTES_MIN {
            match self.read_before_pause(plain).await {
                Some(Ok(PipeRead::Bytes(_))) => {}
                Some(Ok(PipeRead::End)) => return true,
                Some(Err(_)) | None => return false,
            }
        }
        false
    }

    /// Returns the content unchanged behind the bytes that were read.
    fn with_beginning(self, beginning: Vec<u8>, length: Option<u64>) -> ResponseBody {
        let (mut to, reader) = pipe(PIPE_BYTES);
        let mut content = self;
        let work = async move {
            let mut plain = beginning;
            loop {
                if content.write(&mut to, &plain).await.is_err() {
                    return;
                }
                plain.clear();
                match poll_fn(|cx| content.poll_read(cx, &mut plain)).await {
                    Ok(PipeRead::Bytes(_)) => {}
                    read => return content.end(to, read),
                }
            }
        };
        ResponseBody::Stream {
            length,
            reader,
            work: Box::pin(work),
        }
    }

    /// Writes bytes for the client. The handler goes on while the client takes nothing, as far as its own pipe has room.
    async fn write(&mut self, to: &mut PipeWriter, bytes: &[u8]) -> Result<(), PipeBroken> {
        let mut writing = pin!(to.write_all(bytes));
        poll_fn(|cx| {
            self.poll_work(cx);
            writing.as_mut().poll(cx)
        })
        .await
    }

    /// Ends the content for the client as `read` says: whole with its trailers, or broken.
    fn end(&mut self, mut to: PipeWriter, read: Result<PipeRead, PipeBroken>) {
        if read.is_err() {
            return to.break_off(self.reader.break_reason());
        }
        if self.reader.may_be_truncated() {
            to.mark_maybe_truncated();
        }
        if let Some(trailers) = self.reader.take_trailers() {
            to.set_trailers(trailers.into());
        }
        to.finish();
    }
}

/// Content on its way through the compressor.
struct CompressedStream {
    content: PlainContent,
    /// Bytes of the content that were read before the head of the response.
    beginning: Vec<u8>,
    coder: Compress,
    /// Bytes in the compressor since the last flush.
    unflushed: usize,
    /// Memory of the compressor.
    _memory: BodyReservation,
}

impl CompressedStream {
    /// Returns the body of the response.
    fn body(
        content: PlainContent,
        beginning: Vec<u8>,
        length: Option<u64>,
        memory: BodyReservation,
    ) -> ResponseBody {
        let (writer, reader) = counted_pipe(PIPE_BYTES, memory.account());
        let stream = CompressedStream {
            content,
            beginning,
            coder: compressor(length),
            unflushed: 0,
            _memory: memory,
        };
        ResponseBody::Stream {
            length: None,
            reader,
            work: Box::pin(stream.run(writer)),
        }
    }

    /// Compresses the content in slices, so that other requests of the worker wait for at most one slice.
    async fn run(mut self, mut to: PipeWriter) {
        let (mut plain, mut coded) = (std::mem::take(&mut self.beginning), Vec::new());
        loop {
            let read = if plain.is_empty() {
                self.read(&mut plain).await
            } else {
                Some(Ok(PipeRead::Bytes(plain.len())))
            };
            let flush = match read {
                Some(Ok(PipeRead::Bytes(_))) => FlushCompress::None,
                // The handler makes a pause: what it has sent leaves at once.
                None => FlushCompress::Sync,
                Some(Ok(PipeRead::End)) => FlushCompress::Finish,
                Some(Err(broken)) => return self.content.end(to, Err(broken)),
            };
            self.unflushed += plain.len();
            let is_slice = !plain.is_empty();
            if code(&mut self.coder, &plain, flush, &mut coded).is_err() {
                return to.break_off(None);
            }
            plain.clear();
            if flush != FlushCompress::None {
                self.unflushed = 0;
            }
            // The header of gzip, and other short pieces, wait for the next flush.
            if flush != FlushCompress::None || coded.len() >= PIPE_BYTES_MIN {
                if self.content.write(&mut to, &coded).await.is_err() {
                    return;
                }
                coded.clear();
            }
            if flush == FlushCompress::Finish {
                return self.content.end(to, Ok(PipeRead::End));
            }
            if is_slice {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Reads a slice of the content. Returns None if bytes wait in the compressor, and the handler makes a pause.
    async fn read(&mut self, plain: &mut Vec<u8>) -> Option<Result<PipeRead, PipeBroken>> {
        if self.unflushed > 0 {
            self.content.read_before_pause(plain).await
        } else {
            Some(poll_fn(|cx| self.content.poll_read(cx, plain)).await)
        }
    }
}

#[cfg(test)]
mod tests;
