//! Per-tensor factors of projections: which of them the reference loads, and which its graphs apply.
//!
//! A quantized matrix may have two factors beside it: `NAME.scale` for its output and `NAME.input_scale` for its input.
//! llama.cpp loads both wherever a file has them and the matrix. Its graphs multiply by the first where they name it,
//! and nowhere by the second.

use super::joined::joined;
use super::tensor::Extent;

/// How many factors belong to the projection `name` of a block, such as `attn_q`: one, or one for each expert; `None`
/// where the reference looks for none.
pub(crate) fn count(name: &str) -> Option<Extent> {
    const MORE: [&str; 3] = ["attn_gate", "ssm_alpha", "ssm_beta"];
    let known = [ALL_SCALES, SSM_SCALES, &MORE].iter().any(|list| list.contains(&name));
    let count = match name.ends_with("_exps") {
        true => Extent::Experts,
        false => Extent::One,
    };
    known.then_some(count)
}

/// The projection of a block whose factor has this name, `attn_q` of `attn_q.scale` or `attn_q.input_scale`, and how
/// many there are.
pub(crate) fn projection(factor: &str) -> Option<(&str, Extent)> {
    let name = factor.strip_suffix(".scale");
    let name = name.or_else(|| factor.strip_suffix(".input_scale"))?;
    Some((name, count(name)?))
}

const DENSE: &[&str] = &["ffn_gate", "ffn_up", "ffn_down"];
const ROUTED: &[&str] = &["ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"];
const SHARED: &[&str] = &["ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"];

/// Projections of attention: the factors on these every graph applies.
pub const ATTENTION_SCALES: &[&str] = &["attn_q", "attn_k", "attn_v", "attn_qkv", "attn_output"];
/// Those and the dense feed-forward network's.
pub const DENSE_SCALES: &[&str] = joined!(ATTENTION_SCALES, DENSE);
/// Those and the experts'.
pub const EXPERT_SCALES: &[&str] = joined!(DENSE_SCALES, ROUTED);
/// Those and those of the expert that all tokens go to.
pub const ALL_SCALES: &[&str] = joined!(EXPERT_SCALES, SHARED);
/// Those of attention and of Mamba's projections.
pub const SSM_SCALES: &[&str] = joined!(ATTENTION_SCALES, &["ssm_in", "ssm_out"]);
/// Those and those of a feed-forward network without a gate.
pub const NEMOTRON_SCALES: &[&str] = joined!(SSM_SCALES, &["ffn_up", "ffn_down"]);
/// The same and those of experts without gates.
pub const NEMOTRON_EXPERT_SCALES: &[&str] =
    joined!(NEMOTRON_SCALES, &["ffn_up_exps", "ffn_down_exps", "ffn_up_shexp", "ffn_down_shexp"]);
/// Those of attention, of experts and of the expert that all tokens go to.
pub const QWEN_NEXT_SCALES: &[&str] = joined!(&["attn_q", "attn_k", "attn_v", "attn_output"], ROUTED, SHARED);
/// All, and those of Gated DeltaNet.
pub const DELTA_SCALES: &[&str] = joined!(ALL_SCALES, &["attn_gate", "ssm_beta", "ssm_alpha", "ssm_out"]);
/// The output projection's alone.
pub const ATTN_OUT_SCALE: &[&str] = &["attn_output"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_belong_to_projections() {
        assert_eq!(projection("attn_q.scale"), Some(("attn_q", Extent::One)));
        let experts = projection("ffn_up_exps.input_scale");
        assert_eq!(experts, Some(("ffn_up_exps", Extent::Experts)));
        for other in ["attn_q", "attn_q.weight", "ffn_gate_inp.scale", ".scale", "attn_norm.scale"] {
            assert_eq!(projection(other), None, "{other}");
        }
        let lists = super::super::ARCHITECTURES.iter().flat_map(|a| a.scaled);
        lists.for_each(|name| assert!(count(name).is_some(), "{name}"));
    }
}
