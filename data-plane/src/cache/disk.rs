//! Storage of pages across restarts. One file in the state folder holds all pages. The server writes the
//! file after the end of service and removes the file at start. So a page purged or changed meanwhile never
//! returns, and after a crash the cache starts empty.
//!
//! A second file of the same form hands all pages over to a process that serves in place of this one, also those of routes
//! that are not stored across restarts. Only that process reads the file.

use super::PageCache;
use super::key::{Audience, VaryFields};
use super::page::{CachedPage, CachedPageId};
use super::policy::{Freshness, Lifetime, StorageTerms};
use crate::limits::CACHE_DISK_BYTES_MAX;
use base::digest::{Digest, sha256};
use base::{atomic_file, clock};
use std::cmp::Reverse;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use wire::response_fields::ResponseFields;
use wire::status::{Status, StatusLine};

/// Returns the path of the file in the state folder.
fn file(state: &Path) -> PathBuf {
    state.join("pages")
}

/// Returns the path of the file that hands pages over to another process.
fn hand_over_file(state: &Path) -> PathBuf {
    state.join("pages.handover")
}

/// The first bytes of the file; each format version has different bytes.
const MAGIC: &[u8] = b"anthill pages 4\n";
const DIGEST_BYTES: usize = 32;

impl PageCache {
    /// Writes the pages marked for storage across restarts, and empties the cache. Blocks, so the caller
    /// must have ended service before.
    pub fn save(&self, state: &Path) -> io::Result<()> {
        let pages = self.newest(|page| page.disk);
        for shard in &self.shards {
            super::lock(shard).slots.clear();
        }
        if pages.is_empty() {
            return Ok(());
        }
        let mut out = Vec::new();
        self.write(pages, &mut out)?;
        atomic_file::write(&file(state), &out, 0o600)
    }

    /// Writes all pages for another process, which calls [`PageCache::take_handed_over`]. The cache keeps the pages. Returns
    /// their number. Blocks, but does not wait for the disk: the file need not survive a failure of power.
    pub fn hand_over(&self, state: &Path) -> io::Result<usize> {
        self.forget_hand_over(state)?;
        let pages = self.newest(|_| true);
        let count = pages.len();
        if count == 0 {
            return Ok(0);
        }
        let path = hand_over_file(state);
        let written = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .and_then(|file| self.write(pages, &mut BufWriter::with_capacity(1 << 16, file)));
        if written.is_err() {
            let _ = std::fs::remove_file(&path); // the first error is reported
        }
        written.map(|()| count)
    }

    /// Removes the file of [`PageCache::hand_over`], which no process has taken.
    pub fn forget_hand_over(&self, state: &Path) -> io::Result<()> {
        match std::fs::remove_file(hand_over_file(state)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns the newest pages that are wanted and still of use, as far as they fit into a file, the oldest first.
    pub(super) fn newest(&self, is_wanted: impl Fn(&CachedPage) -> bool) -> Vec<Arc<CachedPage>> {
        let now_ms = self.now_ms();
        let mut pages: Vec<Arc<CachedPage>> = Vec::new();
        for shard in &self.shards {
            let shard = super::lock(shard);
            let all = shard.slots.values().flat_map(|slot| &slot.pages);
            let wanted = all.filter(|it| is_wanted(it) && it.good_for(now_ms) != Freshness::Dead);
            pages.extend(wanted.cloned());
        }
        pages.sort_by_key(|page| Reverse(page.born_ms));
        let mut bytes = 0;
        let fits = pages.iter().take_while(|page| {
            // A page weighs more in memory than in the file.
            bytes += page.weight();
            bytes <= CACHE_DISK_BYTES_MAX
        });
        let count = fits.count();
        pages.truncate(count);
        pages.reverse();
        pages
    }

    /// Writes a file with the pages, and drops each page when it is written.
    fn write(&self, pages: Vec<Arc<CachedPage>>, out: &mut dyn Write) -> io::Result<()> {
        let (now_ms, unix_ms) = (self.now_ms(), clock::unix_ms_now());
        let mut digest = Digest::new();
        let mut part = MAGIC.to_vec();
        for page in pages {
            push_page(&mut part, &page, now_ms, unix_ms);
            digest.update(&part);
            out.write_all(&part)?;
            part.clear();
        }
        out.write_all(&digest.finish())?;
        out.flush()
    }

    /// Loads the saved pages and removes the file; returns the number of loaded pages. A damaged file or a
    /// file of another version has no pages. Pages that another process has handed over, and that were not taken, are dropped.
    pub fn load(&self, state: &Path) -> io::Result<usize> {
        self.forget_hand_over(state)?;
        self.load_file(&file(state))
    }

    /// Loads the pages that another process has handed over, and removes the file; returns the number of loaded pages.
    pub fn take_handed_over(&self, state: &Path) -> io::Result<usize> {
        self.load_file(&hand_over_file(state))
    }

    fn load_file(&self, path: &Path) -> io::Result<usize> {
        let mut bytes = Vec::new();
        let opened = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            opened => opened?,
        };
        let read = opened
            .take((CACHE_DISK_BYTES_MAX + DIGEST_BYTES) as u64)
            .read_to_end(&mut bytes);
        // A file left in place would restore pages purged later.
        std::fs::remove_file(path)?;
        read?;
        Ok(self.take_in(&bytes).unwrap_or(0))
    }

    fn take_in(&self, bytes: &[u8]) -> Option<usize> {
        let (content, digest) = bytes.split_at_checked(bytes.len().checked_sub(DIGEST_BYTES)?)?;
        if sha256(content) != digest {
            return None;
        }
        let mut rest = content.strip_prefix(MAGIC)?;
        let (now_ms, unix_ms) = (self.now_ms(), clock::unix_ms_now());
        let mut count = 0;
        while !rest.is_empty() {
            let page = take_page(&mut rest, now_ms, unix_ms, &self.bytes)?;
            // After a backward step of the system clock, the saved time of birth may lie in the future.
            let is_past = page.born_ms <= now_ms as i64;
            if is_past && page.good_for(now_ms) != Freshness::Dead && self.make_room(&page) {
                let page = Arc::new(page);
                let mut shard = self.shard(&page.place.key);
                self.put(&mut shard, page.clone());
                count += 1;
            }
        }
        self.lend();
        Some(count)
    }
}

fn push_page(out: &mut Vec<u8>, page: &CachedPage, now_ms: u64, unix_ms: u64) {
    let born_unix_ms = unix_ms as i64 - (now_ms as i64 - page.born_ms);
    push(out, page.place.site.as_bytes());
    push(out, &page.place.path);
    push(out, &page.place.key);
    let kind = &page.kind;
    push_option(out, kind.user.as_deref().map(str::as_bytes));
    let terms = &page.terms;
    let flags = [
        kind.secure,
        kind.personal,
        terms.explicit,
        terms.for_authorized,
        terms.is_plain,
        page.disk,
    ];
    out.extend(flags.map(u8::from));
    let Lifetime {
        fresh,
        while_revalidate,
        if_error,
    } = terms.lifetime;
    let status = u64::from(page.variant.status().0);
    let numbers = [
        fresh,
        while_revalidate,
        if_error,
        terms.age,
        born_unix_ms.max(0) as u64,
        status,
    ];
    for number in numbers {
        out.extend_from_slice(&number.to_le_bytes());
    }
    push(out, page.variant.status_line().reason());
    push_count(out, page.varied.parts().len());
    for (name, value) in page.varied.parts() {
        push(out, name.as_bytes());
        push_option(out, value.as_deref());
    }
    push_count(out, page.field_lines().count());
    for (name, value) in page.field_lines() {
        push(out, name);
        push(out, value);
    }
    push(out, page.variant.bytes());
}

fn take_page(
    rest: &mut &[u8],
    now_ms: u64,
    unix_ms: u64,
    ledger: &Arc<AtomicUsize>,
) -> Option<CachedPage> {
    let site = text(take(rest)?)?;
    let path = take(rest)?.into();
    let key = take(rest)?.into();
    let user = take_option(rest)?;
    let user = match user {
        Some(user) => Some(text(user)?.into()),
        None => None,
    };
    let flags: [u8; 6] = take_array(rest)?;
    let [secure, personal, explicit, for_authorized, is_plain, disk] = flags.map(|flag| flag != 0);
    let mut numbers = [0; 6];
    for number in &mut numbers {
        *number = u64::from_le_bytes(take_array(rest)?);
    }
    let [fresh, while_revalidate, if_error, age, born_unix_ms, status] = numbers;
    let status = StatusLine::new(Status(status as u16), take(rest)?);
    let varied = take_varied(rest)?;
    let fields = take_fields(rest)?;
    let content = take(rest)?.into();
    let place = CachedPageId {
        site: site.into(),
        path,
        key,
    };
    let kind = Audience {
        secure,
        user,
        personal,
        authorized: false,
    };
    let terms = StorageTerms {
        lifetime: Lifetime {
            fresh,
            while_revalidate,
            if_error,
        },
        age,
        explicit,
        for_authorized,
        is_plain,
    };
    let mut page = CachedPage::new(
        Arc::new(place),
        kind,
        varied,
        terms,
        &status,
        &fields,
        content,
        disk,
        now_ms,
        unix_ms / 1_000,
        ledger,
    );
    page.born_ms = now_ms as i64 - (unix_ms as i64 - born_unix_ms as i64);
    Some(page)
}

fn take_varied(rest: &mut &[u8]) -> Option<VaryFields> {
    let mut parts = Vec::new();
    for _ in 0..take_count(rest)? {
        let name = text(take(rest)?)?.into();
        parts.push((name, take_option(rest)?.map(Into::into)));
    }
    Some(VaryFields::from_parts(parts))
}

fn take_fields(rest: &mut &[u8]) -> Option<ResponseFields> {
    let mut fields = ResponseFields::new();
    for _ in 0..take_count(rest)? {
        let name = text(take(rest)?)?.as_bytes();
        fields.push(name, take(rest)?);
    }
    Some(fields)
}

fn push_count(out: &mut Vec<u8>, count: usize) {
    out.extend_from_slice(&(count as u32).to_le_bytes());
}

fn push(out: &mut Vec<u8>, bytes: &[u8]) {
    push_count(out, bytes.len());
    out.extend_from_slice(bytes);
}

fn push_option(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    out.push(u8::from(bytes.is_some()));
    push(out, bytes.unwrap_or_default());
}

fn take_array<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, more) = rest.split_first_chunk::<N>()?;
    *rest = more;
    Some(*first)
}

fn take_count(rest: &mut &[u8]) -> Option<usize> {
    Some(u32::from_le_bytes(take_array(rest)?) as usize)
}

fn take<'b>(rest: &mut &'b [u8]) -> Option<&'b [u8]> {
    let count = take_count(rest)?;
    let (bytes, more) = rest.split_at_checked(count)?;
    *rest = more;
    Some(bytes)
}

fn take_option<'b>(rest: &mut &'b [u8]) -> Option<Option<&'b [u8]>> {
    let [is_some] = take_array(rest)?;
    let bytes = take(rest)?;
    Some((is_some != 0).then_some(bytes))
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}
