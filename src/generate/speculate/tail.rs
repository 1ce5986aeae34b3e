//! The text that a draft continues.

/// The end of a text, to which a draft is to be added.
pub(super) struct Tail<'a> {
    /// The text, without its last token.
    pub text: &'a [u32],
    /// Its last token.
    pub last: u32,
    /// Most tokens of the draft.
    pub most: usize,
}

/// Chooses a token from drafted logits, or ends the draft.
pub(super) type Guess<'a> = dyn FnMut(&[f32]) -> Option<u32> + 'a;
