//! Selective scans: the recurrence of Mamba.
//!
//! Per channel, with a time step `d = softplus(dt)` and a state of some numbers, for every position in order
//! (ggml `ggml_compute_forward_ssm_scan_f32`, everything in `f32`, every operation rounded):
//! `s_i = (s_i * e^(d a_i)) + (b_i * (x d))` and `y = sum over i of s_i c_i`, in order, beginning with 0.
//! `b` and `c` are those of the position and the channel's group. `softplus(x)` is `ln(1 + e^x)`, and x above 20.
//!
//! Lanes are channels, so that every channel keeps its own chain; blocks of them are tasks.

use super::activation::softplus;
use crate::kernels::Floats;
use crate::math::expf;
use crate::pool;

/// Channels of a block where every one has rates of its own.
const LANES: usize = 16;

/// The scan of one layer.
#[derive(Clone, Debug)]
pub struct Scan {
    channels: usize,
    /// Numbers of a channel's state.
    state: usize,
    /// Channels of a block.
    pub(crate) lanes: usize,
    /// Blocks that share what writes the state and reads it.
    blocks_of_group: usize,
    pub(crate) rates: Rates,
}

/// Rates of decay: the `a` of the formula.
#[derive(Clone, Debug)]
pub(crate) enum Rates {
    /// One for each block, which has one time step.
    Block(Vec<f32>),
    /// Every state number of every channel: blocks of `[state][lanes]`; every channel has a time step.
    State(Vec<f32>),
}

/// Inputs of a scan: the next positions of one sequence.
#[derive(Clone, Copy)]
pub struct Steps<'a> {
    /// `[tokens][channels]`
    pub x: &'a [f32],
    /// Time steps before softplus, `[tokens][heads]`, or of every channel.
    pub dt: &'a [f32],
    /// Input vectors that write the state, `[tokens][groups][state]`.
    pub b: &'a [f32],
    /// Output vectors that read the state, of the same shape.
    pub c: &'a [f32],
}

/// Channels of one task.
struct Block<'a> {
    /// `[state][lanes]`
    state: &'a mut [f32],
    /// `[tokens][lanes]`
    y: &'a mut [f32],
}

impl Scan {
    /// A scan of heads whose channels decay together: one rate each. The heads divide the channels, the groups the
    /// heads.
    pub fn of_heads(rates: Vec<f32>, channels: usize, state: usize, groups: usize) -> Scan {
        Scan {
            channels,
            state,
            lanes: channels / rates.len(),
            blocks_of_group: rates.len() / groups,
            rates: Rates::Block(rates),
        }
    }

    /// A scan of channels with rates of their own, `[channels][state]`.
    pub fn of_channels(rates: &[f32], state: usize) -> Scan {
        let channels = rates.len() / state;
        let blocks = rates.chunks(LANES * state);
        let lanes =
            blocks.clone().flat_map(|block| (0..state).flat_map(move |i| block.iter().skip(i).step_by(state).copied()));
        Scan { channels, state, lanes: LANES, blocks_of_group: blocks.len(), rates: Rates::State(lanes.collect()) }
    }

    /// Groups of blocks that share what writes the state and reads it.
    pub(crate) fn groups(&self) -> usize {
        self.channels.div_ceil(self.lanes) / self.blocks_of_group
    }

    /// The outputs, `[tokens][channels]`. `states`, blocks of `[state][lanes]`, go on to the last of the positions.
    pub fn run(&self, steps: &Steps<'_>, states: &mut [f32]) -> Floats {
        let tokens = steps.x.len() / self.channels;
        let mut y = Floats::scratch(steps.x.len());
        let outputs = y.chunks_mut(tokens * self.lanes);
        let states = states.chunks_mut(self.state * self.lanes);
        let mut blocks: Vec<Block<'_>> = states.zip(outputs).map(|(state, y)| Block { state, y }).collect();
        pool::chunks_mut(&mut blocks, 1, |no, block| {
            block.iter_mut().for_each(|block| self.block(no, steps, block));
        });
        let mut out = Floats::scratch(y.len());
        for (no, block) in y.chunks(tokens * self.lanes).enumerate() {
            let lanes = block.len() / tokens;
            let rows = out.chunks_exact_mut(self.channels);
            for (row, y) in rows.zip(block.chunks_exact(lanes)) {
                row[no * self.lanes..][..lanes].copy_from_slice(y);
            }
        }
        out
    }

    fn block(&self, no: usize, steps: &Steps<'_>, block: &mut Block<'_>) {
        let lanes = block.state.len() / self.state;
        let groups = self.groups();
        let group = no / self.blocks_of_group;
        let (mut step, mut decay) = (vec![0f32; lanes], vec![0f32; lanes]);
        for (t, y) in block.y.chunks_exact_mut(lanes).enumerate() {
            let x = &steps.x[t * self.channels + no * self.lanes..][..lanes];
            let shared = |v: &[f32]| -> Vec<f32> { v[(t * groups + group) * self.state..][..self.state].to_vec() };
            let (b, c) = (shared(steps.b), shared(steps.c));
            match &self.rates {
                Rates::Block(rates) => {
                    let d = softplus(steps.dt[t * rates.len() + no]);
                    step.fill(d);
                    decay.fill(expf(d * rates[no]));
                }
                Rates::State(_) => {
                    let dt = &steps.dt[t * self.channels + no * self.lanes..];
                    let dt = step.iter_mut().zip(dt);
                    dt.for_each(|(step, &dt)| *step = softplus(dt));
                }
            }
            let written: Vec<f32> = x.iter().zip(&step).map(|(x, d)| x * d).collect();
            y.fill(0.0);
            for (i, state) in block.state.chunks_exact_mut(lanes).enumerate() {
                if let Rates::State(rates) = &self.rates {
                    let rates = &rates[no * self.lanes * self.state + i * lanes..];
                    let factors = decay.iter_mut().zip(&step).zip(rates);
                    factors.for_each(|((decay, d), a)| *decay = expf(d * a));
                }
                let all = state.iter_mut().zip(&decay).zip(&written).zip(y.iter_mut());
                for (((state, decay), written), y) in all {
                    *state = *state * decay + b[i] * written;
                    *y += *state * c[i];
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
