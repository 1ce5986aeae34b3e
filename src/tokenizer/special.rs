//! Special tokens: their ids, which of them end a generation, and finding them in a text.
//!
//! Files say too little about special tokens, so their texts decide as well, by the same lists and in
//! the same order as in llama.cpp. Where that depends on the order of a hash table there (several
//! candidates for one fill-in-the-middle role), the lowest id is taken here.

use std::collections::BTreeSet;

use trine_formats::gguf::Metadata;

use super::error::TokenizerError;
use super::trie::Trie;
use super::vocab::{Attr, CONTROL, LSTRIP, NORMAL, RSTRIP, UNKNOWN, UNUSED, USER_DEFINED, Vocab};

/// The ids that a kind of tokenizer has unless the file names others.
#[derive(Clone, Copy, Default)]
pub(super) struct Defaults {
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    pub unk: Option<u32>,
    pub sep: Option<u32>,
}

/// Ids with a meaning, and the matcher for tokens that are split off before anything else.
pub(super) struct Special {
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    pub unk: Option<u32>,
    /// Token that separates and ends texts in models that compare them.
    pub sep: Option<u32>,
    /// Tokens of the roles of [`FIM`].
    fim: [Option<u32>; FIM.len()],
    eog: BTreeSet<u32>,
    /// Tokens to split off, longest first.
    split: Vec<u32>,
    /// Their texts; the values are positions in `split`.
    matcher: Trie,
}

/// The tokens that mark the parts of a text with a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FillIn {
    /// Token before the text in front of the gap.
    pub prefix: u32,
    /// Token before the text behind the gap.
    pub suffix: u32,
    /// Token behind both texts: the text of the gap follows.
    pub middle: u32,
    /// Before the name of a repository, where the model knows several files.
    pub repository: Option<u32>,
    /// Before the name of each file.
    pub file: Option<u32>,
}

/// A part of a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fragment<'a> {
    Token(u32),
    Text(&'a str),
}

/// Texts that mark the end of a turn; they end a generation too.
const END_OF_TURN: [&str; 11] = [
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "<｜end▁of▁sentence｜>",
    "<end_of_utterance>",
];

/// Further texts that end a generation.
const END_OF_GENERATION: [&str; 11] = [
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "</s>",
    "<|eom_id|>",
    "[EOS]",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "[e~[",
];

/// Fill-in-the-middle roles: the keys that name the token, the later one wins, the texts that do
/// otherwise, and whether the token ends a generation.
const FIM: [(&[&str], &[&str], bool); 6] = [
    (
        &["fim_pre", "prefix"],
        &[
            "<|fim_prefix|>",
            "<fim-prefix>",
            "<fim_prefix>",
            "<｜fim▁begin｜>",
            "<PRE>",
            "▁<PRE>",
            "<|code_prefix|>",
            "<|prefix|>",
        ],
        false,
    ),
    (
        &["fim_suf", "suffix"],
        &[
            "<|fim_suffix|>",
            "<fim-suffix>",
            "<fim_suffix>",
            "<｜fim▁hole｜>",
            "<SUF>",
            "▁<SUF>",
            "<|code_suffix|>",
            "<|suffix|>",
        ],
        false,
    ),
    (
        &["fim_mid", "middle"],
        &[
            "<|fim_middle|>",
            "<fim-middle>",
            "<fim_middle>",
            "<｜fim▁end｜>",
            "<MID>",
            "▁<MID>",
            "<|code_middle|>",
            "<|middle|>",
        ],
        false,
    ),
    (&["fim_pad"], &["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"], true),
    (&["fim_rep"], &["<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"], true),
    (&["fim_sep"], &["<|file_sep|>"], true),
];

impl Special {
    /// Reads the ids, completes them by text and settles the attributes in `vocab`.
    ///
    /// # Errors
    /// A begin, end or unknown id outside the vocabulary. Other ids outside it are ignored.
    pub(super) fn read(meta: &Metadata, vocab: &mut Vocab, defaults: Defaults) -> Result<Special, TokenizerError> {
        let n_vocab = vocab.len();
        let required = |key: &'static str, default: Option<u32>| match meta.get_u32(key)? {
            Some(id) if id as usize >= n_vocab => Err(TokenizerError::Id { key, id, n_vocab }),
            Some(id) => Ok(Some(id)),
            None => Ok(default.filter(|&id| (id as usize) < n_vocab)),
        };
        let bos = required("tokenizer.ggml.bos_token_id", defaults.bos)?;
        let eos = required("tokenizer.ggml.eos_token_id", defaults.eos)?;
        let unk = required("tokenizer.ggml.unknown_token_id", defaults.unk)?;
        let optional = |role: &str| -> Result<Option<u32>, TokenizerError> {
            let id = meta.get_u32(&format!("tokenizer.ggml.{role}_token_id"))?;
            Ok(id.filter(|&id| (id as usize) < n_vocab))
        };
        // So spelled in GGUF.
        let sep = optional("seperator")?.or(defaults.sep.filter(|&id| (id as usize) < n_vocab));
        let mut eot = optional("eot")?;
        let mut eom = optional("eom")?;

        eot = eot.or_else(|| by_text(vocab, &END_OF_TURN));
        eom = eom.or_else(|| by_text(vocab, &["<|eom_id|>"]));
        let mut eog = BTreeSet::new();
        let mut fim = [None; FIM.len()];
        for (found, (keys, texts, ends)) in fim.iter_mut().zip(FIM) {
            let mut id = None;
            for key in keys {
                id = optional(key)?.or(id);
            }
            *found = id.or_else(|| by_text(vocab, texts));
            eog.extend(found.filter(|_| ends));
        }
        for id in 0..n_vocab as u32 {
            let unused = vocab.text(id).windows(6).any(|w| w == b"unused");
            if unused && vocab.attr(id) & CONTROL != 0 {
                *vocab.attr_mut(id) |= UNUSED;
            }
        }
        for text in END_OF_TURN.iter().chain(&END_OF_GENERATION) {
            if let Some(id) = vocab.id(text.as_bytes()) {
                eog.insert(id);
                *vocab.attr_mut(id) |= CONTROL;
            }
        }
        for text in ["<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"] {
            if let Some(id) = vocab.id(text.as_bytes()) {
                *vocab.attr_mut(id) = USER_DEFINED;
            }
        }
        eog.extend([eos, eot, eom].into_iter().flatten());
        settle_end_tokens(vocab, &mut eog);

        let mut split: Vec<u32> =
            (0..n_vocab as u32).filter(|&id| vocab.attr(id) & (CONTROL | USER_DEFINED | UNKNOWN) != 0).collect();
        split.sort_by_key(|&id| std::cmp::Reverse(vocab.text(id).len()));
        let mut matcher = Trie::new();
        for (rank, &id) in split.iter().enumerate() {
            matcher.insert(vocab.text(id), rank as u32);
        }
        set_strip_attributes(meta, vocab, &split)?;
        Ok(Special { bos, eos, unk, sep, fim, eog, split, matcher })
    }

    /// The tokens of texts with a gap, for a model that was trained on them.
    pub(super) fn fill_in(&self) -> Option<FillIn> {
        let [prefix, suffix, middle, _, repository, file] = self.fim;
        Some(FillIn { prefix: prefix?, suffix: suffix?, middle: middle?, repository, file })
    }

    pub(super) fn is_eog(&self, id: u32) -> bool {
        self.eog.contains(&id)
    }

    /// Splits the special tokens off `text`: longer tokens first, each from left to right. Without
    /// `parse_special` only user-defined tokens are split off.
    pub(super) fn partition<'a>(&self, vocab: &Vocab, text: &'a str, parse_special: bool) -> Vec<Fragment<'a>> {
        let mut fragments = Vec::new();
        if text.is_empty() {
            return fragments;
        }
        fragments.push(Fragment::Text(text));
        for rank in self.present(text.as_bytes()) {
            let id = self.split[rank as usize];
            let attr = vocab.attr(id);
            if !parse_special && attr & (CONTROL | UNKNOWN) != 0 {
                continue;
            }
            // A text cannot hold a token that is not UTF-8.
            let Ok(token) = std::str::from_utf8(vocab.text(id)) else {
                continue;
            };
            let mut next = Vec::with_capacity(fragments.len());
            for fragment in fragments {
                match fragment {
                    Fragment::Text(part) => split_off(&mut next, part, id, token, attr),
                    token => next.push(token),
                }
            }
            fragments = next;
        }
        fragments
    }

    /// Ranks of the special tokens that occur in `text`, in order.
    fn present(&self, text: &[u8]) -> BTreeSet<u32> {
        let mut ranks = BTreeSet::new();
        for start in 0..text.len() {
            let mut node = Trie::ROOT;
            for &byte in &text[start..] {
                match self.matcher.step(node, byte) {
                    Some(next) => node = next,
                    None => break,
                }
                ranks.extend(self.matcher.value(node));
            }
        }
        ranks
    }
}

fn split_off<'a>(out: &mut Vec<Fragment<'a>>, mut rest: &'a str, id: u32, token: &str, attr: Attr) {
    // The white space of C: char::is_ascii_whitespace leaves the vertical tab out.
    let space = |c: char| matches!(c, '\t'..='\r' | ' ');
    while let Some(at) = rest.find(token) {
        let mut left = &rest[..at];
        if attr & LSTRIP != 0 {
            left = left.trim_end_matches(space);
        }
        if !left.is_empty() {
            out.push(Fragment::Text(left));
        }
        out.push(Fragment::Token(id));
        rest = &rest[at + token.len()..];
        if attr & RSTRIP != 0 {
            rest = rest.trim_start_matches(space);
        }
    }
    if !rest.is_empty() {
        out.push(Fragment::Text(rest));
    }
}

/// The lowest id among `texts`, made a control token.
fn by_text(vocab: &mut Vocab, texts: &[&str]) -> Option<u32> {
    let id = texts.iter().filter_map(|text| vocab.id(text.as_bytes())).min()?;
    *vocab.attr_mut(id) |= CONTROL;
    Some(id)
}

/// Takes back end tokens that some vocabularies use for something else.
fn settle_end_tokens(vocab: &mut Vocab, eog: &mut BTreeSet<u32>) {
    let among = |eog: &BTreeSet<u32>, text: &str| vocab.id(text.as_bytes()).filter(|id| eog.contains(id));
    let call = among(eog, "<|call|>").or(among(eog, "<|calls|>")).is_some();
    let closing = among(eog, "<|return|>").or(among(eog, "<|flush|>")).is_some();
    let end = among(eog, "<|end|>").filter(|_| call && closing);
    if let Some(id) = end {
        eog.remove(&id);
    }
    let plain = among(eog, "<|tool_response>").or(among(eog, "<|plamo:eos|>"));
    let slash_s = among(eog, "</s>").filter(|_| plain.is_some());
    if let Some(id) = slash_s {
        eog.remove(&id);
    }
    if let Some(id) = end {
        *vocab.attr_mut(id) = USER_DEFINED;
    }
    if let Some(id) = slash_s {
        *vocab.attr_mut(id) = NORMAL;
    }
}

/// Which special tokens swallow the white space beside them; GGUF has no field for it, so the names
/// of model, pre-tokenizer and architecture decide.
fn set_strip_attributes(meta: &Metadata, vocab: &mut Vocab, split: &[u32]) -> Result<(), TokenizerError> {
    let name = meta.get_str("general.name")?.unwrap_or_default().to_ascii_lowercase();
    let pre = meta.get_str("tokenizer.ggml.pre")?.unwrap_or_default();
    let arch = meta.get_str("general.architecture")?.unwrap_or_default();
    let any = |s: &str, parts: &[&str]| parts.iter().any(|p| s.contains(p));
    if any(pre, &["jina-v2-de", "jina-v2-es", "jina-v2-code"]) || any(arch, &["nomic-bert-moe", "jina-bert-v3"]) {
        if let Some(id) = vocab.id(b"<mask>") {
            *vocab.attr_mut(id) |= LSTRIP;
        }
    } else if any(&name, &["phi-3", "phi3"]) {
        for &id in split {
            *vocab.attr_mut(id) |= RSTRIP;
        }
        if let Some(id) = vocab.id(b"</s>") {
            *vocab.attr_mut(id) |= RSTRIP;
        }
        for text in ["<unk>", "<s>", "<|endoftext|>"] {
            if let Some(id) = vocab.id(text.as_bytes()) {
                *vocab.attr_mut(id) &= !RSTRIP;
            }
        }
    } else if any(&name, &["modern-bert"])
        && let Some(id) = vocab.id(b"[MASK]")
    {
        *vocab.attr_mut(id) |= LSTRIP;
    }
    Ok(())
}
