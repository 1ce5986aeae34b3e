//! Models that the quantizer rotates compute what they did, and are rotated back to what they were.

use trine::quant::rotate::{Rotation, Turn};
use trine::{Recipe, Target};
use trine_formats::gguf::{Metadata, ModelFile, Value};
use trine_formats::rotated::Rotated;
use trine_formats::types::TypeId;
use trine_testkit::gguf;

use crate::rotated::{distance, grouped, logits, model, tied};

pub const SIGNS: Option<u64> = Some(7);

fn refusal(file: &ModelFile, turn: Turn, ty: Option<TypeId>, partly: bool) -> Result<ModelFile, String> {
    let dir = trine_testkit::folder();
    let path = dir.path().join("turned.gguf");
    let recipe = Recipe::new(Target::Turned(Rotation { turn, ty, partly }));
    trine::quantize(file, &recipe, &path).map_err(|e| {
        assert!(!path.exists(), "{e}");
        e.to_string()
    })?;
    Ok(gguf::open(&path))
}

/// The model, turned where its rows are whole blocks.
pub fn turned(file: &ModelFile, turn: Turn, ty: Option<TypeId>) -> ModelFile {
    refusal(file, turn, ty, true).unwrap_or_else(|e| panic!("{e}"))
}

pub fn rotate(block: usize, signs: Option<u64>) -> Turn {
    Turn::Rotate { block, signs }
}

/// The weights of a tensor, in rows.
pub fn rows(file: &ModelFile, name: &str) -> Vec<f32> {
    let tensor = file.tensor(name).expect("its data");
    let mut out = vec![0.0; tensor.info.shape.iter().product::<u64>() as usize];
    (tensor.info.ty.info().and_then(|t| t.decode).expect("a decoder"))(&tensor.data, &mut out);
    out
}

/// Keys of a file, and types of its tensors.
pub type Header = (Vec<(String, Value)>, Vec<(String, TypeId)>);

pub fn header(file: &ModelFile) -> Header {
    let keys = |meta: &Metadata| meta.iter().map(|(key, value)| (key.to_owned(), value.clone())).collect();
    let mut tensors: Vec<_> = file.tensors().map(|t| (t.name.clone(), t.ty)).collect();
    tensors.sort();
    (keys(file.meta()), tensors)
}

/// The models of the listings that can be rotated, and one whose heads of linear attention change their places.
fn models() -> Vec<(&'static str, ModelFile)> {
    let names =
        ["llama-dense", "llama-moe", "qwen3-dense", "qwen3moe-moe", "qwen35-dense", "qwen35moe-moe", "qwen3next-moe"];
    let mut all: Vec<_> = names.map(|name| (name, model(name, str::to_owned))).into();
    all.push(("qwen35-dense, grouped", model("qwen35-dense", grouped)));
    all.push(("llama-dense, tied", model("llama-dense", tied)));
    all
}

/// The distance of logits of the plain and the rotated F32 model: rounding of 24 bits, through a few layers.
const ROUNDING: f32 = 1e-6;

#[test]
fn logits_are_those_of_the_plain_model_up_to_rounding() {
    for (name, file) in models() {
        let plain = logits(&file);
        for (block, signs) in [(64, SIGNS), (128, None)] {
            let rotated = turned(&file, rotate(block, signs), None);
            let keys = Rotated::read(rotated.meta()).expect("keys").expect("some");
            assert_eq!((keys.tied, keys.grouped), (name.ends_with("tied"), name.ends_with("grouped")), "{name}");
            assert!(keys.table && keys.weights.len() > 5, "{name}");
            let near = distance(&plain, &logits(&rotated));
            assert!(near < ROUNDING, "{name}, blocks of {block}: {near}");
        }
    }
}

/// One half, `n` times multiplied by itself.
fn power(n: u32) -> f64 {
    1.0 / (1u64 << n) as f64
}

/// The bound of the weights that come back: by how much a number is rounded in each of the two steps, once itself and
/// once as a part of its block, whose length no rotation changes.
fn bound(block: &[f32], weight: f32, unit: f64) -> f64 {
    let length = block.iter().map(|&w| f64::from(w) * f64::from(w)).sum::<f64>().sqrt();
    1.0001 * unit * (f64::from(weight.abs()) + length)
}

#[test]
fn a_rotation_that_is_undone_gives_the_weights_back() {
    for (name, file) in models() {
        let rotated = turned(&file, rotate(128, SIGNS), None);
        let keys = Rotated::read(rotated.meta()).expect("keys").expect("some");
        let signs = keys.signs.as_ref().expect("signs");
        let balanced = |signs: &Vec<f32>| (signs.iter().sum::<f32>() / signs.len() as f32).abs() < 0.3;
        assert!(signs.values().all(balanced), "{name}");
        let back = turned(&rotated, Turn::Unrotate, None);
        assert_eq!(header(&back), header(&file), "{name}");
        let mut changed = 0;
        for tensor in file.tensors() {
            let [old, there, new] = [&file, &rotated, &back].map(|file| rows(file, &tensor.name));
            let turned = keys.weights.contains(&tensor.name) || tensor.name == "token_embd.weight";
            assert_eq!(old != there, turned, "{name}: {}", tensor.name);
            if !turned {
                assert_eq!(old, new, "{name}: {}", tensor.name);
                continue;
            }
            changed += 1;
            for (old, new) in old.chunks_exact(128).zip(new.chunks_exact(128)) {
                // heads change places by whole blocks here, or within rows that are one block after the other
                for (&a, &b) in old.iter().zip(new) {
                    let most = match keys.is_grouped(&tensor.name) {
                        true => 1e-6,
                        false => bound(old, a, power(24)),
                    };
                    assert!(f64::from((a - b).abs()) <= most, "{name}: {} {a} {b}", tensor.name);
                }
            }
        }
        assert_eq!(changed, keys.weights.len() + 1, "{name}");
    }
}

/// The rotation of one row, from its definition.
fn defined(row: &[f32], signs: &[f32], block: usize) -> Vec<f64> {
    let element = |at: usize| {
        let (first, i) = (at / block * block, at % block);
        let entry = |j: usize| if (i & j).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
        let sum: f64 = (0..block).map(|j| entry(j) * f64::from(row[first + j] * signs[first + j])).sum();
        sum / (block as f64).sqrt()
    };
    (0..row.len()).map(element).collect()
}

#[test]
fn every_weight_is_rounded_once_to_the_type_that_is_asked_for() {
    let file = model("llama-dense", str::to_owned);
    let name = "blk.0.ffn_up.weight";
    for (ty, bits) in [(TypeId::F32, 24), (TypeId::F16, 11), (TypeId::BF16, 8)] {
        let rotated = turned(&file, rotate(64, SIGNS), Some(ty));
        let info = rotated.tensor(name).expect("it").info.ty;
        assert_eq!(info, ty);
        assert_eq!(rotated.tensor("output_norm.weight").expect("it").info.ty, TypeId::F32);
        let keys = Rotated::read(rotated.meta()).expect("keys").expect("some");
        let [old, new] = [&file, &rotated].map(|file| rows(file, name));
        let signs = keys.signs_of(256).expect("signs");
        for (old, new) in old.chunks_exact(256).zip(new.chunks_exact(256)).take(8) {
            for (exact, new) in defined(old, signs, 64).into_iter().zip(new) {
                let half = (exact.abs() * power(bits)).max(power(25));
                assert!((exact - f64::from(*new)).abs() <= 1.000001 * half, "{ty}: {exact} {new}");
            }
        }
    }
}

/// Quantized matrices come back as floats, and what is quantized afterwards is the rotated model.
#[test]
fn quantized_models_need_a_type() {
    let file = model("llama-dense", str::to_owned);
    let rotated = turned(&file, rotate(128, SIGNS), None);
    let dir = trine_testkit::folder();
    let path = dir.path().join("q8_0.gguf");
    let recipe = Recipe::new(Target::parse("Q8_0").expect("a name"));
    trine::quantize(&rotated, &recipe, &path).unwrap_or_else(|e| panic!("{e}"));
    let quantized = gguf::open(&path);
    let message = refusal(&quantized, Turn::Unrotate, None, false).err().expect("no type");
    assert!(message.contains("matrices are quantized (the first is ") && message.contains("q8_0"), "{message}");
    let back = turned(&quantized, Turn::Unrotate, Some(TypeId::F32));
    assert!(!Rotated::is_in(back.meta()));
    let near = distance(&logits(&quantized), &logits(&back));
    // activations of Q8_0 products are rounded to 8 bits, those of F32 ones are not
    assert!(near < 0.02, "{near}");
    assert!(distance(&logits(&file), &logits(&back)) < 0.02);
}

#[test]
fn what_cannot_be_turned_is_refused_in_one_line() {
    let file = model("llama-dense", str::to_owned);
    let rotated = turned(&file, rotate(64, SIGNS), None);
    let mut missing = turned(&file, rotate(64, None), None);
    missing.set_meta("prism.hadamard.weight_names", {
        let names = trine_formats::gguf::Array::Str(["blk.7.attn_q.weight"].into_iter().collect());
        Value::Array(names)
    });
    let mut other = model("gpt2-dense", str::to_owned);
    other.set_meta("general.architecture", Value::str("gpt3"));
    for (file, turn, ty, says) in [
        (&rotated, rotate(64, None), None, "rotated already, in blocks of 64: --unrotate first"),
        (&file, Turn::Unrotate, None, "no keys prism.hadamard.*: its weights are not rotated"),
        (&missing, Turn::Unrotate, None, "names tensor blk.7.attn_q.weight, which the model has not"),
        (
            &other,
            rotate(64, None),
            None,
            "only a model that runs is rotated, because its program says what is multiplied: architecture 'gpt3'",
        ),
        (&file, rotate(96, None), None, "blocks of 96: a block is a power of two"),
        (&file, rotate(1, None), None, "blocks of 1: a block is a power of two"),
        (&file, rotate(1024, None), None, "no matrix that can be rotated has rows of whole blocks of 1024"),
        (&file, rotate(256, None), None, "columns); take blocks of 128 or less, or leave these matrices as they are"),
        (&file, rotate(64, None), Some(TypeId::Q8_0), "become F32, F16 or BF16, not q8_0"),
    ] {
        let message = refusal(file, turn, ty, false).err().expect(says);
        assert!(message.contains(says) && !message.contains('\n'), "{message}");
    }
}

/// Rows that are no whole blocks stay as they are where that is asked for, and the model is the same.
#[test]
fn a_rotation_may_leave_matrices_out() {
    let file = model("llama-dense", str::to_owned);
    let rotated = refusal(&file, rotate(256, SIGNS), None, true).unwrap_or_else(|e| panic!("{e}"));
    let keys = Rotated::read(rotated.meta()).expect("keys").expect("some");
    assert!(keys.weights.contains("blk.0.ffn_up.weight") && !keys.weights.contains("blk.0.ffn_down.weight"));
    assert!(distance(&logits(&file), &logits(&rotated)) < ROUNDING);
}
