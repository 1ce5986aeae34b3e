//! Products of types with nested chains.
//!
//! One token: codes meet activations in the registers they are unpacked to. More: where there are registers for the
//! codes of 32 weights, these are used for all tokens, whose inner chains and sums stay in the first-level cache.
//! Otherwise a block is unpacked once for all, four of which run over it together; the inner chains stay in registers,
//! the sums of the rows in memory.

#![allow(clippy::needless_range_loop, reason = "registers are indexed by rows, chain and token alike")]

use std::marker::PhantomData;

use super::block32::{Codes, Dot, DotSet, VECTORS, tiles};
use super::lanes::{Kernel, Lanes, by_tokens, prefetching_first, unroll};
use crate::arch::x86_64::ahead::{PrefetchDistance, with_prefetch};
use crate::shared::packed::block32::{LINE, RECORD, ROWS};
use crate::shared::packed::nested::{self, MOST_SUBS, Nested};
use crate::shared::packed::{Call, Layout};

/// Registers of the rows of a group, at most.
const MOST: usize = 4;
/// Tokens whose inner chains are kept.
const TILE: usize = 32;

pub(crate) const fn layout<S: DotSet, C: Nested>() -> Layout {
    nested::layout::<C>(S::NEEDS, multiply::<S, C>)
}

fn multiply<S: DotSet, C: Nested>(call: Call<'_>) {
    let Call { group, acts, tokens, ahead, out, .. } = call.check(const { &layout::<S, C>() });
    let stride = acts.len() / tokens.max(1);
    for (acts, out) in acts.chunks(TILE * stride.max(1)).zip(out.chunks_mut(TILE * ROWS)) {
        // SAFETY: `check` has seen the proof of these instructions and compared all lengths, and no portion has more than `TILE` tokens.
        unsafe {
            if out.len() == ROWS {
                with_prefetch!(ahead => S::run::<One<S, C, _>>((group, acts, ahead, out)));
            } else if S::IN_REGISTERS {
                S::run::<BySub<S, C>>((group, acts, ahead, out));
            } else {
                S::run::<ByBlock<S, C>>((group, acts, ahead, out));
            }
        }
    }
}

/// The codes of a register of rows and 32 weights: dword k in register k.
///
/// # Safety
/// The processor has the registers; the rows' part of the lines is readable.
#[inline(always)]
unsafe fn codes<L: Lanes, C: Nested>(lines: *const u8) -> [L::Ints; 8] {
    // SAFETY: the caller's promise.
    unsafe {
        let a = L::load(lines);
        let (shifted, mask) = if C::LINES == 1 {
            let shifted = [
                L::add_bytes(a, a),
                a,
                L::shr(a, 1),
                L::shr(a, 2),
                L::shr(a, 3),
                L::shr(a, 4),
                L::shr(a, 5),
                L::shr(a, 6),
            ];
            (shifted, L::bytes(2))
        } else {
            let b = L::load(lines.add(LINE));
            let shifted = [a, L::shr(a, 2), L::shr(a, 4), L::shr(a, 6), b, L::shr(b, 2), L::shr(b, 4), L::shr(b, 6)];
            (shifted, L::bytes(3))
        };
        let mut codes = shifted;
        for code in &mut codes {
            *code = L::and(*code, mask);
        }
        codes
    }
}

/// The scales of register v of a block's rows.
///
/// # Safety
/// The processor has the registers; the block is readable.
#[inline(always)]
unsafe fn scales<L: Lanes, C: Nested>(block: *const u8, v: usize) -> L::Floats {
    // SAFETY: the caller's promise; a block begins with its scales.
    unsafe {
        match C::SCALE_BYTES {
            2 => L::halves(block.add(2 * L::ROWS * v)),
            _ => L::load_floats(block.add(4 * L::ROWS * v).cast()),
        }
    }
}

/// Bytes of 32 weights of all rows, for prefetches.
const fn of_sub<C: Nested>() -> usize {
    C::PACKED.div_ceil(C::SUBS)
}

/// One token.
struct One<S, C, A>(PhantomData<(S, C, A)>);

impl<S: DotSet, C: Nested, A: PrefetchDistance> Kernel for One<S, C, A> {
    type Call<'a> = (&'a [u8], &'a [u8], A, &'a mut [f32]);

    #[inline(always)]
    unsafe fn run((group, act, ahead, out): Self::Call<'_>) {
        let (vectors, records) = (const { ROWS / S::L::ROWS }, act.chunks_exact(C::SUBS * RECORD));
        // SAFETY: the caller has the instruction set; a whole block, and the records of its 32 weights each.
        unsafe {
            let mut totals = [S::L::float(0.0); MOST];
            for (block, records) in group.chunks_exact(C::PACKED).zip(records) {
                let (block, records) = (block.as_ptr(), records.as_ptr());
                let mut chains = if C::OF_ROWS { totals } else { [S::L::float(0.0); MOST] };
                for sub in 0..C::SUBS {
                    let lines = block.add(C::LINES_START + LINE * C::LINES * sub);
                    let record = records.add(RECORD * sub);
                    let dx = S::L::broadcast_float(record.add(32));
                    let from = block.wrapping_add(C::PACKED / C::SUBS * sub);
                    // The share of a prefetch has to be known when it is compiled.
                    unroll!(V in [0 1 2 3] {
                        if V < vectors {
                            let prefetch = |k| ahead.share(from, const { of_sub::<C>() }, 8 * V + k, 8 * vectors);
                            let codes = codes::<S::L, C>(lines.add(4 * S::L::ROWS * V));
                            let d = if C::OF_ROWS { S::L::mul(scales::<S::L, C>(block, V), dx) } else { dx };
                            chains[V] = S::L::step(chains[V], d, S::one_dot::<C>(&codes, record, prefetch));
                        }
                    });
                }
                if C::OF_ROWS {
                    totals = chains;
                    continue;
                }
                for (v, (total, chain)) in totals.iter_mut().zip(chains).enumerate().take(vectors) {
                    *total = S::L::add(*total, S::L::mul(scales::<S::L, C>(block, v), chain));
                }
            }
            for (total, out) in totals.iter().zip(out.chunks_exact_mut(S::L::ROWS)) {
                S::L::store(out, *total);
            }
        }
    }
}

/// Several tokens, 32 weights after the other.
struct BySub<S, C>(PhantomData<(S, C)>);

impl<S: DotSet, C: Nested> Kernel for BySub<S, C> {
    type Call<'a> = (&'a [u8], &'a [u8], usize, &'a mut [f32]);

    #[inline(always)]
    unsafe fn run((group, acts, ahead, out): Self::Call<'_>) {
        const { assert!(tiles::<S::L>() == 1 || !S::IN_REGISTERS) };
        let stride = acts.len() / (out.len() / ROWS).max(1);
        out.fill(0.0);
        // SAFETY: the caller has the instruction set; a whole block, and its records of all tokens, as `check` saw.
        unsafe {
            let zero = [S::L::float(0.0); VECTORS];
            let mut room = [zero; TILE];
            for (b, block) in group.chunks_exact(C::PACKED).enumerate() {
                let block = block.as_ptr();
                for sub in 0..C::SUBS {
                    let from = block.wrapping_add(C::PACKED / C::SUBS * sub);
                    let lines = block.add(C::LINES_START + LINE * C::LINES * sub);
                    let (first, second) = (codes::<S::L, C>(lines), codes::<S::L, C>(lines.add(LINE / 2)));
                    let mut all: Codes<S::L> = [[first[0]; MOST]; 8];
                    for (all, (first, second)) in all.iter_mut().zip(first.into_iter().zip(second)) {
                        (all[0], all[1]) = (first, second);
                    }
                    let all = (&raw const all).cast();
                    let records = acts.as_ptr().add(RECORD * (C::SUBS * b + sub));
                    for (t, (chains, out)) in room.iter_mut().zip(out.chunks_exact_mut(ROWS)).enumerate() {
                        // A copy, so that it may stay in registers.
                        let mut chain = if sub == 0 { zero } else { *chains };
                        if C::OF_ROWS {
                            for (v, chain) in chain.iter_mut().enumerate() {
                                *chain = S::L::load_floats(out[S::L::ROWS * v..].as_ptr());
                            }
                        }
                        let record = records.add(stride * t);
                        let [isums] = prefetching_first!(
                            S, t == 0, ahead,
                            |k| ahead.share(from, const { of_sub::<C>() }, k, <S as DotSet>::PREFETCHES),
                            prefetch => <S as Dot<1>>::dot::<C>(all, record, 0, prefetch)
                        );
                        let dx = S::L::broadcast_float(record.add(32));
                        for v in 0..VECTORS {
                            let d = if C::OF_ROWS { S::L::mul(scales::<S::L, C>(block, v), dx) } else { dx };
                            chain[v] = S::L::step(chain[v], d, isums[v]);
                        }
                        if C::OF_ROWS {
                            for (v, out) in out.chunks_exact_mut(S::L::ROWS).enumerate() {
                                S::L::store(out, chain[v]);
                            }
                            continue;
                        }
                        if sub + 1 < C::SUBS {
                            *chains = chain;
                            continue;
                        }
                        for (v, out) in out.chunks_exact_mut(S::L::ROWS).enumerate() {
                            let term = S::L::mul(scales::<S::L, C>(block, v), chain[v]);
                            S::L::store(out, S::L::add(S::L::load_floats(out.as_ptr()), term));
                        }
                    }
                }
            }
        }
    }
}

/// Several tokens, block after block.
struct ByBlock<S, C>(PhantomData<(S, C)>);

impl<S: DotSet, C: Nested> Kernel for ByBlock<S, C> {
    type Call<'a> = (&'a [u8], &'a [u8], usize, &'a mut [f32]);

    #[inline(always)]
    unsafe fn run((group, acts, ahead, out): Self::Call<'_>) {
        let (tokens, vectors) = (out.len() / ROWS, const { ROWS / S::L::ROWS });
        let stride = acts.len() / tokens.max(1);
        out.fill(0.0);
        // SAFETY: the caller has the instruction set; a whole block, and its records of all tokens, as `check` saw.
        unsafe {
            let mut room: [Codes<S::L>; MOST_SUBS] = [[[S::L::dwords(0); MOST]; 8]; MOST_SUBS];
            for (b, block) in group.chunks_exact(C::PACKED).enumerate() {
                let block = block.as_ptr();
                for (sub, room) in room[..C::SUBS].iter_mut().enumerate() {
                    let lines = block.add(C::LINES_START + LINE * C::LINES * sub);
                    let from = block.wrapping_add(C::PACKED / C::SUBS * sub);
                    for v in 0..vectors {
                        ahead.share(from, const { of_sub::<C>() }, v, vectors);
                        let codes = codes::<S::L, C>(lines.add(4 * S::L::ROWS * v));
                        for (room, codes) in room.iter_mut().zip(codes) {
                            room[v] = codes;
                        }
                    }
                }
                let mut of_rows = [S::L::float(0.0); MOST];
                for (v, of_row) in of_rows.iter_mut().enumerate().take(vectors) {
                    *of_row = scales::<S::L, C>(block, v);
                }
                let records = acts.as_ptr().add(RECORD * C::SUBS * b);
                by_tokens!(t in tokens, S::TOKENS, T => for h in 0..const { tiles::<S::L>() } {
                    let scales = &of_rows[VECTORS * h..][..VECTORS];
                    let out = &mut out[ROWS * t + S::L::ROWS * VECTORS * h..];
                    add::<S, C, T>(&room, h, scales, records.add(stride * t), stride, out);
                });
            }
        }
    }
}

/// The block step of the rows of tile h and of T tokens, whose sums are in `out`, those of a token [`ROWS`] after those
/// of the one before.
///
/// # Safety
/// The processor has the instruction set; the records are readable.
#[inline(always)]
unsafe fn add<S: DotSet + Dot<T>, C: Nested, const T: usize>(
    room: &[Codes<S::L>; MOST_SUBS],
    h: usize,
    scales: &[<S::L as Lanes>::Floats],
    records: *const u8,
    stride: usize,
    out: &mut [f32],
) {
    // SAFETY: the caller's records; the outputs of a tile of rows of each token.
    unsafe {
        let mut chains = [[S::L::float(0.0); VECTORS]; T];
        if C::OF_ROWS {
            for (chains, out) in chains.iter_mut().zip(out.chunks(ROWS)) {
                for (chain, out) in chains.iter_mut().zip(out.chunks_exact(S::L::ROWS)) {
                    *chain = S::L::load_floats(out.as_ptr());
                }
            }
        }
        for (sub, codes) in room[..C::SUBS].iter().enumerate() {
            let codes = (&raw const *codes).cast::<u8>().add(4 * S::L::ROWS * VECTORS * h);
            let record = records.add(RECORD * sub);
            let isums = <S as Dot<T>>::dot::<C>(codes, record, stride, |_| ());
            for (t, (chains, isums)) in chains.iter_mut().zip(isums).enumerate() {
                let dx = S::L::broadcast_float(record.add(stride * t + 32));
                for ((chain, isum), scale) in chains.iter_mut().zip(isums).zip(scales) {
                    let d = if C::OF_ROWS { S::L::mul(*scale, dx) } else { dx };
                    *chain = S::L::step(*chain, d, isum);
                }
            }
        }
        for (chains, out) in chains.iter().zip(out.chunks_mut(ROWS)) {
            for ((chain, scale), out) in chains.iter().zip(scales).zip(out.chunks_exact_mut(S::L::ROWS)) {
                let term = S::L::mul(*scale, *chain);
                let sum = if C::OF_ROWS { *chain } else { S::L::add(S::L::load_floats(out.as_ptr()), term) };
                S::L::store(out, sum);
            }
        }
    }
}
