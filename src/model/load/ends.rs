//! Parts before and after the blocks.

use trine_formats::anyprec::{AnyPrec, Part};
use trine_formats::gguf::{Blob, ModelFile};

use super::connection::Connection;
use super::loader::{Loader, full_name};
use super::projections::Linear;
use crate::arch::rules::Streams as Rule;
use crate::model::Problem;
use crate::model::config::{Config, Streams};
use crate::model::lora::LowRank;
use crate::ops::matmul::Matrix;
use crate::ops::norm::Norm;

/// Where in an any-precision file each width's own planes and tables are.
pub fn sections(file: &ModelFile, anyprec: &AnyPrec) -> Vec<(u8, Blob)> {
    let mut from = 0;
    let section = |&width: &u8| {
        let planes = (from..width).map(Part::Plane);
        let parts: Vec<Part> = planes.chain([Part::Lut(width), Part::Scale(width)]).collect();
        from = width;
        let names = anyprec.tensors().iter();
        let names = names.flat_map(|t| parts.iter().map(|p| p.name(&t.name)));
        let blobs = names.filter_map(|name| file.tensor(&name)).map(|v| v.data);
        let whole = blobs.reduce(|a, b| a.span(&b).unwrap_or(a))?;
        Some((width, whole))
    };
    anyprec.widths().iter().filter_map(section).collect()
}

/// The tensors before and after the blocks.
pub struct Ends {
    pub embedding: Matrix,
    /// Adapters of the embeddings.
    pub embedding_low_rank: Vec<LowRank>,
    /// The vector of the first kind of token, added to the embedding.
    pub token_type: Option<Vec<f32>>,
    /// A vector for every position, added to the embedding.
    pub positions: Option<Matrix>,
    /// Norm of the embeddings.
    pub embedding_norm: Option<Norm>,
    /// The output matrix; `None` of models that make vectors alone.
    pub output: Option<Linear>,
    pub output_norm: Option<Norm>,
    /// Scores of the residual streams that are blended before the last norm, where any are kept.
    pub last_scores: Option<Norm>,
    /// The connection that makes one of several residual streams before the last norm, where there are several.
    pub last_connection: Option<Connection>,
    /// From the first of residual streams that are predicted to the others, and back; empty without them.
    pub others: Vec<Linear>,
    pub back: Vec<Linear>,
    /// The table, the projection and its norm that tokens' vectors for every block are made of, where there are any.
    pub layer_inputs: Option<(Matrix, Linear, Norm)>,
    /// The first input of the low stack of blocks that run in cycles; empty without any.
    pub low_state: Vec<f32>,
    /// Divisors of RoPE's frequencies in all layers: of contexts as long as those of the training, and of longer ones.
    pub rope_factors: [Option<Vec<f32>>; 2],
}

/// The ends of a model, which its heads share.
#[derive(Clone)]
pub struct SharedEnds {
    pub embedding: Matrix,
    pub output: Option<Linear>,
    pub output_norm: Option<Norm>,
    pub last_connection: Option<Connection>,
}

impl SharedEnds {
    /// The ends of a model that its heads share.
    pub fn of(ends: &Ends) -> SharedEnds {
        let Ends { embedding, output, output_norm, last_connection, .. } = ends;
        SharedEnds {
            embedding: embedding.clone(),
            output: output.clone(),
            output_norm: output_norm.clone(),
            last_connection: last_connection.clone(),
        }
    }
}

/// The gains of the scores of kept residual streams.
const SCORES: &str = "output_res_score";
/// The tensor that stands for the output too where a model has none of its own.
const TIED: &str = "token_embd.weight";
/// The output matrix.
const OUTPUT: &str = "output.weight";

/// Loads the ends; a model without `output.weight` projects with its embeddings.
pub fn ends(loader: &mut Loader<'_>, c: &Config) -> Ends {
    // a model that may lack embeddings has rows of the output matrix for them
    let embedding = loader.table(TIED).or_else(|| loader.table(OUTPUT));
    let embedding = embedding.unwrap_or_else(Matrix::empty);
    let embedding_low_rank = loader.embedding_low_rank();
    let output = match c.arch.vectors {
        true => None,
        false => Some(output(loader, &embedding, !embedding_low_rank.is_empty())),
    };
    Ends {
        token_type: loader.vector(None, "token_types.weight").map(|mut all| {
            all.truncate(c.n_embd);
            all
        }),
        output,
        embedding_low_rank,
        output_norm: loader.norm(None, "output_norm"),
        last_scores: c.kept_every.and_then(|_| {
            let norm = loader.norm(None, SCORES);
            loader.required(None, SCORES, norm)
        }),
        last_connection: c
            .streams
            .filter(|s| s.ends_weighed || s.rank.is_some())
            .and_then(|sizes| last_connection(loader, c, sizes)),
        others: predicted(loader, c, "altup_proj"),
        back: predicted(loader, c, "altup_unembd_proj"),
        layer_inputs: c.layer_input.and_then(|_| layer_inputs(loader)),
        low_state: loader.vector(None, "hrm.z_l_init").unwrap_or_default(),
        rope_factors: loader.rope_factors(),
        positions: loader.table("position_embd.weight"),
        embedding_norm: loader.norm(None, "token_embd_norm"),
        embedding,
    }
}

/// The output matrix: one of its own, or the embeddings, which adapters `changed`.
fn output(loader: &mut Loader<'_>, embedding: &Matrix, changed: bool) -> Linear {
    let output = loader.end_matrix(OUTPUT);
    loader.check_output();
    let (tensor, output) = match output {
        Some(output) => (OUTPUT, output),
        None => (TIED, embedding.clone()),
    };
    let low_rank = match tensor == TIED {
        true if changed => {
            let what = "an adapter changes it, the logits are made with it too, and only one of them can be changed";
            loader.problem(Problem::tensor(TIED, what));
            Vec::new()
        }
        true => Vec::new(),
        false => loader.low_rank(tensor, 0, 0..output.rows),
    };
    let scale = match tensor == TIED {
        true => None,
        false => loader.output_factor(output.ty),
    };
    Linear {
        low_rank,
        tensor: tensor.to_owned(),
        first_row: 0,
        weight: loader.ready(output),
        scale,
        bias: loader.vector(None, "output.bias").or_else(|| silent(loader)),
        switched: None,
    }
}

/// A bias that makes the logits of tokens which are not chosen the least number and leaves those of others, -0
/// included.
fn silent(loader: &mut Loader<'_>) -> Option<Vec<f32>> {
    let (from, to) = loader.arch.output.silent?;
    let (from, to, all) = (from as usize, to as usize, loader.sizes.vocab as usize);
    if to > all {
        let what = format!("it has {all} rows, and tokens {from} to {to} are those of images");
        loader.problem(Problem::tensor(TIED, what));
        return None;
    }
    let silent = |token: usize| if (from..to).contains(&token) { f32::MIN } else { -0.0 };
    Some((0..all).map(silent).collect())
}

/// The connection that makes one of several residual streams, which mixes none; `None` where a tensor is missing, which
/// is noted.
fn last_connection(loader: &mut Loader<'_>, c: &Config, sizes: Streams) -> Option<Connection> {
    if sizes.rank.is_some() {
        let [down, up] = ["output_hc_down", "output_hc_up"].map(|name| loader.end_linear(name));
        return Some(Connection::gated(sizes, [down?, up?], None));
    }
    let mixes = loader.end_linear("output_hc_fn")?;
    let scales = loader.vector(None, "output_hc_scale.weight")?;
    let bases = loader.vector(None, "output_hc_base.weight")?;
    Some(Connection::weighed(Streams { mixing: None, ..sizes }, c.eps, mixes, scales, bases))
}

/// The matrices between the first of residual streams that are predicted and the others.
fn predicted(loader: &mut Loader<'_>, c: &Config, name: &str) -> Vec<Linear> {
    let found = (c.arch.streams == Rule::Predicted).then(|| loader.end_matrices(name)).flatten();
    found.unwrap_or_default()
}

/// The tensors that tokens' vectors for every block are made of; `None` after a problem, which is noted.
fn layer_inputs(loader: &mut Loader<'_>) -> Option<(Matrix, Linear, Norm)> {
    let table = loader.table("per_layer_token_embd.weight");
    let project = loader.end_linear("per_layer_model_proj");
    let norm = loader.norm(None, "per_layer_proj_norm");
    Some((table?, project?, norm?))
}

impl Loader<'_> {
    /// A required end matrix, or an optional one that is there; not yet in the layout that it runs from.
    fn end_matrix(&mut self, name: &str) -> Option<Matrix> {
        let tensor = self.described(None, name)?;
        let [rows, cols] = self.sizes.shape(tensor)[..] else {
            return None;
        };
        let (cols, rows) = (cols as usize, rows as usize);
        if tensor.required {
            return Some(self.matrix(name, cols, rows));
        }
        self.optional_matrix(name, cols, rows)
    }

    /// `NAME.weight` outside the blocks with its `NAME.bias`, where there is one; `None` where the architecture or the
    /// file has no such matrix.
    pub fn end_linear(&mut self, name: &str) -> Option<Linear> {
        let tensor = format!("{name}.weight");
        let weight = self.end_matrix(&tensor)?;
        let bias = self.vector(None, &format!("{name}.bias"));
        Some(Linear { bias, ..Linear::new(tensor, self.ready(weight)) })
    }

    /// The matrices of one tensor outside the blocks; `None` after a problem, which is noted.
    pub fn end_matrices(&mut self, name: &str) -> Option<Vec<Linear>> {
        let tensor = format!("{name}.weight");
        let [count, rows, cols] = self.sizes.shape(self.described(None, &tensor)?)[..] else {
            return None;
        };
        let [cols, rows, count] = [cols, rows, count].map(|n| n as usize);
        let all = self.stacked(&tensor, [cols, rows, count], false);
        let all = self.required(None, name, all)?;
        let one = |i: usize| {
            let weight = all.rows(i * rows..(i + 1) * rows)?;
            let (weight, tensor) = (self.ready(weight), tensor.clone());
            Some(Linear { first_row: i * rows, ..Linear::new(tensor, weight) })
        };
        (0..count).map(one).collect()
    }

    /// The row of the output matrix for one token, as it is in the file; `None` where there is no such row.
    pub fn output_row(&mut self, token: usize) -> Option<Linear> {
        let (tensor, all) = match self.end_matrix(OUTPUT) {
            Some(all) => (OUTPUT, all),
            None => (TIED, self.end_matrix(TIED)?),
        };
        let row = token..token + 1;
        let scale = match tensor == TIED {
            true => None,
            false => self.output_factor(all.ty),
        };
        Some(Linear {
            weight: all.rows(row.clone())?,
            low_rank: self.low_rank(tensor, 0, row.clone()),
            bias: self.vector(None, "output.bias").and_then(|all| all.get(row).map(<[f32]>::to_vec)),
            tensor: tensor.to_owned(),
            first_row: token,
            scale,
            switched: None,
        })
    }

    /// The low-rank terms of the embeddings; rows of the first matrices are decoded.
    fn embedding_low_rank(&mut self) -> Vec<LowRank> {
        let isa = self.options.isa;
        let found = self.adapters.of_embedding(isa, &mut self.problems);
        let ready = |one: LowRank| LowRank { b: self.ready(one.b), ..one };
        found.into_iter().map(ready).collect()
    }

    /// A matrix whose rows are decoded.
    pub fn table(&mut self, name: &str) -> Option<Matrix> {
        let table = self.end_matrix(name)?;
        Some(self.decodable(name, table))
    }

    /// The embeddings of a head, and their name, where block `layer` has some of its own.
    pub fn head_table(&mut self, layer: usize) -> Option<(String, Matrix)> {
        let tensor = self.described(Some(layer), "nextn.embed_tokens.weight")?;
        let [rows, cols] = self.sizes.shape(tensor)[..] else {
            return None;
        };
        let name = full_name(Some(layer), tensor.gguf);
        let table = self.optional_matrix(&name, cols as usize, rows as usize)?;
        let table = self.decodable(&name, table);
        Some((name, table))
    }

    /// A matrix; that its rows cannot be decoded is noted.
    pub(super) fn decodable(&mut self, name: &str, table: Matrix) -> Matrix {
        if table.ty.info().is_none_or(|t| t.decode.is_none()) {
            self.problem(Problem::tensor(name, format!("trine cannot decode {} yet", table.ty)));
        }
        table
    }

    /// One set of divisors for all contexts, or one for each kind.
    pub fn rope_factors(&mut self) -> [Option<Vec<f32>>; 2] {
        if let Some(factors) = self.vector(None, "rope_freqs.weight") {
            return [Some(factors.clone()), Some(factors)];
        }
        ["rope_factors_short.weight", "rope_factors_long.weight"].map(|name| self.vector(None, name))
    }
}
