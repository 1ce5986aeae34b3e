//! From a prompt to text, token by token.
//!
//! One concern a file: [`TextMachine`] is the state of one text, which chooses tokens and evaluates nothing;
//! [`Generation`] drives one of them in a [`Context`], which holds what was evaluated and reuses it for the next prompt
//! (a server drives many in the same steps); [`Chooser`] is sampler and grammar, [`speculate`] drafts tokens,
//! `Chat`, which the feature of that name adds, keeps a conversation.
//!
//! The text depends on the model, the prompt, and the options that choose tokens, seed included; never on threads,
//! batch sizes, drafts, or on how much of a prompt was in the context already. (What a context holds that was evaluated
//! at another width of an any-precision model stays as it is; see [`GenerateOptions::bits`].)

#[cfg(feature = "chat")]
mod chat;
mod chooser;
mod chunk;
mod context;
mod error;
mod generation;
mod infill;
mod machine;
mod many;
mod options;
mod probabilities;
mod saved;
pub mod speculate;
mod stats;
mod stop;
mod text;
mod window;

pub use crate::step::SavedError;
#[cfg(feature = "chat")]
pub use chat::{Answer, Chat};
pub use chooser::{ChooseError, Chooser};
pub use chunk::{Chunk, Completion, End};
pub use context::{Context, Evaluated, LogitsObserver};
pub use error::GenerateError;
pub use generation::Generation;
pub use infill::Infill;
pub use machine::{Choice, Ending, ResumeError, TextMachine, Token};
pub use options::{ContextOptions, DraftOptions, GenerateOptions, Prompt};
pub use probabilities::{TokenLogprobs, TokenOdds, Told};
pub use stats::{Stats, Timed};
