//! Account for publishers of a service: `anthill service install --publisher NAME`.
//!
//! Publishers reach the machine by ssh with an account of their own. The account gets the group of the server's account,
//! so that it may pass the state folder, and the store belongs to that group. The keys in the account's authorized_keys
//! run `anthill receive` alone.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, Gid, Mode, OFlags, RawMode, Uid};
use rustix::io::Errno;

use super::receive::{key_line, own_program, release_support};
use super::system_account::{self, AccountSpec, Login};
use crate::cli::arguments::ParsedArguments;
use crate::config::{Config, OperatorError, UnixAccount, reason};
use crate::receive::{ReceiveOptions, Rights};
use base::trusted_path::{LastLink, MissingFolder, TrustedPath};
use release::store::{ReleaseSupport, served_folder};

/// Account for publishers, as asked for on the command line.
pub(super) struct PublisherSetup {
    /// Name of the account.
    name: String,
    /// Bound of the bytes in the store.
    quota: Option<u64>,
    support: ReleaseSupport,
}

/// Mode of a store for several accounts: the group of the folder is the group of all new files.
const STORE_MODE: RawMode = 0o2770;
/// Mode of the state folder: the group may pass, and not list the files.
const STATE_MODE: RawMode = 0o710;
/// File type and permissions in the mode of a folder, without the bits that have no effect on a store.
const COMPARED_BITS: RawMode = 0o2070;

impl PublisherSetup {
    /// Reads the options; None without a publisher.
    pub(super) fn of(typed: &ParsedArguments) -> Result<Option<PublisherSetup>, OperatorError> {
        let quota = super::receive::quota(typed)?;
        let Some(name) = typed.text("publisher")? else {
            return match quota {
                None => Ok(None),
                Some(_) => Err(OperatorError::new("--quota bounds the store of publishers")
                    .help("write --publisher NAME beside --quota")),
            };
        };
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if name.is_empty() || name.starts_with('-') || !name.bytes().all(is_plain) {
            let what = format!("--publisher: `{name}` is not a name of an account");
            return Err(OperatorError::new(what)
                .help("use letters, digits, hyphens and underscores, for example publish"));
        }
        let support = release_support()?;
        Ok(Some(PublisherSetup {
            name,
            quota,
            support,
        }))
    }

    /// Refuses a configuration without a site that publishers could change.
    pub(super) fn check(&self, config: &Config) -> Result<(), OperatorError> {
        match sites(config).is_empty() {
            true => Err(OperatorError::new(
                "--publisher is for sites with `release`, and the configuration has none",
            )
            .help("write `release = \"www\"` in place of `root`")),
            false => Ok(()),
        }
    }

    /// Makes the account, and the folder of the store for the group of the server's account.
    pub(super) fn set_up(&self, config: &Config, server: &str) -> Result<(), OperatorError> {
        let server = UnixAccount::find(server).ok_or_else(|| {
            OperatorError::failure(format!("the account {server} does not exist"))
        })?;
        if server.gid == 0 {
            let what = format!("the account {} has the group of root", server.name);
            return Err(OperatorError::failure(what).help(
                "give the server an account with a group of its own: publishers get that group",
            ));
        }
        let home = format!("/home/{}", self.name);
        let account = UnixAccount::find(&self.name);
        if account.is_none() && Path::new(&home).symlink_metadata().is_ok() {
            let what = format!("{home} exists already, and belongs to another account");
            return Err(OperatorError::failure(what).help("choose another name for the publisher"));
        }
        let state = config.server.state.get_ref();
        let store = config.server.releases_folder();
        open_folder(state, STATE_MODE, &server)?;
        let folder = open_folder(&store, STORE_MODE, &server)?;
        must_be_shared(&folder, &store, &server)?;
        // Accounts and groups change after all checks.
        if account.is_none() {
            system_account::make(&AccountSpec {
                name: &self.name,
                home: &home,
                login: Login::ByKey,
            })?;
            system_account::run_aloud(
                &[
                    "install", "-d", "-m", "700", "-o", &self.name, "-g", &self.name,
                ]
                .map(str::to_owned)
                .into_iter()
                .chain([format!("{home}/.ssh")])
                .collect::<Vec<_>>(),
            );
        }
        let account = UnixAccount::find(&self.name);
        if account.is_some_and(|account| !account.groups.contains(&server.gid)) {
            system_account::add_to_group(&self.name, &server.group)?;
        }
        Ok(())
    }

    /// Returns a line of authorized_keys for each site, with an introduction.
    pub(super) fn key_lines(&self, config: &Config) -> Result<String, OperatorError> {
        let store = config.server.releases_folder();
        let mut text = format!(
            "\nadd a line to ~{}/.ssh/authorized_keys for each key of a publisher, with the public key in place of KEY:",
            self.name
        );
        for site in sites(config) {
            let line = key_line(&ReceiveOptions {
                site,
                served: served_folder(&store),
                store: store.clone(),
                rights: Rights::Publish,
                publisher: None,
                quota: self.quota,
                support: self.support,
            })?;
            text.push('\n');
            text.push_str(&line);
        }
        let name = &self.name;
        let site = sites(config).pop_first().unwrap_or_default();
        let (program, shown) = (own_program()?, store.display());
        text.push_str(&format!(
            "\neach site needs a key of its own; --publisher NAME after `receive {site}` sets the name in the list of releases, and \
             the owner of labels\n\
             for a publisher of previews alone, write --rights preview --publisher NAME, with a name for each publisher\n\
             on the machine of the publisher, with the name of this machine in place of HOST:\n  \
             anthill releases {name}@HOST\n  anthill publish public {name}@HOST\n\
             on this machine, to end a release for ever:\n  \
             sudo -u {name} {program} receive {site} --store {shown} --withdraw ID"
        ));
        Ok(text)
    }
}

/// Returns the names of the sites in the store.
fn sites(config: &Config) -> BTreeSet<String> {
    let sites = config.sites.iter();
    let sites = sites.filter_map(|site| Some(site.release.as_ref()?.name.get_ref().clone()));
    sites.collect()
}

/// Opens a folder, and makes a missing folder for the server's account. Only root and that account may change the way to
/// the folder, so no other account leads root elsewhere. An empty folder of a third account is refused.
fn open_folder(path: &Path, mode: RawMode, server: &UnixAccount) -> Result<OwnedFd, OperatorError> {
    let failed = |error: Errno| {
        OperatorError::failure(format!("{}: {}", path.display(), reason(&error.into())))
    };
    let way = TrustedPath::resolve(path, LastLink::Keep, MissingFolder::Fail).map_err(|error| {
        OperatorError::failure(format!("{}: {}", path.display(), reason(&error)))
    })?;
    way.must_be_controlled_by(server.uid).map_err(|error| {
        OperatorError::failure(error.to_string()).help(
            "set `state` to a folder below one that only root can change, such as /var/lib/anthill",
        )
    })?;
    let is_new = match rustix::fs::mkdirat(way.folder(), way.name(), Mode::from_raw_mode(0o700)) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(error) => return Err(failed(error)),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::openat(way.folder(), way.name(), flags, Mode::empty());
    let folder = folder.map_err(failed)?;
    let is_empty = is_new || names(&folder).map_err(failed)? == 0;
    let stat = rustix::fs::fstat(&folder).map_err(failed)?;
    let is_own = stat.st_uid == server.uid;
    if is_empty && !is_new && !is_own && stat.st_uid != 0 {
        let what = format!(
            "{} belongs to another account than {}",
            path.display(),
            server.name
        );
        return Err(OperatorError::failure(what)
            .help("name another folder, or give the folder to the server's account"));
    }
    // A state folder in use gets its group; a store in use is left, since its files have a group too.
    if is_empty || (is_own && mode == STATE_MODE) {
        let (owner, group) = (Uid::from_raw(server.uid), Gid::from_raw(server.gid));
        rustix::fs::fchown(&folder, Some(owner), Some(group)).map_err(failed)?;
        rustix::fs::fchmod(&folder, Mode::from_raw_mode(mode)).map_err(failed)?;
    }
    Ok(folder)
}

/// Returns the number of entries of a folder.
fn names(folder: &OwnedFd) -> Result<usize, Errno> {
    let mut count = 0;
    for entry in rustix::fs::Dir::read_from(folder)? {
        let name = entry?;
        count += usize::from(!matches!(name.file_name().to_bytes(), b"." | b".."));
    }
    Ok(count)
}

/// Refuses a store in use with files of one account alone.
fn must_be_shared(
    folder: &OwnedFd,
    path: &Path,
    server: &UnixAccount,
) -> Result<(), OperatorError> {
    let stat = rustix::fs::statat(folder, "", AtFlags::EMPTY_PATH).map_err(|error| {
        OperatorError::failure(format!("{}: {}", path.display(), reason(&error.into())))
    })?;
    if stat.st_gid == server.gid && stat.st_mode & COMPARED_BITS == STORE_MODE & COMPARED_BITS {
        return Ok(());
    }
    let (path, group) = (path.display(), &server.group);
    let what = format!("{path} has releases already, and not all belong to the group {group}");
    Err(OperatorError::failure(what).help(format!(
        "chgrp -R {group} {path} && chmod -R g+rwX {path} && find {path} -type d -exec chmod g+s {{}} +"
    )))
}
