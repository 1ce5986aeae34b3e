//! The screen of a download.

use std::cell::RefCell;

use indicatif::ProgressBar;
use trine_hub::Watcher;

use crate::progress::{byte_bar, human_bytes};

/// Lines and a bar on standard error.
#[derive(Default)]
pub struct Screen(RefCell<Option<ProgressBar>>);

impl Watcher for Screen {
    fn say(&self, line: &str) {
        note!("{line}");
    }

    fn begin(&self, file: &str, total: u64, have: u64) {
        match have {
            0 => note!("fetching {file}, {}", human_bytes(total)),
            _ => note!("fetching {file}, {}, of which {} are here", human_bytes(total), human_bytes(have)),
        }
        let bar = byte_bar(total);
        bar.set_position(have);
        bar.reset_eta();
        *self.0.borrow_mut() = Some(bar);
    }

    fn advance(&self, bytes: u64) {
        if let Some(bar) = &*self.0.borrow() {
            bar.inc(bytes);
        }
    }

    fn end(&self) {
        if let Some(bar) = self.0.borrow_mut().take() {
            bar.finish_and_clear();
        }
    }
}
