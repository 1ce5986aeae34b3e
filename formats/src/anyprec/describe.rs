//! The matrices of an any-precision file, checked against the tensors that are there.

use std::collections::{HashMap, HashSet};

use super::keys::is_any_precision;
use super::parts::{MatrixExtents, Part, file_order};
use super::shared::expand;
use super::view::{ApView, SparseView};
use super::{AnyPrecError, Header};
use crate::gguf::{Blob, ErrorKind, GgufError, Metadata, ModelFile};

/// A matrix in any-precision form.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ApTensor {
    /// Its name, as the architecture knows it.
    pub name: String,
    /// Weights per row.
    pub columns: usize,
    /// Rows.
    pub rows: usize,
    /// Groups of columns with codebooks of their own.
    pub groups: usize,
    /// Tables that rows share, of each width; 0 where every row has its own.
    pub tables: usize,
    /// Weights that are stored as they are.
    pub sparse: usize,
}

/// The description of an any-precision file. Every part of every matrix has been looked up and has its
/// type and shape, the sparse entries are in order and in range, and the widths are those whose parts lie
/// in the file to the last byte.
#[derive(Clone, Debug)]
pub struct AnyPrec {
    header: Header,
    tensors: Vec<ApTensor>,
    index: HashMap<String, usize>,
    widths: Vec<u8>,
}

impl AnyPrec {
    /// True if the keys are those of an any-precision file, of any version.
    pub fn is(meta: &Metadata) -> bool {
        is_any_precision(meta)
    }

    /// Reads and checks the description; `None` when the file is not of this kind.
    ///
    /// The model may have been parsed with [`Limits::partial`](crate::gguf::Limits::partial): then it may
    /// end after any width.
    ///
    /// # Errors
    /// Anything that would make a weight wrong or absent at one of the [widths](AnyPrec::widths); a file
    /// that ends before its first width.
    pub fn read(model: &ModelFile) -> Result<Option<AnyPrec>, AnyPrecError> {
        let Some(header) = Header::read(model.meta())? else {
            return Ok(None);
        };
        let mut tensors = Vec::with_capacity(header.tensors.len());
        let mut index = HashMap::with_capacity(header.tensors.len());
        let mut matrices = Vec::with_capacity(header.tensors.len());
        for (name, &columns) in header.tensors.iter().zip(&header.columns) {
            let matrix = matrix(model, &header, name, columns)?;
            let size = |n: u64| {
                usize::try_from(n).map_err(|_| GgufError::tensor(name, ErrorKind::Overflow { shape: vec![n] }))
            };
            tensors.push(ApTensor {
                name: name.clone(),
                columns: size(columns)?,
                rows: size(matrix.rows)?,
                groups: header.groups as usize,
                tables: size(matrix.tables)?,
                sparse: size(matrix.sparse)?,
            });
            if index.insert(name.clone(), tensors.len() - 1).is_some() {
                return Err(GgufError::tensor(name, ErrorKind::Duplicate).into());
            }
            matrices.push(matrix);
        }
        let parts: HashSet<String> = file_order(&matrices, &header.bits)
            .iter()
            .flat_map(|s| s.parts.iter().map(|&(i, p)| p.name(&matrices[i].name)))
            .collect();
        if let Some(stray) = model.tensors().find(|t| t.name.contains(Part::INFIX) && !parts.contains(&t.name)) {
            let tensor = stray.name.clone();
            return Err(AnyPrecError::Stray { tensor });
        }
        let widths = widths(model, &header, &matrices, &parts)?;
        let out = AnyPrec { header, tensors, index, widths };
        for t in &out.tensors {
            out.check_sparse(model, t)?;
            check_classes(model, t)?;
        }
        Ok(Some(out))
    }

    /// The values of the keys.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The matrices, in the order of the file.
    pub fn tensors(&self) -> &[ApTensor] {
        &self.tensors
    }

    /// The matrix with this name.
    pub fn tensor(&self, name: &str) -> Option<&ApTensor> {
        self.index.get(name).map(|&i| &self.tensors[i])
    }

    /// The widths at which the model can run, ascending; at least one. Fewer than [`Header::bits`] when the
    /// file ends early.
    pub fn widths(&self) -> &[u8] {
        &self.widths
    }

    /// True if the file has all the widths that it was made with.
    pub fn is_whole(&self) -> bool {
        self.widths == self.header.bits
    }

    /// Checks that the model can run at `width`.
    ///
    /// # Errors
    /// It cannot; the message lists the widths there are.
    pub fn check_width(&self, width: u8) -> Result<(), AnyPrecError> {
        if self.widths.contains(&width) {
            return Ok(());
        }
        let mut available = self.widths.iter().map(u8::to_string).collect::<Vec<_>>();
        let last = available.pop().unwrap_or_default();
        let mut available = match available[..] {
            [] => last,
            _ => format!("{} and {last}", available.join(", ")),
        };
        if !self.is_whole() {
            available += "; the rest of it is not there";
        }
        Err(AnyPrecError::Width { asked: width, available })
    }

    /// The bytes of the matrix `name` at `width`, of the model that was described. Tables that rows share become
    /// tables of their own here, in memory.
    ///
    /// # Errors
    /// No such matrix or width.
    pub fn view(&self, model: &ModelFile, name: &str, width: u8) -> Result<ApView, AnyPrecError> {
        self.check_width(width)?;
        let tensor = self.tensor(name).ok_or_else(|| AnyPrecError::NoTensor(name.to_owned()))?;
        let planes = (0..width).map(|p| data(model, name, Part::Plane(p))).collect::<Result<_, _>>()?;
        let mut lut = data(model, name, Part::Lut(width))?;
        if tensor.tables > 0 {
            let [classes, scales] = [Part::Class, Part::Scale(width)].map(|part| data(model, name, part));
            lut = Blob::from_vec(expand(&classes?, &scales?, &lut, width));
        }
        Ok(ApView {
            width,
            columns: tensor.columns,
            rows: tensor.rows,
            groups: tensor.groups,
            planes,
            lut,
            sparse: self.sparse(model, tensor)?,
        })
    }

    fn sparse(&self, model: &ModelFile, tensor: &ApTensor) -> Result<Option<SparseView>, AnyPrecError> {
        if tensor.sparse == 0 {
            return Ok(None);
        }
        Ok(Some(SparseView {
            ptr: data(model, &tensor.name, Part::SparsePtr)?,
            col: data(model, &tensor.name, Part::SparseCol)?,
            val: data(model, &tensor.name, Part::SparseVal)?,
        }))
    }

    fn check_sparse(&self, model: &ModelFile, tensor: &ApTensor) -> Result<(), AnyPrecError> {
        let Some(sparse) = self.sparse(model, tensor)? else {
            return Ok(());
        };
        let refuse = |part: Part, index: usize, what: String| {
            Err(AnyPrecError::Sparse { tensor: part.name(&tensor.name), index, what })
        };
        let mut end = 0;
        for (row, ptr) in sparse.ptr().enumerate() {
            let fits = usize::try_from(ptr).is_ok_and(|p| p >= end && p <= tensor.sparse);
            if !fits || (row == 0 && ptr != 0) {
                let what = format!("{ptr} after {end}, of {} entries", tensor.sparse);
                return refuse(Part::SparsePtr, row, what);
            }
            end = ptr as usize;
        }
        if end != tensor.sparse {
            let what = format!("the rows end at {end} of {} entries", tensor.sparse);
            return refuse(Part::SparsePtr, tensor.rows, what);
        }
        let mut starts = sparse.ptr().map(|p| p as usize);
        let mut next_row = starts.next();
        let mut least = 0;
        for (i, col) in sparse.col().enumerate() {
            while next_row.is_some_and(|start| start <= i) {
                next_row = starts.next();
                least = 0;
            }
            match usize::try_from(col) {
                Ok(c) if c >= least && c < tensor.columns => least = c + 1,
                _ => {
                    let columns = tensor.columns;
                    let what = format!("column {col}, expected {least} to {}", columns - 1);
                    return refuse(Part::SparseCol, i, what);
                }
            }
        }
        match sparse.val().position(|w| !w.is_finite()) {
            Some(i) => refuse(Part::SparseVal, i, "is not a finite number".to_owned()),
            None => Ok(()),
        }
    }
}

/// Checks that the tables which rows take are there.
fn check_classes(model: &ModelFile, tensor: &ApTensor) -> Result<(), AnyPrecError> {
    if tensor.tables == 0 {
        return Ok(());
    }
    let classes = data(model, &tensor.name, Part::Class)?;
    match classes.iter().position(|&c| usize::from(c) >= tensor.tables) {
        Some(row) => {
            let (class, tables) = (classes[row], tensor.tables);
            Err(AnyPrecError::Class { tensor: Part::Class.name(&tensor.name), row, class, tables })
        }
        None => Ok(()),
    }
}

fn data(model: &ModelFile, name: &str, part: Part) -> Result<Blob, AnyPrecError> {
    let tensor = part.name(name);
    match model.tensor(&tensor) {
        Some(view) => Ok(view.data),
        None => Err(AnyPrecError::MissingPart { tensor }),
    }
}

/// The extents of a matrix, from its parts, which must all be there.
fn matrix(model: &ModelFile, header: &Header, name: &str, columns: u64) -> Result<MatrixExtents, AnyPrecError> {
    if model.tensor_info(name).is_some() {
        let tensor = name.to_owned();
        return Err(AnyPrecError::Both { tensor });
    }
    let info = |part: Part| {
        let tensor = part.name(name);
        let info = model.tensor_info(&tensor);
        info.ok_or(AnyPrecError::MissingPart { tensor })
    };
    let sparse = [Part::SparsePtr, Part::SparseCol, Part::SparseVal];
    let has_sparse = sparse.iter().any(|p| model.tensor_info(&p.name(name)).is_some());
    let rows = info(Part::Plane(0))?.rows();
    let matrix = MatrixExtents {
        name: name.to_owned(),
        columns,
        rows,
        groups: header.groups.into(),
        tables: header.shared_by(rows),
        sparse: if has_sparse { info(Part::SparseCol)?.elements() } else { 0 },
    };
    let planes = (0..header.parent_bits).map(Part::Plane);
    let luts = header.bits.iter().map(|&b| Part::Lut(b));
    let shared = header.bits.iter().map(|&b| Part::Scale(b)).chain([Part::Class]);
    let parts = planes.chain(luts).chain(shared.filter(|_| matrix.tables > 0));
    for part in parts.chain(sparse.into_iter().filter(|_| has_sparse)) {
        let info = info(part)?;
        if info.ty != part.ty() {
            return Err(AnyPrecError::PartType { tensor: info.name.clone(), found: info.ty, expected: part.ty() });
        }
        let mut found = info.shape.clone();
        while found.len() > 1 && found.last() == Some(&1) {
            found.pop();
        }
        let expected = matrix.shape(part);
        if found != expected {
            return Err(AnyPrecError::PartShape { tensor: info.name.clone(), found: info.shape.clone(), expected });
        }
    }
    let empty = match (matrix.rows, has_sparse, matrix.sparse) {
        (0, ..) => Some(Part::Plane(0)),
        (_, true, 0) => Some(Part::SparseCol),
        _ => None,
    };
    if let Some(part) = empty {
        let tensor = part.name(name);
        return Err(AnyPrecError::Empty { tensor });
    }
    Ok(matrix)
}

/// The widths whose parts are all there.
fn widths(
    model: &ModelFile,
    header: &Header,
    matrices: &[MatrixExtents],
    parts: &HashSet<String>,
) -> Result<Vec<u8>, AnyPrecError> {
    let is_there = |name: &str| {
        let info = model.tensor_info(name);
        info.is_some_and(|t| model.tensor_data(t).is_some())
    };
    let too_short = |tensor: String| {
        let bytes = |s: &crate::gguf::Shard| (*s.bytes).as_ref().len() as u64;
        let have = model.shards().iter().map(bytes).sum();
        Err(AnyPrecError::TooShort { tensor, have })
    };
    let plain = model.tensors().filter(|t| !parts.contains(&t.name));
    if let Some(t) = plain.into_iter().find(|t| !is_there(&t.name)) {
        return too_short(t.name.clone());
    }
    let mut widths = Vec::new();
    for section in file_order(matrices, &header.bits) {
        let mut names = section.parts.iter().map(|&(i, part)| part.name(&matrices[i].name));
        match (names.find(|n| !is_there(n)), section.width) {
            (None, Some(width)) => widths.push(width),
            (None, None) => {}
            (Some(name), _) if widths.is_empty() => return too_short(name),
            (Some(_), _) => break,
        }
    }
    Ok(widths)
}
