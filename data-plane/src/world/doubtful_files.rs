//! Files that a World sends and few operators mean to send: backups and exports of databases, by their names.

use crate::site::Site;
use crate::world::{Host, Route, RouteTarget, World};
use release::stray_files::{DOUBTFUL_ENDINGS, HIDDEN_GLOBS};
use std::path::PathBuf;

/// Doubtful files of one folder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DoubtfulFiles {
    /// Name of the site.
    pub site: String,
    /// Number of the files, at least 1.
    pub count: u32,
    /// The first file.
    pub first: PathBuf,
}

impl DoubtfulFiles {
    /// Returns the condition and the remedy in words.
    pub fn text(&self) -> (String, String) {
        let (site, first) = (&self.site, self.first.display());
        let what = match self.count {
            1 => format!("{site} sends {first}, by its name a backup or an export"),
            count => format!(
                "{site} sends {count} files with names of backups or exports, such as {first}"
            ),
        };
        let usual = HIDDEN_GLOBS.iter().map(|glob| (*glob).to_owned());
        let doubtful = DOUBTFUL_ENDINGS.iter().map(|ending| format!("*{ending}"));
        let globs: Vec<String> = usual
            .chain(doubtful)
            .map(|it| format!("\"{it}\""))
            .collect();
        let help = format!(
            "move the files out of the folder, or write hide = [{}] in [[site]]; a `hide` without these endings keeps \
             the files public",
            globs.join(", ")
        );
        (what, help)
    }
}

impl World {
    /// Returns the doubtful files of all folders, except where the operator has set `hide`.
    pub fn doubtful_files(&self) -> Vec<DoubtfulFiles> {
        let hosts = self.hosts.iter();
        hosts.flat_map(|host| host.doubtful_files()).collect()
    }
}

impl Host {
    fn doubtful_files(&self) -> Vec<DoubtfulFiles> {
        let own = self.site.iter().map(|site| (&b""[..], site));
        let mounted = self.routes.routes().iter().filter_map(|route| {
            let RouteTarget::Site(site) = route.target.as_ref()? else {
                return None;
            };
            Some((&*route.prefix, site))
        });
        let folders = own.chain(mounted);
        let doubtful = folders.filter_map(|(prefix, site)| {
            let (count, first) = site.doubtful_files(&self.left_out(prefix, site)?)?;
            Some(DoubtfulFiles {
                site: self.name.clone(),
                count,
                first: site.root().join(first),
            })
        });
        doubtful.collect()
    }

    /// Returns the paths of a folder with files that the folder does not send, or that the operator has decided about;
    /// `None` for the whole folder. The folder answers for the paths below `prefix`.
    fn left_out<'s>(&'s self, prefix: &[u8], site: &'s Site) -> Option<Vec<&'s [u8]>> {
        let rules = site.rules();
        let answered = |route: &'s Route| {
            route.target.as_ref()?;
            let rest = route.prefix.strip_prefix(prefix)?;
            match rest {
                [] if prefix.is_empty() => Some(rest),
                [b'/', rest @ ..] => Some(rest),
                _ => None,
            }
        };
        let routes = self.routes.routes().iter();
        let answered = routes.filter_map(|route| answered(route));
        let decided = rules.below.iter().filter(|rules| rules.hide.is_some());
        let all = answered.chain(decided.map(|rules| &*rules.below)).collect();
        rules.tells_doubtful.then_some(all)
    }
}
