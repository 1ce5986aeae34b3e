//! Places of a checkpoint's tensors in the model, by their names.

use super::source::Source;
use crate::arch::{Extent, FUSED_QKV, Role, Tensor};

/// Where a tensor's name leads.
pub(super) enum Place {
    /// Into a block, or outside of all.
    Here(Option<u32>, Use),
    /// An output matrix, and the architecture always takes the embedding for it.
    TiedOutput,
    /// Is no weight of the text model, or is computed anew.
    Ignored,
    Unknown,
}

/// Use of a checkpoint's tensor.
#[derive(Clone, Copy, Debug)]
pub(super) enum Use {
    /// This tensor.
    Whole(&'static Tensor),
    /// Two tensors: the first and the second half of its rows, or of every expert's.
    Halves([&'static Tensor; 2]),
    /// One of those that are stacked.
    Item {
        tensor: &'static Tensor,
        number: u64,
        /// Common prefix of the names of all stacks that are written together.
        group: &'static str,
    },
}

impl Use {
    /// The tensors of the model that it has a part in.
    pub fn tensors(&self) -> impl Iterator<Item = &'static Tensor> + use<> {
        let (first, second) = match *self {
            Use::Whole(tensor) | Use::Item { tensor, .. } => (tensor, None),
            Use::Halves([first, second]) => (first, Some(second)),
        };
        [first].into_iter().chain(second)
    }
}

/// Masks and tables that older checkpoints store.
const IGNORED: &[&str] =
    &[".rotary_emb.inv_freq", ".attention.masked_bias", ".attention.bias", ".attn.masked_bias", ".attn.bias"];
const OTHER_MODALITIES: &[&str] = &["vision_", "vision.", "visual.", "audio_", "projector."];

/// The number that `name` has where `pattern` has its `*`.
fn number(pattern: &str, name: &str) -> Option<u64> {
    let (before, after) = pattern.split_once('*')?;
    let digits = name.strip_prefix(before)?.strip_suffix(after)?;
    let plain = digits.bytes().all(|b| b.is_ascii_digit()) && !digits.is_empty();
    digits.parse().ok().filter(|_| plain)
}

impl Source {
    /// Tensors outside the blocks.
    pub fn ends(&self) -> impl Iterator<Item = &'static Tensor> + use<> {
        self.arch.end_tensors()
    }

    /// Tensors of a block.
    pub fn block(&self) -> impl Iterator<Item = &'static Tensor> + use<> {
        let fused = self.checkpoint.fused.is_some();
        let has_shared = self.sizes.shared_ff > 0;
        let all = self.arch.block_tensors(self.sizes.experts > 0);
        let apart = |t: &&Tensor| ["attn_q.", "attn_k.", "attn_v."].iter().any(|p| t.gguf.starts_with(p));
        let shared = |t: &&Tensor| t.shape.contains(&Extent::SharedFf) || t.gguf == "ffn_gate_inp_shexp.weight";
        all.filter(move |t| !(fused && apart(t)))
            .filter(move |t| has_shared || !shared(t))
            .chain(FUSED_QKV.iter().filter(move |_| fused))
    }

    fn described(&self, in_block: bool, gguf: &str) -> Option<&'static Tensor> {
        match in_block {
            true => self.block().find(|t| t.gguf == gguf),
            false => self.ends().find(|t| t.gguf == gguf),
        }
    }

    /// The checkpoint's names for a tensor, without what names the block.
    pub fn names<'a>(&self, t: &'a Tensor) -> impl Iterator<Item = &'a str> + use<'a> {
        let own = self.checkpoint.names.iter();
        let own = own.filter(|(_, to)| to.contains(&t.gguf));
        let usual = Some(t.hf).filter(|hf| !hf.is_empty());
        own.map(|(name, _)| *name).chain(usual)
    }

    /// Use of a name without its block's prefix.
    fn meaning(&self, in_block: bool, name: &str) -> Option<Use> {
        for &(pattern, to) in self.checkpoint.names {
            let number = number(pattern, name);
            if number.is_none() && pattern != name {
                continue;
            }
            let found: Option<Vec<_>> = to.iter().map(|g| self.described(in_block, g)).collect();
            match (found.as_deref(), number) {
                (Some(&[tensor]), Some(number)) => {
                    let group = pattern.split('*').next().unwrap_or_default();
                    return Some(Use::Item { tensor, number, group });
                }
                (Some(&[tensor]), None) => return Some(Use::Whole(tensor)),
                (Some(&[first, second]), None) => return Some(Use::Halves([first, second])),
                _ => {}
            }
        }
        let found = match in_block {
            true => self.block().find(|t| t.hf == name),
            false => self.ends().find(|t| t.hf == name),
        };
        found.map(Use::Whole)
    }

    /// The place of the tensor with this name.
    pub fn place(&self, name: &str) -> Place {
        if IGNORED.iter().any(|s| name.ends_with(s)) {
            return Place::Ignored;
        }
        let name = name.replace("language_model.", "");
        if OTHER_MODALITIES.iter().any(|s| name.contains(s)) {
            return Place::Ignored;
        }
        let of = |from: &str, prefix: &str| {
            let rest = from.strip_prefix(prefix)?.strip_prefix('.')?;
            Some(rest.to_owned())
        };
        let name = of(&name, self.checkpoint.root).unwrap_or(name);
        let block = of(&name, self.checkpoint.blocks);
        let Some(rest) = block else {
            let outputs = self.ends().any(|t| t.role == Role::Output);
            return match self.meaning(false, &name) {
                Some(what) => Place::Here(None, what),
                None if name == "lm_head.weight" && !outputs => Place::TiedOutput,
                None => Place::Unknown,
            };
        };
        let found = rest.split_once('.').and_then(|(n, rest)| {
            let n = n.parse().ok().filter(|n| *n < self.layers)?;
            Some(Place::Here(Some(n), self.meaning(true, rest)?))
        });
        found.unwrap_or(Place::Unknown)
    }
}
