//! HTTP: connections, who may ask, routes, streams.

mod accept;
mod body;
mod embed;
mod events;
mod generate;
mod guard;
mod hosts;
mod keys;
mod listen;
mod log;
mod metrics;
mod page;
mod reply;
mod routes;
mod server;
mod state;
mod stream;

pub use server::Server;
