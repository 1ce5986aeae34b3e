//! Norms that quantize their rows: the bits are those of the norm, the quantizer and the product one after the other.

use trine::Isa;
use trine::ops::norm::{Kind, Norm};
use trine_compat_tests::inputs::Rng;
use trine_compat_tests::ptx::{Emulated, Schedule};
use trine_cuda::program::{Matrix, ProgramError, Recorder, Span};
use trine_cuda::ptx::NORM;
use trine_formats::types::TypeId;
use trine_formats::types::i2_s::Interleave;
use trine_formats::types::ternary::{self, Packing, dot_codes, quantize_i2_s};

use super::{Case, rows};
use crate::mistakes::with_mistake;
use crate::product::assert_same;

const EPS: f32 = 1e-5;

/// Products of the norms of rows with a matrix of as many rows and columns.
struct Normed {
    ty: TypeId,
    columns: usize,
    x: Vec<f32>,
    gains: &'static [f32],
    data: &'static [u8],
    /// Codes of a ternary matrix with one scale.
    codes: Vec<i8>,
    /// Rows are half of what they are in `x`, to which the other half is added before the norm.
    adds: bool,
    /// The norms are added to the products.
    keeps: bool,
}

/// The scale of ternary matrices.
const SCALE: f32 = 0.25;

impl Normed {
    fn new(ty: TypeId, columns: usize, tokens: usize, [adds, keeps]: [bool; 2]) -> Normed {
        let mut rng = Rng::new((columns * tokens) as u64);
        let gains: Vec<f32> = (0..columns).map(|i| (i % 17) as f32 * 0.37 - 2.0).collect();
        let all = rows(columns, columns as u64);
        let x = all.iter().copied().cycle().take(tokens * columns).collect();
        let info = ty.info().expect("a type");
        let (mut codes, mut data) = (Vec::new(), Vec::new());
        if ty == TypeId::I2_S {
            codes.extend((0..columns * columns).map(|_| rng.below(3) as i8 - 1));
            data.extend(Packing::I2S(Interleave::Usual).pack(columns, columns, SCALE, &codes).expect("a matrix"));
            // The scale stands behind the codes.
            data.truncate(columns * columns / 4);
        } else {
            let of_row = info.row_bytes(columns as u64).expect("whole blocks") as usize;
            data.resize(columns * of_row, 0);
            for row in data.chunks_exact_mut(of_row) {
                let w: Vec<f32> = (0..columns).map(|_| 2.0 * rng.unit() - 1.0).collect();
                info.encode.expect("an encoder")(&w, None, row);
            }
        }
        Normed { ty, columns, x, gains: gains.leak(), data: data.leak(), codes, adds, keeps }
    }

    fn record(&self, r: &mut Recorder<'_>, x: Span) -> Result<Span, ProgramError> {
        if self.adds {
            let half = r.copied(x)?;
            r.scale(half, 0.5);
            r.scale(x, 0.5);
            r.add(x, half);
        }
        let u = r.norm(x, self.gains, self.columns, EPS)?;
        let (rows, columns) = (self.columns, self.columns);
        let matrix = Matrix { name: "a matrix", ty: self.ty, rows, columns, data: self.data, scale: SCALE };
        let y = r.product(matrix, u)?;
        if self.keeps {
            r.add(y, u);
        }
        Ok(y)
    }

    /// The same by the processor's operations.
    fn expected(&self) -> Vec<f32> {
        let norm = Norm { kind: Kind::Rms, eps: EPS, row: self.columns, gains: self.gains.to_vec(), bias: None };
        let x: Vec<f32> = match self.adds {
            true => self.x.iter().map(|x| x * 0.5 + x * 0.5).collect(),
            false => self.x.clone(),
        };
        let normed = norm.apply(Isa::scalar(), &x);
        let mut all: Vec<f32> = normed.chunks_exact(self.columns).flat_map(|u| self.product(u)).collect();
        if self.keeps {
            all.iter_mut().zip(&normed[..]).for_each(|(y, u)| *y += u);
        }
        all
    }

    /// The products of one row.
    fn product(&self, u: &[f32]) -> Vec<f32> {
        if self.ty == TypeId::I2_S {
            let mut q = vec![0; self.columns];
            let act = quantize_i2_s(u, &mut q);
            let rows = self.codes.chunks_exact(self.columns);
            return rows.map(|codes| ternary::tail(dot_codes(codes, &q), act.sum, act.a, SCALE)).collect();
        }
        let info = self.ty.info().expect("a type");
        let act = info.act.and_then(|act| act.info()).expect("a type");
        let mut row = vec![0; act.row_bytes(self.columns as u64).expect("whole blocks") as usize];
        act.encode.expect("an encoder")(u, None, &mut row);
        let dot = info.dot_ref.expect("a definition");
        self.data.chunks_exact(self.data.len() / self.columns).map(|w| dot(w, &row)).collect()
    }
}

/// Types whose activations are Q8_K, Q8_0 and bytes under one scale, and columns that fill up groups of 256 or do not.
const TYPES: [(TypeId, [usize; 2]); 3] =
    [(TypeId::TQ2_0, [256, 768]), (TypeId::Q8_0, [96, 288]), (TypeId::I2_S, [128, 640])];

#[test]
fn rows_of_norms_are_quantized_as_by_two_kernels() {
    for (ty, widths) in TYPES {
        for (columns, tokens) in [(widths[0], 14), (widths[0], 1), (widths[1], 8), (widths[1], 3)] {
            for rules in [[false, false], [true, false], [false, true], [true, true]] {
                let normed = Normed::new(ty, columns, tokens, rules);
                let case = Case::new(&normed.x, columns);
                let found = case.run(|r, x| normed.record(r, x));
                assert_same(&found, &normed.expected(), &format!("{ty}, {tokens} x {columns}, {rules:?}"));
            }
        }
    }
}

#[test]
fn mistakes_in_them_are_found() {
    type Mistake<'a> = (&'a str, &'a dyn Fn(&str) -> String);
    let barrier: Mistake = ("a barrier of warps", &|t| t.replace("bar.sync", "bar.warp.sync -1; // "));
    let root: Mistake = ("no root", &|t| t.replacen("sqrt.rn.f32", "neg.f32", 1));
    let sum: Mistake = ("a difference", &|t| t.replacen("add.rn.f32", "sub.rn.f32", 1));
    let inverse: Mistake = ("no inverse", &|t| t.replacen("div.rn.f32", "mul.rn.f32", 2));
    let rounding: Mistake = ("another rounding", &|t| t.replace("0f4B400000", "0f4B000000"));
    let away: Mistake = ("rounded twice", &|t| t.replace("cvt.rzi.s32.f32", "cvt.rni.s32.f32"));
    let cases: [(TypeId, usize, &str, [Mistake; 5]); 3] = [
        (TypeId::TQ2_0, 256, "norm_q8_k", [barrier, root, sum, inverse, rounding]),
        (TypeId::Q8_0, 96, "norm_q8_0", [barrier, root, sum, inverse, away]),
        (TypeId::I2_S, 128, "norm_bytes", [barrier, root, sum, inverse, rounding]),
    ];
    for (ty, columns, kernel, mistakes) in cases {
        let mut normed = Normed::new(ty, columns, 2, [true, true]);
        // Ties between integers, once they are scaled, show how a kernel rounds.
        let tie = |i: usize| if i == 0 { 127.0 } else { (i % 120) as f32 + 0.5 };
        normed.x = (0..2 * columns).map(|i| tie(i % columns)).collect();
        normed.gains = vec![1.0; columns].leak();
        let expected = normed.expected();
        let of = |change: &dyn Fn(&str) -> String| {
            [Schedule::InTurn, Schedule::Random(1), Schedule::Last(0)].into_iter().any(|schedule| {
                let mut device = Emulated::new().expect("PTX");
                device.replace(NORM.name, with_mistake(NORM, kernel, change));
                let case = Case { schedule, ..Case::new(&normed.x, columns) };
                let done = case.run_on(device, |r, x| normed.record(r, x));
                done.map_or(true, |found| found.iter().zip(&expected).any(|(a, b)| a.to_bits() != b.to_bits()))
            })
        };
        assert!(!of(&|t| format!("{t} ")), "{kernel}: no mistake");
        for (what, mistake) in mistakes {
            assert!(of(mistake), "{kernel}: {what}");
        }
    }
}
