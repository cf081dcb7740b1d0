//! The fields that the operator gives to the paths of a site (`headers`), on what handlers answer
//! there. They are put on before the page cache sees a response, so that a page is kept with them, and
//! once: what a script has the server send instead of its own answer has those of its own path.

use crate::handler::{
    AccessCheck, Handler, HandlerError, LocalBoxFuture, Request, Response, Script, ScriptRunner,
    Subrequest, Subrequests,
};
use crate::site::{HeaderRules, is_content_field, operator_fields};
use crate::wire::status::Status;
use std::borrow::Cow;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

/// A handler, or what runs scripts, with the operator's fields.
pub struct WithOperatorFields<H: ?Sized> {
    /// What answers.
    pub inner: Arc<H>,
    /// Of the site.
    pub headers: Arc<HeaderRules>,
}

impl Handler for WithOperatorFields<dyn Handler> {
    /// The path that counts is the one that was asked for.
    fn handle(&self, mut request: Request) -> LocalBoxFuture<Result<Response, HandlerError>> {
        let path = request.original_path.as_ref().unwrap_or(&request.path);
        let furnishing = OperatorFieldsStep::new(path.clone(), &self.headers);
        furnishing.watch(&mut request);
        furnishing.run(self.inner.handle(request))
    }
}

impl ScriptRunner for WithOperatorFields<dyn ScriptRunner> {
    /// The path that counts is that of the script's file.
    fn run(
        &self,
        mut request: Request,
        script: Script,
    ) -> LocalBoxFuture<Result<Response, HandlerError>> {
        let furnishing = OperatorFieldsStep::new(script.name.clone(), &self.headers);
        furnishing.watch(&mut request);
        furnishing.run(self.inner.run(request, script))
    }
}

/// One answer to be given its fields.
struct OperatorFieldsStep {
    path: Vec<u8>,
    headers: Arc<HeaderRules>,
    /// Another page of the server is sent instead.
    is_elsewhere: Rc<Cell<bool>>,
}

impl OperatorFieldsStep {
    fn new(path: Vec<u8>, headers: &Arc<HeaderRules>) -> OperatorFieldsStep {
        OperatorFieldsStep {
            path,
            headers: Arc::clone(headers),
            is_elsewhere: Rc::default(),
        }
    }

    /// Notes when the server is asked from within.
    fn watch(&self, request: &mut Request) {
        request.subrequests = request
            .subrequests
            .take()
            .map(|inner| -> Rc<dyn Subrequests> {
                let asked = Rc::clone(&self.is_elsewhere);
                Rc::new(RedirectWatch { inner, asked })
            });
    }

    fn run(
        self,
        answering: LocalBoxFuture<Result<Response, HandlerError>>,
    ) -> LocalBoxFuture<Result<Response, HandlerError>> {
        Box::pin(async move {
            let mut response = answering.await?;
            if !self.is_elsewhere.get() {
                self.furnish(&mut response);
            }
            Ok(response)
        })
    }

    /// The operator's word counts, as for a file, but for what only a handler knows of its answer.
    fn furnish(&self, response: &mut Response) {
        let path = self.path.strip_prefix(b"/").unwrap_or(&self.path);
        let is_news = *response.status != Status::NOT_MODIFIED;
        // The operator's fields on privacy and lifetime are for pages. A 304 without such fields leaves
        // the values of the stored response as they are (RFC 9111 §4.3.4). A missing login or a failure
        // does not get the lifetime of a page.
        let status = response.status.0;
        let is_page = status < 400 || matches!(status, 404 | 410);
        let may_say_how_long =
            is_news && is_page && !response.fields.iter().any(|(its, _)| is(its, HOW_LONG));
        for (name, value) in operator_fields(&self.headers, path) {
            let is_same = |(its, _): &(Cow<'_, str>, _)| its.eq_ignore_ascii_case(name);
            let is_wanted = match () {
                () if is(name, HOW_LONG) => may_say_how_long,
                // It would go for all links that came with the content.
                () if name.eq_ignore_ascii_case("Link") => {
                    is_news || response.fields.iter().any(is_same)
                }
                () => is_news || !is_content_field(name.as_bytes()),
            };
            if !is_wanted {
                continue;
            }
            if !is(name, ADDING_UP) {
                response.fields.retain(|field| !is_same(field));
            }
            let name = Cow::Owned(name.to_owned());
            response.fields.push((name, value.as_bytes().to_vec()));
        }
    }
}

/// Fields of which a handler's own value stands, and either of which speaks for both.
const HOW_LONG: &[&str] = &["Cache-Control", "Expires"];
/// Fields that may be there more than once, each for itself.
const ADDING_UP: &[&str] = &["Vary", "Set-Cookie", "Link", "WWW-Authenticate"];

fn is(name: &str, of: &[&str]) -> bool {
    of.iter().any(|its| its.eq_ignore_ascii_case(name))
}

/// The server, with a note that it was asked.
struct RedirectWatch {
    inner: Rc<dyn Subrequests>,
    asked: Rc<Cell<bool>>,
}

impl Subrequests for RedirectWatch {
    fn fetch(&self, question: Subrequest) -> LocalBoxFuture<Result<Response, HandlerError>> {
        self.asked.set(true);
        self.inner.fetch(question)
    }

    fn authorize(
        &self,
        admission: AccessCheck,
    ) -> LocalBoxFuture<Result<Option<String>, HandlerError>> {
        self.inner.authorize(admission)
    }

    fn with_guard_flag(&self, guarded: Rc<Cell<bool>>) -> Rc<dyn Subrequests> {
        Rc::new(RedirectWatch {
            inner: self.inner.with_guard_flag(guarded),
            asked: Rc::clone(&self.asked),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handler::ResponseBody;
    use crate::site::Glob;

    /// Applies the operator's `Name: value` lines for all files to a response with a handler's lines.
    /// Returns the lines of the result.
    fn applied(status: u16, handler: &[&str], operator: &[&str]) -> Vec<String> {
        let field = |line: &&str| {
            let (name, value) = line.split_once(": ").expect("a field");
            (name.to_owned(), value.to_owned())
        };
        let set = operator.iter().map(field).collect();
        let rules: HeaderRules = vec![(Glob::parse("**").expect("a pattern"), set)];
        let owned = |(name, value): (String, String)| (Cow::Owned(name), value.into_bytes());
        let mut response = Response {
            status: Status(status).into(),
            fields: handler.iter().map(field).map(owned).collect(),
            body: ResponseBody::Empty,
        };
        OperatorFieldsStep::new(b"/a".to_vec(), &Arc::new(rules)).furnish(&mut response);
        let line = |(name, value): &(Cow<'_, str>, Vec<u8>)| {
            format!("{name}: {}", String::from_utf8_lossy(value))
        };
        response.fields.iter().map(line).collect()
    }

    #[test]
    fn operator_fields_beside_fields_of_the_handler() {
        #[rustfmt::skip] // A table reads better in columns.
        let table: &[(u16, &[&str], &[&str], &[&str])] = &[
            (200, &["X-A: 1"], &["X-B: 2"], &["X-A: 1", "X-B: 2"]),
            // The operator's value replaces the handler's.
            (200, &["x-a: 1", "X-C: 3", "X-A: 2"], &["X-A: 4"], &["X-C: 3", "X-A: 4"]),
            (500, &["X-A: 1"], &["X-A: 2"], &["X-A: 2"]),
            // Fields that add up.
            (200, &["Vary: A", "Set-Cookie: a"], &["Vary: B", "Set-Cookie: b"],
                &["Vary: A", "Set-Cookie: a", "Vary: B", "Set-Cookie: b"]),
            // The handler's lifetime stands, by either field.
            (200, &["Expires: 0"], &["Cache-Control: max-age=9"], &["Expires: 0"]),
            (200, &["Cache-Control: private"], &["Expires: 0"], &["Cache-Control: private"]),
            (200, &[], &["Cache-Control: max-age=9"], &["Cache-Control: max-age=9"]),
            // Only a page gets a lifetime.
            (404, &[], &["Cache-Control: max-age=9"], &["Cache-Control: max-age=9"]),
            (410, &[], &["Cache-Control: max-age=9"], &["Cache-Control: max-age=9"]),
            (401, &[], &["Cache-Control: max-age=9", "X-A: 1"], &["X-A: 1"]),
            (500, &[], &["Cache-Control: max-age=9"], &[]),
            // A 304 leaves the lifetime, the links and the content of the stored response as they are.
            (304, &[], &["Cache-Control: max-age=9", "X-A: 1"], &["X-A: 1"]),
            (304, &[], &["Link: </a>", "Content-Language: en"], &[]),
            (304, &["Link: </b>"], &["Link: </a>"], &["Link: </b>", "Link: </a>"]),
        ];
        for (status, handler, operator, expected) in table {
            let what = format!("{status} {handler:?} {operator:?}");
            assert_eq!(applied(*status, handler, operator), *expected, "{what}");
        }
    }
}
