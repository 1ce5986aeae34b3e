//! The promise: a text depends on its request and the model, and on nothing else.

use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use proptest::prelude::Rng as _;
use proptest::test_runner::{RngAlgorithm, TestRng};
use trine::generate::End;
use trine::{
    Chunk, DryOptions, GenerateOptions, Mirostat, MirostatVersion, Model, Prompt, SamplerKind, SamplerOptions,
};
use trine_testkit::testdata;

use super::*;

mod backends;
mod simulated;

fn model(threads: usize) -> Model {
    let options = trine::OpenOptions { threads: Some(threads), ..trine::OpenOptions::default() };
    let path = testdata("models/trilm-wt-5.8m-F16.gguf");
    trine::open_with(&path, &options).expect("the bundled model")
}

fn start(options: Options) -> Handle {
    Handle::start(model(2), options).expect("an engine").0
}

/// A few pages only: sequences must give theirs back.
fn few_pages(pages: usize) -> Options {
    let layout = model(1).weights().page_layout();
    Options { kv_memory: Some(pages * layout.bytes()), ..Options::default() }
}

struct Random(TestRng);

impl Random {
    fn new(seed: u8) -> Random {
        Random(TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]))
    }

    fn below(&mut self, n: usize) -> usize {
        self.0.next_u64() as usize % n
    }
}

/// Every kind of sampler, the usual one more often.
fn sampler(kind: usize) -> SamplerOptions {
    let d = SamplerOptions::default();
    let mirostat = |version| {
        let (tau, eta) = (4.0, 0.2);
        Mirostat { version, tau, eta }
    };
    match kind {
        0 => SamplerOptions {
            dry: DryOptions {
                multiplier: 0.9,
                allowed_length: 1,
                breakers: model(1).dry_breakers(&DryOptions::BREAKERS),
                ..d.dry
            },
            ..d
        },
        1 => SamplerOptions { xtc_probability: 0.6, xtc_threshold: 0.05, ..d },
        2 => SamplerOptions { mirostat: mirostat(MirostatVersion::V1), ..d },
        3 => SamplerOptions { mirostat: mirostat(MirostatVersion::V2), ..d },
        4 => SamplerOptions { top_n_sigma: 1.2, dynatemp_range: 0.4, dynatemp_exponent: 1.5, ..d },
        5 => SamplerOptions {
            samplers: vec![SamplerKind::Temperature, SamplerKind::Typical, SamplerKind::TopK, SamplerKind::AdaptiveP],
            adaptive_target: 0.3,
            typical_p: 0.8,
            min_keep: 2,
            ..d
        },
        _ => d,
    }
}

/// Requests of all kinds; some begin alike.
fn requests(count: usize) -> Vec<Request> {
    let mut random = Random::new(7);
    let n_vocab = model(1).weights().n_vocab();
    let token = |random: &mut Random| random.below(n_vocab) as u32;
    let common: Vec<u32> = (0..300).map(|_| token(&mut random)).collect();
    (0..count)
        .map(|i| {
            let shared = [0, 1, 31, 32, 33, 127, 128, 129, 300][random.below(9)];
            let own = 1 + random.below(60);
            let mut prompt = common[..shared].to_vec();
            prompt.extend((0..own).map(|_| token(&mut random)));
            let mut request = Request {
                max_tokens: Some(1 + random.below(40)),
                sampler: SamplerOptions {
                    seed: i as u32,
                    temp: [0.0, 1.0, 1.5][random.below(3)],
                    repeat_penalty: [1.0, 1.2][random.below(2)],
                    ..sampler(i % 9)
                },
                stop: [vec![], vec!["the".to_owned(), " a".to_owned()]][random.below(2)].clone(),
                ignore_eos: random.below(2) == 0,
                logprobs: [None, Some(3)][random.below(2)],
                prompt_logprobs: i % 7 == 3,
                ..Request::new(prompt)
            };
            request.sampler.logit_bias = [vec![], vec![(5, 2.0), (7, f32::NEG_INFINITY)]][random.below(2)].clone();
            request.cache = [Some(String::new()), Some("b".into()), None][random.below(3)].clone();
            request
        })
        .collect()
}

/// All that a client may rely on.
#[derive(Clone, Debug, PartialEq)]
struct Heard {
    text: String,
    tokens: Vec<u32>,
    logprobs: Vec<Option<Told>>,
    prompt: Vec<TokenLogprobs>,
    ended: Ended,
    cached: usize,
}

fn hear(mut answer: Answer) -> Heard {
    let (mut text, mut tokens, mut logprobs, mut prompt) = (String::new(), Vec::new(), Vec::new(), Vec::new());
    while let Some(event) = answer.next_blocking() {
        match event {
            Event::Prompt(_) => {}
            Event::PromptLogprobs(all) => prompt = all,
            Event::Token(token) => {
                text += &token.text;
                tokens.push(token.id);
                logprobs.push(token.logprobs);
            }
            Event::Done(done) => {
                text += &done.text;
                return Heard { text, tokens, logprobs, prompt, ended: done.ended, cached: done.cached_tokens };
            }
            other => panic!("{other:?}"),
        }
    }
    panic!("no end after {tokens:?}")
}

fn said(heard: &Heard) -> Heard {
    Heard { cached: 0, ..heard.clone() }
}

/// One after the other, each on its own, nothing cached.
fn alone(requests: &[Request]) -> Vec<Heard> {
    let engine = start(Options::default());
    let alone = |r: &Request| {
        let cache = None;
        let request = Request { cache, ..r.clone() };
        hear(engine.submit(request).expect("room"))
    };
    requests.iter().map(alone).collect()
}

/// Requests of which the first three outgrow six pages as soon as they run side by side.
fn crowding_requests(count: usize) -> Vec<Request> {
    let mut all = requests(count);
    for (seed, request) in all.iter_mut().take(3).enumerate() {
        let prompt = request.prompt.split_off(request.prompt.len() - 1);
        *request = Request {
            max_tokens: Some(400),
            sampler: SamplerOptions { seed: seed as u32, temp: 1.0, ..SamplerOptions::default() },
            ignore_eos: true,
            ..Request::new(prompt)
        };
    }
    all
}

/// All at once, in the given order.
fn together(engine: &Handle, requests: &[Request], order: &[usize]) -> Vec<Heard> {
    hear_all(submit_all(engine, requests, order))
}

/// Answers, each with the number of its request.
fn submit_all(engine: &Handle, requests: &[Request], order: &[usize]) -> Vec<(usize, Answer)> {
    let submit = |&i: &usize| (i, engine.submit(requests[i].clone()).expect("room"));
    order.iter().map(submit).collect()
}

/// Returns the events, in the order of the requests.
fn hear_all(answers: Vec<(usize, Answer)>) -> Vec<Heard> {
    let mut all: Vec<Option<Heard>> = vec![None; answers.len()];
    thread::scope(|s| {
        let readers: Vec<_> = answers.into_iter().map(|(i, a)| s.spawn(move || (i, hear(a)))).collect();
        for reader in readers {
            let (i, heard) = reader.join().expect("an answer");
            all[i] = Some(heard);
        }
    });
    all.into_iter().flatten().collect()
}

#[test]
fn company_changes_nothing() {
    let requests = crowding_requests(24);
    let expected: Vec<Heard> = alone(&requests).iter().map(said).collect();
    let mut order: Vec<usize> = (0..requests.len()).collect();
    let ways = [
        Options::default(),
        Options { parallel: 3, prefill_chunk: Some(7), ..Options::default() },
        Options { target_step: Duration::from_millis(1), ..Options::default() },
        few_pages(6),
    ];
    for (way, options) in ways.into_iter().enumerate() {
        let engine = start(options.clone());
        for round in 0..2 {
            let got = together(&engine, &requests, &order);
            for (i, (got, expected)) in got.iter().zip(&expected).enumerate() {
                assert_eq!(&said(got), expected, "way {way}, round {round}, request {i}");
            }
            order.reverse();
        }
        let counters = engine.counters();
        let preempted = counters.preemptions.load(Relaxed);
        assert!(preempted == 0 || way == 3, "{preempted} gave way");
        assert!(counters.cached_tokens.load(Relaxed) > 0);
        engine.drain();
        assert!(engine.wait_until_idle(Duration::from_secs(120)));
    }
}

#[test]
fn texts_are_those_of_the_library() {
    let model = model(2);
    let engine = start(Options::default());
    for r in requests(12) {
        let options = GenerateOptions {
            max_tokens: r.max_tokens,
            sampler: r.sampler.clone(),
            stop: r.stop.clone(),
            ignore_eos: r.ignore_eos,
            logprobs: r.logprobs,
            ..GenerateOptions::default()
        };
        let prompt = Prompt::Tokens(r.prompt.clone());
        let chunks = model.generate(prompt, &options).expect("options");
        let chunks: Vec<Chunk> = chunks.map(|chunk| chunk.expect("a text")).collect();
        let got = hear(engine.submit(r.clone()).expect("room"));
        assert_eq!(got.text, chunks.iter().map(|c| &c.text[..]).collect::<String>());
        assert_eq!(got.tokens, chunks.iter().filter_map(|c| c.token).collect::<Vec<_>>());
        let told = chunks.iter().filter(|c| c.token.is_some()).map(|c| c.logprobs.clone());
        assert_eq!(got.logprobs, told.collect::<Vec<_>>());
        assert_eq!(Some(got.ended), chunks.last().and_then(|c| c.end).map(Ended::Text));
    }
}

#[test]
fn cancelled_requests_leave_the_others_as_they_are() {
    let requests = requests(30);
    let expected: Vec<Heard> = alone(&requests).iter().map(said).collect();
    let engine = start(few_pages(12));
    let mut random = Random::new(3);
    let mut answers = Vec::new();
    for (i, r) in requests.iter().enumerate() {
        let mut answer = engine.submit(r.clone()).expect("room");
        if random.below(2) == 0 {
            // some before they began, some after a while
            for _ in 0..random.below(4) {
                answer.next_blocking();
            }
            drop(answer);
        } else {
            answers.push((i, answer));
        }
    }
    for (i, answer) in answers {
        assert_eq!(said(&hear(answer)), expected[i], "request {i}");
    }
    assert!(engine.wait_until_idle(Duration::from_secs(120)));
}

#[test]
fn a_text_goes_on_anywhere() {
    let first = start(Options::default());
    let second = start(Options::default());
    let request = Request {
        max_tokens: Some(20),
        sampler: SamplerOptions { seed: 5, temp: 1.0, repeat_penalty: 1.3, ..SamplerOptions::default() },
        ignore_eos: true,
        ..requests(1).remove(0)
    };
    let whole = hear(first.submit(request.clone()).expect("room"));
    assert_eq!(whole.tokens.len(), 20);
    for cut in 1..20 {
        let rest = Request { resume: whole.tokens[..cut].to_vec(), ..request.clone() };
        let rest = hear(second.submit(rest).expect("room"));
        assert_eq!(rest.tokens, whole.tokens[cut..], "cut at {cut}");
        assert!(whole.text.ends_with(&rest.text), "cut at {cut}");
        assert_eq!(rest.ended, whole.ended);
    }
}

#[test]
fn what_samplers_cannot_take_up_in_the_middle_is_refused_by_name() {
    let engine = start(Options::default());
    for kind in 0..9 {
        let request = Request {
            resume: vec![5, 6],
            max_tokens: Some(4),
            ignore_eos: true,
            sampler: sampler(kind),
            ..Request::new(vec![5; 10])
        };
        let name = [None, Some("xtc"), Some("mirostat"), Some("mirostat"), None, Some("adaptive_p")];
        match (name.get(kind).copied().flatten(), engine.submit(request)) {
            (None, Ok(answer)) => assert_eq!(hear(answer).tokens.len(), 2),
            (Some(name), Err(Refused::Invalid(why))) => assert!(why.contains(name), "{why}"),
            (name, answer) => panic!("{kind}: {name:?}, {:?}", answer.err()),
        }
    }
}

#[test]
fn the_cache_is_exact_to_the_token() {
    let engine = start(Options::default());
    let base = requests(1).remove(0);
    let text = |turn: usize, len: usize| -> Vec<u32> {
        let token = |i: usize| (3 + (i * 37 + usize::from(i >= turn) * 11) % 400) as u32;
        (0..len).map(token).collect()
    };
    let ask = |prompt: Vec<u32>, salt: &str| {
        let request = Request {
            prompt,
            max_tokens: Some(1),
            stop: Vec::new(),
            prompt_logprobs: false,
            cache: Some(salt.to_owned()),
            ..base.clone()
        };
        hear(engine.submit(request).expect("room")).cached
    };
    assert_eq!(ask(text(400, 330), "x"), 0);
    for shared in [1, 31, 32, 127, 128, 129, 300] {
        assert_eq!(ask(text(shared, 331), "x"), shared, "{shared} tokens alike");
    }
    // the whole prompt is known; its last token is read for the logits
    assert_eq!(ask(text(400, 330), "x"), 329);
    assert_eq!(ask(text(400, 330), "y"), 0);
}

#[test]
fn what_cannot_be_served_is_refused_at_once() {
    let engine = start(Options { n_ctx: Some(64), ..Options::default() });
    let refuse = |request: Request| match engine.submit(request) {
        Ok(_) => panic!("it was taken"),
        Err(refused) => refused,
    };
    let one = Request::new(vec![1]);
    let n_vocab = engine.model().weights().n_vocab() as u32;
    assert_eq!(refuse(Request::new(vec![1; 64])), Refused::TooLong { tokens: 64, n_ctx: 64 });
    for (request, word) in [
        (Request::new(vec![]), "empty"),
        (Request::new(vec![n_vocab]), "vocabulary"),
        (Request { bits: Some(4), ..one.clone() }, "bits"),
        (Request { stop: vec![String::new()], ..one.clone() }, "stop"),
        (Request { logprobs: Some(1000), ..one.clone() }, "probabilities"),
        (
            Request {
                sampler: SamplerOptions { logit_bias: vec![(1, f32::NAN)], ..SamplerOptions::default() },
                ..one.clone()
            },
            "bias",
        ),
    ] {
        let refused = refuse(request);
        assert!(matches!(&refused, Refused::Invalid(_)), "{refused:?}");
        assert!(refused.to_string().contains(word), "{refused}");
    }
    engine.drain();
    assert_eq!(refuse(one), Refused::Draining);
}

#[test]
fn a_full_queue_says_when_to_come_again() {
    let engine = start(Options { parallel: 1, max_queue: 2, ..Options::default() });
    let long = Request { ignore_eos: true, ..Request::new(vec![5; 10]) };
    let mut taken = Vec::new();
    let refused = loop {
        match engine.submit(long.clone()) {
            Ok(answer) => taken.push(answer),
            Err(refused) => break refused,
        }
        assert!(taken.len() < 10);
    };
    let Refused::Busy { retry_after, .. } = refused else { panic!("{refused:?}") };
    assert!((1..=120).contains(&retry_after));
    drop(taken);
    assert!(engine.wait_until_idle(Duration::from_secs(120)));
    assert!(engine.submit(long).is_ok());
}

#[test]
fn a_client_that_does_not_read_holds_up_nobody() {
    let engine = start(Options { stall_timeout: Duration::from_millis(300), ..Options::default() });
    let long = Request { ignore_eos: true, max_tokens: Some(200), ..Request::new(vec![5; 10]) };
    let deaf = engine.submit(long.clone()).expect("room");
    let heard = hear(engine.submit(long).expect("room"));
    assert_eq!(heard.tokens.len(), 200);
    // and is let go in the end
    assert!(engine.wait_until_idle(Duration::from_secs(120)));
    drop(deaf);
}

#[test]
fn the_end_of_the_server_ends_all_texts() {
    let (engine, thread) = Handle::start(model(1), Options::default()).expect("an engine");
    let long = Request { ignore_eos: true, ..Request::new(vec![5; 10]) };
    let mut answer = engine.submit(long).expect("room");
    answer.next_blocking();
    engine.drain();
    engine.stop();
    thread.join().expect("a quiet end");
    let heard = hear(answer);
    assert_eq!(heard.ended, Ended::Shutdown);
}

#[test]
fn time_and_length_end_a_text() {
    let engine = start(Options::default());
    let request =
        |max_tokens, deadline| Request { max_tokens, deadline, ignore_eos: true, ..Request::new(vec![5; 10]) };
    let none = hear(engine.submit(request(Some(0), None)).expect("room"));
    assert_eq!((none.tokens.len(), none.ended), (0, Ended::Text(End::Length)));
    let late = request(None, Some(Duration::from_millis(30)));
    let late = hear(engine.submit(late).expect("room"));
    assert_eq!(late.ended, Ended::Deadline);
    let full = hear(engine.submit(request(None, None)).expect("room"));
    assert_eq!(full.ended, Ended::Text(End::Context));
    assert_eq!(full.tokens.len() + 10, engine.options().n_ctx());
    // all the memory there is may be less than the context
    let engine = start(few_pages(2));
    let full = hear(engine.submit(request(None, None)).expect("room"));
    assert_eq!(full.ended, Ended::Text(End::Context));
}
