//! Checkpoints of drafters without their models, and of models without a part of what becomes one tensor: one line each.

use super::checkpoint::{Checkpoint, llama3};
use super::recorded::{checkpoint, target};
use super::refused;

/// Refused with the folder of the model that a drafter drafts for.
fn refused_beside(drafter: &Checkpoint, of: &str) -> String {
    let dir = trine_testkit::folder();
    let target = target(of).write(dir.path(), "target");
    refused(drafter, &["--target-model-dir", target.to_str().expect("a path")])
}

#[test]
fn drafters_are_converted_beside_their_models() {
    for (name, of) in [("eagle3", "eagle3"), ("dflash", "dflash")] {
        let line = refused(&checkpoint(name), &[]);
        assert!(line.contains(of) && line.contains("--target-model-dir"), "{line}");
    }
    let line = refused_beside(&llama3(), "eagle3");
    assert!(line.contains("--target-model-dir is for drafters"), "{line}");
}

#[test]
fn a_vector_in_a_file_of_pytorch_is_not_passed_over() {
    let mut drafter = checkpoint("dflash");
    drafter.more.insert("mask_embedding.pt".into(), vec![0; 8]);
    let line = refused_beside(&drafter, "dflash");
    assert!(line.contains("mask_embedding.pt"), "{line}");
}

#[test]
fn tokens_of_a_drafter_are_some_of_the_models() {
    for (offsets, why) in [
        ("0,0,0,0,8", "makes token 4 the token 12 of 12"),
        ("-1,0,0,0,0", "makes token 0 the token -1 of 12"),
        ("0,0,0,-1,0", "makes two tokens the same one"),
    ] {
        let mut drafter = checkpoint("eagle3");
        drafter.tensors.remove("d2t");
        let line = refused_beside(&drafter.list("", &format!("d2t I64={offsets} 5")), "eagle3");
        assert!(line.contains(why), "{line}");
    }
}

#[test]
fn parts_of_a_tensor_that_are_missing_are_named() {
    let k3 = "language_model.model.layers.1.";
    let qwen = "model.language_model.layers.0.ple.ple_embedding.";
    for (name, part, why) in [
        ("kimi-k3", format!("{k3}mlp_res_proj.weight"), "is one of two factors, and the other is missing"),
        (
            "kimi-k3-mxfp4",
            format!("{k3}block_sparse_moe.experts.2.w1.weight_scale"),
            "experts.2.w1.weight_scale' is missing",
        ),
        (
            "kimi-k3-mxfp4",
            format!("{k3}block_sparse_moe.experts.3.w2.weight_packed"),
            "experts.3.w2.weight_packed' is missing",
        ),
        ("deepseek4", "layers.1.ffn.experts.2.w1.scale".into(), "layers.1.ffn.experts.2.w1.scale' is missing"),
        ("deepseek4", "layers.1.attn.wo_b.scale".into(), "'layers.1.attn.wo_b.weight' is quantized"),
        ("deepseek4", "layers.0.ffn.gate.tid2eid".into(), "'layers.0.ffn.gate.tid2eid' is missing"),
        ("deepseek4", "layers.0.attn.wo_a.weight".into(), "'layers.0.attn.wo_a.weight' is missing"),
        ("qwen4exp", format!("{qwen}ngram_heads_offsets"), "there is no tensor '…ple_embedding.ngram_heads_offsets'"),
    ] {
        let mut damaged = checkpoint(name);
        assert!(damaged.tensors.remove(&part).is_some(), "{part}");
        let line = refused(&damaged, &[]);
        assert!(line.contains(why), "{line}");
    }
    // the last piece of a table, without which its rows are too few
    let mut damaged = checkpoint("qwen4exp");
    damaged.tensors.remove(&format!("{qwen}ngram_embedding.shard_2.weight")).expect("a piece");
    let line = refused(&damaged, &[]);
    assert!(line.contains("per_layer_token_embd.weight has 40"), "{line}");
}

#[test]
fn tables_of_the_experts_of_tokens_name_experts() {
    let table = "layers.0.ffn.gate.tid2eid";
    for (line, why) in [
        ("I64=0,1,2,3,4,0 3 2", "has shape [3, 2] and type I64, expected whole numbers [2, 12]"),
        ("F32 12 2", "has shape [12, 2] and type F32, expected whole numbers [2, 12]"),
        ("I64=0,1,2,3,4,0,0,1,2,3,0,1,0,1,2,3,0,1,0,1,2,3,0,1 12 2", "names expert 4 of 4"),
        ("I64=0,1,2,3,-1,0,0,1,2,3,0,1,0,1,2,3,0,1,0,1,2,3,0,1 12 2", "names expert -1 of 4"),
    ] {
        let mut damaged = checkpoint("deepseek4");
        damaged.tensors.remove(table).expect("a table");
        let said = refused(&damaged.list("", &format!("{table} {line}")), &[]);
        assert!(said.contains(why), "{said}");
    }
}
