use super::*;
use flate2::read::MultiGzDecoder;
use std::cell::Cell;
use std::io::Read;
use std::rc::Rc;
use tokio::time::{Instant, sleep};
use wire::reject::Reject;

fn fields(lines: &str) -> ResponseFields {
    ResponseFields::from_lines(lines.replace('|', "\r\n").into_bytes())
}

fn question(rule: CompressionRule) -> CompressionQuestion {
    CompressionQuestion {
        rule,
        accepts_gzip: true,
        knows_weak_tag: false,
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
    // A client without gzip gets the plain content, which has its strong tag.
    let plain = CompressionRequest {
        question: CompressionQuestion {
            accepts_gzip: false,
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
fn a_handler_knows_its_own_tags() {
    let lines = b"Host: a\r\nIf-None-Match: W/\"a\", \"b\",W/\"c,d\"\r\nX: W/\"e\"\r\n";
    let strong =
        b"Host: a\r\nIf-None-Match: W/\"a\", \"b\",W/\"c,d\", \"a\", \"c,d\"\r\nX: W/\"e\"\r\n";
    let text = with_strong_tags(lines).unwrap();
    assert_eq!(
        text.escape_ascii().to_string(),
        strong.escape_ascii().to_string()
    );
    assert_eq!(
        with_strong_tags(b"If-None-Match: \"a\", *\r\nIf-Match: W/\"a\"\r\n"),
        None
    );
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
        assert_eq!(response.fields, fields(&format!("ETag: {tag}|")));
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
    for part in [1, 7, 1_000, COMPRESSION_SLICE_BYTES, 100_000] {
        let response = streamed(Some(300_000), move |mut writer| async move {
            let plain = text(if part == 1 { 3_000 } else { 300_000 });
            for bytes in plain.chunks(part) {
                writer.write_all(bytes).await.unwrap();
            }
            writer.set_trailers(b"X-End: 1\r\n".to_vec());
            writer.finish();
        });
        let response = on_paused_clock(request(CompressionRule::Texts).apply(response));
        let ResponseBody::Stream { length: None, .. } = &response.body else {
            panic!("a stream of unknown length");
        };
        let (body, is_whole) = on_paused_clock(received(response.body));
        assert!(is_whole);
        assert!(gunzip(&body).starts_with(&text(3_000)), "{part}");
        assert!(body.len() < 6_000, "{part}: {}", body.len());
    }
}

#[test]
fn each_part_leaves_within_milliseconds() {
    on_paused_clock(async {
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
        let response = request(CompressionRule::Texts).apply(response).await;
        let ResponseBody::Stream {
            mut reader,
            mut work,
            ..
        } = response.body
        else {
            panic!("a stream");
        };
        let begin = Instant::now();
        let mut coder = flate2::Decompress::new_gzip(15);
        let (mut is_over, mut plain) = (false, Vec::with_capacity(1_000));
        for nth in 0..3 {
            let mut coded = Vec::new();
            let read = poll_fn(|cx| {
                is_over = is_over || work.as_mut().poll(cx).is_ready();
                reader.poll_take(cx, &mut coded, usize::MAX)
            });
            assert!(matches!(read.await, Ok(PipeRead::Bytes(_))));
            coder
                .decompress_vec(&coded, &mut plain, flate2::FlushDecompress::Sync)
                .unwrap();
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
    });
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
            for part in text(bytes).chunks(100) {
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
