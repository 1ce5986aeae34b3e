//! Products of half floats and brain floats by tensor cores: their order, how near they are, under which changes they are
//! bit-identical, and mistakes that are found.

use half::{bf16, f16};

use trine_compat_tests::inputs::Rng;
use trine_compat_tests::ptx::{Fault, Kind, Module, Schedule};
use trine_cuda::fast::{self, Numbers, Plan};
use trine_cuda::pack::floats;
use trine_cuda::ptx::TENSOR;
use trine_formats::types::TypeId;

use super::super::mistakes::{shows, with_mistake};
use super::super::product::{assert_same, module};
use super::{launched, words};

const NUMBERS: [Numbers; 2] = [Numbers::Half, Numbers::Brain];

/// Weights and activations of one kind.
#[derive(Clone)]
struct Product {
    numbers: Numbers,
    /// Along k.
    rows: usize,
    columns: usize,
    tokens: usize,
    /// `[column][row]`, as the file has them.
    weights: Vec<u16>,
    /// `[token][row]`
    acts: Vec<u16>,
}

impl Product {
    fn random(numbers: Numbers, (rows, columns, tokens): (usize, usize, usize), seed: u64) -> Product {
        let mut rng = Rng::new(seed);
        let mut all =
            |count: usize, size: f32| -> Vec<u16> { (0..count).map(|_| bits(numbers, size * rng.normal())).collect() };
        let (weights, acts) = (all(rows * columns, 0.02), all(tokens * rows, 1.0));
        Product { numbers, rows, columns, tokens, weights, acts }
    }

    fn first(&self, tokens: usize) -> Product {
        let acts = self.acts[..tokens * self.rows].to_vec();
        Product { tokens, acts, ..self.clone() }
    }

    fn plan(&self) -> Plan {
        fast::product_of_numbers(self.numbers, (self.rows, self.columns, self.tokens)).expect("a plan")
    }

    fn products(&self, token: usize, column: usize) -> impl Iterator<Item = f64> {
        let value = |bits: &u16| value(self.numbers, *bits);
        let acts = self.acts[token * self.rows..][..self.rows].iter();
        acts.zip(&self.weights[column * self.rows..]).map(move |(a, w)| value(w) * value(a))
    }

    fn outputs<T>(&self, of: impl Fn(Vec<f64>) -> T) -> Vec<T> {
        let places = (0..self.tokens).flat_map(|token| (0..self.columns).map(move |column| (token, column)));
        places.map(|(token, column)| of(self.products(token, column).collect())).collect()
    }

    /// The sums in the order that the kernels promise: sixteen products at a time as the emulator's tensor cores add them, in
    /// double precision and rounded once; slices one after the other.
    fn in_order(&self) -> Vec<f32> {
        let (tiles, slices) = (self.rows.div_ceil(64), fast::slices_of_numbers(self.rows, self.columns));
        self.outputs(|products| {
            let mut sum = 0f32;
            for slice in 0..slices {
                let [from, to] = [slice, slice + 1].map(|s| (64 * (s * tiles / slices)).min(self.rows));
                let sixteens = products[from..to].chunks(16);
                let here = sixteens.fold(0f32, |sum, p| p.iter().fold(f64::from(sum), |sum, p| sum + p) as f32);
                sum = if slice == 0 { here } else { sum + here };
            }
            sum
        })
    }

    fn run_in(&self, module: &Module, schedule: Schedule) -> Result<Vec<f32>, Fault> {
        let filled = |values: &[u16], count: usize| {
            let bytes = words(values.iter().copied());
            floats::rows(TypeId::F16, &bytes, count, self.rows).expect("rows").into_owned()
        };
        let inputs = [filled(&self.weights, self.columns), filled(&self.acts, self.tokens)];
        let shape = (self.rows, self.columns, self.tokens);
        Ok(launched(module, &self.plan(), inputs, shape, schedule)?.0)
    }

    #[track_caller]
    fn run(&self, schedule: Schedule) -> Vec<f32> {
        self.run_in(module("tensor"), schedule).unwrap_or_else(|e| panic!("{e}"))
    }
}

fn bits(numbers: Numbers, x: f32) -> u16 {
    match numbers {
        Numbers::Half => f16::from_f32(x).to_bits(),
        Numbers::Brain => bf16::from_f32(x).to_bits(),
    }
}

fn value(numbers: Numbers, bits: u16) -> f64 {
    match numbers {
        Numbers::Half => f16::from_bits(bits).to_f64(),
        Numbers::Brain => bf16::from_bits(bits).to_f64(),
    }
}

#[test]
fn sums_in_the_order_that_is_promised() {
    for numbers in NUMBERS {
        // Every kernel; rows and columns that end within a tile, a chunk and a warp's part; several slices.
        for shape in [(64, 128, 3), (70, 144, 17), (1, 1, 1), (200, 40, 33), (1100, 16, 9), (2048, 130, 2)] {
            let product = Product::random(numbers, shape, 4);
            let found = product.run(Schedule::Random(3));
            assert_same(&found, &product.in_order(), &format!("{numbers:?} {shape:?}"));
            let exact: Vec<[f64; 2]> = product.outputs(|p| [p.iter().sum(), p.iter().map(|p| p.abs()).sum()]);
            for (found, [exact, size]) in found.iter().zip(exact) {
                assert!((f64::from(*found) - exact).abs() <= 1e-6 * size, "{found} {exact}");
            }
        }
    }
}

#[test]
fn tokens_beside_a_token_change_no_bit_of_it() {
    for numbers in NUMBERS {
        let all = Product::random(numbers, (600, 20, 130), 5);
        assert!(fast::slices_of_numbers(all.rows, all.columns) > 1);
        let expected = all.run(Schedule::InTurn);
        for tokens in [1, 7, 8, 9, 32, 33] {
            let found = all.first(tokens).run(Schedule::Random(tokens as u64));
            assert_same(&found, &expected[..tokens * all.columns], &format!("{numbers:?}, {tokens} of 130 tokens"));
        }
    }
}

#[test]
fn mistakes_in_the_pipeline_and_where_slices_meet() {
    for (numbers, tokens, wait) in [(Numbers::Half, 3, 2), (Numbers::Brain, 20, 2), (Numbers::Half, 40, 1)] {
        let product = Product::random(numbers, (1280, 144, tokens), 3);
        let plan = product.plan();
        assert!(plan.tickets > 0);
        let of = |change: &dyn Fn(&str) -> String| {
            let module = with_mistake(TENSOR, &plan.launch.kernel, change);
            shows(&product.in_order(), |schedule| product.run_in(&module, schedule))
        };
        assert_eq!(of(&|text| format!("{text} ")), None, "no mistake");
        let group = |left| format!("cp.async.wait_group {left};");
        let late = of(&|text| text.replace(&group(wait), &group(wait + 1)));
        assert_eq!(late, Some(Some(Kind::InFlight)), "a wait too few");
        let barrier = of(&|text| text.replacen("bar.sync", "// ", 1));
        let found = matches!(barrier, Some(Some(Kind::Race | Kind::InFlight | Kind::Uninitialised)));
        assert!(found, "no barrier: {barrier:?}");
        assert!(of(&|text| text.replacen("xor.b32", "or.b32", 1)).is_some(), "another swizzle");
        let matrices = of(&|text| text.replacen(".x4.shared", ".x4.trans.shared", 1));
        assert_eq!(matrices, Some(None), "a matrix transposed");
        let fence = of(&|text| text.replacen("fence.acq_rel.gpu;", "", 1));
        assert_eq!(fence, Some(Some(Kind::Race)), "no fence before the ticket");
        let order = of(&|text| {
            let (from, to) = match numbers {
                Numbers::Half => ("f32.f16.f16.f32", "f32.bf16.bf16.f32"),
                Numbers::Brain => ("f32.bf16.bf16.f32", "f32.f16.f16.f32"),
            };
            text.replacen(from, to, 1)
        });
        assert_eq!(order, Some(None), "numbers of another type");
    }
}
