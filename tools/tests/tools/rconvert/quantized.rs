//! Quantized checkpoints beside those of `recorded`: damaged ones, and forms that the reference does not read.

use serde_json::{Value, json};
use trine_formats::types::TypeId;

use super::checkpoint::{Checkpoint, EMBD, FF, KV_HEADS, VOCAB};
use super::{convert, read, recorded, refused};

/// A recorded checkpoint, changed.
fn changed(entry: &str, change: impl Fn(&mut Checkpoint)) -> String {
    let mut checkpoint = recorded::checkpoint(entry);
    change(&mut checkpoint);
    refused(&checkpoint, &["--pre", "gpt-2"])
}

const DOWN: &str = "model.layers.0.mlp.down_proj";

/// Every damage is told in one line that names the tensor, and what was expected.
#[test]
fn damaged_ones_are_refused_by_name() {
    let without = |end: &'static str| move |c: &mut Checkpoint| drop(c.tensors.remove(&format!("{DOWN}.{end}")));
    let config = |key: &'static str, value: Value| {
        move |c: &mut Checkpoint| c.config["quantization_config"][key] = value.clone()
    };
    let reshaped = |end: &'static str, shape: &'static [u64]| {
        move |c: &mut Checkpoint| c.tensors.get_mut(&format!("{DOWN}.{end}")).unwrap().1 = shape.to_vec()
    };
    for (error, parts) in [
        (
            changed("quantized-gptq-4", without("scales")),
            &["down_proj.qweight' is quantized", "no 'model.layers.0.mlp.down_proj.scales'"][..],
        ),
        (changed("quantized-gptq-4", without("qzeros")), &["there is no", "down_proj.qzeros'"]),
        (changed("quantized-gptq-4", config("group_size", json!(48))), &["in groups of 48 make it [2, "]),
        (changed("quantized-gptq-4", config("bits", json!(3))), &["'bits' is 3; gptq is read with 2, 4, 8"]),
        (
            changed("quantized-gptq-4", config("checkpoint_format", json!("marlin"))),
            &["'checkpoint_format' is 'marlin'"],
        ),
        (
            changed("quantized-gptq-4", reshaped("scales", &[1, 192])),
            &["down_proj.scales' has shape [1, 192]", "[3, 64]"],
        ),
        (
            changed("quantized-gptq-4", |c| c.tensors.get_mut(&format!("{DOWN}.g_idx")).unwrap().2[0] = 7),
            &["down_proj.g_idx' names group 7, and there are 3"],
        ),
        (changed("quantized-awq", config("version", json!("gemv"))), &["'version' is 'gemv'"]),
        (changed("quantized-awq", without("qzeros")), &["there is no", "down_proj.qzeros'"]),
        (
            changed("quantized-fp8-blocks", without("weight_scale_inv")),
            &["down_proj.weight' is quantized", "weight_scale_inv'"],
        ),
        (
            changed("quantized-fp8-blocks", config("weight_block_size", json!([16, 16]))),
            &["has scales of shape [2, 3]", "not those of blocks of 16 by 16"],
        ),
        (changed("quantized-packed-4", without("weight_scale")), &["there is no", "down_proj.weight_scale'"]),
        (
            changed("quantized-packed-4", config("format", json!("marlin-24"))),
            &["'format' is 'marlin-24'", "pack-quantized"],
        ),
        (
            changed("quantized-packed-4", |c| {
                c.config["quantization_config"]["config_groups"]["group_0"]["weights"]["group_size"] = json!(48);
            }),
            &["words of 8 codes a row", "groups of 48"],
        ),
        (changed("quantized-nvfp4", without("weight_scale_2")), &["there is no", "down_proj.weight_scale_2'"]),
        (
            changed("quantized-nvfp4", reshaped("weight_scale", &[32, 12])),
            &["down_proj.weight_scale' has shape [32, 12]", "groups of 16"],
        ),
        (
            changed("quantized-fp8-static", |c| {
                let scale = c.tensors.get_mut(&format!("{DOWN}.weight_scale_inv")).unwrap();
                scale.2 = vec![0xC0, 0x7F];
            }),
            &["down_proj.weight' holds NaN"],
        ),
        (
            changed("maple", |c| c.config["quantization_config"] = json!({"quant_method": "gptq", "bits": 4})),
            &["quantized by 'gptq', and there are none"],
        ),
        (changed("paretoq-0", |c| c.config["w_bits"] = json!(5)), &["'w_bits' is 5"]),
        (changed("paretoq-0", reshaped("weight_clip_val", &[1, 64])), &["weight_clip_val' has shape [1, 64]"]),
    ] {
        parts.iter().for_each(|part| assert!(error.contains(part), "no '{part}' in: {error}"));
    }
}

/// MLX has words along the inputs, the first code in the lowest bits, and a scale and a bias for a group.
#[test]
fn mlx_matrices_are_codes_times_scales_plus_biases() {
    let mut c = Checkpoint::llama(json!({"quantization": {"group_size": 32, "bits": 2}}));
    let name = "model.layers.1.mlp.up_proj";
    c.tensors.remove(&format!("{name}.weight"));
    c = c.list("", &format!("{name}.weight U32 {FF} 4; {name}.scales {FF} 2; {name}.biases {FF} 2"));
    let (_, out) = read(&convert(&c, "m", &["--pre", "gpt-2", "--outtype", "f32"]), "blk.1.ffn_up.weight");
    let words = &c.tensor(&format!("{name}.weight")).2;
    let [scales, biases] = ["scales", "biases"].map(|part| super::floats(c.tensor(&format!("{name}.{part}"))));
    for (n, value) in out.into_iter().enumerate() {
        let code = words[n / 4] >> (2 * (n % 4)) & 3;
        assert_eq!(value, f32::from(code) * scales[n / 32] + biases[n / 32], "{n}");
    }
}

/// BitNet packs four rows in one; where four do not divide them, the last ones are not there.
#[test]
fn packed_rows_need_not_be_a_multiple_of_four() {
    let (rows, quarter) = (98u64, 25usize);
    let mut c =
        Checkpoint::llama(json!({"intermediate_size": rows, "quantization_config": {"quant_method": "bitnet"}}));
    for n in 0..2 {
        c.add(&format!("model.layers.{n}.mlp.down_proj.weight"), "BF16", &[EMBD, rows]);
        for part in ["gate_proj", "up_proj"] {
            c.add(&format!("model.layers.{n}.mlp.{part}.weight"), "BF16", &[rows, EMBD]);
        }
    }
    let name = "model.layers.0.mlp.gate_proj.weight";
    let digit = |r: usize, k: usize| ((r * 7 + k * 5) % 3) as u8;
    let mut bytes = vec![0u8; quarter * EMBD as usize];
    for r in 0..rows as usize {
        for k in 0..EMBD as usize {
            bytes[r % quarter * EMBD as usize + k] |= digit(r, k) << (2 * (r / quarter));
        }
    }
    c.tensors.insert(name.into(), ("U8", vec![quarter as u64, EMBD], bytes));
    c.put(&format!("{name}_scale"), "BF16", &[1], &[4.0]);
    let (_, out) = read(&convert(&c, "m", &["--pre", "gpt-2", "--outtype", "f32"]), "blk.0.ffn_gate.weight");
    assert_eq!(out.len(), (rows * EMBD) as usize);
    for (n, value) in out.into_iter().enumerate() {
        let (r, k) = (n / EMBD as usize, n % EMBD as usize);
        assert_eq!(value, (f32::from(digit(r, k)) - 1.0) / 4.0, "{r} {k}");
    }
}

/// Checkpoints with `use_rms_norm` have a norm of the input of every projection.
#[test]
fn norms_of_projections_inputs_are_kept() {
    let quantized = json!({"quant_method": "bitnet", "use_rms_norm": true, "rms_norm_eps": 1e-5});
    let mut c = Checkpoint::llama(json!({"quantization_config": quantized}));
    let parts = [
        ("self_attn.q_proj", "attn_q", EMBD),
        ("self_attn.k_proj", "attn_k", EMBD),
        ("self_attn.v_proj", "attn_v", EMBD),
        ("self_attn.o_proj", "attn_output", EMBD),
        ("mlp.gate_proj", "ffn_gate", EMBD),
        ("mlp.up_proj", "ffn_up", EMBD),
        ("mlp.down_proj", "ffn_down", FF),
    ];
    for (block, ending) in [(0, "rms_norm"), (1, "norm")] {
        for (part, _, width) in parts {
            c.add(&format!("model.layers.{block}.{part}.{ending}.weight"), "BF16", &[width]);
        }
    }
    let file = convert(&c, "m", &["--pre", "gpt-2"]);
    for (block, ending) in [(0, "rms_norm"), (1, "norm")] {
        for (part, gguf, _) in parts {
            let stored = super::floats(c.tensor(&format!("model.layers.{block}.{part}.{ending}.weight")));
            let (ty, gains) = read(&file, &format!("blk.{block}.{gguf}_norm_in.weight"));
            assert_eq!((ty, gains), (TypeId::F32, stored), "{block} {part}");
        }
    }
    recorded::runs("use_rms_norm", &file);
    c.config["quantization_config"]["rms_norm_eps"] = json!(1e-6);
    let error = refused(&c, &["--pre", "gpt-2"]);
    assert!(error.contains("'rms_norm_eps' of 'quantization_config' is 1e-6"), "{error}");
}

/// Weights that are code times scale already keep both, in the widest type whose groups they fit.
#[test]
fn ternary_weights_are_recognised_by_proof() {
    for (group, ty, file_type) in [(256, TypeId::TQ2_0, 37), (128, TypeId::PQ2_0, 141), (64, TypeId::Q2_0, 41)] {
        let width = 256u64;
        let config =
            json!({"hidden_size": width, "intermediate_size": 2 * width, "num_hidden_layers": 1, "head_dim": 64});
        let mut c = Checkpoint::new("LlamaForCausalLM", config);
        c.add("model.embed_tokens.weight", "BF16", &[VOCAB, width]);
        for name in ["model.norm", "model.layers.0.input_layernorm", "model.layers.0.post_attention_layernorm"] {
            c.add(&format!("{name}.weight"), "BF16", &[width]);
        }
        let kv = KV_HEADS * 64;
        let shapes = [("q_proj", width, width), ("k_proj", kv, width), ("v_proj", kv, width), ("o_proj", width, width)];
        let shapes = shapes.map(|(n, r, k)| (format!("self_attn.{n}"), r, k)).into_iter().chain(
            [("gate_proj", 2 * width, width), ("up_proj", 2 * width, width), ("down_proj", width, 2 * width)]
                .map(|(n, r, k)| (format!("mlp.{n}"), r, k)),
        );
        for (name, rows, columns) in shapes {
            // every group has a magnitude of its own, and every fifth weight is zero
            let value = |n: u64| match (n % 5, n.is_multiple_of(3)) {
                (0, _) => 0.0,
                (_, negative) => (1.0 + (n / group % 7) as f32 / 8.0) * if negative { -0.5 } else { 0.5 },
            };
            let values: Vec<f32> = (0..rows * columns).map(value).collect();
            c.put(&format!("model.layers.0.{name}.weight"), "BF16", &[rows, columns], &values);
        }
        let file = convert(&c, "m", &["--pre", "gpt-2", "--outtype", "ternary"]);
        let (found, values) = read(&file, "blk.0.ffn_down.weight");
        assert_eq!(found, ty, "{group}");
        assert_eq!(values, super::floats(c.tensor("model.layers.0.mlp.down_proj.weight")), "{group}");
        let gguf = trine_formats::gguf::Gguf::parse(&file, &trine_formats::gguf::Limits::default()).unwrap();
        let key = gguf.meta.get("general.file_type");
        assert_eq!(key, Some(&trine_formats::gguf::Value::U32(file_type)), "{group}");
    }
    let error = refused(&Checkpoint::llama(json!({})), &["--pre", "gpt-2", "--outtype", "ternary"]);
    assert!(error.contains("TERNARY cannot hold these matrices exactly"), "{error}");
}

/// Codes of four and eight bits around the middle become those of Q4_0 and Q8_0, with their scales.
#[test]
fn grids_that_a_type_has_are_kept() {
    let change = |entry: &str, scale: &str, zeros: Option<(&str, u8)>| {
        let mut c = recorded::checkpoint(entry);
        for (name, tensor) in &mut c.tensors {
            // scales that are f16, and zeros in the middle
            if name.ends_with(scale) {
                *tensor = ("F32", tensor.1.clone(), floats_of(tensor).iter().flat_map(|v| v.to_le_bytes()).collect());
            }
            if let Some((end, byte)) = zeros
                && name.ends_with(end)
            {
                tensor.2.fill(byte);
            }
            if name.ends_with("g_idx") {
                let groups = tensor.2.len() / 4;
                tensor.2 = (0..groups as u32).flat_map(|k| (k / 32).to_le_bytes()).collect();
            }
        }
        c
    };
    for (c, outtype, ty) in [
        (change("quantized-gptq-4", ".scales", Some((".qzeros", 0x77))), "q4_0", TypeId::Q4_0),
        (change("quantized-packed-4", ".weight_scale", None), "q4_0", TypeId::Q4_0),
        (change("quantized-int-channels", ".weight_scale", None), "q8_0", TypeId::Q8_0),
    ] {
        let args = |outtype| ["--pre", "gpt-2", "--outtype", outtype];
        let exact = read(&convert(&c, "m", &args(outtype)), "blk.1.ffn_down.weight");
        let floats = read(&convert(&c, "m", &args("f32")), "blk.1.ffn_down.weight");
        assert_eq!(exact.0, ty);
        assert_eq!(exact.1, floats.1, "{outtype}");
    }
    let error = refused(&recorded::checkpoint("quantized-gptq-4"), &["--pre", "gpt-2", "--outtype", "q4_0"]);
    assert!(error.contains("Q4_0 cannot hold these matrices without rounding"), "{error}");
}

/// Floats of any width, as far as f16 has them.
fn floats_of(tensor: &super::checkpoint::Tensor) -> Vec<f32> {
    let (ty, size) = match tensor.0 {
        "F16" => (TypeId::F16, 2),
        "BF16" => (TypeId::BF16, 2),
        _ => (TypeId::F32, 4),
    };
    let mut values = vec![0.0; tensor.2.len() / size];
    ty.info().unwrap().decode.unwrap()(&tensor.2, &mut values);
    // few enough bits for f16
    values.into_iter().map(|v| f32::from_bits(v.to_bits() & 0xFFFF_E000)).collect()
}

/// Older checkpoints of ModelOpt say in a file of its own what they are.
#[test]
fn what_modelopt_says_beside_the_configuration_counts() {
    let mut c = recorded::checkpoint("quantized-modelopt-fp8");
    let args = ["--pre", "gpt-2", "--outtype", "bf16"];
    let usual = convert(&c, "m", &args);
    let quantized = c.config.as_object_mut().unwrap().remove("quantization_config").unwrap();
    let beside = json!({"producer": {"name": "modelopt"}, "quantization": quantized});
    c.more.insert("hf_quant_config.json".into(), beside.to_string().into_bytes());
    assert!(convert(&c, "m", &args) == usual);
}

/// `autobitlinear` without packed weights is BitNet's rule at every pass, as latent weights are.
#[test]
fn online_weights_are_latent_ones() {
    let quantized = json!({"quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": "online"});
    let online = Checkpoint::llama(json!({"quantization_config": quantized}));
    let args = ["--pre", "gpt-2", "--outtype", "f32"];
    let (_, found) = read(&convert(&online, "m", &args), "blk.0.ffn_up.weight");
    let latent = convert(&Checkpoint::llama(json!({})), "m", &[&args[..], &["--ternary", "bitnet"]].concat());
    assert_eq!(found, read(&latent, "blk.0.ffn_up.weight").1);
    let magnitude = found.iter().fold(0.0f32, |a, v| a.max(v.abs()));
    assert!(found.iter().all(|v| *v == 0.0 || v.abs() == magnitude));
}
