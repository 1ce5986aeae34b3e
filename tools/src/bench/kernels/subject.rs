//! A kernel with data of its own to run on.

use anyhow::{Context, Result, bail};
use trine::ops::product::packed::{PackedMatrix, PackedProduct, multiply_all};
use trine::pool;
use trine_formats::types::{REGISTRY, TypeId};
use trine_kernels::packed::{Arena, Encoding, Method, Packing, layouts, lookups};
use trine_kernels::ternary::{self, Quantizer};
use trine_kernels::{AlignedBytes, Isa, MatRows};

use super::super::synth::random_rows;

/// Weights per row.
pub const COLUMNS: usize = 4096;
/// Distinct rows of a matrix; the rest repeat them.
const DISTINCT: usize = 32;

/// One kernel of a type.
#[derive(Clone, Copy)]
pub struct Subject {
    /// The weight type.
    pub ty: TypeId,
    /// The instruction set it was asked for.
    pub isa: Isa,
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

impl Subject {
    /// All kernels of `isa`, without those that are the ones of a lower instruction set.
    pub fn all(isa: Isa) -> Vec<Subject> {
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
            all.extend(layout.into_iter().chain(packed).map(|layout| Subject { ty, isa, layout }));
        }
        all
    }

    /// `rows`, or the packed layout's name.
    pub fn layout(&self) -> &'static str {
        match self.layout {
            Layout::Rows(..) => "rows",
            Layout::Codes => "codes",
            Layout::Packed(p) => p.name,
        }
    }

    /// How its products are computed.
    pub fn method(&self) -> Method {
        match self.layout {
            Layout::Packed(p) => p.method(),
            _ => Method::MultiplyAdd,
        }
    }

    /// Bytes of a file row, or of the codes of one.
    pub fn row_bytes(&self) -> usize {
        match self.ty.info().and_then(|t| t.row_bytes(COLUMNS as u64)) {
            Some(n) => n as usize,
            None => ternary::row_bytes(COLUMNS),
        }
    }

    /// A matrix of random weights.
    ///
    /// # Errors
    /// No memory; a layout that cannot hold the weights.
    pub fn matrix(&self, rows: usize) -> Result<BenchMatrix> {
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
        Ok(BenchMatrix { subject: *self, rows, weights })
    }

    /// `tokens` rows of random activations, as the kernel takes them.
    pub fn activations(&self, tokens: usize) -> Activations {
        let row: Vec<f32> = (0..COLUMNS).map(|i| ((i * 2_654_435_761) % 2001) as f32 / 1000.0 - 1.0).collect();
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
                trine_kernels::quantize_act(act, self.isa)(&row, &mut encoded);
            }
            Encoding::Int8(rule) => {
                encoded.resize(ternary::act_bytes(COLUMNS), 0);
                ternary::quantize_act(rule, &row, &mut encoded);
            }
        }
        if let Layout::Packed(p) = self.layout {
            let mut arranged = AlignedBytes::new((p.act_bytes)(COLUMNS));
            p.arrange(&encoded, COLUMNS, &mut arranged);
            encoded = arranged.to_vec();
        }
        let mut rows = AlignedBytes::new(encoded.len() * tokens);
        for out in rows.chunks_exact_mut(encoded.len().max(1)) {
            out.copy_from_slice(&encoded);
        }
        Activations { rows, tokens }
    }
}

/// Activation rows, all alike.
pub struct Activations {
    rows: AlignedBytes,
    tokens: usize,
}

/// Weight matrix of one kernel's benchmark.
pub struct BenchMatrix {
    subject: Subject,
    rows: usize,
    weights: Weights,
}

enum Weights {
    Rows(trine_formats::gguf::Blob),
    Packed(PackedMatrix),
}

impl BenchMatrix {
    /// Bytes that a product reads.
    pub fn bytes(&self) -> usize {
        match &self.weights {
            Weights::Rows(bytes) => bytes.len(),
            Weights::Packed(m) => m.bytes(),
        }
    }

    /// Outputs of a product with `tokens` activation rows.
    pub fn outputs(&self, tokens: usize) -> usize {
        self.rows * tokens
    }

    /// One product, on the current pool.
    pub fn multiply(&self, acts: &Activations, out: &mut [f32]) {
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

    use super::*;

    /// The product itself is measured: every kernel of a type gives the bits of its first one.
    #[test]
    fn all_kernels_of_a_type_agree() {
        let (rows, tokens) = (70, 3);
        for info in REGISTRY {
            let mut expected: Option<Vec<u32>> = None;
            for subject in isas().flat_map(Subject::all).filter(|s| s.ty == info.id) {
                let acts = subject.activations(tokens);
                let matrix = subject.matrix(rows).unwrap();
                let mut out = vec![0f32; matrix.outputs(tokens)];
                matrix.multiply(&acts, &mut out);
                // all tokens are alike, so the order of the two does not show in a sorted list
                let mut bits: Vec<u32> = out.iter().map(|v| v.to_bits()).collect();
                bits.sort_unstable();
                assert!(bits[0] != bits[bits.len() - 1], "{}", info.name);
                let first = expected.get_or_insert_with(|| bits.clone());
                let (isa, layout) = (subject.isa, subject.layout());
                assert!(*first == bits, "{} {isa} {layout}", info.name);
            }
        }
    }
}
