//! Matrices as a model has them, and the memory that they take on a device.

use std::borrow::Cow;

use trine_formats::types::{TypeId, tq1_0};

use super::ProgramError;
use super::memory::{Kind, Memory, Quants, size};
use super::operation::Placed;
use super::plane_matrix::PlaneMatrix;
use crate::fast::WeightFormat;
use crate::fragment::ROWS;
use crate::integers::IntegerLayout;
use crate::pack::rows::{self, SLAB};
use crate::pack::{PackError, coded, floats};
use crate::plan::{integers, is_listed};
use crate::{floats as float_products, plan};

/// A matrix of weights.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    /// Its name in the file, for errors.
    pub name: &'a str,
    /// Tensor type.
    pub ty: TypeId,
    /// Number of rows.
    pub rows: usize,
    /// Weights per row.
    pub columns: usize,
    /// Rows of blocks as the file has them; of types with one scale for the whole tensor the codes of
    /// [`rows::two_bits`].
    pub data: &'a [u8],
    /// The scale of the whole tensor, of types that have one.
    pub scale: f32,
}

/// Conversion of bytes on their way to a device.
#[derive(Clone, Debug)]
pub(super) enum Layout<'a> {
    /// Floats: gains, biases.
    Floats(Cow<'a, [f32]>),
    /// Rows of blocks, as they are.
    Plain(Matrix<'a>),
    /// The table of TQ1_0 as the same weights in TQ2_0, which is decoded alike.
    AsTq2(Matrix<'a>),
    /// For products of bytes: codes, and scales where each block has one.
    Rows(Matrix<'a>),
    /// For products of types that are integers: codes, floats of blocks, and bytes of groups where there are such.
    Integers(Matrix<'a>, IntegerLayout),
    /// For products of activations in half precision: codes, and scales of groups or of columns.
    Coded(Matrix<'a>),
    /// The same where two of four weights are there: values, metadata, and scales of groups.
    Pruned(Matrix<'a>),
    /// Rows of numbers filled up to whole eights.
    Filled(Matrix<'a>),
    /// For products of floats of any kind: rows filled up to whole eights, and bounds of each.
    Bounded(Matrix<'a>),
    /// Planes, tables and sparse weights of any-precision weights.
    Planes(PlaneMatrix<'a>),
    /// The matrices of all experts, one after the other, each laid out by itself.
    Stack(Vec<Layout<'a>>),
    /// Half floats as they are.
    Table(&'a [u16]),
    /// The table of an exponential.
    Powers(&'a [u64]),
    /// Numbers as they are.
    Numbers(&'a [u32]),
}

/// Weights that fill one memory, or two or three that follow each other.
#[derive(Clone, Debug)]
pub struct Weights<'a> {
    /// The number of the first memory.
    pub memory: usize,
    parts: usize,
    layout: Layout<'a>,
}

impl Weights<'_> {
    /// The bytes of its memories in a program.
    pub fn bytes(&self, program: &super::Program) -> usize {
        let memories = program.memories().get(self.memory..self.memory + self.parts).unwrap_or_default();
        memories.iter().fold(0, |sum, memory| sum.saturating_add(memory.bytes))
    }

    /// The bytes of its memories. This is where weights are laid out, each matrix when it is asked for.
    ///
    /// # Errors
    /// Data that is not as long as the shape says.
    pub fn pack(&self) -> Result<Vec<Cow<'_, [u8]>>, ProgramError> {
        self.layout.pack()
    }
}

impl Layout<'_> {
    fn pack(&self) -> Result<Vec<Cow<'_, [u8]>>, ProgramError> {
        let failed = |matrix: &Matrix<'_>, why| ProgramError::Pack { name: matrix.name.to_owned(), why };
        let dwords = |d: &[u32]| Cow::from(d.iter().flat_map(|d| d.to_le_bytes()).collect::<Vec<_>>());
        Ok(match self {
            Layout::Floats(x) => vec![x.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>().into()],
            Layout::Plain(m) => vec![m.data.into()],
            Layout::Planes(m) => m.pack()?,
            Layout::AsTq2(m) => {
                let blocks = m.data.as_chunks().0.iter();
                let bytes: Vec<u8> = blocks.flat_map(tq1_0::to_tq2_0).collect();
                vec![bytes.into()]
            }
            Layout::Integers(m, layout) => {
                let packed = layout.pack(m.data, m.rows, m.columns);
                let packed = packed.map_err(|why| failed(m, why))?;
                let mut parts = vec![dwords(&packed.codes), dwords(&packed.floats)];
                if !packed.bytes.is_empty() {
                    parts.push(packed.bytes.into());
                }
                parts
            }
            Layout::Filled(m) => {
                vec![floats::rows(m.ty, m.data, m.rows, m.columns).map_err(|why| failed(m, why))?]
            }
            Layout::Bounded(m) => {
                let rows = floats::rows(m.ty, m.data, m.rows, m.columns).map_err(|why| failed(m, why))?;
                let bounds = floats::bounds(m.ty, m.data, m.rows, m.columns).map_err(|why| failed(m, why))?;
                vec![rows, bounds.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>().into()]
            }
            Layout::Stack(all) => {
                let mut parts: Vec<Vec<u8>> = Vec::new();
                for (i, layout) in all.iter().enumerate() {
                    let one = layout.pack()?;
                    if i == 0 {
                        // Every expert takes as much.
                        let whole = one.iter().map(|part| part.len() * all.len());
                        parts = whole.map(Vec::with_capacity).collect();
                    }
                    let pairs = parts.iter_mut().zip(one);
                    pairs.for_each(|(all, one)| all.extend_from_slice(&one));
                }
                parts.into_iter().map(Cow::from).collect()
            }
            Layout::Numbers(table) => vec![dwords(table)],
            Layout::Powers(table) => {
                let bytes: Vec<u8> = table.iter().flat_map(|x| x.to_le_bytes()).collect();
                vec![bytes.into()]
            }
            Layout::Table(table) => {
                let bytes: Vec<u8> = table.iter().flat_map(|x| x.to_le_bytes()).collect();
                vec![bytes.into()]
            }
            Layout::Coded(m) => {
                let packed = coded::pack(m.ty, m.data, m.rows, m.columns);
                let packed = packed.map_err(|why| failed(m, why))?;
                let scales: Vec<u8> = packed.scales.iter().flat_map(|s| s.to_le_bytes()).collect();
                vec![dwords(&packed.codes), scales.into()]
            }
            Layout::Pruned(m) => {
                let packed = coded::pack_pruned(m.data, m.rows, m.columns);
                let packed = packed.map_err(|why| failed(m, why))?;
                let words = |w: &[u16]| {
                    let bytes = w.iter().flat_map(|w| w.to_le_bytes());
                    Cow::from(bytes.collect::<Vec<_>>())
                };
                let codes = &packed.codes;
                vec![dwords(&codes.values), words(&codes.metadata), words(&packed.scales)]
            }
            Layout::Rows(m) => {
                let packed = match m.ty.info().is_some_and(|info| info.is_per_tensor()) {
                    true => rows::two_bits(m.data, m.rows, m.columns),
                    false => rows::blocks(m.ty, m.data, m.rows, m.columns),
                };
                let packed = packed.map_err(|why| failed(m, why))?;
                let scales = packed.scales.iter().flat_map(|s| s.to_le_bytes());
                let mut parts = vec![dwords(&packed.codes)];
                if !packed.scales.is_empty() {
                    parts.push(scales.collect::<Vec<_>>().into());
                }
                parts
            }
        })
    }
}

/// All weights of a program, and the memory that they will take.
#[derive(Default, Debug)]
pub(super) struct Store<'a> {
    pub weights: Vec<Weights<'a>>,
}

impl<'a> Store<'a> {
    /// Weights of a layout, whose parts have these sizes; the number of the first one's memory.
    pub(super) fn add(&mut self, memories: &mut Vec<Memory>, layout: Layout<'a>, parts: &[usize]) -> usize {
        let memory = memories.len();
        memories.extend(parts.iter().map(|&bytes| Memory { kind: Kind::Weights, bytes }));
        self.weights.push(Weights { memory, parts: parts.len(), layout });
        memory
    }

    /// Floats as they are, which are there once; the number of their memory.
    pub fn floats(&mut self, memories: &mut Vec<Memory>, x: &'a [f32]) -> Result<usize, ProgramError> {
        let same = |w: &&Weights<'a>| matches!(&w.layout, Layout::Floats(Cow::Borrowed(t)) if std::ptr::eq(*t, x));
        if let Some(there) = self.weights.iter().find(same) {
            return Ok(there.memory);
        }
        let bytes = size(&[x.len(), 4], "a vector")?;
        Ok(self.add(memories, Layout::Floats(x.into()), &[bytes]))
    }

    /// A table of half floats, which is there once; the number of its memory.
    pub fn halves(&mut self, memories: &mut Vec<Memory>, table: &'a [u16]) -> usize {
        let same = |w: &&Weights<'a>| matches!(&w.layout, Layout::Table(t) if std::ptr::eq(*t, table));
        match self.weights.iter().find(same) {
            Some(there) => there.memory,
            None => self.add(memories, Layout::Table(table), &[size_of_val(table)]),
        }
    }

    /// The table of an exponential, which is there once; the number of its memory.
    pub fn powers(&mut self, memories: &mut Vec<Memory>, table: &'a [u64]) -> usize {
        let same = |w: &&Weights<'a>| matches!(&w.layout, Layout::Powers(t) if std::ptr::eq(*t, table));
        match self.weights.iter().find(same) {
            Some(there) => there.memory,
            None => self.add(memories, Layout::Powers(table), &[size_of_val(table)]),
        }
    }

    /// A table of numbers; the number of its memory.
    pub fn numbers(&mut self, memories: &mut Vec<Memory>, table: &'a [u32]) -> usize {
        self.add(memories, Layout::Numbers(table), &[size_of_val(table)])
    }

    /// A matrix to multiply by activations in half precision; `None` of a type that has no such kernel. `pruned`: two
    /// of four weights are there, which [`Weights::pack`] checks.
    pub fn coded(
        &mut self,
        memories: &mut Vec<Memory>,
        matrix: Matrix<'a>,
        pruned: bool,
    ) -> Result<Option<Placed>, ProgramError> {
        let Matrix { ty, rows, columns, data, scale, .. } = matrix;
        let Some(form) = coded::form(ty, data, rows, columns, pruned) else {
            return Ok(None);
        };
        checked(&matrix)?;
        let bytes = coded::bytes(form, rows, columns);
        let bytes = bytes.map_err(|why| ProgramError::Pack { name: matrix.name.to_owned(), why })?;
        let there = matches!(form, WeightFormat::Rows(_)).then(|| self.rows_of_floats(&matrix)).flatten();
        if let Some(memory) = there {
            return Ok(Some(Placed { halves: Some(form), ..placed(&matrix, memory) }));
        }
        let layout = match form {
            WeightFormat::Dense(..) => Layout::Coded(matrix),
            WeightFormat::Sparse(_) => Layout::Pruned(matrix),
            WeightFormat::Rows(_) => Layout::Filled(matrix),
        };
        Ok(Some(Placed { ty, rows, columns, memory: self.add(memories, layout, &bytes), scale, halves: Some(form) }))
    }

    /// A table whose rows are decoded: the kernel and the number of its memory.
    pub fn table(
        &mut self,
        memories: &mut Vec<Memory>,
        matrix: Matrix<'a>,
    ) -> Result<(&'static str, usize), ProgramError> {
        let bytes = checked(&matrix)?;
        let Some(kernel) = embedding(matrix.ty) else {
            let what = format!("rows of {} ({})", matrix.ty, matrix.name);
            return Err(ProgramError::Missing(what));
        };
        if matrix.ty == TypeId::TQ1_0 {
            let blocks = size(&[matrix.rows, matrix.columns / 256, 66], matrix.name)?;
            return Ok((kernel, self.add(memories, Layout::AsTq2(matrix), &[blocks])));
        }
        if floats::size(matrix.ty).is_some() && floats::filled(matrix.columns) == matrix.columns {
            let (_, parts) = laid_out(matrix)?;
            return Ok((kernel, self.bounded(memories, matrix, &parts)));
        }
        Ok((kernel, self.plain(memories, matrix, bytes)))
    }

    /// The memory of rows of floats of any kind that are there already.
    fn rows_of_floats(&self, matrix: &Matrix<'_>) -> Option<usize> {
        let shape = |m: &Matrix<'_>| (m.ty, m.rows, m.columns);
        let same = |m: &Matrix<'a>| std::ptr::eq(m.data, matrix.data) && shape(m) == shape(matrix);
        let same = |w: &&Weights<'a>| matches!(&w.layout, Layout::Bounded(m) if same(m));
        self.weights.iter().find(same).map(|there| there.memory)
    }

    /// Rows of floats of any kind and their bounds; a table and a product with the same weights share them.
    fn bounded(&mut self, memories: &mut Vec<Memory>, matrix: Matrix<'a>, bytes: &[usize]) -> usize {
        match self.rows_of_floats(&matrix) {
            Some(there) => there,
            None => self.add(memories, Layout::Bounded(matrix), bytes),
        }
    }

    /// Rows of blocks as they are, which are there once.
    fn plain(&mut self, memories: &mut Vec<Memory>, matrix: Matrix<'a>, bytes: usize) -> usize {
        let same = |w: &&Weights<'a>| matches!(&w.layout, Layout::Plain(m) if std::ptr::eq(m.data, matrix.data));
        match self.weights.iter().find(same) {
            Some(there) => there.memory,
            None => self.add(memories, Layout::Plain(matrix), &[bytes]),
        }
    }

    /// A matrix to multiply by; one without rows has no memory.
    pub fn factor(&mut self, memories: &mut Vec<Memory>, matrix: Matrix<'a>) -> Result<Placed, ProgramError> {
        if matrix.rows == 0 {
            return Ok(placed(&matrix, 0));
        }
        let (layout, bytes) = laid_out(matrix)?;
        let memory = match layout {
            Layout::Bounded(matrix) => self.bounded(memories, matrix, &bytes),
            layout => self.add(memories, layout, &bytes),
        };
        Ok(placed(&matrix, memory))
    }

    /// The matrices of all experts, which have one shape and one type.
    pub fn stack(&mut self, memories: &mut Vec<Memory>, all: &[Matrix<'a>]) -> Result<Placed, ProgramError> {
        let Some(first) = all.first() else {
            return Err(ProgramError::Missing("no experts".to_owned()));
        };
        let shape = |m: &Matrix<'_>| (m.ty, m.rows, m.columns, m.scale.to_bits());
        if let Some(other) = all.iter().find(|m| shape(m) != shape(first)) {
            let what = format!("experts of several shapes ({})", other.name);
            return Err(ProgramError::Missing(what));
        }
        if first.rows == 0 {
            return Ok(placed(first, 0));
        }
        let layouts = all.iter().map(|m| laid_out(*m));
        let layouts = layouts.collect::<Result<Vec<_>, _>>()?;
        let of_one = layouts[0].1.iter();
        let bytes = of_one.map(|&bytes| size(&[all.len(), bytes], first.name));
        let bytes = bytes.collect::<Result<Vec<_>, _>>()?;
        let layouts = layouts.into_iter().map(|(layout, _)| layout).collect();
        Ok(placed(first, self.add(memories, Layout::Stack(layouts), &bytes)))
    }
}

fn placed(matrix: &Matrix<'_>, memory: usize) -> Placed {
    Placed { ty: matrix.ty, rows: matrix.rows, columns: matrix.columns, memory, scale: matrix.scale, halves: None }
}

/// The conversion of a matrix to multiply by, and the sizes of its memories in bytes.
fn laid_out(matrix: Matrix<'_>) -> Result<(Layout<'_>, Vec<usize>), ProgramError> {
    let Matrix { name, ty, rows, columns, .. } = matrix;
    if !plan::multiplies(ty) && !float_products::multiplies(ty) {
        let what = format!("products with {ty} ({name})");
        return Err(ProgramError::Missing(what));
    }
    checked(&matrix)?;
    if let Some(layout) = integers(ty) {
        let bytes = layout.bytes(rows, columns);
        let [codes, floats, groups] = bytes.map_err(|why| ProgramError::Pack { name: name.to_owned(), why })?;
        let parts = [codes, floats].into_iter().chain(Some(groups).filter(|bytes| *bytes > 0));
        return Ok((Layout::Integers(matrix, layout), parts.collect()));
    }
    let tiles = rows.div_ceil(ROWS);
    let tile = |dwords: usize| size(&[tiles, dwords.div_ceil(SLAB), SLAB * ROWS * 4], name);
    Ok(match ty {
        TypeId::F16 | TypeId::BF16 | TypeId::F32 => {
            let bytes = floats::bytes(ty, rows, columns);
            let bytes = bytes.map_err(|why| ProgramError::Pack { name: name.to_owned(), why })?;
            (Layout::Bounded(matrix), bytes.to_vec())
        }
        _ if is_listed(ty) => {
            let (block, dwords) = match ty {
                TypeId::Q8_0 => (32, 8),
                TypeId::Q4_0 => (32, 4),
                _ => (256, 16),
            };
            let blocks = columns / block;
            let codes = tile(size(&[blocks, dwords], name)?)?;
            let scales = size(&[tiles, blocks, ROWS * 2], name)?;
            (Layout::Rows(matrix), vec![codes, scales])
        }
        _ => {
            let codes = tile(size(&[columns.div_ceil(256), 16], name)?)?;
            (Layout::Rows(matrix), vec![codes])
        }
    })
}

/// The kernel that decodes the rows of a table.
fn embedding(ty: TypeId) -> Option<&'static str> {
    Some(match ty {
        TypeId::F32 => "embed_f32",
        TypeId::F16 => "embed_f16",
        TypeId::BF16 => "embed_bf16",
        TypeId::Q8_0 => "embed_q8_0",
        TypeId::Q4_0 => "embed_q4_0",
        TypeId::TQ1_0 | TypeId::TQ2_0 => "embed_tq2_0",
        TypeId::Q4_K => "embed_q4_k",
        TypeId::Q6_K => "embed_q6_k",
        _ => return None,
    })
}

/// True if the rows of a table of this type are decoded by a kernel. Those of a type whose products have a layout of their
/// own come from the processor, because the table, which mostly makes the logits too, would lie there twice.
pub fn embeds(ty: TypeId) -> bool {
    embedding(ty).is_some() && integers(ty).is_none()
}

/// The bytes of a matrix, which are those that it was given.
fn checked(matrix: &Matrix<'_>) -> Result<usize, ProgramError> {
    let failed = |why| ProgramError::Pack { name: matrix.name.to_owned(), why };
    let Some(info) = matrix.ty.info() else {
        let name = matrix.ty.to_string();
        return Err(failed(PackError::Type { name }));
    };
    let (rows, columns) = (matrix.rows, matrix.columns);
    let of_row = match info.is_per_tensor() {
        true => size(&[columns.div_ceil(128), 32], matrix.name)?,
        false if !columns.is_multiple_of(info.block) => {
            return Err(failed(PackError::Columns { what: info.name, columns, block: info.block }));
        }
        false => size(&[columns / info.block, info.bytes], matrix.name)?.saturating_add(info.head),
    };
    let expected = size(&[rows, of_row], matrix.name)?;
    if matrix.data.len() != expected {
        return Err(failed(PackError::Length { what: info.name, rows, columns, found: matrix.data.len(), expected }));
    }
    Ok(expected)
}

/// The form in which a type's kernels take activations; `None` for floats.
pub(super) fn quants_for(ty: TypeId) -> Option<Quants> {
    if let Some(layout) = integers(ty) {
        return Some(match ty.info().and_then(|info| info.act) {
            Some(TypeId::Q8_0) => Quants::Q8_0,
            Some(TypeId::Q8_1) => Quants::Q8_1,
            _ if layout.has_chains() => Quants::Q8KChains,
            _ => Quants::Q8K,
        });
    }
    match ty {
        TypeId::Q8_0 | TypeId::Q4_0 => Some(Quants::Q8_0),
        TypeId::I2_S => Some(Quants::Bytes { floored: true }),
        TypeId::TL1 | TypeId::TL2 => Some(Quants::Bytes { floored: false }),
        TypeId::F16 | TypeId::BF16 | TypeId::F32 => None,
        _ => Some(Quants::Q8K),
    }
}
