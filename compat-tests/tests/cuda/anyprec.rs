//! Any-precision models on the emulated GPU: at every width of a file their logits are those of the CPU.

use std::sync::Arc;

use trine::NumberPath;
use trine::exec::{Gpu, Offload};
use trine::model::{LoadOptions, Weights};
use trine::pool::Pool;
use trine::quant::anyprec::outliers::{Rule, Shares};
use trine::step::{Session, SessionOptions};
use trine_compat_tests::models::TRILM;
use trine_compat_tests::ptx::{Emulated, Schedule};
use trine_cuda::run::{Host, Shared};
use trine_formats::anyprec::AnyPrec;
use trine_formats::gguf::ModelFile;
use trine_testkit::{is_long, sha256};

use super::archs::{made_as, made_with};
use super::model::file;

/// The model with its last `layers` layers on a GPU.
fn load(file: &ModelFile, layers: usize, number_path: NumberPath, schedule: Schedule) -> Weights {
    let mut device = Emulated::new().expect("PTX");
    device.schedule = schedule;
    let gpu = Offload::one(Arc::new(Shared::new(device)), layers);
    let options = LoadOptions { offload: (layers > 0).then_some(gpu), number_path, ..LoadOptions::default() };
    let model = Weights::load(file, &options).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(model.is_offloaded(), layers > 0);
    model
}

/// Hashes of the logits of some tokens at each of some widths, one after the other with the same weights, of which the
/// first tokens are a pass of their own.
pub fn hashes(model: &Weights, tokens: &[u32], widths: &[u8]) -> Vec<String> {
    let pool = Pool::new(1).expect("a thread");
    let mut all = Vec::new();
    let mut session = Session::new(model, &pool, SessionOptions { n_ctx: 32, n_ubatch: 16 });
    for &bits in widths {
        session.truncate(0);
        session.set_bits(bits).expect("a width of the file");
        for part in [&tokens[..tokens.len() / 2], &tokens[tokens.len() / 2..]] {
            let done = session.eval(part, 0, &mut |_, row| {
                let bytes: Vec<u8> = row.iter().flat_map(|x| x.to_le_bytes()).collect();
                all.push(sha256(&bytes));
            });
            done.unwrap_or_else(|e| panic!("{e}"));
        }
    }
    all
}

/// Compares the hashes of a file at its widths, with each of some numbers of layers on the GPU.
fn check(file: &ModelFile, tokens: &[u32], widths: &[u8], paths: &[NumberPath], cuts: &[usize]) {
    for &path in paths {
        let expected = hashes(&load(file, 0, path, Schedule::InTurn), tokens, widths);
        for &layers in cuts {
            let found = hashes(&load(file, layers, path, Schedule::Random(3)), tokens, widths);
            assert_eq!(found, expected, "{path:?}, {layers} layers on the GPU");
        }
        // Every width is a model of its own.
        let of_width = expected.len() / widths.len();
        let firsts: std::collections::BTreeSet<_> = expected.iter().step_by(of_width).collect();
        assert_eq!(firsts.len(), widths.len());
    }
}

const ALL: usize = usize::MAX;
const PATHS: [NumberPath; 2] = [NumberPath::I16, NumberPath::F32];

/// Tokens of a vocabulary of 128.
pub fn tokens(count: usize) -> Vec<u32> {
    (0..count as u32).map(|i| (i * 37 + 3) % 128).collect()
}

#[test]
fn every_width_of_a_file_has_the_bits_of_the_cpu() {
    let (_, file) = made_as("llama-dense.txt", "AP3-8").expect("a model");
    let cuts: &[usize] = if is_long() { &[ALL, 1, 2] } else { &[ALL] };
    check(&file, &tokens(3), &[3, 8, 4, 7, 5, 6], &[NumberPath::I16], cuts);
    check(&file, &tokens(2), &[5, 3], &[NumberPath::F32], cuts);
    // Nineteen tokens are more than one launch takes at a time.
    check(&file, &tokens(19), &[6, 3], &[NumberPath::I16], &[2]);
}

/// Bytes of the matrices of any-precision weights at some widths, as docs/cuda.md describes them: planes of dwords for
/// two rows and 512 columns each, and of each width the tables and the scales of the rows.
fn bytes(file: &ModelFile, widths: &[u8]) -> u64 {
    let described = AnyPrec::read(file).expect("a description").expect("any-precision weights");
    let planes = u64::from(*widths.iter().max().expect("a width"));
    let matrices = described.tensors().iter().map(|t| {
        let plane = t.rows.div_ceil(2) * t.columns.div_ceil(512) * 32 * 4;
        let of_width = widths.iter().map(|width| t.rows * ((t.groups * 2) << width) + t.rows * 4);
        planes * plane as u64 + of_width.sum::<usize>() as u64
    });
    matrices.sum()
}

#[test]
fn a_gpu_has_the_planes_of_the_widths_that_are_asked_for() {
    let (_, file) = made_as("llama-dense.txt", "AP3-8").expect("a model");
    let loaded = |widths: &[u8]| {
        let host: Arc<dyn Host> = Arc::new(Shared::new(Emulated::new().expect("PTX")));
        let gpu = Gpu { name: "the GPU".to_owned(), host: host.clone() };
        let gpus = Offload::among(vec![gpu], &[], ALL).expect("a GPU");
        let offload = Some(Offload { widths: widths.to_vec(), ..gpus });
        let model = Weights::load(&file, &LoadOptions { offload, ..LoadOptions::default() }).expect("a model");
        (model, host)
    };
    let free = Emulated::new().expect("PTX").free;
    let run = |widths: &[u8], at: &[u8]| {
        let (model, host) = loaded(widths);
        let hashes = hashes(&model, &tokens(3), at);
        (hashes, free - host.free_memory().expect("its memory"))
    };
    let all = [3, 4, 5, 6, 7, 8];
    let (expected, whole) = run(&[], &all);
    for widths in [&[4][..], &[8, 3], &[3, 5]] {
        let (found, taken) = run(widths, widths);
        let of_width = |width: &u8| &expected[3 * usize::from(width - 3)..][..3];
        assert_eq!(found, widths.iter().map(of_width).collect::<Vec<_>>().concat(), "{widths:?}");
        assert_eq!(whole - taken, bytes(&file, &all) - bytes(&file, widths), "{widths:?}");
    }
    let (model, _) = loaded(&[5, 3]);
    assert_eq!(model.widths(), [3, 5]);
    let refused = model.check_width(4).expect_err("it is not there").to_string();
    assert_eq!(refused, "the GPU was given the weights for 3, 5 bits and not those for 4");
    // Widths that the file does not have are refused as they are without a GPU.
    let (model, _) = loaded(&[2]);
    assert_eq!(model.widths(), all);
    let refused = model.check_width(2).expect_err("it is not there").to_string();
    assert!(refused.contains("it has 3, 4, 5, 6, 7 and 8"), "{refused}");
}

#[test]
fn biases_and_sparse_weights() {
    let mut recipe = trine::Recipe::new(trine::Target::parse("SQ4").expect("a type"));
    recipe.anyprec.outliers = Some(Shares::default_of(Rule::SqueezeLlm));
    let file = made_with("qwen2-dense.txt", &recipe);
    let sparse = file.tensors().filter(|t| t.name.ends_with(".ap.sp_val")).count();
    assert!(sparse > 0, "no weight is stored as it is");
    check(&file, &tokens(3), &[4], &PATHS, &[ALL]);
}

#[test]
fn a_bundled_model() {
    let file = file(TRILM, "AP3-4");
    let cuts: &[usize] = if is_long() { &[ALL, 1, 3] } else { &[ALL] };
    let expected = hashes(&load(&file, 0, NumberPath::I16, Schedule::InTurn), &[1, 437], &[3, 4]);
    for &layers in cuts {
        let found = hashes(&load(&file, layers, NumberPath::I16, Schedule::Last(0)), &[1, 437], &[3, 4]);
        assert_eq!(found, expected, "{layers} layers on the GPU");
    }
}
