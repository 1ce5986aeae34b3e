//! Types of ik_llama.cpp: 256 weights, or fewer in some, as levels of a table or of a sequence of numbers, in groups with
//! integer scales, under one scale for the block or for the whole row.
//!
//! A type is a row of `forms::FORMS`: sizes, the scales of its groups and the levels of its weights. What follows from
//! them is the same for all:
//!
//! ```text
//! weight = (d * scale of the group) * level
//! dot    = the sum over blocks of activations of (d * dx) * (sum of scale * level * q), in order
//! ```
//!
//! with the sum in parentheses an exact integer. The reference has no order of sums of its own: its products differ with
//! the processor and with the number of tokens. The one above is trine's. Types of which several rows lie interleaved are
//! taken apart first ([`apart`]).
//!
//! Types of levels, and IQ2_KL, are encoded too: `places` says where their blocks have what, `fit` finds the scale of a
//! group, and `encode` that of all.

pub mod apart;
mod bn;
mod encode;
mod fit;
mod forms;
mod integers;
mod levels;
mod narrow;
mod places;
mod trellis;

pub use encode::by_importance;
pub use forms::{BlockFormat, IQ2, IQ3, IQ4, IQ5, form};
pub(super) use integers::integers;
pub(super) use places::grids;

use self::forms::scale_of;
use super::k_block::BLOCK as WIDEST;
use super::num::f16_at;
use super::{Field, Format, Part, TypeId, TypeInfo, q8_0, q8_k, size_only};

/// Blocks with a scale, and blocks under that of the row.
const SCALED: &[Field] = &[Field::new(Part::Scale, Format::F16, 0), Field::new(Part::Codes, Format::Bits, 2)];
const BARE: &[Field] = &[Field::new(Part::Codes, Format::Bits, 0)];

/// The registry's entry of the type with the form of `ID`.
pub const fn info<const ID: u32>(name: &'static str) -> TypeInfo {
    let form = const { form(TypeId(ID)) };
    TypeInfo {
        id: TypeId(ID),
        name,
        block: form.block,
        bytes: form.bytes,
        head: form.head,
        fields: if form.head == 0 { SCALED } else { BARE },
        codebook: None,
        act: Some(if form.block == WIDEST { TypeId::Q8_K } else { TypeId::Q8_0 }),
        decode: Some(decode::<ID>),
        encode: None,
        dot_ref: Some(dot_ref::<ID>),
    }
}

/// The registry's entry of a type that trine also encodes: of IQ2_K to IQ6_K, IQ2_KS to IQ5_KS and IQ2_KL.
pub const fn encoded<const ID: u32>(name: &'static str) -> TypeInfo {
    TypeInfo { encode: Some(encode::encode::<ID>), ..info::<ID>(name) }
}

/// IQ1_BN in the registry.
pub const IQ1_BN: TypeInfo = TypeInfo { encode: Some(bn::encode_1), ..info::<{ TypeId::IQ1_BN.0 }>("iq1_bn") };
/// IQ2_BN in the registry.
pub const IQ2_BN: TypeInfo = TypeInfo { encode: Some(bn::encode_2), ..info::<{ TypeId::IQ2_BN.0 }>("iq2_bn") };

/// The registry's entry of a type of interleaved rows: only sizes, since it is taken apart before anything else.
pub const fn interleaved(id: TypeId, name: &'static str, block: usize, bytes: usize, head: usize) -> TypeInfo {
    TypeInfo { head, ..size_only(id, name, block, bytes, &[]) }
}

/// The scale of a row, which the bytes before its blocks begin with; `None` where there are none.
#[inline(always)]
pub fn scale_of_row(head: &[u8]) -> Option<f32> {
    match *head {
        [a, b] => Some(f16_at(&[a, b], 0)),
        [a, b, c, d, ..] => Some(f32::from_le_bytes([a, b, c, d])),
        _ => None,
    }
}

/// The scale of a row, 1 where blocks have scales, and its blocks.
#[inline(always)]
fn row_scale<'a>(form: &BlockFormat, row: &'a [u8]) -> (f32, &'a [u8]) {
    match row.split_at_checked(form.head) {
        Some((head, blocks)) => (scale_of_row(head).unwrap_or(1.0), blocks),
        None => (0.0, &[]),
    }
}

fn decode<const ID: u32>(row: &[u8], out: &mut [f32]) {
    let form = const { form(TypeId(ID)) };
    let (of_row, blocks) = row_scale(form, row);
    let group = form.block / form.groups;
    let mut levels = [0; WIDEST];
    for (block, y) in blocks.chunks_exact(form.bytes).zip(out.chunks_exact_mut(form.block)) {
        (form.levels)(block, &mut levels);
        let d = scale_of(form, of_row, block);
        for (g, (y, levels)) in y.chunks_exact_mut(group).zip(levels.chunks_exact(group)).enumerate() {
            let scale = d * (form.scale)(block, g) as f32;
            for (j, (y, level)) in y.iter_mut().zip(levels).enumerate() {
                let value = scale * (f32::from(*level) * form.unit);
                // A level of zero has a sign of its own in one of the types.
                *y = if *level == 0 && (form.negative_zero)(block, g * group + j) { -value } else { value };
            }
        }
    }
}

/// Per block of activations `acc += (d * dx) * (isum * unit)`.
fn dot_ref<const ID: u32>(w: &[u8], act: &[u8]) -> f32 {
    let form = const { form(TypeId(ID)) };
    let (of_row, blocks) = row_scale(form, w);
    let (group, wide) = (form.block / form.groups, form.block == WIDEST);
    let act_bytes = if wide { q8_k::BYTES } else { size_of::<q8_0::Block>() };
    let together = if wide { WIDEST } else { 32 };
    let mut levels = [0; WIDEST];
    let mut acc = 0.0f32;
    let mut acts = act.chunks_exact(act_bytes);
    for block in blocks.chunks_exact(form.bytes) {
        (form.levels)(block, &mut levels);
        let d = scale_of(form, of_row, block);
        for (part, levels) in levels[..form.block].chunks_exact(together).enumerate() {
            let Some(act) = acts.next() else {
                return acc;
            };
            let dx = if wide { f32::from_le_bytes([act[0], act[1], act[2], act[3]]) } else { f16_at(act, 0) };
            let quants = if wide { &act[4..] } else { &act[2..] };
            let mut isum = 0;
            for (g, (levels, quants)) in levels.chunks_exact(group).zip(quants.chunks_exact(group)).enumerate() {
                let products = levels.iter().zip(quants).map(|(l, q)| i32::from(*l) * i32::from(*q as i8));
                isum += (form.scale)(block, part * (together / group) + g) * products.sum::<i32>();
            }
            acc += d * dx * (isum as f32 * form.unit);
        }
    }
    acc
}
