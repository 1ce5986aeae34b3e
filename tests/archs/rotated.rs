//! Rotated weights: a model whose matrices were multiplied by a rotation along their inputs is the model that it was, up
//! to rounding.

use std::fs;

use trine::Isa;
use trine::formats::gguf::write::NewTensor;
use trine::formats::gguf::{Array, Metadata, ModelFile, Value};
use trine::model::{LoadOptions, Weights};
use trine::ops::hadamard::Hadamard;
use trine::pool::Pool;
use trine::step::{Session, SessionOptions};
use trine_testkit::gguf;

use trine_testkit::archs::Listing;

const BLOCK: usize = 64;
pub const TOKENS: [u32; 24] = [1, 7, 99, 3, 64, 12, 5, 77, 1, 2, 3, 100, 42, 8, 9, 10, 11, 90, 13, 14, 15, 16, 70, 18];

/// A model of a listing, whose lines are changed by `change`.
pub fn model(name: &str, change: impl Fn(&str) -> String) -> ModelFile {
    let path = trine_testkit::testdata(&format!("archs/{name}.txt"));
    let text = fs::read_to_string(path).expect("a listing");
    let lines: Vec<String> = text.lines().map(change).collect();
    gguf::model(Listing::parse(&lines.join("\n")).file())
}

/// Signs of a row, without a pattern that the transform has.
fn signs(width: usize) -> Vec<f32> {
    (0..width).map(|i| if (i * i + i / 5) % 7 < 3 { 1.0 } else { -1.0 }).collect()
}

/// How a model is rotated.
#[derive(Clone, Default)]
struct Rotation {
    explicit: bool,
    tied: bool,
    /// Heads of values and of keys, where the columns of `ssm_out` are put into the order of training.
    heads: Option<[usize; 2]>,
}

impl Rotation {
    fn is_rotated(&self, name: &str) -> bool {
        let kinds = ["attn_q.", "attn_k.", "attn_v.", "attn_qkv.", "attn_output.", "ssm_out."];
        let of_block = kinds.iter().any(|kind| name.contains(kind)) || name.contains("ffn_") && !name.contains("_inp");
        name.ends_with(".weight") && (name == "output.weight" || of_block && !name.contains("norm"))
    }

    fn rows(&self, name: &str, width: usize, rows: &mut [f32]) {
        if let (Some([values, keys]), true) = (self.heads, name.contains(".ssm_out.")) {
            let (head, turns) = (width / values, values / keys);
            for row in rows.chunks_exact_mut(width) {
                let old = row.to_vec();
                for (key, turn) in (0..keys).flat_map(|key| (0..turns).map(move |turn| (key, turn))) {
                    let from = head * (key + keys * turn);
                    row[head * (turn + turns * key)..][..head].copy_from_slice(&old[from..from + head]);
                }
            }
        }
        let signs = if self.explicit { signs(width) } else { Vec::new() };
        Hadamard { block: BLOCK, signs, inverse: false }.apply(Isa::detect(), rows);
    }

    /// The rotated file, with its keys changed by `change`.
    fn file(&self, file: &ModelFile, change: impl Fn(&mut Metadata)) -> ModelFile {
        let mut tensors = Vec::new();
        let (mut names, mut widths) = (Vec::new(), Vec::new());
        for info in file.tensors() {
            let mut data = file.tensor(&info.name).expect("its data").data.to_vec();
            let table = info.name == "token_embd.weight";
            if self.is_rotated(&info.name) || table {
                let width = info.shape[0] as usize;
                let mut rows: Vec<f32> =
                    data.as_chunks().0.iter().map(|bytes: &[u8; 4]| f32::from_le_bytes(*bytes)).collect();
                self.rows(&info.name, width, &mut rows);
                data = rows.iter().flat_map(|v| v.to_le_bytes()).collect();
                if !table {
                    names.push(info.name.clone());
                }
                if !widths.contains(&width) {
                    widths.push(width);
                }
            }
            let shape: Vec<u64> = info.shape.clone();
            tensors.push((NewTensor::new(&info.name, shape, info.ty), data));
        }
        let mut meta = file.meta().clone();
        let mut set = |key: &str, value: Value| meta.set(&format!("prism.hadamard.{key}"), value);
        set("version", Value::U32(if self.tied { 2 } else { 1 }));
        set("block_size", Value::U32(BLOCK as u32));
        set("transform", Value::str("normalized-sylvester-walsh-hadamard"));
        set("axis", Value::str("input-last-dimension"));
        set("sign_mode", Value::str(if self.explicit { "explicit" } else { "identity" }));
        set("weight_names", Value::Array(Array::Str(names.into_iter().collect())));
        set("inverse_weight_names", Value::Array(Array::Str(["token_embd.weight"].into_iter().collect())));
        if self.explicit {
            let values = widths.iter().flat_map(|&width| signs(width)).map(|sign| sign as i32);
            set("sign_values", Value::Array(Array::I32(values.collect())));
            set("sign_widths", Value::Array(Array::I32(widths.iter().map(|&w| w as i32).collect())));
        }
        if self.tied {
            set("tied_output", Value::Bool(true));
        }
        if self.heads.is_some() {
            set("gdn_v_grouped", Value::Bool(true));
        }
        change(&mut meta);
        gguf::model(gguf::bytes(&meta, &tensors))
    }
}

/// The model of a listing with rotated weights, signs included.
pub fn rotated(name: &str) -> ModelFile {
    let rotation = Rotation { explicit: true, ..Rotation::default() };
    rotation.file(&model(name, str::to_owned), |_| ())
}

pub fn logits(file: &ModelFile) -> Vec<f32> {
    let model = Weights::load(file, &LoadOptions::default()).unwrap_or_else(|e| panic!("{e}"));
    let pool = Pool::new(2).expect("threads");
    let mut session = Session::new(&model, &pool, SessionOptions { n_ctx: 64, n_ubatch: 512 });
    let mut out = Vec::new();
    session.eval(&TOKENS, 0, &mut |_, logits| out.extend_from_slice(logits)).expect("room for the tokens");
    out
}

/// The greatest difference of logits, as a part of the greatest logit.
pub fn distance(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    let most = a.iter().fold(0f32, |m, v| m.max(v.abs()));
    a.iter().zip(b).fold(0f32, |m, (a, b)| m.max((a - b).abs())) / most
}

/// A line of `qwen35-dense` with four heads of values for two of keys.
pub fn grouped(line: &str) -> String {
    let changes = [
        ("ssm.time_step_rank u32 2", "ssm.time_step_rank u32 4"),
        ("ssm.state_size u32 128", "ssm.state_size u32 64"),
        ("ssm_norm.weight 128", "ssm_norm.weight 64"),
        ("attn_qkv.weight 256 768", "attn_qkv.weight 256 512"),
        ("ssm_conv1d.weight 4 768", "ssm_conv1d.weight 4 512"),
        ("ssm_dt.bias 2", "ssm_dt.bias 4"),
        ("ssm_a 2", "ssm_a 4"),
        ("ssm_alpha.weight 256 2", "ssm_alpha.weight 256 4"),
        ("ssm_beta.weight 256 2", "ssm_beta.weight 256 4"),
    ];
    changes.iter().fold(line.to_owned(), |line, (from, to)| line.replace(from, to))
}

/// A line of a listing without an output matrix.
pub fn tied(line: &str) -> String {
    if line.starts_with("tensor output.weight") { String::new() } else { line.to_owned() }
}

#[test]
fn rotated_models_are_what_they_were() {
    let explicit = Rotation { explicit: true, ..Rotation::default() };
    for (file, rotation) in [
        (model("llama-dense", str::to_owned), Rotation::default()),
        (model("llama-dense", str::to_owned), explicit.clone()),
        (model("qwen3moe-moe", str::to_owned), explicit.clone()),
        (model("qwen35-dense", str::to_owned), explicit.clone()),
        (model("qwen35-dense", grouped), Rotation { heads: Some([4, 2]), ..explicit.clone() }),
    ] {
        let name = file.meta().get_str("general.architecture").expect("text").expect("a name").to_owned();
        let (plain, rotated) = (logits(&file), logits(&rotation.file(&file, |_| ())));
        let near = distance(&plain, &rotated);
        // rounding is 2e-7; heads in the wrong order, whose layer adds little here, are 13e-7
        assert!(near < 5e-7, "{name}: {near}");
        // the same weights without the keys are another model
        let bare = rotation.file(&file, |meta| {
            let keys: Vec<String> = meta.iter().map(|(key, _)| key.to_owned()).collect();
            keys.iter().filter(|key| key.starts_with("prism.")).for_each(|key| {
                meta.remove(key);
            });
        });
        let far = distance(&plain, &logits(&bare));
        assert!(far > 1e-3, "{name}: {far}");
    }
}

#[test]
fn keys_that_do_not_fit_are_refused_by_name() {
    let file = model("llama-dense", str::to_owned);
    let rotation = Rotation { explicit: true, ..Rotation::default() };
    let refused = |key: &str, value: Option<Value>| {
        let key = format!("prism.hadamard.{key}");
        let changed = rotation.file(&file, |meta| {
            match &value {
                Some(value) => meta.set(&key, value.clone()),
                None => {
                    meta.remove(&key);
                }
            };
        });
        let e = Weights::load(&changed, &LoadOptions::default()).err().unwrap_or_else(|| panic!("{key} was taken"));
        let text = e.to_string();
        assert!(!text.contains('\n'), "{text}");
        text
    };
    let names = |all: &[&str]| Some(Value::Array(Array::Str(all.iter().collect())));
    for (key, value, says) in [
        ("version", None, "version is missing, and other keys"),
        ("version", Some(Value::U32(3)), "version is 3; trine knows 1 and 2"),
        ("version", Some(Value::U64(1)), "version has type u64, expected u32"),
        ("version", Some(Value::U32(2)), "tied_output has to be true in version 2"),
        ("block_size", Some(Value::U32(0)), "block_size is 0, it must be a power of two"),
        ("block_size", Some(Value::U32(96)), "block_size is 96, it must be a power of two"),
        ("block_size", Some(Value::U32(512)), "no whole blocks of 512"),
        ("transform", Some(Value::str("hadamard")), "transform is 'hadamard'; trine knows"),
        ("axis", None, "axis is missing"),
        ("sign_mode", Some(Value::str("random")), "sign_mode is 'random'"),
        ("sign_widths", Some(Value::Array(Array::I32(vec![256]))), "sign_values does not fit"),
        ("sign_widths", Some(Value::Array(Array::I32(vec![-64]))), "sign_widths has a width"),
        ("sign_values", Some(Value::Array(Array::I32(vec![2; 256]))), "sign_values has 2"),
        ("sign_values", Some(Value::str("1")), "sign_values has type str, expected an array"),
        ("weight_names", names(&[]), "weight_names is empty"),
        ("weight_names", names(&["blk.0.attn_q.weight", "blk.0.attn_q.weight"]), "names blk.0.attn_q.weight twice"),
        ("weight_names", names(&["blk.0.attn_norm.weight"]), "whose inputs trine does not rotate"),
        (
            "weight_names",
            names(&["blk.9.attn_q.weight"]),
            "tensor blk.9.attn_q.weight: key prism.hadamard.weight_names names it",
        ),
        ("inverse_weight_names", names(&["output.weight"]), "can name token_embd.weight and nothing else"),
    ] {
        let text = refused(key, value.clone());
        assert!(text.contains(says), "{key} {value:?}: {text}");
    }
}

/// A rotated file stays one: its keys are copied, and rows keep their order.
#[test]
fn quantized_rotated_models_stay_rotated() {
    let plain = model("llama-dense", str::to_owned);
    let rotated = Rotation { explicit: true, ..Rotation::default() }.file(&plain, |_| ());
    let dir = trine_testkit::folder();
    let path = dir.path().join("q8_0.gguf");
    let recipe = trine::Recipe::new(trine::Target::parse("Q8_0").expect("a name"));
    trine::quantize(&rotated, &recipe, &path).unwrap_or_else(|e| panic!("{e}"));
    let quantized = gguf::open(&path);
    let keys = |file: &ModelFile| -> Vec<(String, Value)> {
        let of_rotation = file.meta().iter().filter(|(key, _)| key.starts_with("prism."));
        of_rotation.map(|(key, value)| (key.to_owned(), value.clone())).collect()
    };
    assert_eq!(keys(&quantized), keys(&rotated));
    let (want, is) = (logits(&plain), logits(&quantized));
    let near = distance(&want, &is);
    assert!(near < 0.02, "{near}");
    let mut bare = quantized;
    bare.set_meta("prism.hadamard.block_size", Value::U32(BLOCK as u32 / 2));
    let far = distance(&want, &logits(&bare));
    assert!(far > 2.0 * near, "{far} {near}");
}
