"""Errors have Python's types and name the argument."""

import pytest
from conftest import MODEL

import trine

PROMPT = "The game"


@pytest.mark.parametrize(
    "option, value, message",
    [
        ("temperature", -1, "temperature must be 0 or more, not -1"),
        ("temperature", float("nan"), "temperature must be 0 or more, not nan"),
        ("top_p", 1.5, "top_p must be from 0 to 1, not 1.5"),
        ("min_p", -0.1, "min_p must be from 0 to 1, not -0.1"),
        ("repeat_penalty", 0, "repeat_penalty must be above 0, not 0"),
        ("mirostat_mode", 3, "mirostat_mode must be from 0 to 2, not 3"),
        ("seed", -1, "seed must be from 0 to 4294967295, not -1"),
        ("seed", 1 << 40, "seed must be from 0 to 4294967295, not 1099511627776"),
        ("bits", 9, "bits must be from 1 to 8, not 9"),
        ("samplers", ["top_q"], "samplers: there is no step 'top_q'"),
        ("logit_bias", {-1: 1.0}, "a token of logit_bias must be from 0 to 4095, not -1"),
        ("stop", "", "stop string 0 is empty"),
        ("grammar", "root ::= (", "grammar: "),
        ("json_schema", {"type": "nothing"}, "json_schema: "),
        ("n_ctx", 0, "n_ctx must be 1 or more, not 0"),
    ],
)
def test_values_that_make_no_sense_are_value_errors(model, option, value, message):
    for call in [model.generate, model.stream]:
        with pytest.raises(ValueError) as told:
            call(PROMPT, **{option: value})
        assert str(told.value).startswith(message)


@pytest.mark.parametrize(
    "option, value, message",
    [
        ("temperature", "hot", "temperature must be a float, not str"),
        ("temperature", True, "temperature must be a float, not bool"),
        ("top_k", 1.5, "top_k must be an int, not float"),
        ("seed", "7", "seed must be an int, not str"),
        ("stop", 7, "stop must be a str or a list of str, not int"),
        ("grammar", 7, "grammar must be a str, not int"),
        ("json_schema", "{}", "json_schema must be a dict, or True for any JSON object, not str"),
        ("logit_bias", [1], "logit_bias must be a dict of token ids and floats, not list"),
        ("temprature", 1, "generate() got an unexpected keyword argument 'temprature'; did you mean 'temperature'?"),
    ],
)
def test_wrong_types_are_type_errors(model, option, value, message):
    with pytest.raises(TypeError) as told:
        model.generate(PROMPT, **{option: value})
    assert str(told.value) == message


def test_arguments_of_wrong_types_are_type_errors(model, tmp_path):
    for wrong in [
        lambda: model.generate(7),
        lambda: model.generate(PROMPT, "8"),
        lambda: model.tokenize(7),
        lambda: model.logits(None),
        lambda: model.perplexity(b"text"),
        lambda: trine.Model(7),
        lambda: trine.Model(MODEL, threads="two"),
        lambda: trine.quantize(MODEL, tmp_path / "x.gguf", 15),
        lambda: trine.open(),
        lambda: trine.open(MODEL, hf="user/repo"),
        lambda: model.chat("Hello", chat_template="chatml"),
        lambda: model.chat(["Hello"], chat_template="chatml"),
        lambda: model.score("The", [1]),
    ]:
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(ValueError, match="threads must be from 1 to 1024, not 0"):
        trine.Model(MODEL, threads=0)


def test_files_that_cannot_be_opened_are_os_errors(tmp_path):
    missing = tmp_path / "none.gguf"
    for call in [
        lambda: trine.Model(missing),
        lambda: trine.inspect(missing),
        lambda: trine.quantize(missing, tmp_path / "x.gguf", "Q4_0"),
        lambda: trine.quantize(MODEL, tmp_path / "x.gguf", "Q4_0", imatrix=missing),
        lambda: trine.Model(MODEL, lora_path=missing),
    ]:
        with pytest.raises(FileNotFoundError) as told:
            call()
        assert (told.value.errno, str(told.value.filename)) == (2, str(missing))
    with pytest.raises(IsADirectoryError):
        trine.Model(tmp_path)
    with pytest.raises(OSError):
        trine.quantize(MODEL, tmp_path / "no folder" / "x.gguf", "Q4_0")
    with pytest.raises(FileNotFoundError, match="not in the cache"):
        trine.open(hf="user/repo:Q4_0", offline=True)
    with pytest.raises(ValueError, match="names no repository"):
        trine.open(hf="a model")
    assert not (tmp_path / "x.gguf").exists()


def test_a_prompt_that_does_not_fit_names_n_ctx(model):
    with pytest.raises(trine.Error, match="give a larger n_ctx"):
        model.generate("The game of chess is played by two", n_ctx=8)
    with pytest.raises(trine.Error, match="a smaller n_ctx"):
        model.perplexity("The game")


def test_messages_that_are_none_are_named(model):
    for messages, what in [
        ([], "messages is empty"),
        ([{"content": "Hi"}], r"messages\[0\]: it has no role"),
        ([{"role": "user"}], r"messages\[0\]: it has no content"),
        ([{"role": "judge", "content": "Hi"}], r"messages\[0\]: role 'judge' is none of"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], r"messages\[0\]: a part of content has the type 'image_url'"),
    ]:
        with pytest.raises(ValueError, match=what):
            model.chat(messages, chat_template="chatml")
    with pytest.raises(trine.Error, match="no chat template; give one as chat_template"):
        model.chat([{"role": "user", "content": "Hi"}])
