//! `trine.Model`.

use std::path::PathBuf;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use trine::formats::types::TypeId;
use trine::{
    CancelToken, ContextOptions, EmbedOptions, OpenOptions, Pooling, Prompt, RankOptions, Scale, SessionOptions,
    open_with,
};

use crate::chat::Conversation;
use crate::error::{caused, failed, opened};
use crate::evaluate;
use crate::generation::{Generation, Spare};
use crate::interrupt::{abandonable, interruptible};
use crate::loaded::Loaded;
use crate::options::{Wanted, whole};
use crate::values;

/// A loaded model. Threads of Python may share it.
///
/// `adapters` are LoRA files with a factor each, which are added in this order; `lora_path` and `lora_scale` name one.
/// `cache_type_k` and `cache_type_v` are the types of keys and values. Results have the same bits for any `threads`,
/// `mmap` and `repack`.
///
/// >>> import trine
/// >>> model = trine.Model("model.gguf", threads=2)
/// >>> model.n_ctx_train
/// 512
/// >>> trine.Model("none.gguf")
/// Traceback (most recent call last):
///     ...
/// FileNotFoundError: [Errno 2] No such file or directory: 'none.gguf'
#[pyclass(frozen, module = "trine")]
pub struct Model {
    inner: Loaded,
    path: PathBuf,
    spare: Spare,
}

/// A text or a list of token ids.
#[derive(FromPyObject)]
pub enum Text {
    /// A text, which is encoded as the model wants it.
    Text(String),
    /// Token ids, taken as they are.
    Tokens(Vec<u32>),
}

/// A text, a list of token ids, or several texts.
#[derive(FromPyObject)]
enum Input {
    Text(String),
    Tokens(Vec<u32>),
    Texts(Vec<String>),
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
    /// The library's model.
    pub fn library(&self) -> &trine::Model {
        &self.inner
    }

    /// The tokens of a text.
    ///
    /// # Errors
    /// The text cannot be encoded.
    pub fn tokens(&self, text: Text) -> PyResult<Vec<u32>> {
        match text {
            Text::Text(text) => self.inner.tokenizer().encode(&text, true, true).map_err(failed),
            Text::Tokens(tokens) => Ok(tokens),
        }
    }

    fn begin(&self, prompt: Prompt, mut wanted: Wanted) -> PyResult<Generation> {
        let n_ctx = wanted.context.n_ctx.unwrap_or(self.inner.n_ctx_train());
        // A context goes on at the width that it has, so the widest is named.
        let widest = self.inner.weights().widths().last().copied();
        wanted.generate.bits = wanted.generate.bits.or(widest);
        // The context that the last text has left, where it is such a one.
        let context = match self.spare.take() {
            Some(context) if context.n_ctx() == n_ctx && context.bits() == wanted.generate.bits => context,
            _ => self.inner.context(&wanted.context),
        };
        Generation::new(context, prompt, &wanted, &self.spare)
    }
}

/// A type of keys and values by its name.
fn cache_type(option: &str, name: &str) -> PyResult<TypeId> {
    let unknown = || PyValueError::new_err(format!("{option}: '{name}' is no type of keys and values"));
    let ty = TypeId::from_name(name).ok_or_else(unknown)?;
    match trine::kv::CacheTypes::ALL.contains(&ty) {
        true => Ok(ty),
        false => Err(unknown()),
    }
}

#[pymethods]
impl Model {
    #[new]
    #[pyo3(signature = (path, *, threads=None, mmap=true, repack=true, cache_type_k="f16", cache_type_v="f16",
        lora_path=None, lora_scale=1.0, adapters=Vec::new()))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        threads: Option<Bound<'_, PyAny>>,
        mmap: bool,
        repack: bool,
        cache_type_k: &str,
        cache_type_v: &str,
        lora_path: Option<PathBuf>,
        lora_scale: f32,
        adapters: Vec<(PathBuf, f32)>,
    ) -> PyResult<Model> {
        let threads = threads.map(|n| whole("threads", &n, 1, 1024)).transpose()?.map(|n| n as usize);
        let options = OpenOptions {
            threads,
            mmap,
            repack,
            adapters: lora_path.map(|path| (path, lora_scale)).into_iter().chain(adapters).collect(),
            cache: trine::kv::CacheTypes {
                keys: cache_type("cache_type_k", cache_type_k)?,
                values: cache_type("cache_type_v", cache_type_v)?,
            },
            ..OpenOptions::default()
        };
        let opening = path.clone();
        let inner = abandonable(py, move || open_with(opening, &options))?.map_err(opened)?;
        Ok(Model { inner: Loaded::new(inner), path, spare: Spare::default() })
    }

    /// The path from which it was opened.
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

    /// The widths in bits at which an any-precision model runs; empty for any other.
    #[getter]
    fn widths(&self) -> Vec<u32> {
        self.inner.weights().widths().iter().map(|&bits| u32::from(bits)).collect()
    }

    /// The tokens that end a text.
    #[getter]
    fn end_tokens(&self) -> Vec<u32> {
        self.inner.end_tokens().to_vec()
    }

    /// The metadata of the file.
    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        values::metadata(py, self.inner.metadata())
    }

    /// The chat template of the file; None where it has none.
    #[getter]
    fn chat_template(&self) -> PyResult<Option<String>> {
        let template = self.inner.metadata().get_str("tokenizer.chat_template").map_err(failed)?;
        Ok(template.map(str::to_owned))
    }

    /// Text to token ids.
    ///
    /// >>> import trine
    /// >>> model = trine.Model("model.gguf")
    /// >>> model.detokenize(model.tokenize("The game of chess", add_special=False))
    /// 'The game of chess'
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

    /// The text that follows `prompt`, a text or a list of token ids. `max_tokens` None or below 0: until the model
    /// ends it.
    ///
    /// The other options are those of llama-cpp-python, by the same names: temperature (0: always the most likely
    /// token), top_k, top_p, min_p, typical_p, repeat_penalty, presence_penalty, frequency_penalty, mirostat_mode and
    /// its like, seed, stop, logit_bias, logprobs, grammar; and json_schema, bits, n_ctx, samplers. trine.OPTIONS names
    /// all.
    ///
    /// >>> import trine
    /// >>> model = trine.Model("model.gguf")
    /// >>> text = model.generate("The game", 8, temperature=0)
    /// >>> text == model.generate("The game", 8, temperature=0)
    /// True
    /// >>> import json
    /// >>> json.loads(model.generate("A number: ", json_schema={"enum": [1, 2]})) in (1, 2)
    /// True
    /// >>> model.generate("The game", temperature=-1)
    /// Traceback (most recent call last):
    ///     ...
    /// ValueError: temperature must be 0 or more, not -1
    #[pyo3(signature = (prompt, max_tokens=Some(128), **options), text_signature = "($self, prompt, max_tokens=128, **options)")]
    fn generate(
        &self,
        py: Python<'_>,
        prompt: Text,
        max_tokens: Option<i64>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<String> {
        let wanted = Wanted::read(&self.inner, "generate", max_tokens, options)?;
        self.begin(prompt.into(), wanted)?.whole(py)
    }

    /// The same, part by part as it comes: an iterator for `for` and for `async for`. Options as for generate.
    #[pyo3(signature = (prompt, max_tokens=Some(128), **options), text_signature = "($self, prompt, max_tokens=128, **options)")]
    fn stream(
        &self,
        prompt: Text,
        max_tokens: Option<i64>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Generation> {
        let wanted = Wanted::read(&self.inner, "stream", max_tokens, options)?;
        self.begin(prompt.into(), wanted)
    }

    /// The answer to a conversation: a list of messages as OpenAI has them, dicts with "role" and "content". What the
    /// last call on this model evaluated of the same messages is not evaluated again.
    ///
    /// `chat_template` replaces the model's own: a template, or the name that llama.cpp has for one, such as "chatml".
    /// `tools` describes functions that the model may call; a call is in the answer as the model writes it.
    /// `template_variables` are others that the template knows, such as {"enable_thinking": False}. Other options as
    /// for generate.
    ///
    /// >>> import trine
    /// >>> model = trine.Model("model.gguf")
    /// >>> messages = [{"role": "user", "content": "Who won?"}]
    /// >>> answer = model.chat(messages, max_tokens=8, chat_template="chatml", temperature=0)
    /// >>> answer == "".join(model.stream_chat(messages, 8, chat_template="chatml", temperature=0))
    /// True
    #[pyo3(signature = (messages, max_tokens=None, *, tools=None, chat_template=None, template_variables=None, **options))]
    #[allow(clippy::too_many_arguments)]
    fn chat(
        &self,
        py: Python<'_>,
        messages: &Bound<'_, PyAny>,
        max_tokens: Option<i64>,
        tools: Option<&Bound<'_, PyList>>,
        chat_template: Option<&str>,
        template_variables: Option<&Bound<'_, PyDict>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<String> {
        let wanted = Wanted::read(&self.inner, "chat", max_tokens, options)?;
        let conversation =
            Conversation::read(self.library(), messages, tools, chat_template, template_variables, true)?;
        self.begin(conversation.tokens(self.library())?.into(), wanted)?.whole(py)
    }

    /// The same, part by part as it comes: an iterator for `for` and for `async for`.
    #[pyo3(signature = (messages, max_tokens=None, *, tools=None, chat_template=None, template_variables=None, **options))]
    fn stream_chat(
        &self,
        messages: &Bound<'_, PyAny>,
        max_tokens: Option<i64>,
        tools: Option<&Bound<'_, PyList>>,
        chat_template: Option<&str>,
        template_variables: Option<&Bound<'_, PyDict>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Generation> {
        let wanted = Wanted::read(&self.inner, "stream_chat", max_tokens, options)?;
        let conversation =
            Conversation::read(self.library(), messages, tools, chat_template, template_variables, true)?;
        self.begin(conversation.tokens(self.library())?.into(), wanted)
    }

    /// The text that a conversation is for the model.
    ///
    /// >>> import trine
    /// >>> model = trine.Model("model.gguf")
    /// >>> model.apply_chat_template([{"role": "user", "content": "Hi"}], chat_template="chatml")
    /// '<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n'
    #[pyo3(signature = (messages, *, tools=None, chat_template=None, template_variables=None, add_generation_prompt=true))]
    fn apply_chat_template(
        &self,
        messages: &Bound<'_, PyAny>,
        tools: Option<&Bound<'_, PyList>>,
        chat_template: Option<&str>,
        template_variables: Option<&Bound<'_, PyDict>>,
        add_generation_prompt: bool,
    ) -> PyResult<String> {
        let answer = add_generation_prompt;
        Conversation::read(self.library(), messages, tools, chat_template, template_variables, answer)?.text()
    }

    /// The vector of a text or of a list of token ids, an array `[n]`; of several texts one below the other,
    /// `[texts][n]`. `pooling` is "mean", "cls" or "last", where the file does not say what the model was made for;
    /// with `normalize` its length is 1.
    ///
    /// >>> import trine
    /// >>> model = trine.Model("model.gguf")
    /// >>> one, two = model.embed(["The game of chess", "A game of chess"])
    /// >>> 0.5 < float(one @ two) < 1.0
    /// True
    #[pyo3(signature = (text, *, pooling=None, normalize=true, bits=None, n_ctx=None))]
    fn embed<'py>(
        &self,
        py: Python<'py>,
        text: Input,
        pooling: Option<&str>,
        normalize: bool,
        bits: Option<u8>,
        n_ctx: Option<usize>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (texts, is_one) = match text {
            Input::Text(text) => (vec![self.tokens(Text::Text(text))?], true),
            Input::Tokens(tokens) => (vec![tokens], true),
            Input::Texts(texts) => {
                let tokens = texts.into_iter().map(|text| self.tokens(Text::Text(text)));
                (tokens.collect::<PyResult<Vec<_>>>()?, false)
            }
        };
        let pooling = pooling.map(|name| {
            let known = Pooling::by_name(name).filter(|p| !matches!(p, Pooling::None | Pooling::Rank));
            known.ok_or_else(|| PyValueError::new_err(format!("pooling must be 'mean', 'cls' or 'last', not '{name}'")))
        });
        let scale = if normalize { Scale::Length } else { Scale::None };
        let options = EmbedOptions { pooling: pooling.transpose()?, scale, bits, n_ctx };
        let mut all = Vec::new();
        for tokens in &texts {
            // A text is short; Ctrl-C is heard behind it.
            let vector = interruptible(py, &CancelToken::new(), || self.inner.embed(tokens, &options))?;
            all.extend(vector.map_err(|e| caused(&e))?);
        }
        let array = values::array(py, &all, texts.len())?;
        if is_one { array.get_item(0) } else { Ok(array) }
    }

    /// How well each of `documents` answers `query`, the higher the better: an array in their order, with the bits of
    /// llama.cpp's portable build. The model is a reranker, or one that answers yes or no.
    ///
    /// >>> import trine
    /// >>> model = trine.Model("reranker.gguf")  # doctest: +SKIP
    /// >>> model.rank("What is a pawn?", ["A piece of chess", "A shop"]).argmax()  # doctest: +SKIP
    /// 0
    #[pyo3(signature = (query, documents, *, bits=None, n_ctx=None))]
    fn rank<'py>(
        &self,
        py: Python<'py>,
        query: &str,
        documents: Vec<String>,
        bits: Option<u8>,
        n_ctx: Option<usize>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let options = RankOptions { bits, n_ctx };
        let mut all = Vec::new();
        for document in &documents {
            // A text is short; Ctrl-C is heard behind it.
            let rank = interruptible(py, &CancelToken::new(), || self.inner.rank(query, &[document], &options))?;
            all.extend(rank.map_err(|e| caused(&e))?);
        }
        values::array(py, &all, 1)?.get_item(0)
    }

    /// The logits after every token of `prompt`, or after the last alone: an array `[tokens][n_vocab]` in single
    /// precision, with the bits of llama.cpp's portable build.
    ///
    /// >>> import trine
    /// >>> model = trine.Model("model.gguf")
    /// >>> logits = model.logits("The game")
    /// >>> logits.shape == (len(model.tokenize("The game")), model.n_vocab)
    /// True
    #[pyo3(signature = (prompt, *, last=false, bits=None))]
    fn logits<'py>(&self, py: Python<'py>, prompt: Text, last: bool, bits: Option<u8>) -> PyResult<Bound<'py, PyAny>> {
        let tokens = self.tokens(prompt)?;
        let Some(end) = tokens.len().checked_sub(1) else {
            return Err(PyValueError::new_err("there is no token"));
        };
        let from = if last { end } else { 0 };
        let cancel = CancelToken::new();
        let computed = interruptible(py, &cancel, || {
            let mut session = self.inner.session(SessionOptions {
                n_ctx: tokens.len().max(self.inner.n_ctx_train()),
                n_ubatch: ContextOptions::default().n_ubatch,
            });
            session.cancel_by(Some(cancel.clone()));
            if let Some(bits) = bits {
                session.set_bits(bits).map_err(|e| caused(&e))?;
            }
            let mut all = Vec::new();
            let done = session.eval(&tokens, from, &mut |_, row| all.extend_from_slice(row));
            done.map(|()| all).map_err(|e| caused(&e))
        })?;
        values::array(py, &computed?, tokens.len() - from)
    }

    /// How well the model predicts a text, cut into chunks of `n_ctx` tokens: the perplexity and its error, by
    /// llama-perplexity's protocol and to its digits. Of the text no more than `chunks` are taken. `progress` is called
    /// after each with the number of chunks done, of all, and the perplexity so far.
    ///
    /// >>> import trine
    /// >>> model = trine.Model("model.gguf")
    /// >>> ppl, error = model.perplexity("The game of chess is played by two. " * 40, n_ctx=64)
    /// >>> error < ppl
    /// True
    #[pyo3(signature = (text, *, n_ctx=512, chunks=None, bits=None, progress=None))]
    fn perplexity(
        &self,
        py: Python<'_>,
        text: &str,
        n_ctx: usize,
        chunks: Option<usize>,
        bits: Option<u8>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<(f64, f64)> {
        evaluate::perplexity(py, &self.inner, text, evaluate::Options { n_ctx, chunks, bits }, progress)
    }

    /// How well the model predicts `continuation` behind `prompt`: for each of its tokens the natural logarithm of its
    /// probability, and whether it is the most likely one. Tokens of a text are those that follow the prompt in the
    /// whole text.
    ///
    /// >>> import trine
    /// >>> model = trine.Model("model.gguf")
    /// >>> logprobs, greedy = model.score("The game of", model.generate("The game of", 4, temperature=0))
    /// >>> all(greedy), sum(logprobs) < 0
    /// (True, True)
    #[pyo3(signature = (prompt, continuation, *, bits=None))]
    fn score(
        &self,
        py: Python<'_>,
        prompt: Text,
        continuation: Text,
        bits: Option<u8>,
    ) -> PyResult<(Vec<f64>, Vec<bool>)> {
        let (given, all) = match (prompt, continuation) {
            (Text::Text(prompt), Text::Text(rest)) => {
                let given = self.tokens(Text::Text(prompt.clone()))?.len();
                (given, self.tokens(Text::Text(prompt + &rest))?)
            }
            (Text::Tokens(prompt), Text::Tokens(rest)) => (prompt.len(), [prompt, rest].concat()),
            _ => return Err(PyTypeError::new_err("prompt and continuation must both be texts or both be tokens")),
        };
        evaluate::score(py, &self.inner, &all, given, bits)
    }

    fn __repr__(&self) -> String {
        format!("trine.Model({:?})", self.path.display().to_string())
    }
}
