//! Running tools within limits, and judging what they did.

use std::fmt;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use trine_compat_tests::inputs::Rng;
use trine_compat_tests::programs::path_of;
use trine_formats::gguf::{Gguf, Limits};
use trine_testkit::TempDir;

use super::bases::Bases;

pub const SIGPIPE: i32 = 13;
/// Longest line of a message.
const LINE: usize = 5000;
/// Longest run by the clock; one that waits for something else than the processor hangs.
const HANG: Duration = Duration::from_secs(60);
/// Most memory of a run in KiB.
const MEMORY: u64 = 500 * 1000;

/// One part of the harness: it goes on for as long as it is asked to.
pub type Part = fn(&mut Worker);

#[derive(Clone, Copy)]
pub struct Options {
    pub seed: u64,
    pub length: Length,
}

/// The length of a part.
#[derive(Clone, Copy)]
pub enum Length {
    /// Attacks of each worker: which ones they are depends on no machine.
    Attacks(u64),
    Time(Duration),
}

#[derive(Clone, Copy, Default)]
pub struct Counts {
    pub tried: u64,
    pub refused: u64,
    pub failed: u64,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { tried, refused, failed } = self;
        write!(f, "{tried} tried, {refused} refused, {failed} failed")
    }
}

/// One of the threads that attack, with a folder and random numbers of its own.
pub struct Worker<'a> {
    pub dir: TempDir,
    pub rng: Rng,
    pub bases: &'a Bases,
    /// Which of the threads, from 0.
    pub number: usize,
    pub counts: Counts,
    begun: Instant,
    length: Length,
}

/// Threads that attack side by side.
pub const WORKERS: usize = 2;

pub fn in_parallel(options: Options, bases: &Bases, part: Part) -> Counts {
    let mut all = Counts::default();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|number| {
                scope.spawn(move || {
                    let mut worker = Worker {
                        dir: trine_testkit::folder(),
                        rng: Rng::new(options.seed * 1000 + number as u64),
                        bases,
                        number,
                        counts: Counts::default(),
                        begun: Instant::now(),
                        length: options.length,
                    };
                    part(&mut worker);
                    worker.counts
                })
            })
            .collect();
        for worker in workers {
            let counts = worker.join().expect("a worker");
            all.tried += counts.tried;
            all.refused += counts.refused;
            all.failed += counts.failed;
        }
    });
    all
}

/// Results of a run.
pub struct Done {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: String,
    /// Kibibytes; 0 where it could not be seen.
    pub memory: u64,
    pub hung: bool,
}

impl Worker<'_> {
    pub fn goes_on(&self) -> bool {
        match self.length {
            Length::Attacks(attacks) => self.counts.tried < attacks,
            Length::Time(time) => self.begun.elapsed() < time,
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        self.rng.below(n.max(1))
    }

    pub fn one_of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    /// A tool in this worker's folder, with five seconds of processor time, behind `shell` where the system is to limit
    /// more.
    pub fn command(&self, shell: &str, name: &str, words: &[String]) -> Command {
        let mut command = Command::new("sh");
        command
            .arg("-c")
            .arg(format!("ulimit -c 0; ulimit -t 5; {shell} exec \"$0\" \"$@\""))
            .arg(path_of(name))
            .args(words)
            // A fault is to come again with the same number of the harness.
            .env("TRINE_SEED", "7")
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Waits for a run. Streams that the command keeps are read to their end.
    pub fn finish(&mut self, command: &mut Command) -> Done {
        let mut child = command.spawn().expect("a process");
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let read = |stream: Option<Box<dyn Read + Send>>| {
            thread::spawn(move || {
                let mut bytes = Vec::new();
                // What a program that was ended did not say is no fault of the reader.
                let _ = stream.map(|s| s.take(64 << 20).read_to_end(&mut bytes));
                bytes
            })
        };
        let out = read(out.map(|s| Box::new(s) as Box<dyn Read + Send>));
        let err = read(err.map(|s| Box::new(s) as Box<dyn Read + Send>));
        let (start, mut memory, mut hung) = (Instant::now(), 0, false);
        let status = loop {
            if let Some(status) = child.try_wait().expect("a process") {
                break status;
            }
            memory = memory.max(peak(child.id()));
            if start.elapsed() > HANG && !hung {
                hung = true;
                child.kill().expect("a process");
            }
            thread::sleep(Duration::from_micros(700));
        };
        Done {
            status,
            stdout: out.join().expect("a reader"),
            stderr: String::from_utf8_lossy(&err.join().expect("a reader")).into_owned(),
            memory,
            hung,
        }
    }

    /// Runs and judges: `target` is the file that was asked for.
    pub fn judge(&mut self, command: &mut Command, target: Option<&str>, what: &str) -> Done {
        let done = self.finish(command);
        self.counts.tried += 1;
        self.counts.refused += u64::from(!done.status.success());
        if let Err(fault) = self.verdict(&done, target) {
            self.fail(&format!("{fault}\n  {what}\n  {command:?}\n{}", tail(&done.stderr)));
        }
        done
    }

    pub fn fail(&mut self, what: &str) {
        self.counts.failed += 1;
        println!("FAILED: {what}");
    }

    fn verdict(&self, done: &Done, target: Option<&str>) -> Result<(), String> {
        let status = done.status;
        if done.hung {
            return Err(format!("it hung for {} seconds", HANG.as_secs()));
        }
        // The system had no room to load the program, which never began.
        if status.code() == Some(127) && done.stderr.contains("loading shared libraries") {
            return Ok(());
        }
        match (status.signal(), status.code()) {
            (None | Some(SIGPIPE), None | Some(0 | 1 | 2 | 130)) => {}
            _ => return Err(format!("it ended with {status}")),
        }
        if done.memory > MEMORY {
            return Err(format!("it took {} KiB", done.memory));
        }
        if done.stderr.contains("panicked at") {
            return Err("it panicked".to_owned());
        }
        if done.stderr.lines().any(|l| l.len() > LINE) {
            return Err("a message is too long".to_owned());
        }
        let hidden = |c: char| c.is_control() && !matches!(c, '\n' | '\t' | '\r');
        if done.stderr.contains(hidden) {
            return Err("a control character reached the terminal".to_owned());
        }
        let left = fs::read_dir(self.dir.path()).expect("a folder").flatten();
        for entry in left {
            if entry.file_name().to_string_lossy().ends_with(".part") {
                return Err("an unfinished file is left".to_owned());
            }
        }
        let Some(target) = target.map(|t| self.path(t)) else {
            return Ok(());
        };
        match (status.success(), target.exists()) {
            (true, false) => Err("success without a result".to_owned()),
            (_, true) if target.extension().is_some_and(|e| e == "gguf") => whole(&target),
            _ => Ok(()),
        }
    }
}

/// Fails unless a file that a tool wrote can be read.
fn whole(path: &Path) -> Result<(), String> {
    let bytes = fs::read(path).map_err(|e| e.to_string())?;
    match Gguf::parse(&bytes, &Limits::default()) {
        Ok(_) => Ok(()),
        Err(e) => Err(format!("it wrote a file that cannot be read: {e}")),
    }
}

fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let last = &lines[lines.len().saturating_sub(3)..];
    let line = |l: &&str| format!("  | {}\n", l.chars().take(300).collect::<String>());
    last.iter().map(line).collect()
}

/// The most memory that a process has had resident, in KiB.
fn peak(id: u32) -> u64 {
    let mut status = String::new();
    let read = File::open(format!("/proc/{id}/status")).and_then(|mut f| f.read_to_string(&mut status));
    if read.is_err() {
        return 0;
    }
    let line = status.lines().find(|l| l.starts_with("VmHWM:"));
    let number = line.and_then(|l| l.split_whitespace().nth(1));
    number.and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// Words of a command line.
pub fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}
