//! OPT, which llama.cpp does not have: its positions are counted from 2, and everything else stands in the file as it does
//! in the checkpoint.

use serde_json::{Value, json};
use trine_formats::gguf::{Gguf, Limits};

use super::checkpoint::Checkpoint;
use super::{convert, floats, read, recorded, refused};

/// A small checkpoint whose `config.json` has `more`, with `positions` rows of positions.
fn opt(more: Value, positions: u64) -> Checkpoint {
    let mut config = json!({
        "architectures": ["OPTForCausalLM"], "model_type": "opt", "hidden_size": 64, "word_embed_proj_dim": 64,
        "ffn_dim": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 12,
        "max_position_embeddings": 30, "activation_function": "relu", "do_layer_norm_before": true,
        "_remove_final_layer_norm": false, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 1,
    });
    for (key, value) in more.as_object().expect("an object") {
        config[key] = value.clone();
    }
    let ends = format!(
        "embed_tokens.weight 12 64; embed_positions.weight {positions} 64;
        final_layer_norm.weight 64; final_layer_norm.bias 64"
    );
    let mut c = Checkpoint::of(config).list("model.decoder.", &ends);
    for n in 0..2 {
        let block = "self_attn_layer_norm.weight 64; self_attn_layer_norm.bias 64;
            self_attn.q_proj.weight 64 64; self_attn.q_proj.bias 64; self_attn.k_proj.weight 64 64;
            self_attn.k_proj.bias 64; self_attn.v_proj.weight 64 64; self_attn.v_proj.bias 64;
            self_attn.out_proj.weight 64 64; self_attn.out_proj.bias 64; final_layer_norm.weight 64;
            final_layer_norm.bias 64; fc1.weight 96 64; fc1.bias 96; fc2.weight 64 96; fc2.bias 64";
        c = c.list(&format!("model.decoder.layers.{n}."), block);
    }
    c
}

#[test]
fn opt_is_converted_tensor_by_tensor() {
    let c = opt(json!({}), 32);
    let file = convert(&c, "opt", &["--outtype", "f32"]);
    let stored = |name: &str| floats(c.tensor(&format!("model.decoder.{name}")));
    assert_eq!(read(&file, "position_embd.weight").1, stored("embed_positions.weight")[2 * 64..]);
    for (made, source) in [
        ("token_embd.weight", "embed_tokens.weight"),
        ("output_norm.bias", "final_layer_norm.bias"),
        ("blk.1.attn_norm.weight", "layers.1.self_attn_layer_norm.weight"),
        ("blk.1.attn_k.weight", "layers.1.self_attn.k_proj.weight"),
        ("blk.1.attn_v.bias", "layers.1.self_attn.v_proj.bias"),
        ("blk.0.attn_output.weight", "layers.0.self_attn.out_proj.weight"),
        ("blk.0.ffn_norm.bias", "layers.0.final_layer_norm.bias"),
        ("blk.0.ffn_up.weight", "layers.0.fc1.weight"),
        ("blk.0.ffn_down.bias", "layers.0.fc2.bias"),
    ] {
        assert_eq!(read(&file, made).1, stored(source), "{made}");
    }
    let gguf = Gguf::parse(&file, &Limits::default()).unwrap();
    // two for each of the ends but the embeddings and the positions, sixteen for each block, and these
    assert_eq!(gguf.tensors.len(), 4 + 2 * 16);
    assert_eq!(gguf.meta.get_u32("opt.context_length").unwrap(), Some(30));
    assert_eq!(gguf.meta.get_bool("tokenizer.ggml.add_bos_token").unwrap(), Some(true));
    recorded::runs("opt", &file);
}

#[test]
fn other_forms_of_opt_are_refused_in_one_line() {
    let after = refused(&opt(json!({"do_layer_norm_before": false}), 32), &[]);
    assert!(after.contains("'do_layer_norm_before'"), "{after}");
    let galactica = refused(&opt(json!({"activation_function": "gelu"}), 32), &[]);
    assert!(galactica.contains("the activation is 'gelu'"), "{galactica}");
    let short = refused(&opt(json!({}), 30), &[]);
    assert!(short.contains("embed_positions.weight' has shape [30, 64], config.json makes it [32, 64]"), "{short}");
}
