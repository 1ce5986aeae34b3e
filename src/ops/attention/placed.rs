//! The soft-max of a sequence whose cells lie between the cells of other sequences.

use std::ops::Range;

use crate::kv::Placement;

/// Calls `soft_max` with the scores of `row` that are `visible` as they stand in a cache of cells, and takes back what
/// it made of them; the others become 0. Entry 0 of the row belongs to position `begin`.
///
/// Cells of other sequences have a score of minus infinity, whose exponential is +0 and changes neither the maximum nor
/// a sum. Only where groups of four begin matters, so that longer gaps are shortened to one group and the rest.
pub fn in_cells(
    row: &mut [f32],
    visible: Range<usize>,
    begin: usize,
    placement: &Placement,
    soft_max: impl FnOnce(&mut [f32], Range<usize>),
) {
    if placement.is_plain() {
        return soft_max(row, visible);
    }
    const GROUP: usize = 4;
    let mut last = placement.cell(begin + visible.start);
    let mut place = last % GROUP;
    let places = visible.clone().map(|i| {
        let cell = placement.cell(begin + i);
        place += match cell - last {
            near if near < 2 * GROUP => near,
            far => GROUP + far % GROUP,
        };
        last = cell;
        place
    });
    let places: Vec<usize> = places.collect();
    let (Some(&first), Some(&end)) = (places.first(), places.last()) else {
        return row.fill(0.0);
    };
    let mut cells = vec![f32::NEG_INFINITY; (end + 1).next_multiple_of(16)];
    for (&place, &score) in places.iter().zip(&row[visible.clone()]) {
        cells[place] = score;
    }
    soft_max(&mut cells, first..end + 1);
    row.fill(0.0);
    for (&place, p) in places.iter().zip(&mut row[visible]) {
        *p = cells[place];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::Isa;
    use crate::kernels::elements::soft_max;
    use crate::math::pexp;

    /// As the module of attention defines it, over all cells of the cache.
    fn by_definition(scores: &[f32], placement: &Placement) -> Vec<f32> {
        let cell = |i: usize| placement.cell(i);
        let mut e = vec![0f32; (cell(scores.len() - 1) + 1).next_multiple_of(4)];
        let max = scores.iter().fold(f32::NEG_INFINITY, |m, &v| m.max(v));
        for (i, &score) in scores.iter().enumerate() {
            e[cell(i)] = pexp(score - max);
        }
        let fours = e.chunks(4);
        let total = fours.fold(0f64, |t, e| t + f64::from((e[0] + e[1]) + (e[2] + e[3])));
        let inverse = (1.0 / total) as f32;
        (0..scores.len()).map(|i| e[cell(i)] * inverse).collect()
    }

    #[test]
    fn sums_are_grouped_by_cells() {
        let mut differ = 0;
        for case in 0..400u32 {
            let mut x = case.wrapping_mul(2_654_435_761).wrapping_add(12_345);
            let mut draw = |n: u32| {
                x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (x >> 8) % n
            };
            let n = 3 + draw(40) as usize;
            let scores: Vec<f32> = (0..n).map(|_| draw(9000) as f32 / 1000.0).collect();
            let mut placement = Placement::default();
            let first = draw(30) as usize;
            placement.continue_at(0, first);
            let turn = 1 + draw(n as u32 - 1) as usize;
            placement.continue_at(turn, first + turn + draw(40) as usize);
            let expected = by_definition(&scores, &placement);
            let mut row = scores.clone();
            row.resize(n.next_multiple_of(16), 9e9);
            let mut plain = row.clone();
            in_cells(&mut row, 0..n, 0, &placement, |row, visible| {
                soft_max(Isa::detect(), row, visible, 1.0);
            });
            let bits = |v: &[f32]| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&row[..n]), bits(&expected), "case {case}");
            assert!(row[n..].iter().all(|&p| p == 0.0));
            soft_max(Isa::detect(), &mut plain, 0..n, 1.0);
            differ += usize::from(bits(&plain[..n]) != bits(&expected));
        }
        // Otherwise nothing of this would be needed.
        assert!(differ > 20, "{differ}");
    }
}
