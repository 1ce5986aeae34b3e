//! Drafts from the text itself and by a second model change no text.

use trine::{
    Completion, Context, ContextOptions, DraftOptions, DraftSource, GenerateOptions, Model, OpenOptions, SamplerOptions,
};
use trine_formats::gguf::write::NewTensor;
use trine_formats::gguf::{Array, ModelFile, Value};
use trine_testkit::gguf;

use super::model;

const PROMPT: &str = "The game was played in the summer . The game was played in";

fn options(seed: u32, temp: f32) -> GenerateOptions {
    GenerateOptions {
        max_tokens: Some(90),
        past_eos: true,
        sampler: SamplerOptions { seed, temp, ..SamplerOptions::default() },
        ..GenerateOptions::default()
    }
}

fn text(context: &mut Context, options: &GenerateOptions) -> Completion {
    context.generate(PROMPT, options).expect("room").complete().expect("finite logits")
}

/// The text is the one without drafts, greedy and sampled, in new contexts and used ones. The drafted and accepted
/// tokens of all texts.
fn compare(source: &DraftSource) -> (usize, usize) {
    let mut context = model().context(&ContextOptions::default());
    for (seed, temp) in [(1, 0.0), (2, 0.8), (3, 1.3)] {
        let plain = text(&mut model().context(&ContextOptions::default()), &options(seed, temp));
        let draft = DraftOptions { most: 7, always: true, ..DraftOptions::of(source.clone()) };
        let drafted = GenerateOptions { draft: Some(draft), ..options(seed, temp) };
        for _ in 0..2 {
            assert_eq!(text(&mut context, &drafted), plain, "seed {seed}");
        }
        // One that ends in the middle of a draft, and another without drafts in the same context.
        let mut generation = context.generate(PROMPT, &drafted).expect("room");
        assert_eq!(generation.by_ref().take(11).filter(Result::is_ok).count(), 11);
        drop(generation);
        assert_eq!(text(&mut context, &drafted), plain);
    }
    let (_, speculator) = context.drafts().expect("drafts");
    let counts = speculator.counts();
    (counts.drafted, counts.accepted)
}

#[test]
fn texts_draft_themselves() {
    let (drafted, accepted) = compare(&DraftSource::Text);
    assert!(accepted > 20 && accepted < drafted, "{accepted} of {drafted}");
}

#[test]
fn a_second_model_drafts() {
    let worse = open(changed(|name, data| {
        // Signs of some weights of the last block: another model, of the same vocabulary.
        if name.starts_with("blk.5.ffn") {
            data.chunks_exact_mut(14).for_each(|half| half[1] ^= 0x80);
        }
    }));
    let (drafted, accepted) = compare(&DraftSource::Model(worse));
    assert!(accepted > 20 && accepted < drafted, "{accepted} of {drafted}");
    // The model itself guesses all there is to guess.
    let (drafted, accepted) = compare(&DraftSource::Model(model().clone()));
    assert!(accepted * 10 > drafted * 8, "{accepted} of {drafted}");
}

/// The bundled model with its tokens numbered backwards, but for the first three, which steer.
fn backwards() -> ModelFile {
    let file = gguf::open(&super::testdata("models/trilm-wt-5.8m-F16.gguf"));
    let n = model().tokenizer().n_vocab();
    let place = |i: usize| if i < 3 { i } else { n + 2 - i };
    let mut meta = file.meta().clone();
    for key in ["tokens", "token_type"] {
        let key = format!("tokenizer.ggml.{key}");
        let turned = match meta.get(&key).cloned() {
            Some(Value::Array(Array::Str(all))) => {
                let texts: Vec<Vec<u8>> = all.iter().map(|text| text.to_vec()).collect();
                Array::Str((0..n).map(|i| texts[place(i)].clone()).collect())
            }
            Some(Value::Array(Array::I32(all))) => Array::I32((0..n).map(|i| all[place(i)]).collect()),
            other => panic!("{key}: {other:?}"),
        };
        meta.set(&key, Value::Array(turned));
    }
    let mut tensors = Vec::new();
    for info in file.tensors() {
        let mut data = file.tensor(&info.name).expect("it is there").data.to_vec();
        if ["token_embd.weight", "output.weight"].contains(&&*info.name) {
            let row = data.len() / n;
            data = (0..n).flat_map(|i| data[place(i) * row..][..row].to_vec()).collect();
        }
        tensors.push((NewTensor::from(info), data));
    }
    gguf::model(gguf::bytes(&meta, &tensors))
}

#[test]
fn tokens_of_another_vocabulary_are_found_by_their_bytes() {
    let (drafted, accepted) = compare(&DraftSource::Model(open(backwards())));
    assert!(accepted * 10 > drafted * 8, "{accepted} of {drafted}");
}

/// The bundled model with other bytes in its tensors.
fn changed(change: impl Fn(&str, &mut Vec<u8>)) -> ModelFile {
    let file = gguf::open(&super::testdata("models/trilm-wt-5.8m-F16.gguf"));
    let mut tensors = Vec::new();
    for info in file.tensors() {
        let mut data = file.tensor(&info.name).expect("it is there").data.to_vec();
        change(&info.name, &mut data);
        tensors.push((NewTensor::from(info), data));
    }
    gguf::model(gguf::bytes(file.meta(), &tensors))
}

fn open(file: ModelFile) -> Model {
    trine::open::load(file, &OpenOptions::default()).expect("a model")
}
