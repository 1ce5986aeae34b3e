use trine_formats::types::ternary::{Packing, TernaryData};
use trine_formats::types::{TypeInfo, i2_s};

use super::*;
use crate::fragment::byte_a;

/// Bytes that repeat late.
fn bytes(count: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32;
    let step = |_| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 11) as u8
    };
    (0..count).map(step).collect()
}

/// The blocks of a packed matrix again, as the file had them.
fn unpack(packed: &TiledRows, info: &TypeInfo) -> Vec<u8> {
    let scale = info.at(Part::Scale);
    let blocks = packed.columns / info.block;
    let of_block = (info.bytes - 2) / 4;
    let slabs = (blocks * of_block).div_ceil(SLAB);
    let mut data = Vec::new();
    for row in 0..packed.rows {
        let (tile, r) = (row / ROWS, row % ROWS);
        for block in 0..blocks {
            let dwords = (block * of_block..(block + 1) * of_block).flat_map(|d| {
                let at = (tile * slabs + d / SLAB) * 128 + place(r, d % SLAB);
                packed.codes[at].to_le_bytes()
            });
            let scale_at = (tile * blocks + block) * ROWS + scale_place(r);
            let scale_bytes = packed.scales[scale_at].to_le_bytes();
            if scale == 0 {
                data.extend(scale_bytes);
                data.extend(dwords);
            } else {
                data.extend(dwords);
                data.extend(scale_bytes);
            }
        }
    }
    data
}

#[test]
fn a_lane_loads_the_fragment_of_a() {
    // Register i of a lane is the dword of row g + 8 (i & 1) whose bytes are the columns of that register.
    for lane in 0..32 {
        for i in 0..4 {
            let (row, k) = byte_a(lane, i, 0);
            assert_eq!(place(row, k / 4), 4 * lane + i);
        }
        assert_eq!([scale_place(lane / 4), scale_place(lane / 4 + 8)], [2 * (lane / 4), 2 * (lane / 4) + 1]);
    }
}

#[test]
fn every_byte_of_the_file_is_moved_once() {
    for (ty, info) in [(TypeId::TQ2_0, info::TQ2_0), (TypeId::Q8_0, info::Q8_0), (TypeId::Q4_0, info::Q4_0)] {
        for (rows, blocks) in [(16, 1), (1, 1), (17, 3), (47, 2), (31, 5)] {
            let data = bytes(rows * blocks * info.bytes);
            let columns = blocks * info.block;
            let packed = super::blocks(ty, &data, rows, columns).expect("a layout");
            assert_eq!(unpack(&packed, &info), data, "{ty}: {rows} x {columns}");
            // What fills up the last tile and the last slab is zero, so nothing stands twice.
            let ones = |bits: u32| bits.count_ones() as usize;
            let scales: usize = packed.scales.iter().map(|&s| ones(s.into())).sum();
            let moved = packed.codes.iter().map(|&c| ones(c)).sum::<usize>() + scales;
            assert_eq!(moved, data.iter().map(|&b| ones(b.into())).sum::<usize>());
        }
    }
}

#[test]
fn tq1_0_gets_the_codes_that_tq2_0_has_for_the_same_weights() {
    let (rows, blocks) = (19, 2);
    let data = bytes(rows * blocks * info::TQ1_0.bytes);
    let packed = super::blocks(TypeId::TQ1_0, &data, rows, blocks * 256).expect("a layout");
    let as_tq2_0 = unpack(&packed, &info::TQ2_0);
    let decode = |info: TypeInfo, data: &[u8]| {
        let mut weights = vec![0.0; rows * blocks * 256];
        info.decode.expect("a decoder")(data, &mut weights);
        weights.into_iter().map(f32::to_bits).collect::<Vec<_>>()
    };
    let is_nan = |bits: u32| f32::from_bits(bits).is_nan();
    let pairs = decode(info::TQ1_0, &data).into_iter().zip(decode(info::TQ2_0, &as_tq2_0));
    assert!(pairs.into_iter().all(|(a, b)| a == b || is_nan(a) && is_nan(b)));
}

#[test]
fn the_codes_of_a_tensor_with_one_scale_are_those_of_tq2_0() {
    let (rows, columns) = (18, 384);
    let codes: Vec<i8> = bytes(rows * columns).iter().map(|b| (b % 3) as i8 - 1).collect();
    let packing = Packing::I2S(i2_s::Interleave::Usual);
    let data = packing.pack(columns, rows, 0.5, &codes).expect("a valid matrix");
    let data = TernaryData::new(packing, columns, rows, &data).expect("a valid matrix");
    let packed = ternary(&data).expect("a layout");
    assert!(packed.scales.is_empty());
    for row in 0..rows {
        for column in 0..512 {
            let (block, at) = (column / 256, column % 256);
            let (half, plane, byte) = (at / 128, at % 128 / 32, at % 32);
            let slab = (row / 16 * 2 + block) * 2 + half;
            let dword = packed.codes[slab * 128 + place(row % 16, byte / 4)];
            let code = dword >> (8 * (byte % 4) + 2 * plane) & 3;
            let expected = match column < columns {
                true => codes[row * columns + column] + 1,
                false => 1,
            };
            assert_eq!(code as i8, expected, "row {row}, column {column}");
        }
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let refused = |ty, data: usize, rows, columns| {
        super::blocks(ty, &vec![0; data], rows, columns).expect_err("a refusal").to_string()
    };
    assert_eq!(refused(TypeId::Q8_0, 34, 1, 33), "q8_0: 33 columns are not whole blocks of 32");
    assert_eq!(refused(TypeId::TQ2_0, 65, 1, 256), "tq2_0: 65 elements, where 1 x 256 take 66");
    assert!(refused(TypeId::Q4_0, 0, usize::MAX, 32).contains("more than memory"));
    assert_eq!(refused(TypeId::Q6_K, 0, 0, 0), "q6_K has no layout for the GPU");
    assert!(super::blocks(TypeId::Q8_0, &[], 0, 64).is_ok_and(|p| p.codes.is_empty()));
}

#[test]
fn two_bit_rows_are_those_of_i2_s() {
    // 384 columns: one block and a half, whose rest is filled up.
    let (rows, columns) = (19, 384);
    let packing = Packing::I2S(i2_s::Interleave::Usual);
    let codes: Vec<i8> = bytes(rows * columns).iter().map(|b| (b % 3) as i8 - 1).collect();
    let data = packing.pack(columns, rows, 0.5, &codes).expect("a matrix");
    let tensor = TernaryData::new(packing, columns, rows, &data).expect("a matrix");
    let expected = ternary(&tensor).expect("a layout");
    let codes = &data[..rows * columns / 4];
    assert_eq!(two_bits(codes, rows, columns), Ok(expected));
    assert!(two_bits(codes, rows, columns + 1).is_err());
    assert!(two_bits(&[], usize::MAX, columns).is_err());
}
