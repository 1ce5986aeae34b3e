//! Products of sixteen tokens at once: lanes are tokens, so that what is made of a weight serves all of them.
//!
//! How it is made differs with the path: in single precision additions have an order (`chains`), with 8 bits they
//! have none (`groups`).

use std::cell::RefCell;

use trine_formats::widely::{Scope, Shape};

use super::{CodeLayout, Path};
#[cfg(target_arch = "aarch64")]
use crate::arch::aarch64::widely as arch;
use crate::arch::widely::{chains, groups};
#[cfg(target_arch = "x86_64")]
use crate::arch::x86_64::widely as arch;
use crate::sizes::size;
use crate::{AlignedBytes, Floats, Isa};

pub use crate::shared::widely::batch::{Outputs, ROWS, TOKENS, WeightRows};

/// Up to sixteen rows of activations, arranged for the products of their path.
pub enum Acts<'a> {
    /// For [`Path::Exact`], as `chains::arrange` has them.
    Exact(Floats),
    /// For [`Path::Int8`], as `groups::arrange` has them: integers, and the scales of their blocks.
    Int8(AlignedBytes, Floats),
    /// The same as [`Path::arrange`] has made them, for tiles.
    Rows(&'a [u8]),
}

/// Working memory of a thread.
#[derive(Default)]
struct Memory {
    chains: chains::Memory,
    groups: groups::Memory,
    #[cfg(target_arch = "x86_64")]
    tiles: Box<arch::TilesMemory>,
}

thread_local! {
    static MEMORY: RefCell<Memory> = RefCell::default();
}

/// True if such products exist for the instruction set, the form and the shape. In single precision tiles are too
/// narrow: a lane has four columns of each.
pub fn serves(isa: Isa, form: CodeLayout, shape: &Shape) -> bool {
    let wide = form.path() == Path::Int8 || shape.scope != Scope::Tile64;
    wide && (isa.has(crate::Level::Avx2) || isa.has(crate::Level::Neon))
}

/// Number of tokens from which on a batch of sixteen is faster than one token after the other.
pub fn worthwhile(isa: Isa, path: Path) -> usize {
    match path {
        Path::Exact => 9,
        Path::Int8 if on_tiles(isa) => 3,
        Path::Int8 => 6,
    }
}

/// True if products with 8-bit activations are those of tiles.
fn on_tiles(isa: Isa) -> bool {
    isa.has(crate::Level::Amx)
}

impl<'a> Acts<'a> {
    /// Arranges up to sixteen rows of activations that [`Path::arrange`] has made; tokens that are missing are zeros.
    ///
    /// # Panics
    /// When lengths do not fit.
    pub fn arrange(isa: Isa, path: Path, shape: &Shape, acts: &'a [u8]) -> Acts<'a> {
        let row = path.act_bytes(shape);
        let tokens = acts.len() / row;
        assert!(acts.len() == tokens * row && tokens <= TOKENS, "tokens");
        match path {
            Path::Exact => {
                let mut out = Floats::scratch(chains::act_floats(shape));
                chains::arrange(shape, acts, &mut out);
                Acts::Exact(out)
            }
            Path::Int8 if on_tiles(isa) => Acts::Rows(acts),
            Path::Int8 => {
                let blocks = groups::blocks(shape);
                let mut ints = AlignedBytes::scratch(blocks * groups::INTS);
                let mut scales = Floats::scratch(blocks * groups::SCALES);
                groups::arrange(shape, acts, &mut ints, &mut scales);
                Acts::Int8(ints, scales)
            }
        }
    }
}

/// The products of up to [`ROWS`] rows and sixteen tokens.
///
/// # Panics
/// When lengths do not fit, the activations are of another kind, or such products do not exist ([`serves`]).
pub fn multiply(isa: Isa, rows: &WeightRows<'_>, acts: &Acts<'_>, out: &mut [Outputs]) {
    let (shape, unit) = (rows.shape, rows.form.rows());
    assert!(serves(isa, rows.form, shape), "batches of {isa}");
    assert!(out.len() <= ROWS && rows.first + out.len() <= shape.rows, "rows");
    assert!(rows.first.is_multiple_of(unit), "rows of whole units");
    let units = out.len().div_ceil(unit);
    let weights = size([units, rows.form.unit_bytes(shape)]);
    assert_eq!(rows.weights.len(), weights, "weights");
    let scales = size([shape.groups(), shape.group_scales()]);
    assert_eq!(rows.scales.len(), scales, "scales");
    match (rows.form.path(), acts) {
        (Path::Exact, Acts::Exact(acts)) => {
            assert_eq!(acts.len(), chains::act_floats(shape), "activations");
            #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
            MEMORY.with_borrow_mut(|memory| arch::chains(isa, rows, acts, &mut memory.chains, out));
        }
        (Path::Int8, Acts::Int8(ints, scales)) => {
            let blocks = groups::blocks(shape);
            assert_eq!(ints.len(), blocks * groups::INTS, "activations");
            assert_eq!(scales.len(), blocks * groups::SCALES, "their scales");
            #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
            MEMORY.with_borrow_mut(|memory| arch::groups(isa, rows, (ints, scales), &mut memory.groups, out));
        }
        #[cfg(target_arch = "x86_64")]
        (Path::Int8, Acts::Rows(acts)) => {
            MEMORY.with_borrow_mut(|memory| arch::tiles(isa, rows, acts, &mut memory.tiles, out));
        }
        _ => panic!("activations of another kind"),
    }
}
