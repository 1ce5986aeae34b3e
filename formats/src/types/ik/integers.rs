//! The types of this room as integers.

use super::super::TypeId;
use super::super::integers::{Coding, IntegerForm, Integers, Sums};
use super::super::k_block::BLOCK as WIDEST;
use super::forms::{IQ2, IQ3, IQ4, form, scale_of};

/// The levels of IQ2_KL, whose points are pairs of them.
static OF_PAIRS: [i8; 8] = {
    let mut levels = [0; 8];
    let mut i = 0;
    while i < 8 {
        levels[i] = IQ3[i];
        i += 1;
    }
    levels
};

/// A type as integers. IQ1_S_R1 and IQ1_M_R1 have formulas of their own.
pub fn integers(ty: TypeId) -> Option<&'static IntegerForm> {
    macro_rules! forms {
        ($($name:ident: $coding:expr,)*) => { match ty {
            $(TypeId::$name => Some(const { &of::<{ TypeId::$name.0 }>($coding) }),)*
            _ => None,
        } };
    }
    forms! {
        Q6_0: Coding::Even { lowest: -32, count: 64 },
        Q8_KV: Coding::Bytes,
        Q8_K_R1: Coding::Bytes,
        IQ1_BN: Coding::Even { lowest: -1, count: 3 },
        IQ2_BN: Coding::Even { lowest: -1, count: 4 },
        IQ2_K: Coding::Table(&IQ2),
        IQ2_KS: Coding::Table(&IQ2),
        IQ2_KL: Coding::Table(&OF_PAIRS),
        IQ3_K: Coding::Table(&IQ3),
        IQ3_KS: Coding::Table(&IQ3),
        IQ4_K: Coding::Table(&IQ4),
        IQ4_KS: Coding::Table(&IQ4),
        IQ4_KSS: Coding::Table(&IQ4),
        IQ5_K: Coding::Bytes,
        IQ5_KS: Coding::Bytes,
        IQ6_K: Coding::Bytes,
        IQ1_KT: Coding::Bytes,
        IQ2_KT: Coding::Bytes,
        IQ3_KT: Coding::Bytes,
        IQ4_KT: Coding::Bytes,
    }
}

const fn of<const ID: u32>(coding: Coding) -> IntegerForm {
    let form = form(TypeId(ID));
    let sums = match form.block {
        WIDEST => Sums::Whole { unit: form.unit, last: 1.0 },
        _ => Sums::Blocks,
    };
    IntegerForm::new(form.block / form.groups, coding, sums, read::<ID>)
}

fn read<const ID: u32>(of_row: f32, block: &[u8], to: &mut Integers) {
    let form = const { form(TypeId(ID)) };
    (form.levels)(block, &mut to.levels);
    to.d = [scale_of(form, of_row, block); 4];
    for (g, scale) in to.scales[..form.groups].iter_mut().enumerate() {
        *scale = (form.scale)(block, g) as i8;
    }
}
