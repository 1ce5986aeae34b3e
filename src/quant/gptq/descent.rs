//! Descent: rounding once more, each choice beside all others as they are now.
//!
//! Error feedback chooses a column when those behind it are not rounded yet and takes for granted that these make up for
//! the error. When all are rounded, a row costs `r H r^T` with `r = w - q`, and with `g = r H` the best that columns `B`
//! could be while all others stay is `q_B + g_B (H_BB)^-1`: they become the values nearest to that in the metric of
//! `H_BB`, where these cost less than those that they have. No step makes a row cost more. `H` is damped as it is for the
//! feedback.

/// A Hessian in the order of its factor.
pub struct Metric {
    columns: usize,
    /// `[columns][columns]`.
    rows: Vec<f64>,
}

impl Metric {
    /// A symmetric matrix of so many columns, row after row.
    pub fn new(columns: usize, rows: Vec<f64>) -> Metric {
        Metric { columns, rows }
    }

    /// The element of columns number `i` and `j` in order.
    pub fn at(&self, i: usize, j: usize) -> f64 {
        self.rows[i * self.columns + j]
    }

    fn row(&self, i: usize) -> &[f64] {
        &self.rows[i * self.columns..][..self.columns]
    }

    /// The upper triangle `U` with `H_BB^-1 = U^T U`, for the `N` columns from number `i` on.
    pub fn upper<const N: usize>(&self, i: usize) -> [[f64; N]; N] {
        // H_BB = R R^T with an upper triangle R, from the last column on; then its inverse.
        let mut root = [[0.0; N]; N];
        for c in (0..N).rev() {
            let sum = |a: usize, b: usize, root: &[[f64; N]; N]| {
                (c + 1..N).fold(self.at(i + a, i + b), |sum, k| sum - root[a][k] * root[b][k])
            };
            root[c][c] = sum(c, c, &root).sqrt();
            for r in 0..c {
                root[r][c] = sum(r, c, &root) / root[c][c];
            }
        }
        let mut upper = [[0.0; N]; N];
        for r in 0..N {
            upper[r][r] = 1.0 / root[r][r];
            for c in r + 1..N {
                let sum = (r..c).fold(0.0, |sum, k| sum + upper[r][k] * root[k][c]);
                upper[r][c] = -sum / root[c][c];
            }
        }
        upper
    }
}

/// A row whose columns are all rounded.
pub struct Descent<'a> {
    /// The Hessian.
    pub metric: &'a Metric,
    /// The columns, by their numbers in the tensor.
    pub order: &'a [usize],
    /// The values that the file holds.
    values: &'a mut [f64],
    /// `(w - q) H`.
    gradient: Vec<f64>,
}

impl<'a> Descent<'a> {
    /// The row of these `weights` that became `values`, both in the order of the factor.
    pub fn new(metric: &'a Metric, order: &'a [usize], weights: &[f64], values: &'a mut [f64]) -> Descent<'a> {
        let mut gradient = vec![0.0; order.len()];
        for (i, (w, q)) in weights.iter().zip(&*values).enumerate() {
            add(&mut gradient, w - q, metric.row(i));
        }
        Descent { metric, order, values, gradient }
    }

    /// The value of column number `i`.
    pub fn value(&self, i: usize) -> f64 {
        self.values[i]
    }

    /// Half of what the row's cost falls by for each unit that column number `i` grows.
    pub fn gradient(&self, i: usize) -> f64 {
        self.gradient[i]
    }

    /// The best that column number `i` could be.
    pub fn wanted(&self, i: usize) -> f64 {
        self.values[i] + self.gradient[i] / self.metric.at(i, i)
    }

    /// The best that the `N` columns from number `i` on could be, with their [`Metric::upper`].
    pub fn wanted_together<const N: usize>(&self, i: usize, upper: &[[f64; N]; N]) -> [f64; N] {
        let of = |r: usize| (r..N).fold(0.0, |sum, k| sum + upper[r][k] * self.gradient[i + k]);
        let turned: [f64; N] = std::array::from_fn(of);
        std::array::from_fn(|c| (0..=c).fold(self.values[i + c], |sum, k| sum + upper[k][c] * turned[k]))
    }

    /// Column number `i` becomes `value`.
    pub fn set(&mut self, i: usize, value: f64) {
        let off = self.values[i] - value;
        if off != 0.0 {
            add(&mut self.gradient, off, self.metric.row(i));
            self.values[i] = value;
        }
    }
}

fn add(sums: &mut [f64], factor: f64, row: &[f64]) {
    for (sum, x) in sums.iter_mut().zip(row) {
        *sum += factor * x;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_else_is_better_for_some_columns_while_the_others_stay() {
        // The sums of a Gram matrix of whole numbers are exact.
        let x: Vec<[f64; 6]> =
            (0..9).map(|t| std::array::from_fn(|i| f64::from((t * 7 + i as i32 * 5) % 11 - 5))).collect();
        let mut rows: Vec<f64> = Vec::new();
        for i in 0..6 {
            rows.extend((0..6).map(|j| x.iter().map(|x| x[i] * x[j]).sum::<f64>() + f64::from(u8::from(i == j))));
        }
        let metric = Metric::new(6, rows);
        let order = [0, 1, 2, 3, 4, 5];
        let weights = [0.5, -1.25, 2.0, 0.75, -0.5, 1.5];
        let cost = |values: &[f64]| {
            let off = |i: usize| weights[i] - values[i];
            (0..6).map(|i| (0..6).map(|j| off(i) * metric.at(i, j) * off(j)).sum::<f64>()).sum::<f64>()
        };
        let mut values = [1.0, -1.0, 2.0, 0.0, 0.0, 1.0];
        let before = values;
        let upper = metric.upper::<3>(2);
        let mut descent = Descent::new(&metric, &order, &weights, &mut values);
        let one = descent.wanted(1);
        let wanted = descent.wanted_together(2, &upper);
        for (i, value) in wanted.into_iter().enumerate() {
            descent.set(2 + i, value);
        }
        // At the best the gradient is zero.
        (2..5).for_each(|i| assert!(descent.gradient(i).abs() < 1e-9, "{}", descent.gradient(i)));
        let best = cost(&values);
        assert!(best < cost(&before));
        for i in 2..5 {
            for step in [-0.125, 0.125] {
                let mut other = values;
                other[i] += step;
                assert!(cost(&other) > best, "{i} {step}");
            }
        }
        let with = |value: f64| cost(&[before[0], value, before[2], before[3], before[4], before[5]]);
        assert!(with(one) < with(one + 0.125) && with(one) < with(one - 0.125));
    }
}
