"""GGUF models with the bits of llama.cpp's portable build: run, chat, measure, quantize, inspect."""

from os import PathLike as _PathLike
from typing import Any as _Any
from typing import Optional as _Optional
from typing import Union as _Union

from ._trine import OPTIONS, Error, Generation, Model, __version__, inspect, quantize

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

try:
    from ._trine import fetch, installed
except ImportError:  # built without the feature `hub`

    def _left_out(*_: _Any, **__: _Any) -> _Any:
        raise Error("this build of trine opens no connections: give the path of a file")

    fetch = installed = _left_out


def open(
    path: "_Optional[_Union[str, _PathLike[str]]]" = None,
    *,
    hf: _Optional[str] = None,
    hf_file: _Optional[str] = None,
    hf_token: _Optional[str] = None,
    offline: bool = False,
    progress: _Any = None,
    **options: _Any,
) -> Model:
    """Opens a model: the file at `path`, or one of a hub, which is fetched where it is not here yet.

    `hf` is "USER/REPO" or "USER/REPO:TYPE"; `hf_file`, `hf_token`, `offline` and `progress` are those of fetch. Other
    options are those of Model.

    >>> import trine
    >>> model = trine.open("model.gguf", threads=1)
    >>> model.threads
    1
    >>> trine.open(hf="user/repo:Q4_0", offline=True)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    FileNotFoundError: user/repo:Q4_0 is not in the cache, and no connection is opened ...
    """
    if (path is None) == (hf is None):
        raise TypeError("open() takes either a path or hf")
    if hf is not None:
        path = fetch(hf, file=hf_file, token=hf_token, offline=offline, progress=progress)
    assert path is not None
    return Model(path, **options)
