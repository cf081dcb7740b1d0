//! Edits of balancers on the page of the manager: the keys of Apache's balancer-manager, the history, and the XML.

use std::fs;
use std::process::Command;
use std::thread;

use crate::manager::{Answer, LOCAL, Manager, config, folder_with_users};
use crate::support::member::{Member, ok};
use crate::support::programs::{Program, free_port};
use crate::support::{Folder, Server, run, server_table, site_table, tool};

/// Returns a configuration with two balancers: `app`, where the members have the routes `a`, `b`, …, and `other` with a
/// health check.
pub fn edited_config(members: &[&Member], more: &str) -> String {
    let items = ('a'..).zip(members);
    let items = items.map(|(route, member)| {
        let url = member.url();
        format!("{{ url = \"{url}\", route = \"{route}\" }}")
    });
    let items: Vec<String> = items.collect();
    let other = "[[balancer]]\nname = \"other\"\nmembers = [\"http://127.0.0.1:1\"]\n\
                 health = { path = \"/up\", every = \"1h\" }\n";
    format!(
        "{}[manager]\n{LOCAL}\n{more}\n[[balancer]]\nname = \"app\"\nconnections = 64\nmembers = [{}]\n{other}{}\
         [[site.route]]\npath = \"/app/\"\nbalance = \"app\"\n[[site.route]]\npath = \"/other/\"\nbalance = \"other\"\n",
        server_table(""),
        items.join(", "),
        site_table("http = \"serve\"\n")
    )
}

/// Client with a login that edits.
pub struct Editor {
    pub manager: Manager,
    login: Vec<String>,
    token: String,
}

impl Editor {
    /// Opens a session by `anthill manager login`.
    pub fn of(server: &Server) -> Editor {
        let manager = Manager::of(server);
        let cookie = manager.session(server);
        Editor::with(manager, &["-b", &cookie])
    }

    pub fn with(manager: Manager, login: &[&str]) -> Editor {
        Editor {
            token: manager.token(login),
            login: login.iter().map(|it| (*it).to_owned()).collect(),
            manager,
        }
    }

    pub fn get(&self, path: &str) -> Answer {
        let login: Vec<&str> = self.login.iter().map(String::as_str).collect();
        self.manager.curl(path, &login)
    }

    /// Posts a form with the token. Each field is `NAME=VALUE`, not encoded.
    pub fn post(&self, fields: &[&str]) -> Answer {
        let nonce = format!("nonce={}", self.token);
        let mut options: Vec<&str> = self.login.iter().map(String::as_str).collect();
        for field in fields.iter().copied().chain([nonce.as_str()]) {
            options.extend(["--data-urlencode", field]);
        }
        self.manager.curl("/", &options)
    }

    /// Posts a form for the balancer `app`, and for a member with the route, if any.
    fn edit(&self, member: Option<&str>, fields: &[&str]) -> Answer {
        let member = member.map(|member| format!("w={member}"));
        let mut all = vec!["b=app"];
        all.extend(member.as_deref());
        all.extend(fields);
        self.post(&all)
    }

    /// Posts a form that must be accepted.
    pub fn edited(&self, member: Option<&str>, fields: &[&str]) {
        let answer = self.edit(member, fields);
        assert_eq!(answer.status, 303, "{fields:?} {answer:?}");
    }

    /// Returns the entries of the history, the newest first.
    pub fn history(&self) -> Vec<String> {
        let json = self.get("/history.json").body;
        let entries = json.split("{\"id\":").skip(1);
        entries.map(str::to_owned).collect()
    }
}

fn two_members() -> [Member; 2] {
    ["a", "b"].map(|name| Member::start(move |_| ok(name)))
}

fn url_of(member: &Member) -> String {
    member.url()
}

#[test]
fn every_key_of_the_forms_changes_its_value_and_is_remembered() {
    let [a, b] = two_members();
    let server = Server::start(&edited_config(&[&a, &b], ""));
    let editor = Editor::of(&server);
    let url = url_of(&a);
    #[rustfmt::skip]
    let table: [(bool, &[&str], &str, &str); 27] = [
        (false, &["b_ss=S|s"], "sticky", "S|s"),
        (true, &["w_lf=2.5"], "weight", "2.5"),
        (true, &["w_ls=3"], "set", "3"),
        (true, &["w_wr=c"], "route", "c"),
        (true, &["w_rr=b"], "redirect", "b"),
        (true, &["w_status_I=1"], "ignore_errors", "on"),
        (true, &["w_status_N=1"], "state", "draining"),
        (true, &["w_status_D=1"], "state", "disabled"),
        (true, &["w_status_S=1"], "state", "stopped"),
        (true, &["w_status_N=0", "w_status_D=0", "w_status_S=0"], "state", "enabled"),
        (true, &["w_status_H=1"], "role", "standby"),
        (true, &["w_status_H=0", "w_status_R=1"], "role", "spare"),
        (true, &["w_status_R=0"], "role", "regular"),
        (true, &["w_hi=3600000"], "check_interval", "3600s"),
        (true, &["w_hp=4"], "check_passes", "4"),
        (true, &["w_hf=5"], "check_fails", "5"),
        (true, &["w_hu=/h"], "check_uri", "/h"),
        (true, &["w_he=other"], "check_expression", "other"),
        (true, &["w_hm=GET"], "check_method", "get"),
        (true, &["w_status_C=1"], "check_failed", "on"),
        (false, &["b_lbm=bybusyness"], "method", "bybusyness"),
        (false, &["b_tmo=20"], "queue_timeout", "20s"),
        (false, &["b_max=2"], "attempts", "2"),
        (false, &["b_sforce=1"], "strict", "on"),
        (false, &["b_sforce=0"], "strict", "off"),
        (true, &["w_rr=-"], "redirect", ""),
        (false, &["b_ss=-"], "sticky", ""),
    ];
    for (count, (is_member, fields, value, new)) in table.into_iter().enumerate() {
        let member = is_member.then_some(url.as_str());
        editor.edited(member, fields);
        let history = editor.history();
        assert_eq!(history.len(), count + 1, "{fields:?}");
        for part in [
            format!("\"value\":\"{value}\""),
            format!("\"new\":\"{new}\""),
            "\"user\":\"anthill manager login (manager)\"".to_owned(),
        ] {
            assert!(history[0].contains(&part), "{fields:?} {part}: {history:?}");
        }
        // The form of the page has the value, apart from choices and check boxes.
        let (key, text) = fields[0].split_once('=').expect("a field");
        let path = match member {
            Some(url) => format!("/?b=app&w={url}"),
            None => "/?b=app".to_owned(),
        };
        let page = editor.get(&path).body;
        assert!(page.contains(&format!("name=\"{key}\"")) || page.contains(&format!("name={key}")));
        if page.contains(&format!("<input value=\"\" id={key} ")) {
            assert_eq!(text, "-", "{fields:?}");
        } else if page.contains(&format!("\" id={key} "))
            && !page.contains(&format!("<select id={key} "))
        {
            let field = format!("<input value=\"{text}\" id={key} ");
            assert!(page.contains(&field), "no {field}: {page}");
        }
    }
    // Values in force already are no edits.
    editor.edited(Some(&url), &["w_lf=2.50", "w_ls=3", "w_hi=3600000"]);
    assert_eq!(editor.history().len(), table.len());
    // Several values in one form are as many entries.
    editor.edited(None, &["b_sforce=1", "b_ss=T", "b_max=4"]);
    assert_eq!(editor.history().len(), table.len() + 3);
}

#[test]
fn a_value_out_of_range_is_refused_beside_its_field() {
    let [a, b] = two_members();
    let server = Server::start(&edited_config(&[&a, &b], ""));
    let editor = Editor::of(&server);
    let url = url_of(&a);
    #[rustfmt::skip]
    let table: [(bool, &str, &str); 18] = [
        (true, "w_lf=0.99", "weight"),
        (true, "w_lf=100.01", "weight"),
        (true, "w_lf=1.001", "weight"),
        (true, "w_lf=\u{1b}\u{200f}<b>", "weight"),
        (true, "w_ls=100", "set"),
        (true, "w_wr=a b", "route"),
        (true, "w_rr=<script>", "redirect"),
        (true, "w_rr=nowhere", "redirect"),
        (true, "w_hm=CPING", "check_method"),
        (true, "w_he=app", "check_expression"),
        (true, "w_hi=0", "check_interval"),
        (true, "w_hp=0", "check_passes"),
        (true, "w_hf=x", "check_fails"),
        (true, "w_hu=h", "check_uri"),
        (false, "b_lbm=random", "method"),
        (false, "b_tmo=7201", "queue_timeout"),
        (false, "b_max=100", "attempts"),
        (false, "b_ss=a b", "sticky"),
    ];
    for (is_member, field, value) in table {
        let good = if is_member { "w_ls=7" } else { "b_max=7" };
        let fields: &[&str] = match field.split_once('=') {
            Some(("w_ls" | "b_max", _)) => &[field],
            _ => &[good, field],
        };
        let answer = editor.edit(is_member.then_some(url.as_str()), fields);
        assert_eq!(answer.status, 400, "{field} {answer:?}");
        let beside = format!("<strong class=wrong role=alert id={value}_wrong>");
        assert!(answer.body.contains(&beside), "{field} {}", answer.body);
        assert!(answer.body.contains("aria-invalid"), "{field}");
        let raw = ["\u{1b}", "\u{200f}", "<script>", "<b>\""];
        assert!(!raw.iter().any(|raw| answer.body.contains(raw)), "{field}");
        assert_eq!(editor.history(), Vec::<String>::new(), "{field}");
    }
    let member = format!("w={url}");
    let both = editor.edit(Some(&url), &["w_status_H=1", "w_status_R=1"]);
    assert_eq!(both.status, 400, "{both:?}");
    assert!(
        both.body.contains("either a standby or a spare"),
        "{}",
        both.body
    );
    for fields in [
        &["b=nowhere", "b_max=1"][..],
        &["b=app", "w=nowhere", "w_lf=2"],
        &["undo=1"],
        // Misspelt and misplaced keys, values that no flag has, and forms that would change nothing.
        &["b=app", "b_maxx=2"],
        &["b=app", &member, "w_status_Q=1"],
        &["b=app", &member, "w_status_D=yes"],
        &["b=app", &member, "w_status_D="],
        &["b=app", &member, "was_w_lff=1", "w_lf=2"],
        &["b=app", &member, "w_lf=2", "w_lf=3"],
        &["b=app", "b=app2", "b_max=2"],
        &["b=app", "w_status_D=1"],
        &["b=app", &member, "b_max=2"],
        &["b=app", &member, "remove=yes"],
        &["b=app", "remove=1"],
        &["b=app", "b_nwrkr=http://127.0.0.1:9", "b_wyes=maybe"],
        &["b=app", "b_nwrkr=", "b_wyes=1"],
    ] {
        let answer = editor.post(fields);
        assert_eq!(answer.status, 400, "{fields:?} {answer:?}");
        assert!(
            answer.body.contains("<p class=error role=alert>error: "),
            "{answer:?}"
        );
    }
    // A GET with the keys of the forms changes nothing.
    let get = editor.get(&format!("/?b=app&w={url}&w_lf=2&nonce={}", editor.token));
    assert_eq!(get.status, 403, "{get:?}");
    assert_eq!(editor.history(), Vec::<String>::new());
}

#[test]
fn text_with_markup_is_shown_as_text() {
    let [a, b] = two_members();
    let server = Server::start(&edited_config(&[&a, &b], ""));
    let editor = Editor::of(&server);
    let url = url_of(&a);
    editor.edited(
        Some(&url),
        &[
            "w_hm=GET",
            "w_hu=/<script>alert(1)</script>",
            "w_hi=3600000",
        ],
    );
    let pages = [
        "/".to_owned(),
        format!("/?b=app&w={url}"),
        "/history".to_owned(),
    ];
    for path in &pages {
        let page = editor.get(path).body;
        assert!(page.contains("/&lt;script&gt;"), "{path} {page}");
        assert!(!page.contains("<script>"), "{path} {page}");
    }
}

#[test]
fn edits_are_undone_and_shown_as_differences() {
    let [a, b] = two_members();
    let keys = "users = \"managers\"\nviewers = \"viewers\"";
    let server = Server::start_in(folder_with_users(), &edited_config(&[&a, &b], keys));
    let ann = Editor::with(Manager::of(&server), &["-u", "ann:secret of ann"]);
    let url = url_of(&a);
    ann.edited(Some(&url), &["w_lf=5"]);
    let page = ann.get("/").body;
    for part in [
        "weight changed from 1 to 5",
        "ann (manager)",
        "<input type=hidden name=undo value=\"1\">",
        "Newest edit, entry 1: app: ",
        "Differences from anthill.toml: 1",
        "weight = 5",
    ] {
        assert!(page.contains(part), "no {part}: {page}");
    }
    let differences = ann.get("/differences.json").body;
    assert!(differences.contains("\"in_force\":\"5\""), "{differences}");
    // A client without the right to edit gets no buttons.
    let bob = ann.manager.curl("/history", &["-u", "bob:secret of bob"]);
    assert!(
        bob.body.contains("weight changed from 1 to 5"),
        "{}",
        bob.body
    );
    assert!(!bob.body.contains("name=undo"), "{}", bob.body);
    for unclear in ["undo=+1", "undo=", "undo=1 "] {
        assert_eq!(ann.post(&[unclear]).status, 400, "{unclear}");
    }
    let undone = ann.post(&["undo=1"]);
    assert_eq!(undone.status, 303, "{undone:?}");
    let page = ann.get("/").body;
    assert!(
        page.contains("(undone by 2)") && page.contains("(undoes 1)"),
        "{page}"
    );
    assert!(!page.contains("Differences from"), "{page}");
    let again = ann.post(&["undo=1"]);
    assert_eq!(again.status, 400, "{again:?}");
    assert_eq!(ann.history().len(), 2);
}

#[test]
fn members_are_added_and_removed_after_a_confirmation() {
    let [a, b] = two_members();
    let server = Server::start(&edited_config(&[&a], ""));
    let editor = Editor::of(&server);
    let (url, new) = (url_of(&a), format!("b_nwrkr={}", b.url()));
    // Apache's page adds a member only with the confirmation.
    editor.edited(None, &[&new]);
    assert_eq!(editor.history().len(), 0);
    editor.edited(None, &[&new, "b_wyes=1"]);
    let page = editor.get("/").body;
    assert!(page.contains(">disabled"), "{page}");
    let twice = editor.edit(None, &[&new, "b_wyes=1"]);
    assert_eq!(twice.status, 400, "{twice:?}");
    let added = b.url();
    // The last usable member, and the removal of a member, need a confirmation.
    for (member, field, change) in [
        (&url, "w_status_D=1", "state from enabled to disabled"),
        (&url, "w_status_N=1", "state from enabled to draining"),
        (&added, "remove=1", "member from present to absent"),
    ] {
        let before = editor.history();
        let asked = editor.edit(Some(member), &[field]);
        assert_eq!(asked.status, 409, "{asked:?}");
        for part in [
            "Confirm the edit",
            "name=confirmed value=\"1\"",
            "<button class=danger>",
            &format!("name=\"w\" value=\"{member}\""),
        ] {
            assert!(asked.body.contains(part), "no {part}: {}", asked.body);
        }
        assert!(!asked.body.contains('`'), "{}", asked.body);
        let label = match field {
            "w_status_D=1" => "Disable",
            "w_status_N=1" => "Drain",
            _ => "Remove",
        };
        let address = member.trim_start_matches("http://");
        let button = format!(">{label} {address}</button>");
        assert!(asked.body.contains(&button), "no {button}: {}", asked.body);
        let place = format!("<li>app: {member}: {change}</li>");
        assert!(asked.body.contains(&place), "no {place}: {}", asked.body);
        assert_eq!(editor.history(), before, "{field}");
    }
    let removed = editor.edit(Some(&added), &["remove=1", "confirmed=1"]);
    assert_eq!(
        (removed.status, removed.field("location")),
        (303, Some("/?b=app"))
    );
    assert!(!editor.get("/balancers.json").body.contains(&added));
    editor.edited(Some(&url), &["w_status_D=1", "confirmed=1"]);
    assert_eq!(editor.history().len(), 3);
}

#[test]
fn an_unusable_state_file_is_shown_on_the_page() {
    let [a, b] = two_members();
    let text = edited_config(&[&a, &b], "");
    let server = Server::start(&text);
    Editor::of(&server).edited(Some(&url_of(&a)), &["w_lf=5"]);
    let folder: Folder = server.into_folder();
    let files = fs::read_dir(folder.path("state")).expect("the state folder");
    let mut files = files.map(|file| file.expect("a file").path());
    let file = files.find(|file| file.extension().is_some_and(|it| it == "edits"));
    fs::write(file.expect("a state file"), "cut off").expect("a written file");
    let server = Server::start_in(folder, &text);
    let editor = Editor::of(&server);
    let page = editor.get("/").body;
    assert!(page.contains("<h2 id=problems>Problems</h2>"), "{page}");
    assert!(page.contains("edits are refused: "), "{page}");
    let refused = editor.edit(Some(&url_of(&a)), &["w_lf=6"]);
    assert_eq!(refused.status, 400, "{refused:?}");
    assert!(
        refused.body.contains("edits are refused: "),
        "{}",
        refused.body
    );
}

/// Starts Apache with a balancer-manager for a balancer with one member.
fn apache(member: &Member) -> Program {
    let (folder, port) = (Folder::new(), free_port());
    let root = folder.path("").display().to_string();
    let modules = [
        "mpm_prefork",
        "authz_core",
        "proxy",
        "proxy_http",
        "proxy_balancer",
        "proxy_hcheck",
        "slotmem_shm",
        "lbmethod_byrequests",
        "lbmethod_bytraffic",
    ];
    let modules: String = modules
        .iter()
        .map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"))
        .collect();
    let url = member.url();
    folder.write(
        "apache.conf",
        format!(
            "{modules}ServerRoot {root}\nDefaultRuntimeDir {root}\nMutex file:{root} default\n\
             PidFile {root}/pid\nErrorLog {root}/errors\nServerName localhost\nListen 127.0.0.1:{port}\n\
             <Proxy balancer://app>\nBalancerMember {url} route=a\nProxySet stickysession=S nonce=n growth=5\n</Proxy>\n\
             <Location /manager>\nSetHandler balancer-manager\n</Location>\n\
             ProxyPass /manager !\nProxyPass / balancer://app/\n"
        ),
    );
    let mut command = Command::new(tool("apache2"));
    command.arg("-X").arg("-f").arg(folder.path("apache.conf"));
    Program::start(command, port, folder)
}

/// Returns a page of Apache's balancer-manager.
fn of_apache(apache: &Program, query: &str) -> String {
    let url = format!("http://127.0.0.1:{}/manager{query}", apache.port);
    // Apache reads the query only for a page that its own page leads to.
    let fields = [
        "-H",
        "Host: localhost",
        "-H",
        "Referer: http://localhost/manager",
    ];
    let options = [&["-s"][..], &fields, &[url.as_str()]].concat();
    run("curl", &options, b"").text()
}

/// Returns the text between two texts, for each occurrence of the first.
fn between<'t>(text: &'t str, before: &str, after: &str) -> Vec<&'t str> {
    let parts = text.split(before).skip(1);
    parts
        .filter_map(|part| Some(part.split_once(after)?.0))
        .collect()
}

/// Returns the fields of the last form of Apache's page, as a browser would post the fields.
fn fields_of(page: &str) -> Vec<String> {
    let form = page.rsplit("<form ").next().unwrap_or_default();
    let form = form.split("</form>").next().unwrap_or_default();
    let mut fields = Vec::new();
    for tag in form.split('<').skip(1) {
        let attribute = |name: &str| {
            let value = tag.split_once(&format!("{name}="))?.1;
            let end = match value.chars().next()? {
                quote @ ('\'' | '"') => return value[1..].split(quote).next(),
                _ => [' ', '>'],
            };
            value.split(end).next()
        };
        let name = attribute("name");
        if tag.starts_with("input") && !tag.contains("submit") {
            let is_off = tag.contains("radio") && !tag.contains("checked");
            let value = attribute("value")
                .or_else(|| attribute("value "))
                .unwrap_or_default();
            let is_box = tag.contains("checkbox");
            fields.extend(
                name.filter(|_| !is_off && !is_box)
                    .map(|name| format!("{name}={value}")),
            );
        } else if tag.starts_with("select") {
            let name = name.expect("a name");
            let rest = form
                .split_once(&format!("name='{name}'"))
                .expect("a list")
                .1;
            let rest = rest.split("</select>").next().unwrap_or_default();
            let options = rest.split("<option ").skip(1);
            let options: Vec<&str> = options.collect();
            let chosen = options.iter().find(|it| it.contains("selected"));
            let value = chosen
                .or(options.first())
                .and_then(|it| it.split('\'').nth(1));
            fields.push(format!("{name}={}", value.unwrap_or_default()));
        }
    }
    fields
}

#[test]
fn forms_of_apache_are_accepted() {
    let [a, b] = two_members();
    let apache = apache(&a);
    let server = Server::start(&edited_config(&[&a, &b], ""));
    let editor = Editor::of(&server);
    let url = url_of(&a);
    let member = of_apache(&apache, &format!("?b=app&w={url}&nonce=n"));
    let keys = fields_of(&member);
    let names: Vec<&str> = keys
        .iter()
        .filter_map(|it| Some(it.split_once('=')?.0))
        .collect();
    #[rustfmt::skip]
    let expected = [
        "w_lf", "w_ls", "w_wr", "w_rr", "w_status_I", "w_status_N", "w_status_D", "w_status_H", "w_status_R",
        "w_status_C", "w_status_S", "w_hm", "w_he", "w_hi", "w_hp", "w_hf", "w_hu", "w", "b", "nonce",
    ];
    assert_eq!(names, expected, "{member}");
    let post = |fields: &[String], changed: &str| {
        let (key, _) = changed.split_once('=').expect("a field");
        let own = [format!("{key}="), "nonce=".to_owned()];
        let fields = fields.iter().map(String::as_str);
        let kept = fields.filter(|it| !own.iter().any(|own| it.starts_with(own.as_str())));
        let mut kept: Vec<&str> = kept.collect();
        kept.push(changed);
        editor.post(&kept)
    };
    let answer = post(&keys, "w_lf=3.00");
    assert_eq!(answer.status, 303, "{keys:?} {answer:?}");
    assert!(editor.get("/balancers.json").body.contains("\"weight\":3"));
    let balancer = fields_of(&of_apache(&apache, "?b=app&nonce=n"));
    let names: Vec<&str> = balancer
        .iter()
        .filter_map(|it| Some(it.split_once('=')?.0))
        .collect();
    assert_eq!(
        names,
        [
            "b_lbm", "b_tmo", "b_max", "b_sforce", "b_ss", "b_nwrkr", "b", "nonce"
        ]
    );
    let answer = post(&balancer, "b_max=2");
    assert_eq!(answer.status, 303, "{balancer:?} {answer:?}");
    let history = editor.history().concat();
    assert!(history.contains("\"value\":\"attempts\""), "{history}");
}

#[test]
fn the_xml_has_the_elements_of_apache() {
    let [a, b] = two_members();
    let apache = apache(&a);
    let server = Server::start(&edited_config(&[&a, &b], ""));
    let editor = Editor::of(&server);
    editor.edited(None, &["b_ss=S"]);
    let theirs = of_apache(&apache, "?b=app&nonce=n&xml=1");
    let ours = editor.get("/?xml=1");
    assert_eq!(ours.field("content-type"), Some("text/xml; charset=utf-8"));
    let path = server.folder.path("balancers.xml");
    fs::write(&path, &ours.body).expect("a written file");
    let script = "import sys, xml.etree.ElementTree as e\n\
                  def walk(it, path, out):\n\
                  \x20   path += '/' + it.tag.split('}')[-1]\n\
                  \x20   if path not in out: out.append(path)\n\
                  \x20   for child in it: walk(child, path, out)\n\
                  \x20   return out\n\
                  print('\\n'.join(walk(e.fromstring(sys.stdin.read()), '', [])))";
    let elements = |text: &str| {
        let text = run("python3", &["-c", script], text.as_bytes())
            .text()
            .to_owned();
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let (theirs, our_elements) = (elements(&theirs), elements(&ours.body));
    let missing: Vec<_> = theirs
        .iter()
        .filter(|it| !our_elements.contains(it))
        .collect();
    assert_eq!(missing, Vec::<&String>::new(), "{our_elements:?}");
    assert_eq!(
        between(&ours.body, "<httpd:name>", "<").first(),
        Some(&"balancer://app")
    );
    assert!(
        ours.body.contains("<httpd:status>Init Ok </httpd:status>"),
        "{}",
        ours.body
    );
    assert!(
        ours.body.contains("<httpd:route>a</httpd:route>"),
        "{}",
        ours.body
    );
}

#[test]
fn a_page_of_2000_members_is_small() {
    let member = Member::start(|_| ok("a"));
    let port = member.port;
    let mut text = config(LOCAL, &[&member.url()]);
    for balancer in 0..19 {
        let members = (0..105).map(|at| format!("\"http://127.{balancer}.7.{at}:{port}\""));
        let members: Vec<String> = members.collect();
        text.push_str(&format!(
            "[[balancer]]\nname = \"b{balancer}\"\nmembers = [{}]\n",
            members.join(", ")
        ));
        text.push_str(&format!(
            "[[site.route]]\npath = \"/b{balancer}/\"\nbalance = \"b{balancer}\"\n"
        ));
    }
    let server = Server::start(&text);
    let manager = Manager::of(&server);
    let cookie = manager.session(&server);
    for (login, boxes) in [(&[][..], 0), (&["-b", cookie.as_str()], 1_996)] {
        let page = manager.curl("/", login);
        assert_eq!(page.status, 200);
        let rows = page.body.matches("<th scope=row>").count();
        assert!(rows >= 1_996, "{rows}");
        assert_eq!(page.body.matches("<input type=checkbox").count(), boxes);
        let compressed = run("gzip", &["-c"], page.body.as_bytes());
        let bytes = compressed.stdout.len();
        assert!(bytes <= 300 * 1_024, "{bytes} bytes");
    }
}

#[test]
fn a_form_of_an_old_page_keeps_newer_edits() {
    let [a, b] = two_members();
    let server = Server::start(&edited_config(&[&a, &b], ""));
    let editor = Editor::of(&server);
    let url = url_of(&a);
    let former = |key: &str| {
        let page = editor.get(&format!("/?b=app&w={url}")).body;
        let hidden = format!("<input type=hidden name=was_{key} value=\"");
        let found = between(&page, &hidden, "\"").first().copied();
        found.expect("a former value").to_owned()
    };
    let (weight, set) = (former("w_lf"), former("w_ls"));
    let old_page = [format!("was_w_lf={weight}"), format!("was_w_ls={set}")];
    let old_page = |fields: &[&str]| {
        let old = old_page.iter().map(String::as_str);
        let all: Vec<&str> = fields.iter().copied().chain(old).collect();
        editor.edit(Some(&url), &all)
    };
    editor.edited(Some(&url), &["w_lf=3"]);
    let unchanged = format!("w_lf={weight}");
    let answer = old_page(&[&unchanged, "w_ls=4"]);
    assert_eq!(answer.status, 303, "{answer:?}");
    let list = editor.get("/balancers.json").body;
    assert!(list.contains("\"weight\":3,\"set\":4"), "{list}");
    let entries = editor.history();
    let answer = old_page(&["w_lf=5", "w_ls=4"]);
    assert_eq!(answer.status, 400, "{answer:?}");
    let beside = "<strong class=wrong role=alert id=weight_wrong>error: changed meanwhile";
    assert!(answer.body.contains(beside), "{}", answer.body);
    assert_eq!(editor.history(), entries);
    // The page of the refusal has the newer value as the former value.
    assert_ne!(former("w_lf"), weight);
}

#[test]
fn one_of_two_edits_from_the_same_page_wins() {
    let [a, b] = two_members();
    let server = Server::start(&edited_config(&[&a, &b], ""));
    let editor = Editor::of(&server);
    let url = url_of(&a);
    for round in 0..20 {
        let (former, begin) = (1 + 2 * round, editor.history().len());
        editor.edited(Some(&url), &[&format!("w_lf={former}")]);
        let posted = [former + 1, former + 2].map(|weight| {
            let set = format!("w_ls={}", weight % 2 + 2 * (round % 2));
            [format!("w_lf={weight}"), format!("was_w_lf={former}"), set]
        });
        let statuses = thread::scope(|scope| {
            let posts = posted.each_ref().map(|fields| {
                let fields = fields.each_ref().map(String::as_str);
                let (editor, url) = (&editor, &url);
                scope.spawn(move || editor.edit(Some(url), &fields).status)
            });
            posts.map(|post| post.join().expect("a status"))
        });
        let winner = statuses.iter().position(|status| *status == 303);
        let winner = winner.expect("an accepted edit");
        assert_eq!(statuses[1 - winner], 400, "{round}");
        // The refused form changes none of its values.
        let list = editor.get("/balancers.json").body;
        let weight = posted[winner][0].replacen("w_lf=", "\"weight\":", 1);
        let set = posted[winner][2].replacen("w_ls=", "\"set\":", 1);
        assert!(list.contains(&format!("{weight},{set},")), "{round} {list}");
        let history = editor.history();
        let weights = history[..history.len() - begin].iter();
        let weights: Vec<&String> = weights.filter(|it| it.contains("\"weight\"")).collect();
        assert!((1..=2).contains(&weights.len()), "{round} {weights:?}");
        let change = format!("\"old\":\"{former}\"");
        assert!(weights[0].contains(&change), "{round} {weights:?}");
    }
}

#[test]
fn a_refused_value_adds_no_member() {
    let [a, b] = two_members();
    let server = Server::start(&edited_config(&[&a, &b], ""));
    let editor = Editor::of(&server);
    let add = ["b_nwrkr=http://127.0.0.1:9", "b_wyes=1"];
    let refused = editor.edit(None, &["b_lbm=heartbeat", add[0], add[1]]);
    assert_eq!(refused.status, 400, "{refused:?}");
    assert_eq!(editor.history(), Vec::<String>::new());
    let list = editor.get("/balancers.json").body;
    assert!(!list.contains("http://127.0.0.1:9\""), "{list}");
    // A value of a form with a bad URL, or with the URL of a member, stays.
    let known = format!("b_nwrkr={}", url_of(&a));
    for url in ["b_nwrkr=ftp://127.0.0.1", known.as_str()] {
        let refused = editor.edit(None, &["b_lbm=p2c", url, add[1]]);
        assert_eq!(refused.status, 400, "{refused:?}");
        let list = editor.get("/balancers.json").body;
        assert!(list.contains("\"method\":\"byrequests\""), "{list}");
        assert_eq!(editor.history(), Vec::<String>::new());
    }
    editor.edited(None, &["b_lbm=p2c", add[0], add[1]]);
    let list = editor.get("/balancers.json").body;
    assert!(list.contains("http://127.0.0.1:9\""), "{list}");
    assert!(list.contains("\"method\":\"p2c\""), "{list}");
}
