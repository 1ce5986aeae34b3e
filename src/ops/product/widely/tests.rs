//! Products of whole matrices against the definition, whatever the threads, tokens and layout.

use trine_formats::widely::{Rule, Scope, int8, product_row};

use super::*;
use crate::kernels::AlignedBytes;
use crate::kernels::testing::{Random, isas};
use crate::pool::Pool;

fn matrix(random: &mut Random, rows: usize, columns: usize, stages: usize, scope: Scope) -> WidelyMatrix {
    let rule = Rule { stages, scope, profile: Default::default(), tie: Default::default() };
    let shape = rule.shape(rows, columns).expect("even sides");
    let scales = shape.groups() * shape.group_scales();
    WidelyMatrix {
        shape,
        codes: Blob::from_vec(random.bytes(4 * shape.rows * shape.row_words())),
        scales: (0..scales).map(|_| random.float().abs() + 0.1).collect(),
    }
}

fn expected(m: &WidelyMatrix, path: Path, x: &[f32]) -> Vec<u32> {
    let quantized = int8::quantize(&m.shape, x);
    let rows = 0..m.shape.rows;
    let row = |row: usize| match path {
        Path::Exact => product_row(&m.shape, row, &m.words(row), &m.scales, x),
        Path::Int8 => int8::product_row(&m.shape, row, &m.words(row), &m.scales, &quantized),
    };
    let (re, im): (Vec<f32>, Vec<f32>) = rows.map(row).unzip();
    re.into_iter().chain(im).map(f32::to_bits).collect()
}

#[test]
fn threads_tokens_and_layouts_change_no_bit() {
    let mut random = Random(11);
    for (stages, scope) in [(2, Scope::Tensor), (1, Scope::Row), (3, Scope::Tile64)] {
        // units that are not whole, chunks that are not whole
        let [a, b] = [602, 90].map(|rows| matrix(&mut random, rows, 300, stages, scope));
        for tokens in [1, 2, 16, 40] {
            let xs: Vec<f32> = (0..300 * tokens).map(|_| random.float()).collect();
            for path in [Path::Exact, Path::Int8] {
                let want =
                    [&a, &b].map(|m| -> Vec<u32> { xs.chunks(300).flat_map(|x| expected(m, path, x)).collect() });
                for isa in isas() {
                    let row = path.act_bytes(&a.shape);
                    let mut acts = AlignedBytes::new(row * tokens);
                    for (x, out) in xs.chunks(300).zip(acts.chunks_exact_mut(row)) {
                        path.arrange(isa, &a.shape, x, out);
                    }
                    for (threads, packed) in [(1, false), (1, true), (2, true), (3, false), (8, true)] {
                        let linears = [&a, &b].map(|m| {
                            let linear = WidelyLinear::new(m.clone(), path, isa);
                            match packed {
                                true => linear.packed(&SharedArena::default(), isa).expect("memory"),
                                false => linear,
                            }
                        });
                        let mut outs = linears.each_ref().map(|w| vec![0.0; 2 * w.shape.rows * tokens]);
                        let pool = Pool::new(threads).expect("threads");
                        pool.install(|| {
                            let jobs = linears.iter().zip(&mut outs);
                            let mut jobs: Vec<WidelyProduct> =
                                jobs.map(|(w, out)| WidelyProduct { w, acts: &acts, out }).collect();
                            multiply_all(isa, &mut jobs, tokens);
                        });
                        let got = outs.map(|out| out.iter().map(|v| v.to_bits()).collect::<Vec<_>>());
                        assert!(
                            got == want,
                            "{isa} {path:?} {scope:?} {tokens} tokens, {threads} threads, packed: {packed}"
                        );
                    }
                }
            }
        }
    }
}
