//! The loops of [`crate::probe`].

use std::arch::x86_64::*;
use std::hint::black_box;

use super::tiles::{self, Hardware, Tiles};
use crate::shared::CHAINS;
use crate::{Isa, Level};

/// [`crate::probe::read`]; `None` where there is no loop for it.
pub fn read(isa: Isa, data: &[u8], ahead: usize) -> Option<u64> {
    // SAFETY: `isa` proves that the processor has the instruction set.
    unsafe {
        match isa.vectors() {
            Level::Avx512 => Some(read_avx512(data, ahead)),
            Level::Avx2 => Some(read_avx2(data, ahead)),
            _ => None,
        }
    }
}

/// [`crate::probe::evict`], which every x86-64 processor can.
pub fn evict(data: &[u8]) -> bool {
    for line in data.chunks(64) {
        // SAFETY: SSE2 is part of x86-64, and the bytes of `line` are there. Memory and caches differ in no byte after it.
        unsafe { _mm_clflush(line.as_ptr()) };
    }
    // SAFETY: SSE2 is part of x86-64.
    unsafe { _mm_mfence() };
    true
}

/// [`crate::probe::multiply_int8`]; `None` where there is no loop for it.
pub fn multiply_int8(isa: Isa, rounds: u64) -> Option<(u64, i32)> {
    // SAFETY: `isa` proves that the processor has the instruction set, and that the process may use tiles.
    unsafe {
        match isa.vectors() {
            _ if isa.has(Level::Amx) => Some(int8_tiles(rounds)),
            Level::Avx512 => Some(int8_avx512(rounds)),
            Level::Avx2 => Some(int8_avx2(rounds)),
            _ => None,
        }
    }
}

/// [`crate::probe::multiply_f32`]; `None` where there is no loop for it.
pub fn multiply_f32(isa: Isa, rounds: u64) -> Option<(u64, f32)> {
    // SAFETY: `isa` proves that the processor has the instruction set.
    unsafe {
        match isa.vectors() {
            Level::Avx512 => Some(f32_avx512(rounds)),
            Level::Avx2 => Some(f32_avx2(rounds)),
            _ => None,
        }
    }
}

/// Prefetches the line `ahead` bytes behind `p` and pauses: prefetches in a row make loads wait.
#[inline(always)]
fn prefetch(p: *const u8, ahead: usize) {
    if ahead > 0 {
        // SAFETY: the request takes any address; the others do nothing.
        unsafe {
            std::arch::asm!(
                "prefetcht1 [{p}]",
                "nop", "nop", "nop", "nop", "nop", "nop", "nop", "nop",
                p = in(reg) p.wrapping_add(ahead),
                options(readonly, nostack, preserves_flags)
            );
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn read_avx512(data: &[u8], ahead: usize) -> u64 {
    let mut sums = [_mm512_setzero_si512(); 4];
    for lines in data.as_chunks::<256>().0 {
        for (sum, line) in sums.iter_mut().zip(lines.as_chunks::<64>().0) {
            prefetch(line.as_ptr(), ahead);
            // SAFETY: 64 bytes; the load needs no alignment.
            let line = unsafe { _mm512_loadu_si512(line.as_ptr().cast()) };
            *sum = _mm512_xor_si512(*sum, line);
        }
    }
    let all = sums.into_iter().reduce(|a, b| _mm512_xor_si512(a, b));
    all.map_or(0, |v| _mm512_reduce_add_epi64(v) as u64)
}

#[target_feature(enable = "avx2,fma,f16c")]
fn read_avx2(data: &[u8], ahead: usize) -> u64 {
    let mut sums = [_mm256_setzero_si256(); 8];
    for lines in data.as_chunks::<256>().0 {
        for (i, (sum, line)) in sums.iter_mut().zip(lines.as_chunks::<32>().0).enumerate() {
            if i % 2 == 0 {
                prefetch(line.as_ptr(), ahead);
            }
            // SAFETY: 32 bytes; the load needs no alignment.
            let line = unsafe { _mm256_loadu_si256(line.as_ptr().cast()) };
            *sum = _mm256_xor_si256(*sum, line);
        }
    }
    let all = sums.into_iter().reduce(|a, b| _mm256_xor_si256(a, b));
    let mut lanes = [0u64; 4];
    if let Some(v) = all {
        // SAFETY: 32 bytes; the store needs no alignment.
        unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), v) };
    }
    lanes.into_iter().fold(0, |a, b| a ^ b)
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn int8_avx512(rounds: u64) -> (u64, i32) {
    let (a, b) = black_box((_mm512_set1_epi8(3), _mm512_set1_epi8(-5)));
    let mut sums = [_mm512_setzero_si512(); CHAINS];
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = _mm512_dpbusd_epi32(*sum, a, b);
        }
    }
    let all = sums.into_iter().reduce(|a, b| _mm512_add_epi32(a, b));
    let kept = all.map_or(0, |v| _mm512_reduce_add_epi32(v));
    (rounds * 64 * CHAINS as u64, kept)
}

/// # Safety
/// [`crate::Level::Amx`].
unsafe fn int8_tiles(rounds: u64) -> (u64, i32) {
    let bytes = black_box([1u8; tiles::TILE]);
    let mut sums = [0; 256];
    // SAFETY: the caller has tiles, which are all filled before they are multiplied; sums have room for 16 rows.
    unsafe {
        let mut tiles = Hardware::with_rows([16; 8]);
        tiles.load::<0>(bytes.as_ptr(), tiles::ROW);
        tiles.load::<1>(bytes.as_ptr(), tiles::ROW);
        tiles.clear::<4>();
        tiles.clear::<5>();
        tiles.clear::<6>();
        tiles.clear::<7>();
        for _ in 0..rounds {
            tiles.dot_signed::<4, 0, 1>();
            tiles.dot_signed::<5, 0, 1>();
            tiles.dot_signed::<6, 0, 1>();
            tiles.dot_signed::<7, 0, 1>();
        }
        tiles.store::<4>(sums.as_mut_ptr());
    }
    (rounds * 4 * (16 * tiles::TILE) as u64, sums[0])
}

#[target_feature(enable = "avx2,fma,f16c")]
fn int8_avx2(rounds: u64) -> (u64, i32) {
    let (mut a, other) = black_box((_mm256_set1_epi8(3), _mm256_set1_epi8(1)));
    let factors = black_box([_mm256_set1_epi8(-5); CHAINS]);
    let ones = _mm256_set1_epi16(1);
    let mut sums = [_mm256_setzero_si256(); CHAINS];
    for _ in 0..rounds {
        // Another operand every round, or the products would be computed once.
        a = _mm256_xor_si256(a, other);
        for (sum, b) in sums.iter_mut().zip(factors) {
            let pairs = _mm256_maddubs_epi16(a, b);
            *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(pairs, ones));
        }
    }
    let all = sums.into_iter().reduce(|a, b| _mm256_add_epi32(a, b));
    let kept = all.map_or(0, |v| _mm256_extract_epi32::<0>(v));
    (rounds * 32 * CHAINS as u64, kept)
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn f32_avx512(rounds: u64) -> (u64, f32) {
    let (a, b) = black_box((_mm512_set1_ps(0.5), _mm512_set1_ps(0.25)));
    let mut sums = [_mm512_setzero_ps(); CHAINS];
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = _mm512_fmadd_ps(*sum, a, b);
        }
    }
    let all = sums.into_iter().reduce(|a, b| _mm512_add_ps(a, b));
    let kept = all.map_or(0.0, |v| _mm512_reduce_add_ps(v));
    (rounds * 16 * CHAINS as u64, kept)
}

#[target_feature(enable = "avx2,fma,f16c")]
fn f32_avx2(rounds: u64) -> (u64, f32) {
    let (a, b) = black_box((_mm256_set1_ps(0.5), _mm256_set1_ps(0.25)));
    let mut sums = [_mm256_setzero_ps(); CHAINS];
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = _mm256_fmadd_ps(*sum, a, b);
        }
    }
    let all = sums.into_iter().reduce(|a, b| _mm256_add_ps(a, b));
    let kept = all.map_or(0.0, |v| _mm256_cvtss_f32(v));
    (rounds * 8 * CHAINS as u64, kept)
}
