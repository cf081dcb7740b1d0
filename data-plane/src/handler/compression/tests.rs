use super::*;
use crate::handler::pipe::{PipeRead, PipeWriter};
use crate::limits::{COMPRESSION_FLUSH_MILLISECONDS, COMPRESSION_SLICE_BYTES, PIPE_BYTES};
use flate2::read::MultiGzDecoder;
use std::cell::Cell;
use std::future::poll_fn;
use std::io::Read;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};
use wire::reject::Reject;

fn fields(lines: &str) -> ResponseFields {
    ResponseFields::from_lines(lines.replace('|', "\r\n").into_bytes())
}

fn question(rule: CompressionRule) -> CompressionQuestion {
    CompressionQuestion {
        rule,
        coding: ContentCoding::Gzip,
        knows_weak_tag: false,
        matches_weak_tag: false,
        resumes_by_date: false,
        is_personal: false,
    }
}

fn request(rule: CompressionRule) -> CompressionRequest {
    CompressionRequest {
        question: question(rule),
        is_head: false,
        is_own: false,
        memory: BodyAccount::default(),
    }
}

fn text(bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|nth| b"some words of a text "[nth % 21])
        .collect()
}

fn whole(status: u16, lines: &str, bytes: usize) -> Response {
    let body = ResponseBody::Whole(text(bytes));
    Response::new(Status(status), fields(lines), body)
}

fn gunzip(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    MultiGzDecoder::new(bytes).read_to_end(&mut plain).unwrap();
    plain
}

/// Returns a request of a client that accepts `coding`.
fn request_for(coding: ContentCoding) -> CompressionRequest {
    let plain = request(CompressionRule::Texts);
    CompressionRequest {
        question: CompressionQuestion {
            coding,
            ..plain.question
        },
        ..plain
    }
}

/// Returns what a client sees of the plain content after the bytes `coded`.
fn seen(coding: ContentCoding, coded: &[u8]) -> Vec<u8> {
    let mut decoder: Box<dyn Read> = match coding {
        ContentCoding::Zstd => Box::new(zstd::Decoder::new(coded).unwrap()),
        _ => Box::new(MultiGzDecoder::new(coded)),
    };
    let (mut plain, mut part) = (Vec::new(), [0; 4_096]);
    while let Ok(bytes @ 1..) = decoder.read(&mut part) {
        plain.extend_from_slice(&part[..bytes]);
    }
    plain
}

/// Returns the content of a response, and false in place of the end of a broken content.
async fn received(body: ResponseBody) -> (Vec<u8>, bool) {
    match body {
        ResponseBody::Empty => (Vec::new(), true),
        ResponseBody::Whole(bytes) => (bytes, true),
        ResponseBody::Stream {
            mut reader,
            mut work,
            ..
        } => {
            let (mut bytes, mut is_over) = (Vec::new(), false);
            loop {
                let read = poll_fn(|cx| {
                    is_over = is_over || work.as_mut().poll(cx).is_ready();
                    reader.poll_take(cx, &mut bytes, usize::MAX)
                });
                match read.await {
                    Ok(PipeRead::Bytes(_)) => {}
                    Ok(PipeRead::End) => return (bytes, true),
                    Err(_) => return (bytes, false),
                }
            }
        }
    }
}

fn on_paused_clock<T>(test: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build();
    runtime.unwrap().block_on(test)
}

const HTML: &str = "Content-Type: text/html|";

#[test]
fn texts_alone_are_compressed() {
    for (status, lines, bytes, is_coded) in [
        (200, HTML, 512, true),
        (200, HTML, 511, false),
        (
            404,
            "content-type: application/json; charset=utf-8|",
            9_000,
            true,
        ),
        (500, "Content-Type: image/svg+xml|", 9_000, true),
        (200, "Content-Type: image/png|", 9_000, false),
        (200, "", 9_000, false),
        (206, HTML, 9_000, false),
        (
            200,
            "Content-Type: text/html|Content-Encoding: br|",
            9_000,
            false,
        ),
        (
            200,
            "Content-Type: text/html|Content-Range: bytes 0-8999/9001|",
            9_000,
            false,
        ),
        (
            200,
            "Content-Type: text/html|Cache-Control: public, No-Transform|",
            9_000,
            false,
        ),
    ] {
        let response =
            on_paused_clock(request(CompressionRule::Texts).apply(whole(status, lines, bytes)));
        let coding = response.fields.first("content-encoding");
        assert_eq!(
            coding == Some(&b"gzip"[..]),
            is_coded,
            "{status} {lines} {bytes}"
        );
        assert_eq!(response.fields.first("vary").is_some(), is_coded, "{lines}");
        let (body, is_whole) = on_paused_clock(received(response.body));
        assert!(is_whole);
        let plain = if is_coded { gunzip(&body) } else { body };
        assert_eq!(plain, text(bytes), "{lines}");
    }
}

#[test]
fn a_page_for_one_user_is_compressed_for_its_own_site_alone() {
    let own = |is_personal, is_own, rule| CompressionRequest {
        question: CompressionQuestion {
            is_personal,
            ..question(rule)
        },
        is_own,
        ..request(rule)
    };
    let (texts, always) = (CompressionRule::Texts, CompressionRule::Always);
    for (request, lines, is_coded) in [
        (own(true, false, texts), HTML, false),
        (own(true, true, texts), HTML, true),
        (own(true, false, always), HTML, true),
        (
            own(false, false, texts),
            "Content-Type: text/html|Set-Cookie: a=b|",
            false,
        ),
        (
            own(false, false, texts),
            "Content-Type: text/html|Cache-Control: max-age=9, private|",
            false,
        ),
        (
            own(false, true, texts),
            "Content-Type: text/html|Set-Cookie: a=b|",
            true,
        ),
    ] {
        let response = on_paused_clock(request.apply(whole(200, lines, 9_000)));
        let coding = response.fields.first("content-encoding");
        assert_eq!(coding.is_some(), is_coded, "{lines}");
        assert_eq!(response.fields.first("vary"), Some(&b"Accept-Encoding"[..]));
    }
}

#[test]
fn the_fields_describe_the_compressed_content() {
    let lines = "Content-Type: text/css|ETag: \"a\"|Accept-Ranges: bytes|Content-MD5: x|Vary: Cookie|X-A: 1|\
         Repr-Digest: sha-256=:x:|";
    let response = on_paused_clock(request(CompressionRule::Texts).apply(whole(200, lines, 9_000)));
    let expected = "Content-Type: text/css|ETag: W/\"a\"|Vary: Cookie|X-A: 1|Vary: Accept-Encoding|Content-Encoding: gzip|";
    assert_eq!(response.fields, fields(expected));
    // A client without codings gets the plain content, which has its strong tag.
    let plain = CompressionRequest {
        question: CompressionQuestion {
            coding: ContentCoding::Identity,
            ..question(CompressionRule::Texts)
        },
        ..request(CompressionRule::Texts)
    };
    let response = on_paused_clock(plain.apply(whole(
        200,
        "Content-Type: text/css|ETag: \"a\"|Vary: a, accept-encoding|",
        9_000,
    )));
    assert_eq!(
        response.fields,
        fields("Content-Type: text/css|ETag: \"a\"|Vary: a, accept-encoding|")
    );
    // HEAD has the fields of GET, and no length.
    let head = CompressionRequest {
        is_head: true,
        ..request(CompressionRule::Texts)
    };
    let response = on_paused_clock(head.apply(whole(200, lines, 9_000)));
    assert_eq!(response.fields, fields(expected));
    assert!(matches!(
        response.body,
        ResponseBody::Stream { length: None, .. }
    ));
}

#[test]
fn a_handler_gets_conditions_on_its_own_content() {
    let lines = b"Host: a\r\nIf-None-Match: W/\"a\", \"b\",W/\"c,d\"\r\nIf-Match: W/\"f\"\r\nX: W/\"e\"\r\n\
                  If-Range: Sat, 01 Jan 2000 00:00:00 GMT\r\nRange: bytes=9-\r\n";
    let tags = "Host: a\r\nIf-None-Match: W/\"a\", \"b\",W/\"c,d\", \"a\", \"c,d\"\r\n\
                If-Match: W/\"f\", \"f\"\r\nX: W/\"e\"\r\n";
    let range = "If-Range: Sat, 01 Jan 2000 00:00:00 GMT\r\nRange: bytes=9-\r\n";
    let plain = question(CompressionRule::Texts);
    let knows = CompressionQuestion {
        knows_weak_tag: true,
        ..plain
    };
    let matches = CompressionQuestion {
        matches_weak_tag: true,
        ..plain
    };
    let resumes = CompressionQuestion {
        resumes_by_date: true,
        ..plain
    };
    // A client without codings has a part of the plain content.
    let resumes_plain = CompressionQuestion {
        coding: ContentCoding::Identity,
        ..resumes
    };
    for (question, expected) in [
        (plain, None),
        (knows, Some([tags, range].concat())),
        (matches, Some([tags, range].concat())),
        (resumes, Some(tags.to_owned())),
        (resumes_plain, None),
    ] {
        let fields = question.fields_for_handler(lines);
        let fields = fields.map(|it| String::from_utf8(it).unwrap());
        assert_eq!(fields, expected, "{question:?}");
    }
}

#[test]
fn a_304_response_has_the_fields_of_the_whole_response() {
    for (knows_weak_tag, tag) in [(true, "W/\"a\""), (false, "\"a\"")] {
        let request = CompressionRequest {
            question: CompressionQuestion {
                knows_weak_tag,
                ..question(CompressionRule::Texts)
            },
            ..request(CompressionRule::Texts)
        };
        let response = Response::new(
            Status::NOT_MODIFIED,
            fields("ETag: \"a\"|"),
            ResponseBody::Empty,
        );
        let response = on_paused_clock(request.apply(response));
        let expected = format!("ETag: {tag}|Vary: Accept-Encoding|");
        assert_eq!(response.fields, fields(&expected));
    }
}

/// Returns a streamed content that `fill` writes.
fn streamed<F: Future<Output = ()> + 'static>(
    length: Option<u64>,
    fill: impl FnOnce(PipeWriter) -> F,
) -> Response {
    let (writer, reader) = pipe(PIPE_BYTES);
    let body = ResponseBody::Stream {
        length,
        reader,
        work: Box::pin(fill(writer)),
    };
    Response::new(Status::OK, fields(HTML), body)
}

#[test]
fn a_streamed_content_arrives_whole_in_any_parts() {
    let parts = [1, 7, 1_000, COMPRESSION_SLICE_BYTES, 100_000];
    let codings = [ContentCoding::Gzip, ContentCoding::Zstd];
    for (part, coding) in parts
        .into_iter()
        .flat_map(|part| codings.map(|it| (part, it)))
    {
        let response = streamed(Some(300_000), move |mut writer| async move {
            let plain = text(if part == 1 { 3_000 } else { 300_000 });
            for bytes in plain.chunks(part) {
                writer.write_all(bytes).await.unwrap();
            }
            writer.set_trailers(b"X-End: 1\r\n".to_vec());
            writer.finish();
        });
        let response = on_paused_clock(request_for(coding).apply(response));
        let ResponseBody::Stream { length: None, .. } = &response.body else {
            panic!("a stream of unknown length");
        };
        let token = coding.token().as_bytes();
        assert_eq!(response.fields.first("content-encoding"), Some(token));
        let (body, is_whole) = on_paused_clock(received(response.body));
        assert!(is_whole);
        let plain = text(if part == 1 { 3_000 } else { 300_000 });
        assert!(seen(coding, &body) == plain, "{part} {coding:?}");
        assert!(body.len() < 6_000, "{part}: {}", body.len());
    }
}

#[test]
fn each_part_leaves_within_milliseconds() {
    for coding in [ContentCoding::Gzip, ContentCoding::Zstd] {
        on_paused_clock(each_part_leaves(coding));
    }
}

async fn each_part_leaves(coding: ContentCoding) {
    let response = streamed(None, |mut writer| async move {
        for nth in 0..3 {
            writer
                .write_all(format!("data: {nth}\n\n").as_bytes())
                .await
                .unwrap();
            sleep(Duration::from_secs(10)).await;
        }
        writer.finish();
    });
    let response = request_for(coding).apply(response).await;
    let ResponseBody::Stream {
        mut reader,
        mut work,
        ..
    } = response.body
    else {
        panic!("a stream");
    };
    let begin = Instant::now();
    let (mut is_over, mut coded) = (false, Vec::new());
    for nth in 0..3 {
        let read = poll_fn(|cx| {
            is_over = is_over || work.as_mut().poll(cx).is_ready();
            reader.poll_take(cx, &mut coded, usize::MAX)
        });
        assert!(matches!(read.await, Ok(PipeRead::Bytes(_))));
        let plain = seen(coding, &coded);
        assert!(
            plain.ends_with(format!("data: {nth}\n\n").as_bytes()),
            "{}",
            plain.escape_ascii()
        );
        let late = begin.elapsed() - Duration::from_secs(10 * nth);
        assert!(
            late <= Duration::from_millis(COMPRESSION_FLUSH_MILLISECONDS + 1),
            "{late:?}"
        );
    }
}

/// A handler that never pauses for long does not keep the client waiting.
#[test]
fn parts_in_quick_succession_leave_within_milliseconds() {
    for coding in [ContentCoding::Gzip, ContentCoding::Zstd] {
        on_paused_clock(async {
            let response = streamed(None, |mut writer| async move {
                for nth in 0..200 {
                    let event = format!("data: {nth}\n\n");
                    writer.write_all(event.as_bytes()).await.unwrap();
                    sleep(Duration::from_millis(1)).await;
                }
                writer.finish();
            });
            let begin = Instant::now();
            let response = request_for(coding).apply(response).await;
            assert!(begin.elapsed() <= Duration::from_millis(COMPRESSION_FLUSH_MILLISECONDS + 1));
            let ResponseBody::Stream {
                mut reader,
                mut work,
                ..
            } = response.body
            else {
                panic!("a stream");
            };
            let (mut is_over, mut coded) = (false, Vec::new());
            loop {
                let read = poll_fn(|cx| {
                    is_over = is_over || work.as_mut().poll(cx).is_ready();
                    reader.poll_take(cx, &mut coded, usize::MAX)
                });
                if let PipeRead::End = read.await.unwrap() {
                    break;
                }
                // The event of 7 ms ago has left.
                let plain = String::from_utf8(seen(coding, &coded)).unwrap();
                let events = plain.matches("data").count() as u128;
                let written = begin.elapsed().as_millis().min(199) + 1;
                let late = u128::from(COMPRESSION_FLUSH_MILLISECONDS) + 2;
                assert!(events + late >= written, "{events} of {written}");
            }
        });
    }
}

#[test]
fn a_content_that_breaks_off_stays_broken() {
    let response = streamed(Some(9_000), |mut writer| async move {
        writer.write_all(&text(5_000)).await.unwrap();
        writer.break_off(Some(Reject::HANDLER_FAILED));
    });
    let response = on_paused_clock(request(CompressionRule::Texts).apply(response));
    let (_, is_whole) = on_paused_clock(received(response.body));
    assert!(!is_whole);
}

#[test]
fn a_client_that_takes_nothing_stops_the_handler() {
    on_paused_clock(async {
        let written = Rc::new(Cell::new(0));
        let counted = Rc::clone(&written);
        let response = streamed(None, |mut writer| async move {
            // Random bytes, which compression does not make shorter.
            let mut state = 1u64;
            loop {
                let next = |_| {
                    state = state
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    (state >> 33) as u8
                };
                let part: Vec<u8> = (0..1_024).map(next).collect();
                if writer.write_all(&part).await.is_err() {
                    return;
                }
                counted.set(counted.get() + part.len());
            }
        });
        let response = request(CompressionRule::Texts).apply(response).await;
        let ResponseBody::Stream {
            reader, mut work, ..
        } = response.body
        else {
            panic!("a stream");
        };
        let poll = timeout(
            Duration::from_secs(60),
            poll_fn(|cx| work.as_mut().poll(cx)),
        );
        assert!(poll.await.is_err());
        // Two pipes of 64 KiB, and what the compressor holds.
        assert!(
            (PIPE_BYTES..5 * PIPE_BYTES).contains(&written.get()),
            "{}",
            written.get()
        );
        drop(reader);
        let poll = timeout(
            Duration::from_secs(60),
            poll_fn(|cx| work.as_mut().poll(cx)),
        );
        assert!(poll.await.is_ok());
    });
}

#[test]
fn a_short_content_of_unknown_length_stays_as_it_is() {
    for (bytes, is_coded) in [(0, false), (511, false), (512, true)] {
        let response = streamed(None, move |mut writer| async move {
            for part in text(bytes).chunks(200) {
                writer.write_all(part).await.unwrap();
                sleep(Duration::from_millis(1)).await;
            }
            writer.set_trailers(b"X-End: 1\r\n".to_vec());
            writer.finish();
        });
        on_paused_clock(async {
            let response = request(CompressionRule::Texts).apply(response).await;
            let coding = response.fields.first("content-encoding");
            assert_eq!(coding.is_some(), is_coded, "{bytes}");
            assert_eq!(response.fields.first("vary"), Some(&b"Accept-Encoding"[..]));
            if let ResponseBody::Stream { length, .. } = &response.body {
                assert_eq!(*length, (!is_coded).then_some(bytes as u64));
            }
            let (body, is_whole) = received(response.body).await;
            assert!(is_whole);
            let plain = if is_coded { gunzip(&body) } else { body };
            assert_eq!(plain, text(bytes));
        });
    }
}
