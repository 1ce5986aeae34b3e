//! Work on data that nobody has to trust: programs that come with a model, and code that was not written for hostile
//! files.
//!
//! The cost of such work cannot be known before. Here it [runs within limits](within) of time and memory in a thread of
//! its own. A thread survives neither a stack overflow nor a failed allocation, so a program that must not end whatever
//! a file holds gives the work to another process: it implements [`Isolate`], and the other process answers with
//! [`chat::answer`](crate::chat::answer), [`convert::answer`](crate::convert::answer) or `grammar::answer`.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// The work of the other process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    /// Rendering a chat template.
    Template,
    /// Encoding texts with the tokenizer of a checkpoint.
    Tokenizer,
    /// Compiling a grammar.
    Grammar,
}

/// Does jobs where they can do no harm, such as in another process.
pub trait Isolate: fmt::Debug + Send + Sync {
    /// The answer to a request.
    ///
    /// # Errors
    /// The job took too much or broke off, or could not be begun.
    fn run(&self, job: Job, request: &[u8], limits: Limits) -> Result<Vec<u8>, Failure>;
}

/// Limits of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest run.
    pub time: Duration,
    /// Most memory that the process may gain, in bytes.
    pub memory: u64,
}

impl Limits {
    /// For a job on `bytes` of data: little for little data, and enough for what real models have. Three seconds and
    /// 160 MiB, and for each MiB three seconds and 48 MiB more.
    pub fn of(bytes: usize) -> Limits {
        let mib = bytes as u64 >> 20;
        Limits { time: Duration::from_secs(3 + 3 * mib), memory: (160 + 48 * mib) << 20 }
    }
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// It ran too long.
    #[error("it used more than {} seconds", .0.as_secs())]
    Time(Duration),
    /// It took too much memory.
    #[error("it used more than {} MiB", .0 >> 20)]
    Memory(u64),
    /// It ended in the middle.
    #[error("it broke off: {0}")]
    Broken(String),
}

/// Stack of the thread: room for data that is nested as deeply as what is accepted can be.
pub const STACK: usize = 192 << 20;
/// WebAssembly runs the whole program within bounds of its own, with threads and without.
const THREADS: bool = !cfg!(target_family = "wasm");
/// How often time and memory are looked at.
const TICK: Duration = Duration::from_millis(4);

/// Runs `work` in a thread and gives up on it when it takes too much. The thread may then still be running: a program
/// that gets [`Failure::Time`] or [`Failure::Memory`] should end. In WebAssembly this thread does the work.
///
/// # Errors
/// `work` took too much, panicked, or could not be begun.
pub fn within<T: Send + 'static>(limits: Limits, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Failure> {
    if !THREADS {
        return Ok(work());
    }
    let (sender, receiver) = mpsc::channel();
    // Nobody listens any more when the watcher has given up. Nothing of what `work` owned is seen after a panic.
    let work = move || drop(sender.send(catch_unwind(AssertUnwindSafe(work))));
    thread::Builder::new()
        .name("isolated".to_owned())
        .stack_size(STACK)
        .spawn(work)
        .map_err(|e| Failure::Broken(format!("cannot start a thread: {e}")))?;
    let (start, before) = (Instant::now(), resident());
    loop {
        match receiver.recv_timeout(TICK) {
            Ok(Ok(result)) => return Ok(result),
            Ok(Err(_)) | Err(RecvTimeoutError::Disconnected) => {
                return Err(Failure::Broken("its code panicked".to_owned()));
            }
            Err(RecvTimeoutError::Timeout) => {
                if start.elapsed() > limits.time {
                    return Err(Failure::Time(limits.time));
                }
                if resident().saturating_sub(before) > limits.memory {
                    return Err(Failure::Memory(limits.memory));
                }
            }
        }
    }
}

/// Resident bytes of this process; 0 where the system does not tell.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_whitespace().nth(1).and_then(|p| p.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_too_much_is_given_up() {
        let limits = Limits { time: Duration::from_millis(50), memory: 64 << 20 };
        assert_eq!(within(limits, || 7), Ok(7));
        let slow = within(limits, || thread::sleep(Duration::from_secs(5)));
        assert_eq!(slow, Err(Failure::Time(limits.time)));
        let panics = within(limits, || std::panic::resume_unwind(Box::new(())));
        assert!(matches!(panics, Err::<(), _>(Failure::Broken(_))));
    }
}
