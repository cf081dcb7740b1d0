//! A conversation with a directory (RFC 8555): its URLs, nonces, our account, and signed calls.

use crate::base::clock::unix_seconds_now;
use crate::config::AcmeConfig;
use crate::limits::ACME_NONCE_TRIES;
use crate::wire::json::{Json, quoted};

use super::jws::{AccountKey, Signer};
use super::store::{AcmeAccount, AcmeStore};
use crate::acme::error::AcmeError;
use crate::acme::https_client::{HttpsClient, HttpsRequest, HttpsResponse};

/// A directory that has answered, and our account there.
pub(super) struct AcmeSession<'s> {
    https: HttpsClient,
    settings: &'s AcmeConfig,
    links: DirectoryUrls,
    key: AccountKey,
    /// The account's URL.
    kid: String,
    nonce: Option<String>,
}

/// What a directory offers (RFC 8555 §7.1.1).
struct DirectoryUrls {
    new_nonce: String,
    new_account: String,
    new_order: String,
    renewal_info: Option<String>,
    /// Names of profiles, if it has any.
    profiles: Vec<String>,
    wants_binding: bool,
}

/// When a certificate should be renewed, as the directory sees it (RFC 9773 §4.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RenewalInfo {
    /// First and last second, Unix time.
    pub(super) window: (u64, u64),
    /// Where a reason is given for an unusual window.
    pub(super) explanation: Option<String>,
    /// Seconds until it wants to be asked again.
    pub(super) retry_after: Option<u64>,
}

impl<'s> AcmeSession<'s> {
    /// Reads the directory and finds or makes our account.
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

    /// RFC 8555 §7.3. A key that the directory knows gets the account that it has.
    fn register(&mut self) -> Result<String, AcmeError> {
        let url = self.links.new_account.clone();
        let mut payload = format!("{{\"termsOfServiceAgreed\":true,{}", self.contact());
        match &self.settings.eab {
            Some(eab) => {
                let binding = self.key.bind(eab, &url)?;
                payload.push_str(&format!(",\"externalAccountBinding\":{binding}"));
            }
            None if self.links.wants_binding => {
                let what = "this directory wants an external account binding: get one from the CA \
                            and set `eab`";
                return Err(AcmeError::new(what));
            }
            None => {}
        }
        payload.push('}');
        let answer = self.call(&Signer::Key, &url, &payload)?;
        let kid = answer.head.text("location").map(str::to_owned);
        kid.ok_or_else(|| AcmeError::new("the directory named no account"))
    }

    fn change_contact(&mut self) -> Result<(), AcmeError> {
        let payload = format!("{{{}}}", self.contact());
        let url = self.kid.clone();
        self.post(&url, &payload).map(drop)
    }

    /// What a challenge is answered with.
    pub(super) fn authorization(&self, token: &str) -> String {
        self.key.authorization(token)
    }

    /// The URL for new orders.
    pub(super) fn new_order(&self) -> String {
        self.links.new_order.clone()
    }

    /// Whether the directory has the profile that is configured.
    pub(super) fn check_profile(&self) -> Result<(), AcmeError> {
        let Some(profile) = &self.settings.profile else {
            return Ok(());
        };
        if self.links.profiles.contains(profile) {
            return Ok(());
        }
        let has = match self.links.profiles.is_empty() {
            true => "none".to_owned(),
            false => crate::acme::error::clean(&self.links.profiles.join(", ")),
        };
        let what = format!("the directory has no profile `{profile}`; it has {has}");
        Err(AcmeError::new(what))
    }

    /// Reads what is at this URL (POST-as-GET, RFC 8555 §6.3).
    pub(super) fn read(&mut self, url: &str) -> Result<HttpsResponse, AcmeError> {
        self.post(url, "")
    }

    /// Posts as our account.
    pub(super) fn post(&mut self, url: &str, payload: &str) -> Result<HttpsResponse, AcmeError> {
        let kid = std::mem::take(&mut self.kid);
        let answer = self.call(&Signer::Account(&kid), url, payload);
        self.kid = kid;
        answer
    }

    /// Signs and posts, again with another nonce where one was refused (RFC 8555 §6.5).
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
                method: "POST",
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
            method: "HEAD",
            url: &self.links.new_nonce,
            content: None,
        })?;
        nonce_of(&answer).ok_or_else(|| AcmeError::new("the directory gave no nonce"))
    }

    /// Asks when this certificate should be renewed; None if the directory doesn't say such things.
    pub(super) fn renewal_info(&self, id: &str) -> Result<Option<RenewalInfo>, AcmeError> {
        let Some(url) = &self.links.renewal_info else {
            return Ok(None);
        };
        let url = format!("{}/{id}", url.trim_end_matches('/'));
        let answer = self.https.ask(&HttpsRequest {
            method: "GET",
            url: &url,
            content: None,
        })?;
        if let Some(failure) = refusal(&answer) {
            return Err(failure);
        }
        let info = RenewalInfo::read(&answer.json()?);
        let mut info = info.ok_or_else(|| AcmeError::new("the window for renewal is malformed"))?;
        info.retry_after = answer.retry_after(unix_seconds_now());
        Ok(Some(info))
    }
}

impl DirectoryUrls {
    fn read(https: &HttpsClient, directory: &str) -> Result<DirectoryUrls, AcmeError> {
        let answer = https.ask(&HttpsRequest {
            method: "GET",
            url: directory,
            content: None,
        })?;
        if let Some(failure) = refusal(&answer) {
            return Err(failure.during("the directory"));
        }
        let json = answer.json()?;
        let url = |name: &str| {
            let what = format!("the directory has no `{name}`: is its URL right?");
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
        let at = |name| crate::wire::date::parse_rfc3339(window.text(name)?.as_bytes());
        let (start, end) = (at("start")?, at("end")?);
        let explanation = json.text("explanationURL").map(crate::acme::error::clean);
        (start <= end).then_some(RenewalInfo {
            window: (start, end),
            explanation,
            retry_after: None,
        })
    }
}

/// What a refusing answer says; None if it doesn't refuse.
fn refusal(answer: &HttpsResponse) -> Option<AcmeError> {
    let status = answer.head.status;
    if (200..300).contains(&status) {
        return None;
    }
    let is_json = ["application/problem+json", "application/json"].contains(&answer.media_type());
    let document = is_json.then(|| Json::parse(&answer.body)).flatten();
    let mut failure = AcmeError::problem(status, document.as_ref());
    failure.retry_after = answer.retry_after(unix_seconds_now());
    Some(failure)
}

/// Base64url, of which a header takes any (RFC 8555 §6.5.1).
fn nonce_of(answer: &HttpsResponse) -> Option<String> {
    let nonce = answer.head.text("replay-nonce")?;
    is_base64url(nonce).then(|| nonce.to_owned())
}

/// Not empty, and nothing but the digits of base64url.
pub(super) fn is_base64url(text: &str) -> bool {
    let digit = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    !text.is_empty() && text.bytes().all(digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows() {
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
