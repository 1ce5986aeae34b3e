//! Programs on a device: memory is taken and filled once, then passes run.

use std::error::Error;
use std::fmt::Debug;

use crate::device::{Argument, Device};
use crate::program::{Call, Kind, Limits, Operand, Program, ProgramError, Table, Weights, fixed};

/// A token of a pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Token {
    /// Its number in the vocabulary.
    pub id: u32,
    /// The sequence that it goes on.
    pub sequence: usize,
}

/// Why a program cannot run.
#[derive(Debug, thiserror::Error)]
pub enum RunError<E: Error + 'static> {
    /// The program.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The device.
    #[error(transparent)]
    Device(E),
    /// More memory than the device has.
    #[error(
        "the model needs {needed} bytes of the GPU's memory ({table}), and {free} are free; lower the context, the sequences or the tokens of a pass"
    )]
    Memory {
        /// Bytes that it needs.
        needed: u64,
        /// What for.
        table: Table,
        /// Bytes that can be had.
        free: u64,
    },
    /// A pass that the program has no memory for, or that names what is not there.
    #[error("{0}")]
    Pass(String),
}

/// Where the tokens of a pass stand.
struct Places {
    /// Sequence and position of each.
    of_tokens: Vec<[usize; 2]>,
    /// Of each sequence behind them.
    lengths: Vec<usize>,
}

/// A program with its memory on a device.
pub struct Runner<D: Device> {
    device: D,
    program: Program,
    buffers: Vec<D::Buffer>,
    /// Positions of each sequence.
    lengths: Vec<usize>,
    /// The launches of the last pass, by its tokens and how many of them had logits.
    calls: Option<([usize; 2], Vec<Call>)>,
}

impl<D: Device> Runner<D> {
    /// Takes the program's memory on a device and fills it with its weights, one matrix after the other.
    ///
    /// # Errors
    /// Before anything is allocated: more memory than the device has. Weights that cannot be laid out, and what the device says.
    pub fn new(
        mut device: D,
        program: Program,
        weights: &[Weights<'_>],
    ) -> Result<Runner<D>, RunError<D::Error>> {
        let (table, free) = (
            program.table(),
            device.free_memory().map_err(RunError::Device)?,
        );
        if table.total() > free {
            return Err(RunError::Memory {
                needed: table.total(),
                table,
                free,
            });
        }
        let memories = program.memories();
        let mut buffers: Vec<Option<D::Buffer>> = Vec::new();
        buffers.resize_with(memories.len(), || None);
        for weights in weights {
            for (i, bytes) in weights.pack()?.iter().enumerate() {
                let buffer = device.constant(bytes).map_err(RunError::Device)?;
                buffers[weights.memory + i] = Some(buffer);
            }
        }
        let buffers = buffers
            .into_iter()
            .zip(memories)
            .map(|(there, memory)| there.map_or_else(|| device.allocate(memory.bytes.max(1)), Ok));
        let buffers = buffers
            .collect::<Result<Vec<_>, _>>()
            .map_err(RunError::Device)?;
        Ok(Runner {
            lengths: vec![0; program.limits().sequences],
            device,
            program,
            buffers,
            calls: None,
        })
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Positions that a sequence has.
    pub fn positions(&self, sequence: usize) -> usize {
        self.lengths.get(sequence).copied().unwrap_or(0)
    }

    /// Forgets the positions of a sequence from `length` on.
    pub fn cut(&mut self, sequence: usize, length: usize) {
        if let Some(positions) = self.lengths.get_mut(sequence) {
            *positions = length.min(*positions);
        }
    }

    /// Runs one pass over `tokens`, each at the next position of its sequence, and gives the logits of those whose numbers are
    /// `wanted`, row by row. `angles` gives cosine and sine of the pairs of a kind of RoPE at a position.
    ///
    /// # Errors
    /// A pass beyond the limits or the vocabulary, and what the device says. Sequences keep the positions that they had.
    pub fn pass(
        &mut self,
        tokens: &[Token],
        wanted: &[usize],
        angles: &dyn Fn(usize, usize) -> Vec<(f32, f32)>,
    ) -> Result<Vec<f32>, RunError<D::Error>> {
        let Places { of_tokens, lengths } = self.places(tokens)?;
        if let Some(&row) = wanted.iter().find(|&&row| row >= tokens.len()) {
            let count = tokens.len();
            return Err(RunError::Pass(format!(
                "logits of token {row}, where the pass has {count}"
            )));
        }
        let shape = [tokens.len(), wanted.len()];
        let calls = match self.calls.take() {
            Some((known, calls)) if known == shape => calls,
            _ => self.program.calls(shape[0], shape[1])?,
        };
        self.fill(fixed::TOKENS, tokens.iter().map(|t| t.id.to_le_bytes()))?;
        let dwords = of_tokens.iter().flat_map(|&[sequence, position]| {
            [sequence, position].map(|n| (n as u32).to_le_bytes())
        });
        self.fill(fixed::PLACES, dwords)?;
        let rows = wanted.iter().map(|&row| (row as u32).to_le_bytes());
        self.fill(fixed::WANTED, rows)?;
        for kind in 0..self.program.rotations().len() {
            let (memory, pairs) = self.program.rotations()[kind];
            let mut all = Vec::with_capacity(pairs * of_tokens.len() * 2);
            for &[_, position] in &of_tokens {
                let of_position = angles(kind, position);
                if of_position.len() != pairs {
                    let found = of_position.len();
                    return Err(RunError::Pass(format!(
                        "{found} angles, where heads have {pairs} pairs"
                    )));
                }
                all.extend(of_position.iter().flat_map(|&(cos, sin)| [cos, sin]));
            }
            self.fill(memory, all.iter().map(|x| x.to_le_bytes()))?;
        }
        for call in &calls {
            self.launch(call)?;
        }
        let mut bytes = vec![0; 4 * wanted.len() * self.program.vocabulary()];
        let logits = &self.buffers[self.program.logits()];
        let done = self.device.download(logits, 0, &mut bytes);
        done.map_err(RunError::Device)?;
        self.calls = Some((shape, calls));
        self.lengths = lengths;
        let numbers = bytes.as_chunks::<4>().0;
        Ok(numbers.iter().map(|b| f32::from_le_bytes(*b)).collect())
    }

    /// Where the tokens of a pass stand.
    fn places(&self, tokens: &[Token]) -> Result<Places, RunError<D::Error>> {
        let Limits { context, .. } = self.program.limits();
        let vocabulary = self.program.vocabulary();
        let mut lengths = self.lengths.clone();
        let mut of_tokens = Vec::with_capacity(tokens.len());
        for token in tokens {
            let (id, sequence) = (token.id, token.sequence);
            if id as usize >= vocabulary {
                return Err(RunError::Pass(format!(
                    "token {id}, where the vocabulary has {vocabulary}"
                )));
            }
            let Some(length) = lengths.get_mut(sequence) else {
                let count = lengths.len();
                return Err(RunError::Pass(format!(
                    "sequence {sequence}, where there is memory for {count}"
                )));
            };
            if *length == context {
                return Err(RunError::Pass(format!(
                    "sequence {sequence} has all of its {context} positions"
                )));
            }
            of_tokens.push([sequence, *length]);
            *length += 1;
        }
        Ok(Places { of_tokens, lengths })
    }

    /// Writes dwords at the start of a memory.
    fn fill(
        &mut self,
        memory: usize,
        dwords: impl Iterator<Item = [u8; 4]>,
    ) -> Result<(), RunError<D::Error>> {
        let bytes: Vec<u8> = dwords.flatten().collect();
        let most = self.program.memories()[memory].bytes;
        if bytes.len() > most {
            let limits = self.program.limits();
            return Err(RunError::Pass(format!(
                "a pass beyond what there is memory for: {limits:?}"
            )));
        }
        debug_assert_eq!(self.program.memories()[memory].kind, Kind::Inputs);
        let buffer = &mut self.buffers[memory];
        let done = self.device.upload(buffer, 0, &bytes);
        done.map_err(RunError::Device)
    }

    fn launch(&mut self, call: &Call) -> Result<(), RunError<D::Error>> {
        let arguments: Vec<Argument<'_, D::Buffer>> = call
            .operands
            .iter()
            .map(|operand| match *operand {
                Operand::Memory(memory, at) => Argument::Address(&self.buffers[memory], at),
                Operand::U32(value) => Argument::U32(value),
                Operand::F32(value) => Argument::F32(value),
            })
            .collect();
        let done = self.device.launch(&call.launch, &arguments);
        done.map_err(RunError::Device)
    }
}

impl<D: Device + Debug> Debug for Runner<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut all = f.debug_struct("Runner");
        all.field("device", &self.device);
        all.field("table", &self.program.table().to_string());
        all.finish_non_exhaustive()
    }
}
