//! Previews of releases: opened for the first request, and closed after the release is withdrawn or other previews are
//! used.

use super::rebuild::Rebuilder;
use crate::site::Site;
use crate::store::SiteRecords;
use crate::world::preview::Previews;
use crate::world::{Host, Hosts, World};
use std::sync::Arc;

impl Rebuilder {
    /// Opens the releases that requests want to see, and publishes a World with the previews.
    pub(super) async fn open_wanted_previews(&mut self) {
        let mut hosts: Vec<Arc<Host>> = self.publisher.world().hosts.iter().cloned().collect();
        let mut is_changed = false;
        for host in &mut hosts {
            if let Some(previews) = self.with_wanted(host).await {
                *host = with_previews(host, previews);
                is_changed = true;
            }
        }
        if is_changed {
            let mut world = World::clone(self.publisher.world());
            world.hosts = Hosts::new(hosts);
            world.generation += 1;
            self.publisher.publish(world).await;
        }
    }

    /// Returns the previews of a site with the releases that requests want to see; None without a wish that can be
    /// fulfilled.
    async fn with_wanted(&mut self, host: &Host) -> Option<Previews> {
        let (previews, site) = (host.previews.as_ref()?, host.site.as_ref()?);
        let mut opened = None;
        for release in previews.wanted.take() {
            let previews = opened.as_ref().unwrap_or(previews);
            let is_open = previews.open.iter().any(|it| it.release == release);
            if is_open || previews.is_withdrawn(&release) {
                continue;
            }
            let mut previews = Previews::clone(previews);
            if let Some(site) = self.open_preview(site, release).await {
                previews.add(release, site);
                opened = Some(Arc::new(previews));
            }
        }
        opened.map(Arc::unwrap_or_clone)
    }

    /// Opens a release. Each release that can't be opened is reported once.
    async fn open_preview(&mut self, site: &Arc<Site>, release: [u8; 32]) -> Option<Site> {
        let served = Arc::clone(site);
        let opened = self.scans.run(move || served.open_preview(release)).await;
        let reason = match opened {
            Ok(Ok(site)) => {
                self.refused_previews.remove(&release);
                return Some(site);
            }
            Ok(Err(error)) => error.to_string(),
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
        let rules = host.site.as_ref()?.rules().release.clone()?;
        let read = self.scans.run(move || rules.history()).await;
        let records: SiteRecords = match read {
            Ok(Ok(records)) => records,
            Ok(Err(error)) => {
                log::error!("the previews of {} are not renewed: {error}", host.names[0]);
                return None;
            }
            Err(error) => {
                log::error!("the previews of {} are not renewed: {error}", host.names[0]);
                return None;
            }
        };
        let is_new = *previews.records != records;
        is_new.then(|| with_previews(host, previews.with_records(records)))
    }
}

fn with_previews(host: &Host, previews: Previews) -> Arc<Host> {
    Arc::new(Host {
        previews: Some(Arc::new(previews)),
        ..host.clone()
    })
}
