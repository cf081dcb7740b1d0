//! Query of a `rewrite` target, or of the last target of `try`.

use wire::request_target::encode_value;

/// Query from the configuration, with placeholders for parts of the request target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryPattern(Box<[QueryPart]>);

/// Part of a query between two `&`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum QueryPart {
    /// Pieces of text, each with the placeholder after the text.
    Text(Box<[(Box<str>, Placeholder)]>),
    /// `$query`: the query of the request.
    Query,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placeholder {
    Nothing,
    /// `$path`: the whole path of the request.
    Path,
    /// `$rest`: the part of the path after the path of the route.
    Rest,
}

impl QueryPattern {
    /// Splits a target into the path and the query after a `?`.
    pub fn split(place: &str) -> (&str, Option<QueryPattern>) {
        match place.split_once('?') {
            Some((path, query)) => (path, Some(QueryPattern::parse(query))),
            None => (place, None),
        }
    }

    /// Parses a query already checked by the configuration.
    fn parse(text: &str) -> QueryPattern {
        let parts = text.split('&').filter(|part| !part.is_empty());
        QueryPattern(parts.map(QueryPart::parse).collect())
    }

    /// Returns the query for a request. `path` and `rest` are decoded; `query` is in the form sent by the
    /// client.
    pub(crate) fn fill(&self, path: &[u8], rest: &[u8], query: Option<&[u8]>) -> Vec<u8> {
        let rest = rest.strip_prefix(b"/").unwrap_or(rest);
        let mut out = Vec::new();
        for part in &self.0 {
            let start = out.len();
            if start > 0 {
                out.push(b'&');
            }
            match part {
                QueryPart::Query => match query.map(without_ends).filter(|query| !query.is_empty())
                {
                    Some(query) => out.extend_from_slice(query),
                    None => out.truncate(start),
                },
                QueryPart::Text(pieces) => {
                    for (text, follows) in pieces {
                        out.extend_from_slice(text.as_bytes());
                        match follows {
                            Placeholder::Nothing => {}
                            Placeholder::Path => encode_value(path, &mut out),
                            Placeholder::Rest => encode_value(rest, &mut out),
                        }
                    }
                }
            }
        }
        out
    }
}

impl QueryPart {
    fn parse(text: &str) -> QueryPart {
        if text == "$query" {
            return QueryPart::Query;
        }
        let mut pieces = Vec::new();
        let mut left = text;
        while !left.is_empty() {
            let end = left.find('$').unwrap_or(left.len());
            let (before, name) = left.split_at(end);
            let (follows, after) = match (name.strip_prefix("$path"), name.strip_prefix("$rest")) {
                (Some(after), _) => (Placeholder::Path, after),
                (_, Some(after)) => (Placeholder::Rest, after),
                // Not reached: the configuration refuses other placeholders.
                _ => (Placeholder::Nothing, ""),
            };
            pieces.push((before.into(), follows));
            left = after;
        }
        QueryPart::Text(pieces.into())
    }
}

/// Strips `&` at both ends, since an empty part joins nothing.
fn without_ends(mut query: &[u8]) -> &[u8] {
    while let [b'&', rest @ ..] | [rest @ .., b'&'] = query {
        query = rest;
    }
    query
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_filled_in() {
        let fill = |text: &str, query: Option<&str>| {
            let (_, pattern) = QueryPattern::split(text);
            let filled = pattern.map(|pattern| {
                pattern.fill(
                    "/wiki/a b&c=d/é+%".as_bytes(),
                    "/a b&c=d/é+%".as_bytes(),
                    query.map(str::as_bytes),
                )
            });
            filled.map(|filled| String::from_utf8_lossy(&filled).into_owned())
        };
        let path = "/wiki/a%20b%26c%3Dd/%C3%A9%2B%25";
        let rest = "a%20b%26c%3Dd/%C3%A9%2B%25";
        for (text, query, expected) in [
            ("/a", Some("x"), None),
            ("/a?b=c", Some("x"), Some("b=c".to_owned())),
            ("/a?", Some("x"), Some(String::new())),
            ("/a?q=$path&$query", None, Some(format!("q={path}"))),
            ("/a?q=$path&$query", Some(""), Some(format!("q={path}"))),
            ("/a?q=$path&$query", Some("&&"), Some(format!("q={path}"))),
            (
                "/a?q=$path&$query",
                Some("x=1&y"),
                Some(format!("q={path}&x=1&y")),
            ),
            ("/a?$query&q=$rest", None, Some(format!("q={rest}"))),
            ("/a?$query&q=$rest", Some("x&"), Some(format!("x&q={rest}"))),
            (
                "/a?q=<$rest|$path>&",
                None,
                Some(format!("q=<{rest}|{path}>")),
            ),
            ("/a?$query", None, Some(String::new())),
            ("/a?$query", Some("x?y=%2F"), Some("x?y=%2F".to_owned())),
        ] {
            assert_eq!(fill(text, query), expected, "{text} {query:?}");
        }
    }
}
