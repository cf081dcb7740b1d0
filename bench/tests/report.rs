//! Reports of sample runs, opened in headless Chromium on a wide and on a narrow screen: the figures must
//! be visible to a reader.

// The whole file is test code, including helpers.
#![allow(clippy::unwrap_used)]

mod support;

use std::path::{Path, PathBuf};

use anthill_bench::browser::{Options, Tab};
use anthill_bench::report::{self, Format, Published};
use anthill_bench::result::Run;
use serde_json::json;

/// Returns the sample result of a name, with invented figures.
fn sample(name: &str) -> Run {
    Run::read(&samples().join(format!("sample-{name}.json"))).unwrap()
}

fn samples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/samples")
}

/// Opens a report of the runs in a browser of the given width and passes the tab to `ask`.
fn with_page(runs: &[Run], width: u32, ask: impl FnOnce(&mut Tab)) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.html");
    std::fs::write(&file, report::report(runs, Format::Html, Published::Shown)).unwrap();
    let Some(mut browser) = support::browser(&Options::default()) else {
        return;
    };
    let mut tab = browser.tab().unwrap();
    let screen =
        json!({"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500});
    tab.command("Emulation.setDeviceMetricsOverride", screen)
        .unwrap();
    tab.open(&format!("file://{}", file.display())).unwrap();
    ask(&mut tab);
}

fn text(tab: &mut Tab, expression: &str) -> String {
    tab.evaluate(expression)
        .unwrap()
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

fn number(tab: &mut Tab, expression: &str) -> f64 {
    tab.evaluate(expression).unwrap().as_f64().unwrap()
}

#[test]
fn the_bars_of_hello_have_names_figures_and_whiskers() {
    with_page(&[sample("hello")], 1280, |tab| {
        let rows = "[...document.querySelectorAll('figure.bars')[0].querySelectorAll('.row')]";
        assert_eq!(number(tab, &format!("{rows}.length")), 10.0);
        let names = text(
            tab,
            &format!("{rows}.map(row => row.querySelector('.name').textContent).join()"),
        );
        assert!(
            names.starts_with("nginx,anthill,Go fasthttp,Go net/http,Node.js"),
            "{names}"
        );
        let ours = text(
            tab,
            "document.querySelector('.row.ours .value').textContent",
        );
        assert!(ours.starts_with("4") && ours.contains(','), "{ours}");
        assert_eq!(
            number(
                tab,
                &format!("{rows}.filter(row => row.querySelector('.whisker')).length")
            ),
            10.0
        );
        // The published rate of 002 is below the bar, and marked as published.
        let published = text(
            tab,
            &format!("{rows}[0].querySelector('.published-value').textContent"),
        );
        assert_eq!(published, "351.5");
        let note = text(tab, "document.querySelector('.published-note').textContent");
        assert!(
            note.contains("published, other machine") && note.contains("Raspberry Pi"),
            "{note}"
        );
        // The widths of the bars on the screen are proportional to the figures.
        let widths =
            format!("{rows}.map(row => row.querySelector('.fill').getBoundingClientRect().width)");
        let ratio = number(tab, &format!("(w => w[4] / w[0])({widths})"));
        assert!((0.15..0.25).contains(&ratio), "{ratio}");
    });
}

#[test]
fn texts_of_results_are_never_markup() {
    let mut run = sample("hello");
    run.title = "<img src=x onerror=\"document.title='broken'\">".into();
    run.contenders[0].title = "</title><script>document.title='broken'</script>".into();
    with_page(&[run], 1280, |tab| {
        assert_eq!(
            number(
                tab,
                "document.querySelectorAll('script, img, main b').length"
            ),
            0.0
        );
        assert!(text(tab, "document.title").starts_with("<img"));
        assert!(
            text(tab, "document.body.textContent")
                .contains("<script>alert(1)</script> & \"quotes\"")
        );
    });
}

#[test]
fn machines_of_a_journal_are_shown_side_by_side() {
    let runs = ["journal-desktop", "journal-board", "journal-tiny"].map(sample);
    with_page(&runs, 1280, |tab| {
        let section = text(tab, "document.querySelector('main section').innerText");
        for figure in [
            "sample desktop",
            "sample tiny board",
            "£14.40",
            "£2,500",
            "360,426",
            "85 °C",
            "901,065,600",
        ] {
            assert!(section.contains(figure), "{figure}: {section}");
        }
        let page = text(tab, "document.body.textContent");
        for words in [
            "variance",
            "requests/day per £",
            "Latency by percentile",
            "within the noise",
        ] {
            assert!(page.contains(words), "{words}");
        }
        assert!(
            number(
                tab,
                "document.querySelectorAll('figure.curves polyline').length"
            ) >= 12.0
        );
    });
}

#[test]
fn every_sample_fits_a_narrow_screen() {
    for name in [
        "hello",
        "journal-desktop",
        "matrix",
        "growth",
        "dynamic",
        "page",
        "handshake",
        "proxy",
    ] {
        with_page(&[sample(name)], 390, |tab| {
            tab.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
                .unwrap();
            assert_eq!(
                number(tab, "document.documentElement.scrollWidth"),
                390.0,
                "{name}"
            );
            // Texts outside the screen, except for texts in a scrolling box.
            let outside = "[...document.querySelectorAll('figure text, .name, p, h1, h2, h3, li, summary')]\
                .filter(e => !e.closest('.scroll') && getComputedStyle(e).display != 'none')\
                .filter(e => { const r = e.getBoundingClientRect(); return r.left < -1 || r.right > 391 })\
                .map(e => e.textContent).join('|')";
            assert_eq!(text(tab, outside), "", "{name}");
            assert!(
                !text(tab, "document.body.innerHTML").contains("NaN"),
                "{name}"
            );
        });
    }
}

/// A wide screen shows a wide table completely. A narrow screen shows a shadow at the right edge, in light
/// and dark mode, and the first column stays visible.
#[test]
fn a_wide_table_uses_the_window_or_marks_hidden_columns() {
    const WIDEST: &str = "[...document.querySelectorAll('.scroll')]\
        .sort((a, b) => b.scrollWidth - a.scrollWidth)[0]";
    with_page(&[sample("hello")], 1900, |tab| {
        let wide = number(tab, &format!("{WIDEST}.clientWidth"));
        assert!(wide > 1088.0, "wider than the text: {wide}");
        assert_eq!(number(tab, &format!("{WIDEST}.scrollWidth")), wide);
        let page = "document.documentElement";
        let beyond = number(tab, &format!("{page}.scrollWidth - {page}.clientWidth"));
        assert_eq!(beyond, 0.0, "and the page doesn't scroll");
    });
    for scheme in ["light", "dark"] {
        with_page(&[sample("hello")], 390, |tab| {
            let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
            tab.command("Emulation.setEmulatedMedia", media).unwrap();
            let hidden = format!("{WIDEST}.scrollWidth - {WIDEST}.clientWidth");
            assert!(number(tab, &hidden) > 0.0, "the test needs hidden columns");
            let style = format!("getComputedStyle({WIDEST})");
            let shadow = text(tab, &format!("{style}.backgroundAttachment"));
            assert!(shadow.contains("local, scroll"), "{shadow}");
            let name = format!("{WIDEST}.querySelector('tbody th').getBoundingClientRect().left");
            let before = number(tab, &name);
            tab.evaluate(&format!("{WIDEST}.scrollLeft = 1000"))
                .unwrap();
            assert_eq!(number(tab, &name), before, "the names stay");
        });
    }
}

#[test]
fn the_groups_of_the_matrix_and_the_curves_of_growth_are_drawn() {
    with_page(&[sample("matrix")], 1280, |tab| {
        let groups = "document.querySelectorAll('figure.groups')[0]";
        let bars = number(
            tab,
            &format!("{groups}.querySelectorAll('rect.fill').length"),
        );
        assert_eq!(bars, 15.0, "five sizes, three servers");
        let sizes = text(
            tab,
            &format!("[...{groups}.querySelectorAll('.tick')].map(t => t.textContent).join()"),
        );
        assert_eq!(sizes, "1 KB,16 KB,64 KB,256 KB,512 KB");
        assert!(text(tab, "document.body.textContent").contains("Requests/s, extrapolated"));
        assert!(text(tab, "document.body.textContent").contains("AWS c7g.large"));
    });
    with_page(&[sample("growth")], 1280, |tab| {
        let captions = text(
            tab,
            "[...document.querySelectorAll('figcaption')].map(c => c.textContent).join('|')",
        );
        for caption in [
            "Requests/s (more is better) by users: 4 nodes",
            "by nodes: 800 users",
        ] {
            assert!(captions.contains(caption), "{caption}: {captions}");
        }
    });
}

#[test]
fn balancers_are_compared_over_all_loads() {
    with_page(&[sample("proxy")], 1280, |tab| {
        let rows = |caption: &str| {
            let tables = "[...document.querySelectorAll('table')]";
            let of = format!("t => t.caption && t.caption.textContent.startsWith('{caption}')");
            format!("{tables}.find({of}).tBodies[0].rows")
        };
        let count = |caption: &str| format!("{}.length", rows(caption));
        assert_eq!(number(tab, &count("CPU per request")), 7.0);
        let added = "added 99 % latency";
        assert_eq!(number(tab, &count(added)), 1.0, "one load has a fixed rate");
        let row = text(tab, &format!("{}[0].innerText", rows(added)));
        assert!(
            row.contains("1,000 requests/s") && row.contains("540 µs"),
            "{row}"
        );
        let headings = "[...document.querySelectorAll('h2, h3')].map(h => h.textContent).join('|')";
        let headings = text(tab, headings);
        assert!(
            headings.contains("HTTP/2, 5,100 bytes, 20 connections × 10 streams"),
            "{headings}"
        );
    });
}

#[test]
fn a_browser_page_has_its_cold_and_cached_columns() {
    with_page(&[sample("page")], 1280, |tab| {
        let head = text(tab, "document.querySelector('main thead').innerText");
        assert!(
            head.contains("anthill, cold") && head.contains("nginx, cached"),
            "{head}"
        );
        let table = text(tab, "document.querySelector('main tbody').innerText");
        assert!(
            table.contains("DOMContentLoaded") && table.contains("61.7 kB"),
            "{table}"
        );
    });
}

#[test]
fn markdown_has_the_same_figures() {
    let text = report::report(&[sample("hello")], Format::Markdown, Published::Shown);
    assert!(text.contains("■■■■■■■■■■"), "{text}");
    assert!(
        text.lines()
            .any(|line| line.starts_with("| **anthill (0.1.0)**")),
        "{text}"
    );
    assert!(!text.contains("<script>"), "{text}");
    let failed = report::report(&[sample("dynamic")], Format::Markdown, Published::Hidden);
    assert!(
        failed.contains(
            "**Note:** Apache event, complex script, 25 users: did not start: (98)Address"
        ),
        "{failed}"
    );
    assert!(
        failed.contains("The run was interrupted or a part of it failed"),
        "{failed}"
    );
}

/// A failed contender is marked in the tables and charts of every suite.
#[test]
fn a_partial_failure_is_marked_everywhere() {
    let failed = |name: &str, contender: &str| {
        let mut run = sample(name);
        let cells = run.cells.iter_mut();
        for cell in cells.filter(|cell| cell.contender == contender) {
            cell.failure = Some("the server ended".to_owned());
        }
        run
    };
    let html = |runs: &[Run]| report::report(runs, Format::Html, Published::Shown);
    for (runs, mark) in [
        (
            vec![failed("page", "nginx")],
            "nginx (failed in part), cold",
        ),
        // The mark is in the legend and in the tooltip of a point.
        (
            vec![failed("growth", "apache")],
            "Apache event (failed in part), 200 users",
        ),
        (
            vec![failed("matrix", "lighttpd")],
            "lighttpd (failed in part)</",
        ),
        (
            vec![failed("journal-desktop", "anthill"), sample("journal-tiny")],
            "sample desktop (failed in part)",
        ),
    ] {
        let page = html(&runs);
        assert!(page.contains(mark), "{}: no {mark}", runs[0].suite);
    }
    let published = html(&[sample("hello")])
        .matches("class=\"published")
        .count();
    let page = html(&[failed("hello", "nginx")]);
    assert!(page.contains("nginx (failed in part)"));
    // The published figure is still shown.
    assert_eq!(page.matches("class=\"published").count(), published);
}
