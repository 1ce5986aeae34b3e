//! The position embeddings of a model.

use super::Config;
use crate::exec::Ropes;

impl Config {
    /// The position embeddings, with the divisors of frequencies that the file has for short contexts and for long ones.
    pub fn ropes(&self, factors: [Option<Vec<f32>>; 2]) -> Ropes {
        let all = factors.map(|factors| {
            let mut ropes = [self.rope.clone(), self.window_rope.clone()];
            if let Some(factors) = factors {
                let turned = if self.arch.rope.factors_in_windows { 2 } else { 1 };
                ropes.iter_mut().take(turned).for_each(|rope| rope.freq_factors.clone_from(&factors));
            }
            ropes
        });
        Ropes { all, original_context: self.original_context }
    }
}
