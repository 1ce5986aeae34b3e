from os import PathLike
from typing import Any, Iterator, List, Optional, Sequence, Tuple, TypedDict, Union, final

import numpy as np
import numpy.typing as npt

__version__: str

__all__ = ["Error", "Generation", "Model", "__version__", "inspect", "quantize"]

_Path = Union[str, "PathLike[str]"]
_Prompt = Union[str, Sequence[int]]

class Error(Exception):
    """What cannot be done, in one line."""

@final
class Generation(Iterator[str]):
    """A text that is being generated: an iterator of its parts."""

    prompt: List[int]
    """The tokens that the text begins with."""
    def __next__(self) -> str: ...
    def cancel(self) -> None:
        """Ends the text."""

@final
class Model:
    """A loaded model. Threads may share it."""

    path: Any
    n_vocab: int
    n_ctx_train: int
    threads: int
    metadata: "dict[str, Any]"
    def __new__(
        cls,
        path: _Path,
        *,
        threads: Optional[int] = None,
        mmap: bool = True,
        repack: bool = True,
        cache_type_k: str = "f16",
        cache_type_v: str = "f16",
    ) -> "Model": ...
    def tokenize(self, text: str, *, add_special: bool = True, parse_special: bool = True) -> List[int]: ...
    def detokenize(self, tokens: Sequence[int], *, special: bool = False) -> str: ...
    def generate(
        self,
        prompt: _Prompt,
        max_tokens: int = 128,
        *,
        temperature: float = 0.8,
        top_k: int = 40,
        top_p: float = 0.95,
        min_p: float = 0.05,
        repeat_penalty: float = 1.0,
        seed: int = 0,
        stop: Sequence[str] = ...,
        n_ctx: Optional[int] = None,
    ) -> str:
        """The text that follows the prompt; max_tokens below 0: until the model ends it. temperature 0 is greedy."""
    def stream(
        self,
        prompt: _Prompt,
        max_tokens: int = 128,
        *,
        temperature: float = 0.8,
        top_k: int = 40,
        top_p: float = 0.95,
        min_p: float = 0.05,
        repeat_penalty: float = 1.0,
        seed: int = 0,
        stop: Sequence[str] = ...,
        n_ctx: Optional[int] = None,
    ) -> Generation:
        """The same, part by part as it comes."""
    def logits(self, prompt: _Prompt, *, last: bool = False) -> "npt.NDArray[np.float32]":
        """The logits after every token, [tokens][n_vocab], or after the last alone."""
    def perplexity(self, text: str, *, n_ctx: int = 512) -> Tuple[float, float]:
        """Perplexity and its error, by llama-perplexity's protocol."""

class _Tensor(TypedDict):
    name: str
    type: str
    shape: List[int]
    bytes: int

class _File(TypedDict):
    files: List[Any]
    architecture: Optional[str]
    metadata: "dict[str, Any]"
    tensors: List[_Tensor]

def quantize(
    source: _Path,
    target: _Path,
    file_type: str,
    *,
    imatrix: Optional[_Path] = None,
    pure: bool = False,
    allow_requantize: bool = False,
    leave_output_tensor: bool = False,
) -> int:
    """Writes a model in a file type that llama-quantize knows; the size of the file in bytes."""

def inspect(path: _Path) -> _File:
    """What is in a GGUF file; nothing is loaded."""
