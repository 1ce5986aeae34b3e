//! Finds the quantized matrices of a checkpoint by the names and shapes of their tensors.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use trine_formats::safetensors::{Dtype, Tensor};

use super::error::{ConvertError, Problems};
use super::folder::{Folder, Source};
use super::hparams::HParams;
use super::unpack::codes::per_word;
use super::unpack::float8::element;
use super::unpack::form::{Form, Raw, Unpacked};

/// Methods (`quant_method`) that are read, bitnet beside them.
const METHODS: &str = "fp8, gptq, awq, compressed-tensors, modelopt, bitnet, ParetoQ and MLX";
/// Matrices of MLX, which no `quant_method` names.
const MLX: &str = "mlx";
/// Latent weights of ParetoQ, the same.
const PARETOQ: &str = "ParetoQ";
/// Names' ends of what only products with quantized activations or quantized caches use.
const UNUSED: &[&str] = &[
    ".activation_scale",
    "_activation_scale",
    ".input_scale",
    ".input_global_scale",
    ".k_scale",
    ".v_scale",
    ".qscale_act",
];

/// Replaces the tensors of quantized matrices by the matrices, and returns a sentence about them.
///
/// # Errors
/// A method that is not known; tensors that are missing or of other shapes than the method says.
pub(super) fn all(folder: &mut Folder, h: &HParams) -> Result<Option<String>, ConvertError> {
    // older files of ModelOpt stand beside config.json
    let beside = folder.json("hf_quant_config.json")?;
    let beside = beside.as_ref().and_then(|b| b.get("quantization"));
    let own = Value::Object(h.all().clone());
    let (config, method) = match (h.get("quantization_config"), beside) {
        _ if h.get("w_bits").is_some() => (&own, PARETOQ),
        _ if h.get("quantization.bits").is_some() => (h.get("quantization").unwrap_or(&Value::Null), MLX),
        (Some(config), _) => (config, config.get("quant_method").and_then(Value::as_str).unwrap_or_default()),
        (None, Some(beside)) => (beside, "modelopt"),
        (None, None) => return Ok(None),
    };
    if method == "bitnet" {
        return Ok(None);
    }
    let Some(finder) = Finder::new(folder, config, method)? else {
        return Ok(None);
    };
    let mut problems = Problems::default();
    let (mut taken, mut found) = (BTreeSet::new(), Vec::new());
    for source in &folder.tensors {
        match finder.matrix(source, &mut taken) {
            Ok(None) => {}
            Ok(Some((name, matrix))) => found.push((name, source.tensor.name.clone(), matrix)),
            Err(problem) => problems.push(problem),
        }
    }
    let unused = folder.tensors.iter().filter(|s| UNUSED.iter().any(|end| s.tensor.name.ends_with(end)));
    taken.extend(unused.map(|s| s.tensor.name.clone()));
    if !problems.is_empty() {
        return Err(ConvertError::Tensors(problems));
    }
    if found.is_empty() {
        return Err(ConvertError::Config(format!(
            "says that the weights are quantized by '{method}', and there are none that are"
        )));
    }
    let note = format!("{} matrices quantized by {method} are taken as the floats that they stand for", found.len());
    // as the reference has them
    let behind = matches!(finder.kind, Kind::Gptq { .. } | Kind::Packed { .. });
    folder.unpack(found, &taken, behind);
    Ok(Some(note))
}

/// The matrices that `quantization_config` means.
struct Finder<'a> {
    tensors: BTreeMap<&'a str, &'a Source>,
    kind: Kind,
}

/// The kinds of files.
enum Kind {
    /// Eight bits and scales; extents of a block where they are said.
    Scaled(Option<[u64; 2]>),
    Gptq {
        bits: u32,
        less: i32,
        group: Option<u64>,
    },
    Awq {
        group: Option<u64>,
    },
    Packed {
        bits: u32,
        group: Option<u64>,
    },
    Affine {
        bits: u32,
        group: u64,
    },
    Clipped {
        bits: u32,
    },
    /// NVFP4, and matrices of eight bits beside it; true if the scale of a matrix is stored inverted.
    Nvfp4 {
        inverse: bool,
    },
}

/// A matrix of a name.
type Found = (String, Unpacked);

impl<'a> Finder<'a> {
    fn new(folder: &'a Folder, config: &Value, method: &str) -> Result<Option<Finder<'a>>, ConvertError> {
        let wrong = |what: String| ConvertError::Config(format!("quantization_config: {what}"));
        let whole = |of: &Value, key: &str| of.get(key).and_then(Value::as_u64);
        let text = |of: &'_ Value, key: &str| of.get(key).and_then(Value::as_str).map(str::to_owned);
        let bits = |of: &Value, key: &str, known: &[u64]| match whole(of, key) {
            Some(bits) if known.contains(&bits) => Ok(bits as u32),
            other => {
                let said = other.map_or("not said".to_owned(), |n| n.to_string());
                let known: Vec<String> = known.iter().map(u64::to_string).collect();
                Err(wrong(format!("'{key}' is {said}; {method} is read with {}", known.join(", "))))
            }
        };
        // -1: one group of all inputs
        let group = whole(config, "group_size").filter(|g| *g > 0);
        let blocks = |list: Option<&Value>| {
            let all = list?.as_array()?;
            Some([all.first()?.as_u64()?, all.get(1)?.as_u64()?]).filter(|b| b[0] > 0 && b[1] > 0)
        };
        let kind = match method {
            "fp8" => Kind::Scaled(blocks(config.get("weight_block_size"))),
            "modelopt" if text(config, "quant_algo").is_some_and(|a| a.contains("NVFP4")) => {
                Kind::Nvfp4 { inverse: false }
            }
            "modelopt" => Kind::Scaled(None),
            "gptq" => {
                let format = text(config, "checkpoint_format").unwrap_or("gptq".into());
                let less = match format.as_str() {
                    "gptq" => 1,
                    "gptq_v2" => 0,
                    other => {
                        return Err(wrong(format!("'checkpoint_format' is '{other}'; known are gptq and gptq_v2")));
                    }
                };
                Kind::Gptq { bits: bits(config, "bits", &[2, 4, 8])?, less, group }
            }
            "awq" => {
                bits(config, "bits", &[4])?;
                match text(config, "version").unwrap_or("gemm".into()).to_lowercase().as_str() {
                    "gemm" => Kind::Awq { group },
                    other => return Err(wrong(format!("'version' is '{other}'; AWQ is read in the version gemm"))),
                }
            }
            "compressed-tensors" => {
                let groups = config.get("config_groups").and_then(Value::as_object);
                let Some(first) = groups.and_then(|g| g.values().next()) else {
                    return Err(wrong("has no 'config_groups'".into()));
                };
                let format = text(config, "format").or(text(first, "format")).unwrap_or_default();
                if groups.is_some_and(|g| g.len() > 1) && format != "nvfp4-pack-quantized" {
                    return Err(wrong("has several 'config_groups', and one kind of matrices is read".into()));
                }
                let weights = first.get("weights").unwrap_or(&Value::Null);
                match format.as_str() {
                    "float-quantized" | "int-quantized" | "naive-quantized" => {
                        Kind::Scaled(blocks(weights.get("block_structure")))
                    }
                    "pack-quantized" => {
                        let group = whole(weights, "group_size").filter(|g| *g > 0);
                        Kind::Packed { bits: bits(weights, "num_bits", &[2, 4, 8])?, group }
                    }
                    "nvfp4-pack-quantized" => Kind::Nvfp4 { inverse: true },
                    other => {
                        return Err(wrong(format!(
                            "'format' is '{other}'; known are float-quantized, int-quantized, naive-quantized, pack-quantized and nvfp4-pack-quantized"
                        )));
                    }
                }
            }
            MLX => Kind::Affine {
                bits: bits(config, "bits", &[1, 2, 4, 8])?,
                group: group.ok_or_else(|| wrong("'group_size' is not said".into()))?,
            },
            PARETOQ => match whole(config, "w_bits") {
                // without quantization
                Some(16 | 32) => return Ok(None),
                _ => Kind::Clipped { bits: bits(config, "w_bits", &[0, 1, 2, 3, 4])? },
            },
            other => {
                return Err(ConvertError::Config(format!(
                    "weights quantized by '{other}' are not supported, but those by {METHODS}; convert the checkpoint that they were made from"
                )));
            }
        };
        let tensors = folder.tensors.iter().map(|s| (s.tensor.name.as_str(), s)).collect();
        Ok(Some(Finder { tensors, kind }))
    }

    /// The matrix whose codes a tensor has, where it has some. Names of its tensors go into `taken`.
    fn matrix(&self, source: &Source, taken: &mut BTreeSet<String>) -> Result<Option<Found>, String> {
        let name = source.tensor.name.as_str();
        match self.kind {
            Kind::Scaled(blocks) => self.scaled(source, blocks, taken),
            Kind::Nvfp4 { inverse } => {
                let found = self.nvfp4(source, inverse, taken)?;
                if found.is_some() { Ok(found) } else { self.scaled(source, None, taken) }
            }
            Kind::Gptq { bits, less, group } => match name.strip_suffix(".qweight") {
                Some(base) => self.gptq(source, base, (bits, less, group), taken).map(Some),
                None => Ok(None),
            },
            Kind::Awq { group } => match name.strip_suffix(".qweight") {
                Some(base) => self.awq(source, base, group, taken).map(Some),
                None => Ok(None),
            },
            Kind::Affine { bits, group } => match name.strip_suffix(".weight") {
                Some(base) if source.tensor.dtype == Dtype::U32 => {
                    self.affine(source, base, (bits, group), taken).map(Some)
                }
                _ => Ok(None),
            },
            Kind::Clipped { bits } => match name.strip_suffix(".weight") {
                Some(base) if self.tensors.contains_key(format!("{base}.weight_clip_val").as_str()) => {
                    self.clipped(source, base, bits, taken).map(Some)
                }
                _ => Ok(None),
            },
            Kind::Packed { bits, group } => match name.strip_suffix("_packed") {
                Some(base) => self.packed(source, base, (bits, group), taken).map(Some),
                None => Ok(None),
            },
        }
    }

    /// A tensor that belongs to the matrix of `base`.
    fn part(&self, of: &Source, name: String, taken: &mut BTreeSet<String>) -> Result<Raw, String> {
        match self.tensors.get(name.as_str()) {
            Some(source) => {
                taken.insert(name);
                Ok(raw(source))
            }
            None => Err(format!("'{}' is quantized, and there is no '{name}'", of.tensor.name)),
        }
    }

    fn scaled(
        &self,
        source: &Source,
        blocks: Option<[u64; 2]>,
        taken: &mut BTreeSet<String>,
    ) -> Result<Option<Found>, String> {
        let t = &source.tensor;
        if element(t.dtype).is_none() || !t.name.ends_with("weight") && !t.name.ends_with("_proj") {
            return Ok(None);
        }
        let names = [format!("{}_scale_inv", t.name), format!("{}_scale", t.name)];
        let base = t.name.strip_suffix("weight");
        let others = base.map(|base| ["qscale_weight", "scale"].map(|end| format!("{base}{end}")));
        let name = names.iter().chain(others.iter().flatten()).find(|n| self.tensors.contains_key(n.as_str()));
        let scales = self.part(source, name.unwrap_or(&names[0]).clone(), taken)?;
        let [.., rows, columns] = t.shape[..] else {
            return Err(format!("'{}' is quantized and of shape {:?}, which is no matrix", t.name, t.shape));
        };
        let all: u64 = t.shape.iter().product::<u64>() / columns.max(1);
        let have: u64 = scales.shape.iter().product();
        let per = |[a, b]: [u64; 2]| (all.div_ceil(a) * columns.div_ceil(b) == have).then_some((a, b));
        let whole_blocks = blocks.filter(|[a, _]| all == rows || rows.is_multiple_of(*a));
        let found = whole_blocks
            .and_then(per)
            .or((have == 1).then_some((all, columns)))
            .or((have == all && blocks.is_none()).then_some((1, columns)))
            .or((have * rows == all && blocks.is_none()).then_some((rows, columns)));
        let Some((rows, width)) = found else {
            let of = blocks.map_or("a matrix or a row".to_owned(), |[a, b]| format!("blocks of {a} by {b}"));
            return Err(format!(
                "'{}' of shape {:?} has scales of shape {:?}, which are not those of {of}",
                t.name, t.shape, scales.shape
            ));
        };
        floats(&scales)?;
        let form = Form::Scaled { rows, columns: width };
        Ok(Some((t.name.clone(), unpacked((all, columns), form, raw(source), scales, t.shape.clone()))))
    }

    fn gptq(
        &self,
        source: &Source,
        base: &str,
        (bits, less, group): (u32, i32, Option<u64>),
        taken: &mut BTreeSet<String>,
    ) -> Result<Found, String> {
        let [words, outputs] = matrix(&source.tensor, Dtype::I32)?;
        let inputs = words * per_word(bits);
        let scales = self.part(source, format!("{base}.scales"), taken)?;
        let zeros = self.part(source, format!("{base}.qzeros"), taken)?;
        let index = format!("{base}.g_idx");
        let more = self.tensors.get(index.as_str()).map(|s| raw(s));
        let group = group.unwrap_or(inputs);
        let groups = inputs.div_ceil(group);
        shape(&scales, &[groups, outputs], || format!("{inputs} inputs in groups of {group}"))?;
        shape(&zeros, &[groups, outputs / per_word(bits)], || format!("{outputs} outputs in words"))?;
        if let Some(more) = &more {
            taken.insert(index);
            shape(more, &[inputs], || format!("{inputs} inputs"))?;
        }
        floats(&scales)?;
        let matrix = Unpacked {
            zeros: Some(zeros),
            more,
            ..unpacked((outputs, inputs), Form::Gptq { bits, less, group }, raw(source), scales, vec![outputs, inputs])
        };
        Ok((format!("{base}.weight"), matrix))
    }

    fn awq(
        &self,
        source: &Source,
        base: &str,
        group: Option<u64>,
        taken: &mut BTreeSet<String>,
    ) -> Result<Found, String> {
        let [inputs, words] = matrix(&source.tensor, Dtype::I32)?;
        let outputs = words * 8;
        let scales = self.part(source, format!("{base}.scales"), taken)?;
        let zeros = self.part(source, format!("{base}.qzeros"), taken)?;
        let group = group.unwrap_or(inputs);
        let groups = inputs.div_ceil(group);
        shape(&scales, &[groups, outputs], || format!("{inputs} inputs in groups of {group}"))?;
        shape(&zeros, &[groups, words], || format!("{outputs} outputs in words"))?;
        floats(&scales)?;
        let form = Form::Awq { group };
        let matrix = unpacked((outputs, inputs), form, raw(source), scales, vec![outputs, inputs]);
        Ok((format!("{base}.weight"), Unpacked { zeros: Some(zeros), ..matrix }))
    }

    fn packed(
        &self,
        source: &Source,
        base: &str,
        (bits, group): (u32, Option<u64>),
        taken: &mut BTreeSet<String>,
    ) -> Result<Found, String> {
        let [outputs, words] = matrix(&source.tensor, Dtype::I32)?;
        let scales = self.part(source, format!("{base}_scale"), taken)?;
        taken.insert(format!("{base}_shape"));
        taken.insert(format!("{base}_g_idx"));
        let n = per_word(bits);
        let groups = scales.shape.get(1).copied().unwrap_or(1);
        let inputs = group.map_or(words * n, |g| g * groups);
        let group = group.unwrap_or(inputs);
        if inputs.div_ceil(n) != words {
            return Err(format!(
                "'{}' has {words} words of {n} codes a row, and its scales are those of {groups} groups of {group}",
                source.tensor.name
            ));
        }
        shape(&scales, &[outputs, groups], || format!("{outputs} outputs"))?;
        floats(&scales)?;
        let zero_name = format!("{base}_zero_point");
        let zeros = self.tensors.get(zero_name.as_str()).map(|s| raw(s));
        if let Some(zeros) = &zeros {
            taken.insert(zero_name);
            shape(zeros, &[outputs.div_ceil(n), groups], || format!("{outputs} outputs in words"))?;
        }
        let form = Form::Packed { bits, group };
        let matrix = unpacked((outputs, inputs), form, raw(source), scales, vec![outputs, inputs]);
        Ok((base.to_owned(), Unpacked { zeros, ..matrix }))
    }

    fn affine(
        &self,
        source: &Source,
        base: &str,
        (bits, group): (u32, u64),
        taken: &mut BTreeSet<String>,
    ) -> Result<Found, String> {
        let [outputs, words] = matrix(&source.tensor, Dtype::U32)?;
        let inputs = words * per_word(bits);
        let scales = self.part(source, format!("{base}.scales"), taken)?;
        let biases = self.part(source, format!("{base}.biases"), taken)?;
        for part in [&scales, &biases] {
            shape(part, &[outputs, inputs.div_ceil(group)], || format!("{inputs} inputs in groups of {group}"))?;
            floats(part)?;
        }
        let form = Form::Affine { bits, group };
        let found = unpacked((outputs, inputs), form, raw(source), scales, vec![outputs, inputs]);
        Ok((source.tensor.name.clone(), Unpacked { more: Some(biases), ..found }))
    }

    fn clipped(&self, source: &Source, base: &str, bits: u32, taken: &mut BTreeSet<String>) -> Result<Found, String> {
        let t = &source.tensor;
        let [rows, columns] = matrix(t, t.dtype)?;
        let clip = self.part(source, format!("{base}.weight_clip_val"), taken)?;
        shape(&clip, &[rows, 1], || format!("{rows} outputs"))?;
        floats(&clip)?;
        floats(&raw(source))?;
        let found = unpacked((rows, columns), Form::Clipped { bits }, raw(source), clip, vec![rows, columns]);
        Ok((t.name.clone(), found))
    }

    fn nvfp4(&self, source: &Source, inverse: bool, taken: &mut BTreeSet<String>) -> Result<Option<Found>, String> {
        let t = &source.tensor;
        let base = if inverse { t.name.strip_suffix("_packed") } else { Some(t.name.as_str()) };
        let Some(base) = base.filter(|b| t.dtype == Dtype::U8 && b.ends_with(".weight")) else {
            return Ok(None);
        };
        let [rows, half] = matrix(t, Dtype::U8)?;
        let columns = half * 2;
        let scales = self.part(source, format!("{base}_scale"), taken)?;
        let factor = if inverse { format!("{base}_global_scale") } else { format!("{base}_scale_2") };
        let more = self.part(source, factor, taken)?;
        shape(&scales, &[rows, columns / 16], || format!("{columns} inputs in groups of 16"))?;
        if more.shape.iter().product::<u64>() != 1 || !columns.is_multiple_of(16) {
            return Err(format!("'{}' has scales of shape {:?} for the matrix, expected one", t.name, more.shape));
        }
        let matrix = unpacked((rows, columns), Form::Nvfp4 { inverse }, raw(source), scales, vec![rows, columns]);
        Ok(Some((base.to_owned(), Unpacked { more: Some(more), ..matrix })))
    }
}

fn raw(source: &Source) -> Raw {
    let t = &source.tensor;
    Raw {
        name: t.name.clone(),
        shard: source.shard,
        offset: t.offset,
        bytes: t.bytes,
        dtype: t.dtype,
        shape: t.shape.clone(),
    }
}

fn unpacked((rows, columns): (u64, u64), form: Form, codes: Raw, scales: Raw, shape: Vec<u64>) -> Unpacked {
    Unpacked { rows, columns, shape, form, codes, scales, zeros: None, more: None }
}

/// The two extents of codes in words of the type.
fn matrix(t: &Tensor, dtype: Dtype) -> Result<[u64; 2], String> {
    match t.shape[..] {
        [a, b] if t.dtype == dtype => Ok([a, b]),
        _ => Err(format!(
            "'{}' is of shape {:?} and type {}, expected a matrix of type {}",
            t.name,
            t.shape,
            t.dtype.name(),
            dtype.name()
        )),
    }
}

fn shape(part: &Raw, expected: &[u64], why: impl Fn() -> String) -> Result<(), String> {
    if part.shape == expected {
        return Ok(());
    }
    Err(format!("'{}' has shape {:?}, and {} make it {expected:?}", part.name, part.shape, why()))
}

/// Checks that scales are floats.
fn floats(scales: &Raw) -> Result<(), String> {
    match scales.dtype {
        Dtype::F16 | Dtype::BF16 | Dtype::F32 | Dtype::F8E8M0 => Ok(()),
        other => Err(format!("'{}' is of type {}, expected floats", scales.name, other.name())),
    }
}
