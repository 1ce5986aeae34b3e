//! One caller, and handles.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::patience::SPIN;
use super::*;

mod blocks;
mod callers;

#[test]
fn every_task_runs_once_at_any_number_of_threads() {
    for threads in [1, 2, 3, 7] {
        let pool = Pool::new(threads).expect("threads");
        pool.install(|| {
            for tasks in (0..40).chain([1000]) {
                let mut seen = vec![0u32; tasks];
                chunks_mut(&mut seen, 1, |_, s| s[0] += 1);
                assert!(seen.iter().all(|&s| s == 1), "{threads} threads, {tasks} tasks");
            }
        });
    }
}

#[test]
#[cfg_attr(miri, ignore = "100,000 regions")]
fn regions_of_different_lengths_follow_each_other_closely() {
    // A helper that has just found one region empty must not take from it what the next one has.
    let pool = Pool::new(3).expect("threads");
    let runs = AtomicUsize::new(0);
    pool.install(|| {
        for i in 0..100_000 {
            let tasks = 2 + i * 7 % 23;
            for_each(tasks, |t| {
                (0..i % 61).for_each(|_| std::hint::spin_loop());
                assert!(t < tasks);
                runs.fetch_add(1, Ordering::Relaxed);
            });
        }
    });
    let expected: usize = (0..100_000).map(|i| 2 + i * 7 % 23).sum();
    assert_eq!(runs.into_inner(), expected);
}

#[test]
fn parked_helpers_come_back() {
    let pool = Pool::new(3).expect("threads");
    for _ in 0..20 {
        thread::sleep(SPIN * 4);
        let sum = AtomicUsize::new(0);
        pool.install(|| {
            for_each(64, |i| {
                sum.fetch_add(i, Ordering::Relaxed);
            })
        });
        assert_eq!(sum.into_inner(), 64 * 63 / 2);
    }
}

#[test]
fn chunks_cover_ragged_ends_and_nested_calls_run_in_place() {
    let pool = Pool::new(2).expect("threads");
    let mut data = vec![0usize; 103];
    pool.install(|| {
        chunks_mut(&mut data, 10, |i, chunk| {
            let me = thread::current().id();
            for_each(3, |_| assert_eq!(thread::current().id(), me));
            chunk.fill(i + 1);
        });
    });
    assert!(data.iter().enumerate().all(|(i, &v)| v == i / 10 + 1));
}

#[test]
fn tiles_cover_a_matrix_once() {
    let pool = Pool::new(2).expect("threads");
    for (height, width, size) in [(7, 10, (3, 4)), (1, 9, (4, 9)), (5, 5, (1, 2)), (0, 3, (1, 1))] {
        let mut data = vec![0u32; height * width];
        pool.install(|| {
            tiles_mut(&mut data, width, size, |mut tile| {
                for i in 0..tile.rows.len() {
                    tile.row(i).iter_mut().for_each(|v| *v += 1);
                }
            });
        });
        assert!(data.iter().all(|&v| v == 1), "{height} x {width}");
    }
}

#[test]
fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
    let pool = Pool::new(2).expect("threads");
    let caught = catch_unwind(AssertUnwindSafe(|| {
        pool.install(|| for_each(8, |i| assert_ne!(i, 5, "five")));
    }));
    assert!(caught.is_err());
    assert_eq!(pool.install(threads), 2);
    let count = AtomicUsize::new(0);
    pool.install(|| {
        for_each(8, |_| {
            count.fetch_add(1, Ordering::Relaxed);
        })
    });
    assert_eq!(count.into_inner(), 8);
    assert_eq!(threads(), 1);
}

#[test]
fn a_caught_panic_leaves_the_pool_installed() {
    let pool = Pool::new(2).expect("threads");
    pool.install(|| {
        let caught = catch_unwind(AssertUnwindSafe(|| for_each(8, |_| panic!("all of them"))));
        assert!(caught.is_err());
        assert_eq!(threads(), 2);
    });
    assert_eq!(threads(), 1);
}

#[test]
fn helpers_end_with_the_last_handle() {
    for rest in [Duration::ZERO, SPIN * 10] {
        for regions in [0, 3] {
            let pool = Pool::new(3).expect("threads");
            let shared = Arc::downgrade(pool.shared());
            let clones = [pool.clone(), pool.clone()];
            thread::scope(|s| {
                for clone in clones {
                    s.spawn(move || clone.install(|| (0..regions).for_each(|_| for_each(9, |_| ()))));
                }
            });
            assert!(shared.upgrade().is_some());
            pool.install(|| (0..regions).for_each(|_| for_each(9, |_| ())));
            // Helpers spin, or have parked.
            thread::sleep(rest);
            drop(pool);
            assert!(shared.upgrade().is_none(), "a helper has not ended");
        }
    }
}

#[test]
fn a_handle_may_be_dropped_in_a_task() {
    let pool = Pool::new(3).expect("threads");
    let installed = pool.clone();
    let shared = Arc::downgrade(pool.shared());
    let others = Mutex::new(vec![pool.clone(), pool]);
    let last = Mutex::new(Some(Pool::new(3).expect("threads")));
    installed.install(|| {
        for_each(9, |_| {
            drop(others.lock().expect("no panic").pop());
            // The last handle of another pool, whose helpers end here.
            drop(last.lock().expect("no panic").take());
        });
        assert_eq!(threads(), 3);
    });
    assert!(others.into_inner().expect("no panic").is_empty());
    drop(installed);
    assert!(shared.upgrade().is_none(), "a helper has not ended");
}
