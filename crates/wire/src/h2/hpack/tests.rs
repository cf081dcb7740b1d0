//! Examples of RFC 7541, Appendix C, and invariants of arbitrary blocks.

use super::*;
use crate::invariants::h2;
use proptest::prelude::*;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .bytes()
        .filter_map(|byte| char::from(byte).to_digit(16))
        .map(|digit| digit as u8)
        .collect();
    digits
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}

fn decode(decoder: &mut HpackDecoder, block: &[u8]) -> Result<Vec<String>, H2ConnectionError> {
    let mut fields = Vec::new();
    decoder.decode(block, &mut HpackScratch::default(), |name, value| {
        let [name, value] = [name, value].map(String::from_utf8_lossy);
        fields.push(format!("{name}: {value}"));
        Ok(())
    })?;
    Ok(fields)
}

/// Returns the dynamic table from its newest entry, and its size.
fn table(decoder: &HpackDecoder) -> (Vec<String>, usize) {
    let entries = (0..decoder.entries.len()).map(|nth| {
        let (name, value) = decoder.entry(STATIC.len() + 1 + nth).expect("an entry");
        let [name, value] = [name, value].map(String::from_utf8_lossy);
        format!("{name}: {value}")
    });
    (entries.collect(), decoder.size)
}

#[test]
fn integers_of_appendix_c_1() {
    for (number, prefix_bits, expected) in [
        (10, 5, &[10][..]),
        (1_337, 5, &[31, 154, 10]),
        (42, 8, &[42]),
    ] {
        let mut out = Vec::new();
        if prefix_bits < 8 {
            push_integer(number, prefix_bits, 0, &mut out);
            assert_eq!(out, expected);
            let mut block = &out[..];
            assert_eq!(integer(&mut block, prefix_bits), Ok(number));
            assert!(block.is_empty());
        }
    }
    // Truncated integers, and an integer without end.
    for block in [&b"\x1f"[..], b"\x1f\x9a", b"\x1f\x80\x80\x80\x80\x80\x01"] {
        assert!(integer(&mut &*block, 5).is_err(), "{block:?}");
    }
}

#[test]
fn literals_of_appendix_c_2() {
    for (block, field, entries) in [
        (
            "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
            "custom-key: custom-header",
            1,
        ),
        (
            "040c 2f73 616d 706c 652f 7061 7468",
            ":path: /sample/path",
            0,
        ),
        (
            "1008 7061 7373 776f 7264 0673 6563 7265 74",
            "password: secret",
            0,
        ),
        ("82", ":method: GET", 0),
    ] {
        let mut decoder = HpackDecoder::default();
        assert_eq!(
            decode(&mut decoder, &hex(block)),
            Ok(vec![field.to_owned()])
        );
        assert_eq!(decoder.entries.len(), entries, "{field}");
    }
}

/// C.3 without Huffman coding and C.4 with it yield equal fields and tables.
#[test]
fn requests_of_appendix_c_3_and_c_4() {
    let plain = [
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ];
    let coded = [
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ];
    let fields: [&[&str]; 3] = [
        &[
            ":method: GET",
            ":scheme: http",
            ":path: /",
            ":authority: www.example.com",
        ],
        &[
            ":method: GET",
            ":scheme: http",
            ":path: /",
            ":authority: www.example.com",
            "cache-control: no-cache",
        ],
        &[
            ":method: GET",
            ":scheme: https",
            ":path: /index.html",
            ":authority: www.example.com",
            "custom-key: custom-value",
        ],
    ];
    for blocks in [plain, coded] {
        let mut decoder = HpackDecoder::default();
        for (block, fields) in blocks.iter().zip(fields) {
            let decoded = decode(&mut decoder, &hex(block)).expect("a block");
            assert_eq!(decoded, fields);
        }
        let (entries, size) = table(&decoder);
        let expected = [
            "custom-key: custom-value",
            "cache-control: no-cache",
            ":authority: www.example.com",
        ];
        assert_eq!((entries, size), (expected.map(String::from).into(), 164));
    }
}

/// C.5 without Huffman coding and C.6 with it, in a table of 256 bytes that evicts its oldest entries.
#[test]
fn responses_of_appendix_c_5_and_c_6() {
    let plain = [
        "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 \
         303a 3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "4803 3330 37c1 c0bf",
        "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 \
         5a04 677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 \
         5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31",
    ];
    let coded = [
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b \
         ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
        "4883 640e ffc1 c0bf",
        "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad \
         94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 \
         65c0 03ed 4ee5 b106 3d50 07",
    ];
    for blocks in [plain, coded] {
        let mut decoder = HpackDecoder::default();
        assert_eq!(decode(&mut decoder, &hex("3f e1 01")), Ok(Vec::new()));
        let sizes = blocks.map(|block| {
            let fields = decode(&mut decoder, &hex(block)).expect("a block");
            (fields, table(&decoder).1)
        });
        let date = |second| format!("date: Mon, 21 Oct 2013 20:13:2{second} GMT");
        let location = "location: https://www.example.com".to_owned();
        let private = "cache-control: private".to_owned();
        let first = [
            ":status: 302".into(),
            private.clone(),
            date(1),
            location.clone(),
        ];
        assert_eq!(sizes[0], (first.into(), 222));
        let second = [
            ":status: 307".into(),
            private.clone(),
            date(1),
            location.clone(),
        ];
        assert_eq!(sizes[1], (second.into(), 222));
        let cookie =
            "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1".to_owned();
        let third = [
            ":status: 200".into(),
            private,
            date(2),
            location,
            "content-encoding: gzip".into(),
            cookie.clone(),
        ];
        assert_eq!(sizes[2], (third.into(), 215));
        let expected = [cookie, "content-encoding: gzip".into(), date(2)];
        assert_eq!(table(&decoder).0, expected);
    }
}

#[test]
fn malformed_blocks_are_refused() {
    for block in [
        "80",          // index 0
        "ff 80 01",    // beyond both tables
        "be",          // the dynamic table is empty
        "82 20",       // a size update behind a field
        "3f e2 1f",    // a table above the limit
        "40",          // no name
        "40 01 61",    // no value
        "40 01 61 05", // a truncated value
        "00 81 00 00", // padding of zeros
    ] {
        let code = decode(&mut HpackDecoder::default(), &hex(block)).map_err(|it| it.code);
        assert_eq!(code, Err(H2ErrorCode::COMPRESSION_ERROR), "{block}");
    }
}

#[test]
fn a_head_of_lines_becomes_a_block() {
    let head = b"HTTP/1.1 206 Partial Content\r\nServer: anthill\r\nX-Own:  a b \r\n\
        Connection: close\r\nTransfer-Encoding: chunked\r\nVary: \r\n";
    let mut block = Vec::new();
    push_head(206, head, &mut block);
    push_date(b"Fri, 20 Nov 2026 22:00:00 GMT", &mut block);
    push_status(503, &mut block);
    let fields = decode(&mut HpackDecoder::default(), &block).expect("a block");
    let expected = [
        ":status: 206",
        "server: anthill",
        "x-own: a b",
        "vary: ",
        "date: Fri, 20 Nov 2026 22:00:00 GMT",
        ":status: 503",
    ];
    assert_eq!(fields, expected);
}

#[test]
fn evicted_entries_are_freed() {
    let mut decoder = HpackDecoder::default();
    for nth in 0..10_000 {
        let mut block = vec![0x40];
        push_string(format!("name-{nth}").as_bytes(), &mut block);
        push_string(&vec![b'v'; nth % 300], &mut block);
        decode(&mut decoder, &block).expect("a field");
        assert!(decoder.size <= TABLE_BYTES_MAX);
        assert!(decoder.text.len() <= 2 * TABLE_BYTES_MAX);
    }
    let (newest, _) = decoder.entry(STATIC.len() + 1).expect("an entry");
    assert_eq!(newest, b"name-9999");
    assert!(decoder.held_bytes() < 4 * TABLE_BYTES_MAX);
}

fn cases() -> ProptestConfig {
    ProptestConfig::with_cases(h2::cases())
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn encoded_fields_are_decoded_back(
        fields in proptest::collection::vec(("[a-z:-]{1,12}", "[ -~]{0,40}"), 0..12)
    ) {
        let mut block = Vec::new();
        for (name, value) in &fields {
            push_field(name.as_bytes(), value.as_bytes(), &mut block);
        }
        let decoded = decode(&mut HpackDecoder::default(), &block).expect("a block");
        let expected: Vec<_> = fields.iter().map(|(n, v)| format!("{n}: {v}")).collect();
        prop_assert_eq!(decoded, expected);
    }

    #[test]
    fn invariants_of_arbitrary_blocks(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        h2::hpack(&bytes);
    }
}
