"""GGUF models with the bits of llama.cpp's portable build: run, measure, quantize, inspect."""

from ._trine import Error, Generation, Model, __version__, inspect, quantize

__all__ = ["Error", "Generation", "Model", "__version__", "inspect", "quantize"]
