//! Widely linear models: what they compute is what the dense model of their stages computes, whatever it runs on.
#![allow(missing_docs)]

mod convert;
mod damage;
mod fork;
mod models;
mod run;
