//! Vectors of texts and heads of ranking models, as the metadata states them.

use super::keys::Keys;
use crate::arch::{Arch, Extent, Pooling};
use crate::model::Problem;

/// The value of a pooling key that says nothing: -1 in a signed number.
const UNSPECIFIED: u32 = u32::MAX;
/// Most outputs of a head, and kinds of tokens.
const MOST: u32 = 1 << 16;

/// From hidden states to vectors of texts and ranks.
#[derive(Clone, Debug)]
pub struct Vectors {
    /// How the hidden states of a text's tokens become its vector, where the file says it.
    pub pooling: Option<Pooling>,
    /// The pooling before the head of a ranking model: one of mean, first and last.
    pub rank_pooling: Pooling,
    /// Names of the head's outputs; none where the file has none.
    pub labels: Vec<String>,
    /// Width between the two projections behind the pooling; 0 without them.
    pub projected: usize,
    /// Kinds of tokens of which each has a vector; 0 where the architecture has none.
    pub token_types: usize,
}

impl Vectors {
    /// Outputs of the head.
    pub fn classes(&self) -> usize {
        self.labels.len().max(1)
    }
}

pub fn vectors(k: &mut Keys<'_>, arch: &Arch, n_embd: usize) -> Vectors {
    let of_rank = pooling(k, "classifier.pooling_type", &[1, 2]);
    let pooling = pooling(k, "pooling_type", &[0, 1, 2, 3, 4]);
    let first_or_last = if arch.attention.both_ways { Pooling::Cls } else { Pooling::Last };
    let has = |extent: Extent| {
        let mut ends = arch.end_tensors();
        ends.any(|t| t.shape.contains(&extent))
    };
    Vectors {
        pooling,
        rank_pooling: match of_rank.or(arch.rank_pooling) {
            Some(Pooling::Mean) => Pooling::Mean,
            _ => first_or_last,
        },
        labels: labels(k),
        projected: if has(Extent::Projected) { projected(k, n_embd) } else { 0 },
        token_types: if has(Extent::TokenTypes) { token_types(k) } else { 0 },
    }
}

fn pooling(k: &mut Keys<'_>, key: &str, known: &[u32]) -> Option<Pooling> {
    let number = k.u32(key).filter(|&n| n != UNSPECIFIED)?;
    if known.contains(&number) {
        return Pooling::by_number(number);
    }
    let names: Vec<String> = known
        .iter()
        .filter_map(|&n| Pooling::by_number(n).map(|pooling| format!("{n} ({})", pooling.name())))
        .collect();
    k.wrong(key, format!("is {number}; trine has {}", names.join(", ")));
    None
}

fn labels(k: &mut Keys<'_>) -> Vec<String> {
    const KEY: &str = "classifier.output_labels";
    let read = k.meta.get_strs(&k.name(KEY));
    let text = |label: &[u8]| String::from_utf8_lossy(label).into_owned();
    let labels: Vec<String> = k.note(read).map_or(Vec::new(), |all| all.iter().map(text).collect());
    if labels.len() > MOST as usize {
        k.wrong(KEY, format!("has {} entries, it may have {MOST}", labels.len()));
    }
    labels
}

/// The width between the projections, whose other ends are as wide as the residual stream.
fn projected(k: &mut Keys<'_>, n_embd: usize) -> usize {
    const WIDEST: u32 = 1 << 20;
    for key in ["dense_2_feat_in", "dense_3_feat_out"] {
        if let Some(n) = k.u32(key).filter(|&n| n != 0 && n as usize != n_embd) {
            k.wrong(key, format!("is {n}, it must be {n_embd}, the width of the model"));
        }
    }
    let [out, into] = ["dense_2_feat_out", "dense_3_feat_in"].map(|key| k.u32(key).unwrap_or(0));
    if out != into {
        k.wrong("dense_3_feat_in", format!("is {into}, and dense_2 has {out} outputs"));
    }
    if out > WIDEST {
        k.wrong("dense_2_feat_out", format!("is {out}, it must be at most {WIDEST}"));
    }
    out as usize
}

fn token_types(k: &mut Keys<'_>) -> usize {
    const KEY: &str = "tokenizer.ggml.token_type_count";
    let read = k.meta.get_u32(KEY);
    let before = k.problems.len();
    let what = match k.note(read) {
        Some(n) if (1..=MOST).contains(&n) => return n as usize,
        Some(n) => format!("is {n}, it must be 1 to {MOST}"),
        None if k.problems.len() > before => return 1,
        None => "is missing".to_owned(),
    };
    k.problems.push(Problem::Key { key: KEY.to_owned(), what });
    1
}
