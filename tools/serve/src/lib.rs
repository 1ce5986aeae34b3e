//! `rserve`: an OpenAI-compatible server whose answers do not depend on load.

pub mod engine;
