//! Tensors of adapters in the file of a model, which tokens of a text switch on.

use super::parts::Group;
use super::tensor::Extent::{Embd, Ff, Kv, Q, SlotRank, Slots};
use super::tensor::Role::{ByColumns, ByRows};
use super::tensor::{Extent, Role, Tensor};

/// A tensor that no checkpoint is converted to.
const fn tensor(gguf: &'static str, shape: &'static [Extent], role: Role) -> Tensor {
    Tensor::new(gguf, "", shape, role)
}

/// From inputs to a narrow vector, and from that to what is added to the outputs, for each matrix of a block.
pub const SLOTS: Group = &[
    tensor("attn_q.lora_a", &[Slots, SlotRank, Embd], ByRows),
    tensor("attn_q.lora_b", &[Slots, Q, SlotRank], ByRows),
    tensor("attn_k.lora_a", &[Slots, SlotRank, Embd], ByRows),
    tensor("attn_k.lora_b", &[Slots, Kv, SlotRank], ByRows),
    tensor("attn_v.lora_a", &[Slots, SlotRank, Embd], ByRows),
    tensor("attn_v.lora_b", &[Slots, Kv, SlotRank], ByRows),
    tensor("attn_output.lora_a", &[Slots, SlotRank, Q], ByColumns),
    tensor("attn_output.lora_b", &[Slots, Embd, SlotRank], ByRows),
    tensor("ffn_gate.lora_a", &[Slots, SlotRank, Embd], ByRows),
    tensor("ffn_gate.lora_b", &[Slots, Ff, SlotRank], ByRows),
    tensor("ffn_up.lora_a", &[Slots, SlotRank, Embd], ByRows),
    tensor("ffn_up.lora_b", &[Slots, Ff, SlotRank], ByRows),
    tensor("ffn_down.lora_a", &[Slots, SlotRank, Ff], ByColumns),
    tensor("ffn_down.lora_b", &[Slots, Embd, SlotRank], ByRows),
];
