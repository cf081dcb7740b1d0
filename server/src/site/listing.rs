//! What a folder holds, as a page for people or as JSON, made piece by piece.
//!
//! A page shows a bounded number of entries, so that a folder of a hundred thousand costs a browser
//! and a worker little; JSON has them all.

use super::SiteShared;
use super::file::FileMeta;
use super::folder::{FolderNode, SiteFolder};
use crate::limits::{LISTING_CHUNK_BYTES, LISTING_PAGE_ENTRIES};
use crate::site::escape::{escape, json_string};
use crate::site::prepared_heads::{SERVER, operator_fields, push_field};
use crate::wire::date::civil;
use crate::wire::request_head::{Method, RequestHead};
use crate::wire::request_target::encode_path;
use std::cmp::Ordering;
use std::io::Write;
use std::sync::Arc;

/// A listing on its way out. It has no length beforehand: the driver sends it in chunks, or to
/// HTTP/1.0 until it closes.
pub struct Listing {
    shared: Arc<SiteShared>,
    folder: Arc<SiteFolder>,
    /// As the client sees it, decoded, with its slash.
    path: Vec<u8>,
    /// Below the root, for the operator's rules.
    inner: Vec<u8>,
    view: ListingView,
    head_only: bool,
    state: ListingState,
    /// Made but not yet handed out.
    pending: Vec<u8>,
}

enum ListingView {
    /// The entries that one page shows, in its order.
    Page {
        places: Vec<u32>,
        number: usize,
        pages: usize,
        sort: ListingSort,
    },
    /// All, by name.
    Json,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ListingSort {
    Name,
    Size,
    Date,
}

enum ListingState {
    Opening,
    /// The next entry, and is it the first that is shown?
    Entries(usize, bool),
    Done,
}

impl Listing {
    pub(super) fn new(
        shared: &Arc<SiteShared>,
        folder: &Arc<SiteFolder>,
        head: &RequestHead<'_>,
        inner: &[u8],
    ) -> Listing {
        let query = head.query.unwrap_or_default();
        let view = match parameter(query, b"format") {
            Some(b"json") => ListingView::Json,
            None if prefers_json(head) => ListingView::Json,
            _ => ListingView::page(folder, query),
        };
        Listing {
            shared: Arc::clone(shared),
            folder: Arc::clone(folder),
            path: head.path.to_vec(),
            inner: inner.to_vec(),
            view,
            head_only: head.method == Method::Head,
            state: ListingState::Opening,
            pending: Vec::new(),
        }
    }

    /// Was only the head asked for?
    pub fn head_only(&self) -> bool {
        self.head_only
    }

    /// The head for 200 without any field about length or framing; see
    /// [`Stored::head`](super::Stored::head) for what the driver adds.
    pub fn head<'s>(&self, scratch: &'s mut Vec<u8>) -> &'s [u8] {
        scratch.clear();
        scratch.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
        let operator = operator_fields(&self.shared.rules.headers, &self.inner);
        let own = |name: &str| {
            operator
                .iter()
                .any(|(known, _)| known.eq_ignore_ascii_case(name))
        };
        if self.shared.rules.server_field && !own("Server") {
            push_field(scratch, "Server", SERVER.as_bytes());
        }
        let kind: &[u8] = match self.view {
            ListingView::Page { .. } => b"text/html; charset=utf-8",
            ListingView::Json => b"application/json",
        };
        push_field(scratch, "Content-Type", kind);
        push_field(scratch, "Cache-Control", b"no-cache");
        push_field(scratch, "Vary", b"Accept");
        for (name, value) in &operator {
            if !["Content-Type", "Cache-Control"]
                .iter()
                .any(|ours| ours.eq_ignore_ascii_case(name))
            {
                push_field(scratch, name, value.as_bytes());
            }
        }
        scratch
    }

    /// Appends the next piece of the body, at most [`LISTING_CHUNK_BYTES`]; false once there is none.
    pub fn next_chunk(&mut self, out: &mut Vec<u8>) -> bool {
        let before = out.len();
        self.next_part(out, LISTING_CHUNK_BYTES);
        out.len() > before
    }

    /// Appends the next part of the body, at most `bytes_max`; false once there is none behind it. Little
    /// more is made than is taken, so that a client that takes little holds little.
    pub fn next_part(&mut self, out: &mut Vec<u8>, bytes_max: usize) -> bool {
        while self.pending.len() < bytes_max && self.step() {}
        let size = self.pending.len().min(bytes_max);
        out.extend(self.pending.drain(..size));
        !(self.pending.is_empty() && matches!(self.state, ListingState::Done))
    }

    /// Bytes that it takes in memory while it waits to be sent.
    pub fn held_bytes(&self) -> usize {
        let places = match &self.view {
            ListingView::Page { places, .. } => size_of_val(&places[..]),
            ListingView::Json => 0,
        };
        size_of::<Listing>() + self.path.len() + self.inner.len() + places + OPENING_BYTES
    }

    /// Makes a little more; false once all is made.
    fn step(&mut self) -> bool {
        let mut out = std::mem::take(&mut self.pending);
        match self.state {
            ListingState::Opening => {
                self.opening(&mut out);
                self.state = ListingState::Entries(0, true);
            }
            ListingState::Entries(nth, first) => {
                let place = match &self.view {
                    ListingView::Page { places, .. } => {
                        places.get(nth).map(|place| *place as usize)
                    }
                    ListingView::Json => (nth < self.folder.len()).then_some(nth),
                };
                match place {
                    Some(place) => {
                        let shown = self.entry(place, first, &mut out);
                        self.state = ListingState::Entries(nth + 1, first && !shown);
                    }
                    None => {
                        self.closing(&mut out);
                        self.state = ListingState::Done;
                    }
                }
            }
            ListingState::Done => {}
        }
        self.pending = out;
        !matches!(self.state, ListingState::Done)
    }

    fn opening(&self, out: &mut Vec<u8>) {
        let ListingView::Page { sort, .. } = self.view else {
            out.extend_from_slice(b"{\"path\":");
            json_string(&self.path, out);
            out.extend_from_slice(b",\"entries\":[");
            return;
        };
        out.extend_from_slice(b"<!doctype html><html lang=en><meta charset=utf-8><title>");
        escape(&self.path, out);
        out.extend_from_slice(STYLE);
        out.extend_from_slice(b"<h1>");
        escape(&self.path, out);
        out.extend_from_slice(b"</h1><table><thead><tr>");
        for (key, label, name) in [
            (ListingSort::Name, "Name", "name"),
            (ListingSort::Size, "Size", "size"),
            (ListingSort::Date, "Date", "date"),
        ] {
            let mark = if key == sort { " aria-sort=other" } else { "" };
            // Into a Vec nothing fails.
            let _ = write!(out, "<th{mark}><a href=\"?sort={name}\">{label}</a>");
        }
        out.extend_from_slice(b"<tbody>\n");
        if self.path != b"/" && self.inner != b"/" {
            out.extend_from_slice(b"<tr><td><a href=\"../\">../</a><td><td>\n");
        }
    }

    /// False if nothing is shown for this one.
    fn entry(&self, place: usize, first: bool, out: &mut Vec<u8>) -> bool {
        let (name, entry) = self.folder.at(place);
        let (meta, slash) = match &entry.node {
            FolderNode::File(file) => (&file.meta, ""),
            FolderNode::Folder(folder) => (&folder.meta, "/"),
            FolderNode::Refused(_) => return false,
        };
        // The dot keeps a name with a colon from being read as a scheme.
        let mut href = b"./".to_vec();
        encode_path(name, &mut href);
        href.extend_from_slice(slash.as_bytes());
        match self.view {
            ListingView::Page { .. } => row(name, &href, slash, meta, out),
            ListingView::Json => object(name, &href, slash, meta, first, out),
        }
        true
    }

    fn closing(&self, out: &mut Vec<u8>) {
        let ListingView::Page {
            number,
            pages,
            sort,
            ..
        } = self.view
        else {
            return out.extend_from_slice(b"]}\n");
        };
        out.extend_from_slice(b"</table>");
        if pages > 1 {
            let sort = match sort {
                ListingSort::Name => "",
                ListingSort::Size => "&amp;sort=size",
                ListingSort::Date => "&amp;sort=date",
            };
            out.extend_from_slice(b"<nav>");
            if number > 1 {
                let _ = write!(
                    out,
                    "<a rel=prev href=\"?page={}{sort}\">previous</a> ",
                    number - 1
                );
            }
            let _ = write!(out, "page {number} of {pages}");
            if number < pages {
                let _ = write!(
                    out,
                    " <a rel=next href=\"?page={}{sort}\">next</a>",
                    number + 1
                );
            }
            out.extend_from_slice(b"</nav>");
        }
        out.push(b'\n');
    }
}

/// About what the beginning of a page has, which is made before anything of it is sent.
const OPENING_BYTES: usize = 2 * 1024;

impl ListingView {
    /// Chooses the entries of a page without sorting all the others.
    fn page(folder: &SiteFolder, query: &[u8]) -> ListingView {
        let sort = match parameter(query, b"sort") {
            Some(b"size") => ListingSort::Size,
            Some(b"date") => ListingSort::Date,
            _ => ListingSort::Name,
        };
        let shown = folder
            .iter()
            .enumerate()
            .filter(|(_, (_, entry))| !matches!(entry.node, FolderNode::Refused(_)));
        let mut places: Vec<u32> = shown.map(|(place, _)| place as u32).collect();
        let pages = places.len().div_ceil(LISTING_PAGE_ENTRIES).max(1);
        let asked = parameter(query, b"page").and_then(|text| std::str::from_utf8(text).ok());
        let number = asked
            .and_then(|text| text.parse().ok())
            .unwrap_or(1)
            .clamp(1, pages);
        let order = |one: &u32, other: &u32| {
            compare(folder.at(*one as usize), folder.at(*other as usize), sort)
        };
        let start = (number - 1) * LISTING_PAGE_ENTRIES;
        if start > 0 {
            places.select_nth_unstable_by(start, order);
            places.drain(..start);
        }
        if places.len() > LISTING_PAGE_ENTRIES {
            places.select_nth_unstable_by(LISTING_PAGE_ENTRIES, order);
            places.truncate(LISTING_PAGE_ENTRIES);
        }
        places.sort_unstable_by(order);
        ListingView::Page {
            places,
            number,
            pages,
            sort,
        }
    }
}

type NamedEntry<'a> = (&'a [u8], &'a super::folder::FolderEntry);

/// Folders first; then by name without regard to case, the largest or the latest first.
fn compare(
    (one_name, one): NamedEntry<'_>,
    (other_name, other): NamedEntry<'_>,
    sort: ListingSort,
) -> Ordering {
    let meta = |node: &FolderNode| match node {
        FolderNode::File(file) => (false, file.meta.size, file.meta.mtime_ns),
        // The size of a folder says nothing.
        FolderNode::Folder(folder) => (true, 0, folder.meta.mtime_ns),
        FolderNode::Refused(_) => (false, 0, 0),
    };
    let (one, other) = (meta(&one.node), meta(&other.node));
    let key = match sort {
        ListingSort::Name => Ordering::Equal,
        ListingSort::Size => other.1.cmp(&one.1),
        ListingSort::Date => other.2.cmp(&one.2),
    };
    let caseless = |one: &[u8], other: &[u8]| {
        one.iter()
            .map(u8::to_ascii_lowercase)
            .cmp(other.iter().map(u8::to_ascii_lowercase))
    };
    other
        .0
        .cmp(&one.0)
        .then(key)
        .then_with(|| caseless(one_name, other_name))
        .then_with(|| one_name.cmp(other_name))
}

/// The value of a query parameter, as it was sent.
fn parameter<'q>(query: &'q [u8], name: &[u8]) -> Option<&'q [u8]> {
    query.split(|byte| *byte == b'&').find_map(|pair| {
        pair.strip_prefix(name)
            .and_then(|rest| rest.strip_prefix(b"="))
    })
}

/// Does Accept name JSON and no HTML? Browsers name HTML, programs that want JSON don't.
fn prefers_json(head: &RequestHead<'_>) -> bool {
    let names = |kind: &str| {
        head.fields.all("accept").any(|line| {
            line.split(|byte| *byte == b',').any(|item| {
                let bare = item.split(|byte| *byte == b';').next().unwrap_or(item);
                bare.trim_ascii().eq_ignore_ascii_case(kind.as_bytes())
            })
        })
    };
    names("application/json") && !names("text/html")
}

fn row(name: &[u8], href: &[u8], slash: &str, meta: &FileMeta, out: &mut Vec<u8>) {
    out.extend_from_slice(b"<tr><td><a href=\"");
    escape(href, out);
    out.extend_from_slice(b"\">");
    escape(name, out);
    out.extend_from_slice(slash.as_bytes());
    out.extend_from_slice(b"</a><td");
    if slash.is_empty() {
        let _ = write!(out, " title=\"{} bytes\">{}", meta.size, human(meta.size));
    } else {
        out.push(b'>');
    }
    let date = civil(meta.mtime_seconds());
    let _ = writeln!(
        out,
        "<td>{:04}-{:02}-{:02} {:02}:{:02}",
        date.year, date.month, date.day, date.hour, date.minute
    );
}

fn object(name: &[u8], href: &[u8], slash: &str, meta: &FileMeta, first: bool, out: &mut Vec<u8>) {
    if !first {
        out.push(b',');
    }
    out.extend_from_slice(b"\n{\"name\":");
    json_string(name, out);
    out.extend_from_slice(b",\"href\":");
    json_string(href, out);
    if slash.is_empty() {
        let _ = write!(out, ",\"type\":\"file\",\"size\":{}", meta.size);
    } else {
        out.extend_from_slice(b",\"type\":\"folder\"");
    }
    let date = civil(meta.mtime_seconds());
    let _ = write!(
        out,
        ",\"modified\":\"{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z\"}}",
        date.year, date.month, date.day, date.hour, date.minute, date.second
    );
}

/// A size as one reads it: `17 B`, `1.4 KiB`, `23 MiB`.
fn human(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    // In parts of a unit, to the nearest.
    let rounded = |unit: usize, parts: u128| {
        let unit_bytes = 1 << (10 * unit);
        ((u128::from(bytes) * parts + unit_bytes / 2) >> (10 * unit)) as u64
    };
    let mut unit = 1;
    while unit + 1 < UNITS.len() && rounded(unit, 1) >= 1024 {
        unit += 1;
    }
    let tenths = rounded(unit, 10);
    if tenths < 100 {
        format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
    } else {
        format!("{} {}", rounded(unit, 1), UNITS[unit])
    }
}

const STYLE: &[u8] =
    b"</title><meta name=viewport content=\"width=device-width,initial-scale=1\"><style>\
    :root{color-scheme:light dark}\
    body{font:1rem/1.5 system-ui,sans-serif;max-width:56rem;margin:2rem auto;padding:0 1rem}\
    h1{font-size:1.2rem;overflow-wrap:anywhere}\
    table{width:100%;border-collapse:collapse}\
    th{text-align:left;font-weight:600}\
    td,th{padding:.25rem .5rem;border-bottom:1px solid #8884}\
    td:first-child{overflow-wrap:anywhere}\
    td+td,th+th{white-space:nowrap;text-align:right;font-variant-numeric:tabular-nums}\
    a{text-decoration:none}a:hover{text-decoration:underline}\
    nav{margin:1rem .5rem}\
    @media(max-width:34rem){td:last-child,th:last-child{display:none}}</style>";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_for_people() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1434, "1.4 KiB"),
            (10_188, "9.9 KiB"),
            (10_189, "10 KiB"),
            (10 * 1024, "10 KiB"),
            (1_048_063, "1023 KiB"),
            (1_048_064, "1.0 MiB"),
            (1_048_575, "1.0 MiB"),
            (3 << 30, "3.0 GiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(human(bytes), text, "{bytes}");
        }
    }

    #[test]
    fn query_parameters() {
        assert_eq!(parameter(b"a=1&page=2", b"page"), Some(&b"2"[..]));
        assert_eq!(parameter(b"homepage=2", b"page"), None);
        assert_eq!(parameter(b"", b"page"), None);
    }
}
