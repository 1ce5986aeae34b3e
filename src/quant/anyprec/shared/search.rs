//! The class and the factors of a row.

use super::rows::{Rows, Taken};

/// Places at which the distance to the nearest centroid is known.
const PLACES: usize = 4096;
/// How far places reach beyond the largest centroid.
const REACH: f32 = 1.25;
/// Multiples of the size of a row that choose its class, and those that are tried once it is chosen: from the first
/// on, as many, so far apart.
const COARSE: (f64, usize, f64) = (0.8, 5, 0.1);
const FINE: (f64, usize, f64) = (0.7, 31, 0.02);

/// Sums that are made side by side.
const LANES: usize = 8;

/// The squared distance of numbers to the nearest centroid of a table.
struct Grid {
    squares: Vec<f32>,
    /// Places per unit.
    density: f32,
    /// The first and the last centroid.
    ends: [f32; 2],
}

impl Grid {
    fn new(lut: &[f64]) -> Grid {
        let mut sorted: Vec<f32> = lut.iter().map(|&c| c as f32).collect();
        sorted.sort_by(f32::total_cmp);
        let ends = [sorted[0], sorted[sorted.len() - 1]];
        let reach = REACH * ends[0].abs().max(ends[1].abs()).max(f32::MIN_POSITIVE);
        let mut next = 0;
        let squares = (0..PLACES).map(|p| {
            let at = (p as f32 + 0.5) * (2.0 * reach / PLACES as f32) - reach;
            while next + 1 < sorted.len() && (sorted[next + 1] - at).abs() <= (at - sorted[next]).abs() {
                next += 1;
            }
            (at - sorted[next]) * (at - sorted[next])
        });
        Grid { squares: squares.collect(), density: PLACES as f32 / (2.0 * reach), ends }
    }

    /// The weighed error of a row with this factor.
    fn error(&self, row: &[f32], own: &[f32], scale: f64) -> f64 {
        let inverse = (1.0 / scale) as f32;
        let half = PLACES as f32 / 2.0;
        let term = |(&w, &s): (&f32, &f32)| {
            let z = w * inverse;
            let at = z * self.density + half;
            let square = if (0.0..PLACES as f32).contains(&at) {
                self.squares[(at as usize).min(PLACES - 1)]
            } else {
                let off = z - self.ends[usize::from(z > 0.0)];
                off * off
            };
            f64::from(s * square)
        };
        let (rows, row_rest) = row.as_chunks::<LANES>();
        let (owns, own_rest) = own.as_chunks::<LANES>();
        let mut lanes = [0.0; LANES];
        for (row, own) in rows.iter().zip(owns) {
            lanes.iter_mut().zip(row.iter().zip(own)).for_each(|(lane, pair)| *lane += term(pair));
        }
        let rest = row_rest.iter().zip(own_rest).map(term);
        lanes.into_iter().chain(rest).fold(0.0, |sum, term| sum + term) * scale * scale
    }
}

/// The tables of a class, of all widths.
pub struct Grids(Vec<Grid>);

impl Grids {
    /// From tables for rows of size one.
    pub fn new(luts: &[Vec<f64>]) -> Grids {
        Grids(luts.iter().map(|lut| Grid::new(lut)).collect())
    }
}

/// The multiple of `size` with the least error, and the error; the first of equals.
fn least(grid: &Grid, row: &[f32], own: &[f32], size: f64, (first, count, step): (f64, usize, f64)) -> (f64, f64) {
    let scales = (0..count).map(|i| size * (first + i as f64 * step));
    let errors = scales.map(|scale| (scale, grid.error(row, own, scale)));
    errors.fold((size, f64::INFINITY), |best, next| if next.1 < best.1 { next } else { best })
}

/// The choice of row `i`, whose size is `size`: the class with the least error, of all widths by their `shares`, and the
/// best factor for each width.
pub fn best(classes: &[Grids], shares: &[f64], rows: &Rows<'_>, i: usize, size: f64) -> Taken {
    if size == 0.0 {
        return Taken { class: 0, scales: vec![0.0; shares.len()] };
    }
    let mut own = vec![0.0; rows.columns];
    rows.sensitivities.copy(i, &mut own);
    let row = rows.row(i);
    let cost = |grids: &Grids| {
        let widths = grids.0.iter().zip(shares).filter(|(_, share)| **share > 0.0);
        widths.fold(0.0, |sum, (grid, share)| sum + share * least(grid, row, &own, size, COARSE).1)
    };
    let costs = classes.iter().map(cost).enumerate();
    let (class, _) = costs.fold((0, f64::INFINITY), |best, next| if next.1 < best.1 { next } else { best });
    let widths = classes[class].0.iter();
    Taken { class, scales: widths.map(|grid| least(grid, row, &own, size, FINE).0).collect() }
}
