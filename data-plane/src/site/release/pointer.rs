//! Verification of a pointer: the site, the signature of a publisher, the identity of the site, and the sequence.

use super::ReleaseRules;
use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use base::atomic_file;
use base::digest::hex;
use release::release_pointer::{PointerSignature, ReleasePointer};
use release::store::ServedRelease;
use std::io;

/// Returns the release of a pointer. The error is a clause with the reason that the pointer is refused.
pub fn verify(rules: &ReleaseRules, text: &[u8]) -> Result<ServedRelease, String> {
    let Some((pointer, signature)) = ReleasePointer::parse(text) else {
        return Err("this is no pointer of a version that this server reads".to_owned());
    };
    if pointer.site != rules.site {
        return Err(format!("the pointer is for the site `{}`", pointer.site));
    }
    if !rules.publishers.is_empty() {
        verify_signature(&rules.publishers, signature)?;
        verify_site_id(rules, &pointer)?;
        refuse_older(rules, &pointer)?;
    }
    Ok(ServedRelease {
        release: pointer.release,
        sequence: pointer.sequence,
        time: pointer.time,
    })
}

/// Returns true if a record of the history is for the release, and has the signature of a publisher or needs none.
pub fn is_signed(rules: &ReleaseRules, text: &[u8], release: &[u8; 32]) -> bool {
    ReleasePointer::parse(text).is_some_and(|(pointer, signature)| {
        pointer.site == rules.site
            && pointer.release == *release
            && (rules.publishers.is_empty()
                || verify_signature(&rules.publishers, signature).is_ok()
                    && is_bound(rules, &pointer))
    })
}

fn verify_signature(
    publishers: &[[u8; 32]],
    signature: Option<PointerSignature<'_>>,
) -> Result<(), String> {
    let Some(signature) = signature else {
        return Err("the pointer is unsigned, and the site has `publishers`".to_owned());
    };
    if !publishers.contains(&signature.key) {
        let key = hex(&signature.key);
        return Err(format!("the key {key} is not among the `publishers`"));
    }
    let key = UnparsedPublicKey::new(&ED25519, signature.key);
    let verified = key.verify(signature.signed, &signature.signature);
    verified.map_err(|_| "the signature of the pointer is wrong".to_owned())
}

/// Returns true if a pointer is for the identity of the site. A site without an identity takes the pointer of any site of
/// its name.
fn is_bound(rules: &ReleaseRules, pointer: &ReleasePointer) -> bool {
    rules.site_id.is_none() || rules.site_id == pointer.site_id
}

/// Refuses the pointer of another site. The release that the server acknowledged last stays served if its pointer is from
/// the time before the site got its identity.
fn verify_site_id(rules: &ReleaseRules, pointer: &ReleasePointer) -> Result<(), String> {
    let is_acknowledged = || {
        let last = rules.acknowledged();
        last.is_some_and(|last| {
            (last.release, last.sequence) == (pointer.release, pointer.sequence)
        })
    };
    if is_bound(rules, pointer) || is_acknowledged() {
        return Ok(());
    }
    Err(match &pointer.site_id {
        None => "the signature has no `site_id`, and the site has one; publish with --key, and with the site_id of anthill.toml \
                 in the key file or in --site-id"
            .to_owned(),
        Some(id) => format!("the pointer is for the site with the `site_id` {id}"),
    })
}

/// Refuses a pointer that is older than the last served pointer, since an attacker could restore an old release with its
/// valid signature. A rollback has a new sequence.
fn refuse_older(rules: &ReleaseRules, pointer: &ReleasePointer) -> Result<(), String> {
    let file = rules.served.display();
    let last = match atomic_file::read(&rules.served) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        last => last.map_err(|error| format!("the last sequence is unknown: {file}: {error}"))?,
    };
    let Some(last) = ServedRelease::parse(&last) else {
        return Err(format!("the last sequence is unknown: {file} is damaged"));
    };
    let is_other = pointer.sequence == last.sequence && pointer.release != last.release;
    match pointer.sequence < last.sequence || is_other {
        true => Err(format!(
            "the sequence {} is not above the last served sequence {}; publish again, or remove {file} after the move to a \
             new store",
            pointer.sequence, last.sequence
        )),
        false => Ok(()),
    }
}
