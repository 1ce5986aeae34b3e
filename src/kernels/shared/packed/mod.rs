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
use std::ops::Deref;

use trine_formats::types::TypeId;

use super::ternary::Quantizer;
use crate::proof::Needs;
use crate::sizes::{MAX_COLUMNS, size};
use crate::{Floats, Isa};

mod arena;
pub(crate) mod block32;
pub(crate) mod k_quants;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) mod lookup;
#[cfg(target_arch = "x86_64")]
pub(crate) mod nested;
pub(crate) mod spans;
pub(crate) mod t2;

pub use arena::Arena;

/// Encoding of activation rows before they are arranged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Encoding {
    /// The bytes of an activation type.
    Type(TypeId),
    /// A row of `super::ternary`.
    Int8(Quantizer),
}

/// How products with packed weights are computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// By multiplying and adding.
    MultiplyAdd,
    /// By tables of sums of activations, with an entry for each value that some weights can have together.
    Lookup,
    /// By tables of sums of activations, with an entry for each value of a bit of some weights.
    Bitwise,
}

/// How encoded activation rows are arranged. Layouts with the same key that are made for one instruction set read the
/// same rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arranged {
    /// Records of Q8_0 blocks, whose integers start at what codes with this bias add to them, negated.
    Q8_0 {
        /// Difference of a code and its value.
        bias: i32,
    },
    /// Records of Q8_1 blocks.
    Q8_1,
    /// Q8_K blocks in the order, and with the sums, that the kernels of this type and its kin read.
    Q8K(TypeId),
    /// Rows of `super::ternary`, filled up to whole units.
    Int8 {
        /// The rule of the encoding.
        quantizer: Quantizer,
        /// Columns of a unit.
        columns: usize,
    },
    /// Tables of sums of activations of this encoding.
    Tables {
        /// Name of the layout.
        name: &'static str,
        /// How they are looked up.
        method: Method,
        /// Encoding of the activations.
        encoding: Encoding,
    },
    /// Half floats as `f64`.
    F16,
    /// Half floats as `f64`, and their limbs.
    F16WithLimbs,
    /// Bfloats as `f64`.
    Bf16,
}

/// One way to hold a weight type, with its kernels: a row of the tables under `crate::arch`. All functions are
/// safe for any bytes; they panic when lengths do not fit, or the proof is not that of what the layout needs.
pub struct Layout {
    /// The weight types that it holds.
    pub types: &'static [TypeId],
    /// Features of the processor that its kernels need.
    pub needs: Needs,
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
    pub(crate) pack: Pack,
    /// Arrangement of the activations.
    pub acts: Arranged,
    /// `act_bytes(n)`: bytes of one arranged activation row, a multiple of 64.
    pub act_bytes: fn(n: usize) -> usize,
    pub(crate) arrange: Arrange,
    pub(crate) multiply: Multiply,
    /// Tokens of one call beyond which more gain nothing. Outputs are stored after every call; in small
    /// tiles the stores hide behind the next.
    pub tile: usize,
}

/// See [`Packing::pack`].
pub(crate) type Pack = fn(isa: Isa, w: &[u8], n: usize, out: &mut [u8]) -> bool;
/// See [`Packing::arrange`].
pub(crate) type Arrange = fn(isa: Isa, act: &[u8], n: usize, out: &mut [u8]);

/// `out[t * rows + lane]` = dot of the lane's row and token t, with the bits of `dot_ref` (a NaN stays a NaN).
pub(crate) type Multiply = fn(call: Call<'_>);

/// The arguments of a [`Multiply`].
pub(crate) struct Call<'a> {
    /// The proof of what the kernel needs.
    pub isa: Isa,
    pub group: &'a [u8],
    /// `tokens` arranged rows, 64-byte aligned.
    pub acts: &'a [u8],
    /// Weights of a row.
    pub n: usize,
    pub tokens: usize,
    /// Prefetch distance behind the bytes in work, bytes, past the end of the group too; 0 leaves that to the
    /// processor. The results are bit-identical.
    pub ahead: usize,
    /// `[tokens][rows]`.
    pub out: &'a mut [f32],
}

/// A layout together with the proof that this processor has what it needs.
#[derive(Clone, Copy)]
pub struct Packing {
    layout: &'static Layout,
    pub(crate) isa: Isa,
}

impl Deref for Packing {
    type Target = Layout;

    fn deref(&self) -> &Layout {
        self.layout
    }
}

impl PartialEq for Packing {
    /// True if the layout is the same one.
    fn eq(&self, other: &Packing) -> bool {
        std::ptr::eq(self.layout, other.layout)
    }
}

impl Packing {
    /// How its products are computed.
    pub fn method(&self) -> Method {
        match self.layout.acts {
            Arranged::Tables { method, .. } => method,
            _ => Method::MultiplyAdd,
        }
    }

    /// The layout, for a processor that has what it needs.
    pub(crate) fn new(layout: &'static Layout, isa: Isa) -> Packing {
        Packing { layout, isa }
    }

    /// Packs up to `rows` whole file rows to one group. False when these weights cannot be held this way (`out` is then
    /// undefined); rows that are missing become anything that does no harm.
    ///
    /// # Panics
    /// When lengths do not fit.
    pub fn pack(&self, w: &[u8], n: usize, out: &mut [u8]) -> bool {
        (self.layout.pack)(self.isa, w, n, out)
    }

    /// Puts one encoded activation row into the order in which the kernel reads it.
    ///
    /// # Panics
    /// When lengths do not fit.
    pub fn arrange(&self, act: &[u8], n: usize, out: &mut [u8]) {
        (self.layout.arrange)(self.isa, act, n, out);
    }
}

/// `$layout` of several types.
#[allow(unused_macros, reason = "not every system has kernels for packed rows")]
macro_rules! layouts_of {
    ($layout:ident: $($codes:ident)*) => { [$($layout::<$codes>()),*] };
    ($layout:ident, $products:ty: $($codes:ident)*) => { [$($layout::<$products, $codes>()),*] };
}
#[allow(unused_imports, reason = "not every system has kernels for packed rows")]
pub(crate) use layouts_of;

thread_local! {
    /// Outputs of a tile. They are aligned because vectors that straddle two lines of the cache are stored slowly,
    /// and loaded again more slowly still.
    static TILE: RefCell<Floats> = RefCell::default();
}

/// Number of tokens from which on a product takes so long that nothing needs to be prefetched.
const MANY: usize = 32;

/// The products of groups of rows, one behind the other, and `tokens` arranged rows `acts`, a few tokens at a time:
/// `put(g, t, out)` gets the outputs of group g from token t on, `[tokens of this tile][rows]`. The bytes `ahead`
/// bytes behind those in work are prefetched, past the end of the groups too; 0 leaves that to the processor.
///
/// # Panics
/// When lengths do not fit.
pub fn multiply_groups(
    layout: Packing,
    groups: &[u8],
    acts: &[u8],
    n: usize,
    tokens: usize,
    ahead: usize,
    mut put: impl FnMut(usize, usize, &[f32]),
) {
    // With many, memory has all the time it needs.
    let ahead = if tokens < MANY { ahead } else { 0 };
    let (group_bytes, act_bytes) = ((layout.group_bytes)(n), (layout.act_bytes)(n));
    TILE.with_borrow_mut(|tile| {
        let most = layout.rows * tokens.min(layout.tile);
        if tile.len() < most {
            *tile = Floats::scratch(most);
        }
        for (g, group) in groups.chunks_exact(group_bytes.max(1)).enumerate() {
            // From the second tile on, the group is in the cache.
            let (mut first, mut ahead) = (0, ahead);
            for acts in acts.chunks(layout.tile * act_bytes) {
                let tokens = acts.len() / act_bytes;
                let out = &mut tile[..layout.rows * tokens];
                let ahead = std::mem::take(&mut ahead);
                (layout.multiply)(Call { isa: layout.isa, group, acts, n, tokens, ahead, out: &mut *out });
                put(g, first, out);
                first += tokens;
            }
        }
    });
}

impl Call<'_> {
    /// Checks what every kernel of a layout relies on: the proof of what it needs, and the lengths. Compiled into each
    /// kernel, which knows its layout: small models spend a twentieth of a token here otherwise.
    #[inline(always)]
    pub(crate) fn check(self, p: &'static Layout) -> Self {
        let Call { isa, group, acts, n, tokens, ref out, .. } = self;
        let block = match p.encoding {
            Encoding::Type(TypeId::Q8_K) => 256,
            Encoding::Type(TypeId::Q8_0 | TypeId::Q8_1) => 32,
            _ => 1,
        };
        assert!(p.needs.met_by(isa), "{}: no kernel for {isa}", p.name);
        assert!(n <= MAX_COLUMNS && n.is_multiple_of(block), "{}: {n} columns", p.name);
        assert_eq!(group.len(), (p.group_bytes)(n), "{}: group", p.name);
        assert_eq!(acts.len(), size([tokens, (p.act_bytes)(n)]), "{}: activations", p.name);
        assert_eq!(out.len(), size([tokens, p.rows]), "{}: outputs", p.name);
        assert!(acts.as_ptr().addr().is_multiple_of(64), "{}: alignment", p.name);
        self
    }
}

/// Dword `i` of `bytes`.
#[inline]
pub(crate) fn dword(bytes: &[u8], i: usize) -> [u8; 4] {
    let b = &bytes[4 * i..4 * i + 4];
    [b[0], b[1], b[2], b[3]]
}
