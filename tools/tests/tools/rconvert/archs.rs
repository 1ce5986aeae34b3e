//! A small random checkpoint of every architecture, and the hash of the file that llama.cpp's converter writes for it.
//!
//! The hashes are of files of `convert_hf_to_gguf.py` (llama-cpp-python 0.3.36, transformers 4.57.6), whose table of
//! pre-tokenizers was told that the one of 12 tokens is gpt-2. `TRINE_CHECKPOINTS=FOLDER cargo test --release
//! --workspace --test tools rconvert::archs` writes the folders for it instead of comparing.

use std::path::Path;

use serde_json::{Value, json};
use trine_formats::types::TypeId;
use trine_testkit::sha256;

use super::checkpoint::Checkpoint;
use super::{convert, floats, read, recorded};

const NORMS: &str = "input_layernorm.weight 64; post_attention_layernorm.weight 64;";
const NORM_BIASES: &str = "input_layernorm.bias 64; post_attention_layernorm.bias 64;";
/// Four query heads of 16 elements, two of keys and values.
const ATTENTION: &str = "self_attn.q_proj.weight 64 64; self_attn.k_proj.weight 32 64; self_attn.v_proj.weight 32 64;
    self_attn.o_proj.weight 64 64;";
/// The same with heads of 32.
const WIDE_ATTENTION: &str = "self_attn.q_proj.weight 128 64; self_attn.k_proj.weight 64 64;
    self_attn.v_proj.weight 64 64; self_attn.o_proj.weight 64 128;";
const QKV_BIASES: &str = "self_attn.q_proj.bias 64; self_attn.k_proj.bias 32; self_attn.v_proj.bias 32;";
const GATED: &str = "mlp.gate_proj.weight 96 64; mlp.up_proj.weight 96 64; mlp.down_proj.weight 64 96;";
const EXPERTS: &str = "mlp.gate.weight 4 64; mlp.experts.0-3.gate_proj.weight 48 64;
    mlp.experts.0-3.up_proj.weight 48 64; mlp.experts.0-3.down_proj.weight 64 48;";
const ENDS: &str = "model.embed_tokens.weight 12 64; model.norm.weight 64;";
const HEAD: &str = "lm_head.weight 12 64;";

/// `config.json` of a class, whose model type is the class's own name for it.
fn config(class: &str, model_type: &str, more: Value) -> Value {
    let mut all = json!({
        "architectures": [class], "model_type": model_type, "hidden_size": 64, "intermediate_size": 96,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 12,
        "max_position_embeddings": 256, "bos_token_id": 1, "eos_token_id": 2,
    });
    merge(&mut all, more);
    all
}

fn merge(all: &mut Value, more: Value) {
    let Value::Object(more) = more else { return };
    for (key, value) in more {
        all[key] = value;
    }
}

/// Both blocks, and what stands outside of them.
fn model(config: Value, prefix: &str, block: &[&str], ends: &[&str]) -> Checkpoint {
    let mut c = Checkpoint::of(config);
    for n in 0..2 {
        for list in block {
            c = c.list(&format!("{prefix}{n}."), list);
        }
    }
    for list in ends {
        c = c.list("", list);
    }
    c
}

fn llama_like(config: Value, block: &[&str], ends: &[&str]) -> Checkpoint {
    model(config, "model.layers.", block, ends)
}

fn gemma(class: &str, model_type: &str, more: Value, norms: &str) -> Checkpoint {
    let mut all = json!({"head_dim": 32, "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh",
        "rms_norm_eps": 1e-6, "pad_token_id": 0});
    merge(&mut all, more);
    let config = config(class, model_type, all);
    llama_like(config, &[NORMS, norms, WIDE_ATTENTION, GATED], &[ENDS]).pieces()
}

pub fn gemma1() -> Checkpoint {
    gemma("GemmaForCausalLM", "gemma", json!({}), "")
}

fn gemma2() -> Checkpoint {
    let more = json!({"attn_logit_softcapping": 40.0, "final_logit_softcapping": 20.0, "sliding_window": 32,
        "query_pre_attn_scalar": 32});
    let norms = "pre_feedforward_layernorm.weight 64; post_feedforward_layernorm.weight 64";
    gemma("Gemma2ForCausalLM", "gemma2", more, norms)
}

const PHI3: &str = "self_attn.qkv_proj.weight 128 64; self_attn.o_proj.weight 64 64; mlp.gate_up_proj.weight 192 64;
    mlp.down_proj.weight 64 96;";

/// Phi 3 with a SentencePiece model and long contexts.
pub fn phi3() -> Checkpoint {
    let factors = |step: f64| (0..8).map(|i| 1.0 + step * f64::from(i)).collect::<Vec<f64>>();
    let more = json!({"rms_norm_eps": 1e-5, "original_max_position_embeddings": 64, "sliding_window": 32,
        "pad_token_id": 2, "rope_scaling": {"type": "longrope", "short_factor": factors(0.05),
            "long_factor": factors(0.75)}});
    let config = config("Phi3ForCausalLM", "phi3", more);
    let mut c = llama_like(config, &[NORMS, PHI3], &[ENDS, HEAD]).pieces();
    let tokenizer = json!({"version": "1.0", "added_tokens": [
        {"id": 9, "content": "<|user|>", "special": false}, {"id": 10, "content": "<|end|>", "special": true}]});
    c.files.insert("tokenizer.json", tokenizer.to_string().into_bytes());
    c
}

/// Phi 4: GPT-2's tokenizer, and RoPE on a part of the heads.
fn phi4() -> Checkpoint {
    let more = json!({"partial_rotary_factor": 0.75, "sliding_window": null, "pad_token_id": 2,
        "original_max_position_embeddings": 256, "rope_theta": 250000, "tie_word_embeddings": true});
    let config = config("Phi3ForCausalLM", "phi3", more);
    let mut c = llama_like(config, &[NORMS, PHI3], &[ENDS]);
    let tokenizer = json!({"bos_token": "<s>", "eos_token": "<s>", "unk_token": "<s>",
        "tokenizer_class": "GPT2Tokenizer"});
    c.files.insert("tokenizer_config.json", tokenizer.to_string().into_bytes());
    c
}

fn olmoe() -> Checkpoint {
    let more = json!({"num_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 48, "clip_qkv": null,
        "norm_topk_prob": false, "rms_norm_eps": 1e-5});
    let norms = "self_attn.q_norm.weight 64; self_attn.k_norm.weight 32";
    let config = config("OlmoeForCausalLM", "olmoe", more);
    llama_like(config, &[NORMS, norms, ATTENTION, EXPERTS], &[ENDS, HEAD])
}

fn moe(more: Value) -> Value {
    let mut all = json!({"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48,
        "decoder_sparse_step": 1, "mlp_only_layers": [], "rope_theta": 1e6});
    merge(&mut all, more);
    all
}

fn qwen2moe() -> Checkpoint {
    let more = moe(json!({"shared_expert_intermediate_size": 80, "norm_topk_prob": false}));
    let shared = "mlp.shared_expert.gate_proj.weight 80 64; mlp.shared_expert.up_proj.weight 80 64;
        mlp.shared_expert.down_proj.weight 64 80; mlp.shared_expert_gate.weight 1 64";
    let config = config("Qwen2MoeForCausalLM", "qwen2_moe", more);
    let block = [NORMS, ATTENTION, QKV_BIASES, EXPERTS, shared];
    let mut c = llama_like(config, &block, &[ENDS, HEAD]);
    // the experts of a block lie in several files
    c.shards = 3;
    c
}

fn qwen3moe() -> Checkpoint {
    let more = moe(json!({"head_dim": 32, "norm_topk_prob": true}));
    let norms = "self_attn.q_norm.weight 32; self_attn.k_norm.weight 32";
    let config = config("Qwen3MoeForCausalLM", "qwen3_moe", more);
    llama_like(config, &[NORMS, norms, WIDE_ATTENTION, EXPERTS], &[ENDS, HEAD])
}

/// All experts of a block in one tensor.
fn qwen3moe_stacked() -> Checkpoint {
    let more = moe(json!({"head_dim": 32, "norm_topk_prob": true}));
    let norms = "self_attn.q_norm.weight 32; self_attn.k_norm.weight 32";
    let config = config("Qwen3MoeForCausalLM", "qwen3_moe", more);
    let experts = "mlp.gate.weight 4 64; mlp.experts.gate_up_proj 4 96 64; mlp.experts.down_proj 4 64 48";
    llama_like(config, &[NORMS, norms, WIDE_ATTENTION, experts], &[ENDS, HEAD])
}

pub fn mixtral() -> Checkpoint {
    let more = json!({"num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 48, "rope_theta": 1e6,
        "rms_norm_eps": 1e-5, "sliding_window": null});
    let experts = "block_sparse_moe.gate.weight 4 64; block_sparse_moe.experts.0-3.w1.weight 48 64;
        block_sparse_moe.experts.0-3.w2.weight 64 48; block_sparse_moe.experts.0-3.w3.weight 48 64";
    let config = config("MixtralForCausalLM", "mixtral", more);
    llama_like(config, &[NORMS, ATTENTION, experts], &[ENDS, HEAD])
}

/// Mistral, which states no head size.
fn mistral() -> Checkpoint {
    let config = config("MistralForCausalLM", "mistral", json!({"sliding_window": null}));
    llama_like(config, &[NORMS, ATTENTION, GATED], &[ENDS, HEAD])
}

pub fn gpt2() -> Checkpoint {
    let config = json!({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_ctx": 32, "n_positions": 32,
        "n_embd": 64, "n_head": 4, "n_layer": 2, "vocab_size": 12, "layer_norm_epsilon": 1e-5,
        "activation_function": "gelu_new", "bos_token_id": 6, "eos_token_id": 6});
    let block = "ln_1.weight 64; ln_1.bias 64; attn.c_attn.weight 64 192; attn.c_attn.bias 192;
        attn.c_proj.weight 64 64; attn.c_proj.bias 64; ln_2.weight 64; ln_2.bias 64; mlp.c_fc.weight 64 256;
        mlp.c_fc.bias 256; mlp.c_proj.weight 256 64; mlp.c_proj.bias 64";
    let ends = "wte.weight 12 64; wpe.weight 32 64; ln_f.weight 64; ln_f.bias 64";
    model(config, "h.", &[block], &[ends])
}

fn starcoder() -> Checkpoint {
    let config = json!({"architectures": ["GPTBigCodeForCausalLM"], "model_type": "gpt_bigcode", "n_positions": 32,
        "n_embd": 64, "n_head": 4, "n_layer": 2, "vocab_size": 12, "layer_norm_epsilon": 1e-5, "multi_query": true,
        "activation_function": "gelu", "bos_token_id": 6, "eos_token_id": 6});
    let block = "ln_1.weight 64; ln_1.bias 64; attn.c_attn.weight 96 64; attn.c_attn.bias 96;
        attn.c_proj.weight 64 64; attn.c_proj.bias 64; ln_2.weight 64; ln_2.bias 64; mlp.c_fc.weight 256 64;
        mlp.c_fc.bias 256; mlp.c_proj.weight 64 256; mlp.c_proj.bias 64";
    let ends = "transformer.wte.weight 12 64; transformer.wpe.weight 32 64; transformer.ln_f.weight 64;
        transformer.ln_f.bias 64";
    model(config, "transformer.h.", &[block], &[ends])
}

pub fn gptneox() -> Checkpoint {
    let mut config = config(
        "GPTNeoXForCausalLM",
        "gpt_neox",
        json!({"hidden_act": "gelu", "rotary_pct": 0.25, "rotary_emb_base": 10000, "layer_norm_eps": 1e-5,
            "use_parallel_residual": true, "tie_word_embeddings": false}),
    );
    config.as_object_mut().map(|c| c.remove("num_key_value_heads"));
    let block = "attention.query_key_value.weight 192 64; attention.query_key_value.bias 192;
        attention.dense.weight 64 64; attention.dense.bias 64; mlp.dense_h_to_4h.weight 96 64;
        mlp.dense_h_to_4h.bias 96; mlp.dense_4h_to_h.weight 64 96; mlp.dense_4h_to_h.bias 64;
        attention.rotary_emb.inv_freq 2";
    let ends = "gpt_neox.embed_in.weight 12 64; gpt_neox.final_layer_norm.weight 64;
        gpt_neox.final_layer_norm.bias 64; embed_out.weight 12 64";
    model(config, "gpt_neox.layers.", &[NORMS, NORM_BIASES, block], &[ends])
}

fn smollm3() -> Checkpoint {
    let more = json!({"rope_theta": 5e6, "no_rope_layer_interval": 4, "pad_token_id": 2, "tie_word_embeddings": true});
    let config = config("SmolLM3ForCausalLM", "smollm3", more);
    llama_like(config, &[NORMS, ATTENTION, GATED], &[ENDS])
}

fn falcon(more: Value, heads: u64, norms: &str) -> Checkpoint {
    let mut all = json!({"architectures": ["FalconForCausalLM"], "model_type": "falcon", "hidden_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 12, "alibi": false, "bias": false,
        "parallel_attn": true, "multi_query": true, "bos_token_id": 6, "eos_token_id": 6});
    merge(&mut all, more);
    let block = format!(
        "self_attention.query_key_value.weight {} 64; self_attention.dense.weight 64 64;
        mlp.dense_h_to_4h.weight 256 64; mlp.dense_4h_to_h.weight 64 256",
        16 * heads
    );
    let ends = "transformer.word_embeddings.weight 12 64; transformer.ln_f.weight 64; transformer.ln_f.bias 64;
        lm_head.weight 12 64";
    model(all, "transformer.h.", &[norms, &block], &[ends])
}

pub fn falcon_7b() -> Checkpoint {
    let norms = "input_layernorm.weight 64; input_layernorm.bias 64";
    falcon(json!({"num_kv_heads": 1, "new_decoder_architecture": false}), 6, norms)
}

fn falcon_40b() -> Checkpoint {
    let norms = "ln_attn.weight 64; ln_attn.bias 64; ln_mlp.weight 64; ln_mlp.bias 64";
    falcon(json!({"num_kv_heads": 2, "new_decoder_architecture": true}), 8, norms)
}

const LAYER_NORM_END: &str = "model.norm.bias 64;";

fn stablelm() -> Checkpoint {
    let more = json!({"partial_rotary_factor": 0.25, "layer_norm_eps": 1e-5, "use_qkv_bias": true});
    let config = config("StableLmForCausalLM", "stablelm", more);
    let block = [NORMS, NORM_BIASES, ATTENTION, QKV_BIASES, GATED];
    llama_like(config, &block, &[ENDS, LAYER_NORM_END, HEAD])
}

/// StableLM 2 12B: one norm for both sublayers of a block, and one for every head.
fn stablelm_12b() -> Checkpoint {
    let more = json!({"partial_rotary_factor": 0.5, "use_parallel_residual": true, "qk_layernorm": true});
    let config = config("StableLmForCausalLM", "stablelm", more);
    let norms = "input_layernorm.weight 64; input_layernorm.bias 64; self_attn.q_layernorm.norms.0-3.weight 16;
        self_attn.k_layernorm.norms.0-1.weight 16";
    llama_like(config, &[norms, ATTENTION, GATED], &[ENDS, LAYER_NORM_END, HEAD])
}

fn starcoder2() -> Checkpoint {
    let more = json!({"hidden_act": "gelu_pytorch_tanh", "norm_epsilon": 1e-5, "rope_theta": 999999.4420358813,
        "sliding_window": 128, "use_bias": true});
    let config = config("Starcoder2ForCausalLM", "starcoder2", more);
    let mlp = "self_attn.o_proj.bias 64; mlp.c_fc.weight 96 64; mlp.c_fc.bias 96; mlp.c_proj.weight 64 96;
        mlp.c_proj.bias 64";
    let block = [NORMS, NORM_BIASES, ATTENTION, QKV_BIASES, mlp];
    llama_like(config, &block, &[ENDS, LAYER_NORM_END])
}

fn phi2() -> Checkpoint {
    let more = json!({"hidden_act": "gelu_new", "partial_rotary_factor": 0.5, "layer_norm_eps": 1e-5,
        "intermediate_size": 256, "num_key_value_heads": 4, "tie_word_embeddings": false});
    let config = config("PhiForCausalLM", "phi", more);
    let block = "input_layernorm.weight 64; input_layernorm.bias 64; self_attn.q_proj.weight 64 64;
        self_attn.k_proj.weight 64 64; self_attn.v_proj.weight 64 64; self_attn.q_proj.bias 64;
        self_attn.k_proj.bias 64; self_attn.v_proj.bias 64; self_attn.dense.weight 64 64; self_attn.dense.bias 64;
        mlp.fc1.weight 256 64; mlp.fc1.bias 256; mlp.fc2.weight 64 256; mlp.fc2.bias 64";
    let ends = "model.embed_tokens.weight 12 64; model.final_layernorm.weight 64; model.final_layernorm.bias 64;
        lm_head.weight 12 64; lm_head.bias 12";
    llama_like(config, &[block], &[ends])
}

fn command_r() -> Checkpoint {
    let more = json!({"logit_scale": 0.125, "layer_norm_eps": 1e-5, "model_max_length": 512, "use_qk_norm": true,
        "rope_theta": 8e6});
    let config = config("CohereForCausalLM", "cohere", more);
    let norms = "input_layernorm.weight 64; self_attn.q_norm.weight 4 16; self_attn.k_norm.weight 2 16";
    llama_like(config, &[norms, ATTENTION, GATED], &[ENDS])
}

fn cohere2() -> Checkpoint {
    let more = json!({"logit_scale": 0.25, "layer_norm_eps": 1e-5, "sliding_window": 32, "rotary_pct": 1.0,
        "head_dim": 16, "rope_theta": 50000});
    let config = config("Cohere2ForCausalLM", "cohere2", more);
    llama_like(config, &["input_layernorm.weight 64", ATTENTION, GATED], &[ENDS])
}

const GRANITE_EXPERTS: &str = "block_sparse_moe.router.layer.weight 4 64;
    block_sparse_moe.input_linear.weight 4 96 64; block_sparse_moe.output_linear.weight 4 64 48;";

fn granitemoe(class: &str, model_type: &str, more: Value, shared: &str) -> Checkpoint {
    let mut all = json!({"num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 48,
        "attention_multiplier": 0.25, "embedding_multiplier": 12.0, "residual_multiplier": 0.22,
        "logits_scaling": 6.0, "tie_word_embeddings": true});
    merge(&mut all, more);
    let config = config(class, model_type, all);
    llama_like(config, &[NORMS, ATTENTION, GRANITE_EXPERTS, shared], &[ENDS])
}

fn granite_moe() -> Checkpoint {
    granitemoe("GraniteMoeForCausalLM", "granitemoe", json!({}), "")
}

fn granite_moe_shared() -> Checkpoint {
    let shared = "shared_mlp.input_linear.weight 160 64; shared_mlp.output_linear.weight 64 80";
    let more = json!({"shared_intermediate_size": 80});
    granitemoe("GraniteMoeSharedForCausalLM", "granitemoeshared", more, shared)
}

fn olmo() -> Checkpoint {
    let config = config("OlmoForCausalLM", "olmo", json!({"clip_qkv": 8.0, "tie_word_embeddings": true}));
    llama_like(config, &[ATTENTION, GATED], &["model.embed_tokens.weight 12 64"])
}

fn olmo3() -> Checkpoint {
    let more = json!({"sliding_window": 32, "layer_types": ["sliding_attention", "full_attention"],
        "rms_norm_eps": 1e-6});
    let norms = "post_attention_layernorm.weight 64; post_feedforward_layernorm.weight 64;
        self_attn.q_norm.weight 64; self_attn.k_norm.weight 32";
    let config = config("Olmo3ForCausalLM", "olmo3", more);
    llama_like(config, &[norms, ATTENTION, GATED], &[ENDS, HEAD])
}

fn seed_oss() -> Checkpoint {
    let config = config("SeedOssForCausalLM", "seed_oss", json!({"head_dim": 32, "rope_theta": 1e7}));
    let biases = "self_attn.q_proj.bias 128; self_attn.k_proj.bias 64; self_attn.v_proj.bias 64";
    llama_like(config, &[NORMS, WIDE_ATTENTION, biases, GATED], &[ENDS, HEAD])
}

fn arcee() -> Checkpoint {
    let config = config("ArceeForCausalLM", "arcee", json!({"hidden_act": "relu2", "rms_norm_eps": 1e-5}));
    let mlp = "mlp.up_proj.weight 96 64; mlp.down_proj.weight 64 96";
    llama_like(config, &[NORMS, ATTENTION, mlp], &[ENDS, HEAD])
}

fn bloom() -> Checkpoint {
    let config = json!({"architectures": ["BloomForCausalLM"], "model_type": "bloom", "hidden_size": 64,
        "n_layer": 2, "n_head": 4, "vocab_size": 12, "layer_norm_epsilon": 1e-5, "bos_token_id": 6,
        "eos_token_id": 6, "apply_residual_connection_post_layernorm": false});
    let block = "self_attention.query_key_value.weight 192 64; self_attention.query_key_value.bias 192;
        self_attention.dense.weight 64 64; self_attention.dense.bias 64; mlp.dense_h_to_4h.weight 256 64;
        mlp.dense_h_to_4h.bias 256; mlp.dense_4h_to_h.weight 64 256; mlp.dense_4h_to_h.bias 64";
    let ends = "word_embeddings.weight 12 64; word_embeddings_layernorm.weight 64;
        word_embeddings_layernorm.bias 64; ln_f.weight 64; ln_f.bias 64";
    model(config, "h.", &[NORMS, NORM_BIASES, block], &[ends])
}

fn phimoe() -> Checkpoint {
    let more = json!({"num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 48,
        "rms_norm_eps": 1e-5, "attention_bias": true, "lm_head_bias": true, "sliding_window": 64,
        "rope_scaling": {"type": "longrope", "short_factor": vec![1.25; 8], "long_factor": vec![2.5; 8],
            "short_mscale": 1.25, "long_mscale": 1.25, "original_max_position_embeddings": 64}});
    let experts = "block_sparse_moe.gate.weight 4 64; block_sparse_moe.experts.0-3.w1.weight 48 64;
        block_sparse_moe.experts.0-3.w2.weight 64 48; block_sparse_moe.experts.0-3.w3.weight 48 64;
        self_attn.o_proj.bias 64";
    let config = config("PhiMoEForCausalLM", "phimoe", more);
    let block = [NORMS, NORM_BIASES, ATTENTION, QKV_BIASES, experts];
    let bias = "lm_head.bias 12";
    llama_like(config, &block, &[ENDS, LAYER_NORM_END, HEAD, bias]).pieces()
}

/// The checkpoint, the folder's name, the type, the hash of the reference's file.
type Recorded = (fn() -> Checkpoint, &'static str, &'static str, &'static str);

#[rustfmt::skip]
const RECORDED: &[Recorded] = &[
    (mistral, "Mistral-0.1B-v0.1", "auto", "c10d96f01fcbd0fe3ffe18ffa6e00ec3c53b0d939600dcb1f3c79629ddef4379"),
    (mixtral, "Mixtral-4x7B-v0.1", "auto", "7675d4247e4a45c9c8b2ef87467e48b433c3fc35babf48e00092fcca977adc2f"),
    (gemma1, "gemma-2b", "auto", "b158fdca0a8840b24c9eb03098455def9609e2e4dc688ffdc32a7fa5dea7f21b"),
    (gemma2, "gemma-2-2b-it", "f16", "09357e5da54cb50547fa2e67ee3fa13feecb7c02922a458ea19c5e8c1398d6a9"),
    (phi3, "Phi-3-mini-128k-instruct", "auto", "8d6a0734e4fd9bacb0d589b23df3d3e981fb92f1357a55253546ddf0179e9f3b"),
    (phi4, "phi-4", "f32", "f7d4ee74815ab5e05f5d874cb9a1f5e2614ef8da46e38b13a79b9254eb9fef37"),
    (olmoe, "OLMoE-1B-7B-0924", "auto", "d0739ae32b3dccc0fb194d5672141f2a0c701532eabd9b474f66f30b70f64276"),
    (qwen2moe, "Qwen1.5-MoE-A2.7B", "auto", "92a848ad6c6ea8adc9982b44a72087c4883b3513c30c12bf69fa751b177b64de"),
    (qwen3moe, "Qwen3-30B-A3B", "f16", "64021e49e8fcb04c0f5d335f2cba51fa6d4b31dbfbb362216dd7b3993dd14853"),
    (qwen3moe_stacked, "Qwen3-30B-A3B", "f16", "e2af2357d6cfe24bff6d49ced6b9acbd74727d9c218a3eaf1a0266785e413602"),
    (gpt2, "gpt2", "auto", "3739fcfaa7d5c54f6ebbf2f37ddbd806050234b0f8d268642079d1c1fb4c7965"),
    (gptneox, "pythia-70m", "f16", "b07c1adfa8b67e8905aca79aa1993b2b923c815d46ca8cb8a2a6d12243264426"),
    (smollm3, "SmolLM3-3B", "auto", "9c8725db6940f43d9763b48e217dd4b7894cac26316224754271e2de95f9a465"),
    (falcon_7b, "falcon-7b", "auto", "22360a1398c72a42c25464b38b8ab8306ac0a2fba8637ea1002ce34b730dc27d"),
    (falcon_40b, "falcon-40b", "f32", "9e16395e4a83f87a75ab5825573eeac1d548bc65758fe0a884ead5803f217978"),
    (stablelm, "stablelm-2-1_6b", "auto", "759f9a86281d69cdfe63a2f59148e31aac85b413b12a67173492d2b889c4b0b2"),
    (starcoder2, "starcoder2-3b", "auto", "2c7245bf5ea78e6691e97d99d26cc6f5abe202a1836852a22aef6475a7e1e449"),
    (phi2, "phi-2", "f16", "3390279138129d3bb4aa5a6bfa533a367b75842bc1ce66c429e7d3c27669c771"),
    (starcoder, "starcoder", "auto", "11ac06209051e753f9cbb8ec820ecbc5f63de055a5b212705588c80bc9f08cc5"),
    (command_r, "c4ai-command-r-v01", "auto", "a9dc552769294d1dfdf09b5959a7a2b7a7e5ebd9936496d37885afe8cde8f405"),
    (cohere2, "c4ai-command-r7b-12-2024", "auto", "9e22b13f29cef2ead256b645285ddb6e354cf21a42ec1b1e44be99f3c684f224"),
    (granite_moe, "granite-3.0-1b-a400m", "auto", "d8d65dd9eeedb55ea79b5389f6b8262e9cc53d8704a8c3dbc2791d0d739d96c3"),
    (granite_moe_shared, "granite-4.0-tiny-preview", "f16", "33764d2986a46349b11b5521c0c32e80c7082625e4da9748ec5cde54bf81824b"),
    (olmo, "OLMo-1.7-7B-hf", "auto", "80810a3c2294dffda52e8131b9cfb4afb25f7374050a002bd0bb9b56916669fe"),
    (olmo3, "Olmo-3-7B-Instruct", "auto", "b1d6df9e701e4521208731954ea372ae0455244428be6e36bdde1a0c4e9aebe6"),
    (seed_oss, "Seed-OSS-36B-Instruct", "f16", "a19ff555cf3f120257ae3af1554be089f4e479a2f768e2fd2913e4fc376d1999"),
    (arcee, "AFM-4.5B", "auto", "e0c57dcd2735f1a4e6b59029e763c84a7b0059070f004fea87cf9a93065d2f59"),
    (bloom, "bloom-560m", "auto", "c3bc1d2a8f139da296764686a4d688981d1443cae0b182a0a7109bd279c6e3b2"),
    (phimoe, "Phi-3.5-MoE-instruct", "auto", "82caf71f5f8e4b9d3141f8e424ad0631f758098fd42169c6315f01b2afd7411b"),
];

/// Masks that old checkpoints of GPT-2 store are passed over.
#[test]
fn masks_are_no_weights() {
    let mut c = gpt2();
    let plain = convert(&c, "m", &[]);
    c.add("h.0.attn.bias", "F32", &[1, 1, 4, 4]);
    c.add("h.1.attn.masked_bias", "F32", &[]);
    assert!(convert(&c, "m", &[]) == plain);
}

/// Every file runs: its tensors and keys are those that the architecture asks for.
#[test]
fn what_is_written_runs() {
    for (checkpoint, name, outtype, _) in RECORDED {
        recorded::runs(name, &convert(&checkpoint(), name, &["--outtype", outtype]));
    }
}

/// llama.cpp's converter stops at these norms, so that there is no file of it to compare with.
#[test]
fn norms_of_single_heads_are_stacked() {
    let c = stablelm_12b();
    let file = convert(&c, "m", &["--outtype", "f32"]);
    for (part, heads) in [("q", 4), ("k", 2)] {
        let (ty, gains) = read(&file, &format!("blk.1.attn_{part}_norm.weight"));
        let one = |n| format!("model.layers.1.self_attn.{part}_layernorm.norms.{n}.weight");
        let stored: Vec<f32> = (0..heads).flat_map(|n| floats(c.tensor(&one(n)))).collect();
        assert_eq!((ty, gains), (TypeId::F32, stored));
    }
}

#[test]
fn files_are_those_of_the_reference_converter() {
    let folders = std::env::var_os("TRINE_CHECKPOINTS");
    let mut wrong = Vec::new();
    for (i, (checkpoint, name, outtype, expected)) in RECORDED.iter().enumerate() {
        if let Some(folders) = &folders {
            let place = Path::new(folders).join(format!("{i:02}-{outtype}"));
            std::fs::create_dir_all(&place).unwrap();
            checkpoint().write(&place, name);
            continue;
        }
        let file = convert(&checkpoint(), name, &["--outtype", outtype]);
        if sha256(&file) != *expected {
            wrong.push(format!("{name} {outtype}: {}", sha256(&file)));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
