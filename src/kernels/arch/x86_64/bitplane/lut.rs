//! The tables of a row: centroids as they are in the file, or in 16-bit fixed point, in the forms the kernels look
//! up from.

use std::arch::x86_64::*;

use trine_formats::anyprec::FixedLut;

use crate::shared::bitplane::PlaneRows;

/// A register in memory.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Bytes(pub [u8; 64]);

impl Bytes {
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn load(&self) -> __m512i {
        // SAFETY: 64 bytes, aligned to as many.
        unsafe { _mm512_load_si512(self.0.as_ptr().cast()) }
    }
}

/// Factors that turn centroids in half precision into fixed point.
#[derive(Clone, Copy)]
pub(super) struct Fixed {
    /// Factor of the sums.
    pub scale: f32,
    /// Factor of the centroids; `None` when some of them are not finite.
    pub factor: Option<f32>,
}

/// As [`FixedLut`] does, for all tables of a row.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(super) fn fixed(rows: &PlaneRows<'_>, row: usize) -> Fixed {
    let (_, lut) = rows.row(row);
    let (eights, rest) = lut.as_chunks::<16>();
    let magnitude = _mm_set1_epi16(0x7FFF);
    // half floats without their sign are ordered as their bits are
    let mut max = _mm_setzero_si128();
    for eight in eights {
        // SAFETY: 16 bytes, anywhere.
        let eight = unsafe { _mm_loadu_si128(eight.as_ptr().cast()) };
        max = _mm_max_epu16(max, _mm_and_si128(eight, magnitude));
    }
    let least = _mm_minpos_epu16(_mm_xor_si128(max, _mm_set1_epi16(-1)));
    let mut max = !(_mm_cvtsi128_si32(least) as u16);
    for half in rest.as_chunks::<2>().0 {
        max = max.max(u16::from_le_bytes(*half) & 0x7FFF);
    }
    if max >= 0x7C00 {
        return Fixed { scale: FixedLut::new(rows.centroids(row)).scale, factor: None };
    }
    let max = _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(max.into())));
    Fixed { scale: max / 32767.0, factor: Some(if max > 0.0 { 32767.0 / max } else { 0.0 }) }
}

/// Centroids that are not all finite, one group of them, in fixed point.
#[cold]
pub(super) fn odd_group(rows: &PlaneRows<'_>, row: usize, group: usize) -> [u16; 256] {
    let all = FixedLut::new(rows.centroids(row)).centroids;
    let mut out = [0; 256];
    let table = all.chunks_exact(1 << rows.width()).nth(group);
    for (out, &c) in out.iter_mut().zip(table.unwrap_or_default()) {
        *out = c.cast_unsigned();
    }
    out
}
