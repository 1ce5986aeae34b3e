//! Matrices of a file as kernels with activations in half precision want them: codes turned on their side, scales of
//! groups apart.

use trine_formats::types::{TypeId, tq1_0};

use super::sparse::{self, Sparse};
use super::{PackError, Shape, fast, marlin, rows, trirun};
use crate::fast::{Numbers, Scales, WeightFormat, Weights, is_sparse_shape};

/// A matrix for an f16 product. Its columns are the file's rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Coded {
    /// Codes, in the layout of their kind.
    pub codes: Vec<u32>,
    /// Scales of groups, or of columns.
    pub scales: Vec<u16>,
}

/// Blocks of Q4_0 that are one of MARLIN's groups, and their bytes.
const BLOCKS: usize = 4;
const GROUP: usize = BLOCKS * 18;

/// One in half precision.
const ONE: u16 = 0x3c00;

/// The kind of codes and of scales that a matrix has in the file; `None` for a type without an f16 product. Q4_0 whose
/// blocks share a scale by fours (`rquantize --group 128`) has MARLIN's groups of 128. Types with one scale for the whole
/// tensor have ones here: that scale is in single precision, and what is multiplied by it is the product's sums.
pub fn kind(ty: TypeId, data: &[u8], columns: usize) -> Option<(Weights, Scales)> {
    match ty {
        TypeId::TQ1_0 | TypeId::TQ2_0 => Some((Weights::TwoBits, Scales::Groups(256))),
        TypeId::I2_S | TypeId::TL1 | TypeId::TL2 => Some((Weights::TwoBits, Scales::Columns)),
        TypeId::Q4_0 if shares_scales(data, columns) => Some((Weights::FourBits, Scales::Groups(32 * BLOCKS))),
        TypeId::Q4_0 => Some((Weights::FourBits, Scales::Groups(32))),
        _ => None,
    }
}

/// True if every four neighbouring blocks of a row of Q4_0 have the same scale.
fn shares_scales(data: &[u8], columns: usize) -> bool {
    let is_shared = |group: &[u8]| group.chunks_exact(GROUP / BLOCKS).all(|block| block[..2] == group[..2]);
    columns > 0 && columns.is_multiple_of(32 * BLOCKS) && data.chunks_exact(GROUP).all(is_shared)
}

/// A matrix of which two of four weights are there. Its columns are the file's rows.
#[derive(Clone, Debug)]
pub struct Pruned {
    /// Kept codes, and which they are.
    pub codes: Sparse,
    /// Scales of groups, in the order of columns.
    pub scales: Vec<u16>,
}

/// The form of a matrix of `rows` x `columns` in the file; `None` for a type without an f16 product. Where the file
/// calls it `pruned`, it is that of two of four weights, if there are kernels for the type and shape.
pub fn form(ty: TypeId, data: &[u8], rows: usize, columns: usize, pruned: bool) -> Option<WeightFormat> {
    if ty == TypeId::Q4_0 && pruned && is_sparse_shape(columns, rows) {
        return Some(WeightFormat::Sparse(32));
    }
    match ty {
        TypeId::F16 => Some(WeightFormat::Rows(Numbers::Half)),
        TypeId::BF16 => Some(WeightFormat::Rows(Numbers::Brain)),
        _ => kind(ty, data, columns).map(|(weights, scales)| WeightFormat::Dense(weights, scales)),
    }
}

/// Bytes of the memories of a matrix of `rows` x `columns` in the file: codes, metadata where there are such, scales.
///
/// # Errors
/// A matrix beyond all memory.
pub fn bytes(form: WeightFormat, rows: usize, columns: usize) -> Result<Vec<usize>, PackError> {
    let shape = Shape { what: "codes", rows, columns };
    let (weights, scales) = match form {
        WeightFormat::Dense(weights, scales) => (weights, scales),
        WeightFormat::Rows(_) => return Ok(vec![shape.size([rows, columns.div_ceil(8), 16])?]),
        WeightFormat::Sparse(group) => {
            return Ok(vec![
                shape.size([rows, columns / 16, 4])?,
                shape.size([rows, columns / 16, 2])?,
                shape.size([columns.div_ceil(group), rows, 2])?,
            ]);
        }
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
    Ok(vec![codes, shape.size([groups, tiles[1], 128])?])
}

/// Lays out `rows` x `columns` weights, as the file has them; those of types with one scale for the whole tensor as
/// [`rows::two_bits`] takes them.
///
/// # Errors
/// A type that has no such layout, data of another length, a matrix beyond all memory.
pub fn pack(ty: TypeId, data: &[u8], rows: usize, columns: usize) -> Result<Coded, PackError> {
    let Some((weights, kept)) = kind(ty, data, columns) else {
        let name = ty.to_string();
        return Err(PackError::Type { name });
    };
    if kept == Scales::Columns {
        let codes = turned_rows(data, rows, columns)?;
        let scales = vec![ONE; rows.next_multiple_of(64)];
        return Ok(Coded { codes: trirun::pack_pairs(&codes, columns, rows)?, scales });
    }
    let Turned { codes, mut scales, mut groups } = turned(ty, data, rows, columns)?;
    if kept == Scales::Groups(32 * BLOCKS) {
        groups /= BLOCKS;
        scales = (0..groups).flat_map(|group| scales[group * BLOCKS * rows..][..rows].to_vec()).collect();
    }
    Ok(Coded {
        codes: match weights {
            Weights::TwoBits => trirun::pack_pairs(&codes, columns, rows)?,
            Weights::FourBits => marlin::pack(&codes, columns, rows)?,
        },
        scales: fast::group_scales(&scales, groups, rows)?,
    })
}

/// Lays out `rows` x `columns` weights of Q4_0, as the file has them, of which at most two of every four are not zero.
///
/// # Errors
/// Three or four that are not zero, with their place; data of another length, a matrix beyond all memory or of no whole
/// tiles.
pub fn pack_pruned(data: &[u8], rows: usize, columns: usize) -> Result<Pruned, PackError> {
    let Turned { codes, scales, .. } = turned(TypeId::Q4_0, data, rows, columns)?;
    let codes: Vec<i8> = codes.iter().map(|&code| code as i8 - 8).collect();
    let codes = sparse::pack(&codes, columns, rows).map_err(|why| match why {
        // The file's rows are the packer's columns.
        PackError::Dense { kept, row, column } => PackError::NotPruned { kept, row: column, column: row },
        other => other,
    })?;
    Ok(Pruned { codes, scales })
}

/// Codes and scales of blocks, with the columns of the file as rows.
struct Turned {
    codes: Vec<u8>,
    scales: Vec<u16>,
    /// Rows of scales.
    groups: usize,
}

fn turned(ty: TypeId, data: &[u8], rows: usize, columns: usize) -> Result<Turned, PackError> {
    let Some(info) = ty.info() else {
        let name = ty.to_string();
        return Err(PackError::Type { name });
    };
    let shape = Shape { what: info.name, rows, columns };
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
    Ok(Turned { codes, scales, groups: blocks })
}

/// The codes of rows of two bits, with the columns of the file as rows.
fn turned_rows(data: &[u8], rows: usize, columns: usize) -> Result<Vec<u8>, PackError> {
    let shape = Shape { what: "two-bit rows", rows, columns };
    let mut codes = vec![0; shape.size([rows, columns])?];
    rows::each_row(data, shape, |row, of_row| {
        for (column, code) in of_row.iter().enumerate() {
            codes[column * rows + row] = (code + 1) as u8;
        }
    })?;
    Ok(codes)
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
        for (ty, zero) in [(TypeId::TQ2_0, 1.0), (TypeId::TQ1_0, 1.0), (TypeId::Q4_0, 8.0)] {
            let info = ty.info().expect("a type");
            let mut block: Vec<u8> = (0..info.bytes).map(|i| (i * 73 + 29) as u8).collect();
            let scale_at = if ty == TypeId::Q4_0 { 0 } else { info.bytes - 2 };
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

    /// Rows that end within a block, of a number that is no whole tile.
    #[test]
    fn rows_of_two_bits_are_turned_and_their_scales_are_one() {
        let (rows, columns) = (70, 200);
        let code = |row: usize, column: usize| ((row * 5 + column * 7 + column / 3) % 3) as u8;
        let mut data = vec![0; rows * 2 * 32];
        for (row, data) in data.chunks_exact_mut(64).enumerate() {
            for column in 0..columns {
                let (block, e) = (column / 128, column % 128);
                data[32 * block + e % 32] |= code(row, column) << (6 - 2 * (e / 32));
            }
        }
        let turned: Vec<u8> = (0..columns).flat_map(|c| (0..rows).map(move |r| code(r, c))).collect();
        for ty in [TypeId::I2_S, TypeId::TL1, TypeId::TL2] {
            let packed = pack(ty, &data, rows, columns).expect("a layout");
            assert_eq!(packed.codes, trirun::pack_pairs(&turned, columns, rows).expect("codes"));
            assert_eq!(packed.scales, vec![ONE; 128]);
            let form = form(ty, &data, rows, columns, true).expect("a form");
            assert_eq!(form, WeightFormat::Dense(Weights::TwoBits, Scales::Columns));
            let sizes = [4 * packed.codes.len(), 2 * packed.scales.len()];
            assert_eq!(bytes(form, rows, columns), Ok(sizes.to_vec()));
            assert!(pack(ty, &data[1..], rows, columns).is_err());
        }
    }

    #[test]
    fn sizes_are_counted_before_anything_is_packed() {
        for (ty, rows, columns) in [
            (TypeId::TQ2_0, 1, 256),
            (TypeId::TQ2_0, 65, 768),
            (TypeId::Q4_0, 63, 32),
            (TypeId::Q4_0, 130, 96),
            (TypeId::Q4_0, 65, 256),
        ] {
            let info = ty.info().expect("a type");
            let data = vec![0; rows * columns / info.block * info.bytes];
            let packed = pack(ty, &data, rows, columns).expect("a layout");
            let form = form(ty, &data, rows, columns, false).expect("a form");
            let bytes = bytes(form, rows, columns).expect("sizes");
            assert_eq!(bytes, [4 * packed.codes.len(), 2 * packed.scales.len()]);
            assert!(pack(ty, &data[1..], rows, columns).is_err());
        }
        assert!(pack(TypeId::Q8_0, &[], 1, 32).is_err());
        for form in [WeightFormat::Dense(Weights::TwoBits, Scales::Columns), WeightFormat::Sparse(32)] {
            assert!(bytes(form, usize::MAX, usize::MAX).is_err());
        }
    }

    /// Rows of Q4_0 of which columns 1 and 3 of every four are there.
    fn pruned(rows: usize, columns: usize) -> Vec<u8> {
        let block = |b: usize| {
            let codes = (0..16).map(move |i| if i % 2 == 0 { 0x88 } else { (b * 7 + i) as u8 });
            [0x55, 0x35].into_iter().chain(codes)
        };
        (0..rows * columns / 32).flat_map(block).collect()
    }

    #[test]
    fn pruned_matrices_take_three_memories_and_say_where_they_are_not() {
        let (rows, columns) = (128, 96);
        let mut data = pruned(rows, columns);
        let form = form(TypeId::Q4_0, &data, rows, columns, true).expect("a form");
        assert_eq!((form, form.memories()), (WeightFormat::Sparse(32), 3));
        let packed = pack_pruned(&data, rows, columns).expect("a layout");
        let sizes = [4 * packed.codes.values.len(), 2 * packed.codes.metadata.len(), 2 * packed.scales.len()];
        assert_eq!(bytes(form, rows, columns), Ok(sizes.to_vec()));
        // Row 5, columns 32 to 63: a third weight of the upper half, which is columns 52 to 55.
        data[(5 * 3 + 1) * 18 + 2 + 4] = 0x78;
        let refused = pack_pruned(&data, rows, columns).expect_err("a third weight");
        let (kept, row, column) = (3, 5, 52);
        assert_eq!(refused, PackError::NotPruned { kept, row, column });
    }

    #[test]
    fn other_types_and_shapes_are_dense_whatever_the_file_says() {
        for (ty, rows, columns) in [(TypeId::Q4_0, 96, 64), (TypeId::TQ2_0, 64, 256)] {
            let dense = kind(ty, &[], columns).map(|(weights, scales)| WeightFormat::Dense(weights, scales));
            assert_eq!(form(ty, &[], rows, columns, true), dense);
        }
        assert_eq!(form(TypeId::Q8_0, &[], 64, 64, true), None);
    }

    /// Four blocks of the same scale are a group; one bit of one scale, or a row that ends within a group, and none is.
    #[test]
    fn blocks_that_share_scales_are_groups_of_128() {
        let (rows, columns) = (3, 256);
        let mut data: Vec<u8> = (0..rows * columns / 32 * 18).map(|i| (i * 73 + 29) as u8).collect();
        for (i, block) in data.chunks_exact_mut(18).enumerate() {
            block[..2].copy_from_slice(&[(i / 4) as u8, 0x30]);
        }
        let groups = |data: &[u8], columns| kind(TypeId::Q4_0, data, columns).map(|(_, scales)| scales);
        assert_eq!(groups(&data, columns), Some(Scales::Groups(128)));
        let (whole, codes) = (pack(TypeId::Q4_0, &data, rows, columns), turned(TypeId::Q4_0, &data, rows, columns));
        let scales: Vec<u16> = [0, 2, 4, 1, 3, 5].map(|group| 0x3000 | group).to_vec();
        let wanted = fast::group_scales(&scales, 2, rows).expect("scales");
        assert_eq!(whole.expect("a layout").scales, wanted);
        assert_eq!(codes.expect("codes").groups, 8);
        assert_eq!(groups(&data, 192), Some(Scales::Groups(32)));
        data[7 * 18] ^= 1;
        assert_eq!(groups(&data, columns), Some(Scales::Groups(32)));
    }
}
