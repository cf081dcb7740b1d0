//! Steps of a work on all processor cores.

use crate::problem::Problem;
use base::sys::cpu_count;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Most threads for one publication. Each thread has up to four files open, and a process often has 1,024 at most.
const THREADS_MAX: usize = 64;

/// Runs a step for each number below `count` on all processor cores, in the order of the numbers. Each thread has a value of
/// its own that the steps use again. After a failure no further step begins.
pub(crate) fn on_all_cores<T: Send, S: Default>(
    count: usize,
    step: impl Fn(usize, &mut S) -> Result<T, Problem> + Sync,
) -> Result<Vec<T>, Problem> {
    let next = AtomicUsize::new(0);
    let is_failed = AtomicBool::new(false);
    let work = || {
        let mut own = S::default();
        let mut done = Vec::new();
        while !is_failed.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                break;
            }
            match step(number, &mut own) {
                Ok(value) => done.push((number, value)),
                Err(problem) => {
                    is_failed.store(true, Ordering::Relaxed);
                    return Err(problem);
                }
            }
        }
        Ok(done)
    };
    let threads = cpu_count().min(THREADS_MAX).min(count);
    let parts: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|worker| worker.join()).collect()
    });
    let mut all = Vec::with_capacity(count);
    for part in parts {
        all.extend(part.map_err(|_| Problem::failure("a thread ended by a panic"))??);
    }
    all.sort_by_key(|(number, _)| *number);
    Ok(all.into_iter().map(|(_, value)| value).collect())
}
