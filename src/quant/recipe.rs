//! The request: what to quantize to, and every exception to it.

use std::sync::Arc;

use regex::Regex;
use trine_formats::gguf::{PackingOptions, Program};
use trine_formats::types::{REGISTRY, TypeId};

use super::anyprec;
use super::encoder::Encoder;
use super::ftype::{Target, nearest};
use super::gptq::Gptq;
use super::imatrix::Importance;
use super::mixture::of_smaller_blocks;
use super::overrides::{KvOverride, RecipeError, bad};
use super::replace::Replacement;
use super::row::Reason;
use super::widely;

/// Everything that decides the output, apart from the input.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// File type, or a copy.
    pub target: Target,
    /// One type for every tensor: no mixture.
    pub pure: bool,
    /// Quantized tensors may be quantized again.
    pub allow_requantize: bool,
    /// `output.weight` stays as it is.
    pub leave_output: bool,
    /// Type of `output.weight`, and of tied embeddings.
    pub output_type: Option<TypeId>,
    /// Type of the token embeddings.
    pub embedding_type: Option<TypeId>,
    /// Types by name, first match wins.
    pub rules: Vec<TensorRule>,
    /// Metadata set in the output; the loader's view of the model follows them too.
    pub overrides: Vec<KvOverride>,
    /// Layers left out, ascending and distinct.
    pub prune: Vec<u32>,
    /// One output file per input shard.
    pub keep_split: bool,
    /// Where llama.cpp's replacement is taken for a type whose block does not fit the width.
    pub fallback: Fallback,
    /// Importance matrix.
    pub importance: Option<Importance>,
    /// Encoder that rounds rows.
    pub encoder: Encoder,
    /// Hessians, for rounding with error feedback.
    pub gptq: Option<Gptq>,
    /// The layout, which the input does not state, of its I2_S, TL1 and TL2 tensors.
    pub input_packing: PackingOptions,
    /// The layout of such tensors in the output.
    pub output_packing: PackingOptions,
    /// The program that the file is for: an allocator offers no type that it does not load. `None` for trine, which loads
    /// all. What is named is made all the same.
    pub reader: Option<Program>,
    /// Options of any-precision codebooks.
    pub anyprec: anyprec::Options,
    /// Options of widely linear matrices.
    pub widely: widely::Options,
    /// Data that tensors get, for [`Target::Replaced`].
    pub replacement: Arc<Replacement>,
}

impl Recipe {
    /// `target` with no exceptions.
    pub fn new(target: Target) -> Recipe {
        Recipe {
            target,
            pure: false,
            allow_requantize: false,
            leave_output: false,
            output_type: None,
            embedding_type: None,
            rules: Vec::new(),
            overrides: Vec::new(),
            prune: Vec::new(),
            keep_split: false,
            fallback: Fallback::Never,
            importance: None,
            encoder: Encoder::default(),
            gptq: None,
            input_packing: PackingOptions::default(),
            output_packing: PackingOptions::default(),
            reader: Some(Program::LlamaCpp),
            anyprec: anyprec::Options::default(),
            widely: widely::Options::default(),
            replacement: Arc::default(),
        }
    }
}

/// For which types llama.cpp's replacement is taken where rows are not whole blocks. Elsewhere such a tensor is a
/// problem of the plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fallback {
    /// For none.
    #[default]
    Never,
    /// For those that lose a little instead of what the type was chosen for: K-quants and the IQ types, which get a
    /// type of about as many bits or more. Ternary types and the like are asked for by name.
    Mixtures,
    /// For every type that has one.
    Always,
}

impl Fallback {
    /// True if `wanted` may be replaced.
    pub(super) fn takes(self, wanted: TypeId) -> bool {
        match self {
            Fallback::Never => false,
            Fallback::Always => true,
            Fallback::Mixtures => match wanted {
                TypeId::Q2_0 | TypeId::TQ1_0 | TypeId::TQ2_0 => false,
                _ => of_smaller_blocks(wanted).is_some_and(|smaller| smaller != wanted),
            },
        }
    }
}

/// Reads a tensor type that trine can name, such as `q4_K` or `f16`.
pub fn parse_type(text: &str) -> Result<TypeId, RecipeError> {
    TypeId::from_name(text).map_or_else(
        || {
            let hint = nearest(text, REGISTRY.iter().map(|t| t.name))
                .map_or(String::new(), |n| format!("; did you mean {n}?"));
            let names: Vec<&str> =
                REGISTRY.iter().filter(|t| t.encode.is_some() || t.is_per_tensor()).map(|t| t.name).collect();
            bad(format!("unknown tensor type '{text}'{hint} (types: {})", names.join(" ")))
        },
        Ok,
    )
}

/// `PATTERN=TYPE`: tensors whose name the pattern is found in get the type.
#[derive(Clone, Debug)]
pub struct TensorRule {
    /// The regular expression as written, in lower case.
    pub pattern: String,
    /// The type.
    pub ty: TypeId,
    names: Names,
}

/// The tensors that a rule names.
#[derive(Clone, Debug)]
enum Names {
    /// All whose names this is found in.
    Like(Regex),
    /// The tensor of this name.
    One(String),
}

impl TensorRule {
    /// Reads `PATTERN=TYPE`. The pattern ends at the first `=`, is lower-cased and searched for
    /// anywhere in the name, as llama-quantize does.
    pub fn parse(text: &str) -> Result<TensorRule, RecipeError> {
        let Some((pattern, ty)) = text.split_once('=') else {
            return bad(format!("tensor rule '{text}' is not PATTERN=TYPE, such as ffn_down=q6_k"));
        };
        if pattern.is_empty() || ty.is_empty() {
            let missing = if pattern.is_empty() { "pattern" } else { "type" };
            return bad(format!("tensor rule '{text}' has no {missing}: write PATTERN=TYPE"));
        }
        let pattern = pattern.to_ascii_lowercase();
        let ty = parse_type(ty)?;
        match Regex::new(&pattern) {
            Ok(regex) => Ok(TensorRule { pattern, ty, names: Names::Like(regex) }),
            Err(e) => {
                let why = e.to_string();
                let why = why.lines().last().unwrap_or_default().trim_start_matches("error: ");
                bad(format!("tensor rule '{text}': the pattern is not a regular expression: {why}"))
            }
        }
    }

    /// Reads a file of rules separated by white space.
    pub fn parse_file(text: &str) -> Result<Vec<TensorRule>, RecipeError> {
        text.split_ascii_whitespace().map(TensorRule::parse).collect()
    }

    /// The rule for one tensor, with the pattern that means it.
    pub(super) fn named(name: &str, ty: TypeId) -> TensorRule {
        TensorRule { pattern: format!("^{}$", regex::escape(name)), ty, names: Names::One(name.to_owned()) }
    }

    /// True if the rule names this tensor.
    pub fn matches(&self, name: &str) -> bool {
        match &self.names {
            Names::Like(regex) => regex.is_match(name),
            Names::One(one) => one == name,
        }
    }

    /// The reason that its tensors have their type.
    pub(super) fn reason(&self) -> Reason {
        match &self.names {
            Names::Like(_) => Reason::Rule(self.pattern.clone()),
            Names::One(_) => Reason::Allocated,
        }
    }
}

/// Reads `--prune-layers`: numbers separated by commas.
pub fn parse_layers(text: &str) -> Result<Vec<u32>, RecipeError> {
    let mut layers = Vec::new();
    for part in text.split(',') {
        // layer numbers are C ints in tensor names
        match part.trim().parse::<u32>() {
            Ok(n) if i32::try_from(n).is_ok() => layers.push(n),
            _ => return bad(format!("'{part}' is not a layer number: write 3,4,5")),
        }
    }
    layers.sort_unstable();
    layers.dedup();
    Ok(layers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules() {
        let rule = TensorRule::parse("BLK\\.[0-3]\\.ffn_(up|gate)=Q8_0").unwrap();
        assert_eq!(rule.ty, TypeId::Q8_0);
        assert!(rule.matches("blk.2.ffn_up.weight") && !rule.matches("blk.12.ffn_up.weight"));
        for wrong in ["ffn_down", "=q8_0", "ffn_down=", "ffn_down=q9", "ffn_(=q8_0", "(?=x)y=q8_0"] {
            let message = TensorRule::parse(wrong).unwrap_err().to_string();
            assert!(!message.contains('\n'), "{message}");
        }
        assert_eq!(TensorRule::parse_file("a=f16\n b=f32\t c=q8_0\n").unwrap().len(), 3);
        let named = TensorRule::named("blk.1.ffn_up.weight", TypeId::Q8_0);
        let parsed = TensorRule::parse(&format!("{}={}", named.pattern, named.ty)).unwrap();
        for name in ["blk.1.ffn_up.weight", "blk.11.ffn_up.weight", "blk.1.ffn_up.weights", "blk-1.ffn_up.weight"] {
            assert_eq!(named.matches(name), parsed.matches(name), "{name}");
        }
    }

    #[test]
    fn layers() {
        assert_eq!(parse_layers("3,1,3"), Ok(vec![1, 3]));
        assert!(parse_layers("1,,2").is_err() && parse_layers("-1").is_err());
    }
}
