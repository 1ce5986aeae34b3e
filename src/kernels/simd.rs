//! Operations of vectors, whatever instruction set they are made of. The implementations stand under [`crate::arch`];
//! the portable forms are the definitions.
//!
//! [`Simd`] and [`Vector`] are sixteen `f32` with all of their arithmetic, and safe: a value of the instruction set is
//! the proof that the processor has it. They come from `trine_formats`, whose searches are written in them.
//!
//! Sums of products of half floats and products of packed rows have lanes of their own under [`crate::arch`]: the first
//! read packed words of four half floats and widen one field of each, the others know bytes and words too.

pub use trine_formats::types::lanes::{LANES, Mask, Simd, Vector};

#[cfg(test)]
pub(crate) mod tests {
    //! Tests for the vectors of every instruction set.

    use trine_formats::types::lanes::{Portable, ROUNDS};

    use super::{LANES, Mask, Simd, Vector};

    /// Hard values for lanes: ties, the edge of what can be rounded, and what is no number.
    const VALUES: [f32; LANES] = [
        0.0,
        -0.0,
        0.5,
        -0.5,
        1.5,
        -2.5,
        0.49999997,
        ROUNDS,
        -ROUNDS,
        4_194_304.0,
        1e30,
        -1e30,
        f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        4_194_302.5,
    ];

    /// Every operation on both sides, bit by bit.
    pub(crate) fn check<S: Simd>(simd: S) {
        for shift in 0..LANES {
            let other = std::array::from_fn(|k| VALUES[(k + shift) % LANES]);
            let (a, b) = (simd.load(&VALUES), simd.load(&other));
            let (x, y) = (Portable.load(&VALUES), Portable.load(&other));
            let same = |got: S::F, expected: <Portable as Simd>::F| {
                for (got, expected) in got.to_array().into_iter().zip(expected.to_array()) {
                    let equal = got.to_bits() == expected.to_bits();
                    assert!(equal || got.is_nan() && expected.is_nan(), "{got} {expected}");
                }
            };
            same(a + b, x + y);
            same(a - b, x - y);
            same(a * b, x * y);
            same(a / b, x / y);
            same(-a, -x);
            same(a.abs().sqrt(), x.abs().sqrt());
            same(a.or_below(b), x.or_below(y));
            same(a.or_above(b), x.or_above(y));
            same(a.nearest(), x.nearest());
            same(a.nearest_u8(), x.nearest_u8());
            let masks = [
                (a.gt(b), x.gt(y)),
                (a.ge(b), x.ge(y)),
                (a.eq(b), x.eq(y)),
                (a.ne(b), x.ne(y)),
                (a.gt(b) | a.eq(b), x.ge(y)),
                (a.ne(b) & a.ge(b), x.gt(y) | y.ne(y) & x.ge(y)),
            ];
            for (mask, expected) in masks {
                same(S::F::select(mask, a, b), Vector::select(expected, x, y));
                assert_eq!(mask.any(), expected.any());
                assert_eq!(mask.all(), expected.all());
            }
        }
        let above = [f32::NAN, f32::INFINITY, f32::MAX, 3.0];
        for (lane, next) in (0..LANES).flat_map(|lane| (0..LANES).map(move |next| (lane, next))) {
            for values in [[2.0, 1.0], [1.0, 1.0], [0.0, -0.0], [f32::MIN, 1e30]] {
                let mut row: [f32; LANES] = std::array::from_fn(|k| above[(k + lane) % 4]);
                (row[lane], row[next]) = (values[0], values[1]);
                assert_eq!(simd.load(&row).lowest(), Portable.load(&row).lowest());
            }
        }
        for value in above[..3].iter().copied() {
            assert_eq!(simd.splat(value).lowest().1, f32::MAX, "{value}");
        }
        for v in VALUES.into_iter().filter(|v| v.abs() <= ROUNDS) {
            let (got, expected) = (simd.splat(v).round(), Portable.splat(v).round());
            assert_eq!(got.to_array(), expected.to_array(), "{v}");
        }
        let codes: [u8; LANES] = std::array::from_fn(|k| (k * 8 + k / 2) as u8);
        assert_eq!(simd.load(&codes.map(f32::from)).to_codes(), codes);
        let rows: [[f32; 8]; LANES] = std::array::from_fn(|k| std::array::from_fn(|i| (8 * k + i) as f32));
        for (i, column) in simd.columns(rows.each_ref()).into_iter().enumerate() {
            assert_eq!(column.to_array(), rows.map(|row| row[i]));
        }
    }
}
