//! A matrix product: weights and activations in the bytes of their types, what the definition makes of them, and what
//! the emulator makes of the plan's kernels.

use trine_compat_tests::inputs::{Rng, tame};
use trine_compat_tests::ptx::{Argument, Device, Fault, Launch, Module, Report, Schedule, checked_in};
use trine_cuda::pack::activations::{self, Activations};
use trine_cuda::pack::rows::{self, TiledRows};
use trine_cuda::plan::{self, Plan, Split};
use trine_formats::types::{Part, TypeId, info};

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
        let mut acts = rng.bytes(tokens * bytes(Self::act(ty)));
        if Self::act(ty) == TypeId::Q8_K {
            // Definitions read the sums that stand beside the quants, kernels add them up.
            let (codes, sums) = (info::Q8_K.at(Part::Codes), info::Q8_K.at(Part::Sums));
            for block in acts.chunks_exact_mut(info::Q8_K.bytes) {
                for g in 0..16 {
                    let sum: i16 = block[codes + 16 * g..][..16].iter().map(|q| i16::from(*q as i8)).sum();
                    block[sums + 2 * g..][..2].copy_from_slice(&sum.to_le_bytes());
                }
            }
        }
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

    /// Takes infinities, NaN and numbers that make such out of the floats of the weights, and encodes activations around one.
    pub fn make_finite(&mut self, seed: u64) {
        let info = self.ty.info().expect("a type");
        let mut rng = Rng::new(!seed);
        let row = self.weights.len() / self.rows;
        for row in self.weights.chunks_exact_mut(row) {
            tame(info, row);
        }
        let act = Self::act(self.ty).info().expect("a type");
        let of_token = self.acts.len() / self.tokens;
        for row in self.acts.chunks_exact_mut(of_token) {
            let x: Vec<f32> = (0..self.columns).map(|_| 2.0 * rng.unit() - 1.0).collect();
            act.encode.expect("an encoder")(&x, None, row);
        }
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
        (rows, self.activations())
    }

    fn activations(&self) -> Activations {
        activations::encoded_for(self.ty, &self.acts, self.tokens, self.columns).expect("activations")
    }

    /// Runs a plan of a type that is integers, of `product` rows or, with a list, of chosen experts, whose matrices follow
    /// each other in the weights.
    pub fn run_integers(
        &self,
        product: &Module,
        plan: &plan::Launch,
        list: Option<(&[u32], usize)>,
        schedule: Schedule,
    ) -> Result<(Vec<f32>, Report), Fault> {
        let layout = plan::integers(self.ty).expect("a layout");
        let experts = self.weights.chunks_exact(self.weights.len() / self.experts());
        let packed = experts.map(|data| layout.pack(data, self.rows, self.columns).expect("weights"));
        let (mut codes, mut floats, mut groups) = (Vec::new(), Vec::new(), Vec::new());
        for one in packed {
            codes.extend(dwords(&one.codes));
            floats.extend(dwords(&one.floats));
            groups.extend(one.bytes);
        }
        groups.resize(groups.len().max(1), 0);
        let mut device = Device::new();
        let mut arguments = [codes, floats, groups].map(|bytes| Argument::Buffer(device.constant(bytes))).to_vec();
        arguments.extend(place(&mut device, &self.activations()));
        let places = list.map_or(self.tokens, |(_, places)| places);
        let out = device.empty(4 * self.rows * places);
        let few = plan.module.name == "integers";
        if few {
            let list = list.map_or(vec![0; 4], |(list, _)| dwords(list));
            arguments.push(Argument::Buffer(device.constant(list)));
        }
        arguments.push(Argument::Buffer(out));
        arguments.extend(layout.table().map(Argument::U32));
        arguments.extend(layout.factors().map(Argument::F32));
        let mut numbers = vec![layout.floats as usize, self.rows, self.columns];
        if plan.module.name != "integers_one" {
            numbers.push(self.tokens);
        }
        arguments.extend(numbers.into_iter().map(|n| Argument::U32(n as u32)));
        if few {
            let share = places / self.tokens;
            arguments.extend([share as u32, u32::from(list.is_some())].map(Argument::U32));
        }
        let report = device.launch(product, &plan.kernel, &launch(plan, &arguments, schedule))?;
        Ok((device.floats(out), report))
    }

    /// The matrices that follow each other in the weights.
    fn experts(&self) -> usize {
        let info = self.ty.info().expect("a type");
        self.weights.len() / self.rows / info.row_bytes(self.columns as u64).expect("whole blocks") as usize
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
