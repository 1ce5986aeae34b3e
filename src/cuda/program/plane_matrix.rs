//! Matrices of any-precision weights: their memory, and the places of each width in it.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use trine_formats::anyprec::{ApView, SparseView};

use super::ProgramError;
use super::memory::size;
use crate::pack::planes::{self, Tables};
use crate::planes::{Extents, Path};

/// A matrix of any-precision weights.
#[derive(Clone)]
pub struct PlaneMatrix<'a> {
    /// Its name in the file, for errors.
    pub name: &'a str,
    /// How its products are added.
    pub path: Path,
    /// The matrix at each width of the file, ascending; the extents and the sparse weights are the same at all.
    pub views: Vec<Cow<'a, ApView>>,
}

impl fmt::Debug for PlaneMatrix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlaneMatrix").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A matrix in memory: its planes, the tables of all widths, the scales of rows of all widths on the path that has
/// them, and where there are sparse weights the ends of the rows, columns, and the differences at all widths.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct PlacedPlanes {
    pub extents: Extents,
    pub path: Path,
    /// The number of the first memory.
    pub memory: usize,
    /// Number of weights that are stored as they are.
    pub sparse: usize,
    pub widths: Vec<u8>,
}

/// The first sparse weight of a matrix, and their number. The rows may be some of a larger matrix's.
pub(super) fn sparse(view: &ApView) -> Option<(&SparseView, usize, usize)> {
    let sparse = view.sparse.as_ref()?;
    let mut ends = sparse.ptr().map(|end| end as usize);
    let first = ends.next()?;
    let count = ends.last()?.checked_sub(first)?;
    (count > 0).then_some((sparse, first, count))
}

impl PlaneMatrix<'_> {
    pub(super) fn failed(&self, what: String) -> ProgramError {
        let name = self.name;
        ProgramError::Missing(format!("{what} ({name})"))
    }

    pub(super) fn widest(&self) -> Result<&ApView, ProgramError> {
        let widest = self.views.last().map(|view| &**view);
        widest.ok_or_else(|| self.failed("any-precision weights without a width".to_owned()))
    }

    /// Some of its rows.
    pub(super) fn part(self, rows: Range<usize>) -> Result<Self, ProgramError> {
        let views = self.views.iter().map(|view| view.rows(rows.clone()).map(Cow::Owned));
        match views.collect() {
            Some(views) => Ok(PlaneMatrix { views, ..self }),
            None => Err(self.failed("any-precision weights without all their rows".to_owned())),
        }
    }

    /// The sizes of its memories in bytes.
    pub(super) fn sizes(&self) -> Result<Vec<usize>, ProgramError> {
        let (view, name) = (self.widest()?, self.name);
        let dwords = planes::dwords(view.rows, view.columns);
        let dwords = dwords.map_err(|why| ProgramError::Pack { name: name.to_owned(), why })?;
        let tables = self.views.iter().try_fold(0usize, |n, v| n.checked_add(v.lut.len()));
        let tables = tables.ok_or_else(|| self.failed("any-precision tables of that size".to_owned()))?;
        let mut sizes = vec![size(&[dwords, 4, view.planes.len()], name)?, tables];
        if self.path == Path::Fixed {
            sizes.push(size(&[view.rows, self.views.len(), 4], name)?);
        }
        if let Some((.., count)) = sparse(view) {
            sizes.extend([size(&[view.rows + 1, 4], name)?, size(&[count, 4], name)?]);
            sizes.push(size(&[count, self.views.len(), 4], name)?);
        }
        Ok(sizes)
    }

    /// The bytes of its memories.
    pub(super) fn pack(&self) -> Result<Vec<Cow<'_, [u8]>>, ProgramError> {
        let view = self.widest()?;
        let packed = planes::planes(view).map_err(|why| ProgramError::Pack { name: self.name.to_owned(), why })?;
        let dwords =
            |all: &mut dyn Iterator<Item = u32>| Cow::from(all.flat_map(u32::to_le_bytes).collect::<Vec<u8>>());
        let floats = |all: Vec<f32>| dwords(&mut all.into_iter().map(f32::to_bits));
        let (mut centroids, mut scales, mut differences) = (Vec::new(), Vec::new(), Vec::new());
        for view in &self.views {
            let tables = match self.path {
                Path::Fixed => Tables::fixed(view),
                Path::Floats => Tables::floats(view),
            };
            centroids.extend(tables.centroids);
            scales.extend(tables.scales);
            differences.extend(view.sparse_differences());
        }
        let mut parts = vec![dwords(&mut packed.into_iter()), centroids.into()];
        if self.path == Path::Fixed {
            parts.push(floats(scales));
        }
        if let Some((sparse, first, count)) = sparse(view) {
            parts.push(dwords(&mut sparse.ptr().map(|end| end as u32 - first as u32)));
            parts.push(dwords(&mut sparse.entries(first..first + count).map(|(column, _)| column as u32)));
            parts.push(floats(differences));
        }
        Ok(parts)
    }
}

impl PlacedPlanes {
    /// The widest width.
    pub(super) fn widest(&self) -> u8 {
        self.widths.last().copied().unwrap_or(0)
    }

    /// Where the tables of a width begin, and its number among the widths.
    pub(super) fn at(&self, width: u8) -> Result<(usize, usize), ProgramError> {
        let number = self.widths.iter().position(|&w| w == width);
        let number = number.ok_or_else(|| ProgramError::Missing(format!("weights of {width} bits")))?;
        let Extents { rows, groups, .. } = self.extents;
        let before = self.widths[..number].iter().map(|w| (2 * rows * groups) << w);
        Ok((before.sum(), number))
    }
}
