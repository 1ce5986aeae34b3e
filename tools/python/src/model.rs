//! `trine.Model`.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use trine::formats::types::TypeId;
use trine::{
    CancelToken, Context, ContextOptions, GenerateOptions, OpenOptions, Prompt, SamplerOptions, SessionOptions,
    open_with,
};

use crate::error::failed;
use crate::values;

/// A loaded model. Threads of Python may share it.
#[pyclass(frozen, module = "trine")]
pub struct Model {
    inner: trine::Model,
    path: PathBuf,
}

/// A text or a list of token ids.
#[derive(FromPyObject)]
pub enum Text {
    /// A text, which is encoded as the model wants it.
    Text(String),
    /// Token ids, taken as they are.
    Tokens(Vec<u32>),
}

impl From<Text> for Prompt {
    fn from(text: Text) -> Prompt {
        match text {
            Text::Text(text) => Prompt::Text(text),
            Text::Tokens(tokens) => Prompt::Tokens(tokens),
        }
    }
}

impl Model {
    fn tokens(&self, text: Text) -> PyResult<Vec<u32>> {
        match text {
            Text::Text(text) => {
                let tokens = self.inner.tokenizer().encode(&text, true, true);
                tokens.map_err(failed)
            }
            Text::Tokens(tokens) => Ok(tokens),
        }
    }
}

/// A type of keys and values by its name.
fn cache_type(name: &str) -> PyResult<TypeId> {
    let unknown = || PyValueError::new_err(format!("'{name}' is no type of keys and values"));
    let ty = TypeId::from_name(name).ok_or_else(unknown)?;
    match trine::kv::CacheTypes::ALL.contains(&ty) {
        true => Ok(ty),
        false => Err(unknown()),
    }
}

#[pymethods]
impl Model {
    #[new]
    #[pyo3(signature = (path, *, threads=None, mmap=true, repack=true, cache_type_k="f16", cache_type_v="f16"))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        threads: Option<usize>,
        mmap: bool,
        repack: bool,
        cache_type_k: &str,
        cache_type_v: &str,
    ) -> PyResult<Model> {
        if threads == Some(0) {
            return Err(PyValueError::new_err("threads is 0; give 1 or more, or None"));
        }
        let options = OpenOptions {
            threads,
            mmap,
            repack,
            cache: trine::kv::CacheTypes { keys: cache_type(cache_type_k)?, values: cache_type(cache_type_v)? },
            ..OpenOptions::default()
        };
        let inner = py.detach(|| open_with(&path, &options)).map_err(failed)?;
        Ok(Model { inner, path })
    }

    /// Where it was opened.
    #[getter]
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// Tokens of the vocabulary.
    #[getter]
    fn n_vocab(&self) -> usize {
        self.inner.tokenizer().n_vocab()
    }

    /// The length of context that the model was trained with.
    #[getter]
    fn n_ctx_train(&self) -> usize {
        self.inner.n_ctx_train()
    }

    /// Threads of a forward pass; the results are bit-identical for any number.
    #[getter]
    fn threads(&self) -> usize {
        self.inner.threads()
    }

    /// The metadata of the file.
    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        values::metadata(py, self.inner.metadata())
    }

    /// Text to token ids.
    #[pyo3(signature = (text, *, add_special=true, parse_special=true))]
    fn tokenize(&self, text: &str, add_special: bool, parse_special: bool) -> PyResult<Vec<u32>> {
        let tokenizer = self.inner.tokenizer();
        let tokens = tokenizer.encode(text, add_special, parse_special);
        tokens.map_err(failed)
    }

    /// Token ids to text; control tokens are left out unless `special` is there.
    #[pyo3(signature = (tokens, *, special=false))]
    fn detokenize(&self, tokens: Vec<u32>, special: bool) -> PyResult<String> {
        let tokenizer = self.inner.tokenizer();
        if let Some(id) = tokens.iter().find(|id| **id as usize >= tokenizer.n_vocab()) {
            return Err(PyValueError::new_err(format!(
                "token {id} is outside the vocabulary of {}",
                tokenizer.n_vocab()
            )));
        }
        let mut detokenizer = tokenizer.detokenizer(special);
        let mut text: String = tokens.iter().map(|&id| detokenizer.push(id)).collect();
        text += &detokenizer.finish();
        Ok(text)
    }

    /// The text that follows `prompt`.
    #[pyo3(signature = (prompt, max_tokens=128, *, temperature=0.8, top_k=40, top_p=0.95, min_p=0.05,
        repeat_penalty=1.0, seed=0, stop=Vec::new(), n_ctx=None))]
    #[allow(clippy::too_many_arguments)]
    fn generate(
        &self,
        py: Python<'_>,
        prompt: Text,
        max_tokens: i64,
        temperature: f32,
        top_k: i32,
        top_p: f32,
        min_p: f32,
        repeat_penalty: f32,
        seed: u32,
        stop: Vec<String>,
        n_ctx: Option<usize>,
    ) -> PyResult<String> {
        let mut generation =
            self.stream(prompt, max_tokens, temperature, top_k, top_p, min_p, repeat_penalty, seed, stop, n_ctx)?;
        let mut whole = String::new();
        while let Some(text) = generation.__next__(py)? {
            whole += &text;
        }
        Ok(whole)
    }

    /// The same, part by part as it comes.
    #[pyo3(signature = (prompt, max_tokens=128, *, temperature=0.8, top_k=40, top_p=0.95, min_p=0.05,
        repeat_penalty=1.0, seed=0, stop=Vec::new(), n_ctx=None))]
    #[allow(clippy::too_many_arguments)]
    fn stream(
        &self,
        prompt: Text,
        max_tokens: i64,
        temperature: f32,
        top_k: i32,
        top_p: f32,
        min_p: f32,
        repeat_penalty: f32,
        seed: u32,
        stop: Vec<String>,
        n_ctx: Option<usize>,
    ) -> PyResult<Generation> {
        let options = GenerateOptions {
            max_tokens: usize::try_from(max_tokens).ok(),
            sampler: SamplerOptions {
                seed,
                temp: temperature,
                top_k,
                top_p,
                min_p,
                repeat_penalty,
                banned: self.inner.suppressed_tokens().to_vec(),
                ..SamplerOptions::default()
            },
            stop,
            ..GenerateOptions::default()
        };
        let cancel = options.cancel.clone();
        let context = self.inner.context(&ContextOptions { n_ctx, ..ContextOptions::default() });
        let generation = context.into_generation(Prompt::from(prompt), &options);
        Ok(Generation { inner: Mutex::new(Some(generation.map_err(failed)?)), cancel })
    }

    /// The logits after every token of `prompt`, or after the last alone: an array `[tokens][n_vocab]` in single
    /// precision, with the bits of llama.cpp's portable build.
    #[pyo3(signature = (prompt, *, last=false))]
    fn logits<'py>(&self, py: Python<'py>, prompt: Text, last: bool) -> PyResult<Bound<'py, PyAny>> {
        let tokens = self.tokens(prompt)?;
        let Some(end) = tokens.len().checked_sub(1) else {
            return Err(PyValueError::new_err("there is no token"));
        };
        let from = if last { end } else { 0 };
        let computed = py.detach(|| {
            let mut session = self.inner.session(SessionOptions {
                n_ctx: tokens.len().max(self.inner.n_ctx_train()),
                n_ubatch: ContextOptions::default().n_ubatch,
            });
            let mut all = Vec::new();
            let done = session.eval(&tokens, from, &mut |_, row| all.extend_from_slice(row));
            done.map(|()| all)
        });
        values::array(py, &computed.map_err(failed)?, tokens.len() - from)
    }

    /// How well the model predicts a text: the perplexity and its error, by llama-perplexity's protocol.
    #[pyo3(signature = (text, *, n_ctx=512))]
    fn perplexity(&self, py: Python<'_>, text: &str, n_ctx: usize) -> PyResult<(f64, f64)> {
        let estimate = py.detach(|| self.inner.perplexity(text, n_ctx));
        let estimate = estimate.map_err(failed)?;
        Ok((estimate.ppl(), estimate.ppl_error()))
    }

    fn __repr__(&self) -> String {
        format!("trine.Model({:?})", self.path.display().to_string())
    }
}

/// A text that is being generated: an iterator of its parts.
#[pyclass(module = "trine")]
pub struct Generation {
    /// `None` when the text has ended. Behind a lock, because Python may hand the object to any thread.
    inner: Mutex<Option<trine::Generation<Context>>>,
    cancel: CancelToken,
}

#[pymethods]
impl Generation {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    /// The next part, which may be empty as long as a character is not whole.
    fn __next__(&mut self, py: Python<'_>) -> PyResult<Option<String>> {
        // Ctrl-C is heard between two tokens.
        py.check_signals()?;
        let inner = self.inner.get_mut();
        let inner = inner.unwrap_or_else(PoisonError::into_inner);
        let Some(generation) = inner else {
            return Ok(None);
        };
        match py.detach(|| generation.next()) {
            Some(Ok(chunk)) => Ok(Some(chunk.text)),
            Some(Err(e)) => {
                *inner = None;
                Err(failed(e))
            }
            None => {
                *inner = None;
                Ok(None)
            }
        }
    }

    /// Ends the text.
    fn cancel(&self) {
        self.cancel.cancel();
    }

    /// The tokens that the text begins with.
    #[getter]
    fn prompt(&self) -> PyResult<Vec<u32>> {
        let ended = || PyTypeError::new_err("the text has ended");
        let inner = self.inner.lock();
        let inner = inner.unwrap_or_else(PoisonError::into_inner);
        let generation = inner.as_ref().ok_or_else(ended)?;
        Ok(generation.prompt().to_vec())
    }
}
