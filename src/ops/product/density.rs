//! The layout of a type that has two: one of fewer bytes for more instructions, and one of more bytes for fewer.
//!
//! Which is read faster from memory depends on the processor, on its memory and on how many threads share it. So the first
//! large matrix of a process that has both measures a part of itself in each, in some milliseconds. The results are
//! bit-identical in either.

use std::io;
use std::sync::RwLock;
use std::time::Instant;

use rayon::prelude::*;

use super::packed::PackedMatrix;
use crate::kernels::packed::{Arena, Packing};
use crate::kernels::{AlignedBytes, probe};

/// The environment variable that chooses by hand.
const VARIABLE: &str = "TRINE_DENSE";
/// Bytes of the larger layout that a thread reads in a measurement, at least half as many.
const PIECE: usize = 1 << 20;
/// Prefetch distances to try, bytes: most layouts are fastest at one of them.
const DISTANCES: [usize; 2] = [0, 8 << 10];
/// Measurements of each layout at each distance.
const ROUNDS: usize = 5;

/// When weights are kept in fewer bytes for more instructions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dense {
    /// Always, where there is such a layout.
    Always,
    /// Never, as is best for a model that stays in the cache.
    Never,
    /// Where it is measured to be as fast.
    Measured,
}

impl Dense {
    /// The choice for a model, by hand as the environment says, or by whether it stays in the cache as a whole.
    ///
    /// # Errors
    /// `TRINE_DENSE` is neither 0 nor 1.
    pub fn of(in_cache: bool) -> Result<Dense, String> {
        match std::env::var_os(VARIABLE) {
            None if in_cache => Ok(Dense::Never),
            None => Ok(Dense::Measured),
            Some(text) if text == "1" => Ok(Dense::Always),
            Some(text) if text == "0" => Ok(Dense::Never),
            Some(text) => Err(format!("{VARIABLE}={text:?} is neither 0 nor 1; give one of them, or unset it")),
        }
    }

    /// True if a matrix of `rows` file rows `w` of `cols` weights is to be in `dense` rather than in `plain`.
    ///
    /// # Errors
    /// The system has no memory.
    pub fn prefers(self, [dense, plain]: [Packing; 2], cols: usize, rows: usize, w: &[u8]) -> io::Result<bool> {
        match self {
            Dense::Always => Ok(true),
            Dense::Never => Ok(false),
            Dense::Measured => {
                if let Some(known) = known(dense.name) {
                    return Ok(known);
                }
                let [dense_speed, plain_speed] = match speeds([dense, plain], cols, rows, w)? {
                    Some(speeds) => speeds,
                    // Too few bytes to say; the smaller one takes less memory.
                    None => return Ok(true),
                };
                let faster = dense_speed >= plain_speed;
                MEASURED.write().unwrap_or_else(|e| e.into_inner()).push((dense.name, faster));
                Ok(faster)
            }
        }
    }
}

/// Names of layouts, and whether they were as fast as their larger ones.
static MEASURED: RwLock<Vec<(&str, bool)>> = RwLock::new(Vec::new());

fn known(name: &str) -> Option<bool> {
    let measured = MEASURED.read().unwrap_or_else(|e| e.into_inner());
    measured.iter().find(|one| one.0 == name).map(|one| one.1)
}

/// Rows per second of the products of one token with a part of the matrix in each layout, out of memory, by all threads
/// of the current rayon pool; `None` where the matrix is too small, or nothing can be driven out of the caches.
fn speeds(layouts: [Packing; 2], cols: usize, rows: usize, w: &[u8]) -> io::Result<Option<[f64; 2]>> {
    let [dense, plain] = layouts;
    let threads = rayon::current_num_threads();
    // Whole groups of both.
    let lanes = dense.rows.max(plain.rows);
    let part_bytes = (plain.group_bytes)(cols) * (lanes / plain.rows);
    let wanted = (PIECE * threads).div_ceil(part_bytes.max(1));
    let parts = wanted.min(rows / lanes);
    if 2 * parts < wanted {
        return Ok(None);
    }
    let part = parts * lanes;
    let w = &w[..w.len() / rows * part];
    let mut arena = Arena::default();
    let mut matrices = Vec::with_capacity(layouts.len());
    for layout in layouts {
        let Some(matrix) = PackedMatrix::pack(layout, cols, part, w, &mut arena)? else {
            return Ok(None);
        };
        matrices.push((matrix, AlignedBytes::new((layout.act_bytes)(cols))));
    }
    let mut best = [0.0_f64; 2];
    for ahead in DISTANCES {
        let mut seconds = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            for ((matrix, act), seconds) in matrices.iter().zip(&mut seconds) {
                if !probe::evict(matrix.data()) {
                    return Ok(None);
                }
                let start = Instant::now();
                matrix.shares(threads).into_par_iter().for_each(|share| matrix.multiply_only(share, act, ahead));
                seconds.push(start.elapsed().as_secs_f64());
            }
        }
        for (best, seconds) in best.iter_mut().zip(&mut seconds) {
            seconds.sort_by(f64::total_cmp);
            *best = best.max(part as f64 / seconds[ROUNDS / 2]);
        }
    }
    Ok(Some(best))
}

#[cfg(test)]
mod tests {
    use trine_formats::types::TypeId;

    use super::*;
    use crate::kernels::packed::layouts;
    use crate::kernels::testing::Random;
    use crate::kernels::{Isa, Level};

    #[test]
    fn both_layouts_of_a_large_matrix_are_measured() {
        let Some(isa) = Isa::of(Level::Avx512) else { return };
        let layouts = layouts(TypeId::TQ2_0, isa);
        let [dense, plain] = [true, false].map(|dense| layouts.iter().find(|layout| layout.dense == dense));
        let both = [*dense.expect("digits"), *plain.expect("bits")];
        let (cols, rows) = (1024, 4096 * rayon::current_num_threads());
        // No code is 3, which digits do not hold.
        let mut random = Random(5);
        let w: Vec<u8> = (0..rows * cols / 256 * 66).map(|_| random.bits() as u8 & 0x55).collect();
        let speeds = speeds(both, cols, rows, &w).expect("memory").expect("enough of it");
        assert!(speeds.iter().all(|speed| *speed > 0.0));
        let first = Dense::Measured.prefers(both, cols, rows, &w).expect("memory");
        assert_eq!(Dense::Measured.prefers(both, cols, rows, &w).expect("memory"), first, "measured once");
        assert_eq!(self::speeds(both, cols, 64, &w[..w.len() / rows * 64]).expect("memory"), None);
        assert!(Dense::Always.prefers(both, cols, rows, &w).expect("memory"));
        assert!(!Dense::Never.prefers(both, cols, rows, &w).expect("memory"));
    }
}
