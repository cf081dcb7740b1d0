//! Signal handling. The first SIGINT, SIGTERM or SIGHUP ends the run: all processes are stopped and the
//! figures are kept. A second signal ends the kit at once, after a last attempt to clean up, and the guard
//! processes end the servers.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Sets `stop` on the first SIGINT, SIGTERM or SIGHUP. Calls `leave` and exits on the second.
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
        eprintln!("\nstopping: the figures so far are kept (interrupt again to exit at once)");
    }
}
