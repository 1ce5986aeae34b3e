//! Whole models on the emulated GPU: their logits are those of the CPU, bit for bit.

use trine::model::{LoadOptions, Model};
use trine::{Recipe, Target};
use trine_compat_tests::models::{self, BITNET, TRILM};
use trine_compat_tests::ptx::{Emulated, Schedule};
use trine_cuda::program::Limits;
use trine_cuda::run::{RunError, Runner, Token};
use trine_testkit::{is_long, sha256};

/// A bundled model in a file type, its weights where the file has them unless they are to be packed.
fn load(name: &str, ty: &str, repack: bool) -> Model {
    let source = models::bundled(name).expect("a bundled model");
    let folder = trine_testkit::folder();
    let made = folder.path().join("made.gguf");
    let path = if ty == "F16" { &source } else { &made };
    if ty != "F16" {
        let file = trine::open_file(&source, true).expect("a model");
        let target = Target::parse(ty).expect("a file type");
        trine::quantize(&file, &Recipe::new(target), &made).expect("a smaller file");
    }
    // In memory, so that the folder can go.
    let file = trine_testkit::gguf::model(trine_testkit::read(path));
    let options = LoadOptions {
        repack,
        ..LoadOptions::default()
    };
    Model::load(&file, &options).expect("a model")
}

pub fn limits(tokens: usize) -> Limits {
    Limits {
        tokens,
        wanted: tokens,
        context: 16,
        sequences: 2,
    }
}

/// The hashes of the logits of every position, when the tokens come in passes of `passes`.
pub fn hashes(model: &Model, tokens: &[u32], passes: &[usize], schedule: Schedule) -> Vec<String> {
    let most = passes.iter().max().expect("a pass");
    let recorded = model.record(limits(*most)).expect("a program");
    let mut device = Emulated::new().expect("PTX");
    device.schedule = schedule;
    let mut runner = Runner::new(device, recorded.program, &recorded.weights).expect("memory");
    let angles = recorded.angles;
    let (mut all, mut rest) = (Vec::new(), tokens);
    for &pass in passes {
        let (now, later) = rest.split_at(pass);
        rest = later;
        // The second of two sequences, so that cells of the first are not taken for its own.
        let now: Vec<Token> = now.iter().map(|&id| Token { id, sequence: 1 }).collect();
        let wanted: Vec<usize> = (0..pass).collect();
        let logits = runner
            .pass(&now, &wanted, &|kind, position| angles.at(kind, position))
            .unwrap_or_else(|e| panic!("{e}"));
        let rows = logits.chunks_exact(model.n_vocab());
        all.extend(rows.map(|row| {
            let bytes: Vec<u8> = row.iter().flat_map(|x| x.to_le_bytes()).collect();
            sha256(&bytes)
        }));
    }
    assert_eq!(runner.positions(1), tokens.len());
    all
}

const TOKENS: [u32; 3] = [1, 437, 2025];

#[test]
fn logits_are_those_of_the_cpu() {
    for (name, ty) in [
        (TRILM, "TQ2_0"),
        (TRILM, "TQ1_0"),
        (TRILM, "Q8_0"),
        (TRILM, "Q4_0"),
        (TRILM, "F16"),
        (BITNET, "TQ2_0"),
        (BITNET, "I2_S"),
    ] {
        let model = load(name, ty, false);
        let expected = models::logits_sha256(&model, &TOKENS).expect("logits");
        // All at once, and one token after the other.
        let ways = [&[2, 1][..], &[1, 1, 1], &[3]];
        let ways = match (name, ty) {
            (TRILM, "TQ2_0") => &ways[..],
            _ if is_long() => &ways[..],
            _ => &ways[..1],
        };
        for passes in ways {
            let found = hashes(&model, &TOKENS, passes, Schedule::InTurn);
            assert_eq!(found, expected, "{name} as {ty} in passes of {passes:?}");
        }
    }
}

#[test]
fn the_order_of_warps_changes_nothing() {
    let model = load(TRILM, "TQ2_0", false);
    let expected = models::logits_sha256(&model, &TOKENS[..2]).expect("logits");
    for schedule in [Schedule::Random(1), Schedule::Random(2), Schedule::Last(0)] {
        let found = hashes(&model, &TOKENS[..2], &[2], schedule);
        assert_eq!(found, expected, "{schedule:?}");
    }
}

#[test]
fn two_sequences_of_one_pass_have_the_logits_of_each_by_itself() {
    let model = load(TRILM, "TQ2_0", false);
    let texts = [[5, 9, 300], [4000, 17, 2]];
    let expected = texts.map(|t| models::logits_sha256(&model, &t).expect("logits"));
    let recorded = model.record(limits(6)).expect("a program");
    let device = Emulated::new().expect("PTX");
    let mut runner = Runner::new(device, recorded.program, &recorded.weights).expect("memory");
    let angles = |kind: usize, position: usize| recorded.angles.at(kind, position);
    let token = |sequence: usize, at: usize| Token {
        id: texts[sequence][at],
        sequence,
    };
    // Their tokens in turn; then the last of both again, after it was forgotten.
    let all: Vec<Token> = (0..3).flat_map(|at| [token(0, at), token(1, at)]).collect();
    let rows: Vec<usize> = (0..6).collect();
    let logits = runner.pass(&all, &rows, &angles).expect("logits");
    let n = model.n_vocab();
    let hash = |row: &[f32]| {
        let bytes: Vec<u8> = row.iter().flat_map(|x| x.to_le_bytes()).collect();
        sha256(&bytes)
    };
    for (i, row) in logits.chunks_exact(n).enumerate() {
        assert_eq!(hash(row), expected[i % 2][i / 2], "row {i}");
    }
    (0..2).for_each(|sequence| runner.cut(sequence, 2));
    let last = [token(1, 2), token(0, 2)];
    let logits = runner.pass(&last, &[1], &angles).expect("logits");
    assert_eq!(hash(&logits), expected[0][2]);
}

#[test]
fn a_model_larger_than_the_memory_is_refused_before_anything_is_allocated() {
    let model = load(TRILM, "TQ2_0", false);
    let recorded = model.record(limits(3)).expect("a program");
    let needed = recorded.program.table().total();
    let mut device = Emulated::new().expect("PTX");
    device.free = needed - 1;
    let refused = Runner::new(device, recorded.program.clone(), &recorded.weights);
    let text = refused.expect_err("a refusal").to_string();
    assert!(text.contains(&format!("{needed} bytes")), "{text}");
    assert!(text.contains("(weights ") && !text.contains('\n'), "{text}");
    // With as much as it needs it runs, and takes no more than the table said.
    let mut device = Emulated::new().expect("PTX");
    device.free = needed;
    let runner = Runner::new(device, recorded.program, &recorded.weights).expect("memory");
    assert!(runner.device().allocated <= needed);
}

#[test]
fn passes_beyond_the_limits_are_refused_and_change_nothing() {
    let model = load(TRILM, "TQ2_0", false);
    let few_cells = Limits {
        context: 3,
        ..limits(2)
    };
    let recorded = model.record(few_cells).expect("a program");
    let device = Emulated::new().expect("PTX");
    let mut runner = Runner::new(device, recorded.program, &recorded.weights).expect("memory");
    let angles = |kind: usize, position: usize| recorded.angles.at(kind, position);
    let token = |id: u32, sequence: usize| Token { id, sequence };
    let few = [token(1, 0)];
    for (tokens, wanted, what) in [
        (&[token(1, 0); 3][..], &[0][..], "a pass of 3 tokens"),
        (&few, &[0, 0, 0], "3 rows of logits"),
        (&few, &[1], "logits of token 1"),
        (&few, &[], "with 0 rows"),
        (&[], &[], "a pass of 0"),
        (&[token(4096, 0)], &[0], "the vocabulary has 4096"),
        (&[token(1, 2)], &[0], "sequence 2"),
    ] {
        let refused = runner.pass(tokens, wanted, &angles).err();
        let text = refused.expect("a refusal").to_string();
        assert!(text.contains(what), "{text}");
        assert_eq!(runner.positions(0), 0);
    }
    let wrong = runner.pass(&few, &[0], &|_, _| Vec::new()).err();
    assert!(matches!(wrong, Some(RunError::Pass(_))), "{wrong:?}");
    // A sequence ends with its memory.
    for position in 0..3 {
        assert_eq!(runner.positions(0), position);
        runner.pass(&few, &[0], &angles).expect("logits");
    }
    let full = runner.pass(&few, &[0], &angles).err();
    assert!(full.is_some_and(|e| e.to_string().contains("all of its 3 positions")));
}

#[test]
fn what_has_no_kernel_is_refused_by_name() {
    // Weights in the layouts of the CPU.
    let packed = load(TRILM, "TQ2_0", true);
    let refused = packed.record(limits(1)).err();
    // A processor without packed layouts leaves them as they are.
    if let Some(refused) = refused {
        let text = refused.to_string();
        assert!(text.contains("load the model without packing"), "{text}");
    }
    let other = load(TRILM, "Q5_1", false);
    let text = other
        .record(limits(1))
        .err()
        .expect("a refusal")
        .to_string();
    assert!(text.contains("q5_1") && text.contains("blk.0."), "{text}");
}
