//! Files of the Fairy2i fork of llama.cpp: translated, they compute what they say; damaged, they are refused by name.

use trine::model::{LoadOptions, Weights};
use trine::quant::widely::Options;
use trine::quant::{Plan, QuantError, Recipe, RunOptions, Target, run};
use trine_formats::gguf::write::NewTensor;
use trine_formats::gguf::{Metadata, ModelFile, Value};
use trine_formats::types::TypeId;
use trine_formats::types::num::{f16_to_f32, f32_to_bf16, f32_to_f16};
use trine_formats::widely::{OutputForm, Part, Scope, TieRule};
use trine_testkit::gguf;

use super::models::{parts, random_of, tile_sizes, widely, written};

/// Keys and tensors of a file.
#[derive(Clone)]
struct Parts {
    meta: Metadata,
    tensors: Vec<(NewTensor, Vec<u8>)>,
}

impl Parts {
    fn file(&self) -> ModelFile {
        gguf::model(gguf::bytes(&self.meta, &self.tensors))
    }

    fn tensor(&mut self, name: &str) -> &mut (NewTensor, Vec<u8>) {
        let found = self.tensors.iter_mut().find(|(t, _)| t.name == name);
        found.unwrap_or_else(|| panic!("no {name}"))
    }
}

/// A widely linear model in trine's layout with f16 scales, and its embeddings in BF16.
fn ours() -> Parts {
    let options =
        Options { scope: Scope::Tile64, tie: TieRule::Tile64, output: OutputForm::Dense, ..Options::default() };
    let file = gguf::model(widely(&random_of("llama", TypeId::F32, &tile_sizes()), &options));
    let tensor = |name: &str| file.tensor(name).expect("it is there").data.to_vec();
    let floats = |bytes: &[u8]| -> Vec<f32> {
        let all = bytes.as_chunks().0.iter();
        all.map(|&b| f32::from_le_bytes(b)).collect()
    };
    let tensors = file.tensors().map(|t| {
        let (data, mut new) = (tensor(&t.name), NewTensor::from(t));
        if t.name == "token_embd.weight" {
            new = NewTensor::new(t.name.clone(), t.shape.clone(), TypeId::BF16);
            let halves = floats(&data).into_iter().map(f32_to_bf16);
            return (new, halves.flat_map(u16::to_le_bytes).collect());
        }
        if let Some((_, Part::Scale)) = Part::matrix(&t.name) {
            let halves = floats(&data).into_iter().map(|s| f16_to_f32(f32_to_f16(s)));
            return (new, halves.flat_map(f32::to_le_bytes).collect());
        }
        new.bytes = None;
        (new, data)
    });
    Parts { meta: file.meta().clone(), tensors: tensors.collect() }
}

/// The same model as the fork stores it: blocks as its specification describes them.
fn fork_of(ours: &Parts) -> Parts {
    let mut meta = Metadata::default();
    for (key, value) in ours.meta.iter().filter(|(k, _)| !k.contains(".wl.")) {
        meta.set(key, value.clone());
    }
    let words = [
        ("quant.format", "fairy2i_tile64_v2"),
        ("quant.variant", "tile64_v2"),
        ("quant.codebook", "{+/-1,+/-i}"),
        ("quant.scale_stat", "dominant_mean_abs"),
        ("attn.layout", "llama_real"),
        ("tokenizer.profile", "llama_bpe"),
    ];
    for (key, word) in words {
        meta.set(&format!("fairy2i.{key}"), Value::str(word));
    }
    let sizes = tile_sizes();
    let numbers = [
        ("schema_version", 1),
        ("quant.residual_steps", 2),
        ("quant.tile_size", 64),
        ("embedding_length", sizes.embd as u32 / 2),
        ("feed_forward_length", sizes.ff as u32 / 2),
    ];
    for (key, n) in numbers {
        meta.set(&format!("fairy2i.{key}"), Value::U32(n));
    }
    let mut tensors = Vec::new();
    for (t, data) in &ours.tensors {
        let bare = t.name.trim_end_matches(".weight").to_owned();
        match Part::matrix(&t.name) {
            Some((_, Part::Scale)) => {}
            Some((base, Part::Codes)) => {
                let scales = ours.tensors.iter().find(|(s, _)| s.name == Part::Scale.name(base));
                let scales = &scales.expect("scales").1;
                let (chunks, rows) = (t.shape[1] as usize, t.shape[2] as usize);
                for (stream, name) in ["U.s0", "U.s1", "W.s0", "W.s1"].iter().enumerate() {
                    let mut blocks = Vec::new();
                    for row in 0..rows {
                        for b in 0..chunks / 4 {
                            // the code of column `column` of the block
                            let code = |column: usize| {
                                let chunk = 4 * b + column / 16;
                                let at = 4 * ((row * chunks + chunk) * 4 + stream);
                                let word = u32::from_le_bytes(data[at..at + 4].try_into().unwrap());
                                (word >> (2 * (column % 16)) & 3) as u8
                            };
                            for l in 0..16 {
                                blocks.push((0..4).fold(0, |b, i| b | code(l + 16 * i) << (2 * i)));
                            }
                            for axis in 0..2 {
                                let group = row / 64 * (chunks / 4) + b;
                                let at = 4 * (group * 8 + 2 * stream + axis);
                                let s = f32::from_le_bytes(scales[at..at + 4].try_into().unwrap());
                                blocks.extend(f32_to_f16(s).to_le_bytes());
                            }
                        }
                    }
                    let shape = [16 * chunks as u64, rows as u64];
                    let ty = TypeId::FAIRY2I_TILE64;
                    tensors.push((NewTensor::new(format!("{base}.{name}"), shape, ty), blocks));
                }
            }
            None if bare == "token_embd" => {
                let shape = [t.shape[0] / 2, t.shape[1]];
                let mut pairs = Vec::new();
                for row in data.chunks(2 * t.shape[0] as usize) {
                    let (re, im) = row.split_at(row.len() / 2);
                    for (re, im) in re.chunks(2).zip(im.chunks(2)) {
                        pairs.extend([re, im].concat());
                    }
                }
                tensors.push((NewTensor::new(bare, shape, TypeId::F32), pairs));
            }
            None => tensors.push((NewTensor::new(bare, t.shape.clone(), t.ty), data.clone())),
        }
    }
    Parts { meta, tensors }
}

/// A file of the fork, translated.
fn translated(fork: &ModelFile) -> ModelFile {
    gguf::model(written(fork, &Recipe::new(Target::Widely)))
}

#[test]
fn a_file_of_the_fork_becomes_the_same_model_in_this_layout() {
    let ours = ours();
    let fork = fork_of(&ours).file();
    let translated = translated(&fork);
    let (want, got) = (parts(&ours.file()), parts(&translated));
    assert_eq!(want.len(), got.len());
    for (name, bytes) in &want {
        assert!(got[name] == *bytes, "{name}");
    }
    for key in ["embedding_length", "feed_forward_length", "wl.stages"] {
        let key = format!("fairy2i.{key}");
        assert_eq!(translated.meta().get(&key), ours.meta.get(&key), "{key}");
    }
    for key in ["wl.scale_scope", "wl.tie_rule", "wl.lm_head", "base_arch"] {
        let key = format!("fairy2i.{key}");
        assert_eq!(translated.meta().get(&key), ours.meta.get(&key), "{key}");
    }
    assert!(translated.meta().get("fairy2i.schema_version").is_none());
    Weights::load(&translated, &LoadOptions::default()).expect("a model");
    // until then it is refused with the way out
    let error = Weights::load(&fork, &LoadOptions::default()).err();
    let error = error.expect("not this layout").to_string();
    assert!(error.contains("rquantize FILE OUT FAIRY2I"), "{error}");
}

#[test]
fn a_scale_of_no_element_becomes_the_least_one() {
    let mut fork = fork_of(&ours());
    let (t, blocks) = fork.tensor("blk.0.attn_k.W.s1");
    let of_row = t.shape[0] as usize / 64 * 20;
    for row in blocks.chunks_mut(of_row).take(64) {
        row[18..20].fill(0);
    }
    let translated = translated(&fork.file());
    let scales = &parts(&translated)["blk.0.attn_k.wl_scale"];
    assert_eq!(scales[4 * 7..4 * 8], f32::MIN_POSITIVE.to_le_bytes());
    Weights::load(&translated, &LoadOptions::default()).expect("a model");
}

#[test]
fn damage_is_refused_by_the_name_of_the_tensor_or_the_key() {
    let whole = fork_of(&ours());
    type Damage = fn(&mut Parts);
    let cases: &[(Damage, &[&str])] = &[
        (|p| p.tensors.retain(|(t, _)| t.name != "blk.1.ffn_up.W.s0"), &["blk.1.ffn_up.W.s0", "missing"]),
        (|p| p.tensors.retain(|(t, _)| t.name != "blk.1.ffn_up.U.s0"), &["blk.1.ffn_up.U.s0", "missing"]),
        (
            |p| {
                let (t, data) = p.tensor("blk.0.attn_v.U.s1");
                t.shape[1] /= 2;
                data.truncate(data.len() / 2);
            },
            &["blk.0.attn_v.U.s1", "shape", "64 x 64"],
        ),
        (
            |p| {
                let (t, data) = p.tensor("blk.0.attn_v.U.s1");
                (t.ty, *data) = (TypeId::F32, vec![0; 4 * (t.shape[0] * t.shape[1]) as usize]);
            },
            &["blk.0.attn_v.U.s1", "f32", "fairy2i_tile64_v2"],
        ),
        (
            |p| {
                let (t, data) = p.tensor("blk.0.ffn_down.W.s1");
                let of_row = t.shape[0] as usize / 64 * 20;
                data[5 * of_row + 20 + 16] ^= 1;
            },
            &["blk.0.ffn_down.W.s1", "row 5", "block 1"],
        ),
        (
            |p| {
                let data = &mut p.tensor("blk.0.ffn_gate.U.s0").1;
                data[16..18].copy_from_slice(&f32_to_f16(f32::NAN).to_le_bytes());
            },
            &["blk.0.ffn_gate.U.s0", "NaN"],
        ),
        (
            |p| p.meta.set("fairy2i.quant.variant", Value::str("legacy")),
            &["fairy2i.quant.variant", "'legacy'", "'tile64_v2'"],
        ),
        (|p| p.meta.set("fairy2i.quant.residual_steps", Value::U32(3)), &["fairy2i.quant.residual_steps", "'3'"]),
        (|p| p.meta.set("fairy2i.attn.layout", Value::str("qwen2_real")), &["fairy2i.attn.layout", "'llama_real'"]),
    ];
    let dir = trine_testkit::folder();
    for (i, (damage, words)) in cases.iter().enumerate() {
        let mut parts = whole.clone();
        damage(&mut parts);
        let (file, out) = (parts.file(), dir.path().join("out.gguf"));
        let error = match Plan::new(&file, &Recipe::new(Target::Widely)) {
            Ok(mut plan) => run(&file, &mut plan, &out, RunOptions::default(), &mut ()).err(),
            Err(error) => Some(QuantError::from(error)),
        };
        let error = error.unwrap_or_else(|| panic!("case {i} was not seen"));
        let error = error.to_string();
        for word in *words {
            assert!(error.contains(word), "case {i}: {error} without {word}");
        }
        assert!(!out.exists() && !error.contains('\n'), "case {i}: {error}");
    }
}
