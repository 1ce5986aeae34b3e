//! `trine.Generation`.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::sync::MutexExt as _;
use pyo3::types::{PyDict, PyList};
use trine::generate::{Chunk, TokenLogprobs, Told};
use trine::{CancelToken, Context, End, Prompt};

use crate::error::generated;
use crate::interrupt::interruptible;
use crate::options::Wanted;

/// A token that takes longer is evaluated where Ctrl-C can end it; handing it over takes some microseconds.
const LONG: Duration = Duration::from_millis(50);

/// The place where a model keeps the context of the last text, for the next one that begins alike.
#[derive(Clone, Default)]
pub struct Spare(Arc<Mutex<Option<Context>>>);

impl Spare {
    /// The context, which is no longer there then.
    pub fn take(&self) -> Option<Context> {
        self.0.lock().ok()?.take()
    }

    fn put(&self, context: Context) {
        if let Ok(mut place) = self.0.lock() {
            *place = Some(context);
        }
    }
}

/// A text that is being generated: an iterator of its parts, for `for` and for `async for`.
///
/// `prompt` has the tokens that it continues. `text`, `tokens` and `logprobs` have what came so far, and `end` says why
/// it ended: "eos" (the model ended it), "length", "stop", "context" (the context is full) or "cancelled"; None while
/// it goes on.
///
/// >>> import trine
/// >>> model = trine.Model("model.gguf")
/// >>> generation = model.stream("The game", 8, temperature=0)
/// >>> "".join(generation) == generation.text
/// True
/// >>> generation.end, len(generation.tokens)
/// ('length', 8)
#[pyclass(frozen, module = "trine")]
pub struct Generation {
    state: Mutex<GenerationState>,
    prompt: Vec<u32>,
    cancel: CancelToken,
}

/// The generation and its text so far, behind the lock.
struct GenerationState {
    /// `None` when the text has ended.
    running: Option<trine::Generation<Context>>,
    /// The next step may take long.
    is_slow: bool,
    text: String,
    tokens: Vec<u32>,
    logprobs: Vec<TokenLogprobs>,
    end: Option<End>,
    spare: Spare,
}

impl GenerationState {
    /// Keeps what a step brought.
    fn take(&mut self, chunk: Chunk) -> String {
        self.text += &chunk.text;
        self.tokens.extend(chunk.token);
        if let Some(Told::Logprobs(logprobs)) = chunk.logprobs {
            self.logprobs.push(logprobs);
        }
        self.end = chunk.end;
        if self.end.is_some() {
            self.finish();
        }
        chunk.text
    }

    fn finish(&mut self) {
        if let Some(generation) = self.running.take() {
            self.spare.put(generation.into_context());
        }
    }
}

impl Drop for GenerationState {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Generation {
    /// Begins a text.
    ///
    /// # Errors
    /// The prompt does not fit; options that make no sense for the model.
    pub fn new(context: Context, prompt: Prompt, wanted: &Wanted, spare: &Spare) -> PyResult<Generation> {
        let running = context.into_generation(prompt, &wanted.generate).map_err(generated)?;
        Ok(Generation {
            prompt: running.prompt().to_vec(),
            cancel: wanted.generate.cancel.clone(),
            state: Mutex::new(GenerationState {
                running: Some(running),
                is_slow: true,
                text: String::new(),
                tokens: Vec::new(),
                logprobs: Vec::new(),
                end: None,
                spare: spare.clone(),
            }),
        })
    }

    fn with<T>(&self, py: Python<'_>, look: impl FnOnce(&mut GenerationState) -> T) -> T {
        let mut state = self.state.lock_py_attached(py).unwrap_or_else(std::sync::PoisonError::into_inner);
        look(&mut state)
    }

    /// The next part; `None` behind the last.
    fn step(&self, py: Python<'_>, state: &mut GenerationState) -> PyResult<Option<String>> {
        let Some(running) = &mut state.running else {
            return Ok(None);
        };
        let start = Instant::now();
        let stepped = match state.is_slow {
            true => interruptible(py, &self.cancel, || running.next()),
            // Ctrl-C is heard between two tokens.
            false => py.check_signals().map(|()| py.detach(|| running.next())),
        };
        state.is_slow = start.elapsed() > LONG;
        match stepped {
            Ok(Some(Ok(chunk))) => Ok(Some(state.take(chunk))),
            Ok(Some(Err(e))) => {
                state.finish();
                Err(generated(e))
            }
            Ok(None) => {
                state.finish();
                Ok(None)
            }
            Err(signal) => {
                state.end = Some(End::Cancelled);
                state.finish();
                Err(signal)
            }
        }
    }

    /// The whole text at once.
    ///
    /// # Errors
    /// The first one of a part.
    pub fn whole(&self, py: Python<'_>) -> PyResult<String> {
        while self.__next__(py)?.is_some() {}
        Ok(self.text(py))
    }
}

#[pymethods]
impl Generation {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    /// The next part, which may be empty as long as a character is not whole.
    fn __next__(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.with(py, |state| self.step(py, state))
    }

    fn __aiter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    /// The next part, computed in a thread of its own while the event loop goes on.
    fn __anext__<'py>(this: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        this.py().import("trine._aio")?.call_method1("next_part", (this,))
    }

    /// Ends the text, from any thread: the part that is computed is the last.
    fn cancel(&self) {
        self.cancel.cancel();
    }

    /// The tokens that the text continues.
    #[getter]
    fn prompt(&self) -> Vec<u32> {
        self.prompt.clone()
    }

    /// The text so far.
    #[getter]
    fn text(&self, py: Python<'_>) -> String {
        self.with(py, |state| state.text.clone())
    }

    /// Its tokens so far, the one that ended it included.
    #[getter]
    fn tokens(&self, py: Python<'_>) -> Vec<u32> {
        self.with(py, |state| state.tokens.clone())
    }

    /// Why it ended: "eos", "length", "stop", "context" or "cancelled"; None while it goes on.
    #[getter]
    fn end(&self, py: Python<'_>) -> Option<&'static str> {
        self.with(py, |state| {
            state.end.map(|end| match end {
                End::Eos => "eos",
                End::Length => "length",
                End::Stop(_) => "stop",
                End::Context => "context",
                _ => "cancelled",
            })
        })
    }

    /// A dict for each token so far, where `logprobs` was asked for: "token", "logprob", and "top", the most likely
    /// tokens with theirs.
    #[getter]
    fn logprobs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let told = self.with(py, |state| state.logprobs.clone());
        let all = PyList::empty(py);
        for token in told {
            let row = PyDict::new(py);
            row.set_item("token", token.id)?;
            row.set_item("logprob", token.logprob)?;
            row.set_item("top", token.top)?;
            all.append(row)?;
        }
        Ok(all)
    }
}
