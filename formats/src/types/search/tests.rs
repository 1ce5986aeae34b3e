use super::*;
use crate::types::lanes::Portable;

const GRID: AffineGrid = AffineGrid { top: 15.0, from: -1.0, step: 0.1, last: 20 };

/// 16 groups of 16 unlike values, one group all zero.
fn groups() -> Vec<f32> {
    let value = |i: usize| {
        if i / 16 == 5 { 0.0 } else { ((i * 37 % 101) as f32 - 40.0) * 0.01 * (1 + i / 16) as f32 }
    };
    (0..256).map(value).collect()
}

fn affine(x: &[f32], w: &[f32]) -> AffineFit {
    let (x, w) = (side_by_side(Portable, x), side_by_side(Portable, w));
    let [fit] = fit_affine::<_, 16, 1, false>(Portable, &[x], &[w], GRID);
    fit.unwrap()
}

fn symmetric(x: &[f32], w: &[f32]) -> SymmetricFit {
    let (x, w) = (side_by_side(Portable, x), side_by_side(Portable, w));
    fit_symmetric::<_, 16>(Portable, &x, &w, 4.0)
}

fn descent(x: &[f32]) -> DescentFit<16> {
    let [fit] = fit_descent(Portable, &[side_by_side(Portable, x)], 4.0);
    fit
}

/// The fit of values and weights in lane 3; the others are zero.
fn unsigned(x: &[f32; 8], w: &[f32; 8]) -> (f32, [u8; 8]) {
    let in_lane = |v: &[f32; 8]| {
        let mut lanes = [[0.0; 8]; LANES];
        lanes[3] = *v;
        side_by_side::<_, 8>(Portable, lanes.as_flattened())
    };
    let (scale, codes) = fit_unsigned(Portable, &in_lane(x), &in_lane(w), 15.0);
    (scale.to_array()[3], codes.map(|code| code.to_array()[3] as u8))
}

#[test]
fn a_group_does_not_see_its_neighbours() {
    let x = groups();
    let w: Vec<f32> = x.iter().map(|v| 0.3 + v.abs()).collect();
    let (all_affine, all_symmetric, all_descent) = (affine(&x, &w), symmetric(&x, &w), descent(&x));
    for k in 0..16 {
        let (x, w) = (&x[16 * k..16 * (k + 1)], &w[16 * k..16 * (k + 1)]);
        let alone = affine(x, w);
        assert_eq!(all_affine.scale[k].to_bits(), alone.scale[0].to_bits());
        assert_eq!(all_affine.neg_min[k].to_bits(), alone.neg_min[0].to_bits());
        let alone = symmetric(x, w);
        assert_eq!(all_symmetric.scale[k].to_bits(), alone.scale[0].to_bits());
        let x16 = &x.as_chunks::<16>().0[0];
        assert_eq!(all_symmetric.codes(Portable, k, x16), alone.codes(Portable, 0, x16));
        let alone = descent(x);
        assert_eq!(all_descent.scale[k].to_bits(), alone.scale[0].to_bits());
        assert!((0..16).all(|i| all_descent.codes[i][k] == alone.codes[i][0]));
    }
}

#[test]
fn exact_groups_are_found_exactly() {
    let codes: [u8; 16] = std::array::from_fn(|i| i as u8);
    let x = codes.map(|c| 0.25 * f32::from(c) - 1.5);
    let fit = affine(&x, &[1.0; 16]);
    assert_eq!((fit.scale[0], fit.neg_min[0]), (0.25, 1.5));
    assert_eq!(fit.codes(Portable, 0, &x), codes);

    let codes: [u8; 16] = std::array::from_fn(|i| i as u8 % 8);
    let x = codes.map(|c| 0.5 * (f32::from(c) - 4.0));
    let fit = symmetric(&x, &[1.0; 16]);
    assert_eq!(fit.scale[0], 0.5);
    assert_eq!(fit.codes(Portable, 0, &x), codes);

    let x = [0.0, 1.5, 3.0, 22.5, 6.0, 10.5, 19.5, 4.5];
    assert_eq!(unsigned(&x, &[1.0; 8]), (1.5, [0, 1, 2, 15, 4, 7, 13, 3]));
}

#[test]
fn groups_without_extent_have_no_scale() {
    let fit = affine(&[-2.0; 16], &[1.0; 16]);
    assert_eq!((fit.scale[0], fit.neg_min[0]), (0.0, 2.0));
    assert_eq!(fit.codes(Portable, 0, &[-2.0; 16]), [0; 16]);
    let fit = symmetric(&[1e-16; 16], &[1.0; 16]);
    assert_eq!(fit.scale[0], 0.0);
    assert_eq!(fit.codes(Portable, 0, &[1e-16; 16]), [0; 16]);
    let x = [1e-16, -1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
    assert_eq!(unsigned(&x, &[1.0; 8]), (0.0, [0; 8]));
}
