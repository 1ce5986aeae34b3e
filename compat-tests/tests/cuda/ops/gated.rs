//! Gates that quantize their rows: the bits are those of the gate, the quantizer and the product one after the other.

use std::collections::BTreeSet;

use trine_compat_tests::inputs::Rng;
use trine_cuda::program::{Gate, Matrix, ProgramError, Recorder, Span};
use trine_cuda::ptx::GATE;
use trine_formats::types::TypeId;
use trine_kernels::elements::gelu_table;

use super::{Case, rows, shows};
use crate::product::assert_same;

/// Rows of the matrix.
const RESULTS: usize = 8;
/// Weights and whether products are those of activations in half precision, the columns, and the kernel.
const KINDS: [(TypeId, bool, usize, &str); 5] = [
    (TypeId::TQ2_0, false, 512, "gate_q8_k"),
    (TypeId::Q8_0, false, 288, "gate_q8_0"),
    (TypeId::I2_S, false, 384, "gate_bytes"),
    (TypeId::F16, true, 300, "gate_halves"),
    (TypeId::BF16, true, 70, "gate_brains"),
];
/// The matrix is not pruned.
static NONE: BTreeSet<String> = BTreeSet::new();

fn matrix(ty: TypeId, columns: usize) -> Matrix<'static> {
    let info = ty.info().expect("a type");
    let mut rng = Rng::new(columns as u64);
    let data = match ty {
        // Two bits that stand for weights.
        TypeId::I2_S => (0..RESULTS * columns / 4).map(|_| rng.bits() as u8 & 0x55).collect(),
        _ => {
            let of_row = info.row_bytes(columns as u64).expect("whole blocks") as usize;
            let mut data = vec![0; RESULTS * of_row];
            for row in data.chunks_exact_mut(of_row) {
                let w: Vec<f32> = (0..columns).map(|_| 2.0 * rng.unit() - 1.0).collect();
                info.encode.expect("an encoder")(&w, None, row);
            }
            data
        }
    };
    Matrix { name: "a matrix", ty, rows: RESULTS, columns, data: data.leak(), scale: 0.25 }
}

/// A gate and a product of its rows, with an operation between the two that changes nothing, or without.
fn record<'a>(
    r: &mut Recorder<'a>,
    x: Span,
    (gate, by_up): (Option<Gate>, bool),
    (matrix, is_fast): (Matrix<'a>, bool),
    is_apart: bool,
) -> Result<Span, ProgramError> {
    if is_fast {
        r.in_halves(&NONE);
    }
    let up = match by_up {
        true => {
            let up = r.copied(x)?;
            r.scale(up, -0.75);
            Some(up)
        }
        false => None,
    };
    match gate {
        Some(function) => r.gate(function, x, up),
        None => r.gelu(gelu_table(), x, up)?,
    }
    if is_apart {
        r.scale(x, 1.0);
    }
    r.product(matrix, x)
}

#[test]
fn rows_of_gates_are_quantized_as_by_two_kernels() {
    for (ty, is_fast, columns, _) in KINDS {
        let matrix = matrix(ty, columns);
        let x: &'static [f32] = rows(columns, columns as u64).leak();
        let case = Case { results: RESULTS, ..Case::new(x, columns) };
        for gate in [Some(Gate::Silu), Some(Gate::Relu), Some(Gate::SquaredRelu), None] {
            for by_up in [true, false] {
                let of = |is_apart| case.run(|r, x| record(r, x, (gate, by_up), (matrix, is_fast), is_apart));
                assert_same(&of(false), &of(true), &format!("{ty} {columns}, {gate:?}, {by_up}"));
            }
        }
    }
}

#[test]
fn mistakes_in_them_are_found() {
    for (ty, is_fast, columns, kernel) in KINDS {
        let matrix = matrix(ty, columns);
        let x = &rows(columns, 3).leak()[..2 * columns];
        let case = Case { results: RESULTS, ..Case::new(x, columns) };
        let silu = (Some(Gate::Silu), true);
        let expected = case.run(|r, x| record(r, x, silu, (matrix, is_fast), true));
        let of = |change: &dyn Fn(&str) -> String| {
            shows((GATE, kernel), change, &case, &expected, |r, x| record(r, x, silu, (matrix, is_fast), false))
        };
        assert!(!of(&|t| format!("{t} ")), "{kernel}: no mistake");
        assert!(of(&|t| t.replace("0f3E2AAF33", "0f3F2AAF33")), "{kernel}: a polynomial");
        assert!(of(&|t| t.replace("mul.rn.f32", "add.rn.f32")), "{kernel}: a sum");
        assert!(of(&|t| t.replace("div.rn.f32", "mul.rn.f32")), "{kernel}: no quotient");
    }
}
