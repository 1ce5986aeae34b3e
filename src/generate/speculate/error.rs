//! Why there can be no drafts.

use crate::model::{Weights, WidthError};

/// Why there can be no drafts.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpeculateError {
    /// The model does not have the width.
    #[error(transparent)]
    Width(#[from] WidthError),
    /// The second model fills gaps in texts.
    #[error("the draft model attends in both directions: it cannot continue a text")]
    NotCausal,
    /// The second model continues no text without one that its encoder reads.
    #[error("the draft model has an encoder: it cannot continue a text of another model")]
    HasEncoder,
    /// The two models have no token in common.
    #[error("no token of the draft model stands for the same text as one of the model's")]
    OtherTokens,
    /// The model was loaded without its head.
    #[error("the model's head for multi-token prediction was not loaded")]
    NoHead,
    /// The model was loaded without a drafter.
    #[error("no drafter was loaded with the model; name its file with -md")]
    NoDrafter,
    /// The drafter that was loaded drafts otherwise.
    #[error("the drafter of -md is none for this --spec-type: draft-eagle3, draft-dflash and draft-mtp need their own")]
    OtherDrafter,
    /// Drafts must be cheaper than the text.
    #[error("drafts at {draft} bits are of no use for a text at {text}; draft at fewer bits")]
    NotNarrower {
        /// Width of the drafts.
        draft: u8,
        /// Width of the text.
        text: u8,
    },
}

/// Checks that `model` can draft at `draft` bits for a text at `text`.
///
/// # Errors
/// The model does not have that width, or it is not below the text's.
pub fn check(model: &Weights, draft: u8, text: u8) -> Result<(), SpeculateError> {
    model.check_width(draft)?;
    narrower(draft, text)
}

/// Checks that drafts of one width are cheaper than a text of the other.
///
/// # Errors
/// They are not.
pub(super) fn narrower(draft: u8, text: u8) -> Result<(), SpeculateError> {
    match draft < text {
        true => Ok(()),
        false => Err(SpeculateError::NotNarrower { draft, text }),
    }
}
