//! Checks of the files and folders in a configuration: served folders, files to be read by the account the
//! server drops to, and places to be written.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::Metadata;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::AtFlags;
use rustix::io::Errno;
use toml::Spanned;

use crate::config::auth_table::AuthConfig;
use crate::config::balancer::BalancerConfig;
use crate::config::balancer_checks::{listener_of, own_listener, shared_cookies, unused_balancers};
use crate::config::client_statements::{forgeable_fields, trusts_everyone};
use crate::config::configuration::Config;
use crate::config::deployments::{Deployment, RootState, deployed_folder, inspect_root};
use crate::config::doubtful_addresses::doubtful_addresses;
use crate::config::doubtful_files::doubtful_files;
use crate::config::doubtful_routes::doubtful_routes;
use crate::config::doubtful_settings::doubtful_settings;
use crate::config::error::OperatorError;
use crate::config::folder_contents::{
    misnamed_configuration, misplaced_route, nameless_site, without_files, wrong_codings,
};
use crate::config::git_table::GitConfig;
use crate::config::guard_checks::doubtful_guards;
use crate::config::log_table::LogTarget;
use crate::config::missing_paths::{CREATE_FOLDER, misleading_path, missing, sibling};
use crate::config::odd_characters::odd_text;
use crate::config::paths::{is_given_away, reason};
use crate::config::route_table::{RouteConfig, TargetConfig};
use crate::config::script_table::{BackendAddressConfig, ScriptsConfig};
use crate::config::server_table::ServerConfig;
use crate::config::site_listener::SiteListener;
use crate::config::site_table::{PlainHttp, SiteConfig};
use crate::config::table_relations::{
    denied_all, lifted_addresses, open_methods, placeholder_in_path, shadowed_redirect, skips_all,
    unbound_signatures, useless_login,
};
use crate::config::unix_account::{UnixAccount, accessed};
use crate::config::useless_settings::useless_settings;
use crate::git::post_receive::git_folder;
use crate::git::repository::is_repository;
use balancer::settings::MemberHost;
use base::trusted_path::user_name;

/// Checks that all files and folders in the configuration exist and can be used. Returns warnings about
/// settings that work but are probably not intended, or all mistakes.
pub fn check(config: &Config) -> Result<Vec<OperatorError>, OperatorError> {
    let (errors, warnings) = inspect(config);
    match OperatorError::all(errors) {
        Some(error) => Err(error),
        None => Ok(warnings),
    }
}

/// Returns the mistakes of a configuration, and the warnings.
pub fn inspect(config: &Config) -> (Vec<OperatorError>, Vec<OperatorError>) {
    let checker = Checker::new(config, true);
    checker.named_files();
    checker.keep(checker.state());
    checker.keep(checker.control());
    let mut warnings = config.doubts.clone();
    warnings.extend(checker.warnings());
    (checker.errors.into_inner(), warnings)
}

/// Returns the mistakes of the values that could be read of a configuration with mistakes.
pub(super) fn errors_of_part(config: &Config) -> Vec<OperatorError> {
    let checker = Checker::new(config, false);
    checker.named_files();
    checker.errors.into_inner()
}

/// Returns the error for a file that the process may not read, with the command that grants access.
pub fn unreadable(config: &Config, file: &Spanned<PathBuf>) -> Option<OperatorError> {
    let checker = Checker::new(config, false);
    let us = checker.own_account()?;
    let stop = us.stopped_at(file.get_ref(), 4)?;
    Some(checker.refused(file, &us, &stop, 4, "read"))
}

/// Returns the account the server drops to. `None` if the server keeps the account of the checking process.
fn account(config: &Config) -> Result<Option<UnixAccount>, OperatorError> {
    let Some(user) = &config.server.user else {
        return Ok(None);
    };
    let name = user.get_ref();
    let Some(account) = UnixAccount::find(name) else {
        let what = format!("there is no user `{name}` on this machine");
        let help = match name.split_once([':', ' ', ';']) {
            Some((user, _)) => format!("write the name of the account alone: user = \"{user}\""),
            None => format!("create the account: useradd --system {name}"),
        };
        return Err(config.point(user.span(), what, help));
    };
    let us = rustix::process::geteuid();
    if us.is_root() {
        return Ok(Some(account));
    }
    if us.as_raw() == account.uid {
        return Ok(None);
    }
    let what = format!("only root can switch to the account `{name}`");
    let help = "start anthill as root, or remove `user`; `anthill service install` gives an installed \
                service another account";
    Err(config.point(user.span(), what, help))
}

struct Checker<'c> {
    config: &'c Config,
    /// False for a configuration with mistakes, which lacks some values.
    is_whole: bool,
    account: Option<UnixAccount>,
    deployments: Vec<Deployment<'c>>,
    /// Served folders by their paths without links.
    roots: HashMap<PathBuf, &'c Path>,
    errors: RefCell<Vec<OperatorError>>,
}

impl<'c> Checker<'c> {
    fn new(config: &'c Config, is_whole: bool) -> Checker<'c> {
        let (account, error) = match account(config) {
            Ok(account) => (account, None),
            Err(error) => (None, Some(error)),
        };
        let roots = config.sites.iter().flat_map(|site| {
            let routes = site.routes.iter().filter_map(|route| match &route.target {
                Some(TargetConfig::Root(root)) => Some(root),
                _ => None,
            });
            site.root.iter().chain(routes)
        });
        let roots = roots.map(|root| root.get_ref().as_path());
        Checker {
            config,
            is_whole,
            account,
            deployments: config.deployments(),
            roots: roots.map(|root| (real(root), root)).collect(),
            errors: RefCell::new(error.into_iter().collect()),
        }
    }
}

impl Checker<'_> {
    /// Records an error, so that all mistakes are reported at once.
    fn keep(&self, result: Result<(), OperatorError>) {
        self.errors.borrow_mut().extend(result.err());
    }

    /// Checks the files and folders that the configuration names.
    fn named_files(&self) {
        let config = self.config;
        for site in &config.sites {
            self.keep(self.demands_tls(site));
            self.site(site);
        }
        if let Some(tickets) = &config.tls.tickets {
            self.keep(self.file(tickets, KEY_FILE));
        }
        if let Some(acme) = &config.tls.acme {
            if let Some(ca) = &acme.ca {
                self.keep(self.file(ca, "certificate"));
            }
            if let Some(hook) = &acme.hook {
                self.keep(self.program(hook));
            }
        }
        for balancer in config.all_balancers() {
            self.balancer(balancer);
        }
        for (_, users) in config.manager_files() {
            self.keep(self.file(users, USER_FILE));
        }
        self.keep(self.log(&config.log.access));
        self.keep(self.log(&config.log.errors));
        let releases = config.server.releases.as_ref();
        // The first publisher makes a missing store.
        if let Some(releases) = releases.filter(|it| it.get_ref().exists()) {
            self.keep(self.folder(releases));
        }
        self.nothing_secret_is_served();
    }

    fn site(&self, site: &SiteConfig) {
        if let Some(deployment) = self.deployments.iter().find(|it| it.fills(site)) {
            // The content of a deployed root is not checked, since the content comes with a push.
            self.keep(self.deployed(deployment));
        } else if let Some(root) = site.root.as_ref().filter(|it| !self.may_come(it.get_ref())) {
            self.keep(self.folder(root));
            // The pages of a release come with the release.
            let has_pages = root.get_ref().is_dir() && site.release.is_none();
            let of_routes = site.routes.iter().flat_map(|route| &route.files.errors);
            let pages = site.errors.iter().chain(of_routes);
            for (status, page) in pages.filter(|_| has_pages) {
                let path = root.get_ref().join(page.get_ref());
                if !path.is_file() {
                    let what = format!("the error page {} does not exist", path.display());
                    let help = format!("create the page, or remove {status} from `errors`");
                    self.keep(Err(self.config.point(page.span(), what, help)));
                }
            }
        }
        for (file, kind) in [
            (&site.certificate, "certificate"),
            (&site.key, "key"),
            (&site.client_ca, "certificate"),
        ] {
            if let Some(file) = file {
                self.keep(self.file(file, kind));
            }
        }
        if let Some(log) = &site.log.access {
            self.keep(self.log(log));
        }
        if let Some(users) = site.preview_users() {
            self.keep(self.file(users, USER_FILE));
        }
        if let Some(map) = &site.redirect_map {
            self.keep(self.file(map, "file of redirects"));
        }
        for route in &site.routes {
            self.route(site, route);
        }
    }

    /// Returns true for a missing root that a deployment with a mistake may fill.
    fn may_come(&self, root: &Path) -> bool {
        let mut routes = self.config.sites.iter().flat_map(|site| &site.routes);
        !self.is_whole
            && !root.exists()
            && routes.any(|route| matches!(route.target, Some(TargetConfig::Git(_))))
    }

    /// Refuses a server for forward authentication that is a site of this server, and a login page that needs the login.
    fn auth(&self, site: &SiteConfig, auth: &AuthConfig) -> Result<(), OperatorError> {
        let mut members = auth.balancer.settings.members.iter();
        let is_own = members.any(|member| match &member.url.host {
            MemberHost::Name(name, port) => {
                let mut sites = self.config.sites.iter();
                let is_named = sites.any(|site| {
                    let mut names = site.names.iter();
                    names.any(|own| own.get_ref() == &**name)
                });
                let local = MemberHost::Name("localhost".into(), *port);
                is_named && listener_of(self.config, &local).is_some()
            }
            _ => false,
        });
        if is_own {
            let what = "the URL of `auth` leads to a site of this server, so each question would be a request to answer";
            let help = "write the address of the server for authentication itself, such as \"http://127.0.0.1:9091/api/authz/forward-auth\"";
            return Err(self.config.point(auth.span.clone(), what, help));
        }
        let Some(login) = auth
            .login
            .as_ref()
            .filter(|it| it.get_ref().starts_with('/'))
        else {
            return Ok(());
        };
        let path = login.get_ref();
        let path = path.find(['?', '#']).map_or(&**path, |end| &path[..end]);
        match site.auths_of(path).next() {
            None => Ok(()),
            Some(route) => {
                let what = format!(
                    "the login page {path} needs a login itself, because the route {} has `auth`",
                    route.path.get_ref()
                );
                let help = format!(
                    "add a [[site.route]] with path = \"{}\", auth = false and the target of the login page",
                    path.rfind('/').map_or("/", |at| &path[..=at])
                );
                Err(self.config.point(login.span(), what, help))
            }
        }
    }

    fn route(&self, site: &SiteConfig, route: &RouteConfig) {
        for users in route.user_files() {
            self.keep(self.file(users, USER_FILE));
        }
        if let Some(TargetConfig::Root(root)) = &route.target {
            self.keep(self.folder(root));
        }
        if let Some(TargetConfig::Git(git)) = &route.target {
            self.keep(self.repositories(git));
        }
        if let Some(auth) = route.auth_server() {
            self.keep(self.auth(site, auth));
        }
        let interpreters = match (&route.target, &route.scripts) {
            (Some(TargetConfig::Cgi(cgi)), _) => {
                self.keep(self.folder(&cgi.folder));
                &cgi.interpreters[..]
            }
            (_, Some(ScriptsConfig::Cgi { interpreters, .. })) => interpreters,
            _ => &[],
        };
        for interpreter in interpreters {
            self.keep(self.program(&interpreter.program));
        }
    }

    /// Checks the files of a balancer, and refuses the server itself as a member.
    fn balancer(&self, balancer: &BalancerConfig) {
        for (file, kind) in [
            (&balancer.ca, "certificate"),
            (&balancer.client_certificate, "certificate"),
            (&balancer.client_key, "key"),
        ] {
            if let Some(file) = file {
                self.keep(self.file(file, kind));
            }
        }
        if let Some((span, listener)) = own_listener(self.config, balancer) {
            let what = format!("the member is this server, which listens on {listener}");
            let help = if balancer.settings.name.starts_with("auth ") {
                "write the address of the server for authentication, which needs a port of its own"
            } else {
                "write the address of the application, which needs a port of its own"
            };
            self.keep(Err(self.config.point(span, what, help)));
        }
    }

    /// Refuses a site with `client_ca` that is served over plain HTTP (HTTP/1.1 or h2c): a client presents
    /// a certificate only in a TLS handshake.
    fn demands_tls(&self, site: &SiteConfig) -> Result<(), OperatorError> {
        let Some(client_ca) = &site.client_ca else {
            return Ok(());
        };
        let server = &self.config.server;
        let name = &site.name;
        let mut own = site.listen.iter();
        let plain = own.find(|listener| !listener.get_ref().secure);
        let (span, what, help) = match (site.is_served_by_https(server), site.http) {
            (_, _) if let Some(plain) = plain => (
                plain.span(),
                format!(
                    "{name} requires client certificates, but `{}` serves the site without TLS",
                    plain.get_ref()
                ),
                "write https:// there, or remove `client_ca`",
            ),
            (false, _) => (
                client_ca.span(),
                format!("{name} requires client certificates, but the server has no https address"),
                "give `https` in [server] an address, or remove `client_ca` and protect routes \
                 with `users` or `allow`",
            ),
            (true, PlainHttp::Serve) if site.listen.is_empty() && !server.http.is_empty() => (
                site.http_span.clone(),
                format!(
                    "{name} requires client certificates, but http = \"serve\" serves the site \
                     without TLS"
                ),
                "remove `http`, so that plain HTTP only redirects to https, or remove `client_ca`",
            ),
            _ => return Ok(()),
        };
        Err(self.config.point(span, what, help))
    }

    /// Checks a folder to serve.
    fn folder(&self, folder: &Spanned<PathBuf>) -> Result<(), OperatorError> {
        let metadata = self.metadata(folder, "folder")?;
        if !metadata.is_dir() {
            let what = format!("{} is a file, not a folder", folder.get_ref().display());
            let parent = folder.get_ref().parent().unwrap_or(Path::new("/"));
            let help = format!("name the folder of the file: {}", parent.display());
            return Err(self.config.point(folder.span(), what, help));
        }
        if real(folder.get_ref()) == Path::new("/") {
            let what =
                "the folder / holds all files of this machine, and the server would serve them";
            let help = "name the folder of the pages, such as \"/srv/www\"";
            return Err(self.config.point(folder.span(), what, help));
        }
        self.allowed(folder, 4 | 1, "read")
    }

    /// Checks a folder of repositories, and refuses a folder that is itself a repository.
    fn repositories(&self, git: &GitConfig) -> Result<(), OperatorError> {
        self.folder(&git.folder)?;
        if !is_repository(git.folder.get_ref()) {
            return Ok(());
        }
        let shown = git.folder.get_ref().display();
        let what = format!("{shown} is a repository, not a folder of repositories");
        let parent = git.folder.get_ref().parent().unwrap_or(Path::new("/"));
        let help = format!("name the folder of the repository: {}", parent.display());
        Err(self.config.point(git.folder.span(), what, help))
    }

    /// Checks a deployment: the repository exists, and the root is missing, empty or a link to a deployed tree,
    /// or the store of releases is writable.
    fn deployed(&self, deployment: &Deployment<'_>) -> Result<(), OperatorError> {
        self.deployed_from(deployment)?;
        let span = || deployment.deploy.site.span();
        let Some(root) = deployment.root() else {
            let store = Spanned::new(span(), self.config.server.releases_folder());
            // The first deployment makes a missing store.
            return if store.get_ref().exists() {
                self.allowed(&store, 4 | 2 | 1, "write")
            } else {
                Ok(())
            };
        };
        let shown = root.display();
        let refused = match inspect_root(root) {
            Ok(RootState::Nothing | RootState::EmptyFolder | RootState::Deployed(_)) => None,
            Ok(RootState::Foreign) => Some((
                format!("{shown} holds files that did not come from a deployment"),
                format!("move the files away: mv {shown} {shown}.before"),
            )),
            Ok(RootState::Link(to)) => Some((
                format!(
                    "{shown} is a link to {}, which is not a deployed tree",
                    to.display()
                ),
                format!("remove the link: rm {shown}"),
            )),
            Err(error) => Some((format!("{shown}: {}", reason(&error)), String::new())),
        };
        if let Some((what, help)) = refused {
            return Err(self.config.point(span(), what, help));
        }
        let above = root.parent().unwrap_or(Path::new("/")).to_owned();
        let above = Spanned::new(span(), above);
        if !self.metadata(&above, "folder")?.is_dir() {
            let what = format!("{} is not a folder", above.get_ref().display());
            let help = "deployments need a folder above the root";
            return Err(self.config.point(span(), what, help));
        }
        // A deployment makes the new tree and the new link in the folder above the root.
        self.allowed(&above, 4 | 2 | 1, "write")?;
        match deployed_folder(root).filter(|trees| trees.is_dir()) {
            Some(trees) => self.allowed(&Spanned::new(span(), trees), 4 | 2 | 1, "write"),
            None => Ok(()),
        }
    }

    /// Checks the repository of a deployment.
    fn deployed_from(&self, deployment: &Deployment<'_>) -> Result<(), OperatorError> {
        let span = deployment.deploy.repository.span();
        let named = deployment.repository();
        if let Some(repository) = git_folder(&named) {
            return self.allowed(&Spanned::new(span, repository), 4 | 1, "read");
        }
        let what = format!("the repository {} does not exist", named.display());
        let help = match sibling(&named, true) {
            Some(sibling) => format!("did you mean {}?", sibling.display()),
            None => format!("create the repository: git init --bare {}", named.display()),
        };
        Err(self.config.point(span, what, help))
    }

    /// Checks a file to read.
    fn file(&self, file: &Spanned<PathBuf>, kind: &str) -> Result<(), OperatorError> {
        let metadata = self.metadata(file, kind)?;
        if !metadata.is_file() {
            let what = if metadata.is_dir() {
                format!("{} is a folder, not a file", file.get_ref().display())
            } else {
                format!("{} is not a regular file", file.get_ref().display())
            };
            let help = format!("write the path of the {kind}");
            return Err(self.config.point(file.span(), what, help));
        }
        self.allowed(file, 4, "read")
    }

    /// Checks a program to run.
    fn program(&self, program: &Spanned<PathBuf>) -> Result<(), OperatorError> {
        if !self.metadata(program, "program")?.is_file() {
            let what = format!("{} is not a program", program.get_ref().display());
            let help = "write the path of the program";
            return Err(self.config.point(program.span(), what, help));
        }
        let Some(account) = &self.account else {
            if accessible(program.get_ref(), 1) {
                return Ok(());
            }
            let shown = program.get_ref().display();
            let what = format!("the current user cannot run {shown}");
            return Err(self
                .config
                .point(program.span(), what, format!("chmod +x {shown}")));
        };
        let Some(stop) = account.stopped_at(program.get_ref(), 1) else {
            return Ok(());
        };
        let (shown, name) = (program.get_ref().display(), &account.name);
        let what = format!("user `{name}` cannot run {shown}");
        let help = format!("chmod o+x {}", stop.display());
        Err(self.config.point(program.span(), what, help))
    }

    fn metadata(&self, path: &Spanned<PathBuf>, kind: &str) -> Result<Metadata, OperatorError> {
        let shown = path.get_ref().display();
        std::fs::metadata(path.get_ref()).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                if let Some((what, help)) = misleading_path(path.get_ref(), &self.config.folder) {
                    let what = match odd_text(&shown.to_string()) {
                        // The odd character may be a line end.
                        Some(_) => format!("the {kind} does not exist: {what}"),
                        None => format!("the {kind} {shown} does not exist: {what}"),
                    };
                    return self.config.point(path.span(), what, help);
                }
                let help = match sibling(path.get_ref(), kind == "folder") {
                    _ if kind == "certificate" && is_wish(path.get_ref()) => {
                        "remove `certificate`; without the key the server makes a certificate, and acme = { email = \
                         \"me@example.org\" } in [tls] requests one"
                            .to_owned()
                    }
                    _ if kind == USER_FILE && path.get_ref().as_os_str().as_encoded_bytes().contains(&b':') => {
                        "write the path of a file: `anthill passwd users.htpasswd NAME` asks for the password, and makes the \
                         file"
                            .to_owned()
                    }
                    other if kind == USER_FILE => {
                        let other = other.map(|it| format!(", or did you mean {}?", it.display()));
                        let other = other.unwrap_or_default();
                        format!("create the file: anthill passwd {shown} NAME{other}")
                    }
                    Some(sibling) => format!("did you mean {}?", sibling.display()),
                    None if kind == KEY_FILE => {
                        format!("create the file: (umask 077; openssl rand -hex 32 > {shown})")
                    }
                    None => missing(path.get_ref(), kind, &self.config.folder),
                };
                self.config.point(
                    path.span(),
                    format!("the {kind} {shown} does not exist"),
                    help,
                )
            }
            _ => {
                let stopped = self.own_account().and_then(|us| {
                    let stop = us.stopped_at(path.get_ref(), 4)?;
                    Some(self.refused(path, &us, &stop, 4, "read"))
                });
                if let Some(stopped) = stopped {
                    return stopped;
                }
                let what = format!("{shown}: {}", reason(&error));
                self.config.point(
                    path.span(),
                    what,
                    "give anthill's user the right to enter the folders above the path",
                )
            }
        })
    }

    /// Checks that the account the server runs under has the rights in `bits` (4 read, 2 write, 1 enter).
    fn allowed(&self, path: &Spanned<PathBuf>, bits: u32, verb: &str) -> Result<(), OperatorError> {
        let us = match &self.account {
            None if accessible(path.get_ref(), bits) => return Ok(()),
            None => self.own_account(),
            Some(_) => None,
        };
        let account = self.account.as_ref().or(us.as_ref());
        let stop = account.and_then(|it| Some((it, it.stopped_at(path.get_ref(), bits)?)));
        match stop {
            Some((account, stop)) => Err(self.refused(path, account, &stop, bits, verb)),
            None if self.account.is_some() => Ok(()),
            None => {
                let shown = path.get_ref().display();
                let what = format!("the current user cannot {verb} {shown}");
                let help = match accessed(path.get_ref(), bits, AtFlags::EACCESS) {
                    // The unit of a service names the folders that the service may write to.
                    Err(Errno::ROFS) => {
                        "the file system is read-only for the server: run `anthill service install` again, so that the \
                         unit of the service names the folder"
                    }
                    _ => "change the owner or the mode",
                };
                Err(self.config.point(path.span(), what, help))
            }
        }
    }

    /// Returns the error for an account without access to a path, with the command that grants access.
    fn refused(
        &self,
        path: &Spanned<PathBuf>,
        account: &UnixAccount,
        stop: &Path,
        bits: u32,
        verb: &str,
    ) -> OperatorError {
        let (shown, name) = (path.get_ref().display(), &account.name);
        let certbot = kept_by_certbot(path.get_ref(), &account.group);
        let (what, help) = if stop == *path.get_ref() {
            let what = format!("user `{name}` cannot {verb} {shown}");
            let mode = match bits {
                4 => "g+r",
                5 => "g+rx",
                _ if path.get_ref().is_dir() => "g+rwx",
                _ => "g+rw",
            };
            (
                what,
                format!("chgrp {} {shown} && chmod {mode} {shown}", account.group),
            )
        } else {
            let stop = stop.display();
            let what = format!("user `{name}` cannot reach {shown}: {stop} is closed to the user");
            (
                what,
                format!("chmod o+x {stop}, or move the file elsewhere"),
            )
        };
        self.config
            .point(path.span(), what, certbot.unwrap_or(help))
    }

    /// Returns the account of the process, with the name in `user` where the uid is equal. An error at a
    /// reload, after privileges were dropped, therefore reads like the error of `anthill check` run by root.
    fn own_account(&self) -> Option<UnixAccount> {
        let uid = rustix::process::geteuid().as_raw();
        let user = self.config.server.user.as_ref();
        let configured = user.and_then(|user| UnixAccount::find(user.get_ref()));
        let own = || UnixAccount::find(&user_name(uid).unwrap_or_else(|| uid.to_string()));
        configured.filter(|it| it.uid == uid).or_else(own)
    }

    /// Checks that an existing log file is writable, or that the folder of a missing log file exists and is
    /// writable.
    fn log(&self, log: &Spanned<LogTarget>) -> Result<(), OperatorError> {
        let LogTarget::File(path) = log.get_ref() else {
            return Ok(());
        };
        if path.is_dir() {
            let what = format!("{} is a folder, not a file", path.display());
            let help = format!(
                "name a file in the folder: {}",
                path.join("access.log").display()
            );
            return Err(self.config.point(log.span(), what, help));
        }
        if path.exists()
            && !path
                .parent()
                .is_some_and(|folder| self.gives_logs_away(folder))
        {
            self.allowed(&Spanned::new(log.span(), path.clone()), 2, "write")?;
            // A rotation makes files beside a log, but not beside a pipe.
            if self.config.log.rotate.is_none() || !path.is_file() {
                return Ok(());
            }
        }
        let folder = path.parent().unwrap_or(Path::new("/")).to_owned();
        if self.gives_logs_away(&folder) {
            return Ok(());
        }
        let folder = Spanned::new(log.span(), folder);
        let metadata = self.metadata(&folder, "folder").map_err(|error| {
            let is_missing = error.hint().is_some_and(|it| it.starts_with(CREATE_FOLDER));
            match self.account.as_ref().filter(|_| is_missing) {
                // The account has to write to the folder too.
                Some(account) => error.help(format!(
                    "create the folder: install -d -o {} -g {} {}",
                    account.name,
                    account.group,
                    folder.get_ref().display()
                )),
                None => error,
            }
        });
        if !metadata?.is_dir() {
            let what = format!("{} is a file, not a folder", folder.get_ref().display());
            let help = "put the log into a folder to which the server can write";
            return Err(self.config.point(log.span(), what, help));
        }
        self.allowed(&folder, 2 | 1, "write")
    }

    /// Returns true for the folder of a service's access log that root gives to the account at the start.
    fn gives_logs_away(&self, folder: &Path) -> bool {
        self.account.is_some()
            && self.config.log.service_folder().as_deref() == Some(folder)
            && is_given_away(folder)
    }

    /// Checks that the state folder is writable, that root gives the folder to the account at the start, or that a
    /// missing state folder can be made at the start (by root if root runs the check).
    fn state(&self) -> Result<(), OperatorError> {
        let state = &self.config.server.state;
        if !state.get_ref().is_dir() {
            return self.may_be_made(state, "name a folder for certificates and keys");
        }
        let Some(account) = &self.account else {
            self.allowed(state, 4 | 2 | 1, "write")?;
            return match self.own_account() {
                Some(us) if us.uid != 0 => self.state_of(&us),
                _ => Ok(()),
            };
        };
        let stop = account.stopped_at(state.get_ref(), 4 | 2 | 1);
        let is_stopped_above = stop.as_ref().is_some_and(|stop| stop != state.get_ref());
        if !is_stopped_above && is_given_away(state.get_ref()) {
            return Ok(());
        }
        // Files made by root in the state folder (ticket keys, the self-signed key) must belong to the
        // account as well.
        if stop.is_some() && !is_stopped_above {
            let (shown, name) = (state.get_ref().display(), &account.name);
            let what = format!("user `{name}` cannot write to {shown}");
            let help = format!("chown -R {name} {shown}");
            return Err(self.config.point(state.span(), what, help));
        }
        self.allowed(state, 4 | 2 | 1, "write")?;
        self.state_of(account)
    }

    /// Refuses a state folder with a file of root that the account cannot read, left by a server or a command that ran as
    /// root.
    fn state_of(&self, account: &UnixAccount) -> Result<(), OperatorError> {
        let state = &self.config.server.state;
        let entries = std::fs::read_dir(state.get_ref()).into_iter().flatten();
        let closed = entries.flatten().take(STATE_ENTRIES_MAX).find(|entry| {
            let of_root = entry
                .metadata()
                .is_ok_and(|it| it.is_file() && it.uid() == 0);
            of_root && account.stopped_at(&entry.path(), 4).is_some()
        });
        let Some(closed) = closed else { return Ok(()) };
        let (shown, name) = (state.get_ref().display(), &account.name);
        let closed = closed.path();
        let what = format!(
            "user `{name}` cannot read {}, a file of root in the state folder",
            closed.display()
        );
        let help = format!("chown -R {name} {shown}");
        Err(self.config.point(state.span(), what, help))
    }

    /// Checks that the account can make the control socket. The default place is in the state folder.
    fn control(&self) -> Result<(), OperatorError> {
        let control = &self.config.server.control;
        let above = control.get_ref().parent().unwrap_or(Path::new("/"));
        if control.span().is_empty() || above == self.config.server.state.get_ref() {
            return Ok(());
        }
        let above = Spanned::new(control.span(), above.to_owned());
        if !above.get_ref().is_dir() {
            return self.may_be_made(&above, "name a socket in a folder");
        }
        self.allowed(&above, 2 | 1, "write").map_err(|error| {
            let name = control.get_ref().file_name().unwrap_or_default();
            let own = above.get_ref().join("anthill").join(name);
            error.help(format!(
                "name a socket in a folder of the account, such as {}",
                own.display()
            ))
        })
    }

    /// Checks that a missing folder can be made at the start.
    fn may_be_made(&self, folder: &Spanned<PathBuf>, advice: &str) -> Result<(), OperatorError> {
        let refused = |what, help: String| Err(self.config.point(folder.span(), what, help));
        let shown = folder.get_ref().display();
        if folder.get_ref().exists() {
            return refused(format!("{shown} is not a folder"), advice.to_owned());
        }
        let existing = folder.get_ref().ancestors().find(|above| above.exists());
        let existing = existing.unwrap_or(Path::new("/"));
        if !existing.is_dir() {
            let what = format!("{} is a file, not a folder", existing.display());
            return refused(what, advice.to_owned());
        }
        if !accessible(existing, 2 | 1) {
            let what = format!("the folder {shown} cannot be created");
            let help = format!(
                "{} is not writable: name another folder",
                existing.display()
            );
            return refused(what, help);
        }
        let stop = self
            .account
            .as_ref()
            .and_then(|it| Some((it, it.stopped_at(existing, 1)?)));
        match stop {
            Some((account, stop)) => Err(self.refused(folder, account, &stop, 1, "enter")),
            None => Ok(()),
        }
    }

    /// Refuses password files, keys and state in a served folder. The server hides the files from clients
    /// in any folder; the check is a second defence against a mistake in the first.
    fn nothing_secret_is_served(&self) {
        let sites = || self.config.sites.iter();
        let balancers = self.config.all_balancers();
        let client_keys = balancers.filter_map(BalancerConfig::secret_file);
        let secrets = sites()
            .flat_map(|site| {
                let users = site.routes.iter().flat_map(RouteConfig::user_files);
                let key = site
                    .key
                    .iter()
                    .chain(site.certificate.iter().filter(|_| site.key.is_none()));
                users.chain(site.preview_users()).chain(key)
            })
            .chain(client_keys.map(|(_, file)| file))
            .chain(self.config.manager_files().map(|(_, file)| file))
            .chain(&self.config.tls.tickets)
            .chain([&self.config.server.state]);
        for secret in secrets {
            if let Some(root) = self.served_from(secret.get_ref()) {
                let path = secret.get_ref().display();
                let what = format!("{path} is inside a served folder");
                let mut help = format!("write a path outside of {}", root.display());
                if let Some(other) = self.other_root(root) {
                    help += ", or ";
                    help += &other;
                }
                self.keep(Err(self.config.point(secret.span(), what, help)));
            }
        }
    }

    /// Suggests another root for a secret in a served folder, if the served folder also holds the
    /// configuration.
    fn other_root(&self, root: &Path) -> Option<String> {
        let folder = &self.config.folder;
        let public = folder.join("public");
        real(folder).starts_with(real(root)).then(|| {
            format!(
                "move the pages to {} and write root = \"public\"",
                public.display()
            )
        })
    }

    /// Returns the served folder that contains the file, unless a hidden part of the path keeps clients
    /// from the file.
    fn served_from(&self, path: &Path) -> Option<&Path> {
        let path = real(path);
        let contains = |root: &Path| {
            path.strip_prefix(root).is_ok_and(|inside| {
                inside.components().all(|part| match part {
                    Component::Normal(name) => {
                        name == ".well-known" || !name.as_encoded_bytes().starts_with(b".")
                    }
                    _ => true,
                })
            })
        };
        let mut folders = path.ancestors();
        folders.find_map(|folder| self.roots.get(folder).filter(|_| contains(folder)).copied())
    }

    /// Returns true if an error has been recorded for a value of the file.
    fn is_refused(&self, span: &Range<usize>) -> bool {
        let errors = self.errors.borrow();
        !span.is_empty() && errors.iter().any(|error| error.is_at(span.start))
    }

    fn warnings(&self) -> Vec<OperatorError> {
        let mut warnings = Vec::new();
        let warn = |span, what: String| self.config.point(span, what, "");
        for (key, span, secret) in self.config.secrets_by_key() {
            let root = self.served_from(&secret);
            // A secret at the place of an error needs no second message, nor do the files of a refused state folder.
            let state = &self.config.server.state;
            let is_told = self.is_refused(&span)
                || span.is_empty()
                    && secret.starts_with(state.get_ref())
                    && self.is_refused(&state.span());
            if let Some(root) = root.filter(|root| *root != secret && !is_told) {
                let shown = match key {
                    "" => self.config.shown.clone(),
                    _ => secret.display().to_string(),
                };
                let own = Some(format!("write another path for `{key}`"));
                let ways = [own.filter(|_| !key.is_empty()), self.other_root(root)];
                let ways: Vec<String> = ways.into_iter().flatten().collect();
                let what = format!(
                    "{shown} is inside the served folder {}; the server hides the file from \
                     clients, but a place outside is safer",
                    root.display(),
                );
                let roots = self
                    .config
                    .sites
                    .iter()
                    .filter_map(|site| site.root.as_ref());
                let mut roots = roots.filter(|it| real(it.get_ref()) == real(root));
                let place = match (span.is_empty(), roots.next()) {
                    (true, Some(named)) => named.span(),
                    _ => span,
                };
                warnings.push(self.config.point(place, what, ways.join(", or ")));
            }
        }
        warnings.extend(misnamed_configuration(self.config));
        for (nth, site) in self.config.sites.iter().enumerate() {
            if let Some((served, by)) = served_in_the_open(&self.config.server, site)
                && let Some(route) = site
                    .routes
                    .iter()
                    .find(|it| it.user_files().next().is_some())
            {
                let (name, path) = (&site.name, route.path.get_ref());
                let what = format!(
                    "{name} asks for passwords below {path}, but with {by} the passwords are sent \
                     unencrypted"
                );
                warnings.push(warn(served, what));
            }
            let of_route = |route: &RouteConfig| {
                let warning = self.shown_scripts(route).or_else(|| takes_all(route));
                let warning = warning.or_else(|| self.closed_socket(route));
                let warning = warning.or_else(|| leads_nowhere(site, route));
                let warning = warning.or_else(|| placeholder_in_path(route));
                let warning = warning.or_else(|| denied_all(route));
                let warning = warning.or_else(|| open_methods(site, route));
                let warning = warning.or_else(|| lifted_addresses(site, route));
                let what = warning.or_else(|| useless_login(site, route))?;
                Some(warn(route.path.span(), what))
            };
            warnings.extend(site.routes.iter().filter_map(of_route));
            warnings.extend(self.doubtful_folders(nth, site));
            let unbound = site.release.as_ref().and_then(unbound_signatures);
            warnings.extend(unbound.map(|(span, what)| warn(span, what)));
            let shadowed = shadowed_redirect(site);
            warnings.extend(shadowed.map(|(span, what)| warn(span, what)));
        }
        let logs = self.config.sites.iter().map(|site| &site.log);
        let skips = logs.map(|log| (log.skip.as_ref(), log.access.as_ref()));
        let log = &self.config.log;
        for (skip, access) in skips.chain([(Some(&log.skip), Some(&log.access))]) {
            if skip.is_some_and(|rules| skips_all(rules)) {
                let what = "`skip` leaves out every line without a refusal: write access = \"off\" for no log";
                warnings.push(warn(access.map_or(0..0, Spanned::span), what.to_owned()));
            }
        }
        warnings.extend(doubtful_guards(self.config));
        warnings.extend(useless_settings(self.config));
        warnings.extend(doubtful_settings(self.config));
        warnings.extend(doubtful_addresses(self.config));
        warnings.extend(doubtful_routes(self.config));
        let account = &self.account;
        // Root reads every file.
        let own = self.own_account().filter(|it| it.uid != 0);
        warnings.extend(doubtful_files(
            self.config,
            account.as_ref().or(own.as_ref()),
        ));
        warnings.extend(trusts_everyone(self.config));
        warnings.extend(forgeable_fields(self.config));
        warnings.extend(unused_balancers(self.config));
        warnings.extend(shared_cookies(self.config));
        warnings.extend(self.deployments.iter().filter_map(|deployment| {
            let what = not_exported(deployment)?;
            Some(warn(deployment.deploy.repository.span(), what))
        }));
        warnings
    }

    /// Warns of the contents of served folders.
    fn doubtful_folders(&self, nth: usize, site: &SiteConfig) -> Vec<OperatorError> {
        let config = self.config;
        let is_deployed = self.deployments.iter().any(|it| it.fills(site));
        // The content of a deployed root comes with a push.
        let own = site.root.iter().filter(|_| !is_deployed);
        // An application fills folders within its own, such as one for uploads.
        let is_of_application = |folder: &PathBuf| {
            let has_scripts = site.routes.iter().any(|route| route.scripts.is_some());
            let root = site.root.as_ref().map(|root| root.get_ref());
            has_scripts && root.is_some_and(|root| folder.starts_with(root))
        };
        let routes = site.routes.iter().filter_map(|route| match &route.target {
            Some(TargetConfig::Root(root)) if !is_of_application(root.get_ref()) => Some(root),
            _ => None,
        });
        let empty = own.chain(routes);
        let mut warnings: Vec<OperatorError> = empty
            .filter_map(|root| without_files(config, site, root))
            .collect();
        warnings.extend(nameless_site(config, nth));
        if !is_deployed {
            warnings.extend(wrong_codings(config, site));
            let routes = site.routes.iter();
            warnings.extend(routes.filter_map(|route| misplaced_route(config, site, route)));
        }
        warnings
    }

    /// Warns of a backend's socket that the account of the server can't open.
    fn closed_socket(&self, route: &RouteConfig) -> Option<String> {
        let BackendAddressConfig::Unix(socket) = route.backend()?.address.get_ref() else {
            return None;
        };
        let account = self.account.as_ref().filter(|_| socket.exists())?;
        let stop = account.stopped_at(socket, 2)?;
        let mend = if stop == *socket {
            format!(
                "let its group open the socket, for php-fpm with listen.group = {} and \
                 listen.mode = 0660",
                account.group
            )
        } else {
            format!("chmod o+x {}", stop.display())
        };
        Some(format!(
            "user `{}` cannot open the socket {} of the route {}: {mend}",
            account.name,
            socket.display(),
            route.path.get_ref()
        ))
    }

    /// Warns of scripts in a served folder: the route runs the scripts, but the source is sent to clients
    /// below the path of the served folder.
    fn shown_scripts(&self, route: &RouteConfig) -> Option<String> {
        let Some(TargetConfig::Cgi(cgi)) = &route.target else {
            return None;
        };
        let folder = cgi.folder.get_ref();
        let root = self.served_from(folder)?;
        let inside = real(folder).strip_prefix(real(root)).ok()?.to_owned();
        let path = Path::new("/").join(inside);
        let is_covered = path.starts_with(route.path.get_ref().trim_end_matches('/'));
        (!is_covered).then(|| {
            format!(
                "{} is inside {}, so clients can read the source of the scripts below {}/: give \
                 `cgi` a folder outside of the served folder",
                folder.display(),
                root.display(),
                path.display()
            )
        })
    }
}

/// Warns of a deployment's repository that refuses clones and pushes because the repository isn't exported.
fn not_exported(deployment: &Deployment<'_>) -> Option<String> {
    let folder = git_folder(&deployment.repository());
    let folder = folder.filter(|_| !deployment.git.exports_all)?;
    let mark = folder.join("git-daemon-export-ok");
    let refused = if deployment.git.push {
        "pushes to"
    } else {
        "clones of"
    };
    (!mark.exists()).then(|| {
        format!(
            "{refused} {} are refused, since the repository is not exported: touch {}, or write \
             export = \"all\"",
            folder.display(),
            mark.display()
        )
    })
}

/// Returns the setting by which a site is served over plain HTTP to other machines, with its position.
fn served_in_the_open(server: &ServerConfig, site: &SiteConfig) -> Option<(Range<usize>, String)> {
    if site.listen.is_empty() {
        let is_open = site.http == PlainHttp::Serve && !server.http.is_empty();
        return is_open.then(|| (site.http_span.clone(), "http = \"serve\"".to_owned()));
    }
    let is_open = |listener: &&Spanned<SiteListener>| {
        let ip = listener.get_ref().address.address.ip();
        !listener.get_ref().secure && !ip.to_canonical().is_loopback()
    };
    let listener = site.listen.iter().find(is_open)?;
    Some((listener.span(), format!("`{}`", listener.get_ref())))
}

/// Warns of a FastCGI backend that gets every path and may run the wrong file: PHP runs `ant.jpg` as a
/// script for `/upload/ant.jpg/x.php`, unless configured otherwise.
fn takes_all(route: &RouteConfig) -> Option<String> {
    let Some(TargetConfig::Backend(backend)) = &route.target else {
        return None;
    };
    let is_meant = backend.is_scgi || backend.takes_all;
    (!is_meant).then(|| {
        format!(
            "the fastcgi of {} gets every path below the route, for example \
             /upload/ant.jpg/x.php, and PHP may run ant.jpg as a script: name the scripts with \
             `files = \".php\"`, or write `files = \"*\"` if the application handles all paths",
            route.path.get_ref()
        )
    })
}

/// Warns of a rewrite to a missing file below the root of another route, or to a path that has a redirect or another
/// rewrite. The server does not follow the second route but looks for a file of the site, and the site has no such
/// file.
fn leads_nowhere(site: &SiteConfig, route: &RouteConfig) -> Option<String> {
    let Some(TargetConfig::Rewrite(to)) = &route.target else {
        return None;
    };
    let path = to.get_ref().split('?').next().unwrap_or_default();
    // Routes match by whole path components, and the longest match wins, as in `Host::target`.
    let prefix = |route: &RouteConfig| route.path.get_ref().trim_end_matches('/').len();
    let covers = |it: &&RouteConfig| {
        let rest = path.strip_prefix(it.path.get_ref().trim_end_matches('/'));
        it.target.is_some() && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let covering = site.routes.iter().filter(covers);
    let covering = covering.max_by_key(|it| prefix(it))?;
    if let Some(TargetConfig::Root(root)) = &covering.target {
        let rest = path[prefix(covering)..].trim_start_matches('/');
        let file = root.get_ref().join(rest);
        // A path with a slash at the end is completed by the rest of the request's path.
        let is_missing = !path.ends_with('/') && root.get_ref().is_dir() && !file.exists();
        return is_missing.then(|| {
            format!(
                "the rewrite of {} leads to {path} of the route {}, and the file {} does not exist: make the file, or write \
                 the path of another",
                route.path.get_ref(),
                covering.path.get_ref(),
                file.display()
            )
        });
    }
    let file = site.root.as_ref().map(|root| {
        let root = root.get_ref();
        root.join(path.trim_start_matches('/'))
    });
    let is_led_on = matches!(
        covering.target,
        Some(TargetConfig::Redirect(_) | TargetConfig::Rewrite(_))
    );
    (is_led_on && !file.is_some_and(|file| file.exists())).then(|| {
        format!(
            "the rewrite of {} leads to {path}, which the route {} redirects or rewrites again: a \
             second rewrite is not followed, and the file does not exist: make the file, or write a path outside of {1}",
            route.path.get_ref(),
            covering.path.get_ref()
        )
    })
}

/// Returns the help for a file of certbot, which keeps its folder for root: another mode would open all keys. A deploy hook
/// copies the files at each renewal.
pub(super) fn kept_by_certbot(path: &Path, group: &str) -> Option<String> {
    path.starts_with(CERTBOT_FOLDER).then(|| {
        format!(
            "certbot keeps its files for root: name copies in /etc/anthill, which a deploy hook makes at each renewal; the \
             hook is a program in {CERTBOT_FOLDER}/renewal-hooks/deploy with the lines `#!/bin/sh` and `install -m 640 -g \
             {group} \"$RENEWED_LINEAGE\"/*.pem /etc/anthill/`"
        )
    })
}

/// Folder of certbot.
const CERTBOT_FOLDER: &str = "/etc/letsencrypt";

/// Returns the path without links, or the path itself if the path does not exist.
fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Returns true for a word in place of the path of a certificate.
fn is_wish(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let words = [
        "auto",
        "acme",
        "letsencrypt",
        "internal",
        "self-signed",
        "selfsigned",
        "snakeoil",
    ];
    name.is_some_and(|name| words.contains(&name))
}

/// Kind of the file in `users`, as shown in errors.
const USER_FILE: &str = "user file";
/// Kind of the file in `tickets`, as shown in errors.
const KEY_FILE: &str = "key file";

/// Maximum number of entries of the state folder to look at. The server makes fewer than 100 in the folder itself.
const STATE_ENTRIES_MAX: usize = 1_000;

/// Returns true if the kernel grants the process the rights in `bits` (4 read, 2 write, 1 enter).
fn accessible(path: &Path, bits: u32) -> bool {
    accessed(path, bits, AtFlags::EACCESS).is_ok()
}
