//! Reading a file of Hessians.

use std::collections::BTreeMap;

use super::{
    CHUNK_COUNT, CHUNK_SIZE, COLUMNS, DATASET, DATASET_SHA256, FIRST_CHUNK, HessianError, Hessians, INPUTS, Input,
    KIND, MODEL_SHA256, Origin, SPECIAL, SUMS, TYPE, VERSION, WEIGHTS,
};
use crate::gguf::{GgufError, Metadata, TensorInfo};
use crate::types::TypeId;

impl Hessians {
    /// Reads the header of a file: its keys and its table of tensors.
    ///
    /// # Errors
    /// Another kind of file; keys that are missing or contradict one another; tensors of another type or size.
    pub fn parse<'a>(
        meta: &Metadata,
        tensors: impl IntoIterator<Item = &'a TensorInfo>,
    ) -> Result<Hessians, HessianError> {
        if meta.get_str(TYPE)? != Some(KIND) {
            return Err(HessianError::NoHessians(
                "its general.type is not 'hessian'; rimatrix --hessian makes such a file",
            ));
        }
        match GgufError::required(VERSION, meta.get_u32(VERSION)?)? {
            1 => {}
            version => return Err(HessianError::Version(version)),
        }
        let text =
            |key: &str| -> Result<String, GgufError> { Ok(GgufError::required(key, meta.get_str(key)?)?.to_owned()) };
        let origin = Origin {
            model_sha256: text(MODEL_SHA256)?,
            dataset: text(DATASET)?,
            dataset_sha256: text(DATASET_SHA256)?,
            chunk_size: GgufError::required(CHUNK_SIZE, meta.get_u32(CHUNK_SIZE)?)?,
            first_chunk: GgufError::required(FIRST_CHUNK, meta.get_u32(FIRST_CHUNK)?)?,
            special: GgufError::required(SPECIAL, meta.get_bool(SPECIAL)?)?,
        };
        let chunks = GgufError::required(CHUNK_COUNT, meta.get_u32(CHUNK_COUNT)?)?;
        if chunks == 0 || origin.chunk_size == 0 {
            return Err(HessianError::NoHessians("no token is in its sums"));
        }
        let columns = GgufError::required(COLUMNS, meta.get_i32s(COLUMNS)?)?;
        let mut inputs = Vec::with_capacity(columns.len());
        let mut tensors = tensors.into_iter();
        for &columns in columns.iter() {
            let Some(tensor) = tensors.next() else {
                return Err(HessianError::NoHessians("it has fewer tensors than inputs"));
            };
            inputs.push(input(tensor, columns)?);
        }
        if tensors.next().is_some() {
            return Err(HessianError::NoHessians("it has more tensors than inputs"));
        }
        let names = GgufError::required(WEIGHTS, meta.get_strs(WEIGHTS)?)?;
        let numbers = GgufError::required(INPUTS, meta.get_i32s(INPUTS)?)?;
        if names.len() != numbers.len() || names.is_empty() {
            return Err(HessianError::NoHessians("hessian.weights and hessian.inputs are not of one length"));
        }
        let mut weights = BTreeMap::new();
        for (name, &number) in names.iter().zip(numbers.iter()) {
            let name = String::from_utf8_lossy(name).into_owned();
            let number = usize::try_from(number).ok().filter(|&i| i < inputs.len());
            let Some(number) = number else {
                let what = format!("its input is none of the {}", inputs.len());
                return Err(HessianError::Input { name, what });
            };
            if weights.contains_key(&name) {
                let what = "it is named twice".to_owned();
                return Err(HessianError::Input { name, what });
            }
            weights.insert(name, number);
        }
        Ok(Hessians { origin, chunks, inputs, weights })
    }
}

/// The input of a tensor, which has to be the triangle of `columns` columns.
fn input(tensor: &TensorInfo, columns: i32) -> Result<Input, HessianError> {
    let refuse = |what: String| HessianError::Input { name: tensor.name.clone(), what };
    let Some(name) = tensor.name.strip_suffix(SUMS) else {
        return Err(refuse(format!("its name does not end with {SUMS}")));
    };
    let input = Input { name: name.to_owned(), columns: u64::try_from(columns).unwrap_or(0) };
    let elements = input.elements().filter(|&n| n > 0);
    if tensor.ty != TypeId::F64 || elements != Some(tensor.elements()) {
        return Err(refuse(format!(
            "{} elements of type {} are no triangle of {columns} columns in f64",
            tensor.elements(),
            tensor.ty
        )));
    }
    Ok(input)
}
