//! The names of the parts of a matrix, their shapes, and the order in which a whole file has them.

use crate::gguf::write::NewTensor;
use crate::types::TypeId;

/// One of the tensors that a matrix is stored as.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Part {
    /// A bit plane; 0 has the leading bits.
    Plane(u8),
    /// The centroids of a width.
    Lut(u8),
    /// The factors that rows multiply shared tables of a width by.
    Scale(u8),
    /// Which of the shared tables each row takes, an unsigned byte.
    Class,
    /// Where the sparse entries of each row begin.
    SparsePtr,
    /// Their columns.
    SparseCol,
    /// Their values.
    SparseVal,
}

impl Part {
    /// Separator between the name of a matrix and that of a part.
    pub const INFIX: &str = ".ap.";

    /// The name of this part of the matrix `base`.
    pub fn name(self, base: &str) -> String {
        let infix = Part::INFIX;
        match self {
            Part::Plane(p) => format!("{base}{infix}p{p}"),
            Part::Lut(b) => format!("{base}{infix}lut{b}"),
            Part::Scale(b) => format!("{base}{infix}scale{b}"),
            Part::Class => format!("{base}{infix}class"),
            Part::SparsePtr => format!("{base}{infix}sp_ptr"),
            Part::SparseCol => format!("{base}{infix}sp_col"),
            Part::SparseVal => format!("{base}{infix}sp_val"),
        }
    }

    /// The type of this part.
    pub fn ty(self) -> TypeId {
        match self {
            Part::Plane(_) | Part::Class => TypeId::I8,
            Part::Lut(_) | Part::Scale(_) | Part::SparseVal => TypeId::F16,
            Part::SparsePtr | Part::SparseCol => TypeId::I32,
        }
    }
}

/// The extents of a matrix.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MatrixExtents {
    /// Its name.
    pub name: String,
    /// Weights per row, `K`.
    pub columns: u64,
    /// Rows, `N`.
    pub rows: u64,
    /// Groups of columns with codebooks of their own, `G`.
    pub groups: u64,
    /// Tables that rows share, of each width; 0 where every row has its own.
    pub tables: u64,
    /// Weights that are stored as they are.
    pub sparse: u64,
}

impl MatrixExtents {
    /// The extents of a part, fastest first, without outer extents of 1.
    pub fn shape(&self, part: Part) -> Vec<u64> {
        let mut shape = match part {
            Part::Plane(_) => vec![self.columns.div_ceil(64) * 8, self.rows],
            Part::Lut(bits) if self.tables > 0 => vec![1 << bits, self.tables],
            Part::Scale(_) | Part::Class => vec![self.rows],
            Part::Lut(bits) if self.groups == 1 => vec![1 << bits, self.rows],
            Part::Lut(bits) => vec![1 << bits, self.groups, self.rows],
            Part::SparsePtr => vec![self.rows.saturating_add(1)],
            Part::SparseCol | Part::SparseVal => vec![self.sparse],
        };
        while shape.len() > 1 && shape.last() == Some(&1) {
            shape.pop();
        }
        shape
    }

    /// The part as a tensor to be written.
    pub fn tensor(&self, part: Part) -> NewTensor {
        NewTensor::new(part.name(&self.name), self.shape(part), part.ty())
    }
}

/// A section of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Section {
    /// The width that is whole when this section is there; `None` before the first.
    pub width: Option<u8>,
    /// Which part of which matrix, by its index.
    pub parts: Vec<(usize, Part)>,
}

/// The order of the parts of all matrices: the sparse entries and the numbers of shared tables, which every width
/// needs, then for each of the ascending `widths` the planes that it adds, its tables and their factors, matrix by
/// matrix.
pub fn file_order(matrices: &[MatrixExtents], widths: &[u8]) -> Vec<Section> {
    let sparse = [Part::SparsePtr, Part::SparseCol, Part::SparseVal];
    let before = matrices.iter().enumerate().flat_map(|(i, m)| {
        let sparse = sparse.into_iter().filter(|_| m.sparse > 0);
        sparse.chain((m.tables > 0).then_some(Part::Class)).map(move |p| (i, p))
    });
    let mut sections = vec![Section { width: None, parts: before.collect() }];
    let mut from = 0;
    for &width in widths {
        let parts = move |shared: bool| {
            let planes = (from..width).map(Part::Plane);
            planes.chain([Part::Lut(width)]).chain(shared.then_some(Part::Scale(width)))
        };
        sections.push(Section {
            width: Some(width),
            parts: matrices.iter().enumerate().flat_map(|(i, m)| parts(m.tables > 0).map(move |p| (i, p))).collect(),
        });
        from = width;
    }
    sections
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(sparse: u64, groups: u64, rows: u64) -> MatrixExtents {
        MatrixExtents { name: "blk.0.attn_q.weight".to_owned(), columns: 65, rows, groups, tables: 0, sparse }
    }

    #[test]
    fn shapes_have_no_outer_ones() {
        let m = matrix(3, 1, 5);
        assert_eq!(m.shape(Part::Plane(0)), [16, 5]);
        assert_eq!(m.shape(Part::Lut(4)), [16, 5]);
        assert_eq!(m.shape(Part::SparsePtr), [6]);
        assert_eq!(m.shape(Part::SparseVal), [3]);
        assert_eq!(matrix(1, 5, 7).shape(Part::Lut(3)), [8, 5, 7]);
        assert_eq!(matrix(1, 5, 1).shape(Part::Lut(3)), [8, 5]);
        assert_eq!(matrix(1, 1, 1).shape(Part::Plane(3)), [16]);
        let shared = MatrixExtents { tables: 2, ..matrix(0, 1, 5) };
        assert_eq!(shared.shape(Part::Lut(4)), [16, 2]);
        assert_eq!([Part::Scale(4), Part::Class].map(|p| shared.shape(p)), [[5], [5]]);
    }

    #[test]
    fn widths_come_one_after_the_other() {
        let sections = file_order(&[matrix(0, 1, 2), matrix(4, 1, 2)], &[3, 5]);
        let names: Vec<Vec<String>> =
            sections.iter().map(|s| s.parts.iter().map(|(i, p)| p.name(&i.to_string())).collect()).collect();
        assert_eq!(names[0], ["1.ap.sp_ptr", "1.ap.sp_col", "1.ap.sp_val"]);
        assert_eq!(
            names[1],
            ["0.ap.p0", "0.ap.p1", "0.ap.p2", "0.ap.lut3", "1.ap.p0", "1.ap.p1", "1.ap.p2", "1.ap.lut3"]
        );
        assert_eq!(names[2], ["0.ap.p3", "0.ap.p4", "0.ap.lut5", "1.ap.p3", "1.ap.p4", "1.ap.lut5"]);
        let shared = file_order(&[MatrixExtents { tables: 2, ..matrix(0, 1, 2) }], &[1, 2]);
        let parts: Vec<Vec<Part>> = shared.iter().map(|s| s.parts.iter().map(|p| p.1).collect()).collect();
        assert_eq!(parts[0], [Part::Class]);
        assert_eq!(parts[1], [Part::Plane(0), Part::Lut(1), Part::Scale(1)]);
        assert_eq!(parts[2], [Part::Plane(1), Part::Lut(2), Part::Scale(2)]);
        let widths: Vec<_> = sections.iter().map(|s| s.width).collect();
        assert_eq!(widths, [None, Some(3), Some(5)]);
    }
}
