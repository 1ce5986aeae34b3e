//! File types: the names llama-quantize takes, their numbers in `general.file_type`, and the tensor
//! type each of them is named after.

use std::fmt;

use trine_formats::types::TypeId;

use super::anyprec;
use super::packed::Packed;
use super::rotate::{Rotation, Turn};

macro_rules! ftypes {
    ($($name:ident = $id:literal, $group:ident, $default:ident, $note:literal;)*) => {
        /// The type of a whole file (`llama_ftype`). Most are mixtures: see `super::mixture`.
        #[allow(non_camel_case_types, missing_docs, reason = "the names are llama.cpp's")]
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        #[repr(u32)]
        pub enum Ftype { $($name = $id),* }

        impl Ftype {
            /// Every file type, in the order in which help shows them.
            pub const ALL: &[Ftype] = &[$(Ftype::$name),*];

            /// llama-quantize's name.
            pub fn name(self) -> &'static str {
                match self { $(Ftype::$name => stringify!($name)),* }
            }

            /// The type a tensor gets where no rule says otherwise.
            pub fn default_type(self) -> TypeId {
                match self { $(Ftype::$name => TypeId::$default),* }
            }

            /// The heading it stands under in help.
            pub fn group(self) -> Group {
                match self { $(Ftype::$name => Group::$group),* }
            }

            /// A remark about it, in a few words.
            pub fn note(self) -> &'static str {
                match self { $(Ftype::$name => $note),* }
            }
        }
    };
}

ftypes! {
    F32 = 0, Float, F32, "no loss";
    F16 = 1, Float, F16, "half precision";
    BF16 = 32, Float, BF16, "the upper half of f32";
    TQ1_0 = 36, Ternary, TQ1_0, "ternary weights, 5 per byte; embeddings and output as k-quants";
    TQ2_0 = 37, Ternary, TQ2_0, "ternary weights, 4 per byte; embeddings and output as k-quants";
    Q1_0 = 40, Ternary, Q1_0, "signs, a scale per 128";
    Q2_0 = 41, Ternary, Q2_0, "codes -1 0 1 2, a scale per 64";
    Q4_0 = 2, Legacy, Q4_0, "scale per 32";
    Q4_1 = 3, Legacy, Q4_1, "scale and minimum per 32";
    Q5_0 = 8, Legacy, Q5_0, "scale per 32";
    Q5_1 = 9, Legacy, Q5_1, "scale and minimum per 32";
    Q8_0 = 7, Legacy, Q8_0, "scale per 32, close to lossless";
    IQ4_NL = 25, Legacy, IQ4_NL, "non-linear code, scale per 32";
    MXFP4_MOE = 38, Legacy, MXFP4, "experts MXFP4, the rest Q8_0";
    Q2_K = 10, K, Q2_K, "attention values and ffn_down with more bits";
    Q2_K_S = 21, K, Q2_K, "needs an importance matrix";
    Q3_K_S = 11, K, Q3_K, "small";
    Q3_K_M = 12, K, Q3_K, "medium; also called Q3_K";
    Q3_K_L = 13, K, Q3_K, "large";
    Q4_K_S = 14, K, Q4_K, "small";
    Q4_K_M = 15, K, Q4_K, "medium; also called Q4_K";
    Q5_K_S = 16, K, Q5_K, "small";
    Q5_K_M = 17, K, Q5_K, "medium; also called Q5_K";
    Q6_K = 18, K, Q6_K, "one type but for fallbacks";
    IQ1_S = 24, Iq, IQ1_S, "1.6 bits; needs an importance matrix";
    IQ1_M = 31, Iq, IQ1_M, "1.75 bits; needs an importance matrix";
    IQ2_XXS = 19, Iq, IQ2_XXS, "2.1 bits; needs an importance matrix";
    IQ2_XS = 20, Iq, IQ2_XS, "2.3 bits; needs an importance matrix";
    IQ2_S = 28, Iq, IQ2_XS, "2.3 bits, attention with more; needs an importance matrix";
    IQ2_M = 29, Iq, IQ2_S, "2.6 bits, attention with more; needs an importance matrix";
    IQ3_XXS = 23, Iq, IQ3_XXS, "3.1 bits; needs an importance matrix";
    IQ3_XS = 22, Iq, IQ3_S, "3.1 to 3.4 bits; needs an importance matrix";
    IQ3_S = 26, Iq, IQ3_S, "3.4 bits";
    IQ3_M = 27, Iq, IQ3_S, "3.4 bits, attention with more";
    IQ4_XS = 30, Iq, IQ4_XS, "4.25 bits, the levels of IQ4_NL";
    IQ2_KS = 147, Ik, IQ2_KS, "a scale per row";
    IQ2_K = 138, Ik, IQ2_K, "";
    IQ2_KL = 155, Ik, IQ2_KL, "points for pairs of weights, a scale per row";
    IQ3_KS = 154, Ik, IQ3_KS, "a scale per row";
    IQ3_K = 139, Ik, IQ3_K, "the size of Q3_K";
    IQ4_KS = 145, Ik, IQ4_KS, "a scale per row; the size of IQ4_XS";
    IQ4_K = 140, Ik, IQ4_K, "the size of Q4_K";
    IQ5_KS = 150, Ik, IQ5_KS, "a scale per row";
    IQ5_K = 141, Ik, IQ5_K, "the size of Q5_K";
    IQ6_K = 142, Ik, IQ6_K, "a little more than Q6_K";
}

/// How file types are grouped in help.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Group {
    /// Floats.
    Float,
    /// One to two bits: ternary and sign codes.
    Ternary,
    /// One level of scales.
    Legacy,
    /// Super-blocks of 256 with quantized scales.
    K,
    /// Codebooks: of points, or of uneven levels.
    Iq,
    /// Types of ik_llama.cpp: groups choose between two codebooks.
    Ik,
}

impl Group {
    /// Every group, in the order of [`Ftype::ALL`].
    pub const ALL: &[Group] = &[Group::Float, Group::Ternary, Group::Legacy, Group::K, Group::Iq, Group::Ik];

    /// The heading.
    pub fn title(self) -> &'static str {
        match self {
            Group::Float => "floats",
            Group::Ternary => "ternary and sign codes",
            Group::Legacy => "one scale per block",
            Group::K => "k-quants",
            Group::Iq => "i-quants: codebooks",
            Group::Ik => "ik_llama.cpp's, for it and for trine; llama.cpp does not read them",
        }
    }
}

impl fmt::Display for Ftype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The type that was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// Quantize.
    Ftype(Ftype),
    /// Make a file of bitnet.cpp.
    Packed(Packed),
    /// Keep every tensor; the file is put into the order and with the keys of a quantized one.
    Copy,
    /// Make a file that runs at several widths, or a SqueezeLLM one.
    AnyPrecision(anyprec::Target),
    /// Take one width out of such a file.
    Width(u8),
    /// Make matrices widely linear, or translate those of the Fairy2i fork of llama.cpp.
    Widely,
    /// Make matrices dense again that are widely linear.
    Dense(TypeId),
    /// Rotate matrices, or rotate them back.
    Turned(Rotation),
    /// Give tensors the data of [`Recipe::replacement`](super::Recipe::replacement).
    Replaced,
}

/// The name of the target with widely linear matrices.
const WIDELY: &str = "FAIRY2I";

/// Names that stand for another file type.
const ALIASES: &[(&str, Ftype)] = &[("Q3_K", Ftype::Q3_K_M), ("Q4_K", Ftype::Q4_K_M), ("Q5_K", Ftype::Q5_K_M)];

impl Target {
    /// Reads a name in any case (`q4_k_m`, `COPY`, `AP3-8`) or a number of `general.file_type`.
    pub fn parse(text: &str) -> Option<Target> {
        if text.eq_ignore_ascii_case("copy") {
            return Some(Target::Copy);
        }
        if text.eq_ignore_ascii_case(WIDELY) {
            return Some(Target::Widely);
        }
        let named = Ftype::ALL.iter().copied().find(|t| t.name().eq_ignore_ascii_case(text));
        let packed = || {
            let mut all = Packed::ALL.into_iter();
            all.find(|p| p.name().eq_ignore_ascii_case(text))
        };
        if let Some(packed) = packed() {
            return Some(Target::Packed(packed));
        }
        let alias = || ALIASES.iter().find(|(n, _)| n.eq_ignore_ascii_case(text)).map(|&(_, t)| t);
        let number = || {
            let id: u32 = text.parse().ok()?;
            Ftype::ALL.iter().copied().find(|&t| t as u32 == id)
        };
        let ftype = named.or_else(alias).or_else(number).map(Target::Ftype);
        ftype.or_else(|| anyprec::Target::parse(text).map(Target::AnyPrecision))
    }

    /// True of the files of llama-quantize and bitnet.cpp.
    pub fn is_usual(&self) -> bool {
        matches!(self, Target::Ftype(_) | Target::Packed(_) | Target::Copy)
    }

    /// The name shown to people and used in a default file name.
    pub fn name(self) -> String {
        match self {
            Target::Ftype(t) => t.name().to_owned(),
            Target::Packed(p) => p.name().to_owned(),
            Target::Copy => "COPY".to_owned(),
            Target::AnyPrecision(t) => t.name(),
            Target::Width(bits) => format!("{bits} bits"),
            Target::Widely => WIDELY.to_owned(),
            Target::Dense(ty) => ty.to_string(),
            Target::Turned(Rotation { turn: Turn::Rotate { block, .. }, .. }) => {
                format!("rotated in blocks of {block}")
            }
            Target::Turned(Rotation { turn: Turn::Unrotate, .. }) => "rotated back".to_owned(),
            Target::Replaced => "tuned".to_owned(),
        }
    }

    /// The names of llama-quantize's and bitnet.cpp's files that [`Target::parse`] takes.
    pub fn names() -> impl Iterator<Item = &'static str> {
        let aliases = ALIASES.iter().map(|&(n, _)| n);
        Ftype::ALL.iter().map(|t| t.name()).chain(Packed::ALL.map(Packed::name)).chain(aliases).chain(["COPY"])
    }
}

/// The candidate closest to `word` by edit distance, if one is close enough to be a slip of the hand.
pub fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |s: &str| s.to_ascii_lowercase().replace(['_', '-'], "");
    let word = plain(word);
    candidates
        .map(|c| (edit_distance(word.as_bytes(), plain(c).as_bytes()), c))
        .min_by_key(|&(d, _)| d)
        .filter(|&(d, c)| d <= 1 + c.len() / 4)
        .map(|(_, c)| c)
}

/// Levenshtein distance.
fn edit_distance(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let substitute = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substitute.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// Set in `general.file_type` when it was guessed from the tensors (`LLAMA_FTYPE_GUESSED`).
pub const GUESSED: u32 = 1024;

/// The number llama.cpp gives a file without `general.file_type`, from its most frequent tensor type.
pub fn guessed_id(most_frequent: TypeId) -> u32 {
    let id = match most_frequent {
        TypeId::NVFP4 => 39,
        TypeId::Q3_K => Ftype::Q3_K_M as u32,
        TypeId::Q4_K => Ftype::Q4_K_M as u32,
        TypeId::Q5_K => Ftype::Q5_K_M as u32,
        TypeId::IQ2_S => Ftype::IQ2_S as u32,
        // MXFP4 has no guess of its own, and Q2_K_S is never guessed for Q2_K.
        TypeId::MXFP4 => Ftype::F32 as u32,
        ty => Ftype::ALL
            .iter()
            .find(|t| t.default_type() == ty && t.name().eq_ignore_ascii_case(&ty.to_string()))
            .map_or(Ftype::F32 as u32, |&t| t as u32),
    };
    id | GUESSED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_numbers_and_aliases() {
        assert_eq!(Target::parse("q4_k_m"), Some(Target::Ftype(Ftype::Q4_K_M)));
        assert_eq!(Target::parse("Q4_K"), Some(Target::Ftype(Ftype::Q4_K_M)));
        assert_eq!(Target::parse("37"), Some(Target::Ftype(Ftype::TQ2_0)));
        assert_eq!(Target::parse("0"), Some(Target::Ftype(Ftype::F32)));
        assert_eq!(Target::parse("copy"), Some(Target::Copy));
        assert_eq!(Target::parse("iq4_ks"), Some(Target::Ftype(Ftype::IQ4_KS)));
        assert_eq!(Target::parse("140"), Some(Target::Ftype(Ftype::IQ4_K)));
        for gone in ["4", "5", "6", "33", "39", "1024", "-1", "", "Q4", "Q8_K"] {
            assert_eq!(Target::parse(gone), None, "{gone}");
        }
    }

    #[test]
    fn suggestions() {
        assert_eq!(nearest("Q4KM", Target::names()), Some("Q4_K_M"));
        assert_eq!(nearest("tq20", Target::names()), Some("TQ2_0"));
        assert_eq!(nearest("something", Target::names()), None);
    }

    #[test]
    fn guesses() {
        assert_eq!(guessed_id(TypeId::F16), 1024 + 1);
        assert_eq!(guessed_id(TypeId::Q4_K), 1024 + 15);
        assert_eq!(guessed_id(TypeId::Q2_K), 1024 + 10);
        assert_eq!(guessed_id(TypeId::IQ2_XS), 1024 + 20);
        assert_eq!(guessed_id(TypeId::IQ3_S), 1024 + 26);
        assert_eq!(guessed_id(TypeId::TQ1_0), 1024 + 36);
        assert_eq!(guessed_id(TypeId::MXFP4), 1024);
        assert_eq!(guessed_id(TypeId::IQ2_KL), 1024 + 155);
        assert_eq!(guessed_id(TypeId::I32), 1024);
    }
}
