"""Texts: samplers, grammars, conversations, adapters, async iterators."""

import asyncio
import hashlib
import json
import math
import threading

import numpy as np
import pytest
from conftest import MODEL, ROOT

import trine

TEXT = "The game of chess is played by two"
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who won?"}]


def test_stubs_name_the_options_that_there_are():
    stub = (ROOT / "tools/python/python/trine/__init__.pyi").read_text()
    block = stub.split("class _Options")[1].split("class _TokenLogprobs")[0]
    named = [line.split(":")[0].strip() for line in block.splitlines() if line.startswith("    ")]
    assert named == trine.OPTIONS


def test_every_option_is_taken(model):
    values = {
        "stop": ["zzzz"], "grammar": None, "json_schema": None, "logit_bias": {5: -1.0}, "samplers": ["top_k", "temperature"],
        "dry_sequence_breakers": ["\n"], "ignore_eos": True, "bits": None, "n_ctx": 256, "adaptive_decay": 0.5,
    }
    for option in trine.OPTIONS:
        assert model.generate("The game", 4, **{option: values.get(option, 1)})


def test_options_change_the_text_and_none_is_the_default(model):
    usual = model.generate(TEXT, 24)
    assert usual == model.generate(TEXT, 24, temperature=None, seed=None, stop=None, bits=None)
    for options in [{"temperature": 1.5}, {"top_k": 1}, {"mirostat_mode": 2}, {"seed": 1}, {"dry_multiplier": 5.0, "temperature": 0}]:
        assert model.generate(TEXT, 24, **options) != usual, options
    banned = model.tokenize(usual, add_special=False)[0]
    assert model.generate(TEXT, 1, logit_bias={banned: -math.inf}, temperature=0) is not None


def test_texts_follow_grammars_and_schemas(model):
    assert model.generate(TEXT, 32, grammar='root ::= "yes" | "no"') in ("yes", "no")
    schema = {"type": "object", "properties": {"move": {"enum": ["e4", "d4"]}}, "required": ["move"], "additionalProperties": False}
    assert json.loads(model.generate(TEXT, 64, json_schema=schema))["move"] in ("e4", "d4")
    with pytest.raises(ValueError, match="exclude one another"):
        model.generate(TEXT, json_schema=schema, grammar="root ::= .")


def test_probabilities_are_those_of_the_logits(model):
    stream = model.stream(TEXT, 3, temperature=0, logprobs=2)
    assert "".join(stream) == stream.text and len(stream.tokens) == len(stream.logprobs) == 3
    logits = model.logits(model.tokenize(TEXT))[-1].astype(np.float64)
    expected = logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
    first = stream.logprobs[0]
    assert first["token"] == stream.tokens[0] == int(expected.argmax())
    assert abs(first["logprob"] - expected.max()) < 1e-4
    assert len(first["top"]) == 2 and first["top"][0] == (first["token"], first["logprob"])
    logprobs, greedy = model.score(TEXT, stream.text)
    assert greedy == [True] * len(logprobs)
    assert logprobs[0] == pytest.approx(first["logprob"], abs=1e-5)


def test_a_conversation_is_what_its_template_makes_of_it(model):
    text = model.apply_chat_template(MESSAGES, chat_template="chatml")
    assert text.startswith("<|im_start|>system\nBe brief.<|im_end|>") and text.endswith("assistant\n")
    answer = model.chat(MESSAGES, 12, chat_template="chatml", temperature=0)
    assert answer == model.generate(model.tokenize(text), 12, temperature=0)
    stream = model.stream_chat(MESSAGES, 12, chat_template="chatml", temperature=0)
    assert "".join(stream) == answer
    # Functions and variables reach the template.
    template = "{{ tools | length }}{{ mood }}{% for m in messages %}{{ m.content }}{% endfor %}"
    tools = [{"type": "function", "function": {"name": "clock", "parameters": {"type": "object"}}}]
    made = model.apply_chat_template(
        [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
        chat_template=template, tools=tools, template_variables={"mood": "!"},
    )
    assert made == "1!Hi"
    called = [
        {"role": "user", "content": "Time?"},
        {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "clock", "arguments": '{"zone": "UTC"}'}}]},
        {"role": "tool", "tool_call_id": "1", "content": "noon"},
    ]
    template = "{% for m in messages %}{% for c in m.tool_calls %}{{ c.function.arguments.zone }}{% endfor %}{{ m.content }} {% endfor %}"
    assert "UTC" in model.apply_chat_template(called, chat_template=template)


def test_a_text_behind_another_is_that_of_a_fresh_model(model):
    """The context of the last text is kept for the next; nobody can tell."""
    fresh = trine.Model(MODEL)
    first = fresh.generate(TEXT, 16, temperature=0)
    assert model.generate(TEXT, 16, temperature=0) == first
    half = model.stream(TEXT + first, 16, temperature=0)
    next(half)
    del half
    for prompt in [TEXT, "Another text", TEXT + first]:
        assert model.generate(prompt, 16, seed=3) == trine.Model(MODEL).generate(prompt, 16, seed=3)


def test_adapters_have_the_bits_of_the_reference():
    golden = json.loads((ROOT / "testdata/adapters/golden.json").read_text())
    tokens = json.loads((ROOT / "testdata/golden/logits/trilm-F16.json").read_text())["tokens"]
    cases = [case for case in golden["adapters"] if case["lora"] and not case["control"]]
    assert cases
    for case in cases:
        adapters = [(ROOT / "testdata/adapters" / name, scale) for name, scale in case["lora"]]
        logits = trine.Model(MODEL, adapters=adapters).logits(tokens)
        assert hashlib.sha256(logits.astype("<f4").tobytes()).hexdigest() == case["sha256"], case
        if len(adapters) == 1:
            (path, scale), = adapters
            assert (trine.Model(MODEL, lora_path=path, lora_scale=scale).logits(tokens) == logits).all()


def test_vectors_of_texts(model):
    one = model.embed(TEXT)
    both = model.embed([TEXT, "The game of go"])
    assert one.dtype == np.float32 and both.shape == (2, *one.shape) and (both[0] == one).all()
    assert (model.embed(model.tokenize(TEXT)) == one).all()
    assert np.linalg.norm(one) == pytest.approx(1, abs=1e-5)
    assert np.linalg.norm(model.embed(TEXT, normalize=False)) != pytest.approx(1, abs=1e-2)
    assert not (model.embed(TEXT, pooling="last") == one).all()
    with pytest.raises(ValueError, match="pooling must be"):
        model.embed(TEXT, pooling="none")


def test_models_that_do_not_rank_say_so(model):
    with pytest.raises(ValueError, match="the model does not rank texts"):
        model.rank("What is chess?", ["A game"])


def test_parts_come_while_the_event_loop_goes_on(model):
    async def both():
        async def text(seed):
            return "".join([part async for part in model.stream(TEXT, 16, seed=seed)])

        return await asyncio.gather(text(1), text(2))

    assert asyncio.run(both()) == [model.generate(TEXT, 16, seed=seed) for seed in (1, 2)]


def test_a_task_that_is_cancelled_ends_its_text(model):
    stream = model.stream(TEXT, None, n_ctx=4096, ignore_eos=True)

    async def listen():
        async for _ in stream:
            pass

    async def cancelled():
        task = asyncio.create_task(listen())
        while len(stream.tokens) < 3:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    list(stream)
    assert stream.end == "cancelled"


def test_another_thread_may_cancel(model):
    stream = model.stream(TEXT, None, n_ctx=4096, ignore_eos=True)
    parts = []
    reader = threading.Thread(target=lambda: parts.extend(stream))
    reader.start()
    while not parts:
        pass
    stream.cancel()
    reader.join(60)
    assert not reader.is_alive() and stream.end == "cancelled"


def test_progress_is_told(model, tmp_path):
    told = []
    ppl = model.perplexity("The game of chess is played by two. " * 40, n_ctx=64, progress=lambda *row: told.append(row))
    assert [row[0] for row in told] == list(range(1, told[0][1] + 1))
    assert told[-1][2] == ppl[0]
    told.clear()
    trine.quantize(MODEL, tmp_path / "out.gguf", "Q8_0", progress=lambda *row: told.append(row))
    assert told[-1][0] == told[-1][1] and told[0][2]
    half = model.perplexity("The game of chess is played by two. " * 40, n_ctx=64, chunks=2)
    assert half != ppl


def test_quantize_takes_what_the_tool_takes(tmp_path):
    def types(**options):
        out = tmp_path / "out.gguf"
        trine.quantize(MODEL, out, "Q4_K_M", **options)
        return {t["name"]: t["type"] for t in trine.inspect(out)["tensors"]}

    usual = types()
    assert types(pure=True) != usual
    assert types(token_embedding_type="q8_0")["token_embd.weight"] == "q8_0"
    assert types(tensor_types={r"ffn_down": "q6_k"})["blk.2.ffn_down.weight"] == "q6_K"
    assert len(types(prune_layers=[1, 2])) < len(usual)
    types(override_kv=["general.name=str:Small"])
    assert trine.inspect(tmp_path / "out.gguf")["metadata"]["general.name"] == "Small"
    trine.quantize(MODEL, tmp_path / "any.gguf", "AP2-4")
    several = trine.Model(tmp_path / "any.gguf")
    assert several.widths[0] == 2 and several.widths[-1] == 4
    for call in [several.logits, several.embed, several.generate]:
        with pytest.raises(ValueError, match="8"):
            call(TEXT, bits=8)
    assert several.generate(TEXT, 8, temperature=0) == several.generate(TEXT, 8, temperature=0, bits=4)
    several.generate(TEXT, 8, temperature=0, bits=2)
    assert several.generate(TEXT, 8, temperature=0) == several.generate(TEXT, 8, temperature=0, bits=4)
    with pytest.raises(ValueError, match="output_tensor_type"):
        types(output_tensor_type="q9")
    with pytest.raises(ValueError, match="fallback must be"):
        types(fallback="yes")
