use std::path::Path;

use super::table::{COMMANDS, overview};
use super::*;

fn words(line: &str) -> Vec<OsString> {
    line.split_whitespace().map(OsString::from).collect()
}

fn problem(command: &str, line: &str) -> String {
    let command = find(command).expect("a command");
    let problem = command.parse(words(line)).map(|arguments| arguments.line);
    problem.expect_err("bad input").to_string()
}

#[test]
fn operands_and_options_are_parsed() {
    let command = find("run").expect("a command");
    let arguments = command.parse(words("hello --rounds 7 -o a.json --quick --rounds=9"));
    let arguments = arguments.unwrap_or_else(|problem| panic!("{problem}"));
    assert_eq!(arguments.operands, ["hello"]);
    assert_eq!(arguments.value("rounds"), Some("9"));
    assert_eq!(
        arguments.path("output").as_deref(),
        Some(Path::new("a.json"))
    );
    assert!(arguments.has("quick") && !arguments.has("silent"));
    assert_eq!(
        arguments.line,
        "anthill bench run hello --rounds 7 -o a.json --quick --rounds=9"
    );
}

#[test]
fn invalid_input_is_named() {
    assert!(problem("run", "").starts_with("error: `anthill bench run` needs SUITE"));
    assert!(problem("run", "a b").starts_with("error: unexpected argument `b`"));
    assert!(problem("run", "a --rouds 1").ends_with("help: did you mean `--rounds`?"));
    assert!(problem("run", "a --rounds").starts_with("error: `--rounds` needs a value: N"));
    assert!(problem("compare", "a").starts_with("error: `anthill bench compare` needs BEFORE"));
    let unknown = find("compar").map(|command| command.name);
    let unknown = unknown.expect_err("no such command").to_string();
    assert!(
        unknown.ends_with("did you mean `anthill bench compare`?"),
        "{unknown}"
    );
    let suite = find("hello").map(|command| command.name);
    let suite = suite.expect_err("a suite is no command").to_string();
    assert!(suite.ends_with("`anthill bench run hello`"), "{suite}");
}

#[test]
fn the_help_lists_the_whole_table() {
    let all = overview();
    for command in COMMANDS {
        assert!(all.contains(command.about));
        let text = command.help();
        for option in command.options() {
            assert!(text.contains(&option.usage()), "{}", option.long);
        }
    }
    for suite in crate::suite::SUITES {
        assert!(all.contains(suite.about));
    }
}
