//! Test of the guide's reference, and tests of every declared key.
//!
//! docs/src/configuration.md has a region for each declared table, between two comments. A test compares
//! each region with the declaration, and writes the regions anew if the environment variable
//! `WRITE_REFERENCE` is set.

use std::fs;
use std::path::{Path, PathBuf};

use toml::de::DeTable;

use crate::config::OperatorError;
use crate::config::balancer_table::{
    BalancerTable, EjectTable, HealthTable, MemberTable, RetriesTable, StickyTable,
};
use crate::config::connection_table::ConnectionKeys;
use crate::config::declared_table::{
    DeclaredTable, KeyDefault, KeyDocumentation, TableDocumentation,
};
use crate::config::manager_table::{ManagerKeys, ManagerTable};
use crate::config::proxy_table::{
    BalanceTable, ForwardKeys, ListenerTable, ProxyTable, RouteKeys, TrustKeys,
};
use crate::config::redirect_table::{RedirectKeys, RouteRedirectTable, SiteRedirectTable};
use crate::config::request_table::{CorsTable, RateTable, RequestKeys, RouteRequestKeys};
use crate::config::toml_reader::{SourceText, TableReader};

/// Returns all declared tables and parts.
fn tables() -> Vec<TableDocumentation> {
    vec![
        TrustKeys::documentation(),
        ListenerTable::documentation(),
        RouteKeys::documentation(),
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
        ManagerKeys::documentation(),
        ManagerTable::documentation(),
        RedirectKeys::documentation(),
        SiteRedirectTable::documentation(),
        RouteRedirectTable::documentation(),
        RequestKeys::documentation(),
        RouteRequestKeys::documentation(),
        RateTable::documentation(),
        CorsTable::documentation(),
    ]
}

/// Reads `key = value` as a line of the table, and returns the formatted value.
fn read(
    table: &TableDocumentation,
    key: &KeyDocumentation,
    value: &str,
) -> Result<String, OperatorError> {
    let text = format!("{} = {value}", key.name);
    let source = SourceText {
        text: &text,
        shown: "anthill.toml",
        folder: Path::new("/srv"),
    };
    let entries = DeTable::parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let mut reader = TableReader::new(&source, table.schema, 0..0, entries.into_inner());
    let value = (key.read)(&mut reader)?;
    reader.finish()?;
    Ok(value)
}

/// Returns the type of a key: the type in the error about a date, since no key is a date.
fn type_name(table: &TableDocumentation, key: &KeyDocumentation) -> String {
    let error = read(table, key, "1979-05-27").expect_err("a date");
    let what = error.what();
    let name = what.strip_prefix(&format!("`{}` must be ", key.name));
    let name = name.and_then(|rest| rest.strip_suffix(", not a date"));
    let name = name.unwrap_or_else(|| panic!("{what}"));
    match read(table, key, "[]") {
        Ok(_) => format!("a list; each item {name}"),
        Err(_) => name.to_owned(),
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
            value += &format!(", from `{low}` to `{high}`");
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

fn guide() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/src/configuration.md")
}

#[test]
fn the_guide_has_every_declared_table() {
    let mut text = fs::read_to_string(guide()).expect("the guide");
    let committed = text.clone();
    for table in tables() {
        let begin = format!("<!-- {}: generated -->\n", table.name);
        let end = format!("<!-- {}: end -->\n", table.name);
        let (before, rest) = text
            .split_once(&begin)
            .unwrap_or_else(|| panic!("no {begin}"));
        let (_, after) = rest.split_once(&end).unwrap_or_else(|| panic!("no {end}"));
        text = format!("{before}{begin}\n{}\n{end}{after}", rendered(&table));
    }
    if std::env::var_os("WRITE_REFERENCE").is_some() {
        fs::write(guide(), text).expect("the guide can be written");
        return;
    }
    let mut lines = committed.lines().zip(text.lines());
    if let Some((is, expected)) = lines.find(|(is, expected)| is != expected) {
        panic!(
            "docs/src/configuration.md differs from the declarations:\n{is}\nshould be\n{expected}\n\
             write the file anew: WRITE_REFERENCE=1 cargo test -p anthill --lib reference"
        );
    }
    assert_eq!(committed, text);
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
fn outside((low, high): &(String, String)) -> Vec<String> {
    if low.starts_with('"') {
        let zero = (low != "\"0s\"").then(|| "0".to_owned());
        return zero.into_iter().chain(["\"99999d\"".to_owned()]).collect();
    }
    let number = |text: &str| text.parse::<u64>().expect("a number");
    let below = number(low).checked_sub(1);
    let above = number(high) + 1;
    below
        .into_iter()
        .chain([above])
        .map(|it| it.to_string())
        .collect()
}

#[test]
fn values_outside_of_the_bounds_are_refused() {
    let mut count = 0;
    for table in tables() {
        for key in &table.keys {
            for value in key.bounds.iter().flat_map(outside) {
                let error = read(&table, key, &value).expect_err(&value).to_string();
                let (low, high) = key.bounds.as_ref().expect("bounds");
                assert!(
                    error.contains(&format!("`{}` is out of bounds", key.name)),
                    "{error}"
                );
                assert!(
                    error.contains(&format!("between {low} and {high}")),
                    "{error}"
                );
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
                let text = format!("{word} = 1");
                let source = SourceText {
                    text: &text,
                    shown: "",
                    folder: Path::new("/"),
                };
                let entries = DeTable::parse(&text).expect("a line").into_inner();
                let reader = TableReader::new(&source, table.schema, 0..0, entries);
                let error = reader.finish().expect_err(word).to_string();
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
        let source = SourceText {
            text: "",
            shown: "",
            folder: Path::new("/"),
        };
        let error = (table.read_empty)(&source);
        let error = error.expect_err("a missing key").to_string();
        let help = format!("help: for example {} = {}", key.name, key.example);
        assert!(error.contains(&format!("needs `{}`", key.name)), "{error}");
        assert!(error.contains(&help), "{error}");
    }
}
