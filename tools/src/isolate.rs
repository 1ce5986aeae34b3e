//! Jobs on data that nobody has to trust, each in a process of its own: the same program, started with `MARK`.
//!
//! The process has limits of memory and time from the system, and its standard error goes nowhere. Whatever it does, it
//! ends alone: a stack that overflows there is a line here.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use trine::isolate::{Failure, Isolate, Job, Limits, STACK};

use crate::signals;

/// The argument that makes the program do one job and end.
const MARK: &str = "--trine-isolated-job";
/// Longest request: more than the largest tokenizer.
const MAX_REQUEST: u64 = 1 << 30;
/// Longest answer: more than the longest rendered conversation.
const MAX_ANSWER: u64 = 256 << 20;
/// Memory that the process needs beside what the job may take.
const OWN_MEMORY: u64 = 64 << 20;
/// How much longer than the job may run the process is waited for: the system ends it by its processor time, of which
/// it gets less on a machine with much to do. Templates have limits of their own.
fn grace(job: Job) -> Duration {
    Duration::from_secs(if job == Job::Grammar { 8 } else { 1 })
}

/// Starts this program once more for each job.
#[derive(Clone, Copy, Debug)]
pub struct OtherProcess;

/// Starts another program of this crate for each job: for those that do not call [`serve`] themselves, such as tests.
#[derive(Clone, Debug)]
pub struct OtherProgram(pub PathBuf);

fn name(job: Job) -> &'static str {
    match job {
        Job::Template => "template",
        Job::Tokenizer => "tokenizer",
        Job::Grammar => "grammar",
    }
}

/// Does a job, if that is what this process was started for.
pub fn serve() -> Option<ExitCode> {
    let mut args = std::env::args_os().skip(1);
    if args.next().as_deref() != Some(OsStr::new(MARK)) {
        return None;
    }
    signals::hold_back();
    let job = args.next();
    let mut number = || args.next().and_then(|n| n.to_str()?.parse().ok()).unwrap_or(0);
    limit(number(), number());
    let answer: fn(&[u8]) -> Vec<u8> = match job.as_deref().and_then(OsStr::to_str) {
        Some("template") => trine::chat::answer,
        Some("tokenizer") => trine::convert::answer,
        Some("grammar") => trine::grammar::answer,
        _ => return Some(ExitCode::from(2)),
    };
    let mut request = Vec::new();
    let read = std::io::stdin().take(MAX_REQUEST).read_to_end(&mut request);
    let done = read.and_then(|_| {
        let mut stdout = std::io::stdout();
        stdout.write_all(&answer(&request))?;
        stdout.flush()
    });
    Some(match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    })
}

/// Lets this process have `memory` bytes and `seconds` of a processor, and leave no core file.
#[cfg(unix)]
fn limit(memory: u64, seconds: u64) {
    use nix::sys::resource::Resource::{RLIMIT_CORE, RLIMIT_CPU, RLIMIT_DATA};
    use nix::sys::resource::{getrlimit, setrlimit};
    for (resource, most) in [(RLIMIT_DATA, memory), (RLIMIT_CPU, seconds), (RLIMIT_CORE, 0)] {
        if let Ok((_, hard)) = getrlimit(resource) {
            // What cannot be limited so is still watched from within and from without.
            let _ = setrlimit(resource, most.min(hard), hard);
        }
    }
}

#[cfg(not(unix))]
fn limit(_: u64, _: u64) {}

/// This program, also where its file was replaced since it was started.
fn program() -> std::io::Result<PathBuf> {
    let itself = Path::new("/proc/self/exe");
    if itself.exists() {
        return Ok(itself.to_owned());
    }
    std::env::current_exe()
}

impl Isolate for OtherProcess {
    fn run(&self, job: Job, request: &[u8], limits: Limits) -> Result<Vec<u8>, Failure> {
        let program = program().map_err(|e| Failure::Broken(e.to_string()))?;
        run(&program, job, request, limits)
    }
}

impl Isolate for OtherProgram {
    fn run(&self, job: Job, request: &[u8], limits: Limits) -> Result<Vec<u8>, Failure> {
        run(&self.0, job, request, limits)
    }
}

/// Does a job in a process of `program`.
fn run(program: &Path, job: Job, request: &[u8], limits: Limits) -> Result<Vec<u8>, Failure> {
    let broken = |what: String| Failure::Broken(what);
    let started = Command::new(program)
        .arg(MARK)
        .arg(name(job))
        .arg((limits.memory + STACK as u64 + OWN_MEMORY).to_string())
        .arg(limits.time.as_secs().to_string())
        .env_remove("RUST_BACKTRACE")
        .env("RAYON_NUM_THREADS", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut child = started.map_err(|e| broken(format!("cannot start a process: {e}")))?;
    let answer = exchange(&mut child, request, limits.time + grace(job));
    if !matches!(answer, Ok(Some(_))) {
        // It may have ended by itself, which is as good.
        let _ = child.kill();
    }
    let status = child.wait().map_err(|e| broken(e.to_string()))?;
    match answer.map_err(|e| broken(format!("cannot start a thread: {e}")))? {
        None => Err(Failure::Time(limits.time)),
        Some(answer) if status.success() => Ok(answer),
        Some(_) if used_its_time(status) => Err(Failure::Time(limits.time)),
        Some(_) => Err(broken(describe(status))),
    }
}

/// Gives the request to the process and waits for its answer; `None` when there is none in time.
fn exchange(child: &mut Child, request: &[u8], time: Duration) -> std::io::Result<Option<Vec<u8>>> {
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let (sender, receiver) = mpsc::channel();
    let read = move || {
        let mut answer = Vec::new();
        // What a process that ended early did not write is found out by its status.
        let _ = stdout.map(|out| out.take(MAX_ANSWER).read_to_end(&mut answer));
        drop(sender.send(answer));
    };
    thread::Builder::new().name("answer".to_owned()).spawn(read)?;
    // The process reads all of its request before anything else, so this ends.
    if let Some(mut stdin) = stdin {
        let _ = stdin.write_all(request);
    }
    Ok(receiver.recv_timeout(time).ok())
}

/// Returns true if the system ended a process because of its processor time.
#[cfg(unix)]
fn used_its_time(status: ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt;
    status.signal() == Some(nix::sys::signal::Signal::SIGXCPU as i32)
}

#[cfg(not(unix))]
fn used_its_time(_: ExitStatus) -> bool {
    false
}

/// How a process ended that did not end well.
fn describe(status: ExitStatus) -> String {
    #[cfg(unix)]
    {
        use std::os::unix::process::ExitStatusExt;
        if status.signal().is_some() {
            return "it took more memory or stack than it may have".to_owned();
        }
    }
    format!("it ended with {status}")
}
