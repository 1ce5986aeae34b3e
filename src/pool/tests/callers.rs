//! Several callers at the same time.

use std::hint::black_box;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use super::super::sync::CALLERS;
use super::*;

fn until(condition: impl Fn() -> bool) {
    while !condition() {
        thread::yield_now();
    }
}

#[test]
#[cfg_attr(miri, ignore = "1000 tasks, and threads that wait for one another")]
fn a_helper_takes_turns_between_two_regions() {
    const TASKS: usize = 1000;
    const TURNS: usize = 20;
    // What a helper takes at once of a region that is the only one.
    const RUN: usize = TASKS / 4;
    let pool = Pool::new(2).expect("threads");
    let entered = [const { AtomicBool::new(false) }; 2];
    let turns = Mutex::new(Vec::new());
    thread::scope(|s| {
        for region in 0..2 {
            let (pool, entered, turns) = (&pool, &entered, &turns);
            let took = || turns.lock().expect("no panic").len();
            s.spawn(move || {
                let caller = thread::current().id();
                let task = |_| {
                    if thread::current().id() == caller {
                        entered[region].store(true, Ordering::SeqCst);
                        until(|| took() >= RUN + TURNS);
                    } else {
                        until(|| entered.iter().all(|e| e.load(Ordering::SeqCst)));
                        turns.lock().expect("no panic").push(region);
                    }
                };
                pool.install(|| for_each(TASKS, task));
            });
        }
    });
    // It may have taken a run before the other region opened.
    let turns = turns.into_inner().expect("no panic");
    let first = turns.iter().take_while(|&t| *t == turns[0]).count() - 1;
    assert!(first < RUN, "{turns:?}");
    // While both callers wait in a task, both regions have some left.
    let turns = &turns[first..][..TURNS];
    assert!(turns.windows(2).all(|t| t[0] != t[1]), "{turns:?}");
}

#[test]
#[cfg_attr(miri, ignore = "10,000 tasks")]
fn helpers_spread_over_regions() {
    const TASKS: usize = 10_000;
    let pool = Pool::new(5).expect("threads");
    let entered = [const { AtomicBool::new(false) }; 2];
    let inside = [const { AtomicUsize::new(0) }; 2];
    let (spread, end) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|s| {
        for region in 0..2 {
            let (pool, entered, inside) = (&pool, &entered, &inside);
            let (spread, end) = (&spread, &end);
            s.spawn(move || {
                let caller = thread::current().id();
                let task = |i| {
                    if thread::current().id() == caller {
                        entered[region].store(true, Ordering::SeqCst);
                        until(|| end.load(Ordering::SeqCst));
                        return;
                    }
                    // All four may be here before the other region opens.
                    until(|| entered.iter().all(|e| e.load(Ordering::SeqCst)));
                    inside[region].fetch_add(1, Ordering::SeqCst);
                    for _ in 0..100 {
                        if inside.iter().all(|n| n.load(Ordering::SeqCst) == 2) {
                            spread.store(true, Ordering::SeqCst);
                            end.store(true, Ordering::SeqCst);
                        }
                        if end.load(Ordering::SeqCst) {
                            break;
                        }
                        thread::yield_now();
                    }
                    inside[region].fetch_sub(1, Ordering::SeqCst);
                    if i > TASKS / 2 {
                        end.store(true, Ordering::SeqCst);
                    }
                };
                pool.install(|| for_each(TASKS, task));
            });
        }
    });
    assert!(spread.into_inner(), "never two helpers in each region");
}

#[test]
#[cfg_attr(miri, ignore = "100,000 regions")]
fn short_regions_of_three_callers() {
    let pool = Pool::new(3).expect("threads");
    thread::scope(|s| {
        for caller in 0..3 {
            let pool = pool.clone();
            s.spawn(move || {
                // Installed again and again, so that slots change hands.
                for round in 0..334 {
                    pool.install(|| {
                        for i in 0..100 {
                            let mut data = vec![0; 2 + (round + i * 7) % 23];
                            chunks_mut(&mut data, 1, |t, x| x[0] = 10 * t + caller);
                            let right = |(t, &x): (usize, &usize)| x == 10 * t + caller;
                            assert!(data.iter().enumerate().all(right));
                        }
                    });
                }
            });
        }
    });
    assert_eq!(pool.shared().callers(), 0);
}

#[test]
#[cfg_attr(miri, ignore = "400 calls of many regions")]
fn many_callers_nest_calls_and_pools() {
    let (pool, other) = (Pool::new(3).expect("threads"), Pool::new(2).expect("threads"));
    let count = AtomicUsize::new(0);
    let add = |_| {
        count.fetch_add(1, Ordering::Relaxed);
    };
    thread::scope(|s| {
        for _ in 0..8 {
            s.spawn(|| {
                for _ in 0..50 {
                    pool.install(|| {
                        for_each(5, |_| {
                            assert_eq!(threads(), 1);
                            for_each(3, add);
                            // A task may open regions of its own, in its pool or in another.
                            pool.install(|| for_each(4, add));
                            other.install(|| for_each(4, |_| pool.install(|| for_each(2, add))));
                            assert_eq!(threads(), 1);
                        });
                        assert_eq!(threads(), 3);
                        other.install(|| assert_eq!(threads(), 2));
                    });
                }
            });
        }
    });
    assert_eq!(count.into_inner(), 8 * 50 * 5 * (3 + 4 + 4 * 2));
    assert_eq!(pool.shared().callers() + other.shared().callers(), 0);
}

#[test]
#[cfg_attr(miri, ignore = "800 calls")]
fn a_panic_reaches_only_its_caller() {
    let pool = Pool::new(3).expect("threads");
    thread::scope(|s| {
        for caller in 0..4 {
            let pool = &pool;
            s.spawn(move || {
                let count = AtomicUsize::new(0);
                for _ in 0..200 {
                    let result = catch_unwind(AssertUnwindSafe(|| {
                        pool.install(|| {
                            for_each(12, |i| {
                                count.fetch_add(1, Ordering::Relaxed);
                                // Not through the hook, which would print.
                                if caller % 2 == 1 && i % 3 == 0 {
                                    std::panic::resume_unwind(Box::new(caller));
                                }
                            });
                        });
                    }));
                    match result {
                        Ok(()) => assert_eq!(caller % 2, 0),
                        Err(whose) => assert_eq!(whose.downcast_ref(), Some(&caller)),
                    }
                }
                // Panics or not, all tasks have run.
                assert_eq!(count.into_inner(), 200 * 12);
            });
        }
    });
}

#[test]
fn callers_beyond_the_slots_work_alone() {
    fn nest(pool: &Pool, depth: usize) {
        pool.install(|| {
            let caller = thread::current().id();
            let count = AtomicUsize::new(0);
            for_each(20, |_| {
                count.fetch_add(1, Ordering::Relaxed);
                assert!(depth <= CALLERS || thread::current().id() == caller);
            });
            assert_eq!(count.into_inner(), 20);
            assert_eq!(pool.shared().callers(), depth.min(CALLERS));
            if depth < CALLERS + 2 {
                nest(pool, depth + 1);
            }
        });
    }
    let pool = Pool::new(3).expect("threads");
    nest(&pool, 1);
    assert_eq!(pool.shared().callers(), 0);
}

/// Work that is the same machine code wherever it is called from.
#[inline(never)]
fn multiply(i: usize, steps: usize) {
    let step = |x: usize, _| x.wrapping_mul(0x5851_F42D) ^ (x >> 7);
    black_box((0..steps).fold(black_box(i), step));
}

#[test]
#[ignore = "prints speeds: cargo test --release --lib pool:: -- --ignored --nocapture"]
fn regions_per_second() {
    let pool = Pool::new(2).expect("threads");
    for callers in [1, 2] {
        for (tasks, work) in [(2, 0), (16, 200), (64, 200), (16, 3000)] {
            let regions = 20_000_000 / (tasks * (work + 40) + 300);
            let start = Instant::now();
            thread::scope(|s| {
                for _ in 0..callers {
                    s.spawn(|| {
                        let task = |i| multiply(i, work);
                        pool.install(|| (0..regions).for_each(|_| for_each(tasks, task)));
                    });
                }
            });
            let speed = (callers * regions) as f64 / start.elapsed().as_secs_f64();
            println!("{callers} callers, {tasks} tasks of {work} steps: {speed:.0} regions/s");
        }
    }
}
