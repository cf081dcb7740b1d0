//! Tests of the page cache without a handler: storage, eviction and shared calls.

use super::fill::{FillRead, FillReader};
use super::policy::{Lifetime, StorageTerms};
use super::*;
use crate::limits::CACHE_DISK_BYTES_MAX;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Waker};
use wire::fields::Fields;
use wire::response_fields::ResponseFields;
use wire::status::Status;

const TERMS: StorageTerms = StorageTerms {
    lifetime: Lifetime {
        fresh: 10,
        while_revalidate: 10,
        if_error: 100,
    },
    age: 0,
    explicit: false,
    for_authorized: false,
    is_plain: false,
};

fn cache() -> Arc<PageCache> {
    let budget = Arc::new(ContentBudget::new(4 << 20));
    Arc::new(PageCache::new(Instant::now(), budget))
}

fn place(path: &str) -> Arc<CachedPageId> {
    Arc::new(CachedPageId {
        site: "a".into(),
        path: path.as_bytes().into(),
        key: path.as_bytes().into(),
    })
}

const ANONYMOUS: PresentedRequest<'static> = PresentedRequest {
    fields: Fields(b""),
    secure: false,
    user: None,
    authorized: false,
    personal: false,
};

fn page(path: &str, bytes: usize, ledger: &Arc<AtomicUsize>) -> Arc<CachedPage> {
    let content = vec![b'x'; bytes].into();
    let (kind, place) = (ANONYMOUS.kind(), place(path));
    let varied = Default::default();
    let status = Status::OK.into();
    Arc::new(CachedPage::new(
        place,
        kind,
        varied,
        TERMS,
        &status,
        &ResponseFields::new(),
        content,
        false,
        0,
        0,
        ledger,
    ))
}

fn keep(cache: &Arc<PageCache>, path: &str, bytes: usize) {
    let page = page(path, bytes, &cache.bytes);
    assert!(cache.make_room(&page));
    cache.put(&mut cache.shard(&page.place.key), page.clone());
}

fn find(cache: &PageCache, path: &str) -> Option<Arc<CachedPage>> {
    let shard = cache.shard(path.as_bytes());
    let slot = shard.slots.get(path.as_bytes())?;
    slot.pages
        .iter()
        .find(|page| page.suits(&ANONYMOUS))
        .cloned()
}

#[test]
fn used_pages_are_kept() {
    let cache = cache();
    keep(&cache, "/used", 10_000);
    for nth in 0..500 {
        if let Some(page) = find(&cache, "/used") {
            page.variant.touch();
        }
        keep(&cache, &format!("/{nth}"), 10_000);
        assert!(cache.summary().bytes <= cache.bytes_max());
    }
    assert!(find(&cache, "/used").is_some());
    assert!(find(&cache, "/0").is_none() && find(&cache, "/499").is_some());
    let summary = cache.summary();
    assert!(summary.bytes > summary.bytes_max / 10 * 9, "{summary:?}");
    let kept: usize = cache.shards.iter().map(|shard| lock(shard).pages).sum();
    assert_eq!(kept, summary.pages);
    assert_eq!(cache.purge("a", "/*"), kept);
    assert_eq!((cache.summary().pages, cache.summary().bytes), (0, 0));
    assert!(
        cache
            .shards
            .iter()
            .all(|shard| lock(shard).slots.is_empty())
    );
}

/// Checks that a removed page counts until no client is being sent the page.
#[test]
fn pages_being_sent_count_towards_the_budget() {
    let cache = cache();
    keep(&cache, "/a", 400_000);
    let sent = find(&cache, "/a").map(|page| page.variant.clone());
    let bytes = cache.summary().bytes;
    assert_eq!(cache.purge("a", "/a"), 1);
    assert_eq!(cache.summary().bytes, bytes);
    let second: Vec<_> = (0..3)
        .filter_map(|nth| {
            let page = page(&format!("/{nth}"), 400_000, &cache.bytes);
            cache.make_room(&page).then(|| {
                cache.put(&mut cache.shard(&page.place.key), page.clone());
                page.variant.clone()
            })
        })
        .collect();
    assert_eq!(second.len(), 2, "there is room for three in all");
    drop(sent);
    keep(&cache, "/3", 400_000);
    drop(second);
    cache.purge("a", "/*");
    assert_eq!(cache.summary().bytes, 0);
}

#[test]
fn a_new_page_replaces_the_old_page() {
    let cache = cache();
    for _ in 0..1000 {
        keep(&cache, "/a", 100);
    }
    assert_eq!(cache.summary().pages, 1);
    let queued: usize = cache.shards.iter().map(|it| lock(it).queue.len()).sum();
    assert!(queued < 50, "{queued} in the queue");
}

#[test]
fn all_pages_are_handed_over_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path();
    let (serving, next) = (cache(), cache());
    assert_eq!(serving.hand_over(state).ok(), Some(0));
    assert_eq!(next.take_handed_over(state).ok(), Some(0));
    keep(&serving, "/a", 10);
    keep(&serving, "/b", 1_000);
    assert_eq!(serving.hand_over(state).ok(), Some(2));
    assert_eq!(serving.summary().pages, 2);
    // The pages of no stored route are not saved for a later start.
    assert_eq!(next.take_handed_over(state).ok(), Some(2));
    let page = find(&next, "/b").expect("the page");
    assert!(page.variant.bytes() == [b'x'; 1_000] && !page.disk);
    assert_eq!(std::fs::read_dir(state).expect("a folder").count(), 0);
    drop(page);
    next.save(state).expect("room");
    assert_eq!(cache().load(state).ok(), Some(0));
}

#[test]
fn handed_over_pages_that_nobody_takes_are_dropped() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path();
    let serving = cache();
    keep(&serving, "/a", 10);
    for _ in 0..2 {
        assert_eq!(serving.hand_over(state).ok(), Some(1));
    }
    serving.forget_hand_over(state).expect("a file");
    serving.forget_hand_over(state).expect("no file");
    assert_eq!(cache().take_handed_over(state).ok(), Some(0));
    // A start that replaces no running server.
    serving.hand_over(state).expect("room");
    assert_eq!(cache().load(state).ok(), Some(0));
    assert_eq!(std::fs::read_dir(state).expect("a folder").count(), 0);
    // A damaged file has no pages.
    serving.hand_over(state).expect("room");
    let path = state.join("pages.handover");
    let mut bytes = std::fs::read(&path).expect("the file");
    bytes[40] ^= 1;
    std::fs::write(&path, bytes).expect("the file");
    assert_eq!(cache().take_handed_over(state).ok(), Some(0));
}

#[test]
fn the_newest_pages_within_the_bound_are_handed_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let budget = Arc::new(ContentBudget::new(1 << 30));
    let serving = Arc::new(PageCache::new(Instant::now(), budget));
    for nth in 0..70 {
        let mut page = page(&format!("/{nth}"), 1 << 20, &serving.bytes);
        Arc::get_mut(&mut page).expect("one reference").born_ms = -nth;
        assert!(serving.make_room(&page));
        serving.put(&mut serving.shard(&page.place.key), page.clone());
    }
    let count = serving.hand_over(folder.path()).expect("room");
    assert!((60..64).contains(&count), "{count}");
    let file = std::fs::metadata(folder.path().join("pages.handover")).expect("the file");
    assert!(file.len() <= CACHE_DISK_BYTES_MAX as u64);
    assert!(
        !serving
            .newest(|_| true)
            .iter()
            .any(|page| *page.place.path == *b"/69")
    );
}

#[test]
fn a_cache_that_is_given_up_stores_nothing() {
    let cache = cache();
    keep(&cache, "/a", 10_000);
    let JoinOutcome::Lead(fill, None) = cache.join(&place("/b"), &ANONYMOUS, 0) else {
        panic!("the first request must call the handler")
    };
    cache.budget.give_up();
    cache.give_up();
    let summary = cache.summary();
    assert_eq!((summary.pages, summary.bytes, summary.bytes_max), (0, 0, 0));
    assert_eq!(cache.page_bytes_max(), 0);
    cache.settle(&fill, None, FillPhase::Abandoned);
    assert!(cache.shards.iter().all(|it| lock(it).slots.is_empty()));
}

/// Checks the freshness and age of a page, also with a birth before the clock's origin.
#[test]
fn pages_age() {
    let mut page = Arc::into_inner(page("/", 1, &Arc::default())).expect("one");
    for (now_ms, age, good_for) in [
        (0, 0, Freshness::Fresh),
        (9_999, 9, Freshness::Fresh),
        (10_000, 10, Freshness::WhileRevalidate),
        (20_000, 20, Freshness::IfError),
        (110_000, 110, Freshness::Dead),
    ] {
        assert_eq!((page.age(now_ms), page.good_for(now_ms)), (age, good_for));
    }
    page.spare(25_000);
    assert_eq!(page.good_for(24_999), Freshness::WhileRevalidate);
    assert_eq!(page.good_for(25_000), Freshness::IfError);
    page.born_ms = -5_000;
    assert_eq!(page.kept(7_000).age_seconds, 12);
    assert_eq!(page.kept(7_000).ttl_seconds, -3);
    assert_eq!(page.kept(4_999).ttl_seconds, 1);
    assert_eq!(page.kept(5_000).ttl_seconds, -1);
}

#[test]
fn one_request_calls_the_handler_and_further_requests_follow() {
    let cache = cache();
    let place = place("/a");
    let joined = |asker: &PresentedRequest<'_>| cache.join(&place, asker, 0);
    let JoinOutcome::Lead(fill, None) = joined(&ANONYMOUS) else {
        panic!("the first request must call the handler")
    };
    assert!(matches!(joined(&ANONYMOUS), JoinOutcome::Follow(..)));
    // A request of another audience starts another call.
    let secure = PresentedRequest {
        secure: true,
        ..ANONYMOUS
    };
    assert!(matches!(joined(&secure), JoinOutcome::Lead(..)));
    let mut reader = FillReader::new(fill.clone());
    assert!(fill.is_wanted());
    fill.push(b"abc");
    let mut out = Vec::new();
    let mut cx = Context::from_waker(Waker::noop());
    let mut take = |reader: &mut FillReader, out: &mut Vec<u8>| {
        let mut taking = std::pin::pin!(reader.take(out, 2));
        std::future::Future::poll(taking.as_mut(), &mut cx)
    };
    assert!(take(&mut reader, &mut out).is_ready() && take(&mut reader, &mut out).is_ready());
    assert_eq!(out, b"abc");
    assert!(take(&mut reader, &mut out).is_pending());
    // A call invalidated meanwhile is neither stored nor joined.
    cache.invalidate(&place.key);
    assert!(matches!(joined(&ANONYMOUS), JoinOutcome::Lead(..)));
    let made = page("/a", 5, &cache.bytes);
    cache.settle(&fill, Some(&made), FillPhase::Done(made.clone()));
    assert!(find(&cache, "/a").is_none());
    assert_eq!(
        take(&mut reader, &mut out),
        std::task::Poll::Ready(FillRead::Bytes(2))
    );
    // Responses for one client alone are remembered for a while.
    cache.remember_pass(&place.key, &ANONYMOUS.kind(), 0);
    assert!(matches!(
        cache.join(&place, &ANONYMOUS, 9_999),
        JoinOutcome::Pass
    ));
    assert!(matches!(
        cache.join(&place, &secure, 9_999),
        JoinOutcome::Lead(..)
    ));
    assert!(matches!(
        cache.join(&place, &ANONYMOUS, 10_000),
        JoinOutcome::Follow(..)
    ));
}
