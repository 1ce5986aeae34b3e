//! Products of small matrices by a whole warp.

use trine_cuda::fragment::{self, COLUMNS, LANES, ROWS};
use trine_formats::types::num::{bf16_to_f32, f16_to_f32};

/// The forms of `mma` and `mma.sp`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// `m16n8k32` on bytes to 32-bit integers; whether A and B have signs.
    Bytes { a_signed: bool, b_signed: bool },
    /// `m16n8k16` on bytes with signs to 32-bit integers.
    ShortBytes,
    /// `m16n8k16` on f16 to single precision.
    Halves,
    /// The same on bf16.
    Brains,
    /// `mma.sp.m16n8k32` on f16 to single precision, A with two of four kept.
    SparseHalves,
}

/// Up to four registers of a warp, `[register][lane]`.
pub(super) type Fragment = [[u32; LANES]; 4];

impl Form {
    /// Registers of A, B and C that a lane brings.
    pub(super) fn registers(self) -> [usize; 3] {
        match self {
            Form::Bytes { .. } | Form::Halves | Form::Brains => [4, 2, 4],
            Form::ShortBytes => [2, 1, 4],
            Form::SparseHalves => [4, 4, 4],
        }
    }

    /// `A B + C`. `sparse` is each lane's metadata and the selector.
    pub(super) fn product(
        self,
        a: &Fragment,
        b: &Fragment,
        c: &Fragment,
        sparse: Option<(&[u32; LANES], usize)>,
    ) -> Fragment {
        match self {
            Form::Bytes { a_signed, b_signed } => bytes((a, a_signed), (b, b_signed), c),
            // Its registers are the first ones of the longer form.
            Form::ShortBytes => {
                let none = [[0; LANES]; 4];
                let (a, b) = ([a[0], a[1], none[0], none[0]], [b[0], none[0], none[0], none[0]]);
                bytes((&a, true), (&b, true), c)
            }
            Form::Halves => halves(&dense(a, half), (b, half), 16, c),
            Form::Brains => halves(&dense(a, brain), (b, brain), 16, c),
            Form::SparseHalves => halves(&spread(a, sparse), (b, half), 32, c),
        }
    }
}

/// The first registers of a fragment of A or B on bytes as a matrix, `[row or column][k]`.
#[inline(always)]
fn byte_matrix<const N: usize>(
    fragment: &[[u32; LANES]],
    signed: bool,
    map: impl Fn(usize, usize, usize) -> (usize, usize),
) -> [[i16; 32]; N] {
    let mut matrix = [[0; 32]; N];
    for (i, lanes) in fragment.iter().enumerate() {
        for (lane, register) in lanes.iter().enumerate() {
            for (j, byte) in register.to_le_bytes().into_iter().enumerate() {
                let (line, k) = map(lane, i, j);
                matrix[line][k] = if signed { i16::from(byte as i8) } else { i16::from(byte) };
            }
        }
    }
    matrix
}

/// Exact sums in 32 bits.
fn bytes((a, a_signed): (&Fragment, bool), (b, b_signed): (&Fragment, bool), c: &Fragment) -> Fragment {
    let a: [[i16; 32]; ROWS] = byte_matrix(a, a_signed, fragment::byte_a);
    let b: [[i16; 32]; COLUMNS] = byte_matrix(&b[..2], b_signed, |lane, i, j| {
        let (k, column) = fragment::byte_b(lane, i, j);
        (column, k)
    });
    accumulate(c, |row, column, c| {
        let sum: i32 = a[row].iter().zip(&b[column]).map(|(&a, &b)| i32::from(a) * i32::from(b)).sum();
        c.wrapping_add(sum as u32)
    })
}

/// A result whose every element is a function of its place and of C's element.
#[inline(always)]
fn accumulate(c: &Fragment, f: impl Fn(usize, usize, u32) -> u32) -> Fragment {
    let mut d = *c;
    for (i, lanes) in d.iter_mut().enumerate() {
        for (lane, register) in lanes.iter_mut().enumerate() {
            let (row, column) = fragment::accumulator(lane, i);
            *register = f(row, column, *register);
        }
    }
    d
}

/// Half `h` of a register.
fn half(register: u32, h: usize) -> f64 {
    f64::from(f16_to_f32((register >> (16 * h)) as u16))
}

/// The same of bf16.
fn brain(register: u32, h: usize) -> f64 {
    f64::from(bf16_to_f32((register >> (16 * h)) as u16))
}

/// A of numbers of 16 bits, `[row][k]`.
fn dense(a: &Fragment, half: fn(u32, usize) -> f64) -> [[f64; 32]; ROWS] {
    let mut matrix = [[0.0; 32]; ROWS];
    for (i, lanes) in a.iter().enumerate() {
        for (lane, &register) in lanes.iter().enumerate() {
            for h in 0..2 {
                let (row, k) = fragment::half_a(lane, i, h);
                matrix[row][k] = half(register, h);
            }
        }
    }
    matrix
}

/// A with its kept values where the metadata says.
fn spread(a: &Fragment, sparse: Option<(&[u32; LANES], usize)>) -> [[f64; 32]; ROWS] {
    let kept = dense(a, half);
    let mut matrix = [[0.0; 32]; ROWS];
    let Some((metadata, selector)) = sparse else {
        return matrix;
    };
    for (row, kept) in kept.iter().enumerate() {
        for (index, value) in kept[..16].iter().enumerate() {
            let group = index / 2;
            let (lane, bit) = fragment::metadata(row, group >= 4, selector);
            let nibble = metadata[lane] >> (bit + 4 * (group % 4)) & 15;
            let at = nibble >> (2 * (index % 2)) & 3;
            matrix[row][4 * group + at as usize] = *value;
        }
    }
    matrix
}

/// Sums in double precision over `depth` products, rounded once to single precision.
fn halves(a: &[[f64; 32]], (b, half): (&Fragment, fn(u32, usize) -> f64), depth: usize, c: &Fragment) -> Fragment {
    let mut columns = [[0.0; 32]; COLUMNS];
    for (i, lanes) in b[..depth / 8].iter().enumerate() {
        for (lane, &register) in lanes.iter().enumerate() {
            for h in 0..2 {
                let (k, column) = fragment::half_b(lane, i, h);
                columns[column][k] = half(register, h);
            }
        }
    }
    accumulate(c, |row, column, c| {
        let pairs = a[row][..depth].iter().zip(&columns[column]);
        let sum = pairs.fold(f64::from(f32::from_bits(c)), |sum, (a, b)| sum + a * b);
        let sum = sum as f32;
        if sum.is_nan() { 0x7fff_ffff } else { sum.to_bits() }
    })
}
