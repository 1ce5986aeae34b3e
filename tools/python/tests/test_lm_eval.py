"""The model class for lm-eval: on a stand-in of lm-eval's interface, and on lm-eval itself where it is installed."""

import importlib
import subprocess
import sys
import types

import pytest
from conftest import MODEL

import trine


class Instance:
    def __init__(self, *args):
        self.args = args


@pytest.fixture
def lm(monkeypatch):
    try:
        importlib.import_module("lm_eval.api.model")
    except ImportError:
        api = types.ModuleType("lm_eval.api.model")
        api.LM = type("LM", (), {})
        for name, module in [("lm_eval", None), ("lm_eval.api", None), ("lm_eval.api.model", api)]:
            monkeypatch.setitem(sys.modules, name, module or types.ModuleType(name))
    import trine.lm_eval

    trine.lm_eval.__dict__.pop("TrineLM", None)
    yield trine.lm_eval.TrineLM(MODEL, threads=1)
    trine.lm_eval.__dict__.pop("TrineLM", None)


def test_it_is_imported_without_lm_eval():
    program = "import sys, trine.lm_eval; assert not any(m == 'lm_eval' or m.startswith('lm_eval.') for m in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_likelihoods_are_those_of_the_model(lm, model):
    text = model.generate("The game of", 6, temperature=0)
    (total, greedy), (other, not_greedy) = lm.loglikelihood([Instance("The game of", text), Instance("The game of ", "chess")])
    assert greedy and not not_greedy
    assert total == pytest.approx(sum(model.score("The game of", text)[0]))
    assert other < 0
    # What nothing precedes stands behind BOS.
    (alone, _), = lm.loglikelihood([Instance("", "The game")])
    assert alone == pytest.approx(lm.loglikelihood_rolling([Instance("The game")])[0])


def test_a_text_longer_than_the_context_is_scored_whole(lm, model):
    words = "The game of chess is played by two. " * 80
    tokens = model.tokenize(words, add_special=False)
    assert len(tokens) > model.n_ctx_train
    (total,) = lm.loglikelihood_rolling([Instance(words)])
    assert -10 * len(tokens) < total < 0


def test_texts_end_where_they_are_asked_to(lm, model):
    whole = model.generate("The game of", 24, temperature=0)
    word = whole.split()[3]
    said = lm.generate_until([
        Instance("The game of", {"until": [word], "max_gen_toks": 24}),
        Instance("The game of", {"max_gen_toks": 24, "do_sample": False}),
    ])
    assert word not in said[0] and whole.startswith(said[0]) and said[1] == whole
