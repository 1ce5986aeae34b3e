//! From the headers of a model to the tensors of the output. Pure: no data is read.

use trine_formats::gguf::write::{Layout, NewTensor, ggml_shape};
use trine_formats::gguf::{Metadata, ModelFile, TensorInfo, Value};
use trine_formats::types::TypeId;
use trine_formats::widely::{ARCHITECTURE, BaseArch, Header, OutputForm, Part, Profile, Rule, Scope, Shape, TieRule};

use super::WidelyQuantError;
use crate::arch::{Arch, Role};
use crate::quant::choose::is_quantized;
use crate::quant::recipe::KvOverride;
use crate::quant::widely::matrices::{described, matrices};
use crate::quant::{metadata, order};
use crate::widely::passes;

/// Everything that decides the output, apart from the input.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// Stages of every matrix, 1 to 4.
    pub stages: usize,
    /// What has scales of its own.
    pub scope: Scope,
    /// Where ties go.
    pub tie: TieRule,
    /// What is rounded; that of the training script where all matrices are BF16 and single precision otherwise when
    /// `None`.
    pub profile: Option<Profile>,
    /// What becomes of the output matrix.
    pub output: OutputForm,
    /// Matrices that are quantized already may be quantized again.
    pub allow_requantize: bool,
    /// Metadata set in the output.
    pub overrides: Vec<KvOverride>,
}

impl Default for Recipe {
    fn default() -> Recipe {
        Recipe {
            stages: 2,
            scope: Scope::default(),
            tie: TieRule::default(),
            profile: None,
            output: OutputForm::default(),
            allow_requantize: false,
            overrides: Vec::new(),
        }
    }
}

/// What a tensor of the output is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    /// The bytes of the input, the rows of heads of so many elements in the order of the checkpoint, or back.
    Copied {
        /// Elements of a head whose rows change places.
        head: Option<u64>,
    },
    /// The words of a matrix.
    Codes {
        /// The matrix.
        shape: Shape,
        /// As above.
        head: Option<u64>,
    },
    /// The scales of the matrix whose words come before.
    Scales,
    /// The words of a matrix that the Fairy2i fork of llama.cpp has stored.
    Tiles {
        /// The matrix.
        shape: Shape,
    },
    /// The token embedding of such a file.
    Embeddings,
    /// The sums of the stages of a matrix.
    Dense {
        /// The matrix.
        shape: Shape,
        /// As above.
        head: Option<u64>,
    },
}

/// One tensor of the output.
#[derive(Clone, Debug)]
pub struct Row {
    /// Name in the output.
    pub name: String,
    /// Name in the input; of a matrix that becomes dense, without the ending of its parts.
    pub source: String,
    /// Type in the input.
    pub from: TypeId,
    /// Type in the output.
    pub to: TypeId,
    /// Extents in the output, fastest first.
    pub shape: Vec<u64>,
    /// Bytes of the input that are read for it, as often as they are.
    pub work: u64,
    /// What it is made of.
    pub content: Content,
}

/// What will be written.
#[derive(Debug)]
pub struct Plan {
    /// What the keys say of the matrices; of a model that becomes dense, what they said.
    pub header: Header,
    /// All keys.
    pub meta: Metadata,
    /// The tensors, in file order.
    pub rows: Vec<Row>,
    /// What was decided that nobody asked for, a sentence each.
    pub notes: Vec<String>,
}

impl Plan {
    /// Plans the widely linear form of a model.
    ///
    /// # Errors
    /// A model of another kind, or one that is quantized already.
    pub fn new(model: &ModelFile, recipe: &Recipe) -> Result<Plan, WidelyQuantError> {
        let meta = model.meta();
        if Header::is_in(meta) {
            return Err(WidelyQuantError::Already);
        }
        let name = meta.get_str("general.architecture")?.unwrap_or_default();
        let refused = || WidelyQuantError::Architecture(name.to_owned());
        let base = BaseArch::of_architecture(name).ok_or_else(refused)?;
        let arch = Arch::find(name).ok_or_else(refused)?;
        let experts = meta.get_u32(&format!("{name}.expert_count"))?;
        if experts.is_some_and(|n| n > 0) {
            return Err(refused());
        }
        let tensors = in_order(model);
        let role = |t: &TensorInfo| described(arch, &t.name).map(|d| d.role);
        let wanted = |t: &TensorInfo| match role(t) {
            Some(Role::ByRows | Role::ByColumns) => true,
            Some(Role::Output) => recipe.output == OutputForm::Widely,
            _ => false,
        };
        let matrices: Vec<&TensorInfo> = tensors.iter().copied().filter(|t| wanted(t)).collect();
        let quantized: Vec<&TensorInfo> = matrices.iter().copied().filter(|t| is_quantized(t.ty)).collect();
        if let (Some(first), false) = (quantized.first(), recipe.allow_requantize) {
            return Err(WidelyQuantError::Requantize {
                count: quantized.len(),
                first: first.name.clone(),
                ty: first.ty,
            });
        }
        let mut notes = Vec::new();
        let all_bf16 = matrices.iter().all(|t| t.ty == TypeId::BF16);
        let profile = recipe.profile.unwrap_or(match all_bf16 {
            true => Profile::ScriptBf16,
            false => Profile::F32,
        });
        let rule = Rule { stages: recipe.stages, scope: recipe.scope, profile, tie: recipe.tie };
        let head_dim = head_dim(meta, name)?;
        let mut rows = Vec::new();
        for t in tensors {
            let interleaved = described(arch, &t.name).is_some_and(|d| d.rope_rows);
            let head = head_dim.filter(|_| interleaved && arch.interleaves_heads());
            let (height, width) = (t.rows() as usize, t.columns() as usize);
            match rule.shape(height, width).filter(|_| wanted(t)) {
                Some(shape) => rows.extend(coded(t, shape, head, passes(&rule))),
                None => {
                    if wanted(t) {
                        notes.push(format!(
                            "{} stays dense: {height} rows and {width} columns cannot be halved",
                            t.name
                        ));
                    }
                    rows.push(copied(t, head));
                }
            }
        }
        if !rows.iter().any(|r| r.content == Content::Scales) {
            return Err(WidelyQuantError::NoMatrices);
        }
        let output = Part::Codes.name("output");
        let output = match rows.iter().any(|r| r.name == output) {
            true => OutputForm::Widely,
            false => OutputForm::Dense,
        };
        if output != recipe.output {
            notes.push("the output matrix stays dense: the embeddings serve as output, or it cannot be halved".into());
        }
        let header = Header { base, rule, output };
        let mut meta = Header::rename(&metadata::of_one_file(meta), name, ARCHITECTURE);
        meta.remove("general.file_type");
        Header::complete(&mut meta);
        header.write(&mut meta);
        metadata::set(&mut meta, &recipe.overrides);
        Ok(Plan { header, meta, rows, notes })
    }

    /// Plans the dense model that a widely linear one computes, its matrices as `ty`: F32, F16 or BF16.
    ///
    /// # Errors
    /// Another type; a model that is damaged.
    pub fn dense(model: &ModelFile, ty: TypeId, overrides: &[KvOverride]) -> Result<Plan, WidelyQuantError> {
        let file_type = match ty {
            TypeId::F32 => 0,
            TypeId::F16 => 1,
            TypeId::BF16 => 32,
            other => return Err(WidelyQuantError::DenseType(other.to_string())),
        };
        let header = Header::read(model.meta())?;
        let name = header.base.name();
        let refused = || WidelyQuantError::Architecture(name.to_owned());
        let arch = Arch::find(name).ok_or_else(refused)?;
        let head_dim = head_dim(model.meta(), ARCHITECTURE)?;
        let matrices = matrices(model)?;
        let mut rows = Vec::new();
        for t in in_order(model) {
            let (source, weight) = match Part::matrix(&t.name) {
                Some((_, Part::Scale)) => continue,
                Some((base, Part::Codes)) => (base.to_owned(), format!("{base}.weight")),
                None => (t.name.clone(), t.name.clone()),
            };
            let interleaved = described(arch, &weight).is_some_and(|d| d.rope_rows);
            let head = head_dim.filter(|_| interleaved && arch.interleaves_heads());
            if source == t.name {
                rows.push(copied(t, head));
                continue;
            }
            let matrix = matrices.iter().find(|(name, _)| *name == source);
            let shape = matrix.map(|(_, m)| m.shape);
            let shape = shape.ok_or_else(|| WidelyQuantError::NoPlace(t.name.clone()))?;
            rows.push(Row {
                name: weight,
                source,
                from: t.ty,
                to: ty,
                shape: vec![2 * shape.columns as u64, 2 * shape.rows as u64],
                work: t.bytes,
                content: Content::Dense { shape, head },
            });
        }
        let mut meta = Header::rename(&metadata::of_one_file(model.meta()), ARCHITECTURE, name);
        Header::remove(&mut meta);
        meta.set("general.file_type", Value::U32(file_type));
        metadata::set(&mut meta, overrides);
        Ok(Plan { header, meta, rows, notes: Vec::new() })
    }

    /// The header and the offsets of the output.
    ///
    /// # Errors
    /// What GGUF cannot hold.
    pub fn layout(&self) -> Result<Layout, WidelyQuantError> {
        let tensors: Vec<NewTensor> =
            self.rows.iter().map(|r| NewTensor::new(r.name.clone(), r.shape.clone(), r.to)).collect();
        Ok(Layout::new(&self.meta, &tensors)?)
    }

    /// Real weights of the widely linear matrices, and the bits that codes and scales take for each.
    pub fn bits(&self) -> (u64, f64) {
        let (mut weights, mut bits) = (0, 0);
        for row in &self.rows {
            if let Content::Codes { shape, .. } | Content::Dense { shape, .. } | Content::Tiles { shape } = row.content
            {
                let complex = (shape.rows * shape.columns) as u64;
                weights += 4 * complex;
                bits += 4 * shape.stages as u64 * complex;
                bits += 32 * (shape.groups() * shape.group_scales()) as u64;
            }
        }
        (weights, bits as f64 / weights.max(1) as f64)
    }
}

/// Whether a file has the rows of heads in another order than checkpoints, which those with widely linear matrices do
/// not.
pub(super) fn is_interleaved(model: &ModelFile) -> bool {
    !Header::is_in(model.meta())
}

/// The tensors in llama.cpp's order.
fn in_order(model: &ModelFile) -> Vec<&TensorInfo> {
    let mut tensors: Vec<&TensorInfo> = model.tensors().collect();
    tensors.sort_by(|a, b| order::compare(&a.name, &b.name));
    tensors
}

/// Elements of a head.
fn head_dim(meta: &Metadata, arch: &str) -> Result<Option<u64>, WidelyQuantError> {
    let number = |key: &str| meta.get_u64(&format!("{arch}.{key}"));
    if let Some(n) = number("attention.key_length")? {
        return Ok(Some(n));
    }
    let (embd, heads) = (number("embedding_length")?, number("attention.head_count")?);
    Ok(embd.and_then(|embd| embd.checked_div(heads?)))
}

pub(super) fn copied(t: &TensorInfo, head: Option<u64>) -> Row {
    Row {
        name: t.name.clone(),
        source: t.name.clone(),
        from: t.ty,
        to: t.ty,
        shape: ggml_shape(&t.shape).to_vec(),
        work: t.bytes,
        content: Content::Copied { head },
    }
}

/// The two tensors of a matrix.
fn coded(t: &TensorInfo, shape: Shape, head: Option<u64>, passes: usize) -> [Row; 2] {
    let base = t.name.strip_suffix(".weight").unwrap_or(&t.name);
    let row = |part: Part, extents: &[u64], work, content| Row {
        name: part.name(base),
        source: t.name.clone(),
        from: t.ty,
        to: part.ty(),
        shape: extents.to_vec(),
        work,
        content,
    };
    let codes = Content::Codes { shape, head };
    [
        row(Part::Codes, &shape.codes_extents(), t.bytes * passes as u64, codes),
        row(Part::Scale, &shape.scale_extents(), 0, Content::Scales),
    ]
}
