from os import PathLike
from pathlib import Path
from typing import Any, AsyncIterator, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, TypedDict, Union, final

import numpy as np
import numpy.typing as npt
from typing_extensions import Unpack

__version__: str

__all__ = [
    "OPTIONS",
    "Error",
    "Generation",
    "Model",
    "__version__",
    "fetch",
    "inspect",
    "installed",
    "open",
    "quantize",
]

_Path = Union[str, "PathLike[str]"]
_Prompt = Union[str, Sequence[int]]

OPTIONS: List[str]
"""The keywords of Model.generate and its like, beside max_tokens."""

class Error(ValueError):
    """A file, a text or an option that the library refuses, in one line."""

class _Options(TypedDict, total=False):
    seed: Optional[int]
    stop: Union[str, Sequence[str], None]
    grammar: Optional[str]
    json_schema: Union[Dict[str, Any], bool, None]
    logit_bias: Optional[Dict[int, float]]
    samplers: Optional[Sequence[str]]
    dry_sequence_breakers: Optional[Sequence[str]]
    ignore_eos: Optional[bool]
    logprobs: Optional[int]
    bits: Optional[int]
    n_ctx: Optional[int]
    temperature: Optional[float]
    dynatemp_range: Optional[float]
    dynatemp_exponent: Optional[float]
    top_k: Optional[int]
    top_p: Optional[float]
    min_p: Optional[float]
    typical_p: Optional[float]
    top_n_sigma: Optional[float]
    eta_cutoff: Optional[float]
    xtc_probability: Optional[float]
    xtc_threshold: Optional[float]
    repeat_penalty: Optional[float]
    repeat_last_n: Optional[int]
    presence_penalty: Optional[float]
    frequency_penalty: Optional[float]
    dry_multiplier: Optional[float]
    dry_base: Optional[float]
    dry_allowed_length: Optional[int]
    dry_penalty_last_n: Optional[int]
    adaptive_target: Optional[float]
    adaptive_decay: Optional[float]
    mirostat_mode: Optional[int]
    mirostat_eta: Optional[float]
    mirostat_tau: Optional[float]
    min_keep: Optional[int]

class _TokenLogprobs(TypedDict):
    token: int
    logprob: float
    top: List[Tuple[int, float]]

@final
class Generation(Iterator[str], AsyncIterator[str]):
    """A text that is being generated: an iterator of its parts, for `for` and for `async for`."""

    prompt: List[int]
    """The tokens that the text continues."""
    text: str
    """The text so far."""
    tokens: List[int]
    """Its tokens so far."""
    logprobs: List[_TokenLogprobs]
    """For each token, where they were asked for."""
    end: Optional[str]
    """Why it ended: "eos", "length", "stop", "context" or "cancelled"; None while it goes on."""
    def __next__(self) -> str: ...
    async def __anext__(self) -> str: ...
    def cancel(self) -> None:
        """Ends the text, from any thread."""

_Messages = List[Dict[str, Any]]
_Tools = Optional[List[Any]]

@final
class Model:
    """A loaded model. Threads may share it."""

    path: Path
    n_vocab: int
    n_ctx_train: int
    threads: int
    widths: List[int]
    end_tokens: List[int]
    chat_template: Optional[str]
    metadata: Dict[str, Any]
    def __new__(
        cls,
        path: _Path,
        *,
        threads: Optional[int] = None,
        mmap: bool = True,
        repack: bool = True,
        cache_type_k: str = "f16",
        cache_type_v: str = "f16",
        lora_path: Optional[_Path] = None,
        lora_scale: float = 1.0,
        adapters: Sequence[Tuple[_Path, float]] = ...,
    ) -> "Model": ...
    def tokenize(self, text: str, *, add_special: bool = True, parse_special: bool = True) -> List[int]: ...
    def detokenize(self, tokens: Sequence[int], *, special: bool = False) -> str: ...
    def generate(self, prompt: _Prompt, max_tokens: Optional[int] = 128, **options: Unpack[_Options]) -> str:
        """The text that follows the prompt; max_tokens None or below 0: until the model ends it."""
    def stream(self, prompt: _Prompt, max_tokens: Optional[int] = 128, **options: Unpack[_Options]) -> Generation:
        """The same, part by part as it comes."""
    def chat(
        self,
        messages: _Messages,
        max_tokens: Optional[int] = None,
        *,
        tools: _Tools = None,
        chat_template: Optional[str] = None,
        template_variables: Optional[Dict[str, Any]] = None,
        **options: Unpack[_Options],
    ) -> str:
        """The answer to a conversation."""
    def stream_chat(
        self,
        messages: _Messages,
        max_tokens: Optional[int] = None,
        *,
        tools: _Tools = None,
        chat_template: Optional[str] = None,
        template_variables: Optional[Dict[str, Any]] = None,
        **options: Unpack[_Options],
    ) -> Generation:
        """The same, part by part as it comes."""
    def apply_chat_template(
        self,
        messages: _Messages,
        *,
        tools: _Tools = None,
        chat_template: Optional[str] = None,
        template_variables: Optional[Dict[str, Any]] = None,
        add_generation_prompt: bool = True,
    ) -> str:
        """The text that a conversation is for the model."""
    def embed(
        self,
        text: Union[_Prompt, Sequence[str]],
        *,
        pooling: Optional[str] = None,
        normalize: bool = True,
        bits: Optional[int] = None,
        n_ctx: Optional[int] = None,
    ) -> "npt.NDArray[np.float32]":
        """The vector of a text, [n], or of several, [texts][n]."""
    def rank(
        self,
        query: str,
        documents: Sequence[str],
        *,
        bits: Optional[int] = None,
        n_ctx: Optional[int] = None,
    ) -> "npt.NDArray[np.float32]":
        """How well each document answers a question, the higher the better."""
    def logits(
        self, prompt: _Prompt, *, last: bool = False, bits: Optional[int] = None
    ) -> "npt.NDArray[np.float32]":
        """The logits after every token, [tokens][n_vocab], or after the last alone."""
    def perplexity(
        self,
        text: str,
        *,
        n_ctx: int = 512,
        chunks: Optional[int] = None,
        bits: Optional[int] = None,
        progress: Optional[Callable[[int, int, float], object]] = None,
    ) -> Tuple[float, float]:
        """Perplexity and its error, by llama-perplexity's protocol."""
    def score(
        self, prompt: _Prompt, continuation: _Prompt, *, bits: Optional[int] = None
    ) -> Tuple[List[float], List[bool]]:
        """Log-probabilities of the continuation's tokens, and whether each is the most likely one."""

class _Tensor(TypedDict):
    name: str
    type: str
    shape: List[int]
    bytes: int

class _File(TypedDict):
    files: List[Path]
    architecture: Optional[str]
    metadata: Dict[str, Any]
    tensors: List[_Tensor]

def quantize(
    source: _Path,
    target: _Path,
    file_type: str,
    *,
    imatrix: Optional[_Path] = None,
    include_weights: Sequence[str] = ...,
    exclude_weights: Sequence[str] = ...,
    pure: bool = False,
    allow_requantize: bool = False,
    leave_output_tensor: bool = False,
    output_tensor_type: Optional[str] = None,
    token_embedding_type: Optional[str] = None,
    tensor_types: Optional[Dict[str, str]] = None,
    override_kv: Sequence[str] = ...,
    prune_layers: Sequence[int] = ...,
    keep_split: bool = False,
    fallback: str = "mixtures",
    method: str = "nearest",
    gptq: Optional[_Path] = None,
    force: bool = False,
    threads: Optional[int] = None,
    progress: Optional[Callable[[int, int, str], object]] = None,
) -> int:
    """Writes a model in a file type that rquantize knows; the size of the file in bytes."""

def inspect(path: _Path) -> _File:
    """What is in a GGUF file; nothing is loaded."""

def fetch(
    name: str,
    *,
    file: Optional[str] = None,
    token: Optional[str] = None,
    offline: bool = False,
    max_bytes: Optional[int] = None,
    progress: Optional[Callable[[int, int, str], object]] = None,
) -> Path:
    """The path of a model from a hub, fetched where it is not in the cache yet."""

def installed(name: str) -> Optional[Path]:
    """The path of a model on this machine by its name, or a part of it; None where there is none."""

def open(
    path: Optional[_Path] = None,
    *,
    hf: Optional[str] = None,
    hf_file: Optional[str] = None,
    hf_token: Optional[str] = None,
    offline: bool = False,
    progress: Optional[Callable[[int, int, str], object]] = None,
    **options: Any,
) -> Model:
    """Opens a model: the file at `path`, or one of a hub."""
