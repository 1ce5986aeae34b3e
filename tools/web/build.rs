//! Tells the module with threads from the other: `cfg(threads)`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(threads)");
    let target = std::env::var("TARGET").unwrap_or_default();
    if target.ends_with("-threads") {
        println!("cargo::rustc-cfg=threads");
    }
}
