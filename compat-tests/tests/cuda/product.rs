//! A matrix product: weights and activations in the bytes of their types, what the definition makes of them, and what
//! the emulator makes of the plan's kernels.

use trine_compat_tests::inputs::Rng;
use trine_compat_tests::ptx::{Argument, Device, Fault, Launch, Module, Report, Schedule, checked_in};
use trine_cuda::pack::activations::{self, Activations};
use trine_cuda::pack::rows::{self, TiledRows};
use trine_cuda::plan::{self, Plan, Split};
use trine_formats::types::TypeId;

/// The checked-in module of a name.
pub fn module(name: &str) -> &'static Module {
    checked_in(name).expect("PTX")
}

/// A product of weights with block scales.
#[derive(Clone, Debug)]
pub struct Product {
    pub ty: TypeId,
    pub rows: usize,
    pub columns: usize,
    pub tokens: usize,
    /// The tensor, as a file has it.
    pub weights: Vec<u8>,
    /// Encoded activation rows.
    pub acts: Vec<u8>,
}

impl Product {
    /// A product of random bytes, which make codes and scales of all kinds, NaN and infinities too.
    pub fn random(ty: TypeId, rows: usize, columns: usize, tokens: usize, seed: u64) -> Product {
        let mut rng = Rng::new(seed);
        let bytes = |ty: TypeId| {
            let info = ty.info().expect("a type");
            info.row_bytes(columns as u64).expect("whole blocks") as usize
        };
        let weights = rng.bytes(rows * bytes(ty));
        let acts = rng.bytes(tokens * bytes(Self::act(ty)));
        Product { ty, rows, columns, tokens, weights, acts }
    }

    /// A product of encoded floats around one, so that sums are numbers.
    pub fn usual(ty: TypeId, rows: usize, columns: usize, tokens: usize, seed: u64) -> Product {
        let mut product = Product::random(ty, rows, columns, tokens, seed);
        let mut rng = Rng::new(!seed);
        let mut encode = |ty: TypeId, out: &mut [u8], count: usize| {
            let info = ty.info().expect("a type");
            for row in out.chunks_exact_mut(out.len() / count) {
                let x: Vec<f32> = (0..columns).map(|_| 2.0 * rng.unit() - 1.0).collect();
                info.encode.expect("an encoder")(&x, None, row);
            }
        };
        encode(ty, &mut product.weights, rows);
        encode(Self::act(ty), &mut product.acts, tokens);
        product
    }

    fn act(ty: TypeId) -> TypeId {
        ty.info().and_then(|info| info.act).expect("a type of activations")
    }

    /// Outputs by the definition, `[token][row]`.
    pub fn expected(&self) -> Vec<f32> {
        let dot = self.ty.info().and_then(|info| info.dot_ref).expect("a definition");
        let weights = self.weights.chunks_exact(self.weights.len() / self.rows);
        let acts = self.acts.chunks_exact(self.acts.len() / self.tokens);
        acts.flat_map(|x| weights.clone().map(move |w| dot(w, x))).collect()
    }

    /// The plan that a device would have.
    pub fn plan(&self) -> Plan {
        plan::product(self.ty, self.rows, self.columns, self.tokens).expect("a plan")
    }

    /// A plan with columns shared in another way, by the kernels for few tokens or those for many.
    pub fn plan_as(&self, warps: usize, parts: usize, few: bool) -> Plan {
        let shape = (self.rows, self.columns, self.tokens);
        plan::product_as(self.ty, shape, Split { warps, parts }, few).expect("a plan")
    }

    fn packed(&self) -> (TiledRows, Activations) {
        let rows = rows::blocks(self.ty, &self.weights, self.rows, self.columns).expect("rows");
        let acts = activations::encoded(Self::act(self.ty), &self.acts, self.tokens, self.columns);
        (rows, acts.expect("activations"))
    }

    /// Runs a plan. `product` is the module of its first kernel: the checked-in one, or one with a mistake.
    pub fn run_in(&self, product: &Module, plan: &Plan, schedule: Schedule) -> Result<(Vec<f32>, Report), Fault> {
        let (rows, acts) = self.packed();
        let mut device = Device::new();
        let scales = rows.scales.iter().flat_map(|s| s.to_le_bytes()).collect();
        let mut arguments =
            vec![Argument::Buffer(device.constant(dwords(&rows.codes))), Argument::Buffer(device.constant(scales))];
        arguments.extend(place(&mut device, &acts));
        let out = device.empty(4 * self.rows * self.tokens);
        let workspace = Argument::Buffer(device.empty(plan.workspace));
        arguments.push(Argument::Buffer(out));
        if plan.product.module.name == "decode" {
            arguments.push(workspace);
        }
        let [rows, columns, tokens] = [self.rows, self.columns, self.tokens].map(|n| Argument::U32(n as u32));
        arguments.extend([rows, columns, tokens]);
        let report = device.launch(product, &plan.product.kernel, &launch(&plan.product, &arguments, schedule))?;
        if let Some(add) = &plan.add {
            let block = self.ty.info().expect("a type").block;
            let blocks = Argument::U32((self.columns / block) as u32);
            let arguments = [workspace, Argument::Buffer(out), rows, tokens, blocks];
            device.launch(module(add.module.name), &add.kernel, &launch(add, &arguments, schedule))?;
        }
        Ok((device.floats(out), report))
    }

    /// Runs a plan with the checked-in kernels.
    pub fn run(&self, plan: &Plan, schedule: Schedule) -> (Vec<f32>, Report) {
        let done = self.run_in(module(plan.product.module.name), plan, schedule);
        done.unwrap_or_else(|e| panic!("{} {} x {} x {}: {e}", self.ty, self.rows, self.columns, self.tokens))
    }

    /// Runs a plan and compares with the definition.
    #[track_caller]
    pub fn check(&self, plan: &Plan, schedule: Schedule) -> Report {
        let (found, report) = self.run(plan, schedule);
        let what = format!("{} {} x {} x {}, {:?}", self.ty, self.rows, self.columns, self.tokens, plan.product);
        assert_same(&found, &self.expected(), &what);
        report
    }
}

/// Bytes of dwords.
pub fn dwords(all: &[u32]) -> Vec<u8> {
    all.iter().flat_map(|d| d.to_le_bytes()).collect()
}

/// Activations in buffers: quants, scales, sums.
pub fn place(device: &mut Device, acts: &Activations) -> [Argument; 3] {
    let scales = acts.scales.iter().flat_map(|s| s.to_le_bytes()).collect();
    let sums = acts.sums.iter().flat_map(|s| s.to_le_bytes()).collect();
    [dwords(&acts.quants), scales, sums].map(|bytes| Argument::Buffer(device.constant(bytes)))
}

/// A launch of a plan. Exchanged products and staged activations are read and written without conflicts.
pub fn launch<'a>(plan: &plan::Launch, arguments: &'a [Argument], schedule: Schedule) -> Launch<'a> {
    Launch {
        blocks: plan.blocks,
        threads: [plan.threads, 1, 1],
        shared: plan.shared,
        arguments,
        schedule,
        ..Launch::default()
    }
}

/// Compares bits; any NaN is as good as another.
#[track_caller]
pub fn assert_same(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let differ = |(f, e): (&f32, &f32)| f.to_bits() != e.to_bits() && !(f.is_nan() && e.is_nan());
    let pairs = || found.iter().zip(expected);
    if let Some(at) = pairs().position(differ) {
        let count = pairs().filter(|pair| differ(*pair)).count();
        panic!("{what}: {count} of {} differ, the first at {at}: {} is not {}", found.len(), found[at], expected[at]);
    }
}
