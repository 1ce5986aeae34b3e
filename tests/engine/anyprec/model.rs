//! Synthetic models, as files.

use std::path::Path;

use trine::quant::anyprec::{Clusters, Footprint, Report as ClusterReport, Sensitivity};
use trine::quant::{Plan, QuantError, Recipe, RunOptions, Target, run};
use trine_formats::gguf::write::NewTensor;
use trine_formats::gguf::{Limits, Metadata, ModelFile, Value};
use trine_formats::types::TypeId;
use trine_testkit::gguf;

/// A stream of numbers that is the same everywhere.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(2).wrapping_add(1))
    }

    /// Uniform in [0, 1).
    pub fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    /// About normal.
    pub fn normal(&mut self) -> f32 {
        let sum: f64 = (0..12).map(|_| self.uniform()).sum();
        (sum - 6.0) as f32
    }

    /// Weights of a matrix: normal, a few of them far out.
    pub fn weights(&mut self, n: usize) -> Vec<f32> {
        (0..n)
            .map(|_| {
                let far = if self.uniform() < 0.004 { 6.0 } else { 1.0 };
                0.02 * far * self.normal()
            })
            .collect()
    }

    /// Positive, over some decades.
    pub fn sensitivities(&mut self, n: usize) -> Vec<f32> {
        (0..n)
            .map(|_| {
                let x = self.uniform();
                (1e-6 * x * x * x + 1e-10) as f32
            })
            .collect()
    }
}

pub const EMBD: usize = 96;
pub const FF: usize = 160;
pub const HEADS: usize = 4;
pub const KV_HEADS: usize = 2;
pub const LAYERS: usize = 2;
const VOCAB: usize = 32;

/// Name, columns, rows of a block's matrices.
pub const MATRICES: [(&str, usize, usize); 7] = [
    ("attn_q", EMBD, EMBD),
    ("attn_k", EMBD, EMBD / 2),
    ("attn_v", EMBD, EMBD / 2),
    ("attn_output", EMBD, EMBD),
    ("ffn_gate", EMBD, FF),
    ("ffn_up", EMBD, FF),
    ("ffn_down", FF, EMBD),
];

pub fn metadata(arch: &str) -> Metadata {
    let mut meta = Metadata::default();
    meta.set("general.architecture", Value::str(arch));
    meta.set("general.file_type", Value::U32(1));
    meta.set(&format!("{arch}.attention.head_count"), Value::U32(HEADS as u32));
    meta.set(&format!("{arch}.attention.head_count_kv"), Value::U32(KV_HEADS as u32));
    meta
}

/// A model under construction.
pub struct Draft {
    pub meta: Metadata,
    pub tensors: Vec<(NewTensor, Vec<f32>)>,
}

/// Every matrix of a small model, with norms and an embedding, in several types.
pub fn draft() -> Draft {
    let mut random = Random::new(7);
    let mut tensors = vec![
        (NewTensor::new("token_embd.weight", [EMBD as u64, VOCAB as u64], TypeId::F16), random.weights(EMBD * VOCAB)),
        (NewTensor::new("output_norm.weight", [EMBD as u64], TypeId::F32), vec![1.0; EMBD]),
    ];
    for layer in 0..LAYERS {
        let name = format!("blk.{layer}.attn_norm.weight");
        let norm = NewTensor::new(name, [EMBD as u64], TypeId::F32);
        tensors.push((norm, vec![0.5; EMBD]));
        for (i, (kind, columns, rows)) in MATRICES.into_iter().enumerate() {
            let ty = [TypeId::F16, TypeId::F32, TypeId::BF16][(i + layer) % 3];
            let name = format!("blk.{layer}.{kind}.weight");
            let tensor = NewTensor::new(name, [columns as u64, rows as u64], ty);
            tensors.push((tensor, random.weights(columns * rows)));
        }
    }
    Draft { meta: metadata("llama"), tensors }
}

impl Draft {
    pub fn bytes(&self) -> Vec<u8> {
        let encoded = |(tensor, values): &(NewTensor, Vec<f32>)| {
            let info = tensor.ty.info().unwrap();
            let mut data = vec![0; info.row_bytes(values.len() as u64).unwrap() as usize];
            info.encode.unwrap()(values, None, &mut data);
            (tensor.clone(), data)
        };
        let tensors: Vec<_> = self.tensors.iter().map(encoded).collect();
        gguf::bytes(&self.meta, &tensors)
    }

    pub fn model(&self) -> ModelFile {
        parse(self.bytes(), false)
    }

    pub fn values(&mut self, name: &str) -> &mut Vec<f32> {
        let tensor = self.tensors.iter_mut().find(|t| t.0.name == name);
        &mut tensor.unwrap().1
    }
}

pub fn parse(bytes: Vec<u8>, partial: bool) -> ModelFile {
    let limits = Limits { partial, ..Limits::default() };
    gguf::model_at("/nonexistent/model.gguf".into(), bytes, &limits)
}

/// The weights of a tensor as they are in the file.
pub fn weights(model: &ModelFile, name: &str) -> Vec<f32> {
    let tensor = model.tensor(name).unwrap();
    let mut out = vec![0.0; tensor.info.elements() as usize];
    let decode = tensor.info.ty.info().unwrap().decode.unwrap();
    decode(&tensor.data, &mut out);
    out
}

pub fn recipe(target: &str) -> Recipe {
    Recipe::new(Target::parse(target).unwrap())
}

/// The sizes that are planned.
pub fn footprint(plan: &Plan) -> Footprint {
    plan.find::<Clusters>().unwrap().codes().footprint(plan).unwrap()
}

/// Quantizes into the file `out`; what was done, and the size of the file.
pub fn quantize(
    model: &ModelFile,
    recipe: &Recipe,
    sensitivity: &Sensitivity,
    out: &Path,
    threads: usize,
) -> (Plan, u64) {
    let mut plan = Plan::new(model, &with(recipe, sensitivity)).unwrap();
    let bytes = carry_out(model, &mut plan, out, threads).unwrap();
    (plan, bytes)
}

/// A recipe with other sensitivities.
pub fn with(recipe: &Recipe, sensitivity: &Sensitivity) -> Recipe {
    let mut recipe = recipe.clone();
    recipe.anyprec.sensitivity = sensitivity.clone();
    recipe
}

/// The work that was done.
pub fn report(plan: &Plan) -> &ClusterReport {
    plan.find::<Clusters>().and_then(Clusters::report).unwrap()
}

/// Makes the file of a plan; its size.
pub fn carry_out(model: &ModelFile, plan: &mut Plan, out: &Path, threads: usize) -> Result<u64, QuantError> {
    let options = RunOptions { threads, ..RunOptions::default() };
    run(model, plan, out, options, &mut ()).map(|report| report.file_bytes)
}

/// Takes one width out of a file; the size of the result.
pub fn extract(file: &ModelFile, width: u8, out: &Path) -> Result<u64, QuantError> {
    let mut plan = Plan::new(file, &Recipe::new(Target::Width(width)))?;
    carry_out(file, &mut plan, out, 0)
}
