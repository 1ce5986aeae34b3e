//! `cargo xtask`: work on the repository that cargo has no command for.
//!
//! `cargo xtask dist` makes the archive that users get: the program with all tools, links, pages of the manual,
//! completions, documentation, the licences of everything that is linked, and sums of it all.
//!
//! `cargo xtask ptx` compiles the kernels for NVIDIA GPUs after a change of their sources.

mod archive;
mod dist;
mod licences;
mod ptx;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask dist
       cargo xtask ptx

dist builds the tools with the profile `dist` and writes target/dist/trine-VERSION-TRIPLE.tar.gz and its SHA-256.
SOURCE_DATE_EPOCH is the time of the files in it; without it that of the commit.

ptx compiles src/cuda/kernels to src/cuda/ptx with the compiler of pinned wheels from PyPI, which it keeps in
target/cuda-wheels (100 MB), and writes what was made of what to src/cuda/ptx/MANIFEST.";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["dist"] => dist::run(),
        ["ptx"] => ptx::run(),
        ["-h" | "--help"] => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("xtask: error: {e:#}");
            ExitCode::FAILURE
        }
    }
}
