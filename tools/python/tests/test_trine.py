"""What the package promises, on the model that the repository carries."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import MODEL, ROOT

import trine

GOLDEN = ROOT / "testdata/golden"
TEXT = "The game of chess is played by two"


def rgen():
    """The program whose results are compared, where it was built."""
    program = Path(os.environ.get("TRINE_RGEN", ROOT / "target/release/rgen"))
    if not program.exists():
        pytest.skip(f"{program} is not there: cargo build --release --bin rgen")
    return program


def test_tokens_make_the_text_again(model):
    tokens = model.tokenize(TEXT)
    assert tokens and all(0 <= t < model.n_vocab for t in tokens)
    assert model.detokenize(model.tokenize(TEXT, add_special=False)).strip() == TEXT
    with pytest.raises(ValueError, match="outside the vocabulary"):
        model.detokenize([model.n_vocab])


def hashes(logits):
    return [hashlib.sha256(row.astype("<f4").tobytes()).hexdigest() for row in logits]


def test_logits_have_the_bits_of_the_reference(model):
    """Recorded from llama.cpp's portable build; see testdata/golden/README.md."""
    golden = json.loads((GOLDEN / "logits/trilm-F16.json").read_text())
    assert hashes(model.logits(golden["tokens"])) == golden["sha256_f32le_per_position"]


def test_perplexity_has_the_digits_of_the_reference(model):
    values = json.loads((GOLDEN / "perplexity.json").read_text())["values"]
    golden = next(v for v in values if v["model"] == MODEL.name and v["n_ctx"] == 512)
    words = (ROOT / "testdata/wikitext-2/wiki.test.raw").read_text()[:200_000].split(" ")
    # As many words as make the recorded number of chunks, and no further one.
    least, most = 0, len(words)
    while least < most:
        middle = (least + most) // 2
        enough = len(model.tokenize(" ".join(words[:middle]))) >= golden["chunks"] * 512
        least, most = (least, middle) if enough else (middle + 1, most)
    ppl, error = model.perplexity(" ".join(words[:least]), n_ctx=512)
    assert (f"{ppl:.4f}", f"{error:.5f}") == (golden["ppl"], golden["err"])


def test_files_are_those_of_the_reference(tmp_path):
    sums = [line.split() for line in (GOLDEN / "quantize.sha256").read_text().splitlines()]
    for file_type in ["TQ1_0", "TQ2_0", "Q4_0"]:
        golden = next(s[0] for s in sums if s[1:] == [MODEL.name, file_type])
        target = tmp_path / f"{file_type}.gguf"
        trine.quantize(MODEL, target, file_type)
        assert hashlib.sha256(target.read_bytes()).hexdigest() == golden, file_type


def test_logits_have_the_bits_of_the_program(model):
    logits = model.logits(TEXT)
    assert logits.dtype == np.float32
    assert logits.shape == (len(model.tokenize(TEXT)), model.n_vocab)
    command = [rgen(), "-m", MODEL, "-p", TEXT, "-n", "0", "--logits-sha256"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    assert hashes(logits) == [line.split()[2] for line in lines]
    # One thread, the file's own bytes, and the last row alone change nothing.
    other = trine.Model(MODEL, threads=1, mmap=False, repack=False)
    last = other.logits(model.tokenize(TEXT), last=True)
    assert last.shape == (1, model.n_vocab) and last.tobytes() == logits[-1:].tobytes()


def test_texts_are_those_of_the_program(model):
    for more, options in [
        (["--temp", "0"], {"temperature": 0}),
        (["-s", "7", "--temp", "0.9"], {"seed": 7, "temperature": 0.9}),
    ]:
        text = model.generate(TEXT, 24, **options)
        command = [rgen(), "-m", MODEL, "-p", TEXT, "-n", "24", "--json", *more]
        said = subprocess.run(command, check=True, capture_output=True).stdout
        assert text == json.loads(said)["text"], more
        assert "".join(model.stream(TEXT, 24, **options)) == text


def test_a_text_ends_at_a_stop_string_and_when_it_is_cancelled(model):
    whole = model.generate(TEXT, 24, temperature=0)
    word = whole.split()[3]
    cut = model.generate(TEXT, 24, temperature=0, stop=[word])
    assert whole.startswith(cut) and word not in cut
    ended = model.stream(TEXT, 24, temperature=0, stop=word)
    assert "".join(ended) == cut and (ended.end, ended.text) == ("stop", cut)
    stream = model.stream(TEXT, None, temperature=0)
    assert stream.prompt == model.tokenize(TEXT) and stream.end is None
    next(stream)
    stream.cancel()
    assert len(list(stream)) <= 1
    assert stream.end == "cancelled"


def test_a_smaller_file_is_written_and_described(model, tmp_path):
    target = tmp_path / "small.gguf"
    size = trine.quantize(MODEL, target, "TQ2_0")
    assert size == target.stat().st_size < MODEL.stat().st_size
    file = trine.inspect(target)
    assert file["architecture"] == file["metadata"]["general.architecture"]
    types = {tensor["type"] for tensor in file["tensors"]}
    assert any("TQ2_0" in t.upper() for t in types), types
    text = (ROOT / "testdata/wikitext-2/wiki.test.raw").read_text()[:8000]
    ppl, error = trine.Model(target).perplexity(text, n_ctx=128)
    expected, _ = model.perplexity(text, n_ctx=128)
    assert 0 < error < ppl and abs(ppl - expected) < 0.05 * expected


def test_mistakes_are_one_line(tmp_path):
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(MODEL.read_bytes()[:1000])
    for wrong in [
        lambda: trine.Model(broken),
        lambda: trine.inspect(broken),
        lambda: trine.quantize(MODEL, tmp_path / "x.gguf", "Q4_K_M", imatrix=broken),
        lambda: trine.quantize(MODEL, MODEL, "Q4_K_M"),
    ]:
        with pytest.raises(trine.Error) as told:
            wrong()
        assert "\n" not in str(told.value) and str(told.value)
        assert isinstance(told.value, ValueError)
    with pytest.raises(ValueError, match="no file type"):
        trine.quantize(MODEL, tmp_path / "x.gguf", "Q9")
    with pytest.raises(ValueError, match="cache_type_k: 'q9' is no type of keys"):
        trine.Model(MODEL, cache_type_k="q9")
    assert not (tmp_path / "x.gguf").exists()


def test_the_example_runs():
    example = Path(__file__).parents[1] / "example.py"
    assert len([line for line in example.read_text().splitlines() if line.strip()]) <= 10
    said = subprocess.run([sys.executable, example, MODEL], check=True, capture_output=True, text=True)
    assert "tensors:" in said.stdout
