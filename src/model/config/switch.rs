//! Adapters in the file of a model, as the metadata states them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::keys::Keys;
use crate::arch::Arch;
use crate::ops::switch::Switch;

/// Most adapters, and most elements of their narrow vectors, that llama.cpp accepts.
const MOST: u32 = 4096;
/// The gain of files that say none.
const GAIN: f32 = 15.0;

/// Adapters that tokens switch on.
#[derive(Clone, Debug)]
pub struct Switched {
    /// The tokens.
    pub switch: Arc<Switch>,
    /// Elements of the vector that an adapter makes of its inputs.
    pub rank: usize,
}

/// The adapters of a model with heads of `head` elements, where the architecture has them.
pub fn switched(k: &mut Keys<'_>, arch: &Arch, n_vocab: usize, head: usize) -> Option<Switched> {
    const ACTIVATE: &str = "adapters.token_ids_activate";
    const SUBSTITUTE: &str = "adapters.token_ids_substitute";
    const GAIN_KEY: &str = "adapters.router_gain";
    if !arch.switched {
        return None;
    }
    let adapters = k.count("adapters.count", MOST);
    let rank = k.count("adapters.lora_rank", MOST);
    let gain = k.f32(GAIN_KEY).unwrap_or(GAIN);
    if !gain.is_finite() {
        k.wrong(GAIN_KEY, format!("is {gain}, it must be a number"));
    }
    let mut ids = |key: &str| {
        let Some(ids) = k.u32s(key) else {
            k.missing(key);
            return Vec::new();
        };
        if ids.len() != adapters {
            k.wrong(key, format!("has {} tokens for {adapters} adapters", ids.len()));
        }
        ids
    };
    let (activate, substitute) = (ids(ACTIVATE), ids(SUBSTITUTE));
    if let Some(id) = substitute.iter().find(|id| **id as usize >= n_vocab) {
        k.wrong(SUBSTITUTE, format!("has token {id}, of a vocabulary of {n_vocab}"));
    }
    let numbered = activate.into_iter().zip(substitute).zip(1..);
    let tokens: BTreeMap<u32, [u32; 2]> = numbered.map(|((token, stands), n)| (token, [n, stands])).collect();
    Some(Switched { switch: Arc::new(Switch { adapters, gain, tokens, head }), rank })
}
