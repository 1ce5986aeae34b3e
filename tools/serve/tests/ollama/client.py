"""Ollama's own Python client against rserve: python3 client.py http://127.0.0.1:PORT

The server runs a model with any chat template that knows functions and thoughts; the texts are compared with those of
/v1/chat/completions, so the model need not be clever. `pip install ollama` has the client.
"""

import asyncio
import json
import sys
import urllib.request

import ollama

URL = sys.argv[1]
SAMPLER = {"seed": 7, "temperature": 0.9, "top_k": 40, "top_p": 0.9, "min_p": 0.02, "repeat_penalty": 1.1}
OPTIONS = {**SAMPLER, "num_predict": 16}
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "The game"}]
SCHEMA = {
    "type": "object",
    "properties": {"n": {"enum": [1, 2]}},
    "required": ["n"],
    "additionalProperties": False,
}


def expected(path, **more):
    """The text of the same request on a route of OpenAI's."""
    body = json.dumps({"max_tokens": 16, **SAMPLER, **more}).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{URL}{path}", body)) as answer:
        return json.load(answer)["choices"][0]


def get_weather(city: str) -> str:
    """The weather of a city

    Args:
      city: its name
    """
    return f"rain in {city}"


def main():
    client = ollama.Client(host=URL)
    models = client.list().models
    name = models[0].model
    assert models[0].size > 0 and models[0].details.format == "gguf" and models[0].modified_at
    shown = client.show(name)
    assert shown.modelinfo["general.architecture"] == models[0].details.family
    assert "completion" in shown.capabilities and "num_ctx" in shown.parameters and shown.template
    running = client.ps().models
    assert [m.name for m in running] == [name] and running[0].context_length > 0
    print("list, show, ps:", name, models[0].details.parameter_size, models[0].details.quantization_level)

    text = expected("/v1/chat/completions", messages=MESSAGES)["message"]["content"]
    answer = client.chat(name, MESSAGES, options=OPTIONS)
    assert answer.message.content == text, (answer.message.content, text)
    assert answer.done and answer.done_reason in ("stop", "length") and answer.eval_count == 16
    parts = list(client.chat(name, MESSAGES, options=OPTIONS, stream=True))
    assert "".join(p.message.content for p in parts) == text and parts[-1].done and len(parts) > 2
    typed = client.chat(name, [ollama.Message(**m) for m in MESSAGES], options=ollama.Options(**OPTIONS_TYPED))
    assert typed.message.role == "assistant"
    print("chat:", repr(text))

    raw = expected("/v1/completions", prompt="The game")["text"]
    assert client.generate(name, "The game", raw=True, options=OPTIONS).response == raw
    parts = list(client.generate(name, "The game", system="Be brief.", options=OPTIONS, stream=True))
    assert "".join(p.response for p in parts) == text and parts[-1].prompt_eval_count > 0
    print("generate:", repr(raw))

    form = {"type": "json_schema", "json_schema": {"schema": SCHEMA}}
    text_of_form = expected("/v1/chat/completions", messages=MESSAGES, response_format=form)["message"]["content"]
    answer = client.chat(name, MESSAGES, format=SCHEMA, options=OPTIONS).message.content
    assert answer == text_of_form and json.loads(answer)["n"] in (1, 2)
    assert client.chat(name, MESSAGES, format="json", options=OPTIONS).message.content.startswith("{")
    print("format:", answer)

    if "thinking" in shown.capabilities:
        thought = client.chat(name, MESSAGES, think=True, options=OPTIONS).message
        plain = client.chat(name, MESSAGES, think=False, options=OPTIONS).message
        print("think:", repr(thought.thinking), repr(plain.content))
    if "tools" in shown.capabilities:
        tools = client.chat(name, MESSAGES, tools=[get_weather], options=OPTIONS)
        history = [
            *MESSAGES,
            {"role": "assistant", "tool_calls": [{"function": {"name": "get_weather", "arguments": {"city": "Ulm"}}}]},
            {"role": "tool", "tool_name": "get_weather", "content": get_weather("Ulm")},
        ]
        again = client.chat(name, history, tools=[get_weather], options=OPTIONS)
        print("tools:", tools.message.tool_calls, repr(again.message.content))
    told = client.chat(name, MESSAGES, logprobs=True, top_logprobs=2, options={**OPTIONS, "num_predict": 2})
    assert len(told.logprobs) == 2 and len(told.logprobs[0].top_logprobs) == 2

    vectors = client.embed(name, ["The game", "A game of the same kind"]).embeddings
    one = client.embed(name, "The game").embeddings
    assert list(vectors[0]) == list(one[0]) and len(vectors) == 2
    assert abs(sum(x * x for x in one[0]) - 1) < 1e-4
    old = client.embeddings(name, "The game").embedding
    assert len(old) == len(one[0])
    assert len(client.embed(name, "The game", dimensions=8).embeddings[0]) == 8
    print("embed:", len(old), "numbers")

    # Loading and unloading, as `ollama run` and `ollama stop` do it.
    assert client.generate(name).done_reason == "load"
    client.generate(name, keep_alive=0)
    for call in (
        lambda: client.pull("x"),
        lambda: client.push("x"),
        lambda: client.create("x", from_="y"),
        lambda: client.delete("x"),
        lambda: client.copy("x", "y"),
        lambda: client.chat(name, [{"role": "user", "content": "What is that?", "images": [b"no image"]}]),
        lambda: list(client.chat(name, MESSAGES, options={"temperature": "hot"}, stream=True)),
    ):
        try:
            call()
        except ollama.ResponseError as e:
            assert e.status_code in (400, 501) and e.error, e
            print("refused:", e)
        else:
            raise AssertionError("nothing was refused")

    async def several():
        client = ollama.AsyncClient(host=URL)
        whole = await asyncio.gather(*(client.chat(name, MESSAGES, options=OPTIONS) for _ in range(4)))
        assert {w.message.content for w in whole} == {text}
        streamed = ""
        async for part in await client.chat(name, MESSAGES, options=OPTIONS, stream=True):
            streamed += part.message.content
        assert streamed == text
        assert len((await client.embed(name, "The game")).embeddings) == 1

    asyncio.run(several())
    print("all is well")


# The typed options have no min_p.
OPTIONS_TYPED = {name: value for name, value in OPTIONS.items() if name != "min_p"}

if __name__ == "__main__":
    main()
