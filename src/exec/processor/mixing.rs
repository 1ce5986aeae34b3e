//! Operations over the positions of sequences: attention and recurrences.

use std::ops::Range;

use super::pass::Pass;
use crate::kernels::Floats;
use crate::kv;
use crate::ops::attention::{Attention, BothWays};
use crate::program::{Attend, Value};

impl Pass<'_, '_, '_> {
    /// Attention; keys and values go into the pages of the sequences.
    pub(super) fn attend(&mut self, at: usize, attend: &Attend) -> Floats {
        let isa = self.isa();
        let inputs = &self.program.operations()[at].inputs;
        let [q, k, v] = [0, 1, 2].map(|i| self.values.get(inputs[i]));
        if attend.both_ways {
            let sequences: Vec<_> = self.parts.iter().map(|part| part.rows.clone()).collect();
            let both_ways = BothWays {
                heads: attend.heads,
                scale: attend.scale,
                reach: attend.window.map(|window| window.size / 2),
                relative: attend.rules.as_ref().and_then(|rules| rules.relative.as_ref()),
                slopes: attend.rules.as_ref().map_or(&[], |rules| &rules.slopes),
            };
            return both_ways.run(&sequences, [q, k, v]);
        }
        if !attend.stored {
            kv::store(isa, attend.cache, self.parts, k, v);
        }
        Attention {
            parts: self.parts,
            layer: attend.cache,
            n_head: attend.heads.queries,
            scale: attend.scale,
            window: attend.window,
            reach: attend.reach,
            rules: attend.rules.as_ref(),
            isa,
        }
        .run(q)
    }

    /// The inputs of operation number `at`.
    pub(super) fn inputs<const N: usize>(&self, at: usize) -> [Value; N] {
        let inputs = &self.program.operations()[at].inputs;
        std::array::from_fn(|i| inputs[i])
    }

    /// Calls `f` for every sequence of the pass with its rows of all inputs of operation number `at`, and with the
    /// numbers `state` of its recurrent state, which it takes to the last of them; its results are the outputs.
    pub(super) fn recur<const N: usize>(
        &mut self,
        at: usize,
        state: &Range<usize>,
        mut f: impl FnMut([&[f32]; N], &mut [f32]) -> Floats,
    ) {
        let all = self.inputs::<N>(at).map(|x| self.values.get(x));
        let rows = self.positions.all.len();
        let columns = self.program.shape(self.program.operations()[at].outputs[0]).columns;
        let mut y = Floats::scratch(rows * columns);
        let of = |x: &[f32], part: &Range<usize>| {
            let width = x.len() / rows.max(1);
            part.start * width..part.end * width
        };
        for part in self.parts.iter_mut().filter(|p| !p.rows.is_empty()) {
            let inputs = all.map(|x| &x[of(x, &part.rows)]);
            let given = f(inputs, &mut part.seq.state_mut()[state.clone()]);
            y[part.rows.start * columns..part.rows.end * columns].copy_from_slice(&given);
        }
        self.one(at, y);
    }
}
