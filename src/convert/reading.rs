//! How a tensor of the checkpoint is read for one of the output: which of its rows, and what their values become.

use std::collections::BTreeMap;
use std::ops::Range;

use trine_formats::safetensors::{Dtype, Tensor};
use trine_formats::types::TypeId;

use super::hparams::HParams;
use super::place::Use;
use super::slices::{Slice, Slices};
use super::source::Source;
use super::ternary::Ternary;
use super::values::{Rule, Stored, Turns, is_float};
use crate::arch::{Extent, Factor, Fused, Role, Step, Tensor as Described, Turn};

/// Form of a checkpoint's matrices.
pub(super) struct Weights {
    pub rule: Ternary,
    pub parts: u64,
    /// True if packed digits are multiplied by their scale.
    pub multiply: bool,
    /// Scales of packed matrices, by the names of those.
    pub scales: BTreeMap<String, f32>,
}

/// Everything that decides how tensors are read.
pub(super) struct Reader<'a> {
    pub h: &'a HParams,
    pub source: &'a Source,
    pub weights: &'a Weights,
    /// True if the rows of heads keep the order of the checkpoint.
    pub keep_order: bool,
    /// Files of the checkpoint; those of higher numbers are quantized matrices.
    pub files: usize,
}

/// Rows of a matrix that stand together, or in equal distances.
struct Run {
    first: u64,
    rows: u64,
    every: u64,
}

/// A tensor that is made: matrices of rows and columns, one or one for every expert.
struct Part {
    tensor: &'static Described,
    matrices: u64,
    rows: u64,
    columns: u64,
}

/// The places in QRWKV's checkpoints of what the file has in this order.
const FIFTHS: [u64; 5] = [3, 1, 2, 0, 4];

fn run(first: u64, rows: u64) -> Run {
    Run { first, rows, every: 1 }
}

/// The rows of a head from row `first` on, each of its first half with that of its second.
fn halves_together(first: u64, head: u64) -> impl Iterator<Item = Run> {
    (0..head / 2).map(move |i| Run { first: first + i, rows: 2, every: head / 2 })
}

/// Rows ahead of those that are read.
fn behind(steps: &[Step]) -> u64 {
    let first = steps.iter().find_map(|step| if let Step::Behind(first) = step { Some(*first) } else { None });
    first.unwrap_or(0)
}

impl Reader<'_> {
    /// How a tensor of the checkpoint, of block `block` if of one, is read for those that are made of it.
    pub fn read(
        &self,
        t: &Tensor,
        shard: usize,
        block: Option<u32>,
        what: &Use,
    ) -> Result<Vec<(&'static Described, Stored)>, String> {
        let name = &t.name;
        let has = |step| what.steps.contains(&step);
        let matrix = what.tensors.iter().all(|t| matches!(t.role, Role::ByRows | Role::ByColumns));
        let transposed = has(Step::Transposed) || (self.source.checkpoint.transposed && matrix);
        let mut parts: Vec<Part> =
            what.tensors.iter().map(|d| self.part(d, t, block, what)).collect::<Result<_, _>>()?;
        self.split(&mut parts, what)?;
        let total: u64 = parts.iter().map(|p| p.rows).sum();
        let (matrices, columns) = (parts[0].matrices, parts[0].columns);
        let single = matches!(what.tensors[..], [d] if d.shape.len() == 1) && what.item.is_none();
        let expected = match () {
            () if has(Step::KeysAndValues) => self.expansion(),
            () if has(Step::BehindZeros) => vec![matrices.saturating_sub(1), total, columns],
            () if single => vec![parts[0].rows * parts[0].columns],
            () if parts.iter().all(|p| p.tensor.shape.len() == 1) && what.item.is_none() => vec![total],
            () if transposed => vec![matrices, columns, total],
            () => vec![matrices, total + behind(what.steps), columns],
        };
        self.fits(t, what, &expected)?;
        let mut made = Vec::with_capacity(parts.len());
        for (i, part) in parts.iter().enumerate() {
            let rule = self.rule(t, part.tensor, what)?;
            let slices = if has(Step::KeysAndValues) {
                self.keys_or_values(t, shard, i)
            } else {
                let mut runs = self.runs(&parts, i, what);
                let mut all = Vec::new();
                let zeros = u64::from(has(Step::BehindZeros));
                all.extend((zeros > 0).then(|| Slice::zeros(name, part.rows)));
                let stored = t.shape.first().copied().unwrap_or(0);
                let lacking = part.rows.saturating_sub(stored);
                if has(Step::Padded) && lacking > 0 {
                    runs = vec![run(0, stored)];
                }
                for m in 0..part.matrices.saturating_sub(zeros) {
                    let m = if has(Step::InFifths) && part.matrices == 5 { FIFTHS[m as usize] } else { m };
                    let offset = t.offset + m * total * part.columns * t.dtype.bytes();
                    all.extend(runs.iter().map(|r| Slice {
                        tensor: name.as_str().into(),
                        shard,
                        offset,
                        first: r.first,
                        rows: r.rows,
                        every: r.every,
                        transposed: transposed.then_some(total),
                    }));
                }
                all.extend((has(Step::Padded) && lacking > 0).then(|| Slice::zeros(name, lacking)));
                Slices::new(all)
            };
            let latent = matches!(rule, Rule::Bitnet | Rule::Trilm { .. } | Rule::Packed { .. });
            if latent && (!slices.are_one() || what.item.is_some() || parts.len() > 1) {
                return Err(format!(
                    "'{name}' is ternary or to be made so, which works for matrices that a model has as the checkpoint does"
                ));
            }
            let of_columns = [Turn::Columns, Turn::Outputs].into_iter().find(|turn| has(Step::InTurns(*turn)));
            made.push((
                part.tensor,
                Stored {
                    slices,
                    dtype: t.dtype,
                    rows: part.matrices * part.rows,
                    columns: part.columns,
                    pair_heads: self.paired(part.tensor, what),
                    turns: of_columns.map(|turn| self.turns(turn)),
                    rule,
                    factors: self.factors(part, block, what)?,
                    times: None,
                    ones: what.steps.iter().filter(|s| **s == Step::OneRow).count(),
                    flat: has(Step::Flat),
                    role: match () {
                        () if has(Step::AsMatrix) => Role::ByRows,
                        () if has(Step::InFloats) => Role::Router,
                        () => part.tensor.role,
                    },
                    ty: self.kept_type(t, shard),
                },
            ));
        }
        Ok(made)
    }

    /// The type of a tensor in the file, where the class keeps those of the checkpoint: matrices of eight bits become Q8_0
    /// (`DeepseekV4Model.tensor_force_quant` of the reference).
    fn kept_type(&self, t: &Tensor, shard: usize) -> Option<TypeId> {
        match (t.dtype, t.shape.len()) {
            _ if !self.source.checkpoint.keeps_types => None,
            (_, 2..) if shard >= self.files => Some(TypeId::Q8_0),
            (Dtype::F32, _) => Some(TypeId::F32),
            (Dtype::BF16, 2..) => Some(TypeId::BF16),
            _ => None,
        }
    }

    /// Rows of a head whose halves become neighbours.
    fn paired(&self, tensor: &Described, what: &Use) -> Option<u64> {
        let anyway = what.steps.contains(&Step::HalvesTogether).then_some(self.source.sizes.head_dim);
        self.source.paired_heads(tensor).or(anyway).filter(|_| !self.keep_order)
    }

    /// Factors that `config.json` states for rows of a part.
    fn factors(&self, part: &Part, block: Option<u32>, what: &Use) -> Result<Vec<(Range<u64>, f32)>, String> {
        let all = 0..part.matrices * part.rows;
        let stated = |names: &[&str]| {
            let number = self.h.first(names).map_or(Ok(None), |key| self.h.f64(key));
            number.map_err(|e| e.to_string())?.ok_or_else(|| format!("config.json has no '{}'", names.join("' or '")))
        };
        let mut factors = Vec::new();
        if what.steps.contains(&Step::SecondHalvesNegative) {
            let head = self.source.sizes.head_dim;
            let heads = part.matrices * part.rows / head;
            factors.extend((0..heads).map(|h| (h * head + head / 2..(h + 1) * head, -1.0)));
        }
        for step in what.steps {
            if let Step::HalvedEvery(key) = step
                && let Some(every) = self.h.find(&[*key]).map_err(|e| e.to_string())?.filter(|n| *n > 0)
            {
                let times = block.unwrap_or(0) / every;
                factors.push((all.clone(), f32::from_bits((127 - times.min(126)) << 23)));
            }
            let Step::Times(list) = step else { continue };
            for factor in *list {
                match *factor {
                    Factor::First(names) => factors.push((all.clone(), stated(names)? as f32)),
                    Factor::ProductOr([a, b], other) => {
                        let number = match self.h.get(a) {
                            Some(_) => stated(&[a])? * stated(&[b])?,
                            None => stated(&[other])?,
                        };
                        factors.push((all.clone(), number as f32));
                    }
                    Factor::OfParts(list) => {
                        let mut first = 0;
                        for (n, rows) in self.projection_of_mamba_2().into_iter().enumerate() {
                            let name = format!("{list}.{n}");
                            factors.push((first..first + rows, stated(&[&name])? as f32));
                            first += rows;
                        }
                    }
                }
            }
        }
        Ok(factors)
    }

    /// Rows of Mamba 2's projection: gates, channels, what writes the state, what reads it, time steps.
    fn projection_of_mamba_2(&self) -> [u64; 5] {
        let sizes = &self.source.sizes.recurrent;
        let states = (sizes.groups * sizes.state) as u64;
        [sizes.inner as u64, sizes.inner as u64, states, states, sizes.heads as u64]
    }

    /// The matrices that a tensor is.
    fn part(&self, tensor: &'static Described, t: &Tensor, block: Option<u32>, what: &Use) -> Result<Part, String> {
        let mut shape = self.source.sizes_of(block).shape(tensor);
        let piece = what.steps.iter().any(|s| matches!(s, Step::Pieces(_)));
        if shape.is_empty() || piece {
            shape.clone_from(&t.shape);
        }
        if what.item.is_some() && !piece {
            shape.remove(0);
        }
        let moved = self.paired(tensor, what).is_some()
            || what.tensors.len() > 1
            || what.steps.iter().any(|s| matches!(s, Step::InTurns(_) | Step::HalvesApart))
            || self.regroups(tensor);
        let (matrices, rows, columns) = match shape[..] {
            [n] if moved => (1, n, 1),
            [n] => (1, 1, n),
            [rows, columns] if what.steps.contains(&Step::ColumnsAlternate) => (rows, columns, 1),
            [heads, head] if what.steps.contains(&Step::FirstHeadTogether) => (1, heads * head, 1),
            [rows, columns] => (1, rows, columns),
            [matrices, rows, columns] => (matrices, rows, columns),
            _ => return Err(format!("'{}' is neither matrix nor vector", tensor.gguf)),
        };
        Ok(Part { tensor, matrices, rows, columns })
    }

    /// Gives the first of two tensors its rows, and the second what remains.
    fn split(&self, parts: &mut [Part], what: &Use) -> Result<(), String> {
        let stated = what.steps.iter().find_map(|step| if let Step::SplitAt(keys) = step { Some(keys) } else { None });
        let (Some(keys), [first, second]) = (stated, parts) else {
            return Ok(());
        };
        let numbers = keys.map(|key| self.h.need(key).map_err(|e| e.to_string()).map(u64::from));
        let [a, b] = numbers;
        let (rows, all) = (a? * b?, first.rows);
        if rows >= all {
            return Err(format!("'{}' and '{}' make {rows} rows, and there are {all} with others", keys[0], keys[1]));
        }
        (first.rows, second.rows) = (rows, all - rows);
        Ok(())
    }

    /// Checks the shape. Extents of 1 count for nothing: convolutions of one channel have one that matrices lack.
    fn fits(&self, t: &Tensor, what: &Use, expected: &[u64]) -> Result<(), String> {
        let mut shape = t.shape.clone();
        let matrix = what.tensors.iter().all(|t| matches!(t.role, Role::ByRows | Role::ByColumns));
        if let (Dtype::U8, true, Some(rows), [.., expected, _]) = (t.dtype, matrix, shape.first_mut(), expected) {
            // four rows in one; of the last ones some may be missing
            let whole = if *rows == expected.div_ceil(4) { *expected } else { rows.saturating_mul(4) };
            *rows = whole;
        }
        let bare = |shape: &[u64]| shape.iter().copied().filter(|n| *n != 1).collect::<Vec<u64>>();
        let (have, want) = (bare(&shape), bare(expected));
        let padded = what.tensors[0].role == Role::Embedding
            && self.source.checkpoint.padded_embedding
            && matches!((&have[..], &want[..]), ([a, b], [c, d]) if b == d && a > c);
        let reshaped =
            what.steps.contains(&Step::Reshaped) && shape.iter().product::<u64>() == expected.iter().product::<u64>();
        let lacks =
            what.steps.contains(&Step::Padded) && matches!((&have[..], &want[..]), ([a, b], [c, d]) if b == d && a < c);
        if have == want || padded || reshaped || lacks {
            return Ok(());
        }
        let expected: Vec<u64> = match expected {
            [1, rest @ ..] if expected.len() > t.shape.len() => rest.to_vec(),
            all => all.to_vec(),
        };
        Err(format!("'{}' has shape {shape:?}, config.json makes it {expected:?}", t.name))
    }

    /// The rows of part `i`, in its order, among those of every matrix.
    fn runs(&self, parts: &[Part], i: usize, what: &Use) -> Vec<Run> {
        let part = &parts[i];
        for step in what.steps {
            match *step {
                Step::Alternating | Step::ColumnsAlternate => {
                    return vec![Run { first: i as u64, rows: part.rows, every: parts.len() as u64 }];
                }
                Step::ByKeyHead => return self.by_key(i),
                Step::InTurns(Turn::Columns | Turn::Outputs) => {}
                Step::InTurns(turn) => {
                    let turns = self.turns(turn);
                    let straight = part.rows - turns.keys * turns.of_key * turns.unit;
                    let first = (straight > 0).then(|| run(0, straight));
                    let rest = turns.firsts().map(|row| run(straight + row, turns.unit));
                    return first.into_iter().chain(rest).collect();
                }
                Step::ByServedHeads => return self.by_served_heads(i),
                Step::HalvesApart => return self.halves_apart(part.rows),
                Step::InFifths if part.matrices == 1 => {
                    let rows = part.rows / 5;
                    return FIFTHS.iter().map(|fifth| run(fifth * rows, rows)).collect();
                }
                Step::FusedHalvesTogether => return self.fused_halves_together(part.rows),
                Step::FirstHeadTogether => {
                    let head = self.source.sizes.head_dim;
                    return (0..part.rows / head).flat_map(|_| halves_together(0, head)).collect();
                }
                Step::Behind(first) => return vec![run(first, part.rows)],
                _ => {}
            }
        }
        if self.regroups(part.tensor) {
            return self.by_part();
        }
        vec![run(parts[..i].iter().map(|p| p.rows).sum(), part.rows)]
    }

    /// True if queries, keys and values of all heads stand by key head in the checkpoint, and one after the other in the
    /// model.
    fn regroups(&self, tensor: &Described) -> bool {
        self.source.checkpoint.fused == Some(Fused::ByKeyHead) && tensor.shape.contains(&Extent::QueriesKeysValues)
    }

    /// The heads of a recurrent layer that are put in turns.
    fn turns(&self, turn: Turn) -> Turns {
        if let Turn::Queries | Turn::Outputs = turn {
            let sizes = &self.source.sizes;
            return Turns { keys: sizes.heads / sizes.kv_heads, of_key: sizes.kv_heads, unit: sizes.head_dim };
        }
        let sizes = &self.source.sizes.recurrent;
        let (keys, heads) = (sizes.groups.max(1) as u64, sizes.heads as u64);
        let unit = match turn {
            Turn::Heads => 1,
            _ => (sizes.inner / sizes.heads.max(1)) as u64,
        };
        Turns { keys, of_key: heads / keys, unit }
    }

    /// For every key head its query, its key, the values and the gates that it serves: the rows of the first three, in
    /// that order, or of the gates.
    fn by_key(&self, part: usize) -> Vec<Run> {
        let sizes = &self.source.sizes.recurrent;
        let (keys, key) = (sizes.groups as u64, sizes.state as u64);
        let values = sizes.inner as u64 / keys;
        let stride = 2 * (key + values);
        let all = |first: u64, rows: u64| (0..keys).map(move |k| run(k * stride + first, rows));
        match part {
            0 => all(0, key).chain(all(key, key)).chain(all(2 * key, values)).collect(),
            _ => all(2 * key + values, values).collect(),
        }
    }

    /// In every head first the even rows of what RoPE turns, then the odd ones, then the rest.
    fn halves_apart(&self, rows: u64) -> Vec<Run> {
        let (head, turned) = (self.source.sizes.head_dim, self.source.sizes.rope_dim);
        let of_head = |first: u64| {
            [
                Run { first, rows: turned / 2, every: 2 },
                Run { first: first + 1, rows: turned / 2, every: 2 },
                run(first + turned, head - turned),
            ]
        };
        (0..rows / head).flat_map(|h| of_head(h * head)).filter(|r| r.rows > 0).collect()
    }

    /// Queries, keys and values, of which the halves of every head of the first two become neighbours.
    fn fused_halves_together(&self, rows: u64) -> Vec<Run> {
        let sizes = &self.source.sizes;
        let (head, heads) = (sizes.head_dim, sizes.heads + sizes.kv_heads);
        let turned = (0..heads).flat_map(|h| halves_together(h * head, head));
        turned.chain([run(heads * head, rows - heads * head)]).collect()
    }

    /// The shape of the matrix that expands latent vectors to keys and values.
    fn expansion(&self) -> Vec<u64> {
        let sizes = &self.source.sizes;
        vec![sizes.extent(Extent::LatentKeysAndValues), sizes.extent(Extent::KvRank)]
    }

    /// The keys' part of an expansion of latent vectors, transposed for every head, or the values'.
    fn keys_or_values(&self, t: &Tensor, shard: usize, part: usize) -> Slices {
        let latent = &self.source.sizes.latent;
        let (still, value, rank) = (latent.still() as u64, latent.value as u64, latent.rank as u64);
        let heads = 0..self.source.sizes.heads;
        let slice = |offset, rows, transposed| Slice {
            tensor: t.name.as_str().into(),
            shard,
            offset: t.offset + offset * rank * t.dtype.bytes(),
            first: 0,
            rows,
            every: 1,
            transposed,
        };
        let of_head = |h: u64| match part {
            0 => slice(h * (still + value), rank, Some(rank)),
            _ => slice(h * (still + value) + still, value, None),
        };
        Slices::new(heads.map(of_head).collect())
    }

    /// Rows of the queries, the keys and the values of all heads, where the checkpoint has those of a key head
    /// together.
    fn by_part(&self) -> Vec<Run> {
        (0..3).flat_map(|part| self.by_served_heads(part)).collect()
    }

    /// The same of the queries, the keys or the values alone.
    fn by_served_heads(&self, part: usize) -> Vec<Run> {
        let sizes = &self.source.sizes;
        let (d, served) = (sizes.head_dim, sizes.heads / sizes.kv_heads);
        let stride = (served + 2) * d;
        let (from, rows) = [(0, served * d), (served * d, d), ((served + 1) * d, d)][part];
        (0..sizes.kv_heads).map(|k| run(k * stride + from, rows)).collect()
    }

    /// How stored values become values of the model.
    fn rule(&self, t: &Tensor, described: &Described, what: &Use) -> Result<Rule, String> {
        let (name, weights) = (&t.name, self.weights);
        let matrix = matches!(described.role, Role::ByRows | Role::ByColumns);
        let scale = weights.scales.get(name);
        if t.dtype == Dtype::U8 && matrix {
            let scale = scale.ok_or(format!("'{name}' is packed and has no '{name}_scale'"))?;
            let unit = if weights.multiply { *scale } else { 1.0 / scale };
            return Ok(Rule::Packed { unit });
        }
        let ty = t.dtype.name();
        if !is_float(t.dtype) {
            return Err(format!("'{name}' is of type {ty}, expected floats"));
        }
        if scale.is_some() {
            return Err(format!("'{name}' has a weight_scale and is not packed (type {ty})"));
        }
        let by_columns = described.role == Role::ByColumns;
        let extent = t.shape.get(usize::from(by_columns)).copied().unwrap_or(1);
        match weights.rule {
            Ternary::Bitnet if matrix => Ok(Rule::Bitnet),
            Ternary::Trilm if matrix && !extent.is_multiple_of(weights.parts) => {
                Err(format!("'{name}' of shape {:?} cannot be split into {} parts", t.shape, weights.parts))
            }
            Ternary::Trilm if matrix => Ok(Rule::Trilm { parts: weights.parts, by_columns }),
            _ => Ok(self.plain_rule(described, what)),
        }
    }

    /// The same for values that are no ternary weights.
    fn plain_rule(&self, described: &Described, what: &Use) -> Rule {
        for step in what.steps {
            match *step {
                Step::Decay => return Rule::Decay,
                Step::Exponential => return Rule::Rate,
                Step::AsItIs => return Rule::Plain,
                Step::PlusFifth => return Rule::Plus(0.2),
                Step::PlusFifthOfRoot => return Rule::Plus((1.0 / (5.0 * 5.0f64.sqrt())) as f32),
                _ => {}
            }
        }
        // those of a projection's input are stored as they are
        let stored_less_one = self.source.checkpoint.norms_plus_one && !described.gguf.ends_with("_norm_in.weight");
        match described.role == Role::Norm && stored_less_one {
            true => Rule::Plus(1.0),
            false => Rule::Plain,
        }
    }
}
