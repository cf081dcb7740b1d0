//! Variables of other servers, and unknown placeholders, in the values of fields.

/// Beginnings of variables of nginx, Caddy, HAProxy and Apache.
static VARIABLES: &[&str] = &[
    "$binary_remote_addr",
    "$connection_upgrade",
    "$cookie_",
    "$host",
    "$http_",
    "$proxy_",
    "$realip_",
    "$remote_",
    "$request_",
    "$scheme",
    "$server_",
    "$ssl_",
    "${",
    "{client_ip",
    "{host",
    "{http.",
    "{remote",
    "{scheme",
    "%[",
    "%{",
];

/// Returns the variable of another server in a value.
pub(super) fn foreign_variable(value: &str) -> Option<&str> {
    let at = VARIABLES
        .iter()
        .filter_map(|variable| value.find(variable))
        .min()?;
    let rest = &value[at..];
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    let name_at = rest.find(is_part).unwrap_or(rest.len());
    let name_end = rest[name_at..].find(|c| !is_part(c));
    let end = name_end.map_or(rest.len(), |end| name_at + end);
    let closing = rest[end..].starts_with(['}', ']']);
    Some(&rest[..end + usize::from(closing)])
}

/// Returns the first placeholder in a value, such as `{name}`, that is not among the known ones. JSON in a value is no
/// placeholder.
pub(super) fn unknown_placeholder<'v>(value: &'v str, known: &[&str]) -> Option<&'v str> {
    let starts = value.match_indices('{').map(|(at, _)| &value[at..]);
    let mut placeholders = starts.filter_map(|rest| {
        let is_part = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
        let end = 1 + rest[1..].find(|c| !is_part(c))?;
        (end > 1 && rest[end..].starts_with('}')).then_some(&rest[..=end])
    });
    placeholders.find(|placeholder| !known.contains(placeholder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_names_in_braces() {
        let table = [
            ("{client}", None),
            ("a {user}, b {clients}", Some("{clients}")),
            ("{x.y-z_1}", Some("{x.y-z_1}")),
            ("{{name}}", Some("{name}")),
            ("{\"client\":1}", None),
            ("{ a }", None),
            ("{}{", None),
            ("{a", None),
        ];
        for (value, found) in table {
            let known = ["{client}", "{user}"];
            assert_eq!(unknown_placeholder(value, &known), found, "{value}");
        }
    }

    #[test]
    fn variables_of_other_servers_are_found() {
        let table = [
            ("$remote_addr", Some("$remote_addr")),
            (
                "a, $proxy_add_x_forwarded_for;b",
                Some("$proxy_add_x_forwarded_for"),
            ),
            ("$scheme://$host", Some("$scheme")),
            ("${remote_addr}", Some("${remote_addr}")),
            (
                "{http.request.remote.host}",
                Some("{http.request.remote.host}"),
            ),
            ("{remote_host}:1", Some("{remote_host}")),
            ("%[src]", Some("%[src]")),
            ("%{REMOTE_ADDR}s", Some("%{REMOTE_ADDR}")),
            ("%{", Some("%{")),
            ("{client}", None),
            ("{\"client\":1}", None),
            ("5 $", None),
            ("pa$$word", None),
            ("100%", None),
        ];
        for (value, variable) in table {
            assert_eq!(foreign_variable(value), variable, "{value}");
        }
    }
}
