//! Models that run at several widths from one file.

mod drafts;
mod fixture;
mod shared;
mod speculation;
mod widths;
