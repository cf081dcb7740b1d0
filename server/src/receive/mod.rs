//! `anthill receive`: receives releases from a publisher, on standard input and output, mostly over the publisher's own
//! ssh. `wire::receive_frame` describes the protocol.
//!
//! A publisher may send anything, so each size has a bound, a content is moved to the store only after its digest was
//! compared, and a pointer only after all contents of its release are in the store.

mod error;
mod idle_streams;
mod incoming;
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

use crate::store::{FrameReader, FrameWriter, StoreWriter};
use crate::wire::receive_frame::FrameKind;
use session::Session;
use std::io::{BufWriter, Read, Write};

/// Answers the requests of one publisher until the stream ends. An error has been sent to the publisher as well, as far
/// as the stream permits.
pub fn receive(
    options: &ReceiveOptions,
    input: impl Read,
    output: impl Write,
) -> Result<(), ReceiveError> {
    let mut output = FrameWriter::new(BufWriter::new(output));
    let done = StoreWriter::open(&options.store)
        .map_err(ReceiveError::from)
        .and_then(|store| {
            let done = Session::new(options, &store, FrameReader::new(input), &mut output).run();
            // The completed contents of a connection that broke stay for the next one.
            store.sync().map_err(ReceiveError::from).and(done)
        });
    if let Err(error) = &done {
        // The publisher may be gone; the caller reports the first error.
        let _ = output.write(FrameKind::Failed, error.to_string().as_bytes());
        let _ = output.flush();
    }
    done
}
