//! Packed weights: rows interleaved so that one SIMD lane is one output row.
//!
//! A packed matrix is a list of groups of 16 or 32 rows. Within a group the blocks follow each other,
//! each with the scales of all rows at its head, so that a product reads memory strictly in
//! sequence and every lane runs the float chain of `dot_ref` for its own row. Packing only moves
//! bits (or recodes them without loss); a row count that is no multiple of the group is padded and
//! the outputs of the padding are dropped.
//!
//! Activations are encoded as for the row kernels, then arranged once per layout for all matrices that
//! share it. A product is asked for one group at a time and all tokens.

use std::cell::RefCell;

use trine_formats::types::TypeId;

use super::ternary::Quantizer;
use super::{Floats, Isa};
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use super::{MAX_COLUMNS, size};

mod arena;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) mod block32;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) mod half;
#[cfg(test)]
mod half_tests;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) mod k_quants;
#[cfg(target_arch = "x86_64")]
pub(crate) mod nested;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) mod spans;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) mod t2;
#[cfg(test)]
mod tests;

pub use arena::Arena;

/// What activation rows are encoded as before they are arranged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Encoding {
    /// The bytes of an activation type.
    Type(TypeId),
    /// A row of [`super::ternary`].
    Int8(Quantizer),
}

/// One way to hold a weight type, with its kernels. All functions are safe for any bytes; they panic when
/// lengths do not fit.
pub struct Layout {
    /// Short name, for logs and tables.
    pub name: &'static str,
    /// Fewer bytes for more instructions: pays when the weights come from memory, not when they stay in the
    /// cache. A type has it beside a layout without.
    pub dense: bool,
    /// Rows of a group, the lanes.
    pub rows: usize,
    /// Encoding of the activations.
    pub encoding: Encoding,
    /// `group_bytes(n)`: bytes of one group of rows of `n` weights.
    pub group_bytes: fn(n: usize) -> usize,
    /// `pack(w, n, out)`: up to `rows` whole file rows to one group. False when these weights cannot be held
    /// this way (`out` is then undefined); rows that are missing become anything that does no harm.
    pub pack: Pack,
    /// Name of the arrangement of the activations: layouts with the same one share the rows.
    pub acts: &'static str,
    /// `act_bytes(n)`: bytes of one arranged activation row, a multiple of 64.
    pub act_bytes: fn(n: usize) -> usize,
    /// `arrange(act, n, out)`: one encoded activation row to the order in which the kernel reads it.
    pub arrange: fn(act: &[u8], n: usize, out: &mut [u8]),
    /// The product.
    pub multiply: Multiply,
    /// Tokens of one call beyond which more gain nothing. Outputs are stored after every call; in small
    /// portions the stores hide behind the next.
    pub tile: usize,
}

/// See [`Layout::pack`].
pub type Pack = fn(w: &[u8], n: usize, out: &mut [u8]) -> bool;

/// `multiply(group, acts, n, tokens, ahead, out)`: `out[t * rows + lane]` = dot of the lane's row and token t, with the
/// bits of `dot_ref` (a NaN stays a NaN). `acts` is `tokens` arranged rows, 64-byte aligned.
///
/// The bytes that lie `ahead` bytes behind those in work are asked for, past the end of the group too; 0 leaves that to
/// the processor. It changes no bit.
pub type Multiply = fn(group: &[u8], acts: &[u8], n: usize, tokens: usize, ahead: usize, out: &mut [f32]);

/// The packed layouts of a weight type that have kernels for an instruction set, the best first.
pub fn layouts(ty: TypeId, isa: Isa) -> &'static [&'static Layout] {
    #[cfg(target_arch = "x86_64")]
    {
        crate::arch::x86_64::layouts(ty, isa)
    }
    #[cfg(target_arch = "aarch64")]
    {
        crate::arch::aarch64::layouts(ty, isa)
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        let _ = (ty, isa);
        &[]
    }
}

thread_local! {
    /// Outputs of a portion. They are aligned because vectors that straddle two lines of the cache are stored slowly,
    /// and loaded again more slowly still.
    static TILE: RefCell<Floats> = RefCell::default();
}

/// Tokens from which on a product takes so long that memory needs not be asked for anything ahead.
const MANY: usize = 32;

/// The products of one group and `tokens` arranged rows `acts`, a few tokens at a time:
/// `put(t, out)` gets the outputs from token t on, `[tokens of this portion][rows]`. `ahead`: see [`Multiply`].
///
/// # Panics
/// When lengths do not fit.
pub fn multiply_group(
    layout: &Layout,
    group: &[u8],
    acts: &[u8],
    n: usize,
    tokens: usize,
    ahead: usize,
    mut put: impl FnMut(usize, &[f32]),
) {
    // With many, memory has all the time it needs.
    let mut ahead = if tokens < MANY { ahead } else { 0 };
    TILE.with_borrow_mut(|tile| {
        let act_bytes = (layout.act_bytes)(n);
        let mut first = 0;
        for acts in acts.chunks(layout.tile * act_bytes) {
            let tokens = acts.len() / act_bytes;
            let len = layout.rows * tokens;
            if tile.len() < len {
                *tile = Floats::scratch(len);
            }
            let tile = &mut tile[..len];
            // From the second portion on, the group is in the cache.
            let ahead = std::mem::take(&mut ahead);
            (layout.multiply)(group, acts, n, tokens, ahead, tile);
            put(first, tile);
            first += tokens;
        }
    });
}

/// Checks the lengths that every kernel relies on.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) fn check(p: &Layout, group: &[u8], acts: &[u8], n: usize, tokens: usize, out: &[f32]) {
    let block = match p.encoding {
        Encoding::Type(TypeId::Q8_K) => 256,
        Encoding::Type(TypeId::Q8_0 | TypeId::Q8_1) => 32,
        _ => 1,
    };
    assert!(n <= MAX_COLUMNS && n.is_multiple_of(block), "{}: {n} columns", p.name);
    assert_eq!(group.len(), (p.group_bytes)(n), "{}: group", p.name);
    assert_eq!(acts.len(), size([tokens, (p.act_bytes)(n)]), "{}: activations", p.name);
    assert_eq!(out.len(), size([tokens, p.rows]), "{}: outputs", p.name);
    assert!(acts.as_ptr().addr().is_multiple_of(64), "{}: alignment", p.name);
}

/// Dword `i` of `bytes`.
#[inline]
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) fn dword(bytes: &[u8], i: usize) -> [u8; 4] {
    let b = &bytes[4 * i..4 * i + 4];
    [b[0], b[1], b[2], b[3]]
}
