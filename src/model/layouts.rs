//! In which layouts a model's weights are.

use std::fmt;

use trine_formats::types::TypeId;

use crate::ops::matmul::Matrix;
use crate::ops::product::prefetch::Prefetch;

/// In which layouts the matrices of a model are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layouts {
    /// Name of the packed layout and tensor type, number of matrices, bytes; `None` for rows as in the file.
    pub kinds: Vec<(TypeId, Option<&'static str>, usize, usize)>,
    /// Prefetch distances of the GEMV kernels.
    pub prefetch: Prefetch,
}

impl Layouts {
    pub(super) fn count(&mut self, matrix: &Matrix) {
        let (name, bytes) = matrix.layout();
        let same = self.kinds.iter_mut().find(|k| k.0 == matrix.ty && k.1 == name);
        match same {
            Some((_, _, count, total)) => {
                *count += 1;
                *total += bytes;
            }
            None => self.kinds.push((matrix.ty, name, 1, bytes)),
        }
    }
}

impl fmt::Display for Layouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (ty, name, count, bytes)) in self.kinds.iter().enumerate() {
            let mb = *bytes as f64 / 1e6;
            let name = name.unwrap_or("rows as in the file");
            let comma = if i > 0 { ", " } else { "" };
            write!(f, "{comma}{count} {ty} as {name} ({mb:.1} MB)")?;
        }
        if self.kinds.iter().any(|kind| kind.1.is_some()) {
            write!(f, "; {}", self.prefetch)?;
        }
        Ok(())
    }
}
