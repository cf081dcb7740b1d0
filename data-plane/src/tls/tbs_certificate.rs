//! Certificate before its signature (RFC 5280 §4.1), in the only form made by the server: X.509 v3 for a
//! server, ECDSA on P-256 with SHA-256, self-issued.

use std::net::IpAddr;

use aws_lc_rs::error::Unspecified;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{EcdsaKeyPair, KeyPair as _};

use crate::tls::der::{
    BIT_STRING, BOOLEAN, EXTENSIONS, GENERALIZED_TIME, INTEGER, OBJECT_IDENTIFIER, OCTET_STRING,
    SEQUENCE, SET, UTC_TIME, UTF8_STRING, VERSION, element,
};
use base::digest::sha256;
use wire::date::civil;

/// Contents of the certificate.
pub(super) struct TbsCertificate<'a> {
    /// Serial number, positive and in its shortest form: the first byte is 1 to 127.
    pub serial: [u8; 16],
    /// Common name of issuer and subject.
    pub common_name: &'a str,
    /// DNS names and addresses, in ASCII.
    pub names: &'a [String],
    /// First second of validity, Unix time.
    pub not_before: u64,
    /// Last second of validity, Unix time.
    pub not_after: u64,
    /// Digest that proves the control of the name in the challenge tls-alpn-01 (RFC 8737 §3), or None for
    /// other certificates.
    pub acme_identifier: Option<[u8; 32]>,
}

impl TbsCertificate<'_> {
    /// Returns the DER of the certificate, signed with a key on P-256.
    ///
    /// # Errors
    /// Fails if the system has no randomness.
    pub(super) fn sign(&self, key: &EcdsaKeyPair) -> Result<Vec<u8>, Unspecified> {
        let algorithm = element(SEQUENCE, &[&oid(ECDSA_WITH_SHA256)]);
        let body = self.body(key.public_key().as_ref(), &algorithm);
        signed(&body, key)
    }

    fn body(&self, point: &[u8], algorithm: &[u8]) -> Vec<u8> {
        let name = self.name();
        let validity = [time(self.not_before), time(self.not_after)].concat();
        let parts: [&[u8]; 8] = [
            &element(VERSION, &[&element(INTEGER, &[&[2]])]), // v3
            &element(INTEGER, &[&self.serial]),
            algorithm,
            &name,
            &element(SEQUENCE, &[&validity]),
            &name,
            &public_key(point),
            &element(EXTENSIONS, &[&self.extensions(point)]),
        ];
        element(SEQUENCE, &parts)
    }

    fn name(&self) -> Vec<u8> {
        let text = element(UTF8_STRING, &[self.common_name.as_bytes()]);
        let attribute = element(SEQUENCE, &[&oid(COMMON_NAME), &text]);
        element(SEQUENCE, &[&element(SET, &[&attribute])])
    }

    /// Returns the extensions (RFC 5280 §4.2.1).
    fn extensions(&self, point: &[u8]) -> Vec<u8> {
        // First 20 bytes of the key's SHA-256, which RFC 7093 §2 allows in place of SHA-1.
        let key_identifier = &sha256(point)[..20];
        // Only the first bit is set, digitalSignature. Seven bits are unused.
        let key_usage = element(BIT_STRING, &[&[7, 0x80]]);
        let extensions = [
            subject_alt_name(self.names),
            extension(KEY_USAGE, true, &key_usage),
            extension(
                EXTENDED_KEY_USAGE,
                false,
                &element(SEQUENCE, &[&oid(SERVER_AUTH)]),
            ),
            extension(
                SUBJECT_KEY_IDENTIFIER,
                false,
                &element(OCTET_STRING, &[key_identifier]),
            ),
            // A certificate that isn't a CA: false is the default, which DER leaves out.
            extension(BASIC_CONSTRAINTS, true, &element(SEQUENCE, &[])),
        ];
        let acme = self.acme_identifier.map_or_else(Vec::new, |digest| {
            extension(ACME_IDENTIFIER, true, &element(OCTET_STRING, &[&digest]))
        });
        element(SEQUENCE, &[&extensions.concat(), &acme])
    }
}

/// Returns a certificate request (PKCS #10, RFC 2986) for `names` and the public key of `key`. The request
/// has no subject: only the names count, and the CA sets the remaining fields.
///
/// # Errors
/// Fails if the system has no randomness.
pub(super) fn request(names: &[String], key: &EcdsaKeyPair) -> Result<Vec<u8>, Unspecified> {
    let extensions = element(SEQUENCE, &[&subject_alt_name(names)]);
    let attribute = [oid(EXTENSION_REQUEST), element(SET, &[&extensions])].concat();
    let parts: [&[u8]; 4] = [
        &element(INTEGER, &[&[0]]), // v1
        &element(SEQUENCE, &[]),
        &public_key(key.public_key().as_ref()),
        &element(ATTRIBUTES, &[&element(SEQUENCE, &[&attribute])]),
    ];
    signed(&element(SEQUENCE, &parts), key)
}

/// Returns the structure common to certificates and requests: body, algorithm and signature.
fn signed(body: &[u8], key: &EcdsaKeyPair) -> Result<Vec<u8>, Unspecified> {
    let algorithm = element(SEQUENCE, &[&oid(ECDSA_WITH_SHA256)]);
    let signature = key.sign(&SystemRandom::new(), body)?;
    let signature = element(BIT_STRING, &[NO_UNUSED_BITS, signature.as_ref()]);
    Ok(element(SEQUENCE, &[body, &algorithm, &signature]))
}

fn public_key(point: &[u8]) -> Vec<u8> {
    let curve = [oid(EC_PUBLIC_KEY), oid(P256)].concat();
    let curve = element(SEQUENCE, &[&curve]);
    let point = element(BIT_STRING, &[NO_UNUSED_BITS, point]);
    element(SEQUENCE, &[&curve, &point])
}

fn subject_alt_name(names: &[String]) -> Vec<u8> {
    let names: Vec<u8> = names.iter().flat_map(|name| general(name)).collect();
    extension(SUBJECT_ALT_NAME, false, &element(SEQUENCE, &[&names]))
}

fn oid(bytes: &[u8]) -> Vec<u8> {
    element(OBJECT_IDENTIFIER, &[bytes])
}

fn extension(id: &[u8], critical: bool, value: &[u8]) -> Vec<u8> {
    let critical = match critical {
        true => element(BOOLEAN, &[&[0xff]]),
        false => Vec::new(), // the default
    };
    let value = element(OCTET_STRING, &[value]);
    element(SEQUENCE, &[&oid(id), &critical, &value])
}

/// Returns a GeneralName (RFC 5280 §4.2.1.6).
fn general(name: &str) -> Vec<u8> {
    match name.parse() {
        Ok(IpAddr::V4(address)) => element(IP_ADDRESS, &[&address.octets()]),
        Ok(IpAddr::V6(address)) => element(IP_ADDRESS, &[&address.octets()]),
        Err(_) => element(DNS_NAME, &[name.as_bytes()]),
    }
}

/// Returns a time with two digits for the year through 2049, and four digits later (RFC 5280 §4.1.2.5).
fn time(unix: u64) -> Vec<u8> {
    let date = civil(unix);
    let text = format!(
        "{:04}{:02}{:02}{:02}{:02}{:02}Z",
        date.year, date.month, date.day, date.hour, date.minute, date.second
    );
    match date.year {
        ..2050 => element(UTC_TIME, &[&text.as_bytes()[2..]]),
        2050.. => element(GENERALIZED_TIME, &[text.as_bytes()]),
    }
}

/// First byte of a BIT STRING: the number of unused bits in the last byte.
const NO_UNUSED_BITS: &[u8] = &[0];

/// `[0] IMPLICIT Attributes` of a request (RFC 2986 §4.1).
const ATTRIBUTES: u8 = 0xa0;
/// `[2] IMPLICIT IA5String`.
const DNS_NAME: u8 = 0x82;
/// `[7] IMPLICIT OCTET STRING`.
const IP_ADDRESS: u8 = 0x87;

/// Object identifier 2.5.4.3.
const COMMON_NAME: &[u8] = &[0x55, 4, 3];
/// Object identifier 1.2.840.10045.2.1.
const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];
/// Object identifier 1.2.840.10045.3.1.7.
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
/// Object identifier 1.2.840.10045.4.3.2.
const ECDSA_WITH_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];
/// Object identifier 2.5.29.14.
const SUBJECT_KEY_IDENTIFIER: &[u8] = &[0x55, 0x1d, 14];
/// Object identifier 2.5.29.15.
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 15];
/// Object identifier 2.5.29.17.
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 17];
/// Object identifier 2.5.29.19.
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 19];
/// Object identifier 2.5.29.37.
const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 37];
/// Object identifier 1.2.840.113549.1.9.14.
const EXTENSION_REQUEST: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 14];
/// Object identifier 1.3.6.1.5.5.7.1.31.
const ACME_IDENTIFIER: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 1, 31];
/// Object identifier 1.3.6.1.5.5.7.3.1.
const SERVER_AUTH: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 1];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::der::DerCertificate;
    use aws_lc_rs::signature::ECDSA_P256_SHA256_ASN1_SIGNING;
    use std::path::Path;
    use std::process::Command;

    fn made(names: &[&str], not_before: u64, not_after: u64) -> Vec<u8> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut serial = [7; 16];
        serial[15] = 0xff;
        let unsigned = TbsCertificate {
            serial,
            common_name: "anthill, self-signed",
            names: &names,
            not_before,
            not_after,
            acme_identifier: None,
        };
        let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).unwrap();
        unsigned.sign(&key).unwrap()
    }

    fn openssl(arguments: &[&str], file: &Path) -> String {
        let output = Command::new("openssl")
            .args(arguments)
            .arg(file)
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn the_der_reader_of_the_server_parses_a_certificate() {
        // Names of more than 127 and more than 255 bytes exercise every form of a length.
        let long = ["a"; 40].join(".");
        for count in [1, 2, 64] {
            let names: Vec<String> = (0..count).map(|at| format!("{at}.{long}")).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let der = made(&names, 1_800_000_000, 2_600_000_000);
            let read = DerCertificate::parse(&der).unwrap();
            assert_eq!(read.not_before, 1_800_000_000);
            assert_eq!(read.not_after, 2_600_000_000); // 2052
            assert_eq!(read.issuer, read.subject);
            assert_eq!(DerCertificate::parse(&der[..der.len() - 1]), None);
        }
    }

    #[test]
    fn openssl_reads_all_fields_of_a_certificate() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("certificate.der");
        let names = ["localhost", "*.a.test", "192.0.2.7", "2001:db8::1"];
        let der = made(&names, 2_524_607_999, 2_524_608_000);
        std::fs::write(&file, der).unwrap();
        let text = openssl(&["x509", "-inform", "der", "-noout", "-text", "-in"], &file);
        for part in [
            "Version: 3 (0x2)",
            "07:07:07:07:07:07:07:07:07:07:07:07:07:07:07:ff",
            "Signature Algorithm: ecdsa-with-SHA256",
            "Subject: CN = \"anthill, self-signed\"",
            "Issuer: CN = \"anthill, self-signed\"",
            "Not Before: Dec 31 23:59:59 2049 GMT",
            "Not After : Jan  1 00:00:00 2050 GMT",
            "NIST CURVE: P-256",
            "DNS:localhost, DNS:*.a.test, IP Address:192.0.2.7, IP Address:2001:DB8:0:0:0:0:0:1",
            "X509v3 Key Usage: critical\n                Digital Signature\n",
            "TLS Web Server Authentication",
            "X509v3 Subject Key Identifier",
            "X509v3 Basic Constraints: critical\n                CA:FALSE\n",
        ] {
            // openssl 3.2 prints no spaces around `=`.
            let tight = part.replace(" = ", "=");
            assert!(
                text.contains(part) || text.contains(&tight),
                "{part}\n{text}"
            );
        }
    }

    #[test]
    fn openssl_verifies_a_request() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("request.der");
        let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).unwrap();
        let names = ["a.test", "*.b.test"].map(str::to_owned);
        std::fs::write(&file, request(&names, &key).unwrap()).unwrap();
        let look = ["req", "-inform", "der", "-noout", "-text", "-verify", "-in"];
        let text = openssl(&look, &file);
        assert!(text.contains("DNS:a.test, DNS:*.b.test"), "{text}");
    }

    #[test]
    fn openssl_verifies_the_signature_of_a_certificate() {
        let folder = tempfile::tempdir().unwrap();
        let der_file = folder.path().join("certificate.der");
        let pem_file = folder.path().join("certificate.pem");
        let pem_name = pem_file.to_str().unwrap();
        for _ in 0..8 {
            std::fs::write(&der_file, made(&["a.test"], 1_700_000_000, 4_000_000_000)).unwrap();
            let to_pem = ["x509", "-inform", "der", "-out", pem_name, "-in"];
            openssl(&to_pem, &der_file);
            let verify = [
                "verify",
                "-check_ss_sig",
                "-x509_strict",
                "-verify_hostname",
                "a.test",
                "-CAfile",
                pem_name,
            ];
            assert!(openssl(&verify, &pem_file).contains("OK"));
        }
    }
}
