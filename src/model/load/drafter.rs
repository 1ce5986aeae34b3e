//! The parts of a drafter around its block, some of which are those of the model that it drafts for.

use std::sync::Arc;

use trine_formats::types::TypeId;

use super::ends::SharedEnds;
use super::loader::Loader;
use super::projections::Linear;
use crate::model::Problem;
use crate::model::config::{Drafter, DrafterKind, MARKOV_TABLE};
use crate::ops::matmul::Matrix;
use crate::ops::norm::{Kind, Norm};

/// The parts of a drafter around its block.
pub struct DrafterEnds {
    /// From the inputs of several blocks, side by side, to the states that the drafter reads; with the norm before it, or
    /// behind it in drafters of blocks.
    pub fuse: Linear,
    pub fuse_norm: Option<Norm>,
    /// The name and the rows of the table.
    pub embedding: (String, Matrix),
    pub output: Linear,
    pub output_norm: Option<Norm>,
    /// The tokens whose logits the output matrix makes, where these are not all.
    pub tokens: Option<Arc<[u32]>>,
    /// Tokens' vectors, and the matrix that makes biases on the logits behind a token of its vector, where there are any.
    pub markov: Option<(Matrix, Linear)>,
}

/// The parts of an assistant around its blocks.
pub struct AssistantEnds {
    /// The rows of the model's table.
    pub embedding: Matrix,
    /// From an embedding and a hidden state of the model, side by side, to the residual stream.
    pub before: Linear,
    /// From the normed residual stream to a hidden state of the model.
    pub behind: Linear,
    pub output: Linear,
    pub output_norm: Option<Norm>,
}

/// The tensor with the tokens of a smaller vocabulary.
const TOKENS: &str = "d2t";

impl Loader<'_> {
    /// The ends of a drafter; `shared` are those of the model. `None` after a problem, which is noted.
    pub fn drafter(&mut self, drafter: &Drafter, shared: SharedEnds) -> Option<DrafterEnds> {
        const FUSE: &str = "fc.weight";
        const FUSE_NORM: &str = "enc.output_norm.weight";
        const EMBEDDING: &str = "token_embd.weight";
        const OUTPUT: &str = "output.weight";
        let c = &drafter.config;
        let states = drafter.heard.len() * drafter.width;
        let tokens = self.draft_tokens(c.n_vocab)?;
        let rows = tokens.as_ref().map_or(c.n_vocab, |tokens| tokens.len());
        let mut plain = |name: &str, cols: usize, rows: usize| {
            let weight = self.matrix(name, cols, rows);
            Linear::new(name.to_owned(), self.ready(weight))
        };
        let fuse = plain(FUSE, states, c.n_embd);
        let (scale, normed) = match drafter.kind {
            DrafterKind::States { normed, .. } => (None, normed.then_some(states)),
            _ => (self.optional_floats("fc.scale", &[1]), Some(c.n_embd)),
        };
        let fuse = Linear { scale: scale.and_then(|scale| scale.first().copied()), ..fuse };
        let fuse_norm = normed.map(|n| self.norm_of(FUSE_NORM, n));
        let embedding = match self.has(EMBEDDING) {
            true => self.matrix(EMBEDDING, c.n_embd, c.n_vocab),
            false => shared.embedding,
        };
        let embedding = self.decodable(EMBEDDING, embedding);
        let output = match self.has(OUTPUT) {
            true => {
                let weight = self.matrix(OUTPUT, c.n_embd, rows);
                let weight = self.ready(weight);
                Linear::new(OUTPUT.to_owned(), weight)
            }
            // an output matrix that is missing beside embeddings is these, in drafters of blocks
            false if matches!(drafter.kind, DrafterKind::Block(_)) && self.has(EMBEDDING) => {
                let weight = self.ready(embedding.clone());
                Linear::new(EMBEDDING.to_owned(), weight)
            }
            false => Linear { bias: None, ..shared.output? },
        };
        for (name, matrix, rows) in [(EMBEDDING, &embedding, c.n_vocab), (OUTPUT, &output.weight, rows)] {
            if matrix.rows > 0 && (matrix.cols, matrix.rows) != (c.n_embd, rows) {
                let (cols, all) = (matrix.cols, matrix.rows);
                let what = format!(
                    "the file has none, and that of the model has {all} rows of {cols}, not {rows} of {}",
                    c.n_embd
                );
                self.problem(Problem::tensor(name, what));
            }
        }
        let output_norm = self.norm(None, "output_norm");
        let embedding = (EMBEDDING.to_owned(), embedding);
        let markov = self.markov(c.n_vocab, rows);
        Some(DrafterEnds { fuse, fuse_norm, embedding, output, output_norm, tokens, markov })
    }

    /// The table and the matrix of biases on `rows` logits behind each of `n_vocab` tokens, where the file has any.
    fn markov(&mut self, n_vocab: usize, rows: usize) -> Option<(Matrix, Linear)> {
        const BIASES: &str = "markov_w2.weight";
        let rank = *self.file.tensor_info(MARKOV_TABLE)?.shape.first()? as usize;
        let table = self.matrix(MARKOV_TABLE, rank, n_vocab);
        let table = self.decodable(MARKOV_TABLE, table);
        let biases = self.matrix(BIASES, rank, rows);
        let scale = self.optional_floats("markov_w2.scale", &[1]).and_then(|scale| scale.first().copied());
        Some((table, Linear { scale, ..Linear::new(BIASES.to_owned(), self.ready(biases)) }))
    }

    /// The ends of an assistant; `shared` are those of the model.
    pub fn assistant(&mut self, drafter: &Drafter, shared: SharedEnds) -> AssistantEnds {
        let (c, width) = (&drafter.config, drafter.width);
        let mut plain = |name: &str, cols: usize, rows: usize| {
            let weight = self.matrix(name, cols, rows);
            Linear::new(name.to_owned(), self.ready(weight))
        };
        let before = plain("nextn.pre_projection.weight", 2 * width, c.n_embd);
        let behind = plain("nextn.post_projection.weight", c.n_embd, width);
        let output = plain("token_embd.weight", c.n_embd, c.n_vocab);
        let output_norm = self.norm(None, "output_norm");
        AssistantEnds { embedding: shared.embedding, before, behind, output, output_norm }
    }

    /// The gains of a norm of `n` elements.
    fn norm_of(&mut self, name: &str, n: usize) -> Norm {
        let gains = self.optional_floats(name, &[n]);
        if gains.is_none() {
            self.missing(name);
        }
        let gains = gains.unwrap_or_else(|| vec![1.0; n]);
        Norm { kind: Kind::Rms, eps: self.eps, row: n.max(1), gains, bias: None }
    }

    /// The tokens of a smaller vocabulary, where the file has one of `n_vocab`; `None` after a problem, which is noted.
    fn draft_tokens(&mut self, n_vocab: usize) -> Option<Option<Arc<[u32]>>> {
        let Some(info) = self.file.tensor_info(TOKENS) else {
            return Some(None);
        };
        let n = info.shape.first().map_or(0, |&n| n as usize);
        let view = self.take(TOKENS, &[n])?;
        let ids = view.data.as_chunks::<8>().0.iter().map(|id| i64::from_le_bytes(*id));
        let ids = ids.map(|id| u32::try_from(id).ok().filter(|id| (*id as usize) < n_vocab));
        match ids.collect::<Option<Vec<u32>>>() {
            Some(ids) if view.info.ty == TypeId::I64 => Some(Some(ids.into())),
            _ => {
                let what = format!("it has to hold tokens of a vocabulary of {n_vocab}, as i64");
                self.problem(Problem::tensor(TOKENS, what));
                None
            }
        }
    }
}
