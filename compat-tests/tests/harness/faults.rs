//! Streams, disks and limits of the system that fail, and inputs that change.

use std::fs::{self, File};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use trine_compat_tests::programs::path_of;

use super::run::{Worker, words};

/// Tools, command lines and the files that they make.
const RUNS: &[(&str, &str, Option<&str>)] = &[
    ("rquantize", "m.gguf out.gguf Q4_0", Some("out.gguf")),
    ("rquantize", "-v --json m.gguf out.gguf TQ1_0", Some("out.gguf")),
    ("rquantize", "m.gguf out.gguf AP2-3", Some("out.gguf")),
    ("rquantize", "--verify m.gguf out.gguf I2_S", Some("out.gguf")),
    ("rquantize", "--dry-run m.gguf Q4_K_M", None),
    ("rinspect", "m.gguf --tensors", None),
    ("rinspect", "m.gguf --json --hash", None),
    ("rtokenize", "-m m.gguf -p abc", None),
    ("rgen", "-m m.gguf -p abc -n 4", None),
    ("rgen", "-m m.gguf -p abc -n 4 --logits-sha256", None),
    ("rgen", "-m m.gguf -cnv -st -p a -n 2", None),
    ("rperplexity", "-m m.gguf -f t.txt -c 32 --chunks 2 --kl-divergence-base b.kld", Some("b.kld")),
    ("rperplexity", "--compare -m m.gguf m.gguf -f t.txt -c 32 --chunks 1 --no-speed --plot p.svg", Some("p.svg")),
    ("rimatrix", "-m m.gguf -f t.txt -c 32 -o i.gguf", Some("i.gguf")),
    ("rimatrix", "--fisher -m m.gguf -f t.txt --samples 2 --seq-len 8 -o f.safetensors", Some("f.safetensors")),
    ("rconvert", "folder out.gguf", Some("out.gguf")),
    ("rbench", "-m m.gguf -p 2 -n 1 -r 1", None),
];

fn prepare(worker: &Worker) {
    let bases = worker.bases;
    fs::write(worker.path("m.gguf"), &bases.model.bytes).expect("a file");
    fs::write(worker.path("t.txt"), &bases.text).expect("a file");
    let folder = worker.path("folder");
    if !folder.exists() {
        fs::create_dir(&folder).expect("a folder");
    }
    super::bases::put(&folder, &bases.checkpoints[0]);
    for name in ["out.gguf", "b.kld", "p.svg", "i.gguf", "f.safetensors"] {
        let _ = fs::remove_file(worker.path(name));
    }
}

/// Full and closed streams.
pub fn streams(worker: &mut Worker) {
    while worker.goes_on() {
        prepare(worker);
        let (tool, line, target) = worker.one_of(RUNS);
        let mut command = worker.command("", tool, &words(line));
        let which = 1 + worker.below(3);
        let full = worker.below(2) == 0;
        if which & 1 != 0 {
            command.stdout(stream(full));
        }
        if which & 2 != 0 {
            command.stderr(stream(full));
        }
        let what = format!("streams {which}, full: {full}");
        worker.judge(&mut command, target, &what);
    }
}

fn stream(full: bool) -> Stdio {
    if full {
        return File::options().write(true).open("/dev/full").expect("/dev/full").into();
    }
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

/// Limits of memory, descriptors, file sizes and disks; inputs that are replaced and cut short.
pub fn disks_and_limits(worker: &mut Worker) {
    let disk = may_mount();
    if !disk && worker.number == 0 {
        println!("SKIPPED: a small disk cannot be mounted here");
    }
    while worker.goes_on() {
        prepare(worker);
        let (tool, line, target) = worker.one_of(RUNS);
        match worker.below(if disk { 5 } else { 4 }) {
            0 => {
                let shell = format!("ulimit -v {};", room_to_start(tool) + worker.below(900_000));
                let mut command = worker.command(&shell, tool, &words(line));
                worker.judge(&mut command, target, &shell);
            }
            1 => {
                let shell = format!("ulimit -n {};", 3 + worker.below(12));
                let mut command = worker.command(&shell, tool, &words(line));
                worker.judge(&mut command, target, &shell);
            }
            2 => {
                let shell = format!("ulimit -f {};", worker.below(2000));
                let mut command = worker.command(&shell, tool, &words(line));
                worker.judge(&mut command, target, &shell);
            }
            3 => changing(worker, (tool, line, target)),
            _ => small_disk(worker, (tool, line, target)),
        }
    }
}

/// The least limit of addresses, in KiB, under which the system can map a tool: it ends a program that it has no room
/// for by SIGSEGV before the first instruction.
fn room_to_start(tool: &str) -> usize {
    let program = fs::metadata(path_of(tool)).expect("a tool that was built").len();
    program as usize / 1024 + 1000
}

fn may_mount() -> bool {
    let mount = "mount -t tmpfs -o size=64k tmpfs /mnt";
    let tried = Command::new("unshare").args(["-rm", "sh", "-c", mount]).stderr(Stdio::null()).status();
    tried.is_ok_and(|s| s.success())
}

/// The output goes to a disk that has too little room, or has it taken away.
fn small_disk(worker: &mut Worker, (tool, line, target): (&str, &str, Option<&str>)) {
    let Some(target) = target else { return };
    fs::create_dir_all(worker.path("disk")).expect("a folder");
    let size = 4 + worker.below(1500);
    let shrink = if worker.below(2) == 0 {
        let after = worker.below(30);
        format!("(sleep 0.0{after:02}; mount -o remount,size=4k disk) 2>/dev/null &")
    } else {
        String::new()
    };
    // What is left on the disk is seen from within; no part of a file may be.
    let script = format!(
        "mount -t tmpfs -o size={size}k tmpfs disk && {{ {shrink} \"$0\" \"$@\"; code=$?; wait; ls disk | grep -q 'part$' && exit 77; [ $code = 0 ] && [ ! -s disk/{target} ] && exit 78; exit $code; }}"
    );
    let line = words(line).into_iter().map(|w| if w == target { format!("disk/{target}") } else { w });
    let mut command = Command::new("unshare");
    command
        .args(["-rm", "sh", "-c", &script])
        .arg(path_of(tool))
        .args(line)
        .current_dir(worker.dir.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    worker.judge(&mut command, None, &format!("a disk of {size} KiB {shrink}"));
}

/// The model is replaced, cut short or written to while it is in use.
fn changing(worker: &mut Worker, (tool, line, target): (&str, &str, Option<&str>)) {
    let mut command = worker.command("", tool, &words(line));
    let (model, other) = (worker.path("m.gguf"), worker.path("other.gguf"));
    let how = worker.below(3);
    let after = Duration::from_micros(worker.below(40_000) as u64);
    let bases = worker.bases;
    let change = std::thread::spawn({
        let bytes = bases.model.bytes.clone();
        move || {
            sleep(after);
            let changed = match how {
                0 => fs::write(&other, &bytes).and_then(|()| fs::rename(&other, &model)),
                1 => File::options().write(true).open(&model).and_then(|f| f.set_len(4096)),
                _ => fs::remove_file(&model),
            };
            changed.expect("a file that can be changed");
        }
    });
    worker.judge(&mut command, target, &format!("a model that changes: {how} after {after:?}"));
    change.join().expect("a thread");
}
