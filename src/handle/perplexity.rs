//! The perplexity of a text, without the options of the tool.

use super::Model;
use crate::eval::base_file::BaseWriter;
use crate::eval::perplexity::{Estimate, perplexity};
use crate::eval::{Batching, Chunks, EvalError, SideBySide};

/// Tokens that go through the model together.
const BATCH: usize = 512;

impl Model {
    /// How well the model predicts `text`, cut into chunks of `n_ctx` tokens: llama-perplexity's protocol, to the
    /// digit.
    ///
    /// ```
    /// # let text = std::fs::read_to_string("testdata/wikitext-2/wiki.test.raw").unwrap();
    /// # let text = text.chars().take(4000).collect::<String>();
    /// let model = trine::open("testdata/models/trilm-wt-5.8m-F16.gguf")?;
    /// let estimate = model.perplexity(&text, 128)?;
    /// println!("{:.4} +/- {:.5}", estimate.ppl(), estimate.ppl_error());
    /// # assert!(estimate.ppl() > 20.0 && estimate.ppl() < 300.0);
    /// # Ok::<(), trine::Error>(())
    /// ```
    ///
    /// # Errors
    /// A text shorter than two chunks or one that cannot be encoded; a model that computes numbers that are not finite.
    pub fn perplexity(&self, text: &str, n_ctx: usize) -> Result<Estimate, EvalError> {
        let tokenizer = self.tokenizer();
        let tokens = tokenizer.encode(text, true, false)?;
        let chunks = Chunks::new(tokens, n_ctx, tokenizer.text_bos(), None)?;
        let batching = Batching { n_ctx, n_batch: BATCH, n_ubatch: BATCH };
        let mut model = SideBySide::new(self.weights(), self.pool(), batching);
        let no_file: Option<&mut BaseWriter<Vec<u8>>> = None;
        perplexity(&mut model, &chunks, no_file, &mut |_, _| Ok(()))
    }
}
