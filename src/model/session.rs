//! A running context: the KV cache and the forward pass over micro-batches.

use std::sync::Arc;

use super::kv::LayerCache;
use super::{Inner, Model, WidthError};
use crate::kernels::{Floats, Isa};
use crate::math::tanhf;
use crate::ops::attention::Attention;
use crate::ops::matmul::{Activations, matmul};
use crate::ops::observe::ActivationObserver;
use crate::ops::rope::{Rope, Table};
use crate::ops::{self, norm};

/// Positions whose logits are computed together: enough to share the reading of the output matrix,
/// few enough that a vocabulary of 262144 takes 32 MB.
const LOGITS_AT_ONCE: usize = 32;

/// How a session runs.
#[derive(Clone, Copy, Debug)]
pub struct SessionOptions {
    /// Positions the cache may hold.
    pub n_ctx: usize,
    /// Tokens per forward pass; changes no bit.
    pub n_ubatch: usize,
}

/// Why tokens cannot be evaluated. The session is as it was before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    /// The cache has no room for the tokens.
    #[error(
        "the context is full: {n_past} positions used and {new} more wanted, but n_ctx is {n_ctx}; use a larger -c"
    )]
    ContextFull {
        /// Positions in the cache.
        n_past: usize,
        /// Tokens given.
        new: usize,
        /// Size of the context.
        n_ctx: usize,
    },
    /// A token the model does not have.
    #[error("token {id} at index {index} is outside the vocabulary of {n_vocab}")]
    UnknownToken {
        /// The token.
        id: u32,
        /// Where in the call's tokens.
        index: usize,
        /// Size of the vocabulary.
        n_vocab: usize,
    },
}

/// A context over a shared [`Model`].
pub struct Session {
    model: Model,
    options: SessionOptions,
    cache: Vec<LayerCache>,
    n_past: usize,
    observer: Option<Arc<dyn ActivationObserver>>,
    /// Bits of any-precision weights; 0 where there are none.
    bits: u8,
}

/// What a block needs of the forward pass it is part of.
pub struct Pass<'a> {
    model: &'a Inner,
    cache: &'a mut [LayerCache],
    tables: Vec<Table>,
    first: usize,
    tokens: usize,
    observer: Option<Arc<dyn ActivationObserver>>,
    bits: u8,
}

impl Pass<'_> {
    /// Activations of the residual width.
    pub fn activations<'x>(&self, x: &'x [f32]) -> Activations<'x> {
        let acts = Activations::new(x, self.model.config.n_embd, self.isa());
        acts.at_width(self.bits).observed_by(self.observer.clone())
    }

    /// Activations of any width, one row per token.
    pub fn rows<'x>(&self, x: &'x [f32]) -> Activations<'x> {
        let acts = Activations::new(x, x.len() / self.tokens, self.isa());
        acts.at_width(self.bits).observed_by(self.observer.clone())
    }

    /// RoPE on all heads of `x` with the model's table number `rope`.
    pub fn rotate(&self, x: &mut [f32], rope: usize) {
        let width = x.len() / self.tokens;
        self.model.ropes[rope].apply(
            self.isa(),
            x,
            width,
            self.model.config.head_dim,
            &self.tables[rope],
        );
    }

    /// Puts keys and values of this pass into the cache of `layer`.
    pub fn store(&mut self, layer: usize, k: &[f32], v: &[f32]) {
        self.cache[layer].store(self.first, k, v);
    }

    /// Attention of this pass's queries over the cache of `layer`.
    pub fn attend(&self, layer: usize, q: &[f32], scale: f32, window: Option<usize>) -> Floats {
        let cache = &self.cache[layer];
        Attention {
            cache,
            n_head: self.model.config.n_head,
            scale,
            window,
            first: self.first,
            isa: self.isa(),
        }
        .run(q)
    }

    /// Instruction set of the model.
    pub fn isa(&self) -> Isa {
        self.model.isa
    }
}

impl Session {
    /// An empty context; any-precision models run at their widest width.
    pub fn new(model: &Model, options: SessionOptions) -> Session {
        let mut session = Session {
            model: model.clone(),
            options,
            cache: Vec::new(),
            n_past: 0,
            observer: None,
            bits: model.widths().last().copied().unwrap_or(0),
        };
        session.clear();
        session
    }

    /// Positions in the cache.
    pub fn n_past(&self) -> usize {
        self.n_past
    }

    /// Positions the cache may hold.
    pub fn n_ctx(&self) -> usize {
        self.options.n_ctx
    }

    /// The model this session runs.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// From now on `observer` sees the activations of every weight matrix; `None` ends that.
    pub fn observe(&mut self, observer: Option<Arc<dyn ActivationObserver>>) {
        self.observer = observer;
    }

    /// Bits of an any-precision model's weights; `None` of any other model.
    pub fn bits(&self) -> Option<u8> {
        (self.bits > 0).then_some(self.bits)
    }

    /// Runs an any-precision model at `bits` from now on. What is in the context stays: keys and values are of the
    /// same form at every width.
    ///
    /// # Errors
    /// The model does not have the width; the message says which it has.
    pub fn set_bits(&mut self, bits: u8) -> Result<(), WidthError> {
        self.model.check_width(bits)?;
        self.bits = bits;
        Ok(())
    }

    /// Forgets every position from `n_past` on.
    pub fn truncate(&mut self, n_past: usize) {
        self.n_past = self.n_past.min(n_past);
    }

    /// Forgets everything and releases the cache.
    pub fn clear(&mut self) {
        let c = self.model.config();
        self.cache = (0..c.n_layer)
            .map(|_| LayerCache::new(c.n_head_kv, c.head_dim, self.model.inner.isa))
            .collect();
        self.n_past = 0;
    }

    /// Bytes of the KV cache.
    pub fn cache_bytes(&self) -> usize {
        self.cache.iter().map(LayerCache::bytes).sum()
    }

    /// Appends `tokens` to the context and calls `sink(i, logits)` for every index `i >= from` of them,
    /// in order; `from = tokens.len()` wants none.
    ///
    /// # Errors
    /// Checked before anything is computed: room in the context, tokens in the vocabulary.
    pub fn eval(
        &mut self,
        tokens: &[u32],
        from: usize,
        sink: &mut (dyn FnMut(usize, &[f32]) + Send),
    ) -> Result<(), EvalError> {
        let n_vocab = self.model.n_vocab();
        if let Some((index, &id)) = tokens
            .iter()
            .enumerate()
            .find(|(_, id)| **id as usize >= n_vocab)
        {
            return Err(EvalError::UnknownToken { id, index, n_vocab });
        }
        if self.n_past + tokens.len() > self.options.n_ctx {
            return Err(EvalError::ContextFull {
                n_past: self.n_past,
                new: tokens.len(),
                n_ctx: self.options.n_ctx,
            });
        }
        let model = self.model.clone();
        model.inner.pool.install(|| {
            for (i, batch) in tokens.chunks(self.options.n_ubatch.max(1)).enumerate() {
                let start = i * self.options.n_ubatch.max(1);
                let wanted = from.saturating_sub(start).min(batch.len());
                let x = self.forward(&model.inner, batch);
                let n_embd = model.config().n_embd;
                let (x, observer) = (&x[wanted * n_embd..], self.observer.clone());
                model
                    .inner
                    .logits(x, self.bits, observer, &mut |i, logits| {
                        sink(start + wanted + i, logits)
                    });
            }
        });
        Ok(())
    }

    /// Runs all blocks over one micro-batch; the residual stream, `[tokens][n_embd]`.
    fn forward(&mut self, model: &Inner, tokens: &[u32]) -> Vec<f32> {
        let mut x = model.embed(tokens);
        let table = |rope: &Rope| rope.table(self.n_past, tokens.len());
        let tables = model.ropes.iter().map(table).collect();
        let mut pass = Pass {
            model,
            cache: &mut self.cache,
            tables,
            first: self.n_past,
            tokens: tokens.len(),
            observer: self.observer.clone(),
            bits: self.bits,
        };
        for block in &model.blocks {
            block.run(&mut x, &mut pass);
        }
        self.n_past += tokens.len();
        x
    }
}

impl Inner {
    /// Decoded embedding rows; Gemma scales them afterwards.
    fn embed(&self, tokens: &[u32]) -> Vec<f32> {
        let n = self.config.n_embd;
        let decode = self
            .embedding
            .ty
            .info()
            .and_then(|t| t.decode)
            .expect("checked when loading");
        let mut x = vec![0f32; tokens.len() * n];
        for (row, &id) in x.chunks_exact_mut(n).zip(tokens) {
            decode(self.embedding.row(id as usize), row);
        }
        if self.config.arch == super::Arch::Gemma3 {
            ops::scale(&mut x, (n as f32).sqrt());
        }
        x
    }

    /// Logits of every row of `x`, in order.
    fn logits(
        &self,
        x: &[f32],
        bits: u8,
        observer: Option<Arc<dyn ActivationObserver>>,
        sink: &mut dyn FnMut(usize, &[f32]),
    ) {
        let n = self.config.n_embd;
        for (block, x) in x.chunks(LOGITS_AT_ONCE * n).enumerate() {
            let u = norm::rms(self.isa, x, &self.output_norm, self.config.eps);
            let acts = Activations::new(&u, n, self.isa)
                .at_width(bits)
                .observed_by(observer.clone());
            acts.observe(self.output_tensor);
            let [mut logits] = matmul([&self.output], &acts);
            if let Some(bias) = &self.output_bias {
                ops::add_rows(&mut logits, bias);
            }
            if let Some(cap) = self.config.final_softcap {
                logits
                    .iter_mut()
                    .for_each(|v| *v = tanhf(*v * (1.0 / cap)) * cap);
            }
            for (i, row) in logits.chunks_exact(self.config.n_vocab).enumerate() {
                sink(block * LOGITS_AT_ONCE + i, row);
            }
        }
    }
}
