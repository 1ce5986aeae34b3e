//! GGUF models by name: which file of a repository is meant, fetching it, and finding those that are there.
//!
//! [`Hub::fetch`] takes a [`Name`] such as `USER/REPO:Q4_K_M` and gives the path of a whole and verified file. Files are
//! kept in the cache of the hub's own client, so that what one program fetched the others find. [`installed`] lists
//! what is there, also in the stores of llama.cpp and ollama.
//!
//! Nothing here writes to a screen: a [`Watcher`] is told what happens.

mod api;
mod cache;
mod choose;
mod download;
mod error;
mod fetch;
mod installed;
mod name;
mod places;
mod space;
mod tls;
mod url;
mod watcher;
mod web;

pub use choose::Limit;
pub use error::HubError;
pub use fetch::{Hub, Wanted};
pub use installed::{Installed, Store, find, installed, remove};
pub use name::Name;
pub use places::{Places, Settings};
pub use watcher::Watcher;
