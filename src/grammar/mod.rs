//! Grammars: which tokens may come next, so that a text has a form that somebody asked for.
//!
//! A [`Grammar`] is made from a JSON schema, from llama.cpp's GBNF or from the Lark dialect of the crate `llguidance`,
//! which does the work; each text that follows it has a [`Matcher`] of its own. What a matcher allows is a function of
//! the grammar and of the tokens before, and of nothing else: every matcher starts from a copy of the same first state
//! and shares nothing with others, its limits are numbers of steps and not of seconds. The crate's forced tokens are
//! not used: they would choose how a text is divided into tokens.

mod error;
#[cfg(feature = "grammar")]
mod follow;
#[cfg(feature = "grammar")]
mod gbnf;
#[cfg(not(feature = "grammar"))]
mod left_out;
#[cfg(feature = "grammar")]
mod schema;
#[cfg(feature = "grammar")]
mod trial;

pub use error::GrammarError;
#[cfg(feature = "grammar")]
pub use follow::{Allowed, Grammar, Matcher, Vocabulary, answer};
#[cfg(not(feature = "grammar"))]
pub use left_out::{Allowed, Grammar, Matcher};
