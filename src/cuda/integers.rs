//! Types that are integers, as their kernels take them: which kernel, and what it is told.

use trine_formats::types::integers::{Coding, IntegerForm, Sums, WIDEST};
use trine_formats::types::{TypeId, TypeInfo};

/// Columns of a unit of work.
pub(crate) const UNIT: usize = WIDEST;
/// Columns of a slice.
pub(crate) const SLICE: usize = 32;

/// The kernels that have a form for many tokens too.
const MANY: [&str; 16] = [
    "blocks_4",
    "blocks_5",
    "chains_3",
    "chains_4",
    "chains_5",
    "chains_6",
    "groups_4",
    "minima_2",
    "nested_1",
    "nested_2",
    "nested_2_wide",
    "shifted_4",
    "shifted_5",
    "sixteens_3",
    "whole_3",
    "whole_4",
];

/// How the floats of a type's blocks are kept: the number is that of the kernels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Floats {
    /// Half precision.
    Half = 0,
    /// The upper half of single precision.
    Brain = 1,
    /// Single precision.
    Single = 2,
}

/// A type as the kernels take it.
#[derive(Clone, Copy, Debug)]
pub struct IntegerLayout {
    pub(crate) info: &'static TypeInfo,
    pub(crate) form: &'static IntegerForm,
    /// The name of its kernels, behind `few_` and `many_`.
    pub name: &'static str,
    /// True if there is a kernel for many tokens.
    pub has_many: bool,
    /// Products of 256 columns.
    pub products: usize,
    /// Bits of a code.
    pub(crate) bits: usize,
    /// The form of its floats.
    pub floats: Floats,
}

/// Bits of a type's codes, as the planes have them.
const fn bits(coding: Coding) -> usize {
    let count = match coding {
        Coding::Even { count, .. } => count as usize,
        Coding::Table(levels) => levels.len(),
        Coding::Bytes => return 8,
    };
    match (coding, count) {
        (_, ..=2) => 1,
        (Coding::Even { .. }, ..=4) => 2,
        (_, ..=8) => 3,
        (_, ..=16) => 4,
        (_, ..=32) => 5,
        _ => 6,
    }
}

impl IntegerLayout {
    /// The layout of a type; `None` where no kernel takes it.
    pub fn of(ty: TypeId) -> Option<IntegerLayout> {
        let (info, form) = (ty.info()?, ty.integers()?);
        let bits = bits(form.coding);
        let name = match (form.sums, form.group, bits) {
            (Sums::Blocks, 16, 4) => "halves_4",
            (Sums::Blocks, _, 2) => "blocks_2",
            (Sums::Blocks, _, 4) => "blocks_4",
            (Sums::Blocks, _, 5) => "blocks_5",
            (Sums::Blocks, _, 6) => "blocks_6",
            (Sums::Blocks, _, 8) => "blocks_8",
            (Sums::Shifted, _, 4) => "shifted_4",
            (Sums::Shifted, _, 5) => "shifted_5",
            (Sums::Nested, _, 1) if info.block == 4 * SLICE => "nested_1",
            (Sums::Nested, _, 2) if info.block == 2 * SLICE => "nested_2",
            (Sums::Nested, _, 2) if info.block == 4 * SLICE => "nested_2_wide",
            (Sums::Whole { .. }, 16, 3) => "sixteens_3",
            (Sums::Whole { .. }, 16, 4) => "sixteens_4",
            (Sums::Whole { .. }, 16, 5) => "sixteens_5",
            (Sums::Whole { .. }, 16, 8) => "sixteens_8",
            (Sums::Whole { .. }, _, 3) => "whole_3",
            (Sums::Whole { .. }, _, 4) => "whole_4",
            (Sums::Whole { .. }, _, 5) => "whole_5",
            (Sums::Whole { .. }, _, 8) => "whole_8",
            (Sums::Groups, _, 4) => "groups_4",
            (Sums::Minima, _, 2) => "minima_2",
            (Sums::Chains, _, 3) => "chains_3",
            (Sums::Chains, _, 6) => "chains_6",
            (Sums::ChainsAndMinima, _, 4) => "chains_4",
            (Sums::ChainsAndMinima, _, 5) => "chains_5",
            _ => return None,
        };
        let products = match form.sums {
            Sums::Blocks => UNIT / form.group.min(SLICE),
            Sums::Nested => UNIT / info.block,
            Sums::Shifted | Sums::Groups | Sums::Chains => UNIT / SLICE,
            Sums::Whole { .. } | Sums::Minima => 1,
            Sums::ChainsAndMinima => UNIT / SLICE + 1,
        };
        let floats = match ty {
            TypeId::MXFP4 => Floats::Brain,
            TypeId::FV5B => Floats::Single,
            _ if info.head > 2 => Floats::Single,
            _ => Floats::Half,
        };
        Some(IntegerLayout { info, form, name, has_many: MANY.contains(&name), products, bits, floats })
    }

    /// True if columns stand in the order of chains.
    pub fn has_chains(&self) -> bool {
        matches!(self.form.sums, Sums::Chains | Sums::ChainsAndMinima)
    }

    /// The levels of codes, four to a dword, the lowest code first; zeros where codes are no places of a table.
    pub fn table(&self) -> [u32; 4] {
        let mut table = [0; 16];
        if let Coding::Table(levels) = self.form.coding {
            table.iter_mut().zip(levels).for_each(|(to, level)| *to = *level as u8);
        }
        std::array::from_fn(|i| u32::from_le_bytes(std::array::from_fn(|j| table[4 * i + j])))
    }

    /// The factors of a block's sum and of a row's.
    pub fn factors(&self) -> [f32; 2] {
        match self.form.sums {
            Sums::Whole { unit, last } => [unit, last],
            _ => [1.0, 1.0],
        }
    }
}
