//! One product on a device, as a program of that alone.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use anyhow::{Result, anyhow};
use trine_cuda::device::{Argument, Device};
use trine_cuda::program::{Call, Kind, Limits, Matrix, Operand, Program, ProgramError, Recorder, Span};
use trine_cuda::ptx::{NORM, QUANTIZE};
use trine_formats::types::TypeId;

/// The shape of a product.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Type of the weights.
    pub ty: TypeId,
    /// Rows of the matrix.
    pub rows: usize,
    /// Its columns.
    pub columns: usize,
    /// Rows of activations.
    pub tokens: usize,
    /// How it is computed.
    pub way: Way,
}

/// How a product is computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// With the bits of the processor.
    Exact,
    /// With activations in half precision.
    Halves,
    /// The same with weights of which two of four are there.
    Pruned,
}

impl Shape {
    /// Bytes of a matrix of a type with blocks.
    pub fn bytes(&self) -> usize {
        let info = self.ty.info().expect("a type with blocks");
        self.rows * (info.head + self.columns / info.block * info.bytes)
    }

    /// Bytes of the matrix that a kernel reads.
    pub fn bytes_read(&self) -> usize {
        match self.way {
            // Half of the codes, two bits for each to say which, and the scales: 8 + 4 + 2 bytes for 32 weights instead
            // of 18.
            Way::Pruned => self.bytes() / 18 * 14,
            _ => self.bytes(),
        }
    }

    /// In words.
    pub fn name(&self) -> String {
        let Shape { ty, rows, columns, tokens, way } = self;
        let path = match way {
            Way::Exact => "",
            Way::Halves => " in halves",
            Way::Pruned => " 2:4 in halves",
        };
        format!("{ty}{path} {rows} x {columns}, {tokens} tokens")
    }
}

const NAME: &str = "weights";
/// The matrix is not pruned.
static NONE: BTreeSet<String> = BTreeSet::new();
/// It is.
static THIS: LazyLock<BTreeSet<String>> = LazyLock::new(|| BTreeSet::from([NAME.to_owned()]));

/// A product with its memory.
pub struct Product<D: Device> {
    program: Program,
    calls: Vec<Call>,
    buffers: Vec<Option<D::Buffer>>,
    /// The weights, as often as they are to be there.
    weights: Vec<Vec<Option<D::Buffer>>>,
    pub shape: Shape,
}

impl<D: Device> Product<D> {
    /// Brings a matrix to the device, `copies` times.
    ///
    /// # Errors
    /// A type without a kernel, and the device's error.
    pub fn new(device: &mut D, shape: Shape, data: &[u8], copies: usize) -> Result<Product<D>> {
        let Shape { ty, rows, columns, way, .. } = shape;
        Product::of(device, shape, copies, 0, |recorder, x| {
            match way {
                Way::Exact => {}
                Way::Halves => recorder.in_halves(&NONE),
                Way::Pruned => recorder.in_halves(&THIS),
            }
            recorder.product(Matrix { name: NAME, ty, rows, columns, data, scale: 1.0 }, x)
        })
    }

    /// Brings a matrix to the device, `copies` times, that `record` multiplies rows by, with any-precision weights of
    /// `width` bits.
    ///
    /// # Errors
    /// A product without a kernel, and the device's error.
    pub fn of<'a>(
        device: &mut D,
        shape: Shape,
        copies: usize,
        width: u8,
        record: impl FnOnce(&mut Recorder<'a>, Span) -> Result<Span, ProgramError>,
    ) -> Result<Product<D>> {
        let limits = Limits { tokens: shape.tokens, wanted: shape.tokens, context: 1, page: 1, pages: 1, slots: 1 };
        let mut recorder = Recorder::new(limits, shape.rows)?;
        let x = recorder.given(shape.columns)?;
        let x = recorder.take_wanted(x)?;
        let y = record(&mut recorder, x)?;
        let (program, packed) = recorder.finish(y)?;
        let none = || program.memories().iter().map(|_| None).collect::<Vec<_>>();
        let mut weights = Vec::new();
        for _ in 0..copies {
            let mut copy = none();
            for weights in &packed {
                for (i, bytes) in weights.pack()?.iter().enumerate() {
                    copy[weights.memory + i] = Some(device.constant(bytes)?);
                }
            }
            weights.push(copy);
        }
        let mut buffers = none();
        for (buffer, memory) in buffers.iter_mut().zip(program.memories()) {
            if memory.kind != Kind::Weights {
                let mut taken = device.allocate(memory.bytes.max(4))?;
                // Tickets are zeros, and everything else is written before it is read: NaN, where it is not.
                let byte = if memory.kind == Kind::Zeros { 0 } else { 0xff };
                device.upload(&mut taken, 0, &vec![byte; memory.bytes.max(4)])?;
                *buffer = Some(taken);
            }
        }
        let stretches = program.logits_of(shape.tokens, width)?;
        let calls = stretches.into_iter().flat_map(|stretch| stretch.calls).collect();
        Ok(Product { program, calls, buffers, weights, shape })
    }

    /// The products of rows of activations.
    ///
    /// # Errors
    /// The device's error.
    pub fn run(&mut self, device: &mut D, x: &[f32]) -> Result<Vec<f32>> {
        let bytes: Vec<u8> = x.iter().flat_map(|x| x.to_le_bytes()).collect();
        let numbers = (0..self.shape.tokens as u32).flat_map(u32::to_le_bytes);
        let numbers: Vec<u8> = numbers.collect();
        let (given, _) = self.program.given().next().expect("it is given rows");
        // The rows that are wanted stand in the one memory of their kind that kernels take after the rows.
        let wanted = match self.calls[0].operands[1] {
            Operand::Memory(wanted, _) => wanted,
            _ => return Err(anyhow!("a program that takes no rows")),
        };
        for (memory, bytes) in [(given, &bytes), (wanted, &numbers)] {
            let buffer = self.buffers[memory].as_mut().expect("no weights");
            device.upload(buffer, 0, bytes)?;
        }
        for call in &self.calls {
            self.launch(device, call, 0)?;
        }
        let mut bytes = vec![0; 4 * self.shape.tokens * self.shape.rows];
        let out = self.buffers[self.program.logits().expect("it makes logits")].as_ref();
        device.download(out.expect("no weights"), 0, &mut bytes)?;
        let numbers = bytes.as_chunks::<4>().0;
        Ok(numbers.iter().map(|b| f32::from_le_bytes(*b)).collect())
    }

    /// Starts the product itself, without what prepares its activations, with one of the copies of the weights.
    ///
    /// # Errors
    /// The device's error.
    pub fn start(&self, device: &mut D, copy: usize) -> Result<()> {
        let prepares = |call: &&Call| [NORM, QUANTIZE].contains(&call.launch.module);
        let product = self.calls.iter().filter(|call| !prepares(call));
        for call in product {
            self.launch(device, call, copy % self.weights.len())?;
        }
        Ok(())
    }

    fn launch(&self, device: &mut D, call: &Call, copy: usize) -> Result<()> {
        let arguments = call.operands.iter().map(|operand| match *operand {
            Operand::Memory(memory, at) => {
                let own = self.buffers[memory].as_ref();
                let buffer = own.or(self.weights[copy][memory].as_ref());
                Argument::Address(buffer.expect("all memory is there"), at)
            }
            Operand::U32(value) => Argument::U32(value),
            Operand::F32(value) => Argument::F32(value),
        });
        let arguments: Vec<_> = arguments.collect();
        Ok(device.launch(&call.launch, &arguments)?)
    }
}
