//! Types with 32-element blocks and one float chain per row for AVX2 and AVX-VNNI: the bytes of [`block32`].
//!
//! A block is unpacked once for all tokens, four of which run over it together, 16 rows at a time; their sums stay in
//! memory. What differs between the instruction sets is how codes meet activations: [`maddubs`] and [`vnni`].

use std::arch::x86_64::*;

use super::super::lanes::unroll;
use super::super::{Ahead, Never, with_ahead};
use super::{broadcast, broadcast_float, by_tokens, halves, load, store};
use crate::Isa;
use crate::packed::block32::{self, Block32, ByteCodes, LINE, PackedStep, RECORD, ROWS, layouts_of_block32};
use crate::packed::{Call, Layout, Pack};
use crate::proof::{Avx2, AvxVnni, Proof};
pub(super) use maddubs::FourDwords;

mod maddubs;
mod nested;
mod vnni;

/// Vectors of eight of the rows that a tile has: with four tokens, its sums fill half of the registers.
const VECTORS: usize = 2;
/// Tiles of rows of a group.
const TILES: usize = ROWS / (8 * VECTORS);
/// The codes of a block: dword k of all rows, a byte each.
type Codes = [[__m256i; ROWS / 8]; 8];
/// Sums of a tile: its rows and T tokens.
type Sums<const T: usize> = [[__m256i; VECTORS]; T];

/// How an instruction set multiplies codes with activations.
trait Products: Proof + Dot<1> + Dot<2> + Dot<3> + Dot<4> {
    /// Whether codes that take all eight bits are unpacked as weights with a sign.
    const SIGNED: bool;

    /// See [`Layout::pack`].
    fn pack<B: Block32>(isa: Isa, w: &[u8], n: usize, out: &mut [u8]) -> bool;

    /// The integer sums of eight rows and one token, whose codes, dword k in vector k, are few enough that all products
    /// of a block fit 16 bits.
    ///
    /// # Safety
    /// The processor has the instruction set; the record is readable.
    unsafe fn one_dot<C: ByteCodes>(codes: &[__m256i; 8], record: *const u8) -> __m256i;
}

/// Products of T tokens.
trait Dot<const T: usize> {
    /// The integer sums of a block, whose codes of a tile of rows start at `codes`, a line for each dword, and of
    /// tokens whose records start at `record` and every `stride` bytes after it.
    ///
    /// # Safety
    /// The processor has the instruction set; eight lines and the records are readable.
    unsafe fn dot<C: ByteCodes>(codes: *const u8, record: *const u8, stride: usize) -> Sums<T>;
}

pub(super) static PLAIN: &[Layout] = &layouts_of_block32!(layout, Avx2);
pub(super) static BY_VNNI: &[Layout] = &layouts_of_block32!(layout, AvxVnni);
pub(super) use nested::{BY_VNNI as NESTED_BY_VNNI, PLAIN as NESTED};

const fn layout<P: Products, B: Block32>() -> Layout {
    Layout { pack: const { P::pack::<B> as Pack }, ..block32::layout::<B>(P::NEEDS, multiply::<P, B>) }
}

/// Whether codes take all eight bits and are used as signed weights.
const fn signed<P: Products, C: ByteCodes>() -> bool {
    assert!(C::MAX <= 127 || C::BIAS == 128);
    P::SIGNED && C::MAX > 127
}

fn multiply<P: Products, B: Block32>(call: Call<'_>) {
    let Call { group, acts, tokens, ahead, out, .. } = call.check(const { &layout::<P, B>() });
    // SAFETY: `check` has seen the proof of these instructions and compared all lengths.
    unsafe {
        if tokens == 1 {
            with_ahead!(ahead => one::<P, B>(group, acts, ahead, out));
        } else {
            many::<P, B>(group, acts, acts.len() / tokens.max(1), ahead, out);
        }
    }
}

/// Whether the codes of a block have to be unpacked.
const fn packed<P: Products, B: Block32>() -> bool {
    B::LINES < 8 || signed::<P, B>()
}

/// Writes the codes of a block, or its weights where they are signed, and asks for what lies `ahead`. They are not
/// returned, because the compiler would copy them where it does not inline the call.
///
/// # Safety
/// The processor has AVX2; a packed block is readable.
#[inline]
#[target_feature(enable = "avx2")]
#[expect(clippy::needless_range_loop, reason = "vector v of two dwords")]
unsafe fn unpack<P: Products, B: Block32>(block: *const u8, ahead: impl Ahead, codes: &mut Codes) {
    // SAFETY: a packed block has `LINES` lines, and eight masks where it has fifth bits.
    unsafe {
        unroll!(G in [0 1 2 3 4 5 6 7] {
            if G < B::LINES {
                for v in 0..ROWS / 8 {
                    ahead.share(block, B::PACKED, ROWS / 8 * G + v, ROWS / 8 * B::LINES);
                    let line = load(block.add(B::LINES_START + LINE * G + 32 * v));
                    if B::LINES == 8 {
                        codes[G][v] = weights::<P, B>(line, block, G, v);
                    } else {
                        let low = _mm256_set1_epi8(15);
                        let high = _mm256_and_si256(_mm256_srli_epi16::<4>(line), low);
                        let (line, other) = (_mm256_and_si256(line, low), G % 4 + 4);
                        codes[G][v] = weights::<P, B>(line, block, G, v);
                        codes[other][v] = weights::<P, B>(high, block, other, v);
                    }
                }
            }
        });
    }
}

/// What the bytes or nibbles of dword g and the rows of vector v stand for: with their fifth bits, or by the type's
/// table, and as weights where those are signed.
///
/// # Safety
/// The processor has AVX2; a packed block is readable.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn weights<P: Products, B: Block32>(mut code: __m256i, block: *const u8, g: usize, v: usize) -> __m256i {
    if let Some(table) = B::TABLE {
        // SAFETY: a table of 16 bytes.
        let table = unsafe { _mm_loadu_si128(table.as_ptr().cast()) };
        code = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), code);
    }
    if B::FIFTH_AT.is_some() {
        // SAFETY: a packed block with fifth bits has eight masks, 32 bits for each eight rows.
        let mask = unsafe { broadcast(block.add(B::MASKS_START + LINE / 8 * g + 4 * v)) };
        code = _mm256_or_si256(code, fifth_bits(mask));
    }
    if signed::<P, B>() {
        code = _mm256_xor_si256(code, _mm256_set1_epi8(-128));
    }
    code
}

/// 16 in every byte whose bit is set in the dword that all lanes hold.
#[inline]
#[target_feature(enable = "avx2")]
fn fifth_bits(mask: __m256i) -> __m256i {
    let byte = _mm256_setr_epi8(
        0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, //
        2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3,
    );
    let bit = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64.cast_signed());
    let chosen = _mm256_and_si256(_mm256_shuffle_epi8(mask, byte), bit);
    _mm256_and_si256(_mm256_cmpeq_epi8(chosen, bit), _mm256_set1_epi8(16))
}

/// Scales and offsets of a tile of rows.
struct Head {
    scales: [__m256; VECTORS],
    offsets: [__m256; VECTORS],
}

/// Those of a block's rows.
///
/// # Safety
/// The processor has AVX2 and F16C; a packed block is readable.
#[inline]
#[target_feature(enable = "avx2,f16c")]
unsafe fn heads<B: Block32>(block: *const u8) -> [Head; TILES] {
    std::array::from_fn(|h| {
        // The vector of rows v of the tile.
        let all = |v| VECTORS * h + v;
        // SAFETY: a block begins with its scales; its offsets follow.
        unsafe {
            Head {
                scales: std::array::from_fn(|v| match B::SCALE_BYTES {
                    2 => halves(block.add(16 * all(v))),
                    _ => powers(block.add(8 * all(v))),
                }),
                offsets: std::array::from_fn(|v| match B::STEP {
                    PackedStep::PlusOffset => halves(block.add(B::SCALE_BYTES * ROWS + 16 * all(v))),
                    _ => _mm256_setzero_ps(),
                }),
            }
        }
    })
}

/// Half of 2^(e - 127) for eight exponents e; the two smallest are denormal.
///
/// # Safety
/// The processor has AVX2; eight bytes are readable.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn powers(p: *const u8) -> __m256 {
    // SAFETY: eight exponents.
    let e = _mm256_cvtepu8_epi32(unsafe { _mm_loadl_epi64(p.cast()) });
    let normal = _mm256_slli_epi32::<23>(_mm256_sub_epi32(e, _mm256_set1_epi32(1)));
    let denormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x0020_0000), e);
    let small = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e);
    _mm256_castsi256_ps(_mm256_blendv_epi8(normal, denormal, small))
}

/// The block step of vector v of one token: its sum plus the block's term.
///
/// # Safety
/// The processor has AVX2; a record is readable.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn step<B: Block32>(total: __m256, isum: __m256i, head: &Head, v: usize, record: *const u8) -> __m256 {
    let (isum, dw) = (_mm256_cvtepi32_ps(isum), head.scales[v]);
    // SAFETY: a record has its scale at byte 32 and its sum term at byte 40.
    let (dx, sx) = unsafe { (broadcast_float(record.add(32)), record.add(40)) };
    let term = match B::STEP {
        PackedStep::SumFirst => _mm256_mul_ps(_mm256_mul_ps(isum, dw), dx),
        PackedStep::ScaleFirst => _mm256_mul_ps(_mm256_mul_ps(dw, dx), isum),
        PackedStep::PlusOffset => _mm256_add_ps(
            _mm256_mul_ps(_mm256_mul_ps(dw, dx), isum),
            // SAFETY: as above.
            _mm256_mul_ps(head.offsets[v], unsafe { broadcast_float(sx) }),
        ),
    };
    _mm256_add_ps(total, term)
}

/// The codes of a block: where they are, or unpacked to `room`.
///
/// # Safety
/// The processor has AVX2; a packed block is readable.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn codes<P: Products, B: Block32>(block: *const u8, ahead: impl Ahead, room: &mut Codes) -> *const u8 {
    // SAFETY: a packed block has lines at `LINES_START`.
    unsafe {
        if const { !packed::<P, B>() } {
            return block.add(B::LINES_START);
        }
        unpack::<P, B>(block, ahead, room);
    }
    (&raw const *room).cast()
}

#[target_feature(enable = "avx2,f16c")]
unsafe fn one<P: Products, B: Block32>(group: &[u8], act: &[u8], ahead: impl Ahead, out: &mut [f32]) {
    let mut totals = [[_mm256_setzero_ps(); VECTORS]; TILES];
    let mut room = [[_mm256_setzero_si256(); ROWS / 8]; 8];
    for (block, record) in group.chunks_exact(B::PACKED).zip(act.chunks_exact(RECORD)) {
        let (block, record) = (block.as_ptr(), record.as_ptr());
        let ask = |i| ahead.share(block, B::PACKED, i, TILES * (2 + VECTORS));
        // SAFETY: a whole block and a whole record.
        unsafe {
            let (codes, heads) = (codes::<P, B>(block, Never, &mut room), heads::<B>(block));
            for (h, totals) in totals.iter_mut().enumerate() {
                let first = h * (2 + VECTORS);
                let codes = codes.add(32 * VECTORS * h);
                ask(first);
                let [isums] = <P as Dot<1>>::dot::<B>(codes, record, 0);
                ask(first + 1);
                for (v, total) in totals.iter_mut().enumerate() {
                    ask(first + 2 + v);
                    *total = step::<B>(*total, isums[v], &heads[h], v, record);
                }
            }
        }
    }
    for (total, out) in totals.as_flattened().iter().zip(out.chunks_exact_mut(8)) {
        store(out, *total);
    }
}

#[target_feature(enable = "avx2,f16c")]
unsafe fn many<P: Products, B: Block32>(group: &[u8], acts: &[u8], stride: usize, ahead: usize, out: &mut [f32]) {
    let tokens = out.len() / ROWS;
    let mut room = [[_mm256_setzero_si256(); ROWS / 8]; 8];
    out.fill(0.0);
    for (b, block) in group.chunks_exact(B::PACKED).enumerate() {
        let block = block.as_ptr();
        // SAFETY: a whole block, and block b of all tokens, as `check` saw.
        unsafe {
            let (codes, heads) = (codes::<P, B>(block, ahead, &mut room), heads::<B>(block));
            let records = acts.as_ptr().add(RECORD * b);
            // Codes that are unpacked have asked there; the rest is for the products of the first tokens.
            let ask = |t, h, i, of| {
                if const { !packed::<P, B>() } && t == 0 {
                    let from = block.wrapping_add(B::PACKED / TILES * h);
                    ahead.share(from, const { B::PACKED.div_ceil(TILES) }, i, of);
                }
            };
            if const { matches!(B::STEP, PackedStep::PlusOffset) } {
                // Scales and offsets of one tile stay in registers, those of two do not.
                for h in 0..TILES {
                    by_tokens!(t in tokens, T => {
                        let out = &mut out[ROWS * t..][..ROWS * T];
                        let ask = |i, of| ask(t, h, i, of);
                        add::<P, B, T>(codes, &heads, h, records.add(stride * t), stride, ask, out);
                    });
                }
            } else {
                by_tokens!(t in tokens, T => for h in 0..TILES {
                    let out = &mut out[ROWS * t..][..ROWS * T];
                    let ask = |i, of| ask(t, h, i, of);
                    add::<P, B, T>(codes, &heads, h, records.add(stride * t), stride, ask, out);
                });
            }
        }
    }
}

/// The block step of the rows of tile h and of T tokens, whose sums are in `out`. `ask(i, of)` is called `of` times on
/// the way.
///
/// # Safety
/// The processor has the instruction set; the codes of all rows and the records are readable.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn add<P: Dot<T>, B: Block32, const T: usize>(
    codes: *const u8,
    heads: &[Head; TILES],
    h: usize,
    record: *const u8,
    stride: usize,
    ask: impl Fn(usize, usize),
    out: &mut [f32],
) {
    ask(0, 1 + VECTORS * T);
    // SAFETY: the caller's codes and records.
    let isums = unsafe { P::dot::<B>(codes.add(32 * VECTORS * h), record, stride) };
    for (t, isums) in isums.iter().enumerate() {
        let out = &mut out[ROWS * t + 8 * VECTORS * h..][..8 * VECTORS];
        for (v, out) in out.chunks_exact_mut(8).enumerate() {
            ask(1 + VECTORS * t + v, 1 + VECTORS * T);
            // SAFETY: eight floats; the record of token t.
            unsafe {
                let total = _mm256_loadu_ps(out.as_ptr());
                let record = record.add(stride * t);
                store(out, step::<B>(total, isums[v], &heads[h], v, record));
            }
        }
    }
}
