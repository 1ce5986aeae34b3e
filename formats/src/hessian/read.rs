//! Reading a file of Hessians.

use std::collections::BTreeMap;

use super::{
    CHUNK_COUNT, CHUNK_SIZE, COLUMNS, DATASET, DATASET_SHA256, EXPERTS, Expert, FIRST_CHUNK, HessianError, Hessians,
    INPUTS, Input, KIND, MODEL_SHA256, Origin, Reads, SPECIAL, SUMS, TOKENS, TYPE, VERSION, WEIGHTS,
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
        let has_experts = match GgufError::required(VERSION, meta.get_u32(VERSION)?)? {
            1 => false,
            2 => true,
            version => return Err(HessianError::Version(version)),
        };
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
        let experts = match has_experts {
            true => GgufError::required(EXPERTS, meta.get_i32s(EXPERTS)?)?.to_vec(),
            false => vec![0; names.len()],
        };
        if experts.len() != names.len() {
            return Err(HessianError::NoHessians("hessian.weights and hessian.experts are not of one length"));
        }
        let mut weights = BTreeMap::new();
        for ((name, &number), &experts) in names.iter().zip(numbers.iter()).zip(&experts) {
            let name = String::from_utf8_lossy(name).into_owned();
            let (number, experts) = (usize::try_from(number), usize::try_from(experts));
            let reads = number.ok().zip(experts.ok()).map(|(first, experts)| Reads { first, experts });
            let reads = reads.filter(|reads| {
                let end = reads.first.checked_add(reads.experts.max(1));
                end.is_some_and(|end| end <= inputs.len())
            });
            let Some(reads) = reads else {
                let what = format!("its input is none of the {}", inputs.len());
                return Err(HessianError::Input { name, what });
            };
            if weights.contains_key(&name) {
                let what = "it is named twice".to_owned();
                return Err(HessianError::Input { name, what });
            }
            weights.insert(name, reads);
        }
        if has_experts {
            let tokens = GgufError::required(TOKENS, meta.get_u32s(TOKENS)?)?;
            if tokens.len() != inputs.len() {
                return Err(HessianError::NoHessians("hessian.columns and hessian.tokens are not of one length"));
            }
            name_experts(&mut inputs, &weights, &tokens)?;
        }
        Ok(Hessians { origin, chunks, inputs, weights })
    }
}

/// Says of the inputs of stacked matrices which expert each goes to, and how many of `tokens`.
fn name_experts(inputs: &mut [Input], weights: &BTreeMap<String, Reads>, tokens: &[u32]) -> Result<(), HessianError> {
    // Stacks that share their inputs are looked at once.
    let mut known: BTreeMap<usize, usize> = BTreeMap::new();
    for (weight, reads) in weights.iter().filter(|(_, reads)| reads.experts > 0) {
        let refuse = |what: &str| HessianError::Input { name: weight.clone(), what: what.to_owned() };
        match known.insert(reads.first, reads.experts) {
            Some(experts) if experts == reads.experts => continue,
            Some(_) => return Err(refuse("its experts are not as many as those it shares inputs with")),
            None => {}
        }
        let columns = inputs[reads.first].columns;
        for (number, input) in reads.inputs().enumerate() {
            let expert = Expert { number, tokens: tokens[input].into() };
            let input = &mut inputs[input];
            if input.columns != columns {
                return Err(refuse("the inputs of its experts are of several widths"));
            }
            let name = input.name.strip_suffix(&format!(".{number}"));
            let Some(name) = name.filter(|_| input.expert.is_none()) else {
                return Err(refuse("the inputs that it names are not those of its experts, in order"));
            };
            (input.name, input.expert) = (name.to_owned(), Some(expert));
        }
    }
    let plain = weights.iter().find(|(_, reads)| reads.experts == 0 && inputs[reads.first].expert.is_some());
    match plain {
        Some((name, _)) => {
            let what = "its input is that of an expert, and it has none".to_owned();
            Err(HessianError::Input { name: name.clone(), what })
        }
        None => Ok(()),
    }
}

/// The input of a tensor, which has to be the triangle of `columns` columns.
fn input(tensor: &TensorInfo, columns: i32) -> Result<Input, HessianError> {
    let refuse = |what: String| HessianError::Input { name: tensor.name.clone(), what };
    let Some(name) = tensor.name.strip_suffix(SUMS) else {
        return Err(refuse(format!("its name does not end with {SUMS}")));
    };
    let input = Input { name: name.to_owned(), columns: u64::try_from(columns).unwrap_or(0), expert: None };
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
