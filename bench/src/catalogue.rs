//! Who can take part: `contenders.toml` in types.
//!
//! The catalogue is data, so that a contender can be added, or another build of one compared, without
//! building anything: a file of the same form, given on the command line, adds entries and replaces
//! those of the same name. Templates that a file names are looked for beside it first.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::nearest::nearest;
use crate::program::{Found, Missing, Program};

/// All contenders that are known, in the order of the tables.
#[derive(Debug, Clone)]
pub struct Catalogue {
    entries: Vec<Entry>,
}

/// One contender: what it is called, what it can do, how it is found and started.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// What it is called on the command line and in results: `nginx`.
    pub name: String,
    /// What it is called in tables: `stunnel + busybox httpd`.
    pub title: String,
    /// What it can do.
    pub abilities: Vec<Ability>,
    /// The largest file that it can serve, if there is a limit.
    #[serde(default)]
    pub largest_file_bytes: Option<u64>,
    /// Where it comes from.
    pub install: Install,
    /// What a reader of its figures should know.
    #[serde(default)]
    pub note: String,
    /// How the source document ran it.
    #[serde(default)]
    pub published: Option<Published>,
    /// The programs it needs.
    #[serde(rename = "program")]
    pub programs: Vec<Program>,
    /// The processes it consists of, in the order in which they are started.
    #[serde(rename = "start")]
    pub starts: Vec<Start>,
    /// Where its templates are looked for before the built-in ones.
    #[serde(skip)]
    beside: Option<PathBuf>,
}

/// What a contender can do; suites choose by this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ability {
    /// HTTP/1.1, or 1.0, without TLS.
    Http,
    /// The same over TLS 1.3.
    Https,
    /// It exchanges keys by X25519.
    X25519,
    /// It gives tickets, and resumes by them.
    Tickets,
    /// HTTP/2 over TLS.
    Http2,
    /// HTTP/3.
    Http3,
    /// It leaves a connection open for the next request.
    KeepAlive,
    /// It answers `/hello.html` with the site's page.
    Hello,
    /// It serves the site's folder, up to [`Entry::largest_file_bytes`].
    Files,
    /// It runs the site's scripts under `/cgi-bin/`.
    Cgi,
    /// It runs them under `/kept/` too, and keeps what they answer for a minute.
    PageCache,
    /// It forwards to members.
    Balancer,
    /// It can be run as the source document ran it.
    Published,
}

impl std::fmt::Display for Ability {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Ability::Http => "HTTP without TLS",
            Ability::Https => "HTTPS",
            Ability::X25519 => "X25519",
            Ability::Tickets => "resumption by tickets",
            Ability::Http2 => "HTTP/2",
            Ability::Http3 => "HTTP/3",
            Ability::KeepAlive => "keep-alive",
            Ability::Hello => "a page",
            Ability::Files => "files",
            Ability::Cgi => "CGI scripts",
            Ability::Balancer => "balancing",
            Ability::PageCache => "a page cache",
            Ability::Published => "the source document's settings",
        })
    }
}

/// Where a contender comes from.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Install {
    /// Debian packages.
    pub debian: Vec<String>,
    /// A crate that `cargo install` builds.
    pub cargo: Option<String>,
    /// A folder of `bench/programs` with a program that `make peers` builds.
    pub source: Option<String>,
    /// What else is to be said.
    pub note: String,
}

/// How the source document ran a contender.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Its body; without one it is the site's hello page.
    #[serde(default)]
    pub body: Option<String>,
    /// How many clients asked at once.
    pub clients: usize,
}

/// A process to start.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// Conditions that must hold; `!` before one: must not.
    #[serde(default)]
    pub when: Vec<String>,
    /// The program and its arguments, with placeholders.
    pub command: Vec<String>,
    /// Files to write into the work folder first: name and template.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// Variables of its environment, with placeholders.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
}

impl Catalogue {
    /// The built-in catalogue, and what `overlay` adds to it or replaces in it.
    pub fn load(overlay: Option<&Path>) -> Result<Catalogue, CatalogueError> {
        let mut catalogue = Catalogue::parse(BUILT_IN, Path::new("contenders.toml"), None)?;
        let Some(path) = overlay else {
            return Ok(catalogue);
        };
        let text = std::fs::read_to_string(path).map_err(|error| CatalogueError {
            path: path.to_owned(),
            problem: error.to_string(),
        })?;
        let folder = path.parent().unwrap_or(Path::new(".")).to_owned();
        for entry in Catalogue::parse(&text, path, Some(folder))?.entries {
            match catalogue
                .entries
                .iter_mut()
                .find(|known| known.name == entry.name)
            {
                Some(known) => *known = entry,
                None => catalogue.entries.push(entry),
            }
        }
        Ok(catalogue)
    }

    fn parse(
        text: &str,
        path: &Path,
        beside: Option<PathBuf>,
    ) -> Result<Catalogue, CatalogueError> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct File {
            #[serde(default, rename = "contender")]
            contenders: Vec<Entry>,
        }
        let wrong = |problem: String| CatalogueError {
            path: path.to_owned(),
            problem,
        };
        let mut file: File = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
        for entry in &mut file.contenders {
            entry.beside = beside.clone();
            entry
                .check()
                .map_err(|problem| wrong(format!("contender {}: {problem}", entry.name)))?;
        }
        Ok(Catalogue {
            entries: file.contenders,
        })
    }

    /// All entries, in the order of the tables.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entry of that name.
    pub fn contender(&self, name: &str) -> Result<&Entry, UnknownContender> {
        self.entries
            .iter()
            .find(|entry| entry.name == name)
            .ok_or_else(|| UnknownContender {
                name: name.to_owned(),
                near: nearest(name, self.entries.iter().map(|entry| entry.name.as_str()))
                    .into_iter()
                    .map(str::to_owned)
                    .collect(),
            })
    }

    /// The entries that can do all of this.
    pub fn able<'c>(&'c self, abilities: &'c [Ability]) -> impl Iterator<Item = &'c Entry> {
        self.entries
            .iter()
            .filter(move |entry| abilities.iter().all(|ability| entry.can(*ability)))
    }
}

impl Entry {
    /// Whether it can do this.
    pub fn can(&self, ability: Ability) -> bool {
        self.abilities.contains(&ability)
    }

    /// Whether it serves a file of that length.
    pub fn can_serve(&self, bytes: u64) -> bool {
        self.can(Ability::Files)
            && self
                .largest_file_bytes
                .is_none_or(|largest| bytes <= largest)
    }

    /// All its programs with their versions, or why it can't take part and how it is installed.
    pub fn find(&self) -> Result<Found, Missing> {
        Found::of(&self.programs).map_err(|why| Missing(format!("{why}; {}", self.install)))
    }

    /// The text of a template that it names.
    pub fn template(&self, name: &str) -> Result<String, String> {
        if let Some(path) = self.beside.as_ref().map(|folder| folder.join(name))
            && path.exists()
        {
            return std::fs::read_to_string(&path)
                .map_err(|error| format!("{}: {error}", path.display()));
        }
        let built_in = TEMPLATES.iter().find(|(known, _)| *known == name);
        built_in
            .map(|(_, text)| (*text).to_owned())
            .ok_or_else(|| format!("no template {name}"))
    }

    /// What the types can't say.
    fn check(&self) -> Result<(), String> {
        if self.starts.iter().any(|start| start.command.is_empty()) {
            return Err("a command is empty".into());
        }
        if self.can(Ability::Published) != self.published.is_some() {
            return Err("the ability and the table `published` go together".into());
        }
        for name in self.starts.iter().flat_map(|start| start.files.values()) {
            self.template(name)?;
        }
        Ok(())
    }
}

impl std::fmt::Display for Install {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut ways = Vec::new();
        if !self.debian.is_empty() {
            ways.push(format!("Debian has it: {}", self.debian.join(" ")));
        }
        if let Some(name) = &self.cargo {
            ways.push(format!("cargo install {name}"));
        }
        if let Some(folder) = &self.source {
            ways.push(format!("built from bench/programs/{folder}"));
        }
        if !self.note.is_empty() {
            ways.push(self.note.clone());
        }
        out.write_str(&ways.join("; "))?;
        if self.debian.is_empty() && self.cargo.is_none() && self.source.is_none() {
            return Ok(());
        }
        out.write_str(" (make peers installs all)")
    }
}

/// A catalogue that can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct CatalogueError {
    path: PathBuf,
    problem: String,
}

/// A name that no contender has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownContender {
    /// What was asked for.
    pub name: String,
    /// What may have been meant.
    pub near: Vec<String>,
}

impl std::error::Error for UnknownContender {}

impl std::fmt::Display for UnknownContender {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "no contender is called {}", self.name)?;
        match self.near.is_empty() {
            true => write!(out, "; `anthill bench list` names all"),
            false => write!(out, "; did you mean {}?", self.near.join(" or ")),
        }
    }
}

const BUILT_IN: &str = include_str!("../contenders.toml");

macro_rules! templates {
    ($($name:literal in $folder:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../", $folder, "/", $name)))),*]
    };
}

/// The built-in templates by name.
const TEMPLATES: &[(&str, &str)] = templates![
    "anthill.toml" in "configurations",
    "anthill-published.toml" in "configurations",
    "nginx.conf" in "configurations",
    "nginx-published.conf" in "configurations",
    "lighttpd.conf" in "configurations",
    "uwsgi.ini" in "configurations",
    "apache.conf" in "configurations",
    "h2o.conf" in "configurations",
    "Caddyfile" in "configurations",
    "haproxy.cfg" in "configurations",
    "httpd.conf" in "configurations",
    "stunnel.conf" in "configurations",
    "binserve.json" in "configurations",
    "node.js" in "programs",
    "python.py" in "programs",
    "daemon.pl" in "programs",
    "simple.pl" in "programs",
    "dancer.pl" in "programs",
    "mojo.pl" in "programs",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_catalogue_is_sound() {
        let catalogue = Catalogue::load(None).expect("the built-in catalogue");
        let names: Vec<&str> = catalogue
            .entries()
            .iter()
            .map(|entry| entry.name.as_str())
            .collect();
        let mut once = names.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), names.len(), "a name is taken twice: {names:?}");
        assert_eq!(names[0], "anthill");
        for entry in catalogue.entries() {
            let serves = entry.can(Ability::Http) || entry.can(Ability::Https);
            assert!(serves, "{} speaks nothing", entry.name);
            assert!(
                !entry.install.to_string().is_empty(),
                "{} comes from nowhere",
                entry.name
            );
        }
    }

    #[test]
    fn every_template_is_used_and_every_folder_exists() {
        let catalogue = Catalogue::load(None).expect("the built-in catalogue");
        let used = |name: &str| {
            let mut starts = catalogue.entries().iter().flat_map(|entry| &entry.starts);
            starts.any(|start| start.files.values().any(|template| template == name))
        };
        for (name, _) in TEMPLATES {
            assert!(used(name), "nobody uses the template {name}");
        }
        let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs");
        for folder in catalogue
            .entries()
            .iter()
            .filter_map(|entry| entry.install.source.as_ref())
        {
            assert!(
                programs.join(folder).is_dir(),
                "no folder bench/programs/{folder}"
            );
        }
    }

    /// The lengths, and the number of clients, that the nine-server comparison gives.
    #[test]
    fn published_bodies_have_the_source_documents_lengths() {
        let catalogue = Catalogue::load(None).expect("the built-in catalogue");
        let able = catalogue.able(&[Ability::Published]);
        let published: Vec<_> = able
            .map(|entry| {
                let published = entry.published.as_ref().expect("the table");
                let bytes = published.body.as_ref().map(String::len);
                (entry.name.as_str(), bytes, published.clients)
            })
            .collect();
        assert_eq!(
            published,
            [
                // Not of the source: us at its settings.
                ("anthill", None, 10),
                ("nginx", None, 10),
                ("go-nethttp", Some(19), 10),
                ("go-fasthttp", Some(19), 10),
                ("node", Some(24), 10),
                ("python", Some(17), 10),
                ("perl-daemon", Some(40), 1),
                ("perl-simple", Some(42), 10),
                ("perl-dancer", Some(33), 10),
                ("perl-hypnotoad", Some(38), 10),
            ]
        );
    }

    /// Every package of the house stands in one table; what an entry says is only what to look for.
    #[test]
    fn setup_installs_the_packages_that_entries_name() {
        let setup = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tools/setup.sh");
        let setup = std::fs::read_to_string(setup).expect("tools/setup.sh");
        let installed: Vec<&str> = setup
            .lines()
            .filter_map(|line| line.strip_prefix("peers "))
            .filter_map(|line| line.split_whitespace().last())
            .collect();
        for entry in Catalogue::load(None)
            .expect("the built-in catalogue")
            .entries()
        {
            for package in &entry.install.debian {
                assert!(
                    installed.contains(&package.as_str()),
                    "{}: {package}",
                    entry.name
                );
            }
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_near_ones() {
        let catalogue = Catalogue::load(None).expect("the built-in catalogue");
        let said = |name: &str| {
            catalogue
                .contender(name)
                .expect_err("an unknown name")
                .to_string()
        };
        assert_eq!(
            said("ngnix"),
            "no contender is called ngnix; did you mean nginx?"
        );
        assert_eq!(
            said("iis"),
            "no contender is called iis; `anthill bench list` names all"
        );
        assert_eq!(catalogue.contender("nginx").expect("nginx").title, "nginx");
    }

    #[test]
    fn a_file_adds_and_replaces_entries_with_templates_of_its_own() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("mine.toml");
        let entry = |name: &str| {
            format!(
                "[[contender]]\nname = \"{name}\"\ntitle = \"mine\"\nabilities = [\"http\"]\n\
                 install = {{}}\n[[contender.program]]\nkey = \"sh\"\nnames = [\"sh\"]\n\
                 [[contender.start]]\ncommand = [\"{{sh}}\"]\nfiles = {{ \"a\" = \"mine.conf\" }}\n"
            )
        };
        std::fs::write(&file, entry("nginx") + &entry("other")).expect("a file");
        let missing = Catalogue::load(Some(&file)).expect_err("a template that isn't there");
        assert!(
            missing
                .to_string()
                .ends_with("contender nginx: no template mine.conf"),
            "{missing}"
        );

        std::fs::write(folder.path().join("mine.conf"), "here\n").expect("a template");
        let catalogue = Catalogue::load(Some(&file)).expect("a sound file");
        assert_eq!(catalogue.contender("nginx").expect("nginx").title, "mine");
        assert_eq!(catalogue.entries().last().expect("an entry").name, "other");
        let template = catalogue
            .contender("other")
            .expect("other")
            .template("mine.conf");
        assert_eq!(template.as_deref(), Ok("here\n"));
    }

    #[test]
    fn what_is_wrong_in_a_file_is_said_with_its_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("mine.toml");
        std::fs::write(&file, "[[contender]]\nname = \"x\"\ncolour = \"red\"\n").expect("a file");
        let error = Catalogue::load(Some(&file))
            .expect_err("an unknown key")
            .to_string();
        assert!(
            error.contains("mine.toml") && error.contains("colour"),
            "{error}"
        );
        let absent = Catalogue::load(Some(&folder.path().join("no.toml"))).expect_err("no file");
        assert!(absent.to_string().contains("no.toml"), "{absent}");
    }
}
