//! GLM 5.3 Flash: Kimi Delta Attention in most blocks, latent attention without positions in the others, to pools of
//! positions that an indexer chooses, and several residual streams that every sublayer mixes.

use super::deepseek4::CONNECTION_NAMES;
use super::glm::SPECIAL as GLM_SPECIAL;
use super::indexed::{INDEXER, INDEXER_KEYS, INDEXER_TENSORS};
use super::kimi::{KDA_GATE_NAMES, KDA_NAMES, KDA_STEPS, KIMI_LINEAR};
use super::qwen::DOWN_GATE_UP;
use crate::arch::expert_parts::{CHOICE_BIAS_REQUIRED, EXPERTS, SHARED};
use crate::arch::joined::joined;
use crate::arch::latent_parts::{EXPANSION_BY_HEAD, LATENT, LATENT_OUT, RANKED_QUERIES};
use crate::arch::parts::{ATTN_NORM, FFN_NORM, GATED_FFN, Group, MIXING_CONNECTIONS, begun, beside};
use crate::arch::recurrent_parts::{KIMI, KIMI_GATES, KIMI_RATES_FLAT};
use crate::arch::rules::{
    Attention, ExpertRule, FeedForward, GateClamp, GatingRule, Mixing, Normalize, Recurrence, SharedWidth, Streams,
};
use crate::arch::tensor::Role::Router;
use crate::arch::{Arch, Checkpoint, Fixed, Gating, Key, KvHeads, Step, Tokenizer};

/// Groups that both kinds of blocks begin with.
const GLM5_NEXT_MIXING: &[Group] = &[
    MIXING_CONNECTIONS,
    ATTN_NORM,
    RANKED_QUERIES,
    LATENT,
    EXPANSION_BY_HEAD,
    LATENT_OUT,
    KIMI,
    KIMI_RATES_FLAT,
    KIMI_GATES,
    FFN_NORM,
];

/// `glm5-next`.
pub const GLM5_NEXT: Arch = Arch {
    name: "glm5-next",
    models: "GLM 5.3 Flash",
    block: begun!(GLM5_NEXT_MIXING, GATED_FFN),
    expert_block: begun!(GLM5_NEXT_MIXING, EXPERTS, CHOICE_BIAS_REQUIRED, SHARED),
    mixing: Mixing::ByHeads(Recurrence::BoundedOfLength),
    streams: Streams::Mixed,
    attention: Attention { indexed: true, ..KIMI_LINEAR.attention },
    feed_forward: FeedForward { clamp: GateClamp::BeforeEverywhere, ..KIMI_LINEAR.feed_forward },
    experts: ExpertRule {
        gating: GatingRule::Key(Some(Gating::Sigmoid)),
        normalize: Normalize::Key,
        shared: SharedWidth::Count,
        ..KIMI_LINEAR.experts
    },
    scaled: &[],
    ignored: joined!(
        INDEXER,
        &["indexer_compressor_gate.weight", "indexer_compressor_ape.weight"],
        // the graph of Kimi Delta Attention has none
        KIMI_LINEAR.ignored,
    ),
    steered: false,
    checkpoints: &[&Checkpoint {
        classes: &["Glm5NextForConditionalGeneration"],
        names: DOWN_GATE_UP,
        more_names: joined!(KDA_NAMES, KDA_GATE_NAMES, CONNECTION_NAMES),
        beside: joined!(
            INDEXER_TENSORS,
            &[
                beside("self_attn.indexer.index_kpool_compress_gate", "indexer_compressor_gate.weight", Router),
                beside("self_attn.indexer.index_kpool_compress_ape", "indexer_compressor_ape.weight", Router),
            ],
        ),
        steps: joined!(
            KDA_STEPS,
            &[("self_attn.A_log", &[Step::Decay]), ("hc_attn_fn", &[Step::InFloats]), ("hc_ffn_fn", &[Step::InFloats]),],
        ),
        special: GLM_SPECIAL,
        kv_heads: KvHeads::OneWhereStated,
        fixed: &[("mla_use_nope", Fixed::True), ("qk_rope_head_dim", Fixed::Number(0.0)), ("mhc", Fixed::True)],
        // the width of a head in `config.json` is of no use
        keys: Key::USUAL_BUT_HEADS,
        more_keys: &[
            Key::KvHeadsBut("linear_attention"),
            Key::VocabSize,
            Key::ConstantNumber("attention.layer_norm_epsilon", 1e-6),
            Key::Whole(&["linear_attn_config.short_conv_kernel_size"], "ssm.conv_kernel"),
            Key::Whole(&["linear_attn_config.head_dim"], "kda.head_dim"),
            Key::Fraction(&["linear_attn_config.gate_lower_bound"], "kda.gate_lower_bound"),
            Key::Whole(&["q_lora_rank"], "attention.q_lora_rank"),
            Key::Whole(&["kv_lora_rank"], "attention.kv_lora_rank"),
            Key::Whole(&["qk_rope_head_dim"], "rope.dimension_count"),
            Key::Whole(&["kv_lora_rank"], "attention.key_length"),
            Key::Whole(&["kv_lora_rank"], "attention.value_length"),
            Key::Whole(&["qk_nope_head_dim"], "attention.key_length_mla"),
            Key::Whole(&["v_head_dim"], "attention.value_length_mla"),
            INDEXER_KEYS[0],
            INDEXER_KEYS[1],
            INDEXER_KEYS[2],
            Key::Whole(&["index_kpool"], "attention.indexer.kpool"),
            Key::Flag("index_kpool_always_select_tail", "attention.indexer.kpool_select_tail", true),
            Key::Kinds("indexer_types", "full", "attention.indexer.types"),
            Key::Whole(&["hc_mult"], "hyper_connection.count"),
            Key::Whole(&["hc_sinkhorn_iters"], "hyper_connection.sinkhorn_iterations"),
            Key::Fraction(&["hc_eps"], "hyper_connection.epsilon"),
            Key::Whole(&["first_k_dense_replace"], "leading_dense_block_count"),
            Key::Whole(&["moe_intermediate_size"], "expert_feed_forward_length"),
            Key::Whole(&["n_shared_experts"], "expert_shared_count"),
            Key::Fraction(&["routed_scaling_factor"], "expert_weights_scale"),
            Key::Flag("norm_topk_prob", "expert_weights_norm", false),
            Key::PerBlock("swiglu_limit", "swiglu_clamp_exp", 0.0),
            Key::PerBlock("swiglu_limit", "swiglu_clamp_shexp", 0.0),
        ],
        tokenizer: Tokenizer::Json,
        tied_left_out: true,
        ..Checkpoint::USUAL
    }],
    ..KIMI_LINEAR
};
