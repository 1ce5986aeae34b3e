//! What the parts of a model need to say what they do as a program of a GPU.

use trine_cuda::program::{Gate, Matrix, Program, ProgramError, Recorder, Rotation, Span, Weights};

use super::pass::RopeKind;
use crate::kernels::elements::gelu_table;
use crate::ops::activation::Activation;
use crate::ops::matmul;
use crate::ops::norm::{Kind, Norm};
use crate::ops::rope::{Pairing, Rope};

/// What the passes of a program begin with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// Tokens.
    Tokens,
    /// What the blocks before the first one of the program made of them.
    Rows,
}

/// A model's last blocks as a program, and what it wants.
pub struct Recorded<'a> {
    /// The program.
    pub program: Program,
    /// Its weights, laid out when they are asked for.
    pub weights: Vec<Weights<'a>>,
    /// What its passes are given.
    pub start: Start,
    /// The position embedding of each of the program's tables.
    pub angles: Angles,
}

/// Which of a model's position embeddings each of a program's tables holds.
#[derive(Clone, Debug)]
pub struct Angles(Vec<RopeKind>);

impl Angles {
    /// Which one table `kind` holds.
    pub fn of(&self, kind: usize) -> Option<RopeKind> {
        self.0.get(kind).copied()
    }
}

/// A program that is being recorded.
pub struct Recording<'a> {
    /// What its operations go to.
    pub recorder: Recorder<'a>,
    /// Query heads, and key and value heads.
    pub heads: [usize; 2],
    /// Elements of a key and of a value.
    pub sizes: [usize; 2],
    /// Of the global and the window layers.
    ropes: &'a [Rope; 2],
    /// Those that some layer uses, in the order of the program's tables.
    used: Vec<(RopeKind, Rotation)>,
}

/// Says what no kernel does.
pub fn missing<T>(what: impl Into<String>) -> Result<T, ProgramError> {
    Err(ProgramError::Missing(what.into()))
}

/// Refuses parts of a model by name where they are there.
pub fn refuse(parts: &[(bool, &str)]) -> Result<(), ProgramError> {
    match parts.iter().find(|(there, _)| *there) {
        Some((_, what)) => missing(*what),
        None => Ok(()),
    }
}

impl<'a> Recording<'a> {
    /// One with these position embeddings.
    pub fn new(recorder: Recorder<'a>, heads: [usize; 2], sizes: [usize; 2], ropes: &'a [Rope; 2]) -> Recording<'a> {
        Recording { recorder, heads, sizes, ropes, used: Vec::new() }
    }

    /// What was recorded, and the position embedding of each of its tables.
    pub fn end(self) -> (Recorder<'a>, Angles) {
        let used = self.used.iter().map(|(kind, _)| *kind);
        (self.recorder, Angles(used.collect()))
    }

    /// The norm of `x`; `x` itself where there is none.
    pub fn norm(&mut self, norm: Option<&'a Norm>, x: Span) -> Result<Span, ProgramError> {
        match norm {
            Some(norm) => {
                let (gains, row, eps) = (&norm.gains, norm.row, norm.eps);
                let y = match norm.kind {
                    Kind::Rms => self.recorder.norm(x, gains, row, eps)?,
                    Kind::Layer => self.recorder.layer_norm(x, gains, row, eps)?,
                };
                self.bias(norm, y)?;
                Ok(y)
            }
            None => Ok(x),
        }
    }

    /// The norm of `x` where it is, if there is one.
    pub fn norm_in_place(&mut self, norm: Option<&'a Norm>, x: Span) -> Result<(), ProgramError> {
        match norm {
            Some(norm) => {
                let (gains, row, eps) = (&norm.gains, norm.row, norm.eps);
                match norm.kind {
                    Kind::Rms => self.recorder.norm_in_place(x, gains, row, eps)?,
                    Kind::Layer => self.recorder.layer_norm_in_place(x, gains, row, eps)?,
                }
                self.bias(norm, x)
            }
            None => Ok(()),
        }
    }

    /// What a norm adds at last.
    fn bias(&mut self, norm: &'a Norm, x: Span) -> Result<(), ProgramError> {
        match &norm.bias {
            Some(bias) => self.recorder.add_row(x, bias),
            None => Ok(()),
        }
    }

    /// `gate = f(gate) * up`, or `f(gate)` alone.
    pub fn gate(&mut self, activation: Activation, gate: Span, up: Option<Span>) -> Result<(), ProgramError> {
        let function = match activation {
            Activation::Silu => Gate::Silu,
            Activation::Relu => Gate::Relu,
            Activation::SquaredRelu => Gate::SquaredRelu,
            // It is looked up.
            Activation::Gelu => return self.recorder.gelu(gelu_table(), gate, up),
            other => return missing(format!("the activation {other:?}")),
        };
        self.recorder.gate(function, gate, up);
        Ok(())
    }

    /// RoPE on all heads of `x`.
    pub fn rotate(&mut self, x: Span, kind: RopeKind, head: usize) -> Result<(), ProgramError> {
        let known = self.used.iter().find(|(k, _)| *k == kind);
        let rotation = match known {
            Some((_, rotation)) => *rotation,
            None => {
                let rope = &self.ropes[kind as usize];
                let neighbours = rope.pairing == Pairing::Adjacent;
                let rotation = self.recorder.rotation(rope.n_rot / 2, neighbours)?;
                self.used.push((kind, rotation));
                rotation
            }
        };
        self.recorder.rotate(x, rotation, head)
    }
}

/// A matrix as its file has it.
pub fn stored<'a>(name: &'a str, matrix: &'a matmul::Matrix) -> Result<Matrix<'a>, ProgramError> {
    let Some((data, scale)) = matrix.stored() else {
        let ty = matrix.ty;
        return missing(format!("weights in the layouts of the CPU ({name}, {ty}); load the model without packing"));
    };
    Ok(Matrix { name, ty: matrix.ty, rows: matrix.rows, columns: matrix.cols, data, scale })
}
