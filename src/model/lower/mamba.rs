//! Mamba: a state that decays with every position, what the position adds to it, and what it reads of it.
//!
//! The input is projected to channels `x` and gates `z`. The channels go through a convolution and SiLU; `b`, `c` and
//! the time steps, which say how the state is written, read and left behind, are projections of them (Mamba 1, PLaMo 2)
//! or stand beside them and go through the same convolution (Mamba 2). Then `out(norm(silu(z) * (scan(x) + x * d)))`.

use super::lowering::Lowering;
use crate::arch::Recurrent;
use crate::arch::rules::Recurrence;
use crate::model::load::Linear;
use crate::ops::activation::Activation;
use crate::ops::convolution::Convolution;
use crate::ops::norm::{Kind, Norm};
use crate::ops::scan::Scan;
use crate::program::{Op, Value};

/// The tensors that make time steps, `b` and `c` of the channels.
struct Selection {
    /// Projection of the channels.
    project: Linear,
    /// Norms of the time steps' vector, `b` and `c`.
    norms: Option<[Norm; 3]>,
    /// To the time steps, with a bias.
    time: Linear,
}

impl Lowering<'_, '_> {
    /// A Mamba layer: from the normed input of block number `layer` to what it adds; `None` where a tensor is missing,
    /// which is noted.
    pub(super) fn mamba(&mut self, x: Value, kind: Recurrence, layer: usize) -> Option<Value> {
        let c = self.c;
        let sizes = c.mixing.sizes;
        let Recurrent { inner, state, groups, .. } = sizes;
        let project = self.loader.linear(layer, "ssm_in");
        let mut vector = |name: &str| self.loader.vector(Some(layer), name);
        let weights = vector("ssm_conv1d.weight");
        let bias = vector("ssm_conv1d.bias");
        let (rates, own) = (vector("ssm_a"), vector("ssm_d"));
        let (selection, time_bias) = match kind {
            Recurrence::Mamba2 => (None, Some(vector("ssm_dt.bias")?)),
            _ => (Some(self.selection(layer)), None),
        };
        let norm = self.loader.norm(Some(layer), "ssm_norm");
        let out = self.loader.linear(layer, "ssm_out");
        let (rates, own) = (rates?, own?);
        if rates.is_empty() || own.is_empty() {
            return None;
        }
        let scan = match kind {
            Recurrence::Mamba => Scan::of_channels(&rates, state),
            _ => Scan::of_heads(rates, inner, state, groups.max(1)),
        };
        let of_head = inner / own.len();
        let own = own.iter().flat_map(|&d| vec![d; of_head]).collect();
        let from = c.mixing.state_of(layer);
        let [remembered, scanned] = c.mixing.numbers;
        let convolution = Convolution::new(&weights?, sizes.kernel, bias);
        let (project, out) = (project?, out?);

        let all = self.product(x, project);
        let (channels, gates, times) = match kind {
            Recurrence::Mamba2 => {
                let widths = [inner, sizes.channels(), sizes.heads];
                let [gates, channels, times] = self.b.split(["z", "xbc", "dt"], all, widths);
                (channels, gates, Some(times))
            }
            // every head has its gates before its channels
            Recurrence::Plamo => {
                let [gates, channels] = self.b.split(["z", "x"], all, [inner / sizes.heads; 2]);
                (channels, gates, None)
            }
            _ => {
                let [channels, gates] = self.b.split(["x", "z"], all, [inner; 2]);
                (channels, gates, None)
            }
        };
        let op = Op::Convolve(convolution, from..from + remembered);
        let convolved = self.b.recurrent("conv", op, &[channels], 0);
        let convolved = self.b.activate("conv_silu", Activation::Silu, convolved);
        let [x, mut dt, b, c] = match (selection, times) {
            (Some(selection), _) => self.select(selection?, kind, sizes, convolved),
            (None, times) => {
                let widths = [inner, groups * state, groups * state];
                let [x, b, c] = self.b.split(["x", "b", "c"], convolved, widths);
                [x, times?, b, c]
            }
        };
        if let Some(bias) = time_bias {
            dt = self.b.add_row("dt_biased", dt, bias);
        }
        let from = from + remembered;
        let y = self.b.recurrent("scan", Op::Scan(Box::new(scan), from..from + scanned), &[x, dt, b, c], 0);
        let y = self.b.multiply_add("scan_and_own", y, x, own);
        let y = self.b.gate("ssm_gated", Activation::Silu, gates, y);
        let y = self.b.maybe_norm("ssm_norm", y, norm);
        Some(self.product(y, out))
    }

    /// Channels, time steps and what writes and reads the state, of what was convolved.
    fn select(&mut self, selection: Selection, kind: Recurrence, sizes: Recurrent, convolved: Value) -> [Value; 4] {
        let Recurrent { state, time, .. } = sizes;
        let all = self.product(convolved, selection.project);
        let mut parts = match kind {
            Recurrence::Plamo => {
                let [b, c, dt] = self.b.split(["b", "c", "dt"], all, [state, state, time]);
                [dt, b, c]
            }
            _ => self.b.split(["dt", "b", "c"], all, [time, state, state]),
        };
        if let Some(norms) = selection.norms {
            let names = ["dt_norm", "b_norm", "c_norm"];
            for ((part, norm), name) in parts.iter_mut().zip(norms).zip(names) {
                *part = self.b.norm(name, *part, norm);
            }
        }
        let [dt, b, c] = parts;
        [convolved, self.product(dt, selection.time), b, c]
    }

    fn selection(&mut self, layer: usize) -> Option<Selection> {
        let c = self.c;
        let project = self.loader.linear(layer, "ssm_x");
        let [time, b, c_norm] =
            ["ssm_dt_norm", "ssm_b_norm", "ssm_c_norm"].map(|name| self.loader.norm(Some(layer), name));
        let norms = match (time, b, c_norm) {
            (Some(time), Some(b), Some(c)) => Some([time, b, c]),
            _ if c.mixing.plain_norms => {
                let Recurrent { time, state, .. } = c.mixing.sizes;
                let norm = |row| Norm { kind: Kind::Rms, eps: c.eps, row, gains: vec![1.0; row], bias: None };
                Some([time, state, state].map(norm))
            }
            _ => None,
        };
        let time = self.loader.linear(layer, "ssm_dt");
        Some(Selection { project: project?, norms, time: time? })
    }
}
