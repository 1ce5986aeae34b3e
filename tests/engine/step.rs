//! Steps over many sequences: the results are bit-identical with other batch mates, cuts, shared pages and after
//! cancelled steps.

use crate::common;
use std::sync::{Arc, Mutex};

use trine::CancelToken;
use trine::Isa;
use trine::kv::PagePool;
use trine::model::{LoadOptions, Weights};
use trine::ops::observe::ActivationObserver;
use trine::pool::Pool;
use trine::step::{Engine, Segment, Sequence, StepError, StepOptions};

fn model(isa: Isa) -> Weights {
    let options = LoadOptions { isa, ..LoadOptions::default() };
    Weights::load(&common::trilm(), &options).expect("a model")
}

/// Pages of a few positions, so that sequences have several.
fn engine(model: &Weights, threads: usize, positions: usize, pages: usize) -> Engine {
    let layout = model.page_layout().with_positions(positions);
    let pool = Pool::new(threads).expect("threads");
    Engine::with_pages(model, &pool, PagePool::new(layout, pages))
}

/// xorshift, so that a failure can be seen again.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
}

type Logits = Vec<u32>;

fn bits(logits: &[f32]) -> Logits {
    logits.iter().map(|v| v.to_bits()).collect()
}

/// The logits of all tokens of a sequence that is by itself.
fn alone(model: &Weights, tokens: &[u32]) -> Vec<Logits> {
    let engine = engine(model, 2, 128, 8);
    let mut out = Vec::new();
    let mut seq = engine.sequence();
    let segment = Segment { seq: &mut seq, tokens, logits_from: 0 };
    let sink: &mut (dyn FnMut(usize, usize, &[f32]) + Send) = &mut |_, _, logits| out.push(bits(logits));
    let done = engine.step(&mut [segment], &StepOptions::default(), sink);
    done.expect("room");
    out
}

/// A sequence on its way through its tokens.
struct Client {
    seq: Sequence,
    tokens: Vec<u32>,
    done: usize,
}

#[test]
fn sixty_four_sequences_in_random_groups_have_the_logits_they_have_alone() {
    let isa = Isa::detect();
    let model = model(isa);
    let mut random = Random(0x5EED_0064);
    let n_vocab = model.n_vocab();
    let prefix: Vec<u32> = (0..75).map(|_| random.below(n_vocab) as u32).collect();
    // The first third begins alike, the rest does not.
    let texts: Vec<Vec<u32>> = (0..64)
        .map(|i| {
            let shared = if i < 22 { 1 + random.below(75) } else { 0 };
            let own = 1 + random.below(60);
            let own = (0..own).map(|_| random.below(n_vocab) as u32);
            prefix[..shared].iter().copied().chain(own).collect()
        })
        .collect();
    let expected: Vec<Vec<Logits>> = texts.iter().map(|t| alone(&model, t)).collect();
    for (threads, positions) in [(1, 32), (2, 64)] {
        let engine = engine(&model, threads, positions, 400);
        let mut stem = engine.sequence();
        let segment = Segment { seq: &mut stem, tokens: &prefix, logits_from: prefix.len() };
        let sink: &mut (dyn FnMut(usize, usize, &[f32]) + Send) = &mut |_, _, _| ();
        let done = engine.step(&mut [segment], &StepOptions::default(), sink);
        done.expect("room");
        let mut clients: Vec<Client> = texts
            .iter()
            .map(|tokens| {
                let same = tokens.iter().zip(&prefix).take_while(|(a, b)| a == b);
                let done = same.count().min(tokens.len() - 1);
                Client { seq: stem.fork(done), tokens: tokens.clone(), done }
            })
            .collect();
        drop(stem);
        while clients.iter().any(|c| c.done < c.tokens.len()) {
            // Some of them, each with some of its next tokens.
            let mut chosen = Vec::new();
            let mut segments = Vec::new();
            for (no, client) in clients.iter_mut().enumerate() {
                let left = client.tokens.len() - client.done;
                if left == 0 || random.below(3) == 0 {
                    continue;
                }
                let n = 1 + random.below(left.min(40));
                chosen.push((no, client.done));
                segments.push(Segment {
                    seq: &mut client.seq,
                    tokens: &client.tokens[client.done..client.done + n],
                    logits_from: random.below(2) * n,
                });
                client.done += n;
            }
            let options = StepOptions { n_ubatch: [7, 64, 512][random.below(3)], ..StepOptions::default() };
            let sink: &mut (dyn FnMut(usize, usize, &[f32]) + Send) = &mut |segment, index, logits| {
                let (no, first) = chosen[segment];
                assert!(
                    bits(logits) == expected[no][first + index],
                    "{threads} threads, pages of {positions}: sequence {no}, position {}",
                    first + index
                );
            };
            engine.step(&mut segments, &options, sink).expect("room");
            // Now and then somebody forgets the end and goes on from there, or goes on as a fork.
            let client = &mut clients[random.below(64)];
            match random.below(3) {
                0 if client.done > 1 => {
                    client.done -= 1 + random.below(client.done.min(20) - 1).min(client.done - 1);
                    client.seq.truncate(client.done);
                }
                1 => client.seq = client.seq.fork(client.done),
                _ => (),
            }
        }
        drop(clients);
        assert_eq!(engine.pages().free(), 400, "all pages came back");
    }
}

#[test]
fn two_callers_step_at_the_same_time_on_one_pool() {
    let model = model(Isa::detect());
    let engine = engine(&model, 2, 32, 64);
    let texts = [vec![5u32; 50], (100..170).collect::<Vec<u32>>()];
    let expected = texts.each_ref().map(|t| alone(&model, t));
    std::thread::scope(|scope| {
        for (text, expected) in texts.iter().zip(&expected) {
            let engine = engine.clone();
            scope.spawn(move || {
                for _ in 0..3 {
                    let mut seq = engine.sequence();
                    for (i, token) in text.iter().enumerate() {
                        let segment = Segment { seq: &mut seq, tokens: std::slice::from_ref(token), logits_from: 0 };
                        let sink: &mut (dyn FnMut(usize, usize, &[f32]) + Send) =
                            &mut |_, _, logits| assert!(bits(logits) == expected[i]);
                        let done = engine.step(&mut [segment], &StepOptions::default(), sink);
                        done.expect("room");
                    }
                }
            });
        }
    });
}

/// Cancels after a number of matrices.
struct CancelAfter {
    left: Mutex<usize>,
    token: CancelToken,
}

impl ActivationObserver for CancelAfter {
    fn observe(&self, _: &str, _: &[f32], _: usize) {
        let mut left = self.left.lock().expect("no panic");
        *left = left.saturating_sub(1);
        if *left == 0 {
            self.token.cancel();
        }
    }

    fn observe_expert(&self, _: &str, _: usize, _: usize, _: &[f32], _: usize) {}
}

#[test]
fn a_cancelled_step_leaves_every_sequence_as_it_was() {
    let model = model(Isa::detect());
    let engine = engine(&model, 2, 32, 64);
    let text: Vec<u32> = (0..60).map(|i| i * 37 % 4096).collect();
    let expected = alone(&model, &text);
    let (mut a, mut b) = (engine.sequence(), engine.sequence());
    for after in [1, 9, 20] {
        let token = CancelToken::new();
        let observer: Arc<dyn ActivationObserver> =
            Arc::new(CancelAfter { left: Mutex::new(after), token: token.clone() });
        let options =
            StepOptions { n_ubatch: 40, observer: Some(observer), cancel: Some(token), ..StepOptions::default() };
        let mut segments = [&mut a, &mut b].map(|seq| Segment { seq, tokens: &text, logits_from: text.len() });
        let done = engine.step(&mut segments, &options, &mut |_, _, _| ());
        assert_eq!(done, Err(StepError::Cancelled));
        assert_eq!((a.len(), b.len(), engine.pages().free()), (0, 0, 64));
    }
    let mut segments = [&mut a, &mut b].map(|seq| Segment { seq, tokens: &text, logits_from: 0 });
    let sink: &mut (dyn FnMut(usize, usize, &[f32]) + Send) = &mut |_, i, logits| assert!(bits(logits) == expected[i]);
    let done = engine.step(&mut segments, &StepOptions::default(), sink);
    done.expect("room");
}

#[test]
fn what_cannot_be_done_is_refused_before_anything_is_computed() {
    let model = model(Isa::detect());
    let engine = engine(&model, 1, 32, 3);
    let (mut a, mut b) = (engine.sequence(), engine.sequence());
    let text = [1u32; 50];
    let mut segments = [&mut a, &mut b].map(|seq| Segment { seq, tokens: &text, logits_from: 0 });
    let sink: &mut (dyn FnMut(usize, usize, &[f32]) + Send) = &mut |_, _, _| panic!("no logits");
    let done = engine.step(&mut segments, &StepOptions::default(), sink);
    assert!(matches!(done, Err(StepError::OutOfPages(_))), "{done:?}");
    assert_eq!(engine.pages().free(), 3, "what was reserved is given back");
    let segment = Segment { seq: &mut a, tokens: &[1, 4096], logits_from: 0 };
    let done = engine.step(&mut [segment], &StepOptions::default(), sink);
    let unknown = StepError::UnknownToken { id: 4096, segment: 0, index: 1, n_vocab: 4096 };
    assert_eq!(done, Err(unknown));
    let width = StepOptions { bits: Some(4), ..StepOptions::default() };
    assert!(matches!(engine.step(&mut [], &width, sink), Err(StepError::Width(_))));
}
