//! The server as a client sees it, on the bundled model.

mod bench;
mod client;
mod deploy;
mod determinism;
mod drafts;
mod drain;
mod embeddings;
mod forms;
mod guard;
mod hostile;
mod load;
mod loading;
mod local;
mod openapi;
mod options;
mod pair;
mod past;
mod pasted;
mod program;
mod random;
mod samplers;
mod shapes;
mod soak;
mod streams;
mod structure;
mod tools;
