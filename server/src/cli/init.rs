//! `anthill init`: writes a commented configuration for a kind of site.

use crate::cli::shared_options::CommandSpec;
use cli::{Operand, ValueKind};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cli::output::print_result;

use crate::cli::arguments::ParsedArguments;
use crate::cli::check::print_messages;
use crate::config::{ConfigSource, FILE_NAME, OperatorError, Overrides};
use crate::control::{self, ServeOptions};

/// The command `init`.
pub(super) const COMMAND: CommandSpec = CommandSpec {
    name: "init",
    about: "Write a configuration to begin with",
    details: &[
        "Writes a commented anthill.toml into the folder (by default the current folder), and the files that it \
         names. Nothing that exists is changed. blog: files from the folder public. spa: the files of a single-page \
         application, and its interface on port 3000. proxy: HTTPS in front of an application on port 3000. \
         wordpress, php: an application in public, run by php-fpm.",
    ],
    operands: &[
        Operand {
            name: "KIND",
            required: true,
            values: ValueKind::Words(KINDS),
        },
        Operand {
            name: "DIR",
            required: false,
            values: ValueKind::Folders,
        },
    ],
    options: &[],
    run,
};

/// Kind of a site, as typed in the command.
struct Template {
    word: &'static str,
    /// Text of `anthill.toml`.
    text: &'static str,
    /// Files below the folder of the configuration, written where the folder `public` does not exist.
    samples: &'static [(&'static str, &'static str)],
    /// Files and folders (with a slash at the end) that the configuration names, written where they do not exist.
    named: &'static [(&'static str, &'static str)],
}

/// Words for the kinds of sites, in the order of [`TEMPLATES`].
pub(super) const KINDS: &[&str] = &["blog", "spa", "proxy", "wordpress", "php"];

const PAGE: &str = "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
     <meta name=\"viewport\" content=\"width=device-width\">\n<title>Hello</title>\n<h1>Hello</h1>\n\
     <p>This page is public/index.html.</p>\n</html>\n";
const NOT_FOUND: &str = "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
     <meta name=\"viewport\" content=\"width=device-width\">\n<title>Not found</title>\n<h1>Not found</h1>\n\
     <p><a href=\"/\">The first page</a></p>\n</html>\n";
const SCRIPT: &str = "<?php echo 'Hello from PHP ', PHP_VERSION;\n";

const TEMPLATES: [Template; 5] = [
    Template {
        word: KINDS[0],
        text: include_str!("templates/blog.toml"),
        samples: &[("public/index.html", PAGE)],
        named: &[("public/", ""), ("public/404.html", NOT_FOUND)],
    },
    Template {
        word: KINDS[1],
        text: include_str!("templates/spa.toml"),
        samples: &[("public/index.html", PAGE)],
        named: &[("public/", "")],
    },
    Template {
        word: KINDS[2],
        text: include_str!("templates/proxy.toml"),
        samples: &[],
        named: &[],
    },
    Template {
        word: KINDS[3],
        text: include_str!("templates/wordpress.toml"),
        samples: &[],
        named: &[("public/wp-content/uploads/", "")],
    },
    Template {
        word: KINDS[4],
        text: include_str!("templates/php.toml"),
        samples: &[("public/index.php", SCRIPT)],
        named: &[("public/", "")],
    },
];

pub(super) fn run(typed: &ParsedArguments) -> Result<ExitCode, OperatorError> {
    let word = typed.operand_at(0).and_then(|word| word.to_str());
    let template = TEMPLATES.iter().find(|it| Some(it.word) == word);
    let template = template.ok_or_else(|| {
        OperatorError::new("init knows no such kind of site")
            .help(format!("write one of {}", KINDS.join(", ")))
    })?;
    let folder = typed.path_at(1).unwrap_or(Path::new("."));
    let written = write(template, folder)?;
    let shown: Vec<String> = written.iter().map(|it| it.display().to_string()).collect();
    let file = folder.join(FILE_NAME);
    let checked = control::check(&ServeOptions {
        chosen: ConfigSource::File(file),
        overrides: Overrides::default(),
    })?;
    print_messages(&checked);
    let serve = if folder == Path::new(".") {
        "anthill serve".to_owned()
    } else {
        format!("anthill serve {}", folder.display())
    };
    let first = if checked.warnings.is_empty() {
        String::new()
    } else {
        "what the warnings name, then ".to_owned()
    };
    Ok(print_result(&format!(
        "wrote {}\nnext: {first}{serve}",
        shown.join(", ")
    )))
}

/// Writes the configuration and the files that it names, and returns what was written. Nothing that exists is changed.
fn write(template: &Template, folder: &Path) -> Result<Vec<PathBuf>, OperatorError> {
    let file = folder.join(FILE_NAME);
    let failed = |path: &Path, error: io::Error| {
        OperatorError::failure(format!("{}: {error}", path.display()))
    };
    make_folder(folder).map_err(|error| failed(folder, error))?;
    let is_new = !folder.join("public").exists();
    match put(&file, template.text) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let what = format!("{} exists already", file.display());
            let help = format!(
                "name another folder: anthill init {} DIR, or move the file away",
                template.word
            );
            return Err(OperatorError::new(what).help(help));
        }
        Err(error) => return Err(failed(&file, error)),
    }
    let mut written = vec![file];
    let samples = template.samples.iter().filter(|_| is_new);
    for (name, text) in samples.chain(template.named) {
        let path = folder.join(name);
        if path.exists() {
            continue;
        }
        let made = if name.ends_with('/') {
            make_folder(&path)
        } else {
            let parent = path.parent().unwrap_or(folder);
            make_folder(parent).and_then(|()| put(&path, text))
        };
        made.map_err(|error| failed(&path, error))?;
        written.push(path);
    }
    Ok(written)
}

fn make_folder(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)
}

/// Writes a new file.
fn put(path: &Path, text: &str) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    file?.write_all(text.as_bytes())
}
