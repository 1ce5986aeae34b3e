//! Requests to end at random times, over targets that exist.

use std::fs;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use super::run::{Worker, words};

const OLD: &[u8] = b"what was there before";

const RUNS: &[(&str, &str, &str)] = &[
    ("rquantize", "--fallback m.gguf out.gguf Q4_K_M", "out.gguf"),
    ("rquantize", "m.gguf out.gguf AP2-4", "out.gguf"),
    ("rquantize", "m.gguf out.gguf TQ2_0", "out.gguf"),
    ("rperplexity", "-m m.gguf -f t.txt -c 32 --kl-divergence-base b.kld", "b.kld"),
    ("rimatrix", "-m m.gguf -f t.txt -c 32 -o i.gguf --output-frequency 1", "i.gguf"),
    ("rconvert", "folder out.gguf", "out.gguf"),
];

/// Attacks by damaged files.
pub fn part(worker: &mut Worker) {
    let bases = worker.bases;
    fs::write(worker.path("m.gguf"), &bases.model.bytes).expect("a file");
    fs::write(worker.path("t.txt"), bases.text.repeat(8)).expect("a file");
    fs::create_dir(worker.path("folder")).expect("a folder");
    super::bases::put(&worker.path("folder"), &bases.checkpoints[0]);
    // What each run makes when it is let alone.
    let wholes: Vec<Vec<u8>> = RUNS
        .iter()
        .map(|(tool, line, target)| {
            let mut command = worker.command("", tool, &words(line));
            let done = worker.finish(&mut command);
            assert!(done.status.success(), "{tool} {line}: {}", done.stderr);
            fs::read(worker.path(target)).expect("a file")
        })
        .collect();
    while worker.goes_on() {
        let which = worker.below(RUNS.len());
        let (tool, line, target) = RUNS[which];
        fs::write(worker.path(target), OLD).expect("a file");
        let signal = worker.one_of(&["INT", "TERM", "HUP", "INT", "TERM", "KILL"]);
        let after = Duration::from_micros(worker.below(60_000) as u64);
        let twice = worker.below(4) == 0;
        storm(worker, (tool, line, target), signal, (after, twice), &wholes[which]);
    }
}

fn storm(
    worker: &mut Worker,
    (tool, line, target): (&str, &str, &str),
    signal: &'static str,
    (after, twice): (Duration, bool),
    whole: &[u8],
) {
    let mut command = worker.command("", tool, &words(line));
    let mut child = command.stdout(std::process::Stdio::null()).spawn().expect("a process");
    let id = child.id().to_string();
    let send = || Command::new("kill").args(["-s", signal, &id]).stderr(std::process::Stdio::null()).status();
    sleep(after);
    let _ = send();
    if twice {
        let _ = send();
    }
    let mut stderr = child.stderr.take();
    let mut said = String::new();
    if let Some(stream) = &mut stderr {
        let _ = std::io::Read::read_to_string(stream, &mut said);
    }
    let status = child.wait().expect("a process");
    worker.counts.tried += 1;
    worker.counts.refused += u64::from(!status.success());
    let now = fs::read(worker.path(target)).unwrap_or_default();
    let saved = tool == "rimatrix";
    let (untouched, complete) = (now == OLD, now == whole);
    let mut wrong = Vec::new();
    if !untouched && !complete && !saved {
        wrong.push("a file that is neither the old nor the new one");
    }
    if status.success() && untouched {
        wrong.push("success without a result");
    }
    if said.contains("nothing was written") && !untouched {
        wrong.push("something was written");
    }
    if said.contains("was written") && !said.contains("nothing was") && untouched {
        wrong.push("nothing was written");
    }
    if said.contains("panicked") || status.code() == Some(101) {
        wrong.push("a panic");
    }
    if signal != "KILL" && !parts(worker).is_empty() && status.code().is_some() {
        wrong.push("an unfinished file is left");
    }
    if signal == "KILL" {
        // The next run removes what this one left.
        let mut command = worker.command("", tool, &words(line));
        let done = worker.finish(&mut command);
        if !done.status.success() || !parts(worker).is_empty() {
            wrong.push("the remains of a killed program are in the way");
        }
    }
    for part in parts(worker) {
        let _ = fs::remove_file(worker.path(&part));
    }
    for what in wrong {
        worker.fail(&format!("{what}: {tool} {line}, SIG{signal} after {after:?}\n{said}"));
    }
}

fn parts(worker: &Worker) -> Vec<String> {
    let names = trine_testkit::names_in(worker.dir.path());
    names.into_iter().filter(|n| n.ends_with(".part")).collect()
}
