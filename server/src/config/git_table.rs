//! Keys of a route with git repositories.

use std::path::PathBuf;

use toml::Spanned;

use crate::config::declared_table::{ShownValue, declare_table};
use crate::config::deploy_table::{DeployConfig, Deploys};
use crate::config::error::OperatorError;
use crate::config::toml_reader::{FromToml, KeyedValue, SourceText};

declare_table! {
    /// Keys of `[[site.route]]` about repositories.
    pub(super) struct GitKeys: "[[site.route]]" {
        /// Folder of [repositories](git.md); not a repository itself.
        git: PathBuf = optional("none"), also ["repositories", "GIT_PROJECT_ROOT"], example "\"/srv/git\"";
        /// [Exported](git.md#export) repositories: `"marked"` or `"all"`.
        export: ExportedRepositories = default(ExportedRepositories::Marked), example "\"all\"";
        /// `true`: users with a login may [push](git.md#push); needs `users`.
        push: bool = default(false), example "true";
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
            let spans = [self.export.span(), self.push.span(), self.pages.span()];
            let mut spans = spans
                .into_iter()
                .chain(deploy)
                .filter(|span| !span.is_empty());
            let Some(span) = spans.next() else {
                return Ok(None);
            };
            let what = "the key has no effect without `git` in the same route";
            let help = "remove the key, or name a folder of repositories: git = \"repositories\"";
            return Err(source.error(span, what, help));
        };
        if *self.push.get_ref() && !has_users {
            let what = "`push` requires a login, but the route has no `users`";
            let help = "add `users` with a file made by `anthill passwd FILE NAME`";
            return Err(source.error(self.push.span(), what, help));
        }
        Ok(Some(GitConfig {
            folder,
            exports_all: *self.export.get_ref() == ExportedRepositories::All,
            push: self.push.into_inner(),
            pages: self.pages.into_inner(),
            variables: variables.to_vec(),
            deploy: self.deploy.map_or_else(Vec::new, |all| all.into_inner().0),
        }))
    }
}
