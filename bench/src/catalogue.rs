//! Catalogue of the servers that can be measured: `contenders.toml` as types.
//!
//! The catalogue is data, so a contender or another build of a contender is added without recompiling. A
//! file of the same format, given on the command line, adds entries and replaces entries of the same name.
//! Templates named by the file are looked up beside the file first.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::nearest::nearest;
use crate::program::{Found, Missing, Program};

/// All known contenders, in the order of the tables.
#[derive(Debug, Clone)]
pub struct Catalogue {
    entries: Vec<Entry>,
}

/// One contender: name, abilities, programs and start commands.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Name on the command line and in results: `nginx`.
    pub name: String,
    /// Title in tables: `stunnel + busybox httpd`.
    pub title: String,
    /// Abilities of the contender.
    pub abilities: Vec<Ability>,
    /// Size of the largest file that the contender can serve, or `None` without a limit.
    #[serde(default)]
    pub largest_file_bytes: Option<u64>,
    /// Installation sources.
    pub install: Install,
    /// Remark for readers of the figures.
    #[serde(default)]
    pub note: String,
    /// Settings of the source document for the contender.
    #[serde(default)]
    pub published: Option<Published>,
    /// Required programs.
    #[serde(rename = "program")]
    pub programs: Vec<Program>,
    /// Processes of the contender, in start order.
    #[serde(rename = "start")]
    pub starts: Vec<Start>,
    /// Folder searched for templates before the built-in templates.
    #[serde(skip)]
    beside: Option<PathBuf>,
}

/// Abilities of contenders. A suite chooses its contenders by ability.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ability {
    /// HTTP/1.1 or HTTP/1.0 without TLS.
    Http,
    /// HTTP/1.1 or HTTP/1.0 over TLS 1.3.
    Https,
    /// Key exchange by X25519.
    X25519,
    /// Session tickets and resumption.
    Tickets,
    /// HTTP/2 over TLS.
    Http2,
    /// HTTP/3.
    Http3,
    /// Persistent connections.
    KeepAlive,
    /// A response to `/hello.html` with the hello page of the site.
    Hello,
    /// Files of the site's folder, up to [`Entry::largest_file_bytes`].
    Files,
    /// CGI scripts of the site under `/cgi-bin/`.
    Cgi,
    /// CGI scripts under `/kept/`, with their responses cached for 1 minute.
    PageCache,
    /// Forwarding to members.
    Balancer,
    /// Running with the settings of the source document.
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

/// Installation sources of a contender.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Install {
    /// Debian packages.
    pub debian: Vec<String>,
    /// Name of a crate for `cargo install`.
    pub cargo: Option<String>,
    /// Folder below `bench/programs` with a program built by `make peers`.
    pub source: Option<String>,
    /// Additional remark.
    pub note: String,
}

/// Settings of the source document for a contender.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Content of the response, or `None` for the hello page of the site.
    #[serde(default)]
    pub body: Option<String>,
    /// Number of concurrent clients.
    pub clients: usize,
}

/// A process to start.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// Conditions for starting the process. A leading `!` negates a condition.
    #[serde(default)]
    pub when: Vec<String>,
    /// Program and arguments, with placeholders.
    pub command: Vec<String>,
    /// Files to write to the work folder before the start: file name and template.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// Environment variables, with placeholders in their values.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
}

impl Catalogue {
    /// Returns the built-in catalogue, with the additions and replacements of `overlay`.
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

    /// Returns all entries, in the order of the tables.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the entry with the given name.
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

    /// Returns the entries with all given abilities.
    pub fn able<'c>(&'c self, abilities: &'c [Ability]) -> impl Iterator<Item = &'c Entry> {
        self.entries
            .iter()
            .filter(move |entry| abilities.iter().all(|ability| entry.can(*ability)))
    }
}

impl Entry {
    /// Returns true if the contender has the ability.
    pub fn can(&self, ability: Ability) -> bool {
        self.abilities.contains(&ability)
    }

    /// Returns true if the contender serves a file of `bytes` bytes.
    pub fn can_serve(&self, bytes: u64) -> bool {
        self.can(Ability::Files)
            && self
                .largest_file_bytes
                .is_none_or(|largest| bytes <= largest)
    }

    /// Finds all programs with their versions, or returns the missing program and the installation sources.
    pub fn find(&self) -> Result<Found, Missing> {
        Found::of(&self.programs).map_err(|why| Missing(format!("{why}; {}", self.install)))
    }

    /// Returns the text of a template.
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

    /// Checks the rules that the types don't express.
    fn check(&self) -> Result<(), String> {
        if self.starts.iter().any(|start| start.command.is_empty()) {
            return Err("a command is empty".into());
        }
        if self.can(Ability::Published) != self.published.is_some() {
            return Err(
                "the ability `published` requires the table `published` and vice versa".into(),
            );
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
            ways.push(format!("Debian packages: {}", self.debian.join(" ")));
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

/// Error of an invalid catalogue.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct CatalogueError {
    path: PathBuf,
    problem: String,
}

/// Error of an unknown contender name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownContender {
    /// The unknown name.
    pub name: String,
    /// Similar known names.
    pub near: Vec<String>,
}

impl std::error::Error for UnknownContender {}

impl std::fmt::Display for UnknownContender {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "no contender is called {}", self.name)?;
        if self.near.is_empty() {
            write!(out, "; `anthill bench list` names all")
        } else {
            write!(out, "; did you mean {}?", self.near.join(" or "))
        }
    }
}

const BUILT_IN: &str = include_str!("../contenders.toml");

macro_rules! templates {
    ($($name:literal in $folder:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../", $folder, "/", $name)))),*]
    };
}

/// Built-in templates by name.
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
    fn the_built_in_catalogue_is_valid() {
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
            assert!(used(name), "no entry uses the template {name}");
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

    /// The lengths and the numbers of clients come from the nine-server comparison.
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
                // anthill is not in the source document and runs here with the document's settings.
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

    /// The setup script alone lists the packages of the project. An entry only names its packages in
    /// messages.
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
    fn an_unknown_name_is_reported_with_similar_names() {
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
    fn errors_in_a_file_are_reported_with_the_file_name() {
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
