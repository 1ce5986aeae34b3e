//! Two of four neighbouring columns become zero: the pattern that sparse tensor cores skip.
//!
//! When the first of four columns is reached, the two that cost least go, by the rule of SparseGPT (Frantar and
//! Alistarh 2023): with the weights as the errors so far have left them, setting column `j` to zero costs `w_j^2 /
//! U_jj^2` once later columns have made up for it, since `U_jj^2` is the element of the inverse on the diagonal when
//! column `j` is reached. Its error is fed back like that of a code, so that pruning and rounding are one pass.

/// Neighbouring columns of which some are kept.
pub const OF: usize = 4;
/// Number of these columns that are kept.
pub const KEPT: usize = 2;

/// Which of four columns become zero; of equal costs those of the first ones. `pivots` are `U_jj`.
pub fn pruned(weights: [f64; OF], pivots: [f64; OF]) -> [bool; OF] {
    let cost: [f64; OF] = std::array::from_fn(|j| {
        let share = weights[j] / pivots[j];
        share * share
    });
    let mut order = [0, 1, 2, 3];
    // Stable, so that equal costs keep the order of the columns.
    order.sort_by(|&i, &j| cost[i].total_cmp(&cost[j]));
    let mut pruned = [false; OF];
    for &j in &order[..OF - KEPT] {
        pruned[j] = true;
    }
    pruned
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cheapest_two_go_and_of_equals_the_first() {
        let ones = [1.0; OF];
        assert_eq!(pruned([3.0, -1.0, 2.0, -4.0], ones), [false, true, true, false]);
        assert_eq!(pruned([1.0, -1.0, 1.0, 1.0], ones), [true, true, false, false]);
        assert_eq!(pruned([0.0; OF], ones), [true, true, false, false]);
        // A column that others make up for easily has a large pivot, and goes although it is large.
        assert_eq!(pruned([3.0, -1.0, 2.0, -4.0], [1.0, 1.0, 1.0, 10.0]), [false, true, false, true]);
    }
}
