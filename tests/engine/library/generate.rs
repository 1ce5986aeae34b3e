//! Texts, and what ends them.

use std::fs;

use trine::{CancelToken, ContextOptions, End, GenerateError, GenerateOptions, Prompt, SamplerOptions};

use super::{model, testdata};

fn seeded(seed: u32, max_tokens: usize) -> GenerateOptions {
    GenerateOptions {
        max_tokens: Some(max_tokens),
        sampler: SamplerOptions { seed, ..SamplerOptions::default() },
        ..GenerateOptions::default()
    }
}

/// The texts that `rgen` is tested with too.
#[test]
fn greedy_text_is_that_of_the_reference() {
    let prompts = fs::read_to_string(testdata("golden/greedy/prompts.txt")).expect("prompts");
    for (i, prompt) in prompts.lines().enumerate() {
        let golden = format!("golden/greedy/trilm-F16.{}.txt", i + 1);
        let golden = fs::read_to_string(testdata(&golden)).expect("a text");
        let golden = golden.trim_end_matches('\n');
        let golden = golden.trim_end_matches(" [end of text]");
        let mut text = prompt.to_owned();
        let generation = model().generate(prompt, &GenerateOptions::greedy(40));
        for chunk in generation.expect("room") {
            text += &chunk.expect("finite logits").text;
        }
        assert_eq!(text.trim_end_matches('\n'), golden, "{prompt}");
    }
}

#[test]
fn a_seed_gives_the_text_of_the_reference() {
    let cases = fs::read(testdata("sampling/seeds.json")).expect("cases");
    let cases: serde_json::Value = serde_json::from_slice(&cases).expect("JSON");
    let args = serde_json::json!(["-p", "The game", "-n", "40", "-s", "1"]);
    let case = cases.as_array().expect("a list").iter();
    let case = case.clone().find(|c| c["args"] == args).expect("the case");
    let text = model().generate("The game", &seeded(1, 40)).expect("room");
    let text = text.complete().expect("finite logits").text;
    assert_eq!(Some(&*format!("The game{text}")), case["text"].as_str());
}

#[test]
fn stop_strings_end_the_text_wherever_tokens_end() {
    let whole = model().generate("The game", &seeded(3, 60));
    let whole = whole.expect("room").complete().expect("finite logits");
    assert_eq!(whole.end, End::Length);
    let chars: Vec<char> = whole.text.chars().collect();
    // parts of the text from every place, of lengths that cut tokens
    for (from, len) in (0..chars.len() - 12).step_by(7).zip([1, 3, 5, 12].into_iter().cycle()) {
        let stop: String = chars[from..from + len].iter().collect();
        let at = whole.text.find(&stop).expect("it is from the text");
        let options = GenerateOptions { stop: vec!["absent from it".to_owned(), stop.clone()], ..seeded(3, 60) };
        let mut text = String::new();
        let mut end = None;
        for chunk in model().generate("The game", &options).expect("room") {
            let chunk = chunk.expect("finite logits");
            text += &chunk.text;
            assert!(whole.text[..at].starts_with(&text), "{stop:?} got out: {text:?}");
            end = chunk.end;
        }
        assert_eq!((&text[..], end), (&whole.text[..at], Some(End::Stop(1))), "{stop:?}");
    }
}

#[test]
fn characters_are_never_split() {
    // hot enough for tokens that are single bytes of characters
    let options = GenerateOptions {
        sampler: SamplerOptions { temp: 5.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed: 5, ..SamplerOptions::default() },
        past_eos: true,
        ..seeded(5, 300)
    };
    let completion = model().generate("é", &options).expect("room").complete();
    let completion = completion.expect("finite logits");
    let tokens = completion.tokens.iter();
    let bytes: Vec<u8> = tokens.flat_map(|&id| model().tokenizer().piece(id, false)).collect();
    assert!(std::str::from_utf8(&bytes).is_err(), "some are broken");
    assert_eq!(completion.text, String::from_utf8_lossy(&bytes));
}

#[test]
fn a_text_is_cancelled_between_tokens() {
    let options = seeded(1, 100);
    let mut context = model().context(&ContextOptions::default());
    let mut generation = context.generate("The game", &options).expect("room");
    let first: Vec<_> = generation.by_ref().take(3).map(Result::unwrap).collect();
    assert!(first.iter().all(|c| c.end.is_none() && c.token.is_some()));
    options.cancel.cancel();
    let last = generation.next().expect("a last chunk").expect("no error");
    assert_eq!((last.token, last.end), (None, Some(End::Cancelled)));
    assert!(generation.next().is_none());
    // nothing happens until it is taken back, and then the text is the one of a fresh context
    let cancelled = context.generate("The game", &options).expect("room");
    let cancelled = cancelled.complete().expect("no error");
    assert_eq!((&cancelled.text[..], cancelled.end), ("", End::Cancelled));
    assert!(options.cancel.reset());
    let again = context.generate("The game", &options).expect("room");
    let again = again.complete().expect("finite logits");
    let fresh = model().generate("The game", &options).expect("room");
    assert_eq!(again, fresh.complete().expect("finite logits"));
}

#[test]
fn a_prompt_is_cancelled_between_batches() {
    let cancel = CancelToken::new();
    let options = GenerateOptions { cancel: cancel.clone(), ..GenerateOptions::greedy(5) };
    let mut context = model().context(&ContextOptions { n_batch: 8, ..ContextOptions::default() });
    context.observe(Some(Box::new(move |e| {
        if e.position == 12 {
            cancel.cancel();
        }
    })));
    let prompt: Vec<u32> = (1..100).collect();
    let generation = context.generate(prompt, &options).expect("room");
    let completion = generation.complete().expect("no error");
    assert_eq!((completion.tokens.len(), completion.end), (0, End::Cancelled));
    assert_eq!(context.tokens().len(), 16);
    // what was evaluated is kept
    options.cancel.reset();
    context.observe(None);
    let prompt: Vec<u32> = (1..100).collect();
    let generation = context.generate(&prompt[..], &options).expect("room");
    let completion = generation.complete().expect("finite logits");
    assert_eq!(context.stats().reused, 16);
    let fresh = model().generate(prompt, &options).expect("room");
    assert_eq!(completion, fresh.complete().expect("finite logits"));
}

#[test]
fn the_context_ends_the_text() {
    let options = ContextOptions { n_ctx: Some(24), ..ContextOptions::default() };
    let forever = GenerateOptions { max_tokens: None, ignore_eos: true, ..seeded(1, 0) };
    let context = model().context(&options);
    let generation = context.into_generation("The game", &forever).expect("room");
    let prompt = generation.prompt().len();
    let completion = generation.complete().expect("finite logits");
    assert_eq!(completion.end, End::Context);
    assert_eq!(prompt + completion.tokens.len(), 24);

    let mut context = model().context(&options);
    let long: Vec<u32> = (1..22).collect();
    let refused = context.generate(&long[..], &forever).err();
    assert!(matches!(refused, Some(GenerateError::PromptTooLong { tokens: 21, n_ctx: 24, room: 20 })));
    // without an answer it fits
    let none = GenerateOptions::greedy(0);
    let read = context.generate(long, &none).expect("room").complete();
    assert_eq!(read.expect("no error").end, End::Length);
    assert_eq!(context.logits().len(), 4096);
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_computed() {
    let mut context = model().context(&ContextOptions::default());
    let empty_stop = GenerateOptions { stop: vec!["a".to_owned(), String::new()], ..GenerateOptions::default() };
    let no_sampler = GenerateOptions {
        sampler: SamplerOptions { repeat_penalty: 0.0, ..SamplerOptions::default() },
        ..GenerateOptions::default()
    };
    let width = GenerateOptions { bits: Some(4), ..GenerateOptions::default() };
    for (prompt, options, expected) in [
        (Prompt::from("x"), empty_stop, "stop string 1 is empty"),
        (Prompt::from("x"), no_sampler, "the repeat penalty must be above 0"),
        (Prompt::from("x"), width, "no any-precision file"),
        (Prompt::from(vec![]), GenerateOptions::default(), "the prompt is empty"),
    ] {
        let refused = context.generate(prompt, &options).err().expect(expected);
        assert!(refused.to_string().contains(expected), "{refused}");
    }
    let unknown = context.generate(vec![4096], &GenerateOptions::default());
    let unknown = unknown.expect("room").next().expect("an error");
    assert!(matches!(unknown, Err(GenerateError::Eval(_))));
    assert_eq!(context.stats().eval.count + context.stats().prompt.count, 0);
}

#[test]
fn many_texts_are_those_that_each_prompt_has_alone() {
    // More than go through the model together, of different lengths; some end at a stop string.
    let prompts: Vec<String> =
        (0..21).map(|n| format!("The game{} was won in {n}", " of chess".repeat(n % 5))).collect();
    for options in [
        GenerateOptions { stop: vec![" the".to_owned()], ..seeded(3, 24) },
        GenerateOptions { logprobs: Some(1), ..GenerateOptions::greedy(6) },
        GenerateOptions::greedy(0),
    ] {
        let texts = model().generate_many(prompts.iter().map(String::as_str), &options).expect("room");
        assert_eq!(texts.len(), prompts.len());
        for (prompt, text) in prompts.iter().zip(texts) {
            let alone = model().generate(prompt.as_str(), &options).expect("room").complete();
            assert_eq!(text, alone.expect("finite logits"), "{prompt}");
        }
    }
    // Beyond the end of a context of 512 tokens.
    let options = GenerateOptions { shift: Some(3), ignore_eos: true, ..seeded(1, 540) };
    let texts = model().generate_many(prompts[..3].iter().map(String::as_str), &options).expect("room");
    for (prompt, text) in prompts.iter().zip(texts) {
        let mut context = model().context(&ContextOptions::default());
        let alone = context.generate(prompt.as_str(), &options).expect("room").complete().expect("finite logits");
        assert_eq!((text.tokens.len(), text), (540, alone), "{prompt}");
        assert!(context.stats().shifts > 0);
    }
    let none: [&str; 0] = [];
    assert_eq!(model().generate_many(none, &seeded(1, 3)).expect("nothing to do"), []);
}

#[test]
fn many_texts_end_when_they_are_cancelled_and_one_that_cannot_be_is_refused() {
    let options = GenerateOptions::greedy(5);
    options.cancel.cancel();
    let texts = model().generate_many(["The game", "The war"], &options).expect("room");
    assert!(texts.iter().all(|text| text.end == End::Cancelled && text.text.is_empty()), "{texts:?}");
    let long: Vec<u32> = vec![1; 600];
    let refused = model().generate_many([vec![1u32], long], &GenerateOptions::greedy(5)).expect_err("no room");
    assert!(matches!(refused, GenerateError::PromptTooLong { tokens: 600, .. }), "{refused}");
    let refused = model().generate_many([vec![1u32], vec![4096]], &GenerateOptions::greedy(5)).expect_err("no token");
    assert!(refused.to_string().contains("token 4096 at index 0"), "{refused}");
}
