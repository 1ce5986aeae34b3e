//! No helper sleeps through a region: tasks that wait for one another need every thread.

use crate::model::{ASLEEP, DROWSY, Meeting, Rules};
use crate::pool::{Pool, for_each};

/// Regions of as many tasks as threads, which all meet.
fn meetings(rules: Rules, name: &str, threads: usize, regions: usize) {
    rules.check(name, move || {
        let pool = Pool::new(threads).expect("threads");
        pool.install(|| {
            for _ in 0..regions {
                let meeting = Meeting::new(threads);
                for_each(threads, |_| meeting.wait());
            }
        });
    });
}

#[test]
fn a_helper_comes_to_every_region() {
    meetings(ASLEEP.interrupted(3), "one meeting, asleep", 2, 1);
    meetings(DROWSY.interrupted(2), "one meeting, drowsy", 2, 1);
    meetings(ASLEEP.interrupted(2), "two meetings, asleep", 2, 2);
}

#[test]
fn two_helpers_come() {
    meetings(ASLEEP.interrupted(1), "a meeting of three", 3, 1);
}
