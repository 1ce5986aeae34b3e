//! Files that make sense as such, and perhaps not as models: keys are missing, of other types or have other values,
//! tensors are missing or have other names, shapes or types. They are laid out anew, so that the reader lets them pass
//! and it is the model that has to refuse them.

use std::fs;

use trine_formats::gguf::write::{Layout, NewTensor};
use trine_formats::gguf::{Array, Gguf, Limits, Metadata, Value};
use trine_formats::types::TypeId;
use trine_testkit::gguf;

use super::bases::Base;
use super::run::{Worker, words};

const RUNS: &[(&str, &str, Option<&str>)] = &[
    ("rgen", "-m in.gguf -p abc -n 3 -c 32 --temp 0", None),
    ("rgen", "-m in.gguf -p abc -n 20 -c 16 --context-shift -ub 3 --no-mmap --no-repack", None),
    ("rgen", "-m in.gguf -p abc -n 3 -ctk q8_0 -ctv q4_0", None),
    ("rgen", "-m in.gguf -p abc -n 3 --spec-type draft-mtp --draft-always", None),
    ("rgen", "-m m.gguf -md in.gguf -p abc -n 8 --draft-always --temp 0", None),
    ("rgen", "-m m.gguf -md in.gguf --spec-type draft-eagle3 -p abc -n 4", None),
    ("rgen", "-m m.gguf -md in.gguf --spec-type draft-dflash -p abc -n 4", None),
    ("rgen", "-m in.gguf -p abc --embedding", None),
    ("rbench", "-m in.gguf -p 4 -n 1 -r 1 --no-warmup", None),
    ("rinspect", "in.gguf --program", None),
    ("rquantize", "--allow-requantize --fallback in.gguf out.gguf Q8_0", Some("out.gguf")),
    ("rquantize", "--rotate 32 --allow-requantize in.gguf out.gguf F16", Some("out.gguf")),
    ("rquantize", "--prune-layers 0 in.gguf out.gguf COPY", Some("out.gguf")),
    ("rimatrix", "-m in.gguf -f t.txt -c 16 --chunks 1 --hessian h.gguf", None),
];

const TYPES: &[TypeId] =
    &[TypeId::F32, TypeId::F16, TypeId::BF16, TypeId::Q4_0, TypeId::Q8_0, TypeId::Q4_K, TypeId::TQ2_0, TypeId::I32];

const ARCHITECTURES: &[&str] = &[
    "gemma3",
    "qwen3moe",
    "deepseek2",
    "mamba2",
    "rwkv7",
    "eagle3",
    "dflash",
    "bert",
    "t5",
    "qwen35",
    "gpt-oss",
    "fairy2i",
];

/// Attacks by headers.
pub fn part(worker: &mut Worker) {
    let bases = worker.bases;
    fs::write(worker.path("t.txt"), &bases.text).expect("a file");
    fs::write(worker.path("m.gguf"), &bases.model.bytes).expect("a file");
    while worker.goes_on() {
        let base = &bases.gguf[worker.below(bases.gguf.len())];
        let Some((bytes, what)) = changed(worker, base) else {
            continue;
        };
        fs::write(worker.path("in.gguf"), bytes).expect("a file");
        let _ = fs::remove_file(worker.path("out.gguf"));
        let (tool, line, target) = worker.one_of(RUNS);
        let mut command = worker.command("", tool, &words(line));
        let done = worker.judge(&mut command, target, &what);
        // Whatever drafts changes no text.
        if line.contains("-n 8 --draft-always") && done.status.success() {
            let mut alone = worker.command("", "rgen", &words("-m m.gguf -p abc -n 8 --temp 0"));
            if worker.finish(&mut alone).stdout != done.stdout {
                worker.fail(&format!("another text by a drafter: {what}"));
            }
        }
    }
}

/// A base with one to three changes, and what they are; nothing where the base is no file that can be laid out again.
fn changed(worker: &mut Worker, base: &Base) -> Option<(Vec<u8>, String)> {
    let Gguf { mut meta, tensors, data_offset, .. } = Gguf::parse(&base.bytes, &Limits::default()).ok()?;
    let data = |offset: u64, bytes: u64| {
        let from = usize::try_from(data_offset + offset).ok()?;
        base.bytes.get(from..from + usize::try_from(bytes).ok()?).map(<[u8]>::to_vec)
    };
    let mut all: Vec<(NewTensor, Vec<u8>)> = Vec::new();
    for tensor in &tensors {
        all.push((tensor.into(), data(tensor.offset, tensor.bytes)?));
    }
    let mut what = base.name.clone();
    for _ in 0..=worker.below(3) {
        let said = if worker.below(5) < 3 { key(worker, &mut meta) } else { tensor(worker, &mut all) };
        what += &format!("; {said}");
    }
    for (tensor, bytes) in &mut all {
        tensor.bytes = None;
        let rows = tensor.shape.iter().skip(1).product();
        let size = tensor.ty.info()?.tensor_bytes(*tensor.shape.first()?, rows)?;
        let size = usize::try_from(size).ok().filter(|size| *size <= 1 << 22)?;
        let pattern = std::mem::take(bytes);
        bytes.extend(pattern.iter().cycle().take(size));
        bytes.resize(size, 0);
    }
    let table: Vec<NewTensor> = all.iter().map(|(tensor, _)| tensor.clone()).collect();
    Layout::new(&meta, &table).ok()?;
    Some((gguf::bytes(&meta, &all), what))
}

fn key(worker: &mut Worker, meta: &mut Metadata) -> String {
    let keys: Vec<String> = meta.iter().map(|(key, _)| key.to_owned()).collect();
    let (key, other) = (&keys[worker.below(keys.len())], &keys[worker.below(keys.len())]);
    let number = worker.one_of(&[0, 1, 2, 3, 5, 7, 31, 64, 255, 256, 257, 65_536, i32::MAX as u32, 1 << 31, u32::MAX]);
    let float = worker.one_of(&[0.0, -1.0, 1e-45, 3e38, f32::INFINITY, f32::NAN]);
    let value = match worker.below(9) {
        0 => {
            meta.remove(key);
            return format!("without {key}");
        }
        1 => meta.get(other).cloned().expect("a key that is there"),
        2 => Value::F32(float),
        3 => Value::Bool(worker.below(2) == 0),
        4 => Value::Array(Array::U32(vec![number; worker.below(6)])),
        5 => Value::str(worker.one_of(&["", "none", "yarn", "longrope", "x"])),
        6 => {
            let name = worker.one_of(ARCHITECTURES);
            let old = meta.get_str("general.architecture").ok().flatten().unwrap_or_default().to_owned();
            for key in &keys {
                if let Some(rest) = key.strip_prefix(&format!("{old}.")) {
                    let value = meta.get(key).cloned().expect("a key that is there");
                    meta.set(&format!("{name}.{rest}"), value);
                }
            }
            meta.set("general.architecture", Value::str(name));
            return format!("as {name}");
        }
        _ => Value::U32(number),
    };
    let said = format!("{key} = {}", format!("{value:?}").chars().take(40).collect::<String>());
    meta.set(key, value);
    said
}

fn tensor(worker: &mut Worker, all: &mut Vec<(NewTensor, Vec<u8>)>) -> String {
    let (at, other) = (worker.below(all.len()), worker.below(all.len()));
    let Some((tensor, _)) = all.get_mut(at) else {
        return String::new();
    };
    let name = tensor.name.clone();
    match worker.below(6) {
        0 => drop(all.remove(at)),
        1 => tensor.shape.reverse(),
        2 => {
            let i = worker.below(tensor.shape.len());
            tensor.shape[i] = worker.one_of(&[1, 2, 31, 32, 255, 256, 512, 1024]);
        }
        3 => tensor.shape = vec![tensor.shape.iter().product()],
        4 => tensor.ty = worker.one_of(TYPES),
        _ => {
            let theirs = std::mem::replace(&mut all[other].0.name, name.clone());
            all[at].0.name = theirs;
        }
    }
    format!("tensor {name}: {:?}", all.get(at).map(|(t, _)| (&t.shape, t.ty)))
}
