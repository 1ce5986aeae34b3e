//! The engine on backends that watch its steps, or fail in one.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use sha2::{Digest, Sha256};
use trine::step::{Segment, Setting, Sink, StepError};
use trine::{Pooling, SessionOptions};

use super::super::backend::{Backend, Steps};
use super::*;

/// The SHA-256 of the bytes of logits, as `rgen --logits-sha256` prints it.
type Hash = [u8; 32];

fn hash(logits: &[f32]) -> Hash {
    let bytes: Vec<u8> = logits.iter().flat_map(|x| x.to_le_bytes()).collect();
    Sha256::digest(bytes).into()
}

/// Takes down the hashes of all logits that a step hands out; waits with the first step until the gate is open.
struct Watched {
    steps: Steps,
    seen: Arc<Mutex<BTreeSet<Hash>>>,
    gate: Arc<Gate>,
}

/// Closed until all requests are there: who runs beside whom does not depend on how fast they come.
#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn open(&self) {
        *self.open.lock().expect("a gate") = true;
        self.opened.notify_all();
    }

    fn pass(&self) {
        let open = self.open.lock().expect("a gate");
        drop(self.opened.wait_while(open, |open| !*open));
    }
}

struct Listener<'a> {
    sink: &'a mut dyn Sink,
    seen: &'a Mutex<BTreeSet<Hash>>,
}

impl Sink for Listener<'_> {
    fn wants_hidden(&self, segment: usize) -> bool {
        self.sink.wants_hidden(segment)
    }

    fn logits(&mut self, segment: usize, index: usize, logits: &[f32]) {
        self.seen.lock().expect("hashes").insert(hash(logits));
        self.sink.logits(segment, index, logits);
    }

    fn hidden(&mut self, segment: usize, index: usize, state: &[f32]) {
        self.sink.hidden(segment, index, state);
    }
}

impl Backend for Watched {
    fn steps(&self) -> &Steps {
        &self.steps
    }

    fn step(&self, setting: &Setting, segments: &mut [Segment<'_>], sink: &mut dyn Sink) -> Result<(), StepError> {
        self.gate.pass();
        let seen = &self.seen;
        self.steps.step(setting, segments, &mut Listener { sink, seen })
    }
}

/// Every logit of every position under load, with prompts in portions and memory that does not suffice, has the bits of
/// a session that reads the same text alone.
#[test]
fn logits_under_load_are_those_of_a_session() {
    let model = model(2);
    let requests = crowding_requests(30);
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let gate = Arc::new(Gate::default());
    let options = Options { prefill_chunk: Some(23), ..few_pages(6) };
    let (watch, wait) = (seen.clone(), gate.clone());
    let engine = Handle::start_on(model.clone(), options, |steps| Watched { steps, seen: watch, gate: wait });
    let engine = engine.expect("an engine").0;
    // Texts and vectors in the same steps.
    let vector = Request { pooling: Some(Pooling::Mean), cache: None, ..Request::new(requests[0].prompt.clone()) };
    let vectors: Vec<Answer> = (0..3).map(|_| engine.submit(vector.clone()).expect("room")).collect();
    let order: Vec<usize> = (0..requests.len()).collect();
    let answers = submit_all(&engine, &requests, &order);
    gate.open();
    let heard = hear_all(answers);
    drop(vectors);
    assert!(engine.wait_until_idle(Duration::from_secs(120)));
    assert!(engine.counters().preemptions.load(Relaxed) > 0);

    let mut expected = BTreeSet::new();
    for (request, heard) in requests.iter().zip(&heard) {
        let mut tokens = [&request.prompt[..], &heard.tokens].concat();
        // The last token was chosen and not evaluated.
        tokens.pop();
        let first = match request.prompt_logprobs {
            true => 0,
            false => request.prompt.len() - 1,
        };
        let mut session = model.session(SessionOptions { n_ctx: 512, n_ubatch: 512 });
        let mut take = |_: usize, logits: &[f32]| {
            expected.insert(hash(logits));
        };
        session.eval(&tokens, first, &mut take).expect("a text that fits");
    }
    assert!(expected.len() > 400, "{}", expected.len());
    assert_eq!(*seen.lock().expect("hashes"), expected);
}

/// Panics once, in the step after it was told to.
struct Faulty {
    steps: Steps,
    armed: Arc<AtomicBool>,
}

impl Backend for Faulty {
    fn steps(&self) -> &Steps {
        &self.steps
    }

    fn step(&self, setting: &Setting, segments: &mut [Segment<'_>], sink: &mut dyn Sink) -> Result<(), StepError> {
        if self.armed.swap(false, Ordering::SeqCst) {
            // Without the message that a panic prints.
            std::panic::resume_unwind(Box::new("a fault"));
        }
        self.steps.step(setting, segments, sink)
    }
}

#[test]
fn a_panic_ends_what_runs_and_nothing_else() {
    let requests = requests(6);
    let expected: Vec<Heard> = alone(&requests).iter().map(said).collect();
    let armed = Arc::new(AtomicBool::new(false));
    let arm = armed.clone();
    let engine = Handle::start_on(model(2), Options::default(), |steps| Faulty { steps, armed });
    let engine = engine.expect("an engine").0;
    let long = Request { ignore_eos: true, ..Request::new(vec![5; 10]) };
    let mut running: Vec<Answer> = (0..3).map(|_| engine.submit(long.clone()).expect("room")).collect();
    for answer in &mut running {
        while !matches!(answer.next_blocking(), Some(Event::Token(_))) {}
    }
    arm.store(true, Ordering::SeqCst);
    for mut answer in running {
        let end = loop {
            match answer.next_blocking() {
                Some(Event::Token(_)) => {}
                end => break end,
            }
        };
        assert!(matches!(end, Some(Event::Failed(_))), "{end:?}");
    }
    let order: Vec<usize> = (0..requests.len()).collect();
    let got: Vec<Heard> = together(&engine, &requests, &order);
    assert_eq!(got.iter().map(said).collect::<Vec<_>>(), expected);
}
