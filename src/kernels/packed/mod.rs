//! Products with packed weights: which layouts a type has on a processor. See [`Layout`] for what one is.

use trine_formats::types::TypeId;

use crate::Isa;
use crate::arch::FOLDERS;

pub use crate::shared::packed::{Arena, Arranged, Encoding, Layout, Method, Packing, multiply_groups};

#[cfg(test)]
mod half_tests;
#[cfg(test)]
mod tests;

/// The packed layouts of a weight type that have kernels for an instruction set, the best first: all those of the
/// highest instruction set that has any.
pub fn layouts(ty: TypeId, isa: Isa) -> Vec<Packing> {
    best(all(), ty, isa)
}

/// The layouts of a weight type for an instruction set whose products are looked up: all those of the highest
/// instruction set that has any. None is among [`layouts`]: results are the same, and speed decides which are used.
pub fn lookups(ty: TypeId, isa: Isa) -> Vec<Packing> {
    best(all_lookups(), ty, isa)
}

/// All layouts whose products are looked up.
fn all_lookups() -> impl Iterator<Item = &'static Layout> {
    FOLDERS.iter().flat_map(|folder| folder.lookups).copied().flatten()
}

/// All packed layouts.
fn all() -> impl Iterator<Item = &'static Layout> {
    FOLDERS.iter().flat_map(|folder| folder.layouts).copied().flatten()
}

/// The rows of a table for a type and the highest instruction set that has any.
fn best(table: impl Iterator<Item = &'static Layout>, ty: TypeId, isa: Isa) -> Vec<Packing> {
    let fitting: Vec<_> = table.filter(|layout| layout.types.contains(&ty) && layout.needs.met_by(isa)).collect();
    let highest = |layout: &&&Layout| !fitting.iter().any(|other| other.needs.above(layout.needs));
    fitting.iter().filter(highest).map(|layout| Packing::new(layout, isa)).collect()
}
