//! Publication on other hosts. The release is made in a store of this machine, and each host gets what it lacks. The first
//! host serves the release only after all hosts have it.

use super::outcome::Outcome;
use super::output::{open_lines, other_label, print, urls};
use super::publish_run::{
    CHANGE_A_FILE, Prepared, PublishRun, shown_changes, signed, warn_of_unsigned, withdrawn,
};
use super::signed_records::{check_sequence, next_sequence};
use super::site_of_store::{DEFAULT_SITE, SiteOfStore, publisher, short};
use crate::content_target::{Target, stored};
use crate::key::PublisherKey;
use crate::problem::Problem;
use crate::progress::{Progress, Work};
use crate::release::{self, ReleaseFile, compare};
use crate::remote::{Offer, Remote};
use crate::text;
use ::release::release_pointer::ReleasePointer;
use ::release::store::{StoreFolder, StoreWriter, read_manifest};
use base::digest::{hex, sha256};
use std::fs::Permissions;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Host of a publication.
pub(super) struct HostSite {
    pub(super) host: String,
    /// Name of the site, if given.
    pub(super) site: Option<String>,
}

/// Returns the site of the local store in which releases of a folder are made.
pub(super) fn stage(source: &Path) -> Result<SiteOfStore, Problem> {
    let path = cache_folder()?;
    let failed = |error: std::io::Error| {
        Problem::failure(format!("{}: {}", text::file(&path), text::reason(&error)))
    };
    let mut folders = std::fs::DirBuilder::new();
    folders
        .recursive(true)
        .mode(0o700)
        .create(&path)
        .map_err(failed)?;
    // No other account reads a site before its publication, even in a folder of an earlier version.
    std::fs::set_permissions(&path, Permissions::from_mode(0o700)).map_err(failed)?;
    let real = source.canonicalize().map_err(|error| {
        Problem::usage(format!("{}: {}", text::file(source), text::reason(&error)))
    })?;
    let digest = hex(&sha256(real.as_os_str().as_encoded_bytes()));
    let store = StoreWriter::open(&path)
        .and_then(|_| {
            StoreFolder::open(&path).map_err(|error| ::release::store::StoreWriteError::File {
                file: ".".to_owned(),
                error,
            })
        })
        .map_err(stored)?;
    Ok(SiteOfStore {
        path,
        site: format!("folder-{}", &digest[..16]),
        store: Some(store),
        is_own: true,
    })
}

/// Returns the folder of the local store: `anthill/releases` in the user's cache.
fn cache_folder() -> Result<PathBuf, Problem> {
    let absolute = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|it| it.is_absolute())
    };
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    let cache = cache.ok_or_else(|| {
        Problem::failure("neither XDG_CACHE_HOME nor HOME names a folder")
            .help("set HOME: the release is made in $HOME/.cache/anthill")
    })?;
    Ok(cache.join("anthill").join("releases"))
}

/// Connects to all hosts at the same time, while `meanwhile` runs. A problem of `meanwhile` comes before the problems of
/// the hosts. `ssh` is the command in place of ssh.
pub(super) fn connect<T>(
    hosts: &[HostSite],
    ssh: &str,
    meanwhile: impl FnOnce() -> Result<T, Problem>,
) -> Result<(Vec<Remote>, T), Problem> {
    std::thread::scope(|scope| {
        let remotes = scope.spawn(|| {
            on_all(
                hosts
                    .iter()
                    .map(|it| move || Remote::connect(ssh, &it.host, it.site.as_deref())),
            )
        });
        let other = meanwhile();
        let remotes = remotes.join().unwrap_or_else(|_| Err(panicked()));
        let other = other?;
        let names = hosts.iter().map(|it| it.host.as_str());
        Ok((remotes.map_err(|problem| unchanged(problem, names))?, other))
    })
}

/// Refuses a publication by a key that may only make previews, before anything is sent.
pub(super) fn refuse_without_rights(remotes: &[Remote]) -> Result<(), Problem> {
    let refused = remotes.iter().filter(|remote| remote.makes_previews_alone);
    let problems = refused.map(|remote| {
        let what = "this account has the rights `preview`, and only the rights `publish` choose the served release";
        remote.problem(what).help("add --preview LABEL")
    });
    let names = remotes.iter().map(|remote| remote.host.as_str());
    match Problem::all(problems.collect()) {
        Some(problem) => Err(unchanged(problem, names)),
        None => Ok(()),
    }
}

/// Publication on hosts.
pub(super) struct HostsRun<'r> {
    /// Publication into the local store.
    pub(super) run: &'r PublishRun,
    /// Label for a preview, in place of a publication.
    pub(super) label: Option<&'r str>,
}

impl HostsRun<'_> {
    /// Shows the changes of all hosts without sending anything.
    pub(super) fn dry_run(&self, remotes: Vec<Remote>) -> Result<ExitCode, Problem> {
        let mut out = String::new();
        for mut remote in remotes {
            let manifest = self.manifest_of(&mut remote)?;
            let before = release::files(&manifest).unwrap_or_default();
            let prepared = self
                .run
                .prepare(Target::Count(Some(&self.run.site)), &before)?;
            let (changes, listed) = shown_changes(&manifest, &prepared);
            let release = prepared.release();
            let release = release.map_or_else(String::new, |it| format!(" {}", short(&it)));
            let figures = self.run.figures(&prepared, &changes);
            out.push_str(&format!(
                "{}: release{release} of {}: not sent\n{listed}{figures}, {}\n",
                remote.host,
                remote.site,
                self.run.elapsed()
            ));
            remote.end();
        }
        print(&out)
    }

    /// Publishes on all hosts. A host that fails is named. No host serves the release if a host failed before the first
    /// pointer. `made` is the release if it was made before the connection to the hosts.
    pub(super) fn publish(
        &self,
        mut remotes: Vec<Remote>,
        made: Option<([u8; 32], Prepared)>,
    ) -> Result<ExitCode, Problem> {
        let before = match remotes.first_mut() {
            Some(first) => self.files_of(first)?,
            None => Vec::new(),
        };
        let (release, prepared) = match made {
            Some(made) => made,
            None => self.run.make(&before)?,
        };
        let changes = compare(&before, &prepared.files, |_, _| ());
        let store = StoreFolder::open(&self.run.site.path);
        let store = store.map_err(|error| Problem::failure(format!("the local store: {error}")))?;
        let names: Vec<String> = remotes.iter().map(|remote| remote.host.clone()).collect();
        let unchanged = |problem| unchanged(problem, names.iter().map(String::as_str));
        let offers = on_all(remotes.iter_mut().map(|remote| {
            let store = &store;
            move || remote.offer(store, &release)
        }))
        .map_err(unchanged)?;
        self.send(&mut remotes, &store, &offers)
            .map_err(unchanged)?;
        // From here on, all hosts have the release.
        let done = on_all(
            remotes
                .iter_mut()
                .map(|remote| move || self.finish(remote, &release)),
        )?;
        let (mut out, mut remarks, mut open) = (String::new(), String::new(), Vec::new());
        let is_unserved = done.iter().any(|done| done.is_unserved);
        for ((remote, offer), done) in remotes.into_iter().zip(offers).zip(done) {
            remarks.push_str(&other_label(&remote.addresses, self.label));
            if !done.is_unserved {
                open.extend(urls(&remote.addresses, self.label, &release));
            }
            out.push_str(&format!(
                "{}: release {} of {}: {}, {} sent\n",
                remote.host,
                short(&release),
                remote.site,
                done.clause,
                text::bytes(offer.bytes)
            ));
            remote.end();
        }
        let figures = self.run.figures(&prepared, &changes);
        let (elapsed, open) = (self.run.elapsed(), open_lines(open));
        print(&format!("{out}{figures}, {elapsed}\n{open}{remarks}"))?;
        Ok(Outcome::code(is_unserved))
    }

    /// Sends to each host what it lacks, with a progress line.
    fn send(
        &self,
        remotes: &mut [Remote],
        store: &StoreFolder,
        offers: &[Offer],
    ) -> Result<(), Problem> {
        let bytes = offers.iter().map(|offer| offer.bytes).sum();
        let progress = Progress::new(Work::Send, bytes);
        let count = |bytes| progress.add(bytes);
        let sent = progress.run(|| {
            on_all(remotes.iter_mut().zip(offers).map(|(remote, offer)| {
                let count = &count;
                move || remote.send(store, offer, count)
            }))
        });
        sent.map(drop)
    }

    /// Publishes or labels a release that the host has.
    fn finish(&self, remote: &mut Remote, release: &[u8; 32]) -> Result<Outcome, Problem> {
        if let Some(label) = self.label {
            remote.command(&format!("label {label} {}", hex(release)))?;
            return Ok(Outcome::labelled(label));
        }
        if let Some(what) = withdrawn(&remote.records, release) {
            return Err(remote.problem(&what).help(CHANGE_A_FILE));
        }
        let served = remote.records.served();
        if let Some(served) = served {
            let is_alike = |key: &PublisherKey| key.is_bound_alike(served);
            if served.pointer.release == *release && self.run.key.as_ref().is_none_or(is_alike) {
                return Ok(Outcome::unchanged(served.pointer.sequence, &remote.report));
            }
            warn_of_unsigned(served, self.run.key.as_ref());
        }
        let pointer = next_pointer(remote, *release, self.run.key.as_ref())?;
        let flip = remote.flip(&signed(self.run.key.as_ref(), &pointer))?;
        let (sequence, start) = (flip.sequence, self.run.start);
        Ok(Outcome::published(
            &remote.site,
            sequence,
            &flip.report,
            start,
        ))
    }

    /// Returns the files of the served release of a host.
    fn files_of(&self, remote: &mut Remote) -> Result<Vec<ReleaseFile>, Problem> {
        Ok(release::files(&self.manifest_of(remote)?).unwrap_or_default())
    }

    /// Returns the manifest of the served release of a host, from the local store or from the host. A site without a release
    /// has an empty one.
    fn manifest_of(&self, remote: &mut Remote) -> Result<Vec<u8>, Problem> {
        let Some(served) = remote.records.served().map(|served| served.pointer.release) else {
            return Ok(Vec::new());
        };
        let known = self.run.site.store.as_ref();
        let known = known.and_then(|store| read_manifest(store, &served).ok());
        match known {
            Some(text) => Ok(text),
            None => remote.manifest(&served),
        }
    }
}

/// Runs a step for all hosts at the same time. With several failures the problem names each host.
fn on_all<T: Send, F: FnOnce() -> Result<T, Problem> + Send>(
    steps: impl Iterator<Item = F>,
) -> Result<Vec<T>, Problem> {
    let results: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = steps.map(|step| scope.spawn(step)).collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    });
    let (mut done, mut problems) = (Vec::new(), Vec::new());
    for result in results {
        match result {
            Ok(Ok(value)) => done.push(value),
            Ok(Err(problem)) => problems.push(problem),
            Err(_) => problems.push(panicked()),
        }
    }
    Problem::all(problems).map_or(Ok(done), Err)
}

/// Adds to a problem before the first pointer that no host has changed. One host needs no such line.
fn unchanged<'h>(problem: Problem, hosts: impl ExactSizeIterator<Item = &'h str>) -> Problem {
    match hosts.len() {
        0 | 1 => problem,
        _ => {
            let hosts: Vec<&str> = hosts.collect();
            problem.with_line(&format!("no host has changed: {}", hosts.join(", ")))
        }
    }
}

fn panicked() -> Problem {
    Problem::failure("a thread ended by a panic")
}

/// Returns the next pointer of a site of a host.
pub(super) fn next_pointer(
    remote: &Remote,
    release: [u8; 32],
    key: Option<&PublisherKey>,
) -> Result<ReleasePointer, Problem> {
    if key.is_some() && !remote.is_named && remote.site != DEFAULT_SITE {
        let (host, site) = (&remote.host, &remote.site);
        let what = format!("the host asks for a signature for the site `{site}`");
        return Err(remote
            .problem(&what)
            .help(format!("with --key, write {host}:{site}")));
    }
    if key.is_some_and(|key| key.site_id().is_some()) && !remote.takes_site_ids {
        let what =
            "the host has an earlier version of anthill, which takes no pointer with a `site_id`";
        return Err(remote
            .problem(what)
            .help("install the same version of anthill on the host"));
    }
    let sequence = next_sequence(&remote.records)?;
    check_sequence(key, &remote.records, sequence)?;
    Ok(ReleasePointer {
        site: remote.site.clone(),
        site_id: None,
        release,
        sequence,
        time: text::now(),
        publisher: remote.publisher.clone().unwrap_or_else(publisher),
    })
}
