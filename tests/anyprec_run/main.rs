//! Models that run at several widths from one file.

#[path = "../common/mod.rs"]
mod common;
mod drafts;
mod fixture;
mod speculation;
mod widths;
