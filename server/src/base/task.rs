//! Tasks that run beside their maker, on the same thread.

use std::future::Future;
use std::pin::Pin;

/// Runs `future` on this thread from the runtime's next turn on; needs a `LocalSet` around it.
///
/// The runtime's code for a task is compiled for each type of future, 3 KB each. Behind a box all
/// futures are of one type.
pub fn spawn_local(future: impl Future<Output = ()> + 'static) {
    spawn_boxed(Box::pin(future));
}

/// Runs a future that is in a box already, as [`spawn_local`] does.
pub fn spawn_boxed(future: Pin<Box<dyn Future<Output = ()>>>) {
    drop(tokio::task::spawn_local(future));
}

/// Runs `future` on the threads of the runtime, for the same reason behind a box.
pub fn spawn(future: impl Future<Output = ()> + Send + 'static) {
    let future: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(future);
    drop(tokio::spawn(future));
}
