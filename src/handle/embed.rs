//! The vector of a text.

use super::Model;
use crate::step::{NotFinite, Pooled, Pooling, Scale, Segment, Setting, Sink, StepError, StepOptions};

/// Rows of one forward pass.
const ROWS: usize = 512;

/// How a text becomes a vector.
#[derive(Clone, Debug, Default)]
pub struct EmbedOptions {
    /// How the states of its tokens become one; `None`: as the file says, and where it does not, their mean.
    pub pooling: Option<Pooling>,
    /// Scaling of the vector.
    pub scale: Scale,
    /// Bits per weight of an any-precision model; `None` for the widest.
    pub bits: Option<u8>,
    /// Most tokens; `None`: as many as the model was trained with.
    pub n_ctx: Option<usize>,
}

/// Why there is no vector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EmbedError {
    /// A text without tokens.
    #[error("there is nothing to make a vector of: the text has no tokens")]
    Empty,
    /// More tokens than the context holds.
    #[error("the text has {tokens} tokens and the context {n_ctx}; cut the text into parts")]
    TooLong {
        /// Tokens of the text.
        tokens: usize,
        /// Tokens of the context.
        n_ctx: usize,
    },
    /// The tokens cannot be evaluated.
    #[error(transparent)]
    Step(#[from] StepError),
    /// The model computed a NaN or an infinity.
    #[error(transparent)]
    NotFinite(#[from] NotFinite),
}

/// Takes the hidden states of one text.
struct States(Pooled);

impl Sink for States {
    fn wants_hidden(&self, _: usize) -> bool {
        true
    }

    fn logits(&mut self, _: usize, _: usize, _: &[f32]) {}

    fn hidden(&mut self, _: usize, index: usize, state: &[f32]) {
        self.0.take(index, state);
    }
}

impl Model {
    /// How the file says that the states of a text's tokens become its vector; `None` where it does not say, as files
    /// of models that generate texts or rank them do not.
    pub fn pooling(&self) -> Option<Pooling> {
        let pooling = self.weights().config().vectors.pooling;
        pooling.filter(|pooling| !matches!(pooling, Pooling::None | Pooling::Rank))
    }

    /// The vector of a text of `tokens`: texts of like meaning have vectors of like direction, as far as the model was
    /// made for that. It has the bits of llama.cpp's, whatever else runs.
    ///
    /// ```
    /// use trine::EmbedOptions;
    ///
    /// let model = trine::open("testdata/models/trilm-wt-5.8m-F16.gguf")?;
    /// let vector = |text: &str| -> Result<Vec<f32>, trine::Error> {
    ///     let tokens = model.tokenizer().encode(text, true, false)?;
    ///     Ok(model.embed(&tokens, &EmbedOptions::default())?)
    /// };
    /// let (one, two) = (vector("The game of chess")?, vector("A game of chess")?);
    /// let cosine: f32 = one.iter().zip(&two).map(|(a, b)| a * b).sum();
    /// assert!(cosine > 0.5 && cosine < 1.0);
    /// # Ok::<(), trine::Error>(())
    /// ```
    ///
    /// # Errors
    /// No tokens, too many, or one that the model does not have; a width that it does not have.
    pub fn embed(&self, tokens: &[u32], options: &EmbedOptions) -> Result<Vec<f32>, EmbedError> {
        let n_ctx = options.n_ctx.unwrap_or(self.n_ctx_train());
        if tokens.is_empty() {
            return Err(EmbedError::Empty);
        }
        if tokens.len() > n_ctx {
            let tokens = tokens.len();
            return Err(EmbedError::TooLong { tokens, n_ctx });
        }
        let layout = self.weights().page_layout();
        let engine = self.engine(tokens.len().div_ceil(layout.positions) * layout.bytes());
        let both_ways = self.weights().attends_both_ways();
        let step = StepOptions {
            bits: options.bits,
            n_ctx,
            n_ubatch: if both_ways { tokens.len() } else { ROWS },
            ..StepOptions::default()
        };
        let pooling = options.pooling.or(self.pooling());
        let setting = Setting { bits: options.bits.unwrap_or(0), adapters: None };
        let pooled = Pooled::new(self.weights(), setting, pooling.unwrap_or(Pooling::Mean), tokens.len());
        let mut states = States(pooled);
        let last = tokens.len() - 1;
        let segment =
            Segment { seq: &mut engine.sequence(), tokens, logits_from: if states.0.wants_all() { 0 } else { last } };
        engine.step_into(&mut [segment], &step, &mut states)?;
        let mut vector = states.0.vector()?.unwrap_or_default();
        options.scale.apply(&mut vector);
        Ok(vector)
    }
}
