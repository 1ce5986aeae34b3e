//! The code of a column, chosen for all widths together.

/// The search for a code, with its memory.
#[derive(Default)]
pub struct Choice {
    /// The cost of the codes of a width, those of their beginnings included.
    costs: Vec<f64>,
    next: Vec<f64>,
}

/// Costs that are compared together.
const LANES: usize = 8;

impl Choice {
    /// The code that costs least, the lowest of equals: each width's `share` times the square of what its centroid is
    /// off what is wanted.
    pub fn code(&mut self, shares: &[f64], tables: &[Vec<f64>], wanted: impl Fn(usize) -> f64) -> u8 {
        for (b, (&share, table)) in shares.iter().zip(tables).enumerate() {
            let wanted = wanted(b);
            let cost = |centroid: f64| {
                let off = wanted - centroid;
                share * (off * off)
            };
            if b == 0 {
                self.costs.clear();
                self.costs.extend(table.iter().map(|&c| cost(c)));
                continue;
            }
            self.next.resize(table.len(), 0.0);
            let pairs = self.next.as_chunks_mut::<2>().0.iter_mut();
            let centroids = table.as_chunks::<2>().0;
            for ((to, before), &[low, high]) in pairs.zip(&self.costs).zip(centroids) {
                *to = [before + cost(low), before + cost(high)];
            }
            std::mem::swap(&mut self.costs, &mut self.next);
        }
        least(&self.costs) as u8
    }
}

/// The place of the least of some numbers, none of which is NaN; the first of equals.
fn least(costs: &[f64]) -> usize {
    let (blocks, rest) = costs.as_chunks::<LANES>();
    let mut lanes = [f64::INFINITY; LANES];
    for block in blocks {
        for (least, &cost) in lanes.iter_mut().zip(block) {
            *least = if cost < *least { cost } else { *least };
        }
    }
    let all = lanes.iter().chain(rest);
    let least = all.fold(f64::INFINITY, |m, &c| if c < m { c } else { m });
    costs.iter().position(|&c| c == least).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_the_least_wins() {
        for n in [1, 2, 4, 8, 16, 32, 256] {
            for at in [0, n / 2, n - 1] {
                let mut costs = vec![1.0; n];
                costs[at] = 0.5;
                costs[n - 1] = 0.5;
                assert_eq!(least(&costs), at);
            }
        }
    }

    #[test]
    fn a_code_is_chosen_for_all_widths() {
        let tables = [vec![-1.0, 1.0], vec![-1.5, -0.5, 0.5, 1.5]];
        let mut choice = Choice::default();
        // The wider width alone would take 0.5, whose beginning the narrower does not want.
        let wanted = |b: usize| [-1.0, 0.1][b];
        assert_eq!(choice.code(&[0.0, 1.0], &tables, wanted), 2);
        assert_eq!(choice.code(&[1.0, 1.0], &tables, wanted), 1);
        assert_eq!(choice.code(&[1.0, 100.0], &tables, wanted), 2);
    }
}
