//! Every model of the tests is rotated as its program says, computes what it did, and is rotated back.

use trine::arch::Activation::Gelu;
use trine::kv::CacheTypes;
use trine::model::{LoadOptions, Weights};
use trine::pool::Pool;
use trine::program::Op;
use trine::quant::rotate::Turn;
use trine::step::{Pooling, Session, SessionOptions};
use trine_formats::gguf::ModelFile;
use trine_formats::rotated::Rotated;
use trine_formats::types::TypeId;
use trine_testkit::gguf;

use crate::embed::{VECTORS, listing, pooled};
use crate::rotated::{TOKENS, distance};
use crate::turned::{SIGNS, header, rotate, rows, turned};
use crate::{MODELS, made};

const BLOCK: usize = 64;

/// The distance of outputs, which is what numbers of single precision lose.
const NEAR: f32 = 4e-6;

/// The same of models that round to half floats on their way, which a number next to a step does the other way: keys and
/// values of latent attention and of models without logits, and inputs of GELU, which is a table.
const NEAR_IN_HALVES: f32 = 2e-3;

/// The outputs of a model for some tokens, logits of all or their vector, and the distance of two models that differ by
/// rounding.
fn outputs(file: &ModelFile) -> (f32, Vec<f32>) {
    let cache = CacheTypes { keys: TypeId::F32, values: TypeId::F32 };
    let load = |cache| Weights::load(file, &LoadOptions { cache, ..LoadOptions::default() }).map_err(|e| e.to_string());
    let single = load(cache);
    let is_single = single.is_ok();
    let table = |op: &Op| matches!(op, Op::Activate(Gelu) | Op::Gate(Gelu) | Op::GatedProducts(_, Gelu));
    let model = single.or_else(|_| load(CacheTypes::default())).unwrap_or_else(|e| panic!("{e}"));
    let in_halves = !is_single || model.program().operations().iter().any(|operation| table(&operation.op));
    if !model.makes_logits() {
        return (NEAR_IN_HALVES, pooled(&model, Pooling::Mean, &[&TOKENS.to_vec()]).remove(0));
    }
    let pool = Pool::new(2).expect("threads");
    let mut session = Session::new(&model, &pool, SessionOptions { n_ctx: 64, n_ubatch: 512 });
    let mut out = Vec::new();
    session.eval(&TOKENS, 0, &mut |_, logits| out.extend_from_slice(logits)).expect("room for the tokens");
    // some models say of tokens with the least number that they never come
    out.iter_mut().filter(|v| **v < -1e30).for_each(|v| *v = 0.0);
    (if in_halves { NEAR_IN_HALVES } else { NEAR }, out)
}

/// The same, where the keys name but every other matrix: another model.
fn half_named(file: &ModelFile, keys: &Rotated) -> ModelFile {
    let mut keys = keys.clone();
    keys.weights = keys.weights.into_iter().step_by(2).collect();
    let mut meta = file.meta().clone();
    keys.write(&mut meta);
    let tensors = file.tensors().map(|t| (t.into(), file.tensor(&t.name).expect("its data").data.to_vec()));
    gguf::model(gguf::bytes(&meta, &tensors.collect::<Vec<_>>()))
}

/// The problem of a model that is rotated, if there is one.
fn difference(file: &ModelFile) -> Option<String> {
    let there = turned(file, rotate(BLOCK, SIGNS), None);
    let keys = Rotated::read(there.meta()).expect("keys").expect("some");
    let (most, plain) = outputs(file);
    let near = distance(&plain, &outputs(&there).1);
    let far = distance(&plain, &outputs(&half_named(&there, &keys)).1);
    let back = turned(&there, Turn::Unrotate, None);
    let apart =
        |name: &str| rows(file, name).iter().zip(rows(&back, name)).fold(0f32, |m, (a, b)| m.max((a - b).abs()));
    let apart = file.tensors().filter(|t| t.ty == TypeId::F32).map(|t| apart(&t.name)).fold(0f32, f32::max);
    let whole = header(&back) == header(file);
    let right = near < most && far > 10.0 * near && apart < 1e-6 && whole && keys.weights.len() > 1;
    let signs = keys.signs.as_ref().map_or(0, |signs| signs.len());
    (!right || signs == 0).then(|| {
        let matrices = keys.weights.len();
        format!("{near} away, {far} with half of {matrices} matrices; weights {apart} apart, the header {whole}")
    })
}

/// Asserts it of every fourth model, from the given one on; the short form takes a third of these.
#[track_caller]
fn check(part: usize) {
    let step = if trine_testkit::is_long() { 4 } else { 12 };
    let all = MODELS.iter().map(|name| (*name, made(name)));
    let all = all.chain(VECTORS.iter().map(|name| (*name, listing(name).file())));
    let turned = all.skip(part).step_by(step);
    let wrong = turned.filter_map(|(name, bytes)| Some(format!("{name}: {}", difference(&gguf::model(bytes))?)));
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_first_part_of_the_models_is_rotated() {
    check(0);
}

#[test]
fn a_second_part_of_the_models_is_rotated() {
    check(1);
}

#[test]
fn a_third_part_of_the_models_is_rotated() {
    check(2);
}

#[test]
fn a_fourth_part_of_the_models_is_rotated() {
    check(3);
}
