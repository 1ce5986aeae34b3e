//! Which role a tensor plays, judged by its name, and which tensors are never quantized.
//!
//! The names are llama.cpp's (`src/llama-quant.cpp`); the tests that matter compare whole plans.

/// The roles the mixtures tell apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Category {
    /// `output.weight`.
    Output,
    /// `token_embd.weight` and `per_layer_token_embd.weight`.
    TokenEmbd,
    /// `attn_v`, a fused `attn_qkv`, or `attn_kv_b`: what values are computed with.
    AttnV,
    /// `attn_k`.
    AttnK,
    /// `attn_q`.
    AttnQ,
    /// `attn_output`.
    AttnOutput,
    /// Anything named `ffn_up…`.
    FfnUp,
    /// Anything named `ffn_gate…`.
    FfnGate,
    /// Anything named `ffn_down…`.
    FfnDown,
    /// The rest.
    Other,
}

/// Substring to role; the first that occurs decides.
const BY_SUBSTRING: &[(&str, Category)] = &[
    ("attn_qkv.weight", Category::AttnV),
    ("attn_kv_b.weight", Category::AttnV),
    ("attn_v.weight", Category::AttnV),
    ("attn_k.weight", Category::AttnK),
    ("attn_q.weight", Category::AttnQ),
    ("attn_output.weight", Category::AttnOutput),
    ("ffn_up", Category::FfnUp),
    ("ffn_gate", Category::FfnGate),
    ("ffn_down", Category::FfnDown),
];

impl Category {
    /// The role for people: the name of its tensors.
    pub fn name(self) -> &'static str {
        match self {
            Category::Output => "output",
            Category::TokenEmbd => "token_embd",
            Category::AttnV => "attn_v",
            Category::AttnK => "attn_k",
            Category::AttnQ => "attn_q",
            Category::AttnOutput => "attn_output",
            Category::FfnUp => "ffn_up",
            Category::FfnGate => "ffn_gate",
            Category::FfnDown => "ffn_down",
            Category::Other => "others",
        }
    }

    /// The role of the tensor called `name`.
    pub fn of(name: &str) -> Category {
        match name {
            "output.weight" => Category::Output,
            "token_embd.weight" | "per_layer_token_embd.weight" => Category::TokenEmbd,
            _ => BY_SUBSTRING
                .iter()
                .find(|(part, _)| name.contains(part))
                .map_or(Category::Other, |&(_, category)| category),
        }
    }
}

/// Parts of names of tensors that stay as they are: small, sensitive, or read by index.
const NEVER: &[&str] = &[
    "_norm.weight",
    // expert routing
    "ffn_gate_inp.weight",
    "ffn_gate_tid2eid.weight",
    // Gemma 3n
    "altup",
    "laurel",
    "per_layer_model_proj",
    // convolutions of state-space models
    "ssm_conv1d",
    "shortconv.conv.weight",
    // MiniMax's indexer
    "indexer.k_proj.weight",
    "indexer.q_proj.weight",
    // RWKV
    "time_mix_first.weight",
    "time_mix_w0.weight",
    "time_mix_w1.weight",
    "time_mix_w2.weight",
    "time_mix_v0.weight",
    "time_mix_v1.weight",
    "time_mix_v2.weight",
    "time_mix_a0.weight",
    "time_mix_a1.weight",
    "time_mix_a2.weight",
    "time_mix_g1.weight",
    "time_mix_g2.weight",
    "time_mix_decay_w1.weight",
    "time_mix_decay_w2.weight",
    "time_mix_lerp_fused.weight",
    // T5's relative positions
    "attn_rel_b.weight",
    // vision and audio towers
    ".position_embd",
    "sam.pos_embd",
    "sam.neck.",
    "sam.net_",
    ".rel_pos",
    ".patch_embd",
    ".patch_merger",
    "a.rvq.codebook",
    "mm.a.code_embd",
];

/// More of them, for the architecture `glm5-next` only.
const NEVER_GLM5_NEXT: &[&str] = &[
    "hc_",
    "indexer.attn_q_b",
    "indexer.attn_k",
    "indexer.proj",
    "indexer_compressor_gate",
    "indexer_compressor_ape",
    "ssm_f_a.weight",
    "ssm_f_b.weight",
    "ssm_g_a.weight",
    "ssm_g_b.weight",
    "ssm_beta.weight",
    "attn_kv_a_mqa.weight",
    "attn_k_b.weight",
    "attn_v_b.weight",
];

/// Whole names: positions and token types (BERT).
const NEVER_WHOLE: &[&str] = &["position_embd.weight", "token_types.weight"];

/// Why a tensor stays as it is, or `None` when it may be quantized. `dims` counts extents without
/// trailing ones.
pub fn kept_because(name: &str, dims: usize, arch: &str) -> Option<&'static str> {
    if dims < 2 {
        return Some("fewer than 2 dimensions");
    }
    // llama.cpp compares the place of the last "weight" with length - 6 in unsigned arithmetic, so
    // that a name of five bytes passes too.
    if !name.ends_with("weight") && name.len() != 5 {
        return Some("not a weight");
    }
    let part_of = |parts: &[&str]| parts.iter().any(|p| name.contains(p));
    let kept = NEVER_WHOLE.contains(&name) || part_of(NEVER) || (arch == "glm5-next" && part_of(NEVER_GLM5_NEXT));
    kept.then_some("never quantized")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles() {
        for (name, role) in [
            ("output.weight", Category::Output),
            ("token_embd.weight", Category::TokenEmbd),
            ("blk.3.attn_qkv.weight", Category::AttnV),
            ("blk.3.attn_kv_b.weight", Category::AttnV),
            ("blk.3.attn_v_b.weight", Category::Other),
            ("blk.3.attn_output.weight", Category::AttnOutput),
            ("blk.3.ffn_down_exps.weight", Category::FfnDown),
            ("blk.3.ffn_gate_up_exps.weight", Category::FfnGate),
            ("blk.3.ssm_in.weight", Category::Other),
            ("v.output.weight", Category::Other),
        ] {
            assert_eq!(Category::of(name), role, "{name}");
        }
    }

    #[test]
    fn kept() {
        let kept = |name, dims| kept_because(name, dims, "llama").is_some();
        assert!(kept("blk.0.attn_norm.weight", 2));
        assert!(kept("blk.0.attn_q.bias", 2));
        assert!(kept("blk.0.attn_q.weight", 1));
        assert!(kept("token_types.weight", 2));
        assert!(!kept("blk.0.attn_q.weight", 2));
        assert!(!kept("blk.0.ffn_gate_exps.weight", 3));
        assert!(!kept("abcde", 2) && kept("abcdef", 2) && kept("abcd", 2));
        assert!(!kept("blk.0.hc_attn.weight", 2));
        assert!(kept_because("blk.0.hc_attn.weight", 2, "glm5-next").is_some());
    }
}
