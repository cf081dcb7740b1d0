//! Previews of releases: opened for the first request, and closed after the release is withdrawn or other previews are
//! used.

use super::rebuild::Rebuilder;
use base::digest::hex;
use data_plane::limits::{
    PREVIEW_ID_DIGITS_MIN, PREVIEW_SIZES_REMEMBERED_MAX, PREVIEW_STAY_SECONDS, PREVIEWS_BYTES_MAX,
    PREVIEWS_OPEN_MAX,
};
use data_plane::site::{ReleaseError, Site};
use data_plane::world::preview::{
    OpenPreview, PreviewAge, PreviewName, Previews, PreviewsFull, make_room,
};
use data_plane::world::{Host, Hosts, World};
use release::store::SiteRecords;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Result of a trial to open a preview.
enum Opening {
    /// The preview is open, and a host has changed.
    Done,
    /// The preview is open already, or can't be opened.
    Refused,
    /// The preview can be opened once other previews have given way.
    Later,
}

impl Rebuilder {
    /// Opens the releases that requests want to see, and publishes a World with the previews.
    pub(super) async fn open_wanted_previews(&mut self) {
        let mut hosts: Vec<Arc<Host>> = self.publisher.world().hosts.iter().cloned().collect();
        let mut is_changed = false;
        for nth in 0..hosts.len() {
            let Some(previews) = hosts[nth].previews.clone() else {
                continue;
            };
            let mut later = Vec::new();
            for name in previews.wanted.take() {
                match self.open_wanted(&mut hosts, nth, name).await {
                    Opening::Done => is_changed = true,
                    Opening::Refused => {}
                    Opening::Later => later.push(name),
                }
            }
            if !later.is_empty() {
                previews.wanted.put_back(later, self.publisher.now_ms());
            }
        }
        if is_changed {
            let mut world = World::clone(self.publisher.world());
            world.hosts = Hosts::new(hosts);
            world.generation += 1;
            self.publisher.publish(world).await;
        }
    }

    /// Opens a release as a preview of a site, and closes other previews if the site or the memory needs it.
    async fn open_wanted(
        &mut self,
        hosts: &mut [Arc<Host>],
        nth: usize,
        name: PreviewName,
    ) -> Opening {
        let release = name.release;
        let (Some(previews), Some(site)) = (&hosts[nth].previews, hosts[nth].release_site()) else {
            return Opening::Refused;
        };
        let is_open = previews.open.iter().any(|it| it.release == release);
        if is_open || previews.is_withdrawn(&release) {
            return Opening::Refused;
        }
        let site = Arc::clone(site);
        let known_bytes = self.preview_bytes.get(&release).copied().unwrap_or(0);
        if !name.needs_login
            && let Err(full) = self.room_for(hosts, nth, known_bytes)
        {
            return self.refuse_preview(release, full, known_bytes);
        }
        let Some((site, bytes)) = self.open_preview(&site, release).await else {
            return Opening::Refused;
        };
        let room = if name.needs_login {
            Ok(Vec::new())
        } else {
            self.room_for(hosts, nth, bytes)
        };
        let closed = match room {
            Ok(closed) => closed,
            Err(full) => {
                if self.preview_bytes.len() >= PREVIEW_SIZES_REMEMBERED_MAX {
                    self.preview_bytes.clear();
                }
                self.preview_bytes.insert(release, bytes);
                return self.refuse_preview(release, full, bytes);
            }
        };
        self.preview_bytes.remove(&release);
        self.refused_previews.remove(&release);
        for preview in closed {
            change_previews(&mut hosts[preview.host], |previews| {
                previews.close(&preview.release);
            });
        }
        let preview = OpenPreview {
            release,
            site: Arc::new(site),
            used_ms: Arc::new(AtomicU64::new(self.publisher.now_ms())),
            opened_ms: self.publisher.now_ms(),
            has_login: name.needs_login,
            bytes,
        };
        change_previews(&mut hosts[nth], |previews| previews.add(preview));
        Opening::Done
    }

    /// Returns the previews that give way to a preview of `bytes` without a login, of the host `nth`.
    fn room_for(
        &self,
        hosts: &[Arc<Host>],
        nth: usize,
        bytes: usize,
    ) -> Result<Vec<PreviewAge>, PreviewsFull> {
        let now_ms = self.publisher.now_ms();
        let mut open = Vec::new();
        for (host, previews) in hosts.iter().map(|host| &host.previews).enumerate() {
            let previews = previews.iter().flat_map(|previews| &previews.open);
            open.extend(previews.map(|it| PreviewAge {
                host,
                release: it.release,
                bytes: if it.has_login { 0 } else { it.bytes },
                open_ms: now_ms.saturating_sub(it.opened_ms),
                idle_ms: now_ms.saturating_sub(it.used_ms.load(Ordering::Relaxed)),
            }));
        }
        make_room(&mut open, nth, bytes)
    }

    /// Reports once that other previews leave no room for a release of `bytes`.
    fn refuse_preview(&mut self, release: [u8; 32], full: PreviewsFull, bytes: usize) -> Opening {
        if self.refused_previews.insert(release) {
            let reason = match full {
                PreviewsFull::Site => format!("{PREVIEWS_OPEN_MAX} previews of the site are open"),
                PreviewsFull::Memory => format!(
                    "the previews without a login would take more than {} MiB together",
                    PREVIEWS_BYTES_MAX >> 20
                ),
            };
            log::warn!(
                "the preview {} is not opened: {reason}, and each stays for {PREVIEW_STAY_SECONDS} s after its opening; \
                 a login opens the preview at once",
                &hex(&release)[..PREVIEW_ID_DIGITS_MIN],
            );
        }
        if bytes <= PREVIEWS_BYTES_MAX {
            Opening::Later
        } else {
            Opening::Refused
        }
    }

    /// Opens a release, and returns the bytes of its memory. Each release that can't be opened is reported once.
    async fn open_preview(&mut self, site: &Arc<Site>, release: [u8; 32]) -> Option<(Site, usize)> {
        let served = Arc::clone(site);
        let open = move || {
            let site = served.open_preview(release)?;
            let bytes = site.memory_bytes();
            Ok::<_, ReleaseError>((site, bytes))
        };
        let reason = match self.scans.run(open).await {
            Ok(Ok(opened)) => return Some(opened),
            Ok(Err(error)) => error.to_string(),
            // The next request for the preview opens the release.
            Err(error) if error.is_given_up() => return None,
            Err(error) => error.to_string(),
        };
        if self.refused_previews.insert(release) {
            log::error!("a preview can't be opened: {reason}; publish the preview again");
        }
        None
    }

    /// Returns the host with the present labels and releases of the store; None if the previews stay as they are. The
    /// previews of the former state stay if the store can't be read.
    pub(super) async fn with_present_records(&self, host: &Host) -> Option<Arc<Host>> {
        let previews = host.previews.as_ref()?;
        let rules = host.release_site()?.rules().release.clone()?;
        let read = self.scans.finish(move || rules.history()).await;
        let records: SiteRecords = match read {
            Ok(Ok(records)) => records,
            Ok(Err(error)) => {
                log::error!("the previews of {} are not renewed: {error}", host.name);
                return None;
            }
            Err(error) => {
                log::error!("the previews of {} are not renewed: {error}", host.name);
                return None;
            }
        };
        let is_new = *previews.records != records;
        is_new.then(|| with_previews(host, previews.with_records(records)))
    }
}

/// Changes the previews of a host.
fn change_previews(host: &mut Arc<Host>, change: impl FnOnce(&mut Previews)) {
    if let Some(previews) = &host.previews {
        let mut previews = Previews::clone(previews);
        change(&mut previews);
        *host = with_previews(host, previews);
    }
}

fn with_previews(host: &Host, previews: Previews) -> Arc<Host> {
    Arc::new(Host {
        previews: Some(Arc::new(previews)),
        ..host.clone()
    })
}
