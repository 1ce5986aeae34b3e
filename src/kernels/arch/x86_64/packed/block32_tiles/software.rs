use trine_formats::types::num::f16_to_f32;

use super::*;
use crate::proof::Scalar;
use crate::shared::packed::block32::LINE;
use crate::shared::packed::dword;

const fn layout<B: Block32>() -> Layout {
    block32::layout::<B>(Scalar::NEEDS, multiply::<B>)
}

pub static LAYOUTS: &[Layout] = &layouts_of_block32!(layout);

fn multiply<B: Block32>(call: Call<'_>) {
    let Call { group, acts, tokens, out, .. } = call.check(const { &layout::<B>() });
    if tokens < SIDE {
        // Only whole tiles of tokens are taken: the last token stands for those that are missing.
        let stride = acts.len() / tokens;
        let mut padded = AlignedBytes::new(SIDE * stride);
        for (t, to) in padded.chunks_exact_mut(stride).enumerate() {
            to.copy_from_slice(&acts[stride * t.min(tokens - 1)..][..stride]);
        }
        let mut all = [0.0; SIDE * ROWS];
        // SAFETY: `check` has compared all lengths.
        unsafe { product::<Software, B>(group, &padded, SIDE, &mut all) };
        return out.copy_from_slice(&all[..ROWS * tokens]);
    }
    // SAFETY: `check` has compared all lengths.
    unsafe { product::<Software, B>(group, acts, tokens, out) }
}

/// The f32 at `at`.
///
/// # Safety
/// Four bytes are readable.
unsafe fn float(at: *const u8) -> f32 {
    // SAFETY: the caller has four bytes there.
    unsafe { at.cast::<f32>().read_unaligned() }
}

impl Machine for Software {
    type Sums = [f32; SIDE];

    unsafe fn zeros() -> [f32; SIDE] {
        [0.0; SIDE]
    }
    unsafe fn expand<B: Block32>(block: *const u8, to: *mut u8, stride: usize) {
        // SAFETY: a packed block.
        let block = unsafe { std::slice::from_raw_parts(block, B::PACKED) };
        let half = |at: usize| f16_to_f32(u16::from_le_bytes([block[at], block[at + 1]]));
        for row in 0..ROWS {
            let byte = |k: usize, i: usize| {
                let line = |g: usize| block[B::LINES_START + LINE * g + 4 * row + i];
                let mut code = match (B::LINES, k) {
                    (8, _) => line(k),
                    (_, ..4) => line(k) & 15,
                    _ => line(k - 4) >> 4,
                };
                if let Some(table) = B::TABLE {
                    code = table[usize::from(code)];
                }
                if B::FIFTH_AT.is_some() {
                    let bit = LINE * k + 4 * row + i;
                    code |= (block[B::MASKS_START + bit / 8] >> (bit % 8) & 1) << 4;
                }
                code.wrapping_sub(B::BIAS as u8)
            };
            let scale = match B::SCALE_BYTES {
                2 => half(2 * row),
                4 => f32::from_le_bytes(dword(block, row)),
                // Half of 2^(e - 127), the two smallest of which are denormal.
                _ => f32::from_bits(match u32::from(block[row]) {
                    e @ ..2 => 0x0020_0000 << e,
                    e => (e - 1) << 23,
                }),
            };
            let offset = match B::STEP {
                PackedStep::PlusOffset => half(B::SCALE_BYTES * ROWS + 2 * row),
                _ => 0.0,
            };
            // SAFETY: room for expanded blocks.
            unsafe {
                let to = to.add(stride * (row / SIDE));
                let row = row % SIDE;
                for k in 0..8 {
                    for i in 0..4 {
                        to.add(tiles::ROW * k + 4 * row + i).write(byte(k, i));
                    }
                }
                to.add(SCALES_AT + 4 * row).cast::<f32>().write(scale);
                to.add(OFFSETS_AT + 4 * row).cast::<f32>().write(offset);
            }
        }
    }
    unsafe fn settle<B: Block32>(
        sums: &mut [[f32; SIDE]; SIDE],
        isums: *const i32,
        expanded: *const u8,
        record: *const u8,
        stride: usize,
    ) {
        for (t, sums) in sums.iter_mut().enumerate() {
            for (row, sum) in sums.iter_mut().enumerate() {
                // SAFETY: an expanded block, 16 sums of 16 rows and as many records.
                unsafe {
                    let isum = *isums.add(SIDE * t + row) as f32;
                    let (dw, mw) =
                        (float(expanded.add(SCALES_AT + 4 * row)), float(expanded.add(OFFSETS_AT + 4 * row)));
                    let (dx, sx) = (float(record.add(stride * t + 32)), float(record.add(stride * t + 40)));
                    *sum += match B::STEP {
                        PackedStep::SumFirst => isum * dw * dx,
                        PackedStep::ScaleFirst => dw * dx * isum,
                        PackedStep::PlusOffset => dw * dx * isum + mw * sx,
                    };
                }
            }
        }
    }
    unsafe fn put(sums: [f32; SIDE], out: *mut f32) {
        // SAFETY: the caller has room for 16 floats.
        unsafe { out.cast::<[f32; SIDE]>().write_unaligned(sums) }
    }
}
