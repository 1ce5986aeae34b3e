//! The engine's thread: the only one that computes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use trine::Model;
use trine::generate::speculate::AsideSource;

use super::backend::Backend;
use super::counters::Counters;
use super::job::Command;
use super::options::Options;
use super::queue::Admission;
use super::scheduler::Scheduler;

/// How often it is looked whether waiting clients have gone or read again, while there is nothing to compute.
const LOOK: Duration = Duration::from_millis(20);

/// How long after one panic another one ends the program, for whoever watches it to start it again.
const TWICE: Duration = Duration::from_secs(60);

/// The exit code of that: an internal software error, as sysexits.h has it.
const EXIT_SOFTWARE: i32 = 70;

/// Starts it; drafts come from `aside`, where they come from a second model or from the texts.
pub(super) fn start<B: Backend + Send + 'static>(
    backend: B,
    model: &Model,
    (options, aside): (&Options, Option<AsideSource>),
    admission: &Arc<Admission>,
    counters: &Arc<Counters>,
    inbox: Receiver<Command>,
) -> std::io::Result<JoinHandle<()>> {
    let scheduler = Scheduler::new(backend, model, (options, aside), admission, counters);
    let admission = admission.clone();
    let name = Builder::new().name("engine".into());
    name.spawn(move || run(scheduler, &admission, &inbox))
}

fn run<B: Backend>(mut scheduler: Scheduler<B>, admission: &Admission, inbox: &Receiver<Command>) {
    let mut last_panic: Option<Instant> = None;
    loop {
        inbox.try_iter().for_each(|c| take(&mut scheduler, c));
        if admission.is_stopped() {
            return scheduler.shut_down(Instant::now());
        }
        let stepped = catch_unwind(AssertUnwindSafe(|| scheduler.round(&Instant::now)));
        match stepped {
            Ok(true) => continue,
            Ok(false) => {}
            Err(_) => {
                if last_panic.is_some_and(|at| at.elapsed() < TWICE) {
                    std::process::exit(EXIT_SOFTWARE);
                }
                last_panic = Some(Instant::now());
                scheduler.fail_all("the server made a mistake; the request was not at fault");
                continue;
            }
        }
        let next = match scheduler.is_empty() {
            true => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
            false => inbox.recv_timeout(LOOK),
        };
        match next {
            Ok(command) => take(&mut scheduler, command),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return scheduler.shut_down(Instant::now()),
        }
    }
}

fn take<B: Backend>(scheduler: &mut Scheduler<B>, command: Command) {
    match command {
        Command::New(job) => scheduler.take(*job),
        Command::Slot(command) => scheduler.about_slot(command),
        Command::Wake => {}
    }
}
