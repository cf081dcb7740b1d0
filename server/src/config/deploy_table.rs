//! `deploy` of a route: a branch of a repository, and the site that the branch fills.

use toml::Spanned;

use crate::config::declared_table::{ShownValue, declare_table};
use crate::config::error::OperatorError;
use crate::config::toml_reader::{FromToml, KeyedValue};
use crate::config::values::wrong;

declare_table! {
    /// Keys of `deploy`.
    pub(super) struct DeployTable: "the table `deploy`" {
        /// Path below the folder of `git`; `.git` may be left out.
        repository: RepositoryPath = required, example "\"site.git\"";
        /// Branch to deploy.
        branch: BranchName = default(BranchName("main".to_owned())), example "\"live\"";
        /// Name of a site in the same configuration.
        site: String = required, example "\"www.example.org\"";
    }
}

/// Deployment of a branch (`deploy` of a route).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeployConfig {
    /// Path of the repository below the folder of repositories.
    pub repository: Spanned<String>,
    /// Name of the branch without `refs/heads/`.
    pub branch: Spanned<String>,
    /// Name of a site in the same file; the site has a root.
    pub site: Spanned<String>,
}

/// Value of `deploy`: a single table, or a list of tables.
#[derive(Clone, Debug)]
pub(super) struct Deploys(pub(super) Vec<DeployConfig>);

impl FromToml for Deploys {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        if !item.value.get_ref().is_table() && !item.value.get_ref().is_array() {
            let example = "{ repository = \"site.git\", site = \"www.example.org\" }";
            return Err(item.mistyped("a table or a list of tables", example));
        }
        let (source, span) = (item.source, item.value.span());
        let tables = <Vec<DeployTable>>::read(item)?;
        if tables.is_empty() {
            let help = "remove `deploy`, or name a repository and a site";
            return Err(source.error(span, "`deploy` is empty", help));
        }
        let tables = tables.into_iter().map(|table| DeployConfig {
            repository: Spanned::new(table.repository.span(), table.repository.into_inner().0),
            branch: Spanned::new(table.branch.span(), table.branch.into_inner().0),
            site: table.site,
        });
        Ok(Deploys(tables.collect()))
    }
}

/// Path of a repository below the folder of a route.
#[derive(Clone, Debug)]
pub(super) struct RepositoryPath(String);

impl FromToml for RepositoryPath {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        let path = item.parse("text in quotes", "\"site.git\"", |text| {
            let plain =
                |part: &str| !part.is_empty() && !part.starts_with('.') && !part.contains('\0');
            if text.split('/').all(plain) {
                Ok(text.to_owned())
            } else {
                wrong(
                    format!("`{text}` is not the path of a repository of this route"),
                    "write the path below the folder in `git`, such as \"tools/site.git\"",
                )
            }
        });
        path.map(RepositoryPath)
    }
}

/// Name of a branch.
#[derive(Clone, Debug)]
pub(super) struct BranchName(String);

impl ShownValue for BranchName {
    fn shown(&self) -> String {
        self.0.shown()
    }
}

impl FromToml for BranchName {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        let branch = item.parse("text in quotes", "\"main\"", |name| {
            let short = name.strip_prefix("refs/heads/");
            if let Some(short) = short.or(name.strip_prefix("heads/")) {
                let what = format!("`{name}` is a ref, not the name of a branch");
                return wrong(what, format!("write \"{short}\""));
            }
            if is_branch(name) {
                Ok(name.to_owned())
            } else {
                wrong(
                    format!("`{name}` is not a valid name of a branch"),
                    "write the name as `git branch` lists it, such as \"main\"",
                )
            }
        });
        branch.map(BranchName)
    }
}

/// Returns true if git allows a branch of the given name (git-check-ref-format).
fn is_branch(name: &str) -> bool {
    let is_part =
        |part: &str| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock");
    let is_odd = |c: char| c.is_control() || " ~^:?*[\\".contains(c);
    name.split('/').all(is_part)
        && !name.contains(is_odd)
        && !name.contains("..")
        && !name.contains("@{")
        && !name.ends_with('.')
        && !name.starts_with('-')
        && !matches!(name, "@" | "HEAD")
        && name.len() <= BRANCH_BYTES_MAX
}

/// Maximum length of a branch name in bytes. Git stores the branch in a file of the same name.
const BRANCH_BYTES_MAX: usize = 244;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branch_names_follow_git() {
        for name in ["main", "feature/x", "v1.0", "a-b_c", "größe", "a@b"] {
            assert!(is_branch(name), "{name}");
        }
        let long = "x".repeat(BRANCH_BYTES_MAX + 1);
        for name in [
            "", "/", "a/", "/a", "a//b", ".a", "a/.b", "a.lock", "a.lock/b", "a b", "a~1", "a^",
            "a:b", "a?", "a*", "a[", "a\\b", "a..b", "a@{1}", "a.", "-a", "@", "HEAD", "a\n",
            &long,
        ] {
            assert!(!is_branch(name), "{name}");
        }
    }
}
