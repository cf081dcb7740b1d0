//! Values of other servers that the reader refuses, each with the value of this server.

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
    ("rotate", "hourly", BY_SIZE),
    ("rotate", "daily", BY_SIZE),
    ("rotate", "weekly", BY_SIZE),
    ("rotate", "monthly", BY_SIZE),
    ("rotate", "1d", BY_SIZE),
    ("rotate", "7d", BY_SIZE),
];

const DENY_ALL: &str = "remove `deny` beside `allow`, since all other addresses are refused anyway; alone, write \
     allow = [] to refuse all clients";
const ALLOW_ALL: &str = "remove `allow`: without the key, all clients have access";
pub(super) const BY_SIZE: &str =
    "logrotate rotates by day; the server rotates by size: write rotate = \"100MiB\"";

/// Returns the help for a value of another server that the reader refuses.
pub(super) fn value_help(key: &str, text: &str) -> Option<String> {
    if text.starts_with("{$") || text.starts_with("{env.") {
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
    let is_word = |word: &str| word.contains('.') || word.bytes().all(|it| it.is_ascii_uppercase());
    let is_list = text.contains([',', '|']) || words().all(is_word);
    let quoted: Vec<String> = words().map(|word| format!("\"{word}\"")).collect();
    (quoted.len() > 1 && is_list && text.chars().all(is_plain))
        .then(|| format!("write {key} = [{}]", quoted.join(", ")))
}
