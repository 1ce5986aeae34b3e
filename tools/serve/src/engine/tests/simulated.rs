//! The scheduler on a clock that stands still but for its steps, each of which takes as long as its rows say: what it
//! promises of time and memory, the same on any machine.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use proptest::collection::vec;
use proptest::prelude::*;
use tokio::sync::mpsc::Receiver;
use tokio::sync::mpsc::error::TryRecvError;
use trine::CancelToken;
use trine::step::{PagePool, Segment, Setting, Sink, StepError};

use super::super::backend::{Backend, Steps};
use super::super::counters::Counters;
use super::super::job::{self, Job};
use super::super::queue::Admission;
use super::super::scheduler::Scheduler;
use super::*;

/// Duration of a step, and of each of its rows.
const STEP: Duration = Duration::from_micros(2000);
const ROW: Duration = Duration::from_micros(500);

/// The time since the test began, in microseconds.
#[derive(Clone, Default)]
struct Clock(Arc<AtomicU64>);

impl Clock {
    fn now(&self) -> Duration {
        Duration::from_micros(self.0.load(Relaxed))
    }

    fn advance(&self, by: Duration) {
        self.0.fetch_add(by.as_micros() as u64, Relaxed);
    }
}

/// The engine, which computes as ever, and a clock that says how long it took.
struct Simulated {
    steps: Steps,
    clock: Clock,
}

impl Backend for Simulated {
    fn steps(&self) -> &Steps {
        &self.steps
    }

    fn step(&self, setting: &Setting, segments: &mut [Segment<'_>], sink: &mut dyn Sink) -> Result<(), StepError> {
        let rows: usize = segments.iter().map(|s| s.tokens.len()).sum();
        self.clock.advance(STEP + ROW * rows as u32);
        self.steps.step(setting, segments, sink)
    }
}

/// Events of a client, with their times.
struct Client {
    events: Receiver<Event>,
    cancel: CancelToken,
    /// True if it reads.
    reads: bool,
    tokens: Vec<Duration>,
    end: Option<(Duration, Event)>,
    /// The engine let go of its end.
    closed: bool,
}

impl Client {
    fn listen(&mut self, now: Duration) {
        while self.reads {
            match self.events.try_recv() {
                Ok(Event::Token(_)) => self.tokens.push(now),
                Ok(Event::Prompt(_) | Event::PromptLogprobs(_)) => {}
                Ok(end) => {
                    assert!(self.end.is_none(), "two ends");
                    self.end = Some((now, end));
                }
                Err(TryRecvError::Disconnected) => {
                    self.closed = true;
                    return;
                }
                Err(TryRecvError::Empty) => return,
            }
        }
    }

    fn ended(&self) -> Option<Ended> {
        match &self.end {
            Some((_, Event::Done(done))) => Some(done.ended),
            _ => None,
        }
    }
}

/// A scheduler and its clients.
struct World {
    model: Model,
    began: Instant,
    clock: Clock,
    admission: Arc<Admission>,
    counters: Arc<Counters>,
    pages: PagePool,
    scheduler: Scheduler<Simulated>,
    clients: Vec<Client>,
}

impl World {
    fn new(model: &Model, options: Options) -> World {
        let options = options.resolved(model).expect("options");
        let clock = Clock::default();
        let backend = Simulated { steps: Steps::new(model, &options).expect("an engine"), clock: clock.clone() };
        let pages = backend.pages().clone();
        let admission = Arc::new(Admission::new(&options));
        let counters = Arc::new(Counters::new(options.parallel));
        World {
            scheduler: Scheduler::new(backend, model, (&options, None), &admission, &counters),
            model: model.clone(),
            began: Instant::now(),
            clock,
            admission,
            counters,
            pages,
            clients: Vec::new(),
        }
    }

    /// A client comes; its number, if it is let in.
    fn submit(&mut self, request: Request) -> Option<usize> {
        let text = job::text(&request, &self.model).expect("a text");
        let tokens = request.prompt.len();
        self.admission.enter(tokens, &request.party, &self.counters).ok()?;
        let (sender, events) = tokio::sync::mpsc::channel(64);
        let cancel = CancelToken::new();
        self.scheduler.take(Job {
            request,
            text,
            events: sender,
            cancel: cancel.clone(),
            admitted: self.began + self.clock.now(),
        });
        self.clients.push(Client { events, cancel, reads: true, tokens: Vec::new(), end: None, closed: false });
        Some(self.clients.len() - 1)
    }

    /// A round of the engine's thread. False when there was nothing to evaluate.
    fn round(&mut self) -> bool {
        let (began, clock) = (self.began, self.clock.clone());
        let stepped = self.scheduler.round(&|| began + clock.now());
        let now = self.clock.now();
        self.clients.iter_mut().for_each(|c| c.listen(now));
        stepped
    }

    /// Rounds until nobody is left.
    fn finish(&mut self) {
        for _ in 0..100_000 {
            if self.scheduler.is_empty() {
                return;
            }
            if !self.round() {
                self.clock.advance(Duration::from_millis(20));
            }
        }
        panic!("somebody starves");
    }
}

fn text(model: &Model, prompt: usize, new: usize) -> Request {
    let n_vocab = model.weights().n_vocab();
    Request {
        max_tokens: Some(new),
        ignore_eos: true,
        ..Request::new((0..prompt).map(|i| (i * 7 + prompt) as u32 % n_vocab as u32).collect())
    }
}

/// A client of a load: when it comes, tokens of its prompt, tokens it wants, and after how many of them it leaves.
type Visit = (u64, usize, usize, Option<usize>);

fn visit() -> impl Strategy<Value = Visit> {
    (0..1500u64, 1..260usize, 1..30usize, prop::option::weighted(0.2, 0..20usize))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whoever stays gets all tokens; nobody's tokens are late while there is memory; at the end nothing is held.
    #[test]
    fn loads_of_any_kind(
        visits in vec(visit(), 1..25),
        parallel in 1..8usize,
        pages in 6..40usize,
        target in 20..60u64,
    ) {
        let model = model(2);
        let target = Duration::from_millis(target);
        let mut world = World::new(&model, Options { parallel, target_step: target, ..few_pages(pages) });
        let mut visits = visits;
        visits.sort_unstable();
        let mut coming = visits.iter().peekable();
        let mut wanted = Vec::new();
        loop {
            let now = world.clock.now();
            while let Some(&(_, prompt, new, leaves)) = coming.next_if(|v| Duration::from_millis(v.0) <= now) {
                world.submit(text(&model, prompt, new)).expect("room in the queue");
                wanted.push((new, leaves));
            }
            let stepped = world.round();
            for (client, &(_, leaves)) in world.clients.iter().zip(&wanted) {
                if leaves.is_some_and(|n| client.tokens.len() >= n) {
                    client.cancel.cancel();
                }
            }
            if !stepped {
                match coming.peek() {
                    Some(next) => world.clock.advance(Duration::from_millis(next.0).saturating_sub(now)),
                    None if world.scheduler.is_empty() => break,
                    None => world.clock.advance(Duration::from_millis(20)),
                }
            }
        }
        let preempted = world.counters.preemptions.load(Relaxed) > 0;
        for (client, &(new, leaves)) in world.clients.iter().zip(&wanted) {
            prop_assert!(client.closed);
            match leaves {
                Some(n) if n < new => prop_assert!(client.tokens.len() < new || client.end.is_some()),
                _ => {
                    prop_assert_eq!(client.ended(), Some(Ended::Text(End::Length)));
                    prop_assert_eq!(client.tokens.len(), new);
                }
            }
            let gaps = client.tokens.windows(2).map(|w| w[1] - w[0]);
            let longest = gaps.max().unwrap_or_default();
            prop_assert!(preempted || longest <= 2 * target, "{longest:?} between two tokens");
        }
        prop_assert_eq!(world.admission.waiting(), 0);
        prop_assert_eq!(world.counters.running(), 0);
        let World { scheduler, pages, .. } = world;
        drop(scheduler);
        prop_assert_eq!(pages.free(), pages.budget(), "pages that nobody holds");
    }
}

#[test]
fn who_waits_too_long_or_runs_too_long_is_told_so_in_time() {
    let model = model(2);
    let mut world =
        World::new(&model, Options { parallel: 1, queue_timeout: Duration::from_secs(1), ..Options::default() });
    let deadline = Duration::from_millis(1100);
    let long = Request { deadline: Some(deadline), ..text(&model, 20, 490) };
    let running = world.submit(long).expect("room");
    let waiting = world.submit(text(&model, 30, 4)).expect("room");
    world.finish();
    let step = STEP + 64 * ROW;
    let (at, end) = world.clients[waiting].end.as_ref().expect("an end");
    assert!(matches!(end, Event::Refused(Refused::WaitedTooLong { seconds: 1 })), "{end:?}");
    assert!(*at >= Duration::from_secs(1) && *at <= Duration::from_secs(1) + step, "{at:?}");
    assert_eq!(world.clients[running].ended(), Some(Ended::Deadline));
    let at = world.clients[running].end.as_ref().expect("an end").0;
    assert!(at >= deadline && at <= deadline + step, "{at:?}");
}

#[test]
fn a_client_that_does_not_read_is_let_go_and_delays_nobody() {
    let model = model(2);
    let patience = Duration::from_secs(2);
    let mut world = World::new(&model, Options { stall_timeout: patience, ..Options::default() });
    let deaf = world.submit(text(&model, 20, 400)).expect("room");
    world.clients[deaf].reads = false;
    let other = world.submit(text(&model, 20, 300)).expect("room");
    world.finish();
    let other = &world.clients[other];
    assert_eq!(other.ended(), Some(Ended::Text(End::Length)));
    let gaps = other.tokens.windows(2).map(|w| w[1] - w[0]);
    assert!(gaps.max() <= Some(STEP + 2 * ROW));
    // Nothing is computed for a client beyond what its channel holds and the one event that finds it full.
    let deaf_tokens = world.counters.generated_tokens.load(Relaxed) - 300;
    assert!((60..=65).contains(&deaf_tokens), "{deaf_tokens} tokens for a client that does not read");
    // It was let go after its patience ran out, with what its channel holds.
    world.clients[deaf].reads = true;
    world.clients[deaf].listen(Duration::ZERO);
    let deaf = &world.clients[deaf];
    assert!(deaf.closed && deaf.end.is_none(), "{} tokens", deaf.tokens.len());
    assert!((60..=64).contains(&deaf.tokens.len()), "{}", deaf.tokens.len());
    assert!(world.clock.now() >= patience);
}

#[test]
fn clients_that_do_not_read_keep_no_place_from_others() {
    let model = model(2);
    let patience = Duration::from_secs(10);
    let mut world = World::new(&model, Options { parallel: 2, stall_timeout: patience, ..Options::default() });
    let deaf = [20, 21].map(|prompt| world.submit(text(&model, prompt, 300)).expect("room"));
    deaf.iter().for_each(|&i| world.clients[i].reads = false);
    while world.round() {}
    let other = world.submit(text(&model, 25, 30)).expect("room");
    assert!(!world.round(), "it may read on at once");
    world.clock.advance(patience / 10);
    let silent = world.clock.now();
    while world.clients[other].end.is_none() {
        assert!(world.round(), "the places are kept");
    }
    assert!(world.clock.now() - silent <= 32 * STEP + 60 * ROW);
    assert_eq!(world.counters.preemptions.load(Relaxed), 1);
    // Nothing of their texts is lost.
    deaf.iter().for_each(|&i| world.clients[i].reads = true);
    world.finish();
    for i in deaf {
        assert_eq!(world.clients[i].ended(), Some(Ended::Text(End::Length)));
        assert_eq!(world.clients[i].tokens.len(), 300);
    }
    assert_eq!(world.counters.ended.load(Relaxed), 3);
}

#[test]
fn a_full_queue_lets_nobody_in_and_the_oldest_begins_first() {
    let model = model(2);
    let mut world = World::new(&model, Options { parallel: 2, max_queue: 4, ..Options::default() });
    let of = |n: usize| text(&model, 40 + n, 8);
    let let_in: Vec<bool> = (0..6).map(|n| world.submit(of(n)).is_some()).collect();
    assert_eq!(let_in, [true, true, true, true, false, false]);
    world.finish();
    let first = |c: &Client| c.tokens[0];
    let begun: Vec<Duration> = world.clients.iter().map(first).collect();
    assert!(begun.is_sorted(), "{begun:?}");
    assert!(world.submit(of(9)).is_some(), "room again");
}

#[test]
fn those_that_wait_take_turns() {
    let model = model(2);
    let mut world = World::new(&model, Options { parallel: 1, max_queue: 16, ..Options::default() });
    let of = |party: &str, n: usize| Request { party: party.to_owned(), ..text(&model, 30 + n, 6) };
    let one: Vec<usize> = (0..8).map(|n| world.submit(of("one", n)).expect("room")).collect();
    let two: Vec<usize> = (0..2).map(|n| world.submit(of("two", 20 + n)).expect("room")).collect();
    world.finish();
    let first = |i: &usize| world.clients[*i].tokens[0];
    // One request of each after the other, as long as both have some.
    let order = [one[0], two[0], one[1], two[1], one[2]].map(|i| first(&i));
    assert!(order.is_sorted(), "{order:?}");
    assert!(one.iter().map(first).is_sorted());
}

#[test]
fn a_short_prompt_waits_for_no_long_step() {
    let model = model(2);
    let target = Duration::from_millis(20);
    let mut world = World::new(&model, Options { target_step: target, ..Options::default() });
    world.submit(text(&model, 480, 1)).expect("room");
    let mut longest = Duration::ZERO;
    let mut short = None;
    while !world.scheduler.is_empty() {
        let before = world.clock.now();
        world.round();
        longest = longest.max(world.clock.now() - before);
        if short.is_none() {
            short = Some((world.submit(text(&model, 3, 1)).expect("room"), world.clock.now()));
        }
    }
    // Whoever comes in the middle of a step waits for the rest of it.
    assert!(longest <= 4 * target, "{longest:?}");
    let (short, came) = short.expect("a request");
    let waited = world.clients[short].tokens[0] - came;
    assert!(waited <= 2 * target, "{waited:?}");
}
