//! DeepSeek 4: attention to a window, and in most blocks to compressed keys of all positions, of which an indexer
//! chooses some; several residual streams that every sublayer mixes. In sequences in which the indexer chooses all, its
//! tensors are of no use.

use super::deepseek2::DEEPSEEK2;
use super::indexed::INDEXER_KEYS;
use crate::arch::compressed_parts::{COMPRESSORS, GROUPED_OUT, KEYS_AS_VALUES};
use crate::arch::expert_parts::{CHOICE_BIAS_OPTIONAL, EXPERTS, EXPERTS_OF_TOKENS, SHARED};
use crate::arch::joined::joined;
use crate::arch::latent_parts::RANKED_QUERIES;
use crate::arch::mtp_parts::MTP;
use crate::arch::parts::{
    ATTN_NORM, ENDS, FFN_NORM, LAST_CONNECTION, MIXING_CONNECTIONS, OUTPUT_REQUIRED, SINKS, beside,
};
use crate::arch::rules::{
    Attention, DraftState, ExpertLayers, ExpertRule, FeedForward, GateClamp, GatingRule, HeadRule, RopeRule,
    SharedWidth, Streams, WindowBase, WindowRope, WindowRule, WindowScaling, YarnLog,
};
use crate::arch::tensor::Role::{ByRows, Norm, Positions, Router, Vector};
use crate::arch::{Arch, Checkpoint, Gating, HeadDim, Key, Rotary, Step, TokenKey, Tokenizer, Width};

/// Names of [`MIXING_CONNECTIONS`] in checkpoints.
pub(super) const CONNECTION_NAMES: &[(&str, &[&str])] = &[
    ("hc_attn_fn", &["hc_attn_fn.weight"]),
    ("hc_attn_base", &["hc_attn_base.weight"]),
    ("hc_attn_scale", &["hc_attn_scale.weight"]),
    ("hc_ffn_fn", &["hc_ffn_fn.weight"]),
    ("hc_ffn_base", &["hc_ffn_base.weight"]),
    ("hc_ffn_scale", &["hc_ffn_scale.weight"]),
];

/// `deepseek4`.
pub const DEEPSEEK4: Arch = Arch {
    name: "deepseek4",
    models: "DeepSeek 4",
    further_if_there: true,
    mtp: MTP,
    heads: HeadRule::OneInWindow,
    draft_state: DraftState::Stream,
    ends: &[ENDS, OUTPUT_REQUIRED, LAST_CONNECTION],
    block: &[],
    expert_block: &[
        MIXING_CONNECTIONS,
        ATTN_NORM,
        RANKED_QUERIES,
        KEYS_AS_VALUES,
        COMPRESSORS,
        SINKS,
        GROUPED_OUT,
        FFN_NORM,
        EXPERTS,
        CHOICE_BIAS_OPTIONAL,
        EXPERTS_OF_TOKENS,
        SHARED,
    ],
    streams: Streams::MixedWeighed,
    attention: Attention { indexed: true, turned_like_indexer: true, compressed: true, ..Attention::USUAL },
    rope: RopeRule {
        partial: true,
        base: "attention.compress_rope_freq_base",
        yarn_log: YarnLog::Cancelled,
        ..RopeRule::ADJACENT
    },
    window: Some(WindowRule {
        rope: WindowRope { base: WindowBase::Plain, scaling: WindowScaling::None, own_dimensions: false },
        ..WindowRule::needed(0)
    }),
    feed_forward: FeedForward { clamp: GateClamp::BeforeEverywhere, ..Arch::DENSE.feed_forward },
    experts: ExpertRule {
        gating: GatingRule::Key(Some(Gating::RootOfSoftplus)),
        shared: SharedWidth::Count,
        layers: ExpertLayers::All,
        listed: true,
        ..ExpertRule::KEYED
    },
    output: DEEPSEEK2.output,
    scaled: &[],
    ignored: &[
        "indexer.proj.weight",
        "indexer.attn_q_b.weight",
        "indexer_compressor_kv.weight",
        "indexer_compressor_gate.weight",
        "indexer_compressor_ape.weight",
        "indexer_compressor_norm.weight",
        // the bias for tokens of images
        "exp_probs_b_vl.bias",
    ],
    steered: false,
    checkpoints: &[&Checkpoint {
        classes: &["DeepseekV4ForCausalLM"],
        root: "",
        keeps_types: true,
        head_dim: HeadDim::Implied,
        width: Width::StatedIfAny,
        rotary: Rotary::Stated("qk_rope_head_dim"),
        left_out: &["mtp.", "aligner.", "image_"],
        names: &[
            ("embed.weight", &["token_embd.weight"]),
            ("norm.weight", &["output_norm.weight"]),
            ("head.weight", &["output.weight"]),
            ("hc_head_fn", &["output_hc_fn.weight"]),
            ("hc_head_base", &["output_hc_base.weight"]),
            ("hc_head_scale", &["output_hc_scale.weight"]),
            ("attn_norm.weight", &["attn_norm.weight"]),
            ("attn.attn_sink", &["attn_sinks.weight"]),
            ("attn.wq_a.weight", &["attn_q_a.weight"]),
            ("attn.q_norm.weight", &["attn_q_a_norm.weight"]),
            ("attn.wq_b.weight", &["attn_q_b.weight"]),
            ("attn.wkv.weight", &["attn_kv.weight"]),
            ("attn.kv_norm.weight", &["attn_kv_a_norm.weight"]),
            ("attn.wo_b.weight", &["attn_output_b.weight"]),
            ("attn.compressor.norm.weight", &["attn_compressor_norm.weight"]),
            ("ffn_norm.weight", &["ffn_norm.weight"]),
            ("ffn.gate.weight", &["ffn_gate_inp.weight"]),
            ("ffn.gate.bias", &["exp_probs_b.bias"]),
            ("ffn.gate.tid2eid", &["ffn_gate_tid2eid.weight"]),
            ("ffn.shared_experts.w1.weight", &["ffn_gate_shexp.weight"]),
            ("ffn.shared_experts.w2.weight", &["ffn_down_shexp.weight"]),
            ("ffn.shared_experts.w3.weight", &["ffn_up_shexp.weight"]),
        ],
        more_names: CONNECTION_NAMES,
        packed: &[
            ("ffn.experts.*.w1.weight", &["ffn_gate_exps.weight"]),
            ("ffn.experts.*.w2.weight", &["ffn_down_exps.weight"]),
            ("ffn.experts.*.w3.weight", &["ffn_up_exps.weight"]),
        ],
        // the file has them in the shapes of the checkpoint
        beside: &[
            beside("attn.wo_a.weight", "attn_output_a.weight", ByRows),
            beside("attn.compressor.wkv.weight", "attn_compressor_kv.weight", ByRows),
            beside("attn.compressor.wgate.weight", "attn_compressor_gate.weight", ByRows),
            beside("attn.compressor.ape", "attn_compressor_ape.weight", Positions),
            beside("attn.indexer.wq_b.weight", "indexer.attn_q_b.weight", ByRows),
            beside("attn.indexer.weights_proj.weight", "indexer.proj.weight", Router),
            beside("attn.indexer.compressor.ape", "indexer_compressor_ape.weight", Positions),
            beside("attn.indexer.compressor.wkv.weight", "indexer_compressor_kv.weight", ByRows),
            beside("attn.indexer.compressor.wgate.weight", "indexer_compressor_gate.weight", ByRows),
            beside("attn.indexer.compressor.norm.weight", "indexer_compressor_norm.weight", Norm),
            beside("ffn.gate.bias_vl", "exp_probs_b_vl.bias", Vector),
        ],
        steps: &[
            ("ffn.gate.tid2eid", &[Step::ExpertsOfTokens("num_hash_layers")]),
            ("ffn.gate.bias", &[Step::BehindBlocks("num_hash_layers")]),
        ],
        first_keys: &[Key::Template("")],
        keys: joined!(Key::USUAL_SHAPES, Key::OF_EXPERTS, &[Key::HeadSizes, Key::FileType]),
        more_keys: &[
            Key::Whole(&["qk_rope_head_dim"], "rope.dimension_count"),
            Key::Whole(&["q_lora_rank"], "attention.q_lora_rank"),
            Key::Whole(&["sliding_window"], "attention.sliding_window"),
            Key::Whole(&["moe_intermediate_size"], "expert_feed_forward_length"),
            Key::Whole(&["n_shared_experts"], "expert_shared_count"),
            Key::Fraction(&["routed_scaling_factor"], "expert_weights_scale"),
            Key::FlagIf("norm_topk_prob", "expert_weights_norm"),
            Key::PerBlock("swiglu_limit", "swiglu_clamp_exp", 0.0),
            Key::PerBlock("swiglu_limit", "swiglu_clamp_shexp", 0.0),
            INDEXER_KEYS[0],
            INDEXER_KEYS[1],
            INDEXER_KEYS[2],
            Key::Whole(&["o_groups"], "attention.output_group_count"),
            Key::Whole(&["o_lora_rank"], "attention.output_lora_rank"),
            Key::AllOf("compress_ratios", "attention.compress_ratios"),
            Key::Fraction(&["compress_rope_theta"], "attention.compress_rope_freq_base"),
            Key::Whole(&["hc_mult"], "hyper_connection.count"),
            Key::Whole(&["hc_sinkhorn_iters"], "hyper_connection.sinkhorn_iterations"),
            Key::Fraction(&["hc_eps"], "hyper_connection.epsilon"),
            Key::Whole(&["num_hash_layers"], "hash_layer_count"),
            Key::Product(&["hidden_size"], &["hc_mult"], "embedding_length_out"),
        ],
        tokenizer: Tokenizer::Json,
        token_keys: &[TokenKey::TemplateElsewhere],
        ..Checkpoint::USUAL
    }],
    ..Arch::DENSE
};
