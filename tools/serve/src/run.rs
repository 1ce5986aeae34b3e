//! The program: start, serve, end.

use std::io::{self, IsTerminal};
use std::process;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::runtime::Builder;
use trine_tools::isolate::OtherProcess;
use trine_tools::{inputs, interrupt, note};

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

/// Opens the file of the log, where there is one. It is none of those that are read.
fn open_log(args: &Args) -> Result<()> {
    let Some(path) = &args.log_file else {
        return Ok(());
    };
    let read = [&args.api_key_file, &args.chat_template_file, &args.ssl_cert_file, &args.ssl_key_file];
    let read = read.into_iter().map(Option::as_ref).chain([Some(&args.model.model)]);
    read.flatten().for_each(|path| inputs::add(path));
    inputs::spare(path, "--log-file")?;
    if path.extension().is_some_and(|end| end == "gguf") {
        bail!("--log-file: '{}' has the name of a model", path.display());
    }
    lines::to_file(path).with_context(|| format!("--log-file: cannot write '{}'", path.display()))
}

async fn serve(args: &Args) -> Result<()> {
    open_log(args)?;
    let mut server = Server::start(args, Arc::new(OtherProcess)).await?;
    // Until here nothing was admitted, and a request to end is followed at once.
    server.ready().await?;
    interrupt::listen();
    // Where somebody watches, a terminal that is closed ends the server.
    let reads = args.api_key_file.is_some() || args.log_file.is_some() || args.ssl_cert_file.is_some();
    if reads && !io::stderr().is_terminal() {
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
            if let Err(e) = open_log(args) {
                lines::write(format!("rserve: error: {e:#}"));
            }
            if args.api_key_file.is_some() {
                lines::write(server.read_keys_again());
            }
            if let Some(line) = server.read_certificate_again() {
                lines::write(line);
            }
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
