//! Norms of the inputs of single projections, as BitNet's embeddings and checkpoints with `use_rms_norm` have them.

use trine::Isa;
use trine::formats::gguf::write::NewTensor;
use trine::formats::gguf::{Metadata, ModelFile};
use trine::formats::types::TypeId;
use trine::model::{LoadOptions, Weights};
use trine_testkit::gguf;

use crate::rotated::{distance, logits, model};

const PROJECTIONS: [&str; 7] = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"];

/// All tensors of a file: name, shape, numbers.
fn tensors(file: &ModelFile) -> Vec<(String, Vec<u64>, Vec<f32>)> {
    let floats = |data: &[u8]| data.as_chunks().0.iter().map(|bytes: &[u8; 4]| f32::from_le_bytes(*bytes)).collect();
    let read = |name: &str| floats(&file.tensor(name).expect("its data").data);
    file.tensors().map(|t| (t.name.clone(), t.shape.clone(), read(&t.name))).collect()
}

/// A file of floats; those of vectors as `vectors`.
fn file(meta: &Metadata, tensors: Vec<(String, Vec<u64>, Vec<f32>)>, vectors: TypeId) -> ModelFile {
    let stored = tensors.into_iter().map(|(name, shape, values)| {
        let ty = if shape.len() == 1 { vectors } else { TypeId::F32 };
        let info = ty.info().expect("a float type");
        let mut data = vec![0; info.row_bytes(values.len() as u64).expect("whole blocks") as usize];
        info.encode.expect("an encoder")(&values, None, &mut data);
        (NewTensor::new(name, shape, ty), data)
    });
    gguf::model(gguf::bytes(meta, &stored.collect::<Vec<_>>()))
}

/// Gains that halves hold exactly, and that differ between tensors.
fn gain(name: &str, i: usize) -> f32 {
    0.5 + ((i * i + 7 * i + 31 * name.len() + usize::from(name.as_bytes()[4])) % 61) as f32 / 64.0
}

/// The seven norms of every block under a name, with gains, or ones where these are multiplied into the matrices.
fn with_norms(all: &[(String, Vec<u64>, Vec<f32>)], suffix: &str, folded: bool) -> Vec<(String, Vec<u64>, Vec<f32>)> {
    let mut out = Vec::new();
    for (name, shape, values) in all {
        let projection = PROJECTIONS.iter().any(|p| name.ends_with(&format!(".{p}.weight")));
        let width = shape[0] as usize;
        let mut values = values.clone();
        if projection {
            let gains: Vec<f32> = (0..width).map(|i| gain(name, i)).collect();
            if folded {
                values.chunks_exact_mut(width).for_each(|row| row.iter_mut().zip(&gains).for_each(|(w, g)| *w *= g));
            }
            let gains = if folded { vec![1.0; width] } else { gains };
            let norm = name.replace(".weight", &format!("{suffix}.weight"));
            out.push((norm, vec![width as u64], gains));
        }
        out.push((name.clone(), shape.clone(), values));
    }
    out
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|v| v.to_bits()).collect()
}

/// Two of BitNet's norms stand where these do, so that a model of another architecture with them is a BitNet.
#[test]
fn norms_before_two_projections_are_those_of_bitnet() {
    // factors on the feed-forward network's products are BitNet's alone
    let scaled = model("bitnet-long", str::to_owned);
    let bare = tensors(&scaled).into_iter().filter(|(name, ..)| !name.ends_with(".scale"));
    let bitnet = file(scaled.meta(), bare.collect(), TypeId::F32);
    let renamed = |norm: &str| {
        let mut meta = bitnet.meta().clone();
        for (key, value) in bitnet.meta().iter() {
            if let Some(rest) = key.strip_prefix("bitnet.") {
                meta.set(&format!("qwen2.{rest}"), value.clone());
            }
        }
        meta.set("general.architecture", trine::formats::gguf::Value::str("qwen2"));
        let rename = |(name, shape, values): (String, Vec<u64>, Vec<f32>)| {
            let name = name.replace(".attn_sub_norm", &format!(".attn_output{norm}"));
            (name.replace(".ffn_sub_norm", &format!(".ffn_down{norm}")), shape, values)
        };
        file(&meta, tensors(&bitnet).into_iter().map(rename).collect(), TypeId::F32)
    };
    let want = bits(&logits(&bitnet));
    for norm in ["_norm_in", ".rms_norm", ".norm"] {
        assert!(bits(&logits(&renamed(norm))) == want, "{norm}");
    }
}

#[test]
fn each_projection_has_a_norm_of_its_own() {
    for name in ["llama-dense", "qwen3-dense", "gemma3-dense"] {
        let plain = model(name, str::to_owned);
        let all = tensors(&plain);
        let made = |suffix, folded, ty| logits(&file(plain.meta(), with_norms(&all, suffix, folded), ty));
        let normed = made("_norm_in", false, TypeId::F32);
        let near = distance(&normed, &made("_norm_in", true, TypeId::F32));
        assert!(near < 1e-5, "{name}: {near}");
        // with the gains in the matrices alone it is another model
        let mut bare = with_norms(&all, "_norm_in", true);
        bare.retain(|(name, ..)| !name.ends_with("_norm_in.weight"));
        let far = distance(&normed, &logits(&file(plain.meta(), bare, TypeId::F32)));
        assert!(far > 1e-3, "{name}: {far}");
        // without the norms of one kind of projection too
        for projection in PROJECTIONS {
            let mut some = with_norms(&all, "_norm_in", false);
            let norm = format!(".{projection}_norm_in.weight");
            some.iter_mut().filter(|t| t.0.ends_with(&norm)).for_each(|t| t.2.fill(1.0));
            let far = distance(&normed, &logits(&file(plain.meta(), some, TypeId::F32)));
            assert!(far > 1e-5, "{name} {projection}: {far}");
        }
        for suffix in [".rms_norm", ".norm"] {
            assert!(bits(&made(suffix, false, TypeId::F32)) == bits(&normed), "{name} {suffix}");
        }
    }
}

#[test]
fn norms_may_be_halves_and_have_to_be_of_a_projection() {
    let plain = model("llama-dense", str::to_owned);
    // the model's own norms are rounded too
    let mut all = with_norms(&tensors(&plain), "_norm_in", false);
    let half = TypeId::F16.info().expect("registered");
    for (.., values) in all.iter_mut().filter(|t| t.1.len() == 1) {
        let mut data = vec![0; 2 * values.len()];
        half.encode.expect("an encoder")(values, None, &mut data);
        half.decode.expect("a decoder")(&data, values);
    }
    let of = |ty| bits(&logits(&file(plain.meta(), all.clone(), ty)));
    assert!(of(TypeId::F16) == of(TypeId::F32), "halves");
    let refused = |name: &str, width: u64| {
        let mut more = all.clone();
        more.retain(|t| t.0 != name);
        more.push((name.to_owned(), vec![width], vec![1.0; width as usize]));
        let options = LoadOptions { isa: Isa::detect(), ..LoadOptions::default() };
        let error =
            Weights::load(&file(plain.meta(), more, TypeId::F32), &options).err().expect("a refusal").to_string();
        assert!(error.contains(name) && error.lines().count() == 1, "{error}");
    };
    refused("blk.0.ffn_gate_exps_norm_in.weight", 256);
    refused("blk.0.attn_qkv_norm_in.weight", 256);
    refused("blk.1.ffn_up_norm_in.weight", 64);
}
