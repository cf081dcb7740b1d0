//! Bounds of `manager`: connections, logins, requests to the control plane, and snapshots.

/// Requests of the manager that wait for the control plane. A further request is answered with 503. The control
/// plane answers a request within milliseconds, except during a reload.
pub(crate) const MANAGER_REQUESTS_MAX: usize = 64;
/// Milliseconds between snapshots, 1 s. All requests to the manager in the same second share a snapshot.
pub(crate) const MANAGER_SNAPSHOT_MILLISECONDS: u64 = 1_000;
/// Bytes of a form, 16 KiB. A form for 249 ticked members has about 12 KiB, any other form some hundred bytes.
pub(crate) const MANAGER_FORM_BYTES_MAX: usize = 16 * 1024;
/// Bytes of a text of the manager, 1 KiB, from which the text is compressed. A smaller text and its fields fit one packet
/// anyway.
pub const MANAGER_GZIP_BYTES_MIN: usize = 1024;
/// Effort of the compression, from 0 to 9.
pub(crate) const MANAGER_GZIP_LEVEL: u32 = 1;
/// Fields of a form. The form for ticked members has a field for each member and 7 further fields, so an edit is for at
/// most 249 ticked members.
pub(crate) const MANAGER_FORM_FIELDS_MAX: usize = 256;
/// One-time secrets that are valid at the same time. A further secret replaces the oldest.
pub(crate) const MANAGER_SECRETS_MAX: usize = 8;
/// Seconds for which a one-time secret is valid, 5 min: time to copy a URL to another machine.
pub(crate) const MANAGER_SECRET_SECONDS: u64 = 5 * 60;
/// Sessions at the same time. A further session replaces the oldest.
pub(crate) const MANAGER_SESSIONS_MAX: usize = 32;
/// Seconds after which a session ends, 8 h: a working day.
pub(crate) const MANAGER_SESSION_SECONDS: u64 = 8 * 60 * 60;
/// Bytes of a page, 256 KiB, from which new numbers come less often: the page has some hundred members.
pub const MANAGER_LARGE_PAGE_BYTES: usize = 256 * 1024;
/// Milliseconds from new numbers of a large page to the next, 5 s: the interval of the samples for the charts. A
/// browser needs a part of a second to show thousands of changed rows, and the server some milliseconds to render them.
pub(crate) const MANAGER_LARGE_PAGE_MILLISECONDS: u64 = 5_000;
/// Balancers with a chart on the page. A chart has at most 6 KiB.
pub(crate) const MANAGER_BALANCER_CHARTS_MAX: usize = 24;
/// Streams of events at the same time, 64: the browser windows of a team. Clients without a login have
/// at most half. A further stream is answered with 503, and its page shows the state of the last load.
pub const MANAGER_STREAMS_MAX: usize = 64;
/// Bytes of large responses under way, 16 MiB: some plain pages of 2,000 members, or hundreds of compressed pages. A
/// further response is answered with 503, and takes no memory from the bodies of the sites.
pub(crate) const MANAGER_RESPONSE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Entries of the history of edits on the page, the newest first. A link leads to all entries.
pub(crate) const MANAGER_HISTORY_ENTRIES: usize = 20;
/// Requests under way on the page, the oldest first. A row takes about 300 bytes.
pub(crate) const MANAGER_ACTIVE_REQUESTS: usize = 50;
