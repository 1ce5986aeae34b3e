//! Matrices of a file as kernels with activations in half precision want them: codes turned on their side, scales of groups apart.

use trine_formats::types::{TypeId, tq1_0};

use super::{PackError, Shape, fast, marlin, trirun};
use crate::fast::{Scales, Weights};

/// A matrix for a product of halves. Its columns are the file's rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Coded {
    /// Codes, in the layout of their kind.
    pub codes: Vec<u32>,
    /// Scales of groups.
    pub scales: Vec<u16>,
}

/// The kind of codes and of scales that a matrix has in the file; `None` of a type that no kernel multiplies by halves.
pub fn kind(ty: TypeId) -> Option<(Weights, Scales)> {
    match ty {
        TypeId::TQ1_0 | TypeId::TQ2_0 => Some((Weights::TwoBits, Scales::Groups(256))),
        TypeId::Q4_0 => Some((Weights::FourBits, Scales::Groups(32))),
        _ => None,
    }
}

/// Bytes of the codes and of the scales of a matrix of `rows` x `columns` in the file.
///
/// # Errors
/// A matrix beyond all memory.
pub fn bytes(
    (weights, scales): (Weights, Scales),
    rows: usize,
    columns: usize,
) -> Result<[usize; 2], PackError> {
    let shape = Shape {
        what: "codes",
        rows,
        columns,
    };
    let tiles = [columns.div_ceil(32), rows.div_ceil(64)];
    let of_tile = match weights {
        Weights::TwoBits => 512,
        Weights::FourBits => 1024,
    };
    let codes = match weights {
        Weights::TwoBits => shape.size([tiles[0], tiles[1], of_tile])?,
        Weights::FourBits => shape.size([columns.div_ceil(16), tiles[1], of_tile / 2])?,
    };
    let groups = match scales {
        Scales::Columns => 1,
        Scales::Groups(of) => columns.div_ceil(of),
    };
    Ok([codes, shape.size([groups, tiles[1], 128])?])
}

/// Lays out `rows` x `columns` weights, as the file has them.
///
/// # Errors
/// A type that has no such layout, data of another length, a matrix beyond all memory.
pub fn pack(ty: TypeId, data: &[u8], rows: usize, columns: usize) -> Result<Coded, PackError> {
    let (Some((weights, _)), Some(info)) = (kind(ty), ty.info()) else {
        let name = ty.to_string();
        return Err(PackError::Type { name });
    };
    let shape = Shape {
        what: info.name,
        rows,
        columns,
    };
    let blocks = columns / info.block;
    shape.expect(data.len(), shape.size([rows, blocks, info.bytes])?)?;
    let mut codes = vec![0; shape.size([rows, columns])?];
    let mut scales = vec![0; shape.size([rows, blocks])?];
    for (at, block) in data.chunks_exact(info.bytes).enumerate() {
        let (row, number) = (at / blocks, at % blocks);
        let (all, scale) = of_block(ty, block);
        scales[number * rows + row] = scale;
        for (i, code) in all.iter().enumerate().take(info.block) {
            codes[(number * info.block + i) * rows + row] = *code;
        }
    }
    Ok(Coded {
        codes: match weights {
            Weights::TwoBits => trirun::pack_pairs(&codes, columns, rows)?,
            Weights::FourBits => marlin::pack(&codes, columns, rows)?,
        },
        scales: fast::group_scales(&scales, blocks, rows)?,
    })
}

/// The codes of a block and its scale, as the type's file of the formats draws it.
fn of_block(ty: TypeId, block: &[u8]) -> ([u8; 256], u16) {
    let mut codes = [0; 256];
    let half = |at: usize| u16::from_le_bytes([block[at], block[at + 1]]);
    if ty == TypeId::Q4_0 {
        for (i, byte) in block[2..].iter().enumerate() {
            (codes[i], codes[i + 16]) = (byte & 15, byte >> 4);
        }
        return (codes, half(0));
    }
    if let (TypeId::TQ1_0, Some(block)) = (ty, block.first_chunk()) {
        return of_block(TypeId::TQ2_0, &tq1_0::to_tq2_0(block));
    }
    for (i, code) in codes.iter_mut().enumerate() {
        let (part, place) = (i / 128, i % 128);
        *code = block[32 * part + place % 32] >> (2 * (place / 32)) & 3;
    }
    (codes, half(64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_scales_give_the_weights_of_the_file() {
        for (ty, zero) in [
            (TypeId::TQ2_0, 1.0),
            (TypeId::TQ1_0, 1.0),
            (TypeId::Q4_0, 8.0),
        ] {
            let info = ty.info().expect("a type");
            let mut block: Vec<u8> = (0..info.bytes).map(|i| (i * 73 + 29) as u8).collect();
            let scale_at = if ty == TypeId::Q4_0 {
                0
            } else {
                info.bytes - 2
            };
            block[scale_at..scale_at + 2].copy_from_slice(&0x3555u16.to_le_bytes());
            let mut decoded = vec![0.0; info.block];
            (info.decode.expect("a decoder"))(&block, &mut decoded);
            let (codes, scale) = of_block(ty, &block);
            let scale = trine_formats::types::num::f16_to_f32(scale);
            for (i, weight) in decoded.iter().enumerate() {
                assert_eq!((f32::from(codes[i]) - zero) * scale, *weight, "{ty} {i}");
            }
        }
    }

    #[test]
    fn sizes_are_counted_before_anything_is_packed() {
        for (ty, rows, columns) in [
            (TypeId::TQ2_0, 1, 256),
            (TypeId::TQ2_0, 65, 768),
            (TypeId::Q4_0, 63, 32),
            (TypeId::Q4_0, 130, 96),
        ] {
            let info = ty.info().expect("a type");
            let data = vec![0; rows * columns / info.block * info.bytes];
            let packed = pack(ty, &data, rows, columns).expect("a layout");
            let bytes = bytes(kind(ty).expect("a kind"), rows, columns).expect("sizes");
            assert_eq!([4 * packed.codes.len(), 2 * packed.scales.len()], bytes);
            assert!(pack(ty, &data[1..], rows, columns).is_err());
        }
        assert!(pack(TypeId::Q8_0, &[], 1, 32).is_err());
        assert!(bytes((Weights::TwoBits, Scales::Columns), usize::MAX, usize::MAX).is_err());
    }
}
