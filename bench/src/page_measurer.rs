//! Measurement of pages in the browser of a run. One browser serves a whole run. Each turn has a new browser context,
//! where the page is loaded with an empty cache and then reloaded.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde_json::json;

use crate::browser::{Browser, Error, Options, Tab};
use crate::page_load::{Counter, PageLoad};
use crate::result::Round;
use crate::site::Site;

/// The measured page: as large as the page of the source document, with a style sheet, a script and a font.
pub const PATH: &str = "/journal/2026/04/05.html";

/// A browser that loads the measured page.
#[derive(Default)]
pub struct PageMeasurer {
    browser: Option<Browser>,
    cached: Option<Result<Round, Error>>,
}

impl PageMeasurer {
    /// Loads the page with an empty cache, and reloads the page for [`PageMeasurer::cached`].
    pub fn cold(&mut self, site: &Site, address: SocketAddr) -> Result<Round, Error> {
        let browser = match &mut self.browser {
            Some(browser) => browser,
            none => none.insert(start(site)?),
        };
        // The certificate is valid for `localhost`, regardless of the loopback address.
        let url = format!("https://localhost:{}{PATH}", address.port());
        // The first load of a browser includes its one-time initialization and is discarded.
        load(&mut browser.tab()?, &url)?;
        let mut tab = browser.tab()?;
        let cold = load(&mut tab, &url)?;
        let cached = reload(&mut tab, &url)?;
        self.cached = Some(round(&cached, &url));
        round(&cold, &url)
    }

    /// Returns the round of the reload, once.
    pub fn cached(&mut self) -> Option<Result<Round, Error>> {
        self.cached.take()
    }
}

fn start(site: &Site) -> Result<Browser, Error> {
    copy_resources_to_root(&site.root)?;
    let authority = Some(site.certificate.authority_pem.as_str());
    Browser::start(&Options {
        authority,
        hosts: &[],
    })
}

/// Loads a page for the first time in a tab.
pub fn load(tab: &mut Tab, url: &str) -> Result<PageLoad, Error> {
    tab.forget_events();
    let navigation = tab.command("Page.navigate", json!({"url": url}))?;
    if let Some(message) = navigation["errorText"].as_str() {
        return Err(Error::Page {
            url: url.to_owned(),
            message: message.to_owned(),
        });
    }
    count(tab, url)
}

/// Reloads a page as a returning visitor does: fresh resources come from the cache without a request.
pub fn reload(tab: &mut Tab, url: &str) -> Result<PageLoad, Error> {
    tab.forget_events();
    tab.command("Page.reload", json!({"ignoreCache": false}))?;
    count(tab, url)
}

fn count(tab: &mut Tab, url: &str) -> Result<PageLoad, Error> {
    let mut counter = Counter::default();
    tab.watch(url, |event| counter.take(event))
}

/// Converts a page load to a round. A page with a missing part is an error, because its time would be
/// meaningless.
fn round(load: &PageLoad, url: &str) -> Result<Round, Error> {
    if !load.failures.is_empty() {
        return Err(Error::Page {
            url: url.to_owned(),
            message: format!("the page is incomplete: {}", load.failures.join("; ")),
        });
    }
    let extra = [
        ("requests", load.requests as f64),
        ("from_cache", load.from_cache as f64),
        ("transferred_bytes", load.transferred_bytes as f64),
        ("resource_bytes", load.resource_bytes as f64),
        ("dom_content_loaded_ms", load.dom_content_loaded_ms),
        ("load_ms", load.load_ms),
        ("finish_ms", load.finish_ms),
    ];
    Ok(Round {
        driver: "chromium".to_owned(),
        command: url.to_owned(),
        seconds: load.finish_ms.max(load.load_ms) / 1e3,
        requests: load.requests,
        bytes: load.transferred_bytes,
        extra: extra.map(|(key, value)| (key.to_owned(), value)).into(),
        ..Round::default()
    })
}

/// Copies the resources of the journal, referenced by absolute paths, to the root. All files get an old
/// modification time, because a browser derives the freshness lifetime from a tenth of the file's age.
fn copy_resources_to_root(root: &Path) -> io::Result<()> {
    let journal = root.join("journal");
    for name in [
        "journal.css",
        "journal.js",
        "fonts/vollkorn.woff2",
        "favicon.svg",
        "favicon.ico",
        "cupboard.svg",
    ] {
        let (from, to) = (journal.join(name), root.join(name));
        if let Some(folder) = to.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::copy(from, &to)?;
        age(&to)?;
    }
    age(&root.join(PATH.trim_start_matches('/')))
}

fn age(file: &Path) -> io::Result<()> {
    File::options()
        .write(true)
        .open(file)?
        .set_modified(SystemTime::now() - AGE)
}

/// Age of the files: 200 days.
const AGE: Duration = Duration::from_secs(200 * 86_400);
