//! Models: checked configuration, one file per architecture, and the session that runs them.

mod bitnet;
mod config;
mod gemma3;
pub mod kv;
mod llama;
mod load;
mod olmo2;
mod session;

use std::sync::Arc;

use trine_formats::anyprec::{AnyPrec, AnyPrecError};
use trine_formats::gguf::{Blob, GgufError, ModelFile, PackingOptions};

use crate::kernels::Isa;
pub use crate::kernels::bitplane::NumberPath;
use crate::ops::matmul::Matrix;
use crate::ops::rope::Rope;
use crate::pool::Pool;

pub use config::{Arch, Config};
pub use load::Layouts;
pub use session::{EvalError, Session, SessionOptions};

/// Problems that a message spells out. One mistake, such as a wrong width, shows in every tensor of a
/// model, and a line of a thousand of them tells less than its start.
const SHOWN_PROBLEMS: usize = 8;

/// The first problems, and how many more there are.
fn listed(problems: &[String]) -> String {
    let shown = &problems[..problems.len().min(SHOWN_PROBLEMS)];
    match problems.len() - shown.len() {
        0 => shown.join("; "),
        more => format!("{}; and {more} more problems", shown.join("; ")),
    }
}

/// Why a model cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// `general.architecture` is missing or not text.
    #[error(
        "the file names no architecture (general.architecture): it is not a language model trine can run"
    )]
    NoArchitecture,
    /// An architecture trine does not have.
    #[error("architecture '{0}' is not supported; trine runs {known}", known = Arch::names())]
    UnknownArchitecture(String),
    /// Everything that is wrong with the metadata and the tensors, at once; the message stops after
    /// [`SHOWN_PROBLEMS`].
    #[error("the model cannot run: {}", listed(.0))]
    Invalid(Vec<String>),
    /// A metadata value of the wrong type.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// An any-precision file that is damaged, or ends before its first width.
    #[error(transparent)]
    AnyPrecision(#[from] AnyPrecError),
    /// The thread pool could not be made.
    #[error("cannot start {threads} threads: {reason}")]
    Threads {
        /// Threads asked for.
        threads: usize,
        /// What the system said.
        reason: String,
    },
}

/// Why a model cannot run at a width.
#[derive(Debug, thiserror::Error)]
pub enum WidthError {
    /// The file has others.
    #[error(transparent)]
    Other(#[from] AnyPrecError),
    /// The file has no widths to choose from.
    #[error(
        "the model is no any-precision file, so it has no {0}-bit form; make one with rquantize"
    )]
    Only(u8),
}

/// How to load a model.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Instruction set of the kernels; changes no bit.
    pub isa: Isa,
    /// Threads of the forward pass; changes no bit.
    pub threads: usize,
    /// Copy the weights into layouts that the kernels read faster, where there are any; without it
    /// they are used where the file's bytes are. Changes no bit.
    pub repack: bool,
    /// How products with any-precision weights are computed. Decides their bits.
    pub number_path: NumberPath,
    /// What I2_S, TL1 and TL2 files do not say of themselves.
    pub packing: PackingOptions,
}

impl Default for LoadOptions {
    fn default() -> LoadOptions {
        LoadOptions {
            isa: Isa::detect(),
            threads: 1,
            repack: true,
            number_path: NumberPath::default(),
            packing: PackingOptions::default(),
        }
    }
}

/// A loaded model. Cloning shares it.
#[derive(Clone)]
pub struct Model {
    inner: Arc<Inner>,
}

/// Indices into a model's RoPE tables.
const GLOBAL: usize = 0;
const WINDOW: usize = 1;

struct Inner {
    config: Config,
    isa: Isa,
    pool: Pool,
    layouts: Layouts,
    /// What the file says of its any-precision matrices.
    anyprec: Option<AnyPrec>,
    /// What each width adds to the file.
    sections: Vec<(u8, Blob)>,
    /// Token embeddings; also the output projection of models that tie the two.
    embedding: Matrix,
    output: Matrix,
    output_tensor: &'static str,
    output_bias: Option<Vec<f32>>,
    output_norm: Vec<f32>,
    blocks: Vec<Box<dyn Block>>,
    ropes: Vec<Rope>,
}

/// One transformer block.
trait Block: Send + Sync {
    /// Adds the block's attention and feed-forward to `x`, `[tokens][n_embd]`.
    fn run(&self, x: &mut [f32], pass: &mut session::Pass<'_>);
}

impl Model {
    /// Checks and loads the model of `file`. Weights without a packed layout stay where the file's bytes are.
    ///
    /// # Errors
    /// [`ModelError::Invalid`] lists every missing key, missing tensor and wrong shape at once.
    pub fn load(file: &ModelFile, options: &LoadOptions) -> Result<Model, ModelError> {
        let config = Config::read(file)?;
        let anyprec = AnyPrec::read(file)?;
        let mut loader = load::Loader::new(file, anyprec.as_ref(), options);
        let load::Ends {
            embedding,
            output,
            output_tensor,
            output_bias,
            output_norm,
        } = load::ends(&mut loader, &config);
        let mut ropes = vec![config.rope.clone(), config.window_rope.clone()];
        let blocks = match config.arch {
            Arch::Llama => {
                // One set of divisors for all layers, in the file of llama 3.
                let factors = loader.optional_vector("rope_freqs.weight", config.rope.n_rot / 2);
                ropes[GLOBAL].freq_factors = factors.unwrap_or_default();
                llama::load(&mut loader, &config)
            }
            Arch::Qwen2 | Arch::Qwen3 => llama::load(&mut loader, &config),
            Arch::Gemma3 => gemma3::load(&mut loader, &config),
            Arch::Olmo2 => olmo2::load(&mut loader, &config),
            Arch::Bitnet | Arch::Bitnet25 | Arch::BitnetB158 => bitnet::load(&mut loader, &config),
        };
        let layouts = loader.finish()?;
        let pool = Pool::new(options.threads).map_err(|e| ModelError::Threads {
            threads: options.threads,
            reason: e.to_string(),
        })?;
        let inner = Inner {
            config,
            isa: options.isa,
            pool,
            layouts,
            sections: anyprec
                .as_ref()
                .map_or(Vec::new(), |a| load::sections(file, a)),
            anyprec,
            embedding,
            output,
            output_tensor,
            output_bias,
            output_norm,
            blocks,
            ropes,
        };
        Ok(Model {
            inner: Arc::new(inner),
        })
    }

    /// The checked configuration.
    pub fn config(&self) -> &Config {
        &self.inner.config
    }

    /// In which layouts the weights are.
    pub fn layouts(&self) -> &Layouts {
        &self.inner.layouts
    }

    /// What an any-precision file says of itself.
    pub fn any_precision(&self) -> Option<&AnyPrec> {
        self.inner.anyprec.as_ref()
    }

    /// The widths in bits at which the model can run, ascending; none when it is no any-precision file. A file that
    /// ends early has fewer than it was made with.
    pub fn widths(&self) -> &[u8] {
        self.any_precision().map_or(&[], AnyPrec::widths)
    }

    /// Checks that the model can run at `bits`.
    ///
    /// # Errors
    /// It cannot; the message says at which it can.
    pub fn check_width(&self, bits: u8) -> Result<(), WidthError> {
        match self.any_precision() {
            Some(anyprec) => Ok(anyprec.check_width(bits)?),
            None => Err(WidthError::Only(bits)),
        }
    }

    /// Says that no session will run at more than `bits` for now: the system may read ahead what these need, and forget
    /// what only wider ones do. Changes no result; any width can still be used.
    pub fn advise_width(&self, bits: u8) {
        for (width, section) in &self.inner.sections {
            if *width <= bits {
                section.need();
            } else {
                section.release();
            }
        }
    }

    /// Number of logits per position.
    pub fn n_vocab(&self) -> usize {
        self.inner.config.n_vocab
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_of_problems_are_cut() {
        let problems = |n: usize| (0..n).map(|i| format!("p{i}")).collect::<Vec<_>>();
        let text = |n| ModelError::Invalid(problems(n)).to_string();
        assert_eq!(text(2), "the model cannot run: p0; p1");
        assert!(text(8).ends_with("p6; p7"));
        assert!(text(500).ends_with("p6; p7; and 492 more problems"));
    }
}
