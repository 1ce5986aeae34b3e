//! The tokens that a model has evaluated, kept for the next prompt.

use std::time::Instant;

use super::speculate::{Aside, SpeculateError, Speculator};
use super::{Chooser, ContextOptions, DraftOptions, GenerateError, GenerateOptions, Prompt, Stats};
use crate::handle::Model;
use crate::step::{EvalError, Session, SessionOptions, Sink};

/// Room that a prompt leaves in the context, as in llama.cpp.
const RESERVE: usize = 4;

/// The logits after a token was evaluated.
#[derive(Clone, Copy, Debug)]
pub struct Evaluated<'a> {
    /// Position of the token in the context, from 0.
    pub position: usize,
    /// The token.
    pub token: u32,
    /// Logits of the token that follows it, `[vocabulary]`.
    pub logits: &'a [f32],
}

/// Sees the logits of every position, in order.
pub type LogitsObserver = Box<dyn FnMut(Evaluated<'_>) + Send>;

/// Tokens and what the model computed for them.
///
/// [`Context::generate`](Context::generate) evaluates only what differs from the tokens that are here already, so a
/// conversation, or prompts with the same beginning, cost no more than what is new. The result has the bits of a fresh
/// context.
///
/// ```
/// use trine::{ContextOptions, GenerateOptions};
///
/// let model = trine::open("testdata/models/trilm-wt-5.8m-F16.gguf")?;
/// let mut context = model.context(&ContextOptions::default());
/// let options = GenerateOptions::greedy(8);
/// let one = context.generate("The game of", &options)?.complete()?;
/// let two = context.generate("The game of chess", &options)?.complete()?;
/// assert!(context.stats().reused > 0);
/// assert_ne!(one.text, two.text);
/// # Ok::<(), trine::Error>(())
/// ```
pub struct Context {
    model: Model,
    pub(super) session: Session,
    n_batch: usize,
    /// The tokens in the session, but for those that were drafted and not asked for yet.
    pub(super) tokens: Vec<u32>,
    /// Logits after the last of them.
    logits: Vec<f32>,
    /// Drafts while they are wanted; kept from text to text, because it measures whether drafts pay.
    drafts: Option<(DraftOptions, Speculator)>,
    /// The width that the system was last told of, which it need not hear for every text.
    advised: Option<u8>,
    observer: Option<LogitsObserver>,
    stats: Stats,
}

/// Hears what a context evaluates.
struct Appended<'a> {
    tokens: &'a [u32],
    /// The position of the first token, and the index of the last.
    first: usize,
    last: usize,
    observer: &'a mut Option<LogitsObserver>,
    /// The logits after the last token.
    logits: &'a mut Vec<f32>,
    listener: Option<&'a mut Aside>,
}

impl Sink for Appended<'_> {
    fn wants_hidden(&self, _: usize) -> bool {
        false
    }

    fn hears_hidden(&self, _: usize) -> bool {
        self.listener.is_some()
    }

    fn logits(&mut self, _: usize, index: usize, logits: &[f32]) {
        if let Some(observer) = &mut self.observer {
            observer(Evaluated { position: self.first + index, token: self.tokens[index], logits });
        }
        if index == self.last {
            self.logits.clear();
            self.logits.extend_from_slice(logits);
        }
    }

    fn hidden(&mut self, _: usize, index: usize, state: &[f32]) {
        if let Some(listener) = &mut self.listener {
            listener.hear(self.first + index, state);
        }
    }
}

impl Model {
    /// An empty context.
    pub fn context(&self, options: &ContextOptions) -> Context {
        let session = self
            .session(SessionOptions { n_ctx: options.n_ctx.unwrap_or(self.n_ctx_train()), n_ubatch: options.n_ubatch });
        Context {
            model: self.clone(),
            session,
            n_batch: options.n_batch.max(1),
            tokens: Vec::new(),
            logits: Vec::new(),
            drafts: None,
            advised: None,
            observer: None,
            stats: Stats::default(),
        }
    }

    /// Parts a prompt between the model's encoder, which reads it, and the text, which begins with a token of its own
    /// then. Without an encoder the text has all of it.
    pub(super) fn parted(&self, prompt: Vec<u32>) -> Result<[Vec<u32>; 2], GenerateError> {
        let weights = self.weights();
        if weights.encoder().is_none() {
            return Ok([Vec::new(), prompt]);
        }
        let first = weights.config().first_token.or(self.tokenizer().bos());
        Ok([prompt, vec![first.ok_or(GenerateError::NoFirstToken)?]])
    }
}

impl Context {
    /// The model that reads.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Tokens that the context may hold.
    pub fn n_ctx(&self) -> usize {
        self.session.n_ctx()
    }

    /// Tokens of a prompt that are evaluated between two looks at the cancel token.
    pub(super) fn n_batch(&self) -> usize {
        self.n_batch
    }

    /// The tokens that were evaluated.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// The logits after the last of the tokens that a generation evaluated; empty before the first.
    pub fn logits(&self) -> &[f32] {
        &self.logits
    }

    /// Bits per weight of an any-precision model; `None` of any other.
    pub fn bits(&self) -> Option<u8> {
        self.session.bits()
    }

    /// Drafts of the last generation, where it was to draft: what was asked for, counts and times.
    pub fn drafts(&self) -> Option<(&DraftOptions, &Speculator)> {
        self.drafts.as_ref().map(|(options, speculator)| (options, speculator))
    }

    /// Counts and times so far.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// From now on `observer` sees the logits of every token that is evaluated for a text, in order; `None` ends that.
    /// Tokens of a prompt that were in the context already are not evaluated, and drafts are seen once they are part
    /// of the text.
    pub fn observe(&mut self, observer: Option<LogitsObserver>) {
        self.observer = observer;
    }

    /// Forgets what was evaluated ahead of the text, and of a model with a recurrent state what it was evaluated with.
    fn forget_drafts(&mut self) {
        if let Some((_, speculator)) = &mut self.drafts {
            speculator.forget(&mut self.session);
            self.tokens.truncate(self.session.n_past());
        }
    }

    /// Forgets all tokens.
    pub fn clear(&mut self) {
        self.forget_drafts();
        if let Some((_, speculator)) = &mut self.drafts {
            speculator.forget_text();
        }
        self.session.clear();
        self.tokens.clear();
        self.logits.clear();
    }

    /// Checks `options` and takes over the width and the drafts that they ask for, as every generation does at its
    /// beginning; for callers that want to hear of mistakes before.
    ///
    /// # Errors
    /// The model does not have a width, drafts would not be narrower than the text, a sampler cannot follow its
    /// options, a stop string is empty, a GPU has no room. Nothing has changed then.
    pub fn prepare(&mut self, options: &GenerateOptions) -> Result<(), GenerateError> {
        options.check()?;
        self.session.prepare().map_err(EvalError::Step)?;
        self.forget_drafts();
        let before = self.session.bits();
        if let Some(bits) = options.bits {
            self.session.set_bits(bits)?;
        }
        if let Err(e) = self.prepare_drafts(options.draft.as_ref()) {
            before.map_or(Ok(()), |bits| self.session.set_bits(bits))?;
            return Err(GenerateError::Drafts(e));
        }
        self.session.cancel_by(Some(options.cancel.clone()));
        if let Some((_, speculator)) = &mut self.drafts {
            speculator.cancel_by(options.cancel.clone());
        }
        if let Some(bits) = self.session.bits().filter(|b| Some(*b) != self.advised) {
            self.model.weights().advise_width(bits);
            self.advised = Some(bits);
        }
        Ok(())
    }

    /// Drafts from now on as `wanted`, at the session's present width.
    fn prepare_drafts(&mut self, wanted: Option<&DraftOptions>) -> Result<(), SpeculateError> {
        match (&mut self.drafts, wanted) {
            (_, None) => self.drafts = None,
            (Some((same, speculator)), Some(options)) if same == options => speculator.follow(&self.session)?,
            (_, Some(options)) => {
                let mut speculator = Speculator::new(&self.model, &self.session, &options.source, options.most)?;
                if options.always {
                    speculator.always();
                }
                self.drafts = Some((options.clone(), speculator));
            }
        }
        Ok(())
    }

    /// The tokens of `prompt`.
    pub(super) fn encode(&self, prompt: Prompt) -> Result<Vec<u32>, GenerateError> {
        let tokens = match prompt {
            Prompt::Text(text) => self.model.tokenizer().encode(&text, true, true)?,
            Prompt::Tokens(tokens) => tokens,
        };
        if tokens.is_empty() {
            return Err(GenerateError::EmptyPrompt);
        }
        Ok(tokens)
    }

    /// The model's encoder reads `tokens`; the context is empty then.
    pub(super) fn read_source(&mut self, tokens: &[u32]) -> Result<(), GenerateError> {
        let start = Instant::now();
        self.session.read_source(tokens)?;
        self.stats.prompt.add(tokens.len(), start.elapsed());
        Ok(())
    }

    /// Checks that a prompt of `tokens` tokens fits, with some room for an answer if one is wanted.
    ///
    /// # Errors
    /// It does not.
    pub fn check_room(&self, tokens: usize, answer: bool) -> Result<(), GenerateError> {
        let n_ctx = self.n_ctx();
        let reserve = if answer { RESERVE } else { 0 };
        let room = n_ctx.saturating_sub(reserve);
        if tokens > room {
            return Err(GenerateError::PromptTooLong { tokens, n_ctx, room });
        }
        Ok(())
    }

    /// Forgets the tokens from the first on that `prompt` has not, and says how many are left: none where a recurrent
    /// state stands after them. The last token of the prompt is never among them: it is evaluated again for its logits.
    pub(super) fn keep_common(&mut self, prompt: &[u32]) -> usize {
        let pairs = self.tokens.iter().zip(prompt);
        let same = pairs.take_while(|(a, b)| a == b).count();
        self.keep(same.min(prompt.len().saturating_sub(1)))
    }

    /// Forgets the tokens behind the first `len`, and says how many are left: none where a recurrent state stands after
    /// later ones.
    pub(super) fn keep(&mut self, len: usize) -> usize {
        self.forget_drafts();
        let kept = self.session.truncate(len);
        self.tokens.truncate(kept);
        kept
    }

    /// Appends tokens; keeps the logits after the last of them where those from the index `from` on are wanted.
    pub(super) fn append(&mut self, tokens: &[u32], from: usize) -> Result<(), GenerateError> {
        let first = self.tokens.len();
        let last = tokens.len() - 1;
        let from = if self.observer.is_some() { 0 } else { from };
        let Context { session, observer, logits, drafts, .. } = self;
        let listener = drafts.as_mut().and_then(|(_, speculator)| speculator.listener());
        session.eval_into(tokens, from, &mut Appended { tokens, first, last, observer, logits, listener })?;
        self.tokens.extend_from_slice(tokens);
        if let Some(listener) = self.drafts.as_mut().and_then(|(_, speculator)| speculator.listener()) {
            listener.catch_up(&self.tokens)?;
        }
        Ok(())
    }

    /// Appends a generated token, of which at most `left` more are to follow. Drafts are chosen as `chooser` would, with
    /// the random numbers that the text will draw.
    pub(super) fn advance(&mut self, id: u32, left: usize, chooser: &Chooser) -> Result<(), GenerateError> {
        let start = Instant::now();
        match &mut self.drafts {
            Some((_, speculator)) => {
                let mut drafting = None;
                // The chooser is copied for the first guess only: most calls find their token evaluated already.
                let mut guess = |row: &[f32]| drafting.get_or_insert_with(|| chooser.clone()).guess(row);
                speculator.advance(&mut self.session, &self.tokens, id, left, &mut guess, &mut self.logits)?;
                self.tokens.push(id);
                if let Some(observer) = &mut self.observer {
                    observer(Evaluated { position: self.tokens.len() - 1, token: id, logits: &self.logits });
                }
            }
            None => self.append(&[id], 0)?,
        }
        self.stats.eval.add(1, start.elapsed());
        Ok(())
    }

    pub(super) fn stats_mut(&mut self) -> &mut Stats {
        &mut self.stats
    }
}
