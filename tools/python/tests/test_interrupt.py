"""Ctrl-C ends what takes long, within a moment, and leaves no file."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest
from conftest import MODEL

WORK = {
    "logits": "model.logits([5] * 500 * 40)",
    "perplexity": "model.perplexity(text)",
    "generate": "model.generate([5] * 20000, 40000, n_ctx=60000, ignore_eos=True)",
    "stream": "[part for part in model.stream([5] * 20000, 40000, n_ctx=60000, ignore_eos=True)]",
    "embed": "[model.embed('The game of chess') for _ in range(10**6)]",
    "score": "model.score([5] * 20000, [6])",
    "quantize": "[trine.quantize(path, folder / 'out.gguf', 'IQ3_S', threads=1) for _ in range(10**4)]",
    "anyprec": "[trine.quantize(path, folder / 'out.gguf', 'AP2-8', threads=1) for _ in range(10**4)]",
}

PROGRAM = """
import pathlib, signal, sys
import trine
# A shell that starts a program in the background lets it ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
path, folder = sys.argv[1], pathlib.Path(sys.argv[2])
model = trine.Model(path, threads=1)
text = pathlib.Path(sys.argv[3]).read_text() * 4
print("ready", flush=True)
try:
    {work}
except KeyboardInterrupt:
    print("interrupted", flush=True)
else:
    print("it ended by itself", flush=True)
"""


@pytest.mark.skipif(os.name != "posix", reason="signals of a child are sent as POSIX has them")
@pytest.mark.parametrize("name", WORK)
def test_ctrl_c_ends_it_and_leaves_no_file(name, tmp_path):
    text = MODEL.parents[1] / "wikitext-2/wiki.test.raw"
    program = textwrap.dedent(PROGRAM).format(work=WORK[name])
    child = subprocess.Popen(
        [sys.executable, "-c", program, MODEL, tmp_path, text], stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout.readline() == "ready\n"
        try:
            # It does not end by itself, so it is at work when the signal comes.
            child.wait(timeout=0.5)
        except subprocess.TimeoutExpired:
            pass
        child.send_signal(signal.SIGINT)
        assert child.stdout.readline() == "interrupted\n"
        assert child.wait(timeout=60) == 0
    finally:
        child.kill()
    left = [path for path in tmp_path.iterdir() if path.name != "out.gguf"]
    assert left == []


def test_what_progress_raises_ends_the_work(model, tmp_path):
    import trine

    def stop(*told):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        trine.quantize(MODEL, tmp_path / "out.gguf", "Q4_0", progress=stop)
    with pytest.raises(RuntimeError, match="enough"):
        model.perplexity("The game of chess is played by two. " * 40, n_ctx=64, progress=stop)
    assert list(tmp_path.iterdir()) == []
