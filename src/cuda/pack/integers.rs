//! Weights of the types that are integers ([`IntegerLayout`]), for `src/cuda/kernels/integers.cuh`: codes, floats of blocks and
//! bytes of groups, each by itself.
//!
//! Sixteen rows are a tile. Of 256 columns of a tile a lane has 128 codes, which are registers of A for eight products of
//! 32 columns (`mma.m16n8k32`); of codes with `n` bits that are `n` times four dwords, `[tile][256 columns][n][lane][4]`.
//! The lower four bits of a code, the next two and the next one each have dwords of their own, as far as codes have such
//! bits:
//!
//! | bits of a code | register `i` of slice `s` (0..8) |
//! |---|---|
//! | four | `dword i of chunk s / 2 >> 4 (s % 2) & 0x0f0f0f0f` |
//! | two | `dword i of chunk s / 4 >> 2 (s % 4) & 0x03030303` |
//! | one | `dword i >> s & 0x01010101` |
//! | bytes | `dword i of chunk s` |
//!
//! Types with eight chains have the columns of each chain in a slice: column `l + 8 i` of 256 stands at `32 l + i`.
//! Rows and columns that fill up the last tile are zeros.

use trine_formats::types::integers::{Integers, Sums};
use trine_formats::types::num::f32_to_f16;

use super::rows::scale_place;
use super::{PackError, Shape};
use crate::fragment::{LANES, ROWS, byte_a};
use crate::integers::{Floats, IntegerLayout, SLICE, UNIT};

/// Dwords of a chunk: four of each lane.
const CHUNK: usize = 4 * LANES;

/// A matrix laid out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PackedIntegers {
    /// Codes.
    pub codes: Vec<u32>,
    /// Floats of blocks, and the minima that go with them.
    pub floats: Vec<u32>,
    /// Scales of groups, and their minima; none where the type has no such.
    pub bytes: Vec<u8>,
}

impl IntegerLayout {
    /// Floats of a row: those of its blocks, or of their groups, with the minima behind each.
    fn floats_of(&self, columns: usize) -> usize {
        columns / self.info.block * self.floats_of_block()
    }

    fn floats_of_block(&self) -> usize {
        match self.form.sums {
            // Blocks of more columns have the same float for each 32.
            Sums::Blocks => self.info.block / self.form.group,
            Sums::Shifted | Sums::Minima | Sums::ChainsAndMinima => 2,
            _ => 1,
        }
    }

    /// Bytes of the groups of 256 columns of a row; 0 where the type has no integer scales.
    fn groups(&self) -> usize {
        match self.form.sums {
            Sums::Whole { .. } | Sums::Groups | Sums::Chains | Sums::Minima => UNIT / self.of_groups(),
            Sums::ChainsAndMinima => 2 * (UNIT / self.of_groups()),
            _ => 0,
        }
    }

    /// Columns of a group as the kernels have them: one of 256 is eight with the same scale.
    fn of_groups(&self) -> usize {
        self.form.group.min(SLICE)
    }

    /// Bytes of codes, of floats and of groups. The last may be none.
    ///
    /// # Errors
    /// Rows that are no whole blocks, a matrix beyond all memory.
    pub fn bytes(&self, rows: usize, columns: usize) -> Result<[usize; 3], PackError> {
        let shape = Shape { what: self.info.name, rows, columns };
        shape.blocks(self.info.block)?;
        let (tiles, units) = (rows.div_ceil(ROWS), columns.div_ceil(UNIT));
        let codes = shape.size([tiles, units, self.bits * 4 * CHUNK])?;
        let words = if self.floats == Floats::Single { 4 } else { 2 };
        let floats = shape.size([tiles, self.floats_of(columns), ROWS * words])?;
        Ok([codes, floats, shape.size([tiles, units, ROWS * self.groups()])?])
    }

    /// Lays out a matrix: `data` is the tensor as the file has it.
    ///
    /// # Errors
    /// Those of [`IntegerLayout::bytes`], data of another length.
    pub fn pack(&self, data: &[u8], rows: usize, columns: usize) -> Result<PackedIntegers, PackError> {
        let shape = Shape { what: self.info.name, rows, columns };
        let blocks = shape.blocks(self.info.block)?;
        let row_bytes = self.info.head + shape.size([blocks, self.info.bytes])?;
        shape.expect(data.len(), shape.size([rows, row_bytes])?)?;
        let [codes, floats, bytes] = self.bytes(rows, columns)?;
        let mut packed =
            PackedIntegers { codes: vec![0; codes / 4], floats: vec![0; floats / 4], bytes: vec![0; bytes] };
        let of_row = columns.div_ceil(UNIT) * UNIT;
        let mut row_codes = vec![0; of_row];
        let mut row_floats = vec![0.0; self.floats_of(columns)];
        let mut row_groups = vec![0; of_row / UNIT * self.groups()];
        for (row, data) in data.chunks_exact(row_bytes.max(1)).enumerate() {
            self.form.each_block(self.info, data, |number, block| {
                self.read(number, block, &mut row_codes, &mut row_floats, &mut row_groups);
            });
            self.put(&mut packed, row, &row_codes, &row_floats, &row_groups);
        }
        Ok(packed)
    }

    /// Writes block `number` of a row into the row's codes, floats and bytes of groups.
    fn read(&self, number: usize, block: &Integers, codes: &mut [u8], floats: &mut [f32], groups: &mut [u8]) {
        let first = number * self.info.block;
        for (e, level) in block.levels[..self.info.block].iter().enumerate() {
            let column = match self.has_chains() {
                true => first + SLICE * (e % 8) + e / 8,
                false => first + e,
            };
            codes[column] = self.form.coding.code(*level);
        }
        let n = self.floats_of_block();
        let floats = &mut floats[number * n..][..n];
        match self.form.sums {
            Sums::Shifted | Sums::Minima | Sums::ChainsAndMinima => {
                floats.copy_from_slice(&[block.d[0], block.minimum])
            }
            _ => floats.copy_from_slice(&block.d[..n]),
        }
        if groups.is_empty() {
            return;
        }
        // Blocks with groups have 256 columns.
        let (each, all) = (UNIT / self.of_groups(), self.groups());
        let groups = &mut groups[number * all..][..all];
        for (g, scale) in groups[..each].iter_mut().enumerate() {
            *scale = block.scales[g * self.of_groups() / self.form.group] as u8;
            if self.form.sums == Sums::Minima {
                // Four bits each.
                *scale |= (block.minima[g] as u8) << 4;
            }
        }
        for (minimum, of_block) in groups[each..].iter_mut().zip(block.minima) {
            *minimum = of_block as u8;
        }
    }

    /// Puts a row into its tile.
    fn put(&self, packed: &mut PackedIntegers, row: usize, codes: &[u8], floats: &[f32], groups: &[u8]) {
        let (tile, r) = (row / ROWS, row % ROWS);
        let units = codes.len() / UNIT;
        let of_tile = units * self.bits * CHUNK;
        let dwords = &mut packed.codes[tile * of_tile..][..of_tile];
        for (codes, dwords) in codes.chunks_exact(UNIT).zip(dwords.chunks_exact_mut(self.bits * CHUNK)) {
            for (s, codes) in codes.chunks_exact(SLICE).enumerate() {
                self.put_slice(s, r, codes, dwords);
            }
        }
        let single = self.floats == Floats::Single;
        let words = if single { 2 * ROWS } else { ROWS };
        let of_tile = floats.len() * words / 2;
        let to = &mut packed.floats[tile * of_tile..][..of_tile];
        for (x, to) in floats.iter().zip(to.chunks_exact_mut(words / 2)) {
            let (upper, lower) = match self.floats {
                Floats::Half => (f32_to_f16(*x), 0),
                _ => ((x.to_bits() >> 16) as u16, x.to_bits() as u16),
            };
            let (place, shift) = (scale_place(r) / 2, 16 * (scale_place(r) % 2));
            to[place] |= u32::from(upper) << shift;
            if single {
                to[ROWS / 2 + place] |= u32::from(lower) << shift;
            }
        }
        if groups.is_empty() {
            return;
        }
        let (each, all) = (UNIT / self.of_groups(), self.groups());
        let of_tile = units * ROWS * all;
        let to = &mut packed.bytes[tile * of_tile..][..of_tile];
        for (of_unit, to) in groups.chunks_exact(all).zip(to.chunks_exact_mut(ROWS * all)) {
            // Scales of all rows, then the minima of all.
            for (of_kind, to) in of_unit.chunks_exact(each).zip(to.chunks_exact_mut(ROWS * each)) {
                to[r * each..][..each].copy_from_slice(of_kind);
            }
        }
    }

    /// Puts the codes of a slice of row `r` of a tile into the dwords of its 256 columns.
    fn put_slice(&self, s: usize, r: usize, codes: &[u8], dwords: &mut [u32]) {
        for t in 0..4 {
            for half in 0..2 {
                // The register and the lane of four columns.
                let (i, lane) = (r / 8 + 2 * half, 4 * (r % 8) + t);
                debug_assert_eq!(byte_a(lane, i, 0), (r, 16 * half + 4 * t));
                let four = &codes[16 * half + 4 * t..][..4];
                let four = u32::from_le_bytes([four[0], four[1], four[2], four[3]]);
                let mut put = |chunk: usize, bits: u32| dwords[chunk * CHUNK + 4 * lane + i] |= bits;
                if self.bits == 8 {
                    put(s, four);
                    continue;
                }
                if self.bits & 4 != 0 {
                    put(s / 2, (four & 0x0f0f_0f0f) << (4 * (s % 2)));
                }
                if self.bits & 2 != 0 {
                    put((self.bits & 4) + s / 4, (four >> (self.bits & 4) & 0x0303_0303) << (2 * (s % 4)));
                }
                if self.bits & 1 != 0 {
                    put(self.bits & 6, (four >> (self.bits & 6) & 0x0101_0101) << s);
                }
            }
        }
    }
}
