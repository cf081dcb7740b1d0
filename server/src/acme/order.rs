//! Order of one certificate (RFC 8555 §7.4): validates the names, submits a CSR, and downloads the chain.
//! The order is stored as soon as the directory has created the order, so that a restart or a failure
//! resumes the stored order instead of creating a second order.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::renewer_state::PauseFn;
use super::session::{AcmeSession, is_base64url};
use super::store::{CertificateStore, StoredOrder};
use crate::acme::dns_hook::{DnsHook, TxtRecord};
use crate::acme::error::{AcmeError, short_type, words};
use crate::acme::limits::{ACME_POLL_SECONDS_MAX, ACME_RESUMES_MAX, ACME_VALIDATION_SECONDS};
use crate::acme::remedy;
use crate::config::{AcmeConfig, ChallengeType};
use base::clock::unix_seconds_now;
use base::digest::{base64url, sha256};
use data_plane::tls::{CsrKey, IssuedCertificate, PendingChallenges, PostedChallenge};
use wire::json::{Json, quoted};

/// Certificate to obtain: names, challenge type, and stores.
pub(super) struct IssueTask<'t> {
    pub(super) settings: &'t AcmeConfig,
    pub(super) names: &'t [String],
    pub(super) challenge: ChallengeType,
    /// Identifier of the certificate to replace (RFC 9773 §5).
    pub(super) replaces: Option<String>,
    pub(super) store: &'t CertificateStore,
    pub(super) ledger: &'t Arc<PendingChallenges>,
    pub(super) pause: &'t PauseFn<'t>,
}

/// Order object of the directory.
struct AcmeOrder {
    status: String,
    authorizations: Vec<String>,
    finalize: String,
    certificate: Option<String>,
    error: Option<String>,
}

/// Published challenge response, withdrawn on drop.
enum PublishedProof<'t> {
    Ledger {
        _posted: PostedChallenge,
    },
    Record {
        hook: DnsHook<'t>,
        record: TxtRecord,
    },
}

impl Drop for PublishedProof<'_> {
    fn drop(&mut self) {
        if let PublishedProof::Record { hook, record } = self {
            hook.cleanup(record);
        }
    }
}

/// Name under validation.
struct PendingValidation {
    name: String,
    /// URL of the authorization.
    url: String,
    /// URL of the challenge, until the directory is told that the response is published.
    challenge_url: Option<String>,
}

impl IssueTask<'_> {
    /// Obtains the certificate and stores the certificate.
    pub(super) fn run(
        &self,
        session: &mut AcmeSession<'_>,
    ) -> Result<IssuedCertificate, AcmeError> {
        let begun = match self.begun()? {
            Some(begun) => begun,
            None => self.begin(session)?,
        };
        let order = session.read(&begun.url);
        let order = match order.and_then(|answer| AcmeOrder::read(&answer.json()?)) {
            Err(failure) if failure.refused && begun.resumes > 0 => {
                log::info!(
                    "acme: {}: the stored order cannot be resumed: {failure}",
                    self.names[0]
                );
                return self.restart(session);
            }
            Ok(order) if order.status == "invalid" && begun.resumes > 0 => {
                return self.restart(session);
            }
            order => order?,
        };
        let chain = self.drive(session, &begun, order)?;
        self.keep(&begun, &chain)
    }

    /// Deletes the stored order and begins a new order.
    fn restart(&self, session: &mut AcmeSession<'_>) -> Result<IssuedCertificate, AcmeError> {
        self.store.forget_order();
        self.run(session)
    }

    /// Returns the stored order to resume. Fails if the state folder is not writable, because the
    /// certificate could not be stored either.
    fn begun(&self) -> Result<Option<StoredOrder>, AcmeError> {
        let Some(mut begun) = self.store.order() else {
            return Ok(None);
        };
        let fits = begun.names == self.names
            && begun.directory == self.settings.directory
            && !begun.url.is_empty();
        if !fits {
            self.store.forget_order();
            return Ok(None);
        }
        begun.resumes += 1;
        self.store.keep_order(&begun)?;
        Ok(Some(begun))
    }

    fn begin(&self, session: &mut AcmeSession<'_>) -> Result<StoredOrder, AcmeError> {
        session.check_profile()?;
        let key = CsrKey::generate().and_then(|key| key.to_pem());
        let mut begun = StoredOrder {
            url: String::new(),
            directory: self.settings.directory.clone(),
            names: self.names.to_vec(),
            key: key.map_err(|error| AcmeError::new(error.to_string()))?,
            resumes: 0,
        };
        // A full disk is detected here, before the directory does any work for the order.
        self.store.keep_order(&begun)?;
        let url = session.new_order();
        let mut answer = session.post(&url, &self.payload(true));
        if let Err(failure) = &answer
            && failure.refused
            && self.replaces.is_some()
            && !failure.is("rateLimited")
            && !failure.is("accountDoesNotExist")
        {
            // The directory may refuse the replaced certificate as unknown or as another account's. A
            // certificate matters more than the reference to the old certificate (RFC 9773 §5).
            log::info!(
                "acme: {}: ordered without `replaces`: {failure}",
                self.names[0]
            );
            answer = session.post(&url, &self.payload(false));
        }
        let answer = answer.map_err(|it| {
            self.store.forget_order();
            it.during("the order")
        })?;
        let no_order = || AcmeError::new("the directory's response names no order");
        begun.url = answer.location.ok_or_else(no_order)?;
        self.store.keep_order(&begun)?;
        Ok(begun)
    }

    /// Returns the payload of the order (RFC 8555 §7.4).
    fn payload(&self, replaces: bool) -> String {
        let identifiers = self.names.iter();
        let identifiers =
            identifiers.map(|name| format!("{{\"type\":\"dns\",\"value\":{}}}", quoted(name)));
        let identifiers: Vec<String> = identifiers.collect();
        let mut payload = format!("{{\"identifiers\":[{}]", identifiers.join(","));
        if let Some(profile) = &self.settings.profile {
            payload.push_str(&format!(",\"profile\":{}", quoted(profile)));
        }
        if let (Some(id), true) = (&self.replaces, replaces) {
            payload.push_str(&format!(",\"replaces\":{}", quoted(id)));
        }
        payload.push('}');
        payload
    }

    /// Drives the order from any state to `valid`, and returns the chain.
    fn drive(
        &self,
        session: &mut AcmeSession<'_>,
        begun: &StoredOrder,
        mut order: AcmeOrder,
    ) -> Result<String, AcmeError> {
        let mut backoff = PollBackoff::new(self.pause);
        let mut finalized = false;
        loop {
            match order.status.as_str() {
                "pending" => self.validate(session, &order)?,
                "ready" if !finalized => {
                    self.finalize(session, begun, &order)?;
                    finalized = true;
                }
                "ready" | "processing" => {}
                "valid" => return download(session, &order),
                "invalid" => {
                    self.store.forget_order();
                    let why = order.error.unwrap_or_else(|| "no reason given".to_owned());
                    return Err(AcmeError::new(format!("the order became invalid: {why}")));
                }
                other => {
                    let what = format!(
                        "the order has the unknown status `{}`",
                        crate::acme::error::clean(other)
                    );
                    return Err(AcmeError::new(what));
                }
            }
            let answer = session.read(&begun.url)?;
            order = AcmeOrder::read(&answer.json()?)?;
            if matches!(order.status.as_str(), "pending" | "processing") || finalized {
                if order.status == "valid" {
                    continue;
                }
                backoff.wait(answer.retry_after(unix_seconds_now()))?;
            }
        }
    }

    /// Validates all names of the order.
    fn validate(&self, session: &mut AcmeSession<'_>, order: &AcmeOrder) -> Result<(), AcmeError> {
        if order.authorizations.len() > self.names.len() {
            return Err(AcmeError::new(
                "the order has more authorizations than names",
            ));
        }
        let mut proofs = Vec::new();
        let mut validations = Vec::new();
        for url in &order.authorizations {
            let (proof, validation) = self.prepare(session, url)?;
            proofs.extend(proof);
            validations.extend(validation);
        }
        // The directory is told after all responses are published, because two responses may be TXT records
        // of the same name.
        for validation in &mut validations {
            if let Some(url) = validation.challenge_url.take() {
                session.post(&url, "{}")?;
            }
        }
        let mut backoff = PollBackoff::new(self.pause);
        for validation in &validations {
            self.wait_for(session, validation, &mut backoff)?;
        }
        Ok(())
    }

    /// Publishes the challenge response for one authorization; returns nothing if the authorization is
    /// already valid.
    fn prepare<'s>(
        &'s self,
        session: &mut AcmeSession<'_>,
        url: &str,
    ) -> Result<(Option<PublishedProof<'s>>, Option<PendingValidation>), AcmeError> {
        let json = session.read(url)?.json()?;
        let name = self.name_of(&json)?;
        match json.text("status") {
            Some("valid") => return Ok((None, None)),
            Some("pending") => {}
            _ => return Err(self.failed(&name, &json)),
        }
        let kind = self.challenge.name();
        let mut offered = json.list("challenges").iter();
        let challenge = offered.find(|it| it.text("type") == Some(kind));
        let challenge = challenge.ok_or_else(|| {
            let what = format!("the directory doesn't offer {kind} for {name}");
            AcmeError::new(what)
        })?;
        let (Some(to), Some(token)) = (challenge.text("url"), challenge.text("token")) else {
            return Err(AcmeError::new(format!(
                "the challenge for {name} is malformed"
            )));
        };
        if !is_base64url(token) || token.len() > TOKEN_BYTES_MAX {
            return Err(AcmeError::new(format!("the token for {name} is malformed")));
        }
        let is_pending = challenge.text("status") == Some("pending");
        let validation = PendingValidation {
            url: url.to_owned(),
            challenge_url: is_pending.then(|| to.to_owned()),
            name,
        };
        let answer = session.authorization(token);
        let proof = self.prove(&validation.name, token, &answer)?;
        Ok((Some(proof), Some(validation)))
    }

    /// Returns the name of an authorization, which must be among the ordered names.
    fn name_of(&self, authorization: &Json) -> Result<String, AcmeError> {
        let identifier = authorization.field("identifier");
        let name = identifier
            .and_then(|it| it.text("value"))
            .unwrap_or_default();
        let is_ours = |ours: &String| ours.strip_prefix("*.").unwrap_or(ours) == name;
        if self.names.iter().any(is_ours) {
            return Ok(name.to_owned());
        }
        let shown = crate::acme::error::clean(name);
        Err(AcmeError::new(format!(
            "the order has an authorization for `{shown}`, which was not ordered"
        )))
    }

    fn prove(
        &self,
        name: &str,
        token: &str,
        answer: &str,
    ) -> Result<PublishedProof<'_>, AcmeError> {
        let posted = match (self.challenge, &self.settings.hook) {
            (ChallengeType::TlsAlpn01, _) => {
                let posted = self.ledger.post_alpn(name, answer, unix_seconds_now());
                posted.map_err(|error| AcmeError::new(error.to_string()))?
            }
            (ChallengeType::Dns01, Some(program)) => {
                let hook = DnsHook {
                    program: Path::new(program.get_ref()),
                    seconds: self.settings.hook_seconds,
                    pause: self.pause,
                };
                let value = base64url(&sha256(answer.as_bytes()));
                let record = hook.present(&format!("_acme-challenge.{name}"), &value)?;
                return Ok(PublishedProof::Record { hook, record });
            }
            (ChallengeType::Http01 | ChallengeType::Dns01, _) => {
                self.ledger.post_http(name, token, answer)
            }
        };
        Ok(PublishedProof::Ledger { _posted: posted })
    }

    /// Polls an authorization until the authorization is valid or failed.
    fn wait_for(
        &self,
        session: &mut AcmeSession<'_>,
        validation: &PendingValidation,
        backoff: &mut PollBackoff<'_>,
    ) -> Result<(), AcmeError> {
        let name = &validation.name;
        loop {
            let answer = session.read(&validation.url)?;
            let json = answer.json()?;
            match json.text("status") {
                Some("valid") => return Ok(()),
                Some("pending" | "processing") => {}
                _ => return Err(self.failed(name, &json)),
            }
            let waited = backoff.wait(answer.retry_after(unix_seconds_now()));
            waited.map_err(|it| it.during(format!("validating {name}")))?;
        }
    }

    /// Deletes the order, and returns the reason why an authorization failed.
    fn failed(&self, name: &str, authorization: &Json) -> AcmeError {
        self.store.forget_order();
        let errors = authorization.list("challenges").iter();
        let why = errors
            .filter_map(|challenge| challenge.field("error"))
            .next();
        let problem = why.and_then(|it| it.text("type")).map(short_type);
        let remedy = problem.and_then(|it| remedy::of_validation(it, self.challenge, name));
        let why = why.map_or_else(|| "no reason given".to_owned(), words);
        let kind = self.challenge.name();
        let what = format!("{name} was not validated by {kind}: {why}");
        AcmeError::new(what).with_remedy(remedy)
    }

    fn finalize(
        &self,
        session: &mut AcmeSession<'_>,
        begun: &StoredOrder,
        order: &AcmeOrder,
    ) -> Result<(), AcmeError> {
        let key = CsrKey::from_pem(&begun.key);
        let key = key.ok_or_else(|| {
            self.store.forget_order();
            AcmeError::new("the stored key of the order is unreadable")
        })?;
        let request = key.request(self.names);
        let request = request.map_err(|error| AcmeError::new(error.to_string()))?;
        let payload = format!("{{\"csr\":\"{}\"}}", base64url(&request));
        let posted = session.post(&order.finalize, &payload);
        posted
            .map(drop)
            .map_err(|it| it.during("finalizing the order"))
    }

    /// Checks the downloaded chain against the order, and stores the chain with the key.
    fn keep(&self, begun: &StoredOrder, chain: &str) -> Result<IssuedCertificate, AcmeError> {
        let text = format!("{}{chain}", begun.key);
        let refused = |what: String| {
            self.store.forget_order();
            AcmeError::new(format!("the issued certificate is unusable: {what}"))
        };
        if chain.contains("PRIVATE KEY") {
            return Err(refused("it contains a private key".to_owned()));
        }
        let issued = IssuedCertificate::read(text.as_bytes(), self.names);
        let issued = issued.map_err(|error| refused(error.to_string()))?;
        if let Some(name) = issued.missing.first() {
            return Err(refused(format!("it does not cover {name}")));
        }
        if issued.not_after <= unix_seconds_now() {
            return Err(refused("it has expired".to_owned()));
        }
        // If the write fails, the order stays stored, and the certificate can be downloaded again.
        self.store.keep_certificate(&text)?;
        self.store.forget_order();
        Ok(issued)
    }
}

/// Returns true if a stored order may be resumed at once, without a pause.
pub(super) fn can_resume(store: &CertificateStore) -> bool {
    let begun = store.order();
    begun.is_some_and(|begun| !begun.url.is_empty() && begun.resumes < ACME_RESUMES_MAX)
}

impl AcmeOrder {
    fn read(json: &Json) -> Result<AcmeOrder, AcmeError> {
        let malformed = || AcmeError::new("the order is malformed");
        let authorizations = json.list("authorizations").iter().map(|url| match url {
            Json::Text(url) => Ok(url.clone()),
            _ => Err(malformed()),
        });
        Ok(AcmeOrder {
            status: json.text("status").ok_or_else(malformed)?.to_owned(),
            authorizations: authorizations.collect::<Result<_, _>>()?,
            finalize: json.text("finalize").ok_or_else(malformed)?.to_owned(),
            certificate: json.text("certificate").map(str::to_owned),
            error: json.field("error").map(words),
        })
    }
}

fn download(session: &mut AcmeSession<'_>, order: &AcmeOrder) -> Result<String, AcmeError> {
    let url = order.certificate.as_deref();
    let url = url.ok_or_else(|| AcmeError::new("the order is valid, but has no certificate"))?;
    let answer = session.read(url)?;
    if answer.media_type() != "application/pem-certificate-chain" {
        let what = crate::acme::error::clean(answer.media_type());
        return Err(AcmeError::new(format!(
            "the certificate has the media type {what:?}"
        )));
    }
    String::from_utf8(answer.body).map_err(|_| AcmeError::new("the certificate is not UTF-8"))
}

/// Backoff between polls: the interval doubles up to 5 s, and a deadline ends the wait.
struct PollBackoff<'p> {
    pause: &'p PauseFn<'p>,
    until: Instant,
    next: Duration,
}

impl<'p> PollBackoff<'p> {
    fn new(pause: &'p PauseFn<'p>) -> PollBackoff<'p> {
        PollBackoff {
            pause,
            until: Instant::now() + Duration::from_secs(ACME_VALIDATION_SECONDS),
            next: Duration::from_millis(250),
        }
    }

    /// Waits for the time that the directory asked for in Retry-After (RFC 8555 §7.5.1), else for the next
    /// interval.
    fn wait(&mut self, asked_seconds: Option<u64>) -> Result<(), AcmeError> {
        if Instant::now() >= self.until {
            let what = format!("the directory took longer than {ACME_VALIDATION_SECONDS} s");
            return Err(AcmeError::new(what));
        }
        let asked = asked_seconds.map(|it| Duration::from_secs(it.min(ACME_POLL_SECONDS_MAX)));
        (self.pause)(asked.unwrap_or(self.next).max(Duration::from_millis(100)))?;
        self.next = (self.next * 2).min(Duration::from_secs(5));
        Ok(())
    }
}

/// Bytes of the longest accepted token. The tokens of Let's Encrypt have 43 bytes.
const TOKEN_BYTES_MAX: usize = 256;
