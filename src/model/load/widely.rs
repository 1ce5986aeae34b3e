//! Widely linear matrices, stored as codes and scales instead of weights.

use trine_formats::widely::{self, OutputForm, Part};

use super::loader::Loader;
use crate::model::Problem;
use crate::ops::matmul::Matrix;

impl Loader<'_> {
    /// A widely linear matrix; nothing where the file does not have `name` in this form, `None` after a problem.
    pub(super) fn widely_linear(&mut self, name: &str, cols: usize, rows: usize) -> Option<Option<Matrix>> {
        let (header, base) = (self.special.widely?, name.strip_suffix(".weight")?);
        match widely::find(self.file, &header.rule, base, rows, cols) {
            Ok(None) => None,
            Ok(Some(matrix)) => {
                let parts = Part::ALL.map(|part| part.name(base));
                self.used.extend(parts);
                let (path, isa) = (self.options.number_path.widely(), self.options.isa);
                Some(Some(Matrix::widely_linear(path, matrix, isa)))
            }
            Err(e) => {
                self.problem(e.into());
                // what is wrong with it was said
                self.used.insert(name.to_owned());
                Some(None)
            }
        }
    }

    /// Name of the codes that stand for a matrix of a block, in files that have such codes.
    pub(super) fn codes_name(&self, name: &str) -> Option<String> {
        let base = name.strip_suffix(".weight")?;
        let here = self.special.widely.is_some() && base.starts_with("blk.");
        here.then(|| Part::Codes.name(base))
    }

    /// Checks that the output matrix is there in the form that the keys say.
    pub(super) fn check_output(&mut self) {
        let stated = self.special.widely.map(|header| header.output);
        let name = Part::Codes.name("output");
        if stated == Some(OutputForm::Widely) && self.file.tensor_info(&name).is_none() {
            let what = "it is missing, and key 'fairy2i.wl.lm_head' is 'wl'";
            self.problem(Problem::tensor(&name, what));
        }
    }
}
