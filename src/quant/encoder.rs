//! The ways to round a row to blocks, by name. Another one is a folder and a line of [`Encoder::ALL`].

use trine_formats::types::{EncodeFn, TypeId};

use super::hqq;
use super::row::Row;
use crate::kernels::{self, Isa};

/// A way to round rows, each on its own.
#[derive(Clone, Copy, Debug)]
pub struct Encoder {
    /// The name on the command line.
    pub name: &'static str,
    /// Description for people, a few words.
    pub about: &'static str,
    /// The encoder of a type that it knows.
    own: fn(TypeId, Isa) -> Option<EncodeFn>,
}

impl Encoder {
    /// All of them; the first is llama-quantize's.
    pub const ALL: &[Encoder] = &[
        Encoder { name: "nearest", about: "as llama-quantize does", own: kernels::encode_rows },
        Encoder { name: "hqq", about: "half-quadratic quantization", own: hqq::encoder },
    ];

    /// Finds one by its name.
    pub fn named(name: &str) -> Option<Encoder> {
        Encoder::ALL.iter().copied().find(|e| e.name == name)
    }

    /// True if it knows a type; others are left to the first of all.
    pub fn knows(&self, ty: TypeId) -> bool {
        (self.own)(ty, Isa::detect()).is_some()
    }

    /// Its name and how many of these rows it rounds itself, where it is not the usual one.
    pub fn rows_of(&self, rows: &[Row]) -> Option<(&'static str, usize)> {
        let own = rows.iter().filter(|r| r.is_encoded() && self.knows(r.to));
        (self.name != Encoder::default().name).then(|| (self.name, own.count()))
    }

    /// Encodes rows to a type.
    pub(super) fn of(&self, ty: TypeId, isa: Isa) -> Option<EncodeFn> {
        (self.own)(ty, isa).or_else(|| kernels::encode_rows(ty, isa))
    }
}

impl Default for Encoder {
    fn default() -> Encoder {
        Encoder::ALL[0]
    }
}
