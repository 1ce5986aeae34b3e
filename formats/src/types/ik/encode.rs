//! The encoder of ik_llama.cpp's types: trine's own, since programs have nothing but the decoder in common.
//!
//! Each group gets the scale and the half of the table with which it errs least by itself. The scale that all groups of
//! a block, or of a row, are multiples of is then the one that these scales are nearest to multiples of, of a few that
//! put the largest on the highest multiples. From there on groups take the best multiples around their own and the
//! common scale that of least squares, in turns, as long as that errs less. Everything is summed in an order that the
//! type alone decides.

use super::super::k_block::BLOCK as WIDEST;
use super::super::num::{f16_to_f32, f32_to_f16, put_f16};
use super::super::{EncodeFn, TypeId};
use super::fit::{Fit, Group, nearest_point};
use super::places::{Book, Choice, Multiples, Places, places_of};

/// Multiples that are tried on either side of a group's own.
const REACH: i32 = 1;
/// Turns of multiples and the common scale at most.
const TURNS: usize = 4;
/// Common scales that are tried for each sign: the largest scale of a group on the highest multiple, and on parts of it
/// down to the last.
const TRIES: usize = 24;
const LAST_PART: f32 = 0.55;
/// Common scales that are followed to the end.
const FOLLOWED: usize = 2;

/// How the error of a weight counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Counts {
    /// By its importance, and the more the larger it is: `importance * sqrt(2 * mean square of its block + x^2)`.
    WithSize,
    /// By its importance alone.
    Alone,
}

/// [`TypeInfo::encode`](super::super::TypeInfo::encode) of a type.
pub(super) fn encode<const ID: u32>(x: &[f32], importance: Option<&[f32]>, row: &mut [u8]) {
    encode_row(const { places_of(TypeId(ID)) }, Counts::WithSize, x, importance, row);
}

/// The same with errors that count by their importance alone, which is what the diagonal of a Hessian says.
fn alone<const ID: u32>(x: &[f32], importance: Option<&[f32]>, row: &mut [u8]) {
    encode_row(const { places_of(TypeId(ID)) }, Counts::Alone, x, importance, row);
}

/// An encoder whose errors count by their importance alone, without regard to the size of weights; `None` for types that
/// are not of ik_llama.cpp, or are not encoded.
pub fn by_importance(ty: TypeId) -> Option<EncodeFn> {
    macro_rules! of {
        ($($name:ident)*) => {
            match ty {
                $(TypeId::$name => Some(alone::<{ TypeId::$name.0 }>),)*
                _ => None,
            }
        };
    }
    of! { IQ2_K IQ3_K IQ4_K IQ5_K IQ6_K IQ2_KS IQ3_KS IQ4_KS IQ5_KS IQ2_KL }
}

fn encode_row(places: &Places, counts: Counts, x: &[f32], importance: Option<&[f32]>, row: &mut [u8]) {
    let form = places.form();
    let (head, blocks) = row.split_at_mut(form.head);
    let weights = with_a_floor(error_weights(counts, x, importance));
    let per_scale = if form.head == 0 { WIDEST } else { x.len().max(1) };
    let size = WIDEST / form.groups;
    let parts = x.chunks(per_scale).zip(weights.chunks(per_scale));
    for ((x, weights), blocks) in parts.zip(blocks.chunks_mut(per_scale / WIDEST * form.bytes)) {
        let groups: Vec<Group> =
            x.chunks_exact(size).zip(weights.chunks_exact(size)).map(|(x, weights)| Group { x, weights }).collect();
        let common = Common { places, is_half: form.head != 4, groups: &groups };
        let (d, choices) = common.best();
        match form.head {
            4 => head.copy_from_slice(&d.to_le_bytes()),
            2 => put_f16(head, 0, d),
            _ => put_f16(blocks, 0, d),
        }
        let of_blocks = choices.chunks_exact(form.groups).zip(groups.chunks_exact(form.groups));
        for (block, (choices, groups)) in blocks.chunks_exact_mut(form.bytes).zip(of_blocks) {
            places.put(choices, block);
            write_codes(places, d, choices, groups, block);
        }
    }
}

/// How much the squared error of each weight counts.
fn error_weights(counts: Counts, x: &[f32], importance: Option<&[f32]>) -> Vec<f32> {
    if counts == Counts::Alone {
        return importance.map_or_else(|| vec![1.0; x.len()], <[f32]>::to_vec);
    }
    let mut weights = Vec::with_capacity(x.len());
    for block in x.chunks(WIDEST) {
        let sigma2 = 2.0 * block.iter().fold(0.0, |sum, x| sum + x * x) / block.len() as f32;
        weights.extend(block.iter().map(|x| (sigma2 + x * x).sqrt()));
    }
    if let Some(importance) = importance {
        weights.iter_mut().zip(importance).for_each(|(w, importance)| *w *= importance);
    }
    weights
}

/// Gives columns that do not matter at all a little weight, so that groups of them are still near to what they were; all
/// of them the same where none matters, or where they are no numbers.
fn with_a_floor(mut weights: Vec<f32>) -> Vec<f32> {
    const SHARE: f32 = 1e-6;
    let floor = SHARE * weights.iter().sum::<f32>() / weights.len().max(1) as f32;
    if floor > 0.0 && floor.is_finite() {
        weights.iter_mut().for_each(|w| *w = w.max(floor));
    } else {
        weights.fill(1.0);
    }
    weights
}

/// Groups with a common scale.
struct Common<'a> {
    places: &'a Places,
    /// True if the scale is kept as a half float.
    is_half: bool,
    groups: &'a [Group<'a>],
}

impl Common<'_> {
    /// The scale and the choices of the groups that err least, of those that are looked at.
    fn best(&self) -> (f32, Vec<Choice>) {
        let fits: Vec<Fit> = self.groups.iter().map(|group| self.places.book.fit(*group)).collect();
        let mut best = (f32::INFINITY, 0.0, self.none());
        for d in self.candidates(&fits) {
            self.follow(d, &fits, &mut best);
        }
        (best.1, best.2)
    }

    /// The choices of groups without weights, or with such that are no numbers.
    fn none(&self) -> Vec<Choice> {
        let multiple = self.places.multiples.nearest(0.0);
        vec![Choice { multiple, second: false }; self.groups.len()]
    }

    /// Scales whose multiples are near to those of the groups, the best ones first.
    fn candidates(&self, fits: &[Fit]) -> Vec<f32> {
        let multiples = self.places.multiples;
        let extreme = fits.iter().fold(0.0f32, |m, fit| if fit.scale.abs() > m.abs() { fit.scale } else { m });
        if extreme == 0.0 {
            return Vec::new();
        }
        let cost = |d: f32| {
            let off = |fit: &Fit| fit.scale - d * multiples.nearest(fit.scale / d) as f32;
            fits.iter().fold(0.0f32, |sum, fit| sum + fit.curvature * (off(fit) * off(fit)))
        };
        let mut all: Vec<(f32, f32)> = Vec::with_capacity(2 * TRIES);
        for end in [multiples.low, multiples.high] {
            for i in 0..TRIES {
                let part = 1.0 - (1.0 - LAST_PART) * i as f32 / (TRIES - 1) as f32;
                let d = self.kept(extreme / (part * end as f32));
                if d != 0.0 && d.is_finite() {
                    all.push((cost(d), d));
                }
            }
        }
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        all.truncate(FOLLOWED);
        all.into_iter().map(|(_, d)| d).collect()
    }

    /// The scale as the file keeps it.
    fn kept(&self, d: f32) -> f32 {
        if self.is_half { f16_to_f32(f32_to_f16(d)) } else { d }
    }

    /// Lets multiples and scale follow one another from `d` on, and keeps what errs less than the best so far.
    fn follow(&self, mut d: f32, fits: &[Fit], best: &mut (f32, f32, Vec<Choice>)) {
        let multiples = self.places.multiples;
        let near = |fit: &Fit| Choice { multiple: multiples.nearest(fit.scale / d), second: fit.second };
        let mut choices: Vec<Choice> = fits.iter().map(near).collect();
        let mut least = f32::INFINITY;
        for _ in 0..TURNS {
            let (mut errors, mut qx, mut qq) = (0.0f32, 0.0f64, 0.0f64);
            for (group, choice) in self.groups.iter().zip(&mut choices) {
                let (error, sums) = self.best_multiple(d, *group, choice);
                let multiple = f64::from(choice.multiple);
                errors += error;
                qx += multiple * f64::from(sums.0);
                qq += multiple * multiple * f64::from(sums.1);
            }
            // Never so where weights are no numbers.
            let is_better = errors < least;
            if !is_better {
                break;
            }
            least = errors;
            if errors < best.0 {
                *best = (errors, d, choices.clone());
            }
            let next = self.kept((qx / qq) as f32);
            if next == d || next == 0.0 || !next.is_finite() {
                break;
            }
            d = next;
        }
    }

    /// Takes the multiple around a group's own and the half that err least. The error, and the sums of its levels.
    fn best_multiple(&self, d: f32, group: Group<'_>, choice: &mut Choice) -> (f32, (f32, f32)) {
        let Multiples { low, high, step } = self.places.multiples;
        let halves = if self.places.book.has_halves() { &[false, true][..] } else { &[false] };
        let (own, mut best) = (choice.multiple, (f32::INFINITY, (0.0, 0.0)));
        for reach in -REACH..=REACH {
            let multiple = own + reach * step;
            if !(low..=high).contains(&multiple) {
                continue;
            }
            for &second in halves {
                let found = self.places.book.error(second, d * multiple as f32, group);
                if found.0 < best.0 {
                    best = found;
                    *choice = Choice { multiple, second };
                }
            }
        }
        best
    }
}

impl Multiples {
    /// The multiple nearest to `x`.
    fn nearest(&self, x: f32) -> i32 {
        let steps = ((x - self.low as f32) / self.step as f32 + 0.5) as i32;
        self.low + self.step * steps.clamp(0, (self.high - self.low) / self.step)
    }
}

/// Writes the codes nearest to the weights of a block whose scales are decided.
fn write_codes(places: &Places, d: f32, choices: &[Choice], groups: &[Group], block: &mut [u8]) {
    let mut codes = [0u8; WIDEST];
    let mut count = 0;
    for (group, choice) in groups.iter().zip(choices) {
        let scale = d * choice.multiple as f32;
        let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
        match places.book {
            Book::Levels(halves) => {
                let nearest = &halves[usize::from(choice.second)];
                for x in group.x {
                    codes[count] = nearest.code(x * inverse);
                    count += 1;
                }
            }
            Book::Points(points) => {
                for (x, weights) in group.x.as_chunks::<2>().0.iter().zip(group.weights.as_chunks::<2>().0) {
                    codes[count] = nearest_point(points, x.map(|x| x * inverse), *weights);
                    count += 1;
                }
            }
        }
    }
    (places.place)(&codes[..count], block);
}

#[cfg(test)]
mod tests;
