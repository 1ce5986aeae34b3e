//! From the hidden states of a text's tokens to one vector: what llama.cpp computes, operation by operation.

pub use crate::arch::Pooling;
use crate::model::Weights;
use crate::program::Setting;

/// A vector that comes into being while the tokens of a text are evaluated, in any number of steps.
#[derive(Clone)]
pub struct Pooled {
    model: Weights,
    setting: Setting,
    pooling: Pooling,
    states: States,
}

impl Pooled {
    /// The vector that `model`, of any precision at the bits of `setting` or the widest, makes of a text of `tokens`
    /// tokens, before any of them was evaluated.
    pub fn new(model: &Weights, setting: Setting, pooling: Pooling, tokens: usize) -> Pooled {
        let states = States::new(model.pools_by(pooling), tokens);
        let bits = setting.width().or(model.widths().last().copied()).unwrap_or(0);
        Pooled { model: model.clone(), setting: Setting { bits, ..setting }, pooling, states }
    }

    /// True if the states of all tokens are needed, not of the last one alone.
    pub fn wants_all(&self) -> bool {
        self.states.wants_all()
    }

    /// Takes in the hidden state of the token at `position`. States come in the order of their tokens; one that was
    /// taken in before is left out, because a text may be evaluated again from its beginning.
    pub fn take(&mut self, position: usize, state: &[f32]) {
        self.states.take(position, state);
    }

    /// The vector, once the state of the last token was taken in; `None` before. It is handed out once. What the model
    /// has behind the pooling runs on the current pool.
    ///
    /// # Errors
    /// The model computed a NaN or an infinity.
    pub fn vector(&mut self) -> Result<Option<Vec<f32>>, NotFinite> {
        let Some(states) = self.states.pooled()? else {
            return Ok(None);
        };
        let each = match self.pooling {
            Pooling::None => self.model.config().n_embd,
            _ => states.len().max(1),
        };
        let made = states.chunks(each).map(|pooled| self.model.behind_pooling(self.pooling, &self.setting, pooled));
        finite(made.collect::<Vec<_>>().concat()).map(Some)
    }
}

/// Pooled states that come into being.
#[derive(Clone)]
struct States {
    pooling: Pooling,
    /// Tokens of the text.
    tokens: usize,
    /// Tokens whose states were taken in.
    taken: usize,
    /// The sum so far.
    sum: Vec<f64>,
    /// The state that is the vector, or all of them.
    states: Vec<f32>,
}

impl States {
    fn new(pooling: Pooling, tokens: usize) -> States {
        States { pooling, tokens, taken: 0, sum: Vec::new(), states: Vec::new() }
    }

    fn wants_all(&self) -> bool {
        self.pooling != Pooling::Last
    }

    fn take(&mut self, position: usize, state: &[f32]) {
        if position < self.taken {
            return;
        }
        self.taken = position + 1;
        match self.pooling {
            Pooling::Mean => {
                // The product with the weight is rounded to single precision, the sum is not: a dot product of the
                // states with equal weights, as ggml's portable code has it.
                let weight = 1.0 / self.tokens as f32;
                self.sum.resize(state.len(), 0.0);
                for (sum, x) in self.sum.iter_mut().zip(state) {
                    *sum += f64::from(x * weight);
                }
            }
            Pooling::Cls if position > 0 => {}
            Pooling::Last if self.taken < self.tokens => {}
            Pooling::Cls | Pooling::Last | Pooling::None | Pooling::Rank => self.states.extend_from_slice(state),
        }
    }

    /// The pooled states, once that of the last token was taken in; `None` before. They are handed out once.
    ///
    /// # Errors
    /// The model computed a NaN or an infinity.
    fn pooled(&mut self) -> Result<Option<Vec<f32>>, NotFinite> {
        if self.taken < self.tokens {
            return Ok(None);
        }
        let states: Vec<f32> = match self.pooling {
            Pooling::Mean => self.sum.iter().map(|x| *x as f32).collect(),
            Pooling::Cls | Pooling::Last | Pooling::None | Pooling::Rank => std::mem::take(&mut self.states),
        };
        finite(states).map(Some)
    }
}

/// `vector`, if all of its numbers are finite.
fn finite(vector: Vec<f32>) -> Result<Vec<f32>, NotFinite> {
    match vector.iter().position(|x| !x.is_finite()) {
        Some(index) => Err(NotFinite(index)),
        None => Ok(vector),
    }
}

/// A number of a vector that no working model computes, by its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("number {0} of the vector is not finite: the model's weights are damaged")]
pub struct NotFinite(pub usize);

/// Scaling of the vector at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// Nothing.
    None,
    /// Its largest number becomes 32760, for vectors that are kept as whole numbers of 16 bits.
    Largest,
    /// Its length becomes 1, so that the dot product of two is the cosine of their angle.
    #[default]
    Length,
}

impl Scale {
    /// The scaling of a number of llama.cpp's `embd_normalize`: -1 nothing, 0 the largest number, 2 the length. Other norms
    /// need powers whose last bits would be the machine's.
    pub fn by_number(number: i64) -> Option<Scale> {
        match number {
            -1 => Some(Scale::None),
            0 => Some(Scale::Largest),
            2 => Some(Scale::Length),
            _ => None,
        }
    }

    /// Scales `vector`. One of zeros stays as it is.
    pub fn apply(self, vector: &mut [f32]) {
        let size: f64 = match self {
            Scale::None => return,
            Scale::Largest => {
                let largest = vector.iter().map(|x| f64::from(x.abs()));
                largest.fold(0.0, f64::max) / 32760.0
            }
            // The squares are rounded to single precision, their sum is not.
            Scale::Length => vector.iter().map(|x| f64::from(x * x)).sum::<f64>().sqrt(),
        };
        let factor = if size > 0.0 { (1.0 / size) as f32 } else { 0.0 };
        vector.iter_mut().for_each(|x| *x *= factor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [[f32; 2]; 3] = [[1.0, -2.0], [4.0, 0.5], [0.25, 9.0]];

    fn pooled(pooling: Pooling) -> Vec<f32> {
        let mut pooled = States::new(pooling, 3);
        for (i, state) in STATES.iter().enumerate() {
            assert_eq!(pooled.pooled(), Ok(None));
            pooled.take(i, state);
            // as after a beginning from the start
            pooled.take(0, &STATES[0]);
        }
        pooled.pooled().unwrap().unwrap()
    }

    #[test]
    fn a_damaged_model_is_noticed() {
        let mut pooled = States::new(Pooling::Last, 1);
        pooled.take(0, &[1.0, f32::NAN]);
        assert_eq!(pooled.pooled(), Err(NotFinite(1)));
    }

    #[test]
    fn one_vector_of_many() {
        assert_eq!(pooled(Pooling::Cls), [1.0, -2.0]);
        assert_eq!(pooled(Pooling::Last), [0.25, 9.0]);
        assert_eq!(pooled(Pooling::None), STATES.concat());
        let weight = 1.0f32 / 3.0;
        let sum: f64 = STATES.iter().map(|s| f64::from(s[0] * weight)).sum();
        assert_eq!(pooled(Pooling::Mean)[0], sum as f32);
    }

    #[test]
    fn scales() {
        let scaled = |scale: Scale, mut v: Vec<f32>| {
            scale.apply(&mut v);
            v
        };
        assert_eq!(scaled(Scale::None, vec![3.0, 4.0]), [3.0, 4.0]);
        assert_eq!(scaled(Scale::Length, vec![3.0, 4.0]), [0.6, 0.8]);
        assert_eq!(scaled(Scale::Largest, vec![3.0, -4.0]), [24570.0, -32760.0]);
        assert_eq!(scaled(Scale::Length, vec![0.0, 0.0]), [0.0, 0.0]);
        assert_eq!(Scale::default(), Scale::Length);
    }
}
