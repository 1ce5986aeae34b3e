//! What the parts of a model need to say what they do as a program of a GPU.

use trine_cuda::program::{Matrix, ProgramError, Recorder, Rotation, Span};

use super::pass::RopeKind;
use crate::ops::matmul;
use crate::ops::norm::{Kind, Norm};
use crate::ops::rope::{Pairing, Rope};

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
    pub fn new(
        recorder: Recorder<'a>,
        heads: [usize; 2],
        sizes: [usize; 2],
        ropes: &'a [Rope; 2],
    ) -> Recording<'a> {
        Recording {
            recorder,
            heads,
            sizes,
            ropes,
            used: Vec::new(),
        }
    }

    /// What was recorded, and the position embedding of each of its tables.
    pub fn end(self) -> (Recorder<'a>, Vec<Rope>) {
        let used = self.used.iter();
        let ropes = used.map(|(kind, _)| self.ropes[*kind as usize].clone());
        (self.recorder, ropes.collect())
    }

    /// The norm of `x`; `x` itself where there is none.
    pub fn norm(&mut self, norm: Option<&'a Norm>, x: Span) -> Result<Span, ProgramError> {
        match norm {
            Some(norm) => {
                let (gains, row, eps) = parts(norm)?;
                self.recorder.norm(x, gains, row, eps)
            }
            None => Ok(x),
        }
    }

    /// The norm of `x` where it is, if there is one.
    pub fn norm_in_place(&mut self, norm: Option<&'a Norm>, x: Span) -> Result<(), ProgramError> {
        match norm {
            Some(norm) => {
                let (gains, row, eps) = parts(norm)?;
                self.recorder.norm_in_place(x, gains, row, eps)
            }
            None => Ok(()),
        }
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

/// A root-mean-square norm's gains, the elements that it norms together, and what it adds to the mean.
fn parts(norm: &Norm) -> Result<(&[f32], usize, f32), ProgramError> {
    let Norm {
        kind,
        eps,
        row,
        gains,
        bias,
    } = norm;
    refuse(&[
        (*kind != Kind::Rms, "layer norms"),
        (bias.is_some(), "norms with a bias"),
    ])?;
    Ok((gains, *row, *eps))
}

/// A matrix as its file has it.
pub fn stored<'a>(name: &'a str, matrix: &'a matmul::Matrix) -> Result<Matrix<'a>, ProgramError> {
    let Some((data, scale)) = matrix.stored() else {
        let ty = matrix.ty;
        return missing(format!(
            "weights in the layouts of the CPU ({name}, {ty}); load the model without packing"
        ));
    };
    Ok(Matrix {
        name,
        ty: matrix.ty,
        rows: matrix.rows,
        columns: matrix.cols,
        data,
        scale,
    })
}
