//! The ways to round a row to blocks, by name. Another one is a folder and a line of [`Encoder::ALL`].

use trine_formats::types::numbers::Numbers;
use trine_formats::types::{EncodeFn, TypeId};

use super::hqq;
use super::row::{ROUNDING, Row};
use super::unbiased::RowEncoder;
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
    /// True if the scales of a row are then multiplied by what its products ask for.
    unbiased: bool,
}

impl Encoder {
    /// All of them; the first is llama-quantize's.
    pub const ALL: &[Encoder] = &[
        Encoder { name: "nearest", about: "as llama-quantize does", own: kernels::encode_rows, unbiased: false },
        Encoder { name: "hqq", about: "half-quadratic quantization", own: hqq::encoder, unbiased: false },
        Encoder::UNBIASED,
    ];

    /// The one for types that are chosen tensor by tensor: tensors of different types shrink differently, and what one of
    /// them loses nothing behind it takes back.
    pub const UNBIASED: Encoder = Encoder {
        name: "unbiased",
        about: "as llama-quantize does, and scales then multiplied so that products are neither too small nor too large",
        own: kernels::encode_rows,
        unbiased: true,
    };

    /// Finds one by its name.
    pub fn named(name: &str) -> Option<Encoder> {
        Encoder::ALL.iter().copied().find(|e| e.name == name)
    }

    /// True if it knows a type; others are left to the first of all.
    pub fn knows(&self, ty: TypeId) -> bool {
        let has_scales = || ty.info().is_some_and(|info| Numbers::of(ty, info.block).is_some());
        (self.own)(ty, Isa::detect()).is_some() && (!self.unbiased || has_scales())
    }

    /// True if types that it does not know lose nothing by it.
    pub(super) fn is_for_any(&self) -> bool {
        self.unbiased
    }

    /// Its name and how many of these rows it rounds itself, where it is not the usual one.
    pub fn rows_of(&self, rows: &[Row]) -> Option<(&'static str, usize)> {
        let own = rows.iter().filter(|r| r.is_encoded() && r.method == ROUNDING && self.knows(r.to));
        (self.name != Encoder::default().name).then(|| (self.name, own.count()))
    }

    /// Encodes rows of `columns` weights to a type.
    pub(super) fn of(&self, ty: TypeId, columns: usize, isa: Isa) -> Option<RowEncoder> {
        let encoder = RowEncoder::new((self.own)(ty, isa).or_else(|| kernels::encode_rows(ty, isa))?);
        Some(if self.unbiased { encoder.unbiased(ty, columns, isa) } else { encoder })
    }
}

impl Default for Encoder {
    fn default() -> Encoder {
        Encoder::ALL[0]
    }
}
