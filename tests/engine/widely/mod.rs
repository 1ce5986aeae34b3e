//! Widely linear models: what they compute is what the dense model of their stages computes, whatever it runs on.

mod convert;
mod damage;
mod fork;
mod models;
mod run;
