//! The narrow vectors of RWKV, as the metadata states them.

use super::keys::Keys;
use crate::arch::rules::Recurrence;
use crate::arch::{Arch, Rwkv};

/// Largest number in the metadata of RWKV.
const MOST: u32 = 1 << 20;

/// The sizes of the narrow vectors, zeros for other models.
pub fn ranks(k: &mut Keys<'_>, arch: &Arch) -> Rwkv {
    let mut rank = |key: &str| k.count(key, MOST);
    match arch.mixing.recurrence() {
        Some(Recurrence::Rwkv6) => {
            Rwkv { mix: rank("time_mix_extra_dim"), decay: rank("time_decay_extra_dim"), ..Rwkv::NONE }
        }
        Some(Recurrence::Rwkv7) => Rwkv {
            mix: 0,
            decay: rank("attention.decay_lora_rank"),
            rate: rank("attention.iclr_lora_rank"),
            value: rank("attention.value_residual_mix_lora_rank"),
            gate: rank("attention.gate_lora_rank"),
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
