//! Keys of a route with responses from programs: scripts, backends, and the variables of the programs.

use std::path::PathBuf;

use toml::Spanned;

use crate::config::declared_table::declare_table;
use crate::config::error::OperatorError;
use crate::config::page_key::PageKey;
use crate::config::toml_reader::{FromToml, KeyedValue, SourceText, TableSchema};
use crate::config::values::{InvalidValue, wrong};

declare_table! {
    /// Keys of `[[site.route]]` about programs.
    pub(super) struct ScriptKeys: "[[site.route]]" {
        /// Folder of [programs](cgi.md#a-folder-of-programs).
        cgi: PathBuf = optional("none"), also ["ScriptAlias", "cgi_bin", "cgi-bin"], example "\"cgi-bin\"";
        /// Programs by ending: `{ ".py" = "/usr/bin/python3" }`, for files of `cgi` or
        /// [of the site](cgi.md#scripts-among-the-files-of-a-site).
        interpreter: Interpreters = optional("none"), also ["AddHandler", "interpreters"],
            example "{ \".py\" = \"/usr/bin/python3\" }";
        /// Address of a [FastCGI backend](cgi.md#backends): `"unix:/run/app.sock"` or `"127.0.0.1:9000"`.
        fastcgi: BackendAddress = optional("none"), also ["fastcgi_pass", "php_fastcgi", "php", "fcgi"],
            example "\"unix:/run/php/php-fpm.sock\"";
        /// Address of an [SCGI backend](cgi.md#backends), in the same form.
        scgi: BackendAddress = optional("none"), also ["scgi_pass"], example "\"127.0.0.1:9000\"";
        /// Endings of the files that the backend runs, or `"*"` for all paths.
        files: Endings = optional("`\"*\"`"), example "\".php\"";
        /// Number of kept [connections to the backend](cgi.md#connections-to-a-backend).
        keep: usize = optional("none"), also ["keepalive", "fastcgi_keep_conn"], example "4";
        /// Path of the site's root in the view of the backend.
        script_root: String = optional("the site's root"), example "\"/var/www\"";
        /// Variables for scripts, backends, git and hooks: `{ LANG = "C.UTF-8" }`.
        env: Variables = optional("none"), also ["fastcgi_param", "SetEnv", "environment"],
            example "{ LANG = \"C.UTF-8\" }";
    }
}

/// Rule that runs files of a site, selected by file ending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScriptsConfig {
    /// CGI: a program is started for each request.
    Cgi {
        /// Programs by file ending; at least one.
        interpreters: Vec<InterpreterConfig>,
        /// Environment variables in addition to the variables of the request.
        variables: Vec<(String, String)>,
    },
    /// A FastCGI or SCGI backend.
    Backend(BackendConfig),
}

/// Settings of a FastCGI or SCGI backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendConfig {
    /// Whether the protocol of the backend is SCGI; otherwise FastCGI.
    pub is_scgi: bool,
    /// Address of the backend.
    pub address: Spanned<BackendAddressConfig>,
    /// File endings of the site's files that the backend runs. If empty, the backend answers for all paths
    /// below the route's path.
    pub files: Vec<String>,
    /// Whether the operator set `files = "*"`.
    pub takes_all: bool,
    /// Maximum number of connections, all kept open for reuse. With 0, each connection is closed after its
    /// request. With `None`, a connection is handed over to a call that waits or arrives within a few
    /// milliseconds.
    pub keep: Option<usize>,
    /// Path of the site's root on the backend; `None` = the path of the root on the server.
    pub script_root: Option<String>,
    /// Variables in addition to the variables of the request.
    pub variables: Vec<(String, String)>,
}

/// Address of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackendAddressConfig {
    /// Absolute path of a Unix socket.
    Unix(PathBuf),
    /// IP address and port.
    Tcp(std::net::SocketAddr),
}

/// Interpreter for files with one ending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterpreterConfig {
    /// File ending with its dot.
    pub ending: String,
    /// Program, started with the path of the file as its argument.
    pub program: Spanned<PathBuf>,
}

/// Settings of a folder of CGI scripts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgiConfig {
    /// Folder of the scripts.
    pub folder: Spanned<PathBuf>,
    /// Interpreters by file ending. Scripts with another ending are started directly.
    pub interpreters: Vec<InterpreterConfig>,
    /// Environment variables in addition to the variables of the request.
    pub variables: Vec<(String, String)>,
}

/// Programs of a route.
pub(super) enum Programs {
    /// A backend, for all paths or for files of the site.
    Backend(BackendConfig),
    /// A folder of programs.
    Folder(CgiConfig),
    /// Files of the site, run by interpreters.
    Scripts(ScriptsConfig),
}

impl ScriptsConfig {
    /// Adds the settings to the key of pages.
    pub(crate) fn add_to_page_key(&self, key: &mut PageKey) {
        match self {
            ScriptsConfig::Cgi {
                interpreters,
                variables,
            } => {
                key.number(1);
                add_interpreters(key, interpreters);
                key.pairs(variables);
            }
            ScriptsConfig::Backend(backend) => {
                key.number(2);
                backend.add_to_page_key(key);
            }
        }
    }
}

impl CgiConfig {
    /// Adds the settings to the key of pages.
    pub(super) fn add_to_page_key(&self, key: &mut PageKey) {
        let CgiConfig {
            folder,
            interpreters,
            variables,
        } = self;
        key.path(folder.get_ref());
        add_interpreters(key, interpreters);
        key.pairs(variables);
    }
}

impl BackendConfig {
    /// Adds the settings to the key of pages.
    pub(super) fn add_to_page_key(&self, key: &mut PageKey) {
        let BackendConfig {
            is_scgi,
            address,
            files,
            takes_all,
            keep,
            script_root,
            variables,
        } = self;
        key.number((*is_scgi).into());
        match address.get_ref() {
            BackendAddressConfig::Unix(path) => {
                key.number(1);
                key.path(path);
            }
            BackendAddressConfig::Tcp(address) => {
                key.number(2);
                key.text(&address.to_string());
            }
        }
        key.list(files.iter(), |key, ending| key.text(ending));
        key.number((*takes_all).into());
        key.option(*keep, |key, keep| key.number(keep as u64));
        key.option(script_root.as_ref(), |key, root| key.text(root));
        key.pairs(variables);
    }
}

/// Adds interpreters to the key of pages.
fn add_interpreters(key: &mut PageKey, interpreters: &[InterpreterConfig]) {
    key.list(interpreters.iter(), |key, it| {
        let InterpreterConfig { ending, program } = it;
        key.text(ending);
        key.path(program.get_ref());
    });
}

impl ScriptKeys {
    /// Returns the variables in addition to the variables of a request.
    pub(super) fn variables(&self) -> Vec<(String, String)> {
        let env = self.env.as_ref();
        env.map_or_else(Vec::new, |env| env.get_ref().0.clone())
    }

    /// Refuses a key of scripts next to `git`.
    pub(super) fn refuse_beside_git(&self, source: &SourceText<'_>) -> Result<(), OperatorError> {
        let spans = [
            self.cgi.as_ref().map(Spanned::span),
            self.interpreter.as_ref().map(Spanned::span),
            self.fastcgi.as_ref().map(Spanned::span),
            self.scgi.as_ref().map(Spanned::span),
            self.files.as_ref().map(Spanned::span),
            self.keep.as_ref().map(Spanned::span),
            self.script_root.as_ref().map(Spanned::span),
        ];
        let errors = spans.into_iter().flatten().map(|other| {
            let what = "a route has either repositories (`git`) or scripts, not both";
            let help = "keep `git` or the keys for scripts, and remove the other";
            source.error(other, what, help)
        });
        OperatorError::all(errors.collect()).map_or(Ok(()), Err)
    }

    /// Returns the programs of the route; `None` for a route without programs.
    pub(super) fn settings(
        self,
        source: &SourceText<'_>,
    ) -> Result<Option<Programs>, OperatorError> {
        let variables = self.variables();
        let backend = self.backend(source, &variables)?;
        let second = self.cgi.as_ref().map(Spanned::span);
        let second = second.or(self.interpreter.as_ref().map(Spanned::span));
        let interpreters = self.interpreter.map(|all| all.into_inner().0);
        match (backend, self.cgi, interpreters) {
            (Some(_), Some(_), _) | (Some(_), _, Some(_)) => {
                let what = "a route runs its scripts by a backend (`fastcgi`, `scgi`) or as programs \
                            (`cgi`, `interpreter`), not both";
                let help = "remove the keys of one kind";
                Err(source.error(second.unwrap_or(0..0), what, help))
            }
            (Some(backend), None, None) => Ok(Some(Programs::Backend(backend))),
            (None, Some(folder), interpreters) => Ok(Some(Programs::Folder(CgiConfig {
                folder,
                interpreters: interpreters.unwrap_or_default(),
                variables,
            }))),
            (None, None, Some(interpreters)) => Ok(Some(Programs::Scripts(ScriptsConfig::Cgi {
                interpreters,
                variables,
            }))),
            (None, None, None) => match self.env {
                None => Ok(None),
                Some(env) => {
                    let what = "`env` has no effect: the route runs no program";
                    let help =
                        "remove `env`, or add `cgi`, `interpreter`, `fastcgi`, `scgi` or `git`";
                    Err(source.error(env.span(), what, help))
                }
            },
        }
    }

    /// Converts `fastcgi` or `scgi` and the keys that depend on either.
    fn backend(
        &self,
        source: &SourceText<'_>,
        variables: &[(String, String)],
    ) -> Result<Option<BackendConfig>, OperatorError> {
        let (is_scgi, address) = match (&self.fastcgi, &self.scgi) {
            (Some(_), Some(second)) => {
                let what = "a route has one target, not both `fastcgi` and `scgi`";
                return Err(source.error(second.span(), what, "remove one of the two"));
            }
            (Some(address), None) => (false, address),
            (None, Some(address)) => (true, address),
            (None, None) => {
                let keys = [
                    ("files", self.files.as_ref().map(Spanned::span)),
                    ("keep", self.keep.as_ref().map(Spanned::span)),
                    ("script_root", self.script_root.as_ref().map(Spanned::span)),
                ];
                let keys = keys.map(|(key, span)| (key, span.unwrap_or_default()));
                let lacking = "without `fastcgi` in the same route";
                source.refuse_useless(keys, lacking, "remove the key, or add `fastcgi`")?;
                return Ok(None);
            }
        };
        if let Some(keep) = self.keep.as_ref().filter(|_| is_scgi) {
            let what = "`keep` has no effect with `scgi`";
            let help = "remove the key, since an SCGI connection carries a single request";
            return Err(source.error(keep.span(), what, help));
        }
        let script_root = self.script_root.as_ref();
        if let Some(root) = script_root.filter(|root| !root.get_ref().starts_with('/')) {
            let what = format!("`{}` is not a path that a backend can open", root.get_ref());
            let help = "write the absolute path as seen by the backend: \"/var/www\"";
            return Err(source.error(root.span(), what, help));
        }
        let endings = self.files.as_ref().map(Spanned::get_ref);
        Ok(Some(BackendConfig {
            is_scgi,
            address: Spanned::new(address.span(), address.get_ref().0.clone()),
            files: endings.map_or_else(Vec::new, |endings| endings.0.clone()),
            takes_all: endings.is_some_and(|endings| endings.0.is_empty()),
            keep: self.keep.as_ref().map(|keep| *keep.get_ref()),
            script_root: script_root.map(|root| root.get_ref().clone()),
            variables: variables.to_vec(),
        }))
    }
}

/// Address of a backend: `unix:/run/php.sock`, `127.0.0.1:9000` or `[::1]:9000`.
#[derive(Clone, Debug)]
pub(super) struct BackendAddress(BackendAddressConfig);

impl FromToml for BackendAddress {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        let folder = item.source.folder;
        let example = "\"unix:/run/php/php-fpm.sock\"";
        let address = item.parse("text in quotes", example, |given| {
            let address = match given.strip_prefix("unix:") {
                Some(path) if !path.is_empty() && !path.contains('\0') => {
                    let path = crate::config::paths::join(folder, path);
                    Some(BackendAddressConfig::Unix(path))
                }
                Some(_) => None,
                None => {
                    let tcp = given.strip_prefix("tcp://").unwrap_or(given);
                    let tcp = tcp.replacen("localhost:", "127.0.0.1:", 1);
                    tcp.parse().ok().map(BackendAddressConfig::Tcp)
                }
            };
            address.map_or_else(
                || {
                    let url = given.strip_prefix("http://").or(given.strip_prefix("fcgi://"));
                    let name = given.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok());
                    let help = if let Some(address) = url {
format!("write {} = \"{}\"", item.key, address.trim_end_matches('/'))
} else if let Some((name, port)) = name {
format!("write the IP address of {name}, such as \"127.0.0.1:{port}\": a backend has no host name")
} else if given.starts_with('/') || given.ends_with(".sock") {
format!("write {} = \"unix:{given}\"", item.key)
} else {
"write an address such as \"unix:/run/php/php-fpm.sock\" or \"127.0.0.1:9000\"".to_owned()
};
                    wrong(format!("`{given}` is not an address of a backend"), help)
                },
                Ok,
            )
        });
        address.map(BackendAddress)
    }
}

/// File endings of the scripts of a backend; empty for `"*"`.
#[derive(Clone, Debug)]
pub(super) struct Endings(Vec<String>);

impl FromToml for Endings {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        if item.text() == Some("*") {
            return Ok(Endings(Vec::new()));
        }
        let (source, span) = (item.source, item.value.span());
        let endings = item.items().into_iter();
        let endings = endings.map(|it| {
            let ending = it.parse("text in quotes", "\".php\"", file_ending);
            ending.map_err(|error| match it.list_help() {
                Some(list) => error.help(list),
                None => error,
            })
        });
        let endings = source.all(endings)?;
        if endings.is_empty() {
            let help = "write a file ending such as \".php\"";
            return Err(source.error(span, "`files` is empty", help));
        }
        Ok(Endings(endings))
    }
}

/// Interpreters by file ending, at least one.
#[derive(Clone, Debug)]
pub(super) struct Interpreters(Vec<InterpreterConfig>);

impl FromToml for Interpreters {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        let (source, span) = (item.source, item.value.span());
        let example = "{ \".php\" = \"/usr/bin/php-cgi\" }";
        let entries = item.table_like(&INTERPRETER, example)?.rest().into_iter();
        let all = source.all(entries.map(|(ending, item)| {
            let program = <Spanned<PathBuf>>::read(item)?;
            let wrong = |wrong: InvalidValue| source.error(ending.span(), wrong.what, wrong.help);
            Ok(InterpreterConfig {
                ending: file_ending(ending.get_ref()).map_err(wrong)?,
                program,
            })
        }))?;
        if all.is_empty() {
            let help = "write a file ending and a program: { \".php\" = \"/usr/bin/php-cgi\" }";
            return Err(source.error(span, "`interpreter` is empty", help));
        }
        Ok(Interpreters(all))
    }
}

/// Reads a file ending, `.php` or `*.php`, and returns `.php`.
fn file_ending(text: &str) -> Result<String, InvalidValue> {
    let ending = text.strip_prefix('*').unwrap_or(text);
    let is_right = ending.starts_with('.')
        && ending.len() > 1
        && !ending.contains(['/', '*', '?', '{', '[', '\0', ',', ' ', '|']);
    if is_right {
        return Ok(ending.to_owned());
    }
    let right = ending
        .trim_start_matches(['*', '.'])
        .replace(['/', '*', '?', '{', '[', '\0'], "");
    wrong(
        format!("`{text}` is not a file ending"),
        format!("begin the file ending with a dot: \".{right}\""),
    )
}

/// Environment variables in addition to the variables of a request.
#[derive(Clone, Debug)]
pub(super) struct Variables(Vec<(String, String)>);

impl FromToml for Variables {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        let source = item.source;
        let entries = item
            .table_like(&ENV, "{ LANG = \"C.UTF-8\" }")?
            .rest()
            .into_iter();
        source.all(entries.map(variable)).map(Variables)
    }
}

fn variable(
    (name, item): (Spanned<String>, KeyedValue<'_, '_>),
) -> Result<(String, String), OperatorError> {
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
    Ok((name.into_inner(), value.into_inner()))
}

static INTERPRETER: TableSchema = TableSchema::of_data("interpreter");
static ENV: TableSchema = TableSchema::of_data("env");
