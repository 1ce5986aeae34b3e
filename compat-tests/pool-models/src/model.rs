//! How models are run, and what their tasks do.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::pool::patience::LOOKS;
use crate::pool::sync::{Condvar, FENCED, Mutex, SharedCell};

/// A model's rules.
#[derive(Clone, Copy)]
pub struct Rules {
    /// Times that a helper looks for tasks before it sleeps.
    pub looks: u32,
    /// True if sequentially consistent accesses come with fences: where helpers sleep.
    pub fenced: bool,
    /// Times that a thread may be interrupted where it does not wait; `None`: everywhere, which is every order.
    pub interruptions: Option<usize>,
}

/// Helpers sleep at once, and every order is tried.
pub const ASLEEP: Rules = Rules { looks: 0, fenced: true, interruptions: None };

/// Helpers look once more before they sleep.
pub const DROWSY: Rules = Rules { looks: 1, ..ASLEEP };

/// Helpers never sleep, and nothing is ordered by fences.
pub const AWAKE: Rules = Rules { looks: u32::MAX, fenced: false, interruptions: None };

impl Rules {
    /// The same rules with fewer orders.
    pub const fn interrupted(self, times: usize) -> Rules {
        Rules { interruptions: Some(times), ..self }
    }

    /// Runs `f` in every order that the rules allow, and prints how many there were.
    #[track_caller]
    pub fn check(self, name: &str, f: impl Fn() + Send + Sync + 'static) {
        LOOKS.set(self.looks);
        FENCED.set(self.fenced);
        let mut builder = loom::model::Builder::new();
        builder.max_branches = 100_000;
        builder.preemption_bound = self.interruptions.map(|times| times + more());
        let orders = std::sync::Arc::new(AtomicUsize::new(0));
        let counted = orders.clone();
        builder.check(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            f();
        });
        println!("{name}: {} orders", orders.load(Ordering::Relaxed));
    }
}

/// Interruptions beyond those of the rules, from `TRINE_LOOM_MORE`.
fn more() -> usize {
    match std::env::var("TRINE_LOOM_MORE") {
        Ok(more) => more.parse().expect("TRINE_LOOM_MORE is a number"),
        Err(_) => 0,
    }
}

/// A number for each task of a region, which each task writes and the caller reads: loom finds a write that a read does
/// not follow.
pub struct Written(Vec<SharedCell<usize>>);

// SAFETY: loom ends the model where two threads are at a place at the same time.
unsafe impl Sync for Written {}

impl Written {
    pub fn new(tasks: usize) -> Written {
        Written((0..tasks).map(|_| SharedCell::new(0)).collect())
    }

    /// Counts a run of task `i`.
    #[track_caller]
    pub fn add(&self, i: usize) {
        // SAFETY: loom ends the model if another thread may be at this place.
        self.0[i].with_mut(|place| unsafe { *place += 1 });
    }

    /// Every task has run `times`.
    #[track_caller]
    pub fn assert(&self, times: usize) {
        for (i, place) in self.0.iter().enumerate() {
            // SAFETY: loom ends the model if another thread may write here.
            place.with(|place| assert_eq!(unsafe { *place }, times, "task {i}"));
        }
    }
}

/// Where threads wait for one another.
pub struct Meeting {
    missing: Mutex<usize>,
    complete: Condvar,
}

impl Meeting {
    pub fn new(threads: usize) -> Meeting {
        Meeting { missing: Mutex::new(threads), complete: Condvar::new() }
    }

    /// Waits until all are here.
    pub fn wait(&self) {
        let mut missing = self.missing.lock().expect("no panic");
        *missing -= 1;
        if *missing == 0 {
            self.complete.notify_all();
        }
        while *missing > 0 {
            missing = self.complete.wait(missing).expect("no panic");
        }
    }
}
