//! Sizes of synthetic models: those with a name, and free ones.

use std::fmt::{self, Display, Formatter};

/// Hyper-parameters of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// The name on the command line; empty for a free size.
    pub name: &'static str,
    /// Width of the residual stream.
    pub hidden: u64,
    /// Width of the feed-forward block.
    pub ffn: u64,
    /// Transformer blocks.
    pub layers: u64,
    /// Query heads.
    pub heads: u64,
    /// Key and value heads.
    pub kv_heads: u64,
    /// Elements per head.
    pub head_dim: u64,
    /// Tokens.
    pub vocab: u64,
    /// Context length.
    pub context: u64,
    /// True if embeddings are the output projection too, where the architecture leaves the choice.
    pub tied: bool,
}

#[rustfmt::skip]
const fn size(
    name: &'static str, [hidden, ffn, layers]: [u64; 3], [heads, kv_heads, head_dim]: [u64; 3], vocab: u64,
    context: u64, tied: bool,
) -> Size {
    Size { name, hidden, ffn, layers, heads, kv_heads, head_dim, vocab, context, tied }
}

/// All sizes with a name: one for tests, b1.58's, TinyLlama's, Llama 2's and Llama 3's, and those that bitnet.cpp's
/// `generate-dummy-bitnet-model.py` makes up, which its paper measures (1.5b, 3.8b, 13b to 100b).
pub const SIZES: [Size; 15] = [
    size("tiny", [256, 512, 2], [4, 2, 64], 512, 512, false),
    size("700m", [1536, 4096, 24], [16, 16, 96], 32_000, 2048, false),
    size("1b", [2048, 8192, 16], [32, 8, 64], 128_256, 4096, true),
    size("1.1b", [2048, 5632, 22], [32, 4, 64], 32_000, 2048, false),
    size("1.5b", [1536, 9216, 28], [32, 32, 48], 32_000, 2048, false),
    size("2b", [2560, 6912, 30], [20, 5, 128], 128_256, 4096, true),
    size("3b", [3072, 8192, 28], [24, 8, 128], 128_256, 4096, true),
    size("3.8b", [3840, 8192, 24], [32, 32, 120], 32_000, 2048, false),
    size("7b", [4096, 11008, 32], [32, 32, 128], 32_000, 4096, false),
    size("8b", [4096, 14336, 32], [32, 8, 128], 128_256, 4096, false),
    size("13b", [5120, 13824, 40], [40, 40, 128], 32_000, 2048, false),
    size("30b", [6656, 16384, 60], [52, 52, 128], 32_000, 2048, false),
    size("70b", [8192, 24576, 80], [64, 64, 128], 32_000, 2048, false),
    size("100b", [8192, 45568, 72], [64, 64, 128], 32_000, 2048, false),
    size("405b", [16384, 53248, 126], [128, 8, 128], 128_256, 4096, false),
];

/// Largest of the numbers of a free size.
const MOST: u64 = 1 << 20;

impl Size {
    /// Reads a name, `KEY=N,...`, or a name and what differs from it, as `7b,layers=4`.
    ///
    /// # Errors
    /// An error that lists the valid choices.
    pub fn parse(text: &str) -> Result<Size, String> {
        let mut parts = text.split(',').peekable();
        let named = parts.next_if(|first| !first.contains('='));
        let mut size = match named {
            Some(name) => {
                let found = SIZES.into_iter().find(|s| s.name.eq_ignore_ascii_case(name));
                found.ok_or_else(|| {
                    let names = SIZES.map(|s| s.name).join(", ");
                    format!("give one of {names} for SIZE, or hidden=N,ffn=N,layers=N")
                })?
            }
            None => size("", [0; 3], [0; 3], 32_000, 4096, false),
        };
        if parts.peek().is_none() {
            return Ok(size);
        }
        size.name = "";
        let mut given = Vec::new();
        for part in parts {
            let (key, value) = part.split_once('=').ok_or_else(|| format!("'{part}' is not KEY=N"))?;
            let mut fields = size.fields();
            let names = fields.each_ref().map(|(name, _)| *name).join(", ");
            let found = fields.iter_mut().find(|(name, _)| *name == key);
            let (_, at) = found.ok_or_else(|| format!("'{key}' is no part of a size: give {names}"))?;
            let value = value.parse().ok().filter(|n| (1..=MOST).contains(n));
            **at = value.ok_or_else(|| format!("give a whole number from 1 to {MOST} for {key}"))?;
            given.push(key);
        }
        size.derive(&given)
    }

    /// The numbers that a free size gives, by their names.
    fn fields(&mut self) -> [(&'static str, &mut u64); 8] {
        [
            ("hidden", &mut self.hidden),
            ("ffn", &mut self.ffn),
            ("layers", &mut self.layers),
            ("heads", &mut self.heads),
            ("kv_heads", &mut self.kv_heads),
            ("head_dim", &mut self.head_dim),
            ("vocab", &mut self.vocab),
            ("context", &mut self.context),
        ]
    }

    /// The heads that the other numbers lead to where they are not `given`: 128 elements each, or 64.
    fn derive(mut self, given: &[&str]) -> Result<Size, String> {
        for (name, value) in [("hidden", self.hidden), ("ffn", self.ffn), ("layers", self.layers)] {
            if value == 0 {
                return Err(format!("a size needs {name}=N: write hidden=4096,ffn=11008,layers=32 or 7b,layers=4"));
            }
        }
        let asks = |key: &str| given.contains(&key);
        if self.heads == 0 || asks("hidden") && !asks("heads") {
            let dim = if asks("head_dim") {
                self.head_dim
            } else if self.hidden.is_multiple_of(128) {
                128
            } else {
                64
            };
            self.heads = self.hidden / dim;
        }
        if self.kv_heads == 0 || asks("hidden") && !asks("kv_heads") {
            self.kv_heads = self.heads;
        }
        if self.heads == 0 || self.kv_heads > self.heads || !self.heads.is_multiple_of(self.kv_heads) {
            let Size { heads, kv_heads, .. } = self;
            return Err(format!("{kv_heads} kv_heads do not divide {heads} heads"));
        }
        if !asks("head_dim") {
            if !self.hidden.is_multiple_of(self.heads) {
                return Err(format!("{} heads do not divide hidden={}; give head_dim=N too", self.heads, self.hidden));
            }
            self.head_dim = self.hidden / self.heads;
        }
        if !self.head_dim.is_multiple_of(2) {
            return Err(format!("head_dim={} is odd, and RoPE turns pairs", self.head_dim));
        }
        Ok(self)
    }
}

impl Display for Size {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if !self.name.is_empty() {
            return f.write_str(self.name);
        }
        let mut size = *self;
        let parts = size.fields().map(|(name, value)| format!("{name}={value}"));
        f.write_str(&parts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_size_is_what_it_says_or_differs_from_a_named_one() {
        let free = Size::parse("hidden=4096,ffn=11008,layers=32").unwrap();
        assert_eq!(Size { name: "7b", ..free }, Size::parse("7B").unwrap());
        let few = Size::parse("8b,layers=4").unwrap();
        assert_eq!((few.layers, few.hidden, few.heads, few.kv_heads, few.vocab), (4, 4096, 32, 8, 128_256));
        // The name of a size is read again to the same size.
        for text in ["8b,layers=4", "hidden=320,ffn=64,layers=1,heads=5,kv_heads=1", "tiny"] {
            let size = Size::parse(text).unwrap();
            assert_eq!(Size::parse(&size.to_string()), Ok(size), "{text}");
        }
    }

    #[test]
    fn a_size_that_cannot_be_is_refused_with_what_to_do() {
        for (text, says) in [
            ("9b", "give one of tiny, 700m"),
            ("hidden=4096,layers=2", "needs ffn=N"),
            ("7b,width=3", "give hidden, ffn"),
            ("7b,layers", "not KEY=N"),
            ("7b,layers=0", "from 1 to"),
            ("7b,layers=99999999999999999999", "from 1 to"),
            ("7b,heads=3", "do not divide"),
            ("7b,kv_heads=5", "do not divide"),
            ("7b,head_dim=3", "odd"),
            ("hidden=7,ffn=8,layers=1", "do not divide"),
        ] {
            let refusal = Size::parse(text).unwrap_err();
            assert!(refusal.contains(says), "{text}: {refusal}");
        }
    }
}
