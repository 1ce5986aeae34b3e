//! The loop: evaluate, sample, say what is certain, until something ends the text.

use std::borrow::BorrowMut;
use std::time::Instant;

use super::text::TextStream;
use super::{Chooser, Chunk, Completion, Context, ContextOptions, End, GenerateError, GenerateOptions, Prompt};
use crate::handle::Model;

/// A text that is being generated: an iterator of [`Chunk`]s, one for every token. The last one says why the text
/// ended.
///
/// A token is evaluated when the one after it is asked for, so whoever stops asking pays for nothing more. `C` is the
/// context, the generation's own (of [`Model::generate`]) or a borrowed one (of [`Context::generate`]).
pub struct Generation<C: BorrowMut<Context> = Context> {
    context: C,
    options: GenerateOptions,
    prompt: Vec<u32>,
    chooser: Chooser,
    text: TextStream,
    /// Tokens that may still be chosen.
    left: usize,
    next: Step,
}

/// What comes next.
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
        context.check_room(prompt.len(), options.max_tokens != Some(0))?;
        context.prepare(options)?;
        let (sampler, grammar) = (options.sampler.clone(), options.grammar.as_ref());
        let chooser = Chooser::new(context.model(), sampler, options.ignore_eos, grammar);
        Ok(Generation {
            context: held,
            prompt,
            chooser: chooser.map_err(GenerateError::Sampler)?,
            text: TextStream::new(options.stop.clone()),
            left: options.max_tokens.unwrap_or(usize::MAX),
            options: options.clone(),
            next: Step::Prompt,
        })
    }

    /// The tokens that the text begins with.
    pub fn prompt(&self) -> &[u32] {
        &self.prompt
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
        if !self.read_to(self.prompt.len())? {
            return Ok(false);
        }
        if let Step::Prompt | Step::Reading = self.next {
            let heard = self.prompt.iter().skip(self.options.unheard);
            heard.for_each(|&id| self.chooser.read(id));
            self.next = Step::Sample;
        }
        Ok(true)
    }

    /// Evaluates all of the prompt but its last token, for [`Context::save`]: from there the whole prompt can be read
    /// again, of models with a recurrent state too. `false`: it was cancelled.
    ///
    /// # Errors
    /// As [`Generation::read_prompt`].
    pub fn read_beginning(&mut self) -> Result<bool, GenerateError> {
        self.read_to(self.prompt.len() - 1)
    }

    /// Evaluates at most `tokens` more of the prompt, and not its last one, for those who show how far it is. `false`:
    /// it was cancelled.
    ///
    /// # Errors
    /// As [`Generation::read_prompt`].
    pub fn read_part(&mut self, tokens: usize) -> Result<bool, GenerateError> {
        // What the context has of the prompt is kept first.
        if !self.read_to(0)? {
            return Ok(false);
        }
        let end = self.context.borrow().tokens().len() + tokens;
        self.read_to(end.min(self.prompt.len() - 1))
    }

    /// Evaluates the first `end` tokens of the prompt, unless more of it was evaluated already.
    fn read_to(&mut self, end: usize) -> Result<bool, GenerateError> {
        if !matches!(self.next, Step::Prompt | Step::Reading) {
            return Ok(true);
        }
        let context = self.context.borrow_mut();
        if let Step::Prompt = self.next {
            let kept = context.keep_common(&self.prompt);
            context.stats_mut().reused += kept;
            self.next = Step::Reading;
        }
        let (start, first) = (Instant::now(), context.tokens().len());
        while context.tokens().len() < end {
            if self.options.cancel.is_cancelled() {
                return Ok(false);
            }
            let rest = &self.prompt[context.tokens().len()..end];
            let batch = &rest[..rest.len().min(context.n_batch())];
            let wanted = batch.len() == rest.len() && end == self.prompt.len();
            match context.append(batch, wanted) {
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
        match self.next {
            Step::Prompt | Step::Reading => {
                if !self.read_prompt()? {
                    return Ok(self.last(String::new(), None, End::Cancelled));
                }
            }
            Step::Evaluate(id) => {
                let context = self.context.borrow_mut();
                if let Some(keep) = self.options.shift
                    && context.is_full()
                {
                    match context.shift(keep) {
                        Err(e) if e.is_cancelled() => {
                            return Ok(self.last(String::new(), None, End::Cancelled));
                        }
                        done => done?,
                    }
                }
                match context.advance(id, self.left, &self.chooser) {
                    Err(e) if e.is_cancelled() => {
                        return Ok(self.last(String::new(), None, End::Cancelled));
                    }
                    done => done?,
                }
            }
            Step::Sample | Step::Done => {}
        }
        if self.left == 0 {
            return Ok(self.last(String::new(), None, End::Length));
        }
        // Between two tokens; within a forward pass the session looks between two layers.
        if self.options.cancel.is_cancelled() {
            return Ok(self.last(String::new(), None, End::Cancelled));
        }
        let Some(id) = self.choose()? else {
            return Ok(self.last(String::new(), None, End::Eos));
        };
        self.left -= 1;
        let model = self.context.borrow().model();
        let ends = model.end_tokens().contains(&id);
        let (text, stop) =
            if ends { (String::new(), None) } else { self.text.push(&model.tokenizer().piece(id, false)) };
        let context = self.context();
        let shifts = self.options.shift.is_some_and(|keep| context.can_shift(keep));
        let full = context.is_full() && !shifts;
        let end = match stop {
            Some(index) => Some(End::Stop(index)),
            None if ends && !self.options.past_eos => Some(End::Eos),
            None if self.left == 0 => Some(End::Length),
            None if full => Some(End::Context),
            None => None,
        };
        if let Some(end) = end {
            return Ok(self.last(text, Some(id), end));
        }
        self.next = Step::Evaluate(id);
        Ok(Chunk { text, token: Some(id), end: None })
    }

    /// Chooses a token from the logits; `None` when only the end may follow and has no token.
    fn choose(&mut self) -> Result<Option<u32>, GenerateError> {
        let context = self.context.borrow_mut();
        let start = Instant::now();
        let id = match self.chooser.choose(context.logits()) {
            Ok(id) => id,
            Err(error) => {
                let position = context.tokens().len().saturating_sub(1);
                let error = Box::new(error);
                return Err(GenerateError::Sample { position, error });
            }
        };
        context.stats_mut().sample.add(1, start.elapsed());
        Ok(id)
    }

    /// The last chunk, with the text that was held back unless a stop string cuts it off.
    fn last(&mut self, mut text: String, token: Option<u32>, mut end: End) -> Chunk {
        self.next = Step::Done;
        if !matches!(end, End::Stop(_)) {
            let (rest, stop) = self.text.finish();
            text += &rest;
            end = stop.map_or(end, End::Stop);
        }
        Chunk { text, token, end: Some(end) }
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
