//! Plans of products with activations in half precision: `out[token][column] = sum over k of act[token][k] *
//! weight[k][column]`, where a weight is a small integer times a scale.
//!
//! Tensor cores add such products in an order and with a rounding of their own, so these kernels have other bits than a
//! processor: they are no part of exact inference. What they promise is that a token's bits do not depend on the tokens
//! beside it, on the number of multiprocessors or on chance: how the rows of the weights are shared is a function of
//! their shape alone, and sums meet in an order that is written down (`kernels/half.cu`).

use crate::plan::{Launch, PlanError};
use crate::ptx::{HALF, SPARSE, TENSOR};

/// Rows and columns of a tile.
const TILE: usize = 128;
/// The most tokens of a block of threads.
const MOST_TOKENS: usize = 64;
/// Threads of a block.
const THREADS: u32 = 256;
/// Blocks of threads that keep the largest GPUs busy.
const ENOUGH_BLOCKS: usize = 132;
/// The fewest tiles of a slice: fewer than are under way at a time would leave memory waiting.
const FEWEST_TILES: usize = 4;
/// The most slices.
const MOST_SLICES: usize = 32;
/// The most rows and columns: kernels count in 32 bits with a sign, rounded up to whole tiles.
const MOST_ROWS: usize = i32::MAX as usize - 2 * TILE;
/// The most blocks along y of a grid.
const MOST_BLOCKS: usize = 65535;
/// Bytes in which the sums of sixteen tokens meet: four warps along k, rows of 136 numbers.
const EXCHANGE: usize = 4 * 16 * 136 * 4;

/// The integers of weights, and their layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Weights {
    /// Codes 0 to 3 for -1 to 2: [`crate::pack::trirun::pack_pairs`].
    TwoBits,
    /// Codes 0 to 15 for -8 to 7: [`crate::pack::marlin::pack`].
    FourBits,
}

/// Weights that share a scale.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scales {
    /// Each column, in half precision in their order.
    Columns,
    /// Groups of this number of rows in each column, 32, 64 or a multiple of 128: [`crate::pack::fast::group_scales`].
    Groups(usize),
}

/// Weights that are numbers of 16 bits themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Numbers {
    /// F16.
    Half,
    /// BF16.
    Brain,
}

/// Format of a weight matrix: dense or 2:4 sparse, and the weights that share a scale; or numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WeightFormat {
    /// All weights.
    Dense(Weights, Scales),
    /// Codes of four bits, two of four of which are not zero, with scales of groups of this number of rows:
    /// [`crate::pack::sparse`].
    Sparse(usize),
    /// Rows of numbers, as the file has them: [`crate::pack::floats::rows`].
    Rows(Numbers),
}

impl WeightFormat {
    /// Memories that the weights take, one after the other.
    pub fn memories(self) -> usize {
        match self {
            WeightFormat::Dense(..) => 2,
            WeightFormat::Sparse(_) => 3,
            WeightFormat::Rows(_) => 1,
        }
    }

    /// [`product`], [`sparse_product`] or [`product_of_numbers`].
    ///
    /// # Errors
    /// As these.
    pub fn plan(self, shape: (usize, usize, usize)) -> Result<Plan, PlanError> {
        match self {
            WeightFormat::Dense(weights, scales) => product(weights, scales, shape),
            WeightFormat::Sparse(group) => sparse_product(group, shape),
            WeightFormat::Rows(numbers) => product_of_numbers(numbers, shape),
        }
    }
}

/// The launch of a product.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// The product.
    pub launch: Launch,
    /// Bytes of the workspace, in which slices leave their sums.
    pub workspace: usize,
    /// Tickets of 32 bits, all zero before the first launch and after each.
    pub tickets: usize,
    /// The kernel's argument for the rows of a group, where it has such.
    pub group: Option<u32>,
}

/// Number of slices into which the rows of a matrix are cut: as many as keep a GPU busy, and few enough to leave every
/// slice some work. It does not depend on the number of tokens.
pub fn slices(rows: usize, columns: usize) -> usize {
    slices_of(rows.div_ceil(TILE), columns.div_ceil(TILE), FEWEST_TILES)
}

/// Slices of `tiles` along k, at least `fewest` in each, where a row of the grid has `wide` blocks.
fn slices_of(tiles: usize, wide: usize, fewest: usize) -> usize {
    let wanted = ENOUGH_BLOCKS.div_ceil(wide.max(1));
    wanted.min(tiles / fewest).clamp(1, MOST_SLICES)
}

/// Blocks along y of a product, each of `most` tokens.
///
/// # Errors
/// A shape that is empty or larger than a grid.
fn token_blocks((rows, columns, tokens): (usize, usize, usize), most: usize) -> Result<usize, PlanError> {
    if rows == 0 || columns == 0 || tokens == 0 {
        return Err(PlanError::Empty);
    }
    let blocks = tokens.div_ceil(most);
    if rows > MOST_ROWS || columns > MOST_ROWS || blocks > MOST_BLOCKS {
        return Err(too_large((rows, columns, tokens)));
    }
    Ok(blocks)
}

fn too_large((rows, columns, tokens): (usize, usize, usize)) -> PlanError {
    PlanError::TooLarge { rows, columns, tokens }
}

/// Bytes of the workspace in which the sums of slices meet, and tickets for `places` of the grid.
///
/// # Errors
/// More bytes than can be counted.
fn meeting(
    slices: usize,
    shape @ (_, columns, tokens): (usize, usize, usize),
    places: usize,
) -> Result<(usize, usize), PlanError> {
    if slices == 1 {
        return Ok((0, 0));
    }
    let bytes = (4 * slices).checked_mul(tokens).and_then(|n| n.checked_mul(columns));
    Ok((bytes.ok_or_else(|| too_large(shape))?, places))
}

/// The plan of a product of `rows` (along k) x `columns` weights with `tokens` rows of activations.
///
/// # Errors
/// A shape that is empty or larger than a grid, groups that are no 32, 64 or multiple of 128 rows.
pub fn product(
    weights: Weights,
    scales: Scales,
    shape @ (rows, columns, tokens): (usize, usize, usize),
) -> Result<Plan, PlanError> {
    let deep = token_blocks(shape, MOST_TOKENS)?;
    let group = match scales {
        Scales::Columns => 1,
        Scales::Groups(rows @ (32 | 64)) => rows / 32,
        Scales::Groups(rows) if rows > 0 && rows <= MOST_ROWS && rows.is_multiple_of(TILE) => rows / 32,
        Scales::Groups(rows) => return Err(PlanError::Group { rows }),
    };
    let wide = columns.div_ceil(TILE);
    let slices = slices(rows, columns);
    let (name, loads) = match weights {
        Weights::TwoBits => ("trirun", 1),
        Weights::FourBits => ("marlin", 2),
    };
    let (kind, scale_bytes) = match scales {
        Scales::Columns => ("column", 0),
        Scales::Groups(_) => ("group", 4 * 256),
    };
    let sixteens = match tokens {
        ..=16 => 1,
        17..=32 => 2,
        _ => 4,
    };
    // A stage has a tile of codes, of activations and of scales; the largest stages are three, so that they find
    // room on every GPU.
    let stage = 16 * THREADS as usize * (loads + sixteens) + scale_bytes;
    let stages = if sixteens == 4 && loads == 2 { 3 } else { 4 };
    let (workspace, tickets) = meeting(slices, shape, wide * deep)?;
    Ok(Plan {
        launch: Launch {
            module: HALF,
            kernel: format!("{name}_{kind}_{}", 16 * sixteens),
            blocks: [wide as u32, deep as u32, slices as u32],
            threads: THREADS,
            shared: (stage * stages).max(EXCHANGE) as u32,
        },
        workspace,
        tickets,
        group: Some(group as u32),
    })
}

/// Rows, columns and tokens of a block of threads where two of four weights are there.
const SPARSE_TILE: [usize; 3] = [32, 64, 32];
/// Warps that share the tiles of a slice.
const SPARSE_WARPS: usize = 8;

/// True if a matrix consists of whole tiles of the kernels for two of four weights.
pub fn is_sparse_shape(rows: usize, columns: usize) -> bool {
    let [tall, wide, _] = SPARSE_TILE;
    rows.is_multiple_of(tall) && columns.is_multiple_of(wide)
}

/// [`slices`] where two of four weights are there. Every warp has a tile of each.
pub fn sparse_slices(rows: usize, columns: usize) -> usize {
    let [tall, wide, _] = SPARSE_TILE;
    slices_of(rows.div_ceil(tall), columns.div_ceil(wide), SPARSE_WARPS)
}

/// The plan of a product with weights of which two of four along k are there, as [`crate::pack::sparse::pack`] lays
/// them out. Scales are those of groups of `group` rows, a multiple of 32, in the order of columns; `rows` for one of
/// each column.
///
/// # Errors
/// A shape that is empty, larger than a grid or not whole tiles of 32 rows and 64 columns; groups that are not whole
/// tiles.
pub fn sparse_product(group: usize, shape @ (rows, columns, tokens): (usize, usize, usize)) -> Result<Plan, PlanError> {
    let [tall, wide, most] = SPARSE_TILE;
    let deep = token_blocks(shape, most)?;
    if !is_sparse_shape(rows, columns) {
        return Err(too_large(shape));
    }
    if group == 0 || !group.is_multiple_of(tall) {
        return Err(PlanError::Group { rows: group });
    }
    let slices = sparse_slices(rows, columns);
    let eights = match tokens {
        ..=8 => 8,
        9..=16 => 16,
        _ => 32,
    };
    let (workspace, tickets) = meeting(slices, shape, columns / wide * deep)?;
    Ok(Plan {
        launch: Launch {
            module: SPARSE,
            kernel: format!("sparse_{eights}"),
            blocks: [(columns / wide) as u32, deep as u32, slices as u32],
            threads: THREADS,
            shared: 0,
        },
        workspace,
        tickets,
        group: Some((group / tall) as u32),
    })
}

/// Rows of the file and columns (along k) of a tile where weights are numbers.
const NUMBERS_TILE: [usize; 2] = [128, 64];

/// [`slices`] where weights are numbers.
pub fn slices_of_numbers(rows: usize, columns: usize) -> usize {
    let [deep, wide] = [NUMBERS_TILE[1], NUMBERS_TILE[0]];
    slices_of(rows.div_ceil(deep), columns.div_ceil(wide), FEWEST_TILES)
}

/// The plan of a product of `rows` (along k) x `columns` numbers, each column of which is a row of the file, with `tokens`
/// rows of activations.
///
/// # Errors
/// A shape that is empty or larger than a grid.
pub fn product_of_numbers(
    numbers: Numbers,
    shape @ (rows, columns, tokens): (usize, usize, usize),
) -> Result<Plan, PlanError> {
    let [wide, depth] = NUMBERS_TILE;
    let (most, stages) = match tokens {
        ..=8 => (8, 4),
        9..=32 => (32, 4),
        _ => (128, 3),
    };
    let deep = token_blocks(shape, most)?;
    let slices = slices_of_numbers(rows, columns);
    let wide_blocks = columns.div_ceil(wide);
    let (workspace, tickets) = meeting(slices, shape, wide_blocks * deep)?;
    let name = match numbers {
        Numbers::Half => "f16",
        Numbers::Brain => "bf16",
    };
    Ok(Plan {
        launch: Launch {
            module: TENSOR,
            kernel: format!("tensor_{name}_{most}"),
            blocks: [wide_blocks as u32, deep as u32, slices as u32],
            threads: THREADS,
            shared: (2 * depth * (wide + most) * stages) as u32,
        },
        workspace,
        tickets,
        group: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_cover_the_rows_and_keep_a_gpu_busy() {
        for rows in (1..40_000).step_by(97) {
            for columns in [1, 128, 129, 512, 4096, 16_896, 57_344] {
                let (slices, tiles) = (slices(rows, columns), rows.div_ceil(TILE));
                assert!(slices >= 1 && slices <= tiles.max(1) && slices <= MOST_SLICES);
                let wide = columns.div_ceil(TILE);
                let busy = wide * slices >= ENOUGH_BLOCKS;
                let cut = slices == MOST_SLICES || (slices + 1) * FEWEST_TILES > tiles;
                assert!(busy || cut, "{rows} x {columns}: {slices}");
                assert!(slices == 1 || wide * (slices - 1) < ENOUGH_BLOCKS, "{slices}");
            }
        }
        assert_eq!(slices(4096, 4096), 5);
    }

    #[test]
    fn tokens_choose_the_kernel_and_nothing_else() {
        let plan = |tokens| product(Weights::FourBits, Scales::Groups(128), (4096, 4096, tokens)).expect("a plan");
        for tokens in [1, 16, 17, 32, 33, 64, 65, 1000] {
            let Plan { launch, tickets, .. } = plan(tokens);
            assert_eq!(launch.blocks[2], 5);
            assert_eq!(launch.blocks[1] as usize, tokens.div_ceil(64));
            assert_eq!(tickets, 32 * tokens.div_ceil(64));
            let most: usize = launch.kernel["marlin_group_".len()..].parse().expect("a number");
            assert!(tokens > 64 || most >= tokens && most < (2 * tokens).max(17));
            assert!(launch.shared <= 99 << 10, "{launch:?}");
        }
    }

    #[test]
    fn what_no_kernel_takes_is_refused() {
        let refused = |scales, shape| product(Weights::TwoBits, scales, shape).expect_err("a refusal").to_string();
        for rows in [0, 16, 96, 130, usize::MAX & !127] {
            assert_eq!(
                refused(Scales::Groups(rows), (128, 128, 1)),
                format!("groups of {rows} rows: kernels take 32, 64 and multiples of 128")
            );
        }
        assert!(refused(Scales::Columns, (128, 0, 1)).contains("without"));
        for shape in [(usize::MAX, 1, 1), (1, usize::MAX, 1), (1, 1, usize::MAX), (1, 1, 65536 * 64)] {
            assert!(refused(Scales::Columns, shape).ends_with("more than one product takes"));
        }
    }
}
