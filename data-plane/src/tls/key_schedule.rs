//! HKDF (RFC 5869) for the key schedule of TLS 1.3 (RFC 8446 §7.1).
//!
//! The HKDF of aws-lc-rs extracts the pseudorandom key anew for each key that it expands, and hashes the key of HMAC
//! anew as well. A full handshake expands 12 keys 23 times. [`HmacHkdf`] keeps each key prepared for HMAC.

use aws_lc_rs::hmac;
use rustls::crypto::tls13::{Hkdf, HkdfExpander, OkmBlock, OutputLengthError};
use rustls::crypto::{CipherSuiteCommon, aws_lc_rs as library, hmac::Tag};
use rustls::{SupportedCipherSuite, Tls13CipherSuite};
use std::sync::LazyLock;
use zeroize::Zeroizing;

/// Longest output of a hash function of a suite: SHA-384.
const HASH_BYTES_MAX: usize = 48;

static SHA256: HmacHkdf = HmacHkdf(hmac::HMAC_SHA256);
static SHA384: HmacHkdf = HmacHkdf(hmac::HMAC_SHA384);

/// Suites of TLS 1.3 with [`HmacHkdf`].
static SUITES: LazyLock<Vec<Tls13CipherSuite>> = LazyLock::new(|| {
    use library::cipher_suite as suite;
    let with_hkdf = |(suite, hkdf): (SupportedCipherSuite, &'static HmacHkdf)| {
        let suite = suite.tls13()?;
        Some(Tls13CipherSuite {
            common: CipherSuiteCommon {
                suite: suite.common.suite,
                hash_provider: suite.common.hash_provider,
                confidentiality_limit: suite.common.confidentiality_limit,
            },
            hkdf_provider: hkdf,
            aead_alg: suite.aead_alg,
            quic: suite.quic,
        })
    };
    [
        (suite::TLS13_AES_128_GCM_SHA256, &SHA256),
        (suite::TLS13_AES_256_GCM_SHA384, &SHA384),
        (suite::TLS13_CHACHA20_POLY1305_SHA256, &SHA256),
    ]
    .into_iter()
    .filter_map(with_hkdf)
    .collect()
});

/// Returns the suite with the key schedule of this module; a suite of TLS 1.2 as it is.
pub(super) fn with_key_schedule(suite: SupportedCipherSuite) -> SupportedCipherSuite {
    let own = SUITES.iter().find(|own| own.common.suite == suite.suite());
    own.map_or(suite, SupportedCipherSuite::Tls13)
}

/// HKDF by an HMAC.
struct HmacHkdf(hmac::Algorithm);

/// Extracted key, prepared for HMAC.
struct HmacExpander(hmac::Key);

impl HmacHkdf {
    fn extract(&self, salt: Option<&[u8]>, secret: Option<&[u8]>) -> Box<dyn HkdfExpander> {
        let zeros = [0; HASH_BYTES_MAX];
        let zeros = &zeros[..self.0.digest_algorithm().output_len()];
        let salt = hmac::Key::new(self.0, salt.unwrap_or(zeros));
        let extracted = hmac::sign(&salt, secret.unwrap_or(zeros));
        Box::new(HmacExpander(hmac::Key::new(self.0, extracted.as_ref())))
    }
}

impl Hkdf for HmacHkdf {
    fn extract_from_zero_ikm(&self, salt: Option<&[u8]>) -> Box<dyn HkdfExpander> {
        self.extract(salt, None)
    }

    fn extract_from_secret(&self, salt: Option<&[u8]>, secret: &[u8]) -> Box<dyn HkdfExpander> {
        self.extract(salt, Some(secret))
    }

    fn expander_for_okm(&self, okm: &OkmBlock) -> Box<dyn HkdfExpander> {
        Box::new(HmacExpander(hmac::Key::new(self.0, okm.as_ref())))
    }

    fn hmac_sign(&self, key: &OkmBlock, message: &[u8]) -> Tag {
        let key = hmac::Key::new(self.0, key.as_ref());
        Tag::new(hmac::sign(&key, message).as_ref())
    }
}

impl HkdfExpander for HmacExpander {
    fn expand_slice(&self, info: &[&[u8]], output: &mut [u8]) -> Result<(), OutputLengthError> {
        let hash_bytes = self.hash_len();
        if output.len() > 255 * hash_bytes {
            return Err(OutputLengthError);
        }
        // T(n) = HMAC(PRK, T(n-1) | info | n), RFC 5869 §2.3.
        let info = info.concat();
        let mut previous = Zeroizing::new(Vec::new());
        for (number, part) in (1..=255).zip(output.chunks_mut(hash_bytes)) {
            let data = Zeroizing::new([&previous, &info[..], &[number]].concat());
            let block = hmac::sign(&self.0, &data);
            part.copy_from_slice(&block.as_ref()[..part.len()]);
            previous.clear();
            if part.len() == hash_bytes && number < 255 {
                previous.extend_from_slice(block.as_ref());
            }
        }
        Ok(())
    }

    fn expand_block(&self, info: &[&[u8]]) -> OkmBlock {
        let info = [&info.concat()[..], &[1]].concat();
        OkmBlock::new(hmac::sign(&self.0, &info).as_ref())
    }

    fn hash_len(&self) -> usize {
        self.0.algorithm().digest_algorithm().output_len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let pairs = hex.as_bytes().chunks(2);
        pairs
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    }

    #[test]
    fn keys_are_those_of_rfc_5869() {
        let range = |bytes: std::ops::RangeInclusive<u8>| bytes.collect::<Vec<u8>>();
        // Appendix A.1, A.2 and A.3.
        let cases = [
            (
                vec![0x0b; 22],
                Some(range(0..=0x0c)),
                range(0xf0..=0xf9),
                "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865",
            ),
            (
                range(0..=0x4f),
                Some(range(0x60..=0xaf)),
                range(0xb0..=0xff),
                "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c65e590e09da3275600c2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87",
            ),
            (
                vec![0x0b; 22],
                None,
                Vec::new(),
                "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8",
            ),
        ];
        for (secret, salt, info, expected) in cases {
            let expander = SHA256.extract_from_secret(salt.as_deref(), &secret);
            let expected = bytes(expected);
            let mut output = vec![0; expected.len()];
            let (start, rest) = info.split_at(info.len() / 2);
            expander.expand_slice(&[start, rest], &mut output).unwrap();
            assert_eq!(output, expected);
            let block = expander.expand_block(&[&info]);
            assert_eq!(block.as_ref(), &expected[..32]);
        }
    }

    #[test]
    fn keys_are_those_of_the_library() {
        use library::cipher_suite as suite;
        for suite in [
            suite::TLS13_AES_128_GCM_SHA256,
            suite::TLS13_AES_256_GCM_SHA384,
        ] {
            let library = suite.tls13().unwrap().hkdf_provider;
            let own = with_key_schedule(suite).tls13().unwrap().hkdf_provider;
            let keys = [library, own].map(|hkdf| {
                let zero = hkdf.extract_from_zero_ikm(None);
                let first = zero.expand_block(&[b"first"]);
                let second = hkdf.expander_for_okm(&first).expand_block(&[b"second"]);
                let third = hkdf.extract_from_secret(Some(second.as_ref()), b"secret");
                let mut long = [0; 200];
                third.expand_slice(&[b"long"], &mut long).unwrap();
                assert!(third.expand_slice(&[], &mut vec![0; 255 * 48 + 1]).is_err());
                (long, hkdf.hmac_sign(&first, b"message").as_ref().to_vec())
            });
            assert_eq!(keys[0], keys[1]);
        }
    }

    #[test]
    fn suites_of_tls_1_2_stay() {
        let suite = library::cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256;
        assert_eq!(with_key_schedule(suite), suite);
    }
}
