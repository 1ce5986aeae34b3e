//! Importance matrices as the quantizer uses them: one positive weight per column of a matrix.

use std::collections::BTreeMap;

use thiserror::Error;
use trine_formats::imatrix::Imatrix;

/// Weights by tensor, normalised, with what the output records of their origin.
#[derive(Clone, Debug, Default)]
pub struct Importance {
    /// The file name as it was given.
    pub file: String,
    /// The first data set it was computed on.
    pub dataset: Option<Vec<u8>>,
    /// Number of chunks it was computed on; 0: unknown.
    pub chunks: u32,
    entries: BTreeMap<String, Vec<f32>>,
}

/// A matrix that cannot be used.
#[derive(Error, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ImportanceError {
    /// Infinite or not a number.
    #[error("importance matrix '{file}': {tensor} has a weight that is not finite; compute the matrix anew")]
    NotFinite {
        /// File.
        file: String,
        /// Tensor.
        tensor: String,
    },
}

/// Which tensors the weights are used for.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Names must contain one of these, unless empty.
    pub include: Vec<String>,
    /// Names must contain none of these.
    pub exclude: Vec<String>,
}

impl Selection {
    fn takes(&self, name: &str) -> bool {
        let any = |parts: &[String]| parts.iter().any(|p| name.contains(p.as_str()));
        (self.include.is_empty() || any(&self.include)) && !any(&self.exclude)
    }
}

impl Importance {
    /// The weights of the tensors that `selection` takes, from a file that was given as `file`.
    ///
    /// # Errors
    /// A weight that is not finite.
    pub fn from_file(
        matrix: &Imatrix,
        file: &str,
        selection: &Selection,
    ) -> Result<Option<Importance>, ImportanceError> {
        let dataset = matrix.datasets.first().map(|d| d.as_bytes().to_vec());
        let entries = matrix.entries.keys().filter_map(|k| Some((k.clone(), matrix.importance(k)?)));
        Importance::new(file, dataset, matrix.chunk_count, entries, selection)
    }

    /// `entries` are normalised weights. `None` when the selection leaves none: then it is as if no
    /// matrix had been given, as in llama-quantize.
    ///
    /// # Errors
    /// A weight that is not finite.
    pub fn new(
        file: &str,
        dataset: Option<Vec<u8>>,
        chunks: u32,
        entries: impl IntoIterator<Item = (String, Vec<f32>)>,
        selection: &Selection,
    ) -> Result<Option<Importance>, ImportanceError> {
        let entries: BTreeMap<String, Vec<f32>> =
            entries.into_iter().filter(|(name, _)| selection.takes(name)).collect();
        if let Some((tensor, _)) = entries.iter().find(|(_, w)| w.iter().any(|x| !x.is_finite())) {
            let (file, tensor) = (file.to_owned(), tensor.clone());
            return Err(ImportanceError::NotFinite { file, tensor });
        }
        if entries.is_empty() {
            return Ok(None);
        }
        Ok(Some(Importance { file: file.to_owned(), dataset, chunks, entries }))
    }

    /// The weights of a tensor of the input.
    pub fn get(&self, tensor: &str) -> Option<&[f32]> {
        self.entries.get(tensor).map(Vec::as_slice)
    }

    /// Number of tensors it has weights for.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Never true of one that [`Importance::new`] returned.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selection_and_emptiness() {
        let entries = || [("a.b".to_owned(), vec![1.0]), ("a.c".to_owned(), vec![2.0])];
        let parts = |p: &[&str]| p.iter().map(|s| s.to_string()).collect::<Vec<_>>();
        let only = Selection { include: parts(&["b", "x"]), exclude: vec![] };
        let got = Importance::new("f", None, 3, entries(), &only).unwrap().unwrap();
        assert_eq!((got.len(), got.get("a.b"), got.get("a.c")), (1, Some(&[1.0][..]), None));
        let none = Selection { include: vec![], exclude: parts(&["a"]) };
        assert!(Importance::new("f", None, 3, entries(), &none).unwrap().is_none());
        let nan = [("t".to_owned(), vec![f32::NAN])];
        assert!(Importance::new("f", None, 3, nan, &Selection::default()).is_err());
    }
}
