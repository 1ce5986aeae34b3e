//! Which token comes next: the sampler's choice among what a grammar allows.

use crate::grammar::{Grammar, GrammarError, Matcher};
use crate::handle::Model;
use crate::sample::{SampleError, Sampler, SamplerOptions};

/// Chooses the tokens of one text.
///
/// Where there is a grammar, what it does not allow is left out before the sampler's chain begins. (llama.cpp samples
/// first and samples again when the grammar does not allow the choice, which draws other random numbers.)
#[derive(Clone)]
pub struct Chooser {
    sampler: Sampler,
    matcher: Option<Matcher>,
    /// The tokens that end a text.
    ends: Vec<u32>,
}

/// Why no token can be chosen.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ChooseError {
    /// The sampler cannot.
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// The grammar allows nothing, or takes too much.
    #[error(transparent)]
    Grammar(#[from] GrammarError),
}

impl Chooser {
    /// For a text of `model` that has read nothing yet. Tokens that the file suppresses are never chosen; with
    /// `ignore_eos` neither are those that end a text.
    ///
    /// # Errors
    /// Options that no sampler can follow.
    pub fn new(
        model: &Model,
        mut options: SamplerOptions,
        ignore_eos: bool,
        grammar: Option<&Grammar>,
    ) -> Result<Chooser, SampleError> {
        options.banned.extend(model.suppressed_tokens());
        if ignore_eos {
            options.banned.extend(model.end_tokens());
        }
        Ok(Chooser {
            sampler: Sampler::new(options)?,
            matcher: grammar.map(Grammar::matcher),
            ends: model.end_tokens().to_vec(),
        })
    }

    /// From now on keeps the probabilities that tokens are sampled with, for [`Chooser::odds`]. It changes no choice.
    pub fn keep_odds(&mut self) {
        self.sampler.keep_odds();
    }

    /// The tokens that the last one was sampled from, with their probabilities behind the sampler's chain: the likeliest
    /// first, none of probability 0.
    pub fn odds(&self) -> &[(u32, f32)] {
        self.sampler.odds()
    }

    /// The step of the sampler, by the option that asks for it, whose state does not follow from the tokens of a text
    /// alone: such a text cannot be [replayed](Chooser::replay).
    pub fn unreplayable(&self) -> Option<&'static str> {
        self.sampler.options().unreplayable()
    }

    /// True if a token ends the text.
    pub fn is_end(&self, id: u32) -> bool {
        self.ends.contains(&id)
    }

    /// Remembers a token of the prompt.
    pub fn read(&mut self, id: u32) {
        self.sampler.accept(id);
    }

    /// As if `id` had been chosen: what comes next is chosen as after it.
    ///
    /// # Errors
    /// The grammar does not allow it.
    pub fn replay(&mut self, id: u32) -> Result<(), GrammarError> {
        self.sampler.replay(id);
        if let Some(matcher) = &mut self.matcher {
            // Looked at as well, so that the matcher has done all that it did where the token was chosen.
            matcher.allowed()?;
            if !self.ends.contains(&id) {
                matcher.accept(id)?;
            }
        }
        Ok(())
    }

    /// The token that a draft goes on with; `None` ends the draft, because the text may end there.
    pub fn guess(&mut self, logits: &[f32]) -> Option<u32> {
        self.choose(logits).ok().flatten().filter(|id| !self.is_end(*id))
    }

    /// Chooses the next token and remembers it. `None`: the grammar lets nothing follow but the end of the text, for
    /// which the model has no token that may be chosen.
    ///
    /// # Errors
    /// A NaN or +inf among the logits; the grammar takes too much.
    pub fn choose(&mut self, logits: &[f32]) -> Result<Option<u32>, ChooseError> {
        let id = match &mut self.matcher {
            None => self.sampler.sample(logits)?,
            Some(matcher) => {
                let allowed = matcher.allowed()?;
                let ends = &self.ends;
                let may = |id| {
                    if ends.contains(&id) { allowed.end() } else { allowed.token(id) }
                };
                let Some(id) = self.sampler.sample_among(logits, may)? else {
                    return match allowed.end() {
                        true => Ok(None),
                        false => {
                            let why = "every token that it allows is banned";
                            Err(GrammarError::Stopped(why.to_owned()).into())
                        }
                    };
                };
                if !ends.contains(&id) {
                    matcher.accept(id)?;
                }
                id
            }
        };
        self.sampler.accept(id);
        Ok(Some(id))
    }
}
