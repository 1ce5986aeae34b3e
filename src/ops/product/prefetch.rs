//! How far ahead of a product of one token memory is asked for.
//!
//! Such a product waits for memory alone, and what helps depends on the processor and on how much the layout's kernel has to do:
//! one reads up to twice as fast when it asks for what lies some kilobytes ahead, another loses by asking. So the first
//! large model of a process that has a layout measures it on its own weights, in about a millisecond. No bit depends on it.

use std::fmt;
use std::sync::{OnceLock, RwLock};
use std::time::Instant;

use super::packed::PackedMatrix;
use crate::kernels::AlignedBytes;
use crate::kernels::packed::{Layout, multiply_group};

/// The environment variable that chooses by hand.
const VARIABLE: &str = "TRINE_PREFETCH";
/// What is tried, bytes.
const CANDIDATES: [usize; 4] = [0, 4 << 10, 8 << 10, 16 << 10];
/// Measurements of each.
const ROUNDS: usize = 4;
/// Bytes that one measurement reads. Each is read once, when packing has long driven it out of the caches.
const PIECE: usize = 1 << 20;
/// Packed bytes below which a model is in the cache all the time and nothing has to be asked for.
const LARGE: usize = 32 << 20;
/// How much faster than nothing a distance has to be.
const GAIN: f64 = 1.04;

/// The distances of a model's layouts, and who chose them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prefetch {
    /// Bytes for all layouts, as `TRINE_PREFETCH` says.
    Given(usize),
    /// Name and bytes of those that were measured; all others do not ask for anything.
    Measured(Vec<(&'static str, usize)>),
}

impl Default for Prefetch {
    fn default() -> Prefetch {
        Prefetch::Measured(Vec::new())
    }
}

impl fmt::Display for Prefetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Prefetch::Given(bytes) => write!(f, "prefetch {bytes} bytes ahead ({VARIABLE})"),
            Prefetch::Measured(all) => {
                f.write_str("prefetch")?;
                for (i, (name, bytes)) in all.iter().filter(|one| one.1 > 0).enumerate() {
                    let comma = if i > 0 { "," } else { "" };
                    write!(f, "{comma} {bytes} bytes ahead of {name}")?;
                }
                let none = all.iter().all(|one| one.1 == 0);
                f.write_str(if none { " none" } else { " (measured)" })
            }
        }
    }
}

/// What `TRINE_PREFETCH` says, and the distances that this process has measured.
static GIVEN: OnceLock<usize> = OnceLock::new();
static MEASURED: RwLock<Vec<(&str, usize)>> = RwLock::new(Vec::new());

/// The distance for products of one token with matrices in this layout.
pub(super) fn ahead(layout: &Layout) -> usize {
    if let Some(given) = GIVEN.get() {
        return *given;
    }
    known(layout.name).unwrap_or(0)
}

/// What was measured of the layout.
fn known(name: &str) -> Option<usize> {
    let measured = MEASURED.read().unwrap_or_else(|e| e.into_inner());
    measured.iter().find(|one| one.0 == name).map(|one| one.1)
}

/// The choice for the layouts of a model's matrices: as the environment says, as known, or measured now where there is
/// enough of them.
///
/// # Errors
/// `TRINE_PREFETCH` is no number of bytes.
pub fn choose(matrices: &[PackedMatrix]) -> Result<Prefetch, String> {
    if let Some(text) = std::env::var_os(VARIABLE) {
        let bytes = text.to_str().and_then(|t| t.parse().ok()).ok_or_else(|| {
            format!("{VARIABLE}={text:?} is no number of bytes; give one, or unset it")
        })?;
        return Ok(Prefetch::Given(*GIVEN.get_or_init(|| bytes)));
    }
    if matrices.iter().map(PackedMatrix::bytes).sum::<usize>() < LARGE {
        return Ok(Prefetch::default());
    }
    let mut chosen: Vec<(&str, usize)> = Vec::new();
    for layout in matrices.iter().map(PackedMatrix::layout) {
        if chosen.iter().any(|one| one.0 == layout.name) {
            continue;
        }
        let Some(bytes) = known(layout.name).or_else(|| measured(matrices, layout.name)) else {
            continue;
        };
        chosen.push((layout.name, bytes));
        if known(layout.name).is_none() {
            let mut all = MEASURED.write().unwrap_or_else(|e| e.into_inner());
            all.push((layout.name, bytes));
        }
    }
    Ok(Prefetch::Measured(chosen))
}

/// The best distance for a layout; `None` where there are too few bytes of it.
fn measured(matrices: &[PackedMatrix], name: &str) -> Option<usize> {
    let mut pieces = matrices
        .iter()
        .filter(|m| m.layout().name == name)
        .flat_map(|m| m.pieces(PIECE));
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

/// Bytes per second of the product of some groups with one token.
fn speed((matrix, groups): (&PackedMatrix, &[u8]), ahead: usize) -> f64 {
    let layout = matrix.layout();
    let act = AlignedBytes::new((layout.act_bytes)(matrix.cols()));
    let start = Instant::now();
    for group in groups.chunks_exact((layout.group_bytes)(matrix.cols())) {
        multiply_group(layout, group, &act, matrix.cols(), 1, ahead, |_, _| {});
    }
    groups.len() as f64 / start.elapsed().as_secs_f64()
}
