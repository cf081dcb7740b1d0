//! Response fields that the operator sets for paths of a site (`headers`), on responses of handlers.

use crate::handler::Response;
use crate::site::{HeaderRules, is_content_field, operator_fields};
use wire::status::Status;

/// Applies the operator's fields for any of the paths to a handler's response. The operator's value replaces the
/// handler's, as for a file, except for values that only a handler can know.
pub(super) fn apply(headers: &HeaderRules, paths: &[Vec<u8>], response: &mut Response) {
    let below_root = |path| <[u8]>::strip_prefix(path, b"/").unwrap_or(path);
    let paths: Vec<&[u8]> = paths.iter().map(|path| below_root(path)).collect();
    let is_full = *response.status != Status::NOT_MODIFIED;
    // The operator's fields on privacy and lifetime are for pages. A 304 without such fields leaves
    // the values of the stored response as they are (RFC 9111 §4.3.4). A missing login or a failure
    // does not get the lifetime of a page.
    let status = response.status.0;
    let is_page = status < 400 || matches!(status, 404 | 410);
    let gets_lifetime = is_full
        && is_page
        && !response
            .fields
            .iter()
            .any(|(its, _)| is_one(its, LIFETIME_FIELDS));
    for (name, value) in operator_fields(headers, &paths) {
        let bytes = name.as_bytes();
        let is_wanted = match () {
            () if is_one(bytes, LIFETIME_FIELDS) => gets_lifetime,
            // A Link field in a 304 would replace all links of the stored response.
            () if name.eq_ignore_ascii_case("Link") => {
                is_full || response.fields.first(name).is_some()
            }
            () => is_full || !is_content_field(bytes),
        };
        if !is_wanted {
            continue;
        }
        if !is_one(bytes, ADDITIVE_FIELDS) {
            response
                .fields
                .retain(|its, _| !its.eq_ignore_ascii_case(bytes));
        }
        response.fields.push(bytes, value.as_bytes());
    }
}

/// Lifetime fields. The handler's own value stands, and either field of a handler stands for both.
const LIFETIME_FIELDS: &[&str] = &["Cache-Control", "Expires"];
/// Fields that add up: the operator's line stands beside the handler's lines.
const ADDITIVE_FIELDS: &[&str] = &["Vary", "Set-Cookie", "Link", "WWW-Authenticate"];

fn is_one(name: &[u8], of: &[&str]) -> bool {
    of.iter()
        .any(|its| its.as_bytes().eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handler::ResponseBody;
    use release::glob::Glob;
    use wire::response_fields::ResponseFields;

    /// Field lines, each as `Name: value`.
    type Lines = &'static [&'static str];

    /// Applies the operator's `Name: value` lines for all files to a response with a handler's lines.
    /// Returns the lines of the result.
    fn applied(status: u16, handler: &[&str], operator: &[&str]) -> Vec<String> {
        let field = |line: &&str| {
            let (name, value) = line.split_once(": ").expect("a field");
            (name.to_owned(), value.to_owned())
        };
        let set = operator.iter().map(field).collect();
        let rules: HeaderRules = vec![(Glob::parse("**").expect("a pattern"), set)];
        let mut fields = ResponseFields::new();
        for (name, value) in handler.iter().map(field) {
            fields.push(name.as_bytes(), value.as_bytes());
        }
        let mut response = Response::new(Status(status), fields, ResponseBody::Empty);
        apply(&rules, &[b"/a".to_vec()], &mut response);
        let lines = String::from_utf8_lossy(response.fields.lines());
        lines.lines().map(str::to_owned).collect()
    }

    #[test]
    fn operator_fields_beside_fields_of_the_handler() {
        #[rustfmt::skip] // A table reads better in columns.
        let table: &[(u16, Lines, Lines, Lines)] = &[
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
