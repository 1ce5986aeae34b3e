//! `trine.quantize`.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use trine::formats::anyprec::Calibration;
use trine::formats::imatrix::Imatrix;
use trine::quant::anyprec::Sensitivity;
use trine::quant::gptq::{self, Gptq, HessianFile};
use trine::quant::{
    Encoder, Fallback, Importance, KvOverride, Plan, Progress, RunOptions, Selection, TensorRule, nearest, parse_type,
    run,
};
use trine::{CancelToken, Recipe, Target};

use crate::error::{caused, failed, opened, system};
use crate::interrupt::interruptible;

/// Writes the model of `source` as `target` in a file type that llama-quantize knows, byte for byte as it would, or
/// that trine has besides, such as "TQ2_0", "I2_S" and "AP3-8". The file appears when it is complete. Returns its size
/// in bytes.
///
/// The options are those of rquantize, by the same names. `tensor_types` has a type for a regular expression of names:
/// {"ffn_down": "q6_k"}; the first that matches counts. `override_kv` has texts such as "general.name=str:Small".
/// `fallback` says where llama-quantize's replacement is taken for a type whose blocks do not fit: "never", "mixtures"
/// (K-quants and the like) or "always". `method` is one of the methods of `rquantize --method`; `gptq` is a file of
/// Hessians. `progress` is called with the bytes of the input that are done, with all of them, and with the name of the
/// tensor.
///
/// >>> import trine
/// >>> size = trine.quantize("model.gguf", "small.gguf", "Q8_0")
/// >>> import os
/// >>> size == os.path.getsize("small.gguf") < os.path.getsize("model.gguf")
/// True
/// >>> trine.quantize("model.gguf", "small.gguf", "Q4KM")
/// Traceback (most recent call last):
///     ...
/// ValueError: file_type: 'Q4KM' is no file type; did you mean Q4_K_M?
#[pyfunction]
#[pyo3(signature = (source, target, file_type, *, imatrix=None, include_weights=Vec::new(), exclude_weights=Vec::new(),
    pure=false, allow_requantize=false, leave_output_tensor=false, output_tensor_type=None, token_embedding_type=None,
    tensor_types=None, override_kv=Vec::new(), prune_layers=Vec::new(), keep_split=false, fallback="mixtures",
    method="nearest", gptq=None, force=false, threads=None, progress=None))]
#[allow(clippy::too_many_arguments)]
pub fn quantize(
    py: Python<'_>,
    source: PathBuf,
    target: PathBuf,
    file_type: &str,
    imatrix: Option<PathBuf>,
    include_weights: Vec<String>,
    exclude_weights: Vec<String>,
    pure: bool,
    allow_requantize: bool,
    leave_output_tensor: bool,
    output_tensor_type: Option<&str>,
    token_embedding_type: Option<&str>,
    tensor_types: Option<&Bound<'_, PyDict>>,
    override_kv: Vec<String>,
    prune_layers: Vec<u32>,
    keep_split: bool,
    fallback: &str,
    method: &str,
    gptq: Option<PathBuf>,
    force: bool,
    threads: Option<u16>,
    progress: Option<Py<PyAny>>,
) -> PyResult<u64> {
    let mut prune = prune_layers;
    prune.sort_unstable();
    prune.dedup();
    let selection = Selection { include: include_weights, exclude: exclude_weights };
    let mut recipe = Recipe {
        pure,
        allow_requantize,
        leave_output: leave_output_tensor,
        output_type: output_tensor_type.map(|name| tensor_type("output_tensor_type", name)).transpose()?,
        embedding_type: token_embedding_type.map(|name| tensor_type("token_embedding_type", name)).transpose()?,
        rules: tensor_types.map(rules).transpose()?.unwrap_or_default(),
        overrides: override_kv.iter().map(|text| setting(text)).collect::<PyResult<_>>()?,
        prune,
        keep_split,
        fallback: self::fallback(fallback)?,
        encoder: Encoder::named(method).ok_or_else(|| no_method(method))?,
        ..Recipe::new(self::target(file_type)?)
    };
    let threads = match threads {
        Some(0) => return Err(PyValueError::new_err("threads must be 1 or more, or None for all processors")),
        given => given.map_or(0, usize::from),
    };
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.exists()) {
        return Err(system(&std::io::ErrorKind::NotFound.into(), folder));
    }
    let cancel = CancelToken::new();
    let options = RunOptions { threads, force, cancel: cancel.clone(), ..RunOptions::default() };
    interruptible(py, &cancel, || {
        weigh(&mut recipe, imatrix.as_deref(), &selection, gptq.as_deref())?;
        let model = trine::open_file(&source, true).map_err(opened)?;
        let mut plan = Plan::new(&model, &recipe).map_err(|e| caused(&e))?;
        let news = News { progress, cancel: cancel.clone(), done: 0, all: plan.work(), tensor: String::new() };
        let raised = Arc::new(Mutex::new(None));
        let mut heard = Heard { news, raised: raised.clone() };
        let made = run(&model, &mut plan, &target, options, &mut heard);
        if let Some(error) = raised.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(error);
        }
        made.map(|report| report.file_bytes).map_err(|e| caused(&e))
    })?
}

/// The error about a method that there is not.
fn no_method(given: &str) -> PyErr {
    let names: Vec<String> = Encoder::ALL.iter().map(|e| format!("'{}'", e.name)).collect();
    PyValueError::new_err(format!("method must be {}, not '{given}'", names.join(" or ")))
}

/// Tells Python how far the work is.
struct News {
    progress: Option<Py<PyAny>>,
    cancel: CancelToken,
    done: u64,
    all: u64,
    tensor: String,
}

/// News, and what was raised by the function that was told.
struct Heard {
    news: News,
    raised: Arc<Mutex<Option<PyErr>>>,
}

impl Progress for Heard {
    fn tensor(&mut self, _: usize, name: &str) {
        name.clone_into(&mut self.news.tensor);
    }

    fn advance(&mut self, bytes: u64) {
        let news = &mut self.news;
        news.done += bytes;
        let Some(progress) = news.progress.as_ref().filter(|_| !news.cancel.is_cancelled()) else {
            return;
        };
        let told = Python::attach(|py| progress.call1(py, (news.done, news.all, &news.tensor)).map(drop));
        if let Err(error) = told {
            news.cancel.cancel();
            *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        }
    }
}

fn target(name: &str) -> PyResult<Target> {
    Target::parse(name).ok_or_else(|| {
        let near = nearest(name, Target::names()).map_or(String::new(), |near| format!("; did you mean {near}?"));
        PyValueError::new_err(format!("file_type: '{name}' is no file type{near}"))
    })
}

fn tensor_type(option: &str, name: &str) -> PyResult<trine::formats::types::TypeId> {
    parse_type(name).map_err(|e| PyValueError::new_err(format!("{option}: {e}")))
}

fn rules(types: &Bound<'_, PyDict>) -> PyResult<Vec<TensorRule>> {
    let rule = |(pattern, ty): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
        let (Ok(pattern), Ok(ty)) = (pattern.cast::<PyString>(), ty.cast::<PyString>()) else {
            return Err(PyTypeError::new_err("tensor_types must be a dict of str to str"));
        };
        let rule = TensorRule::parse(&format!("{pattern}={ty}"));
        rule.map_err(|e| PyValueError::new_err(format!("tensor_types: {e}")))
    };
    types.iter().map(rule).collect()
}

fn setting(text: &str) -> PyResult<KvOverride> {
    KvOverride::parse(text).map_err(|e| PyValueError::new_err(format!("override_kv: {e}")))
}

fn fallback(name: &str) -> PyResult<Fallback> {
    match name {
        "never" => Ok(Fallback::Never),
        "mixtures" => Ok(Fallback::Mixtures),
        "always" => Ok(Fallback::Always),
        other => Err(PyValueError::new_err(format!("fallback must be 'never', 'mixtures' or 'always', not '{other}'"))),
    }
}

/// Reads the files that say which weights matter.
fn weigh(recipe: &mut Recipe, imatrix: Option<&Path>, selection: &Selection, gptq: Option<&Path>) -> PyResult<()> {
    let importance = imatrix.map(|path| importance(path, selection)).transpose()?;
    if let Some(path) = gptq {
        let file = trine::open_file(path, true).map_err(opened)?;
        let hessians = HessianFile::new(path, file).map_err(|e| caused(&e))?;
        recipe.gptq =
            Some(Gptq { hessians: gptq::Calibration::File(Arc::new(hessians)), options: gptq::Options::default() });
    }
    if let Target::AnyPrecision(_) = recipe.target {
        recipe.anyprec.sensitivity = match (recipe.gptq.take(), importance) {
            (Some(gptq), _) => Sensitivity::Hessians(gptq),
            (None, Some((Some(columns), calibration))) => Sensitivity::Columns(columns, calibration),
            (None, _) => Sensitivity::Uniform,
        };
    } else if let Some((columns, _)) = importance {
        recipe.importance = columns;
    }
    Ok(())
}

/// The weights of an importance matrix, and what it was made of.
fn importance(path: &Path, selection: &Selection) -> PyResult<(Option<Importance>, Calibration)> {
    let shown = path.display().to_string();
    let within = |e: &dyn std::fmt::Display| failed(format!("'{shown}': {e}"));
    let bytes = std::fs::read(path).map_err(|e| system(&e, path))?;
    let matrix = Imatrix::parse(&bytes).map_err(|e| within(&e))?;
    let known = |n: u32| Some(n).filter(|&n| n > 0);
    let calibration = Calibration {
        dataset: matrix.datasets.first().cloned(),
        samples: known(matrix.chunk_count),
        seq_len: known(matrix.chunk_size),
        sha256: None,
    };
    let importance = Importance::from_file(&matrix, &shown, selection).map_err(|e| within(&e))?;
    Ok((importance, calibration))
}
