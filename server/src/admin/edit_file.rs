//! State file of the edits: lines of text with tabs between the fields. Pure.
//!
//! The last line has a digest of all lines before, so a file that was cut off or changed is recognised.

use crate::admin::edit_ledger::{EditChange, EditEntry, EditInForce, EditLedger, EditTarget};
use base::digest::{hex, sha256};
use std::fmt;

/// First words of the file, before the version of the format.
const MAGIC: &str = "anthill edits ";
/// Version of the format.
const VERSION: &str = "1";
/// Largest number of an entry in a file. The numbers of further entries cannot overflow.
const LAST_ID_MAX: u64 = u64::MAX / 2;

/// Reason why a state file is no list of edits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum EditFileError {
    /// A later version of the server wrote the file.
    LaterVersion(String),
    /// The file is cut off, or was changed.
    Damaged,
}

impl fmt::Display for EditFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EditFileError::LaterVersion(version) => {
                write!(
                    f,
                    "a later version of anthill wrote the file (format {version})"
                )
            }
            EditFileError::Damaged => f.write_str("the file is cut off or damaged"),
        }
    }
}

/// Returns the content of the state file.
pub(crate) fn text(ledger: &EditLedger) -> String {
    let mut out = format!("{MAGIC}{VERSION}\nlast\t{}\n", ledger.last_id);
    for edit in &ledger.in_force {
        let numbers = [edit.id, edit.at].map(|number| number.to_string());
        let target = &edit.target;
        let texts = [&edit.user, &target.balancer, &target.member, &target.value];
        push(
            &mut out,
            "edit",
            &numbers,
            &texts,
            [&edit.configured, &edit.text],
        );
    }
    for entry in &ledger.history {
        let numbers = [entry.id, entry.at, entry.change.undoes, entry.undone_by];
        let numbers = numbers.map(|number| number.to_string());
        let change = &entry.change;
        let target = &change.target;
        let texts = [&entry.user, &target.balancer, &target.member, &target.value];
        push(
            &mut out,
            "entry",
            &numbers,
            &texts,
            [&change.old, &change.new],
        );
    }
    let digest = hex(&sha256(out.as_bytes()));
    out + "end\t" + &digest + "\n"
}

fn push(out: &mut String, word: &str, numbers: &[String], texts: &[&String], values: [&String; 2]) {
    out.push_str(word);
    for number in numbers {
        out.push('\t');
        out.push_str(number);
    }
    for text in texts.iter().copied().chain(values) {
        out.push('\t');
        escape(text, out);
    }
    out.push('\n');
}

/// Writes a text without tabs and line breaks.
fn escape(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            c => out.push(c),
        }
    }
}

fn unescape(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        out.push(match c {
            '\\' => match chars.next()? {
                '\\' => '\\',
                't' => '\t',
                'n' => '\n',
                'r' => '\r',
                _ => return None,
            },
            c => c,
        });
    }
    Some(out)
}

/// Parses the content of a state file.
pub(crate) fn parse(content: &[u8]) -> Result<EditLedger, EditFileError> {
    let first = content.split(|byte| *byte == b'\n').next().unwrap_or(&[]);
    let version = std::str::from_utf8(first).ok();
    let version = version.and_then(|line| line.strip_prefix(MAGIC));
    match version {
        Some(VERSION) => {}
        Some(later) if later.parse::<u32>().is_ok_and(|number| number > 1) => {
            return Err(EditFileError::LaterVersion(later.to_owned()));
        }
        _ => return Err(EditFileError::Damaged),
    }
    parse_lines(content).ok_or(EditFileError::Damaged)
}

fn parse_lines(content: &[u8]) -> Option<EditLedger> {
    let text = std::str::from_utf8(content).ok()?.strip_suffix('\n')?;
    let (lines, end) = text.rsplit_once('\n')?;
    let digest = end.strip_prefix("end\t")?;
    if hex(&sha256(&content[..lines.len() + 1])) != digest {
        return None;
    }
    let mut ledger = EditLedger::default();
    for line in lines.lines().skip(1) {
        let fields: Vec<&str> = line.split('\t').collect();
        match *fields.as_slice() {
            ["last", id] => ledger.last_id = id.parse().ok().filter(|id| *id <= LAST_ID_MAX)?,
            ["edit", ref fields @ ..] => ledger.in_force.push(edit(fields)?),
            ["entry", ref fields @ ..] => ledger.history.push_back(entry(fields)?),
            _ => return None,
        }
    }
    Some(ledger)
}

/// Parses the fields of an edit in force.
fn edit(fields: &[&str]) -> Option<EditInForce> {
    let &[id, at, user, balancer, member, value, configured, text] = fields else {
        return None;
    };
    Some(EditInForce {
        id: id.parse().ok()?,
        at: at.parse().ok()?,
        user: unescape(user)?,
        target: target(balancer, member, value)?,
        configured: unescape(configured)?,
        text: unescape(text)?,
    })
}

/// Parses the fields of an entry of the history.
fn entry(fields: &[&str]) -> Option<EditEntry> {
    let &[
        id,
        at,
        undoes,
        undone_by,
        user,
        balancer,
        member,
        value,
        old,
        new,
    ] = fields
    else {
        return None;
    };
    Some(EditEntry {
        id: id.parse().ok()?,
        at: at.parse().ok()?,
        user: unescape(user)?,
        change: EditChange {
            target: target(balancer, member, value)?,
            old: unescape(old)?,
            new: unescape(new)?,
            undoes: undoes.parse().ok()?,
        },
        undone_by: undone_by.parse().ok()?,
    })
}

fn target(balancer: &str, member: &str, value: &str) -> Option<EditTarget> {
    Some(EditTarget {
        balancer: unescape(balancer)?,
        member: unescape(member)?,
        value: unescape(value)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger() -> EditLedger {
        let target = EditTarget {
            balancer: "a b\\".to_owned(),
            member: "http://127.0.0.1:9001".to_owned(),
            value: "route".to_owned(),
        };
        let change = EditChange {
            target: target.clone(),
            old: String::new(),
            new: "x\ty\nz\r".to_owned(),
            undoes: 3,
        };
        EditLedger {
            last_id: 7,
            in_force: vec![EditInForce {
                id: 7,
                at: 1_700_000_000,
                user: "root (control socket)".to_owned(),
                target,
                configured: String::new(),
                text: "ü".to_owned(),
            }],
            history: [EditEntry {
                id: 7,
                at: 1_700_000_000,
                user: "root".to_owned(),
                change,
                undone_by: 9,
            }]
            .into(),
        }
    }

    #[test]
    fn a_written_ledger_is_read_back() {
        for ledger in [EditLedger::default(), ledger()] {
            assert_eq!(parse(text(&ledger).as_bytes()), Ok(ledger));
        }
    }

    #[test]
    fn a_file_that_is_cut_off_or_changed_anywhere_is_damaged() {
        let whole = text(&ledger()).into_bytes();
        for end in 0..whole.len() {
            assert_eq!(parse(&whole[..end]), Err(EditFileError::Damaged), "{end}");
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            assert!(parse(&changed).is_err(), "{at}");
        }
        let longer = [&whole[..], b"edit\n"].concat();
        assert_eq!(parse(&longer), Err(EditFileError::Damaged));
    }

    #[test]
    fn a_number_without_successors_is_damaged() {
        let mut ledger = ledger();
        ledger.last_id = LAST_ID_MAX;
        assert_eq!(parse(text(&ledger).as_bytes()), Ok(ledger.clone()));
        ledger.last_id += 1;
        let read = parse(text(&ledger).as_bytes());
        assert_eq!(read, Err(EditFileError::Damaged));
    }

    #[test]
    fn a_file_of_a_later_version_is_named() {
        let later = Err(EditFileError::LaterVersion("2".to_owned()));
        assert_eq!(parse(b"anthill edits 2\nanything"), later);
        assert_eq!(parse(b"anthill edits x\n"), Err(EditFileError::Damaged));
    }
}
