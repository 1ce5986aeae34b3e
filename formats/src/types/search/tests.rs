use super::*;

const GRID: AffineGrid = AffineGrid {
    top: 15.0,
    from: -1.0,
    step: 0.1,
    last: 20,
};

/// 8 groups of 16 unlike values, one group all zero.
fn groups() -> Vec<f32> {
    let value = |i: usize| {
        if i / 16 == 5 {
            0.0
        } else {
            ((i * 37 % 101) as f32 - 40.0) * 0.01 * (1 + i / 16) as f32
        }
    };
    (0..128).map(value).collect()
}

#[test]
fn a_group_does_not_see_its_neighbours() {
    let x = groups();
    let w: Vec<f32> = x.iter().map(|v| 0.3 + v.abs()).collect();
    let affine = fit_affine::<16, 2, false>(&tile(&x), &tile(&w), GRID);
    let symmetric = fit_symmetric::<16, 2>(&tile(&x), &tile(&w), 4.0);
    let (descent, codes) = fit_descent::<16, 2>(&tile(&x), 4.0);
    for k in 0..8 {
        let (x, w) = (&x[16 * k..16 * (k + 1)], &w[16 * k..16 * (k + 1)]);
        let alone = fit_affine::<16, 1, false>(&tile(x), &tile(w), GRID);
        assert_eq!(
            affine.scale[k / 4][k % 4].to_bits(),
            alone.scale[0][0].to_bits()
        );
        assert_eq!(
            affine.neg_min[k / 4][k % 4].to_bits(),
            alone.neg_min[0][0].to_bits()
        );
        let alone = fit_symmetric::<16, 1>(&tile(x), &tile(w), 4.0);
        assert_eq!(
            symmetric.scale[k / 4][k % 4].to_bits(),
            alone.scale[0][0].to_bits()
        );
        assert_eq!(
            x.iter().map(|v| symmetric.code(k, *v)).max(),
            x.iter().map(|v| alone.code(0, *v)).max()
        );
        let (alone, own) = fit_descent::<16, 1>(&tile(x), 4.0);
        assert_eq!(descent[k / 4][k % 4].to_bits(), alone[0][0].to_bits());
        assert!((0..16).all(|i| codes[i][k / 4][k % 4] == own[i][0][0]));
    }
}

#[test]
fn exact_groups_are_found_exactly() {
    let codes: [u8; 16] = std::array::from_fn(|i| i as u8);
    let x = codes.map(|c| 0.25 * f32::from(c) - 1.5);
    let fit = fit_affine::<16, 1, false>(&tile(&x), &tile(&[1.0; 16]), GRID);
    assert_eq!((fit.scale[0][0], fit.neg_min[0][0]), (0.25, 1.5));
    assert_eq!(x.map(|v| fit.code(0, v)), codes);

    let codes: [u8; 16] = std::array::from_fn(|i| i as u8 % 8);
    let x = codes.map(|c| 0.5 * (f32::from(c) - 4.0));
    let fit = fit_symmetric::<16, 1>(&tile(&x), &tile(&[1.0; 16]), 4.0);
    assert_eq!(fit.scale[0][0], 0.5);
    assert_eq!(x.map(|v| fit.code(0, v)), codes);

    let x = [0.0, 1.5, 3.0, 22.5, 6.0, 10.5, 19.5, 4.5];
    assert_eq!(
        fit_unsigned(&x, &[1.0; 8], 15),
        (1.5, [0, 1, 2, 15, 4, 7, 13, 3])
    );
}

#[test]
fn groups_without_extent_have_no_scale() {
    let fit = fit_affine::<16, 1, false>(&tile(&[-2.0; 16]), &tile(&[1.0; 16]), GRID);
    assert_eq!(
        (fit.scale[0][0], fit.neg_min[0][0], fit.code(0, -2.0)),
        (0.0, 2.0, 0)
    );
    let fit = fit_symmetric::<16, 1>(&tile(&[1e-16; 16]), &tile(&[1.0; 16]), 4.0);
    assert_eq!((fit.scale[0][0], fit.code(0, 1e-16)), (0.0, 0));
    assert_eq!(fit_unsigned(&[1e-16, -1.0], &[1.0; 2], 15), (0.0, [0, 0]));
}
