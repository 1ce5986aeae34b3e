//! A program that is being recorded: where its values are on the GPU, and the operations' parts.

use std::borrow::Cow;

use trine_cuda::planes::Path;
use trine_cuda::program::{
    Cells, Chosen, Form, Gate, Heads, Matrix, PlaneMatrix, ProgramError, Recorder, Rotation, Rules, Span,
};

use super::added::Added;
use super::offload::PositionTable;
use crate::exec::processor::Processor;
use crate::kernels::bitplane::NumberPath;
use crate::kernels::elements::gelu_table;
use crate::kv::{CacheTypes, LayerLayout, TILE};
use crate::math::EXP2_32;
use crate::ops::activation::Activation;
use crate::ops::attention::ScoreRules;
use crate::ops::norm::{Kind, Norm};
use crate::ops::rope::{Pairing, Turn};
use crate::program::{Attend, MatrixId, Product, Program, RopeKind, Temperature, Value};

/// Says which operation no kernel does.
pub fn missing<T>(what: impl Into<String>) -> Result<T, ProgramError> {
    Err(ProgramError::Missing(what.into()))
}

/// The place of a value on the GPU.
#[derive(Clone, Copy)]
pub enum Place {
    Rows(Span),
    Experts(Chosen),
}

/// A program that is being recorded.
pub struct Tape<'a> {
    pub recorder: Recorder<'a>,
    pub processor: &'a Processor,
    pub program: &'a Program,
    pub n_ctx: usize,
    /// The types of keys and values.
    pub cache: CacheTypes,
    /// Keys and values that are rotated where their type is a quantized one.
    pub turned: [bool; 2],
    /// The widths of any-precision weights; all without any.
    pub widths: &'a [u8],
    /// The operation behind the last one that GPUs have.
    pub end: usize,
    /// The operation behind the last one of this GPU.
    pub until: usize,
    /// Keys and values on this GPU, by the layer of the KV cache.
    pub cells: Vec<(usize, Cells)>,
    pub places: Vec<Option<Place>>,
    /// True for each operation that is recorded.
    pub done: Vec<bool>,
    /// The tables by position that some operation uses, in their order.
    pub rotations: Vec<(PositionTable, Rotation)>,
    /// The factors that passes are told.
    pub factors: Vec<Added>,
}

impl<'a> Tape<'a> {
    /// The rows of a value.
    pub fn rows(&self, value: Value) -> Result<Span, ProgramError> {
        match self.places[value.0] {
            Some(Place::Rows(span)) => Ok(span),
            _ => missing(format!("the value {}", self.program.shape(value).name)),
        }
    }

    /// A choice of experts.
    pub fn experts(&self, value: Value) -> Result<Chosen, ProgramError> {
        match self.places[value.0] {
            Some(Place::Experts(chosen)) => Ok(chosen),
            _ => missing(format!("the choice {}", self.program.shape(value).name)),
        }
    }

    /// True if an operation that is not recorded yet reads `value`, or another value in its place.
    pub fn is_wanted(&self, value: Value, but: usize) -> bool {
        let span = |value: &Value| match self.places[value.0] {
            Some(Place::Rows(span)) => Some(span),
            _ => None,
        };
        let place = span(&value);
        let same = |input: &Value| *input == value || place.is_some() && span(input) == place;
        let operations = self.program.operations()[..self.end].iter().enumerate();
        let mut later = operations.filter(|(at, _)| *at != but && !self.done[*at]);
        later.any(|(_, operation)| operation.inputs.iter().any(same))
    }

    pub fn set(&mut self, value: Value, span: Span) {
        self.places[value.0] = Some(Place::Rows(span));
    }

    /// A matrix as its file has it.
    pub fn stored(&self, id: MatrixId) -> Result<Matrix<'a>, ProgramError> {
        let (matrix, name) = (self.processor.matrix(id), &self.program.matrix(id).tensor);
        let Some((data, scale)) = matrix.stored() else {
            let ty = matrix.ty;
            return missing(match matrix.special() {
                Some(what) => format!("{what} weights ({name})"),
                None => format!("weights in the layouts of the CPU ({name}, {ty}); load the model without packing"),
            });
        };
        Ok(Matrix { name, ty: matrix.ty, rows: matrix.rows, columns: matrix.cols, data, scale })
    }

    pub fn product(&mut self, product: &'a Product, x: Span) -> Result<Span, ProgramError> {
        let y = match self.processor.matrix(product.matrix).planes() {
            Some((path, mut views)) => {
                views.retain(|view| self.widths.is_empty() || self.widths.contains(&view.width));
                let views = views.into_iter().map(Cow::Borrowed).collect();
                let name = &self.program.matrix(product.matrix).tensor;
                let path = match path {
                    NumberPath::F32 => Path::Floats,
                    NumberPath::I16 => Path::Fixed,
                };
                self.recorder.planes_product(PlaneMatrix { name, path, views }, x)?
            }
            None => self.recorder.product(self.stored(product.matrix)?, x)?,
        };
        if let Some(scale) = product.scale {
            self.recorder.scale(y, scale);
        }
        self.adapt(&product.adapters, x, y)?;
        Ok(y)
    }

    pub fn norm(&mut self, norm: &'a Norm, x: Span) -> Result<Span, ProgramError> {
        let y = match norm.kind {
            Kind::Rms => self.recorder.norm(x, &norm.gains, norm.row, norm.eps)?,
            Kind::Layer => self.recorder.layer_norm(x, &norm.gains, norm.row, norm.eps)?,
        };
        self.norm_bias(norm, y)
    }

    pub fn norm_in_place(&mut self, norm: &'a Norm, x: Span) -> Result<Span, ProgramError> {
        match norm.kind {
            Kind::Rms => self.recorder.norm_in_place(x, &norm.gains, norm.row, norm.eps)?,
            Kind::Layer => self.recorder.layer_norm_in_place(x, &norm.gains, norm.row, norm.eps)?,
        }
        self.norm_bias(norm, x)
    }

    pub fn norm_bias(&mut self, norm: &'a Norm, x: Span) -> Result<Span, ProgramError> {
        if let Some(bias) = &norm.bias {
            self.recorder.add_row(x, bias)?;
        }
        Ok(x)
    }

    /// `gate = f(gate) * up`, or `f(gate)` alone.
    pub fn gate(&mut self, f: Activation, gate: Span, up: Option<Span>) -> Result<(), ProgramError> {
        let function = match f {
            Activation::Silu => Gate::Silu,
            Activation::Relu => Gate::Relu,
            Activation::SquaredRelu => Gate::SquaredRelu,
            // It is looked up.
            Activation::Gelu => return self.recorder.gelu(gelu_table(), gate, up),
            other => return self.other_gate(other, gate, up),
        };
        self.recorder.gate(function, gate, up);
        Ok(())
    }

    /// Functions with libm's exponential.
    fn other_gate(&mut self, f: Activation, gate: Span, up: Option<Span>) -> Result<(), ProgramError> {
        match (f, up) {
            (Activation::OpenAiSwiglu, Some(up)) => self.recorder.clamped_silu([gate, up], [7.0, 1.702, 1.0], &EXP2_32),
            // A sum with minus zero is exact.
            (Activation::ClampedSilu(limit), Some(up)) => {
                self.recorder.clamped_silu([gate, up], [limit, 1.0, -0.0], &EXP2_32)
            }
            (Activation::Situ(bounds), Some(up)) => self.recorder.bounded_silu([gate, up], bounds, &EXP2_32),
            (Activation::LimitedSilu(limit), Some(up)) => self.recorder.limited_silu([gate, up], limit),
            (Activation::Tanh, None) => {
                self.recorder.tanh(gate);
                Ok(())
            }
            (Activation::Xielu(numbers), None) => {
                self.recorder.xielu(gate, numbers);
                Ok(())
            }
            (other, _) => missing(format!("the activation {other:?}")),
        }
    }

    pub fn rotation(&mut self, kind: RopeKind) -> Result<Rotation, ProgramError> {
        let rope = &self.processor.ropes.of(self.n_ctx)[kind as usize];
        self.by_position(PositionTable::Rope(kind), rope.n_rot / 2, rope.pairing == Pairing::Adjacent)
    }

    /// The table of a rotation backwards, or by the first position of a block.
    pub fn turn(&mut self, kind: RopeKind, turn: Turn) -> Result<Rotation, ProgramError> {
        let rope = &self.processor.ropes.of(self.n_ctx)[kind as usize];
        self.by_position(PositionTable::Turn(kind, turn), rope.n_rot / 2, rope.pairing == Pairing::Adjacent)
    }

    /// A table with a factor for each position.
    pub fn factors(&mut self, factor: Temperature) -> Result<Rotation, ProgramError> {
        self.by_position(PositionTable::Factor(factor), 1, false)
    }

    /// A table of pairs by position, which is there once.
    fn by_position(&mut self, table: PositionTable, pairs: usize, neighbours: bool) -> Result<Rotation, ProgramError> {
        if let Some((_, rotation)) = self.rotations.iter().find(|(t, _)| *t == table) {
            return Ok(*rotation);
        }
        let rotation = self.recorder.rotation(pairs, neighbours)?;
        self.rotations.push((table, rotation));
        Ok(rotation)
    }

    pub fn attend(&mut self, qkv: [Span; 3], attend: &'a Attend) -> Result<Span, ProgramError> {
        if attend.both_ways {
            return self.attend_whole(qkv, attend);
        }
        let [queries, keys, values] = qkv;
        let cells = self.recorder.store_as(self.forms(attend), [keys, values], heads(attend), &EXP2_32)?;
        self.cells.push((attend.cache, cells));
        self.attend_over(queries, cells, attend)
    }

    /// How keys and values are kept, as the pages of the processor's layers have them.
    fn forms(&self, attend: &Attend) -> [Form; 2] {
        let layout = LayerLayout {
            n_head: attend.heads.keys,
            head_dim: attend.heads.size,
            value_dim: attend.value_size,
            positions: TILE,
            types: self.cache,
            turned: self.turned,
        };
        let CacheTypes { keys, values } = self.cache;
        [(keys, layout.key_turn()), (values, layout.value_turn())]
            .map(|(ty, turn)| Form { ty, turn: turn.unwrap_or(0) })
    }

    /// Attention to keys and values that an earlier layer has put into their cells.
    pub fn attend_again(&mut self, queries: Span, attend: &'a Attend) -> Result<Span, ProgramError> {
        match self.cells.iter().find(|(layer, _)| *layer == attend.cache) {
            Some(&(_, cells)) => self.attend_over(queries, cells, attend),
            None => missing("keys and values of layers that it does not run"),
        }
    }

    fn attend_over(&mut self, queries: Span, cells: Cells, attend: &'a Attend) -> Result<Span, ProgramError> {
        let mut rules = Rules::default();
        if let Some(ScoreRules { cap, slopes, sinks, relative, back }) = &attend.rules {
            if relative.is_some() || back.is_some() {
                return missing("biases of scores by distance");
            }
            let sinks = (!sinks.is_empty()).then_some((&sinks[..], &EXP2_32));
            rules = Rules { cap: *cap, slopes, sinks };
        }
        let window = attend.window.map(|w| (w.size, w.chunked));
        self.recorder.attend_over(queries, cells, heads(attend), attend.scale, window, &rules)
    }

    /// Attention in both directions.
    fn attend_whole(&mut self, qkv: [Span; 3], attend: &'a Attend) -> Result<Span, ProgramError> {
        let slopes: &[f32] = match &attend.rules {
            None => &[],
            Some(ScoreRules { cap: None, slopes, sinks, relative: None, back: None }) if sinks.is_empty() => slopes,
            Some(_) => return missing("rules of scores of attention in both directions"),
        };
        let reach = attend.window.map(|window| window.size / 2);
        self.recorder.attend_whole(qkv, heads(attend), (attend.scale, reach), slopes, &EXP2_32)
    }
}

fn heads(attend: &Attend) -> Heads {
    Heads {
        queries: attend.heads.queries,
        keys: attend.heads.keys,
        key_size: attend.heads.size,
        value_size: attend.value_size,
    }
}
