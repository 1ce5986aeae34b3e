//! Products with weights of which two of four are there: the checked-in kernels in the order that they promise.

use half::f16;
use trine_compat_tests::inputs::Rng;
use trine_compat_tests::ptx::{Fault, Kind, Module, Schedule};
use trine_cuda::fast::{self, Plan};
use trine_cuda::pack::sparse;
use trine_cuda::ptx::SPARSE;

use super::halves::{launched, scales_and_acts, words};
use super::mistakes::{shows, with_mistake};
use super::product::{assert_same, dwords, module};

/// A product of codes -8 to 7, two of four of which are not zero, with scales and activations in half precision.
#[derive(Clone)]
struct Product {
    /// Along k.
    rows: usize,
    columns: usize,
    tokens: usize,
    group: usize,
    /// `[row][column]`
    codes: Vec<i8>,
    /// `[group][column]`
    scale: Vec<f16>,
    /// `[token][row]`
    acts: Vec<f16>,
}

impl Product {
    /// Random places and codes, the least one among them; some groups have one code and some none.
    fn random((rows, columns, tokens): (usize, usize, usize), group: usize, seed: u64) -> Product {
        let mut rng = Rng::new(seed);
        let mut codes = vec![0i8; rows * columns];
        for row in (0..rows).step_by(4) {
            for column in 0..columns {
                for _ in 0..rng.below(4).min(2) {
                    let at = (row + rng.below(4)) * columns + column;
                    codes[at] = rng.below(16) as i8 - 8;
                }
            }
        }
        let groups = rows.div_ceil(group);
        let (scale, acts) = scales_and_acts(&mut rng, groups * columns, tokens * rows);
        Product { rows, columns, tokens, group, codes, scale, acts }
    }

    fn first(&self, tokens: usize) -> Product {
        let mut first = self.clone();
        first.tokens = tokens;
        first.acts.truncate(tokens * self.rows);
        first
    }

    fn plan(&self) -> Plan {
        let shape = (self.rows, self.columns, self.tokens);
        fast::sparse_product(self.group, shape).expect("a plan")
    }

    fn scale_of(&self, row: usize, column: usize) -> f32 {
        self.scale[row / self.group * self.columns + column].to_f32()
    }

    /// The contribution of a weight in double precision, without its scale.
    fn term(&self, token: usize, row: usize, column: usize) -> f64 {
        self.acts[token * self.rows + row].to_f64() * f64::from(self.codes[row * self.columns + column])
    }

    fn each(&self, f: impl Fn(usize, usize) -> f32) -> Vec<f32> {
        let tokens = 0..self.tokens;
        let places = tokens.flat_map(|token| (0..self.columns).map(move |column| (token, column)));
        places.map(|(token, column)| f(token, column)).collect()
    }

    /// The sums in the order that the kernels promise, tiles as the emulator's tensor cores add them: in double
    /// precision, rounded once.
    fn in_order(&self) -> Vec<f32> {
        let tiles = self.rows / 32;
        let slices = fast::sparse_slices(self.rows, self.columns);
        self.each(|token, column| {
            let slice = |slice: usize| {
                let mut warps = [0.0f32; 8];
                let first = slice * tiles / slices;
                for tile in first..(slice + 1) * tiles / slices {
                    let rows = 32 * tile..32 * tile + 32;
                    let sum: f64 = rows.map(|row| self.term(token, row, column)).sum();
                    let warp = &mut warps[(tile - first) % 8];
                    *warp = (sum as f32).mul_add(self.scale_of(32 * tile, column), *warp);
                }
                let [first, rest @ ..] = warps;
                rest.iter().fold(first, |sum, warp| sum + warp)
            };
            (1..slices).fold(slice(0), |sum, next| sum + slice(next))
        })
    }

    /// The product in double precision.
    fn exact(&self) -> Vec<f32> {
        self.each(|token, column| {
            let rows = 0..self.rows;
            let scaled = |row| self.term(token, row, column) * f64::from(self.scale_of(row, column));
            rows.map(scaled).sum::<f64>() as f32
        })
    }

    fn run_in(&self, module: &Module, schedule: Schedule) -> Result<Vec<f32>, Fault> {
        let plan = self.plan();
        let packed = sparse::pack(&self.codes, self.rows, self.columns).expect("a layout");
        let inputs = [
            dwords(&packed.values),
            words(packed.metadata.iter().copied()),
            words(self.scale.iter().map(|s| s.to_bits())),
            words(self.acts.iter().map(|a| a.to_bits())),
        ];
        let shape = (self.rows, self.columns, self.tokens);
        Ok(launched(module, &plan, inputs, shape, schedule)?.0)
    }

    #[track_caller]
    fn run(&self, schedule: Schedule) -> Vec<f32> {
        let run = self.run_in(module("sparse"), schedule);
        run.unwrap_or_else(|e| panic!("{e}"))
    }
}

#[test]
fn products_are_those_of_the_order_that_is_promised() {
    for (i, (shape, group)) in
        [((32, 64, 1), 32), ((256, 64, 8), 128), ((1056, 128, 9), 32), ((544, 192, 33), 544), ((1280, 64, 17), 256)]
            .into_iter()
            .enumerate()
    {
        let product = Product::random(shape, group, i as u64);
        let expected = product.in_order();
        for schedule in [Schedule::Random(i as u64), Schedule::Last(1)] {
            assert_same(&product.run(schedule), &expected, &format!("{shape:?} in groups of {group}"));
        }
        let exact = product.exact();
        let size = exact.iter().map(|x| x.abs()).sum::<f32>();
        let off = expected.iter().zip(&exact).map(|(a, b)| (a - b).abs()).sum::<f32>();
        assert!(off <= 1e-6 * size, "{shape:?}: {off} of {size}");
    }
}

#[test]
fn the_bits_of_a_token_are_the_same_beside_any_others() {
    let all = Product::random((1056, 128, 65), 64, 7);
    assert!(all.plan().tickets > 0, "slices meet");
    let expected = all.run(Schedule::InTurn);
    for tokens in [1, 8, 9, 16, 17, 33] {
        let found = all.first(tokens).run(Schedule::Random(tokens as u64));
        assert_same(&found, &expected[..tokens * 128], &format!("{tokens} tokens"));
    }
}

#[test]
fn mistakes_are_found() {
    let product = Product::random((1056, 64, 9), 32, 5);
    let expected = product.in_order();
    let kernel = product.plan().launch.kernel;
    let of = |change: &dyn Fn(&str) -> String| {
        let module = with_mistake(SPARSE, &kernel, change);
        shows(&expected, |schedule| product.run_in(&module, schedule))
    };
    let selector = of(&|text| {
        let (first, rest) = text.split_once("mma.sp").expect("a product");
        let (product, rest) = rest.split_once(", 0;").expect("the first selector");
        format!("{first}mma.sp{product}, 1;{rest}")
    });
    assert_eq!(selector, Some(None), "another selector");
    let barrier = of(&|text| text.replacen("bar.sync", "// ", 2));
    assert!(matches!(barrier, Some(Some(Kind::Race | Kind::Uninitialised))), "no barrier: {barrier:?}");
    let fence = of(&|text| text.replacen("fence.acq_rel.gpu;", "", 1));
    assert_eq!(fence, Some(Some(Kind::Race)), "no fence before the ticket");
}

#[test]
fn shapes_that_are_no_whole_tiles_are_refused() {
    for (group, shape) in [(32, (33, 64, 1)), (32, (32, 65, 1)), (0, (32, 64, 1)), (48, (96, 64, 1)), (32, (0, 64, 1))]
    {
        assert!(fast::sparse_product(group, shape).is_err(), "{group} {shape:?}");
    }
}
