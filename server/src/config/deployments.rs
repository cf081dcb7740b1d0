//! Deployments of a configuration: branches that fill the root or the release of a site, and the state of a root
//! before a deployment.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use toml::Spanned;

use crate::config::configuration::Config;
use crate::config::deploy_table::DeployConfig;
use crate::config::error::OperatorError;
use crate::config::git_table::GitConfig;
use crate::config::release_table::ReleaseConfig;
use crate::config::route_table::TargetConfig;
use crate::config::site_table::SiteConfig;
use crate::config::toml_reader::SourceText;
use cli::suggest;

/// Requires that each deployment names a site of the file with a root or an unsigned release, that the roots of
/// two deployments are neither equal nor nested, and that each release has one deployment. Refuses folders below
/// a deployed root.
pub(super) fn refuse_impossible(
    source: &SourceText<'_>,
    sites: &[SiteConfig],
) -> Result<(), OperatorError> {
    let mut taken: Vec<(&Path, &Spanned<String>)> = Vec::new();
    let mut released: Vec<&str> = Vec::new();
    for (_, deploy) in all(sites) {
        let site = site_of(source, &deploy.site, sites)?;
        let refuse = |what, help| Err(source.error(deploy.site.span(), what, help));
        if let Some(release) = &site.release {
            let name = release.name.get_ref();
            if !release.publishers.is_empty() {
                let what = format!(
                    "the site `{}` has `publishers`, and the server has no key to sign a deployment",
                    deploy.site.get_ref()
                );
                let help = "remove `publishers`, or remove `deploy` and publish with `anthill publish --key`";
                return refuse(what, help.to_owned());
            }
            if released.contains(&name.as_str()) {
                let what = format!("two deployments publish the release `{name}`");
                return refuse(what, "give each deployment its own site".to_owned());
            }
            released.push(name);
            continue;
        }
        let root = root_of(source, &deploy.site, site)?;
        let is_near = |other: &Path| root.starts_with(other) || other.starts_with(root);
        match taken.iter().find(|(other, _)| is_near(other)) {
            Some((other, name)) if *other == root => {
                let place = source.place(name.span().start, &deploy.site.span());
                let what = format!("two deployments replace {}", root.display());
                let help = format!("the first is in {place}; give each deployment its own site");
                return refuse(what, help);
            }
            Some((other, _)) => {
                let (one, other) = (root.display(), other.display());
                let what = format!("the deployed folders {one} and {other} are nested");
                let help = "a deployment replaces a whole folder: put the folders side by side";
                return refuse(what, help.to_owned());
            }
            None => taken.push((root, &deploy.site)),
        }
    }
    for (folder, may_be_all) in folders(sites) {
        let path = folder.get_ref();
        let is_taken = |root: &Path| path.starts_with(root) && !(may_be_all && path == root);
        if let Some((root, _)) = taken.iter().find(|(root, _)| is_taken(root)) {
            let (path, root) = (path.display(), root.display());
            let what =
                format!("{path} is inside {root}, and each deployment replaces the whole folder");
            let help = "move it out of the folder, since a push can remove it; to run scripts of \
                        the deployed site, use `interpreter`";
            return Err(source.error(folder.span(), what, help));
        }
    }
    Ok(())
}

/// Returns the folders that have to exist. The flag is true for a folder that may be equal to a deployed
/// root: such a folder belongs to a site, and is replaced with the root.
fn folders(sites: &[SiteConfig]) -> Vec<(&Spanned<PathBuf>, bool)> {
    let mut all = Vec::new();
    for site in sites {
        all.extend(site.root.iter().map(|root| (root, true)));
        let targets = site.routes.iter().filter_map(|it| it.target.as_ref());
        all.extend(targets.filter_map(|target| match target {
            TargetConfig::Root(root) => Some((root, true)),
            TargetConfig::Cgi(cgi) => Some((&cgi.folder, false)),
            TargetConfig::Git(git) => Some((&git.folder, false)),
            _ => None,
        }));
    }
    all
}

/// Returns the site called `name`.
fn site_of<'s>(
    source: &SourceText<'_>,
    name: &Spanned<String>,
    sites: &'s [SiteConfig],
) -> Result<&'s SiteConfig, OperatorError> {
    let found = sites.iter().find(|site| site.is_called(name.get_ref()));
    found.ok_or_else(|| {
        let names = || sites.iter().flat_map(SiteConfig::called);
        let help = match suggest(name.get_ref(), names()) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!("the sites are {}", names().collect::<Vec<_>>().join(", ")),
        };
        let what = format!("there is no site `{}`", name.get_ref());
        source.error(name.span(), what, help)
    })
}

/// Returns the root of a site called `name`.
fn root_of<'s>(
    source: &SourceText<'_>,
    name: &Spanned<String>,
    site: &'s SiteConfig,
) -> Result<&'s Path, OperatorError> {
    let root = site.root.as_ref().map(|root| root.get_ref().as_path());
    // `/` can't be replaced, since the deployed trees lie next to the root.
    root.filter(|root| deployed_folder(root).is_some())
        .ok_or_else(|| {
            let what = format!(
                "the site `{}` has no root that a deployment can replace",
                name.get_ref()
            );
            let help = "give the site a `root` or a `release` for the deployed content";
            source.error(name.span(), what, help)
        })
}

fn all(sites: &[SiteConfig]) -> impl Iterator<Item = (&GitConfig, &DeployConfig)> {
    let routes = sites.iter().flat_map(|site| &site.routes);
    routes.flat_map(|route| {
        let git = match &route.target {
            Some(TargetConfig::Git(git)) => Some(git),
            _ => None,
        };
        git.into_iter()
            .flat_map(|git| git.deploy.iter().map(move |deploy| (git, deploy)))
    })
}

/// Branch of a repository, with the site that the branch fills.
#[derive(Clone, Copy, Debug)]
pub struct Deployment<'c> {
    /// Repositories of the route.
    pub git: &'c GitConfig,
    /// Table `deploy` of the configuration.
    pub deploy: &'c DeployConfig,
    /// Site filled by the deployment.
    pub site: &'c SiteConfig,
    /// Destination of the deployment.
    pub target: DeploymentTarget<'c>,
}

/// Destination of a deployment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeploymentTarget<'c> {
    /// Root of the site.
    Root(&'c Path),
    /// Site in the store of releases.
    Release(&'c ReleaseConfig),
}

impl<'c> Deployment<'c> {
    /// Returns the root of the site; None for a release.
    pub(crate) fn root(&self) -> Option<&'c Path> {
        match self.target {
            DeploymentTarget::Root(root) => Some(root),
            DeploymentTarget::Release(_) => None,
        }
    }

    /// Returns true if the deployment fills the root or the release of `site`. The deployment may name another site
    /// with the same root or release.
    pub(crate) fn fills(&self, site: &SiteConfig) -> bool {
        site.deployment_target() == Some(self.target)
    }

    /// Returns the path of the repository as configured. The ending `.git` may be missing, and git's own
    /// files may lie in a `.git` folder below the path.
    pub(crate) fn repository(&self) -> PathBuf {
        self.git
            .folder
            .get_ref()
            .join(self.deploy.repository.get_ref())
    }
}

impl Config {
    /// Returns all deployments, in the order of the file.
    pub(crate) fn deployments(&self) -> Vec<Deployment<'_>> {
        let mut found = Vec::new();
        for (git, deploy) in all(&self.sites) {
            let name = deploy.site.get_ref();
            let site = self.sites.iter().find(|site| site.is_called(name));
            let target = site.and_then(|site| Some((site, site.deployment_target()?)));
            if let Some((site, target)) = target {
                found.push(Deployment {
                    git,
                    deploy,
                    site,
                    target,
                });
            }
        }
        found
    }
}

impl SiteConfig {
    /// Returns the destination of deployments to the site; None for a site without files of its own.
    fn deployment_target(&self) -> Option<DeploymentTarget<'_>> {
        match (&self.release, &self.root) {
            (Some(release), _) => Some(DeploymentTarget::Release(release)),
            (None, Some(root)) => Some(DeploymentTarget::Root(root.get_ref())),
            (None, None) => None,
        }
    }
}

/// Returns the hidden folder next to `root` that holds a tree for each deployment.
pub fn deployed_folder(root: &Path) -> Option<PathBuf> {
    let mut name = OsString::from(".");
    name.push(root.file_name()?);
    name.push(".deployed");
    Some(root.parent()?.join(name))
}

/// State of a root before a deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RootState {
    /// No file at the path.
    Nothing,
    /// Empty folder.
    EmptyFolder,
    /// Link to a deployed tree, with the name of the tree.
    Deployed(OsString),
    /// Link to any other place.
    Link(PathBuf),
    /// Folder with content, or a file.
    Foreign,
}

/// Returns the state of `root`.
pub fn inspect_root(root: &Path) -> io::Result<RootState> {
    let metadata = match fs::symlink_metadata(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(RootState::Nothing),
        other => other?,
    };
    if metadata.is_symlink() {
        let target = fs::read_link(root)?;
        let folder = deployed_folder(root);
        let ours = folder.as_ref().and_then(|folder| folder.file_name());
        let inside = ours.and_then(|ours| target.strip_prefix(ours).ok());
        return Ok(match inside.map(|inside| inside.as_os_str().to_owned()) {
            Some(name) if is_one_name(&name) => RootState::Deployed(name),
            _ => RootState::Link(target),
        });
    }
    if metadata.is_dir() && fs::read_dir(root)?.next().is_none() {
        Ok(RootState::EmptyFolder)
    } else {
        Ok(RootState::Foreign)
    }
}

fn is_one_name(name: &OsStr) -> bool {
    let mut parts = Path::new(name).components();
    matches!(
        (parts.next(), parts.next()),
        (Some(Component::Normal(_)), None)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_a_root_is_inspected() {
        let place = tempfile::tempdir().expect("a folder");
        let root = place.path().join("www");
        let found = || inspect_root(&root).expect("looked");
        assert_eq!(found(), RootState::Nothing);
        fs::create_dir(&root).expect("made");
        assert_eq!(found(), RootState::EmptyFolder);
        fs::write(root.join("a"), "").expect("written");
        assert_eq!(found(), RootState::Foreign);
        fs::remove_dir_all(&root).expect("removed");
        for (to, what) in [
            (".www.deployed/abc", RootState::Deployed("abc".into())),
            (".www.deployed", RootState::Link(".www.deployed".into())),
            (
                ".www.deployed/a/b",
                RootState::Link(".www.deployed/a/b".into()),
            ),
            (
                ".www.deployed/..",
                RootState::Link(".www.deployed/..".into()),
            ),
            ("releases/1", RootState::Link("releases/1".into())),
        ] {
            std::os::unix::fs::symlink(to, &root).expect("a link");
            assert_eq!(found(), what);
            fs::remove_file(&root).expect("removed");
        }
    }
}
