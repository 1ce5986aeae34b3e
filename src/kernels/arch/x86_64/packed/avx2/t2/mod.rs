//! 2-bit ternary codes for AVX2 and AVX-VNNI: the bytes of [`t2`], a vector of 32 being dword c of eight rows.
//!
//! One token or a few: codes are masked in place, planes 0 and 2 as 0 .. 3, planes 1 and 3 as four times that. The sums
//! of the former are multiplied by 4, and everything is taken back by a shift at the end.
//!
//! More tokens: a unit is unpacked once to bytes in the first-level cache, `[dword k][32 rows][4]`, and all tokens
//! run over it, 16 rows x 4 tokens at a time. The float sums of the tokens stay in memory.
//!
//! The instruction sets differ in how codes meet activations: [`maddubs`] and [`vnni`].

use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use super::super::t2::{self, Act, BLOCK, ROWS, SCALES, UNIT, UNIT_BYTES};
use super::super::ternary_sums::PLANES;
use super::super::ymm::Ymm;
use super::super::{PrefetchDistance, dword, with_prefetch};
use crate::arch::x86_64::rows::lanes::{Lanes, by_tokens};
use crate::proof::{Avx2, AvxVnni, Proof};
use crate::shared::packed::{Call, Layout};

mod maddubs;
mod vnni;

/// Tokens of a call: their sums and activations of a block stay in the first-level cache beside the bytes.
const TILE: usize = 32;
/// Vectors of 32 rows.
const VECTORS: usize = ROWS / 8;
/// Dwords of a unit of one row, unpacked.
const DWORDS: usize = UNIT / 4;

/// How an instruction set multiplies codes with activations.
trait Products: Proof + Tile<1> + Tile<2> + Tile<3> + Tile<4> {
    /// Most tokens for which masking the codes for each is faster than unpacking them for all: 2, 3 or 4.
    const FEW: usize;

    /// Adds four times the sums of one unit, read once, `V` vectors at a time.
    ///
    /// # Safety
    /// The processor has the instruction set; `w` points at a unit, each of `q` at its 128 activations.
    unsafe fn add_unit<const T: usize, const V: usize, const REVERSED: bool>(
        w: *const u8,
        q: [*const u8; T],
        ahead: impl PrefetchDistance,
        sums: &mut [Sums; T],
    );
}

/// Products of 16 rows of unpacked units and T tokens.
trait Tile<const T: usize> {
    /// The sums over `units` units, whose first dwords are at `bytes`, with the activations at `q` and at every
    /// `stride` bytes after it.
    ///
    /// # Safety
    /// The processor has the instruction set; the units and their activations are readable.
    unsafe fn multiply(bytes: *const u8, units: usize, q: *const u8, stride: usize) -> [[__m256i; 2]; T];
}

/// TQ1_0 is in two bits too: without a permutation of bytes, five digits to a byte take more instructions than they save
/// bytes.
const fn layouts<P: Products>() -> [Layout; 6] {
    t2::layouts(P::NEEDS, multiply_tq2_0::<P>, multiply_rows::<P>, TILE)
}

pub(in crate::arch::x86_64::packed) static PLAIN: &[Layout] = &layouts::<Avx2>();
pub(in crate::arch::x86_64::packed) static BY_VNNI: &[Layout] = &layouts::<AvxVnni>();

fn multiply_tq2_0<P: Products>(call: Call<'_>) {
    let Call { group, acts, n, ahead, out, .. } = call.check(const { &layouts::<P>()[0] });
    let stride = t2::act_bytes_q8_k(n);
    for (acts, out) in acts.chunks(TILE * stride).zip(out.chunks_mut(TILE * ROWS)) {
        // SAFETY: `check` has seen the proof of these instructions and compared all lengths.
        unsafe {
            match out.len() / ROWS {
                1 => {
                    with_prefetch!(ahead => few_blocks::<P, 1, 4>(group, acts, n, stride, ahead, out))
                }
                2 => {
                    with_prefetch!(ahead => few_blocks::<P, 2, 2>(group, acts, n, stride, ahead, out))
                }
                3 if P::FEW >= 3 => {
                    with_prefetch!(ahead => few_blocks::<P, 3, 1>(group, acts, n, stride, ahead, out))
                }
                4 if P::FEW >= 4 => {
                    with_prefetch!(ahead => few_blocks::<P, 4, 1>(group, acts, n, stride, ahead, out))
                }
                _ => many_blocks::<P>(group, acts, n, stride, out),
            }
        }
    }
}

fn multiply_rows<P: Products>(call: Call<'_>) {
    let Call { group, acts, n, ahead, out, .. } = call.check(const { &layouts::<P>()[3] });
    let stride = t2::act_bytes_int8(n);
    for (acts, out) in acts.chunks(TILE * stride).zip(out.chunks_mut(TILE * ROWS)) {
        // SAFETY: `check` has seen the proof of these instructions and compared all lengths.
        unsafe {
            match out.len() / ROWS {
                1 => with_prefetch!(ahead => few_rows::<P, 1, 4>(group, acts, stride, ahead, out)),
                2 => with_prefetch!(ahead => few_rows::<P, 2, 2>(group, acts, stride, ahead, out)),
                3 if P::FEW >= 3 => {
                    with_prefetch!(ahead => few_rows::<P, 3, 1>(group, acts, stride, ahead, out))
                }
                4 if P::FEW >= 4 => {
                    with_prefetch!(ahead => few_rows::<P, 4, 1>(group, acts, stride, ahead, out))
                }
                _ => many_rows::<P>(group, acts, stride, out),
            }
        }
    }
}

/// Integer sums of 32 rows.
type Sums = [__m256i; VECTORS];

/// The activation dword of plane s of chunk c, or of the planes the other way round.
const fn place<const REVERSED: bool>(s: usize, c: usize) -> usize {
    if REVERSED { 8 * (3 - s) + c } else { 8 * s + c }
}

/// `acc + isum * (dy * dw)`, every operation rounded by itself.
///
/// # Safety
/// The processor has AVX2 and F16C; `scales` points at eight f16.
#[inline]
#[target_feature(enable = "avx2,f16c")]
unsafe fn block_step(acc: __m256, isum: __m256i, dy: __m256, scales: *const u8) -> __m256 {
    // SAFETY: the caller points at eight f16 scales.
    let d = _mm256_mul_ps(dy, unsafe { Ymm::halves(scales) });
    _mm256_add_ps(acc, _mm256_mul_ps(_mm256_cvtepi32_ps(isum), d))
}

/// # Safety
/// The processor has these features and the instructions of `P`; the lengths are those that [`Call::check`] compares.
#[target_feature(enable = "avx2,f16c")]
unsafe fn few_blocks<P: Products, const T: usize, const V: usize>(
    group: &[u8],
    acts: &[u8],
    n: usize,
    stride: usize,
    ahead: impl PrefetchDistance,
    out: &mut [f32],
) {
    let acts: [Act; T] = std::array::from_fn(|t| Act::new(&acts[t * stride..][..stride], n));
    let mut totals = [[_mm256_setzero_ps(); VECTORS]; T];
    for (b, block) in group.chunks_exact(BLOCK).enumerate() {
        ahead.line(block.as_ptr());
        let mut sums = [[_mm256_setzero_si256(); VECTORS]; T];
        // SAFETY: block b of the group and of the activations are there, as `check` saw.
        unsafe {
            for u in 0..2 {
                let w = block.as_ptr().add(SCALES + u * UNIT_BYTES);
                let q = acts.map(|act| act.q.add(256 * b + UNIT * u));
                P::add_unit::<T, V, false>(w, q, ahead, &mut sums);
            }
            for t in 0..T {
                let sum = Ymm::broadcast(acts[t].sums.add(b).cast());
                let dy = Ymm::broadcast_float(acts[t].scales.add(b).cast());
                for v in 0..VECTORS {
                    let isum = _mm256_sub_epi32(_mm256_srai_epi32::<2>(sums[t][v]), sum);
                    let scales = block.as_ptr().add(16 * v);
                    totals[t][v] = block_step(totals[t][v], isum, dy, scales);
                }
            }
        }
    }
    put(&totals, out);
}

/// # Safety
/// The processor has these features and the instructions of `P`; the lengths are those that [`Call::check`] compares.
#[target_feature(enable = "avx2")]
unsafe fn few_rows<P: Products, const T: usize, const V: usize>(
    group: &[u8],
    acts: &[u8],
    stride: usize,
    ahead: impl PrefetchDistance,
    out: &mut [f32],
) {
    let mut totals = [[_mm256_setzero_si256(); VECTORS]; T];
    for (u, unit) in group.chunks_exact(UNIT_BYTES).enumerate() {
        let mut sums = [[_mm256_setzero_si256(); VECTORS]; T];
        // SAFETY: unit u of the activations is there, as `check` saw.
        unsafe {
            let q = std::array::from_fn(|t| acts.as_ptr().add(t * stride + 64 + UNIT * u));
            P::add_unit::<T, V, true>(unit.as_ptr(), q, ahead, &mut sums);
        }
        for (total, sum) in totals.as_flattened_mut().iter_mut().zip(sums.as_flattened()) {
            *total = _mm256_add_epi32(*total, _mm256_srai_epi32::<2>(*sum));
        }
    }
    for (t, out) in out.chunks_exact_mut(ROWS).enumerate() {
        for (total, out) in totals[t].iter().zip(out.chunks_exact_mut(8)) {
            // SAFETY: this function has the instructions.
            unsafe { Ymm::store(out, row_step(*total, &acts[t * stride..])) };
        }
    }
}

/// `((f32) D - (f32) S) / a`.
#[inline]
#[target_feature(enable = "avx2")]
fn row_step(d: __m256i, act: &[u8]) -> __m256 {
    let a = f32::from_le_bytes(dword(act, 0));
    let sum = i32::from_le_bytes(dword(act, 1)) as f32;
    let difference = _mm256_sub_ps(_mm256_cvtepi32_ps(d), _mm256_set1_ps(sum));
    _mm256_div_ps(difference, _mm256_set1_ps(a))
}

/// Writes the sums of T tokens.
#[inline]
#[target_feature(enable = "avx2")]
fn put<const T: usize>(totals: &[[__m256; VECTORS]; T], out: &mut [f32]) {
    for (total, out) in totals.as_flattened().iter().zip(out.chunks_exact_mut(8)) {
        // SAFETY: this function has the instructions.
        unsafe { Ymm::store(out, *total) };
    }
}

/// The codes of up to two units as bytes: dword k of row r at `128 k + 4 r`.
#[repr(C, align(64))]
struct Bytes([MaybeUninit<u8>; 2 * UNIT_UNPACKED]);

/// Bytes of a unit, unpacked.
const UNIT_UNPACKED: usize = 4 * ROWS * DWORDS;

impl Bytes {
    #[inline(always)]
    fn new() -> Bytes {
        Bytes([MaybeUninit::uninit(); 2 * UNIT_UNPACKED])
    }

    /// Address of the bytes of rows `16 h ..`.
    #[inline(always)]
    fn rows(&self, h: usize) -> *const u8 {
        self.0[64 * h..].as_ptr().cast()
    }

    /// Unpacks unit u.
    ///
    /// # Safety
    /// The processor has AVX2; `w` points at a unit; `u` is 0 or 1.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn fill<const REVERSED: bool>(&mut self, u: usize, w: *const u8) {
        let low = _mm256_set1_epi8(3);
        let to = self.0[UNIT_UNPACKED * u..][..UNIT_UNPACKED].as_mut_ptr();
        for c in 0..8 {
            for v in 0..VECTORS {
                // SAFETY: a unit has eight chunks of four vectors; the bytes of its planes are 32 dwords of 32 rows.
                unsafe {
                    let x = Ymm::load(w.add(128 * c + 32 * v));
                    let planes = [x, _mm256_srli_epi16::<2>(x), _mm256_srli_epi16::<4>(x), _mm256_srli_epi16::<6>(x)];
                    for (s, plane) in planes.into_iter().enumerate() {
                        let to = to.add(128 * place::<REVERSED>(s, c) + 32 * v);
                        _mm256_store_si256(to.cast(), _mm256_and_si256(plane, low));
                    }
                }
            }
        }
    }
}

/// # Safety
/// The processor has these features and the instructions of `P`; the lengths are those that [`Call::check`] compares.
#[target_feature(enable = "avx2,f16c")]
unsafe fn many_blocks<P: Products>(group: &[u8], acts: &[u8], n: usize, stride: usize, out: &mut [f32]) {
    let tokens = out.len() / ROWS;
    let first = Act::new(&acts[..stride], n);
    let mut bytes = Bytes::new();
    out.fill(0.0);
    for (b, block) in group.chunks_exact(BLOCK).enumerate() {
        let block = block.as_ptr();
        // SAFETY: block b of the group and of the activations of all tokens are there, as `check` saw.
        unsafe {
            bytes.fill::<false>(0, block.add(SCALES));
            bytes.fill::<false>(1, block.add(SCALES + UNIT_BYTES));
            by_tokens!(t in tokens, 4, T => for h in 0..2 {
                let q = first.q.add(256 * b + stride * t);
                let sums = <P as Tile<T>>::multiply(bytes.rows(h), 2, q, stride);
                for (i, sums) in sums.iter().enumerate() {
                    let at = stride * (t + i);
                    let sum = Ymm::broadcast(first.sums.add(b).byte_add(at).cast());
                    let dy = Ymm::broadcast_float(first.scales.add(b).byte_add(at).cast());
                    let out = &mut out[ROWS * (t + i) + 16 * h..][..16];
                    for (v, isum) in sums.iter().enumerate() {
                        let total = _mm256_loadu_ps(out.as_ptr().add(8 * v));
                        let scales = block.add(32 * h + 16 * v);
                        let isum = _mm256_sub_epi32(*isum, sum);
                        Ymm::store(&mut out[8 * v..], block_step(total, isum, dy, scales));
                    }
                }
            });
        }
    }
}

/// # Safety
/// The processor has these features and the instructions of `P`; the lengths are those that [`Call::check`] compares.
#[target_feature(enable = "avx2")]
unsafe fn many_rows<P: Products>(group: &[u8], acts: &[u8], stride: usize, out: &mut [f32]) {
    let tokens = out.len() / ROWS;
    let mut bytes = Bytes::new();
    // The integer sums are kept where the outputs will be.
    out.fill(f32::from_bits(0));
    for (i, two) in group.chunks(2 * UNIT_BYTES).enumerate() {
        // SAFETY: these units of the activations of all tokens are there, as `check` saw; outputs are 32 per token.
        unsafe {
            for (u, unit) in two.chunks_exact(UNIT_BYTES).enumerate() {
                bytes.fill::<true>(u, unit.as_ptr());
            }
            by_tokens!(t in tokens, 4, T => for h in 0..2 {
                let q = acts.as_ptr().add(stride * t + 64 + 2 * UNIT * i);
                let units = two.len() / UNIT_BYTES;
                let sums = <P as Tile<T>>::multiply(bytes.rows(h), units, q, stride);
                for (i, sums) in sums.iter().enumerate() {
                    let out = out[ROWS * (t + i) + 16 * h..][..16].as_mut_ptr();
                    for (v, sum) in sums.iter().enumerate() {
                        let at = out.add(8 * v).cast::<__m256i>();
                        let total = _mm256_add_epi32(_mm256_loadu_si256(at), *sum);
                        _mm256_storeu_si256(at, total);
                    }
                }
            });
        }
    }
    for (act, out) in acts.chunks_exact(stride).zip(out.chunks_exact_mut(ROWS)) {
        for out in out.chunks_exact_mut(8) {
            // SAFETY: eight sums.
            unsafe { Ymm::store(out, row_step(_mm256_loadu_si256(out.as_ptr().cast()), act)) };
        }
    }
}
