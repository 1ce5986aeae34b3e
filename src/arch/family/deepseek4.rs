//! DeepSeek 4: attention to a window, and in most blocks to compressed keys of all positions, of which an indexer
//! chooses some; several residual streams that every sublayer mixes. In sequences in which the indexer chooses all, its
//! tensors are of no use.

use super::deepseek2::DEEPSEEK2;
use crate::arch::compressed_parts::{COMPRESSORS, GROUPED_OUT, KEYS_AS_VALUES};
use crate::arch::expert_parts::{CHOICE_BIAS_OPTIONAL, EXPERTS, EXPERTS_OF_TOKENS, SHARED};
use crate::arch::latent_parts::RANKED_QUERIES;
use crate::arch::mtp_parts::MTP;
use crate::arch::parts::{ATTN_NORM, ENDS, FFN_NORM, LAST_CONNECTION, MIXING_CONNECTIONS, OUTPUT_REQUIRED, SINKS};
use crate::arch::rules::{
    Attention, DraftState, ExpertLayers, ExpertRule, FeedForward, GateClamp, GatingRule, HeadRule, RopeRule,
    SharedWidth, Streams, WindowBase, WindowRope, WindowRule, WindowScaling, YarnLog,
};
use crate::arch::{Arch, Gating};

/// `deepseek4`.
pub const DEEPSEEK4: Arch = Arch {
    name: "deepseek4",
    unconverted: "no: scales in E8M0",
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
    attention: Attention { indexed: true, compressed: true, ..Attention::USUAL },
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
    ..Arch::DENSE
};
