//! Files that lie about their experts, and sequences that are too long, are refused by the name of what is wrong.

use std::fs;

use trine::model::{LoadOptions, ModelError, Weights};
use trine::pool::Pool;
use trine::step::{EvalError, Session, SessionOptions, StepError};

use trine_testkit::archs::Listing;

/// The problems of the model of a listing whose lines were changed.
fn problems(name: &str, changed: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let path = trine_testkit::testdata(&format!("archs/{name}.txt"));
    let text = fs::read_to_string(path).expect("a listing");
    let lines: Vec<String> = text.lines().filter_map(changed).collect();
    assert_ne!(lines.join("\n"), text.trim_end(), "nothing was changed");
    let file = Listing::parse(&lines.join("\n")).file();
    match Weights::load(&trine_testkit::gguf::model(file), &LoadOptions::default()) {
        Err(ModelError::Invalid(problems)) => problems.iter().map(ToString::to_string).collect(),
        other => panic!("{:?}", other.err()),
    }
}

/// [`problems`] with `from` in every line replaced.
fn replaced(name: &str, from: &str, to: &str) -> Vec<String> {
    problems(name, |line| Some(line.replace(from, to)))
}

/// [`problems`] without the lines that contain `what`.
fn without(name: &str, what: &str) -> Vec<String> {
    problems(name, |line| (!line.contains(what)).then(|| line.to_owned()))
}

#[test]
fn missing_tensors_of_experts_are_named() {
    for tensor in [
        "ffn_gate_inp",
        "ffn_gate_exps",
        "ffn_up_exps",
        "ffn_down_exps",
        "ffn_gate_shexp",
        "ffn_up_shexp",
        "ffn_down_shexp",
        "ffn_gate_inp_shexp",
    ] {
        let missing = without("qwen2moe-moe", &format!("blk.1.{tensor}.weight"));
        let first = format!("tensor blk.1.{tensor}.weight is missing");
        assert!(missing.contains(&first), "{missing:?}");
    }
    // either fused or apart, but there
    let missing = without("cohere2moe-moe", "ffn_gate_up_exps");
    assert_eq!(missing, ["gate", "up"].map(|part| format!("tensor blk.1.ffn_{part}_exps.weight is missing")));
    let missing = without("glm4moe-moe", "exp_probs_b");
    assert_eq!(missing, ["tensor blk.1.exp_probs_b.bias is missing"]);
}

#[test]
fn wrong_counts_and_shapes_are_named() {
    let shapes = replaced("qwen2moe-moe", "expert_count u32 2", "expert_count u32 3");
    let router = "tensor blk.0.ffn_gate_inp.weight has shape [256, 2], expected [256, 3]";
    let experts = "tensor blk.1.ffn_down_exps.weight has shape [384, 256, 2], expected [384, 256, 3]";
    for line in [router, experts] {
        assert!(shapes.contains(&line.to_owned()), "{shapes:?}");
    }
    assert_eq!(
        replaced("qwen2moe-moe", "used_count u32 2", "used_count u32 3"),
        ["qwen2moe.expert_used_count is 3, more than the 2 experts"]
    );
    assert_eq!(
        replaced("qwen2moe-moe", "expert_count u32 2", "expert_count u32 0"),
        ["qwen2moe.expert_count is missing, and models of architecture qwen2moe have experts"]
    );
    let flat = replaced("qwen2moe-moe", "exps.weight 256 384 2", "exps.weight 256 768");
    let one = "tensor blk.0.ffn_up_exps.weight has shape [256, 768], expected [256, 384, 2]";
    assert!(flat.contains(&one.to_owned()), "{flat:?}");
    let widths = replaced("qwen2moe-moe", "shared_feed_forward_length u32 192", "shared_feed_forward_length u32 100");
    let one = "tensor blk.1.ffn_up_shexp.weight has shape [256, 192], expected [256, 100]";
    assert!(widths.contains(&one.to_owned()), "{widths:?}");
    assert_eq!(
        replaced("dots1-moe", "gating_func u32 2", "gating_func u32 7"),
        [
            "dots1.expert_gating_func is 7; trine has 1 (soft-max), 2 (sigmoid), 3 (soft-max of the chosen) and 4 (root of soft-plus)"
        ]
    );
    assert_eq!(
        replaced("dots1-moe", "group_count u32 0", "group_count u32 2"),
        ["dots1.expert_group_count is 2 and dots1.expert_group_used_count is 0: 2 experts cannot be grouped like that"]
    );
}

#[test]
fn what_decides_between_experts_has_to_be_numbers() {
    let text = |name: &str| {
        let path = trine_testkit::testdata(&format!("archs/{name}.txt"));
        fs::read_to_string(path).expect("a listing")
    };
    for (model, tensor) in [
        ("qwen2moe-moe", "blk.1.ffn_gate_inp.weight"),
        ("qwen2moe-moe", "blk.0.ffn_gate_inp_shexp.weight"),
        ("glm4moe-moe", "blk.1.exp_probs_b.bias"),
    ] {
        let file = Listing::parse(&text(model)).file_with(tensor, f32::NAN);
        match Weights::load(&trine_testkit::gguf::model(file), &LoadOptions::default()) {
            Err(ModelError::Invalid(problems)) => {
                let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
                assert_eq!(problems, [format!("tensor {tensor}: it holds NaN or infinity, the data is damaged")])
            }
            other => panic!("{:?}", other.err()),
        }
    }
}

#[test]
fn sequences_are_no_longer_than_the_table_of_positions() {
    let model = Weights::load(&trine_testkit::gguf::model(crate::made("gpt2-dense")), &LoadOptions::default());
    let model = model.expect("a model");
    assert_eq!(model.most_positions(), Some(256));
    let options = SessionOptions { n_ctx: 300, n_ubatch: 64 };
    let pool = Pool::new(1).expect("a thread");
    let mut session = Session::new(&model, &pool, options);
    let mut sink = |_: usize, _: &[f32]| {};
    session.eval(&[1; 250], 250, &mut sink).expect("room");
    let refused = session.eval(&[1; 7], 7, &mut sink);
    assert_eq!(refused, Err(EvalError::Step(StepError::TooLong(256))));
    assert_eq!(session.n_past(), 250);
    session.eval(&[1; 6], 6, &mut sink).expect("room");
}

/// [`problems`] of a model that makes vectors, with `from` in every line replaced.
fn of_vectors(name: &str, from: &str, to: &str) -> Vec<String> {
    let text = fs::read_to_string(trine_testkit::archs::of_vectors(name)).expect("a listing");
    let changed = text.replace(from, to);
    assert_ne!(changed, text, "nothing was changed");
    match Weights::load(&trine_testkit::gguf::model(Listing::parse(&changed).file()), &LoadOptions::default()) {
        Err(ModelError::Invalid(problems)) => problems.iter().map(ToString::to_string).collect(),
        other => panic!("{:?}", other.err()),
    }
}

#[test]
fn damaged_keys_of_models_that_make_vectors_are_named() {
    for (model, from, to, what) in [
        (
            "bert",
            "bert.pooling_type u32 2",
            "bert.pooling_type u32 9",
            "bert.pooling_type is 9; trine has 0 (none), 1 (mean), 2 (cls), 3 (last), 4 (rank)",
        ),
        (
            "bert",
            "bert.pooling_type u32 2",
            "bert.pooling_type str cls",
            "key 'bert.pooling_type': is of type str, expected u32",
        ),
        (
            "modern-bert-first",
            "classifier.pooling_type u32 2",
            "classifier.pooling_type u32 3",
            "modern-bert.classifier.pooling_type is 3; trine has 1 (mean), 2 (cls)",
        ),
        (
            "bert-rank",
            "output_labels [str] a b c",
            "output_labels [u32] 3",
            "key 'bert.classifier.output_labels': is of type array of u32, expected array of str",
        ),
        (
            "bert-rank",
            "output_labels [str] a b c",
            "output_labels [str] a b",
            "tensor cls.output.weight has shape [256, 3], expected [256, 2]",
        ),
        (
            "bert",
            "key tokenizer.ggml.token_type_count u32 2",
            "key tokenizer.ggml.token_type_count u32 0",
            "tokenizer.ggml.token_type_count is 0, it must be 1 to 65536",
        ),
        ("bert", "key tokenizer.ggml.token_type_count u32 2", "", "tokenizer.ggml.token_type_count is missing"),
        (
            "gemma-embedding-dense",
            "dense_3_feat_in u32 512",
            "dense_3_feat_in u32 500",
            "gemma-embedding.dense_3_feat_in is 500, and dense_2 has 512 outputs",
        ),
        (
            "gemma-embedding-dense",
            "dense_2_feat_in u32 256",
            "dense_2_feat_in u32 300",
            "gemma-embedding.dense_2_feat_in is 300, it must be 256, the width of the model",
        ),
        ("gemma-embedding-dense", "tensor dense_3.weight 512 256", "", "tensor dense_3.weight is missing"),
        (
            "modern-bert-rank",
            "hidden_activation str silu",
            "hidden_activation str sine",
            "modern-bert.hidden_activation is 'sine'; trine has gelu, silu and reglu",
        ),
        (
            "jina-bert-v2",
            "ffn_up.weight 256 512",
            "ffn_up.weight 256 1024",
            "tensor blk.0.ffn_up.weight: its rows hold a gate, and there is a gate beside it",
        ),
        (
            "bert",
            "tensor blk.{0..3}.attn_output_norm.weight 256",
            "tensor blk.{1..3}.attn_output_norm.weight 256",
            "tensor blk.0.attn_output_norm.weight is missing",
        ),
        (
            "nomic-bert-moe",
            "tensor blk.1.ffn_up_exps.weight 256 512 8",
            "",
            "tensor blk.1.ffn_up_exps.weight is missing",
        ),
    ] {
        let problems = of_vectors(model, from, to);
        assert_eq!(problems.first().map(String::as_str), Some(what), "{problems:?}");
        assert!(problems.iter().all(|line| !line.contains('\n')));
    }
}

#[test]
fn missing_parts_of_predicted_streams_are_named() {
    let ends =
        ["altup_proj", "altup_unembd_proj", "per_layer_token_embd", "per_layer_model_proj", "per_layer_proj_norm"];
    for tensor in ends {
        let missing = without("gemma3n-short", &format!("tensor {tensor}.weight"));
        assert!(missing.contains(&format!("tensor {tensor}.weight is missing")), "{missing:?}");
    }
    for tensor in ["altup_router", "altup_predict_coef", "altup_correct_scale", "laurel_l", "inp_gate", "post_norm"] {
        let missing = without("gemma3n-short", &format!(".{tensor}.weight"));
        assert!(missing.contains(&format!("tensor blk.0.{tensor}.weight is missing")), "{missing:?}");
    }
}

#[test]
fn layers_whose_keys_others_use_have_to_be_of_both_kinds() {
    let window = "key gemma3n.attention.sliding_window u32 64";
    let pattern = "\nkey gemma3n.attention.sliding_window_pattern u32 6";
    assert_eq!(
        replaced("gemma3n-long", window, &format!("{window}{pattern}")),
        [
            "gemma3n.attention.sliding_window_pattern has to give a window to the last but one of the first 20 layers and \
          none to the last: later layers attend to their keys"
        ]
    );
}

#[test]
fn heads_of_layers_are_checked_against_one_another() {
    let of_long = [
        ("] 4 4 2 4 4 2", "] 4 4 2 4 4", "gemma4.attention.head_count_kv has 5 entries for 6 layers"),
        ("] 4 4 2 4 4 2", "] 4 4 3 4 4 2", "8 query heads cannot share 3 key-value heads evenly, in layer 2"),
        (
            "] 4 4 2 4 4 2",
            "] 4 4 0 4 4 2",
            "gemma4.attention.head_count_kv says 0 for a layer, it must be 1 to 1048576",
        ),
        (
            "value_length_swa u32 32",
            "value_length_swa u32 64",
            "heads of 32 key and 64 value elements are not supported",
        ),
        (
            "key_length_swa u32 32",
            "key_length_swa u32 0",
            "gemma4.attention.key_length_swa is 0, it must be 1 to 1048576",
        ),
        (
            "sliding_window u32 64",
            "sliding_window u32 0",
            "gemma4.attention.sliding_window is 0, it must be 1 to 4294967295",
        ),
        (
            "count_swa u32 16",
            "count_swa u32 34",
            "gemma4.rope.dimension_count_swa is 34, it must be even and at most 32",
        ),
        (
            "count_swa u32 16",
            "count_sw u32 16",
            "gemma4.rope.dimension_count_swa is 64, it must be even and at most 32",
        ),
        ("weight 256 128", "weight 256 64", "tensor blk.0.attn_k.weight has shape [256, 64], expected [256, 128]"),
    ];
    for (from, to, problem) in of_long {
        let found = replaced("gemma4-long", from, to);
        assert!(found.iter().any(|found| found == problem), "{found:?}");
    }
    for key in ["attention.key_length_swa", "attention.sliding_window_pattern", "embedding_length_per_layer_input"] {
        assert_eq!(without("gemma4-long", &format!("gemma4.{key}")), [format!("gemma4.{key} is missing")]);
    }
    assert_eq!(without("gemma4-long", "rope_freqs"), ["tensor rope_freqs.weight is missing"]);
    assert_eq!(without("gemma4-long", "blk.2.attn_k.weight"), ["tensor blk.2.attn_k.weight is missing"]);
    assert_eq!(
        replaced("gemma4-small", "head_count_kv u32 2", "head_count_kv [u32] 2*7 1"),
        ["gemma4.attention.head_count_kv says 1 for layer 7, whose keys are the 2 of layer 4"]
    );
    assert_eq!(
        replaced("gemma4-small", "shared_kv_layers u32 3", "shared_kv_layers u32 4"),
        [
            "gemma4.attention.sliding_window_pattern has to give a window to the last but one of the first 4 layers and none \
             to the last: later layers attend to their keys"
        ]
    );
    for tensor in ["blk.1.inp_gate.weight", "blk.1.post_norm.weight", "per_layer_proj_norm.weight"] {
        assert_eq!(without("gemma4-small", tensor), [format!("tensor {tensor} is missing")]);
    }
    for tensor in ["post_ffw_norm_1.weight", "pre_ffw_norm_2.weight", "ffn_gate_inp.scale"] {
        assert_eq!(without("gemma4-moe", &format!("blk.0.{tensor}")), [format!("tensor blk.0.{tensor} is missing")]);
    }
    assert_eq!(
        replaced("step35-long", "dimension_count u32 32", "dimension_count u32 30")[..1],
        ["step35.rope.dimension_count is 30, and half of it must be even"]
    );
    let other = "value_length u32 32\nkey step35.attention.key_length_swa u32 64";
    assert_eq!(
        replaced("step35-long", "value_length u32 32", other),
        ["step35.attention.key_length_swa is 64; trine can run models with 32, as step35.attention.key_length says"]
    );
}

#[test]
fn biases_by_distance_are_those_of_a_multiple_of_four_buckets() {
    assert_eq!(
        replaced("embed/t5encoder", "buckets_count u32 32", "buckets_count u32 6"),
        ["t5encoder.attention.relative_buckets_count is 6, it must be a multiple of 4"]
    );
    let missing = without("embed/t5encoder", "attn_rel_b");
    assert!(missing.contains(&"tensor enc.blk.0.attn_rel_b.weight is missing".to_owned()), "{missing:?}");
}

#[test]
fn vocabularies_without_the_tokens_of_images_are_refused() {
    assert_eq!(
        replaced("chameleon-long", "8200", "160"),
        ["tensor token_embd.weight: it has 160 rows, and tokens 4 to 8196 are those of images"]
    );
}

#[test]
fn keys_as_wide_as_those_of_the_indexer_are_refused() {
    for (name, from, to) in [
        ("deepseek32-moe", "indexer.key_length u32 128", "indexer.key_length u32 576"),
        ("deepseek4-long", "indexer.key_length u32 128", "indexer.key_length u32 48"),
    ] {
        let refused = replaced(name, from, to);
        assert_eq!(refused.len(), 1, "{refused:?}");
        assert!(refused[0].contains("llama.cpp rotates the cached keys"), "{refused:?}");
    }
}
