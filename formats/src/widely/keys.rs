//! The keys `fairy2i.wl.*` of a file.

use super::{ARCHITECTURE, MAX_STAGES, Profile, Rule, Scope, TieRule, VERSION, WidelyError};
use crate::gguf::{Metadata, Value, is_fairy2i_fork};

macro_rules! keys {
    ($($name:ident = $key:literal;)*) => { $(const $name: &str = concat!("fairy2i.", $key);)* };
}

keys! {
    KEY_BASE_ARCH = "base_arch";
    KEY_VERSION = "wl.version";
    KEY_STAGES = "wl.stages";
    KEY_SCOPE = "wl.scale_scope";
    KEY_PROFILE = "wl.numeric_profile";
    KEY_TIE = "wl.tie_rule";
    KEY_OUTPUT = "wl.lm_head";
    KEY_ROPE = "rope.style";
}

/// How the output matrix is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OutputForm {
    /// Quantized like the matrices of the blocks.
    #[default]
    Widely,
    /// Rows of floats; also where the embeddings serve as output.
    Dense,
}

/// The architecture whose graph the model computes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BaseArch {
    /// LLaMA and what shares its graph.
    #[default]
    Llama,
    /// The same with biases on queries, keys and values.
    Qwen2,
    /// Norms on every query and key head instead.
    Qwen3,
}

/// A value of a key that is one of a few words.
trait Word: Copy + PartialEq + 'static {
    /// All values with their words.
    const ALL: &'static [(Self, &'static str)];
    /// The words, for messages.
    const EXPECTED: &'static str;

    fn word(self) -> &'static str {
        let found = Self::ALL.iter().find(|(value, _)| *value == self);
        found.map_or("", |(_, word)| word)
    }

    fn of(text: &str) -> Option<Self> {
        let found = Self::ALL.iter().find(|(_, word)| *word == text);
        found.map(|(value, _)| *value)
    }
}

macro_rules! words {
    ($($ty:ident: $expected:literal, $($value:ident = $word:literal),+;)*) => { $(
        impl Word for $ty {
            const ALL: &'static [($ty, &'static str)] = &[$(($ty::$value, $word)),+];
            const EXPECTED: &'static str = $expected;
        }

        impl $ty {
            /// The word that stands for it in keys and options.
            pub fn name(self) -> &'static str {
                self.word()
            }
        }
    )* };
}

words! {
    OutputForm: "'wl' or 'dense'", Widely = "wl", Dense = "dense";
    BaseArch: "'llama', 'qwen2' or 'qwen3'", Llama = "llama", Qwen2 = "qwen2", Qwen3 = "qwen3";
    Scope: "'tensor', 'row' or 'tile64'", Tensor = "tensor", Row = "row", Tile64 = "tile64";
    Profile: "'script_bf16' or 'f32'", ScriptBf16 = "script_bf16", F32 = "f32";
    TieRule: "'phase' or 'tile64'", Phase = "phase", Tile64 = "tile64";
}

impl BaseArch {
    /// The architecture of this name, where it is one whose matrices can be made widely linear.
    pub fn of_architecture(name: &str) -> Option<BaseArch> {
        BaseArch::of(name)
    }

    /// The base architecture that a file's keys state.
    pub(super) fn read(meta: &Metadata) -> Result<BaseArch, WidelyError> {
        word(meta, KEY_BASE_ARCH)
    }
}

/// The values of the keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Architecture of the graph.
    pub base: BaseArch,
    /// How the matrices were quantized.
    pub rule: Rule,
    /// The form of the output matrix.
    pub output: OutputForm,
}

impl Header {
    /// Reads the keys.
    ///
    /// # Errors
    /// Another version, or the layout of the fork; keys that are missing, of another type, or have values that nobody
    /// knows.
    pub fn read(meta: &Metadata) -> Result<Header, WidelyError> {
        if is_fairy2i_fork(meta) && meta.get(KEY_VERSION).is_none() {
            return Err(WidelyError::Fork);
        }
        let version = required(KEY_VERSION, meta.get_u32(KEY_VERSION)?)?;
        if version != VERSION {
            return Err(WidelyError::Version(version));
        }
        let stages = required(KEY_STAGES, meta.get_u32(KEY_STAGES)?)?;
        let stages = match usize::try_from(stages) {
            Ok(stages @ 1..=MAX_STAGES) => stages,
            _ => {
                return Err(WidelyError::Key { key: KEY_STAGES, found: stages.to_string(), expected: "1 to 4" });
            }
        };
        let rope = meta.get_str(KEY_ROPE)?.unwrap_or("neox");
        if rope != "neox" {
            return Err(WidelyError::Key { key: KEY_ROPE, found: rope.to_owned(), expected: "'neox'" });
        }
        Ok(Header {
            base: word(meta, KEY_BASE_ARCH)?,
            rule: Rule {
                stages,
                scope: word(meta, KEY_SCOPE)?,
                profile: word(meta, KEY_PROFILE)?,
                tie: word(meta, KEY_TIE)?,
            },
            output: word(meta, KEY_OUTPUT)?,
        })
    }

    /// Sets the keys.
    pub fn write(&self, meta: &mut Metadata) {
        let mut set = |key: &str, word: &str| meta.set(key, Value::str(word));
        set(KEY_BASE_ARCH, self.base.word());
        set(KEY_SCOPE, self.rule.scope.word());
        set(KEY_PROFILE, self.rule.profile.word());
        set(KEY_TIE, self.rule.tie.word());
        set(KEY_OUTPUT, self.output.word());
        set(KEY_ROPE, "neox");
        meta.set(KEY_VERSION, Value::U32(VERSION));
        meta.set(KEY_STAGES, Value::U32(self.rule.stages as u32));
    }

    /// True if the file has widely linear matrices.
    pub fn is_in(meta: &Metadata) -> bool {
        matches!(meta.get_str("general.architecture"), Ok(Some(name)) if name == ARCHITECTURE)
    }

    /// The metadata of a model of architecture `from` as that of the same model of architecture `to`: keys keep their
    /// places.
    pub fn rename(meta: &Metadata, from: &str, to: &str) -> Metadata {
        let prefix = format!("{from}.");
        let mut out = Metadata::default();
        for (key, value) in meta.iter() {
            match key.strip_prefix(&prefix) {
                Some(rest) => out.set(&format!("{to}.{rest}"), value.clone()),
                None => out.set(key, value.clone()),
            }
        }
        out.set("general.architecture", Value::str(to));
        out
    }

    /// Sets the keys that files of this kind state and others may leave out.
    pub fn complete(meta: &mut Metadata) {
        let name = |key: &str| format!("{ARCHITECTURE}.{key}");
        let number = |meta: &Metadata, key: &str| meta.get_u32(&name(key)).ok().flatten();
        let heads = number(meta, "attention.head_count");
        let embd = number(meta, "embedding_length");
        let head_dim = number(meta, "attention.key_length");
        let head_dim = head_dim.or_else(|| embd?.checked_div(heads?));
        let tokens = meta.get_strs("tokenizer.ggml.tokens").ok().flatten();
        let tokens = tokens.and_then(|t| u32::try_from(t.len()).ok());
        let numbers = [("attention.head_count_kv", heads), ("rope.dimension_count", head_dim), ("vocab_size", tokens)];
        for (key, assumed) in numbers {
            if let (None, Some(n)) = (meta.get(&name(key)), assumed) {
                meta.set(&name(key), Value::U32(n));
            }
        }
        let base = name("rope.freq_base");
        if meta.get(&base).is_none() {
            meta.set(&base, Value::F32(10_000.0));
        }
    }

    /// Takes the keys away.
    pub fn remove(meta: &mut Metadata) {
        let keys = [KEY_BASE_ARCH, KEY_VERSION, KEY_STAGES, KEY_SCOPE];
        let more = [KEY_PROFILE, KEY_TIE, KEY_OUTPUT, KEY_ROPE];
        for key in keys.into_iter().chain(more) {
            meta.remove(key);
        }
    }
}

fn required<T>(key: &'static str, value: Option<T>) -> Result<T, WidelyError> {
    value.ok_or(WidelyError::MissingKey(key))
}

fn word<W: Word>(meta: &Metadata, key: &'static str) -> Result<W, WidelyError> {
    let text = required(key, meta.get_str(key)?)?;
    W::of(text).ok_or_else(|| WidelyError::Key { key, found: text.to_owned(), expected: W::EXPECTED })
}
