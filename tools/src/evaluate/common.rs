//! Shared by all evaluations: base files, the model in chunks, and Ctrl-C.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use anyhow::{Context, Result, bail};
use trine::Model;
use trine::eval::{Batching, SideBySide};
use trine_formats::limited::open_regular;

use super::args::Args;
use crate::{inputs, interrupt};

/// The option that names the output.
pub(super) const OPTION: &str = "--kl-divergence-base";

/// A base file and its length.
pub(super) fn open_base(path: &Path) -> Result<(BufReader<File>, u64)> {
    let shown = path.display();
    if path.is_dir() {
        bail!("'{shown}' is a directory; give a file that --kl-divergence-base wrote");
    }
    inputs::add(path);
    let file = open_regular(path).with_context(|| format!("cannot open '{shown}'"))?;
    let length = file.metadata().with_context(|| format!("cannot open '{shown}'"))?.len();
    Ok((BufReader::with_capacity(1 << 20, file), length))
}

/// The first of the tokens `expected` that `tokens` does not begin with.
pub(super) fn first_difference(expected: &[u32], tokens: &[u32]) -> Option<usize> {
    let pairs = expected.iter().zip(tokens);
    let same = pairs.take_while(|(a, b)| a == b).count();
    (same < expected.len()).then_some(same)
}

/// The model at the first of the widths asked for, taking chunks of `n_ctx` tokens.
pub(super) fn model(args: &Args, loaded: &Model, n_ctx: usize) -> Result<SideBySide> {
    warn_of_context(loaded, n_ctx);
    let mut model = side_by_side(args, loaded, n_ctx);
    if let Some(&bits) = args.bits.first() {
        let name = || format!("'{}'", args.model.model.display());
        model.set_bits(bits).with_context(name)?;
    }
    Ok(model)
}

/// The model, taking as many chunks of `n_ctx` tokens as the options say, until Ctrl-C.
pub(super) fn side_by_side(args: &Args, loaded: &Model, n_ctx: usize) -> SideBySide {
    let batching = Batching { n_ctx, n_batch: args.batch_size, n_ubatch: args.ubatch_size };
    let mut model = SideBySide::new(loaded.weights(), loaded.pool(), batching);
    model.cancel_by(interrupt::token());
    model
}

/// A context longer than the model knows is no mistake, but its numbers mean little.
pub(super) fn warn_of_context(loaded: &Model, n_ctx: usize) {
    let trained = loaded.weights().config().n_ctx_train;
    if n_ctx > trained {
        note!("warning: the model was trained on a context of {trained} tokens, {n_ctx} are asked for");
    }
}

pub(super) type Observed = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// The return value of an observer: an error when the user wants to stop.
pub(super) fn go_on() -> Observed {
    if interrupt::asked() { Err("interrupted".into()) } else { Ok(()) }
}
