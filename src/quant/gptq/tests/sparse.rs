//! Pruning two of four columns, and rounding the others.

use super::*;

const TO: TypeId = TypeId::Q4_0;

fn sparse(group: usize) -> Options {
    Options { group, sparse: true, ..Options::default() }
}

/// Asserts that at most two of every four weights are not zero.
fn assert_pattern(weights: &[f32]) {
    for (four, weights) in weights.chunks(4).enumerate() {
        let kept = weights.iter().filter(|&&w| w != 0.0).count();
        assert!(kept <= 2, "{weights:?} at {four}");
    }
}

#[test]
fn two_of_four_weights_are_left_and_cost_less_than_the_largest_two() {
    let columns = 416;
    let (x, w) = (inputs(700, columns), weights(24, columns));
    for group in [32, 128] {
        let out = rounded(&x, &w, columns, TO, sparse(group), Isa::detect());
        let fed = decoded(&out, columns, TO);
        assert_pattern(&fed);
        // The two largest of each four, as they are.
        let mut largest = w.clone();
        for four in largest.chunks_mut(4) {
            let mut order = [0, 1, 2, 3];
            order.sort_by(|&i, &j| four[i].abs().total_cmp(&four[j].abs()));
            (four[order[0]], four[order[1]]) = (0.0, 0.0);
        }
        let [fed, plain] = [&fed, &largest].map(|q| cost(&x, &w, q, columns));
        assert!(fed < 0.5 * plain, "groups of {group}: {fed} {plain}");
    }
}

#[test]
fn fours_stay_together_and_fall() {
    let columns = 96;
    let sums = sums(&inputs(50, columns), columns);
    let factor = Factor::new(&sums, columns, 50, &sparse(32), Isa::scalar()).unwrap();
    let fours = factor.order().as_chunks::<4>().0;
    let of = |four: &[usize; 4]| four.iter().map(|&j| sums[triangle(j) + j]).sum::<f64>();
    for four in fours {
        let first = four[0];
        assert!(first.is_multiple_of(4));
        assert_eq!(*four, [first, first + 1, first + 2, first + 3]);
    }
    assert!(fours.windows(2).all(|pair| of(&pair[0]) >= of(&pair[1])));
}

#[test]
fn neither_threads_nor_instruction_sets_change_a_byte() {
    let columns = 416;
    for rows in [1, 37] {
        let (x, w) = (inputs(90, columns), weights(rows, columns));
        let want = rounded(&x, &w, columns, TO, sparse(32), Isa::scalar());
        for isa in Isa::available() {
            for threads in [1, 3] {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
                let pool = pool.build().unwrap();
                let got = pool.install(|| rounded(&x, &w, columns, TO, sparse(32), isa));
                assert!(got == want, "{isa}, {threads} threads");
            }
        }
    }
}
