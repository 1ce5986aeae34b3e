//! `cargo xtask`: work on the repository that cargo has no command for.
//!
//! `cargo xtask dist [--target TRIPLE]` makes the archive that users get: the program with all tools, links, pages of the manual,
//! completions, documentation, the licences of everything that is linked, and sums of it all.
//!
//! `cargo xtask sbom` lists what the program is linked from, for other programs to read.
//!
//! `cargo xtask fuzz` runs the fuzz targets.
//!
//! `cargo xtask ptx` compiles the kernels for NVIDIA GPUs after a change of their sources.

mod archive;
#[cfg(test)]
mod book;
mod crates;
mod dist;
mod fuzz;
mod licences;
#[cfg(test)]
mod policy;
mod process;
mod ptx;
mod sbom;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask dist [--target TRIPLE]
       cargo xtask sbom
       cargo xtask fuzz HOURS [--target NAME] [--json]
       cargo xtask ptx [NAME]

dist builds the tools with the profile `dist` and writes target/dist/trine-VERSION-TRIPLE.tar.gz (.zip for Windows), its
SHA-256, and the bill of materials beside it. Programs for musl are static, and linked without a C compiler. The program has
to run on this machine, because it writes its own pages. SOURCE_DATE_EPOCH is the time of the files in the archive; without
it that of the commit. tools/ci-reproducible.sh builds it twice, in two folders, and compares.

sbom writes what the program is linked from to standard output, as CycloneDX 1.5 in JSON; dist puts it in the archive.

fuzz runs the targets of compat-tests/fuzz, each for its share of HOURS (such as 0.5), and prints a table, or JSON.
A target's corpus is kept, and minimised after each run, in target/fuzz/corpus, its log in target/fuzz/log, what crashed in
target/fuzz/found. It needs a nightly compiler and one for C++.

ptx compiles src/cuda/kernels to src/cuda/ptx with the compiler of pinned wheels from PyPI, which it keeps in
target/cuda-wheels (100 MB), and writes what was made of what to src/cuda/ptx/MANIFEST. With a NAME such as decode it prints
that text instead.";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["dist"] => dist::run(None),
        ["dist", "--target", triple] => dist::run(Some(triple)),
        ["ptx"] => ptx::run(),
        ["ptx", name] => ptx::show(name),
        ["sbom"] => sbom::run(),
        ["fuzz", ref words @ ..] => match fuzz::Plan::of(words) {
            Some(plan) => fuzz::run(&plan),
            None => return usage(),
        },
        ["-h" | "--help"] => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => return usage(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("xtask: error: {e:#}");
            ExitCode::FAILURE
        }
    }
}

/// The answer to a command line that is none.
fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}
