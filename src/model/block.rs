//! The block interpreter: mixer and feed-forward network as an architecture's description has them.
//!
//! What a description does not list is absent here; nothing is decided by an architecture's name.

use trine_cuda::program::{ProgramError, Span};

use super::config::Config;
use super::feed_forward::{Early, FeedForward};
use super::kept::Scores;
use super::load::Loader;
use super::mixer::Mixer;
use super::pass::Pass;
use super::recording::{Recording, missing, refuse};
use super::streams::Connection;
use crate::arch::rules::{Residual, Sum};
use crate::ops;
use crate::ops::norm::Norm;

/// One block: a mixer and a feed-forward network, or one of the two.
pub struct Block {
    /// Before attention.
    attn_norm: Option<Norm>,
    mixer: Option<Mixer>,
    /// Of what attention adds.
    attn_post_norm: Option<Norm>,
    /// Before the feed-forward network.
    ffn_norm: Option<Norm>,
    ffn: Option<FeedForward>,
    /// Of what the feed-forward network adds.
    ffn_post_norm: Option<Norm>,
    /// The order of the additions where both halves see the block's input; `None` where one follows the other.
    parallel: Option<Sum>,
    /// Factor on what both halves add.
    residual_scale: Option<f32>,
    /// Factor on what both halves see, which they add to in the place of the block's input.
    normed: Option<f32>,
    /// Factor on the embeddings, which are added at last.
    skip: Option<f32>,
    /// What both halves see of residual streams that were kept, where any are.
    kept: Option<Kept>,
    /// How the mixer and the feed-forward network read and write several residual streams, where there are several.
    connections: Option<Box<[Connection; 2]>>,
}

/// How a block attends to residual streams that were kept.
struct Kept {
    /// Before the mixer and before the feed-forward network.
    scores: [Scores; 2],
    /// Whether the block keeps the stream, which begins again with what the mixer gives.
    keeps: bool,
}

impl Block {
    /// The block number `layer`; `None` where a tensor is missing, which is noted.
    pub fn load(loader: &mut Loader<'_>, c: &Config, layer: usize) -> Option<Block> {
        let mut norm = |name: &str| loader.norm(Some(layer), name);
        let first = norm("attn_norm");
        // with a norm of attention's own the first is the feed-forward network's
        let (attn_norm, ffn_norm) = match norm("attn_norm_2") {
            Some(own) => (Some(own), first),
            None => (first, norm("ffn_norm")),
        };
        let mut post_norm = |name: &str| {
            let norm = norm(name)?;
            let eps = c.arch.post_norm_eps.unwrap_or(norm.eps);
            Some(Norm { eps, ..norm })
        };
        let attn_post_norm = post_norm("post_attention_norm");
        let ffn_post_norm = post_norm("post_ffw_norm");
        let parallel = match c.residual {
            Residual::Parallel(sum) => Some(sum),
            Residual::ByNorm(sum) if ffn_norm.is_none() => Some(sum),
            _ => None,
        };
        let normed = c.residual == Residual::Normed;
        let parts = c.mixing.blocks[layer];
        let mixes = parts.attends || parts.recurs;
        let mixer = mixes.then(|| Mixer::load(loader, c, layer));
        let ffn = parts.feeds.then(|| FeedForward::load(loader, c, layer));
        let kept = match c.kept_every {
            Some(every) => {
                let mut scores = |name| loader.required_norm(layer, name).map(Scores);
                let scores = [scores("attn_res_score")?, scores("ffn_res_score")?];
                let keeps = layer.is_multiple_of(every);
                Some(Kept { scores, keeps })
            }
            None => None,
        };
        let connections = match c.streams {
            Some(sizes) => {
                let [attn, ffn] = ["attn", "ffn"].map(|half| {
                    let mixes = loader.linear(layer, &format!("hc_{half}_fn"));
                    let [scales, bases] =
                        ["scale", "base"].map(|part| loader.vector(Some(layer), &format!("hc_{half}_{part}.weight")));
                    Some(Connection::new(sizes, c.eps, mixes?, scales?, bases?))
                });
                Some(Box::new([attn?, ffn?]))
            }
            None => None,
        };
        Some(Block {
            connections,
            kept,
            attn_norm,
            mixer: mixer.map_or(Some(None), |mixer| mixer.map(Some))?,
            attn_post_norm,
            ffn_norm,
            ffn: ffn.map_or(Some(None), |ffn| ffn.map(Some))?,
            ffn_post_norm,
            parallel,
            residual_scale: c.residual_scale.filter(|_| !normed),
            normed: normed.then(|| c.residual_scale.unwrap_or(0.0)),
            skip: loader.vector(Some(layer), "layer_output_scale.weight").and_then(|scale| scale.first().copied()),
        })
    }

    /// Whether the embeddings are added to what the block gives.
    pub fn skips(&self) -> bool {
        self.skip.is_some()
    }

    /// Adds the embeddings, times the block's factor.
    pub fn add_skip(&self, x: &mut [f32], embeddings: &[f32]) {
        if let Some(factor) = self.skip {
            let mut y = embeddings.to_vec();
            ops::scale(&mut y, factor);
            ops::add(x, &y);
        }
    }

    /// [`Block::run`] on several residual streams, `[tokens][streams][n_embd]`.
    fn run_streams(&self, x: &mut [f32], [attn, ffn]: &[Connection; 2], pass: &mut Pass<'_, '_>) {
        let seen = |connection: &Connection, norm: &Option<Norm>, x: &[f32], pass: &Pass<'_, '_>| {
            let (mut seen, coefficients) = connection.read(x, pass);
            if let Some(norm) = norm {
                norm.apply_in_place(pass.isa(), &mut seen);
            }
            (seen, coefficients)
        };
        if let Some(mixer) = &self.mixer {
            let (seen, coefficients) = seen(attn, &self.attn_norm, x, pass);
            let y = mixer.apply(&seen, pass);
            attn.write(x, &y, &coefficients);
        }
        if let Some(network) = &self.ffn {
            let (seen, coefficients) = seen(ffn, &self.ffn_norm, x, pass);
            let y = network.apply(&seen, None, pass);
            ffn.write(x, &y, &coefficients);
        }
    }

    /// Adds what the block's mixer and feed-forward network give to `x`, `[tokens][n_embd]`; the same to several
    /// residual streams of a token, which follow each other.
    pub fn run(&self, x: &mut [f32], pass: &mut Pass<'_, '_>) {
        if let Some(connections) = &self.connections {
            return self.run_streams(x, connections, pass);
        }
        let apply =
            |norm: &Option<Norm>, x: &[f32], pass: &Pass<'_, '_>| norm.as_ref().map(|norm| norm.apply(pass.isa(), x));
        let seen = |half: usize, x: &[f32], pass: &Pass<'_, '_>| {
            let kept = self.kept.as_ref();
            kept.map(|kept| kept.scores[half].mix(pass.isa(), &pass.kept, x))
        };
        let mixed = seen(0, x, pass);
        let keeps = self.kept.as_ref().is_some_and(|kept| kept.keeps);
        if keeps {
            pass.kept.push(x.to_vec());
        }
        let normed = apply(&self.attn_norm, mixed.as_deref().unwrap_or(x), pass);
        let (mixer, ffn) = match (&self.mixer, &self.ffn) {
            (Some(mixer), Some(ffn)) => (mixer, ffn),
            (mixer, ffn) => {
                let input = normed.as_deref().unwrap_or(x);
                let y = match mixer {
                    Some(mixer) => Some(mixer.apply(input, pass)),
                    None => ffn.as_ref().map(|ffn| ffn.apply(input, None, pass)),
                };
                return y.into_iter().for_each(|y| ops::add(x, &y));
            }
        };
        let mut a = mixer.apply(normed.as_deref().unwrap_or(x), pass);
        self.finish(&mut a, &self.attn_post_norm, pass);
        if let Some(sum) = self.parallel {
            let own = apply(&self.ffn_norm, x, pass);
            let input = own.as_deref().or(normed.as_deref()).unwrap_or(x);
            let mut f = ffn.apply(input, None, pass);
            self.finish(&mut f, &self.ffn_post_norm, pass);
            match sum {
                Sum::AttentionFirst => {
                    ops::add(x, &a);
                    ops::add(x, &f);
                }
                Sum::FeedForwardFirst => {
                    ops::add(x, &f);
                    ops::add(x, &a);
                }
                Sum::HalvesFirst => {
                    ops::add(&mut a, &f);
                    ops::add(x, &a);
                }
            }
            return;
        }
        let before = ffn.sees_input().then(|| x.to_vec());
        self.begin_with(x, normed.as_deref());
        match keeps {
            true => x.copy_from_slice(&a),
            false => ops::add(x, &a),
        }
        let mixed = seen(1, x, pass);
        let normed = apply(&self.ffn_norm, mixed.as_deref().unwrap_or(x), pass);
        let mut f = ffn.apply(normed.as_deref().unwrap_or(x), before.as_deref(), pass);
        self.finish(&mut f, &self.ffn_post_norm, pass);
        self.begin_with(x, normed.as_deref());
        ops::add(x, &f);
        if let Some(y) = before.and_then(|before| ffn.apply_beside(&before, pass)) {
            ops::add(x, &y);
        }
    }

    /// Records [`Block::run`].
    pub fn record<'a>(&'a self, x: Span, gpu: &mut Recording<'a>) -> Result<(), ProgramError> {
        let Block {
            attn_norm,
            mixer,
            attn_post_norm,
            ffn_norm,
            ffn,
            ffn_post_norm,
            parallel,
            residual_scale: _,
            normed,
            skip,
            kept,
            connections,
        } = self;
        refuse(&[
            (skip.is_some(), "embeddings that are added behind blocks"),
            (kept.is_some(), "residual streams that are kept"),
            (connections.is_some(), "several residual streams"),
            (normed.is_some(), "residual streams that are normed"),
        ])?;
        let (Some(Mixer::Attention(attention)), Some(ffn)) = (mixer, ffn) else {
            return missing("blocks without attention over heads, or without a feed-forward network");
        };
        let normed = gpu.norm(attn_norm.as_ref(), x)?;
        let a = attention.record(normed, gpu)?;
        self.record_finish(a, attn_post_norm.as_ref(), gpu)?;
        let Some(sum) = parallel else {
            let early = ffn.record_early(x, gpu)?;
            gpu.recorder.add(x, a);
            let normed = gpu.norm(ffn_norm.as_ref(), x)?;
            let f = ffn.record(normed, &early, gpu)?;
            self.record_finish(f, ffn_post_norm.as_ref(), gpu)?;
            gpu.recorder.add(x, f);
            if let Some(y) = early.beside {
                gpu.recorder.add(x, y);
            }
            return Ok(());
        };
        let input = match ffn_norm {
            Some(_) => gpu.norm(ffn_norm.as_ref(), x)?,
            None => normed,
        };
        // Here a mixture sees what the network sees.
        let f = ffn.record(input, &Early::default(), gpu)?;
        self.record_finish(f, ffn_post_norm.as_ref(), gpu)?;
        match sum {
            Sum::AttentionFirst => {
                gpu.recorder.add(x, a);
                gpu.recorder.add(x, f);
            }
            Sum::FeedForwardFirst => {
                gpu.recorder.add(x, f);
                gpu.recorder.add(x, a);
            }
            Sum::HalvesFirst => {
                gpu.recorder.add(a, f);
                gpu.recorder.add(x, a);
            }
        }
        Ok(())
    }

    fn record_finish<'a>(
        &self,
        y: Span,
        post_norm: Option<&'a Norm>,
        gpu: &mut Recording<'a>,
    ) -> Result<(), ProgramError> {
        gpu.norm_in_place(post_norm, y)?;
        if let Some(scale) = self.residual_scale {
            gpu.recorder.scale(y, scale);
        }
        Ok(())
    }

    /// Puts what a half sees, times its factor, in the place of the residual stream, where a block adds to that.
    fn begin_with(&self, x: &mut [f32], seen: Option<&[f32]>) {
        if let (Some(scale), Some(seen)) = (self.normed, seen) {
            x.copy_from_slice(seen);
            ops::scale(x, scale);
        }
    }

    /// What is done with the result of either half before it is added.
    fn finish(&self, y: &mut [f32], post_norm: &Option<Norm>, pass: &Pass<'_, '_>) {
        if let Some(norm) = post_norm {
            norm.apply_in_place(pass.isa(), y);
        }
        if let Some(scale) = self.residual_scale {
            ops::scale(y, scale);
        }
    }
}
