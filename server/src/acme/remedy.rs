//! Remedies for the failures of orders, in words for an operator who meets ACME for the first time.
//!
//! The directory names the kind of a problem (RFC 8555 §6.7), and its text describes what the directory saw. What the
//! operator can change lies elsewhere: at the router, in DNS, in the configuration.

use crate::config::ChallengeType;

/// Returns what helps after a failed validation of a name, by the type of the directory's problem.
pub(super) fn of_validation(problem: &str, challenge: ChallengeType, name: &str) -> Option<String> {
    let port = match challenge {
        ChallengeType::Http01 => 80,
        ChallengeType::TlsAlpn01 => 443,
        ChallengeType::Dns01 => return of_record(problem, name),
    };
    Some(match problem {
        "connection" => format!(
            "the authority did not reach port {port} of {name}: let the router forward the port to this machine, allow it in \
             the firewall, and compare the address of {name} in DNS with the public address"
        ),
        "dns" => format!(
            "{name} has no usable address in DNS: make a record A (or AAAA) with the public address of this machine, and \
             wait until other machines see it"
        ),
        "tls" => format!(
            "another program answered at port {port} of {name}, or a proxy in front ends TLS: the records A and AAAA of \
             {name} must lead to this server"
        ),
        "unauthorized" | "incorrectResponse" if port == 80 => format!(
            "another server answered for {name}: its records A and AAAA must both lead to this machine, and a proxy in \
             front must pass /.well-known/acme-challenge/ on"
        ),
        "unauthorized" | "incorrectResponse" => format!(
            "another server answered at port 443 of {name}: its records A and AAAA must both lead to this machine, \
             without a proxy that ends TLS"
        ),
        _ => return of_refusal(problem, Some(name)),
    })
}

/// Returns what helps after a failed validation by a TXT record.
fn of_record(problem: &str, name: &str) -> Option<String> {
    match problem {
        "dns" | "unauthorized" | "incorrectResponse" | "connection" => Some(format!(
            "the record TXT of _acme-challenge.{name} was missing or old: the hook must set it at the name servers of the \
             domain, and wait until all of them serve it"
        )),
        _ => of_refusal(problem, Some(name)),
    }
}

/// Returns what helps after a refusal of the directory, by the type of its problem.
pub(super) fn of_refusal(problem: &str, name: Option<&str>) -> Option<String> {
    let name = name.unwrap_or("the name");
    let text = match problem {
        "rateLimited" => {
            "the authority limits certificates and failed attempts, and the server waits until the limit ends: attempts \
             before that fail too; for tests use the directory \
             https://acme-staging-v02.api.letsencrypt.org/directory"
        }
        "rejectedIdentifier" => {
            return Some(format!(
                "the authority certifies public names alone, and some never: write a public name of your own in place of \
                 {name}, or set `certificate` for the site"
            ));
        }
        "caa" => {
            return Some(format!(
                "a CAA record in DNS permits other authorities alone: add this one for {name}, such as 0 issue \
                 \"letsencrypt.org\", or remove the record"
            ));
        }
        "invalidContact" | "unsupportedContact" => {
            "write your own e-mail address in acme = { email = \"…\" } of [tls]"
        }
        "externalAccountRequired" => {
            "the authority needs an account of its customers: write `eab` in `acme`, with the key from its web page"
        }
        "serverInternal" => "the authority has a fault of its own; nothing is to be done here",
        _ => return None,
    };
    Some(text.to_owned())
}

/// Help after a directory that was not reached.
pub(super) const UNREACHED: &str = "this machine did not reach the authority: look at its connection to the internet, its \
     name servers, its clock, and `directory` of `acme`";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_failures_have_a_remedy() {
        use ChallengeType::{Dns01, Http01, TlsAlpn01};
        for (problem, challenge, part) in [
            ("connection", Http01, "did not reach port 80 of a.test"),
            ("connection", TlsAlpn01, "did not reach port 443 of a.test"),
            ("dns", Http01, "make a record A"),
            ("dns", Dns01, "_acme-challenge.a.test"),
            ("unauthorized", Http01, "another server answered for a.test"),
            ("unauthorized", TlsAlpn01, "at port 443 of a.test"),
            ("tls", TlsAlpn01, "another program answered at port 443"),
            ("caa", Http01, "a CAA record"),
            ("caa", Dns01, "a CAA record"),
            ("rateLimited", Http01, "the server waits"),
            ("rejectedIdentifier", Http01, "in place of a.test"),
        ] {
            let remedy = of_validation(problem, challenge, "a.test").unwrap_or_default();
            assert!(remedy.contains(part), "{problem}: {remedy}");
            assert!(!remedy.contains("  "), "{remedy}");
        }
        assert_eq!(of_validation("malformed", Http01, "a.test"), None);
    }
}
