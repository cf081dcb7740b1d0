//! The keys of a route whose target is live: scripts, and the variables that they get.

use std::ops::Range;
use std::path::PathBuf;

use toml::Spanned;

use super::error::OperatorError;
use super::read::{Item, Read, Shape, Table};
use super::{Cgi, Interpreter, Scripts, Target};

static INTERPRETER: Shape = Shape {
    name: "interpreter",
    keys: &[],
    later: &[],
};
static ENV: Shape = Shape {
    name: "env",
    keys: &[],
    later: &[],
};

/// What the live keys of a route make of it.
#[derive(Default)]
pub(super) struct Live {
    /// With the key that names it.
    pub(super) target: Option<(&'static str, Range<usize>, Target)>,
    /// What runs files of the site.
    pub(super) scripts: Option<Scripts>,
}

/// Takes all of them.
pub(super) fn live(table: &mut Table<'_, '_>) -> Result<Live, OperatorError> {
    let folder = table.take::<Spanned<PathBuf>>("cgi")?;
    let interpreters = match table.item("interpreter") {
        Some(item) => interpreters(item)?,
        None => Vec::new(),
    };
    let env = table.item("env");
    let env_span = env.as_ref().map(|item| item.value.span());
    let variables = env.map(variables).transpose()?.unwrap_or_default();
    let mut live = Live::default();
    match folder {
        Some(folder) => {
            let span = folder.span();
            let cgi = Cgi {
                folder,
                interpreters,
                variables,
            };
            live.target = Some(("cgi", span, Target::Cgi(cgi)));
        }
        None if !interpreters.is_empty() => {
            live.scripts = Some(Scripts::Cgi {
                interpreters,
                variables,
            });
        }
        None => {
            if let Some(span) = env_span {
                let help =
                    "it belongs to `cgi` or `interpreter`: leave it out, or name one of them";
                let what = "`env` is for programs, and this route runs none";
                return Err(table.source().error(span, what, help));
            }
        }
    }
    Ok(live)
}

fn interpreters(item: Item<'_, '_>) -> Result<Vec<Interpreter>, OperatorError> {
    let (source, span) = (item.source, item.value.span());
    let mut all = Vec::new();
    for (ending, item) in item.table(&INTERPRETER)?.rest() {
        let program = <Spanned<PathBuf>>::read(item)?;
        let ending = Spanned::new(ending.span(), ending.into_inner());
        all.push(Interpreter {
            ending: file_ending(source, &ending)?,
            program,
        });
    }
    if all.is_empty() {
        let help = "such as { \".php\" = \"/usr/bin/php-cgi\" }";
        return Err(source.error(span, "`interpreter` names none", help));
    }
    Ok(all)
}

/// `.php` or `*.php`, as `.php`.
fn file_ending(
    source: &super::read::Source<'_>,
    text: &Spanned<String>,
) -> Result<String, OperatorError> {
    let ending = text.get_ref().strip_prefix('*').unwrap_or(text.get_ref());
    let is_right = ending.starts_with('.')
        && ending.len() > 1
        && !ending.contains(['/', '*', '?', '{', '[', '\0']);
    if is_right {
        return Ok(ending.to_owned());
    }
    let right = ending
        .trim_start_matches(['*', '.'])
        .replace(['/', '*', '?', '{', '[', '\0'], "");
    let what = format!("`{}` is no file ending", text.get_ref());
    let help = format!("with its dot: \".{right}\"");
    Err(source.error(text.span(), what, help))
}

fn variables(item: Item<'_, '_>) -> Result<Vec<(String, String)>, OperatorError> {
    let mut all = Vec::new();
    for (name, item) in item.table(&ENV)?.rest() {
        let source = item.source;
        let text = name.get_ref();
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if text.is_empty() || !text.bytes().all(is_plain) {
            let what = format!("`{text}` is no name of a variable");
            let help = "letters, digits and underscores, such as \"APP_ENV\"";
            return Err(source.error(name.span(), what, help));
        }
        let value = <Spanned<String>>::read(item)?;
        if value.get_ref().contains('\0') {
            let what = format!("the value of `{text}` has a NUL in it");
            return Err(source.error(value.span(), what, "leave it out"));
        }
        all.push((name.into_inner(), value.into_inner()));
    }
    Ok(all)
}
