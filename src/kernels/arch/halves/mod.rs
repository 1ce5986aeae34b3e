//! The sums of [`crate::shared::halves`], written once for the lanes of every instruction set.

use std::ops::Range;

use crate::Isa;
use crate::shared::halves::{BLOCK, Coefficients, LANES, LINE, Line, STEPS, Tiles, has_rows};
use crate::sizes::size;

use sums::{AHEAD, Call, InPlace, Rounded};

#[cfg(target_arch = "aarch64")]
pub(crate) mod aarch64;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) mod none;
#[cfg(target_arch = "x86_64")]
mod strips;
mod sums;
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
pub(crate) mod wasm32;
#[cfg(target_arch = "x86_64")]
pub(crate) mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64 as native;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) use none as native;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64 as native;

/// [`crate::shared::halves::dots`] of words without infinities and NaN, as they are stored.
///
/// # Panics
/// When a slice is too short.
pub fn dots(isa: Isa, words: &[Line], quads: usize, coefs: Coefficients<'_>, out: &mut [f32], out_stride: usize) {
    assert!(words.len() >= size([quads, BLOCK]), "words too short");
    // SAFETY: the words of `quads` rows of lines are there, as just checked.
    unsafe { dots_at::<false>(isa, words.as_ptr(), quads, coefs, AHEAD * size_of::<Line>(), out, out_stride) }
}

/// [`crate::shared::halves::dots_of_bytes`].
///
/// # Panics
/// When a slice is too short.
pub fn dots_of_bytes<const BRAIN: bool>(
    isa: Isa,
    words: &[u8],
    quads: usize,
    coefs: Coefficients<'_>,
    ahead: usize,
    out: &mut [f32],
    out_stride: usize,
) {
    if coefs.rows == 0 {
        return;
    }
    assert!(words.len() >= size([quads, BLOCK, size_of::<Line>()]), "words too short");
    // SAFETY: the bytes of `quads` rows of lines are there, as just checked; a line is read from any address.
    unsafe { dots_at::<BRAIN>(isa, words.as_ptr().cast(), quads, coefs, ahead, out, out_stride) }
}

/// # Safety
/// `quads` rows of lines are there.
unsafe fn dots_at<const BRAIN: bool>(
    isa: Isa,
    words: *const Line,
    quads: usize,
    coefs: Coefficients<'_>,
    ahead: usize,
    out: &mut [f32],
    out_stride: usize,
) {
    coefs.check(size([STEPS, quads]));
    let there = has_rows(out.len(), coefs.rows, out_stride, LANES);
    assert!(there, "output too short");
    let call: Call<_, BRAIN> = Call {
        words,
        lines: BLOCK,
        quads,
        line: 0,
        line_end: BLOCK,
        from: 0,
        to: quads,
        at_once: quads.max(1),
        coefs: coefs.data.as_ptr(),
        coef_stride: coefs.stride,
        rows: coefs.rows,
        seen: None,
        ahead: ahead / size_of::<Line>(),
        target: Rounded { out: out.as_mut_ptr(), stride: out_stride },
    };
    // SAFETY: the caller has the words; coefficients and outputs were just checked.
    unsafe { call.run_in_chunks(isa) }
}

/// [`crate::shared::halves::accumulate`].
///
/// # Panics
/// When a slice is too short.
pub fn accumulate(
    isa: Isa,
    tiles: Tiles<'_>,
    steps: &dyn Fn(usize) -> Range<usize>,
    coefs: Coefficients<'_>,
    acc: &mut [f64],
    acc_stride: usize,
) {
    let words_of = |steps: Range<usize>| steps.start / STEPS..steps.end.div_ceil(STEPS);
    let Some(last) = coefs.rows.checked_sub(1) else {
        return;
    };
    let quads = words_of(steps(0)).start..words_of(steps(last)).end;
    if quads.is_empty() {
        return;
    }
    coefs.check(size([STEPS, quads.end]));
    let tiles_needed = quads.end.div_ceil(tiles.quads);
    let needed = size([tiles_needed, tiles.quads, tiles.lines]);
    assert!(tiles.words.len() >= needed, "words too short");
    let (line, line_end) = tiles.wanted;
    assert!(
        line.is_multiple_of(BLOCK)
            && line <= line_end
            && line_end <= tiles.lines
            && (line_end.is_multiple_of(BLOCK) || line_end == tiles.lines),
        "lines {line}..{line_end} of {}",
        tiles.lines
    );
    let lanes = size([line_end - line, LINE]);
    let there = has_rows(acc.len(), coefs.rows, acc_stride, lanes);
    assert!(there, "sums too short");
    let call: Call<_, false> = Call {
        words: tiles.words.as_ptr(),
        lines: tiles.lines,
        quads: tiles.quads,
        line,
        line_end,
        from: quads.start,
        to: quads.end,
        at_once: tiles.at_once.clamp(1, quads.len()),
        coefs: coefs.data.as_ptr(),
        coef_stride: coefs.stride,
        rows: coefs.rows,
        seen: Some(&|row| words_of(steps(row))),
        ahead: AHEAD,
        target: InPlace { acc: acc.as_mut_ptr(), stride: acc_stride },
    };
    // SAFETY: words, coefficients and sums were just checked.
    unsafe { call.run(isa) }
}
