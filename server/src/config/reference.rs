//! Test of the guide's reference, and tests of every declared key.
//!
//! docs/src/configuration.md has a region for each declared table, between two comments. A test compares
//! each region with the declaration, and writes the regions anew if the environment variable
//! `WRITE_REFERENCE` is set.

use std::fs;
use std::path::{Path, PathBuf};

use toml::de::DeTable;

use crate::config::OperatorError;
use crate::config::acme_table::{AcmeTable, EabTable};
use crate::config::auth_table::AuthTable;
use crate::config::balancer_table::{
    BalancerTable, EjectTable, HealthTable, MemberTable, RetriesTable, StickyTable,
};
use crate::config::connection_table::ConnectionKeys;
use crate::config::declared_table::{
    DeclaredTable, KeyDefault, KeyDocumentation, TableDocumentation,
};
use crate::config::deploy_table::DeployTable;
use crate::config::file_rules::{CacheRuleTable, EncodingRuleTable, HeaderRuleTable};
use crate::config::limits_table::LimitsTable;
use crate::config::log_table::{LogTable, RotateTable, SiteLogTable, SkipTable};
use crate::config::manager_table::ManagerTable;
use crate::config::page_cache_table::PageCacheTable;
use crate::config::proxy_table::{BalanceTable, ForwardKeys, ListenerTable, ProxyTable};
use crate::config::redirect_table::{RouteRedirectTable, SiteRedirectTable};
use crate::config::request_table::{CorsTable, RateTable, RequestKeys};
use crate::config::route_table::RouteTable;
use crate::config::server_table::ServerTable;
use crate::config::site_table::SiteTable;
use crate::config::source_files::SourceFiles;
use crate::config::tls_table::TlsTable;
use crate::config::toml_reader::{SourceText, TableReader};

/// Returns all declared tables in the order of the reference.
fn documented_tables() -> Vec<TableDocumentation> {
    vec![
        ServerTable::documentation(),
        ListenerTable::documentation(),
        LimitsTable::documentation(),
        LogTable::documentation(),
        SkipTable::documentation(),
        RotateTable::documentation(),
        SiteLogTable::documentation(),
        TlsTable::documentation(),
        AcmeTable::documentation(),
        EabTable::documentation(),
        SiteTable::documentation(),
        CacheRuleTable::documentation(),
        HeaderRuleTable::documentation(),
        EncodingRuleTable::documentation(),
        SiteRedirectTable::documentation(),
        RouteTable::documentation(),
        RouteRedirectTable::documentation(),
        RequestKeys::documentation(),
        RateTable::documentation(),
        CorsTable::documentation(),
        DeployTable::documentation(),
        PageCacheTable::documentation(),
        AuthTable::documentation(),
        ProxyTable::documentation(),
        BalanceTable::documentation(),
        ForwardKeys::documentation(),
        ConnectionKeys::documentation(),
        BalancerTable::documentation(),
        MemberTable::documentation(),
        HealthTable::documentation(),
        StickyTable::documentation(),
        RetriesTable::documentation(),
        EjectTable::documentation(),
        ManagerTable::documentation(),
    ]
}

/// Returns all declared tables, each with the keys of the parts that no other table has.
fn tables() -> Vec<TableDocumentation> {
    documented_tables()
        .into_iter()
        .map(with_own_parts)
        .collect()
}

/// Moves the keys of parts with the name of the table into the table, and drops parts without a name.
fn with_own_parts(mut table: TableDocumentation) -> TableDocumentation {
    let parts = std::mem::take(&mut table.parts);
    for part in parts {
        match part.name {
            "" => {}
            name if name == table.name => table.keys.extend(part.keys),
            _ => table.parts.push(part),
        }
    }
    table
}

/// Reads `text` as a table, and returns the result of `read` or the first error.
fn read_text<T>(
    table: &TableDocumentation,
    text: &str,
    read: impl FnOnce(&mut TableReader<'_, '_>) -> Result<T, OperatorError>,
) -> Result<T, OperatorError> {
    let files = SourceFiles::single(text, "anthill.toml");
    let source = SourceText::new(&files, Path::new("/srv"), |_, _| None);
    let entries = DeTable::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let mut reader = TableReader::new(&source, table.schema, 0..0, entries.into_inner());
    let value = source.keep(read(&mut reader));
    let _ = reader.finish();
    match OperatorError::all(source.into_errors()) {
        Some(error) => Err(error),
        None => Ok(value.expect("a value or an error")),
    }
}

/// Reads `key = value` as a line of the table, and returns the formatted value.
fn read(
    table: &TableDocumentation,
    key: &KeyDocumentation,
    value: &str,
) -> Result<String, OperatorError> {
    read_text(table, &format!("{} = {value}", key.name), key.read)
}

/// Returns the type of a key: the type in the error about a date, since no key is a date.
fn type_name(table: &TableDocumentation, key: &KeyDocumentation) -> String {
    let error = read(table, key, "1979-05-27").expect_err("a date");
    let what = error.what();
    let mistyped = format!("`{}` must be ", key.name);
    let name = what.strip_prefix(&mistyped);
    let name = name.and_then(|rest| rest.strip_suffix(", not a date"));
    let name = name.unwrap_or_else(|| panic!("{what}"));
    let list = read(table, key, "[]");
    match list {
        Err(error) if error.what().starts_with(&mistyped) => name.to_owned(),
        _ if name.contains("a list") => name.to_owned(),
        _ => format!("a list; each item {name}"),
    }
}

/// Sets the quoted words of a text in code.
fn with_code(text: &str) -> String {
    let parts = text.split('"').enumerate();
    let parts = parts.map(|(nth, part)| match nth % 2 {
        0 => part.to_owned(),
        _ => format!("`\"{part}\"`"),
    });
    parts.collect()
}

/// Returns the table of the guide.
fn rendered(table: &TableDocumentation) -> String {
    let mut text = "| key | value | default | |\n|---|---|---|---|\n".to_owned();
    for key in &table.keys {
        let mut value = with_code(&type_name(table, key));
        if let Some((low, high)) = &key.bounds {
            value += &match high {
                Some(high) => format!(", from `{low}` to `{high}`"),
                None => format!(", from `{low}`"),
            };
        }
        let default = match &key.default {
            KeyDefault::Required => "required".to_owned(),
            KeyDefault::Words(words) => (*words).to_owned(),
            KeyDefault::EmptyTable => "`{}`".to_owned(),
            KeyDefault::Value(shown, _) => format!("`{shown}`"),
        };
        let lines: Vec<&str> = key.lines.iter().map(|line| line.trim()).collect();
        let (name, example) = (key.name, key.example);
        text += &format!(
            "| `{name}` | {value} | {default} | {} Example: `{name} = {example}` |\n",
            lines.join(" ")
        );
    }
    let parts = table.parts.iter().map(|part| part.name);
    let parts = parts.map(|name| format!("[{name}](#{})", name.replace(' ', "-")));
    let parts: Vec<String> = parts.collect();
    if !parts.is_empty() {
        text += &format!("\nFurther keys: {}.\n", parts.join(" and "));
    }
    text
}

/// Returns the page of the guide with a table.
fn page(table: &TableDocumentation) -> PathBuf {
    let name = match table.name {
        "limits" => "limits.md",
        _ => "configuration.md",
    };
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../docs/src")
        .join(name)
}

/// Compares a generated file with the committed file, or writes the file if `WRITE_REFERENCE` is set.
fn compare(path: &Path, text: &str) {
    if std::env::var_os("WRITE_REFERENCE").is_some() {
        fs::write(path, text).expect("the file can be written");
        return;
    }
    let committed = fs::read_to_string(path).unwrap_or_default();
    let mut lines = committed.lines().zip(text.lines());
    if let Some((is, expected)) = lines.find(|(is, expected)| is != expected) {
        panic!(
            "{} differs from the declarations:\n{is}\nshould be\n{expected}\n\
             write the file anew: WRITE_REFERENCE=1 cargo test -p anthill --lib reference",
            path.display()
        );
    }
    assert_eq!(committed, text);
}

#[test]
fn the_guide_has_every_declared_table() {
    let mut pages: Vec<(PathBuf, String)> = Vec::new();
    for table in tables() {
        let page = page(&table);
        if !pages.iter().any(|(path, _)| *path == page) {
            pages.push((page.clone(), fs::read_to_string(&page).expect("the guide")));
        }
        let (_, text) = pages
            .iter_mut()
            .find(|(path, _)| *path == page)
            .expect("the page");
        let begin = format!("<!-- {}: generated -->\n", table.name);
        let end = format!("<!-- {}: end -->\n", table.name);
        let (before, rest) = text
            .split_once(&begin)
            .unwrap_or_else(|| panic!("no {begin}"));
        let (_, after) = rest.split_once(&end).unwrap_or_else(|| panic!("no {end}"));
        *text = format!("{before}{begin}\n{}\n{end}{after}", rendered(&table));
    }
    for (path, text) in pages {
        compare(&path, &text);
    }
}

/// Returns a text of the guide for roff: links without their addresses, escaped.
fn roff(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once('[') {
        let (label, after) = link.split_once("](").unwrap_or((link, ""));
        match after.split_once(')') {
            Some((_, after)) if !label.contains('[') => {
                plain += &format!("{before}{label}");
                rest = after;
            }
            _ => {
                plain += &format!("{before}[");
                rest = link;
            }
        }
    }
    let plain = (plain + rest).replace('`', "");
    let plain = plain.replace('\\', "\\e").replace('-', "\\-");
    if plain.starts_with(['.', '\'']) {
        format!("\\&{plain}")
    } else {
        plain
    }
}

/// Returns the manual page of the configuration file.
fn manual_page() -> String {
    let mut page = ".TH ANTHILL.TOML 5 \"\" anthill \"File Formats\"\n.SH NAME\nanthill.toml \\- configuration of \
                    the web server anthill\n.SH DESCRIPTION\nA file in TOML. Every key has a default unless the \
                    page calls the key required.\n.B anthill check\ntests a file and reports all mistakes.\n.PP\n\
                    .B include\n= [\"sites.d/*.toml\"], above the first table, names files with further [[site]] \
                    and [[balancer]].\n${NAME} and ${NAME:\\-default} in a text stand for variables of the \
                    environment.\n"
        .to_owned();
    for table in tables() {
        page += &format!(".SH {}\n", roff(&table.name.to_uppercase()));
        for key in &table.keys {
            let mut value = type_name(&table, key);
            match &key.bounds {
                Some((low, Some(high))) => value += &format!(", from {low} to {high}"),
                Some((low, None)) => value += &format!(", from {low}"),
                None => {}
            }
            let default = match &key.default {
                KeyDefault::Required => "required".to_owned(),
                KeyDefault::Words(words) => format!("default: {words}"),
                KeyDefault::EmptyTable => "default: {}".to_owned(),
                KeyDefault::Value(shown, _) => format!("default: {shown}"),
            };
            let lines: Vec<&str> = key.lines.iter().map(|line| line.trim()).collect();
            page += &format!(
                ".TP\n.B {}\n{} ({}; {}).\n.br\nExample: {}\n",
                roff(key.name),
                roff(&lines.join(" ")),
                roff(&value),
                roff(&default),
                roff(&format!("{} = {}", key.name, key.example)),
            );
        }
        let parts: Vec<String> = table.parts.iter().map(|part| roff(part.name)).collect();
        if !parts.is_empty() {
            page += &format!(".PP\nFurther keys: {}.\n", parts.join(" and "));
        }
    }
    page + ".SH SEE ALSO\n.BR anthill (1)\n"
}

#[test]
fn the_manual_page_has_every_declared_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/man/anthill.toml.5");
    compare(&path, &manual_page());
}

#[test]
fn every_example_is_read() {
    for table in tables() {
        for key in &table.keys {
            let value = read(&table, key, key.example);
            let value = value.unwrap_or_else(|error| panic!("{error}"));
            assert!(value.starts_with("Some("), "{}: {value}", key.name);
        }
    }
}

#[test]
fn every_default_is_read_as_shown() {
    let mut count = 0;
    for table in tables() {
        for key in &table.keys {
            if let KeyDefault::Value(shown, value) = &key.default {
                let read = read(&table, key, shown).unwrap_or_else(|error| panic!("{error}"));
                assert_eq!(read, *value, "{} = {shown}", key.name);
                count += 1;
            }
        }
    }
    assert!(count > 20, "{count} defaults");
}

#[test]
fn no_example_is_the_default() {
    for table in tables() {
        for key in &table.keys {
            let value = read(&table, key, key.example).expect("an example");
            if let KeyDefault::Value(_, default) = &key.default {
                assert_ne!(value, *default, "{}", key.name);
            }
        }
    }
}

/// Returns the numbers just outside of bounds, or durations far outside.
fn outside((low, high): &(String, Option<String>)) -> Vec<String> {
    let number = |text: &str| match crate::config::parse_bytes(text.trim_matches('"')) {
        Some(number) => number,
        None => text.parse().unwrap_or(0),
    };
    let is_duration =
        low.starts_with('"') && crate::config::parse_bytes(low.trim_matches('"')).is_none();
    if is_duration {
        let zero = (low != "\"0s\"").then(|| "0".to_owned());
        return zero.into_iter().chain(["\"99999d\"".to_owned()]).collect();
    }
    let below = number(low).checked_sub(1);
    let above = high.as_ref().map(|high| number(high) + 1);
    let numbers = below.into_iter().chain(above);
    numbers.map(|it| it.to_string()).collect()
}

#[test]
fn values_outside_of_the_bounds_are_refused() {
    let mut count = 0;
    for table in tables() {
        for key in &table.keys {
            for value in key.bounds.iter().flat_map(outside) {
                let error = read(&table, key, &value).expect_err(&value).to_string();
                let (low, high) = key.bounds.as_ref().expect("bounds");
                if error.contains(&format!("`{}` is too large", key.name)) {
                    // The type of the key ends at the upper bound.
                    continue;
                }
                assert!(
                    error.contains(&format!("`{}` is out of bounds", key.name)),
                    "{error}"
                );
                let range = match high {
                    Some(high) => format!("between {low} and {high}"),
                    None => format!("at least {low}"),
                };
                assert!(error.contains(&range), "{error}");
                assert!(
                    error.contains(&format!("| {} = {value}\n", key.name)),
                    "{error}"
                );
                count += 1;
            }
        }
    }
    assert!(count > 30, "{count} values");
}

#[test]
fn a_value_of_another_type_is_refused_with_an_example() {
    for table in tables() {
        for key in &table.keys {
            let error = read(&table, key, "1979-05-27")
                .expect_err("a date")
                .to_string();
            assert!(error.contains("help: for example "), "{error}");
            assert!(!type_name(&table, key).is_empty());
        }
    }
}

#[test]
fn every_word_of_another_server_leads_to_a_key() {
    for table in tables() {
        let mut words: Vec<&str> = table
            .keys
            .iter()
            .flat_map(|key| key.foreign)
            .copied()
            .collect();
        for key in &table.keys {
            for word in key.foreign {
                assert!(
                    !table.schema.keys.contains(word),
                    "{word} is a key of {}",
                    table.name
                );
                let error = read_text(&table, &format!("{word} = 1"), |_| Ok(()));
                let error = error.expect_err(word).to_string();
                assert!(
                    error.contains(&format!("did you mean `{}`?", key.name)),
                    "{error}"
                );
            }
        }
        words.sort_unstable();
        let twice = words.windows(2).find(|pair| pair[0] == pair[1]);
        assert_eq!(twice, None, "{}", table.name);
    }
}

#[test]
fn every_missing_required_key_is_named() {
    for table in tables() {
        let required = |key: &&KeyDocumentation| key.default == KeyDefault::Required;
        let Some(key) = table.keys.iter().find(required) else {
            continue;
        };
        let error = read_text(&table, "", |_| Ok(()));
        assert!(
            error.is_ok(),
            "{}: no key is required by the reader",
            table.name
        );
        let error = read_text(&table, "", |reader| (table.read_empty)(reader.source()));
        let error = error.expect_err("a missing key").to_string();
        let help = format!("help: for example {} = {}", key.name, key.example);
        assert!(error.contains(&format!("needs `{}`", key.name)), "{error}");
        assert!(error.contains(&help), "{error}");
    }
}
