//! Kernels for any-precision rows.

use std::cell::RefCell;
use std::ops::Range;

use crate::shared::bitplane::packed::{Kind, PackedRows, Shape};
use crate::shared::bitplane::{Arrangement, PlaneRows, RowMemory};
use crate::{Isa, Level};

/// Evaluates an expression for rows of `$width` planes, which is the constant `$B` in it. Whoever calls this sees to it
/// that the processor has the instructions and the rows are there.
macro_rules! by_width {
    ($width:expr, $B:ident => $call:expr) => {
        by_width!(@ $width, $B, $call; 1 2 3 4 5 6 7 8)
    };
    (@ $width:expr, $B:ident, $call:expr; $($planes:literal)*) => {
        match $width {
            $($planes => {
                const $B: usize = $planes;
                $call
            })*
            _ => unreachable!("checked before"),
        }
    };
}

mod codes256;
mod codes512;
mod fused512;
mod lut;
mod odd;
mod packed256;
mod packed512;
mod pairs512;
mod rows256;
mod rows512;
mod sums;
mod tiles;

use tiles::PAIR;

/// Instructions that the kernels are made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Means {
    /// AVX2, FMA and F16C.
    Avx2,
    /// The above, and bits are transposed by an instruction.
    Gfni,
    /// AVX-512 with VNNI, which also permutes bytes and transposes bits.
    Vbmi,
}

impl Means {
    /// The best that `isa` has.
    ///
    /// # Panics
    /// When it has not even AVX2.
    fn of(isa: Isa) -> Means {
        assert!(isa.has(Level::Avx2), "bit planes of {isa}");
        match (isa.has_vbmi(), isa.has_gfni()) {
            (true, true) => Means::Vbmi,
            (false, true) => Means::Gfni,
            (_, false) => Means::Avx2,
        }
    }
}

thread_local! {
    static MEMORY: RefCell<RowMemory> = RefCell::default();
}

/// `f(rows, range, memory)`: puts the weights of a pair of rows, or of one, into `memory`, each in as many bytes and
/// arranged as the activations of the form are; their scales.
type LookUp<R> = unsafe fn(&R, Range<usize>, &mut [u8]) -> [f32; PAIR];

/// All tokens times the rows that were looked up.
type Tile = unsafe fn(&tiles::Call<'_>, &mut [f32]);

/// [`crate::shared::bitplane::multiply`].
///
/// # Panics
/// When lengths do not fit, or `isa` does not include AVX2.
pub(crate) fn multiply(isa: Isa, rows: &PlaneRows<'_>, form: Arrangement, acts: &[u8], tokens: usize, out: &mut [f32]) {
    if rows.check(form, acts, tokens, out) == 0 {
        return;
    }
    let means = Means::of(isa);
    if means == Means::Vbmi && tokens == 1 && rows.in_blocks() && form != Arrangement::Words {
        // SAFETY: `means` says that the instructions are there; the lengths were compared, and groups are whole blocks, as
        // just seen.
        return unsafe { fused512::multiply(rows, form, acts, out) };
    }
    if form == Arrangement::Bytes {
        // of a few tokens, for packed rows that there was no memory for
        assert!(means == Means::Vbmi && rows.in_blocks(), "form of the rows");
        let mut products = vec![0.0; out.len() / tokens];
        for (t, acts) in acts.chunks_exact(form.act_bytes(rows.columns)).enumerate() {
            // SAFETY: the means and the blocks were just asserted, and `acts` is one of the rows whose lengths fit.
            unsafe { fused512::multiply(rows, form, acts, &mut products) };
            let outs = out.iter_mut().skip(t).step_by(tokens);
            outs.zip(&products).for_each(|(out, p)| *out = *p);
        }
        return;
    }
    let (look_up, tile): (LookUp<PlaneRows<'_>>, Tile) = match (means, form) {
        (Means::Vbmi, Arrangement::Floats) => (rows512::floats, tiles::floats512),
        (Means::Vbmi, _) => (rows512::words, tiles::words512),
        (Means::Gfni, Arrangement::Floats) => (rows256::floats::<true>, tiles::floats256),
        (Means::Gfni, _) => (rows256::words::<true>, tiles::words256),
        (Means::Avx2, Arrangement::Floats) => (rows256::floats::<false>, tiles::floats256),
        (Means::Avx2, _) => (rows256::words::<false>, tiles::words256),
    };
    let all = (form, acts, tokens);
    // SAFETY: `means` says that the instructions are there, and the lengths were compared.
    unsafe { tiled(rows, rows.columns, look_up, tile, all, out) }
}

/// The products of packed rows.
///
/// # Panics
/// When lengths do not fit, or `isa` does not include AVX2.
pub(crate) fn multiply_packed(
    isa: Isa,
    rows: &PackedRows<'_>,
    form: Arrangement,
    acts: &[u8],
    tokens: usize,
    out: &mut [f32],
) {
    rows.check(form, acts, tokens, out);
    if tokens == 0 {
        return;
    }
    let means = Means::of(isa);
    // SAFETY: `means` says that the processor has the instructions, and the lengths were compared.
    unsafe {
        let (look_up, tile): (LookUp<PackedRows<'_>>, Tile) = match (means, form) {
            (Means::Vbmi, Arrangement::Bytes) => {
                return pairs512::multiply(rows, acts, tokens, out);
            }
            (Means::Vbmi, Arrangement::Floats) if tokens == 1 => {
                return fused512::packed_floats(rows, acts, out);
            }
            (Means::Vbmi, Arrangement::Floats) => (rows512::floats, tiles::floats512),
            (Means::Vbmi, Arrangement::Words) => (rows512::words, tiles::words512),
            (_, Arrangement::Floats) => (packed256::floats, tiles::floats256),
            (_, Arrangement::Words) => (packed256::words, tiles::words256),
            (_, Arrangement::Bytes) => panic!("bytes are for AVX-512"),
        };
        let all = (form, acts, tokens);
        tiled(rows, rows.shape.columns, look_up, tile, all, out);
    }
}

/// [`crate::shared::bitplane::packed::pack`].
///
/// # Panics
/// When lengths do not fit, or `isa` does not include AVX2.
pub(crate) fn pack(isa: Isa, kind: Kind, shape: Shape, planes: &[&[u8]], rows: usize, out: &mut [u8]) {
    // SAFETY: `Means` says that the instructions are there.
    unsafe {
        match Means::of(isa) {
            Means::Vbmi => packed512::pack(kind, shape, planes, rows, out),
            Means::Gfni | Means::Avx2 => packed256::pack(kind, shape, planes, rows, out),
        }
    }
}

/// [`crate::shared::bitplane::packed::pack_tables`]. `fixed_point`: what entries are, or else the half floats of the file.
///
/// # Panics
/// When lengths do not fit, or `isa` does not include AVX2.
pub(crate) fn pack_tables(isa: Isa, rows: &PlaneRows<'_>, fixed_point: bool, out: &mut [u8], scales: &mut [f32]) {
    // SAFETY: `Means` says that the instructions are there.
    unsafe {
        match Means::of(isa) {
            Means::Vbmi => packed512::pack_tables(rows, fixed_point, out, scales),
            Means::Gfni | Means::Avx2 => packed256::pack_tables(rows, fixed_point, out, scales),
        }
    }
}

/// Pairs of rows that are looked up, times all tokens.
///
/// # Safety
/// The instructions of the functions are there, and the lengths fit.
unsafe fn tiled<R>(
    rows: &R,
    columns: usize,
    look_up: LookUp<R>,
    tile: Tile,
    (form, acts, tokens): (Arrangement, &[u8], usize),
    out: &mut [f32],
) {
    let act_bytes = form.act_bytes(columns);
    MEMORY.with_borrow_mut(|memory| {
        if memory.len() < PAIR * act_bytes {
            *memory = RowMemory::scratch(PAIR * act_bytes);
        }
        for (i, out) in out.chunks_mut(PAIR * tokens).enumerate() {
            let count = out.len() / tokens;
            let range = PAIR * i..PAIR * i + count;
            // SAFETY: the caller says that the instructions are there and the lengths fit; the memory was made large
            // enough for a pair of rows in this form, and its start is aligned to 64.
            unsafe {
                let scales = look_up(rows, range, memory);
                tile(
                    &tiles::Call {
                        weights: &memory[..count * act_bytes],
                        scales,
                        acts,
                        blocks: columns.div_ceil(64),
                        act_bytes,
                        tokens,
                    },
                    out,
                );
            }
        }
    });
}
