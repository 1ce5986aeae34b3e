//! The values of a pass.

use super::choice::Choice;
use crate::kernels::Floats;
use crate::ops::matmul::Forms;
use crate::program::Value;

/// A value that lives.
#[derive(Default)]
enum Held {
    #[default]
    Nothing,
    /// Rows, and their forms for products.
    Rows(Floats, Forms),
    /// The experts of every token.
    Choice(Box<Choice>),
}

/// The values of a pass, by number.
pub struct Values(Vec<Held>);

impl Values {
    /// Places for `count` values, all empty.
    pub fn new(count: usize) -> Values {
        Values((0..count).map(|_| Held::Nothing).collect())
    }

    /// Keeps a value.
    pub fn set(&mut self, value: Value, x: Floats) {
        self.0[value.0] = Held::Rows(x, Forms::default());
    }

    /// Keeps a choice of experts.
    pub fn set_choice(&mut self, value: Value, choice: Choice) {
        self.0[value.0] = Held::Choice(Box::new(choice));
    }

    /// The rows of a value that lives.
    pub fn get(&self, value: Value) -> &[f32] {
        match &self.0[value.0] {
            Held::Rows(x, _) => x,
            _ => unreachable!("value {} is read while it lives", value.0),
        }
    }

    /// The rows of a value that lives, and their forms for products.
    pub fn with_forms(&self, value: Value) -> (&[f32], &Forms) {
        match &self.0[value.0] {
            Held::Rows(x, forms) => (x, forms),
            _ => unreachable!("value {} is read while it lives", value.0),
        }
    }

    /// A choice of experts that lives.
    pub fn choice(&self, value: Value) -> &Choice {
        match &self.0[value.0] {
            Held::Choice(choice) => choice,
            _ => unreachable!("value {} is a choice that lives", value.0),
        }
    }

    /// Takes the rows of a value that lives, of a choice the numbers of the experts; it ends.
    pub fn take(&mut self, value: Value) -> Floats {
        match std::mem::take(&mut self.0[value.0]) {
            Held::Rows(x, _) => x,
            Held::Choice(choice) => choice.numbers(),
            Held::Nothing => unreachable!("value {} is read while it lives", value.0),
        }
    }

    /// Ends a value.
    pub fn release(&mut self, value: Value) {
        self.0[value.0] = Held::Nothing;
    }
}
