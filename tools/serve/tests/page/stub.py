"""A server that speaks rserve's API with made-up texts, for the tests of the page and for looking at it.

    python3 stub.py [--port 8099] [--no-template] [--key KEY]

The last message decides what happens. Beside plain texts, whose answer is a function of request, seed and bits, it knows:

    /md               an answer with all of Markdown           /hostile N   the hostile answer N
    /slow             an answer that takes its time            /split       events cut into single bytes
    /cut              the connection breaks after 5 words      /fault       an error event after 5 words
    /busy N           429 for the first N requests             /draining    503
    /full N           a context of N messages                  /differ      an end that depends on load
    /later            another answer after the first request
"""

import argparse
import hashlib
import itertools
import json
import random
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ASSETS = Path(__file__).resolve().parents[2] / "assets"
FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/style.css": ("style.css", "text/css; charset=utf-8"),
    "/app.js": ("app.js", "text/javascript; charset=utf-8"),
}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
WORDS = ("the a small garden stone river light and then slowly under over wind tree bird house window evening of to in "
         "was had came went found where every quiet blue grün naïve 雨 🌧").split()

MARKDOWN = """# A heading
A paragraph with *emphasis*, **strong words**, ***both***, `code`, ~~struck~~ and a [link](https://example.org/a_(b)).
A bare address: https://example.org/x?y=1, and snake_case_words stay.

1. first
2. second
   - inner **one**
   - inner two

> A quote, with
> a second line.

| name | bits | note |
|------|-----:|------|
| a    | 3    | `x`  |
| b    | 8    | *y*  |

```rust
fn main() {
    println!("<b>no markup</b>"); // and a long line that has to scroll sideways instead of stretching the whole page
}
```

Left alone: 2 * 3, **open, [x], a_b_c and `tick.

---
The end."""

HOSTILE = [
    "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script><b>bold?</b>",
    "[x](javascript:document.title='owned') [y](data:text/html,<script>1</script>) [z](JaVaScRiPt:alert(1)) "
    "[w](java\nscript:alert(1)) <javascript:alert(1)> [v](//evil.example/) [u](vbscript:x)",
    "![pixel](http://127.0.0.1:9/pixel.png?secret) ![p](https://evil.example/p.png \"t\") "
    "[![badge](https://evil.example/b.svg)](https://evil.example/)",
    "`" * 100_000,
    "``` \nunclosed\n<img src=x onerror=alert(1)>",
    "\u202emirrored\u202c \u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627 \u2066\u202eabc",
    "*" * 50_000 + "a" + "_*" * 25_000,
    "[" * 50_000 + "](x" * 20_000,
    ">" * 50_000 + " deep\n" + "- " * 20_000 + "x",
    "\n".join("  " * (i % 500) + "- x" for i in range(3000)),
    "|" * 20_000 + "\n" + "|-" * 10_000 + "|\n" + "|\n" * 3000,
    "-" * 60_000 + "x\n| a | b |\n" + "-" * 60_000 + "|y",
    "](a" + " " * 50_000 + "b " + "http://" + "." * 50_000 + "x",
    "**a *b " * 8000 + "\\" * 20_001 + "\x00\x07\ufeff\ufffd" + "e\u0301" * 500 + "Z\u0334\u0335\u0336" * 300,
    "`a``b```c````d" * 8000,
]


class Stub(ThreadingHTTPServer):
    """The server; its attributes are what tests set and look at."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, port=0):
        super().__init__(("127.0.0.1", port), Handler)
        self.template = "{{ messages }}"
        self.key = None
        self.loading = 0        # so many requests are answered by 503
        self.refused = 0        # so many requests of /busy were refused
        self.bodies = []        # the completion requests that came, in order
        self.active = 0
        self.most_active = 0    # completions that ran at the same time
        self.lock = threading.Lock()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def start(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self


def text_for(body, command, load, first):
    """The answer to a request, as a list of tokens; `load` requests run, and `first` says that there was none before."""
    name, _, number = command.partition(" ")
    if name == "/md":
        return [MARKDOWN[i : i + 7] for i in range(0, len(MARKDOWN), 7)]
    if name == "/hostile":
        text = HOSTILE[int(number)]
        return [text[i : i + 20_000] for i in range(0, len(text), 20_000)]
    if name == "/split":
        return [" grün", " 雨", " 🌧"] * 4
    known = {k: body.get(k) for k in ("messages", "prompt", "seed", "bits", "temperature")}
    digest = hashlib.sha256(json.dumps(known, sort_keys=True).encode()).digest()
    count = min({"/slow": 60, "/differ": 60}.get(name, 24), body.get("max_tokens", 60))
    draw = random.Random(digest)
    tokens = [" " + draw.choice(WORDS) for _ in range(count)]
    if name == "/differ":
        tokens[-1] = f" {load}"
    if name == "/later":
        tokens[-1] = f" {first}"
    return tokens


def timings(predicted):
    return {"prompt_n": 12, "cache_n": 4, "predicted_n": predicted, "predicted_per_second": 41.5}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, code, body, kind="application/json", **headers):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(code)
        for name, value in {**HEADERS, "Content-Type": kind, "Content-Length": len(data), **headers}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        self.wfile.write(data)

    def refuse(self, code, kind, message, headers={}, **more):
        self.answer(code, {"error": {"code": code, "type": kind, "message": message, **more}}, **headers)

    def admitted(self):
        stub = self.server
        if stub.loading > 0:
            stub.loading -= 1
            self.refuse(503, "unavailable_error", "Loading model")
        elif stub.key and self.headers.get("Authorization") != f"Bearer {stub.key}":
            self.refuse(401, "authentication_error", "Invalid API Key")
        else:
            return True
        return False

    def do_GET(self):
        if self.path in FILES:
            name, kind = FILES[self.path]
            self.answer(200, (ASSETS / name).read_bytes(), kind)
        elif self.path.split("?")[0] not in ("/v1/models", "/props"):
            self.refuse(404, "not_found_error", "File Not Found")
        elif not self.admitted():
            pass
        elif self.path.split("?")[0] == "/props":
            params = {"temperature": 0.800000011920929, "top_k": 40, "top_p": 0.949999988079071, "min_p": 0.05}
            params["n_predict"] = -1
            settings = {"params": params, "n_ctx": 2048}
            self.answer(200, {"default_generation_settings": settings, "chat_template": self.server.template})
        else:
            ids = ["stub-1b"] + [f"stub-1b:{bits}bit" for bits in range(3, 9)]
            self.answer(200, {"object": "list", "data": [{"id": i, "object": "model"} for i in ids]})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        chat = self.path == "/v1/chat/completions"
        if not chat and self.path != "/v1/completions":
            return self.refuse(404, "not_found_error", "File Not Found")
        if not self.admitted():
            return None
        stub = self.server
        command = body["messages"][-1]["content"] if chat else body["prompt"]
        name, _, number = command.partition(" ")
        with stub.lock:
            stub.bodies.append(body)
        if name == "/busy" and stub.refused < int(number):
            stub.refused += 1
            return self.refuse(429, "rate_limit_error", "the server is busy: 9 requests are waiting", {"Retry_After": 2})
        if name == "/draining":
            return self.refuse(503, "unavailable_error", "the server is shutting down", {"Retry_After": 5})
        if name == "/full" and len(body["messages"]) > int(number):
            return self.refuse(400, "exceed_context_size_error", "request (9 tokens) exceeds the available context size")
        with stub.lock:
            stub.active += 1
            stub.most_active = max(stub.most_active, stub.active)
            load = stub.active
        try:
            self.stream(body, chat, name, text_for(body, command, load, len(stub.bodies) == 1))
        except (BrokenPipeError, ConnectionResetError):
            pass
        finally:
            with stub.lock:
                stub.active -= 1
        return None

    def stream(self, body, chat, name, tokens):
        self.send_response(200)
        for header, value in {**HEADERS, "Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"}.items():
            self.send_header(header, value)
        self.end_headers()

        def write(data):
            parts = (data[i : i + 1] for i in range(len(data))) if name == "/split" else [data]
            for part in parts:
                if name == "/split":
                    time.sleep(0.0005)   # or the browser would get several at once
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
                self.wfile.flush()

        def event(value):
            write(b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n")

        def choice(text=None, finish=None):
            shape = {"delta": {} if text is None else {"content": text}} if chat else {"text": text or ""}
            return {"choices": [{"index": 0, "finish_reason": finish, **shape}]}

        write(b":\n\n")
        if chat:
            event({"choices": [{"index": 0, "finish_reason": None, "delta": {"role": "assistant", "content": None}}]})
        time.sleep(0.05)
        for count, token in zip(itertools.count(1), tokens):
            if name == "/cut" and count > 5:
                self.connection.shutdown(2)
                return
            if name == "/fault" and count > 5:
                event({"error": {"code": 500, "type": "server_error", "message": "a value in the logits is no number"}})
                self.wfile.write(b"0\r\n\r\n")
                return
            event({**choice(token), "timings": timings(count)})
            time.sleep({"/md": 0.002, "/hostile": 0, "/split": 0}.get(name, 0.02))
        event(choice(finish="length" if len(tokens) == body.get("max_tokens") else "stop"))
        usage = {"prompt_tokens": 16, "completion_tokens": len(tokens), "prompt_tokens_details": {"cached_tokens": 4}}
        effective = {"bits": body.get("bits", 8), "seed": body["seed"]}
        event({"choices": [], "usage": usage, "trine": effective, "timings": timings(len(tokens))})
        write(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8099)
    parser.add_argument("--no-template", action="store_true", help="a model without chat template")
    parser.add_argument("--key", help="the key to ask for")
    args = parser.parse_args()
    stub = Stub(args.port)
    stub.key = args.key
    if args.no_template:
        stub.template = ""
    print(stub.url)
    stub.serve_forever()


if __name__ == "__main__":
    main()
