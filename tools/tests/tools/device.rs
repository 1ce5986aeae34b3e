//! `--device cuda` where there is no GPU, and with synthetic drivers of one line each. Runs on the emulated GPU of a
//! whole driver are in `gpu`.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::{TempDir, tempdir};
use trine_testkit::{tool, trilm};

/// A driver's library, made by the compiler that made the tests. `functions` are the functions of the API that it has.
fn driver(functions: &str) -> TempDir {
    let dir = tempdir().expect("a folder");
    let source = dir.path().join("driver.rs");
    let text = format!(
        "#![no_std]\n#![allow(non_snake_case, unused_variables)]\n\
         #[panic_handler] fn panic(_: &core::panic::PanicInfo) -> ! {{ loop {{}} }}\n{functions}"
    );
    fs::write(&source, text).expect("room");
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(compiler)
        .args(["--edition=2024", "--crate-type=cdylib", "-Cpanic=abort", "-Copt-level=1"])
        .arg(&source)
        .arg("-o")
        .arg(dir.path().join("libcuda.so.1"))
        .output()
        .expect("a compiler");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    dir
}

/// A function of the API with this body, which gives what it answers.
fn function(name: &str, arguments: &str, body: &str) -> String {
    format!("#[unsafe(no_mangle)] pub unsafe extern \"C\" fn {name}({arguments}) -> u32 {{ unsafe {{ {body} }} }}\n")
}

/// A driver that has all functions, and its device.
struct Made {
    version: u32,
    init: u32,
    count: i32,
    /// With a zero behind it.
    name: &'static str,
    capability: (i32, i32),
}

const GOOD: Made = Made { version: 13000, init: 0, count: 1, name: "Test Card 9000\\0", capability: (9, 0) };

/// The functions that work on a device.
const LATER: &[&str] = &[
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxSetCurrent",
    "cuMemGetInfo_v2",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamSynchronize",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuModuleLoadDataEx",
    "cuModuleGetFunction",
    "cuFuncSetAttribute",
    "cuLaunchKernel",
];

impl Made {
    fn functions(&self) -> Vec<String> {
        let Made { version, init, count, name, capability: (major, minor) } = self;
        let functions = vec![
            function("cuDriverGetVersion", "v: *mut i32", &format!("*v = {version}; 0")),
            function("cuInit", "flags: u32", &init.to_string()),
            function("cuDeviceGetCount", "n: *mut i32", &format!("*n = {count}; 0")),
            function("cuDeviceGet", "d: *mut i32, n: i32", "*d = 40 + n; 0"),
            function(
                "cuDeviceGetName",
                "to: *mut u8, size: i32, d: i32",
                &format!(
                    "let name = b\"{name}\"; \
                     core::ptr::copy_nonoverlapping(name.as_ptr(), to, name.len().min(size as usize)); 0"
                ),
            ),
            function(
                "cuDeviceGetAttribute",
                "v: *mut i32, a: i32, d: i32",
                &format!("*v = match a {{ 75 => {major}, 76 => {minor}, _ => return 1 }}; 0"),
            ),
            function("cuDeviceTotalMem_v2", "n: *mut usize, d: i32", "*n = 80 << 30; 0"),
            function(
                "cuGetErrorName",
                "code: u32, text: *mut *const u8",
                "if code == 100 { *text = b\"CUDA_ERROR_NO_DEVICE\\0\".as_ptr(); 0 } else { 1 }",
            ),
        ];
        // Those that nobody asks for anything before a device was found.
        let more = LATER.iter().map(|name| function(name, "", "999"));
        functions.into_iter().chain(more).collect()
    }

    fn made(&self) -> TempDir {
        driver(&self.functions().concat())
    }
}

/// The one line with which `rgen` refuses a device, while the library of this folder is the driver.
fn refused(device: &str, folder: &Path) -> String {
    let mut rgen = tool::command(env!("CARGO_BIN_EXE_rgen"));
    rgen.args(["-p", "Once", "-n", "1", "--device", device, "-m"]);
    let output = rgen.arg(trilm()).env("LD_LIBRARY_PATH", folder).output();
    tool::only_error("rgen", output.expect("rgen"))
}

#[test]
fn without_a_driver_every_tool_says_so() {
    // A file that is no library, so that the test is the same on machines with a driver.
    let dir = tempdir().expect("a folder");
    for name in ["libcuda.so.1", "libcuda.so"] {
        fs::write(dir.path().join(name), "no library").expect("room");
    }
    fs::write(dir.path().join("text"), "Once upon a time").expect("room");
    let model = trilm();
    let model = model.to_str().expect("a path");
    for (tool, program, options) in [
        ("rgen", env!("CARGO_BIN_EXE_rgen"), &["-p", "a", "-n", "1"][..]),
        ("rperplexity", env!("CARGO_BIN_EXE_rperplexity"), &[]),
        ("rbench", env!("CARGO_BIN_EXE_rbench"), &["-p", "1"]),
    ] {
        for device in ["cuda", "cuda:1"] {
            let mut command = tool::command(program);
            command.args(["-m", model, "-dev", device]).args(options).env("LD_LIBRARY_PATH", dir.path());
            if tool == "rperplexity" {
                command.arg("-f").arg(dir.path().join("text"));
            }
            let error = tool::only_error(tool, command.output().expect("a tool"));
            let number = device.strip_prefix("cuda:").unwrap_or("0");
            let start = format!("--device cuda:{number} (--device cpu needs no GPU): no NVIDIA driver is installed (");
            assert!(error.starts_with(&start), "{tool}: {error}");
            assert!(error.contains("libcuda.so.1"), "{tool}: {error}");
        }
    }
}

#[test]
fn the_processor_is_no_device_that_is_looked_for() {
    // A driver that ends the process when it is asked for anything.
    let dir = driver("#[unsafe(no_mangle)] pub extern \"C\" fn cuDriverGetVersion() -> u32 { loop {} }");
    for device in ["cpu", "none", "CPU"] {
        let mut rgen = tool::command(env!("CARGO_BIN_EXE_rgen"));
        rgen.args(["-p", "Once", "-n", "1", "--temp", "0", "--device", device])
            .arg("-m")
            .arg(trilm())
            .env("LD_LIBRARY_PATH", dir.path());
        let text = tool::stdout(rgen.output().expect("rgen"));
        assert!(text.starts_with("Once"), "{text}");
    }
}

#[test]
fn a_driver_without_a_function_is_named_with_it() {
    for missing in 0..GOOD.functions().len() {
        let mut functions = GOOD.functions();
        let gone = functions.remove(missing);
        let name = gone.split(" fn ").nth(1).and_then(|t| t.split('(').next());
        let dir = driver(&functions.concat());
        assert_eq!(
            refused("cuda", dir.path()),
            format!(
                "--device cuda:0 (--device cpu needs no GPU): the NVIDIA driver libcuda.so.1 has no function {}, which drivers \
                 from R470 on have: install it anew",
                name.expect("a name")
            )
        );
    }
}

#[test]
fn an_old_driver_is_named_with_both_versions() {
    // It lacks functions too, as old drivers do.
    for (version, shown) in [(11020, "11.2"), (10010, "10.1"), (0, "0.0")] {
        let made = Made { version, ..GOOD };
        let dir = driver(&made.functions()[0]);
        assert_eq!(
            refused("cuda", dir.path()),
            format!(
                "--device cuda:0 (--device cpu needs no GPU): the NVIDIA driver is of CUDA {shown}, and the kernels ask for CUDA \
                 11.4 or newer: install a driver from R470 on"
            )
        );
    }
}

#[test]
fn what_the_driver_answers_is_told() {
    let start = "--device cuda:0 (--device cpu needs no GPU): ";
    for (init, told) in [
        (100, "CUDA_ERROR_NO_DEVICE (100)"),
        // A code that no header of today has.
        (123456, "an error without a name (123456)"),
    ] {
        let dir = Made { init, ..GOOD }.made();
        assert_eq!(refused("cuda", dir.path()), format!("{start}the NVIDIA driver fails in cuInit: {told}"));
    }
    for (count, wanted, told) in [
        (0, "cuda", "there is no cuda:0: the driver has no device"),
        (1, "cuda:1", "there is no cuda:1: the driver has one device, cuda:0"),
        (3, "cuda:4294967295", "there is no cuda:4294967295: the driver has 3 devices, cuda:0 to cuda:2"),
        (-1, "cuda", "there is no cuda:0: the driver has no device"),
    ] {
        let dir = Made { count, ..GOOD }.made();
        let error = refused(wanted, dir.path());
        assert!(error.ends_with(told), "{error}");
    }
}

#[test]
fn a_name_that_is_no_text_is_shown_as_one() {
    // Bytes that are no text, and what would colour a terminal.
    let made = Made { name: "\\xff\\n\\x1b[31m\\0", capability: (7, 0), ..GOOD };
    let dir = made.made();
    let error = refused("cuda:0", dir.path());
    assert!(error.contains("cuda:0 (\u{fffd}"), "{error}");
    assert!(!error.contains('\u{1b}'), "{error}");
}

#[test]
fn a_device_that_is_too_old_is_named() {
    for capability in [(7, 5), (6, 1), (0, 0), (-1, 9)] {
        let dir = Made { capability, ..GOOD }.made();
        let shown = format!("{}.{}", capability.0.max(0), capability.1);
        assert_eq!(
            refused("cuda", dir.path()),
            format!(
                "--device cuda:0 (--device cpu needs no GPU): cuda:0 (Test Card 9000) has compute capability {shown}, and the \
                 kernels ask for 8.0 or newer (A100, RTX 30 and later)"
            )
        );
    }
}
