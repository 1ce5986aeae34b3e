//! Evaluates and samples, token by token.

use std::time::Instant;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};
use trine::step::{Session, SessionOptions};
use trine::sample::Sampler;
use trine::speculate::Speculator;

use super::args::Args;
use super::output::Output;
use super::timings::Timings;
use crate::interrupt;
use crate::load::Loaded;
use crate::text::hex;

/// Why a generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The model ended the text.
    Eos,
    /// As many tokens as were asked for.
    Length,
    /// The context is full.
    Context,
    /// Ctrl-C.
    Interrupted,
}

impl Stop {
    /// As `--json` says it.
    pub fn name(self) -> &'static str {
        match self {
            Stop::Eos => "eos",
            Stop::Length => "length",
            Stop::Context => "context",
            Stop::Interrupted => "interrupted",
        }
    }
}

/// Room that a prompt leaves in the context, as in llama.cpp.
const RESERVE: usize = 4;

/// A session with its sampler.
pub struct Engine {
    session: Session,
    sampler: Sampler,
    seed: u32,
    n_batch: usize,
    eog: Vec<u32>,
    past_eos: bool,
    proofs: bool,
    /// The tokens in the context.
    evaluated: Vec<u32>,
    /// Logits after the last of them.
    logits: Vec<f32>,
    speculator: Option<Speculator>,
    /// What took how long.
    pub timings: Timings,
}

impl Engine {
    /// An empty context and a fresh sampler.
    pub fn new(
        args: &Args,
        loaded: &Loaded,
        n_ctx: usize,
        seed: u32,
        start: Instant,
    ) -> Result<Engine> {
        let tokenizer = &loaded.tokenizer;
        let eog: Vec<u32> = (0..tokenizer.n_vocab() as u32)
            .filter(|&id| tokenizer.is_eog(id))
            .collect();
        let suppressed = loaded
            .file
            .meta()
            .get_u32s("tokenizer.ggml.suppress_tokens")?;
        let mut banned: Vec<u32> = suppressed.unwrap_or_default().into_owned();
        if args.ignore_eos {
            banned.extend(&eog);
        }
        let options = SessionOptions {
            n_ctx,
            n_ubatch: args.ubatch_size,
        };
        let mut session = Session::new(&loaded.model, &loaded.pool, options);
        if let Some(bits) = args.bits {
            let name = || format!("'{}'", args.model.model.display());
            session.set_bits(bits).with_context(name)?;
        }
        if let Some(bits) = session.bits() {
            loaded.model.advise_width(bits);
        }
        let speculator = match args.draft_bits {
            None => None,
            Some(draft) => {
                let speculator = Speculator::new(&session, draft, args.draft);
                let mut speculator = speculator.context("--draft-bits")?;
                if args.draft_always {
                    speculator.always();
                }
                Some(speculator)
            }
        };
        Ok(Engine {
            session,
            speculator,
            sampler: Sampler::new(args.sampler(seed, n_ctx, banned))?,
            seed,
            n_batch: args.batch_size,
            eog,
            past_eos: args.predict == -2,
            proofs: args.logits_sha256,
            evaluated: Vec::new(),
            logits: Vec::new(),
            timings: Timings::new(start, loaded.time, loaded.model.layouts().to_string()),
        })
    }

    /// The seed of the sampler.
    pub fn seed(&self) -> u32 {
        self.seed
    }

    /// Size of the context.
    pub fn n_ctx(&self) -> usize {
        self.session.n_ctx()
    }

    /// Bits per weight of an any-precision model.
    pub fn bits(&self) -> Option<u8> {
        self.session.bits()
    }

    /// Runs an any-precision model at `bits` from now on; what is in the context stays.
    pub fn set_bits(&mut self, bits: u8) -> Result<()> {
        let before = self.session.bits();
        self.session.set_bits(bits)?;
        if let Some(speculator) = &mut self.speculator
            && let Err(e) = speculator.follow(&self.session)
        {
            before.map_or(Ok(()), |bits| self.session.set_bits(bits))?;
            return Err(e.into());
        }
        self.session.model().advise_width(bits);
        Ok(())
    }

    /// How drafting went, where it was asked for.
    pub fn speculator(&self) -> Option<&Speculator> {
        self.speculator.as_ref()
    }

    /// Whether a prompt of `n` tokens fits, with some room for an answer if one is wanted.
    pub fn check_room(&self, n: usize, answer: bool) -> Result<()> {
        let n_ctx = self.n_ctx();
        let room = if answer {
            n_ctx.saturating_sub(RESERVE)
        } else {
            n_ctx
        };
        if n > room {
            bail!(
                "the prompt is too long: {n} tokens, but a context of {n_ctx} has room for {room}; use a larger -c or a shorter prompt"
            );
        }
        Ok(())
    }

    /// Brings the context to `tokens`; what it has in common with the present one is kept. `Some`: it
    /// was stopped.
    pub fn prompt(&mut self, tokens: &[u32], out: &mut Output<'_>) -> Result<Option<Stop>> {
        let same = self
            .evaluated
            .iter()
            .zip(tokens)
            .take_while(|(a, b)| a == b)
            .count();
        // The last token is evaluated again for its logits.
        let keep = same.min(tokens.len().saturating_sub(1));
        if let Some(speculator) = &mut self.speculator {
            speculator.forget(&mut self.session);
        }
        self.session.truncate(keep);
        self.evaluated.truncate(keep);
        self.sampler.reset();
        tokens.iter().for_each(|&id| self.sampler.accept(id));
        let start = Instant::now();
        for batch in tokens[keep..].chunks(self.n_batch) {
            if interrupt::asked() {
                return Ok(Some(Stop::Interrupted));
            }
            let last = self.evaluated.len() + batch.len() == tokens.len();
            self.eval(batch, last, out)?;
        }
        self.timings.prompt(tokens.len() - keep, start.elapsed());
        Ok(None)
    }

    /// Chooses tokens until something ends the text.
    pub fn generate(&mut self, predict: i64, out: &mut Output<'_>) -> Result<Stop> {
        let mut left = usize::try_from(predict).unwrap_or(usize::MAX);
        loop {
            if left == 0 {
                return Ok(Stop::Length);
            }
            if interrupt::asked() {
                return Ok(Stop::Interrupted);
            }
            let start = Instant::now();
            let position = self.evaluated.len().saturating_sub(1);
            let id = self
                .sampler
                .sample(&self.logits)
                .with_context(|| format!("position {position}"))?;
            self.sampler.accept(id);
            self.timings.sample(start.elapsed());
            left -= 1;
            let ends = self.eog.contains(&id);
            out.token(id, ends)?;
            if ends && !self.past_eos {
                return Ok(Stop::Eos);
            }
            if left == 0 {
                return Ok(Stop::Length);
            }
            if self.evaluated.len() + 1 >= self.n_ctx() {
                return Ok(Stop::Context);
            }
            let start = Instant::now();
            if self.speculator.is_some() {
                self.advance(id, left, out)?;
            } else {
                self.eval(&[id], true, out)?;
            }
            self.timings.eval(start.elapsed());
        }
    }

    /// Appends a token of which `left` more are to follow, by way of drafts.
    fn advance(&mut self, id: u32, left: usize, out: &mut Output<'_>) -> Result<()> {
        let Some(speculator) = &mut self.speculator else {
            return Ok(());
        };
        // a draft draws the random numbers that the text will draw
        let (sampler, eog) = (&self.sampler, &self.eog);
        let mut drafts = None;
        let mut guess = |logits: &[f32]| {
            let sampler = drafts.get_or_insert_with(|| sampler.clone());
            let id = sampler.sample(logits).ok()?;
            sampler.accept(id);
            (!eog.contains(&id)).then_some(id)
        };
        let session = &mut self.session;
        speculator.advance(session, id, left, &mut guess, &mut self.logits)?;
        self.evaluated.push(id);
        if self.proofs {
            out.proof(self.evaluated.len() - 1, id, hash(&self.logits))?;
        }
        Ok(())
    }

    /// Appends tokens; keeps the logits after the last one when they are wanted.
    fn eval(&mut self, tokens: &[u32], wanted: bool, out: &mut Output<'_>) -> Result<()> {
        let first = self.evaluated.len();
        let last = tokens.len() - 1;
        let from = match (self.proofs, wanted) {
            (true, _) => 0,
            (false, true) => last,
            (false, false) => tokens.len(),
        };
        let (proofs, kept) = (self.proofs, &mut self.logits);
        let mut hashes = Vec::new();
        self.session.eval(tokens, from, &mut |i, logits| {
            if proofs {
                hashes.push(hash(logits));
            }
            if i == last {
                kept.clear();
                kept.extend_from_slice(logits);
            }
        })?;
        self.evaluated.extend_from_slice(tokens);
        for (i, hash) in hashes.into_iter().enumerate() {
            out.proof(first + i, tokens[i], hash)?;
        }
        Ok(())
    }
}

/// SHA-256 of the little-endian bytes, in hexadecimal.
fn hash(logits: &[f32]) -> String {
    let mut sha = Sha256::new();
    let mut bytes = Vec::with_capacity(4096);
    for part in logits.chunks(1024) {
        bytes.clear();
        part.iter()
            .for_each(|l| bytes.extend_from_slice(&l.to_le_bytes()));
        sha.update(&bytes);
    }
    hex(&sha.finalize())
}
