//! Every option that takes a value, with every value that has no meaning. The options are those that `--help` lists,
//! which clap writes: a new one is among them.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use trine_compat_tests::programs::path_of;

use super::run::{Worker, words};

/// A command line that works, without the option.
const TOOLS: &[(&str, &str, Option<&str>)] = &[
    ("rquantize", "m.gguf out.gguf Q4_0", Some("out.gguf")),
    ("rquantize", "m.gguf out.gguf AP2-3", Some("out.gguf")),
    ("rgen", "-m m.gguf -p abc -n 2", None),
    ("rperplexity", "-m m.gguf -f t.txt --chunks 1 -c 16", None),
    ("rimatrix", "-m m.gguf -f t.txt --chunks 1 -c 16 -o i.gguf", Some("i.gguf")),
    ("rimatrix", "--fisher -m m.gguf -f t.txt --samples 1 --seq-len 4 -o f.safetensors", Some("f.safetensors")),
    ("rbench", "-m m.gguf -p 2 -n 1 -r 1", None),
    ("rbench", "-m m.gguf --batched --npp 2 --ntg 1 --npl 1 -r 1", None),
    ("rconvert", "folder out.gguf", Some("out.gguf")),
    ("rinspect", "m.gguf", None),
    ("rtokenize", "-m m.gguf -p abc", None),
];

/// Values, most of which are numbers at the edge of something.
const VALUES: &[&str] = &[
    "0",
    "1",
    "-1",
    "2",
    "-2",
    "nan",
    "inf",
    "-inf",
    "1e999",
    "0.5",
    "-0",
    "",
    " ",
    ",",
    "1,",
    "1,1",
    "0,0",
    "=",
    "2147483647",
    "2147483648",
    "-2147483649",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999",
    "é",
    "\u{1b}[31m",
    "../..",
    "/dev/full",
    "/dev/null",
    "a=b",
    "1x1=1,1,1",
    "0x0=0,0,0",
    "18446744073709551615x2=1,1,1",
    "llama:tiny:Q4_0",
    ".*=q8_0",
    "(=q8_0",
    "k=int:99999999999999999999",
    "k=float:nan",
];

/// Options of a tool by their long names.
fn options(name: &str) -> Vec<String> {
    let help = Command::new(path_of(name)).arg("--help").output().expect("help");
    let help = String::from_utf8(help.stdout).expect("text");
    let mut found = Vec::new();
    for line in help.lines().map(str::trim_start).filter(|l| l.starts_with('-')) {
        let Some((_, rest)) = line.split_once("--") else {
            continue;
        };
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(rest.len());
        let takes = rest[end..].trim_start_matches([' ', '=', '[']).starts_with('<');
        if takes {
            found.push(format!("--{}", &rest[..end]));
        }
    }
    assert!(found.len() >= 2, "{name}: {found:?}");
    found
}

/// Attacks by options in turn.
pub fn part(worker: &mut Worker) {
    let bases = worker.bases;
    fs::write(worker.path("m.gguf"), &bases.model.bytes).expect("a file");
    fs::write(worker.path("t.txt"), &bases.text).expect("a file");
    fs::create_dir(worker.path("folder")).expect("a folder");
    super::bases::put(&worker.path("folder"), &bases.checkpoints[0]);
    let mut known: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (name, ..) in TOOLS {
        known.entry(name).or_insert_with(|| options(name));
    }
    while worker.goes_on() {
        let (name, line, target) = worker.one_of(TOOLS);
        let all = &known[name];
        let option = all[worker.below(all.len())].clone();
        let value = worker.one_of(VALUES);
        let mut line = words(line);
        // An output that is a device has no file.
        let elsewhere = ["--output", "--save", "--kl-divergence-base", "--plot", "--dry-run"];
        let target = target.filter(|_| !elsewhere.contains(&option.as_str()));
        line.insert(0, format!("{option}={value}"));
        for name in ["out.gguf", "i.gguf", "f.safetensors"] {
            let _ = fs::remove_file(worker.path(name));
        }
        // Bench and texts of any length are what they are asked for; the time limit ends them.
        let mut command = worker.command("ulimit -t 4;", name, &line);
        let done = worker.finish(&mut command);
        worker.counts.tried += 1;
        worker.counts.refused += u64::from(!done.status.success());
        let signal = std::os::unix::process::ExitStatusExt::signal(&done.status);
        // 9 and 24: out of its time, at work.
        let bad_signal = signal.is_some_and(|s| ![9, 13, 24].contains(&s));
        let missing = done.status.success() && target.is_some_and(|t| !worker.path(t).exists());
        if bad_signal || done.hung || missing || done.stderr.contains("panicked") {
            worker.fail(&format!("{name} {line:?}: {}, missing: {missing}\n{}", done.status, done.stderr));
        }
    }
}
