//! Kernels of the packed layouts, which are those of other processors byte for byte wherever ARM has a use for them.

use trine_formats::types::TypeId;

use crate::packed::Layout;
use crate::{Isa, Level};

mod t2;

/// The layouts of a type that have kernels for an instruction set that the processor has, the best first.
pub(crate) fn layouts(ty: TypeId, isa: Isa) -> &'static [&'static Layout] {
    macro_rules! list {
        ($layout:path) => {{
            static LIST: &[&Layout] = &[&$layout];
            LIST
        }};
    }
    match (isa.level(), ty) {
        (Level::Neon, TypeId::TQ1_0) => list![t2::neon::TQ1_0],
        (Level::Neon, TypeId::TQ2_0) => list![t2::neon::TQ2_0],
        (Level::Neon, TypeId::I2_S) => list![t2::neon::I2_S],
        (Level::Neon, TypeId::TL1 | TypeId::TL2) => list![t2::neon::TL],
        (Level::Dotprod | Level::I8mm, TypeId::TQ1_0) => list![t2::dotprod::TQ1_0],
        (Level::Dotprod | Level::I8mm, TypeId::TQ2_0) => list![t2::dotprod::TQ2_0],
        (Level::Dotprod | Level::I8mm, TypeId::I2_S) => list![t2::dotprod::I2_S],
        (Level::Dotprod | Level::I8mm, TypeId::TL1 | TypeId::TL2) => list![t2::dotprod::TL],
        _ => &[],
    }
}
