//! Parts of a forward pass: some operations over the tokens of one sequence.

use std::ops::Range;
use std::sync::Arc;

use super::engine::{Engine, Segment, StepError, StepOptions};
use crate::exec::PassOptions;
use crate::kernels::Floats;
use crate::kv::SequenceRows;
use crate::ops::observe::ActivationObserver;
use crate::program::Value;

impl Engine {
    /// Carries out some operations of the model's program over `tokens`, a sequence of their own: from the values that
    /// enter to the values `wanted`, which later operations read. `observer` sees what is multiplied with the weights.
    /// The operations find no keys, values or states but those that they make.
    ///
    /// # Errors
    /// Tokens that the model does not have, or more than fit into the pages.
    pub fn run_part(
        &self,
        operations: Range<usize>,
        values: (&[(Value, Floats)], &[Value]),
        tokens: &[u32],
        observer: Option<Arc<dyn ActivationObserver>>,
    ) -> Result<Vec<Floats>, StepError> {
        let options = StepOptions::default();
        let setting = self.setting(&options)?;
        let mut seq = self.sequence();
        self.check(&[Segment { seq: &mut seq, tokens, logits_from: tokens.len() }])?;
        seq.reserve(tokens.len())?;
        let pass = PassOptions { setting, n_ctx: options.n_ctx, observer, ..PassOptions::default() };
        let mut parts = [SequenceRows { seq: &mut seq, rows: 0..tokens.len() }];
        Ok(self.pool().install(|| self.model().part_of_pass(operations, values, tokens, &mut parts, &pass)))
    }
}
