//! Blocks of codebooks whose scales are decided: what eight neighbouring weights may still become, which of it is
//! best, and where it goes.
//!
//! They are of the IQ1, IQ2 and IQ3 families, whose weights are points of a codebook, eight or four at a time; types whose
//! weights have codes of their own are in [`grid`](super::grid). Rounding with error feedback chooses for
//! eight weights together; how much their errors cost together is a triangle, see [`Search::best`].

use std::ops::Range;

/// Weights that are chosen together.
pub const CELL: usize = 8;

/// Points that are compared side by side.
const LANES: usize = 16;

/// How often signs may change, and points be looked for again.
const TURNS: usize = 4;

/// Eight weights as points and signs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cell {
    /// Places in the codebook: one for all eight, or one for each four.
    pub points: [u16; 2],
    /// A bit for each weight that is negative.
    pub signs: u8,
}

/// The scale of eight weights, and what is added to the levels of their points.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CellStep {
    /// Distance of levels that are 1 apart.
    pub scale: f32,
    /// In levels; 0 for types without one.
    pub shift: f32,
}

/// The points of a codebook, in levels.
#[derive(Clone, Copy)]
pub enum Book {
    /// A point for eight weights.
    Eights(&'static [[i8; 8]]),
    /// A point for four of them.
    Fours(&'static [[i8; 4]]),
}

/// The signs that go with magnitudes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Signs {
    /// Any.
    Free,
    /// An even number of negative ones.
    Even,
    /// None: levels have signs.
    None,
}

/// How the points of a type stand for values: `value = scale * (level + shift)`, in `f32` with the sum exact, which
/// gives the bits of the type's decoder.
pub struct Cells {
    /// The codebook.
    pub book: Book,
    /// The signs beside it.
    pub signs: Signs,
    /// The multiples of groups, where a scale is `d` times one half more than its group's.
    pub scales: Option<GroupScales>,
    /// Reads the steps of a block, one for each cell.
    pub(super) steps: fn(block: &[u8], steps: &mut [CellStep]),
    /// Writes points and signs of all cells of a block and leaves scales and shifts.
    pub(super) place: fn(cells: &[Cell], block: &mut [u8]),
}

/// Multiples of four bits, one for each group: scales are the block's float times one half more than these, times a
/// constant.
pub struct GroupScales {
    /// Cells of a group.
    pub cells: usize,
    /// The place of a group's four bits, counted in halves of bytes, the lower before the higher.
    pub(super) nibble: fn(group: usize) -> usize,
}

impl GroupScales {
    /// The multiple of a group of `block`, from 0 to 15.
    pub fn read(&self, block: &[u8], group: usize) -> u8 {
        let at = (self.nibble)(group);
        block[at / 2] >> (4 * (at % 2)) & 15
    }

    /// Writes the multiple of a group.
    ///
    /// # Panics
    /// When it is above 15.
    pub fn write(&self, block: &mut [u8], group: usize, multiple: u8) {
        assert!(multiple < 16, "four bits");
        let at = (self.nibble)(group);
        let shift = 4 * (at % 2);
        block[at / 2] = block[at / 2] & !(15 << shift) | multiple << shift;
    }
}

impl Cells {
    /// The steps of `block`, a whole block with scales.
    ///
    /// # Panics
    /// When `steps` has not one place for each eight weights.
    pub fn steps(&self, block: &[u8], steps: &mut [CellStep]) {
        (self.steps)(block, steps);
    }

    /// Writes `cells` into `block`.
    ///
    /// # Panics
    /// When there is not one for each eight weights.
    pub fn place(&self, cells: &[Cell], block: &mut [u8]) {
        (self.place)(cells, block);
    }

    /// The levels of a cell, signs included.
    pub fn levels(&self, cell: Cell) -> [i8; CELL] {
        let level = |i: usize| match self.book {
            Book::Eights(points) => points[usize::from(cell.points[0])][i],
            Book::Fours(points) => points[usize::from(cell.points[i / 4])][i % 4],
        };
        std::array::from_fn(|i| if cell.signs >> i & 1 == 0 { level(i) } else { -level(i) })
    }

    /// The values of a cell, as the type's decoder computes them.
    pub fn values(&self, step: CellStep, cell: Cell) -> [f32; CELL] {
        self.levels(cell).map(|level| step.scale * (f32::from(level) + step.shift))
    }
}

/// The search for cells of a type.
pub struct Search {
    cells: &'static Cells,
    /// Levels of 16 points side by side, coordinate after coordinate.
    lanes: Vec<[f32; LANES]>,
}

/// A cell whose cost is known.
struct Found {
    cell: Cell,
    /// The sums whose squares are the cost, see [`Cost`].
    left: [f32; CELL],
    cost: f32,
}

/// The cost of errors, as eight sums whose squares are added: weight `i` adds its level times `rows[i]` to them.
struct Cost {
    rows: [[f32; CELL]; CELL],
    wanted: [f32; CELL],
}

impl Search {
    /// The search for a type's cells.
    pub fn new(cells: &'static Cells) -> Search {
        let lanes = match cells.book {
            Book::Eights(points) => side_by_side(points),
            Book::Fours(points) => side_by_side(points),
        };
        Search { cells, lanes }
    }

    /// The cell for these weights, whose errors `d` cost the sum of the squares of `e`, with `e U = d` and `U` the upper
    /// triangle `upper`, `[row][column]`: what they cost once all later weights have made up for them, where `U` is a
    /// block of the triangle of error feedback.
    ///
    /// Signs are those of the weights, with an even number the one changed that costs least by itself; points are the
    /// best for these signs, the first of equals (of fours one after the other, twice). Then one sign, or of an even
    /// number two, is changed where that costs less, and points are looked for again, a few times.
    pub fn best(&self, step: CellStep, weights: &[f64; CELL], upper: &[[f64; CELL]; CELL]) -> Cell {
        let inverse = inverse(upper);
        let scale = f64::from(step.scale);
        let mut wanted = [0.0; CELL];
        for (w, row) in weights.iter().zip(&inverse) {
            let off = w - scale * f64::from(step.shift);
            wanted.iter_mut().zip(row).for_each(|(to, v)| *to += off * v);
        }
        let cost = Cost { rows: inverse.map(|row| row.map(|v| (scale * v) as f32)), wanted: wanted.map(|t| t as f32) };
        let mut signs = self.natural(weights, scale, &inverse);
        let mut best = self.search(signs, &cost);
        for _ in 0..TURNS {
            let Some(changed) = self.change(&best, &cost) else { break };
            signs ^= changed;
            let found = self.search(signs, &cost);
            if found.cost >= best.cost {
                break;
            }
            best = found;
        }
        best.cell
    }

    /// The signs of some weights.
    fn natural(&self, weights: &[f64; CELL], scale: f64, inverse: &[[f64; CELL]; CELL]) -> u8 {
        if self.cells.signs == Signs::None {
            return 0;
        }
        let negative = |i: usize| u8::from(weights[i] * scale < 0.0) << i;
        let signs = (0..CELL).fold(0, |signs, i| signs | negative(i));
        if self.cells.signs == Signs::Free || signs.count_ones().is_multiple_of(2) {
            return signs;
        }
        let loss = |i: usize| weights[i] * weights[i] * inverse[i].iter().fold(0.0, |sum, v| sum + v * v);
        let least = (1..CELL).fold(0, |least, i| if loss(i) < loss(least) { i } else { least });
        signs ^ 1 << least
    }

    /// The best points for these signs.
    fn search(&self, signs: u8, cost: &Cost) -> Found {
        let signed = |i: usize| if signs >> i & 1 == 0 { cost.rows[i] } else { cost.rows[i].map(|x| -x) };
        let rows: [[f32; CELL]; CELL] = std::array::from_fn(signed);
        let mut cell = Cell { points: [0; 2], signs };
        match self.cells.book {
            Book::Eights(_) => cell.points[0] = self.nearest(&rows, 0, &cost.wanted, 0..CELL),
            Book::Fours(points) => {
                let halves = rows.as_chunks::<4>().0;
                let without = |half: usize, point: u16| {
                    let mut left = cost.wanted;
                    for (level, row) in points[usize::from(point)].iter().zip(&halves[half]) {
                        left.iter_mut().zip(row).for_each(|(to, a)| *to -= f32::from(*level) * a);
                    }
                    left
                };
                // The second four have no part in the first four sums.
                cell.points[0] = self.nearest(&halves[0], 0, &cost.wanted, 0..4);
                cell.points[1] = self.nearest(&halves[1], 4, &without(0, cell.points[0]), 4..CELL);
                cell.points[0] = self.nearest(&halves[0], 0, &without(1, cell.points[1]), 0..CELL);
                cell.points[1] = self.nearest(&halves[1], 4, &without(0, cell.points[0]), 4..CELL);
            }
        }
        let levels = self.cells.levels(cell);
        let mut left = cost.wanted;
        for (level, row) in levels.iter().zip(&cost.rows) {
            left.iter_mut().zip(row).for_each(|(to, a)| *to -= f32::from(*level) * a);
        }
        Found { cell, left, cost: squares(&left) }
    }

    /// The point, of `N` coordinates, with the least sum of squares of what it leaves of `wanted` in these `sums`; its
    /// first coordinate is that of weight `first`.
    fn nearest<const N: usize>(
        &self,
        rows: &[[f32; CELL]; N],
        first: usize,
        wanted: &[f32; CELL],
        sums: Range<usize>,
    ) -> u16 {
        let mut best = [f32::INFINITY; LANES];
        let mut chosen = [0; LANES];
        for (number, lanes) in self.lanes.as_chunks::<N>().0.iter().enumerate() {
            let mut costs = [0.0; LANES];
            for k in sums.clone() {
                let mut left = [wanted[k]; LANES];
                // A weight has no part in the sums before its own.
                for (row, levels) in rows.iter().zip(lanes).take(k + 1 - first) {
                    let a = row[k];
                    for (to, level) in left.iter_mut().zip(levels) {
                        *to -= a * level;
                    }
                }
                for (cost, left) in costs.iter_mut().zip(&left) {
                    *cost += left * left;
                }
            }
            for ((best, chosen), &cost) in best.iter_mut().zip(&mut chosen).zip(&costs) {
                let is_less = cost < *best;
                *best = if is_less { cost } else { *best };
                *chosen = if is_less { number as u32 } else { *chosen };
            }
        }
        let place = |lane: usize| (chosen[lane] as usize * LANES + lane) as u16;
        let better = |a: usize, b: usize| best[a] < best[b] || best[a] == best[b] && place(a) < place(b);
        place((1..LANES).fold(0, |least, lane| if better(lane, least) { lane } else { least }))
    }

    /// The signs that cost least when they change, where that is less than what is.
    fn change(&self, found: &Found, cost: &Cost) -> Option<u8> {
        let levels = self.cells.levels(found.cell);
        let doubled: [[f32; CELL]; CELL] =
            std::array::from_fn(|i| cost.rows[i].map(|a| 2.0 * f32::from(levels[i]) * a));
        let mut best = (found.cost, None);
        let mut offer = |mask: u8, left: [f32; CELL]| {
            let cost = squares(&left);
            if cost < best.0 {
                best = (cost, Some(mask));
            }
        };
        let plus = |left: &[f32; CELL], i: usize| std::array::from_fn(|k| left[k] + doubled[i][k]);
        for i in 0..CELL {
            let one: [f32; CELL] = plus(&found.left, i);
            match self.cells.signs {
                Signs::None => return None,
                Signs::Free => offer(1 << i, one),
                Signs::Even => (i + 1..CELL).for_each(|j| offer(1 << i | 1 << j, plus(&one, j))),
            }
        }
        best.1
    }
}

fn squares(x: &[f32; CELL]) -> f32 {
    x.iter().fold(0.0, |sum, x| sum + x * x)
}

/// The inverse of an upper triangle without zeros on its diagonal.
fn inverse(upper: &[[f64; CELL]; CELL]) -> [[f64; CELL]; CELL] {
    let mut inverse = [[0.0; CELL]; CELL];
    for (i, row) in inverse.iter_mut().enumerate() {
        row[i] = 1.0 / upper[i][i];
        for k in i + 1..CELL {
            let sum = (i..k).fold(0.0, |sum, j| sum + row[j] * upper[j][k]);
            row[k] = -sum / upper[k][k];
        }
    }
    inverse
}

/// Levels of 16 points side by side.
fn side_by_side<const N: usize>(points: &[[i8; N]]) -> Vec<[f32; LANES]> {
    let sixteens = points.as_chunks::<LANES>().0.iter();
    sixteens.flat_map(|some| (0..N).map(|i| some.map(|point| f32::from(point[i])))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::codebook::with_even_sign;
    use crate::types::{REGISTRY, TypeId};

    struct Random(u64);

    impl Random {
        fn byte(&mut self) -> u8 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.0 >> 56) as u8
        }

        fn number(&mut self) -> f64 {
            f64::from(self.byte()) / 128.0 + f64::from(self.byte()) / 32768.0 - 1.0
        }

        fn cell(&mut self, cells: &Cells) -> Cell {
            let count = match cells.book {
                Book::Eights(points) => points.len(),
                Book::Fours(points) => points.len(),
            };
            let mut point = || ((usize::from(self.byte()) << 8 | usize::from(self.byte())) % count) as u16;
            let points = match cells.book {
                Book::Eights(_) => [point(), 0],
                Book::Fours(_) => [point(), point()],
            };
            let signs = match cells.signs {
                Signs::None => 0,
                Signs::Free => self.byte(),
                Signs::Even => with_even_sign(self.byte()),
            };
            Cell { points, signs }
        }
    }

    #[test]
    fn values_are_the_decoders_and_scales_stay() {
        let mut random = Random(1);
        let mut seen = 0;
        for info in REGISTRY.iter() {
            let Some(cells) = info.id.cells() else {
                continue;
            };
            seen += 1;
            let count = info.block / CELL;
            for _ in 0..200 {
                let mut block: Vec<u8> = (0..info.bytes).map(|_| random.byte()).collect();
                let chosen: Vec<Cell> = (0..count).map(|_| random.cell(cells)).collect();
                let mut before = vec![CellStep::default(); count];
                cells.steps(&block, &mut before);
                cells.place(&chosen, &mut block);
                let mut steps = vec![CellStep::default(); count];
                cells.steps(&block, &mut steps);
                let mut out = vec![0.0; info.block];
                info.decode.unwrap()(&block, &mut out);
                for (c, (&cell, y)) in chosen.iter().zip(out.as_chunks::<CELL>().0).enumerate() {
                    let bits = |step: CellStep| (step.scale.to_bits(), step.shift.to_bits());
                    assert_eq!(bits(steps[c]), bits(before[c]), "{} cell {c}", info.name);
                    for (value, y) in cells.values(steps[c], cell).iter().zip(y) {
                        let same = value.to_bits() == y.to_bits() || value.is_nan() && y.is_nan();
                        assert!(same, "{} cell {c}: {value} {y}", info.name);
                    }
                }
            }
        }
        assert_eq!(seen, 7);
    }

    #[test]
    fn multiples_of_groups_decide_scales_and_nothing_else() {
        let mut random = Random(3);
        let mut seen = 0;
        for info in REGISTRY.iter() {
            let Some(scales) = info.id.cells().and_then(|cells| cells.scales.as_ref()) else {
                continue;
            };
            seen += 1;
            let count = info.block / CELL;
            let mut block: Vec<u8> = (0..info.bytes).map(|_| random.byte()).collect();
            // The block's float is 1.
            block[..2].copy_from_slice(&[0, 0x3C]);
            let values = |block: &[u8]| {
                let mut out = vec![0.0f32; info.block];
                info.decode.unwrap()(block, &mut out);
                out
            };
            for group in 0..count / scales.cells {
                for multiple in 0..16 {
                    let (before, old) = (values(&block), scales.read(&block, group));
                    scales.write(&mut block, group, multiple);
                    assert_eq!(scales.read(&block, group), multiple);
                    let ratio = (f32::from(multiple) + 0.5) / (f32::from(old) + 0.5);
                    for (i, (new, old)) in values(&block).iter().zip(before).enumerate() {
                        let want = if i / CELL / scales.cells == group { old * ratio } else { old };
                        assert!((new - want).abs() <= 1e-5 * want.abs(), "{} {group} {multiple}: {i}", info.name);
                    }
                }
            }
        }
        assert_eq!(seen, 5);
    }

    /// The cost by its definition.
    fn cost(cells: &Cells, step: CellStep, cell: Cell, weights: &[f64; CELL], upper: &[[f64; CELL]; CELL]) -> f64 {
        let values = cells.values(step, cell);
        let mut errors = [0.0; CELL];
        for (i, (w, value)) in weights.iter().zip(values).enumerate() {
            let fed: f64 = (0..i).map(|j| errors[j] * upper[j][i]).sum();
            errors[i] = (w - f64::from(value) - fed) / upper[i][i];
        }
        errors.iter().map(|e| e * e).sum()
    }

    #[test]
    fn no_other_point_is_better_and_without_ties_between_columns_no_signs_are() {
        let mut random = Random(2);
        for ty in [TypeId::IQ1_S, TypeId::IQ2_XXS, TypeId::IQ2_S, TypeId::IQ3_XXS, TypeId::IQ3_S] {
            let cells = ty.cells().unwrap();
            let search = Search::new(cells);
            let level = cells.levels(Cell { points: [7; 2], signs: 0 }).map(f64::from);
            let size = level.iter().fold(1.0, |m, l| l.abs().max(m)) * 1.5;
            for trial in 0..20 {
                let step = CellStep { scale: 0.5, shift: if cells.signs == Signs::None { 0.125 } else { 0.0 } };
                let weights: [f64; CELL] = std::array::from_fn(|_| 0.5 * size * random.number());
                let mixed = if trial < 10 { 0.0 } else { 0.5 };
                let mut upper = [[0.0; CELL]; CELL];
                for (i, row) in upper.iter_mut().enumerate() {
                    row[i] = 1.25 + random.number();
                    row[i + 1..].iter_mut().for_each(|u| *u = mixed * random.number());
                }
                let best = search.best(step, &weights, &upper);
                let found = cost(cells, step, best, &weights, &upper);
                let close = |cell: Cell| cost(cells, step, cell, &weights, &upper) > found * (1.0 - 1e-5);
                let count = match cells.book {
                    Book::Eights(points) => points.len(),
                    Book::Fours(points) => points.len(),
                };
                for point in 0..count as u16 {
                    let [first, second] = best.points;
                    // Of fours the second was chosen last.
                    let other = match cells.book {
                        Book::Eights(_) => [point, second],
                        Book::Fours(_) => [first, point],
                    };
                    assert!(close(Cell { points: other, ..best }), "{ty} {trial}: {best:?} {point}");
                }
                if mixed == 0.0 && cells.signs != Signs::None {
                    for mask in (0..=255u8).filter(|mask| cells.signs == Signs::Free || mask.count_ones() == 2) {
                        assert!(close(Cell { signs: best.signs ^ mask, ..best }), "{ty} {trial}: {best:?} {mask}");
                    }
                }
            }
        }
    }
}
