//! Runs, makes and measures language models in GGUF files, with the same bits on every machine.
//!
//! ```
//! use trine::GenerateOptions;
//!
//! fn main() -> Result<(), trine::Error> {
//!     // any GGUF file: mapped, its shards found, errors in one line that says what to do
//!     let model = trine::open("testdata/models/trilm-wt-5.8m-F16.gguf")?;
//!     for chunk in model.generate("The game of", &GenerateOptions::greedy(16))? {
//!         // whole characters, as soon as they are certain
//!         print!("{}", chunk?.text);
//!     }
//!     Ok(())
//! }
//! ```
//!
//! # Where to look next
//!
//! | to | start at |
//! |---|---|
//! | continue a text; sampling, stop strings, drafts, cancelling | [`Model::generate`], [`GenerateOptions`] |
//! | continue many texts at once | [`Model::generate_many`] |
//! | give a text a form: JSON, a grammar | [`Grammar`], [`GenerateOptions::grammar`] |
//! | ask again with the same beginning | [`Model::context`], [`Context::generate`] |
#![cfg_attr(feature = "chat", doc = "| hold a conversation | [`Model::chat`], [`Chat::say`] |")]
//! | see logits | [`Model::session`], [`Session::eval`] |
//! | run many sequences in one pass | [`Model::engine`], [`Engine::step`] |
//! | make vectors of texts | [`Model::embed`], [`Pooling`] |
//! | rank texts by a question | [`Model::rank`] |
//! | count tokens | [`Model::tokenizer`], [`Tokenizer::encode`] |
//! | measure a model | [`Model::perplexity`], [`eval`] |
//! | look into a file | [`open_file`], [`formats`] |
//! | make a smaller file | [`quantize`], [`Recipe`], [`quant`] |
#![cfg_attr(feature = "convert", doc = "| convert a Hugging Face folder | [`convert`] |")]
//! | choose threads, instruction set, memory | [`open_with`], [`OpenOptions`] |
//!
//! `examples/` has a program for each of the first; `cargo run --release --example generate` runs on the bundled model.
//!
//! # What is promised
//!
//! The bits. The numerics are those of llama.cpp's CPU backend built for plain x86-64 (no SIMD options, no FMA
//! contraction) and run with flash attention off. Instruction set, threads, batch sizes, memory layouts and drafts
//! change speed and nothing else: the same file, prompt and options give the same logits everywhere, to the last bit.
//! `docs/determinism.md` states the contract; the tests hold it.

pub mod arch;
#[cfg(feature = "chat")]
pub mod chat;
#[cfg(feature = "convert")]
pub mod convert;
pub mod eval;
#[doc(hidden)]
pub mod exec;
pub mod fisher;
pub mod generate;
pub mod grammar;
#[cfg(any(feature = "chat", feature = "convert", feature = "grammar"))]
#[doc(hidden)]
pub mod isolate;
pub mod model;
pub mod open;
pub mod program;
pub mod quant;
pub mod sample;
pub mod sequential;
pub mod step;
pub mod tokenizer;
pub mod tune;

mod cancel;
mod error;
mod handle;
mod linalg;
mod progress;
mod widely;

use trine_kernels as kernels;

// What follows is for the benchmarks and tests of this workspace; programs have no need of it.
#[doc(hidden)]
pub mod kv;
#[doc(hidden)]
pub mod ops;
#[doc(hidden)]
pub mod pool;
#[doc(hidden)]
pub use trine_kernels::math;

/// File formats: GGUF, tensor types, importance matrices.
pub use trine_formats as formats;

pub use cancel::CancelToken;
#[cfg(feature = "chat")]
pub use chat::{ChatTemplate, Message, Role};
pub use error::Error;
pub use exec::Offload;
pub use generate::speculate::DraftSource;
#[cfg(feature = "chat")]
pub use generate::{Answer, Chat};
pub use generate::{
    Chunk, Completion, Context, ContextOptions, DraftOptions, End, GenerateError, GenerateOptions, Generation, Prompt,
};
pub use grammar::Grammar;
pub use handle::{EmbedError, EmbedOptions, Model, RankError, RankOptions};
pub use kernels::{Isa, IsaError, Level};
pub use model::{NumberPath, Weights};
pub use open::{OpenError, OpenOptions, open, open_file, open_with};
pub use pool::Pool;
pub use quant::{Recipe, Target, quantize};
pub use sample::{
    DryBreakers, DryOptions, Mirostat, MirostatVersion, Sampler, SamplerKind, SamplerOption, SamplerOptions,
};
pub use step::{Engine, Pooling, Scale, Segment, Sequence, Session, SessionOptions, StepOptions};
pub use tokenizer::Tokenizer;
pub use trine_formats::gguf::ModelFile;
