//! The handle by which the rest of the server uses the engine.

use std::sync::Arc;
use std::sync::mpsc::{self, SyncSender, TrySendError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::mpsc as channel;
use trine::step::PagePool;
use trine::{CancelToken, Model};

use super::backend::{Backend, Steps};
use super::counters::{Counters, Slot};
use super::job::{self, Command, Job};
use super::options::Options;
use super::queue::Admission;
use super::request::{Event, Refused, Request};
use super::slots::{SlotCommand, SlotText};
use super::thread;

/// Events that wait for a reader before its sequence is left out of steps.
const EVENTS: usize = 64;

/// The engine of a server: clones are handles of the same one.
#[derive(Clone)]
pub struct Handle {
    inner: Arc<Inner>,
}

struct Inner {
    model: Model,
    options: Options,
    admission: Arc<Admission>,
    counters: Arc<Counters>,
    commands: SyncSender<Command>,
    pages: PagePool,
    form: String,
}

/// The events of a request. Dropping it cancels the request at the next step.
pub struct Answer {
    events: channel::Receiver<Event>,
    cancel: CancelToken,
}

impl Answer {
    /// The next event; `None` after the last.
    pub async fn next(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// [`Answer::next`] where nothing is asynchronous.
    pub fn next_blocking(&mut self) -> Option<Event> {
        self.events.blocking_recv()
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

impl Handle {
    /// Starts the engine's thread, which owns the sequences of `model` and is the only one that computes.
    ///
    /// # Errors
    /// The system starts no more threads; options that the model cannot follow.
    pub fn start(model: Model, options: Options) -> anyhow::Result<(Handle, JoinHandle<()>)> {
        Handle::start_on(model, options, |steps| steps)
    }

    /// The same on what `backend` makes of the engine: tests watch its steps.
    pub(super) fn start_on<B: Backend + Send + 'static>(
        model: Model,
        options: Options,
        backend: impl FnOnce(Steps) -> B,
    ) -> anyhow::Result<(Handle, JoinHandle<()>)> {
        let options = options.resolved(&model)?;
        let aside = options.aside(&model)?;
        let admission = Arc::new(Admission::new(&options));
        let counters = Arc::new(Counters::new(options.parallel));
        let (commands, inbox) = mpsc::sync_channel(options.max_queue + options.parallel + 64);
        let steps = Steps::new(&model, &options)?;
        let (pages, form) = (steps.pages().clone(), steps.form());
        let backend = backend(steps);
        let thread = thread::start(backend, &model, (&options, aside), &admission, &counters, inbox)?;
        let inner = Inner { model, options, admission, counters, commands, pages, form };
        let handle = Handle { inner: Arc::new(inner) };
        Ok((handle, thread))
    }

    /// Checks all texts of a request before anything is done for one of them: those of `one` with each of `prompts`, so
    /// many times.
    ///
    /// # Errors
    /// One of them cannot be taken; all together may take too much memory.
    pub fn check(&self, mut one: Request, prompts: &[&[u32]], times: usize) -> Result<(), Refused> {
        let inner = &*self.inner;
        let mut needed: usize = 0;
        for prompt in prompts {
            one.prompt.clear();
            one.prompt.extend_from_slice(prompt);
            inner.options.check(&inner.model, &one)?;
            needed = needed.saturating_add(inner.options.cost(&inner.model, &one).saturating_mul(times));
        }
        let most = inner.options.max_request_memory;
        if needed > most { Err(Refused::TooMuch { needed, most }) } else { Ok(()) }
    }

    /// Puts a request into the queue. Where tokens are resumed within a grammar this takes a processor for a while.
    ///
    /// # Errors
    /// It is not taken: all that can be checked is checked here.
    pub fn submit(&self, request: Request) -> Result<Answer, Refused> {
        let inner = &*self.inner;
        inner.options.check(&inner.model, &request)?;
        let text = job::text(&request, &inner.model)?;
        let tokens = request.given();
        let party = request.party.clone();
        inner.admission.enter(tokens, &party, &inner.counters)?;
        let (events, receiver) = channel::channel(EVENTS);
        let cancel = CancelToken::new();
        let job = Job { request, text, events, cancel: cancel.clone(), admitted: Instant::now() };
        match inner.commands.try_send(Command::New(Box::new(job))) {
            Ok(()) => Ok(Answer { events: receiver, cancel }),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                inner.admission.leave(tokens, &party);
                Err(Refused::Draining)
            }
        }
    }

    /// The model that is served.
    pub fn model(&self) -> &Model {
        &self.inner.model
    }

    /// The options in force.
    pub fn options(&self) -> &Options {
        &self.inner.options
    }

    /// Returns the counters since the start.
    pub fn counters(&self) -> &Counters {
        &self.inner.counters
    }

    /// Returns the state of the places for running sequences.
    pub fn slots(&self) -> Vec<Slot> {
        self.inner.counters.slots()
    }

    /// The text that a place had last, if its prompts are shared by `salt`.
    pub fn slot_text(&self, slot: usize, salt: &str) -> Option<SlotText> {
        self.about_slot(|back| SlotCommand::Take(slot, salt.to_owned(), back)).flatten()
    }

    /// Gives a place a text; prompts that begin like it are shared by `salt`. False where the engine has ended.
    pub fn set_slot_text(&self, slot: usize, salt: &str, text: SlotText) -> bool {
        self.about_slot(|back| SlotCommand::Put(slot, salt.to_owned(), Box::new(text), back)).is_some()
    }

    /// Forgets the text of a place, if its prompts are shared by `salt`; the tokens that it had.
    pub fn erase_slot(&self, slot: usize, salt: &str) -> usize {
        self.about_slot(|back| SlotCommand::Erase(slot, salt.to_owned(), back)).unwrap_or(0)
    }

    /// Frees pages of what is kept for later requests, until there are as many.
    pub fn make_room(&self, pages: usize) {
        self.about_slot(|back| SlotCommand::MakeRoom(pages, back));
    }

    /// Sends a command and waits for its answer; `None` where the engine has ended.
    fn about_slot<T>(&self, command: impl FnOnce(mpsc::SyncSender<T>) -> SlotCommand) -> Option<T> {
        let (back, answer) = mpsc::sync_channel(1);
        self.inner.commands.send(Command::Slot(command(back))).ok()?;
        answer.recv().ok()
    }

    /// The pages of keys and values, for sequences that are read from files.
    pub fn pages(&self) -> &PagePool {
        &self.inner.pages
    }

    /// Layout of the KV cache in words: see [`trine::Engine::form`].
    pub fn form(&self) -> &str {
        &self.inner.form
    }

    /// Requests that wait.
    pub fn waiting(&self) -> usize {
        self.inner.admission.waiting()
    }

    /// Takes no new request from now on.
    pub fn drain(&self) {
        self.inner.admission.close();
        self.wake();
    }

    /// True if [`Handle::drain`] was called.
    pub fn is_draining(&self) -> bool {
        self.inner.admission.is_closed()
    }

    /// Ends all running texts and the engine's thread; they end as [`Ended::Shutdown`](super::Ended::Shutdown).
    pub fn stop(&self) {
        self.inner.admission.stop();
        self.wake();
    }

    /// Waits until no request runs or waits; false when it took too long.
    pub fn wait_until_idle(&self, most: Duration) -> bool {
        let end = Instant::now() + most;
        while !self.is_idle() {
            if Instant::now() >= end {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        true
    }

    fn is_idle(&self) -> bool {
        // In this order: a request is in a slot before it has left the queue.
        self.waiting() == 0 && self.inner.counters.running() == 0
    }

    fn wake(&self) {
        // A full inbox wakes the thread as well.
        let _ = self.inner.commands.try_send(Command::Wake);
    }
}
