//! Every operation, dispatched to its definition in [`crate::ops`].

use std::ops::Range;
use std::time::Instant;

use super::choice::Choice;
use super::pass::Pass;
use crate::kernels::Floats;
use crate::kv;
use crate::ops;
use crate::ops::matmul::Matrix;
use crate::program::Op;

impl Pass<'_, '_, '_> {
    /// Carries out some operations.
    pub fn run(&mut self, operations: Range<usize>) {
        for at in operations {
            let Some(profile) = &self.options.profile else {
                self.step(at);
                continue;
            };
            let start = Instant::now();
            self.step(at);
            profile.add(at, start.elapsed());
        }
    }

    fn step(&mut self, at: usize) {
        let (program, isa) = (self.program, self.isa());
        let operation = &program.operations()[at];
        match &operation.op {
            Op::Embed(table) => {
                let rows = self.tokens.iter().map(|&id| id as usize);
                let y = decoded(self.processor.matrix(*table), rows);
                self.one(at, y);
            }
            Op::EmbedSwitched(switch, table) => {
                let y = decoded(self.processor.matrix(*table), switch.embedded(self.tokens));
                self.one(at, y);
            }
            Op::SwitchSignals(switch) => self.finish(at, switch.signals(self.tokens)),
            Op::ChooseSwitched(switch) => {
                let chosen = switch.chosen(self.input(at, 0));
                self.values.set_choice(operation.outputs[0], Choice::of_one(&chosen, switch.adapters + 1));
                self.release(at);
            }
            Op::EmbedPositions(table) => {
                let y = decoded(self.processor.matrix(*table), self.positions.all.iter().copied());
                self.one(at, y);
            }
            Op::EmbedNgrams(rule, table, state) => {
                let mut rows = Vec::new();
                for part in self.parts.iter_mut() {
                    let state = &mut part.seq.state_mut()[state.clone()];
                    rows.append(&mut rule.rows(&self.tokens[part.rows.clone()], state));
                }
                let y = decoded(self.processor.matrix(*table), rows.into_iter());
                self.one(at, y);
            }
            Op::Hidden => self.one(at, ops::rows::copy(&self.options.hidden)),
            Op::AdaptEmbedding(adapter) => {
                let mut x = self.own(at);
                let rows = self.tokens.iter().map(|&id| id as usize);
                self.add_from_low(adapter, &mut x, || decoded(self.processor.matrix(adapter.a), rows));
                self.one(at, x);
            }
            Op::Fill(row) => {
                let rows = self.input(at, 0).len() / program.shape(operation.inputs[0]).columns;
                self.one(at, ops::rows::repeat(row, row.len(), rows));
            }
            Op::Norm(norm) => {
                let y = match program.plan().ends(operation.inputs[0], at) {
                    true => {
                        let mut x = self.own(at);
                        norm.apply_in_place(isa, &mut x);
                        x
                    }
                    false => norm.apply(isa, self.input(at, 0)),
                };
                self.one(at, y);
            }
            Op::AddNorm(norm) => {
                let mut x = self.own(at);
                let y = norm.apply_to_sum(isa, &mut x, self.input(at, 1));
                self.finish(at, [x, y]);
            }
            Op::Add => self.in_place(at, |x, pass| ops::add(x, pass.input(at, 1))),
            Op::Multiply => self.in_place(at, |x, pass| ops::multiply(x, pass.input(at, 1))),
            Op::RootedDots(width) => {
                let y = ops::rows::rooted_dots(self.input(at, 0), self.input(at, 1), *width);
                self.one(at, y);
            }
            Op::AsLong(width) => self.in_place(at, |x, pass| ops::rows::as_long(x, pass.input(at, 1), *width)),
            Op::AddRow(row) => self.in_place(at, |x, _| ops::add_rows(x, row)),
            Op::DivideRow(row) => self.in_place(at, |x, _| ops::divide_rows(x, row)),
            Op::MultiplyAdd(row) => self.in_place(at, |x, pass| ops::rows::multiply_add(x, pass.input(at, 1), row)),
            Op::Scale(factor) => self.in_place(at, |x, _| ops::scale(x, *factor)),
            Op::ScaleByPosition(factor) => self.in_place(at, |x, pass| pass.positions.scale(x, factor)),
            Op::Clamp(bound) => self.in_place(at, |x, _| ops::clamp(x, *bound)),
            Op::SoftCap(cap) => self.in_place(at, |x, _| ops::soft_cap(x, *cap)),
            Op::Cutoff(factor) => {
                let columns = program.shape(operation.inputs[0]).columns;
                self.in_place(at, |x, _| ops::rows::cutoff(x, columns, *factor));
            }
            Op::Sigmoid => self.in_place(at, |x, _| ops::map(x, ops::activation::sigmoid)),
            Op::SoftMax => {
                let columns = program.shape(operation.inputs[0]).columns.max(1);
                self.in_place(at, |x, _| x.chunks_exact_mut(columns).for_each(ops::soft_max::soft_max));
            }
            Op::Decay(decay) => self.in_place(at, |x, _| decay.apply(x)),
            Op::Activate(f) => self.in_place(at, |x, _| f.apply(isa, x)),
            Op::Gate(f) => self.in_place(at, |x, pass| f.gate(isa, x, pass.input(at, 1))),
            Op::HeadGate(f) => self.in_place(at, |x, pass| f.apply(x, pass.input(at, 1))),
            Op::ScaleByGate { plain } => {
                self.in_place(at, |x, pass| ops::activation::scale_by_gate(x, pass.input(at, 1), *plain));
            }
            Op::Products(products) => {
                let x = operation.inputs[0];
                // as many at once as are written down, without a list in memory
                match &products[..] {
                    [a] => self.finish(at, self.products(x, [a])),
                    [a, b] => self.finish(at, self.products(x, [a, b])),
                    [a, b, c] => self.finish(at, self.products(x, [a, b, c])),
                    all => self.finish(at, all.iter().flat_map(|one| self.products(x, [one])).collect::<Vec<_>>()),
                }
            }
            Op::GatedProducts(products, activation) => {
                let y = self.gated_products(operation.inputs[0], products, *activation);
                self.one(at, y);
            }
            Op::ProductsByHead(stack) => {
                let y = self.products_by_head(self.input(at, 0), stack);
                self.one(at, y);
            }
            Op::Split(widths) => {
                let parts = ops::rows::split(self.input(at, 0), widths);
                self.finish(at, parts);
            }
            Op::Join(widths) => {
                let parts: Vec<&[f32]> = (0..widths.len()).map(|i| self.input(at, i)).collect();
                let y = ops::rows::join(&parts, widths);
                self.one(at, y);
            }
            Op::Repeat { width, times } => {
                let y = ops::rows::repeat(self.input(at, 0), *width, *times);
                self.one(at, y);
            }
            Op::Hadamard(rotation) => self.in_place(at, |x, _| rotation.apply(isa, x)),
            Op::Rotate(kind, head) => self.in_place(at, |x, pass| pass.positions.rotate(isa, x, *kind, *head)),
            Op::Turn(kind, turn) => self.in_place(at, |x, pass| pass.positions.turn(isa, x, *kind, *turn)),
            Op::Attend(attend) => {
                let y = self.attend(at, attend);
                self.one(at, y);
            }
            Op::Store(cache) => {
                let [keys, values] = self.inputs(at).map(|x| self.values.get(x));
                kv::store(isa, *cache, self.parts, keys, values);
                self.release(at);
            }
            Op::AttendCompressed(rule) => {
                let [q, keys, compressed] = self.inputs(at).map(|x| self.values.get(x));
                kv::store(isa, rule.cache, self.parts, keys, compressed);
                let y = rule.run(isa, self.parts, q);
                self.one(at, y);
            }
            Op::AttendSource(rule) => {
                let y = rule.run(self.parts, self.input(at, 0));
                self.one(at, y);
            }
            Op::Convolve(rule, state) => self.recur(at, state, |[x], state| rule.run(x, state)),
            Op::Delta(rule, state) => {
                self.recur(at, state, |[q, k, v, g, b], state| rule.run(&ops::delta::Steps { q, k, v, g, b }, state));
            }
            Op::Scan(rule, state) => {
                self.recur(at, state, |[x, dt, b, c], state| rule.run(&ops::scan::Steps { x, dt, b, c }, state));
            }
            Op::Lightning(rule, state) => self.recur(at, state, |qkv, state| rule.run(qkv, state)),
            Op::Wkv6(rule, state) => self.recur(at, state, |inputs, state| rule.run(inputs, state)),
            Op::GatedLinear(rule, state) => self.recur(at, state, |inputs, state| rule.run(inputs, state)),
            Op::Wkv7(rule, state) => self.recur(at, state, |inputs, state| rule.run(inputs, state)),
            Op::Shift(state) => self.recur(at, state, |[x], state| ops::rows::shift(x, state)),
            Op::Compress(rule, state) => self.recur(at, state, |inputs, state| rule.run(inputs, state)),
            Op::Choose(choosing) => {
                let mut scores = self.own(at);
                self.values.set_choice(operation.outputs[0], Choice::of(choosing, self.tokens, &mut scores));
                self.release(at);
            }
            Op::Dispatch { weighed } => {
                let columns = program.shape(operation.inputs[0]).columns;
                let choice = self.values.choice(operation.inputs[1]);
                let y = choice.dispatch(self.input(at, 0), columns, *weighed);
                self.one(at, y);
            }
            Op::ProductsOfExperts(stacks) => {
                let (x, choice) = (operation.inputs[0], operation.inputs[1]);
                match &stacks[..] {
                    [a, b] => self.finish(at, self.products_of_experts(x, choice, [a, b])),
                    all => {
                        let ys = all.iter().flat_map(|one| self.products_of_experts(x, choice, [one]));
                        self.finish(at, ys.collect::<Vec<_>>());
                    }
                }
            }
            Op::Combine { weighed } => {
                let columns = program.shape(operation.outputs[0]).columns;
                let y = self.values.choice(operation.inputs[1]).combine(self.input(at, 0), columns, *weighed);
                self.one(at, y);
            }
            Op::Blend(scores) => {
                let streams: Vec<&[f32]> = operation.inputs.iter().map(|&x| self.values.get(x)).collect();
                let y = ops::streams::blend(isa, scores, &streams);
                self.one(at, y);
            }
            Op::ReadStreams(streams) => {
                let outputs = streams.read(self.input(at, 0), self.input(at, 1));
                self.finish(at, outputs);
            }
            Op::WriteStreams { count, mixed } => {
                self.in_place(at, |x, pass| {
                    ops::streams::write(x, pass.input(at, 1), pass.input(at, 2), *count, *mixed)
                });
            }
            Op::SumStreams(count) => {
                let y = ops::streams::sum(self.input(at, 0), self.input(at, 1), *count);
                self.one(at, y);
            }
            Op::Spread(places, n) => {
                let y = ops::rows::spread(self.input(at, 0), places, *n);
                self.one(at, y);
            }
            // rows are taken by the caller of a pass
            Op::Take => {}
        }
    }
}

/// Rows of a table, as they are in its file, decoded.
fn decoded(table: &Matrix, rows: impl ExactSizeIterator<Item = usize>) -> Floats {
    let n = table.cols;
    let decode = table.ty.info().and_then(|t| t.decode).expect("tables are decodable: checked when loading");
    let mut x = Floats::scratch(rows.len() * n);
    x.chunks_exact_mut(n).zip(rows).for_each(|(row, number)| decode(table.row(number), row));
    x
}
