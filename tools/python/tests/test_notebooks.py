"""The notebooks run, and print what they show: trine gives the same bits everywhere, so that their outputs are exact.

TRINE_WRITE_DOCS=1 writes the outputs instead.
"""

import ast
import contextlib
import io
import json
import os

import pytest
from conftest import ROOT

FOLDER = ROOT / "tools/python/notebooks"


def run(source, names):
    """What a cell prints, and the value of its last line, as a notebook shows them."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    printed, outputs = io.StringIO(), []
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), names)
        value = None if last is None else eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    if printed.getvalue():
        text = printed.getvalue().splitlines(keepends=True)
        outputs.append({"name": "stdout", "output_type": "stream", "text": text})
    return outputs, None if value is None else repr(value)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebooks_print_what_they_show(path, monkeypatch):
    monkeypatch.chdir(FOLDER)
    book = json.loads(path.read_text(encoding="utf-8"))
    names, count = {"__name__": "__main__"}, 0
    for cell in book["cells"]:
        if cell["cell_type"] != "code":
            continue
        count += 1
        outputs, value = run("".join(cell["source"]), names)
        if value is not None:
            data = {"text/plain": value.splitlines(keepends=True)}
            outputs.append({"data": data, "execution_count": count, "metadata": {}, "output_type": "execute_result"})
        if os.environ.get("TRINE_WRITE_DOCS") == "1":
            cell.update(execution_count=count, outputs=outputs)
        assert cell["outputs"] == outputs, "".join(cell["source"])
        assert cell["execution_count"] == count
    assert count > 2
    if os.environ.get("TRINE_WRITE_DOCS") == "1":
        path.write_text(json.dumps(book, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
