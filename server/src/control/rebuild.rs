//! The rebuilder: turns the changes reported by the watch into the next World.
//!
//! A file is taken when its writer has closed the file. The kernel cannot report the writer's close if a
//! folder was read before its watch began, or if the watch was lost; the file is then taken after a period
//! without changes ([`QUIET`]). A file that stays open for writing is taken after 2 s without changes
//! ([`OPEN_FILE_QUIET_SECONDS`]), and a growing file at once.

use super::deployments::{Deployments, FIRST_DEPLOY_WAIT_MAX, RootPlans};
use super::publish::Publisher;
use super::releases::ReleaseReports;
use super::scans::Scans;
use super::watch::{Changes, HostPart, RESCAN, SiteId, Watch};
use crate::admin::status::ReleaseStatus;
use crate::config::{self, Config, OperatorError};
use crate::deploy::DeployPlan;
use base::sys::OpenWriters;
use data_plane::ledger::change_tracker::ChangeTracker;
use data_plane::limits::{OPEN_FILE_QUIET_SECONDS, OPEN_FILES_WATCHED_MAX};
use data_plane::site::{ContentBudget, ReleaseState, Site, SiteError, WriteReport};
use data_plane::world::{Host, Hosts, RouteTarget, World};
use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Period without changes after which a file found in a folder is taken, if the kernel has not reported the
/// close of the file by its writer. Until then, the file may be half written.
pub(super) const QUIET: Duration = Duration::from_millis(400);
/// Maximum lag of the clock that stamps files behind the clock of [`SystemTime::now`].
const TICK: Duration = Duration::from_millis(20);
/// Period without changes after which a file is taken although a process has the file open for writing; and the time
/// for which clients get the earlier content of a file that a process is writing to.
const OPEN_QUIET: Duration = Duration::from_secs(OPEN_FILE_QUIET_SECONDS);
/// Period without writes after which a known file of unknown writers is taken that a request found different from the
/// site. With a working watch, the kernel reports the writer's close, so a file without a report may still be in use by
/// its writer.
const STALE_QUIET: Duration = RESCAN;

/// State of a file: device, inode, size, modification time and change time (seconds and nanoseconds each).
pub(super) type FileStamp = (u64, u64, u64, i64, i64, i64, i64);

/// Keeps the published World equal to the files on disk: watches folders, gathers changes, and passes the
/// next World to the publisher.
pub(super) struct Rebuilder {
    /// Publishes the World to the workers.
    pub(super) publisher: Publisher,
    /// Deployments of branches. The roots of the deployments are sites of the World.
    pub(super) deployments: Deployments,
    /// Threads that scan folders and read releases.
    pub(super) scans: Scans,
    /// `None` if the system gave no inotify descriptor.
    pub(super) watch: Option<Watch>,
    /// Known changes that no World contains yet.
    changes: Changes,
    /// Files that may be half written.
    half_written: HashMap<(SiteId, PathBuf), HalfWritten>,
    /// Sites that could not be read. The control plane tries to read the sites again at intervals.
    missed: HashSet<SiteId>,
    /// Reason why a changed file of the configuration is not taken over.
    refused_file: Option<String>,
    /// Reports and acknowledgments of releases.
    releases: ReleaseReports,
    /// Releases that could not be opened as previews.
    pub(super) refused_previews: HashSet<[u8; 32]>,
    /// Bytes of releases for which the previews in use leave no room.
    #[cfg(feature = "releases")]
    pub(super) preview_bytes: HashMap<[u8; 32], usize>,
    /// State of each file named in the configuration, to find changes of files without a watch.
    file_stamps: Vec<(PathBuf, Option<FileStamp>)>,
}

/// File that may be half written.
struct HalfWritten {
    /// True if an event of the file was already read: the kernel may report no further event, and only the period
    /// without changes shows that the file is complete.
    is_told: bool,
    /// Time at which the file was found.
    since: Instant,
    /// True if the known content of the file was dropped.
    is_overdue: bool,
}

impl Default for HalfWritten {
    fn default() -> HalfWritten {
        HalfWritten {
            is_told: false,
            since: Instant::now(),
            is_overdue: false,
        }
    }
}

impl Rebuilder {
    /// Returns a rebuilder without watches; [`Rebuilder::rebuild_watches`] creates the watches.
    /// `file_stamps` must be read before the World is built.
    pub(super) fn new(
        publisher: Publisher,
        deployments: Deployments,
        file_stamps: Vec<(PathBuf, Option<FileStamp>)>,
    ) -> Rebuilder {
        Rebuilder {
            publisher,
            deployments,
            scans: Scans::new(),
            watch: None,
            changes: Changes::default(),
            half_written: HashMap::new(),
            missed: HashSet::new(),
            refused_file: None,
            releases: ReleaseReports::default(),
            refused_previews: HashSet::new(),
            #[cfg(feature = "releases")]
            preview_bytes: HashMap::new(),
            file_stamps,
        }
    }

    pub(super) fn publisher(&self) -> &Publisher {
        &self.publisher
    }

    pub(super) fn deployments(&self) -> &Deployments {
        &self.deployments
    }

    /// Returns the deployments for changes.
    pub(super) fn deployments_mut(&mut self) -> &mut Deployments {
        &mut self.deployments
    }

    /// Returns the reason why a changed file of the configuration is not taken over.
    pub(super) fn refused_file(&self) -> Option<&String> {
        self.refused_file.as_ref()
    }

    /// Reports the releases that all workers serve, and acknowledges the releases to publishers.
    pub(super) fn report_releases(&mut self) {
        self.releases.report(&self.publisher);
    }

    /// Returns the releases of the served sites.
    pub(super) fn releases(&self) -> Vec<ReleaseStatus> {
        self.releases.status(self.publisher.world())
    }

    fn change_tracker(&self) -> &ChangeTracker {
        &self.publisher.resources().change_tracker
    }

    /// Returns true if no change is waiting.
    pub(super) fn is_up_to_date(&self) -> bool {
        self.changes.is_empty()
    }

    /// Returns true if some sites have to be scanned at intervals.
    pub(super) fn needs_rescans(&self) -> bool {
        !self.is_watching() || !self.missed.is_empty()
    }

    /// Returns true if a file may be half written.
    pub(super) fn has_half_written_files(&self) -> bool {
        !self.half_written.is_empty()
    }

    /// Requests that the next World reads all files named in the configuration again.
    pub(super) fn mark_files_changed(&mut self) {
        self.changes.files = true;
    }

    /// Requests a check of the branches of all deployments with the next World.
    pub(super) fn mark_branches_changed(&mut self) {
        self.changes.branches = true;
    }

    /// Requests a scan of the sites of a deployment.
    pub(super) fn rescan_sites_of(&mut self, plan: &DeployPlan) {
        let places = self.places_of(plan);
        self.changes.rescan.extend(places);
    }

    /// Scans the sites that are due at the interval: sites that could not be read, and, without watches,
    /// all sites and all files of the configuration.
    pub(super) async fn rescan(&mut self) {
        self.changes.rescan.extend(self.missed.iter().copied());
        if !self.is_watching() {
            let all = self.all_places();
            self.changes.rescan.extend(all);
            let stamps = stamp_config_files(self.publisher.config());
            self.changes.files |= self.file_stamps != stamps;
            self.deployments.start_idle();
        }
        self.apply().await;
        #[cfg(feature = "releases")]
        self.open_wanted_previews().await;
    }

    /// Brings the World of a new configuration up to date with the disk. `file_stamps` must be read before
    /// the World is built.
    pub(super) async fn follow_reload(&mut self, file_stamps: Vec<(PathBuf, Option<FileStamp>)>) {
        self.file_stamps = file_stamps;
        self.refused_file = None;
        self.missed.clear();
        self.releases.clear_refusals();
        self.refused_previews.clear();
        self.half_written.clear();
        self.plan_deployments();
        self.rebuild_watches();
        self.apply().await;
    }

    /// Takes over the deployments of the served configuration.
    pub(super) fn plan_deployments(&mut self) {
        let publisher = &self.publisher;
        let url = |name: &str| publisher.url(name);
        self.deployments.plan(publisher.config(), &url);
    }

    /// Deploys to the missing roots of a new configuration.
    pub(super) async fn deploy_missing_roots(&self, config: &Config) -> Result<(), OperatorError> {
        let plans = RootPlans::of(config);
        if plans.are_deployed() {
            return Ok(());
        }
        // Clients wait for an attempt under way, and the thread runs new deployments only after the
        // attempt.
        let patience = if self.deployments.is_idle() {
            FIRST_DEPLOY_WAIT_MAX
        } else {
            Duration::ZERO
        };
        let deploy = move || plans.deploy_missing(patience);
        let deployed = self.scans.finish(deploy).await;
        match deployed {
            Ok(deployed) => deployed.map_err(|failure| failure.in_config(config)),
            Err(gone) => Err(OperatorError::failure(format!("deploying: {gone}"))),
        }
    }

    /// Removes the pages of a deployment's sites from the page cache, since scripts of the old tree
    /// generated the pages.
    pub(super) fn forget_pages(&self, plan: &DeployPlan) {
        for place in self.places_of(plan) {
            if let Some(host) = self.publisher.world().hosts.iter().nth(place.host) {
                let cache = &self.publisher.resources().cache;
                cache.purge(&host.name, "/*");
            }
        }
    }

    fn places_of(&self, plan: &DeployPlan) -> Vec<SiteId> {
        let all = self.places();
        let all = all.filter(|(_, site)| site.rules().root == plan.root);
        all.map(|(place, _)| place).collect()
    }

    /// Returns every site of the World with its identity.
    pub(super) fn places(&self) -> impl Iterator<Item = (SiteId, Arc<Site>)> + use<'_> {
        self.publisher
            .world()
            .hosts
            .iter()
            .enumerate()
            .flat_map(|(host, its)| {
                let routes =
                    its.routes
                        .routes()
                        .iter()
                        .enumerate()
                        .filter_map(move |(route, of)| match &of.target {
                            Some(RouteTarget::Site(site)) => Some((
                                SiteId {
                                    host,
                                    part: HostPart::Route(route),
                                },
                                site.clone(),
                            )),
                            _ => None,
                        });
                let own = [
                    (HostPart::Files, &its.site),
                    (HostPart::AwaitedRelease, &its.awaited),
                ];
                let own = own
                    .into_iter()
                    .filter_map(move |(part, site)| Some((SiteId { host, part }, site.clone()?)));
                own.chain(routes)
            })
    }

    fn all_places(&self) -> HashSet<SiteId> {
        // Uses `extend`: `collect` into a set would add the code of a sort to the binary.
        let mut all = HashSet::new();
        all.extend(self.places().map(|(place, _)| place));
        all
    }

    /// Stops following the disk. Afterwards no request waits for a change, and no deployment begins.
    pub(super) fn stop(&mut self) {
        self.change_tracker().set_inotify(None);
        self.change_tracker().begin_recheck();
        self.caught_up();
        self.deployments.stop();
    }

    /// Returns true if every served folder has a watch.
    pub(super) fn is_watching(&self) -> bool {
        self.watch.as_ref().is_some_and(|watch| !watch.exhausted)
    }

    /// Replaces all watches by watches of the World's folders. All folders are scanned again, since a file
    /// may have changed between the scan of a folder and the start of its watch.
    pub(super) fn rebuild_watches(&mut self) {
        self.watch = match Watch::new() {
            Ok(mut watch) => {
                let places: Vec<_> = self.places().collect();
                for (place, site) in &places {
                    watch.new_source(*place, site);
                }
                watch.grow(&places);
                watch.files(self.file_stamps.iter().map(|(file, _)| file.as_path()));
                watch.branches(&self.deployments.refs());
                Some(watch)
            }
            Err(error) => {
                log::warn!(
                    "files can't be watched ({error}): all folders are scanned for changes every {} s",
                    RESCAN.as_secs()
                );
                None
            }
        };
        self.changes = Changes {
            rescan: self.all_places(),
            files: self.file_stamps != stamp_config_files(self.publisher.config()),
            branches: true,
            is_watched_anew: true,
            ..Changes::default()
        };
        self.mark_pending_hosts();
        let told = self.watch.as_ref().map(Watch::inotify);
        self.change_tracker().set_inotify(told);
    }

    /// Reads the changes that the watch reports.
    pub(super) fn read_watch_reports(&mut self) {
        let Some(watch) = &mut self.watch else { return };
        self.publisher.resources().change_tracker.begin_read();
        if let Err(error) = watch.read(&mut self.changes) {
            log::error!("changes of files can't be read from the watch: {error}");
        }
        for at in std::mem::take(&mut self.changes.begun) {
            if self.half_written.len() < OPEN_FILES_WATCHED_MAX {
                self.half_written.entry(at).or_default();
            }
        }
        self.mark_pending_hosts();
        self.change_tracker().finish_read();
    }

    /// Marks the hosts with changes that were read and are not served yet.
    fn mark_pending_hosts(&mut self) {
        let read = std::mem::take(&mut self.changes.read);
        for place in read.iter().chain(&self.changes.rescan) {
            if let Some(host) = self.publisher.world().hosts.iter().nth(place.host) {
                host.change_tracker.mark_pending();
            }
        }
    }

    /// Records that all changes read so far are served or had no effect.
    pub(super) fn caught_up(&self) {
        self.publisher
            .world()
            .hosts
            .iter()
            .for_each(|host| host.change_tracker.clear());
        self.change_tracker().mark_served();
    }

    /// Brings the World up to date with the paths that requests found changed. All other changes wait: a
    /// large number of changes on disk must not delay a changed page.
    pub(super) async fn apply_stale_paths(&mut self) {
        self.change_tracker().begin_recheck();
        self.read_watch_reports();
        let later = std::mem::take(&mut self.changes);
        self.find_stale(&later);
        self.renew_all().await;
        #[cfg(feature = "releases")]
        self.open_wanted_previews().await;
        self.changes = later;
        self.change_tracker().finish_recheck();
    }

    /// Brings the World up to date with the disk, including all changes reported until now.
    pub(super) async fn apply(&mut self) {
        self.read_watch_reports();
        self.renew_all().await;
        self.caught_up();
    }

    /// Brings the World up to date with the known changes. New folders get watches and are scanned once
    /// more afterwards, since a file may have changed before the watch began.
    async fn renew_all(&mut self) {
        while !self.changes.is_empty() {
            let changes = std::mem::take(&mut self.changes);
            if changes.branches {
                // The path to a branch may have changed. The outcome of the check arrives later, as an
                // event.
                let refs = self.deployments.refs();
                if let Some(watch) = &mut self.watch {
                    watch.branches(&refs);
                }
                self.deployments.start_all();
            }
            let looked_at = self.renew(changes).await;
            let Some(watch) = &mut self.watch else { return };
            // A folder that was removed and created again looks unchanged, but has lost its watch.
            for (place, new) in watch.grow(&looked_at) {
                self.changes.sites.entry(place).or_default().extend(new);
            }
        }
    }

    /// Publishes a World with the changes. Returns the scanned sites in their new state.
    async fn renew(&mut self, changes: Changes) -> Vec<(SiteId, Arc<Site>)> {
        let rebuilt = if changes.files {
            self.rebuild_from_files().await
        } else {
            None
        };
        let mut changed = rebuilt.is_some();
        let mut world = rebuilt.unwrap_or_else(|| World::clone(self.publisher.world()));
        let mut hosts: Vec<Arc<Host>> = world.hosts.iter().cloned().collect();
        let mut looked_at = Vec::new();
        let mut has_moved = false;
        let places: Vec<_> = self.places().collect();
        for (place, site) in places {
            let present = &hosts[place.host];
            let is_superseded = match place.part {
                HostPart::Files => is_first_release(&site, present),
                HostPart::AwaitedRelease => present.awaited.is_none(),
                HostPart::Route(_) => false,
            };
            if is_superseded {
                continue;
            }
            let Some(renewed) = self.scan(place, &site, &changes).await else {
                continue;
            };
            if !renewed.same_root(&site) {
                has_moved = true;
                if let Some(watch) = &mut self.watch {
                    watch.leave(place);
                }
            }
            looked_at.push((place, renewed.clone()));
            #[cfg(feature = "releases")]
            if renewed.release_state().is_some()
                && let Some(host) = self.with_present_records(&hosts[place.host]).await
            {
                hosts[place.host] = host;
                changed = true;
            }
            if renewed.same_tree(&site) {
                continue;
            }
            changed = true;
            let mut host = Host::clone(&hosts[place.host]);
            match place.part {
                HostPart::Files => host.site = Some(renewed),
                HostPart::AwaitedRelease if is_published(&renewed) => {
                    host.site = Some(renewed);
                    host.awaited = None;
                }
                HostPart::AwaitedRelease => host.awaited = Some(renewed),
                HostPart::Route(route) => {
                    let target = RouteTarget::Site(renewed);
                    host.routes = Arc::new(host.routes.with_target(route, target));
                }
            }
            hosts[place.host] = Arc::new(host);
        }
        let awaited = |hosts: &mut dyn Iterator<Item = &Arc<Host>>| {
            hosts.filter(|host| host.awaited.is_some()).count()
        };
        let awaited_before = awaited(&mut self.publisher.world().hosts.iter());
        let has_first_release = awaited(&mut hosts.iter()) != awaited_before;
        if changed || has_moved || changes.is_watched_anew {
            world.hosts = Hosts::new(hosts);
            // The handlers of a site's scripts hold the path of the site's root.
            if has_moved {
                let scanned = Arc::new(world);
                match self.publisher.rebuild(Arc::clone(&scanned)).await {
                    Ok(built) => world = built,
                    Err(error) => {
                        world = World::clone(&scanned);
                        log::error!(
                            "the scripts of a moved folder still run in the old folder: {}",
                            error.in_one_line()
                        );
                    }
                }
            }
            world.generation = self.publisher.world().generation + u64::from(changed || has_moved);
            self.publisher.publish(world).await;
            self.report_releases();
        }
        if has_first_release {
            // The sites have other places now.
            self.rebuild_watches();
            looked_at.clear();
        }
        looked_at
    }

    /// Builds a World from the present state of the files named in the configuration. Returns `None` if the
    /// files are refused.
    async fn rebuild_from_files(&mut self) -> Option<World> {
        self.publisher.rotate_tickets();
        // A link on the path to a file may have another target now.
        if let Some(watch) = &mut self.watch {
            watch.files(self.file_stamps.iter().map(|(file, _)| file.as_path()));
        }
        self.file_stamps = stamp_config_files(self.publisher.config());
        let served = Arc::clone(self.publisher.world());
        let built = self.publisher.rebuild(served).await;
        self.refused_file = built.as_ref().err().map(OperatorError::in_one_line);
        if let Some(error) = &self.refused_file {
            log::error!("a changed file is not taken over: {error}");
        }
        built.ok()
    }

    /// Reads the changed paths of a site, or the whole site. Returns the site in its new state, or `None`
    /// for a site that has no changes or can't be read.
    async fn scan(
        &mut self,
        place: SiteId,
        site: &Arc<Site>,
        changes: &Changes,
    ) -> Option<Arc<Site>> {
        let paths = changes.sites.get(&place);
        let whole = changes.rescan.contains(&place);
        if paths.is_none() && !whole {
            return None;
        }
        // New watches have just begun.
        if let (Some(watch), true) = (&mut self.watch, whole && !changes.is_watched_anew) {
            // The watch begins before the scan of the root, so a later change of the root is not missed.
            watch.source(place, site);
        }
        if site.release_state().is_some() {
            return self.reopen(place, site).await;
        }
        let mut reported = Vec::new();
        for path in paths.into_iter().flatten() {
            let at = (place, path.clone());
            let report = match (changes.overdue.contains(&at), changes.is_unsure(&at)) {
                (true, _) => WriteReport::Overdue,
                (false, true) => WriteReport::Unsure,
                (false, false) => {
                    // The scan returns the file again if another process has the file open for writing.
                    self.half_written.remove(&at);
                    WriteReport::Closed
                }
            };
            reported.push((at.1, report));
        }
        let budget = self.publisher.resources().budget.clone();
        let old = site.clone();
        let scan = move || renew(&old, whole, reported, budget);
        let error = match self.scans.run(scan).await {
            Ok(Ok((renewed, half_written))) => {
                for path in half_written {
                    let at = (place, path);
                    let is_told = changes.is_told(&at);
                    self.half_written.entry(at).or_default().is_told |= is_told;
                }
                if whole {
                    self.missed.remove(&place);
                }
                return Some(Arc::new(renewed));
            }
            Ok(Err(error)) => format!("a changed folder is not taken over: {error}"),
            Err(error) if error.is_given_up() => {
                self.missed.insert(place);
                return None;
            }
            Err(error) => format!("{}: not scanned: {error}", site.root().display()),
        };
        // The scan is repeated at intervals; the error is logged only once.
        if self.missed.insert(place) {
            log::error!("{error}");
        }
        None
    }

    /// Looks at the pointer of a site with a release. Returns the site in its new state.
    async fn reopen(&mut self, place: SiteId, site: &Arc<Site>) -> Option<Arc<Site>> {
        let old = Arc::clone(site);
        let reopened = match self.scans.run(move || old.reopened()).await {
            Ok(reopened) => reopened,
            Err(error) => {
                // The look is repeated at intervals; the error is logged only once.
                if self.missed.insert(place) && !error.is_given_up() {
                    log::error!("{}: not read: {error}", site.root().display());
                }
                return None;
            }
        };
        match reopened.refused {
            Some(refused) => {
                // A later look finds a store that was repaired without a new pointer.
                self.missed.insert(place);
                self.releases.refuse(place, &reopened.site, &refused);
            }
            None => {
                self.missed.remove(&place);
                self.releases.accept(place, &reopened.site);
            }
        }
        Some(Arc::new(reopened.site))
    }

    /// Records the paths that requests found different from their site. Known files with a writer, and files for
    /// which the server cannot find out the writers, are taken after a period without changes.
    fn find_stale(&mut self, told: &Changes) {
        let places: Vec<_> = self.places().collect();
        for (place, site) in places {
            for path in site.take_stale() {
                if path == Path::new("") {
                    self.changes.rescan.insert(place);
                } else if let Some(first) = site.first_unknown(&path) {
                    let at = (place, first);
                    let is_told = told.is_told(&at) && !told.is_unsure(&at);
                    match (is_told, file_progress(&site, &at.1)) {
                        (true, _) | (_, FileProgress::Takeable) => self.changes.found(at, is_told),
                        (_, FileProgress::Written) => {
                            self.half_written.entry(at).or_default();
                        }
                        (_, FileProgress::Unknown) => site.note_stale(&path),
                    }
                }
            }
        }
    }

    /// Takes the files that have not changed for 400 ms ([`QUIET`]), or for 2 s ([`OPEN_QUIET`]) with a process that has
    /// the file open for writing. Drops the known content of a file that a process has been writing to for 2 s.
    pub(super) fn take_quiet_files(&mut self) {
        let sites: HashMap<SiteId, Arc<Site>> = self.places().collect();
        let since = self.watch.as_ref().map(Watch::since).unwrap_or_default();
        let changes = &mut self.changes;
        self.half_written.retain(|(place, path), file| {
            let Some(site) = sites.get(place) else {
                return false;
            };
            let changed = changed_at(&site.root().join(path));
            let at = || (*place, path.clone());
            if matches!(site.writers(path), OpenWriters::Some) {
                let is_taken = is_past(changed, OPEN_QUIET) || site.is_growing(path);
                if is_taken {
                    changes.found(at(), false);
                } else if !file.is_overdue && file.since.elapsed() >= OPEN_QUIET {
                    file.is_overdue = true;
                    if site.has_file(path) {
                        changes.overdue.insert(at());
                        changes.found(at(), false);
                    }
                }
                return !is_taken;
            }
            let folder = path.parent().unwrap_or(Path::new(""));
            let watched = since.get(&(*place, folder)).map(|since| *since + TICK);
            if !file.is_told && changed > watched && watched.is_some() {
                // The kernel reports the writer's close, or has already reported the close. A file with a
                // reported event stays in the map, since the kernel may report no further event.
                return false;
            }
            let settled = is_past(changed, QUIET);
            if settled {
                let paths = changes.sites.entry(*place).or_default();
                paths.insert(path.clone());
            }
            !settled
        });
    }
}

/// Returns true if a site has had a release that could be served.
fn is_published(site: &Site) -> bool {
    !matches!(site.release_state(), Some(ReleaseState::Missing))
}

/// Returns true if `host` serves its first release in place of the folder `site`.
fn is_first_release(site: &Site, host: &Host) -> bool {
    let present = host.site.as_ref();
    site.release_state().is_none()
        && present.is_some_and(|present| present.release_state().is_some())
}

/// Returns the site after a change, and the files of the site that may be half written.
fn renew(
    site: &Site,
    whole: bool,
    mut reported: Vec<(PathBuf, WriteReport)>,
    budget: Arc<ContentBudget>,
) -> Result<(Site, Vec<PathBuf>), SiteError> {
    if whole && site.root_moved() {
        return Site::open(site.rules().clone(), budget).map(|site| (site, Vec::new()));
    }
    let settled = SystemTime::now() - OPEN_QUIET;
    let settled = settled
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let settled_ns = i64::try_from(settled.as_nanos()).unwrap_or(i64::MAX);
    if whole {
        // The empty path requests a scan of the whole site. `reported` keeps its other entries, since files among them
        // are known to be complete.
        reported.push((PathBuf::new(), WriteReport::Closed));
    }
    let reported = reported.iter().map(|(path, report)| (&**path, *report));
    Ok(site.with_settled_changes(reported, settled_ns))
}

/// Returns the present state of the files named in the configuration and read when a World is built.
pub(super) fn stamp_config_files(config: &Config) -> Vec<(PathBuf, Option<FileStamp>)> {
    let of_site = |site: &config::SiteConfig| {
        let users = site.routes.iter().flat_map(config::RouteConfig::user_files);
        let files = [
            &site.certificate,
            &site.key,
            &site.client_ca,
            &site.redirect_map,
        ];
        let files = files.into_iter().flatten().chain(users);
        let files = files.chain(site.preview_users());
        let files = files.map(|file| file.get_ref().clone());
        files.chain(config.acme_file(site)).collect::<Vec<_>>()
    };
    let tickets = config.tls.tickets.iter().map(|file| file.get_ref().clone());
    let manager = config
        .manager_files()
        .map(|(_, file)| file.get_ref().clone());
    let files = config.sites.iter().flat_map(of_site);
    let files = files.chain(tickets).chain(manager);
    files.map(|file| (file.clone(), look_at(&file))).collect()
}

fn look_at(file: &Path) -> Option<FileStamp> {
    let is = std::fs::metadata(file).ok()?;
    let (written, changed) = ((is.mtime(), is.mtime_nsec()), (is.ctime(), is.ctime_nsec()));
    let (dev, ino, size) = (is.dev(), is.ino(), is.size());
    Some((dev, ino, size, written.0, written.1, changed.0, changed.1))
}

/// Returns the time of the last change of a file or of its attributes, or `None` if the file is missing.
fn changed_at(file: &Path) -> Option<SystemTime> {
    let is = std::fs::metadata(file).ok()?;
    let seconds = Duration::from_secs(is.ctime().try_into().unwrap_or(0));
    let nanos = Duration::from_nanos(is.ctime_nsec().try_into().unwrap_or(0));
    Some(SystemTime::UNIX_EPOCH + seconds + nanos)
}

/// Progress of the writers of a file.
enum FileProgress {
    /// The next World takes the file: the path is no regular file, or the file is complete, quiet or growing; or a new
    /// file is refused until then.
    Takeable,
    /// A process is writing to the file.
    Written,
    /// The file may be complete, or not.
    Unknown,
}

/// Returns the progress of the writers of a file that a request found.
fn file_progress(site: &Site, path: &Path) -> FileProgress {
    let real = site.root().join(path);
    let is_file = std::fs::symlink_metadata(&real).is_ok_and(|is| is.is_file());
    let changed = changed_at(&real);
    let (is_takeable, otherwise) = match site.writers(path) {
        _ if !is_file => (true, FileProgress::Unknown),
        // A writer of a newly created file may not be counted yet.
        OpenWriters::None(stat) => {
            let is_takeable = stat.st_size > 0 || is_past(changed, QUIET);
            (is_takeable, FileProgress::Unknown)
        }
        OpenWriters::Some => {
            let is_new = !site.has_name(path);
            (
                is_new || site.is_growing(path) || is_past(changed, OPEN_QUIET),
                FileProgress::Written,
            )
        }
        // Clients wait for a new file. For a known file, clients get the earlier content meanwhile.
        OpenWriters::Unknown => {
            let least = if site.has_file(path) {
                STALE_QUIET
            } else {
                QUIET
            };
            (
                site.is_growing(path) || is_past(changed, least),
                FileProgress::Unknown,
            )
        }
    };
    if is_takeable {
        FileProgress::Takeable
    } else {
        otherwise
    }
}

/// Returns true if `time` is at least `least` ago, lies in the future, or is `None`.
fn is_past(time: Option<SystemTime>, least: Duration) -> bool {
    let age = time.map(|time| SystemTime::now().duration_since(time));
    !matches!(age, Some(Ok(age)) if age < least)
}
