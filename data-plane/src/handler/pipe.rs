//! Bounded in-memory pipe of bytes between two tasks of a worker, with back-pressure and cancellation.
//!
//! The writer waits while the pipe is full, the reader while the pipe is empty. Dropping the writer without
//! [`PipeWriter::finish`] breaks the body off: the reader gets an error, so a partial body is never taken
//! for a complete one. After the reader is dropped, the next write fails.

use crate::ledger::body_memory::{BodyAccount, BodyPurpose, BodyReservation};
use crate::limits::{BODY_GRACE_SECONDS, PIPE_BYTES_MIN};
use base::kernel_pipe::PipeSink;
use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use wire::reject::Reject;

/// Error of a pipe: the other end was dropped, or the body was broken off.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct PipeBroken;

/// Result of a read.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum PipeRead {
    /// Number of bytes appended.
    Bytes(usize),
    /// End of the complete body.
    End,
}

/// Makes a pipe that holds at most `capacity` bytes, which the memory ledger does not count.
pub fn pipe(capacity: usize) -> (PipeWriter, PipeReader) {
    counted_pipe(capacity, &BodyAccount::default())
}

/// Makes a pipe that holds at most `capacity` bytes, counted in the memory ledger. The pipe begins small, and
/// grows each time the pipe is full, as far as the ledger has room for read-ahead.
pub fn counted_pipe(capacity: usize, account: &BodyAccount) -> (PipeWriter, PipeReader) {
    let window = if account.is_counted() {
        capacity.min(PIPE_BYTES_MIN)
    } else {
        capacity
    };
    let shared = Rc::new(RefCell::new(PipeState {
        bytes: Vec::new(),
        taken: 0,
        capacity,
        window,
        memory: BodyReservation::new(account),
        finished: false,
        trailers: None,
        is_held: false,
        is_queued: false,
        patience: Duration::from_secs(BODY_GRACE_SECONDS),
        writer_gone: false,
        why: None,
        is_doubtful: false,
        bypass: Bypass::default(),
        reader_gone: false,
        writer_waits: None,
        reader_waits: None,
    }));
    (
        PipeWriter {
            shared: shared.clone(),
        },
        PipeReader { shared },
    )
}

/// Writing end of a pipe.
pub struct PipeWriter {
    shared: Rc<RefCell<PipeState>>,
}

/// Reading end of a pipe.
pub struct PipeReader {
    shared: Rc<RefCell<PipeState>>,
}

struct PipeState {
    /// Written bytes. The reader has taken the first `taken` bytes.
    bytes: Vec<u8>,
    taken: usize,
    /// Largest number of bytes that the pipe ever holds.
    capacity: usize,
    /// Number of bytes that the writer may write ahead at present.
    window: usize,
    /// Memory of the window beyond [`PIPE_BYTES_MIN`], which each call has reserved.
    memory: BodyReservation,
    finished: bool,
    /// Field lines behind the complete body.
    trailers: Option<Box<[u8]>>,
    /// The reader does not want the body yet.
    is_held: bool,
    /// The reader waits for a slot and takes no bytes until a slot is free.
    is_queued: bool,
    /// Time for which the writer's peer may pause.
    patience: Duration,
    writer_gone: bool,
    /// Rule by which the writer broke off the body, if given.
    why: Option<Reject>,
    /// The body may be incomplete even though the writer finishes it.
    is_doubtful: bool,
    bypass: Bypass,
    reader_gone: bool,
    writer_waits: Option<Waker>,
    reader_waits: Option<Waker>,
}

/// Way of bytes past the pipe.
#[derive(Default)]
struct Bypass {
    /// Socket of the reader's peer, while nothing else waits for the socket, and the largest number of bytes that the
    /// reader wants.
    sink: Option<(Rc<dyn PipeSink>, u64)>,
    /// Bytes that took the bypass and that the reader does not know of.
    passed: u64,
}

impl PipeState {
    /// Returns the number of bytes that the reader has not taken.
    fn unread(&self) -> usize {
        self.bytes.len() - self.taken
    }

    /// Returns the number of bytes that fit into the pipe at present. A full pipe grows if the memory ledger
    /// has room, and an empty pipe shrinks if the ledger has little room.
    fn room(&mut self) -> usize {
        let held = self.unread();
        self.shrink_if_pressed();
        if held >= self.window && self.window < self.capacity {
            self.widen(self.window * PIPE_GROWTH_FACTOR);
        }
        self.window.saturating_sub(held)
    }

    /// Returns the memory of an empty pipe, if the memory ledger has little room.
    fn shrink_if_pressed(&mut self) {
        if self.unread() == 0 && self.memory.bytes() > 0 && self.memory.account().is_pressed() {
            self.memory.shrink_to(0);
            self.window = self.window.min(PIPE_BYTES_MIN);
        }
    }

    /// Raises the window to `bytes` and at most the capacity, if the memory ledger has room.
    fn widen(&mut self, bytes: usize) {
        let window = self.capacity.min(bytes);
        let more = window.saturating_sub(self.window);
        if more > 0 && self.memory.try_grow(more, BodyPurpose::ReadAhead) {
            self.window = window;
        }
    }

    /// Counts bytes that the writer has written beyond the window.
    #[inline]
    fn count_excess(&mut self) {
        if self.unread() > self.window {
            self.count_beyond_window();
        }
    }

    #[cold]
    fn count_beyond_window(&mut self) {
        let excess = self.unread() - self.window;
        self.memory.grow(excess);
        self.window += excess;
    }

    /// Wakes the reader after a write.
    fn wake_reader(&mut self) {
        if let Some(waker) = self.reader_waits.take() {
            waker.wake();
        }
    }

    /// Moves at most `max` unread bytes to the end of `out`, and returns their number. If `out` is empty, a
    /// buffer of at most `max` bytes is handed over without a copy.
    fn take(&mut self, out: &mut Vec<u8>, max: usize) -> usize {
        let count = self.unread().min(max);
        if out.is_empty() && self.taken == 0 && count == self.bytes.len() {
            // An idle pipe holds no buffer.
            *out = std::mem::take(&mut self.bytes);
            return count;
        }
        out.extend_from_slice(&self.bytes[self.taken..][..count]);
        self.taken += count;
        if self.unread() == 0 {
            self.taken = 0;
            self.bytes = Vec::new();
        }
        count
    }

    /// Moves the unread bytes to the front of the buffer before `more` bytes are appended, if more bytes are taken than
    /// unread, or if the buffer would otherwise outgrow the pipe. Each byte is moved at most 8 times on average.
    fn compact(&mut self, more: usize) {
        let is_much = 8 * self.taken >= self.capacity;
        let outgrows = self.bytes.len() + more > self.capacity;
        if self.taken >= self.unread() || (is_much && outgrows) {
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
    }

    /// Appends bytes. The buffer doubles as a vector does, but not beyond the capacity of the pipe.
    fn push(&mut self, bytes: &[u8]) {
        self.compact(bytes.len());
        let needed = self.bytes.len() + bytes.len();
        if needed > self.bytes.capacity() {
            let doubled = (2 * self.bytes.capacity()).min(self.capacity);
            self.bytes
                .reserve_exact(doubled.max(needed) - self.bytes.len());
        }
        self.bytes.extend_from_slice(bytes);
    }
}

impl PipeWriter {
    /// Returns the number of bytes that fit into the pipe. Waits while the pipe is full.
    pub(crate) fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, PipeBroken>> {
        let mut shared = self.shared.borrow_mut();
        if shared.reader_gone {
            return Poll::Ready(Err(PipeBroken));
        }
        match shared.room() {
            _ if shared.is_held => {
                shared.writer_waits = Some(cx.waker().clone());
                Poll::Pending
            }
            0 => {
                shared.writer_waits = Some(cx.waker().clone());
                Poll::Pending
            }
            room => Poll::Ready(Ok(room)),
        }
    }

    /// Writes as many of `bytes` as fit and returns their number. A writer that has not asked for room, because
    /// the peer was granted a window of flow control, may fill the whole capacity.
    pub(crate) fn write_some(&mut self, bytes: &[u8]) -> Result<usize, PipeBroken> {
        let mut shared = self.shared.borrow_mut();
        if shared.reader_gone {
            return Err(PipeBroken);
        }
        let taken = bytes.len().min(shared.capacity - shared.unread());
        shared.push(&bytes[..taken]);
        shared.count_excess();
        if taken > 0 {
            shared.wake_reader();
        }
        Ok(taken)
    }

    /// Reserves the memory of `bytes` bytes that have arrived from a peer with a window of flow control, as far as
    /// `purpose` allows. Returns false if the memory is missing.
    #[must_use]
    #[inline]
    pub(crate) fn try_cover(&mut self, bytes: usize, purpose: BodyPurpose) -> bool {
        let mut shared = self.shared.borrow_mut();
        let needed = shared.unread() + bytes;
        if needed <= shared.window {
            return true;
        }
        let needed = needed.min(shared.capacity);
        let more = needed.saturating_sub(shared.window);
        let is_covered = shared.memory.try_grow(more, purpose);
        if is_covered {
            shared.window += more;
        }
        is_covered
    }

    /// Returns the number of bytes that the peer may have sent and the reader not taken: the whole capacity, or the
    /// reserved bytes if the memory ledger has little room.
    pub(crate) fn window(&self) -> usize {
        let shared = self.shared.borrow();
        if shared.memory.account().is_pressed() {
            shared.window
        } else {
            shared.capacity
        }
    }

    /// Opens the pipe for at least `bytes` bytes, which are known to follow, if the memory ledger has room.
    pub(crate) fn widen(&mut self, bytes: usize) {
        self.shared.borrow_mut().widen(bytes);
    }

    /// Returns true if the pipe holds no bytes, so that [`PipeWriter::fill`] avoids a copy.
    pub(crate) fn is_empty(&self) -> bool {
        self.shared.borrow().bytes.is_empty()
    }

    /// Returns the socket of the reader's peer, to which the writer may send bytes past the pipe, and the largest
    /// number of the bytes. None if bytes wait before, in the pipe or at the reader.
    pub(crate) fn bypass(&self) -> Option<(Rc<dyn PipeSink>, u64)> {
        let shared = self.shared.borrow();
        let (sink, max) = shared.bypass.sink.as_ref()?;
        let left = max.saturating_sub(shared.bypass.passed);
        shared.bytes.is_empty().then(|| (Rc::clone(sink), left))
    }

    /// Records that `bytes` bytes have left past the pipe.
    pub(crate) fn record_passed(&mut self, bytes: usize) {
        self.shared.borrow_mut().bypass.passed += bytes as u64;
    }

    /// Calls `fill` with the buffer of an empty pipe, and returns the result of `fill`. `fill` must append no
    /// more bytes than [`PipeWriter::poll_room`] returned.
    pub(crate) fn fill<T>(&mut self, fill: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let mut shared = self.shared.borrow_mut();
        debug_assert!(shared.bytes.is_empty(), "the pipe must be empty");
        let filled = fill(&mut shared.bytes);
        if !shared.bytes.is_empty() {
            shared.wake_reader();
        }
        filled
    }

    /// Writes all of `bytes`, waiting for room as often as needed.
    pub async fn write_all(&mut self, mut bytes: &[u8]) -> Result<(), PipeBroken> {
        while !bytes.is_empty() {
            poll_fn(|cx| self.poll_room(cx)).await?;
            let taken = self.write_some(bytes)?;
            bytes = &bytes[taken..];
        }
        Ok(())
    }

    /// Returns the number of bytes not yet taken by the reader. The task is woken when the reader takes
    /// some.
    pub(crate) fn held(&mut self, cx: &mut Context<'_>) -> Result<usize, PipeBroken> {
        let mut shared = self.shared.borrow_mut();
        if shared.reader_gone {
            return Err(PipeBroken);
        }
        if shared.unread() > 0 {
            shared.writer_waits = Some(cx.waker().clone());
        } else {
            shared.shrink_if_pressed();
        }
        Ok(shared.unread())
    }

    /// Returns true if the reader waits for a slot and so takes no bytes.
    pub(crate) fn is_queued(&self) -> bool {
        self.shared.borrow().is_queued
    }

    /// Returns true if the reader does not want the body yet.
    pub(crate) fn is_held(&self) -> bool {
        self.shared.borrow().is_held
    }

    /// Returns true if the pipe has room for more of the body, and the reader wants the body.
    pub(crate) fn has_room(&self) -> bool {
        let shared = self.shared.borrow();
        !shared.reader_gone && !shared.is_held && shared.unread() < shared.capacity
    }

    /// Returns the time for which the peer may pause before the minimum rate applies.
    pub(crate) fn patience(&self) -> Duration {
        self.shared.borrow().patience
    }

    /// Breaks off the body, with the rule for the log.
    pub fn break_off(self, why: Option<Reject>) {
        self.shared.borrow_mut().why = why;
    }

    /// Sets the rule for the log of a body that is about to be broken off.
    pub(crate) fn set_break_reason(&mut self, why: Reject) {
        self.shared.borrow_mut().why = Some(why);
    }

    /// Marks the body as possibly incomplete, even if it is finished later.
    pub(crate) fn mark_maybe_truncated(&mut self) {
        self.shared.borrow_mut().is_doubtful = true;
    }

    /// Sets the trailer section, field lines with CRLF, to be read at the end of the body.
    pub(crate) fn set_trailers(&mut self, lines: Vec<u8>) {
        self.shared.borrow_mut().trailers = Some(lines.into());
    }

    /// Marks the body as complete and drops the writer.
    pub fn finish(mut self) {
        self.end();
    }

    /// Marks the body as complete. The writer stays, to observe how fast the reader takes the rest.
    pub(crate) fn end(&mut self) {
        let mut shared = self.shared.borrow_mut();
        shared.finished = true;
        shared.wake_reader();
    }
}

impl Drop for PipeWriter {
    fn drop(&mut self) {
        let mut shared = self.shared.borrow_mut();
        shared.writer_gone = true;
        shared.wake_reader();
    }
}

impl PipeReader {
    /// Appends up to `max` bytes to `out`. Waits while the pipe is empty. If `out` is empty, the buffer of the
    /// pipe may replace the buffer of `out`.
    pub fn poll_take(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        max: usize,
    ) -> Poll<Result<PipeRead, PipeBroken>> {
        let mut shared = self.shared.borrow_mut();
        if shared.bytes.is_empty() {
            if shared.finished {
                return Poll::Ready(Ok(PipeRead::End));
            }
            if shared.writer_gone {
                return Poll::Ready(Err(PipeBroken));
            }
            shared.reader_waits = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let taken = shared.take(out, max);
        if let Some(waker) = shared.writer_waits.take() {
            waker.wake();
        }
        Poll::Ready(Ok(PipeRead::Bytes(taken)))
    }

    /// Opens the way past the pipe: `sink` takes at most `max` bytes of the writer at once. The reader must have sent
    /// all bytes that it has taken.
    pub(crate) fn open_bypass(&mut self, sink: Rc<dyn PipeSink>, max: u64) {
        self.shared.borrow_mut().bypass.sink = Some((sink, max));
    }

    /// Closes the way past the pipe. Returns the number of bytes that have taken the way.
    pub(crate) fn close_bypass(&mut self) -> u64 {
        std::mem::take(&mut self.shared.borrow_mut().bypass).passed
    }

    /// Returns true if a read of all but `held` bytes would not wait. Otherwise the task is woken as soon as bytes or the
    /// end arrive.
    pub(crate) fn is_ready_beyond(&mut self, held: usize, cx: &mut Context<'_>) -> bool {
        let is_ready = self.holds_beyond(held);
        if !is_ready {
            self.shared.borrow_mut().reader_waits = Some(cx.waker().clone());
        }
        is_ready
    }

    /// Returns true if a read would not wait, because of bytes, the end or a broken body.
    pub(crate) fn holds(&self) -> bool {
        self.holds_beyond(0)
    }

    /// Returns true if a read of all but `held` bytes would not wait, because of bytes, the end or a broken body.
    pub(crate) fn holds_beyond(&self, held: usize) -> bool {
        self.unread() > held || self.has_ended()
    }

    /// Returns true if the writer adds no more bytes.
    pub(crate) fn has_ended(&self) -> bool {
        let shared = self.shared.borrow();
        shared.finished || shared.writer_gone
    }

    /// Returns the number of bytes that wait in the pipe.
    pub(crate) fn unread(&self) -> usize {
        self.shared.borrow().unread()
    }

    /// Returns the rule by which the body was broken off, if given.
    pub fn break_reason(&self) -> Option<Reject> {
        self.shared.borrow().why
    }

    /// Returns true if a finished body may still be incomplete. A cache must not store the body.
    pub(crate) fn may_be_truncated(&self) -> bool {
        self.shared.borrow().is_doubtful
    }

    /// Takes the trailer section, field lines with CRLF. Called after the end of the body.
    pub(crate) fn take_trailers(&mut self) -> Option<Box<[u8]>> {
        self.shared.borrow_mut().trailers.take()
    }

    /// Sets whether the writer waits although the pipe has room, because the reader does not want the body
    /// yet. The client of a request with `Expect: 100-continue` then gets no 100 (Continue) yet. A handler
    /// that must not get a byte of the body holds the pipe before the handler's future is polled.
    pub(crate) fn hold(&mut self, is_held: bool) {
        let mut shared = self.shared.borrow_mut();
        shared.is_held = is_held;
        if let Some(waker) = shared.writer_waits.take() {
            waker.wake();
        }
    }

    /// Sets whether the reader waits for a slot. Unread bytes of a waiting reader must not block other
    /// bodies of the same peer.
    pub(crate) fn queue(&mut self, is_queued: bool) {
        let mut shared = self.shared.borrow_mut();
        shared.is_queued = is_queued;
        if let Some(waker) = shared.writer_waits.take() {
            waker.wake();
        }
    }

    /// Sets a longer time for which the peer may pause.
    pub fn be_patient(&mut self, patience: Duration) {
        self.shared.borrow_mut().patience = patience;
    }

    /// Takes bytes as [`PipeReader::poll_take`] does, as a future.
    pub async fn take(&mut self, out: &mut Vec<u8>, max: usize) -> Result<PipeRead, PipeBroken> {
        poll_fn(|cx| self.poll_take(cx, out, max)).await
    }
}

impl Drop for PipeReader {
    fn drop(&mut self) {
        let mut shared = self.shared.borrow_mut();
        shared.reader_gone = true;
        shared.bytes = Vec::new();
        shared.taken = 0;
        shared.memory.shrink_to(0);
        if let Some(waker) = shared.writer_waits.take() {
            waker.wake();
        }
    }
}

/// Factor by which a full pipe grows: from 4 KiB over 16 KiB to 64 KiB.
const PIPE_GROWTH_FACTOR: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::body_memory::{BodyMemory, WorkerBodyMemory};
    use crate::limits::PIPE_BYTES;

    fn cx() -> Context<'static> {
        Context::from_waker(Waker::noop())
    }

    #[test]
    fn a_full_pipe_accepts_bytes_only_after_a_read() {
        let (mut writer, mut reader) = pipe(4);
        assert_eq!(writer.write_some(b"abcdef"), Ok(4));
        assert!(writer.poll_room(&mut cx()).is_pending());
        let mut out = Vec::new();
        assert_eq!(
            reader.poll_take(&mut cx(), &mut out, 3),
            Poll::Ready(Ok(PipeRead::Bytes(3)))
        );
        assert_eq!(out, b"abc");
        assert_eq!(writer.poll_room(&mut cx()), Poll::Ready(Ok(3)));
    }

    #[test]
    fn an_empty_buffer_receives_the_bytes_of_the_pipe_without_a_copy() {
        let (mut writer, mut reader) = pipe(8);
        writer.fill(|buffer| buffer.extend_from_slice(b"abcd"));
        let at = writer.shared.borrow().bytes.as_ptr();
        let mut out = Vec::new();
        let read = reader.poll_take(&mut cx(), &mut out, 8);
        assert_eq!(read, Poll::Ready(Ok(PipeRead::Bytes(4))));
        assert_eq!((out.as_ptr(), out.as_slice()), (at, b"abcd".as_slice()));
        assert!(writer.is_empty());
        assert_eq!(writer.poll_room(&mut cx()), Poll::Ready(Ok(8)));
    }

    struct Sink;

    impl PipeSink for Sink {
        fn take(&self, _: std::os::fd::BorrowedFd<'_>, _: usize) -> usize {
            0
        }
    }

    #[test]
    fn the_bypass_is_open_while_no_byte_waits_before() {
        let (mut writer, mut reader) = pipe(8);
        assert!(writer.bypass().is_none());
        reader.open_bypass(Rc::new(Sink), 10);
        assert!(writer.bypass().is_some());
        writer.write_some(b"ab").unwrap();
        assert!(writer.bypass().is_none(), "bytes wait in the pipe");
        let _ = reader.poll_take(&mut cx(), &mut Vec::new(), 8);
        writer.record_passed(5);
        writer.record_passed(2);
        assert_eq!(writer.bypass().map(|(_, most)| most), Some(3));
        assert_eq!(reader.close_bypass(), 7);
        assert!(writer.bypass().is_none());
        assert_eq!(reader.close_bypass(), 0);
    }

    #[test]
    fn bytes_pass_a_pipe_in_order_whatever_the_sizes_of_writes_and_reads() {
        let sent: Vec<u8> = (0..=250).cycle().take(10_000).collect();
        for (write, read) in [(1, 7), (7, 1), (5, 3), (16, 16), (40, 9)] {
            let (mut writer, mut reader) = pipe(16);
            let (mut out, mut at) = (b"head".to_vec(), 0);
            while out.len() < 4 + sent.len() {
                let end = sent.len().min(at + write);
                at += writer.write_some(&sent[at..end]).unwrap();
                assert!(reader.unread() <= 16);
                let _ = reader.poll_take(&mut cx(), &mut out, read);
            }
            assert_eq!(
                out[4..],
                sent,
                "writes of {write} bytes and reads of {read} bytes"
            );
        }
    }

    #[test]
    fn the_buffer_of_a_pipe_is_hardly_longer_than_the_pipe() {
        for taken in [1_000, 8_000, 16_000, 33_000] {
            let (mut writer, mut reader) = pipe(PIPE_BYTES);
            let mut out = vec![0];
            for _ in 0..50 {
                while writer.write_some(&[b'a'; 3_000]) == Ok(3_000) {}
                let read = reader.poll_take(&mut cx(), &mut out, taken);
                assert_eq!(read, Poll::Ready(Ok(PipeRead::Bytes(taken))));
            }
            let held = writer.shared.borrow().bytes.capacity();
            assert!(held <= PIPE_BYTES + PIPE_BYTES / 8, "{held}");
        }
    }

    #[test]
    fn a_dropped_writer_breaks_the_pipe_without_finish() {
        let (mut writer, mut reader) = pipe(4);
        writer.write_some(b"ab").unwrap();
        writer.finish();
        let mut out = Vec::new();
        assert_eq!(
            reader.poll_take(&mut cx(), &mut out, 9),
            Poll::Ready(Ok(PipeRead::Bytes(2)))
        );
        assert_eq!(
            reader.poll_take(&mut cx(), &mut out, 9),
            Poll::Ready(Ok(PipeRead::End))
        );

        let (writer, mut reader) = pipe(4);
        drop(writer);
        assert_eq!(
            reader.poll_take(&mut cx(), &mut out, 9),
            Poll::Ready(Err(PipeBroken))
        );
        assert_eq!(reader.break_reason(), None);

        let (writer, mut reader) = pipe(4);
        writer.break_off(Some(Reject::HANDLER_SLOW));
        assert_eq!(
            reader.poll_take(&mut cx(), &mut out, 9),
            Poll::Ready(Err(PipeBroken))
        );
        assert_eq!(reader.break_reason(), Some(Reject::HANDLER_SLOW));
    }

    #[test]
    fn the_mark_of_truncation_is_kept_after_the_end() {
        let (mut writer, mut reader) = pipe(4);
        assert!(!reader.may_be_truncated());
        writer.mark_maybe_truncated();
        writer.finish();
        let end = reader.poll_take(&mut cx(), &mut Vec::new(), 9);
        assert_eq!(end, Poll::Ready(Ok(PipeRead::End)));
        assert!(reader.may_be_truncated());
    }

    #[test]
    fn trailers_follow_the_end_of_the_body() {
        let (mut writer, mut reader) = pipe(4);
        writer.set_trailers(b"A: b\r\n".to_vec());
        writer.finish();
        let end = reader.poll_take(&mut cx(), &mut Vec::new(), 9);
        assert_eq!(end, Poll::Ready(Ok(PipeRead::End)));
        assert_eq!(reader.take_trailers().as_deref(), Some(&b"A: b\r\n"[..]));
        assert_eq!(reader.take_trailers(), None);
    }

    #[test]
    fn a_held_pipe_has_no_room() {
        let (mut writer, mut reader) = pipe(4);
        reader.hold(true);
        assert!(writer.poll_room(&mut cx()).is_pending());
        assert!(writer.is_held() && !writer.has_room());
        reader.hold(false);
        assert!(!writer.is_held() && writer.has_room());
        assert_eq!(writer.poll_room(&mut cx()), Poll::Ready(Ok(4)));
    }

    #[test]
    fn the_writer_sees_how_the_reader_waits() {
        let (writer, mut reader) = pipe(4);
        assert_eq!(writer.patience(), Duration::from_secs(BODY_GRACE_SECONDS));
        reader.be_patient(Duration::from_secs(300));
        assert_eq!(writer.patience(), Duration::from_secs(300));
        assert!(!writer.is_queued());
        reader.queue(true);
        assert!(writer.is_queued());
        reader.queue(false);
        assert!(!writer.is_queued());
    }

    #[test]
    fn the_writer_sees_a_dropped_reader() {
        let (mut writer, reader) = pipe(4);
        drop(reader);
        assert!(!writer.has_room());
        assert_eq!(writer.write_some(b"a"), Err(PipeBroken));
        assert_eq!(writer.poll_room(&mut cx()), Poll::Ready(Err(PipeBroken)));
    }

    /// Returns a pipe of a call in a ledger of 1 MiB, and the account of another call.
    fn ledger_pipe() -> (PipeWriter, PipeReader, BodyAccount) {
        let worker = WorkerBodyMemory::new(&BodyMemory::new(1 << 20), 1);
        let admit = |last| worker.admit([192, 0, 2, last].into()).unwrap();
        let (writer, reader) = counted_pipe(PIPE_BYTES, &admit(1));
        (writer, reader, admit(2))
    }

    /// Fills the pipe as far as the writer gets room. Returns the number of bytes.
    fn fill(writer: &mut PipeWriter) -> usize {
        let mut filled = 0;
        while let Poll::Ready(Ok(room)) = writer.poll_room(&mut cx()) {
            assert_eq!(writer.write_some(&vec![b'x'; room]), Ok(room));
            filled += room;
        }
        filled
    }

    #[test]
    fn a_pipe_grows_while_memory_is_free() {
        let (mut writer, mut reader, _) = ledger_pipe();
        assert_eq!(writer.poll_room(&mut cx()), Poll::Ready(Ok(PIPE_BYTES_MIN)));
        assert_eq!(fill(&mut writer), PIPE_BYTES);
        let mut out = Vec::new();
        let _ = reader.poll_take(&mut cx(), &mut out, PIPE_BYTES);
        assert_eq!(writer.poll_room(&mut cx()), Poll::Ready(Ok(PIPE_BYTES)));
    }

    #[test]
    fn a_pipe_under_pressure_holds_the_minimum() {
        let (mut writer, mut reader, other) = ledger_pipe();
        while other.try_reserve(1_024, BodyPurpose::Call) {}
        for _ in 0..3 {
            assert_eq!(fill(&mut writer), PIPE_BYTES_MIN);
            let mut out = Vec::new();
            let _ = reader.poll_take(&mut cx(), &mut out, PIPE_BYTES);
        }
        drop(other);
        assert_eq!(fill(&mut writer), PIPE_BYTES);
    }

    #[test]
    fn an_empty_pipe_shrinks_under_pressure() {
        let (mut writer, mut reader, other) = ledger_pipe();
        assert_eq!(fill(&mut writer), PIPE_BYTES);
        while other.try_reserve(1_024, BodyPurpose::Call) {}
        let mut out = Vec::new();
        let _ = reader.poll_take(&mut cx(), &mut out, PIPE_BYTES);
        assert_eq!(fill(&mut writer), PIPE_BYTES_MIN);
    }

    #[test]
    fn a_window_of_flow_control_is_counted_beyond_the_bound() {
        let (mut writer, reader, other) = ledger_pipe();
        while other.try_reserve(1_024, BodyPurpose::Call) {}
        assert_eq!(writer.write_some(&[0; PIPE_BYTES + 1]), Ok(PIPE_BYTES));
        let memory = reader.shared.borrow().memory.bytes();
        assert_eq!(memory, PIPE_BYTES - PIPE_BYTES_MIN);
    }

    #[test]
    fn bytes_of_a_window_are_covered_as_they_arrive_and_given_back_under_pressure() {
        let (mut writer, mut reader, other) = ledger_pipe();
        let memory = |reader: &PipeReader| reader.shared.borrow().memory.bytes();
        assert_eq!(writer.window(), PIPE_BYTES);
        assert!(writer.try_cover(20_000, BodyPurpose::Call));
        assert_eq!(writer.write_some(&[0; 20_000]), Ok(20_000));
        assert_eq!(memory(&reader), 20_000 - PIPE_BYTES_MIN);
        while other.try_reserve(1_024, BodyPurpose::Call) {}
        assert_eq!(writer.window(), 20_000);
        assert!(!writer.try_cover(2_000, BodyPurpose::Call));
        let mut out = Vec::new();
        let _ = reader.poll_take(&mut cx(), &mut out, PIPE_BYTES);
        assert_eq!(writer.held(&mut cx()), Ok(0));
        assert_eq!((memory(&reader), writer.window()), (0, PIPE_BYTES_MIN));
        assert!(writer.try_cover(2_000, BodyPurpose::Call));
    }
}
