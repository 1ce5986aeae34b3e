//! Products with activations in half precision by the checked-in kernels: their order, how near they are, and under
//! which changes they are bit-identical.

use half::f16;

use trine_compat_tests::ptx::Schedule;
use trine_compat_tests::{is_long, rounds};
use trine_cuda::fast::{self, Scales, Weights};

use super::super::product::assert_same;
use super::Product;

const WEIGHTS: [Weights; 2] = [Weights::TwoBits, Weights::FourBits];

const SCALES: [Scales; 5] =
    [Scales::Columns, Scales::Groups(32), Scales::Groups(64), Scales::Groups(128), Scales::Groups(256)];

fn kinds() -> impl Iterator<Item = (Weights, Scales)> {
    WEIGHTS.into_iter().flat_map(|weights| SCALES.map(|scales| (weights, scales)))
}

/// The published kernels' test allows a mean error of a thousandth of the mean, and there half precision of the output
/// is most of that. Here the output is single precision.
#[track_caller]
fn assert_near(found: &[f32], exact: &[f64], what: &str) {
    let mean = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / exact.len() as f64;
    let size = mean(&mut exact.iter().map(|e| e.abs()));
    let square = mean(&mut exact.iter().map(|e| e * e)).sqrt();
    let pairs = || found.iter().zip(exact);
    let off = mean(&mut pairs().map(|(&f, e)| (f64::from(f) - e).abs()));
    assert!(off <= 1e-6 * size, "{what}: mean error {off} of {size}");
    for (&found, exact) in pairs() {
        let off = (f64::from(found) - exact).abs();
        assert!(off <= 1e-5 * exact.abs() + 1e-5 * square, "{what}: {found}, exactly {exact}");
    }
}

#[track_caller]
fn check(product: &Product, schedule: Schedule) {
    let what = format!(
        "{:?} {:?} {} x {} x {}",
        product.weights, product.scales, product.rows, product.columns, product.tokens
    );
    let found = product.run(schedule);
    assert_same(&found, &product.in_order(), &what);
    assert_near(&found, &product.exact(), &what);
}

#[test]
fn every_kind_of_weights_in_the_order_that_is_promised() {
    for (i, kind) in kinds().enumerate() {
        // Whole tiles; rows that end within a group, a warp's part, a chunk; columns that end within a tile.
        for (j, shape) in [(256, 128, 3), (136, 16, 17), (70, 48, 5), (1, 1, 1), (520, 80, 33)].into_iter().enumerate()
        {
            let seed = (10 * i + j) as u64;
            check(&Product::random(kind, shape, seed), Schedule::Random(seed));
        }
    }
}

#[test]
fn the_shapes_that_the_published_kernels_are_tested_with() {
    let tokens = [1, 2, 3, 4, 8, 12, 16, 24, 32, 48, 64, 118, 128, 152];
    let many = if is_long() { &tokens[..] } else { &[4, 118] };
    for (i, &tokens) in many.iter().enumerate() {
        let kind = (WEIGHTS[i % 2], SCALES[i % 5]);
        check(&Product::random(kind, (1024, 512, tokens), i as u64), Schedule::InTurn);
    }
    let widths = (0..8).map(|i| 3 * 64 + 512 + 64 * i);
    let rows = widths.chain([64, 128, 192, 512, 1024, 32768]);
    let short = [64, 704, 4096];
    for (i, rows) in rows.enumerate() {
        if is_long() || short.contains(&rows) {
            let kind = (WEIGHTS[i % 2], SCALES[i % 5]);
            check(&Product::random(kind, (rows, 256, 16), i as u64), Schedule::InTurn);
        }
    }
}

#[test]
fn tokens_beside_a_token_change_no_bit_of_it() {
    for kind in [
        (Weights::TwoBits, Scales::Columns),
        (Weights::TwoBits, Scales::Groups(256)),
        (Weights::FourBits, Scales::Groups(128)),
        (Weights::FourBits, Scales::Groups(32)),
    ] {
        // Two slices, the last of which ends within a tile.
        let all = Product::random(kind, (1100, 48, 130), 5);
        assert!(fast::slices(all.rows, all.columns) > 1);
        let expected = all.run(Schedule::InTurn);
        for tokens in [1, 7, 16, 17, 64, 65] {
            let found = all.first(tokens).run(Schedule::Random(tokens as u64));
            assert_same(&found, &expected[..tokens * all.columns], &format!("{kind:?}, {tokens} of 130 tokens"));
        }
    }
}

#[test]
fn who_comes_last_changes_nothing() {
    for kind in [(Weights::TwoBits, Scales::Groups(128)), (Weights::FourBits, Scales::Columns)] {
        // More slices than two, so that their order shows.
        let product = Product::random(kind, (2048, 130, 18), 6);
        assert_eq!(fast::slices(product.rows, product.columns), 4);
        let expected = product.in_order();
        for seed in 0..rounds(20) as u64 {
            let found = product.run(Schedule::Random(seed));
            assert_same(&found, &expected, &format!("{kind:?}, seed {seed}"));
        }
        for warp in [0, 7] {
            let found = product.run(Schedule::Last(warp));
            assert_same(&found, &expected, &format!("{kind:?}, warp {warp} late"));
        }
    }
}

#[test]
fn scales_and_activations_at_their_ends() {
    for (weights, scales) in kinds() {
        let mut product = Product::random((weights, scales), (256, 32, 9), 7);
        let ends = [0.0, -0.0, 65504.0, -65504.0, 6e-8, 6.1e-5];
        for (i, scale) in product.scale.iter_mut().enumerate() {
            if i % 3 == 0 {
                *scale = f16::from_f32(ends[i / 3 % ends.len()]);
            }
        }
        for (i, act) in product.acts.iter_mut().enumerate() {
            if i % 5 == 0 {
                *act = f16::from_f32(ends[i / 5 % ends.len()]);
            }
        }
        let found = product.run(Schedule::InTurn);
        assert_same(&found, &product.in_order(), &format!("{weights:?} {scales:?}"));
        // What is no number stays with its token.
        product.acts[2 * 256 + 100] = f16::INFINITY;
        product.acts[4 * 256 + 255] = f16::NAN;
        let other = product.run(Schedule::InTurn);
        for (token, (found, other)) in found.chunks(32).zip(other.chunks(32)).enumerate() {
            match token {
                2 => assert!(other.iter().all(|x| !x.is_finite())),
                4 => assert!(other.iter().all(|x| x.is_nan())),
                _ => assert_same(other, found, &format!("{weights:?} {scales:?}")),
            }
        }
    }
}

/// Codes 3 of two bits are weights of 2; all codes with all neighbours.
#[test]
fn every_code_is_its_integer() {
    for weights in WEIGHTS {
        let mut product = Product::random((weights, Scales::Columns), (128, 64, 128), 8);
        // Token k asks for row k, and so gets the weights themselves.
        product.scale.fill(f16::ONE);
        for (i, act) in product.acts.iter_mut().enumerate() {
            *act = if i / 128 == i % 128 { f16::ONE } else { f16::ZERO };
        }
        for (token, found) in product.run(Schedule::InTurn).chunks(64).enumerate() {
            for (column, &found) in found.iter().enumerate() {
                assert_eq!(f64::from(found), product.weight(token, column));
            }
        }
    }
}
