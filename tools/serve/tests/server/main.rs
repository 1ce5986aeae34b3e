//! The server as a client sees it, on the bundled model.

mod bench;
mod client;
mod deploy;
mod determinism;
mod drain;
mod forms;
mod guard;
mod hostile;
mod load;
mod local;
mod past;
mod program;
mod shapes;
mod soak;
mod streams;
mod structure;
mod tools;
