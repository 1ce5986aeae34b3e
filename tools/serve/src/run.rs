//! The program: start, serve, end.

use std::process;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::runtime::Builder;
use trine_tools::{interrupt, note};

use crate::args::Args;
use crate::http::Server;

/// Threads that carry HTTP, and threads for tokenizing and templates.
const CARRIERS: usize = 2;
const WORKERS: usize = 4;

/// The exit code when the engine has failed, so that a supervisor starts the server again: the code for an internal
/// software error of sysexits.h.
const FAILED: i32 = 70;

/// How often it is looked whether the engine is alive.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// Serves until a signal ends it.
///
/// # Errors
/// The model, the address or the options cannot be used.
pub fn run(args: &Args) -> Result<()> {
    let runtime = Builder::new_multi_thread()
        .worker_threads(CARRIERS)
        .max_blocking_threads(WORKERS)
        .enable_all()
        .build()
        .context("cannot start threads")?;
    let result = runtime.block_on(serve(args));
    // A template or a tokenizer that is still busy keeps nobody waiting.
    runtime.shutdown_background();
    result
}

/// What ends a server.
enum Signal {
    /// Somebody at the terminal.
    Interrupt,
    /// A supervisor.
    Terminate,
}

async fn serve(args: &Args) -> Result<()> {
    let mut signals = Signals::listen()?;
    let mut server = Server::start(args).await?;
    let signal = tokio::select! {
        ready = server.ready() => {
            ready?;
            None
        }
        signal = signals.next() => Some(signal),
    };
    if signal.is_some() {
        // Nothing was admitted yet, and loading cannot be interrupted.
        process::exit(interrupt::EXIT_CODE);
    }
    note!("rserve: {}", server.greeting());
    let signal = loop {
        tokio::select! {
            signal = signals.next() => break signal,
            () = tokio::time::sleep(HEARTBEAT) => {
                if server.has_failed() {
                    note!("rserve: error: the engine has failed");
                    process::exit(FAILED);
                }
            }
        }
    };
    let delay = match signal {
        // No balancer is watching.
        Signal::Interrupt => Duration::ZERO,
        Signal::Terminate => args.drain_delay,
    };
    note!("rserve: ending when all texts are done; another signal ends at once");
    tokio::select! {
        () = server.drain(delay, args.drain_timeout) => Ok(()),
        _ = signals.next() => bail!("ended by a second signal; texts were cut off"),
    }
}

#[cfg(unix)]
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn listen() -> Result<Signals> {
        use tokio::signal::unix::{SignalKind, signal};
        let context = "cannot listen for signals";
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt()).context(context)?,
            terminate: signal(SignalKind::terminate()).context(context)?,
        })
    }

    async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::Interrupt,
            _ = self.terminate.recv() => Signal::Terminate,
        }
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn listen() -> Result<Signals> {
        Ok(Signals)
    }

    async fn next(&mut self) -> Signal {
        match tokio::signal::ctrl_c().await {
            Ok(()) => Signal::Interrupt,
            // Without signals the server runs until it is killed.
            Err(_) => std::future::pending().await,
        }
    }
}
