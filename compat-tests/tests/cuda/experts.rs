//! Small random mixtures of experts on the emulated GPU: their logits are those of the CPU however tokens are batched
//! and layers are cut.

use trine_compat_tests::models;
use trine_compat_tests::ptx::{Emulated, Schedule};
use trine_testkit::is_long;

use super::archs::made_as;
use super::model::{hashes, on_gpu};

/// Tokens of a vocabulary of 128.
fn tokens(count: usize) -> Vec<u32> {
    (0..count as u32).map(|i| (i * 37 + 3) % 128).collect()
}

/// Checks a listing's model in a file type, with some layers on the GPU and some of `count` tokens at a time, as `cuts`
/// lists.
fn check(name: &str, ty: &str, count: usize, cuts: &[(usize, usize)]) {
    let (model, file) = made_as(&format!("{name}.txt"), ty).expect("a model");
    let tokens = tokens(count);
    let expected = models::logits_sha256(&model, &tokens).expect("logits");
    for (i, &(layers, n_ubatch)) in cuts.iter().enumerate() {
        let mut device = Emulated::new().expect("PTX");
        device.schedule = [Schedule::InTurn, Schedule::Random(5), Schedule::Last(0)][i % 3];
        let found = hashes(&on_gpu(&file, device, layers), &tokens, n_ubatch);
        assert_eq!(found, expected, "{name} as {ty}, {layers} layers on the GPU, {n_ubatch} tokens at a time");
    }
}

const ALL: usize = usize::MAX;

#[test]
fn mixtures_have_the_bits_of_the_cpu_in_any_batch_and_any_cut() {
    // Mixtral, Qwen 2 with a gated shared expert, Qwen 3 with equal scores, and OLMoE.
    check("llama-8x2", "Q8_0", 5, &[(ALL, 1), (ALL, 5), (2, 2)]);
    check("qwen2moe-moe", "Q4_0", 3, &[(ALL, 3), (2, 1)]);
    check("qwen3moe-ties", "Q8_0", 3, &[(ALL, 2), (2, 3)]);
    check("olmoe-moe", "F16", 2, &[(ALL, 2), (2, 1)]);
    if !is_long() {
        return;
    }
    for name in
        ["llama-8x2", "llama-moe", "qwen2moe-moe", "qwen3moe-30x4", "qwen3moe-ties", "qwen3moe-moe", "olmoe-moe"]
    {
        for ty in ["Q8_0", "Q4_0", "TQ2_0", "F16"] {
            check(name, ty, 5, &[(ALL, 1), (ALL, 5), (3, 2), (2, 5), (1, 5)]);
        }
    }
}

#[test]
fn matrices_of_heads_take_the_kernels_of_experts() {
    check("deepseek2-long", "Q8_0", 5, &[(ALL, 5), (2, 2)]);
    check("mistral4-moe", "Q4_0", 3, &[(ALL, 3)]);
}

#[test]
fn many_tokens_fill_the_tiles_of_experts() {
    check("qwen3moe-30x4", "Q8_0", 64, &[(2, 64)]);
}
