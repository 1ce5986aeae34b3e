//! Rows that are gone over again.

use trine_formats::types::TypeId;

use super::{bytes, cost, decoded, inputs, row, sums, weights};
use crate::kernels::Isa;
use crate::quant::gptq::factor::Factor;
use crate::quant::gptq::feedback::side_by_side;
use crate::quant::gptq::{Options, round};

/// Rounds rows once, and goes over them again where that `is_asked`.
fn rounded(x: &[f64], w: &[f32], columns: usize, to: TypeId, is_asked: bool, isa: Isa) -> Vec<u8> {
    let (sums, tokens, together) = (sums(x, columns), (x.len() / columns) as u64, side_by_side(to));
    let options = Options { damp: 0.05, ..Options::default() };
    let factor = Factor::together(&sums, columns, tokens, &options, together, isa).unwrap();
    let factor = if is_asked { factor.with_metric(&sums, tokens, together) } else { factor };
    round(&row(columns, w.len() / columns, to), 0, &bytes(w), &factor, &options, isa).unwrap()
}

#[test]
fn it_costs_less_than_once() {
    let columns = 512;
    let (x, w) = (inputs(700, columns), weights(16, columns));
    for to in
        [TypeId::IQ2_XXS, TypeId::IQ2_XS, TypeId::IQ2_S, TypeId::IQ3_XXS, TypeId::IQ3_S, TypeId::IQ1_S, TypeId::Q2_K]
    {
        let cost = |is_asked| {
            let out = rounded(&x, &w, columns, to, is_asked, Isa::detect());
            cost(&x, &w, &decoded(&out, columns, to), columns)
        };
        let (once, again) = (cost(false), cost(true));
        assert!(again < once, "{to}: {again} {once}");
    }
}

#[test]
fn neither_threads_nor_instruction_sets_change_a_byte() {
    let columns = 768;
    let pools = [1, 3].map(|n| rayon::ThreadPoolBuilder::new().num_threads(n).build().unwrap());
    let (x, w) = (inputs(90, columns), weights(37, columns));
    for to in [TypeId::IQ2_XXS, TypeId::IQ3_S, TypeId::Q2_K] {
        let want = pools[0].install(|| rounded(&x, &w, columns, to, true, Isa::scalar()));
        for isa in Isa::available() {
            assert!(pools[1].install(|| rounded(&x, &w, columns, to, true, isa)) == want, "{to} {isa}");
        }
    }
}
