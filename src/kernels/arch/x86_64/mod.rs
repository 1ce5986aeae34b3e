//! Kernels for x86-64. Everything that needs an instruction set is private to this module and is
//! handed out only after that set was detected.

use std::cell::RefCell;

use trine_formats::types::TypeId;

use crate::{Isa, Level, MatRows, QuantizeAct, check, row_bytes};

mod act;
pub(crate) mod bitplane;
mod chain;
mod codes;
pub(crate) mod elements;
mod encode;
pub(crate) mod exact;
mod float;
mod grouped;
pub(crate) mod halves;
mod lanes;
mod packed;
mod panel;
mod points;
pub(crate) mod probe;
mod quantize;
mod quantize512;
mod simd;
pub(crate) mod ternary;
pub(crate) mod tiles;
pub(crate) mod widely;

use codes::BlockCodes;
pub(crate) use encode::{compare_rows, decode_rows, encode_rows};
use float::Float;
use grouped::GroupCodes;
use lanes::LaneCodes;
pub(crate) use packed::layouts;
#[cfg(test)]
pub(crate) use packed::software_layouts;

/// From this many tokens on, unpacking a panel pays. TQ2_0 unpacks so fast that it may be done per token longer.
const fn panel_tokens(ty: TypeId) -> usize {
    if ty.0 == TypeId::TQ2_0.0 { 6 } else { 4 }
}

/// Fewer rows than this at the end are not worth a panel.
const PANEL_ROWS: usize = 4;

/// The arguments of one [`MatRows`] call; `n` > 0 and all lengths fit.
struct Call<'a> {
    w: &'a [u8],
    acts: &'a [u8],
    n: usize,
    tokens: usize,
    out: &'a mut [f32],
}

/// Buffers that keep their memory from call to call.
#[derive(Default)]
struct Scratch {
    acts: act::Acts,
    terms: Vec<f32>,
    panel: panel::Panel,
    lane_acts: lanes::LaneActs,
    lane_panel: lanes::LanePanel,
    group_acts: grouped::GroupActs,
    group_panel: grouped::GroupPanel,
    float: float::FloatScratch,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

type Kernel = unsafe fn(Call<'_>, &mut Scratch);

/// Checks the lengths, then splits the call between the kernel for few tokens and that for panels of `lanes` rows.
fn run(ty: TypeId, (by_row, panel): (Kernel, Kernel), lanes: usize, call: Call<'_>) {
    let Some((info, act)) = ty.info().and_then(|info| Some((info, info.act?.info()?))) else {
        unreachable!("only types with an activation type have kernels");
    };
    let Call { w, acts, n, tokens, out } = call;
    let w_row = row_bytes(info, n);
    let rows = check(w, acts, (w_row, row_bytes(act, n)), tokens, out);
    if n == 0 {
        out.fill(0.0);
        return;
    }
    let rest = rows % lanes;
    let in_panels = match rest {
        _ if tokens < panel_tokens(ty) => 0,
        0..PANEL_ROWS => rows - rest,
        _ => rows,
    };
    let (panel_out, row_out) = out.split_at_mut(in_panels * tokens);
    let (panel_w, row_w) = w.split_at(in_panels * w_row);
    SCRATCH.with_borrow_mut(|scratch| {
        // SAFETY: `mat_rows` hands out a kernel only for an `Isa` that includes its instruction set; the lengths were
        // checked.
        unsafe {
            if !panel_w.is_empty() {
                panel(Call { w: panel_w, acts, n, tokens, out: panel_out }, scratch);
            }
            if !row_w.is_empty() {
                by_row(Call { w: row_w, acts, n, tokens, out: row_out }, scratch);
            }
        }
    });
}

fn codes_avx2<C: BlockCodes, const ID: u32>(w: &[u8], acts: &[u8], n: usize, tokens: usize, out: &mut [f32]) {
    let kernels: (Kernel, Kernel) = (chain::rows_avx2::<C>, panel::rows_avx2::<C>);
    run(TypeId(ID), kernels, 8, Call { w, acts, n, tokens, out });
}

fn codes_avx512<C: BlockCodes, const ID: u32>(w: &[u8], acts: &[u8], n: usize, tokens: usize, out: &mut [f32]) {
    let kernels: (Kernel, Kernel) = (chain::rows_avx512::<C>, panel::rows_avx512::<C>);
    run(TypeId(ID), kernels, 16, Call { w, acts, n, tokens, out });
}

fn lanes_avx2<C: LaneCodes, const ID: u32>(w: &[u8], acts: &[u8], n: usize, tokens: usize, out: &mut [f32]) {
    let kernels: (Kernel, Kernel) = (lanes::by_row_avx2::<C>, lanes::panels_avx2::<C>);
    run(TypeId(ID), kernels, 1, Call { w, acts, n, tokens, out });
}

fn lanes_avx512<C: LaneCodes, const ID: u32>(w: &[u8], acts: &[u8], n: usize, tokens: usize, out: &mut [f32]) {
    let kernels: (Kernel, Kernel) = (lanes::by_row_avx512::<C>, lanes::panels_avx512::<C>);
    run(TypeId(ID), kernels, 1, Call { w, acts, n, tokens, out });
}

fn groups_avx2<C: GroupCodes, const ID: u32>(w: &[u8], acts: &[u8], n: usize, tokens: usize, out: &mut [f32]) {
    let kernels: (Kernel, Kernel) = (grouped::by_row_avx2::<C>, grouped::panels_avx2::<C>);
    run(TypeId(ID), kernels, 1, Call { w, acts, n, tokens, out });
}

fn groups_avx512<C: GroupCodes, const ID: u32>(w: &[u8], acts: &[u8], n: usize, tokens: usize, out: &mut [f32]) {
    let kernels: (Kernel, Kernel) = (grouped::by_row_avx512::<C>, grouped::panels_avx512::<C>);
    run(TypeId(ID), kernels, 1, Call { w, acts, n, tokens, out });
}

fn float_avx2<F: Float, const ID: u32>(w: &[u8], acts: &[u8], n: usize, tokens: usize, out: &mut [f32]) {
    let kernels: (Kernel, Kernel) = (float::by_row_avx2::<F>, float::rows_avx2::<F>);
    run(TypeId(ID), kernels, 1, Call { w, acts, n, tokens, out });
}

fn float_avx512<F: Float, const ID: u32>(w: &[u8], acts: &[u8], n: usize, tokens: usize, out: &mut [f32]) {
    let kernels: (Kernel, Kernel) = (float::by_row_avx512::<F>, float::rows_avx512::<F>);
    run(TypeId(ID), kernels, 1, Call { w, acts, n, tokens, out });
}

/// The kernel of a type for an instruction set that the processor has.
pub(crate) fn mat_rows(ty: TypeId, isa: Isa) -> Option<MatRows> {
    macro_rules! table {
        ($([$avx2:ident, $avx512:ident] $($id:ident $codes:path;)*)*) => {
            match (isa.vectors(), ty) {
                (Level::Scalar, _) => None,
                $($((Level::Avx2, TypeId::$id) => Some($avx2::<$codes, { TypeId::$id.0 }>),)*)*
                $($((Level::Avx512, TypeId::$id) => Some($avx512::<$codes, { TypeId::$id.0 }>),)*)*
                _ => None,
            }
        };
    }
    table! {
        [codes_avx2, codes_avx512]
            Q8_0 codes::Q8_0; Q4_0 codes::Q4_0; Q4_1 codes::Q4_1; Q5_0 codes::Q5_0; Q5_1 codes::Q5_1;
            IQ4_NL codes::Iq4Nl; MXFP4 codes::Mxfp4; Q1_0 codes::Q1_0; Q2_0 codes::Q2_0;
            PQ2_0 codes::Pq2_0; Q2_0_G128 codes::Pq2_0; PTQ1_0 codes::Ptq1_0;
            TQ1_0 codes::Tq1_0; TQ2_0 codes::Tq2_0; Q2_K codes::Q2K;
        [lanes_avx2, lanes_avx512]
            Q3_K lanes::Q3K; Q4_K lanes::Q4K; Q5_K lanes::Q5K; Q6_K lanes::Q6K;
        [groups_avx2, groups_avx512]
            IQ1_S points::Iq1S; IQ1_M points::Iq1M; IQ2_XXS points::Iq2Xxs; IQ2_XS points::Iq2Xs;
            IQ2_S points::Iq2S; IQ3_XXS points::Iq3Xxs; IQ3_S points::Iq3S; IQ4_XS points::Iq4Xs;
        [float_avx2, float_avx512]
            F16 float::F16; BF16 float::Bf16; F32 float::F32;
    }
}

/// The encoder of an activation type for an instruction set that the processor has.
pub(crate) fn quantize_act(act: TypeId, isa: Isa) -> Option<QuantizeAct> {
    match isa.vectors() {
        Level::Avx2 => quantize::encoder(act),
        Level::Avx512 => quantize512::encoder(act),
        _ => None,
    }
}
