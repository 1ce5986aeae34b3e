//! One text in a context of its own: evaluate what the text machine wants, let it choose, until the text ends.

use std::borrow::BorrowMut;
use std::time::Instant;

use super::{
    Chunk, Completion, Context, ContextOptions, End, Ending, GenerateError, GenerateOptions, Prompt, TextMachine,
};
use crate::CancelToken;
use crate::handle::Model;

/// A text that is being generated: an iterator of [`Chunk`]s, one for every token. The last one says why the text
/// ended.
///
/// A token is evaluated when the one after it is asked for, so whoever stops asking pays for nothing more. `C` is the
/// context, the generation's own (of [`Model::generate`]) or a borrowed one (of [`Context::generate`]).
pub struct Generation<C: BorrowMut<Context> = Context> {
    context: C,
    machine: TextMachine,
    cancel: CancelToken,
    next: Step,
}

/// The next thing to do.
#[derive(Clone, Copy)]
enum Step {
    /// The prompt, of which nothing was evaluated yet.
    Prompt,
    /// The rest of the prompt: the context holds its beginning and nothing else.
    Reading,
    /// A token was chosen and waits to be evaluated.
    Evaluate(u32),
    /// The logits are there.
    Sample,
    /// The text has ended.
    Done,
}

impl Model {
    /// Continues `prompt` in a context of its own, as large as the model was trained with.
    ///
    /// ```
    /// use trine::{End, GenerateOptions};
    ///
    /// let model = trine::open("testdata/models/trilm-wt-5.8m-F16.gguf")?;
    /// let options = GenerateOptions { stop: vec!["\n".to_owned()], ..GenerateOptions::greedy(24) };
    /// let completion = model.generate("The game", &options)?.complete()?;
    /// assert!(!completion.text.contains('\n'));
    /// assert!(completion.tokens.len() <= 24);
    /// # Ok::<(), trine::Error>(())
    /// ```
    ///
    /// # Errors
    /// The prompt cannot be encoded or does not fit; options that make no sense; a width that the model does not have.
    pub fn generate(&self, prompt: impl Into<Prompt>, options: &GenerateOptions) -> Result<Generation, GenerateError> {
        let context = self.context(&ContextOptions::default());
        Generation::new(context, prompt.into(), options)
    }
}

impl Context {
    /// Continues `prompt`. What the context has in common with it is not evaluated again; the rest of the context is
    /// forgotten.
    ///
    /// # Errors
    /// As [`Model::generate`]; the context is as it was then.
    pub fn generate(
        &mut self,
        prompt: impl Into<Prompt>,
        options: &GenerateOptions,
    ) -> Result<Generation<&mut Context>, GenerateError> {
        Generation::new(self, prompt.into(), options)
    }

    /// [`Context::generate`], with a generation that owns the context and so can be moved about.
    ///
    /// # Errors
    /// As [`Model::generate`]; the context is lost then.
    pub fn into_generation(
        self,
        prompt: impl Into<Prompt>,
        options: &GenerateOptions,
    ) -> Result<Generation, GenerateError> {
        Generation::new(self, prompt.into(), options)
    }
}

impl<C: BorrowMut<Context>> Generation<C> {
    fn new(mut held: C, prompt: Prompt, options: &GenerateOptions) -> Result<Generation<C>, GenerateError> {
        options.check()?;
        let context = held.borrow_mut();
        let prompt = context.encode(prompt)?;
        let parts = context.model().parted(prompt)?;
        context.check_room(parts[1].len(), options.max_tokens != Some(0))?;
        context.prepare(options)?;
        Ok(Generation {
            machine: TextMachine::parted(context.model(), parts, options)?,
            context: held,
            cancel: options.cancel.clone(),
            next: Step::Prompt,
        })
    }

    /// The tokens that the model's encoder reads; none where it has no encoder.
    pub fn source(&self) -> &[u32] {
        self.machine.source()
    }

    /// The tokens that the text begins with: the prompt, or of a model whose encoder reads that the one behind it.
    pub fn prompt(&self) -> &[u32] {
        self.machine.given()
    }

    /// The context, with what was evaluated so far.
    pub fn context(&self) -> &Context {
        self.context.borrow()
    }

    /// The context, for the next text.
    pub fn into_context(self) -> C {
        self.context
    }

    /// Evaluates the prompt, which otherwise the first call of [`next`](Iterator::next) does. `false`: it was
    /// cancelled, and what was evaluated of it stays in the context.
    ///
    /// # Errors
    /// A token of the prompt that the model does not have.
    pub fn read_prompt(&mut self) -> Result<bool, GenerateError> {
        let read = self.read_to(self.prompt().len())?;
        if read && let Step::Prompt | Step::Reading = self.next {
            self.next = Step::Sample;
        }
        Ok(read)
    }

    /// Evaluates all of the prompt but its last token, for [`Context::save`]: from there the whole prompt can be read
    /// again, of models with a recurrent state too. `false`: it was cancelled.
    ///
    /// # Errors
    /// As [`Generation::read_prompt`].
    pub fn read_beginning(&mut self) -> Result<bool, GenerateError> {
        self.read_to(self.prompt().len() - 1)
    }

    /// Evaluates at most `tokens` more of the prompt, and not its last one, for those who show how far it is. `false`:
    /// it was cancelled.
    ///
    /// # Errors
    /// As [`Generation::read_prompt`].
    pub fn read_part(&mut self, tokens: usize) -> Result<bool, GenerateError> {
        // The beginning that the context has already is kept first.
        if !self.read_to(0)? {
            return Ok(false);
        }
        let end = self.context.borrow().tokens().len() + tokens;
        self.read_to(end.min(self.prompt().len() - 1))
    }

    /// Evaluates the first `end` tokens of the prompt, unless more of it was evaluated already.
    fn read_to(&mut self, end: usize) -> Result<bool, GenerateError> {
        if !matches!(self.next, Step::Prompt | Step::Reading) {
            return Ok(true);
        }
        let context = self.context.borrow_mut();
        if let Step::Prompt = self.next {
            let kept = context.keep_common(self.machine.given());
            context.stats_mut().reused += kept;
            if !self.machine.source().is_empty() {
                match context.read_source(self.machine.source()) {
                    Err(e) if e.is_cancelled() => return Ok(false),
                    done => done?,
                }
            }
            self.next = Step::Reading;
        }
        self.append_to(end)
    }

    /// Evaluates tokens of the machine's context until it has the first `end`. `false`: it was cancelled.
    fn append_to(&mut self, end: usize) -> Result<bool, GenerateError> {
        let context = self.context.borrow_mut();
        let (start, first) = (Instant::now(), context.tokens().len());
        while context.tokens().len() < end {
            if self.cancel.is_cancelled() {
                return Ok(false);
            }
            let evaluated = context.tokens().len();
            let (batch, from) = self.machine.wanted(evaluated, context.n_batch().min(end - evaluated));
            match context.append(batch, from) {
                Err(e) if e.is_cancelled() => return Ok(false),
                done => done?,
            }
        }
        let new = context.tokens().len() - first;
        context.stats_mut().prompt.add(new, start.elapsed());
        Ok(true)
    }

    /// The whole text at once.
    ///
    /// # Errors
    /// The first one of the iterator.
    pub fn complete(self) -> Result<Completion, GenerateError> {
        let mut completion = Completion { text: String::new(), tokens: Vec::new(), end: End::Length };
        for chunk in self {
            let chunk = chunk?;
            completion.text += &chunk.text;
            completion.tokens.extend(chunk.token);
            completion.end = chunk.end.unwrap_or(completion.end);
        }
        Ok(completion)
    }

    /// Everything between two chunks.
    fn step(&mut self) -> Result<Chunk, GenerateError> {
        let evaluated = match self.next {
            Step::Prompt | Step::Reading => self.read_prompt(),
            Step::Evaluate(id) => match self.evaluate(id) {
                Err(e) if e.is_cancelled() => Ok(false),
                done => done,
            },
            Step::Sample | Step::Done => Ok(true),
        };
        // Between two tokens; within a forward pass the session looks between two layers.
        if !evaluated? || self.machine.left() != Some(0) && self.cancel.is_cancelled() {
            return Ok(self.last(End::Cancelled));
        }
        let context = self.context.borrow_mut();
        let n_ctx = context.n_ctx();
        let start = Instant::now();
        let choice = self.machine.choose(context.logits(), n_ctx).map_err(|error| GenerateError::Sample {
            position: context.tokens().len().saturating_sub(1),
            error: Box::new(error),
        })?;
        let mut chunk = Chunk { text: String::new(), token: None, logprobs: None, end: None };
        if let Some(token) = choice.token {
            context.stats_mut().sample.add(1, start.elapsed());
            chunk = Chunk { text: token.text, token: Some(token.id), logprobs: token.logprobs, end: None };
            self.next = Step::Evaluate(token.id);
        }
        if let Some(Ending { text, end }) = choice.ending {
            chunk.text += &text;
            chunk.end = Some(end);
            self.next = Step::Done;
        }
        Ok(chunk)
    }

    /// Evaluates a chosen token, and before it again those that lost their places in a full context. `false`: it was
    /// cancelled.
    fn evaluate(&mut self, id: u32) -> Result<bool, GenerateError> {
        if let Some(keep) = self.machine.take_shift() {
            let context = self.context.borrow_mut();
            context.keep(keep);
            context.stats_mut().shifts += 1;
            if !self.append_to(self.machine.context().len() - 1)? {
                return Ok(false);
            }
        }
        let context = self.context.borrow_mut();
        context.advance(id, self.machine.left().unwrap_or(usize::MAX), self.machine.chooser())?;
        Ok(true)
    }

    /// The last chunk of a text that ends without a token.
    fn last(&mut self, end: End) -> Chunk {
        self.next = Step::Done;
        let Ending { text, end } = self.machine.end(end);
        Chunk { text, token: None, logprobs: None, end: Some(end) }
    }
}

impl<C: BorrowMut<Context>> Iterator for Generation<C> {
    type Item = Result<Chunk, GenerateError>;

    fn next(&mut self) -> Option<Self::Item> {
        if matches!(self.next, Step::Done) {
            return None;
        }
        let chunk = self.step();
        if chunk.is_err() {
            self.next = Step::Done;
        }
        Some(chunk)
    }
}

impl<C: BorrowMut<Context>> std::iter::FusedIterator for Generation<C> {}
