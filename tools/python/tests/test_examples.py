"""The examples of docstrings and of the pages run."""

import doctest
import inspect
import re
import shutil
import subprocess
import sys

import pytest
from conftest import MODEL, ROOT

import trine


def objects():
    for name in trine.__all__:
        value = getattr(trine, name)
        yield name, value
        if inspect.isclass(value):
            for part, member in vars(value).items():
                if not part.startswith("_"):
                    yield f"{name}.{part}", member


EXAMPLES = {name: value.__doc__ for name, value in objects() if ">>>" in (getattr(value, "__doc__", None) or "")}


def test_there_are_examples():
    for name in ["Model", "Generation", "Model.generate", "Model.chat", "Model.embed", "quantize", "inspect", "open"]:
        assert name in EXAMPLES


def test_everything_is_described():
    for name, value in objects():
        if name not in ("OPTIONS", "__version__"):
            assert value.__doc__ and value.__doc__.strip(), name


@pytest.fixture
def folder(tmp_path, monkeypatch):
    shutil.copy(MODEL, tmp_path / "model.gguf")
    shutil.copy(ROOT / "testdata/wikitext-2/wiki.test.raw", tmp_path / "text.txt")
    (tmp_path / "text.txt").write_text((tmp_path / "text.txt").read_text()[:8000])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_of_docstrings(name, folder):
    test = doctest.DocTestParser().get_doctest(EXAMPLES[name], {}, name, None, 0)
    assert test.examples
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    assert runner.run(test).failed == 0


@pytest.mark.parametrize("page", ["docs/python.md", "tools/python/README.md"])
def test_examples_of_pages(page, folder):
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.M | re.S)
    assert blocks
    program = "\n".join(blocks)
    subprocess.run([sys.executable, "-c", program], check=True, cwd=folder)
