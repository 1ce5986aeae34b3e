//! The programs as their users run them. One program for all, so that the crates below are linked once and a long test
//! has others beside it.
#![allow(missing_docs)]

mod anyprec;
mod anyprec_run;
mod dense;
#[cfg(target_os = "linux")]
mod device;
mod encoder;
mod fairy2i;
mod gptq;
mod gpu;
#[cfg(all(unix, feature = "hub"))]
mod hub;
mod machine_code;
mod migration;
mod mtp;
mod pages;
mod pasted;
mod rbench;
mod rconvert;
mod rgen;
mod rgen_cache;
mod rgen_chat;
mod rgen_embedding;
mod rgen_rerank;
#[cfg(unix)]
mod rgen_terminal;
mod rgen_turns;
mod rimatrix;
mod rinspect;
mod rperplexity;
mod rperplexity_compare;
mod rperplexity_partial;
mod rperplexity_tasks;
mod rquantize;
mod rquantize_ik;
mod rquantize_rotate;
mod rquantize_size;
mod rquantize_split;
mod rquantize_tune;
mod rtokenize;
#[cfg(unix)]
mod screens;
mod sequential;
mod tables;
mod ternary_formats;
