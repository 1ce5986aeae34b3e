//! The program: start, serve, end.

use std::io::{self, IsTerminal};
use std::process;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::runtime::Builder;
use trine_tools::isolate::OtherProcess;
use trine_tools::{interrupt, note};

use crate::args::Args;
use crate::http::{Server, lines};
use crate::notify::{self, notify};

/// Threads that carry HTTP, and threads for tokenizing and templates.
const CARRIERS: usize = 2;
const WORKERS: usize = 6;

/// The exit code when the engine has failed, so that a supervisor starts the server again: the code for an internal
/// software error of sysexits.h.
const FAILED: i32 = 70;

/// How often it is looked whether the server is to end and whether the engine is alive.
const LOOK: Duration = Duration::from_millis(50);

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

async fn serve(args: &Args) -> Result<()> {
    let mut server = Server::start(args, Arc::new(OtherProcess)).await?;
    // Until here nothing was admitted, and a request to end is followed at once.
    server.ready().await?;
    interrupt::listen();
    // Where somebody watches, a terminal that is closed ends the server.
    if args.api_key_file.is_some() && !io::stderr().is_terminal() {
        interrupt::heed_hang_ups();
    }
    note!("rserve: {}", server.greeting());
    notify(notify::READY);
    while !interrupt::asked() {
        if server.has_failed() {
            lines::write("rserve: error: the engine has failed".to_owned());
            lines::finish();
            process::exit(FAILED);
        }
        if interrupt::take_hang_up() {
            lines::write(server.read_keys_again());
        }
        tokio::time::sleep(LOOK).await;
    }
    // Nobody balances the load of a server that somebody watches at a terminal.
    let delay = match io::stderr().is_terminal() {
        true => Duration::ZERO,
        false => args.drain_delay,
    };
    lines::write("rserve: ending when all texts are done; another request to end is followed at once".to_owned());
    notify(notify::STOPPING);
    server.drain(delay, args.drain_timeout).await;
    Ok(())
}
