//! The ternary layouts, element by element and byte by byte, and that ternary rows survive them.

use proptest::prelude::*;
use trine_formats::types::{TypeId, TypeInfo};

fn info(id: TypeId) -> &'static TypeInfo {
    id.info().unwrap()
}

fn encode(id: TypeId, x: &[f32]) -> Vec<u8> {
    let t = info(id);
    let mut row = vec![0xA5; x.len() / t.block * t.bytes];
    t.encode.unwrap()(x, None, &mut row);
    row
}

fn decode(id: TypeId, row: &[u8]) -> Vec<f32> {
    let t = info(id);
    let mut out = vec![0.0; row.len() / t.bytes * t.block];
    t.decode.unwrap()(row, &mut out);
    out
}

/// Byte and trit (TQ1_0) or shift (TQ2_0) of element `e`: the published layout, as formulas.
fn tq1_place(e: usize) -> (usize, usize) {
    match e {
        0..160 => (e % 32, e / 32),
        160..240 => (32 + (e - 160) % 16, (e - 160) / 16),
        _ => (48 + (e - 240) % 4, (e - 240) / 4),
    }
}

fn tq2_place(e: usize) -> (usize, usize) {
    (32 * (e / 128) + e % 32, 2 * ((e % 128) / 32))
}

#[test]
fn each_element_has_its_place() {
    for e in 0..256 {
        for (value, code) in [(1.0, 2usize), (-1.0, 0)] {
            let mut x = [0.0; 256];
            x[e] = value;

            let row = encode(TypeId::TQ2_0, &x);
            let (at, shift) = tq2_place(e);
            let mut want = [0x55u8; 64];
            want[at] = (want[at] & !(3 << shift)) | (code as u8) << shift;
            assert_eq!(row[..64], want, "TQ2_0 element {e}");
            assert_eq!(decode(TypeId::TQ2_0, &row), x, "TQ2_0 element {e}");

            let row = encode(TypeId::TQ1_0, &x);
            let (at, trit) = tq1_place(e);
            let trits = if at < 48 { 5 } else { 4 };
            let number: usize = (0..trits).map(|t| if t == trit { code } else { 1 } * 3usize.pow(4 - t as u32)).sum();
            let mut want = [0x80u8; 52];
            want[48..].fill(0x7F);
            want[at] = (number * 256).div_ceil(243) as u8;
            assert_eq!(row[..52], want, "TQ1_0 element {e}");
            assert_eq!(decode(TypeId::TQ1_0, &row), x, "TQ1_0 element {e}");
        }
    }
}

/// All 256 bytes of TQ1_0 in every position, also the 13 that no encoder writes.
#[test]
fn every_tq1_0_byte_decodes_to_its_trits() {
    for byte in 0..=255u8 {
        let mut row = [byte; 54];
        row[52..].copy_from_slice(&0x3C00u16.to_le_bytes());
        let y = decode(TypeId::TQ1_0, &row);
        for (e, y) in y.iter().enumerate() {
            let (_, trit) = tq1_place(e);
            let fraction = (usize::from(byte) * 3usize.pow(trit as u32)) % 256;
            assert_eq!(*y, (fraction * 3 / 256) as f32 - 1.0, "byte {byte:#x} element {e}");
        }
    }
}

#[test]
fn every_tq2_0_byte_decodes_to_its_codes() {
    for byte in 0..=255u8 {
        let mut row = [byte; 66];
        row[64..].copy_from_slice(&0x3C00u16.to_le_bytes());
        let y = decode(TypeId::TQ2_0, &row);
        for (e, y) in y.iter().enumerate() {
            let (_, shift) = tq2_place(e);
            assert_eq!(*y, f32::from(byte >> shift & 3) - 1.0, "byte {byte:#x} element {e}");
        }
    }
}

/// Every half-float scale times every level.
#[test]
fn every_scale_decodes() {
    for h in 0..=0xFFFFu16 {
        let d = half::f16::from_bits(h).to_f32();
        for (id, codes, scale_at) in [(TypeId::TQ2_0, 0xE4u8, 64), (TypeId::Q2_0, 0xE4, 0), (TypeId::Q1_0, 0x0F, 0)] {
            let t = info(id);
            let mut row = vec![codes; t.bytes];
            row[scale_at..scale_at + 2].copy_from_slice(&h.to_le_bytes());
            let y = decode(id, &row);
            let levels: &[f32] = if id == TypeId::Q1_0 { &[1.0, -1.0] } else { &[-1.0, 0.0, 1.0, 2.0] };
            for (k, &level) in levels.iter().enumerate() {
                let e = match id {
                    TypeId::TQ2_0 => 32 * k,
                    TypeId::Q2_0 => k,
                    _ => 4 * k,
                };
                let want = level * d;
                let same = y[e].to_bits() == want.to_bits() || (y[e].is_nan() && want.is_nan());
                assert!(same, "{id} scale {h:#06x} level {level}: {:e}, not {want:e}", y[e]);
            }
        }
    }
}

/// Dot products of the two ternary packings of the same weights are the same bits.
fn assert_same_dots(x: &[f32], acts: &[f32]) {
    let q8 = encode(TypeId::Q8_K, acts);
    let dot = |id: TypeId| info(id).dot_ref.unwrap()(&encode(id, x), &q8);
    assert_eq!(dot(TypeId::TQ1_0).to_bits(), dot(TypeId::TQ2_0).to_bits());
}

proptest! {
    /// A row of -d, 0 and +d with a scale that a half float holds comes back as it was.
    #[test]
    fn ternary_rows_survive(
        trits in prop::collection::vec(-1i8..=1, 512),
        scales in prop::array::uniform8(1u16..0x7C00),
        acts in prop::collection::vec(-4.0f32..4.0, 512),
    ) {
        for (id, block) in [(TypeId::TQ1_0, 256), (TypeId::TQ2_0, 256), (TypeId::Q2_0, 64)] {
            let x: Vec<f32> = trits.chunks(block).zip(scales).flat_map(|(trits, h)| {
                let d = half::f16::from_bits(h).to_f32();
                trits.iter().map(move |&t| if t == 0 { 0.0 } else { f32::from(t) * d })
            }).collect();
            let y = decode(id, &encode(id, &x));
            prop_assert_eq!(&y, &x, "{}", id);
            if block == 256 {
                assert_same_dots(&x, &acts);
            }
        }
    }
}

#[test]
fn every_block_of_tq1_0_is_a_block_of_tq2_0() {
    let bits = |x: Vec<f32>| x.into_iter().map(f32::to_bits).collect::<Vec<_>>();
    // all 256 bytes in all places, most of which no encoder writes, and scales of 2
    for first in 0..=255u8 {
        let mut block = [0; 54];
        for (i, byte) in block[..52].iter_mut().enumerate() {
            *byte = first.wrapping_add(37 * i as u8);
        }
        block[52..].copy_from_slice(&[0, 0x40]);
        let same = trine_formats::types::tq1_0::to_tq2_0(&block);
        let (five, two) = (decode(TypeId::TQ1_0, &block), decode(TypeId::TQ2_0, &same));
        assert_eq!(bits(two), bits(five), "{first}");
        let block = &block.as_chunks::<28>().0[0];
        let same = trine_formats::types::tq1_0::to_pq2_0(block);
        let (five, two) = (decode(TypeId::PTQ1_0, block), decode(TypeId::PQ2_0, &same));
        assert_eq!(bits(two), bits(five), "{first} of 128");
    }
}
