//! Common parts of the benchmarks: arguments, random weights, and runs in turns.
//!
//! Two programs are compared by running them alternately and taking the median of the ratios of
//! neighbouring runs: whatever else the machine does meets both. With one thread, only the time on the
//! processor counts, so that other programs' turns are left out.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use trine_formats::types::TypeInfo;

/// Arguments after `cargo bench -p trine-compat-tests --bench NAME --`.
pub struct Args {
    /// Types to measure; all when empty.
    pub types: Vec<String>,
    /// Numbers of threads, `-t 1,2`.
    pub threads: Vec<usize>,
    /// Pairs of runs, `-r 15`.
    pub runs: usize,
}

impl Args {
    /// Reads the command line. `None` under `cargo test --benches`, which only wants to know that it starts.
    ///
    /// # Errors
    /// Something that is neither an option nor the name of a type.
    pub fn parse() -> Result<Option<Args>> {
        let mut args = Args { types: Vec::new(), threads: vec![1], runs: 15 };
        let mut is_bench = false;
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} needs a value"));
            match word.as_str() {
                "--bench" => is_bench = true,
                "-t" => {
                    let list: Result<Vec<usize>, _> = value()?.split(',').map(str::parse).collect();
                    args.threads = list.context("-t takes numbers, such as 1,2")?;
                }
                "-r" => args.runs = value()?.parse().context("-r takes a number")?,
                ty if trine_formats::types::TypeId::from_name(ty).is_some() => {
                    args.types.push(ty.to_lowercase());
                }
                other => bail!("'{other}' is no tensor type; options are -t THREADS and -r RUNS"),
            }
        }
        if args.runs == 0 || args.threads.contains(&0) {
            bail!("-t and -r take numbers above 0");
        }
        Ok(is_bench.then_some(args))
    }

    /// True if a type was asked for.
    pub fn wants(&self, ty: &TypeInfo) -> bool {
        self.types.is_empty() || self.types.contains(&ty.name.to_lowercase())
    }
}

/// Random floats of about unit size; the same for the same seed (Knuth's MMIX generator).
pub fn floats(seed: u64, n: usize) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 24) as f32
    };
    (0..n).map(|_| next() + next() + next() - 1.5).collect()
}

/// A thing to measure.
pub type Work<'a> = Box<dyn FnMut() + 'a>;

/// Clock that times a run.
#[derive(Clone, Copy)]
pub struct Clock {
    start: Instant,
    on_cpu: bool,
}

impl Clock {
    /// A clock for work by `threads` threads: one is timed while it is on the processor, where the system tells; of
    /// several only the wall clock knows when they are done.
    pub fn new(threads: usize) -> Clock {
        Clock { start: Instant::now(), on_cpu: threads == 1 && on_cpu().is_some() }
    }

    fn now(&self) -> Duration {
        let on_cpu = if self.on_cpu { on_cpu() } else { None };
        on_cpu.unwrap_or_else(|| self.start.elapsed())
    }
}

/// How long this thread has been on a processor.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
fn on_cpu() -> Option<Duration> {
    /// `struct timespec`.
    #[repr(C)]
    struct Time {
        seconds: i64,
        nanoseconds: i64,
    }
    unsafe extern "C" {
        fn clock_gettime(clock: i32, time: *mut Time) -> i32;
    }
    const THREAD_CPUTIME: i32 = 3;
    let mut time = Time { seconds: 0, nanoseconds: 0 };
    // SAFETY: the struct is the one that the C library has on 64-bit Linux.
    let status = unsafe { clock_gettime(THREAD_CPUTIME, &raw mut time) };
    let seconds = u64::try_from(time.seconds).ok()?;
    let nanoseconds = u32::try_from(time.nanoseconds).ok()?;
    (status == 0).then(|| Duration::new(seconds, nanoseconds))
}

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
fn on_cpu() -> Option<Duration> {
    None
}

/// Seconds of every run of every work, in turns: `times[work][run]`. One more run warms up.
pub fn in_turns(works: &mut [Work<'_>], runs: usize, clock: Clock) -> Vec<Vec<f64>> {
    let mut times = vec![Vec::with_capacity(runs); works.len()];
    for run in 0..=runs {
        for (work, times) in works.iter_mut().zip(&mut times) {
            let start = clock.now();
            work();
            let took = clock.now().saturating_sub(start);
            if run > 0 {
                times.push(took.as_secs_f64());
            }
        }
    }
    times
}

/// The median.
pub fn median(mut x: Vec<f64>) -> f64 {
    x.sort_by(f64::total_cmp);
    match x.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => x[n / 2],
        n => (x[n / 2 - 1] + x[n / 2]) / 2.0,
    }
}

/// How many times `ours` goes into `theirs`, run by run: above 1, `ours` is faster. The median.
pub fn speedup(ours: &[f64], theirs: &[f64]) -> f64 {
    median(ours.iter().zip(theirs).map(|(o, t)| t / o).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_ratios() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0]), 2.5);
        // the second pair was disturbed
        assert_eq!(speedup(&[1.0, 10.0, 2.0], &[2.0, 2.0, 4.0]), 2.0);
    }

    #[test]
    fn sleep_is_not_work() {
        let clock = Clock::new(1);
        let start = clock.now();
        std::thread::sleep(Duration::from_millis(20));
        let took = clock.now() - start;
        assert!(!clock.on_cpu || took < Duration::from_millis(20), "{took:?}");
        assert!(!Clock::new(2).on_cpu);
    }

    #[test]
    fn works_take_turns() {
        let order = std::cell::RefCell::new(String::new());
        let mut works: Vec<Work<'_>> =
            ["a", "b"].into_iter().map(|name| -> Work<'_> { Box::new(|| order.borrow_mut().push_str(name)) }).collect();
        let times = in_turns(&mut works, 2, Clock::new(1));
        drop(works);
        assert_eq!(order.into_inner(), "ababab");
        assert_eq!(times.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2]);
    }
}
