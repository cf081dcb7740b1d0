//! Identities that tell which connections may be used for which sites.
//!
//! A client may use one connection for several sites (RFC 9113 §9.1.1). A connection remembers the certificate and the
//! client CAs of its handshake, and a site knows its own. A reload gives a certificate another file, joins sites or
//! splits them, and must not take a connection away from its requests: a site therefore also accepts the connections
//! that it accepted before, as long as the same client CAs admit clients.

use crate::limits::FORMER_IDENTITIES_MAX;
use aws_lc_rs::digest;
use rustls::pki_types::CertificateDer;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// Fingerprint of a pair: the names of its files, and the contents of the client CAs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PairFingerprint(u64);

/// Fingerprint of the set of client CAs, whatever the name of the file and the order of the CAs in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DemandFingerprint(u64);

/// Identity with which a connection was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionIdentity {
    pair: PairFingerprint,
    /// Generation of the [`Tls`](super::Tls) of the handshake.
    generation: u64,
}

/// Identities of the connections that a site accepts.
#[derive(Clone, Debug)]
pub struct SiteIdentity {
    pair: PairFingerprint,
    demand: DemandFingerprint,
    /// Identities before the last reloads, the latest first.
    former: Arc<[FormerIdentity]>,
}

/// Identity that a site had in earlier Worlds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FormerIdentity {
    pair: PairFingerprint,
    demand: DemandFingerprint,
    /// Last generation in which a connection of the identity could be opened for the site.
    last_generation: u64,
}

/// Answer to the question whether a site accepts a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acceptance {
    /// The connection may be used for the site.
    Accepted,
    /// The connection was opened for the site before the client CAs changed, and may no longer be used.
    Outdated,
    /// The connection was opened for another site.
    Foreign,
}

impl PairFingerprint {
    /// Fingerprint for a server name without a certificate. Handshakes with such a name are refused.
    pub(super) const NONE: PairFingerprint = PairFingerprint(0);

    pub(super) fn of(
        certificate: Option<&Path>,
        key: Option<&Path>,
        demand: DemandFingerprint,
    ) -> PairFingerprint {
        let mut hash = digest::Context::new(&digest::SHA256);
        hash.update(&demand.0.to_be_bytes());
        for path in [certificate, key] {
            let bytes = path.map_or(&[][..], |path| path.as_os_str().as_encoded_bytes());
            hash.update(&(bytes.len() as u64).to_be_bytes());
            hash.update(bytes);
        }
        PairFingerprint(first_word(hash))
    }
}

impl DemandFingerprint {
    /// Fingerprint of a pair that needs no certificate of clients.
    pub(super) const NONE: DemandFingerprint = DemandFingerprint(0);

    /// Fingerprint of a pair that demands a client certificate of one of the authorities.
    pub(super) fn of(authorities: &[CertificateDer<'_>]) -> DemandFingerprint {
        let mut hash = digest::Context::new(&digest::SHA256);
        for authority in authority_digests(authorities) {
            hash.update(&authority);
        }
        DemandFingerprint(first_word(hash).max(1))
    }
}

impl ConnectionIdentity {
    pub(super) fn new(pair: PairFingerprint, generation: u64) -> ConnectionIdentity {
        ConnectionIdentity { pair, generation }
    }
}

impl SiteIdentity {
    /// Identity of a site without a certificate.
    pub fn none() -> SiteIdentity {
        SiteIdentity::new(PairFingerprint::NONE, DemandFingerprint::NONE)
    }

    pub(super) fn new(pair: PairFingerprint, demand: DemandFingerprint) -> SiteIdentity {
        SiteIdentity {
            pair,
            demand,
            former: Arc::default(),
        }
    }

    pub(super) fn pair(&self) -> PairFingerprint {
        self.pair
    }

    /// Adds the identities of a site of the previous [`Tls`](super::Tls), which was the `generation`th. At most
    /// [`FORMER_IDENTITIES_MAX`] are kept.
    pub(super) fn inherit(&mut self, previous: &SiteIdentity, generation: u64) {
        let last = FormerIdentity {
            pair: previous.pair,
            demand: previous.demand,
            last_generation: generation,
        };
        self.add_former(std::iter::once(&last).chain(previous.former.iter()));
    }

    /// Adds the former identities of the site at another of its listeners. A connection that was kept there stays usable
    /// when the operator puts another listener in front.
    pub fn join(&mut self, other: &SiteIdentity) {
        if !other.former.is_empty() {
            self.add_former(other.former.iter());
        }
    }

    fn add_former<'i>(&mut self, identities: impl Iterator<Item = &'i FormerIdentity>) {
        let mut former = self.former.to_vec();
        for identity in identities {
            if identity.pair == self.pair {
                continue;
            }
            match former.iter_mut().find(|it| it.pair == identity.pair) {
                Some(known) => {
                    known.last_generation = known.last_generation.max(identity.last_generation);
                }
                None => former.push(*identity),
            }
        }
        former.sort_by_key(|it| std::cmp::Reverse(it.last_generation));
        former.truncate(FORMER_IDENTITIES_MAX);
        self.former = former.into();
    }

    /// Returns whether a connection may be used for the site.
    #[inline]
    pub(crate) fn accepts(&self, connection: ConnectionIdentity) -> Acceptance {
        if connection.pair == self.pair {
            Acceptance::Accepted
        } else {
            self.accepts_former(connection)
        }
    }

    #[cold]
    #[inline(never)]
    fn accepts_former(&self, connection: ConnectionIdentity) -> Acceptance {
        let former = self.former.iter().find(|it| it.pair == connection.pair);
        match former.filter(|it| connection.generation <= it.last_generation) {
            Some(former) if former.demand == self.demand => Acceptance::Accepted,
            Some(_) => Acceptance::Outdated,
            None => Acceptance::Foreign,
        }
    }
}

/// Returns the digests of a set of authorities, in an order that does not depend on the order of the set.
pub(super) fn authority_digests(authorities: &[CertificateDer<'_>]) -> BTreeSet<Vec<u8>> {
    let digests = authorities.iter();
    let digests = digests.map(|authority| digest::digest(&digest::SHA256, authority));
    digests.map(|digest| digest.as_ref().to_vec()).collect()
}

fn first_word(hash: digest::Context) -> u64 {
    let hash = hash.finish();
    let (first, _) = hash.as_ref().split_at(8);
    u64::from_be_bytes(first.try_into().unwrap_or([1; 8]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(file: &str, demand: DemandFingerprint) -> SiteIdentity {
        let pair = PairFingerprint::of(Some(Path::new(file)), None, demand);
        SiteIdentity::new(pair, demand)
    }

    fn after(previous: &SiteIdentity, generation: u64, mut next: SiteIdentity) -> SiteIdentity {
        next.inherit(previous, generation);
        next
    }

    #[test]
    fn a_site_accepts_the_connections_of_its_earlier_certificates() {
        let open = DemandFingerprint::NONE;
        let first = site("1.pem", open);
        let connection = ConnectionIdentity::new(first.pair, 1);
        let second = after(&first, 1, site("2.pem", open));
        let third = after(&second, 2, site("3.pem", open));
        for site in [&first, &second, &third] {
            assert_eq!(site.accepts(connection), Acceptance::Accepted);
        }
        // Another site opened the connection after this site had left the certificate.
        let later = ConnectionIdentity::new(first.pair, 2);
        assert_eq!(third.accepts(later), Acceptance::Foreign);
        let back = after(&third, 3, site("1.pem", open));
        assert_eq!(back.accepts(later), Acceptance::Accepted);
    }

    #[test]
    fn a_listener_put_in_front_keeps_the_connections_of_the_others() {
        let [open, one] = [0, 1].map(DemandFingerprint);
        let first = site("1.pem", open);
        let connection = ConnectionIdentity::new(first.pair, 5);
        for (demand, expected) in [(open, Acceptance::Accepted), (one, Acceptance::Outdated)] {
            let mut in_front = site("2.pem", demand);
            assert_eq!(in_front.accepts(connection), Acceptance::Foreign);
            in_front.join(&after(&first, 5, site("2.pem", demand)));
            assert_eq!(in_front.accepts(connection), expected);
            let later = ConnectionIdentity::new(first.pair, 6);
            assert_eq!(in_front.accepts(later), Acceptance::Foreign);
        }
    }

    #[test]
    fn other_client_authorities_end_the_use_of_a_connection() {
        let [one, two] = [1, 2].map(DemandFingerprint);
        let open = DemandFingerprint::NONE;
        for (before, now) in [(open, one), (one, two), (one, open)] {
            let first = site("1.pem", before);
            let second = after(&first, 1, site("2.pem", now));
            let connection = ConnectionIdentity::new(first.pair, 1);
            assert_eq!(second.accepts(connection), Acceptance::Outdated);
            let third = after(&second, 2, site("3.pem", now));
            assert_eq!(third.accepts(connection), Acceptance::Outdated);
        }
    }

    #[test]
    fn the_latest_identities_are_kept() {
        let open = DemandFingerprint::NONE;
        let first = site("0.pem", open);
        let mut site_now = first.clone();
        let last = FORMER_IDENTITIES_MAX as u64 + 1;
        for generation in 1..=last {
            let next = site(&format!("{generation}.pem"), open);
            site_now = after(&site_now, generation, next);
        }
        assert_eq!(site_now.former.len(), FORMER_IDENTITIES_MAX);
        let connection = ConnectionIdentity::new(first.pair, 1);
        assert_eq!(site_now.accepts(connection), Acceptance::Foreign);
        let second = ConnectionIdentity::new(site("1.pem", open).pair, 2);
        assert_eq!(site_now.accepts(second), Acceptance::Accepted);
    }

    #[test]
    fn the_order_of_client_authorities_has_no_meaning() {
        let [one, two] = [b"one", b"two"].map(|der| CertificateDer::from(der.to_vec()));
        let both = DemandFingerprint::of(&[one.clone(), two.clone()]);
        assert_eq!(
            both,
            DemandFingerprint::of(&[two.clone(), one.clone(), two])
        );
        assert_ne!(both, DemandFingerprint::of(&[one]));
        assert_ne!(DemandFingerprint::of(&[]), DemandFingerprint::NONE);
    }
}
