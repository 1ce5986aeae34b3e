//! `rserve`: an OpenAI-compatible server whose answers do not depend on load.
//!
//! Five layers, each usable without those above: [`engine`] turns requests into events, [`service`] holds a loaded
//! model with all that answers need of it, [`models`] says which one answers a request, [`api`] turns JSON into requests
//! and events into JSON, [`http`] carries it.
//! [`run`] is the program.

pub mod api;
pub mod args;
pub mod engine;
pub mod error;
pub mod http;
pub mod models;
pub mod notify;
pub mod run;
pub mod service;

use trine_tools::commands::Tool;

/// The program, as those of `trine-tools` are described.
pub fn tool() -> Tool {
    Tool::new("rserve", args::SHORT, run::run)
}
