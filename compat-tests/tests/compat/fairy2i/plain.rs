//! A LLaMA in plain single precision: keys, values, queries and probabilities are rounded to no half floats, and
//! everything but the products with matrices and the functions of [`trine::math`] is computed in double precision.

use trine::Isa;
use trine::math::{expf, powf, sincosf};
use trine::ops::matmul::{Activations, Matrix, matmul};
use trine_formats::gguf::{Blob, ModelFile};
use trine_formats::types::TypeId;
use trine_formats::widely::{Header, WidelyMatrix, dense_rows, find};
use trine_kernels::widely::Path;

/// The form in which the blocks' matrices are multiplied.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Form {
    /// The codes and scales of the file.
    Codes,
    /// The sums of their stages in F32.
    Dense,
}

/// The weights of a widely linear file.
pub struct Plain {
    embeddings: Vec<f32>,
    blocks: Vec<Block>,
    norm: Vec<f32>,
    output: Matrix,
    heads: [usize; 2],
    rope_base: f32,
    eps: f64,
    isa: Isa,
}

struct Block {
    norms: [Vec<f32>; 2],
    /// Queries, keys, values, output, gate, up, down.
    matrices: [Matrix; 7],
}

const MATRICES: [&str; 7] = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"];

fn floats(file: &ModelFile, name: &str) -> Vec<f32> {
    let view = file.tensor(name).expect("it is there");
    assert_eq!(view.info.ty, TypeId::F32, "{name}");
    let all = view.data.as_chunks().0.iter();
    all.map(|&b| f32::from_le_bytes(b)).collect()
}

/// The sum of the stages, in F32.
fn dense(m: &WidelyMatrix, isa: Isa) -> Matrix {
    let (rows, columns) = (m.shape.rows, 2 * m.shape.columns);
    let mut all = vec![0f32; 2 * rows * columns];
    let (top, bottom) = all.split_at_mut(rows * columns);
    let pairs = top.chunks_mut(columns).zip(bottom.chunks_mut(columns));
    for (row, (top, bottom)) in pairs.enumerate() {
        dense_rows(&m.shape, row, &m.words(row), &m.scales, top, bottom);
    }
    let bytes = all.iter().flat_map(|v| v.to_le_bytes()).collect();
    Matrix::new(TypeId::F32, columns, 2 * rows, Blob::from_vec(bytes), isa).expect("F32")
}

impl Plain {
    /// The model of a file of architecture `fairy2i` whose other tensors are F32 and whose embeddings serve as output.
    pub fn new(file: &ModelFile, form: Form) -> Plain {
        let (meta, isa) = (file.meta(), Isa::from_env().expect("an instruction set"));
        let header = Header::read(meta).expect("keys");
        let key = |name: &str| format!("fairy2i.{name}");
        let count = |name: &str| meta.get_u32(&key(name)).expect("a number").expect("there") as usize;
        let real = |name: &str| meta.get_f32(&key(name)).expect("a number").expect("there");
        let (d, ff) = (count("embedding_length"), count("feed_forward_length"));
        let heads = ["attention.head_count", "attention.head_count_kv"].map(count);
        let kv = d / heads[0] * heads[1];
        let sizes = [(d, d), (kv, d), (kv, d), (d, d), (ff, d), (ff, d), (d, ff)];
        let block = |n: usize| {
            let name = |name: &str| format!("blk.{n}.{name}");
            Block {
                norms: ["attn_norm.weight", "ffn_norm.weight"].map(|n| floats(file, &name(n))),
                matrices: std::array::from_fn(|i| {
                    let (rows, columns) = sizes[i];
                    let matrix = find(file, &header.rule, &name(MATRICES[i]), rows, columns);
                    let matrix = matrix.expect("a matrix").expect("there");
                    match form {
                        Form::Codes => Matrix::widely_linear(Path::Exact, matrix, isa),
                        Form::Dense => dense(&matrix, isa),
                    }
                }),
            }
        };
        let table = file.tensor("token_embd.weight").expect("it is there");
        let rows = table.info.rows() as usize;
        Plain {
            embeddings: floats(file, "token_embd.weight"),
            blocks: (0..count("block_count")).map(block).collect(),
            norm: floats(file, "output_norm.weight"),
            output: Matrix::new(TypeId::F32, d, rows, table.data, isa).expect("F32"),
            heads,
            rope_base: real("rope.freq_base"),
            eps: real("attention.layer_norm_rms_epsilon").into(),
            isa,
        }
    }

    /// The logits of all tokens, one after the other.
    pub fn logits(&self, tokens: &[u32]) -> Vec<f32> {
        let d = self.norm.len();
        let mut x: Vec<f32> = Vec::new();
        for &token in tokens {
            x.extend(&self.embeddings[token as usize * d..][..d]);
        }
        for block in &self.blocks {
            let [q, k, v, o, gate, up, down] = &block.matrices;
            let y = self.normed(&x, &block.norms[0]);
            let [mut q, mut k, v] = self.products([q, k, v], &y, d);
            self.rotate(&mut q, self.heads[0]);
            self.rotate(&mut k, self.heads[1]);
            let y = self.attention(&q, &k, &v, tokens.len());
            let [y] = self.products([o], &y, d);
            x.iter_mut().zip(&y).for_each(|(x, y)| *x += y);
            let y = self.normed(&x, &block.norms[1]);
            let [mut gate, up] = self.products([gate, up], &y, d);
            for (gate, up) in gate.iter_mut().zip(&up) {
                let e = f64::from(expf(-*gate));
                *gate = (f64::from(*gate) / (1.0 + e) * f64::from(*up)) as f32;
            }
            let [y] = self.products([down], &gate, gate.len() / tokens.len());
            x.iter_mut().zip(&y).for_each(|(x, y)| *x += y);
        }
        let y = self.normed(&x, &self.norm);
        let [logits] = self.products([&self.output], &y, d);
        logits
    }

    fn products<const N: usize>(&self, w: [&Matrix; N], x: &[f32], columns: usize) -> [Vec<f32>; N] {
        let acts = Activations::new(x, columns, self.isa);
        matmul(w, &acts).map(|y| y.to_vec())
    }

    fn normed(&self, x: &[f32], gains: &[f32]) -> Vec<f32> {
        let row = |x: &[f32]| -> Vec<f32> {
            let squares: f64 = x.iter().map(|&v| f64::from(v) * f64::from(v)).sum();
            let r = 1.0 / (squares / x.len() as f64 + self.eps).sqrt();
            let scaled = x.iter().zip(gains);
            scaled.map(|(&v, &g)| (f64::from(v) * r * f64::from(g)) as f32).collect()
        };
        x.chunks(gains.len()).flat_map(row).collect()
    }

    /// RoPE on every head, pairing its two halves.
    fn rotate(&self, x: &mut [f32], heads: usize) {
        let size = self.norm.len() / self.heads[0];
        for (i, head) in x.chunks_mut(size).enumerate() {
            let (re, im) = head.split_at_mut(size / 2);
            for (j, (re, im)) in re.iter_mut().zip(im).enumerate() {
                let step = powf(self.rope_base, -2.0 * j as f32 / size as f32);
                let (sin, cos) = sincosf((i / heads) as f32 * step);
                let [a, b, sin, cos] = [*re, *im, sin, cos].map(f64::from);
                (*re, *im) = ((a * cos - b * sin) as f32, (a * sin + b * cos) as f32);
            }
        }
    }

    fn attention(&self, q: &[f32], k: &[f32], v: &[f32], tokens: usize) -> Vec<f32> {
        let [heads, kv_heads] = self.heads;
        let size = q.len() / tokens / heads;
        let mut out = vec![0f32; q.len()];
        for (i, (q, out)) in q.chunks(size).zip(out.chunks_mut(size)).enumerate() {
            let (token, kv_head) = (i / heads, i % heads * kv_heads / heads);
            let cell = |x: &'_ [f32], t: usize| (t * kv_heads + kv_head) * size..x.len();
            let score = |t: usize| -> f64 {
                let terms = q.iter().zip(&k[cell(k, t)]);
                let sum: f64 = terms.map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
                sum / (size as f64).sqrt()
            };
            let scores: Vec<f64> = (0..=token).map(score).collect();
            let most = scores.iter().fold(f64::MIN, |m, &s| m.max(s));
            let weights = scores.iter().map(|s| f64::from(expf((s - most) as f32)));
            let weights: Vec<f64> = weights.collect();
            let total: f64 = weights.iter().sum();
            for (d, out) in out.iter_mut().enumerate() {
                let terms = weights.iter().enumerate();
                let sum: f64 = terms.map(|(t, w)| w * f64::from(v[cell(v, t).start + d])).sum();
                *out = (sum / total) as f32;
            }
        }
        out
    }
}
