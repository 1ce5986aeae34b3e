//! Running a tool whose surroundings fail.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use trine_formats::gguf::write::NewTensor;
use trine_formats::gguf::{Metadata, Value};
use trine_formats::types::TypeId;
pub use trine_testkit::{TempDir, folder, gguf, names_in, tool, trilm};

pub const RQUANTIZE: &str = env!("CARGO_BIN_EXE_rquantize");
pub const RGEN: &str = env!("CARGO_BIN_EXE_rgen");
pub const RCONVERT: &str = env!("CARGO_BIN_EXE_rconvert");
pub const RINSPECT: &str = env!("CARGO_BIN_EXE_rinspect");
pub const RIMATRIX: &str = env!("CARGO_BIN_EXE_rimatrix");
pub const RPERPLEXITY: &str = env!("CARGO_BIN_EXE_rperplexity");
pub const RTOKENIZE: &str = env!("CARGO_BIN_EXE_rtokenize");
pub const RBENCH: &str = env!("CARGO_BIN_EXE_rbench");

pub const SIGPIPE: i32 = 13;

/// `program` with these words, in the folder `dir`.
pub fn command(dir: &Path, program: &str, words: &[&str]) -> Command {
    let mut command = tool::command(program);
    command.current_dir(dir).args(words).stdin(Stdio::null());
    command
}

pub fn run(dir: &Path, program: &str, words: &[&str]) -> Output {
    command(dir, program, words).output().expect("a process")
}

/// The same behind a line of the shell, such as a limit of the system.
pub fn run_behind(dir: &Path, shell: &str, program: &str, words: &[&str]) -> Output {
    let mut all = vec!["-c", shell, program];
    all.extend(words);
    run(dir, "sh", &all)
}

/// A stream that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A disk without room.
    Full,
    /// A pipe that nobody reads.
    Closed,
}

impl Fault {
    pub fn stream(self) -> Stdio {
        match self {
            Fault::Full => {
                let full = File::options().write(true).open("/dev/full");
                full.expect("/dev/full").into()
            }
            Fault::Closed => {
                let (reader, writer) = io::pipe().expect("a pipe");
                drop(reader);
                writer.into()
            }
        }
    }
}

/// A run that was neither a panic nor an abort.
#[track_caller]
pub fn orderly(status: ExitStatus, what: &str) {
    assert_ne!(status.code(), Some(101), "{what}: a panic");
    let signal = status.signal();
    assert!(matches!(signal, None | Some(SIGPIPE)), "{what}: {status}");
}

/// The one line of a refusal.
#[track_caller]
pub fn refused(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let last = stderr.lines().last().unwrap_or_default();
    assert!(last.contains(": error: "), "{stderr}");
    last.to_owned()
}

#[track_caller]
pub fn succeeded(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stderr}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The bundled model under the name `m.gguf` in a folder of its own.
pub fn with_model() -> TempDir {
    let dir = folder();
    std::os::unix::fs::symlink(trilm(), dir.path().join("m.gguf")).expect("a link");
    dir
}

/// A file with one matrix and one vector of F32 under these names.
pub fn small(path: &Path, matrix: &str, values: &[f32]) {
    let mut meta = Metadata::default();
    meta.set("general.architecture", Value::str("llama"));
    let bytes = |v: &[f32]| v.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let rows = values.len() as u64 / 256;
    let tensors = [
        (NewTensor::new(matrix, [256, rows], TypeId::F32), bytes(values)),
        (NewTensor::new("output_norm.weight", [256], TypeId::F32), bytes(&[1.0; 256])),
    ];
    gguf::write(path, &meta, &tensors);
}

/// Values that are no NaN and not ternary.
pub fn values(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i % 97) as f32 / 97.0 - 0.5).collect()
}

/// Waits until a program has begun to write a file into the folder; whether it still runs then.
pub fn writes(child: &mut Child, dir: &Path) -> bool {
    loop {
        if !unfinished(dir).is_empty() {
            return true;
        }
        if child.try_wait().expect("a process").is_some() {
            return false;
        }
        sleep(Duration::from_millis(1));
    }
}

/// Unfinished files in a folder.
pub fn unfinished(dir: &Path) -> Vec<String> {
    let mut names = names_in(dir);
    names.retain(|n| n.ends_with(".part"));
    names
}

pub fn path(dir: &TempDir, name: &str) -> PathBuf {
    dir.path().join(name)
}

pub fn bytes(dir: &TempDir, name: &str) -> Vec<u8> {
    fs::read(path(dir, name)).expect("a file")
}
