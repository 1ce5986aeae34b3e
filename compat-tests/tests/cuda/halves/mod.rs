//! Kernels with activations in half precision: a product, what their order of sums says of it, and what the emulator
//! makes of it.

mod mistakes;
mod numbers;
mod products;

use half::f16;

use trine_compat_tests::inputs::Rng;
use trine_compat_tests::ptx::{Argument, Device, Fault, Launch, Module, Report, Schedule};
use trine_cuda::fast::{self, Plan, Scales, Weights};
use trine_cuda::pack::{self, marlin, trirun};

use super::product::{dwords, module};

/// Scales around 1/100 and activations around 1.
pub(super) fn scales_and_acts(rng: &mut Rng, scales: usize, acts: usize) -> (Vec<f16>, Vec<f16>) {
    let scale = (0..scales).map(|_| f16::from_f32(0.01 * (0.5 + rng.unit())));
    let scale = scale.collect();
    let acts = (0..acts).map(|_| f16::from_f32(rng.normal()));
    (scale, acts.collect())
}

/// The bytes of words.
pub(super) fn words(words: impl Iterator<Item = u16>) -> Vec<u8> {
    words.flat_map(u16::to_le_bytes).collect()
}

/// Runs a plan in a module over its inputs, and looks at the tickets afterwards.
pub(super) fn launched<const N: usize>(
    module: &Module,
    plan: &Plan,
    inputs: [Vec<u8>; N],
    (rows, columns, tokens): (usize, usize, usize),
    schedule: Schedule,
) -> Result<(Vec<f32>, Report), Fault> {
    let mut device = Device::new();
    let tickets = device.variable(vec![0; 4 * plan.tickets]);
    let out = device.empty(4 * columns * tokens);
    let mut arguments = inputs.map(|bytes| Argument::Buffer(device.constant(bytes))).to_vec();
    arguments.extend([
        Argument::Buffer(out),
        Argument::Buffer(device.empty(plan.workspace)),
        Argument::Buffer(tickets),
    ]);
    arguments.extend([rows, columns, tokens].map(|n| Argument::U32(n as u32)));
    arguments.extend(plan.group.map(Argument::U32));
    let launch = Launch {
        blocks: plan.launch.blocks,
        threads: [plan.launch.threads, 1, 1],
        shared: plan.launch.shared,
        arguments: &arguments,
        schedule,
        ..Launch::default()
    };
    let report = device.launch(module, &plan.launch.kernel, &launch)?;
    assert!(device.bytes(tickets).iter().all(|&b| b == 0), "a ticket is left");
    Ok((device.floats(out), report))
}

/// A product of integers with scales and activations in half precision.
#[derive(Clone, Debug)]
pub struct Product {
    weights: Weights,
    scales: Scales,
    /// Along k.
    rows: usize,
    columns: usize,
    tokens: usize,
    /// `[row][column]`
    codes: Vec<u8>,
    /// `[group][column]`
    scale: Vec<f16>,
    /// `[token][row]`
    acts: Vec<f16>,
}

impl Product {
    /// Random codes, all of them, scales around 1/100 and activations around 1.
    fn random(
        (weights, scales): (Weights, Scales),
        (rows, columns, tokens): (usize, usize, usize),
        seed: u64,
    ) -> Product {
        let mut rng = Rng::new(seed);
        let most = match weights {
            Weights::TwoBits => 4,
            Weights::FourBits => 16,
        };
        let groups = match scales {
            Scales::Columns => 1,
            Scales::Groups(of) => rows.div_ceil(of),
        };
        let codes = (0..rows * columns).map(|_| rng.below(most) as u8).collect();
        let (scale, acts) = scales_and_acts(&mut rng, groups * columns, tokens * rows);
        Product { weights, scales, rows, columns, tokens, codes, scale, acts }
    }

    /// The first tokens alone.
    fn first(&self, tokens: usize) -> Product {
        let mut first = self.clone();
        first.tokens = tokens;
        first.acts.truncate(tokens * self.rows);
        first
    }

    fn plan(&self) -> Plan {
        let shape = (self.rows, self.columns, self.tokens);
        fast::product(self.weights, self.scales, shape).expect("a plan")
    }

    /// The integer that a code stands for.
    fn weight(&self, row: usize, column: usize) -> f64 {
        let zero = match self.weights {
            Weights::TwoBits => 1.0,
            Weights::FourBits => 8.0,
        };
        f64::from(self.codes[row * self.columns + column]) - zero
    }

    fn scale_of(&self, row: usize, column: usize) -> f32 {
        let group = match self.scales {
            Scales::Columns => 0,
            Scales::Groups(rows) => row / rows,
        };
        self.scale[group * self.columns + column].to_f32()
    }

    fn act(&self, token: usize, row: usize) -> f64 {
        self.acts[token * self.rows + row].to_f64()
    }

    /// Sixteen products added to a sum as the emulator's tensor cores do it: in double precision, rounded once.
    fn sixteen(&self, sum: f32, row: usize, column: usize, token: usize) -> f32 {
        let rows = row..self.rows.min(row + 16);
        let add = |sum, k| sum + self.act(token, k) * self.weight(k, column);
        rows.fold(f64::from(sum), add) as f32
    }

    /// The sums in the order that the kernels promise: `[token][column]`.
    fn in_order(&self) -> Vec<f32> {
        let (tiles, slices) = (self.rows.div_ceil(128), fast::slices(self.rows, self.columns));
        let grouped = self.scales != Scales::Columns;
        let output = |token: usize, column: usize| {
            let mut sum = 0.0;
            for slice in 0..slices {
                let mut along = [0.0f32; 4];
                for tile in slice * tiles / slices..(slice + 1) * tiles / slices {
                    for (i, sum) in along.iter_mut().enumerate() {
                        let row = 128 * tile + 32 * i;
                        let sixteens = |sum| {
                            let sum = self.sixteen(sum, row, column, token);
                            self.sixteen(sum, row + 16, column, token)
                        };
                        *sum = if !grouped {
                            sixteens(*sum)
                        } else if row < self.rows {
                            sixteens(0.0).mul_add(self.scale_of(row, column), *sum)
                        } else {
                            // There is no group behind the last one, and nothing to scale.
                            *sum
                        };
                    }
                }
                let [w0, w1, w2, w3] = along;
                let here = w0 + (w1 + (w2 + w3));
                sum = if slice == 0 { here } else { sum + here };
            }
            if grouped { sum } else { sum * self.scale_of(0, column) }
        };
        let tokens = 0..self.tokens;
        tokens
            .flat_map(|token| (0..self.columns).map(move |column| (token, column)))
            .map(|(token, column)| output(token, column))
            .collect()
    }

    /// The product in double precision.
    fn exact(&self) -> Vec<f64> {
        let output = |token: usize, column: usize| -> f64 {
            let product = |row| self.act(token, row) * self.weight(row, column) * f64::from(self.scale_of(row, column));
            (0..self.rows).map(product).sum()
        };
        let tokens = 0..self.tokens;
        tokens
            .flat_map(|token| (0..self.columns).map(move |column| (token, column)))
            .map(|(token, column)| output(token, column))
            .collect()
    }

    /// Runs the plan in a module, and looks at the tickets afterwards.
    fn run_in(&self, module: &Module, schedule: Schedule) -> Result<(Vec<f32>, Report), Fault> {
        let plan = self.plan();
        let (rows, columns) = (self.rows, self.columns);
        let codes = match self.weights {
            Weights::TwoBits => trirun::pack_pairs(&self.codes, rows, columns),
            Weights::FourBits => marlin::pack(&self.codes, rows, columns),
        };
        let scale: Vec<u16> = self.scale.iter().map(|s| s.to_bits()).collect();
        let scale = match self.scales {
            Scales::Columns => scale,
            Scales::Groups(_) => {
                let groups = scale.len() / columns;
                pack::fast::group_scales(&scale, groups, columns).expect("scales")
            }
        };
        let acts: Vec<u16> = self.acts.iter().map(|a| a.to_bits()).collect();
        let acts = pack::fast::activations(&acts, self.tokens, rows).expect("activations");
        let inputs = [dwords(&codes.expect("codes")), words(scale.into_iter()), words(acts.into_iter())];
        launched(module, &plan, inputs, (rows, columns, self.tokens), schedule)
    }

    /// Runs the checked-in kernel.
    #[track_caller]
    fn run(&self, schedule: Schedule) -> Vec<f32> {
        let run = self.run_in(module("half"), schedule);
        run.unwrap_or_else(|e| panic!("{e}")).0
    }
}
