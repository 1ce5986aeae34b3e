//! Packs the kernels' PTX, which compresses to a tenth: a program that runs on processors alone carries it too.

use std::path::{Path, PathBuf};
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
            fs::write(Path::new(&to).join(name).with_extension("deflate"), packed)?;
        }
    }
    Ok(())
}
