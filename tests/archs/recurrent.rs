//! Sequences of models with recurrent layers: a state is shared by forks until they part, and cannot be cut back.

use trine::model::{LoadOptions, Weights};
use trine::pool::Pool;
use trine::step::{
    Engine, Kind, PrefixTree, Segment, Sequence, Session, SessionOptions, Setting, StepError, StepOptions,
};
use trine::{CancelToken, Context, ContextOptions, DraftOptions, DraftSource, GenerateOptions, Isa, OpenOptions};

/// Models with a state of every kind.
const MODELS: &[&str] = &[
    "lfm2-dense",
    "jamba-dense",
    "mamba2-dense",
    "plamo2-dense",
    "qwen35-dense",
    "kimi-linear-moe",
    "deepseek4-long",
    "qwen4exp-long",
    "rwkv6-long",
    "arwkv7-long",
    "rwkv6qwen2-long",
    "rwkv7-long",
];

fn load(name: &str) -> Weights {
    let options = LoadOptions { isa: Isa::detect(), ..LoadOptions::default() };
    Weights::load(&trine_testkit::gguf::model(crate::made(name)), &options).expect("a model")
}

fn engine(model: &Weights) -> Engine {
    Engine::new(model, &Pool::new(2).expect("threads"), 64 << 20)
}

/// The bits of the logits of `tokens` after those of `seq`.
fn step(engine: &Engine, seq: &mut Sequence, tokens: &[u32]) -> Vec<u32> {
    let mut out = Vec::new();
    let segment = Segment { seq, tokens, logits_from: 0 };
    let sink = &mut |_: usize, _: usize, logits: &[f32]| {
        out.extend(logits.iter().map(|v| v.to_bits()));
    };
    let done = engine.step(&mut [segment], &StepOptions::default(), sink);
    done.expect("a step");
    out
}

#[test]
fn forks_go_on_by_themselves() {
    for name in MODELS {
        let engine = engine(&load(name));
        let (stem, ends) = ([5, 9, 70, 3, 3, 21], [[1u32, 2, 3], [90, 80, 70]]);
        let mut first = engine.sequence();
        step(&engine, &mut first, &stem);
        let mut second = first.fork(stem.len());
        assert_eq!(second.len(), stem.len());
        let got = [step(&engine, &mut first, &ends[0]), step(&engine, &mut second, &ends[1])];
        assert!(got[0] != got[1]);
        for (got, end) in got.iter().zip(&ends) {
            let mut alone = engine.sequence();
            step(&engine, &mut alone, &stem);
            assert!(step(&engine, &mut alone, end) == *got, "{name}");
        }
    }
}

#[test]
fn a_part_of_a_sequence_is_none() {
    let model = load("jamba-dense");
    assert!(model.is_recurrent());
    let engine = engine(&model);
    let tokens = [5, 9, 70, 3];
    let mut seq = engine.sequence();
    let expected = step(&engine, &mut seq, &tokens);
    assert_eq!((seq.fork(3).len(), seq.fork(9).len()), (0, 4));
    let kind = Kind { setting: Setting::default(), salt: String::new() };
    let mut tree = PrefixTree::new(engine.pages());
    tree.insert(&kind, &tokens, &seq);
    assert_eq!(tree.find(&kind, &tokens).len(), 0);
    assert_eq!(seq.truncate(4), 4);
    assert_eq!(seq.truncate(3), 0);
    assert!(seq.is_empty());
    assert!(step(&engine, &mut seq, &tokens) == expected);

    let options = SessionOptions { n_ctx: 64, n_ubatch: 512 };
    let mut session = Session::of_engine(&engine, options);
    let eval = |session: &mut Session| {
        let mut bits = Vec::new();
        let sink = &mut |_: usize, logits: &[f32]| bits.extend(logits.iter().map(|v| v.to_bits()));
        session.eval(&tokens, 0, sink).expect("room");
        bits
    };
    assert!(eval(&mut session) == expected);
    assert_eq!((session.truncate(2), session.n_past()), (0, 0));
    assert!(eval(&mut session) == expected);
}

#[test]
fn a_cancelled_step_leaves_the_state_as_it_was() {
    for name in MODELS {
        let engine = engine(&load(name));
        let (stem, rest) = ([5, 9, 70, 3], [1, 2, 3, 4, 5, 6]);
        let mut seq = engine.sequence();
        step(&engine, &mut seq, &stem);
        let mut other = seq.fork(stem.len());
        let expected = step(&engine, &mut other, &rest);
        let cancel = CancelToken::new();
        let options = StepOptions { n_ubatch: 2, cancel: Some(cancel.clone()), ..StepOptions::default() };
        let segment = Segment { seq: &mut seq, tokens: &rest, logits_from: 0 };
        let mut rows = 0;
        // the first pass is done when its logits are seen
        let sink = &mut |_: usize, _: usize, _: &[f32]| {
            rows += 1;
            cancel.cancel();
        };
        let done = engine.step(&mut [segment], &options, sink);
        assert_eq!(done, Err(StepError::Cancelled));
        assert_eq!((rows, seq.len()), (2, stem.len()));
        assert!(step(&engine, &mut seq, &rest) == expected, "{name}");
    }
}

#[test]
fn sequences_longer_than_an_indexer_chooses_are_refused() {
    let path = trine_testkit::testdata("archs/deepseek32-moe.txt");
    let text = std::fs::read_to_string(path).expect("a listing");
    let text = text.replace("indexer.top_k u32 131072", "indexer.top_k u32 5");
    let file = trine_testkit::archs::Listing::parse(&text).file();
    let options = LoadOptions::default();
    let model = Weights::load(&trine_testkit::gguf::model(file), &options).expect("a model");
    let engine = engine(&model);
    let mut seq = engine.sequence();
    step(&engine, &mut seq, &[1, 2, 3, 4, 5]);
    let segment = Segment { seq: &mut seq, tokens: &[6], logits_from: 0 };
    let sink = &mut |_: usize, _: usize, _: &[f32]| ();
    let done = engine.step(&mut [segment], &StepOptions::default(), sink);
    assert_eq!(done, Err(StepError::Chosen(5)));
}

#[test]
fn drafts_change_no_text_of_a_recurrent_model() {
    for name in MODELS {
        let model = trine::open::load(trine_testkit::gguf::model(crate::made(name)), &OpenOptions::default());
        let model = model.expect("a model");
        let prompt: Vec<u32> = [5, 9, 70, 3, 3, 21].repeat(3);
        let options = GenerateOptions { past_eos: true, ..GenerateOptions::greedy(60) };
        let context = || model.context(&ContextOptions { n_ctx: Some(128), ..ContextOptions::default() });
        let text = |context: &mut Context, options: &GenerateOptions| {
            let tokens = context.generate(&prompt[..], options).expect("room").complete();
            (tokens.expect("finite logits").tokens, context.logits().to_vec())
        };
        let plain = text(&mut context(), &options);
        for source in [DraftSource::Text, DraftSource::Model(model.clone())] {
            let draft = Some(DraftOptions { most: 5, always: true, ..DraftOptions::of(source.clone()) });
            let mut drafting = context();
            let drafted = GenerateOptions { draft, ..options.clone() };
            assert!(text(&mut drafting, &drafted) == plain, "{name}, {source:?}");
            let (_, speculator) = drafting.drafts().expect("drafts");
            assert!(speculator.counts().rounds > 0, "{name}, {source:?}");
            // What was evaluated ahead is not saved.
            let tokens: Vec<u32> = prompt.iter().chain(&plain.0).copied().collect();
            let mut saved = Vec::new();
            drafting.save("", &tokens, &mut saved).expect("room");
            let mut loaded = context();
            assert_eq!(loaded.load("", &mut &saved[..]).expect("the same model"), tokens);
            let more = loaded.generate(&tokens[..], &options).expect("room").complete().expect("finite logits").tokens;
            let fresh = context().generate(&tokens[..], &options).expect("room").complete();
            assert_eq!(more, fresh.expect("finite logits").tokens, "{name}");
        }
    }
}
