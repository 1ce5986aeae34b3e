//! A checkpoint made from a bundled model becomes that model again: same tensors, same logits.

use std::fs;
use std::path::Path;

use crate::common::{Run, golden, hashes, model_file, trilm};
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use trine::convert::{Options, OutType, Ternary, plan, run};
use trine_formats::gguf::ModelFile;

const HEAD: usize = 64;

/// The name in a checkpoint.
fn hf_name(name: &str) -> String {
    match name {
        "token_embd.weight" => return "model.embed_tokens.weight".into(),
        "output_norm.weight" => return "model.norm.weight".into(),
        _ => {}
    }
    let rest = name.strip_prefix("blk.").expect("a block");
    let (n, what) = rest.split_once('.').expect("a number");
    let what = match what.strip_suffix(".weight").expect("a weight") {
        "attn_norm" => "input_layernorm",
        "ffn_norm" => "post_attention_layernorm",
        "attn_q" => "self_attn.q_proj",
        "attn_k" => "self_attn.k_proj",
        "attn_v" => "self_attn.v_proj",
        "attn_output" => "self_attn.o_proj",
        "ffn_gate" => "mlp.gate_proj",
        "ffn_up" => "mlp.up_proj",
        "ffn_down" => "mlp.down_proj",
        other => panic!("{other}"),
    };
    format!("model.layers.{n}.{what}.weight")
}

/// Neighbouring rows of a head back to its two halves.
fn halves(data: &[u8], row: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(data.len());
    for head in data.chunks(HEAD * row) {
        for half in 0..2 {
            let rows = head.chunks(row).skip(half).step_by(2);
            rows.for_each(|r| out.extend_from_slice(r));
        }
    }
    out
}

fn write_checkpoint(model: &ModelFile, dir: &Path) {
    let mut header = Map::new();
    let mut data: Vec<u8> = Vec::new();
    for info in model.tensors() {
        let view = model.tensor(&info.name).expect("listed");
        let start = data.len();
        let row = 2 * info.columns() as usize;
        if info.name.contains("attn_q.") || info.name.contains("attn_k.") {
            data.extend(halves(&view.data, row));
        } else {
            data.extend_from_slice(&view.data);
        }
        let mut shape = info.shape.clone();
        shape.reverse();
        let entry = json!({"dtype": info.ty.to_string().to_uppercase(), "shape": shape,
            "data_offsets": [start, data.len()]});
        header.insert(hf_name(&info.name), entry);
    }
    let header = Value::Object(header).to_string();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.extend(data);
    fs::write(dir.join("model.safetensors"), file).unwrap();
    let config = json!({
        "architectures": ["LlamaForCausalLM"], "vocab_size": 4096, "hidden_size": 256, "intermediate_size": 768,
        "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "max_position_embeddings": 512, "tie_word_embeddings": true,
        "bos_token_id": 0, "eos_token_id": 0,
    });
    fs::write(dir.join("config.json"), config.to_string()).unwrap();
    let strings = |key: &str| {
        let list = model.meta().get_strs(key).unwrap().expect("present");
        let text = |s: &[u8]| String::from_utf8(s.to_vec()).expect("UTF-8");
        list.iter().map(text).collect::<Vec<_>>()
    };
    let tokens = strings("tokenizer.ggml.tokens").into_iter().enumerate();
    let vocab: Map<String, Value> = tokens.map(|(i, t)| (t, json!(i))).collect();
    let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    let tokenizer = json!({
        "version": "1.0", "normalizer": null, "post_processor": null, "pre_tokenizer": bytes, "decoder": bytes,
        "added_tokens": [{"id": 0, "content": "<|endoftext|>", "special": true, "normalized": false,
            "single_word": false, "lstrip": false, "rstrip": false}],
        "model": {"type": "BPE", "vocab": vocab, "merges": strings("tokenizer.ggml.merges")},
    });
    fs::write(dir.join("tokenizer.json"), tokenizer.to_string()).unwrap();
}

#[test]
fn a_ternary_checkpoint_gives_the_bundled_model() {
    let model = trilm();
    let dir = TempDir::new().unwrap();
    write_checkpoint(&model, dir.path());
    let convert = |outtype: &str| {
        let options = Options { outtype: OutType::from_name(outtype), ternary: Ternary::None, ..Options::default() };
        let plan = plan(dir.path(), &options).unwrap();
        let out = dir.path().join("out.gguf");
        run(&plan, &out, &mut ()).unwrap();
        model_file(fs::read(out).unwrap())
    };
    let converted = convert("f16");
    assert_eq!(converted.n_tensors(), model.n_tensors());
    for info in model.tensors() {
        let (a, b) = (model.tensor(&info.name).unwrap(), converted.tensor(&info.name).expect("same names"));
        assert_eq!((a.info.ty, &a.info.shape), (b.info.ty, &b.info.shape));
        assert!(*a.data == *b.data, "{}", info.name);
    }
    for key in ["tokens", "token_type", "merges", "bos_token_id", "eos_token_id", "pre", "model"] {
        let key = format!("tokenizer.ggml.{key}");
        assert_eq!(converted.meta().get(&key), model.meta().get(&key), "{key}");
    }
    let golden = golden("trilm-F16");
    assert_eq!(hashes(&converted, &golden.tokens, Run::default()), golden.sha256);
    // every matrix is ternary with an f16 scale, and is written as such without being told
    let ternary = convert("tq2_0");
    let f16 = |m: &ModelFile, name: &str| {
        let t = m.tensor(name).unwrap();
        let mut values = vec![0.0; t.info.elements() as usize];
        t.info.ty.info().unwrap().decode.unwrap()(&t.data, &mut values);
        values
    };
    assert_eq!(f16(&ternary, "blk.3.ffn_down.weight"), f16(&model, "blk.3.ffn_down.weight"));
}
