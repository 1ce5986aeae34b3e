//! The thread pool of the forward pass.
//!
//! A forward pass is a few hundred short regions (a projection, attention, a norm) between which only
//! a microsecond passes, so helpers spin for a while after each region and park only when nothing
//! comes. Tasks are taken one by one from a counter: a helper that the system has put aside holds up
//! at most the one task it has taken, and one that wakes too late finds nothing left to do.
//!
//! The pool of a pass is ambient: [`Pool::install`] makes it current for a closure, and [`for_each`]
//! and [`chunks_mut`] use the current one. Without one, or inside a task, they run in the calling
//! thread. Quantizing, packing and evaluating use rayon instead.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long a helper looks for the next region before it parks: longer than the gap between regions,
/// shorter than anybody notices.
const SPIN: Duration = Duration::from_micros(60);

/// Threads that run the tasks of one region after another.
#[derive(Clone)]
pub struct Pool {
    shared: Arc<Shared>,
    helpers: Arc<Helpers>,
}

/// The pool's own threads.
struct Helpers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// A task list: `run(body, i)` for every index.
type Run = unsafe fn(*const (), usize);

struct Shared {
    /// Region number in the upper half, tasks not taken yet in the lower: a task is taken by counting down
    /// while the region is still the one that was looked at. What else a region consists of is written
    /// before its number and read only after taking a task, while the region waits for it.
    state: AtomicU64,
    tasks: AtomicU32,
    /// Tasks finished in this region.
    done: AtomicUsize,
    body: AtomicPtr<()>,
    /// The `Run` of `body`.
    run: AtomicPtr<()>,
    parked: AtomicUsize,
    lock: Mutex<()>,
    wake: Condvar,
    stop: AtomicBool,
    /// Whether a region is running: the pool runs one at a time.
    busy: AtomicBool,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

thread_local! {
    static CURRENT: Cell<*const Pool> = const { Cell::new(ptr::null()) };
}

impl Pool {
    /// A pool of `threads` in all: the caller of [`Pool::install`] and `threads - 1` helpers.
    ///
    /// # Errors
    /// The system starts no more threads.
    pub fn new(threads: usize) -> std::io::Result<Pool> {
        let shared = Arc::new(Shared {
            state: AtomicU64::new(0),
            tasks: AtomicU32::new(0),
            done: AtomicUsize::new(0),
            body: AtomicPtr::new(ptr::null_mut()),
            run: AtomicPtr::new(ptr::null_mut()),
            parked: AtomicUsize::new(0),
            lock: Mutex::new(()),
            wake: Condvar::new(),
            stop: AtomicBool::new(false),
            busy: AtomicBool::new(false),
            panic: Mutex::new(None),
        });
        let mut helpers = Helpers {
            shared: shared.clone(),
            threads: Vec::new(),
        };
        for i in 1..threads.max(1) {
            let shared = helpers.shared.clone();
            let helper = thread::Builder::new().name(format!("trine-{i}"));
            helpers.threads.push(helper.spawn(move || shared.help())?);
        }
        Ok(Pool { shared, helpers: Arc::new(helpers) })
    }

    /// Threads, the calling one included.
    pub fn threads(&self) -> usize {
        self.helpers.threads.len() + 1
    }

    /// Runs `f` with this pool as the current one of the calling thread.
    pub fn install<R>(&self, f: impl FnOnce() -> R) -> R {
        struct Restore(*const Pool);
        impl Drop for Restore {
            fn drop(&mut self) {
                CURRENT.set(self.0);
            }
        }
        let _restore = Restore(CURRENT.replace(self));
        f()
    }

    fn region<F: Fn(usize) + Sync>(&self, tasks: u32, f: &F) {
        unsafe fn call<F: Fn(usize)>(body: *const (), i: usize) {
            // SAFETY: `region` passes a pointer to an `F` together with this function, and returns
            // only when all calls have.
            unsafe { (*body.cast::<F>())(i) }
        }
        let shared = &*self.shared;
        if shared.busy.swap(true, Ordering::Acquire) {
            // Another thread that shares the pool is in a region of its own.
            return (0..tasks as usize).for_each(f);
        }
        let run: Run = call::<F>;
        shared
            .body
            .store(ptr::from_ref(f).cast_mut().cast(), Ordering::Relaxed);
        shared.run.store(run as *mut (), Ordering::Relaxed);
        shared.tasks.store(tasks, Ordering::Relaxed);
        shared.done.store(0, Ordering::Relaxed);
        let region = (shared.state.load(Ordering::Relaxed) >> 32).wrapping_add(1);
        // Sequentially consistent, as is the counting of the parked: either this thread sees that a
        // helper parked, or the helper sees the new region before it sleeps.
        shared
            .state
            .store(region << 32 | u64::from(tasks), Ordering::SeqCst);
        if shared.parked.load(Ordering::SeqCst) > 0 {
            let _guard = shared.guard();
            shared.wake.notify_all();
        }
        while shared.take() {}
        let mut patience = Patience::new();
        while shared.done.load(Ordering::Acquire) < tasks as usize {
            if !patience.spin() {
                thread::yield_now();
            }
        }
        let panic = shared
            .panic
            .lock()
            .unwrap_or_else(|e| e.into_inner())
            .take();
        shared.busy.store(false, Ordering::Release);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }
}

impl Drop for Helpers {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        {
            let _guard = self.shared.guard();
            self.shared.wake.notify_all();
        }
        for helper in self.threads.drain(..) {
            // A helper catches the panics of its tasks, so there is nothing to learn from its end.
            let _ = helper.join();
        }
    }
}

impl Shared {
    fn guard(&self) -> MutexGuard<'_, ()> {
        self.lock.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn has_task(&self) -> bool {
        self.state.load(Ordering::SeqCst) as u32 > 0
    }

    /// Takes and runs one task; false when there is none.
    fn take(&self) -> bool {
        let mut state = self.state.load(Ordering::Acquire);
        loop {
            if state as u32 == 0 {
                return false;
            }
            match self.state.compare_exchange_weak(
                state,
                state - 1,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => break,
                Err(now) => state = now,
            }
        }
        let body = self.body.load(Ordering::Relaxed);
        let run = self.run.load(Ordering::Relaxed);
        // SAFETY: `run` was stored from a `Run`, and is not null once a region has tasks.
        let run: Run = unsafe { std::mem::transmute::<*mut (), Run>(run) };
        let task = (self.tasks.load(Ordering::Relaxed) - state as u32) as usize;
        let result = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: a task of this region was taken and is not done yet, so `region` is still
            // waiting and `body` and `run` are the pair it stored.
            inline(|| unsafe { run(body, task) });
        }));
        if let Err(panic) = result {
            *self.panic.lock().unwrap_or_else(|e| e.into_inner()) = Some(panic);
        }
        self.done.fetch_add(1, Ordering::Release);
        true
    }

    /// The life of a helper.
    fn help(&self) {
        let mut patience = Patience::new();
        while !self.stop.load(Ordering::Relaxed) {
            if self.take() {
                patience = Patience::new();
            } else if !patience.spin() {
                let mut guard = self.guard();
                self.parked.fetch_add(1, Ordering::SeqCst);
                while !self.has_task() && !self.stop.load(Ordering::SeqCst) {
                    guard = self.wake.wait(guard).unwrap_or_else(|e| e.into_inner());
                }
                self.parked.fetch_sub(1, Ordering::SeqCst);
                drop(guard);
                patience = Patience::new();
            }
        }
    }
}

/// Counts down the time to spin.
struct Patience {
    rounds: u32,
    since: Option<Instant>,
}

impl Patience {
    fn new() -> Patience {
        Patience {
            rounds: 0,
            since: None,
        }
    }

    /// Waits a moment; false when it has been long enough.
    fn spin(&mut self) -> bool {
        std::hint::spin_loop();
        self.rounds += 1;
        // Asking for the time costs as much as a few dozen rounds.
        if !self.rounds.is_multiple_of(64) {
            return true;
        }
        self.since.get_or_insert_with(Instant::now).elapsed() < SPIN
    }
}

/// Runs `f` with no current pool.
fn inline(f: impl FnOnce()) {
    let pool = CURRENT.replace(ptr::null());
    f();
    CURRENT.set(pool);
}

fn current() -> Option<&'static Pool> {
    // SAFETY: `install` borrows the pool for as long as its pointer stands there, and every use of
    // the reference ends within the call that asked for it, so the long lifetime is never used.
    unsafe { CURRENT.get().as_ref() }
}

/// Threads of the current pool.
pub fn threads() -> usize {
    current().map_or(1, Pool::threads)
}

/// Calls `f(i)` for every `i < tasks`, on the threads of the current pool, in no particular order.
///
/// # Panics
/// When a call panics, after all have ended.
pub fn for_each(tasks: usize, f: impl Fn(usize) + Sync) {
    match (current(), u32::try_from(tasks)) {
        (Some(pool), Ok(n @ 2..)) if pool.threads() > 1 => pool.region(n, &f),
        _ => (0..tasks).for_each(f),
    }
}

/// A slice whose disjoint parts are written by different tasks.
pub struct Parts<'a, T> {
    data: *mut T,
    len: usize,
    borrow: std::marker::PhantomData<&'a mut [T]>,
}

// SAFETY: a part is handed out as `&mut [T]`, which may move between threads when `T` may; `part` leaves
// it to its caller that parts do not overlap.
unsafe impl<T: Send> Sync for Parts<'_, T> {}

impl<'a, T> Parts<'a, T> {
    /// Parts of `data`.
    pub fn new(data: &'a mut [T]) -> Parts<'a, T> {
        Parts {
            data: data.as_mut_ptr(),
            len: data.len(),
            borrow: std::marker::PhantomData,
        }
    }

    /// Elements `range`.
    ///
    /// # Safety
    /// No two parts that are alive at the same time overlap.
    ///
    /// # Panics
    /// When the range is not inside the slice.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn part(&self, range: std::ops::Range<usize>) -> &mut [T] {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "part outside its slice"
        );
        // SAFETY: inside the slice, as just checked, and not aliased, as the caller promises.
        unsafe { std::slice::from_raw_parts_mut(self.data.add(range.start), range.len()) }
    }
}

/// Calls `f(i, chunk i)` for the chunks of `size` elements of `data`, the last of which may be shorter.
pub fn chunks_mut<T: Send>(data: &mut [T], size: usize, f: impl Fn(usize, &mut [T]) + Sync) {
    let len = data.len();
    let parts = Parts::new(data);
    for_each(len.div_ceil(size.max(1)), |i| {
        // SAFETY: chunk i is asked for once, and chunks do not overlap.
        f(i, unsafe { parts.part(i * size..len.min((i + 1) * size)) });
    });
}

/// A rectangle of a matrix, for one task to write.
pub struct Tile<'a, T> {
    parts: &'a Parts<'a, T>,
    width: usize,
    /// Its rows of the matrix.
    pub rows: std::ops::Range<usize>,
    /// Its columns.
    pub cols: std::ops::Range<usize>,
}

impl<T> Tile<'_, T> {
    /// The tile's part of its row `i`, counted from the first of its rows.
    ///
    /// # Panics
    /// When the tile has no such row.
    pub fn row(&mut self, i: usize) -> &mut [T] {
        assert!(i < self.rows.len(), "row outside its tile");
        let at = (self.rows.start + i) * self.width;
        // SAFETY: tiles do not overlap, and the borrow of this one lasts as long as the row's.
        unsafe { self.parts.part(at + self.cols.start..at + self.cols.end) }
    }
}

/// Calls `f` for all tiles of `size` = (rows, columns) of a matrix with rows of `width`, the last of which may be
/// smaller; the bottom rows are handed out first.
pub fn tiles_mut<T: Send>(
    data: &mut [T],
    width: usize,
    size: (usize, usize),
    f: impl Fn(Tile<'_, T>) + Sync,
) {
    let height = data.len().checked_div(width).unwrap_or(0);
    let (rows, cols) = (size.0.max(1), size.1.max(1));
    let (down, across) = (height.div_ceil(rows), width.div_ceil(cols));
    let parts = Parts::new(data);
    for_each(down * across, |i| {
        let (row, col) = ((down - 1 - i / across) * rows, i % across * cols);
        f(Tile {
            parts: &parts,
            width,
            rows: row..height.min(row + rows),
            cols: col..width.min(col + cols),
        });
    });
}

/// Calls `f(block, tile)` for every block of rows, cut into tiles of `cols` columns, of a matrix with rows of `width`; the
/// blocks are handed out in order.
///
/// # Panics
/// When two blocks overlap.
pub fn blocks_mut<T: Send>(
    data: &mut [T],
    width: usize,
    blocks: &[std::ops::Range<usize>],
    cols: usize,
    f: impl Fn(usize, Tile<'_, T>) + Sync,
) {
    let mut sorted: Vec<_> = blocks.iter().map(|b| (b.start, b.end)).collect();
    sorted.sort_unstable();
    let apart = sorted.windows(2).all(|pair| pair[0].1 <= pair[1].0);
    assert!(apart, "blocks of rows overlap");
    let cols = cols.max(1);
    let across = width.div_ceil(cols);
    let parts = Parts::new(data);
    for_each(blocks.len() * across, |i| {
        let col = i % across * cols;
        let tile = Tile {
            parts: &parts,
            width,
            rows: blocks[i / across].clone(),
            cols: col..width.min(col + cols),
        };
        f(i / across, tile);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_rows_are_each_visited_once() {
        let pool = Pool::new(2).expect("threads");
        let mut data = vec![0usize; 9 * 10];
        pool.install(|| {
            blocks_mut(&mut data, 10, &[4..9, 1..4, 0..0], 4, |block, mut tile| {
                for i in 0..tile.rows.len() {
                    tile.row(i).iter_mut().for_each(|v| *v += block + 1);
                }
            });
        });
        let row = |v: usize| [v; 10];
        let expected = [0, 2, 2, 2, 1, 1, 1, 1, 1].map(row);
        assert_eq!(data, expected.concat());
    }

    #[test]
    #[should_panic(expected = "overlap")]
    fn blocks_that_overlap_are_refused() {
        blocks_mut(&mut [0u8; 40], 10, &[0..2, 1..3], 4, |_, _| ());
    }

    #[test]
    fn every_task_runs_once_at_any_number_of_threads() {
        for threads in [1, 2, 3, 7] {
            let pool = Pool::new(threads).expect("threads");
            pool.install(|| {
                for tasks in (0..40).chain([1000]) {
                    let mut seen = vec![0u32; tasks];
                    chunks_mut(&mut seen, 1, |_, s| s[0] += 1);
                    assert!(
                        seen.iter().all(|&s| s == 1),
                        "{threads} threads, {tasks} tasks"
                    );
                }
            });
        }
    }

    #[test]
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
        for (height, width, size) in [
            (7, 10, (3, 4)),
            (1, 9, (4, 9)),
            (5, 5, (1, 2)),
            (0, 3, (1, 1)),
        ] {
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
}
