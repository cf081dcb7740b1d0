//! Effect of the rules by request on one request: rates, cross-origin access, sizes and methods.

use crate::ledger::client_rate::ClientRate;
use crate::serve::auth_answers::AuthAnswers;
use crate::serve::dispatch_context::RateCheck;
use crate::world::SecureFields;
use std::sync::Arc;

/// Effect of the rules by request. Most requests have none, and a stored page then moves a pointer alone.
#[derive(Default)]
pub(crate) struct RuledRequest<'w> {
    /// Fields of the site and of cross-origin access, in place of the fields of the site.
    pub(super) secure_fields: Option<&'w Arc<SecureFields>>,
    /// Fields of the site with `own_lines`, in place of `secure_fields`.
    pub(super) own_fields: Option<Arc<SecureFields>>,
    /// Field lines of the servers for forward authentication: cookies and Cache-Control.
    pub(super) own_lines: Vec<u8>,
    /// Answers of the servers that let the request pass, for requests of the handler.
    pub(super) answers: Option<AuthAnswers>,
    /// Whether a reading of the path has `cors`, so the fields of a release for cross-origin access are left out.
    pub(super) has_cors: bool,
    /// Largest content for a handler in bytes, in place of the limit.
    pub(super) body_bytes: Option<u64>,
    /// Field lines of a refusal, in place of the usual lines for the status.
    pub(super) refusal_fields: Option<Vec<u8>>,
    /// State of the request towards the request rates.
    pub(super) rate: RateCheck,
    /// Rates met by this dispatch.
    pub(super) rates: Vec<&'w ClientRate>,
}

/// Client of a call, as the guards know it.
#[derive(Clone, Default)]
pub(super) struct Visitor {
    /// User that logged in.
    pub(super) user: Option<String>,
    /// Answers of the servers for forward authentication that let the request pass.
    pub(super) answers: Option<AuthAnswers>,
}
