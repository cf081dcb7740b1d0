//! Cross-origin resource sharing (Fetch §3.2): the pages of other sites that may read responses.
//!
//! The fields for each origin are encoded when the World is built, together with the fields of the site. A response
//! therefore costs a comparison of the Origin field, and no other response anything.

use crate::world::secure_fields::SecureFields;
use std::sync::Arc;

/// Settings of `cors`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CorsSettings {
    /// Origins with access, as browsers send them; `*` for all.
    pub origins: Vec<String>,
    /// Field lines of responses to an origin with access, beside Access-Control-Allow-Origin.
    pub lines: Vec<u8>,
    /// Field lines of the answer to a preflight of an origin with access.
    pub preflight: Arc<[u8]>,
}

/// Settings of `cors` with the fields of the site.
#[derive(Clone, Debug)]
pub struct CorsRule {
    settings: CorsSettings,
    /// Fields of responses by the origin of the request.
    by_origin: Box<[OriginFields]>,
    /// Fields of responses to requests of all other origins, or without an origin.
    others: Arc<SecureFields>,
}

/// An origin with access, and the fields of responses to the origin.
type OriginFields = (Box<[u8]>, Arc<SecureFields>);

impl CorsSettings {
    fn is_for_all(&self) -> bool {
        self.origins.iter().any(|origin| origin == "*")
    }

    /// Returns the field lines for an origin with access. A response that depends on the origin says so to caches.
    fn lines_for(&self, origin: &str) -> Vec<u8> {
        let vary: &[u8] = if self.is_for_all() { b"" } else { VARY };
        let allowed = format!("Access-Control-Allow-Origin: {origin}\r\n");
        [allowed.as_bytes(), &self.lines, vary].concat()
    }
}

/// Field line of responses that depend on the origin.
const VARY: &[u8] = b"Vary: Origin\r\n";

impl CorsRule {
    /// Encodes the fields for a site with the fields `site`.
    pub fn new(settings: CorsSettings, site: &SecureFields) -> CorsRule {
        let fields = |lines: &[u8]| Arc::new(site.with_plain(lines));
        let (by_origin, others) = if settings.is_for_all() {
            (Vec::new(), fields(&settings.lines_for("*")))
        } else {
            let encoded = settings.origins.iter().map(|origin| {
                let name = origin.as_bytes().into();
                (name, fields(&settings.lines_for(origin)))
            });
            (encoded.collect(), fields(VARY))
        };
        CorsRule {
            settings,
            by_origin: by_origin.into(),
            others,
        }
    }

    pub(crate) fn settings(&self) -> &CorsSettings {
        &self.settings
    }

    /// Returns the fields of the response to a request of `origin`. Browsers write the origin in lower case.
    pub(crate) fn fields(&self, origin: Option<&[u8]>) -> &Arc<SecureFields> {
        match self.find(origin) {
            Some(fields) => fields,
            None => &self.others,
        }
    }

    /// Returns the field lines of the answer to a preflight, beside the fields of every response.
    pub(crate) fn preflight(&self, origin: &[u8]) -> Arc<[u8]> {
        let is_allowed = self.settings.is_for_all() || self.find(Some(origin)).is_some();
        if is_allowed {
            Arc::clone(&self.settings.preflight)
        } else {
            Arc::default()
        }
    }

    fn find(&self, origin: Option<&[u8]>) -> Option<&Arc<SecureFields>> {
        let origin = origin?;
        let mut known = self.by_origin.iter();
        let (_, fields) = known.find(|(known, _)| **known == *origin)?;
        Some(fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(origins: &[&str], hsts: Option<u64>) -> CorsRule {
        let settings = CorsSettings {
            origins: origins.iter().map(|it| (*it).to_owned()).collect(),
            lines: b"X-Line: 1\r\n".to_vec(),
            preflight: Arc::from(&b"X-Preflight: 1\r\n"[..]),
        };
        CorsRule::new(settings, &SecureFields::new(hsts, None))
    }

    fn lines(rule: &CorsRule, origin: Option<&str>, is_secure: bool) -> String {
        let fields = rule.fields(origin.map(str::as_bytes));
        let fields = fields.over(is_secure).expect("fields");
        String::from_utf8_lossy(&fields.lines).into_owned()
    }

    #[test]
    fn an_origin_gets_its_fields_and_others_get_vary() {
        let rule = rule(&["https://a.example", "http://b.example:81"], Some(9));
        let hsts = "Strict-Transport-Security: max-age=9\r\n";
        let own =
            "Access-Control-Allow-Origin: http://b.example:81\r\nX-Line: 1\r\nVary: Origin\r\n";
        assert_eq!(lines(&rule, Some("http://b.example:81"), false), own);
        let secure = format!("{hsts}{own}");
        assert_eq!(lines(&rule, Some("http://b.example:81"), true), secure);
        for other in [None, Some("null"), Some("https://a.example.org"), Some("*")] {
            assert_eq!(lines(&rule, other, false), "Vary: Origin\r\n", "{other:?}");
        }
        assert_eq!(
            &*rule.preflight(b"https://a.example"),
            b"X-Preflight: 1\r\n"
        );
        assert_eq!(&*rule.preflight(b"https://c.example"), b"");
    }

    #[test]
    fn all_origins_get_one_response() {
        let rule = rule(&["*"], None);
        for origin in [None, Some("null"), Some("https://a.example")] {
            let expected = "Access-Control-Allow-Origin: *\r\nX-Line: 1\r\n";
            assert_eq!(lines(&rule, origin, true), expected);
            assert_eq!(lines(&rule, origin, false), expected);
        }
        assert_eq!(&*rule.preflight(b"null"), b"X-Preflight: 1\r\n");
    }
}
