//! Keys of a route with responses from programs: scripts, repositories of git, and the variables of
//! the programs.

use std::ops::Range;
use std::path::PathBuf;

use toml::Spanned;

use crate::config::deploy::deploys;
use crate::config::error::OperatorError;
use crate::config::toml_reader::{FromToml, KeyedValue, TableReader, TableSchema};
use crate::config::{
    BackendAddressConfig, BackendConfig, CgiConfig, GitConfig, InterpreterConfig, ScriptsConfig,
    TargetConfig,
};

static INTERPRETER: TableSchema = TableSchema {
    name: "interpreter",
    keys: &[],
    later: &[],
    foreign: &[],
};
static ENV: TableSchema = TableSchema {
    name: "env",
    keys: &[],
    later: &[],
    foreign: &[],
};

/// Result of reading the keys.
#[derive(Default)]
pub(super) struct HandlerKeys {
    /// Target of the route, with the key and position in the file.
    pub(super) target: Option<(&'static str, Range<usize>, TargetConfig)>,
    /// Program or backend that runs scripts in the root of the site.
    pub(super) scripts: Option<ScriptsConfig>,
}

/// Reads the keys of a route about programs. `has_users` is true if the route requires a password.
pub(super) fn handler_keys(
    table: &mut TableReader<'_, '_>,
    has_users: bool,
) -> Result<HandlerKeys, OperatorError> {
    let mut live = HandlerKeys::default();
    let env = table.item("env");
    let env_span = env.as_ref().map(|item| item.value.span());
    let variables = env.map(variables).transpose()?.unwrap_or_default();
    if let Some(git) = git(table, &variables, has_users)? {
        if let Some(other) = OF_SCRIPTS.iter().find_map(|key| table.item(key)) {
            let what = "a route has either repositories (`git`) or scripts, not both";
            return Err(other.refuse(
                what,
                "keep `git` or the keys for scripts, and remove the other",
            ));
        }
        live.target = Some(("git", git.folder.span(), TargetConfig::Git(git)));
        return Ok(live);
    }
    if let Some((name, backend)) = backend(table, &variables)? {
        match backend.files.is_empty() {
            true => {
                let span = backend.address.span();
                live.target = Some((name, span, TargetConfig::Backend(backend)));
            }
            false => live.scripts = Some(ScriptsConfig::Backend(backend)),
        }
    }
    programs(table, variables, &mut live)?;
    if let (None, None, Some(span)) = (&live.target, &live.scripts, env_span) {
        let help = "remove `env`, or add `cgi`, `interpreter`, `fastcgi`, `scgi` or `git`";
        let what = "`env` has no effect: the route runs no program";
        return Err(table.source().error(span, what, help));
    }
    Ok(live)
}

/// Reads `cgi` and `interpreter` into `live`, and refuses either next to a backend.
fn programs(
    table: &mut TableReader<'_, '_>,
    variables: Vec<(String, String)>,
    live: &mut HandlerKeys,
) -> Result<(), OperatorError> {
    let has_backend = live.target.is_some() || live.scripts.is_some();
    let folder = table.take::<Spanned<PathBuf>>("cgi")?;
    let interpreters = match table.item("interpreter") {
        Some(item) => Some((item.value.span(), interpreters(item)?)),
        None => None,
    };
    let second = folder.as_ref().map(Spanned::span);
    let second = second.or(interpreters.as_ref().map(|(span, _)| span.clone()));
    if let (true, Some(span)) = (has_backend, second) {
        let what = "a route runs its scripts by a backend (`fastcgi`, `scgi`) or as programs \
                    (`cgi`, `interpreter`), not both";
        return Err(table
            .source()
            .error(span, what, "remove the keys of one kind"));
    }
    let interpreters = interpreters.map(|(_, all)| all);
    match (folder, interpreters) {
        (Some(folder), interpreters) => {
            let span = folder.span();
            let cgi = CgiConfig {
                folder,
                interpreters: interpreters.unwrap_or_default(),
                variables,
            };
            live.target = Some(("cgi", span, TargetConfig::Cgi(cgi)));
        }
        (None, Some(interpreters)) => {
            live.scripts = Some(ScriptsConfig::Cgi {
                interpreters,
                variables,
            });
        }
        (None, None) => {}
    }
    Ok(())
}

/// Keys of scripts, not allowed next to `git`.
const OF_SCRIPTS: [&str; 7] = [
    "cgi",
    "interpreter",
    "fastcgi",
    "scgi",
    "files",
    "keep",
    "script_root",
];

/// Reads `git` and the keys that depend on `git`.
fn git(
    table: &mut TableReader<'_, '_>,
    variables: &[(String, String)],
    has_users: bool,
) -> Result<Option<GitConfig>, OperatorError> {
    let folder = table.take::<Spanned<PathBuf>>("git")?;
    let export = table.take::<Spanned<String>>("export")?;
    let push = table.take::<Spanned<bool>>("push")?;
    let push_span = push.as_ref().map(Spanned::span);
    let push_users = table.take::<Spanned<PathBuf>>("push_users")?;
    let deploy = table.item("deploy");
    let pages = table.take::<Spanned<bool>>("pages")?;
    let Some(folder) = folder else {
        let pages_span = pages.map(|it| it.span());
        let span = export.map(|it| it.span()).or(push_span).or(pages_span);
        let span = span.or(push_users.map(|it| it.span()));
        let Some(span) = span.or(deploy.map(|item| item.value.span())) else {
            return Ok(None);
        };
        let what = "the key has no effect without `git` in the same route";
        let help = "remove the key, or name a folder of repositories: git = \"repositories\"";
        return Err(table.source().error(span, what, help));
    };
    let exports_all = match &export {
        None => false,
        Some(word) => match word.get_ref().as_str() {
            "marked" => false,
            "all" => true,
            other => {
                let what = format!("`export` cannot be \"{other}\"");
                let help = "write \"all\" for all repositories, or \"marked\" for repositories \
                            with a file git-daemon-export-ok";
                return Err(table.source().error(word.span(), what, help));
            }
        },
    };
    let is_refused = push.as_ref().is_some_and(|push| !push.get_ref());
    if let (true, Some(users)) = (is_refused, &push_users) {
        let what = "`push_users` contradicts `push = false`";
        let help = "remove one of the two keys";
        return Err(table.source().error(users.span(), what, help));
    }
    let push = push_users.is_some() || push.is_some_and(Spanned::into_inner);
    if let (true, None, false, Some(span)) = (push, &push_users, has_users, push_span) {
        let what = "`push` requires a login, but the route has no `users`";
        let help = "add `users` with a file made by `anthill passwd FILE NAME`, or replace `push` by `push_users` for \
                    reading without a login";
        return Err(table.source().error(span, what, help));
    }
    Ok(Some(GitConfig {
        folder,
        exports_all,
        push,
        push_users,
        pages: pages.is_none_or(Spanned::into_inner),
        variables: variables.to_vec(),
        deploy: deploy.map(deploys).transpose()?.unwrap_or_default(),
    }))
}

/// Reads `fastcgi` or `scgi` and the keys that depend on either.
fn backend(
    table: &mut TableReader<'_, '_>,
    variables: &[(String, String)],
) -> Result<Option<(&'static str, BackendConfig)>, OperatorError> {
    let (name, address) = backend_key(table)?;
    let files = table.item("files");
    let keep = table.take::<Spanned<usize>>("keep")?;
    let script_root = table.take::<Spanned<String>>("script_root")?;
    let Some(address) = address else {
        let spans = [
            files.map(|item| item.value.span()),
            keep.map(|keep| keep.span()),
            script_root.map(|root| root.span()),
        ];
        return match spans.into_iter().flatten().next() {
            None => Ok(None),
            Some(span) => {
                let help = "remove the key, or add `fastcgi`";
                let what = "the key has no effect without `fastcgi` in the same route";
                Err(table.source().error(span, what, help))
            }
        };
    };
    if let Some(keep) = keep.as_ref().filter(|_| name == "scgi") {
        let what = "`keep` has no effect with `scgi`";
        let help = "remove the key, since an SCGI connection carries a single request";
        return Err(table.source().error(keep.span(), what, help));
    }
    if let Some(root) = script_root
        .as_ref()
        .filter(|root| !root.get_ref().starts_with('/'))
    {
        let what = format!("`{}` is not a path that a backend can open", root.get_ref());
        let help = "write the absolute path as seen by the backend: \"/var/www\"";
        return Err(table.source().error(root.span(), what, help));
    }
    let takes_all = files.as_ref().is_some_and(|item| item.text() == Some("*"));
    let files = files.filter(|_| !takes_all).map(endings).transpose()?;
    let files = files.unwrap_or_default();
    let backend = BackendConfig {
        is_scgi: name == "scgi",
        address: backend_address(table.source(), &address)?,
        files,
        takes_all,
        keep: keep.map(Spanned::into_inner),
        script_root: script_root.map(Spanned::into_inner),
        variables: variables.to_vec(),
    };
    Ok(Some((name, backend)))
}

/// Reads the key that names a backend, `fastcgi` or `scgi`, with its address, if the route has a backend.
fn backend_key(
    table: &mut TableReader<'_, '_>,
) -> Result<(&'static str, Option<Spanned<String>>), OperatorError> {
    let fastcgi = table.take::<Spanned<String>>("fastcgi")?;
    let scgi = table.take::<Spanned<String>>("scgi")?;
    match (fastcgi, scgi) {
        (Some(_), Some(second)) => {
            let what = "a route has one target, not both `fastcgi` and `scgi`";
            Err(table
                .source()
                .error(second.span(), what, "remove one of the two"))
        }
        (Some(address), None) => Ok(("fastcgi", Some(address))),
        (None, address) => Ok(("scgi", address)),
    }
}

/// Reads a backend's address: `unix:/run/php.sock`, `127.0.0.1:9000` or `[::1]:9000`.
fn backend_address(
    source: &crate::config::toml_reader::SourceText<'_>,
    text: &Spanned<String>,
) -> Result<Spanned<BackendAddressConfig>, OperatorError> {
    let given = text.get_ref().as_str();
    let address = match given.strip_prefix("unix:") {
        Some(path) if !path.is_empty() && !path.contains('\0') => Some(BackendAddressConfig::Unix(
            crate::config::paths::join(source.folder, path),
        )),
        Some(_) => None,
        None => {
            let tcp = given.strip_prefix("tcp://").unwrap_or(given);
            let tcp = tcp.replacen("localhost:", "127.0.0.1:", 1);
            tcp.parse().ok().map(BackendAddressConfig::Tcp)
        }
    };
    match address {
        Some(address) => Ok(Spanned::new(text.span(), address)),
        None => {
            let what = format!("`{given}` is not an address of a backend");
            let help =
                "write an address such as \"unix:/run/php/php-fpm.sock\" or \"127.0.0.1:9000\"";
            Err(source.error(text.span(), what, help))
        }
    }
}

/// Reads a single file ending or a list.
fn endings(item: KeyedValue<'_, '_>) -> Result<Vec<String>, OperatorError> {
    let source = item.source;
    let span = item.value.span();
    let list = match item.text() {
        Some(_) => vec![<Spanned<String>>::read(item)?],
        None => <Vec<Spanned<String>>>::read(item)?,
    };
    if list.is_empty() {
        return Err(source.error(
            span,
            "`files` is empty",
            "write a file ending such as \".php\"",
        ));
    }
    list.iter().map(|text| file_ending(source, text)).collect()
}

fn interpreters(item: KeyedValue<'_, '_>) -> Result<Vec<InterpreterConfig>, OperatorError> {
    let (source, span) = (item.source, item.value.span());
    let mut all = Vec::new();
    for (ending, item) in item.table(&INTERPRETER)?.rest() {
        let program = <Spanned<PathBuf>>::read(item)?;
        let ending = Spanned::new(ending.span(), ending.into_inner());
        all.push(InterpreterConfig {
            ending: file_ending(source, &ending)?,
            program,
        });
    }
    if all.is_empty() {
        let help = "write a file ending and a program: { \".php\" = \"/usr/bin/php-cgi\" }";
        return Err(source.error(span, "`interpreter` is empty", help));
    }
    Ok(all)
}

/// Reads a file ending, `.php` or `*.php`, and returns `.php`.
fn file_ending(
    source: &crate::config::toml_reader::SourceText<'_>,
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
    let what = format!("`{}` is not a file ending", text.get_ref());
    let help = format!("begin the file ending with a dot: \".{right}\"");
    Err(source.error(text.span(), what, help))
}

fn variables(item: KeyedValue<'_, '_>) -> Result<Vec<(String, String)>, OperatorError> {
    let mut all = Vec::new();
    for (name, item) in item.table(&ENV)?.rest() {
        let source = item.source;
        let text = name.get_ref();
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if text.is_empty() || !text.bytes().all(is_plain) {
            let what = format!("`{text}` is not a name of an environment variable");
            let help = "write letters, digits and underscores, such as \"APP_ENV\"";
            return Err(source.error(name.span(), what, help));
        }
        let value = <Spanned<String>>::read(item)?;
        if value.get_ref().contains('\0') {
            let what = format!("the value of `{text}` contains a NUL");
            return Err(source.error(value.span(), what, "remove the NUL"));
        }
        all.push((name.into_inner(), value.into_inner()));
    }
    Ok(all)
}
