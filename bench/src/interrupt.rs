//! Ctrl-C, and what else asks us to end: the first time what was measured is kept and every process
//! stopped, the second time we go at once (the servers' guard ends them), with a last try to leave
//! nothing behind.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Sets `stop` on the first SIGINT, SIGTERM or SIGHUP; on the second calls `leave` and ends.
pub fn watch(stop: &'static AtomicBool, leave: fn()) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    let _entered = runtime.enter();
    let signals = [
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
        signal(SignalKind::hangup())?,
    ];
    drop(_entered);
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            runtime.block_on(listen(signals, stop, leave));
        })?;
    Ok(())
}

async fn listen(
    [mut interrupt, mut terminate, mut hangup]: [Signal; 3],
    stop: &AtomicBool,
    leave: fn(),
) {
    loop {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
        if stop.swap(true, Ordering::Relaxed) {
            leave();
            std::process::exit(i32::from(crate::cli::INTERRUPTED));
        }
        eprintln!("\nending: what was measured is kept (once more to leave at once)");
    }
}
