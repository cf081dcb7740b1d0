//! Values of other servers that the reader refuses, each with the value of this server.

use toml::de::DeValue;

/// Returns the help for a key of another server that depends on the value.
pub(super) fn valued_key_help(table: &str, key: &str, value: &DeValue<'_>) -> Option<String> {
    if let Some(help) = shaped_help(table, key, value) {
        return Some(help);
    }
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

/// Returns the help for a key and a value as another server, such as nginx, writes them.
fn shaped_help(table: &str, key: &str, value: &DeValue<'_>) -> Option<String> {
    match (table, key, value) {
        ("a redirect", "permanent", DeValue::Boolean(is_permanent)) => Some(if *is_permanent {
            "write status = 301; without the key the status is 308, permanent too".to_owned()
        } else {
            "write status = 302 for a redirect that browsers do not keep".to_owned()
        }),
        (
            "the file",
            "http" | "tcp" | "entryPoints" | "providers" | "certificatesResolvers",
            DeValue::Table(inside),
        ) => {
            let is_traefik = key != "http"
                || ["routers", "services", "middlewares"]
                    .iter()
                    .any(|it| inside.contains_key(*it));
            is_traefik.then(|| {
                let name = host_of_rule(value).unwrap_or("www.example.org");
                format!(
                    "this is a table of Traefik: write [[site]] with names = [\"{name}\"], and below it [[site.route]] with \
                     path = \"/\" and proxy = \"http://127.0.0.1:9000\""
                )
            })
        }
        ("[[site.route]]" | "the table `proxy`" | "[[balancer]]", "timeout", _) => {
            let written = match value {
                DeValue::String(text) => format!(" = \"{text}\""),
                DeValue::Integer(number) => format!(" = {}", number.as_str()),
                _ => String::new(),
            };
            let place = match table {
                "[[site.route]]" => " in the table `proxy` of the route, or in [[balancer]]",
                _ => "",
            };
            Some(format!(
                "write first_byte_timeout{written} (until the response begins) or silence_timeout{written} (within it){place}"
            ))
        }
        ("[[balancer]]", "httpchk" | "option_httpchk", DeValue::String(text)) => {
            let path = text
                .split_ascii_whitespace()
                .find(|word| word.starts_with('/'));
            Some(format!(
                "write health = {{ path = \"{}\" }}",
                path.unwrap_or("/health")
            ))
        }
        _ => None,
    }
}

/// Returns the host of the first rule of Traefik in a table, such as ``Host(`a.example.org`)``.
fn host_of_rule<'v>(value: &'v DeValue<'_>) -> Option<&'v str> {
    match value {
        DeValue::String(text) => text.split_once("Host(`")?.1.split('`').next(),
        DeValue::Table(table) => table.values().find_map(|it| host_of_rule(it.get_ref())),
        _ => None,
    }
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
    if is_number(usual)
        && let Some(number) = word
            .strip_suffix(['k', 'K'])
            .and_then(|it| it.parse::<u32>().ok())
    {
        return Some(format!("write {key} = {}", u64::from(number) * 1_000));
    }
    if is_number(usual)
        && let Some(number) = word
            .strip_suffix('d')
            .filter(|it| !it.is_empty() && is_number(it))
        && key == "keep"
    {
        return Some(format!(
            "`keep` is a number of files: write keep = {number}"
        ));
    }
    if is_number(usual) && word.starts_with("${") {
        return Some(format!(
            "a number cannot come from a variable: write {key} = {usual}"
        ));
    }
    // A field of a response or a variable of scripts is text.
    if usual == "\"text\"" && !value.is_str() {
        return Some(format!("write {key} = \"{word}\""));
    }
    (value.is_str() && is_number(usual) && !word.is_empty() && is_number(word))
        .then(|| format!("write the number without quotes: {key} = {word}"))
}

/// Returns the help for a value of a type that means something to another server.
fn typed_help(key: &str, value: &DeValue<'_>) -> Option<String> {
    Some(match (key, value) {
        ("symlinks", DeValue::Boolean(true)) => "write symlinks = \"follow\"".to_owned(),
        ("symlinks", DeValue::Boolean(false)) => {
            "write symlinks = \"inside\": links to other folders get 404".to_owned()
        }
        ("export", DeValue::Boolean(true)) => "write export = \"all\"".to_owned(),
        ("export", DeValue::Boolean(false)) => {
            "remove `export`: without the key, a repository needs the file git-daemon-export-ok"
                .to_owned()
        }
        ("cors", DeValue::Boolean(true)) => {
            "write cors = \"*\" for all origins, or each origin such as \"https://app.example.org\""
                .to_owned()
        }
        ("log" | "access", DeValue::Boolean(true)) => {
            format!("remove `{key}`, or write {key} = \"-\" for the standard output")
        }
        ("rate", DeValue::Float(number)) => {
            let rate: f64 = number.as_str().parse().ok().filter(|rate| *rate > 0.0)?;
            // A rate of less than 1 becomes 1 request in a longer time.
            if rate < 1.0 {
                format!(
                    "write rate = {{ requests = 1, per = \"{}s\" }}",
                    (1.0 / rate).round() as u64
                )
            } else {
                format!(
                    "write rate = {{ requests = {}, per = \"10s\" }}",
                    (rate * 10.0).round() as u64
                )
            }
        }
        ("users", DeValue::Array(_) | DeValue::Table(_)) => {
            let name = match value {
                DeValue::Array(list) => list.iter().find_map(|it| it.get_ref().as_str()),
                DeValue::Table(table) => table.keys().next().map(|it| it.get_ref().as_ref()),
                _ => None,
            };
            let name = name
                .filter(|it| it.bytes().all(|byte| byte.is_ascii_alphanumeric()))
                .unwrap_or("NAME");
            format!(
                "write users = \"users.htpasswd\"; `anthill passwd users.htpasswd {name}` makes the file"
            )
        }
        ("retries", DeValue::Integer(number)) => {
            format!("write retries = {{ attempts = {} }}", number.as_str())
        }
        ("files", DeValue::Array(list)) => {
            let texts: Option<Vec<&str>> = list.iter().map(|it| it.get_ref().as_str()).collect();
            let texts = texts?;
            let endings: Option<Vec<&str>> = texts.iter().map(|it| it.strip_prefix("*.")).collect();
            let pattern = match endings {
                Some(endings) => format!("*.{{{}}}", endings.join(",")),
                None => format!("{{{}}}", texts.join(",")),
            };
            format!("write one pattern: files = \"{pattern}\"")
        }
        ("status", DeValue::Array(list)) => {
            let numbers: Option<Vec<&str>> = list
                .iter()
                .map(|it| Some(it.get_ref().as_integer()?.as_str()))
                .collect();
            let numbers = numbers?;
            let (low, high) = (numbers.iter().min()?, numbers.iter().max()?);
            format!("write status = \"{low}-{high}\"")
        }
        ("env" | "request_headers" | "response_headers", DeValue::Array(list)) => {
            let pairs = list
                .iter()
                .filter_map(|it| it.get_ref().as_str()?.split_once(['=', ':']));
            let pairs: Vec<String> = pairs
                .map(|(name, value)| format!("\"{}\" = \"{}\"", name.trim(), value.trim()))
                .collect();
            (!pairs.is_empty()).then(|| format!("write {key} = {{ {} }}", pairs.join(", ")))?
        }
        ("headers", DeValue::Table(fields)) => {
            let written = || {
                fields
                    .iter()
                    .filter_map(|(name, value)| Some((name.get_ref(), value.get_ref().as_str()?)))
            };
            let has_variable = written().any(|(_, value)| value.starts_with(['$', '{']));
            let fields = written().map(|(name, value)| {
                let value = match value {
                    "$remote_addr"
                    | "{remote_host}"
                    | "{client_ip}"
                    | "{http.request.remote.host}" => "{client}",
                    other => other,
                };
                format!("\"{name}\" = \"{value}\"")
            });
            let fields = fields.collect::<Vec<_>>().join(", ");
            if has_variable {
                format!(
                    "for the member write request_headers = {{ {fields} }} in the table `proxy` or `balance` of the route"
                )
            } else {
                format!("for clients write headers = [{{ files = \"*\", set = {{ {fields} }} }}]")
            }
        }
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
