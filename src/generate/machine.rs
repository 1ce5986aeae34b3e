//! The state of a text between two forward passes.

use super::text::TextStream;
use super::window::{Window, is_full};
use super::{ChooseError, Chooser, End, GenerateError, GenerateOptions, TokenLogprobs, TokenOdds, Told};
use crate::grammar::GrammarError;
use crate::handle::Model;

/// One text: its tokens, the sampler and grammar that choose the next one, the pending text (which may begin a stop
/// string, or has an unfinished character), the limits that end it.
///
/// It evaluates nothing. Its driver asks with [`TextMachine::wanted`] which tokens come next, evaluates them in a
/// session of their own or in a step of many texts, and gives the logits behind the last one to
/// [`TextMachine::choose`]. The text depends on the logits alone, never on how its tokens were evaluated.
///
/// A full context ends the text, or with [`GenerateOptions::shift`] forgets tokens: then [`TextMachine::take_shift`]
/// tells the driver how much of its sequence is still right, and the rest is asked for again. llama.cpp turns the keys
/// that are there to their new places instead, whose values still come from tokens that are forgotten; its bits are
/// others.
pub struct TextMachine {
    model: Model,
    chooser: Chooser,
    pending: TextStream,
    /// The prompt, of a model whose encoder reads it.
    source: Vec<u32>,
    /// Prompt, resumed and generated tokens.
    tokens: Vec<u32>,
    /// Number of prompt and resumed tokens.
    given: usize,
    /// Tokens that may still be generated; `None`: no limit.
    left: Option<usize>,
    past_eos: bool,
    /// Control tokens whose names belong to the text.
    shown: Vec<u32>,
    /// Tokens that stay when the context is full and others are forgotten; `None`: the text ends there.
    shift: Option<usize>,
    window: Window,
    logprobs: Option<usize>,
    odds: bool,
    /// Probabilities of the prompt's tokens so far, where they are wanted.
    prompt_logprobs: Option<Vec<TokenLogprobs>>,
}

/// A generated token.
#[derive(Clone, Debug, PartialEq)]
pub struct Token {
    /// Its id.
    pub id: u32,
    /// The text that is certain now. Empty while a character is incomplete or a stop string may have begun.
    pub text: String,
    /// Its probability, where [`GenerateOptions::logprobs`] asks for it.
    pub logprobs: Option<Told>,
}

/// The end of a text.
#[derive(Clone, Debug, PartialEq)]
pub struct Ending {
    /// Pending text that belongs to the text after all.
    pub text: String,
    /// The reason.
    pub end: End,
}

/// Results of one choice.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The token; `None` where the text ended without one.
    pub token: Option<Token>,
    /// Present where the text ends here.
    pub ending: Option<Ending>,
}

/// Why a text cannot be taken up in its middle.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ResumeError {
    /// The state of a step of the sampler does not follow from tokens alone.
    #[error(
        "'{0}' chooses by probabilities of the earlier tokens, which are not known here; send the prompt alone, and the text begins again with the same tokens"
    )]
    Sampler(&'static str),
    /// The grammar does not allow the tokens.
    #[error(transparent)]
    Grammar(#[from] GrammarError),
}

/// At most `most` of `tokens` behind the first `evaluated`, and the index among them from which on logits are wanted: that
/// of the last one of all.
fn next_tokens(tokens: &[u32], evaluated: usize, most: usize) -> (&[u32], usize) {
    let rest = &tokens[evaluated..];
    let next = &rest[..rest.len().min(most)];
    let from = match next.len() == rest.len() {
        true => next.len().saturating_sub(1),
        false => next.len(),
    };
    (next, from)
}

impl TextMachine {
    /// The continuation of `prompt`, of which nothing was evaluated yet.
    ///
    /// # Errors
    /// Options that no sampler can follow; no token that a text begins with, of a model whose encoder reads the prompt.
    pub fn new(model: &Model, prompt: Vec<u32>, options: &GenerateOptions) -> Result<TextMachine, GenerateError> {
        TextMachine::parted(model, model.parted(prompt)?, options)
    }

    /// The same of a prompt in its [parts](Model::parted).
    pub(super) fn parted(
        model: &Model,
        [source, prompt]: [Vec<u32>; 2],
        options: &GenerateOptions,
    ) -> Result<TextMachine, GenerateError> {
        let chooser = Chooser::new(model, options.sampler.clone(), options.ignore_eos, options.grammar.as_ref());
        let mut chooser = chooser.map_err(GenerateError::Sampler)?;
        if options.odds && options.logprobs.is_some() {
            chooser.keep_odds();
        }
        // of a prompt that an encoder reads nothing is there to be forgotten
        let most_kept = if source.is_empty() { usize::MAX } else { prompt.len() };
        let shift = options.shift.map(|keep| keep.min(most_kept));
        prompt.iter().skip(options.unheard).for_each(|&id| chooser.read(id));
        Ok(TextMachine {
            model: model.clone(),
            chooser,
            pending: TextStream::new(options.stop.clone()),
            given: prompt.len(),
            tokens: prompt,
            source,
            left: options.max_tokens,
            past_eos: options.past_eos,
            shown: options.shown.clone(),
            shift,
            window: Window::default(),
            logprobs: options.logprobs,
            odds: options.odds,
            prompt_logprobs: None,
        })
    }

    /// Continues after `tokens` of an earlier text machine, as if they had been generated here.
    ///
    /// # Errors
    /// They cannot have been.
    pub fn resume(&mut self, tokens: &[u32]) -> Result<(), ResumeError> {
        if let Some(step) = self.chooser.unreplayable().filter(|_| !tokens.is_empty()) {
            return Err(ResumeError::Sampler(step));
        }
        for &id in tokens {
            self.chooser.replay(id)?;
            // Its reader has the text already.
            self.pending.push(&self.model.tokenizer().piece(id, self.shown.contains(&id)));
        }
        self.tokens.extend_from_slice(tokens);
        self.given += tokens.len();
        self.left = self.left.map(|n| n.saturating_sub(tokens.len()));
        Ok(())
    }

    /// From now on keeps the probabilities of the prompt's tokens, which [`TextMachine::read`] sees.
    pub fn keep_prompt_logprobs(&mut self) {
        self.prompt_logprobs.get_or_insert_default();
    }

    /// Probabilities of the prompt's tokens but the first, in order; once, where they are kept.
    pub fn take_prompt_logprobs(&mut self) -> Option<Vec<TokenLogprobs>> {
        self.prompt_logprobs.take()
    }

    /// The tokens that the model's encoder reads before the text is evaluated; none where it has no encoder.
    pub fn source(&self) -> &[u32] {
        &self.source
    }

    /// Prompt, resumed and generated tokens. The last generated one is not evaluated yet.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// The tokens of the context: those of the text, once it was full those that were not forgotten. The last generated
    /// one is not evaluated yet.
    pub fn context(&self) -> &[u32] {
        self.window.tokens().unwrap_or(&self.tokens)
    }

    /// How many of the first tokens of the context are where they were, after others were forgotten; once. The sequence
    /// keeps no more of them.
    pub fn take_shift(&mut self) -> Option<usize> {
        self.window.take_kept()
    }

    /// How often a full context forgot tokens.
    pub fn shifts(&self) -> usize {
        self.window.shifts()
    }

    /// Prompt and resumed tokens; in the place of a prompt that an encoder reads the token that a text begins with.
    pub fn given(&self) -> &[u32] {
        &self.tokens[..self.given]
    }

    /// Number of generated tokens.
    pub fn generated(&self) -> usize {
        self.tokens.len() - self.given
    }

    /// Number of tokens that may still be generated; `None`: no limit.
    pub fn left(&self) -> Option<usize> {
        self.left
    }

    /// Chooses the tokens; a copy of it drafts.
    pub fn chooser(&self) -> &Chooser {
        &self.chooser
    }

    /// At most `most` tokens of the context to be evaluated behind the first `evaluated` ones, and the index among them
    /// from which on logits are wanted.
    pub fn wanted(&self, evaluated: usize, most: usize) -> (&[u32], usize) {
        let (tokens, from) = next_tokens(self.context(), evaluated, most);
        (tokens, if self.prompt_logprobs.is_some() { 0 } else { from })
    }

    /// Takes in the logits behind the token at `position` of the prompt, which is not its last. A position that was
    /// read before is left out, because a text may be evaluated again from its beginning.
    pub fn read(&mut self, position: usize, logits: &[f32]) {
        let next = position + 1;
        if let Some(known) = &mut self.prompt_logprobs
            && (known.len() + 1..self.given).contains(&next)
        {
            known.push(TokenLogprobs::new(logits, self.tokens[next], self.logprobs.unwrap_or(0)));
        }
    }

    /// Chooses the next token from the logits behind the last one, in a context of `n_ctx` tokens: where that has no room
    /// for a token behind the chosen one, it forgets some, or the text ends.
    ///
    /// # Errors
    /// No token can be chosen.
    pub fn choose(&mut self, logits: &[f32], n_ctx: usize) -> Result<Choice, ChooseError> {
        if self.left == Some(0) {
            return Ok(Choice { token: None, ending: Some(self.end(End::Length)) });
        }
        let Some(id) = self.chooser.choose(logits)? else {
            return Ok(Choice { token: None, ending: Some(self.end(End::Eos)) });
        };
        let full = is_full(self.context().len(), n_ctx);
        self.tokens.push(id);
        self.window.push(id);
        self.left = self.left.map(|n| n - 1);
        let ends = self.chooser.is_end(id);
        let (text, stop) = match ends {
            true => (String::new(), None),
            false => self.pending.push(&self.model.tokenizer().piece(id, self.shown.contains(&id))),
        };
        let logprobs = self.logprobs.map(|top| match self.odds {
            true => Told::Odds(TokenOdds::new(self.chooser.odds(), id, top)),
            false => Told::Logprobs(TokenLogprobs::new(logits, id, top)),
        });
        let mut end = match stop {
            Some(index) => Some(End::Stop(index)),
            None if ends && !self.past_eos => Some(End::Eos),
            None if self.left == Some(0) => Some(End::Length),
            None => None,
        };
        if end.is_none() && full && !self.shift.is_some_and(|keep| self.window.shift(&self.tokens, keep)) {
            end = Some(End::Context);
        }
        let token = Some(Token { id, text, logprobs });
        Ok(Choice { token, ending: end.map(|end| self.end(end)) })
    }

    /// Ends the text for a reason from outside or inside. The pending text comes out, unless it has a stop string.
    pub fn end(&mut self, end: End) -> Ending {
        if let End::Stop(_) = end {
            return Ending { text: String::new(), end };
        }
        let (text, stop) = self.pending.finish();
        Ending { text, end: stop.map_or(end, End::Stop) }
    }
}
