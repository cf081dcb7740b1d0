//! Values of other servers that the reader refuses, each with the value of this server.

use toml::de::DeValue;

/// Returns the help for a key of another server that depends on the value.
pub(super) fn valued_key_help(table: &str, key: &str, value: &DeValue<'_>) -> Option<String> {
    let place = match table {
        "[[site.route]]" => "",
        "[[site]]" => " in a [[site.route]] with `path`",
        _ => return None,
    };
    let number = value.as_integer().map(|number| number.as_str());
    let text = number.or_else(|| value.as_str()).unwrap_or_default();
    let is_status = text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
    match key {
        "status" | "respond" => {}
        "return" | "error" if is_status => {}
        _ => return None,
    }
    Some(match text {
        "301" | "302" | "303" | "307" | "308" => {
            format!("write redirect = {{ to = \"/new/\", status = {text} }}{place}")
        }
        "403" | "404" | "410" | "451" => format!("write status = {text}{place}"),
        _ => format!(
            "write status = 404{place}, or 403, 410 or 451: a route has no answer with another status"
        ),
    })
}

/// Returns the help for a text that needs no quotes, or for a word instead of `true` and `false`. `usual` is a value of the
/// expected type.
pub(super) fn plain_help(key: &str, value: &DeValue<'_>, usual: &str) -> Option<String> {
    if let Some(help) = typed_help(key, value) {
        return Some(help);
    }
    let word = match value {
        DeValue::String(text) => text.trim(),
        DeValue::Integer(number) => number.as_str(),
        _ => return None,
    };
    if usual == "true" {
        return match word.to_ascii_lowercase().as_str() {
            "true" | "on" | "yes" | "1" | "enabled" => Some(format!("write {key} = true")),
            "false" | "off" | "no" | "0" | "disabled" => Some(format!("write {key} = false")),
            _ => None,
        };
    }
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    (value.is_str() && is_number(usual) && !word.is_empty() && is_number(word))
        .then(|| format!("write the number without quotes: {key} = {word}"))
}

/// Returns the help for a value of a type that means something to another server.
fn typed_help(key: &str, value: &DeValue<'_>) -> Option<String> {
    Some(match (key, value) {
        ("http" | "https" | "log" | "access" | "errors", DeValue::Boolean(false)) => {
            format!("write {key} = \"off\"")
        }
        ("proxy", DeValue::Integer(port)) => {
            format!("write proxy = \"http://127.0.0.1:{}\"", port.as_str())
        }
        ("fastcgi" | "scgi", DeValue::Integer(port)) => {
            format!("write {key} = \"127.0.0.1:{}\"", port.as_str())
        }
        ("proxy", DeValue::Array(_)) => SEVERAL_MEMBERS.to_owned(),
        ("path", DeValue::Array(_)) => "write a [[site.route]] for each path".to_owned(),
        ("redirect", DeValue::Integer(status)) => match status.as_str() {
            "410" => "write redirect = { status = 410 }".to_owned(),
            status => format!("write redirect = {{ to = \"/new/\", status = {status} }}"),
        },
        ("set", DeValue::String(field)) if field.contains(": ") => {
            let (name, value) = field.split_once(": ")?;
            format!("write set = {{ \"{name}\" = \"{}\" }}", value.trim())
        }
        _ => return None,
    })
}

/// Help for several servers in one `proxy`.
pub(super) const SEVERAL_MEMBERS: &str = "write [[balancer]] with name = \"app\" and the URLs in `members`, and balance = \"app\" in the route";

/// Refused values of other servers: the key, the value, and the help.
static VALUES: &[(&str, &str, &str)] = &[
    ("per", "second", "write per = \"1s\""),
    ("per", "minute", "write per = \"1m\""),
    ("per", "hour", "write per = \"1h\""),
    ("per", "day", "write per = \"1d\""),
    ("deny", "all", DENY_ALL),
    ("deny", "*", DENY_ALL),
    ("allow", "all", ALLOW_ALL),
    ("allow", "*", ALLOW_ALL),
    ("allow", "any", ALLOW_ALL),
    ("deny", "any", DENY_ALL),
    ("host", "$host", HOST_OF_CLIENT),
    ("host", "$http_host", HOST_OF_CLIENT),
    ("host", "{host}", HOST_OF_CLIENT),
    ("host", "{http.request.host}", HOST_OF_CLIENT),
    ("host", "$proxy_host", "write host = \"member\""),
    ("host", "{upstream_hostport}", "write host = \"member\""),
    ("rotate", "hourly", BY_SIZE),
    ("rotate", "daily", BY_SIZE),
    ("rotate", "weekly", BY_SIZE),
    ("rotate", "monthly", BY_SIZE),
    ("rotate", "1d", BY_SIZE),
    ("rotate", "7d", BY_SIZE),
];

const HOST_OF_CLIENT: &str =
    "remove `host`: the member gets the Host of the client without the key";
const DENY_ALL: &str = "remove `deny` beside `allow`, since all other addresses are refused anyway; alone, write \
     allow = [] to refuse all clients";
const ALLOW_ALL: &str = "remove `allow`: without the key, all clients have access";
pub(super) const BY_SIZE: &str =
    "logrotate rotates by day; the server rotates by size: write rotate = \"100MiB\"";

/// Returns the help for a value of another server that the reader refuses.
pub(super) fn value_help(key: &str, text: &str) -> Option<String> {
    if text.contains("{$") || text.contains("{env.") {
        let written = text.replace("{env.", "${").replace("{$", "${");
        return Some(format!("write the variable as \"{written}\""));
    }
    let mut values = VALUES.iter();
    if let Some((_, _, help)) = values.find(|it| (it.0, it.1) == (key, text)) {
        return Some((*help).to_owned());
    }
    // Rates of nginx, such as 10r/s.
    let (count, unit) = text.split_once('/').filter(|_| key == "rate")?;
    let count: u32 = count.trim_end_matches(['r', ' ']).parse().ok()?;
    Some(match unit.trim_start().bytes().next()? {
        b's' => format!("write rate = {count}"),
        unit @ (b'm' | b'h' | b'd') => {
            let unit = char::from(unit);
            format!("write rate = {{ requests = {count}, per = \"1{unit}\" }}")
        }
        _ => return None,
    })
}

/// Returns a list as TOML for several words in one text, such as `GET,POST`.
pub(super) fn list_help(key: &str, text: &str) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ", |.-_*:/".contains(c);
    let words = || text.split([',', ' ', '|']).filter(|word| !word.is_empty());
    // A space alone may be a typing mistake within a word.
    let is_word = |word: &str| {
        word.contains('.') || word.contains("://") || word.bytes().all(|it| it.is_ascii_uppercase())
    };
    let is_list = text.contains([',', '|']) || words().all(is_word);
    let quoted = words().map(|word| match key {
        "members" if !word.contains("://") => format!("\"http://{word}\""),
        _ => format!("\"{word}\""),
    });
    let quoted: Vec<String> = quoted.collect();
    (quoted.len() > 1 && is_list && text.chars().all(is_plain))
        .then(|| format!("write {key} = [{}]", quoted.join(", ")))
}
