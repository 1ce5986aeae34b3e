//! Places of a checkpoint's tensors in the model, by their names.

use super::ngrams;
use super::parts::Parts;
use super::source::Source;
use crate::arch::rules::Recurrence;
use crate::arch::tensor::full_name;
use crate::arch::{Extent, FUSED_QKV, INPUT_NORMS, KNOWN, Name, Role, Step, Tensor, TensorKey};

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
#[derive(Clone, Debug)]
pub(super) struct Use {
    /// The tensors that are made of it, each of some of its rows.
    pub tensors: Vec<&'static Tensor>,
    /// Where it is one of those that are stacked: its number, and the common prefix of the names of all stacks that are
    /// written together.
    pub item: Option<(u64, &'static str)>,
    /// Its steps on the way.
    pub steps: &'static [Step],
}

/// Masks and tables that older checkpoints store, and a bias of experts that the graphs of llama.cpp do not add.
const IGNORED: &[&str] = &[
    ".mlp.experts.bias",
    ".rotary_emb.inv_freq",
    ".attention.masked_bias",
    ".attention.bias",
    ".attn.masked_bias",
    ".attn.bias",
];
/// Parts of names of other modalities' tensors (`TextModel.filter_tensors` of the reference).
const OTHER_MODALITIES: &[&str] = &[
    "visual.",
    "vision.",
    "audio.",
    "talker.",
    "vision_",
    "audio_",
    "token2wav.",
    "code2wav.",
    "projector.",
    "pre_mm_projector_norm",
    "image_newline",
    "view_seperator",
    "patch_embed",
    "patch_embedding",
    "patch_merger.",
    "patch_merge_mlp.",
    "model.connector.",
];
/// The same for beginnings of names.
const OTHER_BEGINNINGS: &[&str] = &[
    "mlp",
    "vit.",
    "vpm.",
    "siglip2.",
    "conformer.",
    "merger.",
    "resampler.",
    "sound_encoder.",
    "sound_projection.",
    "speech_embeddings.",
];

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
        let shared = |t: &&Tensor| !matches!(t.role, Role::Embedding | Role::Output);
        let encoder = self.arch.encoder.into_iter().flat_map(|e| e.end_tensors());
        self.arch.end_tensors().chain(encoder.filter(shared)).chain(self.checkpoint.beside_ends)
    }

    /// Tensors of block `n`.
    pub fn block(&self, n: u32) -> impl Iterator<Item = &'static Tensor> + use<> {
        let fused = self.checkpoint.fused.is_some();
        let has_shared = self.sizes.shared_ff > 0;
        let parts = self.parts.get(n as usize).copied().unwrap_or(Parts::ALL);
        let alone = if self.arch.expert_block.is_empty() {
            Some(false)
        } else if self.arch.block.is_empty() {
            Some(true)
        } else {
            parts.experts
        };
        let lists = [false, true].into_iter().filter(move |with| alone.is_none_or(|only| only == *with));
        let [of_encoder, own] = self.halves.map(|blocks| n < blocks);
        let encoder = self.arch.encoder.filter(|_| of_encoder);
        let all = lists.filter(move |_| own).flat_map(|with| self.arch.block_tensors(with));
        let all = all.chain(encoder.into_iter().flat_map(|e| e.block_tensors(false)));
        // those of adapters stay apart
        let apart = |t: &&Tensor| {
            let of_three = ["attn_q.", "attn_k.", "attn_v."].iter().any(|p| t.gguf.starts_with(p));
            of_three && !t.gguf.contains(".lora_")
        };
        let shared = |t: &&Tensor| {
            t.shape.iter().any(|e| matches!(e, Extent::SharedFf | Extent::TwiceSharedFf))
                || t.gguf == "ffn_gate_inp_shexp.weight"
        };
        let all: Vec<&'static Tensor> = all.collect();
        // the output projection of lightning attention is that of attention, a matrix in the place of attention is called so,
        // and RWKV's stands in its place
        let matrix = self.arch.mixing.recurrence() == Some(Recurrence::Matrix);
        let lightning = parts.recurs && (matrix || all.iter().any(|t| t.place().starts_with("lightning_")));
        all.into_iter()
            .filter(move |t| {
                let of_mixer = t.gguf.starts_with("time_mix_") || lightning && t.gguf == "attn_output.weight";
                parts.has(t) || parts.recurs && of_mixer
            })
            .filter(move |t| !(fused && apart(t)))
            .filter(move |t| has_shared || !shared(t))
            .chain(FUSED_QKV.iter().filter(move |_| fused && parts.attends))
            .chain(self.checkpoint.beside)
            .chain(INPUT_NORMS)
    }

    fn described(&self, block: Option<u32>, gguf: &str) -> Option<&'static Tensor> {
        match block {
            Some(n) => self.block(n).find(|t| t.gguf == gguf),
            None => self.ends().find(|t| t.gguf == gguf),
        }
    }

    /// The class's own names.
    pub fn own_names(&self) -> impl Iterator<Item = &'static Name> + use<> {
        self.checkpoint.names.iter().chain(self.checkpoint.more_names)
    }

    /// The checkpoint's names for a tensor, without what names the block.
    pub fn names<'a>(&self, t: &'a Tensor) -> impl Iterator<Item = &'a str> + use<'a> {
        let of = |names: &mut dyn Iterator<Item = &'static Name>| -> Vec<&'static str> {
            names.filter(|(_, to)| to.contains(&t.gguf)).map(|(name, _)| *name).collect()
        };
        let usual = Some(t.hf).filter(|hf| !hf.is_empty());
        of(&mut self.own_names()).into_iter().chain(usual).chain(of(&mut KNOWN.iter()))
    }

    /// Steps for the name.
    fn steps(&self, name: &str) -> &'static [Step] {
        let all = self.checkpoint.steps.iter();
        let found = all.into_iter().find(|(pattern, _)| *pattern == name || number(pattern, name).is_some());
        found.map_or(&[], |(_, steps)| *steps)
    }

    /// True if a tensor's numbers become a key.
    fn becomes_key(&self, name: &str) -> bool {
        self.checkpoint.tensor_keys.iter().any(|key| match *key {
            TensorKey::OfBlocks(tensor, _) | TensorKey::Slopes(tensor, _) | TensorKey::OfEnd(tensor, _) => {
                tensor == name
            }
        })
    }

    /// Use of a name without its block's prefix.
    fn meaning(&self, block: Option<u32>, name: &str) -> Option<Use> {
        let steps = self.steps(name);
        let whole = |t| Use { tensors: vec![t], item: None, steps };
        let named = |names: &'static [Name]| {
            names.iter().find_map(|&(pattern, to)| {
                let number = number(pattern, name);
                if number.is_none() && pattern != name {
                    return None;
                }
                let tensors = to.iter().map(|g| self.described(block, g)).collect::<Option<Vec<_>>>()?;
                let group = pattern.split('*').next().unwrap_or_default();
                let stated = steps.iter().find_map(|step| if let Step::Item(n) = step { Some(*n) } else { None });
                Some(Use { tensors, item: stated.or(number).map(|n| (n, group)), steps })
            })
        };
        let described = || match block {
            Some(n) => self.block(n).find(|t| t.hf == name),
            None => self.ends().find(|t| t.hf == name),
        };
        let own = named(self.checkpoint.names).or_else(|| named(self.checkpoint.more_names));
        let known = || if block.is_some() { named(KNOWN) } else { None };
        own.or_else(|| described().map(whole)).or_else(known)
    }

    /// Names of the tensors of the file that one of the checkpoint has a part in.
    pub fn made_of(&self, name: &str) -> Vec<String> {
        match self.place(name) {
            Place::Here(Some(n), what) => what.tensors.iter().map(|t| full_name(Some(n as usize), t.gguf)).collect(),
            Place::Here(None, what) => what.tensors.iter().map(|t| t.gguf.to_owned()).collect(),
            _ => Vec::new(),
        }
    }

    /// The place of the tensor with this name.
    pub fn place(&self, name: &str) -> Place {
        let left_out = self.checkpoint.left_out;
        let starts = |all: &[&str], name: &str| all.iter().any(|p| name.starts_with(p));
        let further = self.further > 0 && starts(&["mtp.", "model.mtp."], name);
        if IGNORED.iter().any(|s| name.ends_with(s)) || starts(left_out, name) || further {
            return Place::Ignored;
        }
        let name = name.replace("language_model.", "");
        // PyTorch's names of a matrix that something is added to
        let bare = name.replace(".parametrizations.", ".");
        if bare != name && (bare.ends_with(".lora_A") || bare.ends_with(".lora_B")) {
            return Place::Ignored;
        }
        let name = if bare == name { name } else { bare.trim_end_matches(".original").to_owned() };
        if OTHER_MODALITIES.iter().any(|s| name.contains(s))
            || starts(OTHER_BEGINNINGS, &name)
            || starts(left_out, &name)
        {
            return Place::Ignored;
        }
        let of = |from: &str, prefix: &str| {
            let rest = from.strip_prefix(prefix)?.strip_prefix('.')?;
            Some(rest.to_owned())
        };
        let begins = |(old, new): &(&str, &str)| Some(format!("{new}{}", name.strip_prefix(old)?));
        let name = self.checkpoint.beginnings.iter().find_map(begins).unwrap_or(name);
        let name = of(&name, self.checkpoint.root).unwrap_or(name);
        if self.arch.ngrams {
            if ngrams::is_number(&name) {
                return Place::Ignored;
            }
            if let (Some(n), Some(table)) = (ngrams::piece(&name), self.described(None, ngrams::TABLE)) {
                return Place::Here(None, Use { tensors: vec![table], item: Some((n, "")), steps: ngrams::PIECES });
            }
        }
        let (half, in_half) = match self.checkpoint.halves {
            true => name.split_once('.').unwrap_or(("", &name)),
            false => ("", &*name),
        };
        let stacks = self.checkpoint.stacks.iter().zip(0..);
        let stacked = stacks.map(|(stack, n)| (of(in_half, stack), n)).find(|(rest, _)| rest.is_some());
        let per_stack = self.halves[1] / self.checkpoint.stacks.len().max(1) as u32;
        let (in_stack, first) = match &stacked {
            Some((Some(rest), n)) => (&**rest, n * per_stack),
            _ => (in_half, 0),
        };
        let block = of(in_stack, self.checkpoint.blocks);
        let Some(rest) = block else {
            if self.becomes_key(&name) {
                return Place::Ignored;
            }
            let outputs = self.ends().any(|t| t.role == Role::Output);
            return match self.meaning(None, &name) {
                Some(what) => Place::Here(None, what),
                None if name == "lm_head.weight" && !outputs => Place::TiedOutput,
                None => Place::Unknown,
            };
        };
        let found = rest.split_once('.').and_then(|(n, rest)| {
            let n = n.parse::<u32>().ok()?.checked_add(first)?;
            if n >= self.layers && n - self.layers < self.further {
                return Some(Place::Ignored);
            }
            Some(n).filter(|n| *n < self.all_blocks())?;
            if self.becomes_key(rest) {
                return Some(Place::Ignored);
            }
            let rest = if half.is_empty() { rest.to_owned() } else { format!("{half}.{rest}") };
            let meaning = self.meaning(Some(n), &rest)?;
            let replaced = |t: &&Tensor| self.checkpoint.first_twice.iter().any(|(_, other)| *other == t.gguf);
            Some(match n == 0 && meaning.tensors.iter().any(replaced) {
                true => Place::Ignored,
                false => Place::Here(Some(n), meaning),
            })
        });
        found.unwrap_or(Place::Unknown)
    }
}
