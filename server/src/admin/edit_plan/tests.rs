//! Tests of plans, of the ledger that records the plans, and of the lines for anthill.toml.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::admin::edit_file;
use crate::admin::edit_report::EditDifferences;
use crate::admin::edited_balancer::fixture::{app, configured};

const FIRST: &str = "http://10.0.0.1:8080";
const SECOND: &str = "http://10.0.0.2:8080";
const THIRD: &str = "http://10.0.0.3:8080";

/// Balancer of a file with a ledger.
struct Fixture {
    ledger: EditLedger,
    configured: Vec<ConfiguredBalancer>,
    now: u64,
}

impl Fixture {
    fn new(balancer: ConfiguredBalancer) -> Fixture {
        Fixture {
            ledger: EditLedger::default(),
            configured: vec![balancer],
            now: 1_700_000_000,
        }
    }

    fn edited(&self) -> EditedBalancer {
        self.ledger.edited(&self.configured[0])
    }

    /// Executes an edit, and returns the changed texts.
    fn edit(&mut self, action: &EditAction) -> Result<Vec<String>, String> {
        let view = EditView {
            ledger: &self.ledger,
            configured: &self.configured,
        };
        let actions = [action.clone()];
        let at = view.balancer_of(&actions)?;
        let plan = view.plan(&actions, at, &self.ledger.edited(&self.configured[at]))?;
        self.now += 1;
        let mut texts = Vec::new();
        for change in &plan.changes {
            let target = &change.target;
            texts.push(format!("{} {} -> {}", target.value, change.old, change.new));
        }
        let configured = &self.configured[at];
        self.ledger
            .record_all(configured, &plan.changes, "root", self.now);
        // The state file is complete.
        let text = edit_file::text(&self.ledger);
        assert_eq!(edit_file::parse(text.as_bytes()).as_ref(), Ok(&self.ledger));
        Ok(texts)
    }

    fn set(&mut self, member: &str, values: &[(&str, &str)]) -> Result<Vec<String>, String> {
        let values = values.iter();
        let values = values.map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        self.edit(&EditAction::Set {
            balancer: "app".to_owned(),
            member: (!member.is_empty()).then(|| member.to_owned()),
            values: values.collect(),
        })
    }

    fn add(&mut self, url: &str) -> Result<Vec<String>, String> {
        self.edit(&EditAction::Add {
            balancer: "app".to_owned(),
            url: url.to_owned(),
        })
    }

    fn remove(&mut self, member: &str) -> Result<Vec<String>, String> {
        self.edit(&EditAction::Remove {
            balancer: "app".to_owned(),
            member: member.to_owned(),
        })
    }

    fn undo(&mut self, id: u64) -> Result<Vec<String>, String> {
        self.edit(&EditAction::Undo(id))
    }

    /// Reads another file, and returns the texts of the edits that yielded.
    fn reload(&mut self, configured: Vec<ConfiguredBalancer>) -> Vec<String> {
        let before = self.ledger.last_id;
        self.configured = configured;
        let yielded = self.ledger.reconcile(&self.configured, |_| false, self.now);
        assert_eq!(yielded as u64, self.ledger.last_id - before);
        let new = self.ledger.history.iter().filter(|it| it.id > before);
        new.map(|it| {
            format!(
                "{} {} -> {}",
                it.change.target.value, it.change.old, it.change.new
            )
        })
        .collect()
    }

    /// Returns the present members, each with weight and state.
    fn members(&self) -> Vec<String> {
        let edited = self.edited();
        let members = edited.settings.members.iter().zip(&edited.urls);
        members
            .map(|(member, url)| format!("{url} {} {}", member.weight, member.admin.name()))
            .collect()
    }

    fn differences(&self) -> String {
        EditDifferences::new(&self.ledger, &self.configured).text()
    }
}

#[test]
fn all_values_of_a_command_are_set_or_none() {
    let mut fixture = Fixture::new(app(""));
    let bad = fixture.set("a", &[("weight", "2"), ("set", "100")]);
    assert_eq!(
        bad.unwrap_err(),
        "error: `set` can't be `100`\nhelp: write a number from 0 to 99\n"
    );
    let twice = fixture.set("a", &[("weight", "2"), ("weight", "3")]);
    assert_eq!(twice.unwrap_err(), "error: `weight` occurs twice\n");
    assert_eq!(fixture.ledger, EditLedger::default());
    let good = fixture.set("a", &[("weight", "2"), ("set", "0"), ("state", "draining")]);
    assert_eq!(
        good.unwrap(),
        ["weight 1 -> 2", "state enabled -> draining"]
    );
    assert_eq!(fixture.members()[0], format!("{FIRST} 200 draining"));
    assert_eq!(fixture.set(FIRST, &[("weight", "2.0")]), Ok(vec![]));
    assert_eq!(fixture.ledger.history.len(), 2);
}

#[test]
fn a_newer_value_refuses_an_older_plan() {
    let mut fixture = Fixture::new(app(""));
    let actions = ["2", "3"].map(|text| EditAction::Set {
        balancer: "app".to_owned(),
        member: Some("a".to_owned()),
        values: vec![("weight".to_owned(), text.to_owned())],
    });
    let edited = fixture.edited();
    let view = EditView {
        ledger: &fixture.ledger,
        configured: &fixture.configured,
    };
    let planned = view.plan(&actions[..1], 0, &edited).unwrap().changes;
    for (is_newer, text) in [(false, "1"), (false, "2"), (true, "3")] {
        let _ = fixture.set("a", &[("weight", text)]);
        let view = EditView {
            ledger: &fixture.ledger,
            configured: &fixture.configured,
        };
        let refused = view.refuse_newer(&planned, &fixture.edited());
        assert_eq!(refused.is_err(), is_newer, "{text}");
        if let Err(error) = refused {
            let expected = format!("error: `weight` of {FIRST} changed meanwhile to `3`\n");
            assert!(error.starts_with(&expected), "{error}");
        }
    }
    fixture.remove("a").unwrap();
    let view = EditView {
        ledger: &fixture.ledger,
        configured: &fixture.configured,
    };
    assert!(view.refuse_newer(&planned, &fixture.edited()).is_err());
}

#[test]
fn a_balancer_that_the_file_could_not_have_is_refused() {
    let mut fixture = Fixture::new(app("sticky = \"S\""));
    for (member, value, text, what) in [
        ("a", "route", "b", "two members have the route `b`"),
        ("a", "route", "", "sticky sessions need a `route`"),
        (
            "a",
            "redirect",
            "c",
            "`c` is not the route of another member",
        ),
        ("", "method", "heartbeat", "needs an address"),
        ("", "queue_timeout", "3s", "no effect without `connections`"),
    ] {
        let refused = fixture.set(member, &[(value, text)]).unwrap_err();
        assert!(refused.contains(what), "{refused}");
        assert!(
            refused.starts_with("error: `app` would be invalid: "),
            "{refused}"
        );
    }
    fixture.set("a", &[("redirect", "b")]).unwrap();
    let refused = fixture.set("", &[("sticky", "-")]).unwrap_err();
    assert!(
        refused.contains("`redirect` has no effect without `sticky`"),
        "{refused}"
    );
    let refused = fixture.remove("b").unwrap_err();
    assert!(
        refused.contains("`b` is not the route of another member"),
        "{refused}"
    );
    fixture.set("a", &[("role", "standby")]).unwrap();
    let refused = fixture.set("b", &[("role", "spare")]).unwrap_err();
    assert!(
        refused.contains("every member is a standby or a spare"),
        "{refused}"
    );
}

#[test]
fn an_edit_stays_until_the_file_changes_the_value() {
    let mut fixture = Fixture::new(app(""));
    fixture.set("a", &[("weight", "2")]).unwrap();
    fixture.set("", &[("method", "p2c")]).unwrap();
    assert_eq!(fixture.reload(vec![app("slow_start = \"3s\"")]), [""; 0]);
    assert_eq!(fixture.edited().settings.method.name(), "p2c");
    // The file has the edited value, or a third value.
    assert_eq!(
        fixture.reload(vec![app("method = \"p2c\"")]),
        ["method p2c -> p2c"]
    );
    assert_eq!(fixture.reload(vec![app("method = \"maglev\"")]), [""; 0]);
    assert_eq!(fixture.members()[0], format!("{FIRST} 200 enabled"));
    let text = format!("[[balancer]]\nname = \"app\"\nmembers = [\"{SECOND}\"]\n");
    assert_eq!(
        fixture.reload(vec![configured(&text)]),
        ["weight 2 -> absent"]
    );
    fixture.set(SECOND, &[("set", "1")]).unwrap();
    assert_eq!(fixture.reload(vec![]), ["set 1 -> absent"]);
    assert!(fixture.ledger.in_force.is_empty());
    assert_eq!(fixture.ledger.history.back().unwrap().user, "anthill.toml");
}

#[test]
fn an_edit_back_to_the_file_is_no_edit() {
    let mut fixture = Fixture::new(app(""));
    fixture.set("a", &[("weight", "2")]).unwrap();
    fixture.set("a", &[("weight", "1")]).unwrap();
    assert!(fixture.ledger.in_force.is_empty());
    assert_eq!(fixture.ledger.history.len(), 2);
}

#[test]
fn edits_that_the_new_file_makes_impossible_yield() {
    let mut fixture = Fixture::new(app("sticky = \"S\""));
    fixture
        .set("a", &[("redirect", "b"), ("weight", "3")])
        .unwrap();
    fixture.set("", &[("strict", "on")]).unwrap();
    let yielded = fixture.reload(vec![app("")]);
    assert_eq!(yielded, ["strict on -> off", "redirect b -> "]);
    assert_eq!(fixture.members()[0], format!("{FIRST} 300 enabled"));
}

#[test]
fn members_are_added_and_removed() {
    let mut fixture = Fixture::new(app("connections = 5"));
    assert_eq!(fixture.add(THIRD).unwrap(), ["member absent -> present"]);
    assert_eq!(fixture.members()[2], format!("{THIRD} 100 disabled"));
    assert_eq!(
        fixture.edited().settings.members[2].connections_max,
        Some(5)
    );
    for (url, what) in [
        (THIRD, "is a member of `app` already"),
        ("http://10.0.0.1:8080/", "has a path"),
        ("http://user@10.0.0.1:8080", "error"),
        ("http://10.0.0.9:0", "error"),
        ("http://unix:/run/x.sock", "a Unix socket can't be added"),
        ("ftp://10.0.0.1", "error"),
        ("", "error"),
    ] {
        let refused = fixture.add(url).unwrap_err();
        assert!(
            refused.contains(what) && refused.contains("error: "),
            "{url}: {refused}"
        );
    }
    fixture
        .set(THIRD, &[("state", "enabled"), ("weight", "4")])
        .unwrap();
    let removed = fixture.remove(THIRD).unwrap();
    assert_eq!(removed, ["member present state=enabled weight=4 -> absent"]);
    assert!(fixture.ledger.in_force.is_empty());
    // An undone removal restores the edited values.
    fixture.undo(4).unwrap();
    assert_eq!(fixture.members()[2], format!("{THIRD} 400 enabled"));
    fixture.set("a", &[("weight", "2")]).unwrap();
    fixture.remove("a").unwrap();
    fixture.remove("b").unwrap();
    assert_eq!(fixture.members(), [format!("{THIRD} 400 enabled")]);
    let last = fixture.remove(THIRD).unwrap_err();
    assert!(
        last.contains("the last member of `app` can't be removed"),
        "{last}"
    );
    let removal_of_a = fixture.ledger.last_id - 1;
    fixture.undo(removal_of_a).unwrap();
    let edited = fixture.edited();
    let first = edited.member_at(FIRST).unwrap();
    assert_eq!(edited.settings.members[first].weight, 200);
    // The file takes over an added member, and drops a removed member.
    let text = format!("[[balancer]]\nname = \"app\"\nmembers = [\"{FIRST}\", \"{THIRD}\"]\n");
    let yielded = fixture.reload(vec![configured(&text)]);
    assert_eq!(
        yielded,
        [
            "member present -> present",
            "member absent -> absent",
            "state enabled -> enabled"
        ]
    );
    assert_eq!(fixture.members()[1], format!("{THIRD} 400 enabled"));
}

#[test]
fn an_added_member_gets_its_route_before_it_is_enabled() {
    let mut fixture = Fixture::new(app("sticky = \"S\""));
    fixture.add(THIRD).unwrap();
    let comment = format!("# needs a route: {{ url = \"{THIRD}\", status = \"disabled\" }},");
    let text = fixture.differences();
    assert!(text.contains(&comment), "{text}");
    let refused = fixture.set(THIRD, &[("state", "enabled")]).unwrap_err();
    assert!(
        refused.contains("sticky sessions need a `route`"),
        "{refused}"
    );
    fixture
        .set(THIRD, &[("route", "c"), ("state", "enabled")])
        .unwrap();
    assert_eq!(fixture.members()[2], format!("{THIRD} 100 enabled"));
}

#[test]
fn entries_are_undone_once() {
    let mut fixture = Fixture::new(app(""));
    assert_eq!(
        fixture.undo(1).unwrap_err(),
        "error: the history of edits is empty\n"
    );
    fixture.set("a", &[("weight", "2")]).unwrap();
    fixture.set("a", &[("weight", "3")]).unwrap();
    assert_eq!(fixture.undo(1).unwrap(), ["weight 3 -> 1"]);
    let again = fixture.undo(1).unwrap_err();
    assert!(
        again.starts_with("error: entry 1 is undone by entry 3\n"),
        "{again}"
    );
    assert_eq!(fixture.undo(3).unwrap(), ["weight 1 -> 3"]);
    let unknown = fixture.undo(9).unwrap_err();
    assert_eq!(
        unknown,
        "error: the history has no entry 9\nhelp: the entries are 1 to 4\n"
    );
    fixture.set("a", &[("weight", "2")]).unwrap();
    let same = fixture.undo(2).unwrap_err();
    assert_eq!(same, "error: `weight` is 2 already\n");
    let text = fixture.ledger.history_text(None);
    assert!(
        text.contains("weight changed from 2 to 1") || text.contains("(undone by 3)"),
        "{text}"
    );
    fixture.reload(vec![]);
    let gone = fixture.undo(2).unwrap_err();
    assert_eq!(gone, "error: the balancer `app` has left anthill.toml\n");
}

#[test]
fn an_undo_without_its_member_says_why() {
    let mut fixture = Fixture::new(app(""));
    fixture.set("a", &[("weight", "2")]).unwrap();
    fixture.remove("a").unwrap();
    let gone = fixture.undo(1).unwrap_err();
    assert_eq!(
        gone,
        format!("error: {FIRST} is no member of `app` any more\n")
    );
}

#[test]
fn the_result_of_checks_is_never_in_force() {
    let mut fixture = Fixture::new(app("health = { path = \"/\" }"));
    fixture.set("a", &[("check_failed", "on")]).unwrap();
    assert!(fixture.ledger.in_force.is_empty());
    assert_eq!(fixture.ledger.history.len(), 1);
}

#[test]
fn the_expression_of_a_check_is_a_balancer_with_checks() {
    let mut fixture = Fixture::new(app(""));
    let other = "[[balancer]]\nname = \"other\"\nhealth = { path = \"/\", status = 204 }\n\
                 members = [\"http://10.0.0.9:1\"]\n";
    let refused = fixture.set("a", &[("check_expression", "other")]);
    assert!(refused.unwrap_err().contains("names no check"));
    fixture.configured.push(configured(other));
    fixture
        .set(
            "a",
            &[("check_expression", "other"), ("check_method", "get")],
        )
        .unwrap();
    let configured = &fixture.configured;
    let settings = fixture.edited().core_settings(configured);
    let members = format!("{:?}", settings.members);
    assert!(members.contains("status: (204, 204)"), "{members}");
}

#[test]
fn the_lines_for_the_file_give_the_values_in_force() {
    let file = "sticky = { cookie = \"S\", signed = true }\nconnections = 9\n\
                health = { path = \"/h\", text = \"ok\" }";
    let mut fixture = Fixture::new(app(file));
    assert!(fixture.differences().starts_with("no edit is in force"));
    fixture
        .set(
            "a",
            &[("weight", "2.5"), ("redirect", "b"), ("role", "spare")],
        )
        .unwrap();
    fixture
        .set(
            "",
            &[("method", "maglev"), ("attempts", "7"), ("strict", "on")],
        )
        .unwrap();
    fixture.set("", &[("queue_timeout", "1500ms")]).unwrap();
    fixture.add("https://[::1]:8443").unwrap();
    for member in ["a", "b", "https://[::1]:8443"] {
        fixture
            .set(
                member,
                &[("check_interval", "7s"), ("check_method", "head")],
            )
            .unwrap();
    }
    let text = fixture.differences();
    assert!(
        text.starts_with(&format!(
            "app: {FIRST}: weight is 2.5 instead of 1, by root at 2023-11-14 22:13 UTC (entry 1)\n"
        )),
        "{text}"
    );
    let (_, lines) = text.split_once("with the name \"app\":\n").unwrap();
    let pasted = format!("[[balancer]]\nname = \"app\"\nconnections = 9\n{lines}");
    let pasted = configured(&pasted);
    let edited = fixture.edited();
    let (new, old) = (&pasted.settings, &edited.settings);
    assert_eq!(new.members, old.members);
    assert_eq!((new.method, &new.retry), (old.method, &old.retry));
    assert_eq!(new.sticky, old.sticky);
    assert_eq!(new.connection.queue_timeout, old.connection.queue_timeout);
    // With the lines in the file, no edit is in force.
    fixture.reload(vec![pasted]);
    assert_eq!(fixture.ledger.in_force, []);
    assert!(fixture.differences().starts_with("no edit is in force"));
}

#[test]
fn checks_of_one_member_are_a_comment_for_the_file() {
    let mut fixture = Fixture::new(app("health = { tcp = true }"));
    fixture.set("a", &[("check_fails", "9")]).unwrap();
    let text = fixture.differences();
    let comment = "# anthill.toml has the same `health` for all members of a balancer; for \
                   http://10.0.0.1:8080: health = { tcp = true, every = \"2s\"";
    assert!(text.contains(comment), "{text}");
}

#[test]
fn the_history_is_bounded_and_keeps_the_edits_in_force() {
    let mut fixture = Fixture::new(app(""));
    fixture.set("b", &[("set", "1")]).unwrap();
    for nth in 0..=crate::admin::limits::EDIT_HISTORY_ENTRIES_MAX {
        let weight = (2 + nth % 2).to_string();
        fixture.set("a", &[("weight", &weight)]).unwrap();
    }
    let max = crate::admin::limits::EDIT_HISTORY_ENTRIES_MAX;
    assert_eq!(fixture.ledger.history.len(), max);
    assert_eq!(fixture.ledger.in_force.len(), 2);
    assert!(fixture.undo(1).unwrap_err().contains("no entry 1"));
}

#[test]
fn the_members_of_a_routes_own_balancer_stay() {
    let mut own = app("");
    own.is_own = true;
    let mut fixture = Fixture::new(own);
    for refused in [fixture.add(THIRD), fixture.remove("a")] {
        assert!(refused.unwrap_err().contains("write a [[balancer]]"));
    }
    fixture.set("a", &[("state", "disabled")]).unwrap();
    assert!(
        fixture
            .differences()
            .contains("replaces `proxy` of the route app")
    );
}

#[test]
fn the_history_is_rendered_as_text_and_json() {
    let mut fixture = Fixture::new(app(""));
    fixture.set("a", &[("weight", "2")]).unwrap();
    fixture.undo(1).unwrap();
    let text = fixture.ledger.history_text(None);
    assert_eq!(
        text,
        "    2  2023-11-14 22:13 UTC  root: app: http://10.0.0.1:8080: weight changed from 2 to 1 (undoes 1)\n    \
         1  2023-11-14 22:13 UTC  root: app: http://10.0.0.1:8080: weight changed from 1 to 2 (undone by 2)\n"
    );
    let json = fixture.ledger.history_json(Some("app"));
    let first = "{\"entries\":[{\"id\":2,\"time\":1700000002,\"user\":\"root\",\"balancer\":\"app\",\
                 \"member\":\"http://10.0.0.1:8080\",\"value\":\"weight\",\"old\":\"2\",\"new\":\"1\",\
                 \"undoes\":1,\"undone_by\":null},";
    assert!(json.starts_with(first), "{json}");
    assert_eq!(fixture.ledger.history_json(Some("x")), "{\"entries\":[]}\n");
}
