//! Mixtures of experts as launches.

use trine_cuda::program::{self as gpu, Chosen, ProgramError, Span};

use super::tape::{Tape, missing};
use crate::math::{EXP2_32, LOG_16};
use crate::ops::experts::{Choosing, Claim, Gating};
use crate::program::Stack;

impl<'a> Tape<'a> {
    pub(super) fn choose(&mut self, scores: Span, choosing: &'a Choosing) -> Result<Chosen, ProgramError> {
        let Choosing { experts: _, used, gating, claim, shared_by, bias, groups, normalize, scale, table } = choosing;
        // The function of scores that no router's kernel has is one of their own.
        let scores = match gating {
            Gating::RootOfSoftplus if *claim != Claim::Probabilities => {
                return missing("experts by scores and weighed by the root of the soft-plus");
            }
            Gating::RootOfSoftplus => {
                let probabilities = self.recorder.copied(scores)?;
                self.recorder.root_of_softplus(probabilities, [&EXP2_32, &LOG_16]);
                probabilities
            }
            _ => scores,
        };
        if let Some(table) = table {
            return match gating {
                Gating::RootOfSoftplus if *shared_by == 1 => {
                    self.recorder.choose_by_token(scores, (table, *used), *normalize, scale.unwrap_or(1.0))
                }
                _ => missing("experts by the token"),
            };
        }
        let rule = gpu::Choosing {
            used: *used,
            gating: match gating {
                Gating::SoftMax => gpu::Gating::SoftMax,
                Gating::Sigmoid => gpu::Gating::Sigmoid,
                Gating::RootOfSoftplus => gpu::Gating::Itself,
                Gating::SoftMaxOfChosen => gpu::Gating::SoftMaxOfChosen,
            },
            claim: match claim {
                Claim::Probabilities => gpu::Claim::Probabilities,
                Claim::Scores => gpu::Claim::Scores,
                Claim::Sigmoids => gpu::Claim::Sigmoids,
            },
            bias: bias.as_deref(),
            groups: *groups,
            shared_by: *shared_by,
            normalize: *normalize,
            // a product with 1 is exact
            scale: scale.unwrap_or(1.0),
            powers: &EXP2_32,
        };
        self.recorder.choose(scores, &rule)
    }

    /// Products with the matrices of the experts that were chosen.
    pub(super) fn product_of_experts(
        &mut self,
        stack: &'a Stack,
        x: Span,
        chosen: &Chosen,
    ) -> Result<Span, ProgramError> {
        let Stack { matrices, observed: _, scales, biases, adapters } = stack;
        if matrices.is_empty() {
            return missing("no experts");
        }
        let matrices = (0..matrices.len()).map(|expert| self.stored(stack.matrix(expert)));
        let matrices = matrices.collect::<Result<Vec<_>, _>>()?;
        let y = self.recorder.product_of_chosen(&matrices, x, chosen)?;
        if let Some(scales) = scales {
            self.recorder.scale_chosen(y, scales, chosen)?;
        }
        self.adapt_experts(adapters, (x, y), chosen)?;
        if let Some(biases) = biases {
            self.recorder.add_chosen(y, biases, chosen)?;
        }
        Ok(y)
    }
}
