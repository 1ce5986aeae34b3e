//! `rserve`: an OpenAI-compatible server whose answers do not depend on load.
//!
//! Three layers, each usable without the one above: [`engine`] turns requests into events, [`api`] turns JSON into
//! requests and events into JSON, [`http`] carries it. [`service`] is what a loaded model needs of all of them, and
//! [`run`] is the program.

pub mod api;
pub mod args;
pub mod engine;
pub mod http;
pub mod meters;
pub mod run;
pub mod service;
