//! Mamba: a state that decays with every position, what the position adds to it, and what it reads of it.
//!
//! The input is projected to channels `x` and gates `z`. The channels go through a convolution and SiLU; `b`, `c` and
//! the time steps, which say how the state is written, read and left behind, are projections of them (Mamba 1, PLaMo 2)
//! or stand beside them and go through the same convolution (Mamba 2). Then `out(norm(silu(z) * (scan(x) + x * d)))`.

use std::ops::Range;

use super::columns;
use crate::arch::Recurrent;
use crate::arch::rules::Recurrence;
use crate::kernels::Floats;
use crate::model::config::Config;
use crate::model::linear::Linear;
use crate::model::load::Loader;
use crate::model::pass::Pass;
use crate::ops;
use crate::ops::activation::Activation;
use crate::ops::convolution::Convolution;
use crate::ops::norm::{Kind, Norm};
use crate::ops::scan::{Scan, Steps};

/// From the normed input of a block to what it adds.
pub struct Mamba {
    kind: Recurrence,
    sizes: Recurrent,
    /// Its part of a sequence's recurrent state: what the convolution remembers, and what is scanned.
    state: Range<usize>,
    remembered: usize,
    project: Linear,
    convolution: Convolution,
    /// What makes time steps, `b` and `c` of the channels, where they do not stand beside them.
    selection: Option<Selection>,
    /// Added to the time steps, where no projection makes them.
    time_bias: Option<Vec<f32>>,
    scan: Scan,
    /// Factors on what the channels add to the scan's outputs, per channel.
    own: Vec<f32>,
    norm: Option<Norm>,
    out: Linear,
}

struct Selection {
    /// Of the channels.
    project: Linear,
    /// Of the time steps' vector, `b` and `c`.
    norms: Option<[Norm; 3]>,
    /// To the time steps, with a bias.
    time: Linear,
}

/// What the convolution gives, parted.
struct Parts {
    x: Vec<f32>,
    dt: Vec<f32>,
    b: Vec<f32>,
    c: Vec<f32>,
}

impl Mamba {
    /// That of block number `layer`; `None` where a tensor is missing, which is noted.
    pub fn load(loader: &mut Loader<'_>, c: &Config, kind: Recurrence, layer: usize) -> Option<Mamba> {
        let sizes = c.mixing.sizes;
        let project = loader.linear(layer, "ssm_in");
        let mut vector = |name: &str| loader.vector(Some(layer), name);
        let weights = vector("ssm_conv1d.weight");
        let bias = vector("ssm_conv1d.bias");
        let (rates, own) = (vector("ssm_a"), vector("ssm_d"));
        let (selection, time_bias) = match kind {
            Recurrence::Mamba2 => (None, Some(vector("ssm_dt.bias")?)),
            _ => (Some(Selection::load(loader, c, layer)), None),
        };
        let norm = loader.norm(Some(layer), "ssm_norm");
        let out = loader.linear(layer, "ssm_out");
        let (rates, own) = (rates?, own?);
        if rates.is_empty() || own.is_empty() {
            return None;
        }
        let scan = match kind {
            Recurrence::Mamba => Scan::of_channels(&rates, sizes.state),
            _ => Scan::of_heads(rates, sizes.inner, sizes.state, sizes.groups.max(1)),
        };
        let of_head = sizes.inner / own.len();
        let from = c.mixing.state_of(layer);
        let [remembered, scanned] = c.mixing.numbers;
        Some(Mamba {
            kind,
            sizes,
            state: from..from + remembered + scanned,
            remembered,
            project: project?,
            convolution: Convolution::new(&weights?, sizes.kernel, bias),
            selection: match selection {
                Some(selection) => Some(selection?),
                None => None,
            },
            time_bias,
            scan,
            own: own.iter().flat_map(|&d| vec![d; of_head]).collect(),
            norm,
            out: out?,
        })
    }

    /// What it gives for every row of `x`, `[tokens][n_embd]`.
    pub fn apply(&self, x: &[f32], pass: &mut Pass<'_, '_>) -> Floats {
        let inner = self.sizes.inner;
        let all = self.project.apply(&pass.activations(x));
        let [channels, mut gates, times] = self.part(&all);
        let width = channels.len() / (gates.len() / inner);
        let mut convolved = vec![0f32; channels.len()];
        pass.recur(self.state.clone(), |rows, state| {
            let rows = rows.start * width..rows.end * width;
            let state = &mut state[..self.remembered];
            let y = self.convolution.run(&channels[rows.clone()], state);
            convolved[rows].copy_from_slice(&y);
        });
        Activation::Silu.apply(pass.isa(), &mut convolved);
        let mut parts = self.select(convolved, times, pass);
        if let Some(bias) = &self.time_bias {
            ops::add_rows(&mut parts.dt, bias);
        }
        let mut y = vec![0f32; gates.len()];
        pass.recur(self.state.clone(), |rows, state| {
            let of = |v: &'_ [f32]| {
                let width = v.len() / (parts.x.len() / inner);
                rows.start * width..rows.end * width
            };
            let steps = Steps {
                x: &parts.x[of(&parts.x)],
                dt: &parts.dt[of(&parts.dt)],
                b: &parts.b[of(&parts.b)],
                c: &parts.c[of(&parts.c)],
            };
            let scanned = self.scan.run(&steps, &mut state[self.remembered..]);
            y[of(&parts.x)].copy_from_slice(&scanned);
        });
        for (y, x) in y.chunks_exact_mut(inner).zip(parts.x.chunks_exact(inner)) {
            for ((y, x), d) in y.iter_mut().zip(x).zip(&self.own) {
                *y += x * d;
            }
        }
        Activation::Silu.gate(pass.isa(), &mut gates, &y);
        if let Some(norm) = &self.norm {
            norm.apply_in_place(pass.isa(), &mut gates);
        }
        self.out.apply(&pass.rows(&gates))
    }

    /// What is convolved, the gates and, of Mamba 2, the time steps.
    fn part(&self, all: &[f32]) -> [Vec<f32>; 3] {
        let inner = self.sizes.inner;
        match self.kind {
            Recurrence::Mamba2 => {
                let [channels, heads] = [self.sizes.channels(), self.sizes.heads];
                let [gates, x, times] = columns(all, [inner, channels, heads]);
                [x, gates, times]
            }
            // every head has its gates before its channels
            Recurrence::Plamo => {
                let head = inner / self.sizes.heads;
                let [gates, x, none] = columns(all, [head, head, 0]);
                [x, gates, none]
            }
            _ => {
                let [x, gates, none] = columns(all, [inner, inner, 0]);
                [x, gates, none]
            }
        }
    }

    /// Channels, time steps and what writes and reads the state, of what was convolved.
    fn select(&self, convolved: Vec<f32>, times: Vec<f32>, pass: &Pass<'_, '_>) -> Parts {
        let Recurrent { state, time, groups, inner, .. } = self.sizes;
        let Some(selection) = &self.selection else {
            let [x, b, c] = columns(&convolved, [inner, groups * state, groups * state]);
            return Parts { x, dt: times, b, c };
        };
        let all = selection.project.apply(&pass.rows(&convolved));
        let mut parts = match self.kind {
            Recurrence::Plamo => {
                let [b, c, dt] = columns(&all, [state, state, time]);
                [dt, b, c]
            }
            _ => columns(&all, [time, state, state]),
        };
        if let Some(norms) = &selection.norms {
            for (part, norm) in parts.iter_mut().zip(norms) {
                norm.apply_in_place(pass.isa(), part);
            }
        }
        let [dt, b, c] = parts;
        Parts { x: convolved, dt: selection.time.apply(&pass.rows(&dt)).to_vec(), b, c }
    }
}

impl Selection {
    fn load(loader: &mut Loader<'_>, c: &Config, layer: usize) -> Option<Selection> {
        let project = loader.linear(layer, "ssm_x");
        let [time, b, c_norm] = ["ssm_dt_norm", "ssm_b_norm", "ssm_c_norm"].map(|name| loader.norm(Some(layer), name));
        let norms = match (time, b, c_norm) {
            (Some(time), Some(b), Some(c)) => Some([time, b, c]),
            _ if c.mixing.plain_norms => {
                let Recurrent { time, state, .. } = c.mixing.sizes;
                Some([time, state, state].map(|row| Norm {
                    kind: Kind::Rms,
                    eps: c.eps,
                    row,
                    gains: vec![1.0; row],
                    bias: None,
                }))
            }
            _ => None,
        };
        let steps = loader.linear(layer, "ssm_dt");
        Some(Selection { project: project?, norms, time: steps? })
    }
}
