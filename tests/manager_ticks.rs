//! Edits of the ticked members of a balancer on the page of the manager.

use crate::manager::{LOCAL, Manager, config, folder_with_users};
use crate::manager_edits::{Editor, edited_config};
use crate::manager_page::Viewer;
use crate::support::Server;
use crate::support::member::{Member, ok};

fn members() -> [Member; 3] {
    ["a", "b", "c"].map(|name| Member::start(move |_| ok(name)))
}

/// Posts the form of the ticked members of the balancer `app`, with the fields of its buttons and boxes.
fn post(editor: &Editor, ticked: &[&str], more: &[&str]) -> (u16, Option<String>, String) {
    let ticked: Vec<String> = ticked.iter().map(|url| format!("w={url}")).collect();
    let mut fields = vec!["b=app", "ticked=1"];
    fields.extend(["w_status_N=0", "w_status_D=0", "w_status_S=0"]);
    fields.extend(ticked.iter().map(String::as_str));
    fields.extend(more);
    let answer = editor.post(&fields);
    let location = answer.field("location").map(str::to_owned);
    (answer.status, location, answer.body)
}

/// Returns the states in the order of the members.
fn states(editor: &Editor) -> Vec<String> {
    let list = editor.get("/balancers.json").body;
    let app = list.split("\"name\":\"other\"").next().expect("a balancer");
    let states = app.split("\"admin\":\"").skip(1);
    let states = states.filter_map(|rest| rest.split('"').next());
    states.map(str::to_owned).collect()
}

#[test]
fn each_ticked_member_is_edited_and_is_an_entry_of_the_history() {
    let members = members();
    let server = Server::start(&edited_config(&members.each_ref(), ""));
    let editor = Editor::of(&server);
    let [a, b, c] = members.each_ref().map(Member::url);
    // A box that occurs twice counts once.
    let (status, location, _) = post(&editor, &[&a, &c, &a], &["w_status_N=1"]);
    assert_eq!(
        (status, location.as_deref()),
        (303, Some("/#live-balancer-0"))
    );
    assert_eq!(states(&editor), ["draining", "enabled", "draining"]);
    let history = editor.history();
    assert_eq!(history.len(), 2, "{history:?}");
    for (entry, url) in history.iter().zip([&c, &a]) {
        for part in [
            format!("\"member\":\"{url}\",\"value\":\"state\""),
            "\"old\":\"enabled\",\"new\":\"draining\"".to_owned(),
        ] {
            assert!(entry.contains(&part), "no {part}: {entry}");
        }
    }
    // Only members in another state are edited.
    let (status, ..) = post(&editor, &[&a, &b, &c], &["confirmed=1", "w_status_D=1"]);
    assert_eq!(status, 303);
    let (status, ..) = post(&editor, &[&a, &b], &["confirmed=1", "w_status_D=1"]);
    assert_eq!((status, editor.history().len()), (303, 5));
    let (status, ..) = post(&editor, &[&b, &c], &[]);
    assert_eq!((status, editor.history().len()), (303, 7));
    assert_eq!(states(&editor), ["disabled", "enabled", "enabled"]);
}

#[test]
fn the_last_members_in_service_are_asked_about_before_any_edit() {
    let members = members();
    let server = Server::start(&edited_config(&members.each_ref(), ""));
    let editor = Editor::of(&server);
    let urls = members.each_ref().map(Member::url);
    let all = urls.each_ref().map(String::as_str);
    for button in ["w_status_N=1", "w_status_D=1"] {
        let (status, _, question) = post(&editor, &all, &[button]);
        assert_eq!(status, 409, "{question}");
        let state = match button {
            "w_status_N=1" => "draining",
            _ => "disabled",
        };
        for url in all {
            for part in [
                format!("<li>app: {url}: state from enabled to {state}</li>"),
                format!("<input type=hidden name=\"w\" value=\"{url}\">"),
            ] {
                assert!(question.contains(&part), "no {part}: {question}");
            }
        }
        let why = "the 3 members are the last usable members of the balancer";
        assert!(question.contains(why), "{question}");
        assert_eq!(states(&editor), ["enabled"; 3]);
    }
    let (status, ..) = post(&editor, &all, &["w_status_N=1", "confirmed=1"]);
    assert_eq!((status, editor.history().len()), (303, 3));
    assert_eq!(states(&editor), ["draining"; 3]);
}

#[test]
fn a_form_edits_249_members_at_once() {
    let member = Member::start(|_| ok("a"));
    let urls = (1..=250).map(|at| format!("http://127.7.0.{at}:{}", member.port));
    let urls: Vec<String> = urls.collect();
    let all: Vec<&str> = urls.iter().map(String::as_str).collect();
    let server = Server::start(&config(LOCAL, &all));
    let editor = Editor::of(&server);
    for (state, button) in [
        ("disabled", "w_status_D=1"),
        ("enabled", "w_status_D=0"),
        ("draining", "w_status_N=1"),
    ] {
        let before = editor.history().len();
        let (status, _, page) = post(&editor, &all[1..], &[button]);
        assert_eq!(status, 303, "{page}");
        let mut expected = vec![state; 250];
        expected[0] = "enabled";
        assert_eq!(states(&editor), expected);
        assert_eq!(editor.history().len(), before + 249);
    }
}

#[test]
fn a_form_without_members_or_with_an_unknown_member_changes_nothing() {
    let members = members();
    let server = Server::start(&edited_config(&members.each_ref(), ""));
    let editor = Editor::of(&server);
    let url = members[0].url();
    for (ticked, error) in [
        (&[][..], "error: no member is ticked"),
        (&[&*url, "http://127.0.0.1:2"], "is no member of <b>app</b>"),
        (&[""], "is no member of <b>app</b>"),
    ] {
        let (status, _, page) = post(&editor, ticked, &["w_status_D=1"]);
        assert_eq!(status, 400, "{page}");
        assert!(page.contains(error), "{page}");
        assert_eq!(states(&editor), ["enabled"; 3]);
    }
}

#[test]
fn either_all_ticked_members_are_edited_or_none() {
    let members = members();
    let [a, ..] = members.each_ref().map(Member::url);
    let server = Server::start(&edited_config(&members.each_ref(), ""));
    let editor = Editor::of(&server);
    editor.edited(None, &["b_ss=S", "b_nwrkr=http://127.0.0.1:9", "b_wyes=1"]);
    let (status, ..) = post(&editor, &[&a], &["w_status_D=1"]);
    assert_eq!(status, 303);
    let entries = editor.history();
    // The added member has no route, which the sessions need.
    let (status, _, page) = post(&editor, &[&a, "http://127.0.0.1:9"], &[]);
    assert_eq!(status, 400, "{page}");
    assert!(
        page.contains("sticky sessions need a <b>route</b>"),
        "{page}"
    );
    assert_eq!(editor.history(), entries);
    assert_eq!(states(&editor)[0], "disabled");
}

#[test]
fn only_clients_that_may_edit_have_boxes_and_the_updates_have_no_token() {
    let member = Member::start(|_| ok("a"));
    let keys = format!("{LOCAL}\nusers = \"managers\"\nviewers = \"viewers\"");
    let server = Server::start_in(folder_with_users(), &config(&keys, &[&member.url()]));
    let manager = Manager::of(&server);
    let tick = format!(
        "<input type=checkbox name=w value=\"{}\" form=\"ticked-app\"",
        member.url()
    );
    for (login, has_boxes) in [
        (&[][..], false),
        (&["-u", "bob:secret of bob"], false),
        (&["-u", "ann:secret of ann"], true),
    ] {
        let page = manager.curl("/", login).body;
        assert_eq!(page.contains(&tick), has_boxes, "{page}");
        assert_eq!(page.contains("id=\"ticked-app\""), has_boxes, "{page}");
        let event = Viewer::start(&manager, login).event().join("\n");
        assert_eq!(event.contains(&tick), has_boxes, "{event}");
        assert!(!event.contains("nonce"), "{event}");
    }
}
