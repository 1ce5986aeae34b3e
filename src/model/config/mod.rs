//! Hyper-parameters, checked once and all together.

mod attention;
mod compressed;
mod cycles;
mod drafter;
mod encoder;
mod experts;
mod feed_forward;
mod header;
mod indexed;
mod keys;
mod latent;
mod layers;
mod mixing;
mod mtp;
mod ngrams;
mod position;
mod ropes;
mod rwkv;
mod streams;
mod switch;
mod vectors;
mod vocabulary;

use trine_formats::rotated::Rotated;

use super::ModelError;
use crate::arch::rules::{NormKind, Residual, Sum};
use crate::arch::{Arch, Latent, Rwkv, Sizes};
use crate::ops::activation::Activation;
use crate::ops::attention::Window;
use crate::ops::norm;
use crate::ops::rope::Rope;
pub use attention::Scores;
use attention::Shape;
pub use compressed::Compressed;
pub use cycles::Cycles;
pub(super) use drafter::MARKOV_TABLE;
pub use drafter::{DraftBlock, Drafter, DrafterKind, Heard};
pub use experts::Experts;
pub use header::Header;
use keys::Keys;
pub use layers::OfLayer;
pub use mixing::Mixing;
pub use ngrams::Ngrams;
pub use streams::Streams;
pub use switch::Switched;
pub use vectors::Vectors;
use vocabulary::{first_token, vocabulary};

/// The metadata of a model. Every number is in range.
#[derive(Clone, Debug)]
pub struct Config {
    /// Architecture.
    pub arch: &'static Arch,
    /// Tokens in the vocabulary.
    pub n_vocab: usize,
    /// Context length the model was trained with.
    pub n_ctx_train: usize,
    /// Width of the residual stream.
    pub n_embd: usize,
    /// Transformer blocks that are run.
    pub n_layer: usize,
    /// The token that texts begin with where an encoder reads the prompt, if the file names one.
    pub first_token: Option<u32>,
    /// Adapters in the file that tokens switch on, where the architecture has them.
    pub switched: Option<Switched>,
    /// Blocks of the file: behind those that are run some may predict further tokens.
    pub n_block: usize,
    /// Query heads; those of the first layer where layers have their own.
    pub n_head: usize,
    /// Key and value heads; those of the first layer where layers have their own.
    pub n_head_kv: usize,
    /// Elements of a query head and of a cached key, where layers with a window have no other size.
    pub head_dim: usize,
    /// Elements of a cached value, where layers with a window have no other size.
    pub value_dim: usize,
    /// Per layer, its own heads and width, in models whose layers differ; empty in all others.
    pub own: Vec<OfLayer>,
    /// Stacks of blocks that run again and again, where the architecture has them.
    pub cycles: Option<Cycles>,
    /// Which blocks attend, have recurrent layers and feed-forward networks.
    pub mixing: Mixing,
    /// Per block, the earlier one to whose keys and values it attends, where it has none of its own; empty where all
    /// have.
    pub shared_keys: Vec<Option<usize>>,
    /// Per block, the layer of another model's KV cache that it attends to, in models without keys of their own; empty in
    /// all others.
    pub borrowed: Vec<usize>,
    /// Sizes of RWKV's narrow vectors; zeros in other models.
    pub rwkv: Rwkv,
    /// Number of blocks after which the residual stream is halved, where it is.
    pub halved_every: Option<usize>,
    /// Latent attention, where the architecture has it.
    pub latent: Option<Latent>,
    /// Attention to compressed keys, where the architecture has it.
    pub compressed: Option<Compressed>,
    /// Width of the feed-forward block; that of the first layer where layers have their own.
    pub n_ff: usize,
    /// Rows of the up projection, which may hold the gate's too.
    pub n_up: usize,
    /// The formula of the norms.
    pub norm: norm::Kind,
    /// Epsilon of the norms.
    pub eps: f32,
    /// Epsilon of the last norm of a head for multi-token prediction, where that takes off the mean.
    pub head_eps: Option<f32>,
    /// Position embedding of the global layers.
    pub rope: Rope,
    /// The context that RoPE was trained with, which decides between two sets of factors.
    pub original_context: usize,
    /// Positions of the longest sequence in which an indexer chooses all, where the architecture has one.
    pub indexed: Option<usize>,
    /// Per layer, whether it has RoPE.
    pub turned: Vec<bool>,
    /// Sliding window: cells a query sees, itself included, in the layers of `windowed`.
    pub window: Option<usize>,
    /// Per layer, whether it uses the window.
    pub windowed: Vec<bool>,
    /// Position embedding of the window layers.
    pub window_rope: Rope,
    /// True if queries attend to all of the pass that they are in.
    pub ahead: bool,
    /// Factors, bounds and norms of queries and scores.
    pub scores: Scores,
    /// Experts, where the model has them.
    pub experts: Option<Experts>,
    /// The experts of every layer, where layers differ in the width of their experts or in how many a token goes to; else
    /// none.
    pub own_experts: Vec<Experts>,
    /// The function of the gates, where layers have no bounds or numbers of their own.
    pub activation: Activation,
    /// Bounds of the experts' gates per layer; 0, or no entry, for none.
    pub gate_bounds: Vec<f32>,
    /// The same of dense networks and of the expert that all tokens go to.
    pub dense_bounds: Vec<f32>,
    /// The numbers of xIELU per layer, where that is the activation.
    pub xielu: Vec<[f32; 4]>,
    /// Number of blocks after which the residual stream is saved for later blocks and started afresh; `None` where the
    /// architecture has no such stream or the key is 0.
    pub kept_every: Option<usize>,
    /// Residual streams side by side, where the architecture has several.
    pub streams: Option<Streams>,
    /// Elements of the vector that every token has for a block, where it has one.
    pub layer_input: Option<usize>,
    /// Embeddings of n-grams, where the model has them.
    pub ngrams: Option<Ngrams>,
    /// How the sublayers of a block are added to its input; never by key.
    pub residual: Residual,
    /// Factor on the token embeddings, where there is one.
    pub embedding_scale: Option<f32>,
    /// Factor on the output of each sublayer, before it is added to the residual stream.
    pub residual_scale: Option<f32>,
    /// Factor on what the output matrix is multiplied with, where there is one.
    pub output_scale: Option<f32>,
    /// Factor on the logits, where there is one.
    pub logit_scale: Option<f32>,
    /// `cap * tanh(logits / cap)` at the end, where the model asks for it.
    pub final_softcap: Option<f32>,
    /// From hidden states to vectors of texts and ranks.
    pub vectors: Vectors,
    /// The rotated tensors, where the file's weights are rotated.
    pub rotated: Option<Rotated>,
}

impl Config {
    /// Window of the queries of a layer; `None` where they attend to all earlier positions.
    pub fn layer_window(&self, layer: usize) -> Option<Window> {
        let windowed = self.windowed.get(layer).copied().unwrap_or(false);
        let size = self.window.filter(|_| windowed)?;
        let chunked = self.arch.window.is_some_and(|w| w.chunked);
        Some(Window { size, chunked })
    }

    /// The earlier block to whose keys and values block `layer` attends, where it has none of its own.
    pub fn keys_of(&self, layer: usize) -> Option<usize> {
        self.shared_keys.get(layer).copied().flatten()
    }

    /// Heads and width of a layer.
    pub fn layer(&self, layer: usize) -> OfLayer {
        let Config { n_head, n_head_kv, head_dim, value_dim, n_ff, .. } = *self;
        let common = OfLayer { n_head, n_head_kv, head_dim, value_dim, n_ff };
        self.own.get(layer).copied().unwrap_or(common)
    }

    /// Elements of a head that RoPE turns, where it turns most.
    fn most_turned(&self) -> usize {
        let windows = self.arch.rope.global_half && self.windowed.contains(&true);
        self.rope.n_rot.max(if windows { self.window_rope.n_rot } else { 0 })
    }

    /// The slots whose layers have keys and values in the KV cache.
    pub fn cached_layers(&self) -> impl Iterator<Item = usize> {
        let own = |&layer: &usize| {
            self.mixing.blocks[layer].attends && self.keys_of(layer).is_none() && self.borrowed.is_empty()
        };
        (0..self.n_layer).filter(own)
    }

    /// Layers of the KV cache before that of slot `slot`. The first one of models whose tokens switch adapters on is that
    /// by which these tokens are found.
    pub fn cached_before(&self, slot: usize) -> usize {
        usize::from(self.switched.is_some()) + self.cached_layers().take_while(|&layer| layer < slot).count()
    }

    /// The block of the file that is run in slot `slot`.
    pub fn block(&self, slot: usize) -> usize {
        self.cycles.map_or(slot, |cycles| cycles.block(slot))
    }

    /// The experts of a layer, `None` for one with a dense network.
    pub fn layer_experts(&self, layer: usize) -> Option<&Experts> {
        let common = self.experts.as_ref()?;
        common.layers.get(layer)?.then(|| self.own_experts.get(layer).unwrap_or(common))
    }

    /// Layers that have sizes of their own: all or none.
    pub fn own_layers(&self) -> usize {
        self.own.len().max(self.own_experts.len())
    }

    /// Reads and checks the metadata of `file`.
    ///
    /// # Errors
    /// All problems at once.
    pub fn read(file: &dyn Header) -> Result<Config, ModelError> {
        let meta = file.meta();
        let name = meta.get_str("general.architecture")?.ok_or(ModelError::NoArchitecture)?;
        let arch = Arch::find(name).ok_or_else(|| ModelError::UnknownArchitecture(name.to_owned()))?;
        let mut keys = Keys::new(meta, arch.name);
        let n_layer = layers::run(&mut keys, arch, file);
        let config = Config::from_keys(&mut keys, arch, file, n_layer);
        if keys.problems.is_empty() { Ok(config) } else { Err(ModelError::Invalid(keys.problems)) }
    }

    /// The numbers of the extents of a layer's tensors.
    pub fn layer_sizes(&self, layer: usize) -> Sizes {
        let OfLayer { n_head, n_head_kv, head_dim, value_dim, n_ff } = self.layer(layer);
        let sizes = [n_head, n_head_kv, head_dim, value_dim, n_ff];
        let [heads, kv_heads, head_dim, value_dim, ff] = sizes.map(|n| n as u64);
        let sizes = self.sizes();
        let up = if self.own.is_empty() { sizes.up } else { ff };
        let experts = self.own_experts.get(layer).map(|e| [e.used, e.n_ff].map(|n| n as u64));
        let [experts_used, expert_ff] = experts.unwrap_or([sizes.experts_used, sizes.expert_ff]);
        Sizes { heads, kv_heads, head_dim, value_dim, ff, up, experts_used, expert_ff, ..sizes }
    }

    /// The numbers of the tensors' extents; those of blocks have others where layers have their own
    /// ([`Config::layer_sizes`]).
    pub fn sizes(&self) -> Sizes {
        let of_experts = |n: fn(&Experts) -> usize| self.experts.as_ref().map_or(0, n) as u64;
        Sizes {
            vocab: self.n_vocab as u64,
            embd: self.n_embd as u64,
            ff: self.n_ff as u64,
            heads: self.n_head as u64,
            kv_heads: self.n_head_kv as u64,
            head_dim: self.head_dim as u64,
            value_dim: self.value_dim as u64,
            rope_dim: self.most_turned() as u64,
            experts: of_experts(|e| e.count),
            experts_used: of_experts(|e| e.used),
            expert_ff: of_experts(|e| e.n_ff),
            expert_embd: self.experts.as_ref().map_or(0, |e| match e.latent {
                Some(width) => width,
                None => self.n_embd,
            }) as u64,
            shared_ff: of_experts(|e| e.shared_ff),
            chunks: of_experts(|e| e.chunks.map_or(0, |c| c.count)),
            chunk_ff: of_experts(|e| e.chunks.map_or(0, |c| c.n_ff)),
            context: self.n_ctx_train as u64,
            streams: self.streams.map_or(0, |s| s.count) as u64,
            token_types: self.vectors.token_types as u64,
            buckets: self.scores.buckets as u64,
            up: self.n_up as u64,
            classes: self.vectors.classes() as u64,
            projected: self.vectors.projected as u64,
            stream_rank: self.streams.and_then(|s| s.rank).unwrap_or(0) as u64,
            layer_input: [1, self.n_layer].map(|blocks| (self.layer_input.unwrap_or(0) * blocks) as u64),
            ngrams: self.ngrams.as_ref().map_or([0; 3], |n| [n.rows, n.size, n.kernel].map(|n| n as u64)),
            slots: self.switched.as_ref().map_or([0; 2], |s| [s.switch.adapters + 1, s.rank].map(|n| n as u64)),
            output_groups: self.compressed.as_ref().map_or(0, |c| c.groups) as u64,
            output_rank: self.compressed.as_ref().map_or(0, |c| c.rank) as u64,
            latent: match &self.compressed {
                // queries are made of a narrow vector here, too
                Some(c) => Latent { query_rank: c.query_rank, key: self.head_dim, ..Latent::NONE },
                None => self.latent.unwrap_or_default(),
            },
            recurrent: self.mixing.sizes,
            rwkv: self.rwkv,
        }
    }

    /// The configuration of the first `n_layer` blocks.
    fn from_keys(k: &mut Keys<'_>, arch: &'static Arch, file: &dyn Header, n_layer: usize) -> Config {
        let n_ctx_train = k.count("context_length", 1 << 30);
        let n_embd = k.count("embedding_length", 1 << 20);
        let before = k.problems.len();
        let mut counts = mixing::counts(k, arch, n_layer);
        let (n_head, n_head_kv, n_ff) = (counts.n_head, counts.n_head_kv, counts.n_ff);
        if k.problems.len() == before && !n_head.is_multiple_of(n_head_kv) {
            k.contradiction(format!("{n_head} query heads cannot share {n_head_kv} key-value heads evenly"));
        }
        let causal = k.bool("attention.causal");
        if causal == Some(false) && !arch.attention.both_ways && !arch.attention.ahead {
            k.wrong(
                "attention.causal",
                format!("is false, and models of architecture {} attend backwards alone", arch.name),
            );
        }
        let rotated = Rotated::read(k.meta).map_err(|e| k.problems.push(e.into()));
        let rotated = rotated.ok().flatten();
        for &(key, only) in arch.fixed_keys {
            if let Some(n) = k.u32(key).filter(|&n| n != only) {
                k.wrong(key, format!("is {n}; trine can run models with {only}"));
            }
        }
        let ([head_dim, value_dim], latent) = latent::heads(k, arch, n_embd, n_head, n_head_kv);
        let experts = experts::experts(k, arch, file, n_layer, [n_ff, head_dim]);
        let own_experts = experts::of_layers(k, arch, experts.as_ref());
        let (norm, eps) = norm(k, arch);
        let rope = position::rope(k, arch, head_dim, n_ctx_train as u32);
        let (window, windowed) = position::windows(k, arch, n_layer);
        let shared_keys = position::shared_keys(k, arch, &windowed);
        let before = k.problems.len();
        let own = layers::own(k, arch, std::mem::take(&mut counts.own), [head_dim, value_dim], &windowed);
        if k.problems.len() == before {
            layers::check_shared(k, &own, &shared_keys);
        }
        let in_window = own.iter().zip(&windowed).find(|(_, windowed)| **windowed).map(|(own, _)| own.head_dim);
        let in_window = in_window.unwrap_or(head_dim);
        let window_rope = position::window_rope(k, arch, &rope, in_window, n_ctx_train as u32);
        let leading = experts.as_ref().map_or(0, |e| e.layers.iter().take_while(|&&has| !has).count());
        let turned = position::turned(k, arch, window.map(|_| &windowed[..]), leading, n_layer);
        let clamp = arch.feed_forward.clamp;
        let compressed = Compressed::read(k, arch, n_layer, n_head);
        let streams = streams::streams(k, arch.streams);
        let ngrams = Ngrams::read(k, arch, file, [n_layer, n_embd]);
        let mut others = compressed.as_ref().map_or(Vec::new(), |c| c.states(head_dim));
        if let Some((ngrams, streams)) = ngrams.as_ref().zip(streams) {
            others.resize(n_layer, 0);
            let state = ngrams.rule.state() + ngrams.remembered(streams.count.saturating_mul(n_embd));
            others.iter_mut().skip(ngrams.layer).take(1).for_each(|n| *n = state);
        }
        let original_context = position::original_context(k, n_ctx_train as u32);
        let shape = Shape {
            n_layer,
            n_embd,
            n_head,
            head_dim: latent.map_or(head_dim, |l| l.key),
            value_dim,
            original: original_context,
            windows: window.is_some(),
        };
        let n_vocab = vocabulary(k, file);
        Config {
            arch,
            first_token: first_token(k, arch, n_vocab),
            switched: switch::switched(k, arch, n_vocab, head_dim),
            n_vocab,
            n_ctx_train,
            n_embd,
            n_layer,
            n_block: k.layers,
            n_head,
            n_head_kv,
            head_dim,
            value_dim,
            own,
            cycles: arch.cycles.then(|| Cycles::read(k, n_layer)),
            mixing: mixing::mixing(k, arch, counts, [n_embd, head_dim], others),
            shared_keys,
            borrowed: Vec::new(),
            rwkv: rwkv::ranks(k, arch),
            halved_every: rwkv::halved_every(k, arch),
            latent,
            n_ff,
            n_up: feed_forward::up(file, n_ff),
            norm,
            eps,
            head_eps: None,
            original_context: original_context as usize,
            indexed: indexed::positions(k, arch, compressed.as_ref(), n_embd / n_head),
            compressed,
            turned,
            window,
            windowed,
            window_rope,
            ahead: arch.attention.ahead && causal != Some(true),
            scores: attention::scores(k, arch, shape, &rope),
            rope,
            experts,
            own_experts,
            dense_bounds: feed_forward::dense_bounds(k, clamp, n_layer),
            gate_bounds: feed_forward::expert_bounds(k, clamp, n_layer),
            activation: feed_forward::activation(k, arch),
            xielu: feed_forward::xielu(k, arch, n_layer),
            kept_every: arch.keeps_residuals.then(|| kept_every(k)).flatten(),
            streams,
            layer_input: layers::input(k, arch),
            ngrams,
            residual: residual(k, arch),
            embedding_scale: attention::embedding_scale(k, arch, n_embd),
            residual_scale: attention::residual_scale(k, arch, n_layer),
            output_scale: arch.output.input_width.map(|width| width / n_embd as f32),
            logit_scale: attention::logit_scale(k, arch, n_embd),
            final_softcap: attention::logit_cap(k, arch),
            vectors: vectors::vectors(k, arch, n_embd),
            rotated,
        }
    }
}

/// The formula of the norms and their epsilon.
fn norm(k: &mut Keys<'_>, arch: &Arch) -> (norm::Kind, f32) {
    const RMS: &str = "attention.layer_norm_rms_epsilon";
    const LAYER: &str = "attention.layer_norm_epsilon";
    let by_key = |k: &mut Keys<'_>| k.f32(RMS).is_some_and(|eps| eps != 0.0);
    let rms = match arch.norm {
        NormKind::RmsWithoutEps => return (norm::Kind::Rms, 0.0),
        NormKind::Rms | NormKind::RmsOfEither => true,
        NormKind::Layer => false,
        NormKind::ByKey => by_key(k),
    };
    let (kind, key) = match rms {
        true => (norm::Kind::Rms, RMS),
        false => (norm::Kind::Layer, LAYER),
    };
    let own = k.f32(key);
    let eps = match arch.norm {
        NormKind::RmsOfEither => own.or_else(|| k.f32(LAYER)),
        _ => own,
    };
    let eps = match eps {
        Some(eps) if eps.is_finite() && eps >= 0.0 => eps,
        Some(eps) => {
            k.wrong(key, format!("is {eps}, it must be a number of at least 0"));
            0.0
        }
        None => {
            k.missing(key);
            0.0
        }
    };
    (kind, eps)
}

/// Number of blocks after which the residual stream is saved.
fn kept_every(k: &mut Keys<'_>) -> Option<usize> {
    const KEY: &str = "attn_res.block_size";
    let every = k.u32(KEY);
    if every.is_none() {
        k.missing(KEY);
    }
    every.filter(|&n| n > 0).map(|n| n as usize)
}

fn residual(k: &mut Keys<'_>, arch: &Arch) -> Residual {
    const KEY: &str = "use_parallel_residual";
    const SCALE: &str = "residual_scale";
    if arch.residual == Residual::Normed && k.f32(SCALE).is_none() {
        k.missing(SCALE);
    }
    if arch.residual == Residual::SwinKey {
        return match k.bool("swin_norm") {
            Some(true) => Residual::NormedHalves,
            _ => Residual::Sequential,
        };
    }
    let Residual::Key(sum) = arch.residual else {
        return arch.residual;
    };
    let before = k.problems.len();
    match k.bool(KEY) {
        Some(true) => Residual::Parallel(sum),
        Some(false) => Residual::Sequential,
        None if k.problems.len() > before => Residual::Sequential,
        None => {
            k.missing(KEY);
            Residual::Parallel(Sum::AttentionFirst)
        }
    }
}
