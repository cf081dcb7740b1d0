//! Lookup of the programs of a contender, and of their versions.
//!
//! Some programs are outside of a user's PATH: servers in `/usr/sbin`, and programs built by `make peers`
//! in a folder of their own. Both places are searched too.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{Access, access};
use serde::Deserialize;

/// A required program.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Placeholder of the program in commands.
    pub key: String,
    /// Names or absolute paths, in order of preference. An absolute path may also be a folder, for example
    /// with modules, and only has to exist.
    pub names: Vec<String>,
    /// Environment variable with the path of the program, preferred over the names.
    #[serde(default)]
    pub environment: Option<String>,
    /// Query for the version, or `None` for a program without a version.
    #[serde(default)]
    pub version: Option<VersionQuery>,
}

/// Command for the version of a program.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VersionQuery {
    /// Arguments of the command.
    pub arguments: Vec<String>,
    /// Text before the version in the output.
    pub after: String,
    /// Whether a failing command means that the program is missing, for example a module of an interpreter.
    #[serde(default)]
    pub must_succeed: bool,
}

/// The programs of a contender, with paths and versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Paths by [`Program::key`].
    pub paths: BTreeMap<String, PathBuf>,
    /// Path of the first program.
    pub program: PathBuf,
    /// Total size of the program files in bytes.
    pub program_bytes: u64,
    /// Version: `1.22.1`, or for several programs `stunnel 5.68, busybox 1.35.0`.
    pub version: String,
}

/// Reason why a contender can't be measured, with installation sources.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Missing(pub String);

impl Found {
    /// Finds all programs, or returns a message about the first missing program.
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
        let program = first.cloned().ok_or("the entry names no program")?;
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
            return if is_program(&path) {
                Ok(path)
            } else {
                Err(format!(
                    "${variable} names {}, not an executable program",
                    path.display()
                ))
            };
        }
        for name in &self.names {
            let found = if name.starts_with('/') {
                Some(PathBuf::from(name)).filter(|path| path.exists())
            } else {
                places
                    .iter()
                    .map(|place| place.join(name))
                    .find(|path| is_program(path))
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
        // Run in an empty folder, because some programs write files regardless of their arguments.
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

/// Returns the word behind `after`.
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

/// Returns the folders to search, in order of preference: programs built by `make peers`, folders beside
/// the kit's own program, PATH, and the usual folders of servers.
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
    // An empty part of PATH means the working directory, where no program is to be found.
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

/// Environment variable with the folder of `make peers`.
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
    fn versions_are_found_in_the_output_of_servers() {
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
            ("no version here", "nginx/", None),
        ];
        for (said, after, version) in cases {
            assert_eq!(version_in(said, after), version, "{said}");
        }
    }

    #[test]
    fn the_first_existing_name_is_used() {
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
    fn a_missing_program_is_named() {
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
        assert!(missing(variable).contains("$HOME names /"));
    }

    #[test]
    fn versions_of_several_programs_are_listed() {
        let second = Program {
            key: "other".into(),
            ..program(&["sh"], query("echo v/2", false))
        };
        let found = Found::of(&[program(&["sh"], query("echo v/1", false)), second]).expect("both");
        assert_eq!(found.version, "it 1, other 2");
    }
}
