//! The narrow vectors of RWKV, as the metadata states them.

use super::keys::Keys;
use crate::arch::rules::Recurrence;
use crate::arch::{Arch, Rwkv};

/// Largest number in the metadata of RWKV.
const MOST: u32 = 1 << 20;

/// The sizes of the narrow vectors, zeros for other models.
pub fn ranks(k: &mut Keys<'_>, arch: &Arch) -> Rwkv {
    const GATE: &str = "attention.gate_lora_rank";
    let kind = arch.mixing.recurrence();
    match kind {
        Some(Recurrence::Rwkv6 | Recurrence::Rwkv6Alone) => Rwkv {
            mix: k.count("time_mix_extra_dim", MOST),
            decay: k.count("time_decay_extra_dim", MOST),
            ..Rwkv::NONE
        },
        Some(Recurrence::Rwkv7 | Recurrence::Rwkv7Alone) => Rwkv {
            mix: 0,
            decay: k.count("attention.decay_lora_rank", MOST),
            rate: k.count("attention.iclr_lora_rank", MOST),
            value: k.count("attention.value_residual_mix_lora_rank", MOST),
            gate: match k.u32(GATE) {
                // models of ARWKV may have no gates
                None | Some(0) if kind == Some(Recurrence::Rwkv7Alone) => 0,
                _ => k.count(GATE, MOST),
            },
        },
        _ => Rwkv::NONE,
    }
}

/// Number of blocks after which the residual stream is halved; `None` where it never is.
pub fn halved_every(k: &mut Keys<'_>, arch: &Arch) -> Option<usize> {
    match arch.mixing.recurrence() {
        Some(Recurrence::Rwkv6) => k.u32("rescale_every_n_layers").filter(|&n| n > 0).map(|n| n as usize),
        _ => None,
    }
}
