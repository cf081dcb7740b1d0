//! The manager's page in Chromium: reading, edits, logins, the keyboard, and accessibility by the rules of axe at two
//! widths and in both colour schemes.

use crate::manager::{LOCAL, Manager, config, folder_with_users, state};
use crate::support::member::{Member, ok};
use crate::support::python::{python, script};
use crate::support::{Server, finish, tool};

/// Runs a test of tests/support/manager_browser.py.
fn browse(test: &str, arguments: &[&str]) {
    tool("chromium");
    let mut command = python();
    command.arg(script("manager_browser.py"));
    command.arg(test).args(arguments);
    let done = finish(command, b"");
    assert_eq!(done.code, Some(0), "{test} {arguments:?}: {done:?}");
}

/// Returns a server with a balancer of two members in service and one member without a server, and the URL of a login.
fn server() -> (Server, [Member; 2], String) {
    let members = two_members();
    let [first, second] = members.each_ref().map(Member::url);
    let down = "http://127.0.0.1:1";
    let text = config(LOCAL, &[&first, &second, down]);
    let text = text.replace(
        "name = \"app\"\n",
        "name = \"app\"\nhealth = { path = \"/health\" }\n",
    );
    let server = Server::start(&text);
    for _ in 0..6 {
        crate::support::run("curl", &["-s", &server.http("/app/")], b"");
    }
    let login = Manager::login_url(&server);
    (server, members, login)
}

fn two_members() -> [Member; 2] {
    [(); 2].map(|()| Member::start(|_| ok("a")))
}

#[test]
fn the_page_is_accessible_at_both_widths_and_in_both_schemes() {
    let (server, _members, login) = server();
    browse("looks", &[&Manager::of(&server).url, &login]);
}

#[test]
fn a_narrow_page_has_cards_in_the_order_of_a_wide_page() {
    let (server, _members, login) = server();
    browse("cards", &[&Manager::of(&server).url, &login]);
}

#[test]
fn times_are_local_with_utc_as_the_tooltip() {
    let (server, _members, login) = server();
    browse("times", &[&Manager::of(&server).url, &login]);
}

#[test]
fn edits_work_with_script_and_without_script() {
    let (server, _members, login) = server();
    let manager = Manager::of(&server);
    browse("edits", &[&manager.url, &login, "script"]);
    assert_eq!(state(&server), "enabled");
    let login = Manager::login_url(&server);
    browse("edits", &[&manager.url, &login, "no script"]);
    assert_eq!(state(&server), "enabled");
}

#[test]
fn ticked_members_are_edited_with_script_and_without_script() {
    for script in ["script", "no script"] {
        let (server, _members, login) = server();
        browse("ticks", &[&Manager::of(&server).url, &login, script]);
        assert_eq!(state(&server), "enabled");
    }
}

#[test]
fn a_tick_follows_its_member() {
    let (server, _members, login) = server();
    browse("moved", &[&Manager::of(&server).url, &login]);
}

#[test]
fn the_lines_for_the_file_are_copied() {
    let (server, _members, login) = server();
    browse("copies", &[&Manager::of(&server).url, &login]);
}

#[test]
fn the_keyboard_suffices_for_an_edit() {
    let (server, _members, login) = server();
    browse("keyboard", &[&Manager::of(&server).url, &login]);
    assert_eq!(state(&server), "draining");
}

#[test]
fn passwords_open_the_page_for_viewers_and_editors() {
    let members = two_members();
    let [first, second] = members.each_ref().map(Member::url);
    let keys = format!("{LOCAL}\nusers = \"managers\"\nviewers = \"viewers\"");
    let server = Server::start_in(folder_with_users(), &config(&keys, &[&first, &second]));
    browse("passwords", &[&Manager::of(&server).url]);
    assert_eq!(state(&server), "disabled");
}

#[test]
fn updates_leave_the_focus_and_opened_lists() {
    let (server, _members, login) = server();
    browse("updates", &[&Manager::of(&server).url, &login]);
}
