//! Adapters in the file of a model, one of which a token switches on.

use std::sync::Arc;

use super::lowering::Lowering;
use crate::model::load::Stacked;
use crate::ops::attention::{Heads, Reach};
use crate::ops::switch::Switch;
use crate::program::{Attend, Value};

impl Lowering<'_, '_> {
    /// The adapter of every token: one head attends to the tokens that switch adapters on.
    pub(super) fn switched_on(&mut self, switch: &Arc<Switch>) -> Value {
        let attend = Attend {
            cache: 0,
            heads: Heads { queries: 1, keys: 1, size: switch.head },
            value_size: switch.head,
            scale: 1.0,
            window: None,
            rules: None,
            both_ways: false,
            reach: Reach::Own,
            stored: false,
        };
        let signals = self.b.switch_signals(switch.clone());
        let routed = self.b.attend("switch", signals, attend);
        self.b.choose_switched(routed, switch.clone())
    }

    /// `y`, a product of `x`, and what the adapter of each token adds to it.
    pub(super) fn and_switched(&mut self, x: Value, y: Value, adapters: [Stacked; 2]) -> Value {
        let Some(choice) = self.adapter else {
            return y;
        };
        let [a, b] = adapters.map(|stacked| {
            let mut stack = self.stack(stacked);
            stack.observed = false;
            stack
        });
        let rows = self.b.dispatch("adapter_rows", x, choice, false);
        let low = self.b.product_of_experts("adapter_low", rows, choice, a);
        let added = self.b.product_of_experts("adapter_added", low, choice, b);
        let added = self.b.combine("adapter_added", added, choice, false);
        self.b.add("adapted", y, added)
    }
}
