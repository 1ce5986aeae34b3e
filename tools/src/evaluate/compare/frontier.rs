//! Which of several files to take: those that no other beats in size and in nearness to the reference.

use std::io::{self, Write};

use super::entry::Entry;
use crate::shown;

/// Places of the points `(cost, loss)` that no other point beats, the cheapest first: each costs more than the one before
/// and loses less. Points without a number are not among them.
pub fn of(points: impl Iterator<Item = (f64, f64)>) -> Vec<usize> {
    let mut all: Vec<(usize, (f64, f64))> =
        points.enumerate().filter(|(_, (c, l))| !c.is_nan() && !l.is_nan()).collect();
    all.sort_by(|(_, a), (_, b)| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let mut best = f64::INFINITY;
    all.retain(|&(_, (_, loss))| {
        let beaten = loss >= best;
        best = best.min(loss);
        !beaten
    });
    all.into_iter().map(|(place, _)| place).collect()
}

/// The places among `entries` of the measured files on the frontier of size and divergence.
pub fn places(entries: &[Entry]) -> Vec<usize> {
    // The reference differs in nothing from itself, which says nothing of the files.
    of(entries.iter().map(|e| (e.footprint.bytes as f64, if e.file.is_some() { e.kld.value } else { f64::NAN })))
}

/// Says which file to take for a size, and which ones never.
///
/// # Errors
/// The output is closed.
pub fn write(out: &mut impl Write, entries: &[Entry]) -> io::Result<()> {
    let front = places(entries);
    if front.is_empty() {
        return Ok(());
    }
    let called = |e: &Entry| match e.footprint.bits {
        Some(bits) => format!("{} at width {bits}", shown::name(&e.name)),
        None => shown::name(&e.name),
    };
    writeln!(out, "\nNearest to the reference for their size:")?;
    for &place in &front {
        let e = &entries[place];
        let megabytes = e.footprint.bytes as f64 / 1e6;
        writeln!(out, "  from {megabytes:>9.2} MB  KLD {:.6} +/- {:.6}  {}", e.kld.value, e.kld.error, called(e))?;
    }
    let others = entries.iter().enumerate().filter(|(place, e)| e.file.is_some() && !front.contains(place));
    for (_, e) in others {
        // the largest of those that beat it is the nearest to the reference
        let mut better = front.iter().rev().map(|&place| &entries[place]);
        let better = better.find(|b| b.footprint.bytes <= e.footprint.bytes && b.kld.value <= e.kld.value);
        if let Some(better) = better {
            writeln!(out, "  never      {}: {} is not larger and no farther", called(e), called(better))?;
        }
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_beats_is_left_out() {
        let points = [(3.0, 0.5), (1.0, 2.0), (2.0, 2.5), (2.0, 1.0), (4.0, 0.5), (5.0, 0.1), (0.5, f64::NAN)];
        assert_eq!(of(points.into_iter()), [1, 3, 0, 5]);
        assert_eq!(of([(1.0, 1.0), (1.0, 1.0)].into_iter()), [0]);
        assert_eq!(of(std::iter::empty()), [0; 0]);
    }
}
