//! STQ1_0 of Tencent's models: ternary weights of which exactly one in each group of four is zero.
//!
//! ```text
//! byte  0              31 32          39 40   41
//!       +----------------+--------------+-------+
//!       | 64 slots       | 64 signs     |   d   |   slot of group g: nibble g % 2 of byte g / 2
//!       | 4 bits each    | 1 bit each   |  f16  |   sign of group g: bit g % 8 of byte 32 + g / 8
//!       +----------------+--------------+-------+
//!
//! slot >> 2:   the lane that is 0
//! bits 0, 1:   set where the second and the third of the other lanes differ in sign from the first
//! sign:        0 = the first of the other lanes is +d, 1 = it is -d
//! lane p of group g is weight  64 (g / 16) + g % 16 + 16 p
//! ```
//!
//! Files have it under the number 42 or, of Hy4, 43 ([`TypeId::STQ1_0_43`]). Every bit pattern stands for a group. The first version of the type, under the same numbers, had weight `4 g + p`
//! there ([`CONTIGUOUS`]). Nothing in a file tells the two apart, and no published file is known to be of the first.

use super::grid::whole;
use super::integers::{Coding, IntegerForm, Sums};
use super::num::{f16_at, largest_magnitude, put_f16};
use super::{Field, Format, Part, TypeId, TypeInfo, q8_k, tq2_0};

const BLOCK: usize = 256;
const BYTES: usize = 42;
const GROUPS: usize = BLOCK / 4;
const SIGNS: usize = GROUPS / 2;
const SCALE: usize = SIGNS + GROUPS / 8;
const _: () = assert!(SCALE + size_of::<u16>() == BYTES);

/// STQ1_0 in the registry.
pub const INFO: TypeInfo = TypeInfo {
    fields: &[
        Field::new(Part::Codes, Format::Bits, 0),
        Field::new(Part::Signs, Format::Bits, SIGNS),
        Field::new(Part::Scale, Format::F16, SCALE),
    ],
    act: Some(TypeId::Q8_K),
    decode: Some(decode::<false>),
    encode: Some(encode::<false>),
    dot_ref: Some(dot_ref::<false>),
    ..TypeInfo::sized(TypeId::STQ1_0, "stq1_0", BLOCK, BYTES)
};

/// The first version of the type: a group is four weights side by side.
pub const CONTIGUOUS: TypeInfo = TypeInfo {
    id: TypeId::STQ1_0_CONTIGUOUS,
    name: "stq1_0_contiguous",
    decode: Some(decode::<true>),
    encode: Some(encode::<true>),
    dot_ref: Some(dot_ref::<true>),
    ..INFO
};

/// The weight in lane `p` of group `g`.
#[inline]
fn place<const CONTIGUOUS: bool>(g: usize, p: usize) -> usize {
    if CONTIGUOUS { 4 * g + p } else { 64 * (g / 16) + g % 16 + 16 * p }
}

/// The four lanes of every slot, for a first lane of +1.
const LANES: [[i8; 4]; 16] = {
    let mut lanes = [[0; 4]; 16];
    let mut slot = 0;
    while slot < 16 {
        let (mut p, mut nth) = (0, 0);
        while p < 4 {
            if p != slot >> 2 {
                let differs = nth > 0 && slot >> (nth - 1) & 1 == 1;
                lanes[slot][p] = if differs { -1 } else { 1 };
                nth += 1;
            }
            p += 1;
        }
        slot += 1;
    }
    lanes
};

/// The codes of a block.
fn codes<const CONTIGUOUS: bool>(block: &[u8; BYTES]) -> [i8; BLOCK] {
    let mut codes = [0; BLOCK];
    for g in 0..GROUPS {
        let slot = block[g / 2] >> (4 * (g % 2)) & 15;
        let sign = 1 - 2 * (block[SIGNS + g / 8] >> (g % 8) & 1) as i8;
        for (p, lane) in LANES[usize::from(slot)].iter().enumerate() {
            codes[place::<CONTIGUOUS>(g, p)] = lane * sign;
        }
    }
    codes
}

/// The same weights as a block of TQ2_0.
pub fn to_tq2_0<const CONTIGUOUS: bool>(block: &[u8; BYTES]) -> [u8; tq2_0::BYTES] {
    let mut out = [0; tq2_0::BYTES];
    for (j, code) in codes::<CONTIGUOUS>(block).into_iter().enumerate() {
        let (half, j) = (j / 128, j % 128);
        out[tq2_0::PLANE * half + j % tq2_0::PLANE] |= ((code + 1) as u8) << (2 * (j / tq2_0::PLANE));
    }
    out[tq2_0::CODES..].copy_from_slice(&block[SCALE..]);
    out
}

/// Codes of four at a time.
pub(super) const INTEGERS: IntegerForm = integers::<false>();
/// The codes of the first version.
pub(super) const CONTIGUOUS_INTEGERS: IntegerForm = integers::<true>();

const fn integers<const CONTIGUOUS: bool>() -> IntegerForm {
    IntegerForm::new(BLOCK, Coding::Even { lowest: -1, count: 3 }, Sums::WHOLE, |_, block, to| {
        to.set(&codes::<CONTIGUOUS>(whole(block)), f16_at(block, SCALE));
    })
}

fn decode<const CONTIGUOUS: bool>(row: &[u8], out: &mut [f32]) {
    for (b, y) in row.as_chunks::<BYTES>().0.iter().zip(out.as_chunks_mut::<BLOCK>().0) {
        let d = f16_at(b, SCALE);
        for (y, code) in y.iter_mut().zip(codes::<CONTIGUOUS>(b)) {
            *y = f32::from(code) * d;
        }
    }
}

/// Rounds of the fit with importance: the zero lanes for a scale, then the scale for these lanes.
const ROUNDS: usize = 3;

/// The lane of a group that costs least when it becomes 0, the first of equals: without importance the one of least
/// magnitude.
fn zero_lane(x: [f32; 4], weight: Option<[f32; 4]>, d: f32) -> usize {
    let cost = |p: usize| match weight {
        None => x[p].abs(),
        // its square, less the square of what is left of it beside d
        Some(w) => w[p] * (d * (2.0 * x[p].abs() - d)),
    };
    (1..4).fold(0, |best, p| if cost(p) < cost(best) { p } else { best })
}

/// The scale is the largest magnitude, and the least of four weights becomes 0. With importance both are fitted in turns;
/// a block that the first choice keeps exactly stays so.
fn encode<const CONTIGUOUS: bool>(x: &[f32], importance: Option<&[f32]>, row: &mut [u8]) {
    let mut weights = importance.map(|w| w.as_chunks::<BLOCK>().0.iter());
    for (x, block) in x.as_chunks::<BLOCK>().0.iter().zip(row.as_chunks_mut::<BYTES>().0) {
        let weight = weights.as_mut().and_then(Iterator::next);
        let four = |of: &[f32; BLOCK], g: usize| std::array::from_fn(|p| of[place::<CONTIGUOUS>(g, p)]);
        let mut d = largest_magnitude(x);
        let ternary = x.iter().all(|v| *v == 0.0 || v.abs() == d);
        if let Some(weight) = weight.filter(|_| !ternary) {
            for _ in 0..ROUNDS {
                let (mut sum, mut total) = (0.0f32, 0.0f32);
                for g in 0..GROUPS {
                    let (x, w): ([f32; 4], [f32; 4]) = (four(x, g), four(weight, g));
                    let zero = zero_lane(x, Some(w), d);
                    for p in (0..4).filter(|p| *p != zero) {
                        sum += w[p] * x[p].abs();
                        total += w[p];
                    }
                }
                let fitted = sum / total;
                d = if fitted.is_finite() { fitted } else { d };
            }
        }
        block.fill(0);
        put_f16(block, SCALE, d);
        for g in 0..GROUPS {
            let x: [f32; 4] = four(x, g);
            let zero = zero_lane(x, weight.filter(|_| !ternary).map(|w| four(w, g)), d);
            let mut others = (0..4).filter(|p| *p != zero).map(|p| x[p] < 0.0);
            let first = others.next().unwrap_or(false);
            let differs = others.enumerate().fold(0, |bits, (i, sign)| bits | u8::from(sign != first) << i);
            block[g / 2] |= ((zero as u8) << 2 | differs) << (4 * (g % 2));
            block[SIGNS + g / 8] |= u8::from(first) << (g % 8);
        }
    }
}

/// Per block `acc += isum * (dw * dx)`, `isum = sum of code * q8`.
fn dot_ref<const CONTIGUOUS: bool>(w: &[u8], act: &[u8]) -> f32 {
    let mut acc = 0.0f32;
    for (w, x) in q8_k::block_pairs::<BYTES>(w, act) {
        let products = codes::<CONTIGUOUS>(w).into_iter().zip(q8_k::quants(x));
        let isum: i32 = products.map(|(code, q)| i32::from(code) * i32::from(*q as i8)).sum();
        acc += isum as f32 * (f16_at(w, SCALE) * q8_k::scale(x));
    }
    acc
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lanes of all slots as bytes of four 2-bit codes, as the type's first reader has them.
    #[test]
    fn slots_are_those_of_the_published_table() {
        const FIRST: [u8; 16] =
            [0xA9, 0x89, 0x29, 0x09, 0xA6, 0x86, 0x26, 0x06, 0x9A, 0x92, 0x1A, 0x12, 0x6A, 0x62, 0x4A, 0x42];
        for (slot, byte) in FIRST.into_iter().enumerate() {
            let want: [i8; 4] = std::array::from_fn(|p| (byte >> (2 * p) & 3) as i8 - 1);
            assert_eq!(LANES[slot], want, "{slot}");
        }
    }

    #[test]
    fn lanes_of_a_group_are_sixteen_weights_apart() {
        let mut block = [0; BYTES];
        put_f16(&mut block, SCALE, -0.5);
        // group 17: slot 9 is + - 0 +, and its sign turns it over
        (block[8], block[SIGNS + 2]) = (0x90, 2);
        let decoded = |info: &TypeInfo| {
            let mut y = [0.0; BLOCK];
            info.decode.unwrap()(&block, &mut y);
            y
        };
        let y = decoded(&INFO);
        assert_eq!([y[65], y[81], y[97], y[113]], [0.5, -0.5, 0.0, 0.5]);
        assert_eq!(decoded(&CONTIGUOUS)[68..72], [0.5, -0.5, 0.0, 0.5]);
        // slot 0 of the others
        assert_eq!([y[64], y[80], y[96], y[112]], [0.0, -0.5, -0.5, -0.5]);
    }

    fn encoded(x: &[f32], importance: Option<&[f32]>) -> (Vec<u8>, Vec<f32>) {
        let mut row = vec![0xA5; x.len() / BLOCK * BYTES];
        INFO.encode.unwrap()(x, importance, &mut row);
        let mut y = vec![0.0; x.len()];
        INFO.decode.unwrap()(&row, &mut y);
        (row, y)
    }

    #[test]
    fn weights_with_one_zero_in_four_come_back() {
        let codes = |i: usize| {
            let (g, p) = (i / 64 * 16 + i % 16, i / 16 % 4);
            if g % 4 == p { 0.0 } else { 1.0 - 2.0 * (i * i / 3 % 2) as f32 }
        };
        let x: Vec<f32> = (0..512).map(|i| codes(i) * if i < 256 { 0.75 } else { 3.0 }).collect();
        let importance: Vec<f32> = (0..512).map(|i| 1.0 + (i % 7) as f32).collect();
        for importance in [None, Some(&importance[..])] {
            assert_eq!(encoded(&x, importance).1, x);
        }
    }

    #[test]
    fn the_least_is_dropped_and_importance_moves_scale_and_zero() {
        let mut x = [1.0f32; BLOCK];
        (x[0], x[16], x[32], x[48]) = (0.5, -0.25, 4.0, -0.25);
        let (_, y) = encoded(&x, None);
        assert_eq!([y[0], y[16], y[32], y[48]], [4.0, 0.0, 4.0, -4.0]);
        let mut importance = [1.0f32; BLOCK];
        importance[32] = 0.0;
        let error = |y: &[f32]| -> f32 {
            let each = x.iter().zip(y).zip(&importance);
            each.map(|((x, y), w)| w * (x - y) * (x - y)).sum()
        };
        let (row, fitted) = encoded(&x, Some(&importance));
        assert!(error(&fitted) < error(&y) / 10.0, "{} {}", error(&fitted), error(&y));
        // what nobody looks at is no part of the scale, beside which the least is still the cheapest to drop
        assert_eq!([fitted[0], fitted[16]].map(|v| v > 0.0), [true, false]);
        assert!(f16_at(&row, SCALE) < 1.01);
    }
}
