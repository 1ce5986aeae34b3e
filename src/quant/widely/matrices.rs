//! The widely linear matrices of a file.

use trine_formats::gguf::ModelFile;
use trine_formats::widely::{ARCHITECTURE, Header, Part, WidelyMatrix, find};

use super::error::WidelyQuantError;
use crate::arch::Arch;
use crate::model::Config;
use crate::widely::described;

/// All widely linear matrices of a model of architecture `fairy2i`, by their names without the endings of their
/// tensors, in the order of the file. The words of a matrix do not say how many columns the last of them has: the
/// metadata does.
///
/// # Errors
/// Metadata or matrices that are damaged.
pub fn matrices(model: &ModelFile) -> Result<Vec<(String, WidelyMatrix)>, WidelyQuantError> {
    let header = Header::read(model.meta())?;
    let config = Config::read(model).map_err(|e| WidelyQuantError::Model(e.to_string()))?;
    let (sizes, arch) = (config.sizes(), Arch::find(ARCHITECTURE));
    let mut out = Vec::new();
    for t in model.tensors() {
        let Some((base, Part::Codes)) = Part::matrix(&t.name) else {
            continue;
        };
        let tensor = arch.and_then(|arch| described(arch, &format!("{base}.weight")));
        let extents = tensor.map(|d| sizes.shape(d)).unwrap_or_default();
        let [rows, columns] = extents[..] else {
            return Err(WidelyQuantError::NoPlace(t.name.clone()));
        };
        let found = find(model, &header.rule, base, rows as usize, columns as usize)?;
        out.extend(found.map(|matrix| (base.to_owned(), matrix)));
    }
    Ok(out)
}
