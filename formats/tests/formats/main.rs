//! The formats from outside. One program for all, so that the crates below are linked once and a long test has others
//! beside it.
#![allow(missing_docs)]

mod anyprec;
mod bitnet_properties;
mod container;
mod dialect;
mod golden_bitnet;
mod golden_ik;
mod golden_types;
mod imatrix;
mod odd_inputs;
mod temp_files;
mod ternary_types;
mod widely;
