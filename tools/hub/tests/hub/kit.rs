//! A folder, a hub, and who listens.

use std::cell::RefCell;
use std::path::PathBuf;
use std::time::Duration;

use trine_hub::{Hub, HubError, Name, Places, Settings, Wanted, Watcher};
use trine_testkit::TempDir;
use trine_testkit::hub::Hub as Server;

/// Bytes that look like no others: `n` of them.
pub fn bytes(n: usize, mut seed: u32) -> Vec<u8> {
    let next = |_| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 24) as u8
    };
    (0..n).map(next).collect()
}

pub fn places(folder: &TempDir) -> Places {
    let at = |name: &str| folder.path().join(name);
    Places { hub: at("hub"), llama_cpp: at("llama.cpp"), ollama: vec![at("ollama")], urls: at("urls") }
}

pub fn settings(endpoint: &str) -> Settings {
    Settings {
        endpoint: endpoint.to_owned(),
        token: None,
        offline: false,
        certificates: None,
        piece: 10_000,
        pause: Duration::ZERO,
    }
}

pub fn wanted(name: &str) -> Wanted {
    Wanted { name: Name::parse(name).unwrap(), file: None, limit: None }
}

/// Fetches `user/repo` of a server into a folder.
pub fn fetch(server: &Server, folder: &TempDir) -> Result<PathBuf, HubError> {
    Hub::new(places(folder), settings(&server.endpoint))?.fetch(&wanted("user/repo"), &())
}

/// Remembers what is said, and counts.
#[derive(Default)]
pub struct Listener {
    pub lines: RefCell<Vec<String>>,
    pub advanced: RefCell<u64>,
    pub began: RefCell<Vec<(u64, u64)>>,
}

impl Watcher for Listener {
    fn say(&self, line: &str) {
        self.lines.borrow_mut().push(line.to_owned());
    }
    fn begin(&self, _: &str, total: u64, have: u64) {
        self.began.borrow_mut().push((total, have));
    }
    fn advance(&self, bytes: u64) {
        *self.advanced.borrow_mut() += bytes;
    }
    fn end(&self) {}
}
