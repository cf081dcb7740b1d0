//! Huffman code of HPACK (RFC 7541 §5.2, Appendix B), also used by QPACK.
//!
//! The code is canonical: codes of one length follow each other in the order of their symbols. The lengths
//! alone, 257 bytes, define the whole code, and the tables are built from the lengths at compile time.

/// Bits of each symbol's code; the last symbol is EOS.
#[rustfmt::skip] // Keeps the columns of the table.
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];
const EOS: u16 = 256;
const LENGTH_MAX: usize = 30;
/// Length of the longest codes that a single table look-up decodes.
const SHORT_BITS: u32 = 8;

struct HuffmanCode {
    /// Code of each symbol.
    codes: [u32; 257],
    /// All symbols in the order of their codes.
    sorted: [u16; 257],
    /// For each length: the code behind the last code of the length, aligned to 32 bits; and the offset
    /// from a code to its index in `sorted`.
    ends: [u64; LENGTH_MAX + 1],
    places: [i64; LENGTH_MAX + 1],
    /// For the next eight bits: the symbol and its length, 0 for a longer code.
    short: [(u8, u8); 1 << SHORT_BITS],
}

static CODE: HuffmanCode = make();

const fn make() -> HuffmanCode {
    let mut made = HuffmanCode {
        codes: [0; 257],
        sorted: [0; 257],
        ends: [0; LENGTH_MAX + 1],
        places: [0; LENGTH_MAX + 1],
        short: [(0, 0); 1 << SHORT_BITS],
    };
    let (mut code, mut place, mut length) = (0u32, 0usize, 1usize);
    while length <= LENGTH_MAX {
        made.places[length] = place as i64 - code as i64;
        let mut symbol = 0;
        while symbol < LENGTHS.len() {
            if LENGTHS[symbol] as usize == length {
                made.codes[symbol] = code;
                made.sorted[place] = symbol as u16;
                if length <= SHORT_BITS as usize {
                    let shift = SHORT_BITS - length as u32;
                    let mut index = (code << shift) as usize;
                    while index < ((code + 1) << shift) as usize {
                        made.short[index] = (symbol as u8, length as u8);
                        index += 1;
                    }
                }
                place += 1;
                code += 1;
            }
            symbol += 1;
        }
        made.ends[length] = (code as u64) << (32 - length);
        code <<= 1;
        length += 1;
    }
    made
}

/// Malformed Huffman-coded string.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct InvalidHuffman;

/// Decodes `coded` and appends the text to `out`.
pub fn decode(coded: &[u8], out: &mut Vec<u8>) -> Result<(), InvalidHuffman> {
    let mut rest = coded.iter();
    // Undecoded bits, aligned to the top.
    let (mut bits, mut count) = (0u64, 0u32);
    loop {
        while count <= 56
            && let Some(byte) = rest.next()
        {
            bits |= u64::from(*byte) << (56 - count);
            count += 8;
        }
        let (mut symbol, mut length) = {
            let (symbol, length) = CODE.short[(bits >> (64 - SHORT_BITS)) as usize];
            (u16::from(symbol), u32::from(length))
        };
        if length == 0 {
            (symbol, length) = long(bits >> 32);
        }
        if length > count {
            // Fewer bits than the next code must be padding: less than a byte of ones (RFC 7541 §5.2).
            let ones = bits.leading_ones();
            return if count < 8 && ones == count {
                Ok(())
            } else {
                Err(InvalidHuffman)
            };
        }
        if symbol == EOS {
            return Err(InvalidHuffman);
        }
        out.push(symbol as u8);
        bits <<= length;
        count -= length;
    }
}

/// Returns the symbol and the length of a code longer than [`SHORT_BITS`] at the top of 32 bits.
fn long(window: u64) -> (u16, u32) {
    let mut length = SHORT_BITS as usize + 1;
    while length < LENGTH_MAX && window >= CODE.ends[length] {
        length += 1;
    }
    let place = (window >> (32 - length)) as i64 + CODE.places[length];
    // A value behind the last code is as invalid as EOS.
    let symbol = usize::try_from(place)
        .ok()
        .and_then(|place| CODE.sorted.get(place));
    (symbol.copied().unwrap_or(EOS), length as u32)
}

/// Returns the length of `text` after encoding, in bytes.
pub fn encoded_len(text: &[u8]) -> usize {
    let bits: usize = text
        .iter()
        .map(|byte| usize::from(LENGTHS[usize::from(*byte)]))
        .sum();
    bits.div_ceil(8)
}

/// Encodes `text` and appends the result to `out`.
pub fn encode(text: &[u8], out: &mut Vec<u8>) {
    let (mut bits, mut count) = (0u64, 0u32);
    for byte in text {
        let symbol = usize::from(*byte);
        let length = u32::from(LENGTHS[symbol]);
        bits = bits << length | u64::from(CODE.codes[symbol]);
        count += length;
        while count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    if count > 0 {
        // The padding consists of the first bits of EOS.
        out.push((bits << (8 - count)) as u8 | (0xff >> count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decoded(coded: &[u8]) -> Result<Vec<u8>, InvalidHuffman> {
        let mut out = Vec::new();
        decode(coded, &mut out).map(|()| out)
    }

    /// Examples of RFC 7541 §C.4.1 and §C.6.1.
    #[test]
    fn examples_of_the_rfc() {
        let examples: [(&[u8], &[u8]); 4] = [
            (
                b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff",
                b"www.example.com",
            ),
            (b"\xa8\xeb\x10\x64\x9c\xbf", b"no-cache"),
            (b"\x64\x02", b"302"),
            (
                b"\x9d\x29\xad\x17\x18\x63\xc7\x8f\x0b\x97\xc8\xe9\xae\x82\xae\x43\xd3",
                b"https://www.example.com",
            ),
        ];
        for (coded, text) in examples {
            assert_eq!(decoded(coded).as_deref(), Ok(text));
            let mut out = Vec::new();
            encode(text, &mut out);
            assert_eq!(out, coded);
            assert_eq!(encoded_len(text), coded.len());
        }
    }

    #[test]
    fn every_symbol_is_decoded_back() {
        for byte in 0..=255u8 {
            for text in [vec![byte], vec![byte; 3], vec![b'a', byte, b'z']] {
                let mut coded = Vec::new();
                encode(&text, &mut coded);
                assert_eq!(decoded(&coded), Ok(text));
            }
        }
    }

    #[test]
    fn padding_is_less_than_a_byte_of_ones() {
        // "0" is five zeros.
        assert_eq!(decoded(&[0b0000_0111]), Ok(b"0".to_vec()));
        assert_eq!(decoded(&[0b0000_0110]), Err(InvalidHuffman));
        assert_eq!(decoded(&[0b0000_0111, 0xff]), Err(InvalidHuffman));
        assert_eq!(decoded(&[0xff]), Err(InvalidHuffman));
        assert_eq!(decoded(&[]), Ok(Vec::new()));
        // EOS itself.
        assert_eq!(decoded(&[0xff, 0xff, 0xff, 0xff]), Err(InvalidHuffman));
        assert_eq!(decoded(&[0xff, 0xff, 0xff, 0xfc]), Err(InvalidHuffman));
    }

    proptest! {
        #[test]
        fn encoded_text_is_decoded_back(text in proptest::collection::vec(any::<u8>(), 0..100)) {
            let mut coded = Vec::new();
            encode(&text, &mut coded);
            prop_assert_eq!(coded.len(), encoded_len(&text));
            prop_assert_eq!(decoded(&coded), Ok(text));
        }

        /// A string has a single encoding, and every decodable input equals the encoding of its text.
        #[test]
        fn decoded_text_is_encoded_back(coded in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(text) = decoded(&coded) {
                let mut again = Vec::new();
                encode(&text, &mut again);
                prop_assert_eq!(again, coded);
            }
        }
    }
}
