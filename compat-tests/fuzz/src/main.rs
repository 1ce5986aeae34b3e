//! All fuzz targets in one program: `FUZZ_TARGET` names the one that libFuzzer gives its bytes. Without it the program prints all names.
#![no_main]

mod installed;
mod request;
mod tool_calls;

use std::env;
use std::iter;
use std::panic;
use std::process;
use std::sync::LazyLock;
use std::thread;

use trine_compat_tests::targets::{self, Target};

/// Targets beside those that tests on stable list.
const MORE: [(&str, Target); 5] = [
    ("damaged_fields", targets::damaged_fields),
    ("installed", installed::target),
    ("request", request::target),
    ("template_render", targets::template_render),
    ("tool_calls", tool_calls::target),
];

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let all = || iter::chain(targets::FILES, targets::OTHERS).chain(MORE);
    let Some(wanted) = env::var_os("FUZZ_TARGET") else {
        all().for_each(|(name, _)| println!("{name}"));
        process::exit(0);
    };
    let found = all().find(|(name, _)| wanted == *name);
    found.unwrap_or_else(|| panic!("there is no target {}", wanted.display())).1
});

/// A panic ends the program, as libFuzzer has it, but for those of crates whose panics are errors here: they run in threads
/// of this name, which catch them.
fn init() {
    const CAUGHT: &str = "isolated";
    let end = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        if thread::current().name() != Some(CAUGHT) {
            end(panic);
        }
    }));
    LazyLock::force(&TARGET);
}

libfuzzer_sys::fuzz_target!(init: init(), |data: &[u8]| TARGET(data));
