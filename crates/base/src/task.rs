//! Spawning of asynchronous tasks as boxed futures, on this thread or on the runtime's threads.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// Runs `future` on this thread from the runtime's next turn on. The caller must be within a `LocalSet`.
///
/// The compiler generates the runtime's code for a task once for each type of future, 3 KB each time. Boxed
/// futures share one type.
pub fn spawn_local(future: impl Future<Output = ()> + 'static) {
    spawn_boxed(Box::pin(future));
}

/// Runs an already boxed future on this thread. The caller must be within a `LocalSet`.
pub fn spawn_boxed(future: Pin<Box<dyn Future<Output = ()>>>) {
    drop(tokio::task::spawn_local(future));
}

/// Runs `future` on the runtime's threads. The future is boxed so that all futures share one type and
/// one copy of the runtime's code, 3 KB.
pub fn spawn(future: impl Future<Output = ()> + Send + 'static) {
    let future: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(future);
    drop(tokio::spawn(future));
}

/// Runs `work` on this thread for at most `timeout`. The caller must be within a `LocalSet`.
pub fn spawn_local_with_timeout(work: impl Future<Output = ()> + 'static, timeout: Duration) {
    spawn_local(async move {
        let _ = tokio::time::timeout(timeout, work).await;
    });
}
