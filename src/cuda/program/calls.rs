//! Operations to launches.

use super::form::Form;
use super::memory::{Quants, Value};
use super::operation::{OfChosen, Operation, Placed};
use super::share::Pending;
use super::{Caches, Call, Operand, Program, ProgramError, Stretch, fixed};
use crate::floats;
use crate::pack::activations::GROUP;
use crate::plan::{self, Launch};
use crate::ptx::{ATTENTION, EMBED, EXPERTS, GATE, NORM, QUANTIZE, Text};
use trine_formats::types::TypeId;

/// Threads of a block, where one element belongs to each.
pub(super) const ELEMENTS: usize = 256;
/// Threads of a block, where one head belongs to each.
pub(super) const OF_HEADS: usize = 128;
/// Threads of a block that quantizes a part of a row.
const WARP: usize = 32;
/// The most blocks along y.
const MOST_BLOCKS: usize = 65535;
/// Bytes of scores that a launch of attention may need, unless one token needs more.
const SCORES: usize = 64 << 20;

/// The launches of some operations of a pass.
pub(super) fn of(
    program: &Program,
    operations: &[Operation],
    [tokens, wanted]: [usize; 2],
    width: u8,
    caches: Caches,
) -> Result<Vec<Stretch>, ProgramError> {
    let limits = program.limits;
    if tokens > limits.tokens || wanted > limits.wanted || tokens == 0 || wanted == 0 {
        return Err(ProgramError::TooLarge(format!(
            "a pass of {tokens} tokens with {wanted} rows of logits, where 1 to {} and 1 to {} have memory,",
            limits.tokens, limits.wanted
        )));
    }
    let (pending, stretches) = (Vec::new(), Vec::new());
    let mut pass =
        Pass { program, tokens, wanted, width, caches, calls: Vec::new(), pending, on_their_way: 0, stretches };
    for (at, operation) in operations.iter().enumerate() {
        if pass.gates_own(operation, &operations[at + 1..])? {
            continue;
        }
        pass.exchange_before(operation)?;
        pass.call(operation)?;
    }
    pass.exchange()?;
    pass.stretches.push(Stretch { calls: pass.calls, exchange: None });
    Ok(pass.stretches)
}

/// Bytes of memory that launches need beside values, at most.
pub(super) fn work(program: &Program) -> Result<usize, ProgramError> {
    let limits = program.limits;
    let mut most = GROUP;
    for operation in &program.operations {
        match operation {
            // A device may have no row of a small matrix.
            Operation::Product { matrix, .. } if matrix.rows == 0 => {}
            Operation::Product { matrix, from, .. } => {
                let rows = program.values[*from].rows;
                let tokens = rows.count(limits.tokens, limits.wanted);
                if let Some(form) = matrix.halves {
                    let shape = (matrix.columns, matrix.rows, tokens);
                    most = most.max(form.plan(shape)?.workspace);
                    continue;
                }
                if floats::multiplies(matrix.ty) {
                    most = most.max(floats::most(matrix.ty, (matrix.rows, matrix.columns, tokens))?.0);
                    continue;
                }
                // Few tokens may share the columns where many do not.
                for tokens in [tokens.min(8), tokens.min(16), tokens] {
                    let plan = plan::product(matrix.ty, matrix.rows, matrix.columns, tokens)?;
                    most = most.max(plan.workspace);
                }
            }
            Operation::Attend(a) => most = most.max(a.work(&limits)?),
            Operation::Compressed(a) => {
                let row = a.scores(limits.context)?;
                most = most.max(row * at_once(row).min(limits.tokens));
            }
            Operation::Whole(a) => {
                let row = a.scores(limits.tokens)?;
                most = most.max(row * at_once(row).min(limits.tokens));
            }
            _ => {}
        }
    }
    Ok(most)
}

/// Bytes of the tickets that products and attention need, at most.
pub(super) fn tickets(program: &Program) -> Result<usize, ProgramError> {
    let limits = program.limits;
    let mut most = 1;
    for operation in &program.operations {
        match operation {
            Operation::Product { matrix, .. } if matrix.rows == 0 => {}
            Operation::Product { matrix, from, .. } => {
                let tokens = program.values[*from].rows.count(limits.tokens, limits.wanted);
                if let Some(form) = matrix.halves {
                    most = most.max(form.plan((matrix.columns, matrix.rows, tokens))?.tickets);
                } else if floats::multiplies(matrix.ty) {
                    most = most.max(floats::most(matrix.ty, (matrix.rows, matrix.columns, tokens))?.1);
                }
            }
            Operation::Attend(a) => most = most.max(a.tickets(&limits)),
            _ => {}
        }
    }
    Ok(4 * most)
}

/// Tokens whose scores are computed by one launch.
pub(super) fn at_once(row: usize) -> usize {
    (SCORES / row.max(1)).clamp(1, MOST_BLOCKS)
}

/// The launches of one pass, so far.
pub(super) struct Pass<'p> {
    pub(super) program: &'p Program,
    pub(super) tokens: usize,
    wanted: usize,
    /// Bits of any-precision weights.
    pub(super) width: u8,
    pub(super) caches: Caches,
    pub(super) calls: Vec<Call>,
    /// Outputs that other devices wait for, and the bytes of their memory on the way.
    pub(super) pending: Vec<Pending>,
    pub(super) on_their_way: usize,
    /// The stretches that have ended.
    pub(super) stretches: Vec<Stretch>,
}

impl Pass<'_> {
    pub(super) fn value(&self, number: usize) -> Value {
        self.program.values[number]
    }

    /// The memory of a value.
    pub(super) fn at(&self, number: usize) -> Operand {
        Operand::Memory(self.value(number).memory, 0)
    }

    /// Floats of a row of weights.
    pub(super) fn floats(&self, number: usize) -> usize {
        self.program.memories[number].bytes / 4
    }

    /// The power of two that is the positions of a page.
    pub(super) fn shift(&self) -> Operand {
        Operand::U32(self.program.limits.page.trailing_zeros())
    }

    /// Rows of a value in this pass.
    pub(super) fn rows(&self, number: usize) -> usize {
        self.value(number).rows.count(self.tokens, self.wanted)
    }

    /// Adds a launch of blocks along x and y.
    pub(super) fn launch(
        &mut self,
        kernel: (Text, &str),
        [x, y]: [usize; 2],
        threads: (usize, usize),
        operands: Vec<Operand>,
    ) -> Result<(), ProgramError> {
        self.launch_deep(kernel, [x, y, 1], threads, operands)
    }

    /// Adds a launch of blocks along x, y and z.
    pub(super) fn launch_deep(
        &mut self,
        (module, kernel): (Text, &str),
        [x, y, z]: [usize; 3],
        (threads, shared): (usize, usize),
        operands: Vec<Operand>,
    ) -> Result<(), ProgramError> {
        let too_large = || ProgramError::TooLarge(format!("{kernel} on {x} x {y} blocks"));
        let axis = |n: usize, most: usize| {
            let n = Some(n).filter(|&n| n > 0 && n <= most);
            n.and_then(|n| u32::try_from(n).ok()).ok_or_else(too_large)
        };
        let blocks = [axis(x, i32::MAX as usize)?, axis(y, MOST_BLOCKS)?, axis(z, MOST_BLOCKS)?];
        self.calls.push(Call {
            launch: Launch {
                module,
                kernel: kernel.to_owned(),
                blocks,
                threads: threads as u32,
                shared: shared as u32,
            },
            operands,
        });
        Ok(())
    }

    /// Adds a launch with a thread for each element of a value.
    pub(super) fn each(
        &mut self,
        kernel: (Text, &str),
        value: usize,
        mut operands: Vec<Operand>,
    ) -> Result<(), ProgramError> {
        let count = self.rows(value) * self.value(value).columns;
        operands.push(int(count));
        let blocks = [count.div_ceil(ELEMENTS), 1];
        self.launch(kernel, blocks, (ELEMENTS, 0), operands)
    }

    fn call(&mut self, operation: &Operation) -> Result<(), ProgramError> {
        let tokens = self.tokens;
        match *operation {
            Operation::Embed { kernel, table, numbers, to } => {
                let each = numbers.map_or(1, |numbers| self.value(numbers).columns);
                let n = self.value(to).columns / each;
                let numbers = numbers.map_or(memory(fixed::TOKENS), |numbers| self.at(numbers));
                let operands = vec![memory(table), numbers, self.at(to), int(n)];
                let blocks = [n.div_ceil(ELEMENTS), tokens * each];
                self.launch((EMBED, kernel), blocks, (ELEMENTS, 0), operands)
            }
            Operation::Norm { layer, from, gains, parts, eps, to } => {
                let row = self.program.memories[gains].bytes / 4 / parts;
                let count = self.rows(from) * self.value(from).columns / row;
                let operands = vec![self.at(from), memory(gains), self.at(to), Operand::F32(eps), int(row), int(parts)];
                let kernel = if layer { "layer_norm" } else { "rms_norm" };
                self.launch((NORM, kernel), [count, 1], (ELEMENTS, 0), operands)
            }
            Operation::AddNorm { x, y, gains, eps, to } => {
                let operands = vec![
                    self.at(x),
                    self.at(y),
                    memory(gains),
                    self.at(to),
                    Operand::F32(eps),
                    int(self.value(x).columns),
                ];
                let blocks = [self.rows(x), 1];
                self.launch((NORM, "add_rms_norm"), blocks, (ELEMENTS, 0), operands)
            }
            Operation::NormQuantize(fused) => self.norm_quantize(&fused),
            Operation::GateQuantize(fused) => self.gate_quantize(&fused),
            Operation::Add { to, from } => self.each((NORM, "add"), to, vec![self.at(to), self.at(from)]),
            Operation::AddRow { to, row } => {
                let n = int(self.value(to).columns);
                self.each((NORM, "add_row"), to, vec![self.at(to), memory(row), n])
            }
            Operation::Scale { to, factor } => {
                let operands = vec![self.at(to), Operand::F32(factor)];
                self.each((NORM, "scale"), to, operands)
            }
            Operation::Take { from, to } => {
                let n = self.value(to).columns;
                let operands = vec![self.at(from), memory(fixed::WANTED), self.at(to), int(n)];
                let blocks = [n.div_ceil(ELEMENTS), self.wanted];
                self.launch((NORM, "take_rows"), blocks, (ELEMENTS, 0), operands)
            }
            Operation::Quantize { from, quants, to } => self.quantize(from, quants, to),
            Operation::Product { matrix, from, to } => self.product(&matrix, from, to),
            Operation::Apply { function, x, y, powers } => self.apply(function, [x, y.unwrap_or(x)], powers),
            Operation::Copy { from, part, to } => self.copy(from, part, to),
            Operation::Repeat { from, width, times, to } => self.repeat([from, to], width, times),
            Operation::Recurrent(ref recurrent) => self.recurrent(recurrent),
            Operation::Planes { ref matrix, from, x, to } => self.planes(matrix, [from, x, to]),
            Operation::Rotate { x, table, pairs, neighbours, heads } => {
                let operands = vec![
                    self.at(x),
                    memory(table),
                    int(heads),
                    int(self.value(x).columns / heads),
                    int(pairs),
                    int(neighbours.into()),
                ];
                let blocks = [(heads * pairs).div_ceil(OF_HEADS), tokens];
                self.launch((ATTENTION, "rope"), blocks, (OF_HEADS, 0), operands)
            }
            Operation::Store { from, cells, heads, form } if form != Form::HALF => {
                self.store_cells([from, cells], heads, form)
            }
            Operation::Store { from, cells, heads, .. } => {
                let n = self.value(from).columns;
                let operands =
                    vec![self.at(from), memory(cells), memory(fixed::CELLS), int(heads), int(n / heads), self.shift()];
                let blocks = [n.div_ceil(OF_HEADS), tokens];
                self.launch((ATTENTION, "store"), blocks, (OF_HEADS, 0), operands)
            }
            Operation::Attend(attend) => self.attend(&attend),
            Operation::Compressed(compressed) => self.compressed(&compressed),
            Operation::Whole(whole) => self.whole(&whole),
            Operation::Between(ref between) => self.between(between),
            Operation::Gelu { table, gate, up } => {
                let (x, table) = (self.at(gate), memory(table));
                match up {
                    Some(up) => self.each((GATE, "gelu"), gate, vec![x, self.at(up), table]),
                    None => self.each((GATE, "gelu_alone"), gate, vec![x, table]),
                }
            }
            Operation::Gate { function, gate, up } => {
                let kernel = function.kernel();
                match up {
                    Some(up) => self.each((GATE, kernel), gate, vec![self.at(gate), self.at(up)]),
                    None => {
                        let alone = format!("{kernel}_alone");
                        self.each((GATE, &alone), gate, vec![self.at(gate)])
                    }
                }
            }
            Operation::Choose(choose) => self.choose(&choose),
            Operation::List { chosen, list } => self.list(chosen, list),
            Operation::ChooseByToken(by_token) => self.choose_by_token(&by_token),
            Operation::TakeChoice { from, chosen, weights } => self.take_choice([from, chosen, weights]),
            Operation::ProductOfChosen { matrix, from, who, to } => self.product_of_chosen(&matrix, [from, who, to]),
            Operation::OfChosen { function, to, numbers, chosen } => {
                let kernel = match function {
                    OfChosen::Scale => "scale_chosen",
                    OfChosen::Add => "add_chosen",
                };
                let n = int(self.value(to).columns);
                let operands = vec![self.at(to), memory(numbers), self.at(chosen), n];
                self.each((EXPERTS, kernel), to, operands)
            }
            Operation::Weigh { from, weights, to } => self.weigh([from, weights, to]),
            Operation::Combine { from, weights, weighed, to } => self.combine([from, weights, to], weighed),
            Operation::ScaleByGate { x, gates, powers, plain } => {
                let n = int(self.value(x).columns);
                let operands = vec![self.at(x), self.at(gates), memory(powers), n, int(plain.into())];
                let blocks = [self.rows(x), 1];
                self.launch((EXPERTS, "scale_by_gate"), blocks, (ELEMENTS, 0), operands)
            }
        }
    }

    /// Blocks of threads, and the threads of each, of a quantizer of rows of `columns`.
    pub(super) fn quantizer(quants: Quants, [rows, columns]: [usize; 2]) -> ([usize; 2], usize) {
        let padded = rows.next_multiple_of(8);
        match quants {
            Quants::Q8K | Quants::Q8KChains | Quants::Q8_0 | Quants::Q8_1 | Quants::Planes => {
                ([columns.div_ceil(GROUP), padded], WARP)
            }
            Quants::Bytes { .. } => ([1, padded], ELEMENTS),
            Quants::Halves | Quants::Brains => ([columns.next_multiple_of(8).div_ceil(ELEMENTS), rows], ELEMENTS),
        }
    }

    fn quantize(&mut self, from: usize, quants: Quants, to: usize) -> Result<(), ProgramError> {
        let (rows, columns) = (self.rows(from), self.value(from).columns);
        let mut operands = vec![self.at(from)];
        operands.extend(self.quants(to)?);
        let kernel = match quants {
            Quants::Q8K => "quantize_q8_k",
            Quants::Q8KChains => "quantize_q8_k_chains",
            Quants::Q8_1 => "quantize_q8_1",
            Quants::Q8_0 => "quantize_q8_0",
            Quants::Bytes { floored } => {
                operands.push(int(floored.into()));
                "quantize_bytes"
            }
            Quants::Planes => {
                operands.truncate(3);
                "quantize_planes"
            }
            Quants::Halves => "halve",
            Quants::Brains => "halve_brain",
        };
        if matches!(quants, Quants::Halves | Quants::Brains) {
            operands.truncate(2);
            operands.push(int(columns));
        } else {
            operands.extend([columns, rows].map(int));
        }
        let (blocks, threads) = Pass::quantizer(quants, [rows, columns]);
        self.launch((QUANTIZE, kernel), blocks, (threads, 0), operands)
    }

    /// Quants, scales and sums of a value.
    pub(super) fn quants(&self, number: usize) -> Result<[Operand; 3], ProgramError> {
        let value = self.value(number);
        let [scales, sums, _] = value.parts(&self.program.limits)?;
        Ok([0, scales, sums].map(|at| Operand::Memory(value.memory, at)))
    }

    fn product(&mut self, matrix: &Placed, from: usize, to: usize) -> Result<(), ProgramError> {
        let tokens = self.rows(to);
        if let Some(form) = matrix.halves {
            let plan = form.plan((matrix.columns, matrix.rows, tokens))?;
            let weights = matrix.memory..matrix.memory + form.memories();
            let mut operands: Vec<Operand> = weights.map(memory).collect();
            operands.extend([self.at(from), self.at(to)]);
            operands.extend([memory(fixed::WORK), memory(fixed::TICKETS)]);
            operands.extend([matrix.columns, matrix.rows, tokens].map(int));
            operands.extend(plan.group.map(Operand::U32));
            self.calls.push(Call { launch: plan.launch, operands });
            return Ok(());
        }
        let (out, work) = (self.outputs(Some(matrix.ty), to), memory(fixed::WORK));
        if matrix.rows == 0 {
            return Ok(());
        }
        if floats::multiplies(matrix.ty) {
            let plan = floats::product(matrix.ty, (matrix.rows, matrix.columns, tokens))?;
            let weights = [matrix.memory, matrix.memory + 1].map(memory);
            let mut operands = vec![weights[0], weights[1], self.at(from), out];
            operands.extend([work, memory(fixed::TICKETS)]);
            operands.extend([matrix.rows, matrix.columns, tokens].map(int));
            self.calls.push(Call { launch: plan.launch, operands });
            return Ok(());
        }
        let plan = plan::product(matrix.ty, matrix.rows, matrix.columns, tokens)?;
        if let Some(layout) = plan::integers(matrix.ty) {
            return self.integers(plan.product, (matrix, &layout), (from, out), None);
        }
        let shape = [matrix.rows, matrix.columns, tokens].map(int);
        let [rows, _, count] = shape;
        let codes = memory(matrix.memory);
        let mut operands = vec![codes];
        let [quants, scales, sums] = self.quants(from)?;
        let per_tensor = matrix.ty.info().is_some_and(|info| info.is_per_tensor());
        let ternary = [Operand::F32(matrix.scale), int((matrix.ty != TypeId::I2_S).into())];
        match matrix.ty {
            _ if per_tensor => {
                operands.extend([quants, scales, sums, out, work]);
                operands.extend(ternary);
            }
            _ => {
                operands.extend([memory(matrix.memory + 1), quants, scales, sums, out]);
                // Products of many tokens have no workspace.
                if plan.product.module == crate::ptx::DECODE {
                    operands.push(work);
                }
            }
        }
        operands.extend(shape);
        let parts = plan.product.blocks[2] as usize;
        self.calls.push(Call { launch: plan.product, operands });
        if let Some(add) = plan.add {
            let operands = if per_tensor {
                let [w, centred] = ternary;
                vec![work, scales, sums, out, w, centred, rows, count, int(parts)]
            } else {
                let block = matrix.ty.info().map_or(1, |info| info.block);
                vec![work, out, rows, count, int(matrix.columns / block)]
            };
            self.calls.push(Call { launch: add, operands });
        }
        Ok(())
    }
}

/// The start of a memory.
pub(super) fn memory(number: usize) -> Operand {
    Operand::Memory(number, 0)
}

/// A count, all of which were found to fit when the program was recorded.
pub(super) fn int(n: usize) -> Operand {
    Operand::U32(n as u32)
}
