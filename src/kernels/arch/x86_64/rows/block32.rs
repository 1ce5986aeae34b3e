//! Products of types with 32-element blocks and one float chain per row.
//!
//! Lane = row: eight dot products with the broadcast dwords of a token give the block's integer sums of a register of
//! rows, and every lane goes through the float chain of its row. A block is unpacked once and used for all tokens, whose
//! sums stay in the first-level cache: to registers where there are enough of them, otherwise to memory, over which four
//! tokens run together, two registers of rows at a time.

#![allow(clippy::needless_range_loop, reason = "registers are indexed by rows, chain and token alike")]

use std::marker::PhantomData;

use super::lanes::{Ints, Kernel, Lanes, Set, by_tokens, prefetching_first, unroll};
use crate::Isa;
use crate::arch::x86_64::ahead::{NoPrefetch, PrefetchDistance, with_prefetch};
use crate::shared::packed::block32::{self, Block32, ByteCodes, LINE, PackedStep, RECORD, ROWS};
use crate::shared::packed::{Call, Layout, Pack};

/// Registers of the rows that a tile has.
pub(crate) const VECTORS: usize = 2;
/// Tiles of the rows of a group, at most.
const MOST: usize = 2;
/// The codes of a block: dword k of all rows, a byte each.
pub(crate) type Codes<L> = [[<L as Lanes>::Ints; VECTORS * MOST]; 8];
const _: () = assert!(LINE == 4 * ROWS);

/// Tiles of rows of a group.
pub(crate) const fn tiles<L: Lanes>() -> usize {
    assert!(ROWS.is_multiple_of(L::ROWS * VECTORS) && ROWS / L::ROWS <= VECTORS * MOST);
    ROWS / (L::ROWS * VECTORS)
}

/// An instruction set that multiplies codes with activations.
pub(crate) trait DotSet: Set + Dot<1> + Dot<2> + Dot<3> + Dot<4> {
    /// True if codes that take all eight bits are unpacked as weights with a sign.
    const SIGNED: bool = false;
    /// True if there are registers for the codes of a block.
    const IN_REGISTERS: bool = false;
    /// Tokens that a product without offsets takes together, at most: 4, 2 or 1.
    const TOGETHER: usize = Self::TOKENS;
    /// Prefetches within a product of a tile of rows.
    const PREFETCHES: usize;

    /// See [`Layout::pack`].
    fn pack<B: Block32>(isa: Isa, w: &[u8], n: usize, out: &mut [u8]) -> bool {
        block32::pack::<B>(isa, w, n, out)
    }

    /// The integer sums of a register of rows and one token, whose codes, dword k in register k, are few enough that
    /// all products of a block fit 16 bits. `prefetch` is called eight times.
    ///
    /// # Safety
    /// The processor has the instruction set; the record is readable.
    unsafe fn one_dot<C: ByteCodes>(codes: &[Ints<Self>; 8], record: *const u8, prefetch: impl Fn(usize))
    -> Ints<Self>;
}

/// Products of a tile of rows and T tokens.
pub(crate) trait Dot<const T: usize>: Set {
    /// The integer sums of a block, whose codes of a tile of rows start at `codes`, and of tokens whose records start
    /// at `record` and every `stride` bytes after it. `prefetch` is called [`DotSet::PREFETCHES`] times. From dword to
    /// dword codes are as far as in [`Codes`], which is [`LINE`] bytes where they may stay in packed blocks.
    ///
    /// # Safety
    /// The processor has the instruction set; eight lines and the records are readable.
    unsafe fn dot<C: ByteCodes>(
        codes: *const u8,
        record: *const u8,
        stride: usize,
        prefetch: impl Fn(usize),
    ) -> [[Ints<Self>; VECTORS]; T];
}

pub(crate) const fn layout<S: DotSet, B: Block32>() -> Layout {
    Layout { pack: const { S::pack::<B> as Pack }, ..block32::layout::<B>(S::NEEDS, multiply::<S, B>) }
}

/// True if codes take all eight bits and are used as signed weights.
pub(crate) const fn signed<S: DotSet, C: ByteCodes>() -> bool {
    assert!(C::MAX <= 127 || C::BIAS == 128);
    S::SIGNED && C::MAX > 127
}

pub(crate) fn multiply<S: DotSet, B: Block32>(call: Call<'_>) {
    let Call { group, acts, tokens, ahead, out, .. } = call.check(const { &layout::<S, B>() });
    // SAFETY: `check` has seen the proof of these instructions and compared all lengths.
    unsafe {
        if tokens == 1 {
            with_prefetch!(ahead => S::run::<One<S, B, _>>((group, acts, ahead, out)));
        } else {
            S::run::<Many<S, B>>((group, acts, ahead, out));
        }
    }
}

/// True if the codes of a block have to be unpacked.
const fn packed<S: DotSet, B: Block32>() -> bool {
    B::LINES < 8 || signed::<S, B>() || S::IN_REGISTERS
}

/// Writes the codes of a block, or its weights where they are signed, and prefetches at distance `ahead`. They are not
/// returned, because the compiler would copy them where it does not inline the call.
///
/// # Safety
/// The processor has the instruction set; a packed block is readable.
#[inline(always)]
pub(crate) unsafe fn unpack<S: DotSet, B: Block32>(
    block: *const u8,
    ahead: impl PrefetchDistance,
    codes: &mut Codes<S::L>,
) {
    let vectors = const { ROWS / S::L::ROWS };
    // SAFETY: a packed block has `LINES` lines, and eight masks where it has fifth bits.
    unsafe {
        unroll!(G in [0 1 2 3 4 5 6 7] {
            if G < B::LINES {
                for v in 0..vectors {
                    ahead.share(block, B::PACKED, vectors * G + v, vectors * B::LINES);
                    let line = S::L::load(block.add(B::LINES_START + LINE * G + 4 * S::L::ROWS * v));
                    if B::LINES == 8 {
                        codes[G][v] = weights::<S, B>(line, block, G, v);
                    } else {
                        let low = S::L::bytes(15);
                        let high = S::L::and(S::L::shr(line, 4), low);
                        let (line, other) = (S::L::and(line, low), G % 4 + 4);
                        codes[G][v] = weights::<S, B>(line, block, G, v);
                        codes[other][v] = weights::<S, B>(high, block, other, v);
                    }
                }
            }
        });
    }
}

/// Values of the bytes or nibbles of dword g and the rows of register v: with their fifth bits, or by the type's table,
/// and as weights where those are signed.
///
/// # Safety
/// The processor has the instruction set; a packed block is readable.
#[inline(always)]
unsafe fn weights<S: DotSet, B: Block32>(mut code: Ints<S>, block: *const u8, g: usize, v: usize) -> Ints<S> {
    // SAFETY: the caller's promise; a packed block with fifth bits has eight masks, a bit for each byte of a line.
    unsafe {
        if let Some(table) = &B::TABLE {
            code = S::L::lookup(table, code);
        }
        if B::FIFTH_AT.is_some() {
            code = S::L::add_fifth(code, block.add(B::MASKS_START + LINE / 8 * g + S::L::ROWS / 2 * v));
        }
        if const { signed::<S, B>() } {
            code = S::L::sub_bytes(code, S::L::bytes(128));
        }
        code
    }
}

/// Scales and offsets of a tile of rows.
pub(crate) struct Head<L: Lanes> {
    pub(crate) scales: [L::Floats; VECTORS],
    pub(crate) offsets: [L::Floats; VECTORS],
}

impl<L: Lanes> Head<L> {
    /// Head of tile `h` of a block's rows.
    ///
    /// # Safety
    /// The processor has the registers; a packed block is readable.
    #[inline(always)]
    pub(crate) unsafe fn new<B: Block32>(block: *const u8, h: usize) -> Head<L> {
        // SAFETY: the caller's promise; a block begins with its scales; its offsets follow.
        unsafe {
            let zero = L::float(0.0);
            let mut head = Head { scales: [zero; VECTORS], offsets: [zero; VECTORS] };
            for v in 0..VECTORS {
                let first = L::ROWS * (VECTORS * h + v);
                head.scales[v] = match B::SCALE_BYTES {
                    2 => L::halves(block.add(2 * first)),
                    4 => L::load_floats(block.add(4 * first).cast()),
                    _ => L::half_powers(block.add(first)),
                };
                if const { matches!(B::STEP, PackedStep::PlusOffset) } {
                    head.offsets[v] = L::halves(block.add(B::SCALE_BYTES * ROWS + 2 * first));
                }
            }
            head
        }
    }

    /// The block step of register v of one token: its sum plus the block's term.
    ///
    /// # Safety
    /// The processor has the registers; a record is readable.
    #[inline(always)]
    unsafe fn step<B: Block32>(&self, total: L::Floats, isum: L::Ints, v: usize, record: *const u8) -> L::Floats {
        // SAFETY: the caller's promise; a record has its scale at byte 32 and its sum term at byte 40.
        unsafe {
            let (isum, dw, dx) = (L::floats(isum), self.scales[v], L::broadcast_float(record.add(32)));
            let term = match B::STEP {
                PackedStep::SumFirst => L::mul(L::mul(isum, dw), dx),
                PackedStep::ScaleFirst => L::mul(L::mul(dw, dx), isum),
                PackedStep::PlusOffset => {
                    let offset = L::mul(self.offsets[v], L::broadcast_float(record.add(40)));
                    L::add(L::mul(L::mul(dw, dx), isum), offset)
                }
            };
            L::add(total, term)
        }
    }
}

/// The codes of a block: where they are, or unpacked to `room`.
///
/// # Safety
/// The processor has the instruction set; a packed block is readable.
#[inline(always)]
unsafe fn codes<S: DotSet, B: Block32>(
    block: *const u8,
    ahead: impl PrefetchDistance,
    room: &mut Codes<S::L>,
) -> *const u8 {
    // SAFETY: a packed block has lines at `LINES_START`.
    unsafe {
        if const { !packed::<S, B>() } {
            return block.add(B::LINES_START);
        }
        unpack::<S, B>(block, ahead, room);
    }
    (&raw const *room).cast()
}

/// One token.
struct One<S, B, A>(PhantomData<(S, B, A)>);

impl<S: DotSet, B: Block32, A: PrefetchDistance> Kernel for One<S, B, A> {
    type Call<'a> = (&'a [u8], &'a [u8], A, &'a mut [f32]);

    #[inline(always)]
    unsafe fn run((group, act, ahead, out): Self::Call<'_>) {
        let tiles = const { tiles::<S::L>() };
        // SAFETY: the caller has the instruction set; a whole block and a whole record.
        unsafe {
            let mut totals = [[S::L::float(0.0); VECTORS]; MOST];
            let mut room: Codes<S::L> = [[S::L::dwords(0); VECTORS * MOST]; 8];
            for (block, record) in group.chunks_exact(B::PACKED).zip(act.chunks_exact(RECORD)) {
                let (block, record) = (block.as_ptr(), record.as_ptr());
                let codes = codes::<S, B>(block, NoPrefetch, &mut room);
                let heads = [Head::<S::L>::new::<B>(block, 0), Head::new::<B>(block, tiles - 1)];
                for h in 0..tiles {
                    let prefetches = const { <S as DotSet>::PREFETCHES + VECTORS };
                    let prefetch = |i| ahead.share(block, B::PACKED, h * prefetches + i, tiles * prefetches);
                    let codes = codes.add(4 * S::L::ROWS * VECTORS * h);
                    let [isums] = <S as Dot<1>>::dot::<B>(codes, record, 0, prefetch);
                    for v in 0..VECTORS {
                        prefetch(<S as DotSet>::PREFETCHES + v);
                        totals[h][v] = heads[h].step::<B>(totals[h][v], isums[v], v, record);
                    }
                }
            }
            for (total, out) in totals.as_flattened().iter().zip(out.chunks_exact_mut(S::L::ROWS)) {
                S::L::store(out, *total);
            }
        }
    }
}

/// Several tokens.
struct Many<S, B>(PhantomData<(S, B)>);

impl<S: DotSet, B: Block32> Kernel for Many<S, B> {
    type Call<'a> = (&'a [u8], &'a [u8], usize, &'a mut [f32]);

    #[inline(always)]
    unsafe fn run((group, acts, ahead, out): Self::Call<'_>) {
        let (tokens, tiles, prefetches) = (out.len() / ROWS, const { tiles::<S::L>() }, <S as DotSet>::PREFETCHES);
        let stride = acts.len() / tokens.max(1);
        out.fill(0.0);
        // SAFETY: the caller has the instruction set; a whole block, and block b of all tokens, as `check` saw.
        unsafe {
            let mut room: Codes<S::L> = [[S::L::dwords(0); VECTORS * MOST]; 8];
            for (b, block) in group.chunks_exact(B::PACKED).enumerate() {
                let (block, records) = (block.as_ptr(), acts.as_ptr().add(RECORD * b));
                // Codes that are unpacked to memory are prefetched there, the rest by the products of the first tokens.
                let at_once = const { packed::<S, B>() && !S::IN_REGISTERS };
                let codes = codes::<S, B>(block, if at_once { ahead } else { 0 }, &mut room);
                let heads = [Head::<S::L>::new::<B>(block, 0), Head::new::<B>(block, tiles - 1)];
                let left = if at_once { 0 } else { ahead };
                if const { matches!(B::STEP, PackedStep::PlusOffset) } {
                    // Scales and offsets of one tile stay in registers, those of two do not.
                    for h in 0..tiles {
                        by_tokens!(t in tokens, S::TOKENS, T => {
                            let (out, record) = (&mut out[ROWS * t..][..ROWS * T], records.add(stride * t));
                            prefetching_first!(S, t == 0, left, |i| left.share(block, B::PACKED, prefetches * h + i, tiles * prefetches), prefetch =>
                                add::<S, B, T>(codes, &heads[h], h, record, stride, prefetch, out));
                        });
                    }
                } else {
                    by_tokens!(t in tokens, S::TOGETHER, T => for h in 0..tiles {
                        let (out, record) = (&mut out[ROWS * t..][..ROWS * T], records.add(stride * t));
                        prefetching_first!(S, t == 0, left, |i| left.share(block, B::PACKED, prefetches * h + i, tiles * prefetches), prefetch =>
                                add::<S, B, T>(codes, &heads[h], h, record, stride, prefetch, out));
                    });
                }
            }
        }
    }
}

/// The block step of the rows of tile h and of T tokens, whose sums are in `out`.
///
/// # Safety
/// The processor has the instruction set; the codes of all rows and the records are readable.
#[inline(always)]
unsafe fn add<S: DotSet + Dot<T>, B: Block32, const T: usize>(
    codes: *const u8,
    head: &Head<S::L>,
    h: usize,
    record: *const u8,
    stride: usize,
    prefetch: impl Fn(usize),
    out: &mut [f32],
) {
    let rows = const { S::L::ROWS * VECTORS };
    // SAFETY: the caller's codes and records; the outputs of a tile of rows of each token.
    unsafe {
        let isums = <S as Dot<T>>::dot::<B>(codes.add(4 * rows * h), record, stride, prefetch);
        for (t, isums) in isums.iter().enumerate() {
            let out = &mut out[ROWS * t + rows * h..][..rows];
            for (v, out) in out.chunks_exact_mut(S::L::ROWS).enumerate() {
                let total = S::L::load_floats(out.as_ptr());
                S::L::store(out, head.step::<B>(total, isums[v], v, record.add(stride * t)));
            }
        }
    }
}
