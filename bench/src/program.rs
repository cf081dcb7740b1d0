//! A program that a contender needs: where it is, and which version.
//!
//! Servers lie where an ordinary user's PATH doesn't lead (`/usr/sbin`), and what `make peers` builds
//! lies in a folder of its own, so more places than PATH are searched.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{Access, access};
use serde::Deserialize;

/// How a program is found.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Its placeholder in commands.
    pub key: String,
    /// Names or absolute paths; the first that is found is taken. One with a `/` in it that isn't a
    /// program (a folder of modules) only has to exist.
    pub names: Vec<String>,
    /// A variable of the environment that names it, before all others.
    #[serde(default)]
    pub environment: Option<String>,
    /// How it tells its version; without this, it has none.
    #[serde(default)]
    pub version: Option<VersionQuery>,
}

/// How a program tells its version.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VersionQuery {
    /// What to run it with; it has to end well, or the program counts as missing (a module that
    /// an interpreter doesn't have) if `must_succeed` is set.
    pub arguments: Vec<String>,
    /// The version is the word behind this in what it prints.
    pub after: String,
    /// Whether a bad end means that something is missing.
    #[serde(default)]
    pub must_succeed: bool,
}

/// The programs of a contender, found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Paths by [`Program::key`].
    pub paths: BTreeMap<String, PathBuf>,
    /// The path of the one that is named first.
    pub program: PathBuf,
    /// The sum of the sizes of their files.
    pub program_bytes: u64,
    /// `1.22.1`; of several programs, `stunnel 5.68, busybox 1.35.0`.
    pub version: String,
}

/// Why a contender can't take part, and how it is installed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Missing(pub String);

impl Found {
    /// Finds all of them; else says which is missing.
    pub fn of(programs: &[Program]) -> Result<Found, String> {
        let mut paths = BTreeMap::new();
        let mut versions = Vec::new();
        let mut program_bytes = 0;
        for program in programs {
            let path = program.find(&places())?;
            if path.is_file() {
                program_bytes += std::fs::metadata(&path).map_or(0, |metadata| metadata.len());
            }
            if let Some(query) = &program.version {
                versions.push((program.key.as_str(), query.ask(&path)?));
            }
            paths.insert(program.key.clone(), path);
        }
        let first = programs.first().and_then(|program| paths.get(&program.key));
        let program = first.cloned().ok_or("it names no program")?;
        let version = match versions.as_slice() {
            [(_, version)] => version.clone(),
            many => {
                let named = |(key, version): &(&str, String)| format!("{key} {version}");
                many.iter().map(named).collect::<Vec<_>>().join(", ")
            }
        };
        Ok(Found {
            paths,
            program,
            program_bytes,
            version,
        })
    }
}

impl Program {
    fn find(&self, places: &[PathBuf]) -> Result<PathBuf, String> {
        let named = self
            .environment
            .as_ref()
            .and_then(std::env::var_os)
            .map(PathBuf::from);
        if let Some(path) = named {
            let variable = self.environment.as_deref().unwrap_or_default();
            let path = std::path::absolute(&path).unwrap_or(path);
            return match is_program(&path) {
                true => Ok(path),
                false => Err(format!("${variable} is {}, no program", path.display())),
            };
        }
        for name in &self.names {
            let found = match name.starts_with('/') {
                true => Some(PathBuf::from(name)).filter(|path| path.exists()),
                false => places
                    .iter()
                    .map(|place| place.join(name))
                    .find(|path| is_program(path)),
            };
            if let Some(path) = found {
                return Ok(path);
            }
        }
        Err(format!("no {} found", self.names.join(" or ")))
    }
}

impl VersionQuery {
    fn ask(&self, program: &Path) -> Result<String, String> {
        // In an empty folder: some leave files behind, whatever they are asked.
        let folder =
            tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
        let output = Command::new(program)
            .args(&self.arguments)
            .current_dir(&folder)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("{}: {error}", program.display()))?;
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        if self.must_succeed && !output.status.success() {
            let line = said
                .lines()
                .find(|line| !line.trim().is_empty())
                .unwrap_or("nothing");
            return Err(format!("{} says: {line}", program.display()));
        }
        Ok(version_in(&said, &self.after)
            .unwrap_or("unknown")
            .to_owned())
    }
}

/// The word behind `after`.
fn version_in<'s>(said: &'s str, after: &str) -> Option<&'s str> {
    let rest = said.split_once(after)?.1.trim_start();
    let word = rest
        .split(|c: char| c.is_whitespace() || c == ',' || c == ';')
        .next()?;
    let word = word.trim_end_matches(['.', ')']);
    let number = word
        .strip_prefix('v')
        .filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    Some(number.unwrap_or(word)).filter(|word| !word.is_empty())
}

/// Folders with programs, the likeliest first: what was built for us, beside us, PATH, and where
/// servers lie.
fn places() -> Vec<PathBuf> {
    let mut places = Vec::new();
    places.extend(std::env::var_os(PEERS).map(|folder| PathBuf::from(folder).join("bin")));
    let own = std::env::current_exe()
        .ok()
        .and_then(|path| path.canonicalize().ok());
    for folder in own.iter().flat_map(|path| path.ancestors().skip(1).take(3)) {
        places.push(folder.to_owned());
        places.push(folder.join("peers/bin"));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    // An empty part of PATH means the current folder: nothing to run programs from.
    places.extend(std::env::split_paths(&path).filter(|folder| folder.is_absolute()));
    places
        .extend(["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/go/bin"].map(PathBuf::from));
    if let Some(home) = std::env::var_os("HOME").map(PathBuf::from) {
        places.extend([".cargo/bin", "go/bin"].map(|folder| home.join(folder)));
    }
    places
}

fn is_program(path: &Path) -> bool {
    path.is_file() && access(path, Access::EXEC_OK).is_ok()
}

/// Names the folder into which `make peers` builds.
const PEERS: &str = "ANTHILL_PEERS";

#[cfg(test)]
mod tests {
    use super::*;

    fn program(names: &[&str], version: Option<VersionQuery>) -> Program {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Program {
            key: "it".into(),
            names,
            environment: None,
            version,
        }
    }

    fn query(script: &str, must_succeed: bool) -> Option<VersionQuery> {
        let arguments = ["-c", script].map(str::to_owned).to_vec();
        Some(VersionQuery {
            arguments,
            after: "v/".into(),
            must_succeed,
        })
    }

    #[test]
    fn versions_are_read_as_servers_print_them() {
        let cases = [
            ("nginx version: nginx/1.22.1\n", "nginx/", Some("1.22.1")),
            (
                "Server version: Apache/2.4.62 (Debian)\nServer built:",
                "Apache/",
                Some("2.4.62"),
            ),
            (
                "BusyBox v1.35.0 (Debian 1:1.35.0-4+b1) multi-call",
                "BusyBox v",
                Some("1.35.0"),
            ),
            (
                "socat version 1.7.4.4 on 06 Nov 2022",
                "socat version ",
                Some("1.7.4.4"),
            ),
            ("2.6.2\n", "", Some("2.6.2")),
            ("v2.11.9 h1:abc=\n", "", Some("2.11.9")),
            ("Version:      2.44.1\n", "Version:", Some("2.44.1")),
            (
                "go version go1.22.1, fasthttp v1.62.0)",
                "fasthttp v",
                Some("1.62.0"),
            ),
            ("nothing of the kind", "nginx/", None),
        ];
        for (said, after, version) in cases {
            assert_eq!(version_in(said, after), version, "{said}");
        }
    }

    #[test]
    fn the_first_name_that_is_there_is_taken() {
        let found = Found::of(&[program(
            &["no-such-program", "sh"],
            query("echo v/7 >&2", false),
        )]);
        let found = found.expect("a shell");
        assert!(found.program.ends_with("sh") && found.program_bytes > 0);
        assert_eq!(found.version, "7");
        assert_eq!(found.paths["it"], found.program);
    }

    #[test]
    fn what_is_missing_is_named() {
        let missing = |program| Found::of(&[program]).expect_err("something is missing");
        assert_eq!(
            missing(program(&["no-a", "no-b"], None)),
            "no no-a or no-b found"
        );
        let module = program(&["sh"], query("echo no module here; exit 2", true));
        assert!(missing(module).ends_with("says: no module here"));
        let variable = Program {
            environment: Some("HOME".into()),
            ..program(&["sh"], None)
        };
        assert!(missing(variable).contains("$HOME is /"));
    }

    #[test]
    fn of_several_programs_each_version_is_named() {
        let second = Program {
            key: "other".into(),
            ..program(&["sh"], query("echo v/2", false))
        };
        let found = Found::of(&[program(&["sh"], query("echo v/1", false)), second]).expect("both");
        assert_eq!(found.version, "it 1, other 2");
    }
}
