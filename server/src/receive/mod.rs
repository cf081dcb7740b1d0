//! `anthill receive`: receives releases from a publisher, on standard input and output, mostly over the publisher's own
//! ssh. `wire::receive_frame` describes the protocol.
//!
//! A publisher may send anything, so each size has a bound, a content is moved to the store only after its digest was
//! compared, and a pointer only after all contents of its release are in the store.

mod error;
mod idle_streams;
mod incoming;
mod incoming_manifest;
pub(crate) mod limits;
mod options;
mod rights;
mod session;
mod upload;

#[cfg(test)]
mod tests;

pub use error::ReceiveError;
pub use idle_streams::{IdleInput, IdleOutput};
pub use options::ReceiveOptions;
pub use rights::Rights;

use release::receive_frame::FrameKind;
use release::store::{FrameReader, FrameWriter, QuotaAccount, StoreWriter};
use session::{Session, SessionResources};
use std::io::{self, BufWriter, Read, Write};

/// Answers the requests of one publisher until the stream ends. An error has been sent to the publisher as well, as far
/// as the stream permits.
pub(crate) fn receive(
    options: &ReceiveOptions,
    input: impl Read,
    output: impl Write,
) -> Result<(), ReceiveError> {
    let store = match StoreWriter::open(&options.store) {
        Ok(store) => store,
        Err(error) => {
            let error = ReceiveError::from(error);
            report(&mut FrameWriter::new(output), &error);
            return Err(error);
        }
    };
    let output = SweepableOutput {
        output,
        store: &store,
    };
    let mut output = FrameWriter::new(BufWriter::new(output));
    let done = QuotaAccount::begin(&store, options.draft_owner(), options.quota)
        .map_err(ReceiveError::from)
        .and_then(|account| {
            let resources = SessionResources {
                options,
                store: &store,
                account: &account,
            };
            let done = Session::new(resources, FrameReader::new(input), &mut output).run();
            // The completed contents of a connection that broke stay for the next one.
            store.sync().map_err(ReceiveError::from).and(done)
        });
    if let Err(error) = &done {
        report(&mut output, error);
    }
    done
}

/// Sends the reason of a failure. The publisher may be gone; the caller reports the first error.
fn report(output: &mut FrameWriter<impl Write>, error: &ReceiveError) {
    let _ = output.write(FrameKind::Failed, error.to_string().as_bytes());
    let _ = output.flush();
}

/// Output of a session. A sweep may run while the publisher takes no answer.
struct SweepableOutput<'s, W> {
    output: W,
    store: &'s StoreWriter,
}

impl<W: Write> Write for SweepableOutput<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.store.leave_lock();
        let written = self.output.write(bytes);
        self.store.take_lock().map_err(io::Error::other)?;
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}
