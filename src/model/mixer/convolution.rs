//! LFM 2's gated convolution: `out(c * convolution(b * x))`, where b, c and x are projections of the block's input.

use std::ops::Range;

use crate::kernels::Floats;
use crate::model::config::Config;
use crate::model::linear::Linear;
use crate::model::load::Loader;
use crate::model::pass::Pass;
use crate::ops;
use crate::ops::convolution::Convolution;

/// From the normed input of a block to what it adds.
pub struct GatedConvolution {
    n_embd: usize,
    /// Its part of a sequence's recurrent state.
    state: Range<usize>,
    /// To both gates and what is convolved.
    project: Linear,
    convolution: Convolution,
    out: Linear,
}

impl GatedConvolution {
    /// That of block number `layer`; `None` where a tensor is missing, which is noted.
    pub fn load(loader: &mut Loader<'_>, c: &Config, layer: usize) -> Option<GatedConvolution> {
        let project = loader.linear(layer, "shortconv.in_proj");
        let weights = loader.vector(Some(layer), "shortconv.conv.weight");
        let out = loader.linear(layer, "shortconv.out_proj");
        let from = c.mixing.state_of(layer);
        let [remembered, _] = c.mixing.numbers;
        Some(GatedConvolution {
            n_embd: c.n_embd,
            state: from..from + remembered,
            project: project?,
            convolution: Convolution::new(&weights?, c.mixing.sizes.kernel, None),
            out: out?,
        })
    }

    /// What it gives for every row of `x`, `[tokens][n_embd]`.
    pub fn apply(&self, x: &[f32], pass: &mut Pass<'_, '_>) -> Floats {
        let n = self.n_embd;
        let all = self.project.apply(&pass.activations(x));
        let part = |i: usize| -> Vec<f32> {
            let rows = all.chunks_exact(3 * n);
            rows.flat_map(|row| &row[i * n..][..n]).copied().collect()
        };
        let (mut gated, mut y) = (part(0), part(1));
        ops::multiply(&mut gated, &part(2));
        pass.recur(self.state.clone(), |rows, state| {
            let rows = rows.start * n..rows.end * n;
            let convolved = self.convolution.run(&gated[rows.clone()], state);
            ops::multiply(&mut y[rows], &convolved);
        });
        self.out.apply(&pass.activations(&y))
    }
}
