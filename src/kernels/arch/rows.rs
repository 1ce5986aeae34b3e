//! Rows of weights as a file has them: the table of their kernels, and what all of these share.

use trine_formats::types::TypeId;

use crate::Isa;
use crate::proof::Needs;
use crate::sizes::{check, row_bytes};

/// From this many tokens on, unpacking a panel pays. TQ2_0 unpacks so fast that it may be done per token longer.
const fn panel_tokens(ty: TypeId) -> usize {
    if ty.0 == TypeId::TQ2_0.0 { 6 } else { 4 }
}

/// Fewer rows than this at the end are not worth a panel.
const PANEL_ROWS: usize = 4;

/// The arguments of one [`crate::MatRows`] call; `n` > 0 and all lengths fit.
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "no kernel reads it"))]
pub(crate) struct Call<'a> {
    pub w: &'a [u8],
    pub acts: &'a [u8],
    pub n: usize,
    pub tokens: usize,
    pub out: &'a mut [f32],
}

/// A product of all rows and tokens of a call.
pub(crate) type Kernel = unsafe fn(Call<'_>);

/// A row of the table: the kernels of a weight type for an instruction set.
pub(crate) struct RowKernel {
    pub ty: TypeId,
    /// Features of the processor that the kernels need.
    pub needs: Needs,
    /// Rows of a panel.
    pub lanes: usize,
    /// For few tokens.
    pub by_row: Kernel,
    /// For many tokens, panel after panel.
    pub panel: Kernel,
}

impl RowKernel {
    /// Checks the proof and the lengths, then splits the call between the kernel for few tokens and that for panels.
    ///
    /// # Panics
    /// When `isa` does not prove what the kernel needs, or a length does not fit the others.
    pub fn multiply(&self, isa: Isa, w: &[u8], acts: &[u8], n: usize, tokens: usize, out: &mut [f32]) {
        let Some((info, act)) = self.ty.info().and_then(|info| Some((info, info.act?.info()?))) else {
            unreachable!("only types with an activation type have kernels");
        };
        assert!(self.needs.met_by(isa), "{}: no kernel for {isa}", self.ty);
        let w_row = row_bytes(info, n);
        let rows = check(w, acts, (w_row, row_bytes(act, n)), tokens, out);
        if n == 0 {
            out.fill(0.0);
            return;
        }
        let rest = rows % self.lanes;
        let in_panels = match rest {
            _ if tokens < panel_tokens(self.ty) => 0,
            0..PANEL_ROWS => rows - rest,
            _ => rows,
        };
        let (panel_out, row_out) = out.split_at_mut(in_panels * tokens);
        let (panel_w, row_w) = w.split_at(in_panels * w_row);
        // SAFETY: `isa` proves what the kernels need, and the lengths were checked.
        unsafe {
            if !panel_w.is_empty() {
                (self.panel)(Call { w: panel_w, acts, n, tokens, out: panel_out });
            }
            if !row_w.is_empty() {
                (self.by_row)(Call { w: row_w, acts, n, tokens, out: row_out });
            }
        }
    }
}

/// Compiles `$f`, which is generic over a type's codes and an instruction set and takes this thread's `SCRATCH`, for AVX2
/// and for AVX-512.
#[cfg(target_arch = "x86_64")]
macro_rules! compiled_for_both {
    ($codes:ident; $avx2:ident $avx512:ident = $f:ident $(, [$($small:literal)*] [$($large:literal)*])?) => {
        /// # Safety
        /// The processor has AVX2, FMA and F16C; `n` > 0 and all lengths fit.
        #[target_feature(enable = "avx2,fma,f16c")]
        pub(super) unsafe fn $avx2<C: $codes>(call: Call<'_>) {
            // SAFETY: this function asks its caller for the same.
            SCRATCH.with_borrow_mut(|scratch| unsafe { $f::<C, Avx2 $($(, $small)*)?>(call, scratch) });
        }

        /// # Safety
        /// The processor has AVX-512 F, BW, VL, DQ and VNNI too; `n` > 0 and all lengths fit.
        #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
        pub(super) unsafe fn $avx512<C: $codes>(call: Call<'_>) {
            // SAFETY: this function asks its caller for the same.
            SCRATCH.with_borrow_mut(|scratch| unsafe { $f::<C, Avx512 $($(, $large)*)?>(call, scratch) });
        }
    };
}
#[cfg(target_arch = "x86_64")]
pub(crate) use compiled_for_both;

/// The rows of types that share their kernels, for AVX2 and for AVX-512: their rows in a panel, kernel for few tokens
/// and kernel for panels, all of which are generic over the type's codes.
#[cfg(target_arch = "x86_64")]
macro_rules! row_kernels {
    ($avx2:literal $by_row2:ident $panel2:ident, $avx512:literal $by_row512:ident $panel512:ident;
     $($ty:ident $codes:ty),*) => {{
        use $crate::proof::{Avx2, Avx512, Proof};
        use $crate::arch::rows::RowKernel;
        &[$(
            RowKernel {
                ty: TypeId::$ty,
                needs: Avx512::NEEDS,
                lanes: $avx512,
                by_row: $by_row512::<$codes>,
                panel: $panel512::<$codes>,
            },
            RowKernel {
                ty: TypeId::$ty,
                needs: Avx2::NEEDS,
                lanes: $avx2,
                by_row: $by_row2::<$codes>,
                panel: $panel2::<$codes>,
            },
        )*]
    }};
}
#[cfg(target_arch = "x86_64")]
pub(crate) use row_kernels;
