//! One offer of each tensor, so that their losses sum to least and their bytes to no more than allowed.

/// A type that a tensor may have.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Offer {
    /// Bytes of the tensor in it.
    pub bytes: u64,
    /// Its loss, 0 for none.
    pub loss: f64,
}

/// The fewest bytes that can be chosen.
pub fn least(offers: &[Vec<Offer>]) -> u64 {
    offers.iter().map(|of| of[smallest(of)].bytes).sum()
}

/// The number of the offer taken for each tensor; `None` where all of the smallest are more than `budget` bytes.
///
/// All begin with their smallest offer. The tensor whose loss falls most for each byte takes its next one, as long as
/// there is room: along the lower convex hull of its offers this is the best choice for every sum that it passes by
/// (the multiplier of Lagrange is the fall for each byte). The room that is left then goes to whatever still fits and
/// gains most.
pub fn choose(offers: &[Vec<Offer>], budget: u64) -> Option<Vec<usize>> {
    let mut chosen: Vec<usize> = offers.iter().map(|of| smallest(of)).collect();
    let mut room = budget.checked_sub(least(offers))?;
    let mut is_stopped = vec![false; offers.len()];
    for step in &steps(offers) {
        // The steps of a tensor follow one another: none is left out.
        if is_stopped[step.tensor] || step.bytes > room {
            is_stopped[step.tensor] = true;
            continue;
        }
        room -= step.bytes;
        chosen[step.tensor] = step.to;
    }
    while let Some(step) = best_that_fits(offers, &chosen, room) {
        room -= step.bytes;
        chosen[step.tensor] = step.to;
    }
    Some(chosen)
}

/// The number of the offer taken for each tensor, so that the losses sum to `loss` at most and the bytes to as few as
/// the steps of [`choose`] come to; where no choice has so little loss the one that has least.
pub fn within(offers: &[Vec<Offer>], loss: f64) -> Vec<usize> {
    let mut chosen: Vec<usize> = offers.iter().map(|of| smallest(of)).collect();
    for step in &steps(offers) {
        if loss_of(offers, &chosen) <= loss {
            break;
        }
        chosen[step.tensor] = step.to;
    }
    while let Some((tensor, to)) = best_saving(offers, &chosen, loss) {
        chosen[tensor] = to;
    }
    chosen
}

/// The losses of the offers taken, all together.
fn loss_of(offers: &[Vec<Offer>], chosen: &[usize]) -> f64 {
    offers.iter().zip(chosen).fold(0.0, |sum, (of, &choice)| sum + of[choice].loss)
}

/// The smaller offer of any tensor that saves most bytes for what it loses more, of those with which the losses sum to
/// `loss` at most: a large tensor's step may have gained more than was needed.
fn best_saving(offers: &[Vec<Offer>], chosen: &[usize], loss: f64) -> Option<(usize, usize)> {
    let sum = loss_of(offers, chosen);
    let mut best: Option<(f64, usize, usize)> = None;
    for (tensor, (of, &choice)) in offers.iter().zip(chosen).enumerate() {
        let from = of[choice];
        for (to, offer) in of.iter().enumerate().filter(|(_, offer)| offer.bytes < from.bytes) {
            let more = offer.loss - from.loss;
            let saved = (from.bytes - offer.bytes) as f64 / more.max(f64::MIN_POSITIVE);
            if sum + more <= loss && best.is_none_or(|(most, ..)| saved > most) {
                best = Some((saved, tensor, to));
            }
        }
    }
    best.map(|(_, tensor, to)| (tensor, to))
}

/// The steps of all tensors along their hulls, those that gain most for each byte first.
fn steps(offers: &[Vec<Offer>]) -> Vec<Step> {
    let mut steps: Vec<Step> = offers.iter().enumerate().flat_map(|(tensor, of)| hull(tensor, of)).collect();
    steps.sort_by(|a, b| b.gain.total_cmp(&a.gain).then(a.tensor.cmp(&b.tensor)));
    steps
}

/// A tensor that goes from one of its offers to a larger one.
struct Step {
    tensor: usize,
    to: usize,
    bytes: u64,
    /// How much less is lost, for each byte.
    gain: f64,
}

/// The smallest offer, and among equals the one that loses least.
fn smallest(of: &[Offer]) -> usize {
    let better = |a: &usize, b: &usize| of[*a].bytes.cmp(&of[*b].bytes).then(of[*a].loss.total_cmp(&of[*b].loss));
    (0..of.len()).min_by(better).unwrap_or(0)
}

/// The steps from the smallest offer of a tensor to the one that loses least, each with a smaller gain than the one
/// before.
fn hull(tensor: usize, of: &[Offer]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut at = smallest(of);
    while let Some(step) = steepest(tensor, of, at, u64::MAX) {
        at = step.to;
        steps.push(step);
    }
    steps
}

/// The step from one offer with the largest gain of all that are no larger than `room`; of equals the longest.
fn steepest(tensor: usize, of: &[Offer], at: usize, room: u64) -> Option<Step> {
    let from = of[at];
    let step = |(to, offer): (usize, &Offer)| {
        let bytes = offer.bytes.checked_sub(from.bytes).filter(|&bytes| bytes > 0 && bytes <= room)?;
        let gain = (from.loss - offer.loss) / bytes as f64;
        (gain > 0.0).then_some(Step { tensor, to, bytes, gain })
    };
    let steps = of.iter().enumerate().filter_map(step);
    steps.max_by(|a, b| a.gain.total_cmp(&b.gain).then(a.bytes.cmp(&b.bytes)))
}

/// The step of any tensor with the largest gain in all of those that fit.
fn best_that_fits(offers: &[Vec<Offer>], chosen: &[usize], room: u64) -> Option<Step> {
    let steps = (0..offers.len()).filter_map(|tensor| steepest(tensor, &offers[tensor], chosen[tensor], room));
    steps.max_by(|a, b| a.gain.total_cmp(&b.gain).then(b.tensor.cmp(&a.tensor)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offers(all: &[&[(u64, f64)]]) -> Vec<Vec<Offer>> {
        let of = |of: &&[(u64, f64)]| of.iter().map(|&(bytes, loss)| Offer { bytes, loss }).collect();
        all.iter().map(of).collect()
    }

    fn totals(offers: &[Vec<Offer>], chosen: &[usize]) -> (u64, f64) {
        let taken = offers.iter().zip(chosen).map(|(of, &i)| of[i]);
        taken.fold((0, 0.0), |(bytes, loss), offer| (bytes + offer.bytes, loss + offer.loss))
    }

    /// The least loss that any choice has.
    fn best(offers: &[Vec<Offer>], budget: u64) -> f64 {
        let Some((first, rest)) = offers.split_first() else { return 0.0 };
        let losses = first.iter().filter_map(|offer| Some(offer.loss + best(rest, budget.checked_sub(offer.bytes)?)));
        losses.fold(f64::INFINITY, f64::min)
    }

    #[test]
    fn the_steepest_fall_comes_first() {
        let all = offers(&[&[(2, 8.0), (4, 2.0), (8, 0.0)], &[(2, 8.0), (4, 7.0), (8, 6.5)]]);
        assert_eq!(choose(&all, 3), None);
        assert_eq!(choose(&all, 4), Some(vec![0, 0]));
        assert_eq!(choose(&all, 7), Some(vec![1, 0]));
        assert_eq!(choose(&all, 8), Some(vec![1, 1]));
        assert_eq!(choose(&all, 12), Some(vec![2, 1]));
        assert_eq!(choose(&all, 1000), Some(vec![2, 2]));
    }

    #[test]
    fn as_few_bytes_as_a_loss_allows() {
        let all = offers(&[&[(2, 8.0), (4, 2.0), (8, 0.0)], &[(2, 8.0), (4, 7.0), (8, 6.5)]]);
        for (loss, chosen) in
            [(16.0, [0, 0]), (15.9, [1, 0]), (10.0, [1, 0]), (9.9, [2, 0]), (7.5, [2, 1]), (0.0, [2, 2])]
        {
            assert_eq!(within(&all, loss), chosen, "{loss}");
        }
        // The large step makes the small one before it needless.
        let all = offers(&[&[(2, 1.0), (3, 0.1)], &[(10, 8.0), (20, 0.0)]]);
        assert_eq!([within(&all, 2.0), within(&all, 0.5)], [[0, 1], [1, 1]]);
    }

    /// Offers above the hull are taken where nothing else fits, and those that lose more for more bytes never.
    #[test]
    fn room_that_is_left_is_used() {
        let all = offers(&[&[(1, 8.0), (3, 7.0), (9, 0.0)], &[(5, 1.0), (6, 2.0)]]);
        assert_eq!(choose(&all, 6), Some(vec![0, 0]));
        assert_eq!(choose(&all, 8), Some(vec![1, 0]));
        assert_eq!(choose(&all, 14), Some(vec![2, 0]));
    }

    /// Losses that are halves of one another, as those of types are, and every budget: never more bytes than allowed,
    /// and nearly the loss of the best choice of all.
    #[test]
    fn no_choice_is_much_better() {
        let mut state = 7u64;
        let mut next = |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % n
        };
        let mut sums = (0.0, 0.0);
        for _ in 0..200 {
            let tensor = |rows: u64, loss: f64| -> Vec<Offer> {
                (2..7).map(|bits| Offer { bytes: rows * bits, loss: loss / (1u64 << (2 * bits)) as f64 }).collect()
            };
            let all: Vec<_> = (0..5).map(|_| tensor(1 + next(8), 1.0 + next(20) as f64)).collect();
            let least = least(&all);
            let budget = least + next(least * 2);
            let (bytes, loss) = totals(&all, &choose(&all, budget).unwrap());
            assert!(bytes <= budget);
            sums = (sums.0 + loss, sums.1 + best(&all, budget));
        }
        assert!(sums.0 < sums.1 * 1.1, "{sums:?}");
    }
}
