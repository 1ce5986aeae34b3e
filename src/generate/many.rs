//! Many texts in shared passes over the weights.

use super::{Completion, ContextOptions, End, Ending, GenerateError, GenerateOptions, Prompt, TextMachine};
use crate::handle::Model;
use crate::step::{Segment, Sequence, StepError, StepOptions};

/// Texts that go through the model together.
const SIDE_BY_SIDE: usize = 16;

/// Tokens of a prompt that are evaluated between two looks at the cancel token.
const BATCH: usize = 512;

/// A text that is being generated.
struct Running {
    /// Its number among the prompts.
    number: usize,
    machine: TextMachine,
    seq: Sequence,
    text: String,
    /// Logits behind its last token, where they were computed in the last pass.
    logits: Option<Vec<f32>>,
}

impl Running {
    fn complete(self, end: End) -> (usize, Completion) {
        let given = self.machine.given().len();
        let tokens = self.machine.tokens()[given..].to_vec();
        (self.number, Completion { text: self.text, tokens, end })
    }
}

impl Model {
    /// Continues each of `prompts`, in order. The texts are those of [`Model::generate`], which for many prompts takes
    /// longer: here several share each pass over the weights. Drafts are left out.
    ///
    /// ```
    /// use trine::GenerateOptions;
    ///
    /// let model = trine::open("testdata/models/trilm-wt-5.8m-F16.gguf")?;
    /// let options = GenerateOptions::greedy(8);
    /// let texts = model.generate_many(["The game", "In the year"], &options)?;
    /// assert_eq!(texts[1], model.generate("In the year", &options)?.complete()?);
    /// # Ok::<(), trine::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Model::generate`], for the first prompt that has one; and as the iterator's.
    pub fn generate_many<P: Into<Prompt>>(
        &self,
        prompts: impl IntoIterator<Item = P>,
        options: &GenerateOptions,
    ) -> Result<Vec<Completion>, GenerateError> {
        let mut context = self.context(&ContextOptions::default());
        context.prepare(&GenerateOptions { draft: None, ..options.clone() })?;
        let prompts = prompts.into_iter().map(|prompt| {
            let parts = self.parted(context.encode(prompt.into())?)?;
            context.check_room(parts[1].len(), options.max_tokens != Some(0))?;
            Ok(parts)
        });
        let prompts: Vec<[Vec<u32>; 2]> = prompts.collect::<Result<_, GenerateError>>()?;
        let texts = Texts { model: self, options, n_ctx: context.n_ctx() };
        texts.generate(prompts)
    }
}

/// The work on all texts.
struct Texts<'a> {
    model: &'a Model,
    options: &'a GenerateOptions,
    n_ctx: usize,
}

impl Texts<'_> {
    /// The continuations of prompts in their [parts](Model::parted).
    fn generate(&self, prompts: Vec<[Vec<u32>; 2]>) -> Result<Vec<Completion>, GenerateError> {
        let layout = self.model.weights().page_layout();
        let longest = prompts.iter().map(|[_, text]| text.len()).max().unwrap_or(0);
        let longest = longest.saturating_add(self.options.max_tokens.unwrap_or(self.n_ctx)).min(self.n_ctx);
        let pages = longest.div_ceil(layout.positions) + 1;
        let engine = self.model.engine(SIDE_BY_SIDE * pages * layout.bytes());
        let step = StepOptions {
            bits: self.options.bits,
            n_ctx: self.n_ctx,
            cancel: Some(self.options.cancel.clone()),
            ..StepOptions::default()
        };
        let mut done: Vec<Option<Completion>> = prompts.iter().map(|_| None).collect();
        let mut waiting = prompts.into_iter().enumerate();
        let mut running: Vec<Running> = Vec::new();
        loop {
            let room = SIDE_BY_SIDE - running.len();
            for (number, parts) in waiting.by_ref().take(room) {
                let machine = TextMachine::parted(self.model, parts, self.options)?;
                let mut seq = engine.sequence();
                if !machine.source().is_empty() {
                    match engine.read_source(&mut seq, machine.source(), &step) {
                        // the text ends with all others below
                        Ok(()) | Err(StepError::Cancelled) => {}
                        Err(e) => return Err(GenerateError::Eval(e.into())),
                    }
                }
                running.push(Running { number, machine, seq, text: String::new(), logits: None });
            }
            if running.is_empty() {
                break;
            }
            let mut rows: Vec<Option<Vec<f32>>> = running.iter().map(|_| None).collect();
            let mut segments: Vec<Segment<'_>> = running
                .iter_mut()
                .map(|text| {
                    let (tokens, logits_from) = text.machine.wanted(text.seq.len(), BATCH);
                    Segment { seq: &mut text.seq, tokens, logits_from }
                })
                .collect();
            let stepped = match self.options.cancel.is_cancelled() {
                true => Err(StepError::Cancelled),
                false => engine.step(&mut segments, &step, &mut |text, _, logits| rows[text] = Some(logits.to_vec())),
            };
            let cancelled = matches!(stepped, Err(StepError::Cancelled));
            if !cancelled {
                stepped.map_err(|e| GenerateError::Eval(e.into()))?;
            }
            for (text, row) in running.iter_mut().zip(rows) {
                text.logits = row;
            }
            for mut text in std::mem::take(&mut running) {
                let end = match cancelled {
                    true => Some(self.end(&mut text, End::Cancelled)),
                    false => self.choose(&mut text)?,
                };
                match end {
                    Some(end) => {
                        let (number, completion) = text.complete(end);
                        done[number] = Some(completion);
                    }
                    None => running.push(text),
                }
            }
        }
        Ok(done.into_iter().flatten().collect())
    }

    /// Chooses the next token of a text whose prompt was read; the reason where the text ends.
    fn choose(&self, text: &mut Running) -> Result<Option<End>, GenerateError> {
        let Some(logits) = text.logits.take() else {
            return Ok(None);
        };
        let choice = text.machine.choose(&logits, self.n_ctx).map_err(|error| GenerateError::Sample {
            position: text.seq.len().saturating_sub(1),
            error: Box::new(error),
        })?;
        if let Some(token) = choice.token {
            text.text += &token.text;
        }
        if let Some(keep) = text.machine.take_shift() {
            text.seq.truncate(keep);
        }
        Ok(choice.ending.map(|Ending { text: rest, end }| {
            text.text += &rest;
            end
        }))
    }

    fn end(&self, text: &mut Running, end: End) -> End {
        let Ending { text: rest, end } = text.machine.end(end);
        text.text += &rest;
        end
    }
}
