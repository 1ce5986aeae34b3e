//! From the hidden states of a text's tokens to one vector: what llama.cpp computes, operation by operation.

/// How the hidden states of a text's tokens become one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pooling {
    /// Their mean.
    Mean,
    /// The state of the first token, which some models are trained to sum a text up in.
    Cls,
    /// The state of the last token: the only one that has seen all others in a model that reads forwards.
    Last,
    /// No pooling: each state is a vector of its own; they stand one behind the other.
    None,
}

impl Pooling {
    /// All of them with llama.cpp's names and the numbers that `pooling_type` of a file has.
    const ALL: [(Pooling, &'static str, u32); 4] =
        [(Pooling::Mean, "mean", 1), (Pooling::Cls, "cls", 2), (Pooling::Last, "last", 3), (Pooling::None, "none", 0)];

    /// llama.cpp's names of all.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::ALL.iter().map(|p| p.1)
    }

    /// llama.cpp's name.
    pub fn name(self) -> &'static str {
        let of = |p: &&(Pooling, &'static str, u32)| p.0 == self;
        Self::ALL.iter().find(of).map_or("", |p| p.1)
    }

    /// The pooling of a name.
    pub fn by_name(name: &str) -> Option<Pooling> {
        Self::ALL.iter().find(|p| p.1 == name).map(|p| p.0)
    }

    /// The pooling of a number in a file.
    pub fn by_number(number: u32) -> Option<Pooling> {
        Self::ALL.iter().find(|p| p.2 == number).map(|p| p.0)
    }
}

/// A vector that comes into being while the tokens of a text are evaluated, in any number of steps.
#[derive(Clone, Debug)]
pub struct Pooled {
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

impl Pooled {
    /// The vector of a text of `tokens` tokens, before any of them was evaluated.
    pub fn new(pooling: Pooling, tokens: usize) -> Pooled {
        Pooled { pooling, tokens, taken: 0, sum: Vec::new(), states: Vec::new() }
    }

    /// True if the states of all tokens are needed, not of the last one alone.
    pub fn wants_all(&self) -> bool {
        self.pooling != Pooling::Last
    }

    /// Takes in the hidden state of the token at `position`. States come in the order of their tokens; one that was
    /// taken in before is left out, because a text may be evaluated again from its beginning.
    pub fn take(&mut self, position: usize, state: &[f32]) {
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
            Pooling::Cls | Pooling::Last | Pooling::None => self.states.extend_from_slice(state),
        }
    }

    /// The vector, once the state of the last token was taken in; `None` before. It is handed out once.
    ///
    /// # Errors
    /// The model computed a NaN or an infinity.
    pub fn vector(&mut self) -> Result<Option<Vec<f32>>, NotFinite> {
        if self.taken < self.tokens {
            return Ok(None);
        }
        let vector: Vec<f32> = match self.pooling {
            Pooling::Mean => self.sum.iter().map(|x| *x as f32).collect(),
            Pooling::Cls | Pooling::Last | Pooling::None => std::mem::take(&mut self.states),
        };
        match vector.iter().position(|x| !x.is_finite()) {
            Some(index) => Err(NotFinite(index)),
            None => Ok(Some(vector)),
        }
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
        let mut pooled = Pooled::new(pooling, 3);
        for (i, state) in STATES.iter().enumerate() {
            assert_eq!(pooled.vector(), Ok(None));
            pooled.take(i, state);
            // as after a beginning from the start
            pooled.take(0, &STATES[0]);
        }
        pooled.vector().unwrap().unwrap()
    }

    #[test]
    fn a_damaged_model_is_noticed() {
        let mut pooled = Pooled::new(Pooling::Last, 1);
        pooled.take(0, &[1.0, f32::NAN]);
        assert_eq!(pooled.vector(), Err(NotFinite(1)));
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

    #[test]
    fn names() {
        for (pooling, name, number) in Pooling::ALL {
            assert_eq!(pooling.name(), name);
            assert_eq!(Pooling::by_name(name), Some(pooling));
            assert_eq!(Pooling::by_number(number), Some(pooling));
        }
        assert_eq!((Pooling::by_name("rank"), Pooling::by_number(4)), (None, None));
    }
}
