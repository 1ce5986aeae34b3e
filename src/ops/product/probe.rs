//! Tuning of the prefetch distance of GEMV kernels on a model's own weights.

use std::time::Instant;

use super::prefetch::{GIVEN, Prefetch, VARIABLE, known, note};

/// A matrix for whose GEMV a prefetch distance may be tuned.
pub trait Probed {
    /// Name of its layout; `None` where its products do not prefetch.
    fn name(&self) -> Option<&'static str>;
    /// Bytes in memory.
    fn bytes(&self) -> usize;
    /// Runs of whole units of about `bytes` bytes.
    fn pieces(&self, bytes: usize) -> Box<dyn Iterator<Item = Piece<'_>> + '_>;
}

/// A part of a matrix.
pub struct Piece<'a> {
    /// Bytes that a product with it reads.
    pub bytes: usize,
    /// `multiply(ahead)`: a GEMV with a prefetch distance of `ahead` bytes.
    pub multiply: Box<dyn FnOnce(usize) + 'a>,
}

/// Distances to try, bytes.
const CANDIDATES: [usize; 4] = [0, 4 << 10, 8 << 10, 16 << 10];
/// Measurements of each.
const ROUNDS: usize = 4;
/// Bytes that one measurement reads. Each is read once, when packing has long driven it out of the caches.
const PIECE: usize = 1 << 20;
/// Packed bytes below which a model is in the cache all the time and nothing has to be prefetched.
const LARGE: usize = 32 << 20;
/// How much faster than nothing a distance has to be.
const GAIN: f64 = 1.04;

/// The choice for the layouts of a model's matrices: as the environment says, as known, or measured now where there is
/// enough of them.
///
/// # Errors
/// `TRINE_PREFETCH` is no number of bytes.
pub fn choose(matrices: &[Box<dyn Probed>]) -> Result<Prefetch, String> {
    if let Some(text) = std::env::var_os(VARIABLE) {
        let bytes = text
            .to_str()
            .and_then(|t| t.parse().ok())
            .ok_or_else(|| format!("{VARIABLE}={text:?} is no number of bytes; give one, or unset it"))?;
        return Ok(Prefetch::Given(*GIVEN.get_or_init(|| bytes)));
    }
    if matrices.iter().map(|m| m.bytes()).sum::<usize>() < LARGE {
        return Ok(Prefetch::default());
    }
    let mut chosen: Vec<(&str, usize)> = Vec::new();
    for name in matrices.iter().filter_map(|m| m.name()) {
        if chosen.iter().any(|one| one.0 == name) {
            continue;
        }
        let Some(bytes) = known(name).or_else(|| measured(matrices, name)) else {
            continue;
        };
        chosen.push((name, bytes));
        if known(name).is_none() {
            note(name, bytes);
        }
    }
    Ok(Prefetch::Measured(chosen))
}

/// The best distance for a layout; `None` where there are too few bytes of it.
fn measured(matrices: &[Box<dyn Probed>], name: &str) -> Option<usize> {
    let mut pieces = matrices.iter().filter(|m| m.name() == Some(name)).flat_map(|m| m.pieces(PIECE));
    let mut speeds: [Vec<f64>; CANDIDATES.len()] = Default::default();
    for turn in 0..ROUNDS * CANDIDATES.len() {
        // Nobody comes first in every round.
        let candidate = (turn + turn / CANDIDATES.len()) % CANDIDATES.len();
        speeds[candidate].push(speed(pieces.next()?, CANDIDATES[candidate]));
    }
    let medians = speeds.map(|mut speeds| {
        speeds.sort_by(f64::total_cmp);
        speeds[ROUNDS / 2]
    });
    let best = (1..CANDIDATES.len()).max_by(|&a, &b| medians[a].total_cmp(&medians[b]))?;
    let worth = medians[best] >= GAIN * medians[0];
    Some(if worth { CANDIDATES[best] } else { 0 })
}

/// Bytes per second of the product of a piece with one token.
fn speed(piece: Piece<'_>, ahead: usize) -> f64 {
    let start = Instant::now();
    (piece.multiply)(ahead);
    piece.bytes as f64 / start.elapsed().as_secs_f64()
}
