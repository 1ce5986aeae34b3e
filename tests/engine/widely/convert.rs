//! The converter: what it writes, that it writes it again, and the way back.

use trine::quant::widely::{Options, Widely, WidelyQuantError};
use trine::quant::{Plan, PlanError, Recipe, Target};
use trine_formats::gguf::ModelFile;
use trine_formats::types::TypeId;
use trine_formats::types::num::{bf16_to_f32, f16_to_f32};
use trine_formats::widely::{OutputForm, Profile, Rule, Scope, TieRule, quantize};
use trine_testkit::gguf;

use super::models::{SIZES, dense, parts, random, widely};

/// Rows of a projection to queries or keys in the order of a checkpoint, from those of a `llama` file.
fn in_checkpoint_order(weights: &[f32], columns: usize) -> Vec<f32> {
    let d = SIZES.head_dim as usize;
    let mut out = Vec::new();
    for head in weights.chunks(d * columns) {
        for half in 0..2 {
            for row in head.chunks(columns).skip(half).step_by(2) {
                out.extend_from_slice(row);
            }
        }
    }
    out
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    let all = bytes.as_chunks().0.iter();
    all.map(|&b| f32::from_le_bytes(b)).collect()
}

fn weights(model: &ModelFile, name: &str) -> (usize, usize, Vec<f32>) {
    let view = model.tensor(name).expect("it is there");
    let decode = view.info.ty.info().and_then(|t| t.decode).expect("a float type");
    let mut out = vec![0.0; view.info.elements() as usize];
    decode(&view.data, &mut out);
    (view.info.rows() as usize, view.info.columns() as usize, out)
}

#[test]
fn codes_and_scales_are_those_of_the_definition() {
    for (ty, scope, tie, profile) in [
        (TypeId::F32, Scope::Tensor, TieRule::Phase, Profile::F32),
        (TypeId::BF16, Scope::Tensor, TieRule::Phase, Profile::ScriptBf16),
        (TypeId::F16, Scope::Row, TieRule::Tile64, Profile::F32),
        (TypeId::F32, Scope::Tile64, TieRule::Tile64, Profile::F32),
    ] {
        let model = random("llama", ty);
        let options = Options { scope, tie, ..Options::default() };
        let out = parts(&gguf::model(widely(&model, &options)));
        let rule = Rule { stages: 2, scope, profile, tie };
        for name in ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_down"] {
            let name = format!("blk.1.{name}");
            let (rows, columns, mut all) = weights(&model, &format!("{name}.weight"));
            if name.ends_with("_q") || name.ends_with("_k") {
                all = in_checkpoint_order(&all, columns);
            }
            let (words, scales) = quantize::quantize(&rule, rows, columns, &all).expect("even sides");
            let words: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
            assert!(out[&format!("{name}.wl_codes")] == words, "{name} {scope:?}");
            assert_eq!(floats(&out[&format!("{name}.wl_scale")]), scales, "{name} {scope:?}");
            assert!(!out.contains_key(&format!("{name}.weight")));
        }
    }
}

#[test]
fn a_model_is_converted_to_the_same_bytes_again_and_its_size_is_two_bits_a_weight() {
    let model = random("qwen2", TypeId::BF16);
    let options = Options::default();
    let first = widely(&model, &options);
    assert!(first == widely(&model, &options));
    let plan = Plan::new(&model, &Recipe::new(Target::Widely)).expect("a plan");
    let (weights, bits) = plan.find::<Widely>().expect("the method").bits();
    let matrices = 14 + 1; // and the output
    assert!((bits - 2.0 - matrices as f64 * 256.0 / weights as f64).abs() < 1e-9, "{bits}");
    let file = gguf::model(first);
    let text = |key: &str| file.meta().get_str(key).expect("text").map(str::to_owned);
    assert_eq!(text("general.architecture").as_deref(), Some("fairy2i"));
    assert_eq!(text("fairy2i.base_arch").as_deref(), Some("qwen2"));
    assert_eq!(text("fairy2i.wl.numeric_profile").as_deref(), Some("script_bf16"));
    assert_eq!(text("fairy2i.wl.lm_head").as_deref(), Some("wl"));
    assert!(file.meta().iter().all(|(key, _)| !key.starts_with("qwen2.")));
}

#[test]
fn the_way_back_gives_the_matrices_of_the_stages_in_the_order_of_the_base_architecture() {
    let model = random("llama", TypeId::F32);
    let file = gguf::model(widely(&model, &Options::default()));
    let plain = gguf::model(dense(&file, TypeId::F32));
    let (before, after) = (parts(&model), parts(&plain));
    assert_eq!(before.len(), after.len());
    for (name, bytes) in &before {
        let is_matrix = name.contains(".weight") && !name.contains("norm") && !name.contains("embd");
        assert_eq!(*bytes != after[name], is_matrix, "{name}");
    }
    // the closer the more stages: the rows are in their places
    let error = |stages| {
        let options = Options { stages, ..Options::default() };
        let file = gguf::model(widely(&model, &options));
        let after = parts(&gguf::model(dense(&file, TypeId::F32)));
        ["blk.0.attn_q.weight", "blk.0.attn_v.weight"].map(|name| {
            let (a, b) = (floats(&before[name]), floats(&after[name]));
            let sum = |x: &mut dyn Iterator<Item = f32>| x.map(|x| f64::from(x) * f64::from(x)).sum::<f64>();
            sum(&mut a.iter().zip(&b).map(|(a, b)| a - b)) / sum(&mut a.iter().copied())
        })
    };
    for (one, four) in error(1).into_iter().zip(error(4)) {
        assert!(one < 0.5 && four < one / 5.0, "{one} {four}");
    }
    // smaller types are roundings of the same
    for (ty, wide) in [(TypeId::F16, f16_to_f32 as fn(u16) -> f32), (TypeId::BF16, bf16_to_f32)] {
        let rounded = parts(&gguf::model(dense(&file, ty)));
        let name = "blk.1.ffn_up.weight";
        let rounded = rounded[name].as_chunks().0.iter().map(|&b| wide(u16::from_le_bytes(b)));
        let near = |(r, exact): (f32, f32)| (r - exact).abs() <= exact.abs() / 128.0;
        assert!(rounded.zip(floats(&after[name])).all(near), "{ty}");
    }
}

#[test]
fn what_cannot_be_made_is_refused() {
    let (options, recipe) = (Options::default(), Recipe::new(Target::Widely));
    let why = |model: &ModelFile, recipe: &Recipe| match Plan::new(model, recipe) {
        Err(PlanError::Method(fault)) => fault.downcast::<WidelyQuantError>().ok().map(|e| *e),
        _ => None,
    };
    let file = gguf::model(widely(&random("llama", TypeId::F32), &options));
    assert!(matches!(why(&file, &recipe), Some(WidelyQuantError::Already)));
    let other = why(&random("olmo2", TypeId::F32), &recipe).expect("an error").to_string();
    assert!(other.contains("'olmo2' cannot be made widely linear"), "{other}");
    let error = why(&file, &Recipe::new(Target::Dense(TypeId::Q8_0)));
    assert!(matches!(error, Some(WidelyQuantError::DenseType(_))));
    let dense = Options { output: OutputForm::Dense, ..options };
    let names = parts(&gguf::model(widely(&random("llama", TypeId::F32), &dense)));
    assert!(names.contains_key("output.weight") && !names.contains_key("output.wl_codes"));
}
