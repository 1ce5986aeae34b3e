//! One caller and its helpers: regions, panics, calls in tasks, the end.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::model::{ASLEEP, AWAKE, DROWSY, Rules, Written};
use crate::pool::sync::Mutex;
use crate::pool::{Pool, for_each, threads};

/// Regions of different lengths one after the other.
fn regions(tasks: &'static [usize]) -> impl Fn() {
    move || {
        let pool = Pool::new(2).expect("threads");
        pool.install(|| {
            for &tasks in tasks {
                let written = Written::new(tasks);
                for_each(tasks, |i| written.add(i));
                written.assert(1);
            }
        });
    }
}

#[test]
fn tasks_run_once_and_their_caller_sees_what_they_wrote() {
    for (name, rules) in [("asleep", ASLEEP.interrupted(3)), ("drowsy", DROWSY.interrupted(3)), ("awake", AWAKE.interrupted(2))] {
        rules.check(&format!("one region, {name}"), regions(&[2]));
    }
}

#[test]
fn a_helper_that_comes_late_takes_nothing_from_the_next_region() {
    ASLEEP.interrupted(2).check("two regions, asleep", regions(&[2, 3]));
    AWAKE.interrupted(2).check("two regions, awake", regions(&[2, 3]));
}

#[test]
fn two_helpers_of_one_region() {
    let two = || {
        let pool = Pool::new(3).expect("threads");
        let written = Written::new(3);
        pool.install(|| for_each(3, |i| written.add(i)));
        written.assert(1);
    };
    ASLEEP.interrupted(1).check("two helpers, asleep", two);
    AWAKE.interrupted(1).check("two helpers, awake", two);
}

/// A region in which the tasks that are `bad` panic, and one after it.
fn panics(rules: Rules, name: &str, bad: fn(usize) -> bool) {
    rules.check(name, move || {
        let pool = Pool::new(2).expect("threads");
        pool.install(|| {
            let written = Written::new(2);
            let caught = catch_unwind(AssertUnwindSafe(|| {
                for_each(2, |i| {
                    written.add(i);
                    if bad(i) {
                        resume_unwind(Box::new(i));
                    }
                });
            }));
            // All have ended, though one has panicked.
            written.assert(1);
            let panic = caught.expect_err("the panic of a task");
            assert!(panic.downcast_ref().is_some_and(|&i| bad(i)));
            for_each(2, |i| written.add(i));
            written.assert(2);
        });
    });
}

#[test]
fn a_panic_reaches_the_caller_when_all_have_ended() {
    panics(ASLEEP.interrupted(2), "the first panics, asleep", |i| i == 0);
    panics(AWAKE.interrupted(1), "the second panics, awake", |i| i == 1);
    panics(ASLEEP.interrupted(2), "both panic, asleep", |_| true);
}

#[test]
fn calls_in_a_task_run_in_place_and_pools_nest() {
    let nested = || {
        let pool = Pool::new(2).expect("threads");
        let written = Written::new(4);
        pool.install(|| {
            for_each(2, |i| {
                assert_eq!(threads(), 1);
                for_each(2, |j| written.add(2 * i + j));
                // Regions of a task's own: with the slot of the outermost they are more than there are slots.
                pool.install(|| for_each(2, |j| written.add(2 * i + j)));
            });
            assert_eq!(threads(), 2);
        });
        written.assert(2);
    };
    ASLEEP.interrupted(1).check("nested, asleep", nested);
}

#[test]
fn the_last_handle_ends_the_helpers() {
    for rules in [ASLEEP, DROWSY] {
        rules.check("no region", || drop(Pool::new(2).expect("threads")));
    }
    ASLEEP.interrupted(3).check("two helpers and no region", || drop(Pool::new(3).expect("threads")));
    ASLEEP.interrupted(2).check("dropped in a task", || {
        let installed = Pool::new(2).expect("threads");
        let other = Mutex::new(Some(installed.clone()));
        installed.install(|| for_each(2, |_| drop(other.lock().expect("no panic").take())));
    });
}
