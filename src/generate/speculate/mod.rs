//! Speculative decoding: tokens are drafted cheaply and verified together.
//!
//! A draft comes from a [`DraftSource`]: the same any-precision file at a narrow width, a second, smaller model, the
//! model's own head for multi-token prediction, a drafter that was made for the model, or the text itself. Its tokens are evaluated together at the width of the
//! text, which takes little longer than one of them where the time goes into reading weights. The caller chooses every token from these logits, which have the bits of
//! a token evaluated by itself; drafts that agree with the choices were evaluated already. So the text is the one
//! without drafts, whatever the source and the sampler. What was drafted in vain is forgotten; a recurrent state, of
//! which no part can be forgotten, goes back to where it was before the draft.
//!
//! [`Drafter`] decides how long a draft is and which of its tokens are accepted, [`Pace`] measures whether drafts pay;
//! both evaluate nothing. [`Speculator`] drives them in a session; a server drives them itself in the steps of many texts,
//! with an [`Aside`] for each text where drafts come from elsewhere than the model at fewer bits.

mod block;
mod borrower;
mod drafter;
mod error;
mod last;
mod lookup;
mod mtp;
mod pace;
mod second;
mod source;
mod speculator;
mod tail;
mod trail;
mod vocabulary;

pub use drafter::{Counts, Drafter};
pub use error::{SpeculateError, check};
pub use pace::Pace;
pub use source::{Aside, AsideSource, DraftSource};
pub use speculator::Speculator;
