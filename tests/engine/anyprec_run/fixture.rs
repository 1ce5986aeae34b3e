//! A real model in any-precision form. The bundled one is ternary, which three bits hold exactly, so its weights are
//! first moved by a little.

use std::path::PathBuf;
use std::sync::OnceLock;

use trine::Isa;
use trine::model::{LoadOptions, NumberPath, Weights};
use trine::pool::Pool;
use trine::quant::anyprec::is_block_matrix;
use trine::quant::anyprec::outliers::{Rule, Shares};
use trine::quant::{Plan, Recipe, RunOptions, Target, run};
use trine::step::{Session, SessionOptions};
use trine_formats::anyprec::{AnyPrec, Part};
use trine_formats::gguf::write::NewTensor;
use trine_formats::gguf::{Limits, ModelFile};
use trine_formats::types::TypeId;
use trine_testkit::gguf;

use crate::common;

pub const WIDTHS: [u8; 3] = [3, 4, 6];

/// The same numbers everywhere, about normal.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f32 {
        let mut sum = 0.0;
        for _ in 0..4 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            sum += (self.0 >> 40) as f32 / (1u64 << 24) as f32 - 0.5;
        }
        sum
    }
}

/// The bundled model with noise in the matrices of its blocks.
fn noisy() -> Vec<u8> {
    let model = common::trilm();
    let mut noise = Noise(1);
    let mut tensors = Vec::new();
    for info in model.tensors() {
        let mut data = model.tensor(&info.name).expect("it is there").data.to_vec();
        if is_block_matrix(&info.name, &info.shape) {
            let ty = info.ty.info().expect("a known type");
            let mut weights = vec![0.0; info.elements() as usize];
            ty.decode.expect("can be decoded")(&data, &mut weights);
            let scale = weights.iter().fold(0.0f32, |max, w| max.max(w.abs()));
            weights.iter_mut().for_each(|w| *w += 0.35 * scale * noise.next());
            ty.encode.expect("can be encoded")(&weights, None, &mut data);
        }
        tensors.push((NewTensor::from(info), data));
    }
    gguf::bytes(model.meta(), &tensors)
}

/// The any-precision file, and two of what each width of it is.
pub struct Files {
    pub whole: Vec<u8>,
    /// One width as a file of its own.
    pub single: Vec<Vec<u8>>,
    /// Its weights in single precision.
    pub plain: Vec<Vec<u8>>,
}

pub fn files() -> &'static Files {
    static FILES: OnceLock<Files> = OnceLock::new();
    FILES.get_or_init(|| {
        let dir = tempfile::tempdir().expect("a folder");
        let [source, whole] = ["source.gguf", "whole.gguf"].map(|name| dir.path().join(name));
        std::fs::write(&source, noisy()).expect("room");
        let mut recipe = Recipe::new(Target::parse("AP3-6").expect("a target"));
        recipe.anyprec.widths = Some(WIDTHS.to_vec());
        recipe.anyprec.outliers = Some(Shares::default_of(Rule::AnyPrecision));
        let make = |from: &std::path::Path, recipe: &Recipe, out: &std::path::Path| {
            let model = open(from);
            let mut plan = Plan::new(&model, recipe).expect("a plan");
            let options = RunOptions { threads: 2, ..RunOptions::default() };
            run(&model, &mut plan, out, options, &mut ()).expect("a file");
        };
        make(&source, &recipe, &whole);
        let model = open(&whole);
        let single = WIDTHS.map(|width| {
            let out = dir.path().join(format!("{width}.gguf"));
            make(&whole, &Recipe::new(Target::Width(width)), &out);
            std::fs::read(out).expect("it was written")
        });
        Files {
            plain: WIDTHS.map(|width| plain(&model, width)).to_vec(),
            whole: std::fs::read(whole).expect("it was written"),
            single: single.to_vec(),
        }
    })
}

/// The weights of a width as F32, and everything else as it is.
fn plain(model: &ModelFile, width: u8) -> Vec<u8> {
    let anyprec = AnyPrec::read(model).expect("valid").expect("any-precision");
    let mut tensors: Vec<(NewTensor, Vec<u8>)> = model
        .tensors()
        .filter(|t| !t.name.contains(Part::INFIX))
        .map(|t| {
            let data = model.tensor(&t.name).expect("it is there").data;
            (NewTensor::from(t), data.to_vec())
        })
        .collect();
    for t in anyprec.tensors() {
        let view = anyprec.view(model, &t.name, width).expect("a view");
        let shape = [t.columns as u64, t.rows as u64];
        let rows = (0..t.rows).flat_map(|r| view.row(r));
        let data = rows.flat_map(f32::to_le_bytes).collect();
        tensors.push((NewTensor::new(t.name.clone(), shape, TypeId::F32), data));
    }
    let mut meta = model.meta().clone();
    let keys: Vec<String> = meta.iter().map(|(k, _)| k.to_owned()).collect();
    for key in keys.iter().filter(|k| k.starts_with("anyprec.")) {
        meta.remove(key);
    }
    gguf::bytes(&meta, &tensors)
}

/// The any-precision file of [`WIDTHS`] with other options.
pub fn made(change: impl Fn(&mut Recipe)) -> Vec<u8> {
    let mut recipe = Recipe::new(Target::parse("AP3-6").expect("a target"));
    recipe.anyprec.widths = Some(WIDTHS.to_vec());
    change(&mut recipe);
    quantized(&noisy(), &recipe)
}

/// One width of an any-precision file.
pub fn width_of(whole: &[u8], width: u8) -> Vec<u8> {
    quantized(whole, &Recipe::new(Target::Width(width)))
}

fn quantized(from: &[u8], recipe: &Recipe) -> Vec<u8> {
    let dir = tempfile::tempdir().expect("a folder");
    let [source, out] = ["source.gguf", "out.gguf"].map(|name| dir.path().join(name));
    std::fs::write(&source, from).expect("room");
    let model = open(&source);
    let mut plan = Plan::new(&model, recipe).expect("a plan");
    let options = RunOptions { threads: 2, ..RunOptions::default() };
    run(&model, &mut plan, &out, options, &mut ()).expect("a file");
    std::fs::read(out).expect("it was written")
}

fn open(path: &std::path::Path) -> ModelFile {
    let bytes = std::fs::read(path).expect("it was written");
    file(bytes, path.to_owned())
}

fn file(bytes: Vec<u8>, path: PathBuf) -> ModelFile {
    let limits = Limits { partial: true, ..Limits::default() };
    gguf::model_at(path, bytes, &limits)
}

/// A file in memory, which may end early.
pub fn model_file(bytes: Vec<u8>) -> ModelFile {
    file(bytes, PathBuf::new())
}

pub fn options(path: NumberPath) -> LoadOptions {
    LoadOptions { isa: Isa::detect(), number_path: path, ..LoadOptions::default() }
}

pub fn whole(path: NumberPath) -> Weights {
    Weights::load(&model_file(files().whole.clone()), &options(path)).expect("a model")
}

pub fn session(model: &Weights, bits: u8) -> Session {
    session_of(model, bits, 2)
}

/// A session on `threads` threads.
pub fn session_of(model: &Weights, bits: u8, threads: usize) -> Session {
    let options = SessionOptions { n_ctx: 512, n_ubatch: 512 };
    let mut session = Session::new(model, &Pool::new(threads).expect("threads"), options);
    session.set_bits(bits).expect("a width of the file");
    session
}

/// Tokens of a text, as good as any.
pub fn tokens(n: usize) -> Vec<u32> {
    let golden = common::golden("trilm-F16").tokens;
    golden.into_iter().cycle().take(n).collect()
}

/// Logits of all positions that `tokens` get, as bits.
pub fn logits(session: &mut Session, tokens: &[u32]) -> Vec<Vec<u32>> {
    let mut out = Vec::new();
    session
        .eval(tokens, 0, &mut |_, logits| {
            out.push(logits.iter().map(|l| l.to_bits()).collect());
        })
        .expect("room for the tokens");
    out
}
