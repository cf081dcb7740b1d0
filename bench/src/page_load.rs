//! What loading a page took, counted from the events of the browser's DevTools as its network panel
//! counts them.

use std::collections::{BTreeMap, BTreeSet};

use crate::browser::Event;

/// A page that was loaded.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PageLoad {
    /// Requests, those too that the cache answered.
    pub requests: u64,
    /// Those that the cache answered without asking the server.
    pub from_cache: u64,
    /// Bytes that came over the network, heads too.
    pub transferred_bytes: u64,
    /// Bytes of the resources, unpacked.
    pub resource_bytes: u64,
    /// From the start of the navigation until the document was parsed, ms.
    pub dom_content_loaded_ms: f64,
    /// Until everything that it names was there, ms.
    pub load_ms: f64,
    /// Until the end of the last transfer, ms.
    pub finish_ms: f64,
    /// What failed: address and why, or its status.
    pub failures: Vec<String>,
}

/// Counts a load while it happens.
#[derive(Debug, Default)]
pub struct Counter {
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
    /// Takes an event of the tab; the load once it is whole and the network is idle.
    pub fn take(&mut self, event: &Event) -> Option<PageLoad> {
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
        // What a page has in itself is no request.
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
            // A status says more than that what came with it was dropped.
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

    /// Milliseconds; `None` of what still belongs to the page before.
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
    fn a_page_with_a_cached_font_and_a_missing_picture() {
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
