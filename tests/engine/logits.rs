//! The logits of whole models are the reference's, bit for bit, however they are computed.

use crate::common::{Run, bitnet, golden, hashes, trilm};
use trine::Isa;
use trine_kernels::testing::isas;

#[test]
fn llama_f16_equals_the_reference_at_every_position() {
    let golden = golden("trilm-F16");
    assert_eq!(hashes(&trilm(), &golden.tokens, Run::default()), golden.sha256);
}

#[test]
fn bitnet_f16_equals_the_reference_at_every_position() {
    let golden = golden("bitnet-F16");
    assert_eq!(hashes(&bitnet(), &golden.tokens, Run::default()), golden.sha256);
}

#[test]
fn no_instruction_set_thread_count_or_batch_changes_a_bit() {
    let golden = golden("trilm-F16");
    let file = trilm();
    let usual = Run::default();
    let runs = [
        Run { threads: 1, ..usual },
        Run { threads: 3, ..usual },
        Run { threads: 4, n_ubatch: 1, ..usual },
        Run { n_ubatch: 7, ..usual },
        Run { n_ubatch: 32, per_call: 33, ..usual },
        Run { per_call: 1, ..usual },
    ];
    let instruction_sets = isas().map(|isa| Run { isa, ..usual });
    for run in instruction_sets.chain(runs) {
        assert_eq!(hashes(&file, &golden.tokens, run), golden.sha256, "{run:?}");
    }
}

#[test]
fn a_truncated_session_goes_on_as_if_the_rest_had_never_been() {
    use trine::model::{LoadOptions, Weights};
    use trine::pool::Pool;
    use trine::step::{Session, SessionOptions};
    let golden = golden("trilm-F16");
    let model =
        Weights::load(&trilm(), &LoadOptions { isa: Isa::detect(), ..LoadOptions::default() }).expect("a model");
    let mut session = Session::new(&model, &Pool::new(1).expect("threads"), SessionOptions { n_ctx: 64, n_ubatch: 16 });
    let ignore = &mut |_: usize, _: &[f32]| {};
    session.eval(&golden.tokens[..20], 20, ignore).expect("room");
    session.eval(&[7; 30], 30, ignore).expect("room");
    session.truncate(20);
    let mut last = Vec::new();
    session.eval(&golden.tokens[20..30], 9, &mut |_, logits| last = logits.to_vec()).expect("room");
    let mut fresh = Vec::new();
    let mut other = Session::new(&model, &Pool::new(1).expect("threads"), SessionOptions { n_ctx: 64, n_ubatch: 512 });
    other.eval(&golden.tokens[..30], 29, &mut |_, logits| fresh = logits.to_vec()).expect("room");
    assert_eq!(
        last.iter().map(|v| v.to_bits()).collect::<Vec<_>>(),
        fresh.iter().map(|v| v.to_bits()).collect::<Vec<_>>()
    );
}

#[test]
fn what_does_not_fit_is_refused_before_anything_is_computed() {
    use trine::model::{LoadOptions, Weights};
    use trine::pool::Pool;
    use trine::step::{EvalError, Session, SessionOptions};
    let model =
        Weights::load(&trilm(), &LoadOptions { isa: Isa::detect(), ..LoadOptions::default() }).expect("a model");
    let mut session = Session::new(&model, &Pool::new(1).expect("threads"), SessionOptions { n_ctx: 4, n_ubatch: 512 });
    let ignore = &mut |_: usize, _: &[f32]| {};
    assert_eq!(session.eval(&[1; 5], 5, ignore), Err(EvalError::ContextFull { n_past: 0, new: 5, n_ctx: 4 }));
    assert_eq!(session.eval(&[1, 4096], 2, ignore), Err(EvalError::UnknownToken { id: 4096, index: 1, n_vocab: 4096 }));
    assert_eq!(session.n_past(), 0);
}
