//! Programs on a device: weights are brought there once, then passes run.
//!
//! A [`Host`] is a device with the weights of one model. Every [`Passes`] that it starts has keys, values and
//! activations of its own beside them. Both say why something cannot be done in one line, whatever the device is, so
//! that who runs a model knows none.

mod loaded;
mod meeting;
mod prepared;
mod runner;
mod shared;
mod staged;
mod together;

use std::any::Any;
use std::fmt;

use crate::program::{Limits, Program, Weights};

pub use shared::Shared;

/// Why a program cannot run, in one line.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Failure(String);

impl Failure {
    /// A reason in one line.
    pub fn new(why: String) -> Failure {
        Failure(why)
    }

    fn of(error: impl fmt::Display) -> Failure {
        Failure(error.to_string())
    }

    /// The same with the name of the device before it, where there are several.
    pub fn on(self, device: &str) -> Failure {
        Failure(format!("{device}: {}", self.0))
    }
}

/// Inputs of a pass, a row for each of its tokens.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// Their numbers in the vocabulary; a program that begins with other values may have no use for them.
    pub tokens: &'a [u32],
    /// Values before the program's first block, in its order: the residual stream, and others where blocks read some.
    /// None where it begins with the tokens; those that another device has handed over ([`Passes::hand`]) are empty.
    pub rows: &'a [&'a [f32]],
}

impl<'a> Input<'a> {
    /// Tokens alone.
    pub fn of_tokens(tokens: &'a [u32]) -> Input<'a> {
        Input { tokens, rows: &[] }
    }
}

/// Tokens of a pass that follow each other at the end of one sequence.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// The pages of the sequence in the order of its positions, those of the new tokens included.
    pub pages: &'a [u32],
    /// Position of the first token.
    pub first: usize,
    /// Number of new tokens.
    pub tokens: usize,
    /// Where recurrent layers have their state, and leave the next one.
    pub slot: Slot,
}

/// A place for the state of a sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    /// Its number, below that of the limits.
    pub number: usize,
    /// True if the sequence begins: its state is zero, whatever is there.
    pub fresh: bool,
}

impl Default for Slot {
    fn default() -> Slot {
        Slot { number: 0, fresh: true }
    }
}

/// Cosine and sine of every pair of a kind of RoPE at a position.
pub type Angles<'a> = dyn Fn(usize, usize) -> Vec<(f32, f32)> + 'a;

/// Runs the passes of a program.
pub trait Passes: Any + Send {
    /// Sizes for which there is memory.
    fn limits(&self) -> Limits;

    /// The factors of what adapters add in later passes, by their number in the program; `None` where one adds nothing.
    ///
    /// # Errors
    /// Another number of them than the program has, and what the device says.
    fn tell(&mut self, factors: &[Option<f32>]) -> Result<(), Failure>;

    /// Runs one pass over the tokens of `parts`, in their order, with any-precision weights of `width` bits; any number
    /// where there are none. Keys and values are left in the pages, and rows for [`Passes::logits`], which have the same
    /// width, and [`Passes::left`].
    ///
    /// # Errors
    /// A pass beyond the limits or the vocabulary, a width that the weights do not have, factors that were never told,
    /// and what the device says.
    fn pass(&mut self, input: Input<'_>, parts: &[Part<'_>], width: u8, angles: &Angles<'_>) -> Result<(), Failure>;

    /// The logits of some of the rows that the last pass has left, no more than the limits say.
    ///
    /// # Errors
    /// Rows that are not there, and what the device says.
    fn logits(&mut self, rows: &[usize]) -> Result<Vec<f32>, Failure>;

    /// The values that the last pass has left, in the program's order.
    ///
    /// # Errors
    /// The device's error.
    fn left(&mut self) -> Result<Vec<Vec<f32>>, Failure>;

    /// Copies a value that the last pass has left, by its place in the program's order, to another device of the same kind,
    /// where it is the value of a place that the next pass is given. Nobody waits for it but that device.
    ///
    /// # Errors
    /// Values that are not there or of another width, devices of several kinds, and what a device says.
    fn hand(&mut self, left: usize, to: &mut dyn Passes, given: usize) -> Result<(), Failure>;

    /// Copies the keys and values of a page to another one.
    ///
    /// # Errors
    /// Pages that are not there, and what the device says.
    fn copy_page(&mut self, from: u32, to: u32) -> Result<(), Failure>;

    /// The first `positions` of a page: keys and then values of one layer after the other, of each `[head][position]` as
    /// their type has them.
    ///
    /// # Errors
    /// A page that is not there, more positions than it has, and what the device says.
    fn read_page(&mut self, page: u32, positions: usize) -> Result<Vec<Vec<u8>>, Failure>;

    /// Puts there what [`Passes::read_page`] gave.
    ///
    /// # Errors
    /// The same; cells of another shape.
    fn write_page(&mut self, page: u32, positions: usize, cells: &[Vec<u8>]) -> Result<(), Failure>;

    /// Memories of keys and of values.
    fn cells(&self) -> usize;

    /// Numbers that recurrent layers keep of a sequence; 0 without such layers.
    fn state(&self) -> usize;

    /// Copies the state in a slot to another one.
    ///
    /// # Errors
    /// Slots that are not there, and what the device says.
    fn copy_state(&mut self, from: usize, to: usize) -> Result<(), Failure>;

    /// The state in a slot.
    ///
    /// # Errors
    /// A slot that is not there, and what the device says.
    fn read_state(&mut self, slot: usize) -> Result<Vec<f32>, Failure>;

    /// Puts a state into a slot.
    ///
    /// # Errors
    /// A slot that is not there, a state of another length, and what the device says.
    fn write_state(&mut self, slot: usize, state: &[f32]) -> Result<(), Failure>;
}

/// A device for one model.
pub trait Host: Any + fmt::Debug + Send + Sync {
    /// Bytes of its memory that can still be had.
    ///
    /// # Errors
    /// The device does not say.
    fn free_memory(&self) -> Result<u64, Failure>;

    /// Checks that it has the memory for a program, and for its weights where they are not there yet.
    ///
    /// # Errors
    /// More memory than the device has, by a table of what the program needs.
    fn check(&self, program: &Program) -> Result<(), Failure>;

    /// Starts a program of the model. With the first one the weights are brought to the device, later ones share them.
    ///
    /// # Errors
    /// Before anything is allocated: more memory than the device has. Weights that cannot be laid out, and what the
    /// device says.
    fn start(&self, program: Program, weights: &[Weights<'_>]) -> Result<Box<dyn Passes>, Failure>;

    /// Starts programs of one model on devices that share the rows of matrices: each with its device and its weights, the
    /// first with this one.
    ///
    /// # Errors
    /// As [`Host::start`], with the number of the device; devices of several kinds.
    fn start_together(&self, parts: Vec<Member<'_>>) -> Result<Box<dyn Passes>, (usize, Failure)>;
}

/// A device of several that share the rows of matrices, with its program.
#[derive(Debug)]
pub struct Member<'a> {
    /// The device.
    pub host: &'a dyn Host,
    /// Its program.
    pub program: Program,
    /// The weights of its program.
    pub weights: Vec<Weights<'a>>,
}
