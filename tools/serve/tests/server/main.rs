//! The server as a client sees it, on the bundled model.

mod client;
mod determinism;
mod drain;
mod guard;
mod hostile;
mod load;
mod local;
mod shapes;
mod streams;
