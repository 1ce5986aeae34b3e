//! Damaged files, given to every tool that reads such files.

use std::fs;

use trine_compat_tests::targets::fields;

use super::bases::{Base, put};
use super::run::{Worker, words};

/// Commands on a GGUF file called `in.gguf`, and the file that each makes.
const RUNS: &[(&str, &str, Option<&str>)] = &[
    ("rinspect", "in.gguf --tensors", None),
    ("rinspect", "in.gguf --check-tensors --hash", None),
    ("rinspect", "in.gguf --json", None),
    ("rtokenize", "-m in.gguf -p abc", None),
    ("rquantize", "--dry-run in.gguf Q4_K_M", None),
    ("rquantize", "in.gguf out.gguf COPY", Some("out.gguf")),
    ("rquantize", "--allow-requantize --fallback -v in.gguf out.gguf Q4_0", Some("out.gguf")),
    ("rquantize", "--verify in.gguf out.gguf TQ2_0", Some("out.gguf")),
    ("rquantize", "--allow-requantize in.gguf out.gguf AP2-3", Some("out.gguf")),
    ("rquantize", "--width 2 in.gguf out.gguf", Some("out.gguf")),
    ("rquantize", "--imatrix in.gguf m.gguf out.gguf Q2_K_S", Some("out.gguf")),
    ("rgen", "-m in.gguf -p abc -n 2 -c 16", None),
    ("rgen", "-m in.gguf -p abc -n 2 -c 16 --no-mmap --no-repack --temp 0", None),
    ("rgen", "-m in.gguf -cnv -st -p a -n 1 -c 64", None),
    ("rperplexity", "-m in.gguf -f t.txt -c 16 --chunks 1", None),
    ("rimatrix", "-m in.gguf -f t.txt -c 16 --chunks 1 -o i.gguf", Some("i.gguf")),
    ("rimatrix", "--fisher -m in.gguf -f t.txt --samples 1 --seq-len 4 -o f.safetensors", Some("f.safetensors")),
    ("rimatrix", "--in-file in.gguf -o i.gguf", Some("i.gguf")),
    ("rbench", "-m in.gguf -p 2 -n 1 -r 1 --no-warmup", None),
];

const ON_MATRICES: &[(&str, &str, Option<&str>)] = &[
    ("rquantize", "--imatrix in.gguf m.gguf out.gguf Q2_K_S", Some("out.gguf")),
    ("rimatrix", "--in-file in.gguf -o i.gguf", Some("i.gguf")),
    ("rimatrix", "--in-file in.gguf -o i.dat --output-format dat", Some("i.dat")),
    ("rquantize", "--imatrix in.gguf m.gguf out.gguf AP2-3", Some("out.gguf")),
];

const ON_BASE_FILES: &[(&str, &str, Option<&str>)] =
    &[("rperplexity", "-m m.gguf --kl-divergence-base in.gguf --kl-divergence", None)];

const ON_GRADIENTS: &[(&str, &str, Option<&str>)] =
    &[("rquantize", "--sensitivity in.gguf m.gguf out.gguf AP2-3", Some("out.gguf"))];

const ON_CHECKPOINTS: &[(&str, &str, Option<&str>)] = &[
    ("rconvert", "folder out.gguf", Some("out.gguf")),
    ("rconvert", "folder out.gguf --outtype f16 --pre llama-bpe", Some("out.gguf")),
    ("rconvert", "folder out.gguf --vocab-only", Some("out.gguf")),
    ("rconvert", "--dry-run --json folder", None),
];

/// Attacks by damaged files.
pub fn part(worker: &mut Worker) {
    let bases = worker.bases;
    fs::write(worker.path("t.txt"), &bases.text).expect("a file");
    fs::write(worker.path("m.gguf"), &bases.model.bytes).expect("a file");
    fs::create_dir(worker.path("folder")).expect("a folder");
    while worker.goes_on() {
        let kind = worker.below(10);
        let runs = match kind {
            0..6 => {
                let base = &bases.gguf[worker.below(bases.gguf.len())];
                one_file(worker, base);
                RUNS
            }
            6 => {
                let base = &bases.matrices[worker.below(2)];
                one_file(worker, base);
                ON_MATRICES
            }
            7 if worker.below(2) == 0 => {
                one_file(worker, &bases.base_file);
                ON_BASE_FILES
            }
            7 => {
                one_file(worker, &bases.gradients);
                ON_GRADIENTS
            }
            _ => {
                checkpoint(worker);
                ON_CHECKPOINTS
            }
        };
        let (tool, line, target) = worker.one_of(runs);
        for name in ["out.gguf", "i.gguf", "i.dat", "f.safetensors"] {
            let _ = fs::remove_file(worker.path(name));
        }
        let before = worker.counts.failed;
        let mut command = worker.command("", tool, &words(line));
        let done = worker.judge(&mut command, target, "mutation");
        // What rgen and rtokenize write is what a model says.
        let shown = !matches!(tool, "rgen" | "rtokenize");
        let text = String::from_utf8_lossy(&done.stdout);
        if shown && text.contains(|c: char| c.is_control() && c != '\n') {
            worker.fail(&format!("a control character in the output of {tool} {line}"));
        }
        if worker.counts.failed > before {
            keep(worker);
        }
    }
}

/// Puts what made a run fail aside.
fn keep(worker: &Worker) {
    let aside = std::env::temp_dir().join(format!("trine-harness-{}", std::process::id()));
    let place = aside.join(worker.counts.tried.to_string());
    let kept = fs::create_dir_all(&place).and_then(|()| {
        let _ = fs::copy(worker.path("in.gguf"), place.join("in.gguf"));
        for entry in fs::read_dir(worker.path("folder"))?.flatten() {
            fs::copy(entry.path(), place.join(entry.file_name()))?;
        }
        Ok(())
    });
    if kept.is_ok() {
        println!("  what it read is kept in {}", place.display());
    }
}

fn one_file(worker: &mut Worker, base: &Base) {
    let bytes = mutate(worker, &base.bytes);
    fs::write(worker.path("in.gguf"), bytes).expect("a file");
}

fn checkpoint(worker: &mut Worker) {
    let bases = worker.bases;
    let files = &bases.checkpoints[worker.below(bases.checkpoints.len())];
    let folder = worker.path("folder");
    fs::remove_dir_all(&folder).and_then(|()| fs::create_dir(&folder)).expect("a folder");
    put(&folder, files);
    let file = &files[worker.below(files.len())];
    let mut bytes = file.bytes.clone();
    if file.bytes.starts_with(b"{") {
        bytes = mutate_text(worker, bytes);
    } else {
        bytes = mutate(worker, &bytes);
    }
    fs::write(folder.join(&file.name), bytes).expect("a file");
}

/// Words that have broken readers of JSON before.
const TEXTS: &[&str] = &[
    "0",
    "-1",
    "1e999",
    "4294967295",
    "2147483648",
    "18446744073709551615",
    "1e-400",
    "null",
    "true",
    "\"\"",
    "[]",
    "{}",
    "\"\\u0000\"",
    "\"\\u202e\\u001b[2J\"",
    "[[[[[[[[[[]]]]]]]]]]",
    "10000000",
    "3.5",
    "\"Replace\"",
    "65536",
    "\"é\"",
];

/// Replaces values and cuts pieces of a JSON text.
fn mutate_text(worker: &mut Worker, mut text: Vec<u8>) -> Vec<u8> {
    for _ in 0..=worker.below(3) {
        let places: Vec<usize> = (0..text.len()).filter(|&i| matches!(text[i], b':' | b',' | b'[')).collect();
        if places.is_empty() {
            break;
        }
        let start = worker.one_of(&places) + 1;
        let rest = &text[start..];
        let end = start + rest.iter().position(|b| matches!(b, b',' | b'}' | b']')).unwrap_or(rest.len());
        match worker.below(6) {
            0 => drop(text.drain(start..end)),
            1 => {
                let part = text[start..end].to_vec();
                let n = 1 << worker.below(8);
                let many: Vec<u8> = (0..n).flat_map(|_| [&part[..], b","].concat()).collect();
                text.splice(start..start, many);
            }
            2 => text[start..end].reverse(),
            _ => {
                let word = worker.one_of(TEXTS);
                text.splice(start..end, word.bytes());
            }
        }
    }
    text
}

/// Changes fields, bytes and lengths.
fn mutate(worker: &mut Worker, bytes: &[u8]) -> Vec<u8> {
    let mut out = bytes.to_vec();
    let fields = fields(&out);
    for _ in 0..=worker.below(3) {
        let len = out.len();
        match worker.below(8) {
            0 => out.truncate(worker.below(len + 1)),
            1 => out.extend(vec![worker.below(256) as u8; worker.below(5000)]),
            2 | 3 => {
                let at = worker.below(len);
                if let Some(byte) = out.get_mut(at) {
                    *byte ^= 1 << worker.below(8);
                }
            }
            4 => {
                let (from, to, n) = (worker.below(len), worker.below(len), worker.below(300));
                let part = out[from.min(len)..(from + n).min(len)].to_vec();
                let end = (to + part.len()).min(len);
                if to <= end {
                    out[to..end].copy_from_slice(&part[..end - to]);
                }
            }
            _ => field(worker, &mut out, &fields),
        }
        if out.is_empty() {
            break;
        }
    }
    out
}

fn field(worker: &mut Worker, out: &mut [u8], fields: &[(usize, usize)]) {
    let Some(&(start, width)) = fields.get(worker.below(fields.len())) else {
        return;
    };
    let old = |field: &[u8]| {
        let mut word = [0; 8];
        word[..field.len()].copy_from_slice(field);
        u64::from_le_bytes(word)
    };
    let values = [0, 1, 2, 7, 1 << 16, 1 << 24, 1 << 31, 1 << 32, 1 << 62, 1 << 63, u64::MAX, 0x7fc0_0000, 0x7f80_0000];
    let value = worker.one_of(&values);
    let small = worker.below(5) as u64;
    if let Some(field) = out.get_mut(start..start + width) {
        let value = match small {
            0 => old(field).wrapping_add(1),
            1 => old(field).wrapping_sub(1),
            _ => value,
        };
        field.copy_from_slice(&value.to_le_bytes()[..width]);
    }
}
