//! The guide has what the program has.

use std::fs;
use std::path::Path;

use anthill::wire::reject::Reject;

fn paper(name: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
    fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

#[test]
fn every_refusal_is_in_the_guide() {
    let guide = paper("docs/src/rejects.md");
    for reject in Reject::ALL {
        let row = format!(
            "| R{} | {} | {} |",
            reject.rule, reject.status.0, reject.reason
        );
        assert!(
            guide.contains(&row),
            "docs/src/rejects.md has no row that begins with {row}"
        );
    }
}

#[test]
fn every_limit_is_in_the_guide() {
    let guide = paper("docs/src/limits.md");
    let source = paper("server/src/limits.rs");
    let fields = source
        .split_once("pub struct Limits {")
        .and_then(|(_, rest)| rest.split_once('}'));
    let (fields, _) = fields.expect("the struct Limits");
    let names = fields
        .lines()
        .filter_map(|line| line.trim().strip_prefix("pub ")?.split(':').next());
    for name in names {
        assert!(
            guide.contains(&format!("| `{name}` |")),
            "docs/src/limits.md lacks `{name}`"
        );
    }
}

/// Whatever is linked from the papers is there.
#[test]
fn no_link_is_broken() {
    let pages =
        fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/src")).expect("docs/src");
    let pages = pages.map(|page| {
        format!(
            "docs/src/{}",
            page.expect("a page").file_name().to_string_lossy()
        )
    });
    let papers = [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
    ]
    .map(String::from);
    for name in papers.into_iter().chain(pages) {
        for link in paper(&name)
            .split("](")
            .skip(1)
            .filter_map(|tail| tail.split(')').next())
        {
            let file = link.split('#').next().unwrap_or_default();
            if file.is_empty() || file.contains("://") {
                continue;
            }
            let folder = Path::new(&name).parent().unwrap_or(Path::new(""));
            let target = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("..")
                .join(folder)
                .join(file);
            assert!(target.exists(), "{name} links to {link}, which isn't there");
        }
    }
}

/// What the guide shows of a configuration is one: what is left out around it is put there.
#[test]
fn every_example_of_a_configuration_is_right() {
    let folder = crate::support::Folder::new().with("users.htpasswd", "");
    for name in [
        "public",
        "srv/git",
        "srv/site",
        "srv/shop/public",
        "journal",
        "cgi-bin",
        "tools",
    ] {
        fs::create_dir_all(folder.path(name)).expect("a folder");
    }
    let init = ["init", "-q", "--bare", "-b", "main"];
    let repository = folder.path("srv/git/tools/site.git").display().to_string();
    let made = crate::support::run("git", &[&init[..], &[&repository]].concat(), b"");
    assert!(made.success, "{}", made.errors());
    let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/src");
    let mut checked = 0;
    for page in fs::read_dir(pages).expect("docs/src") {
        let page = page.expect("a page").path();
        let text = fs::read_to_string(&page).expect("its text");
        for block in text.split("```toml\n").skip(1) {
            let block = block.split("```").next().unwrap_or_default();
            if NOT_ALONE.iter().any(|(key, _)| block.contains(key)) {
                continue;
            }
            let mut whole = block.replace("\"/srv/", "\"srv/");
            if !whole.contains("[server]") {
                whole = crate::support::server_table("") + &whole;
            } else {
                whole = whole.replace("[server]", "[server]\nstate = \"state\"");
            }
            if !whole.contains("[[site]]") {
                let site = crate::support::site_table("");
                match whole.find("[[site.route]]") {
                    Some(at) => whole.insert_str(at, &site),
                    None => whole += &("\n".to_owned() + &site),
                }
            }
            folder.write("anthill.toml", &whole);
            let file = folder.path("anthill.toml");
            let done = crate::support::anthill(&["check".as_ref(), file.as_os_str()]);
            assert_eq!(done.code, Some(0), "{}:\n{whole}\n{done:?}", page.display());
            checked += 1;
        }
    }
    assert!(checked > 12, "{checked} examples");
}

/// Examples that need what only their reader has, and why they aren't checked.
const NOT_ALONE: [(&str, &str); 8] = [
    ("certificate", "a certificate"),
    ("client_ca", "a certificate of a CA"),
    ("tickets =", "keys in /etc"),
    ("user  =", "an account"),
    ("hook =", "a program"),
    ("http3 =", "it shows two values of one key"),
    ("errors = {", "pages of the site"),
    ("price =", "a machine for the benchmark, no server"),
];
