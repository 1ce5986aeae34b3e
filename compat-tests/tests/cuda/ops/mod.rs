//! Everything of a model but the products of bytes: the kernels' bits are those of trine's own operations on the CPU.

mod attention;
mod between;
mod cells;
mod choices;
mod compressed;
mod elements;
mod experts;
mod functions;
mod gated;
mod mistakes;
mod ngrams;
mod normed;
mod planes;
mod products;
mod quantize;
mod recurrent;

use trine_compat_tests::ptx::{Argument, Device, Emulated, Fault, Launch, Module, Report, Schedule};
use trine_cuda::program::{Limits, Matrix, ProgramError, Recorder, Span};
use trine_cuda::ptx::Text;
use trine_cuda::run::{Host, Input, Part, Shared, Slot};
use trine_formats::types::TypeId;

use crate::mistakes::with_mistake;

/// A recorded operation and the rows of floats that it is run on.
struct Case<'a> {
    /// Rows of `columns` values each.
    rows: &'a [f32],
    columns: usize,
    /// Values of a row of the result.
    results: usize,
    /// Bits of any-precision weights.
    width: u8,
    schedule: Schedule,
}

impl<'a> Case<'a> {
    fn new(rows: &'a [f32], columns: usize) -> Case<'a> {
        Case { rows, columns, results: columns, width: 0, schedule: Schedule::Random(1) }
    }

    /// The rows of the result. The input comes from a table of floats, whose rows are the tokens in turn; where there
    /// are more rows than logits of one, in several passes.
    #[track_caller]
    fn run(&self, record: impl Fn(&mut Recorder<'a>, Span) -> Result<Span, ProgramError>) -> Vec<f32> {
        let parts = self.rows.chunks(self.columns * self.results);
        let part = |rows| {
            let device = Emulated::new().expect("PTX");
            let case = Case { rows, ..*self };
            let done = case.run_on(device, &record);
            done.unwrap_or_else(|e| panic!("{e}"))
        };
        parts.flat_map(part).collect()
    }

    /// The same on a device that may have a mistake.
    fn run_on(
        &self,
        mut device: Emulated,
        record: impl Fn(&mut Recorder<'a>, Span) -> Result<Span, ProgramError>,
    ) -> Result<Vec<f32>, Box<dyn std::error::Error>> {
        device.schedule = self.schedule;
        let tokens = self.rows.len() / self.columns;
        let vocabulary = self.results;
        let mut table: Vec<u8> = self.rows.iter().flat_map(|x| x.to_le_bytes()).collect();
        let rows = tokens.max(vocabulary);
        table.resize(4 * rows * self.columns, 0);
        let limits = Limits { tokens, wanted: tokens, context: tokens, page: 1, pages: tokens, slots: 1 };
        // A table of the function alone would not live as long as what the caller records.
        let table: &'static [u8] = table.leak();
        let mut recorder = Recorder::new(limits, vocabulary)?;
        let x = recorder.embed(Matrix {
            name: "rows",
            ty: TypeId::F32,
            rows,
            columns: self.columns,
            data: table,
            scale: 1.0,
        })?;
        let y = record(&mut recorder, x)?;
        let wanted = recorder.take_wanted(y)?;
        let (program, weights) = recorder.finish(wanted)?;
        let mut passes = Shared::new(device).start(program, &weights)?;
        let ids: Vec<u32> = (0..tokens as u32).collect();
        let part = Part { pages: &ids, first: 0, tokens, slot: Slot::default() };
        passes.pass(Input::of_tokens(&ids), &[part], self.width, &|_, _| Vec::new())?;
        let all: Vec<usize> = (0..tokens).collect();
        Ok(passes.logits(&all)?)
    }
}

/// Runs one kernel of a module.
fn launch(
    device: &mut Device,
    (module, kernel): (&Module, &str),
    blocks: [u32; 2],
    (threads, shared): (u32, u32),
    arguments: &[Argument],
    schedule: Schedule,
) -> Result<Report, Fault> {
    let launch = Launch {
        blocks: [blocks[0], blocks[1], 1],
        threads: [threads, 1, 1],
        shared,
        arguments,
        schedule,
        ..Launch::default()
    };
    device.launch(module, kernel, &launch)
}

/// Little-endian bytes of floats.
fn bytes(x: &[f32]) -> Vec<u8> {
    x.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// Matrices of floats that lie one behind the other in `weights`.
fn matrices(name: &'static str, [rows, columns]: [usize; 2], weights: &[f32]) -> Vec<Matrix<'static>> {
    let data: &'static [u8] = bytes(weights).leak();
    let matrix = |data| Matrix { name, ty: TypeId::F32, rows, columns, data, scale: 1.0 };
    data.chunks_exact(4 * rows * columns).map(matrix).collect()
}

/// The product of a row of floats and activations: products in single precision, sums in double precision and order.
fn dot(w: &[f32], x: &[f32]) -> f32 {
    w.iter().zip(x).fold(0f64, |sum, (w, x)| sum + f64::from(w * x)) as f32
}

/// True if a mistake in a kernel shows in the rows of a case.
fn shows<'a>(
    (text, kernel): (Text, &str),
    change: &dyn Fn(&str) -> String,
    case: &Case<'a>,
    expected: &[f32],
    record: impl Fn(&mut Recorder<'a>, Span) -> Result<Span, ProgramError>,
) -> bool {
    let mut device = Emulated::new().expect("PTX");
    device.replace(text.name, with_mistake(text, kernel, change));
    let differ = |(a, b): (&f32, &f32)| a.to_bits() != b.to_bits() && !(a.is_nan() && b.is_nan());
    case.run_on(device, record).map_or(true, |found| found.iter().zip(expected).any(differ))
}

/// Rows that hurt: zeros, equal values, values of any size and numbers that are none.
fn rows(columns: usize, seed: u64) -> Vec<f32> {
    let mut rng = trine_compat_tests::inputs::Rng::new(seed);
    let mut row = |f: &mut dyn FnMut(usize, f32) -> f32| -> Vec<f32> {
        (0..columns).map(|i| f(i, 2.0 * rng.unit() - 1.0)).collect()
    };
    [
        row(&mut |_, x| x),
        row(&mut |_, x| 100.0 * x * x * x),
        row(&mut |_, _| 0.0),
        row(&mut |i, _| if i % 2 == 0 { -0.0 } else { 0.0 }),
        row(&mut |_, _| -2.5),
        row(&mut |i, x| if i == columns / 3 { f32::NAN } else { x }),
        row(&mut |i, x| if i == columns - 1 { f32::NAN } else { x }),
        row(&mut |i, x| if i == 1 { f32::INFINITY } else { x }),
        row(&mut |i, x| if i % 7 == 3 { f32::NEG_INFINITY } else { x }),
        row(&mut |_, x| x * 1e-42),
        row(&mut |_, x| x * 3e38),
        row(&mut |i, x| x * [1e-30, 1.0, 1e30, 1e-3][i % 4]),
        // The greatest magnitude twice, with both signs, in the middle and at the end.
        row(&mut |i, x| match i {
            5 => -3.5,
            i if i == columns - 2 => 3.5,
            _ => x,
        }),
        // Ties between integers, once scaled.
        row(&mut |i, _| (i % 255) as f32 - 127.0 + 0.5 * (i % 2) as f32),
    ]
    .concat()
}
