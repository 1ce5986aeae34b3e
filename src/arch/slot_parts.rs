//! Tensors of adapters in the file of a model, which tokens of a text switch on.

use super::parts::{Group, unnamed};
use super::tensor::Extent::{Embd, Ff, Keys, Outputs, Q, SlotRank, Slots, Values};
use super::tensor::Role::{ByColumns, ByRows};

/// From inputs to a narrow vector, and from that to what is added to the outputs, for each matrix of a block.
pub const SLOTS: Group = &[
    unnamed("attn_q.lora_a", &[Slots, SlotRank, Embd], ByRows),
    unnamed("attn_q.lora_b", &[Slots, Q, SlotRank], ByRows),
    unnamed("attn_k.lora_a", &[Slots, SlotRank, Embd], ByRows),
    unnamed("attn_k.lora_b", &[Slots, Keys, SlotRank], ByRows),
    unnamed("attn_v.lora_a", &[Slots, SlotRank, Embd], ByRows),
    unnamed("attn_v.lora_b", &[Slots, Values, SlotRank], ByRows),
    unnamed("attn_output.lora_a", &[Slots, SlotRank, Outputs], ByColumns),
    unnamed("attn_output.lora_b", &[Slots, Embd, SlotRank], ByRows),
    unnamed("ffn_gate.lora_a", &[Slots, SlotRank, Embd], ByRows),
    unnamed("ffn_gate.lora_b", &[Slots, Ff, SlotRank], ByRows),
    unnamed("ffn_up.lora_a", &[Slots, SlotRank, Embd], ByRows),
    unnamed("ffn_up.lora_b", &[Slots, Ff, SlotRank], ByRows),
    unnamed("ffn_down.lora_a", &[Slots, SlotRank, Ff], ByColumns),
    unnamed("ffn_down.lora_b", &[Slots, Embd, SlotRank], ByRows),
];
