//! Plans of products with any-precision weights: which kernel runs, on which grid. Every output is one lane's chain of
//! its own quads, so plans are made for speed alone and change no bit.

use crate::pack::planes::ROWS;
use crate::plan::{Launch, PlanError};
use crate::ptx::PLANES;

/// How the numbers of a product are added, each a definition of its own (`formats/src/anyprec/canonical.rs`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Path {
    /// Centroids of 16 bits and activations of 8, whose products are added exactly in quads.
    Fixed,
    /// Single precision.
    Floats,
}

/// The extents of a matrix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extents {
    /// Rows.
    pub rows: usize,
    /// Weights per row.
    pub columns: usize,
    /// Groups of columns with tables of their own, which divide them.
    pub groups: usize,
}

/// The most warps of a block of threads.
const MOST_WARPS: usize = 8;
/// Blocks of threads that keep the largest GPUs busy.
const ENOUGH_BLOCKS: usize = 132;
/// Bytes of shared memory that any kernel may have.
const SHARED: usize = 48 << 10;
/// The most blocks along y.
const MOST_BLOCKS: usize = 65535;
/// Most bits of a code of the kernels whose tables are in registers.
const IN_REGISTERS: u8 = 3;
/// Threads of a block that adds sparse weights.
const THREADS: usize = 256;

impl Path {
    /// The numbers of tokens for which there are kernels, ascending.
    fn tokens(self) -> &'static [usize] {
        match self {
            Path::Fixed => &[1, 4, 8],
            Path::Floats => &[1, 4],
        }
    }
}

impl Extents {
    fn too_large(&self, tokens: usize) -> PlanError {
        PlanError::TooLarge { rows: self.rows, columns: self.columns, tokens }
    }

    /// Columns of a group.
    pub fn of_group(&self) -> usize {
        self.columns / self.groups
    }

    fn axis(&self, blocks: usize, most: usize, tokens: usize) -> Result<u32, PlanError> {
        let blocks = Some(blocks).filter(|&n| n > 0 && n <= most);
        blocks.and_then(|n| u32::try_from(n).ok()).ok_or_else(|| self.too_large(tokens))
    }

    /// The launch of a product with `tokens` rows of activations at a width.
    ///
    /// # Errors
    /// A shape that is empty or larger than a grid; groups that share a quad of columns, or with more tables than
    /// shared memory holds.
    pub fn product(&self, path: Path, width: u8, tokens: usize) -> Result<Launch, PlanError> {
        let Extents { rows, columns, groups } = *self;
        if rows == 0 || columns == 0 || tokens == 0 || groups == 0 {
            return Err(PlanError::Empty);
        }
        // Kernels count in 32 bits with a sign, rounded up to whole groups of columns.
        const MOST: usize = i32::MAX as usize - 512;
        if rows > MOST || columns > MOST || tokens > MOST {
            return Err(self.too_large(tokens));
        }
        let of_group = self.of_group();
        let of_tile = ROWS * 2 * (groups << width);
        if !columns.is_multiple_of(groups) || groups > 1 && !of_group.is_multiple_of(4) || of_tile > SHARED {
            return Err(PlanError::Tables { columns: of_group, width });
        }
        let tiles = rows.div_ceil(ROWS);
        let busy = tiles / ENOUGH_BLOCKS;
        let warps = busy.min(SHARED / of_tile).clamp(1, MOST_WARPS);
        let at_once = path.tokens().iter().copied().find(|&n| n >= tokens);
        let at_once = at_once.or(path.tokens().last().copied()).unwrap_or(1);
        let name = match path {
            Path::Fixed if width <= IN_REGISTERS && groups == 1 => "planes_3_fixed",
            Path::Fixed => "planes_8_fixed",
            Path::Floats => "planes_8_floats",
        };
        Ok(Launch {
            module: PLANES,
            kernel: format!("{name}_{at_once}"),
            blocks: [
                self.axis(tiles.div_ceil(warps), i32::MAX as usize, tokens)?,
                self.axis(tokens.div_ceil(at_once), MOST_BLOCKS, tokens)?,
                1,
            ],
            threads: 32 * warps as u32,
            shared: (warps * of_tile) as u32,
        })
    }

    /// The launch that adds weights that are stored as they are.
    ///
    /// # Errors
    /// A shape that is larger than a grid.
    pub fn sparse(&self, tokens: usize) -> Result<Launch, PlanError> {
        Ok(Launch {
            module: PLANES,
            kernel: "add_sparse".to_owned(),
            blocks: [
                self.axis(self.rows.div_ceil(THREADS), i32::MAX as usize, tokens)?,
                self.axis(tokens, MOST_BLOCKS, tokens)?,
                1,
            ],
            threads: THREADS as u32,
            shared: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids_cover_every_output_and_tables_fit() {
        for path in [Path::Fixed, Path::Floats] {
            for (rows, columns, groups) in
                [(1, 64, 1), (4096, 4096, 1), (577, 576, 3), (14336, 4096, 32), (3, 4096, 48)]
            {
                for (width, tokens) in [(3, 1), (3, 16), (4, 2), (8, 5), (8, 33)] {
                    let extents = Extents { rows, columns, groups };
                    if columns % groups != 0 {
                        assert!(matches!(extents.product(path, width, tokens), Err(PlanError::Tables { .. })));
                        continue;
                    }
                    let launch = extents.product(path, width, tokens).expect("a plan");
                    let (_, at_once) = launch.kernel.rsplit_once('_').expect("a number of tokens");
                    let at_once: usize = at_once.parse().expect("a number");
                    let [x, y, _] = launch.blocks.map(|n| n as usize);
                    let rows_of_block = launch.threads as usize / 32 * ROWS;
                    assert!((x - 1) * rows_of_block < rows && rows <= x * rows_of_block);
                    assert!((y - 1) * at_once < tokens && tokens <= y * at_once);
                    assert_eq!(launch.shared as usize, rows_of_block * 2 * (groups << width));
                    assert!(launch.shared as usize <= SHARED);
                    let in_registers = launch.kernel.starts_with("planes_3");
                    assert_eq!(in_registers, path == Path::Fixed && width == 3 && groups == 1);
                }
            }
        }
        let extents = Extents { rows: 8, columns: 4096, groups: 64 };
        assert!(extents.product(Path::Fixed, 8, 1).is_err_and(|e| e.to_string().contains("64 columns")));
        assert!(extents.product(Path::Fixed, 7, 1).is_ok());
        let narrow = Extents { rows: 8, columns: 96, groups: 16 };
        assert!(matches!(narrow.product(Path::Fixed, 3, 1), Err(PlanError::Tables { columns: 6, width: 3 })));
    }
}
