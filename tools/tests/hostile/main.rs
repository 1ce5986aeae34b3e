//! The tools among people, disks, terminals and files that mean no good: nothing is lost, nothing is said that is not
//! so.
#![allow(missing_docs)]
#![cfg(target_os = "linux")]

mod checkpoints;
mod damaged;
mod files;
mod inputs;
mod interrupts;
mod kit;
mod limits;
mod seeds;
mod streams;
mod templates;
mod terminal;
