//! `rserve`: serves a model over HTTP.

fn main() {}
