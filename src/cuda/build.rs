//! Links for musl: libloading asks for `dl`, which musl has in its C library and Rust's target for musl has not.

use std::path::PathBuf;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed=build.rs");
    if env::var_os("CARGO_CFG_TARGET_ENV").is_some_and(|env| env == "musl") {
        let to = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
        // an empty archive
        fs::write(to.join("libdl.a"), "!<arch>\n")?;
        println!("cargo:rustc-link-search=native={}", to.display());
    }
    Ok(())
}
