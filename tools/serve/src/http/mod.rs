//! HTTP: connections, who may ask, routes, streams.

mod accept;
mod asked;
mod body;
mod connection;
mod embed;
mod events;
mod generate;
mod guard;
mod hosts;
mod intake;
mod keys;
pub mod lines;
mod listen;
mod log;
mod metrics;
mod page;
mod patient;
mod reply;
mod routes;
mod server;
mod slots;
mod state;
mod stream;
mod tls;
mod unread;

pub use server::Server;
