//! Figures of one page load, computed from DevTools events in the same way as the browser's network panel.

use std::collections::{BTreeMap, BTreeSet};

use crate::browser::Event;

/// Figures of one page load.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PageLoad {
    /// Number of requests, including requests answered from the cache.
    pub requests: u64,
    /// Number of requests answered from the cache without asking the server.
    pub from_cache: u64,
    /// Bytes received over the network, including header sections.
    pub transferred_bytes: u64,
    /// Bytes of the resources after decompression.
    pub resource_bytes: u64,
    /// Milliseconds from the start of the navigation until the document was parsed.
    pub dom_content_loaded_ms: f64,
    /// Milliseconds from the start of the navigation until the load event.
    pub load_ms: f64,
    /// Milliseconds from the start of the navigation until the end of the last transfer.
    pub finish_ms: f64,
    /// Failed requests: URL, and error or status.
    pub failures: Vec<String>,
}

/// Accumulates the events of a page load in progress.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    loader: String,
    begun: f64,
    document: Option<f64>,
    loaded: Option<f64>,
    finished: f64,
    idle: bool,
    requests: BTreeMap<String, Request>,
    under_way: BTreeSet<String>,
}

#[derive(Debug, Default)]
struct Request {
    url: String,
    from_cache: bool,
    transferred: f64,
    resource: f64,
    failure: Option<String>,
}

impl Counter {
    /// Processes an event of the tab. Returns the figures when the page is loaded and the network is idle.
    pub(crate) fn take(&mut self, event: &Event) -> Option<PageLoad> {
        let id = event.params["requestId"].as_str().unwrap_or_default();
        let time = event.params["timestamp"].as_f64().unwrap_or_default();
        match event.method.as_str() {
            "Network.requestWillBeSent" => self.sent(id, time, event),
            "Network.loadingFinished" | "Network.loadingFailed" => self.ended(id, time, event),
            "Page.domContentEventFired" => self.document = self.since_begun(time),
            "Page.loadEventFired" => self.loaded = self.since_begun(time),
            "Page.lifecycleEvent" => {
                let own = event.params["loaderId"] == self.loader.as_str();
                self.idle |= own && event.params["name"] == "networkIdle";
            }
            _ => self.learned(id, event),
        }
        let done = self.idle && self.loaded.is_some() && self.under_way.is_empty();
        done.then(|| self.load())
    }

    fn sent(&mut self, id: &str, time: f64, event: &Event) {
        let url = event.params["request"]["url"].as_str().unwrap_or_default();
        // Inlined data URLs are not requests.
        if url.starts_with("data:") {
            return;
        }
        if self.loader.is_empty() {
            self.loader = event.params["loaderId"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            self.begun = time;
        }
        self.under_way.insert(id.to_owned());
        self.requests.entry(id.to_owned()).or_default().url = url.to_owned();
    }

    fn learned(&mut self, id: &str, event: &Event) {
        let Some(request) = self.requests.get_mut(id) else {
            return;
        };
        match event.method.as_str() {
            "Network.requestServedFromCache" => request.from_cache = true,
            "Network.responseReceived" => {
                let response = &event.params["response"];
                request.from_cache |= response["fromDiskCache"] == true;
                let status = response["status"].as_u64().unwrap_or_default();
                if status >= 400 {
                    request.failure = Some(format!("status {status}"));
                }
            }
            "Network.dataReceived" => {
                request.resource += event.params["dataLength"].as_f64().unwrap_or_default();
            }
            _ => {}
        }
    }

    fn ended(&mut self, id: &str, time: f64, event: &Event) {
        let Some(request) = self.requests.get_mut(id) else {
            return;
        };
        if event.method == "Network.loadingFailed" {
            // The status is kept, because a status is more precise than the error for its discarded
            // content.
            let error = event.params["errorText"].as_str().map(str::to_owned);
            request.failure = request.failure.take().or(error);
        } else if !request.from_cache {
            request.transferred = event.params["encodedDataLength"]
                .as_f64()
                .unwrap_or_default();
        }
        self.under_way.remove(id);
        self.finished = self.finished.max(time);
    }

    /// Converts a timestamp to milliseconds since the start of the navigation. Returns `None` for events of
    /// the preceding page.
    fn since_begun(&self, time: f64) -> Option<f64> {
        (!self.loader.is_empty()).then_some((time - self.begun) * 1e3)
    }

    fn load(&self) -> PageLoad {
        let requests = || self.requests.values();
        let failure = |request: &Request| {
            request
                .failure
                .as_ref()
                .map(|failure| format!("{}: {failure}", request.url))
        };
        PageLoad {
            requests: self.requests.len() as u64,
            from_cache: requests().filter(|request| request.from_cache).count() as u64,
            transferred_bytes: requests().map(|request| request.transferred).sum::<f64>() as u64,
            resource_bytes: requests().map(|request| request.resource).sum::<f64>() as u64,
            dom_content_loaded_ms: self.document.unwrap_or_default(),
            load_ms: self.loaded.unwrap_or_default(),
            finish_ms: (self.finished - self.begun) * 1e3,
            failures: requests().filter_map(failure).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn feed(counter: &mut Counter, method: &str, params: Value) -> Option<PageLoad> {
        counter.take(&Event {
            session: "s".into(),
            method: method.into(),
            params,
        })
    }

    #[test]
    fn a_page_with_a_cached_font_and_a_missing_picture_is_counted() {
        let mut counter = Counter::default();
        let events = [
            ("Page.loadEventFired", json!({"timestamp": 1.0})),
            (
                "Network.requestWillBeSent",
                json!({"requestId": "a", "loaderId": "L", "timestamp": 10.0, "request": {"url": "https://x/"}}),
            ),
            (
                "Network.requestWillBeSent",
                json!({"requestId": "b", "loaderId": "L", "timestamp": 10.01, "request": {"url": "https://x/f"}}),
            ),
            (
                "Network.requestWillBeSent",
                json!({"requestId": "c", "loaderId": "L", "timestamp": 10.01, "request": {"url": "https://x/p"}}),
            ),
            (
                "Network.requestWillBeSent",
                json!({"requestId": "d", "loaderId": "L", "timestamp": 10.01, "request": {"url": "data:,x"}}),
            ),
            ("Network.requestServedFromCache", json!({"requestId": "b"})),
            (
                "Network.dataReceived",
                json!({"requestId": "b", "dataLength": 48000}),
            ),
            (
                "Network.responseReceived",
                json!({"requestId": "c", "response": {"status": 404}}),
            ),
            (
                "Network.dataReceived",
                json!({"requestId": "a", "dataLength": 5100}),
            ),
            (
                "Network.loadingFinished",
                json!({"requestId": "a", "timestamp": 10.02, "encodedDataLength": 2300}),
            ),
            (
                "Network.loadingFinished",
                json!({"requestId": "b", "timestamp": 10.03, "encodedDataLength": 48000}),
            ),
            ("Page.domContentEventFired", json!({"timestamp": 10.04})),
            (
                "Page.lifecycleEvent",
                json!({"loaderId": "L", "name": "networkIdle"}),
            ),
            ("Page.loadEventFired", json!({"timestamp": 10.06})),
        ];
        for (method, params) in events {
            assert_eq!(feed(&mut counter, method, params), None, "{method}");
        }
        let last = json!({"requestId": "c", "timestamp": 10.05, "errorText": "net::ERR_ABORTED"});
        let load = feed(&mut counter, "Network.loadingFailed", last).unwrap();
        assert_eq!((load.requests, load.from_cache), (3, 1));
        assert_eq!(
            (load.transferred_bytes, load.resource_bytes),
            (2300, 53_100)
        );
        assert_eq!(load.failures, ["https://x/p: status 404"]);
        let rounded = [load.dom_content_loaded_ms, load.load_ms, load.finish_ms].map(f64::round);
        assert_eq!(rounded, [40.0, 60.0, 50.0]);
    }
}
