//! Packs the kernels' PTX, which compresses to a seventh: a program that runs on processors alone carries it too.

use std::path::PathBuf;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=ptx");
    let folder = |name: &str| PathBuf::from(env::var_os(name).unwrap_or_default());
    let (from, to) = (folder("CARGO_MANIFEST_DIR").join("ptx"), folder("OUT_DIR"));
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "ptx") {
            let packed = miniz_oxide::deflate::compress_to_vec(&fs::read(&path)?, 9);
            let name = path.file_stem().unwrap_or_default();
            fs::write(to.join(name).with_extension("deflate"), packed)?;
        }
    }
    // libloading asks for `dl`, which musl has in its C library and Rust's target for musl has not: an empty archive.
    if env::var_os("CARGO_CFG_TARGET_ENV").is_some_and(|env| env == "musl") {
        fs::write(to.join("libdl.a"), "!<arch>\n")?;
        println!("cargo:rustc-link-search=native={}", to.display());
    }
    Ok(())
}
