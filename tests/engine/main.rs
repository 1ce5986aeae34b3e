//! The library from outside. One program for all, so that the crates below are linked once and a long test has others
//! beside it.
#![allow(missing_docs)]

mod added;
mod anyprec;
mod anyprec_run;
mod common;
mod convert;
mod forks;
mod grammar;
mod hqq;
mod library;
mod logits;
mod quant_cancel;
mod quant_plan;
mod step;
mod tokenizer;
mod widely;
