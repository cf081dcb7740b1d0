//! Handler of the manager's listener: the paths of the page, edits by forms, and logins.

use super::access::{AccessRules, Visitor, cookie_name};
use super::channel::ManagerContext;
use super::control_request::EditOutcome;
use super::events::events;
use super::form::Form;
use super::form_edit::{self, EditPreview, FormRefusal};
use super::guard::GuardedRequest;
use super::gzip::{SharedText, gzip};
use super::page::{Content, LIVE, Page, PageText, selection_url, style_sheet, table_url};
use super::selection::Selection;
use super::snapshot::Snapshot;
use crate::admin::command::{EditAction, EditBatch};
use crate::admin::edit_ledger::EditChange;
use crate::admin::metrics::MetricsFormat;
use crate::build;
use crate::config::{Config, OperatorError};
use crate::manager::limits::{
    MANAGER_FORM_BYTES_MAX, MANAGER_GZIP_BYTES_MIN, MANAGER_SESSION_SECONDS,
};
use data_plane::handler::pipe::{PipeRead, counted_pipe};
use data_plane::handler::route_handler::RouteHandler;
use data_plane::handler::{Handler, HandlerError, LocalBoxFuture, Request, Response, ResponseBody};
use data_plane::limits::{PIPE_BYTES, PIPE_BYTES_MIN};
use data_plane::serve::worker::MANAGER_FIELDS;
use data_plane::world::users::Logins;
use std::future::poll_fn;
use std::mem::take;
use std::sync::Arc;
use wire::content_coding::{AcceptedCodings, ContentCoding};
use wire::fields::{FieldValues, Fields};
use wire::h1::body_decoder::BodyLength;
use wire::reject::Reject;
use wire::request_head::Method;
use wire::response_fields::ResponseFields;
use wire::status::Status;

/// Returns the handler of the manager; `None` for a configuration without a manager. Reads the user files.
pub fn manager_handler(
    config: &Config,
    logins: &Arc<Logins>,
    context: &Arc<ManagerContext>,
) -> Result<Option<RouteHandler>, OperatorError> {
    let Some(manager) = &config.manager else {
        return Ok(None);
    };
    let users = |file| build::read_users(config, file).map(Arc::new);
    let rules = AccessRules {
        allow: match &manager.allow {
            Some(networks) => Some(build::allow_list(config, networks)?),
            None => None,
        },
        users: manager.users.as_ref().map(users).transpose()?,
        viewers: manager.viewers.as_ref().map(users).transpose()?,
        logins: Arc::clone(logins),
    };
    let handler: Arc<dyn Handler> = Arc::new(ManagerHandler(Arc::new(Manager {
        rules,
        names: manager.names.clone(),
        context: Arc::clone(context),
        style: style_sheet().into(),
        script: LIVE.to_owned().into(),
    })));
    Ok(Some(handler.into()))
}

/// Handler of the manager.
struct ManagerHandler(Arc<Manager>);

/// Settings of the manager in one World, and the context of the process.
struct Manager {
    rules: AccessRules,
    names: Vec<(String, Option<u16>)>,
    context: Arc<ManagerContext>,
    style: SharedText,
    script: SharedText,
}

impl Handler for ManagerHandler {
    fn handle(&self, request: Request) -> LocalBoxFuture<Result<Response, HandlerError>> {
        let manager = Arc::clone(&self.0);
        Box::pin(async move {
            let answered = manager.answer(request).await;
            answered.map_err(|reject| HandlerError::new("manager", reject))
        })
    }
}

impl Manager {
    async fn answer(&self, mut request: Request) -> Result<Response, Reject> {
        let allow = self.rules.allow.as_ref();
        if allow.is_some_and(|allow| !allow.contains(request.peer)) {
            return Err(Reject::ADDRESS_DENIED);
        }
        // A form is read before any other refusal: some clients take a response during the upload for a failure.
        let body = match request.method {
            Method::Post => read_body(&mut request).await?,
            _ => Vec::new(),
        };
        self.check(&request)?;
        let query = Form::parse(request.query.as_deref().unwrap_or_default())?;
        let visitor = self.rules.visitor(&self.context, &request).await?;
        let response = match (request.method, &*request.path) {
            (Method::Get | Method::Head, path) => self.read(&request, path, &query, &visitor).await,
            (Method::Post, b"/" | b"/logout") if request.query.is_none() => {
                let owner = self.rules.may_edit(&visitor)?;
                let form = form(&request, &body)?;
                let token = form.value("nonce").unwrap_or_default();
                if !self.context.is_token(owner, token) {
                    return Err(Reject::MANAGER_TOKEN);
                }
                match &*request.path {
                    b"/" => self.edit(&request, &form, &visitor).await,
                    _ => Ok(self.log_out(&request, &visitor)),
                }
            }
            _ => Err(Reject::METHOD_NOT_ALLOWED),
        };
        self.counted(&request, &visitor, response?)
    }

    /// Returns a response with a large content as a stream, with a place among the large responses under way. A whole
    /// content would wait for the client in the memory that the sites need for bodies.
    fn counted(
        &self,
        request: &Request,
        visitor: &Visitor,
        mut response: Response,
    ) -> Result<Response, Reject> {
        let content = match &mut response.body {
            ResponseBody::Whole(content) if content.len() > PIPE_BYTES_MIN => take(content),
            _ => return Ok(response),
        };
        let all = &self.context.response_bytes;
        let place = all.take(request.peer, visitor.has_login(), content.len());
        let place = place.ok_or(Reject::CALLS_BUSY)?;
        let (mut writer, reader) = counted_pipe(PIPE_BYTES, &request.memory);
        response.body = ResponseBody::Stream {
            length: Some(content.len() as u64),
            reader,
            work: Box::pin(async move {
                let _place = place;
                if writer.write_all(&content).await.is_ok() {
                    writer.finish();
                }
            }),
        };
        Ok(response)
    }

    /// Checks the guards against requests of foreign pages.
    fn check(&self, request: &Request) -> Result<(), Reject> {
        let guarded = GuardedRequest {
            method: request.method,
            fields: Fields(&request.fields),
            is_tls: request.secure,
            server: request.ends.server,
            port: request.ends.server_port.unwrap_or(0),
        };
        guarded.check(&self.names)
    }

    /// Answers GET and HEAD.
    async fn read(
        &self,
        request: &Request,
        path: &[u8],
        query: &Form,
        visitor: &Visitor,
    ) -> Result<Response, Reject> {
        match path {
            b"/style.css" => return Ok(text(request, Status::OK, CSS, &[&self.style])),
            b"/live.js" => return Ok(text(request, Status::OK, SCRIPT, &[&self.script])),
            b"/login" => return self.log_in(request, query, visitor),
            _ if !query.is_selection() => return Err(Reject::MANAGER_GET),
            _ => self.rules.may_read(visitor, request)?,
        }
        match path {
            b"/events" if request.method == Method::Get => {
                let is_gzip = accepts_gzip(request);
                let body = events(&self.context, visitor, request, is_gzip).await?;
                Ok(Response::new(
                    Status::OK,
                    coded_fields(EVENTS, is_gzip),
                    body,
                ))
            }
            b"/" => {
                let snapshot = self.context.snapshot().await?;
                if query.value("xml").is_some() {
                    let token = visitor.editor().map(|owner| self.context.page_token(owner));
                    let pieces = snapshot.xml(token.is_some());
                    let token: SharedText = token.unwrap_or_default().into();
                    let pieces = pieces.iter().flat_map(|piece| [&token, piece]);
                    let pieces: Vec<&SharedText> = pieces.skip(1).collect();
                    return Ok(text(request, Status::OK, XML, &pieces));
                }
                let page = self.overview(&snapshot, query, visitor);
                Ok(html(request, Status::OK, &page))
            }
            b"/history" => {
                let snapshot = self.context.snapshot().await?;
                let page = self.page(&snapshot, visitor, &Content::History);
                Ok(html(request, Status::OK, &page))
            }
            b"/status.json" | b"/balancers.json" | b"/history.json" | b"/differences.json" => {
                let snapshot = self.context.snapshot().await?;
                Ok(text(request, Status::OK, JSON, &[snapshot.json(path)]))
            }
            b"/requests.json" => {
                let snapshot = self.context.snapshot().await?;
                let json = snapshot.requests_json(visitor.has_login());
                Ok(text(request, Status::OK, JSON, &[json]))
            }
            b"/metrics" => {
                let accept = Fields(&request.fields).first("accept");
                let format = MetricsFormat::by_accept(accept);
                let snapshot = self.context.snapshot().await?;
                let media = format.content_type().as_bytes();
                let mut response = text(request, Status::OK, media, &[snapshot.metrics(format)]);
                response.fields.push(b"Vary", b"Accept");
                Ok(response)
            }
            b"/nonce" => {
                let token = self.context.token(self.rules.may_edit(visitor)?);
                Ok(response(Status::OK, TEXT, token + "\n"))
            }
            _ => Err(Reject::NOT_FOUND),
        }
    }

    /// Renders the page of a client.
    fn page(&self, snapshot: &Snapshot, visitor: &Visitor, content: &Content<'_>) -> PageText {
        let token = visitor.editor();
        let token = token.map(|owner| self.context.page_token(owner));
        let page = Page {
            snapshot,
            visitor,
            token: token.as_deref(),
            has_users: self.rules.users.is_some(),
        };
        page.render(content)
    }

    /// Renders the page with the forms of the selected balancer or member.
    fn overview(&self, snapshot: &Snapshot, query: &Form, visitor: &Visitor) -> PageText {
        let selected = query.selection();
        let selected = selected.map(|(balancer, member)| snapshot.select(balancer, member));
        let (selected, error) = match selected {
            Some(Err(error)) => (None, error),
            Some(Ok(selection)) => (Some(selection), String::new()),
            None => (None, String::new()),
        };
        let content = Content::Overview {
            selected: selected.as_ref(),
            error: &error,
            refused: None,
        };
        self.page(snapshot, visitor, &content)
    }

    /// Runs the edits of a form, and redirects to the page of the balancer or of the member. A refused form is
    /// answered with the page and the reasons, and a dangerous edit with a question.
    async fn edit(
        &self,
        request: &Request,
        form: &Form,
        visitor: &Visitor,
    ) -> Result<Response, Reject> {
        // The edits of a form are the differences from the present values.
        self.context.forget_snapshot();
        let snapshot = self.context.snapshot().await?;
        let undone = form.value("undo");
        let selected = match (&undone, form.selection()) {
            (Some(_), _) => None,
            (None, None) => return Err(Reject::MANAGER_FORM),
            (None, Some((balancer, member))) => Some(snapshot.select(balancer, member)),
        };
        let (selected, actions) = match (undone, selected) {
            (Some(_), _) if !form.has_only(&["undo", "nonce", "confirmed"]) => {
                return Err(Reject::MANAGER_FORM);
            }
            (Some(id), _) => (None, Ok(vec![undo(id).ok_or(Reject::MANAGER_FORM)?])),
            (None, Some(Ok(mut selection))) => {
                let actions = form_edit::edits(form, &mut selection);
                (Some(selection), actions)
            }
            (None, Some(Err(error))) => (None, Err(error.into())),
            (None, None) => (None, Ok(Vec::new())),
        };
        let preview = match &actions {
            Ok(actions) => EditPreview::new(&snapshot, actions),
            Err(_) => Ok(EditPreview::default()),
        };
        let outcome = match (actions, &preview) {
            (Err(refusal), _) => FormOutcome::Refused(refusal),
            (Ok(actions), Err(error)) => FormOutcome::Refused(refusal(form, &actions, error)),
            (Ok(actions), Ok(preview)) => match &preview.danger {
                Some(question) if !is_confirmed(form) => FormOutcome::Asks(question.clone()),
                _ => self.run(actions, &preview.changes, form, visitor).await?,
            },
        };
        let changes = preview.map_or_else(|_| Vec::new(), |preview| preview.changes);
        let (status, content) = match &outcome {
            FormOutcome::Done => {
                let page = after(form, selected.as_ref(), &snapshot);
                return Ok(redirect(page.as_bytes()));
            }
            FormOutcome::Asks(question) => (
                Status::CONFLICT,
                Content::Question(question, form, &changes),
            ),
            FormOutcome::Refused(refusal) => (
                Status::BAD_REQUEST,
                Content::Overview {
                    selected: selected.as_ref(),
                    error: "",
                    refused: Some((form, refusal)),
                },
            ),
        };
        let page = self.page(&snapshot, visitor, &content);
        Ok(html(request, status, &page))
    }

    /// Makes all edits of a form, or none. An edit of another user since the plan of the changes refuses the form.
    async fn run(
        &self,
        actions: Vec<EditAction>,
        planned: &[EditChange],
        form: &Form,
        visitor: &Visitor,
    ) -> Result<FormOutcome, Reject> {
        if actions.is_empty() {
            return Ok(FormOutcome::Done);
        }
        let batch = EditBatch {
            actions: actions.clone(),
            planned: planned.to_vec(),
            is_confirmed: is_confirmed(form),
            wait_seconds: None,
        };
        let user = visitor.name().unwrap_or_default().to_owned();
        Ok(match self.context.edit(batch, user).await? {
            EditOutcome::Done => FormOutcome::Done,
            EditOutcome::Asks(question) => FormOutcome::Asks(question),
            EditOutcome::Refused(error) => FormOutcome::Refused(refusal(form, &actions, &error)),
        })
    }

    /// Answers `/login`: opens a session for the one-time secret in the query, or asks for a password.
    fn log_in(
        &self,
        request: &Request,
        query: &Form,
        visitor: &Visitor,
    ) -> Result<Response, Reject> {
        let Some(secret) = query.value("secret") else {
            if *visitor == Visitor::Anonymous {
                let has_users = self.rules.users.is_some() || self.rules.viewers.is_some();
                return Err(if has_users {
                    Reject::LOGIN_NEEDED
                } else {
                    Reject::MANAGER_EDIT_DENIED
                });
            }
            return Ok(redirect(b"/"));
        };
        if request.method != Method::Get {
            return Err(Reject::METHOD_NOT_ALLOWED);
        }
        let id = self.context.open_session(secret);
        let id = id.ok_or(Reject::MANAGER_SECRET)?;
        Ok(with_cookie(request, &id, MANAGER_SESSION_SECONDS))
    }

    /// Closes the session of the client.
    fn log_out(&self, request: &Request, visitor: &Visitor) -> Response {
        if let Visitor::Session(id) = visitor {
            self.context.close_session(id);
        }
        with_cookie(request, "", 0)
    }
}

/// Outcome of a form.
enum FormOutcome {
    /// All edits are made.
    Done,
    /// An edit is dangerous, and waits for the confirmation of the text.
    Asks(String),
    /// An edit is refused.
    Refused(FormRefusal),
}

/// Returns the refusal of edits, beside the field of a refused value. The page of ticked members has no fields.
fn refusal(form: &Form, actions: &[EditAction], error: &str) -> FormRefusal {
    if form.is_of_ticked() {
        error.to_owned().into()
    } else {
        FormRefusal::of_edits(error.to_owned(), actions)
    }
}

/// Returns the edit that undoes the entry of the history with a number. The number has digits alone.
fn undo(id: &str) -> Option<EditAction> {
    let is_number = id.bytes().all(|byte| byte.is_ascii_digit());
    let id = id.parse().ok().filter(|_| is_number)?;
    Some(EditAction::Undo(id))
}

/// Returns true if the user confirmed dangerous edits of the form.
fn is_confirmed(form: &Form) -> bool {
    form.value("confirmed") == Some("1")
}

/// Returns the page that follows an edit. A removed member has no page, and after an edit of ticked members the page
/// begins at their table.
fn after(form: &Form, selection: Option<&Selection<'_>>, snapshot: &Snapshot) -> String {
    let is_gone = form.value("remove").is_some();
    match selection {
        Some(it) if form.is_of_ticked() => table_url(&snapshot.balancers, it.name()),
        Some(it) => selection_url(it.name(), it.url().filter(|_| !is_gone)),
        None => "/".to_owned(),
    }
}

/// Parses the body of a request as a form.
fn form(request: &Request, body: &[u8]) -> Result<Form, Reject> {
    let media = Fields(&request.fields).first("content-type");
    let media = media.and_then(|media| media.split(|byte| *byte == b';').next());
    let is_form = media.is_some_and(|media| media.trim_ascii().eq_ignore_ascii_case(FORM));
    if is_form {
        Form::parse(body)
    } else {
        Err(Reject::MANAGER_FORM)
    }
}

/// Reads the body of a request, of at most [`MANAGER_FORM_BYTES_MAX`] bytes.
async fn read_body(request: &mut Request) -> Result<Vec<u8>, Reject> {
    if let BodyLength::Length(bytes) = request.length
        && bytes > MANAGER_FORM_BYTES_MAX as u64
    {
        return Err(Reject::BODY_TOO_LARGE);
    }
    let body = &mut request.body;
    let mut bytes = Vec::new();
    loop {
        let room = MANAGER_FORM_BYTES_MAX + 1 - bytes.len();
        let read = poll_fn(|cx| body.poll_take(cx, &mut bytes, room)).await;
        match read {
            Ok(PipeRead::End) => return Ok(bytes),
            Ok(PipeRead::Bytes(_)) if bytes.len() > MANAGER_FORM_BYTES_MAX => {
                return Err(Reject::BODY_TOO_LARGE);
            }
            Ok(PipeRead::Bytes(_)) => {}
            Err(_) => return Err(body.break_reason().unwrap_or(Reject::MANAGER_FORM)),
        }
    }
}

fn redirect(location: &[u8]) -> Response {
    let mut response = response(Status::SEE_OTHER, TEXT, String::new());
    response.fields.push(b"Location", location);
    response
}

/// Returns a redirect to the page that sets the cookie of the session.
fn with_cookie(request: &Request, id: &str, seconds: u64) -> Response {
    let name = cookie_name(request);
    let secure = if request.secure { "; Secure" } else { "" };
    let cookie =
        format!("{name}={id}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}");
    let mut response = redirect(b"/");
    response.fields.push(b"Set-Cookie", cookie.as_bytes());
    response
}

/// Returns a page as a response.
fn html(request: &Request, status: Status, page: &PageText) -> Response {
    let live = page.live.as_ref().map(|live| live.html());
    let pieces = [Some(&page.head), live, Some(&page.foot)];
    let pieces: Vec<&SharedText> = pieces.into_iter().flatten().collect();
    text(request, status, HTML, &pieces)
}

/// Returns pieces of text as a response, compressed if the client accepts gzip. A small text stays plain.
fn text(request: &Request, status: Status, media: &[u8], pieces: &[&SharedText]) -> Response {
    let bytes: usize = pieces.iter().map(|piece| piece.as_str().len()).sum();
    let is_large = bytes >= MANAGER_GZIP_BYTES_MIN;
    let coded = if is_large && accepts_gzip(request) {
        gzip(pieces)
    } else {
        None
    };
    let fields = coded_fields(media, coded.is_some());
    let content = coded.unwrap_or_else(|| {
        let texts = pieces.iter().map(|piece| piece.as_str());
        texts.collect::<String>().into_bytes()
    });
    Response::new(status, fields, ResponseBody::Whole(content))
}

/// Returns true if the client prefers gzip to plain content.
fn accepts_gzip(request: &Request) -> bool {
    let values = FieldValues::Many(Fields(&request.fields), "accept-encoding");
    let accepted = AcceptedCodings::from_values(&values);
    let available = ContentCoding::ALL
        .map(|coding| matches!(coding, ContentCoding::Identity | ContentCoding::Gzip));
    accepted.choose(&available) == ContentCoding::Gzip
}

/// Returns the fields of a response that depends on Accept-Encoding.
fn coded_fields(media: &[u8], is_gzip: bool) -> ResponseFields {
    let mut fields = fields(media);
    fields.push(b"Vary", b"Accept-Encoding");
    if is_gzip {
        fields.push(b"Content-Encoding", b"gzip");
    }
    fields
}

/// Returns a response with the fields that keep the content from foreign pages and from caches.
fn response(status: Status, media: &[u8], content: String) -> Response {
    let body = ResponseBody::Whole(content.into_bytes());
    Response::new(status, fields(media), body)
}

/// Returns the fields of a response.
fn fields(media: &[u8]) -> ResponseFields {
    let mut fields = ResponseFields::new();
    fields.push(b"Content-Type", media);
    fields.push(b"Content-Security-Policy", POLICY.as_bytes());
    for (name, value) in MANAGER_FIELDS {
        fields.push(name.as_bytes(), value.as_bytes());
    }
    fields
}

/// Content-Security-Policy of every response but the refusals.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
const HTML: &[u8] = b"text/html; charset=utf-8";
const TEXT: &[u8] = b"text/plain; charset=utf-8";
const CSS: &[u8] = b"text/css; charset=utf-8";
const SCRIPT: &[u8] = b"text/javascript; charset=utf-8";
const EVENTS: &[u8] = b"text/event-stream";
const XML: &[u8] = b"text/xml; charset=utf-8";
const JSON: &[u8] = b"application/json";
const FORM: &[u8] = b"application/x-www-form-urlencoded";
