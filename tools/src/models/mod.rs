//! Models by name: `-hf USER/REPO:QUANT`, `-mu URL`, and names of models that other programs have fetched.
//!
//! The words of a command line that ask for a model are taken out before it is parsed, and the path of a file stands
//! there instead: no tool knows where its model came from.

#[cfg(feature = "hub")]
mod fetch;
mod options;
#[cfg(feature = "hub")]
mod screen;
#[cfg(not(feature = "hub"))]
mod without;

#[cfg(feature = "hub")]
pub use fetch::{fetch, found, here};
pub use options::{Asked, Fetched, SHORT, is_first_word, knows, takes_value, with_options, words};
#[cfg(not(feature = "hub"))]
pub use without::{fetch, found, here};
