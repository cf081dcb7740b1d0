//! Keys of a route with git repositories.

use std::path::PathBuf;

use toml::Spanned;

use crate::config::declared_table::{ShownValue, declare_table};
use crate::config::deploy_table::{DeployConfig, Deploys};
use crate::config::error::OperatorError;
use crate::config::page_key::PageKey;
use crate::config::toml_reader::{FromToml, KeyedValue, SourceText};

declare_table! {
    /// Keys of `[[site.route]]` about repositories.
    pub(super) struct GitKeys: "[[site.route]]" {
        /// Folder of [repositories](git.md); not a repository itself.
        git: PathBuf = optional("none"), also ["repositories", "GIT_PROJECT_ROOT"], example "\"/srv/git\"";
        /// [Exported](git.md#export) repositories: `"marked"` or `"all"`.
        export: ExportedRepositories = default(ExportedRepositories::Marked), example "\"all\"";
        /// `true`: users with a login may [push](git.md#push); needs `users`.
        push: bool = optional("`true` with `push_users`, else `false`"), example "true";
        /// User file of the clients that may push, while clients without a login may read.
        push_users: PathBuf = optional("`users`"), example "\"pushers.htpasswd\"";
        /// `false`: no [pages](git.md#pages) of the repositories.
        pages: bool = default(true), example "false";
        /// Table, or list of tables, of [deployments](#deploy).
        deploy: Deploys = optional("none"),
            example "{ repository = \"site.git\", site = \"www.example.org\" }";
    }
}

/// Settings of a folder of git repositories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitConfig {
    /// Folder of the repositories.
    pub folder: Spanned<PathBuf>,
    /// Whether repositories without `git-daemon-export-ok` are exported too.
    pub exports_all: bool,
    /// Whether logged-in users may push.
    pub push: bool,
    /// User file of the clients that may push, while clients without a login may read; `None` = `users` of the route.
    pub push_users: Option<Spanned<PathBuf>>,
    /// Whether browsers can read the repositories as pages.
    pub pages: bool,
    /// Environment variables in addition to the variables of the request.
    pub variables: Vec<(String, String)>,
    /// Branches deployed to the folders of sites.
    pub deploy: Vec<DeployConfig>,
}

/// Exported repositories of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExportedRepositories {
    /// Repositories with a file `git-daemon-export-ok`.
    Marked,
    /// All repositories.
    All,
}

/// Values of `export` by name, in the order of [`ExportedRepositories`].
const EXPORTED: [(&str, ExportedRepositories); 2] = [
    ("marked", ExportedRepositories::Marked),
    ("all", ExportedRepositories::All),
];

impl FromToml for ExportedRepositories {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        item.word(&EXPORTED)
    }
}

impl ShownValue for ExportedRepositories {
    fn shown(&self) -> String {
        format!("\"{}\"", EXPORTED[*self as usize].0)
    }
}

impl GitConfig {
    /// Adds the settings to the key of pages.
    pub(super) fn add_to_page_key(&self, key: &mut PageKey) {
        let GitConfig {
            folder,
            exports_all,
            push,
            // The users of a push make no difference to pages, as the users of a route.
            push_users: _,
            pages,
            variables,
            deploy,
        } = self;
        key.path(folder.get_ref());
        key.number((*exports_all).into());
        key.number((*push).into());
        key.number((*pages).into());
        key.pairs(variables);
        key.list(deploy.iter(), |key, it| {
            key.text(it.repository.get_ref());
            key.text(it.branch.get_ref());
            key.text(it.site.get_ref());
        });
    }
}

impl GitKeys {
    /// Returns the repositories of the route. `has_users` is true if the route requires a password.
    pub(super) fn settings(
        self,
        source: &SourceText<'_>,
        variables: &[(String, String)],
        has_users: bool,
    ) -> Result<Option<GitConfig>, OperatorError> {
        let deploy = self.deploy.as_ref().map(Spanned::span);
        let Some(folder) = self.git else {
            let keys = [
                ("export", self.export.span()),
                ("pages", self.pages.span()),
                ("push", self.push.map_or(0..0, |it| it.span())),
                ("push_users", self.push_users.map_or(0..0, |it| it.span())),
                ("deploy", deploy.unwrap_or_default()),
            ];
            let help = "remove the key, or name a folder of repositories: git = \"repositories\"";
            source.refuse_useless(keys, "without `git` in the same route", help)?;
            return Ok(None);
        };
        let pages = &self.pages;
        if *pages.get_ref() && !pages.span().is_empty() && !cfg!(feature = "repository-pages") {
            let help = "remove the key, or install a build with pages of repositories";
            let what = "this build has no pages of repositories";
            return Err(source.error(pages.span(), what, help));
        }
        let is_refused = self.push.as_ref().is_some_and(|push| !push.get_ref());
        if let (true, Some(users)) = (is_refused, &self.push_users) {
            let what = "`push_users` contradicts `push = false`";
            return Err(source.error(users.span(), what, "remove one of the two keys"));
        }
        if let (false, false, Some(push), None) =
            (is_refused, has_users, &self.push, &self.push_users)
        {
            let what = "`push` requires a login, but the route has no `users`";
            let help = "add `users` with a file made by `anthill passwd FILE NAME`, or replace `push` by `push_users` for \
                        reading without a login";
            return Err(source.error(push.span(), what, help));
        }
        let push = self.push_users.is_some() || self.push.is_some_and(Spanned::into_inner);
        Ok(Some(GitConfig {
            folder,
            exports_all: *self.export.get_ref() == ExportedRepositories::All,
            push,
            push_users: self.push_users,
            pages: self.pages.into_inner(),
            variables: variables.to_vec(),
            deploy: self.deploy.map_or_else(Vec::new, |all| all.into_inner().0),
        }))
    }
}
