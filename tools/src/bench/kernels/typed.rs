//! Products of the tensor types.

use anyhow::{Context, Result, bail};
use trine::ops::product::packed::{PackedMatrix, PackedProduct, multiply_all};
use trine::pool;
use trine_formats::types::{REGISTRY, TypeId};
use trine_kernels::packed::{Arena, Encoding, Method, Packing, layouts, lookups};
use trine_kernels::ternary::{self, Quantizer};
use trine_kernels::{AlignedBytes, Isa, MatRows};

use super::super::kernel_type::KernelType;
use super::super::synth::random_rows;
use super::subject::{Activations, BenchMatrix, COLUMNS, Subject};

/// Distinct rows of a matrix; the rest repeat them.
const DISTINCT: usize = 32;

/// One kernel of a type.
#[derive(Clone, Copy)]
pub struct Typed {
    ty: TypeId,
    isa: Isa,
    layout: Layout,
}

#[derive(Clone, Copy)]
enum Layout {
    /// Rows as a file has them, and the type of the activations.
    Rows(MatRows, TypeId),
    /// Rows of 2-bit codes without scales.
    Codes,
    /// Interleaved rows.
    Packed(Packing),
}

impl Typed {
    /// All kernels of `isa`, without those that are the ones of a lower instruction set.
    pub fn all(isa: Isa) -> Vec<Typed> {
        let lower = isa.level().base().and_then(|level| isa.lower_to(level));
        let mut all = Vec::new();
        for info in REGISTRY {
            let ty = info.id;
            // TL1 and TL2 run from the same codes as I2_S
            if info.encode.is_none() && ty != TypeId::I2_S {
                continue;
            }
            let layout = match (trine_kernels::mat_rows(ty, isa), info.act) {
                (Some(f), Some(act)) => Some(Layout::Rows(f, act)),
                _ if ty == TypeId::I2_S => Some(Layout::Codes),
                _ => None,
            };
            let same = |f: MatRows, isa| trine_kernels::mat_rows(ty, isa).is_some_and(|g| f.is_same_as(&g));
            let inherited = match (layout, lower) {
                (Some(Layout::Rows(f, _)), Some(lower)) => same(f, lower),
                _ => false,
            };
            let layout = layout.filter(|_| !inherited);
            let below = lower.map_or_else(Vec::new, |lower| layouts(ty, lower));
            let tables_below = lower.map_or_else(Vec::new, |lower| lookups(ty, lower));
            let packed = layouts(ty, isa).into_iter().filter(|p| !below.contains(p));
            let packed = packed.chain(lookups(ty, isa).into_iter().filter(|p| !tables_below.contains(p)));
            let packed = packed.map(Layout::Packed);
            all.extend(layout.into_iter().chain(packed).map(|layout| Typed { ty, isa, layout }));
        }
        all
    }

    /// Activations as this kernel takes them.
    fn arrange(&self, x: &[f32]) -> Vec<u8> {
        let encoding = match self.layout {
            Layout::Rows(_, act) => Encoding::Type(act),
            Layout::Codes => Encoding::Int8(Quantizer::Floored),
            Layout::Packed(p) => p.encoding,
        };
        let mut encoded = Vec::new();
        match encoding {
            Encoding::Type(act) => {
                let bytes = act.info().and_then(|t| t.row_bytes(COLUMNS as u64));
                encoded.resize(bytes.unwrap_or(0) as usize, 0);
                trine_kernels::quantize_act(act, self.isa)(x, &mut encoded);
            }
            Encoding::Int8(rule) => {
                encoded.resize(ternary::act_bytes(COLUMNS), 0);
                ternary::quantize_act(rule, x, &mut encoded);
            }
        }
        if let Layout::Packed(p) = self.layout {
            let mut arranged = AlignedBytes::new((p.act_bytes)(COLUMNS));
            p.arrange(&encoded, COLUMNS, &mut arranged);
            encoded = arranged.to_vec();
        }
        encoded
    }
}

impl Subject for Typed {
    fn ty(&self) -> KernelType {
        KernelType::Tensor(self.ty)
    }

    fn isa(&self) -> Isa {
        self.isa
    }

    fn layout(&self) -> &'static str {
        match self.layout {
            Layout::Rows(..) => "rows",
            Layout::Codes => "codes",
            Layout::Packed(p) => p.name,
        }
    }

    fn method(&self) -> Method {
        match self.layout {
            Layout::Packed(p) => p.method(),
            _ => Method::MultiplyAdd,
        }
    }

    fn is_float(&self) -> bool {
        matches!(self.ty, TypeId::F32 | TypeId::F16 | TypeId::BF16)
    }

    /// Bytes of a file row, or of the codes of one.
    fn row_bytes(&self) -> usize {
        match self.ty.info().and_then(|t| t.row_bytes(COLUMNS as u64)) {
            Some(n) => n as usize,
            None => ternary::row_bytes(COLUMNS),
        }
    }

    fn matrix(&self, rows: usize) -> Result<Box<dyn BenchMatrix>> {
        let row_bytes = self.row_bytes();
        let distinct = random_rows(self.ty, COLUMNS, DISTINCT.min(rows))?;
        if distinct.len() != row_bytes * DISTINCT.min(rows) {
            bail!("rows of {} have an unexpected size", self.ty);
        }
        let mut arena = Arena::default();
        let fill = |out: &mut [u8]| {
            for out in out.chunks_mut(distinct.len()) {
                out.copy_from_slice(&distinct[..out.len()]);
            }
            true
        };
        let out_of_memory = "cannot get memory for the weights";
        let bytes = arena.region(rows * row_bytes, fill).context(out_of_memory)?;
        let bytes = bytes.context(out_of_memory)?;
        let weights = match self.layout {
            Layout::Packed(packing) => {
                let packed = PackedMatrix::pack(packing, COLUMNS, rows, &bytes, &mut arena);
                let packed = packed.context(out_of_memory)?;
                let name = packing.name;
                Weights::Packed(packed.with_context(|| format!("{name} refuses the weights"))?)
            }
            _ => Weights::Rows(bytes),
        };
        Ok(Box::new(TypedMatrix { subject: *self, rows, weights }))
    }
}

/// Weight matrix of one kernel's benchmark.
struct TypedMatrix {
    subject: Typed,
    rows: usize,
    weights: Weights,
}

enum Weights {
    Rows(trine_formats::gguf::Blob),
    Packed(PackedMatrix),
}

impl BenchMatrix for TypedMatrix {
    fn bytes(&self) -> usize {
        match &self.weights {
            Weights::Rows(bytes) => bytes.len(),
            Weights::Packed(m) => m.bytes(),
        }
    }

    fn rows(&self) -> usize {
        self.rows
    }

    fn arrange(&self, x: &[f32], _: usize) -> Vec<u8> {
        self.subject.arrange(x)
    }

    fn multiply(&self, acts: &Activations, out: &mut [f32]) {
        let tokens = acts.tokens;
        let weights = match &self.weights {
            Weights::Packed(w) => {
                let scale = None;
                let acts = &acts.rows;
                return multiply_all(&mut [PackedProduct { w, acts, scale, out }], tokens);
            }
            Weights::Rows(weights) => weights,
        };
        let row_bytes = self.subject.row_bytes();
        // about the rows that the engine hands to its threads
        let least = if tokens > 1 { 64 } else { 16 };
        let task_rows = self.rows.div_ceil(pool::threads() * 8);
        let task_rows = task_rows.next_multiple_of(16).max(least);
        pool::chunks_mut(out, task_rows * tokens, |i, out| {
            let rows = out.len() / tokens;
            let w = &weights[i * task_rows * row_bytes..][..rows * row_bytes];
            match self.subject.layout {
                Layout::Rows(f, _) => f.multiply(w, &acts.rows, COLUMNS, tokens, out),
                _ => ternary::mat_rows(self.subject.isa, w, &acts.rows, COLUMNS, tokens, out),
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use trine_kernels::testing::isas;

    use super::super::subject::tests::bits;
    use super::*;

    /// The product itself is measured: every kernel of a type gives the bits of its first one.
    #[test]
    fn all_kernels_of_a_type_agree() {
        for info in REGISTRY {
            let mut expected: Option<Vec<u32>> = None;
            for subject in isas().flat_map(Typed::all).filter(|s| s.ty == info.id) {
                let bits = bits(&subject, 70, 3);
                let first = expected.get_or_insert_with(|| bits.clone());
                assert!(*first == bits, "{} {} {}", info.name, subject.isa, subject.layout());
            }
        }
    }
}
