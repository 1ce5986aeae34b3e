//! Converts the folder of a Hugging Face checkpoint into a GGUF file.
//!
//! [`plan()`] reads the JSON files and the headers and decides everything; [`run()`] then streams the weights,
//! a few megabytes at a time. Names, shapes, types and metadata are those that llama.cpp's converter
//! gives, in its order; for float models the file is the same byte for byte. What a ternary checkpoint's
//! latent or packed weights mean is decided from `config.json` or said by the caller, never guessed.

mod beside;
mod card;
mod dense;
mod drafters;
mod error;
mod folder;
mod general;
mod hparams;
mod lists;
mod mean;
mod mxfp4;
mod name;
mod ngrams;
mod numbers;
mod outtype;
mod packed;
mod params;
mod parts;
mod place;
mod plan;
mod prove;
mod quantized;
mod reading;
mod rope;
mod row;
mod rows;
mod run;
mod slices;
mod source;
mod ternary;
mod unpack;
mod values;
mod vocab;
mod widely;

pub use crate::progress::Progress;
pub use crate::widely::Options as Widely;
pub use error::{ConvertError, Problems};
pub use outtype::OutType;
pub use plan::{Options, Plan, plan};
pub use row::Row;
pub use run::run;
pub use source::known_classes;
pub use ternary::{PackedScale, Ternary};
pub use vocab::answer;
