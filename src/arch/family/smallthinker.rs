//! SmallThinker: the router sees the block's input, experts have ReLU gates.

use crate::arch::expert_parts::EXPERTS;
use crate::arch::parts::{ATTN_NORM, ATTN_OUT, FFN_NORM, QKV, QKV_BIAS_OPTIONAL};
use crate::arch::rules::{
    ExpertRule, ExpertWidth, FeedForward, GatingRule, RopeLayers, RopeRule, WindowRope, WindowRule, WindowSize,
};
use crate::arch::{Activation, Arch, Checkpoint, Fixed, HeadDim, Key, Tokenizer};

/// `smallthinker`.
pub const SMALLTHINKER: Arch = Arch {
    name: "smallthinker",
    models: "SmallThinker 4B-A0.6B, 21B-A3B",
    expert_block: &[ATTN_NORM, QKV, ATTN_OUT, FFN_NORM, EXPERTS, QKV_BIAS_OPTIONAL],
    rope: RopeRule { layers: RopeLayers::ButFirstOf(4), ..RopeRule::HALVES },
    window: Some(WindowRule {
        size: WindowSize::Given(4096),
        global_first: true,
        rope: WindowRope::KEYED,
        ..WindowRule::every(4)
    }),
    feed_forward: FeedForward { activation: Activation::Relu, ..Arch::DENSE.feed_forward },
    experts: ExpertRule {
        gating: GatingRule::Key(None),
        width: ExpertWidth::Key,
        early_router: true,
        ..ExpertRule::USUAL
    },
    checkpoints: &[&Checkpoint {
        classes: &["SmallThinkerForCausalLM"],
        names: &[
            ("block_sparse_moe.primary_router.weight", &["ffn_gate_inp.weight"]),
            ("block_sparse_moe.experts.*.down.weight", &["ffn_down_exps.weight"]),
            ("block_sparse_moe.experts.*.gate.weight", &["ffn_gate_exps.weight"]),
            ("block_sparse_moe.experts.*.up.weight", &["ffn_up_exps.weight"]),
        ],
        activations: &["relu"],
        head_dim: HeadDim::Implied,
        width_names: &["moe_ffn_hidden_size"],
        fixed: &[("moe_primary_router_apply_softmax", Fixed::Unset)],
        keys: SMALLTHINKER_KEYS,
        tokenizer: Tokenizer::Json,
        ..Checkpoint::USUAL
    }],
    ..Arch::DENSE
};

const SMALLTHINKER_KEYS: &[Key] = &[
    Key::Blocks,
    Key::Context,
    Key::Embedding,
    Key::Heads,
    Key::KvHeads,
    Key::RopeScaling,
    Key::RopeBase,
    Key::RmsEpsilon,
    Key::HeadSizes,
    Key::FileType,
    Key::Whole(&["moe_num_primary_experts"], "expert_count"),
    Key::Whole(&["moe_num_active_primary_experts"], "expert_used_count"),
    Key::Whole(&["moe_ffn_hidden_size"], "expert_feed_forward_length"),
    Key::Whole(&["moe_ffn_hidden_size"], "feed_forward_length"),
    Key::Constant("expert_gating_func", 2),
    Key::Whole(&["sliding_window_size"], "attention.sliding_window"),
];
