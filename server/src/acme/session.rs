//! Session with a directory (RFC 8555): URLs, nonces, the account, and signed requests.

use crate::acme::limits::ACME_NONCE_TRIES;
use crate::config::AcmeConfig;
use base::clock::unix_seconds_now;
use wire::json::{Json, quoted};
use wire::request_head::Method;

use super::jws::{AccountKey, Signer};
use super::store::{AcmeAccount, AcmeStore};
use crate::acme::error::AcmeError;
use crate::acme::https_client::{HttpsClient, HttpsRequest, HttpsResponse};

/// Directory that has responded, with the server's account.
pub(super) struct AcmeSession<'s> {
    https: HttpsClient,
    settings: &'s AcmeConfig,
    links: DirectoryUrls,
    key: AccountKey,
    /// URL of the account.
    kid: String,
    nonce: Option<String>,
}

/// Directory object (RFC 8555 §7.1.1).
struct DirectoryUrls {
    new_nonce: String,
    new_account: String,
    new_order: String,
    renewal_info: Option<String>,
    /// Names of the offered profiles.
    profiles: Vec<String>,
    wants_binding: bool,
}

/// Renewal information of a certificate (RFC 9773 §4.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RenewalInfo {
    /// Suggested window: first and last second, Unix time.
    pub(super) window: (u64, u64),
    /// URL of an explanation for an unusual window.
    pub(super) explanation: Option<String>,
    /// Seconds until the next request, from Retry-After.
    pub(super) retry_after: Option<u64>,
}

impl<'s> AcmeSession<'s> {
    /// Reads the directory, and finds or registers the account.
    pub(super) fn open(
        settings: &'s AcmeConfig,
        store: &AcmeStore,
    ) -> Result<AcmeSession<'s>, AcmeError> {
        let https = HttpsClient::new(settings.ca.as_ref().map(|ca| ca.get_ref().as_path()))?;
        let links = DirectoryUrls::read(&https, &settings.directory)?;
        let known = store.account(&settings.directory)?;
        let (key, account) = match known {
            Some((key, account)) => (key, account),
            None => {
                let key = AccountKey::generate()?;
                store.keep_account_key(&settings.directory, &key)?;
                (key, None)
            }
        };
        let mut session = AcmeSession {
            https,
            settings,
            links,
            key,
            kid: String::new(),
            nonce: None,
        };
        match account {
            Some(account) => {
                session.kid = account.kid;
                if account.email != settings.email {
                    session.change_contact()?;
                    session.keep(store)?;
                }
            }
            None => {
                let registered = session.register();
                session.kid = registered.map_err(|it| it.during("registering an account"))?;
                session.keep(store)?;
            }
        }
        Ok(session)
    }

    fn keep(&self, store: &AcmeStore) -> Result<(), AcmeError> {
        let account = AcmeAccount {
            kid: self.kid.clone(),
            email: self.settings.email.clone(),
        };
        store.keep_account(&self.settings.directory, &account)
    }

    fn contact(&self) -> String {
        let email = self.settings.email.as_ref();
        let mail = email.map(|email| quoted(&format!("mailto:{email}")));
        format!("\"contact\":[{}]", mail.unwrap_or_default())
    }

    /// Registers the account (RFC 8555 §7.3). For a key known to the directory, the directory returns the
    /// existing account.
    fn register(&mut self) -> Result<String, AcmeError> {
        let url = self.links.new_account.clone();
        let mut payload = format!("{{\"termsOfServiceAgreed\":true,{}", self.contact());
        match &self.settings.eab {
            Some(eab) => {
                let binding = self.key.bind(eab, &url)?;
                payload.push_str(&format!(",\"externalAccountBinding\":{binding}"));
            }
            None if self.links.wants_binding => {
                let what = "the directory requires an external account binding: get one from the CA \
                            and set `eab`";
                return Err(AcmeError::new(what));
            }
            None => {}
        }
        payload.push('}');
        let kid = self.call(&Signer::Key, &url, &payload)?.location;
        kid.ok_or_else(|| AcmeError::new("the directory's response names no account"))
    }

    fn change_contact(&mut self) -> Result<(), AcmeError> {
        let payload = format!("{{{}}}", self.contact());
        let url = self.kid.clone();
        self.post(&url, &payload).map(drop)
    }

    /// Returns the key authorization for a challenge token.
    pub(super) fn authorization(&self, token: &str) -> String {
        self.key.authorization(token)
    }

    /// Returns the URL for new orders.
    pub(super) fn new_order(&self) -> String {
        self.links.new_order.clone()
    }

    /// Checks that the directory offers the configured profile.
    pub(super) fn check_profile(&self) -> Result<(), AcmeError> {
        let Some(profile) = &self.settings.profile else {
            return Ok(());
        };
        if self.links.profiles.contains(profile) {
            return Ok(());
        }
        let has = if self.links.profiles.is_empty() {
            "none".to_owned()
        } else {
            crate::acme::error::clean(&self.links.profiles.join(", "))
        };
        let what = format!("the directory has no profile `{profile}`; it has {has}");
        Err(AcmeError::new(what))
    }

    /// Reads the resource at `url` (POST-as-GET, RFC 8555 §6.3).
    pub(super) fn read(&mut self, url: &str) -> Result<HttpsResponse, AcmeError> {
        self.post(url, "")
    }

    /// Posts `payload`, signed by the account.
    pub(super) fn post(&mut self, url: &str, payload: &str) -> Result<HttpsResponse, AcmeError> {
        let kid = std::mem::take(&mut self.kid);
        let answer = self.call(&Signer::Account(&kid), url, payload);
        self.kid = kid;
        answer
    }

    /// Signs and posts a request. A refused nonce is replaced and the request repeated (RFC 8555 §6.5).
    fn call(
        &mut self,
        signer: &Signer<'_>,
        url: &str,
        payload: &str,
    ) -> Result<HttpsResponse, AcmeError> {
        let mut tries = ACME_NONCE_TRIES;
        loop {
            let nonce = self.next_nonce()?;
            let content = self.key.sign(signer, &nonce, url, payload)?;
            let answer = self.https.ask(&HttpsRequest {
                method: Method::Post,
                url,
                content: Some(&content),
            })?;
            self.nonce = nonce_of(&answer);
            tries -= 1;
            match refusal(&answer) {
                None => return Ok(answer),
                Some(failure) if failure.is("badNonce") && tries > 0 => {}
                Some(failure) => return Err(failure),
            }
        }
    }

    fn next_nonce(&mut self) -> Result<String, AcmeError> {
        if let Some(nonce) = self.nonce.take() {
            return Ok(nonce);
        }
        let answer = self.https.ask(&HttpsRequest {
            method: Method::Head,
            url: &self.links.new_nonce,
            content: None,
        })?;
        nonce_of(&answer).ok_or_else(|| AcmeError::new("the directory sent no nonce"))
    }

    /// Requests the renewal information of a certificate; None if the directory offers no renewal
    /// information.
    pub(super) fn renewal_info(&self, id: &str) -> Result<Option<RenewalInfo>, AcmeError> {
        let Some(url) = &self.links.renewal_info else {
            return Ok(None);
        };
        let url = format!("{}/{id}", url.trim_end_matches('/'));
        let answer = self.https.ask(&HttpsRequest {
            method: Method::Get,
            url: &url,
            content: None,
        })?;
        if let Some(failure) = refusal(&answer) {
            return Err(failure);
        }
        let info = RenewalInfo::read(&answer.json()?);
        let mut info = info.ok_or_else(|| AcmeError::new("the renewal window is malformed"))?;
        info.retry_after = answer.retry_after(unix_seconds_now());
        Ok(Some(info))
    }
}

impl DirectoryUrls {
    fn read(https: &HttpsClient, directory: &str) -> Result<DirectoryUrls, AcmeError> {
        let answer = https.ask(&HttpsRequest {
            method: Method::Get,
            url: directory,
            content: None,
        })?;
        if let Some(failure) = refusal(&answer) {
            return Err(failure.during("the directory"));
        }
        let json = answer.json()?;
        let url = |name: &str| {
            let what = format!("the directory has no `{name}`: check the URL in `directory`");
            json.text(name)
                .map(str::to_owned)
                .ok_or_else(|| AcmeError::new(what))
        };
        let meta = json.field("meta");
        let profiles = match meta.and_then(|meta| meta.field("profiles")) {
            Some(Json::Object(profiles)) => profiles.iter().map(|(name, _)| name.clone()).collect(),
            _ => Vec::new(),
        };
        let binding = meta.and_then(|meta| meta.field("externalAccountRequired"));
        Ok(DirectoryUrls {
            new_nonce: url("newNonce")?,
            new_account: url("newAccount")?,
            new_order: url("newOrder")?,
            renewal_info: json.text("renewalInfo").map(str::to_owned),
            profiles,
            wants_binding: binding == Some(&Json::Bool(true)),
        })
    }
}

impl RenewalInfo {
    fn read(json: &Json) -> Option<RenewalInfo> {
        let window = json.field("suggestedWindow")?;
        let at = |name| wire::date::parse_rfc3339(window.text(name)?.as_bytes());
        let (start, end) = (at("start")?, at("end")?);
        let explanation = json.text("explanationURL").map(crate::acme::error::clean);
        (start <= end).then_some(RenewalInfo {
            window: (start, end),
            explanation,
            retry_after: None,
        })
    }
}

/// Returns the error for a response with a status other than 2xx.
fn refusal(answer: &HttpsResponse) -> Option<AcmeError> {
    let status = answer.status;
    if (200..300).contains(&status) {
        return None;
    }
    let is_json = ["application/problem+json", "application/json"].contains(&answer.media_type());
    let document = is_json.then(|| Json::parse(&answer.body)).flatten();
    let mut failure = AcmeError::problem(status, document.as_ref());
    failure.retry_after = answer.retry_after(unix_seconds_now());
    Some(failure)
}

/// Returns the nonce of a response, which must be base64url (RFC 8555 §6.5.1).
fn nonce_of(answer: &HttpsResponse) -> Option<String> {
    let nonce = answer.replay_nonce.as_deref()?;
    is_base64url(nonce).then(|| nonce.to_owned())
}

/// Returns true if the text is non-empty and consists of base64url digits.
pub(super) fn is_base64url(text: &str) -> bool {
    let digit = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    !text.is_empty() && text.bytes().all(digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_renewal_windows_are_refused() {
        let read = |text: &str| RenewalInfo::read(&Json::parse(text.as_bytes()).unwrap());
        let info = read(
            r#"{"suggestedWindow":{"start":"1970-01-01T00:00:10Z","end":"1970-01-01T00:00:20.5Z"},
            "explanationURL":"https://ca.test/why"}"#,
        );
        let info = info.unwrap();
        assert_eq!(info.window, (10, 20));
        assert_eq!(info.explanation.as_deref(), Some("https://ca.test/why"));
        for bad in [
            "{}",
            r#"{"suggestedWindow":{"start":"1970-01-01T00:00:10Z"}}"#,
            r#"{"suggestedWindow":{"start":"1970-01-01T00:00:10Z","end":"1970-01-01T00:00:09Z"}}"#,
            r#"{"suggestedWindow":{"start":10,"end":20}}"#,
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
