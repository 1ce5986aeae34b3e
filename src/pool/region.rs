//! Regions: the tasks of one call of `for_each`, taken by its caller and by helpers, a run of neighbours at a time.
//!
//! A run is a share of what is left, so runs get shorter to the end, down to one task: the counter is asked for a few
//! times by every thread, and nobody waits long for the last. (To take the 48 tasks of a small product one by one, each
//! of three microseconds, cost two cores a sixth of their time, in which the counter's cache line went from one to the
//! other.)
//!
//! A [`Slot`] carries one region after the other, of one caller at a time. Nothing in it is locked; why
//! each part may be read when it is:
//!
//! 1. *Open.* The caller writes `job` and `helped`, then stores the number of tasks in `left`.
//! 2. *Take.* A thread takes tasks by a compare-and-exchange that counts `left` down from a number above
//!    0. An exchange reads the newest value there is: the store of step 1, or what other exchanges made of
//!    it. Such a chain of exchanges hands on what the store released, and the exchange acquires, so the
//!    thread sees what the caller wrote in step 1. It does not matter which region it saw before it
//!    tried: it learns which tasks it has from `job`, after it has taken them.
//! 3. *Finish.* A helper that has run its tasks adds their number to `helped`, releasing what it wrote and, with it,
//!    the end of its use of `job`. The caller takes tasks until `left` is 0 and then waits, acquiring,
//!    until `helped` is the number of tasks that it has not run itself. So while a task is taken and not
//!    finished, `job` stays as it is and the closure behind it lives; and when the caller goes on, it
//!    sees what all tasks wrote.
//! 4. *Hand over.* A slot goes from one caller to the next by way of [`super::helpers::Claim`], which
//!    releases and acquires: step 1 of the next region follows step 3 of the last, whoever's they are.

use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;

use super::patience::Patience;
use super::sync::{AtomicBool, AtomicU32, Mutex, MutexGuard, Ordering, SharedCell, thread};

/// The work of a region: `run(body, i)` for every `i < tasks`.
#[derive(Clone, Copy)]
struct Job {
    body: *const (),
    run: unsafe fn(*const (), usize),
    tasks: u32,
}

/// Where a caller's regions are for helpers to find. Aligned so that no two slots share a cache line, nor a
/// pair of lines that the processor fetches together.
#[repr(align(128))]
pub(super) struct Slot {
    /// Tasks of the region that nobody has taken yet.
    left: AtomicU32,
    /// Tasks of the region that helpers have finished.
    helped: AtomicU32,
    job: SharedCell<Job>,
    /// Divisor of the tasks that are left, which gives the length of a run of tasks.
    shares: u32,
    /// Helpers that work on this slot's regions, for the others to choose by. Nothing is read on the
    /// strength of it, so it needs no order.
    pub(super) helpers: AtomicU32,
    /// True if there is something in `panics`.
    panicked: AtomicBool,
    panics: Mutex<Vec<Box<dyn Any + Send>>>,
}

// SAFETY: all fields but `job` may be shared as they are. `job` is written in step 1 of the module's
// comment and read in step 2, which never happen at the same time; the closure it points to is `Sync`, as
// `region` demands, so any thread may call it.
unsafe impl Sync for Slot {}

// SAFETY: the pointer in `job` is used by those who have taken a task and by nobody else, so that moving a slot
// moves no right to use it.
unsafe impl Send for Slot {}

impl Slot {
    /// A slot for the regions of a pool of `threads` threads.
    pub(super) fn new(threads: usize) -> Slot {
        fn nothing(_: *const (), _: usize) {}
        Slot {
            left: AtomicU32::new(0),
            helped: AtomicU32::new(0),
            job: SharedCell::new(Job { body: ptr::null(), run: nothing, tasks: 0 }),
            // Two runs for each thread from what is left: a thread that is late still finds half of it.
            shares: u32::try_from(2 * threads).unwrap_or(u32::MAX).max(1),
            helpers: AtomicU32::new(0),
            panicked: AtomicBool::new(false),
            panics: Mutex::new(Vec::new()),
        }
    }

    /// Runs a region as its caller: opens it, calls `wake` for helpers that may be asleep, works on its tasks
    /// and returns when all have ended. Opening is sequentially consistent, which `wake` relies on. When the
    /// pool is `crowded`, tasks are taken one by one, and waiting for helpers gives way to other threads at once.
    ///
    /// # Safety
    /// No other thread runs a region in this slot before this one has returned, and what it did before this one
    /// began happens before it.
    ///
    /// # Panics
    /// With the panic of the first task that panicked, after all have ended.
    pub(super) unsafe fn region<F: Fn(usize) + Sync>(&self, tasks: u32, f: &F, crowded: bool, wake: impl FnOnce()) {
        /// # Safety
        /// `body` points at an `F` that lives until this returns.
        unsafe fn call<F: Fn(usize)>(body: *const (), task: usize) {
            // SAFETY: `region` stores this function beside a pointer to an `F` that it borrows, and does not
            // return while a thread that has taken a task may still be in here.
            unsafe { (*body.cast::<F>())(task) }
        }
        let job = Job { body: ptr::from_ref(f).cast(), run: call::<F>, tasks };
        // SAFETY: the region before, of this caller or another, has ended, as the caller of this function
        // promises; that it has ended means that `left` is 0, so nobody takes a task and reads `job`, and that
        // all who had taken one have finished (step 3 of the module's comment).
        self.job.with_mut(|place| unsafe { *place = job });
        self.helped.store(0, Ordering::Relaxed);
        self.left.store(tasks, Ordering::SeqCst);
        // Nothing from here to the end of the wait below unwinds: tasks that panic are caught.
        wake();
        let mut own = 0;
        while let Some(run) = self.take(crowded) {
            own += run.len() as u32;
            for left in run.rev() {
                self.attempt(|| f((tasks - left) as usize));
            }
        }
        let mut patience = Patience::new();
        while self.helped.load(Ordering::Acquire) != tasks - own {
            if crowded || !patience.spin() {
                thread::yield_now();
            }
        }
        // Stored by a task that has ended, so it is seen here.
        if self.panicked.load(Ordering::Relaxed) {
            self.panicked.store(false, Ordering::Relaxed);
            let mut panics = std::mem::take(&mut *self.panics());
            let first = panics.swap_remove(0);
            // A payload may panic when it is dropped: here it harms its own caller only.
            drop(panics);
            resume_unwind(first);
        }
    }

    /// True if a helper would find a task; sequentially consistent, as going to sleep needs it.
    pub(super) fn has_tasks(&self) -> bool {
        self.left.load(Ordering::SeqCst) > 0
    }

    /// Takes and runs some tasks as a helper, one where the pool is `crowded`; false when there is none.
    pub(super) fn help(&self, crowded: bool) -> bool {
        let Some(run) = self.take(crowded) else {
            return false;
        };
        let taken = run.len() as u32;
        // SAFETY: this thread has taken tasks and not finished them, so `job` is that of their region and
        // is not written (steps 2 and 3 of the module's comment).
        let job = self.job.with(|place| unsafe { *place });
        for left in run.rev() {
            let task = (job.tasks - left) as usize;
            // SAFETY: `region` stored `body` and `run` as a pair, and waits until this task is finished.
            self.attempt(|| unsafe { (job.run)(job.body, task) });
        }
        self.helped.fetch_add(taken, Ordering::Release);
        true
    }

    /// Takes some tasks, or one where other regions want helpers too; how many were left with each, the first task's
    /// last.
    fn take(&self, crowded: bool) -> Option<Range<u32>> {
        let mut left = self.left.load(Ordering::Relaxed);
        while left > 0 {
            let run = if crowded { 1 } else { left / self.shares };
            let rest = left - run.max(1);
            match self.left.compare_exchange_weak(left, rest, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(rest + 1..left + 1),
                Err(now) => left = now,
            }
        }
        None
    }

    /// Runs a task and keeps its panic for the caller.
    fn attempt(&self, task: impl FnOnce()) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(task)) {
            self.panics().push(panic);
            self.panicked.store(true, Ordering::Relaxed);
        }
    }

    fn panics(&self) -> MutexGuard<'_, Vec<Box<dyn Any + Send>>> {
        self.panics.lock().unwrap_or_else(|e| e.into_inner())
    }
}
