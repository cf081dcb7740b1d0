//! Bounds of `acme`: requests to a directory and the schedule of orders.

// Requests to a directory

/// Bytes of the content of a directory's response, 256 KiB. A certificate with its chain has 4 to 8
/// KiB. A longer response is an error.
pub(crate) const ACME_RESPONSE_BYTES_MAX: usize = 256 * 1024;
/// Bytes of the head of a directory's response, 16 KiB. A longer head is an error.
pub(crate) const ACME_HEAD_BYTES_MAX: usize = 16 * 1024;
/// Field lines in the head of a directory's response. Public directories send about 15. A head with more
/// lines is an error.
pub(crate) const ACME_FIELDS_MAX: usize = 100;
/// Seconds for one request to a directory, from the look-up of the name to the last byte. A slower
/// request fails.
pub(crate) const ACME_CALL_SECONDS: u64 = 30;
/// Seconds to connect to one address of a directory, within [`ACME_CALL_SECONDS`]. Then the next
/// address is tried.
pub(crate) const ACME_CONNECT_SECONDS: u64 = 8;
/// Attempts of one request that a directory refuses because of the nonce. A restarted directory refuses
/// all earlier nonces, and a test directory refuses every second nonce. After the last attempt the
/// request fails.
pub(crate) const ACME_NONCE_TRIES: usize = 20;
/// Seconds that a directory may take to validate a name or to issue a certificate. Beyond the bound,
/// the attempt fails.
pub(crate) const ACME_VALIDATION_SECONDS: u64 = 300;
/// Longest pause between two polls of a directory, regardless of the directory's Retry-After.
pub(crate) const ACME_POLL_SECONDS_MAX: u64 = 60;
/// Characters of a directory's problem document written to the log. A longer text is cut.
pub(crate) const ACME_PROBLEM_CHARS_MAX: usize = 500;
/// Bytes of a DNS hook's output kept for the log, 4 KiB. The beginning of longer output is dropped.
pub(crate) const ACME_HOOK_OUTPUT_BYTES_MAX: usize = 4 * 1024;

// Schedule of orders

/// Orders begun for one site in an hour. Public directories allow 5 failed validations. Further orders
/// wait.
pub(crate) const ACME_ORDERS_PER_HOUR: usize = 4;
/// Orders begun for one site in a day, regardless of the outcome. Further orders wait.
pub(crate) const ACME_ORDERS_PER_DAY: usize = 12;
/// Pause after a first failure. Each further pause is four times as long, up to
/// [`ACME_RETRY_SECONDS_MAX`].
pub(crate) const ACME_RETRY_SECONDS: u64 = 60;
/// Longest pause after failures.
pub(crate) const ACME_RETRY_SECONDS_MAX: u64 = 86_400;
/// Times that a begun order is resumed without a pause. Further failures count as failures of the
/// order.
pub(crate) const ACME_RESUMES_MAX: u64 = 5;
/// Shortest interval between two requests for renewal information, regardless of Retry-After (RFC 9773
/// §4.3.1).
pub(crate) const ACME_RENEWAL_INFO_SECONDS_MIN: u64 = 3_600;
/// Longest interval between two requests for renewal information, regardless of Retry-After (RFC 9773
/// §4.3.1).
pub(crate) const ACME_RENEWAL_INFO_SECONDS_MAX: u64 = 86_400;
