//! Plans of products with rows of half floats, brain floats and floats (`kernels/floats.cu`): a pure function of the
//! shape, made for speed alone. Sums are free of their order, or were shown to be, so the results are bit-identical
//! however the columns are shared.

use trine_formats::types::TypeId;

use crate::plan::{Launch, PlanError};
use crate::ptx::FLOATS;

/// Rows of a block of threads, its threads, and the columns of a warp at a time.
const ROWS: usize = 32;
const THREADS: u32 = 256;
const UNIT: usize = 256;
/// Tokens of a block of the kernels for several.
const TOKENS: usize = 8;
/// Blocks of threads that keep the largest GPUs busy: four for each of 132 multiprocessors.
const ENOUGH_BLOCKS: usize = 528;
/// The fewest units of columns of a block, where several share them.
const FEWEST_UNITS: usize = 2;
/// The most rows and columns, and the most blocks along y of a grid.
const MOST: usize = i32::MAX as usize - UNIT;
const MOST_BLOCKS: usize = 65535;

/// The launch of a product.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// The product.
    pub launch: Launch,
    /// Bytes of the workspace, in which blocks that share columns leave their sums.
    pub workspace: usize,
    /// Tickets of 32 bits, all zero before the first launch and after each.
    pub tickets: usize,
}

/// The start of the names of a type's kernels.
const fn name(ty: TypeId) -> Option<&'static str> {
    match ty {
        TypeId::F16 => Some("f16"),
        TypeId::BF16 => Some("bf16"),
        TypeId::F32 => Some("f32"),
        _ => None,
    }
}

/// True if these kernels multiply by this type.
pub const fn multiplies(ty: TypeId) -> bool {
    name(ty).is_some()
}

/// Blocks of threads that share the columns of each place of the grid, of which there are `places`.
fn shares(places: usize, columns: usize) -> usize {
    (ENOUGH_BLOCKS / places.max(1)).min(columns.div_ceil(UNIT) / FEWEST_UNITS).max(1)
}

/// The plan of a product of `rows` x `columns` weights of a type with `tokens` rows of activations.
///
/// # Errors
/// Another type, a shape that is empty or larger than a grid.
pub fn product(ty: TypeId, shape: (usize, usize, usize)) -> Result<Plan, PlanError> {
    let wide = shape.0.div_ceil(ROWS);
    let tokens = if shape.2 == 1 { 1 } else { TOKENS };
    product_as(ty, shape, shares(wide.saturating_mul(shape.2.div_ceil(tokens)), shape.1))
}

/// A plan whose columns are shared by so many blocks.
///
/// # Errors
/// Those of [`product`].
pub fn product_as(
    ty: TypeId,
    (rows, columns, tokens): (usize, usize, usize),
    shares: usize,
) -> Result<Plan, PlanError> {
    let of_block = if tokens == 1 { 1 } else { TOKENS };
    let name = name(ty).ok_or_else(|| PlanError::Type { name: ty.to_string() })?;
    let launch =
        launch(format!("{name}_product_{of_block}"), (rows, columns, tokens), tokens.div_ceil(of_block), shares)?;
    let places = launch.blocks[0] as usize * launch.blocks[1] as usize;
    // A block's sums, and of its tokens the two numbers that bound them, in double precision.
    let of_share = 8 * (ROWS + 2) * of_block;
    let (workspace, tickets) = if shares > 1 { (places * shares * of_share, places) } else { (0, 0) };
    Ok(Plan { launch, workspace, tickets })
}

/// The most bytes of workspace and the most tickets of products with 1 to `tokens` rows of activations.
///
/// # Errors
/// Those of [`product`].
pub fn most(ty: TypeId, (rows, columns, tokens): (usize, usize, usize)) -> Result<(usize, usize), PlanError> {
    product(ty, (rows, columns, tokens))?;
    // Where there are more blocks than these along y, none share columns.
    let several = (1..=tokens.div_ceil(TOKENS).min(ENOUGH_BLOCKS)).map(|eights| (TOKENS * eights).min(tokens));
    std::iter::once(1).chain(several).try_fold((0, 0), |(workspace, tickets): (usize, usize), tokens| {
        let plan = product(ty, (rows, columns, tokens))?;
        Ok((workspace.max(plan.workspace), tickets.max(plan.tickets)))
    })
}

/// The launch of a product of the chosen experts, each of `rows` x `columns` weights, for `places` places.
///
/// # Errors
/// Those of [`product`].
pub fn of_chosen(ty: TypeId, (rows, columns): (usize, usize), places: usize) -> Result<Launch, PlanError> {
    let name = name(ty).ok_or_else(|| PlanError::Type { name: format!("experts of {ty}") })?;
    launch(format!("{name}_chosen"), (rows, columns, places), places, 1)
}

fn launch(
    kernel: String,
    (rows, columns, tokens): (usize, usize, usize),
    along: usize,
    shares: usize,
) -> Result<Launch, PlanError> {
    if rows == 0 || columns == 0 || tokens == 0 {
        return Err(PlanError::Empty);
    }
    if rows > MOST || columns > MOST || along > MOST_BLOCKS || shares > MOST_BLOCKS {
        return Err(PlanError::TooLarge { rows, columns, tokens });
    }
    let blocks = [rows.div_ceil(ROWS) as u32, along as u32, shares as u32];
    Ok(Launch { module: FLOATS, kernel, blocks, threads: THREADS, shared: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_shared_where_rows_are_few() {
        let blocks = |shape| product(TypeId::BF16, shape).expect("a plan").launch.blocks;
        assert_eq!(blocks((4096, 4096, 1)), [128, 1, 4]);
        assert_eq!(blocks((1024, 4096, 1)), [32, 1, 8]);
        assert_eq!(blocks((32_000, 4096, 1)), [1000, 1, 1]);
        assert_eq!(blocks((4096, 4096, 17)), [128, 3, 1]);
        assert_eq!(blocks((8, 256, 2)), [1, 1, 1]);
    }

    #[test]
    fn memory_suffices_for_every_number_of_tokens() {
        for shape @ (rows, columns, tokens) in [(64, 4096, 300), (4096, 4096, 20), (8, 512, 5000), (32, 1 << 20, 3)] {
            let (workspace, tickets) = most(TypeId::F16, shape).expect("a plan");
            for tokens in 1..=tokens {
                let plan = product(TypeId::F16, (rows, columns, tokens)).expect("a plan");
                assert!(plan.workspace <= workspace && plan.tickets <= tickets, "{rows} x {columns} x {tokens}");
                let [x, y, z] = plan.launch.blocks;
                assert!(z == 1 || x * y * z <= ENOUGH_BLOCKS as u32);
            }
        }
    }

    #[test]
    fn what_no_kernel_takes_is_refused() {
        assert_eq!(product(TypeId::F16, (1, 0, 1)), Err(PlanError::Empty));
        assert!(product(TypeId::Q8_0, (1, 32, 1)).is_err());
        assert!(of_chosen(TypeId::Q8_0, (1, 32), 1).is_err());
        for shape in [(usize::MAX, 1, 1), (1, usize::MAX, 1), (1, 1, usize::MAX)] {
            assert!(matches!(product(TypeId::F32, shape), Err(PlanError::TooLarge { .. })));
        }
    }
}
