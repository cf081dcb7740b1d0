//! Parsers of configuration values: addresses, durations, sizes, host names, field names.
//!
//! The parsers are pure functions. An [`InvalidValue`] holds the mistake and a correct example, and the
//! reader of the file adds the line.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use toml::Spanned;

/// Error of a parser, with the mistake and a correct example.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InvalidValue {
    pub(super) what: String,
    pub(super) help: String,
}

pub(super) fn wrong<T>(
    what: impl Into<String>,
    help: impl Into<String>,
) -> Result<T, InvalidValue> {
    Err(InvalidValue {
        what: what.into(),
        help: help.into(),
    })
}

/// Address to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListenAddress {
    /// Address to bind. `[::]` means all addresses of both families, unless `v6_only`.
    pub address: SocketAddr,
    /// True if another address of the configuration covers the IPv4 half of `[::]`.
    pub v6_only: bool,
    /// True if every connection begins with a header of the PROXY protocol.
    pub proxy_protocol: bool,
}

impl ListenAddress {
    /// Returns the address for all interfaces, IPv4 and IPv6.
    pub(crate) const fn all(port: u16) -> ListenAddress {
        let address = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port);
        ListenAddress {
            address,
            v6_only: false,
            proxy_protocol: false,
        }
    }

    /// Returns the IPv4 address to bind on a machine without IPv6; `None` if the address has no IPv4 half.
    pub(crate) fn without_ipv6(&self) -> Option<SocketAddr> {
        let all = self.address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) && !self.v6_only;
        all.then(|| SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), self.address.port()))
    }

    /// Returns true if two sockets can't listen on the addresses at the same time, for both are equal or one stands for all
    /// addresses.
    pub(super) fn meets(&self, other: &ListenAddress) -> bool {
        let covers = |all: &ListenAddress, one: &ListenAddress| {
            let is_v4 = one.address.ip().to_canonical().is_ipv4();
            match all.address.ip() {
                IpAddr::V4(ip) => ip.is_unspecified() && is_v4,
                IpAddr::V6(ip) => ip.is_unspecified() && (!is_v4 || !all.v6_only),
            }
        };
        let is_equal = self.address.ip().to_canonical() == other.address.ip().to_canonical();
        let port = self.address.port();
        port != 0
            && port == other.address.port()
            && (is_equal || covers(self, other) || covers(other, self))
    }

    /// Reads `[::]:8443`, `0.0.0.0:80`, `:443`, `*:443` or `443`.
    pub(super) fn parse(text: &str) -> Result<ListenAddress, InvalidValue> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(ListenAddress {
                address,
                v6_only: false,
                proxy_protocol: false,
            });
        }
        let port = text.rsplit(':').next().unwrap_or_default();
        let is_number = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
        if is_number && port.parse::<u16>().is_err() {
            return wrong(
                format!("the port {port} is too large"),
                "write a port from 1 to 65535",
            );
        }
        let all = text
            .strip_prefix("*:")
            .or_else(|| text.strip_prefix(':'))
            .unwrap_or(text);
        if let Ok(port) = all.parse()
            && is_number
        {
            return Ok(ListenAddress::all(port));
        }
        let what = format!("`{text}` is not an address to listen on");
        let whole = text.trim_matches(['[', ']']).parse::<IpAddr>().ok();
        let whole = whole.map(|ip| format!("\"{}\"", SocketAddr::new(ip, 8443)));
        let split = text.rsplit_once(':').and_then(|(ip, port)| {
            let (ip, port) = (ip.parse::<Ipv6Addr>().ok()?, port.parse::<u16>().ok()?);
            Some(format!("\"[{ip}]:{port}\""))
        });
        match (whole, split) {
            (Some(whole), Some(split)) => {
                let help = format!("put the IPv6 address in brackets: {split} or {whole}");
                return wrong(what, help);
            }
            (Some(whole), None) => return wrong(what, format!("add a port: {whole}")),
            (None, Some(split)) => {
                return wrong(what, format!("put the IPv6 address in brackets: {split}"));
            }
            (None, None) => {}
        }
        if ["none", "false", "no", "disabled"].contains(&text) {
            return wrong(what, "write \"off\" for no address");
        }
        // Words of nginx behind the address, such as `ssl http2`.
        if let Some((first, _)) = text.split_once([' ', '\t'])
            && ListenAddress::parse(first).is_ok()
        {
            let help = format!("write the address alone: \"{first}\"; TLS and HTTP/2 need no word");
            return wrong(what, help);
        }
        if let Some((_, rest)) = text.split_once("://") {
            let rest = rest.split('/').next().unwrap_or_default();
            return match ListenAddress::parse(rest) {
                Ok(_) => wrong(
                    what,
                    format!("write the address without the scheme: \"{rest}\""),
                ),
                Err(inner) => wrong(what, inner.help),
            };
        }
        if let Some((host, port)) = text.rsplit_once(':')
            && port.parse::<u16>().is_ok()
            && host.bytes().any(|b| b.is_ascii_alphabetic())
        {
            return wrong(
                what,
                format!(
                    "write an address instead of a name: \"127.0.0.1:{port}\", or \":{port}\" for \
                     all addresses; the name belongs in `names` of the [[site]]"
                ),
            );
        }
        wrong(
            what,
            "for example \":8443\" (all addresses), \"127.0.0.1:8080\" or \"[::1]:8080\"",
        )
    }
}

/// Address to listen on, with its key in the file.
pub(super) type KeyedAddress<'a> = (&'static str, &'a mut Spanned<ListenAddress>);

/// Sets `v6_only` on `[::]` next to `0.0.0.0`. Fails with the positions of two listeners of which one covers the address of
/// the other: the kernel refuses the second bind. Port 0 gets a free port for each address.
pub(super) fn share_ports(addresses: &mut [KeyedAddress<'_>]) -> Result<(), (usize, usize)> {
    for later in 0..addresses.len() {
        for earlier in 0..later {
            let (this, other) = (
                *addresses[later].1.get_ref(),
                *addresses[earlier].1.get_ref(),
            );
            if this.without_ipv6() == Some(other.address) {
                addresses[later].1.get_mut().v6_only = true;
            } else if other.without_ipv6() == Some(this.address) {
                addresses[earlier].1.get_mut().v6_only = true;
            }
        }
    }
    for later in 0..addresses.len() {
        for earlier in 0..later {
            if addresses[later]
                .1
                .get_ref()
                .meets(addresses[earlier].1.get_ref())
            {
                return Err((earlier, later));
            }
        }
    }
    Ok(())
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

/// Parses a duration in whole seconds: `90`, `90s`, `10m`, `12h`, `30d`, `2w` or a sum such as `1h30m`.
pub fn parse_seconds(text: &str) -> Option<u64> {
    let duration = parse_duration(text)?;
    (duration.subsec_nanos() == 0).then_some(duration.as_secs())
}

/// Parses a duration: `90` (seconds), `500ms`, `90s`, `10m`, `12h`, `30d`, `2w` or a sum such as `1s500ms`.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        if rest.is_empty() && digits == text.len() {
            return Some(Duration::from_secs(number));
        }
        let letters = rest.bytes().take_while(u8::is_ascii_lowercase).count();
        let seconds = match &rest[..letters] {
            "ms" => 0,
            "s" => 1,
            "m" => 60,
            "h" => 3_600,
            "d" => 86_400,
            "w" => 604_800,
            _ => return None,
        };
        rest = &rest[letters..];
        total = total.checked_add(match seconds {
            0 => Duration::from_millis(number),
            seconds => Duration::from_secs(number.checked_mul(seconds)?),
        })?;
    }
    (!text.is_empty()).then_some(total)
}

/// Parses a size as bytes: `4096`, `64KiB`, `64MiB`, `1GiB` (also `64K`, `64M`, `1G`) or, in powers of
/// 1000, `64MB`.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let number: u64 = text[..digits].parse().ok()?;
    let unit: u64 = match text[digits..].trim_start().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        _ => return None,
    };
    number.checked_mul(unit)
}

/// Parses a site's name into lower case: a host name, an address, `*.` before a host name, or `*`.
pub(super) fn site_name(text: &str) -> Result<String, InvalidValue> {
    let name = text.to_ascii_lowercase();
    if name == "*" {
        return Ok(name);
    }
    let what = format!("`{text}` is not a host name");
    if let Some(ip) = name.strip_prefix('[').and_then(|n| n.strip_suffix(']')) {
        return match ip.parse::<Ipv6Addr>() {
            Ok(ip) => Ok(format!("[{ip}]")),
            Err(_) => wrong(
                what,
                "write an IPv6 address in brackets, or a name such as \"example.org\"",
            ),
        };
    }
    if name.is_empty() || name == "_" {
        return wrong(what, "write names = [\"*\"] for every name");
    }
    if let Some(bare) = name.strip_prefix('.')
        && check_host(String::new(), bare).is_ok()
    {
        let help = format!("write the name, and the names below: \"{bare}\", \"*.{bare}\"");
        return wrong(what, help);
    }
    if is_regular_expression(&name) {
        let help = "a name has no regular expression: write \"*.example.org\" for all names below, or \"*\" for every name";
        return wrong(what, help);
    }
    if let Ok(ip) = name.parse::<Ipv6Addr>() {
        return wrong(
            what,
            format!("write an IPv6 address in brackets: \"[{ip}]\""),
        );
    }
    if let Some(variable) = text.strip_prefix('$').filter(|it| is_variable(it)) {
        return wrong(what, format!("write the variable as \"${{{variable}}}\""));
    }
    if text.starts_with('<') && text.ends_with('>') {
        let help = format!(
            "`{text}` stands for a name: write the name of the site, such as \"www.example.org\""
        );
        return wrong(what, help);
    }
    if let Some((_, rest)) = text.split_once("Host(`") {
        let bare = rest.split('`').next().unwrap_or_default();
        return wrong(what, format!("write the name alone: \"{bare}\""));
    }
    if let Some((start, rest)) = name.split_once('{')
        && let Some((words, end)) = rest.split_once('}')
        && words.contains(',')
    {
        let names: Vec<String> = words
            .split(',')
            .map(|word| format!("\"{start}{}{end}\"", word.trim()))
            .collect();
        return wrong(what, format!("write each name: {}", names.join(", ")));
    }
    if name.contains("..") {
        let mut bare = name.clone();
        while bare.contains("..") {
            bare = bare.replace("..", ".");
        }
        return wrong(
            what,
            format!(
                "write one dot between two parts: \"{}\"",
                bare.trim_matches('.')
            ),
        );
    }
    if let Some((bare, path)) = name.split_once('/')
        && check_host(String::new(), bare).is_ok()
    {
        let help = format!("write the name \"{bare}\", and [[site.route]] with path = \"/{path}\"");
        return wrong(what, help);
    }
    let port = name
        .strip_prefix("http://")
        .or(name.strip_prefix("https://"));
    if let Some(port) = port.unwrap_or(&name).strip_prefix(':') {
        let port = port.trim_end_matches('/');
        let help = format!(
            "a port alone is an address: write http = [\":{port}\"] in [server], and names = [\"*\"] for every name"
        );
        return wrong(what, help);
    }
    let host = name.strip_prefix("*.").unwrap_or(&name);
    check_host(what, host)?;
    Ok(name)
}

/// Fails with `what` and the correction if `host` is not a host name.
pub(super) fn check_host(what: String, host: &str) -> Result<(), InvalidValue> {
    let is_url = host.split_once("://").map(|(_, rest)| rest);
    if let Some(rest) = is_url {
        let bare = rest.split(['/', ':']).next().unwrap_or_default();
        return wrong(
            what,
            format!("write the name without scheme and path: \"{bare}\""),
        );
    }
    if let Some((bare, port)) = host.split_once(':')
        && port.bytes().all(|b| b.is_ascii_digit())
    {
        return wrong(
            what,
            format!("write the name without port, since a name holds on every port: \"{bare}\""),
        );
    }
    if let Some(bare) = host.strip_suffix('.') {
        let bare = ascii_name(bare);
        return wrong(
            what,
            format!("write the name without the last dot: \"{bare}\""),
        );
    }
    if !host.is_ascii() {
        return wrong(
            what,
            format!("write the ASCII form of the name: \"{}\"", ascii_name(host)),
        );
    }
    if host.contains('*') {
        return wrong(
            what,
            "a `*` must be the whole name or the whole first label: \"*.example.org\"",
        );
    }
    let label_is_right = |label: &str| {
        (1..=63).contains(&label.len())
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if host.is_empty() || host.len() > 253 || !host.split('.').all(label_is_right) {
        return wrong(
            what,
            "a name has letters, digits and hyphens between dots, such as \"www.example.org\"",
        );
    }
    Ok(())
}

/// Returns true for the name of a variable of the environment, as the shell writes the name.
fn is_variable(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Returns true for a regular expression, written as in nginx or Apache httpd.
pub(super) fn is_regular_expression(text: &str) -> bool {
    text.starts_with(['~', '^']) || text.ends_with('$')
}

/// Returns the ASCII form of an international name (RFC 3490 §4).
fn ascii_name(name: &str) -> String {
    let labels = name.split('.').map(|label| {
        if label.is_ascii() {
            label.to_owned()
        } else {
            format!("xn--{}", punycode(&label.to_lowercase()))
        }
    });
    labels.collect::<Vec<_>>().join(".")
}

/// Encodes a label by the algorithm of RFC 3492 §6.3. Only the first 63 characters count, the most that a label can
/// have, so no number overflows.
fn punycode(label: &str) -> String {
    let letters: Vec<u32> = label.chars().take(63).map(u32::from).collect();
    let mut code: String = label.chars().take(63).filter(char::is_ascii).collect();
    let basic = code.len() as u32;
    if basic > 0 {
        code.push('-');
    }
    let (mut least, mut delta, mut bias, mut done) = (128, 0, 72, basic);
    while let Some(next) = letters.iter().copied().filter(|it| *it >= least).min() {
        delta += (next - least) * (done + 1);
        for &letter in &letters {
            delta += u32::from(letter < next);
            if letter != next {
                continue;
            }
            let mut rest = delta;
            for weight in (36..).step_by(36) {
                let threshold = u32::saturating_sub(weight, bias).clamp(1, 26);
                let is_last = rest < threshold;
                let digit = if is_last {
                    rest
                } else {
                    threshold + (rest - threshold) % (36 - threshold)
                };
                code.push(char::from(
                    b"abcdefghijklmnopqrstuvwxyz0123456789"[digit as usize],
                ));
                if is_last {
                    break;
                }
                rest = (rest - threshold) / (36 - threshold);
            }
            delta /= if done == basic { 700 } else { 2 };
            done += 1;
            delta += delta / done;
            bias = 0;
            while delta > 455 {
                delta /= 35;
                bias += 36;
            }
            bias += 36 * delta / (delta + 38);
            delta = 0;
        }
        delta += 1;
        least = next + 1;
    }
    code
}

/// Returns true if a string is a field name (a token, RFC 9110 §5.6.2).
pub(super) fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

/// Returns true if a string is a valid field value (RFC 9110 §5.5): no control characters, no space at
/// either end.
pub(super) fn is_field_value(text: &str) -> bool {
    text.chars().all(|c| c == '\t' || !c.is_control()) && text.trim() == text
}

/// Returns the reason why a field can't be set by the operator, or `None` if the field can be set. The
/// server derives the reserved fields from the connection, the file, `mime` or `encodings`.
pub(super) fn reserved_field(name: &str) -> Option<&'static str> {
    let framing = [
        "connection",
        "content-length",
        "content-range",
        "date",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    let validators = ["etag", "last-modified"];
    if framing.iter().any(|field| name.eq_ignore_ascii_case(field)) {
        return Some("remove the field: the server sets it to frame the response");
    }
    if validators
        .iter()
        .any(|field| name.eq_ignore_ascii_case(field))
    {
        return Some("remove the field: the server computes it from the file");
    }
    if name.eq_ignore_ascii_case("content-type") {
        return Some("use `mime = { \".ext\" = \"type/subtype\" }`");
    }
    if name.eq_ignore_ascii_case("content-encoding") {
        return Some("use `encodings = [{ files = \"*.js.gz\", set = \"gzip\" }]`");
    }
    None
}

/// Returns the reason why a proxy can't set a field of requests, or `None` if the operator can set the field.
pub(super) fn reserved_request_field(name: &str) -> Option<&'static str> {
    match name {
        _ if name.eq_ignore_ascii_case("host") => Some("use `host`"),
        _ if name.eq_ignore_ascii_case("expect") => {
            Some("remove the field: the server answers and sends expectations itself")
        }
        _ if name.eq_ignore_ascii_case("via") => {
            Some("remove the field: `Via` names this server, so that a loop of proxies ends")
        }
        _ => reserved_response_field(name),
    }
}

/// Returns the reason why a proxy can't set a field of responses, or `None` if the operator can set the field.
/// The reserved fields are the fields of one connection and the framing (RFC 9110 §7.6.1).
pub(super) fn reserved_response_field(name: &str) -> Option<&'static str> {
    let reserved = [
        "connection",
        "content-length",
        "http2-settings",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    let mut reserved = reserved.into_iter();
    reserved
        .any(|field| name.eq_ignore_ascii_case(field))
        .then_some("remove the field: the server sets it for each connection")
}
