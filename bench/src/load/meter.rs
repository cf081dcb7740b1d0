//! CPU time of a generator thread within the measured window.

use super::course::{Course, Nanos};
use super::cpu::Spent;

/// Samples the thread's CPU time at the beginning and the end of the window.
#[derive(Debug, Default)]
pub(super) struct Meter {
    begin: Option<Spent>,
    end: Option<Spent>,
}

impl Meter {
    /// Takes a sample if `now` has reached the beginning or the end of the window. Must be called at least at
    /// both times.
    pub(super) fn at(&mut self, now: Nanos, course: &Course) {
        if self.begin.is_none() && now >= course.begin() {
            self.begin = Some(Spent::of_this_thread());
        }
        if self.end.is_none() && course.end().is_some_and(|end| now >= end) {
            self.end = Some(Spent::of_this_thread());
        }
    }

    /// Returns the time of the next sample.
    pub(super) fn next_mark(&self, course: &Course) -> Option<Nanos> {
        match (self.begin, self.end) {
            (None, _) => Some(course.begin()),
            (_, None) => course.end(),
            _ => None,
        }
    }

    /// Returns the CPU time used within the window. A window not yet ended ends now.
    pub(super) fn spent(self) -> Spent {
        let Some(begin) = self.begin else {
            return Spent::default();
        };
        self.end.unwrap_or_else(Spent::of_this_thread).since(begin)
    }
}
