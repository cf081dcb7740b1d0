//! End-to-end tests of the suite `page` with a real server and a real browser: the browser trusts the test
//! certificate, and the second load comes from the cache.

// The whole file is test code, including helpers.
#![allow(clippy::unwrap_used)]

mod support;

use anthill_bench::browser::Options;
use anthill_bench::catalogue::{Catalogue, Entry};
use anthill_bench::contender::{Contender, Setup};
use anthill_bench::page_measurer::{self, PageMeasurer};
use anthill_bench::site::Site;

/// Returns the first installed server.
fn server(catalogue: &Catalogue) -> &Entry {
    let names = ["anthill", "nginx", "lighttpd", "apache"];
    let known = names
        .iter()
        .filter_map(|name| catalogue.contender(name).ok());
    let mut here = known.filter(|entry| entry.find().is_ok());
    here.next()
        .unwrap_or_else(|| panic!("none of {names:?} is installed: apt-get install nginx-light"))
}

#[test]
fn the_second_load_comes_from_the_cache() {
    if support::browser(&Options::default()).is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let site = Site::create(folder.path(), &[]).unwrap();
    let catalogue = Catalogue::load(None).unwrap();
    let work = folder.path().join("server");
    let setup = Setup {
        tls: true,
        ..Setup::new(&site, &work)
    };
    let contender = Contender::start(server(&catalogue), &setup).unwrap_or_else(|e| panic!("{e}"));
    let mut measurer = PageMeasurer::default();
    for _ in 0..2 {
        let cold = measurer
            .cold(&site, contender.address(true))
            .unwrap_or_else(|e| panic!("{e}"));
        let cached = measurer.cached().unwrap().unwrap_or_else(|e| panic!("{e}"));
        assert!(measurer.cached().is_none(), "each load is reported once");
        assert_eq!((cold.failed(), cached.failed()), (0, 0));
        let figures = (&cold.extra, &cached.extra);
        // The document, its style sheet, script and font.
        assert!(cold.extra["requests"] >= 4.0, "{figures:?}");
        assert_eq!(cold.extra["from_cache"], 0.0, "{figures:?}");
        assert!(cold.extra["transferred_bytes"] > 50_000.0, "{figures:?}");
        assert!(cold.extra["resource_bytes"] > 50_000.0, "{figures:?}");
        assert!(cached.extra["from_cache"] >= 3.0, "{figures:?}");
        assert!(
            cached.extra["transferred_bytes"] < 6_500.0,
            "all but the document is cached: {figures:?}"
        );
        for load in [&cold, &cached] {
            let (parsed, loaded) = (load.extra["dom_content_loaded_ms"], load.extra["load_ms"]);
            assert!(0.0 < parsed && parsed <= loaded, "{figures:?}");
        }
    }
}

#[test]
fn without_a_trusted_authority_the_browser_refuses() {
    let Some(mut browser) = support::browser(&Options::default()) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let site = Site::create(folder.path(), &[]).unwrap();
    let catalogue = Catalogue::load(None).unwrap();
    let work = folder.path().join("server");
    let setup = Setup {
        tls: true,
        ..Setup::new(&site, &work)
    };
    let contender = Contender::start(server(&catalogue), &setup).unwrap_or_else(|e| panic!("{e}"));
    let url = format!(
        "https://localhost:{}{}",
        contender.address(true).port(),
        page_measurer::PATH
    );
    let refused = page_measurer::load(&mut browser.tab().unwrap(), &url)
        .unwrap_err()
        .to_string();
    assert!(refused.contains("ERR_CERT_AUTHORITY_INVALID"), "{refused}");
}
