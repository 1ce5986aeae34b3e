//! Which kernel runs a matrix product, and on which grid: a pure function of the shape.
//!
//! Products are added one by one in the order of the columns (sums of integers in any), so the results are
//! bit-identical however the columns are shared, and plans are made for speed alone.

use thiserror::Error;
use trine_formats::types::TypeId;

use crate::fragment::{COLUMNS, ROWS};
use crate::integers::IntegerLayout;
use crate::ptx::{CHOSEN, DECODE, INTEGERS, INTEGERS_MANY, INTEGERS_ONE, PREFILL, TERNARY, Text};

/// Warps that keep the largest GPUs busy: sixteen for each of 132 multiprocessors.
const ENOUGH_WARPS: usize = 2112;
/// The most warps of a block of threads.
const MOST_WARPS: usize = 8;
/// The most blocks that share the columns.
const MOST_PARTS: usize = 64;
/// The most blocks along y and z of a grid.
const MOST_BLOCKS: usize = 65535;
/// The most tokens of the kernels for few.
const FEW: usize = 16;
/// Rows and tokens of a block of threads of the kernels for many tokens, its threads, and its shared memory.
const MANY: (usize, usize, u32, u32) = (64, 64, 256, 49152);
/// The same of the kernels of types that are integers.
const MANY_INTEGERS: (usize, usize, u32, u32) = (64, 32, 256, 24576);
/// Threads of a block that adds what parts have left, or that has one for each chain.
const THREADS: u32 = 256;
/// Bytes of an output.
const OUTPUT: usize = 4;

/// How the columns of a product for few tokens are shared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Split {
    /// Warps of a block of threads, 1 to 8.
    pub warps: usize,
    /// Blocks of threads along the columns.
    pub parts: usize,
}

/// A kernel and its grid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Launch {
    /// The file that has the kernel.
    pub module: Text,
    /// The kernel's name.
    pub kernel: String,
    /// Blocks of threads along x, y and z.
    pub blocks: [u32; 3],
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of shared memory beside the kernel's own.
    pub shared: u32,
}

/// The launches of a product.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// The product.
    pub product: Launch,
    /// Adds what the parts have left in the workspace, where there are several.
    pub add: Option<Launch>,
    /// Bytes of the workspace.
    pub workspace: usize,
}

/// Why a product cannot be planned.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum PlanError {
    /// No kernel multiplies such weights.
    #[error("{name}: no kernel for the GPU multiplies such weights")]
    Type {
        /// The tensor type.
        name: String,
    },
    /// More rows, columns or tokens than a grid has.
    #[error("{rows} x {columns} weights times {tokens} tokens are more than one product takes")]
    TooLarge {
        /// Rows of the matrix.
        rows: usize,
        /// Columns of the matrix.
        columns: usize,
        /// Tokens.
        tokens: usize,
    },
    /// Groups of rows that no kernel has.
    #[error("groups of {rows} rows: kernels take 32, 64 and multiples of 128")]
    Group {
        /// Rows of a group.
        rows: usize,
    },
    /// Tables of any-precision weights that no kernel takes.
    #[error(
        "any-precision weights of {width} bits with a table for {columns} columns: kernels take whole quads, and tables that fit into 48 KiB"
    )]
    Tables {
        /// Columns of a group.
        columns: usize,
        /// Bits of a code.
        width: u8,
    },
    /// No rows, columns or tokens.
    #[error("a product without rows, columns or tokens")]
    Empty,
}

/// The shape of a product.
#[derive(Clone, Copy, Debug)]
struct Shape {
    rows: usize,
    columns: usize,
    tokens: usize,
}

impl Shape {
    fn too_large(&self) -> PlanError {
        PlanError::TooLarge { rows: self.rows, columns: self.columns, tokens: self.tokens }
    }

    fn tiles(&self) -> usize {
        self.rows.div_ceil(ROWS)
    }

    fn eights(&self) -> usize {
        self.tokens.div_ceil(COLUMNS)
    }

    /// A number of blocks along an axis.
    fn axis(&self, count: usize, most: usize) -> Result<u32, PlanError> {
        let count = Some(count).filter(|&c| c <= most);
        count.and_then(|c| u32::try_from(c).ok()).ok_or_else(|| self.too_large())
    }

    /// The launch that adds `values` values for each output, and the workspace that has them.
    fn adding(&self, module: Text, kernel: &str, values: usize) -> Result<(Launch, usize), PlanError> {
        let outputs = self.tiles() * self.eights() * ROWS * COLUMNS;
        let workspace = outputs.checked_mul(values).and_then(|n| n.checked_mul(OUTPUT));
        let launch = Launch {
            module,
            kernel: kernel.to_owned(),
            blocks: [self.axis(outputs.div_ceil(THREADS as usize), i32::MAX as usize)?, 1, 1],
            threads: THREADS,
            shared: 0,
        };
        Ok((launch, workspace.ok_or_else(|| self.too_large())?))
    }
}

/// Name of a type's kernels, the columns of a block, and those that a warp takes at a time.
fn kernels(ty: TypeId) -> Option<(&'static str, usize, usize)> {
    match ty {
        TypeId::TQ1_0 | TypeId::TQ2_0 | TypeId::STQ1_0 | TypeId::STQ1_0_43 | TypeId::STQ1_0_CONTIGUOUS => {
            Some(("tq2_0", 256, 256))
        }
        TypeId::Q8_0 => Some(("q8_0", 32, 128)),
        TypeId::Q4_0 => Some(("q4_0", 32, 128)),
        TypeId::I2_S | TypeId::TL1 | TypeId::TL2 => Some(("ternary", 256, 256)),
        _ => None,
    }
}

/// The layout of a type whose kernels are those of all types that are integers.
pub fn integers(ty: TypeId) -> Option<IntegerLayout> {
    IntegerLayout::of(ty).filter(|_| kernels(ty).is_none())
}

/// True if there are kernels that multiply by this type.
pub fn multiplies(ty: TypeId) -> bool {
    kernels(ty).is_some() || integers(ty).is_some()
}

/// How columns of `units` parts are shared for `tiles` tiles of rows: as many warps as keep a GPU busy, all of them
/// with about as much to do, and several blocks only where eight warps for each tile are not enough.
pub fn split(tiles: usize, units: usize) -> Split {
    let wanted = ENOUGH_WARPS.div_ceil(tiles.max(1));
    let warps = wanted.clamp(1, MOST_WARPS).min(units.max(1));
    let rounds = units.div_ceil(warps).max(1);
    let warps = units.div_ceil(rounds).max(1);
    let parts = if tiles * MOST_WARPS >= ENOUGH_WARPS / 2 {
        1
    } else {
        (ENOUGH_WARPS / 2).div_ceil(tiles.max(1) * warps).min(units / warps).clamp(1, MOST_PARTS)
    };
    Split { warps, parts }
}

/// The plan of a product of `rows` x `columns` weights of a type with `tokens` activation rows.
///
/// # Errors
/// A type without kernels, a shape that is empty or larger than a grid.
pub fn product(ty: TypeId, rows: usize, columns: usize, tokens: usize) -> Result<Plan, PlanError> {
    let unit = kernels(ty).map_or(256, |(_, _, unit)| unit);
    product_as(ty, (rows, columns, tokens), split(rows.div_ceil(ROWS), columns.div_ceil(unit)), tokens <= FEW)
}

/// A plan with columns shared as the caller wants. `few` chooses the kernels for few tokens, which take any number of
/// them. Ternary matrices with one scale have but one kernel; the columns of types that are integers are shared by the warps
/// of a block alone.
///
/// # Errors
/// Those of [`product`].
pub fn product_as(
    ty: TypeId,
    (rows, columns, tokens): (usize, usize, usize),
    split: Split,
    few: bool,
) -> Result<Plan, PlanError> {
    let shape = Shape { rows, columns, tokens };
    if rows == 0 || columns == 0 || tokens == 0 {
        return Err(PlanError::Empty);
    }
    // Kernels count in 32 bits with a sign, rounded up to whole blocks.
    const MOST: usize = i32::MAX as usize - 256;
    if rows > MOST || columns > MOST || tokens > MOST {
        return Err(shape.too_large());
    }
    if let Some(layout) = integers(ty) {
        let product = match few || !layout.has_many {
            true if tokens == 1 => of_one(layout.name, shape, split.warps)?,
            true => of_integers(&layout, shape, shape.axis(shape.eights(), MOST_BLOCKS)?, split.warps)?,
            false => many_integers(&layout, shape)?,
        };
        return Ok(Plan { product, add: None, workspace: 0 });
    }
    let (name, block, unit) = kernels(ty).ok_or_else(|| PlanError::Type { name: ty.to_string() })?;
    let ternary = name == "ternary";
    if !few && !ternary {
        let (high, wide, threads, shared) = MANY;
        let product = Launch {
            module: PREFILL,
            kernel: format!("{name}_prefill"),
            blocks: [
                shape.axis(rows.div_ceil(high), i32::MAX as usize)?,
                shape.axis(tokens.div_ceil(wide), MOST_BLOCKS)?,
                1,
            ],
            threads,
            shared,
        };
        return Ok(Plan { product, add: None, workspace: 0 });
    }
    let units = columns.div_ceil(unit);
    let parts = split.parts.clamp(1, MOST_PARTS.min(units));
    let (module, kernel, eights) = match (ternary, tokens) {
        (true, _) => (TERNARY, "ternary_product".to_owned(), 1),
        (false, ..=COLUMNS) => (DECODE, format!("{name}_decode_8"), 1),
        (false, _) => (DECODE, format!("{name}_decode_16"), 2),
    };
    let product = Launch {
        module,
        kernel,
        blocks: [
            shape.axis(shape.tiles(), i32::MAX as usize)?,
            shape.axis(shape.eights().div_ceil(eights), MOST_BLOCKS)?,
            shape.axis(parts, MOST_BLOCKS)?,
        ],
        threads: 32 * split.warps.clamp(1, MOST_WARPS) as u32,
        shared: 0,
    };
    let mut plan = Plan { product, add: None, workspace: 0 };
    if parts > 1 {
        let (add, workspace) = if ternary {
            shape.adding(TERNARY, "add_sums", parts)?
        } else {
            shape.adding(DECODE, "add_products", columns / block)?
        };
        (plan.add, plan.workspace) = (Some(add), workspace);
    }
    Ok(plan)
}

/// The launch of a product of few tokens, or of experts, of a type that is integers: `eights` of tokens, or of places.
fn of_integers(layout: &IntegerLayout, shape: Shape, eights: u32, warps: usize) -> Result<Launch, PlanError> {
    // Of more products than nine four warps fill the shared memory of a block.
    let most = if layout.products > 9 { MOST_WARPS / 2 } else { MOST_WARPS };
    Ok(Launch {
        module: INTEGERS,
        kernel: format!("few_{}", layout.name),
        blocks: [shape.axis(shape.tiles(), i32::MAX as usize)?, eights, 1],
        threads: 32 * warps.clamp(1, most) as u32,
        shared: 0,
    })
}

/// The launch of a product of one token.
fn of_one(name: &str, shape: Shape, warps: usize) -> Result<Launch, PlanError> {
    Ok(Launch {
        module: INTEGERS_ONE,
        kernel: format!("one_{name}"),
        blocks: [shape.axis(shape.tiles(), i32::MAX as usize)?, 1, 1],
        threads: 32 * warps.clamp(1, MOST_WARPS) as u32,
        shared: 0,
    })
}

/// The launch of a product of many tokens of such a type.
fn many_integers(layout: &IntegerLayout, shape: Shape) -> Result<Launch, PlanError> {
    let (high, wide, threads, shared) = MANY_INTEGERS;
    Ok(Launch {
        module: INTEGERS_MANY,
        kernel: format!("many_{}", layout.name),
        blocks: [
            shape.axis(shape.rows.div_ceil(high), i32::MAX as usize)?,
            shape.axis(shape.tokens.div_ceil(wide), MOST_BLOCKS)?,
            1,
        ],
        threads,
        shared,
    })
}

/// Eights of places that the experts of a layer take at most, when each fills up its own: `places` are the tokens'
/// choices.
pub fn eights_of_chosen(experts: usize, places: usize) -> usize {
    places / COLUMNS + experts.min(places)
}

/// True if products of chosen experts of this type take their places in eights, by a list of the places of each expert.
pub fn is_listed(ty: TypeId) -> bool {
    kernels(ty).is_some_and(|(name, ..)| name != "ternary") || integers(ty).is_some()
}

/// The launch of a product of the chosen experts, each of `rows` x `columns` weights, for `along` places, or eights of
/// places where the type [is listed](is_listed).
///
/// # Errors
/// A type without such kernels, a shape that is empty or larger than a grid.
pub fn of_chosen(ty: TypeId, (rows, columns): (usize, usize), along: usize) -> Result<Launch, PlanError> {
    let shape = Shape { rows, columns, tokens: along };
    let of_type = || PlanError::Type { name: format!("experts of {ty}") };
    if rows == 0 || columns == 0 || along == 0 {
        return Err(PlanError::Empty);
    }
    let y = shape.axis(along, MOST_BLOCKS)?;
    if let Some(layout) = integers(ty) {
        let Split { warps, .. } = split(shape.tiles(), columns.div_ceil(256));
        return of_integers(&layout, shape, y, warps);
    }
    let (name, _, unit) = kernels(ty).filter(|_| is_listed(ty)).ok_or_else(of_type)?;
    let Split { warps, .. } = split(shape.tiles(), columns.div_ceil(unit));
    Ok(Launch {
        module: CHOSEN,
        kernel: format!("{name}_chosen"),
        blocks: [shape.axis(shape.tiles(), i32::MAX as usize)?, y, 1],
        threads: 32 * warps as u32,
        shared: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warps_have_about_as_much_to_do_and_are_enough() {
        for tiles in 1..=1000 {
            for units in 1..=200 {
                let Split { warps, parts } = split(tiles, units);
                assert!((1..=MOST_WARPS).contains(&warps) && warps <= units);
                assert!((1..=MOST_PARTS).contains(&parts) && parts <= units);
                // No round of a warp more than the fewest possible, and none that is mostly empty.
                let rounds = units.div_ceil(warps);
                assert!(rounds * warps - units < rounds, "{units} by {warps}");
                // Columns are cut where the rows are few, and then until a GPU is busy or nothing is left to cut.
                let few = tiles * MOST_WARPS < ENOUGH_WARPS / 2;
                let busy = tiles * warps * parts >= ENOUGH_WARPS / 2;
                assert!(few || parts == 1);
                assert!(!few || busy || parts == (units / warps).clamp(1, MOST_PARTS));
            }
        }
        // 2560 columns in TQ2_0: five warps with two blocks each, not eight of which six have one.
        assert_eq!(split(160, 10), Split { warps: 5, parts: 1 });
        assert_eq!(split(4096, 16).warps, 1);
    }

    #[test]
    fn grids_cover_every_output_once() {
        for (rows, columns, tokens) in
            [(1, 256, 1), (272, 14336, 8), (17, 512, 9), (4096, 4096, 33), (65, 256, 65), (2560, 6912, 2048)]
        {
            for ty in [TypeId::TQ2_0, TypeId::TQ1_0, TypeId::Q8_0, TypeId::Q4_0, TypeId::I2_S, TypeId::TL2] {
                let plan = product(ty, rows, columns, tokens).expect("a plan");
                let Launch { kernel, blocks: [x, y, z], threads, .. } = &plan.product;
                let (high, wide) = match kernel {
                    k if k.ends_with("prefill") => (64, 64),
                    k if k.ends_with("_16") => (16, 16),
                    _ => (16, 8),
                };
                let cover = |count: usize, by: usize, blocks: u32| {
                    let blocks = blocks as usize;
                    (blocks - 1) * by < count && count <= blocks * by
                };
                assert!(cover(rows, high, *x) && cover(tokens, wide, *y), "{plan:?}");
                assert!(threads % 32 == 0 && (32..=256).contains(threads));
                assert_eq!(plan.add.is_some(), *z > 1);
                let outputs = rows.div_ceil(16) * tokens.div_ceil(8) * 128;
                let values =
                    if kernel.starts_with("ternary") { *z as usize } else { columns / kernels(ty).expect("kernels").1 };
                assert_eq!(plan.workspace, if *z > 1 { 4 * outputs * values } else { 0 });
                if let Some(add) = plan.add {
                    assert!(cover(outputs, add.threads as usize, add.blocks[0]));
                }
            }
        }
    }

    #[test]
    fn eights_are_enough_for_any_choice() {
        for experts in 1..=20 {
            for places in 1..=60 {
                // As many experts as possible have one place more than whole eights.
                let alone = experts.min(places);
                let needed = alone + (places - alone) / COLUMNS;
                let found = eights_of_chosen(experts, places);
                assert!((needed..=needed + 1 + alone / 8).contains(&found));
            }
        }
        // A token that goes to eight of 128 experts.
        assert_eq!(eights_of_chosen(128, 8), 9);
    }

    #[test]
    fn products_of_chosen_experts_have_a_block_for_every_tile_and_place() {
        let of = |ty, along| of_chosen(ty, (768, 2048), along);
        let launch = of(TypeId::Q8_0, 9).expect("a launch");
        assert_eq!((launch.module, launch.blocks), (CHOSEN, [48, 9, 1]));
        assert_eq!((launch.kernel.as_str(), launch.threads), ("q8_0_chosen", 256));
        let launch = of(TypeId::Q6_K, 8).expect("a launch");
        assert_eq!((launch.module, launch.blocks), (INTEGERS, [48, 8, 1]));
        assert_eq!((launch.kernel.as_str(), launch.threads), ("few_chains_6", 256));
        assert_eq!(
            of(TypeId::I2_S, 8).expect_err("a refusal").to_string(),
            "experts of i2_s: no kernel for the GPU multiplies such weights"
        );
        assert!(of(TypeId::F16, 65536).is_err() && of(TypeId::F16, 0).is_err());
    }

    #[test]
    fn what_no_grid_takes_is_refused() {
        let refused =
            |ty, rows, columns, tokens| product(ty, rows, columns, tokens).expect_err("a refusal").to_string();
        assert_eq!(refused(TypeId::Q2_0C, 1, 512, 1), "q2_0c: no kernel for the GPU multiplies such weights");
        assert_eq!(refused(TypeId::Q8_0, 0, 32, 1), "a product without rows, columns or tokens");
        for (rows, columns, tokens) in
            [(usize::MAX, 256, 1), (1, usize::MAX, 1), (1, 256, usize::MAX), (1, 256, 1 << 24)]
        {
            let text = refused(TypeId::TQ2_0, rows, columns, tokens);
            assert!(text.ends_with("are more than one product takes"), "{text}");
        }
        assert!(refused(TypeId::I2_S, 16, 256, 1 << 20).contains("1048576 tokens"));
    }
}
