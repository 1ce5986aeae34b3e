//! Types with 32-element blocks and one float chain per row for AVX2: the bytes of [`block32`].
//!
//! `maddubs` multiplies unsigned codes with the activations and sums in 16 bits, as many of its results as
//! cannot overflow. Where codes take all eight bits it would saturate: the signed weights then change their
//! sign with the activation and are multiplied by its magnitude, which is exact for all weights but -128.
//! Encoders never write that, and matrices that hold it are not packed.
//!
//! A block is unpacked once for all tokens, four of which run over it together; their sums stay in memory.

use std::arch::x86_64::*;

use super::super::{check, prefetch};
use super::{broadcast, broadcast_float, halves, load, store};
use crate::packed::Layout;
use crate::packed::block32::{self, Block32, LINE, PackedStep, RECORD, ROWS};

/// Vectors of eight of the rows that a tile has: with four tokens, its sums fill half of the registers.
const VECTORS: usize = 2;
/// Tiles of rows of a group.
const TILES: usize = ROWS / (8 * VECTORS);
/// The codes of a tile of rows: dword k of the rows of each vector.
type Codes = [[__m256i; VECTORS]; 8];

const fn layout<B: Block32>(name: &'static str, acts: &'static str) -> Layout {
    Layout {
        pack: pack::<B>,
        ..block32::layout::<B>(name, acts, multiply::<B>)
    }
}

pub(in super::super) static Q8_0_X32: Layout = layout::<block32::Q8_0>("q8_0 x32", "q8_0 bias 128");
pub(in super::super) static Q4_0_X32: Layout = layout::<block32::Q4_0>("q4_0 x32", "q8_0 bias 8");
pub(in super::super) static Q4_1_X32: Layout = layout::<block32::Q4_1>("q4_1 x32", "q8_1");
pub(in super::super) static Q5_0_X32: Layout = layout::<block32::Q5_0>("q5_0 x32", "q8_0 bias 16");
pub(in super::super) static Q5_1_X32: Layout = layout::<block32::Q5_1>("q5_1 x32", "q8_1");
pub(in super::super) static IQ4_NL_X32: Layout =
    layout::<block32::Iq4Nl>("iq4_nl x32", "q8_0 bias 128");
pub(in super::super) static MXFP4_X32: Layout =
    layout::<block32::Mxfp4>("mxfp4 x32", "q8_0 bias 12");

/// Whether codes take all eight bits and are used as signed weights.
const fn signed<B: Block32>() -> bool {
    assert!(B::MAX <= 127 || B::BIAS == 128);
    B::MAX > 127
}

/// Whether the results of `maddubs` of a whole block may be summed in 16 bits; those of half a block may.
const fn all_fit<B: Block32>() -> bool {
    let greatest = B::MAX as usize * 256;
    assert!(signed::<B>() || 4 * greatest <= 32767);
    8 * greatest <= 32767
}

fn pack<B: Block32>(w: &[u8], n: usize, out: &mut [u8]) -> bool {
    if B::LINES == 8 {
        let mut blocks = w.chunks_exact(B::BYTES);
        if blocks.any(|block| block[B::CODES_AT..].contains(&0x80)) {
            return false;
        }
    }
    block32::pack::<B>(w, n, out)
}

fn multiply<B: Block32>(
    group: &[u8],
    acts: &[u8],
    n: usize,
    tokens: usize,
    ahead: usize,
    out: &mut [f32],
) {
    check(
        const { &layout::<B>("32-blocks x32", "") },
        group,
        acts,
        n,
        tokens,
        out,
    );
    // SAFETY: `layouts` hands the layout out only for an `Isa` with these instructions; `check` has compared all
    // lengths.
    unsafe {
        if tokens == 1 {
            one::<B>(group, acts, ahead, out);
        } else {
            many::<B>(group, acts, acts.len() / tokens.max(1), out);
        }
    }
}

/// The codes of a block, or its weights where they are signed.
///
/// # Safety
/// The processor has AVX2; a packed block is readable.
#[inline]
#[target_feature(enable = "avx2")]
#[expect(
    clippy::needless_range_loop,
    reason = "with closures the compiler does not inline it, and copies the codes"
)]
unsafe fn unpack<B: Block32>(block: *const u8) -> [Codes; TILES] {
    let mut codes = [[[_mm256_setzero_si256(); VECTORS]; 8]; TILES];
    // Line after line, so that memory is read in sequence.
    for g in 0..B::LINES {
        for (h, codes) in codes.iter_mut().enumerate() {
            for v in 0..VECTORS {
                let at = B::LINES_START + LINE * g + 32 * (VECTORS * h + v);
                // SAFETY: a packed block has `LINES` lines.
                let line = unsafe { load(block.add(at)) };
                if B::LINES == 8 {
                    codes[g][v] = line;
                } else {
                    let low = _mm256_set1_epi8(15);
                    codes[g][v] = _mm256_and_si256(line, low);
                    codes[g + 4][v] = _mm256_and_si256(_mm256_srli_epi16::<4>(line), low);
                }
            }
        }
    }
    if let Some(table) = B::TABLE {
        // SAFETY: a table of 16 bytes.
        let table = unsafe { _mm_loadu_si128(table.as_ptr().cast()) };
        let table = _mm256_broadcastsi128_si256(table);
        for code in codes.as_flattened_mut().as_flattened_mut() {
            *code = _mm256_shuffle_epi8(table, *code);
        }
    }
    if B::FIFTH_AT.is_some() {
        for (h, codes) in codes.iter_mut().enumerate() {
            for (i, code) in codes.as_flattened_mut().iter_mut().enumerate() {
                let (g, v) = (i / VECTORS, VECTORS * h + i % VECTORS);
                // SAFETY: a packed block with fifth bits has eight masks, 32 bits for each eight rows.
                let mask = unsafe { broadcast(block.add(B::MASKS_START + LINE / 8 * g + 4 * v)) };
                *code = _mm256_or_si256(*code, fifth_bits(mask));
            }
        }
    }
    if signed::<B>() {
        for code in codes.as_flattened_mut().as_flattened_mut() {
            *code = _mm256_xor_si256(*code, _mm256_set1_epi8(-128));
        }
    }
    codes
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

/// Adds the products of four dwords of codes with those of tokens whose activations are `stride` bytes apart.
///
/// In assembly because the compiler takes the broadcasts of all dwords to the front and, having no registers for them,
/// spills them: 70 instead of 110 GMAC/s.
trait FourDwords<const T: usize> {
    /// The sums of `maddubs` in 16 bits, added to `acc`.
    ///
    /// # Safety
    /// AVX2; 256 bytes of codes at `w`, 16 of activations at `q` and at every `stride` bytes after it for each token.
    unsafe fn unsigned(w: *const __m256i, q: *const u8, stride: usize, acc: Sums<T>) -> Sums<T>;

    /// The sums of signed weights in 32 bits, added to `acc`.
    ///
    /// # Safety
    /// As [`FourDwords::unsigned`].
    unsafe fn signed(w: *const __m256i, q: *const u8, stride: usize, acc: Sums<T>) -> Sums<T>;
}

/// Sums of a tile: its rows and T tokens.
type Sums<const T: usize> = [[__m256i; VECTORS]; T];

struct Kernel;

macro_rules! four_dwords {
    ($tokens:literal, [$($acc0:ident $acc1:ident $at:literal),*]) => {
        impl FourDwords<$tokens> for Kernel {
            #[inline]
            #[target_feature(enable = "avx2")]
            unsafe fn unsigned(w: *const __m256i, q: *const u8, stride: usize, acc: Sums<$tokens>) -> Sums<$tokens> {
                let [$([mut $acc0, mut $acc1]),*] = acc;
                macro_rules! dword {
                    ($w0:literal, $w1:literal, $q:literal) => {
                        concat!(
                            "vmovdqa {w0}, ymmword ptr [{w} + ", $w0, "]\n",
                            "vmovdqa {w1}, ymmword ptr [{w} + ", $w1, "]\n",
                            $("vpbroadcastd {y}, dword ptr [{q} ", $at, " + ", $q, "]\n",
                            "vpmaddubsw {product}, {w0}, {y}\n",
                            "vpmaddubsw {y}, {w1}, {y}\n",
                            "vpaddw {", stringify!($acc0), "}, {", stringify!($acc0), "}, {product}\n",
                            "vpaddw {", stringify!($acc1), "}, {", stringify!($acc1), "}, {y}\n",)*
                        )
                    };
                }
                // SAFETY: reads 256 bytes at `w`, which is a vector's address, and 16 at `q` of each token.
                unsafe {
                    std::arch::asm!(
                        dword!("0", "32", "0"),
                        dword!("64", "96", "4"),
                        dword!("128", "160", "8"),
                        dword!("192", "224", "12"),
                        "/* {stride} {stride3} */", // a use where there is no second or fourth token
                        w = in(reg) w,
                        q = in(reg) q,
                        stride = in(reg) stride,
                        stride3 = in(reg) 3 * stride,
                        w0 = out(ymm_reg) _,
                        w1 = out(ymm_reg) _,
                        y = out(ymm_reg) _,
                        product = out(ymm_reg) _,
                        $($acc0 = inout(ymm_reg) $acc0, $acc1 = inout(ymm_reg) $acc1,)*
                        options(readonly, nostack, preserves_flags),
                    );
                }
                [$([$acc0, $acc1]),*]
            }

            #[inline]
            #[target_feature(enable = "avx2")]
            unsafe fn signed(w: *const __m256i, q: *const u8, stride: usize, acc: Sums<$tokens>) -> Sums<$tokens> {
                let [$([mut $acc0, mut $acc1]),*] = acc;
                macro_rules! dword {
                    ($w0:literal, $w1:literal, $q:literal) => {
                        concat!(
                            "vmovdqa {w0}, ymmword ptr [{w} + ", $w0, "]\n",
                            "vmovdqa {w1}, ymmword ptr [{w} + ", $w1, "]\n",
                            $("vpbroadcastd {y}, dword ptr [{q} ", $at, " + ", $q, "]\n",
                            "vpsignb {product}, {w0}, {y}\n",
                            "vpsignb {other}, {w1}, {y}\n",
                            "vpabsb {y}, {y}\n",
                            "vpmaddubsw {product}, {y}, {product}\n",
                            "vpmaddubsw {other}, {y}, {other}\n",
                            "vpmaddwd {product}, {product}, {ones}\n",
                            "vpmaddwd {other}, {other}, {ones}\n",
                            "vpaddd {", stringify!($acc0), "}, {", stringify!($acc0), "}, {product}\n",
                            "vpaddd {", stringify!($acc1), "}, {", stringify!($acc1), "}, {other}\n",)*
                        )
                    };
                }
                // SAFETY: reads 256 bytes at `w`, which is a vector's address, and 16 at `q` of each token.
                unsafe {
                    std::arch::asm!(
                        dword!("0", "32", "0"),
                        dword!("64", "96", "4"),
                        dword!("128", "160", "8"),
                        dword!("192", "224", "12"),
                        "/* {stride} {stride3} */", // a use where there is no second or fourth token
                        w = in(reg) w,
                        q = in(reg) q,
                        stride = in(reg) stride,
                        stride3 = in(reg) 3 * stride,
                        ones = in(ymm_reg) _mm256_set1_epi16(1),
                        w0 = out(ymm_reg) _,
                        w1 = out(ymm_reg) _,
                        y = out(ymm_reg) _,
                        product = out(ymm_reg) _,
                        other = out(ymm_reg) _,
                        $($acc0 = inout(ymm_reg) $acc0, $acc1 = inout(ymm_reg) $acc1,)*
                        options(readonly, nostack, preserves_flags),
                    );
                }
                [$([$acc0, $acc1]),*]
            }
        }
    };
}

four_dwords!(1, [a0 a1 ""]);
four_dwords!(2, [a0 a1 "", b0 b1 "+ {stride}"]);
four_dwords!(3, [a0 a1 "", b0 b1 "+ {stride}", c0 c1 "+ 2*{stride}"]);
four_dwords!(4, [a0 a1 "", b0 b1 "+ {stride}", c0 c1 "+ 2*{stride}", d0 d1 "+ {stride3}"]);

/// The integer sums of a block with T tokens, whose records are `stride` bytes apart.
///
/// # Safety
/// The processor has AVX2; the records are readable.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn dot<B: Block32, const T: usize>(
    codes: &Codes,
    record: *const u8,
    stride: usize,
) -> Sums<T>
where
    Kernel: FourDwords<T>,
{
    let zero = [[_mm256_setzero_si256(); VECTORS]; T];
    let halves = [codes[..4].as_ptr(), codes[4..].as_ptr()].map(|half| half.cast::<__m256i>());
    // SAFETY: four dwords of codes each; a record has eight of activations, and its start at byte 36.
    unsafe {
        if signed::<B>() {
            let sums = Kernel::signed(halves[0], record, stride, zero);
            return Kernel::signed(halves[1], record.add(16), stride, sums);
        }
        let mut sums: Sums<T> =
            std::array::from_fn(|t| [broadcast(record.add(stride * t + 36)); VECTORS]);
        let first = Kernel::unsigned(halves[0], record, stride, zero);
        let second = if const { all_fit::<B>() } {
            Kernel::unsigned(halves[1], record.add(16), stride, first)
        } else {
            add_pairs(&mut sums, &first);
            Kernel::unsigned(halves[1], record.add(16), stride, zero)
        };
        add_pairs(&mut sums, &second);
        sums
    }
}

/// Adds sums in 16 bits to sums in 32.
#[inline]
#[target_feature(enable = "avx2")]
fn add_pairs<const T: usize>(sums: &mut Sums<T>, pairs: &Sums<T>) {
    for (sum, pairs) in sums.as_flattened_mut().iter_mut().zip(pairs.as_flattened()) {
        let wide = _mm256_madd_epi16(*pairs, _mm256_set1_epi16(1));
        *sum = _mm256_add_epi32(*sum, wide);
    }
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
                    PackedStep::PlusOffset => {
                        halves(block.add(B::SCALE_BYTES * ROWS + 16 * all(v)))
                    }
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
unsafe fn step<B: Block32>(
    total: __m256,
    isum: __m256i,
    head: &Head,
    v: usize,
    record: *const u8,
) -> __m256 {
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

#[target_feature(enable = "avx2,f16c")]
unsafe fn one<B: Block32>(group: &[u8], act: &[u8], ahead: usize, out: &mut [f32]) {
    let mut totals = [[_mm256_setzero_ps(); VECTORS]; TILES];
    for (block, record) in group.chunks_exact(B::PACKED).zip(act.chunks_exact(RECORD)) {
        let (block, record) = (block.as_ptr(), record.as_ptr());
        prefetch(block, B::PACKED, ahead);
        // SAFETY: a whole block and a whole record.
        unsafe {
            let (codes, heads) = (unpack::<B>(block), heads::<B>(block));
            for (h, totals) in totals.iter_mut().enumerate() {
                let [isums] = dot::<B, 1>(&codes[h], record, 0);
                for (v, total) in totals.iter_mut().enumerate() {
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
unsafe fn many<B: Block32>(group: &[u8], acts: &[u8], stride: usize, out: &mut [f32]) {
    let tokens = out.len() / ROWS;
    out.fill(0.0);
    for (b, block) in group.chunks_exact(B::PACKED).enumerate() {
        // SAFETY: a whole block, and block b of all tokens, as `check` saw.
        unsafe {
            let (codes, heads) = (unpack::<B>(block.as_ptr()), heads::<B>(block.as_ptr()));
            let records = acts.as_ptr().add(RECORD * b);
            if const { matches!(B::STEP, PackedStep::PlusOffset) } {
                // Scales and offsets of one tile stay in registers, those of two do not.
                for h in 0..TILES {
                    by_tokens!(t in tokens, T => {
                        let out = &mut out[ROWS * t..][..ROWS * T];
                        add::<B, T>(&codes, &heads, h, records.add(stride * t), stride, out);
                    });
                }
            } else {
                by_tokens!(t in tokens, T => for h in 0..TILES {
                    let out = &mut out[ROWS * t..][..ROWS * T];
                    add::<B, T>(&codes, &heads, h, records.add(stride * t), stride, out);
                });
            }
        }
    }
}

/// The block step of the rows of tile h and of T tokens, whose sums are in `out`.
///
/// # Safety
/// The processor has AVX2; the records are readable.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn add<B: Block32, const T: usize>(
    codes: &[Codes; TILES],
    heads: &[Head; TILES],
    h: usize,
    record: *const u8,
    stride: usize,
    out: &mut [f32],
) where
    Kernel: FourDwords<T>,
{
    // SAFETY: the caller's records.
    let isums = unsafe { dot::<B, T>(&codes[h], record, stride) };
    for (t, isums) in isums.iter().enumerate() {
        let out = &mut out[ROWS * t + 8 * VECTORS * h..][..8 * VECTORS];
        for (v, out) in out.chunks_exact_mut(8).enumerate() {
            // SAFETY: eight floats; the record of token t.
            unsafe {
                let total = _mm256_loadu_ps(out.as_ptr());
                let record = record.add(stride * t);
                store(out, step::<B>(total, isums[v], &heads[h], v, record));
            }
        }
    }
}
