//! Hit counts over a change of the process that serves. The state file belongs to the process that accepts connections.
//! A process that still serves its last connections writes what it counts meanwhile into files of its own, and the
//! process in its place adds the counts and removes the files. So every view is counted once.

use crate::hits::site_hits::{SiteHits, lock};
use crate::hits::table::HitTable;
use crate::hits::{Hits, path, read, state_file};
use crate::limits::HITS_REST_FILES_MAX;
use base::atomic_file;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Counts that a process has written for another one. They belong to the process again if the other one never serves.
pub struct HandedHits(Vec<(Arc<SiteHits>, HitTable)>);

/// Beginning of the names of files with remaining counts.
const REST_PREFIX: &str = "hits-rest.";

impl Hits {
    /// Writes the state file for another process, and begins to count from 0: those are the remaining counts. Blocks.
    ///
    /// # Errors
    /// After a failure, the counts are as before.
    pub fn begin_hand_over(&self, state: &Path) -> io::Result<HandedHits> {
        let taken = self.take_all();
        let written = atomic_file::write(&path(state), &text(&taken.0), 0o600);
        match written {
            Ok(()) => Ok(taken),
            Err(error) => {
                self.take_back(taken);
                Err(error)
            }
        }
    }

    /// Adds the counts again that another process has not taken.
    pub fn take_back(&self, handed: HandedHits) {
        for (site, table) in handed.0 {
            site.table().merge(table);
            site.mark_changed();
        }
    }

    /// Writes the counts since the last call into a file of their own, for the process that serves in place of this one. Blocks.
    ///
    /// # Errors
    /// After a failure, the next call writes the counts.
    pub fn write_rest(&self, state: &Path) -> io::Result<()> {
        let taken = self.take_all();
        if taken.0.iter().all(|(_, table)| table.is_empty()) {
            return Ok(());
        }
        let number = self.rests.fetch_add(1, Relaxed);
        let name = format!("{REST_PREFIX}{}.{number}", std::process::id());
        let written = atomic_file::write(&state.join(name), &text(&taken.0), 0o600);
        if written.is_err() {
            self.take_back(taken);
        }
        written
    }

    /// Adds the counts that earlier processes have left in files of their own, and removes the files. Returns the number of
    /// files, at most [`HITS_REST_FILES_MAX`].
    pub fn take_rests(&self, state: &Path) -> io::Result<usize> {
        let mut count = 0;
        for entry in std::fs::read_dir(state)? {
            let entry = entry?;
            let name = entry.file_name();
            if !name.to_str().is_some_and(|it| it.starts_with(REST_PREFIX)) {
                continue;
            }
            let text = atomic_file::read(&entry.path())?;
            // A file left in place would be added again.
            std::fs::remove_file(entry.path())?;
            for theirs in read(&text) {
                let table = theirs.table().take();
                let site = self.of(theirs.name());
                site.table().merge(table);
                site.mark_changed();
            }
            count += 1;
            if count == HITS_REST_FILES_MAX {
                break;
            }
        }
        Ok(count)
    }

    fn take_all(&self) -> HandedHits {
        let sites = lock(&self.sites).clone();
        let taken = sites.into_iter().map(|site| {
            let table = site.table().take();
            site.take_changed();
            (site, table)
        });
        HandedHits(taken.collect())
    }
}

fn text(taken: &[(Arc<SiteHits>, HitTable)]) -> Vec<u8> {
    let mut out = state_file::begin();
    for (site, table) in taken {
        state_file::push_site(&mut out, site.name(), table);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(hits: &Hits, views: u32) {
        hits.of("a").add(b"/", views, 0, 100);
    }

    fn views(hits: &Hits) -> u64 {
        let site = hits.of("a");
        let table = site.table();
        let of_page = table.pages.get(&b"/"[..]).map_or(0, |page| page.views);
        assert_eq!(table.days.iter().map(|day| day.views).sum::<u64>(), of_page);
        of_page
    }

    fn files(state: &Path) -> usize {
        std::fs::read_dir(state).expect("a folder").count()
    }

    #[test]
    fn every_view_is_counted_once_over_many_processes() {
        let folder = tempfile::tempdir().expect("a folder");
        let state = folder.path();
        let mut serving = Hits::default();
        let mut counted = 0;
        for nth in 1..=20 {
            count(&serving, nth);
            let handed = serving.begin_hand_over(state).expect("room");
            let next = Hits::default();
            // The successor may have read an earlier state of the file.
            next.load(state).expect("the counts");
            count(&serving, 1_000);
            drop(handed);
            serving.write_rest(state).expect("room");
            count(&next, 100);
            next.take_rests(state).expect("the counts");
            count(&serving, 10_000);
            serving.write_rest(state).expect("room");
            next.take_rests(state).expect("the counts");
            counted += u64::from(nth) + 11_100;
            assert_eq!(views(&next), counted);
            assert_eq!(files(state), 1, "the state file alone");
            serving = next;
        }
        serving.save(state).expect("room");
        let last = Hits::default();
        last.load(state).expect("the counts");
        last.load(state).expect("the counts");
        assert_eq!(views(&last), counted);
    }

    #[test]
    fn counts_that_no_process_has_taken_are_taken_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let hits = Hits::default();
        hits.of("a").exclude(b"/stats");
        count(&hits, 5);
        let handed = hits.begin_hand_over(folder.path()).expect("room");
        count(&hits, 2);
        assert_eq!(views(&hits), 2);
        hits.take_back(handed);
        assert_eq!(views(&hits), 7);
        hits.of("a").add(b"/stats", 1, 0, 100);
        assert_eq!(views(&hits), 7);
        hits.save(folder.path()).expect("room");
        let next = Hits::default();
        next.load(folder.path()).expect("the counts");
        assert_eq!(views(&next), 7);
    }

    #[test]
    fn a_failed_write_loses_no_counts() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("file");
        std::fs::write(&file, "").expect("room");
        let hits = Hits::default();
        count(&hits, 5);
        assert!(hits.begin_hand_over(&file).is_err() && views(&hits) == 5);
        assert!(hits.write_rest(&file).is_err() && views(&hits) == 5);
        hits.write_rest(folder.path()).expect("room");
        hits.write_rest(folder.path()).expect("room");
        assert_eq!(files(folder.path()), 2, "no file without counts");
        let next = Hits::default();
        assert_eq!(next.take_rests(folder.path()).ok(), Some(1));
        assert_eq!(views(&next), 5);
    }
}
