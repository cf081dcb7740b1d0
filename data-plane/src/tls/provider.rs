//! Cipher suites and key exchanges, and their order.
//!
//! The server's order of cipher suites takes precedence. On a processor with AES instructions, AES-128-GCM
//! is the cheapest cipher. Without AES instructions (Pi Zero), ChaCha20-Poly1305 costs a fraction of AES,
//! and runs in constant time at no extra cost.

use std::sync::Arc;

use rustls::SupportedCipherSuite;
use rustls::crypto::aws_lc_rs::{self, cipher_suite as suite, kx_group};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};

use super::error::{TlsError, TlsPart};
use super::key_schedule::with_key_schedule;

/// Cipher suites, chosen by hardware or listed by the operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Ciphers {
    /// All supported suites, the fastest on the hardware first.
    #[default]
    Auto,
    /// The listed suites in the listed order. Names are IANA's or OpenSSL's names.
    List(Vec<String>),
}

/// Returns a provider with the server's order of suites and key exchange groups.
///
/// # Errors
/// Fails if the list is empty or contains an unknown name. The error lists the known names.
pub fn provider(ciphers: &Ciphers, aes_in_hardware: bool) -> Result<Arc<CryptoProvider>, TlsError> {
    let cipher_suites = match ciphers {
        Ciphers::Auto => order(aes_in_hardware).to_vec(),
        Ciphers::List(names) => names
            .iter()
            .map(|name| by_name(name))
            .collect::<Result<Vec<_>, _>>()?,
    };
    if cipher_suites.is_empty() {
        return Err(TlsError::new(
            TlsPart::Ciphers,
            "the list of ciphers is empty",
            "write \"auto\" for all ciphers, in the best order for the hardware",
        ));
    }
    Ok(Arc::new(CryptoProvider {
        cipher_suites: cipher_suites.into_iter().map(with_key_schedule).collect(),
        kx_groups: groups(),
        ..aws_lc_rs::default_provider()
    }))
}

/// Returns every suite, the cheapest first. Suites of TLS 1.2 are grouped by key type, since a certificate
/// has only one key.
fn order(aes_in_hardware: bool) -> [SupportedCipherSuite; 9] {
    let mut order = [
        suite::TLS13_AES_128_GCM_SHA256,
        suite::TLS13_AES_256_GCM_SHA384,
        suite::TLS13_CHACHA20_POLY1305_SHA256,
        suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ];
    if !aes_in_hardware {
        for of_one_kind in order.chunks_mut(3) {
            of_one_kind.rotate_right(1);
        }
    }
    order
}

/// Returns the supported key exchanges. rustls follows the client's order, so a client that sends a key
/// share for its first choice, as is usual, never needs a second flight.
fn groups() -> Vec<&'static dyn SupportedKxGroup> {
    let mut groups = vec![
        kx_group::X25519MLKEM768,
        kx_group::X25519,
        kx_group::SECP256R1,
        kx_group::SECP384R1,
    ];
    if cfg!(target_arch = "arm") {
        groups.swap(0, 1);
    }
    groups
}

fn by_name(name: &str) -> Result<SupportedCipherSuite, TlsError> {
    // rustls names the suites of TLS 1.3 with a prefix of its own.
    let plain = name.to_ascii_uppercase().replacen("TLS13_", "TLS_", 1);
    let known = NAMES
        .iter()
        .find(|(iana, openssl, _)| plain == *iana || plain == *openssl);
    known.map(|(_, _, suite)| *suite).ok_or_else(|| {
        let all: Vec<&str> = NAMES.iter().map(|(_, openssl, _)| *openssl).collect();
        TlsError::new(
            TlsPart::Ciphers,
            format!("unknown cipher \"{name}\""),
            format!("the known ciphers are {}", all.join(", ")),
        )
    })
}

/// IANA's name, OpenSSL's name, and the suite.
const NAMES: [(&str, &str, SupportedCipherSuite); 9] = [
    (
        "TLS_AES_128_GCM_SHA256",
        "TLS_AES_128_GCM_SHA256",
        suite::TLS13_AES_128_GCM_SHA256,
    ),
    (
        "TLS_AES_256_GCM_SHA384",
        "TLS_AES_256_GCM_SHA384",
        suite::TLS13_AES_256_GCM_SHA384,
    ),
    (
        "TLS_CHACHA20_POLY1305_SHA256",
        "TLS_CHACHA20_POLY1305_SHA256",
        suite::TLS13_CHACHA20_POLY1305_SHA256,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        "ECDHE-ECDSA-AES256-GCM-SHA384",
        suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        "ECDHE-ECDSA-CHACHA20-POLY1305",
        suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    (
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        "ECDHE-RSA-AES128-GCM-SHA256",
        suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        "ECDHE-RSA-AES256-GCM-SHA384",
        suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        "ECDHE-RSA-CHACHA20-POLY1305",
        suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
];

/// Returns true if the processor computes AES-GCM in hardware: AES rounds and carry-less multiplication.
pub(crate) fn aes_in_hardware() -> bool {
    #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
    {
        std::arch::is_x86_feature_detected!("aes")
            && std::arch::is_x86_feature_detected!("pclmulqdq")
    }
    #[cfg(target_arch = "aarch64")]
    {
        std::arch::is_aarch64_feature_detected!("aes")
            && std::arch::is_aarch64_feature_detected!("pmull")
    }
    #[cfg(target_arch = "arm")]
    {
        // Stable Rust can't detect the feature on ARM, but the kernel reports the feature to every process.
        std::fs::read("/proc/self/auxv").is_ok_and(|auxv| arm_has_aes(&auxv))
    }
    #[cfg(not(any(
        target_arch = "x86",
        target_arch = "x86_64",
        target_arch = "aarch64",
        target_arch = "arm"
    )))]
    {
        false
    }
}

/// Returns true if AES and PMULL are set in AT_HWCAP2 of a 32-bit process's auxiliary vector (an ARMv8
/// processor in 32-bit mode).
#[cfg(any(target_arch = "arm", test))]
fn arm_has_aes(auxv: &[u8]) -> bool {
    const AT_HWCAP2: u32 = 26;
    const AES_AND_PMULL: u32 = 0b11;
    let word = |bytes: &[u8]| bytes.try_into().map(u32::from_ne_bytes).unwrap_or(0);
    auxv.chunks_exact(8)
        .find(|pair| word(&pair[..4]) == AT_HWCAP2)
        .is_some_and(|pair| word(&pair[4..]) & AES_AND_PMULL == AES_AND_PMULL)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(ciphers: &[&str]) -> Ciphers {
        Ciphers::List(ciphers.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn the_hardware_decides_the_order() {
        let with = provider(&Ciphers::Auto, true).unwrap();
        assert_eq!(with.cipher_suites[0], suite::TLS13_AES_128_GCM_SHA256);
        assert_eq!(with.cipher_suites[1], suite::TLS13_AES_256_GCM_SHA384);
        let without = provider(&Ciphers::Auto, false).unwrap();
        assert_eq!(
            without.cipher_suites[0],
            suite::TLS13_CHACHA20_POLY1305_SHA256
        );
        assert_eq!(without.cipher_suites[1], suite::TLS13_AES_128_GCM_SHA256);
        assert_eq!(
            without.cipher_suites[6],
            suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256
        );
    }

    #[test]
    fn a_list_takes_both_kinds_of_names_in_its_order() {
        let list = names(&[
            "ECDHE-RSA-AES128-GCM-SHA256",
            "tls_aes_256_gcm_sha384",
            "TLS13_CHACHA20_POLY1305_SHA256",
            "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        ]);
        assert_eq!(
            provider(&list, true).unwrap().cipher_suites,
            [
                suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
                suite::TLS13_AES_256_GCM_SHA384,
                suite::TLS13_CHACHA20_POLY1305_SHA256,
                suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
            ]
        );
        let error = provider(&names(&["RC4-SHA"]), true).unwrap_err();
        assert_eq!(error.part, TlsPart::Ciphers);
        assert!(error.what.contains("RC4-SHA"), "{error}");
        assert!(error.hint.contains("TLS_AES_128_GCM_SHA256"), "{error}");
        assert!(provider(&names(&[]), true).is_err());
    }

    #[test]
    fn aes_is_found_in_the_auxiliary_vector_of_a_32_bit_process() {
        let vector = |hwcap2: u32| {
            [16, 0xffff, 26, hwcap2, 0, 0]
                .map(u32::to_ne_bytes)
                .concat()
        };
        assert!(arm_has_aes(&vector(0b11111)));
        assert!(!arm_has_aes(&vector(0b10000)));
        assert!(!arm_has_aes(&vector(0)));
        assert!(!arm_has_aes(b"short"));
    }
}
