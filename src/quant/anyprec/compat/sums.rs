//! Sums over the first weights of a sorted group, as the reference keeps them: in f64, of `s`, `s x` and `s x²`.

/// The sums; entry `i` is of the first `i` weights.
#[derive(Debug, Default)]
pub struct Sums {
    mass: Vec<f64>,
    moment: Vec<f64>,
    energy: Vec<f64>,
}

impl Sums {
    /// Sums up sorted weights `x` and their sensitivities `s`; when those are all 0, each counts 1.
    pub fn load(&mut self, x: &[f32], s: &[f32]) {
        let weightless = s.iter().all(|&s| s == 0.0);
        let (mut mass, mut moment, mut energy) = (0.0, 0.0, 0.0);
        self.clear();
        for (&x, &s) in x.iter().zip(s) {
            let x = f64::from(x);
            if weightless {
                mass += 1.0;
                moment += x;
                energy += x * x;
            } else {
                let s = f64::from(s);
                let xs = x * s;
                mass += s;
                moment += xs;
                energy += xs * x;
            }
            self.mass.push(mass);
            self.moment.push(moment);
            self.energy.push(energy);
        }
    }

    /// The sums of the same weights with every sensitivity 1, energy left out.
    pub fn load_plain(&mut self, x: &[f32]) {
        self.clear();
        let mut moment = 0.0;
        for (i, &x) in x.iter().enumerate() {
            moment += f64::from(x);
            self.mass.push((i + 1) as f64);
            self.moment.push(moment);
        }
    }

    fn clear(&mut self) {
        for sums in [&mut self.mass, &mut self.moment, &mut self.energy] {
            sums.clear();
            sums.push(0.0);
        }
    }

    /// Number of weights.
    pub fn len(&self) -> usize {
        self.mass.len() - 1
    }

    /// Mass of the weights `from..to`.
    pub fn mass(&self, from: usize, to: usize) -> f64 {
        self.mass[to] - self.mass[from]
    }

    /// Moment of the weights `from..to`.
    pub fn moment(&self, from: usize, to: usize) -> f64 {
        self.moment[to] - self.moment[from]
    }

    /// Energy of the weights `from..to`.
    pub fn energy(&self, from: usize, to: usize) -> f64 {
        self.energy[to] - self.energy[from]
    }

    /// The mass of the first `1..=len` weights.
    pub fn masses(&self) -> &[f64] {
        &self.mass[1..]
    }
}
