//! Widths and drafts by way of the public face.

use trine::{
    Completion, Context, ContextOptions, DraftOptions, DraftSource, GenerateError, GenerateOptions, Model, OpenOptions,
    SamplerOptions,
};

use super::fixture::{files, model_file};

fn model() -> Model {
    let file = model_file(files().whole.clone());
    trine::open::load(file, &OpenOptions::default()).expect("a model")
}

fn options(seed: u32) -> GenerateOptions {
    GenerateOptions {
        max_tokens: Some(60),
        bits: Some(6),
        past_eos: true,
        sampler: SamplerOptions { seed, ..SamplerOptions::default() },
        ..GenerateOptions::default()
    }
}

fn at_three() -> DraftOptions {
    DraftOptions::of(DraftSource::Narrow(3))
}

fn text(context: &mut Context, options: &GenerateOptions) -> Completion {
    let generation = context.generate("The game was played", options);
    generation.expect("room").complete().expect("finite logits")
}

#[test]
fn drafts_change_no_text_and_leave_no_trace() {
    let model = model();
    let mut context = model.context(&ContextOptions::default());
    for seed in [1, 2] {
        let plain = text(&mut model.context(&ContextOptions::default()), &options(seed));
        let drafted =
            GenerateOptions { draft: Some(DraftOptions { most: 5, always: true, ..at_three() }), ..options(seed) };
        // twice in one context: the second finds the whole prompt there
        for _ in 0..2 {
            assert_eq!(text(&mut context, &drafted), plain);
        }
        let counts = context.drafts().expect("drafts").1.counts();
        assert!(counts.accepted > 0 && counts.rounds > 0, "{counts:?}");
        // and without drafts after one that was left in the middle of a draft
        let mut generation = context.generate("The game was played", &drafted).expect("room");
        assert_eq!(generation.by_ref().take(9).filter(Result::is_ok).count(), 9);
        drop(generation);
        assert_eq!(text(&mut context, &options(seed)), plain);
        assert!(context.drafts().is_none());
    }
}

#[test]
fn a_width_that_cannot_be_changes_nothing() {
    let model = model();
    let mut context = model.context(&ContextOptions::default());
    assert_eq!(context.bits(), Some(6), "the widest");
    let narrow = GenerateOptions { bits: Some(3), draft: Some(at_three()), ..options(1) };
    let refused = context.prepare(&narrow).expect_err("not narrower");
    assert!(matches!(refused, GenerateError::Drafts(_)), "{refused}");
    assert_eq!(context.bits(), Some(6));
    let absent = GenerateOptions { bits: Some(5), ..options(1) };
    let refused = context.prepare(&absent).expect_err("not in the file");
    assert!(matches!(refused, GenerateError::Width(_)), "{refused}");
    let four = GenerateOptions { bits: Some(4), draft: Some(at_three()), ..options(1) };
    context.prepare(&four).expect("widths of the file");
    assert_eq!(context.bits(), Some(4));
}
