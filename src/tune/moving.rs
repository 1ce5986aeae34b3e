//! Floats that move against their gradients.

/// A matrix, or those of all experts, whose codes stay and whose floats move.
pub trait Movable: Send + Sync {
    /// Number of floats.
    fn len(&self) -> usize;

    /// The data of the tensor with the floats, as it is now.
    fn bytes(&self) -> &[u8];

    /// Decodes the weights as they are now, `[rows][columns]`. Runs in the current rayon pool.
    fn decode(&self, weights: &mut [f32]);

    /// Moves all floats by the gradients at the weights, `[rows][columns]`, and decodes these anew. Runs in the current
    /// rayon pool.
    fn advance(&mut self, gradients: &[f32], step: Step, weights: &mut [f32]);
}

/// How fast the means of gradients and of their squares forget.
const FORGET: [f64; 2] = [0.9, 0.99];

/// A step of Adam (Kingma and Ba 2015).
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// How far a float goes where its gradients agree, in its units.
    rate: f64,
    /// Factors that make means of few gradients unbiased.
    unbiased: [f64; 2],
}

impl Step {
    /// Step number `number`, the first being 0.
    pub fn new(number: usize, rate: f64) -> Step {
        // Powers are multiplied out, so that no machine's library has a say.
        let power = |base: f64| (0..=number.min(4000)).fold(1.0, |power, _| power * base);
        Step { rate, unbiased: FORGET.map(|forget| 1.0 / (1.0 - power(forget))) }
    }
}

/// A float on its way: its first value, the unit of its changes, how many of them it went, and means of its gradients by
/// that unit and of their squares.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moving {
    first: f32,
    unit: f32,
    change: f32,
    mean: f32,
    square: f32,
}

impl Moving {
    /// A float of this value that moves in shares of `unit`.
    pub fn new(first: f32, unit: f32) -> Moving {
        Moving { first, unit, ..Moving::default() }
    }

    /// The new value after a step, from the gradient at the float.
    pub fn advance(&mut self, gradient: f64, step: Step) -> f32 {
        let unit = f64::from(self.unit);
        let gradient = gradient * unit;
        let towards = |mean: f32, new: f64, forget: f64| forget * f64::from(mean) + (1.0 - forget) * new;
        let mean = towards(self.mean, gradient, FORGET[0]);
        let square = towards(self.square, gradient * gradient, FORGET[1]);
        (self.mean, self.square) = (mean as f32, square as f32);
        let length = (square * step.unbiased[1]).sqrt();
        if length > 0.0 {
            self.change -= (step.rate * mean * step.unbiased[0] / length) as f32;
        }
        (f64::from(self.first) + unit * f64::from(self.change)) as f32
    }
}
