//! Several callers of one pool.

use loom::thread;

use crate::model::{ASLEEP, AWAKE, Meeting, Rules, Written};
use crate::pool::{Pool, for_each};

/// Two callers, one helper: slots change hands, and the helper goes from one to the other.
fn two(rules: Rules, name: &str, tasks: usize) {
    rules.check(name, move || {
        let pool = Pool::new(2).expect("threads");
        let call = move |pool: &Pool| {
            let written = Written::new(tasks);
            pool.install(|| for_each(tasks, |i| written.add(i)));
            written.assert(1);
        };
        let other = pool.clone();
        let other = thread::spawn(move || call(&other));
        call(&pool);
        other.join().expect("no panic");
    });
}

#[test]
fn a_helper_of_two_callers_and_slots_that_change_hands() {
    two(ASLEEP.interrupted(1), "two callers, asleep", 2);
    two(AWAKE.interrupted(1), "two callers, awake", 2);
}

#[test]
fn a_helper_comes_to_the_caller_that_needs_it() {
    ASLEEP.interrupted(1).check("two callers, one of which needs the helper", || {
        let pool = Pool::new(2).expect("threads");
        let other = pool.clone();
        let other = thread::spawn(move || other.install(|| for_each(2, |_| ())));
        let meeting = Meeting::new(2);
        pool.install(|| for_each(2, |_| meeting.wait()));
        other.join().expect("no panic");
    });
}
