//! Liveness of the worker threads. Every few seconds the control plane asks each worker for an answer through its command
//! channel and its event loop. The service manager hears that the server is alive only if all workers have answered.
//!
//! A worker that hangs never hears the question, so the questions to it do not add up: a worker gets the next question after
//! its answer. Answers wake nothing, so an idle server sleeps from one question to the next.

use base::sys;
use data_plane::serve::worker::WorkerCommand;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;

/// Interval of the questions, unless the service manager wants to hear from the server more often.
const INTERVAL: Duration = Duration::from_secs(10);
/// Shortest interval of the questions.
const INTERVAL_MIN: Duration = Duration::from_millis(100);
/// Intervals without an answer after which a worker counts as silent.
const INTERVALS_SILENT: u32 = 2;

/// Liveness of all workers.
pub(super) struct Liveness {
    workers: Mutex<Vec<WorkerLiveness>>,
    interval: Duration,
    /// True if the service manager ends the server for silence.
    is_watched: bool,
}

struct WorkerLiveness {
    commands: UnboundedSender<WorkerCommand>,
    /// The last question, until its answer has been seen.
    question: Option<Question>,
}

struct Question {
    asked: Instant,
    is_answered: Arc<AtomicBool>,
}

/// Worker that has not answered for a long time.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct SilentWorker {
    /// Index of the worker.
    pub(super) index: usize,
    /// Time since the question without an answer.
    pub(super) silent: Duration,
}

impl Liveness {
    /// Creates the record for a service manager with the watchdog time `watchdog`.
    pub(super) fn new(watchdog: Option<Duration>) -> Liveness {
        let often = watchdog.map_or(INTERVAL, |time| time / 2);
        Liveness {
            workers: Mutex::default(),
            interval: often.clamp(INTERVAL_MIN, INTERVAL),
            is_watched: watchdog.is_some(),
        }
    }

    /// Enters a worker that has just started, in place of an ended one with the same index.
    pub(super) fn enter(&self, index: usize, commands: UnboundedSender<WorkerCommand>) {
        let worker = WorkerLiveness {
            commands,
            question: None,
        };
        let mut workers = self.lock();
        match workers.get_mut(index) {
            Some(former) => *former = worker,
            None => workers.push(worker),
        }
    }

    /// Sees the answers to the last questions, and asks the workers that have answered again. Returns true if no worker owes an
    /// answer.
    pub(super) fn ask(&self, now: Instant) -> bool {
        let mut workers = self.lock();
        // Every worker gets its question, so the fold does not stop at the first silent one.
        workers
            .iter_mut()
            .fold(true, |is_alive, worker| worker.ask(now) & is_alive)
    }

    /// Returns the workers that have been silent for too long.
    pub(super) fn silent(&self, now: Instant) -> Vec<SilentWorker> {
        let workers = self.lock();
        let silent = workers.iter().enumerate().filter_map(|(index, worker)| {
            let silent = worker.silent(now)?;
            (silent >= self.interval * INTERVALS_SILENT).then_some(SilentWorker { index, silent })
        });
        silent.collect()
    }

    /// Asks the workers again and again, and tells the service manager of each round with all answers.
    pub(super) async fn run(self: Arc<Self>) {
        loop {
            if self.ask(Instant::now()) && self.is_watched {
                let _ = sys::notify("WATCHDOG=1");
            }
            tokio::time::sleep(self.interval).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<WorkerLiveness>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WorkerLiveness {
    fn ask(&mut self, now: Instant) -> bool {
        if self.silent(now).is_some() {
            return false;
        }
        let is_answered = Arc::<AtomicBool>::default();
        let command = WorkerCommand::ShowLife(Arc::clone(&is_answered));
        // The channel of an ended worker is closed. The control plane starts the worker again.
        let is_sent = self.commands.send(command).is_ok();
        self.question = is_sent.then_some(Question {
            asked: now,
            is_answered,
        });
        true
    }

    /// Returns the time since a question without an answer; None if the worker owes none or has ended.
    fn silent(&self, now: Instant) -> Option<Duration> {
        let question = self.question.as_ref()?;
        let owes = !question.is_answered.load(Relaxed) && !self.commands.is_closed();
        owes.then(|| now.duration_since(question.asked))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::mpsc::{UnboundedReceiver, error::TryRecvError, unbounded_channel};

    const SECOND: Duration = Duration::from_secs(1);

    fn with_workers(count: usize) -> (Liveness, Vec<UnboundedReceiver<WorkerCommand>>) {
        let liveness = Liveness::new(None);
        let enter = |index| {
            let (commands, receiver) = unbounded_channel();
            liveness.enter(index, commands);
            receiver
        };
        let receivers = (0..count).map(enter).collect();
        (liveness, receivers)
    }

    fn answer(receiver: &mut UnboundedReceiver<WorkerCommand>) {
        match receiver.try_recv() {
            Ok(WorkerCommand::ShowLife(is_answered)) => is_answered.store(true, Relaxed),
            _ => panic!("no question"),
        }
    }

    #[test]
    fn a_worker_without_an_answer_is_silent_after_two_intervals() {
        let (liveness, mut workers) = with_workers(3);
        let start = Instant::now();
        assert!(liveness.ask(start), "no question was open");
        answer(&mut workers[0]);
        answer(&mut workers[2]);
        assert!(!liveness.ask(start + 10 * SECOND));
        assert_eq!(liveness.silent(start + 19 * SECOND), []);
        assert!(!liveness.ask(start + 20 * SECOND));
        let expected = |seconds| SilentWorker {
            index: 1,
            silent: seconds * SECOND,
        };
        // The other workers were asked again, and have had no time for an answer yet.
        answer(&mut workers[0]);
        answer(&mut workers[2]);
        assert_eq!(liveness.silent(start + 25 * SECOND), [expected(25)]);
        answer(&mut workers[1]);
        assert_eq!(liveness.silent(start + 25 * SECOND), []);
        assert!(liveness.ask(start + 30 * SECOND));
    }

    #[test]
    fn questions_to_a_silent_worker_do_not_add_up() {
        let (liveness, mut workers) = with_workers(1);
        let start = Instant::now();
        for interval in 0..100 {
            liveness.ask(start + interval * INTERVAL);
        }
        answer(&mut workers[0]);
        assert!(matches!(workers[0].try_recv(), Err(TryRecvError::Empty)));
    }

    #[test]
    fn an_ended_worker_owes_no_answer() {
        let (liveness, mut workers) = with_workers(2);
        let start = Instant::now();
        liveness.ask(start);
        answer(&mut workers[0]);
        drop(workers.pop());
        assert!(liveness.ask(start + INTERVAL));
        assert_eq!(
            liveness.silent(start + 60 * SECOND).len(),
            1,
            "worker 0 alone"
        );
        let (commands, mut receiver) = unbounded_channel();
        liveness.enter(1, commands);
        answer(&mut workers[0]);
        assert!(liveness.ask(start + 2 * INTERVAL));
        answer(&mut receiver);
    }

    #[test]
    fn a_service_manager_hears_from_the_server_twice_in_its_watchdog_time() {
        let interval = |watchdog| Liveness::new(watchdog).interval;
        assert_eq!(interval(None), 10 * SECOND);
        assert_eq!(interval(Some(60 * SECOND)), 10 * SECOND);
        assert_eq!(interval(Some(8 * SECOND)), 4 * SECOND);
        assert_eq!(interval(Some(Duration::from_micros(1))), INTERVAL_MIN);
    }
}
