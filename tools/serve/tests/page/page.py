"""Tests of the embedded page in headless Chromium, against the server of stub.py.

    pip install playwright                  # its Python package alone; the browser is the system's
    python3 page.py [--chromium /usr/bin/chromium] [--shots FOLDER] [NAME ...]

Every test gets a server and a browser context of its own. After each one the browser must not have reported an error or a
violation of the content security policy, nor have asked another host for anything. Exits with 1 if a test fails.
"""

import argparse
import hashlib
import random
import re
import sys
import time
import traceback
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

from stub import ASSETS, HOSTILE, Stub

TESTS = []
SLOW = 30_000   # milliseconds; the machine may be busy


def test(run):
    TESTS.append(run)
    return run


class Page:
    """A browser page on a stub, and what the browser said."""

    def __init__(self, browser, **context):
        self.stub = Stub().start()
        self.context = browser.new_context(**{"viewport": {"width": 1100, "height": 800}, **context})
        self.page = self.context.new_page()
        self.said = []
        self.foreign = []
        self.expected = []   # patterns of messages that the test is about
        self.page.on("console", lambda m: self.said.append(m.text) if m.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda e: self.said.append(str(e)))
        self.page.on("request", self.on_request)

    def on_request(self, request):
        if not request.url.startswith((self.stub.url, "data:")):
            self.foreign.append(request.url)

    def open(self, ready=True):
        self.page.goto(self.stub.url)
        if ready:
            expect(self.page.locator("#status")).to_have_attribute("data-state", "ready", timeout=SLOW)
        return self.page

    def send(self, text, wait=True):
        self.page.locator("#prompt").fill(text)
        self.page.locator("#prompt").press("Enter")
        if wait:
            expect(self.page.locator("#send")).to_be_visible(timeout=SLOW)

    def lay_open(self, name):
        """The page's script keeps its names to itself; /open.js is the same with one of them exported."""
        script = (ASSETS / "app.js").read_text() + f"\nexport {{ {name} }};\n"
        self.context.route("**/open.js", lambda route: route.fulfill(content_type="text/javascript", body=script))

    def words(self, index=-1):
        return self.page.locator(".answer > .words").nth(index)

    def press(self, label, index=-1):
        self.page.get_by_role("button", name=label).nth(index).click()

    def close(self):
        unexpected = [m for m in self.said if not any(re.search(e, m) for e in self.expected)]
        self.context.close()
        self.stub.shutdown()
        self.stub.server_close()
        assert not unexpected, f"the browser said {unexpected}"
        assert not self.foreign, f"the page asked {self.foreign}"


@test
def size(p):
    total = sum((ASSETS / name).stat().st_size for name in ("index.html", "style.css", "app.js"))
    assert total < 60 * 1024, total
    p.open()


@test
def answers_stream_and_tell_their_figures(p):
    page = p.open()
    p.send("/slow tell me", wait=False)
    expect(p.words()).not_to_be_empty(timeout=SLOW)
    expect(page.locator("#stop")).to_be_visible()
    first = p.words().inner_text()
    expect(page.locator("#send")).to_be_visible(timeout=SLOW)
    assert p.words().inner_text().startswith(first) and len(p.words().inner_text()) > len(first)
    figures = page.locator(".figures").inner_text()
    for part in ("41.5 tokens/s", "to first token", "60 tokens", "16 in the prompt, 4 from cache", "8 bits", "seed"):
        assert part in figures, (part, figures)
    body = p.stub.bodies[0]
    assert body["model"] == "stub-1b" and body["stream"] and body["bits"] == 8 and body["max_tokens"] == 512, body
    assert "temperature" not in body, body


@test
def stop_keeps_the_text(p):
    page = p.open()
    p.send("/slow", wait=False)
    expect(p.words()).not_to_be_empty(timeout=SLOW)
    page.locator("#prompt").press("Escape")
    expect(page.locator(".note")).to_have_text("Stopped.")
    assert p.words().inner_text()
    for _ in range(50):
        if p.stub.active == 0:
            break
        time.sleep(0.1)
    assert p.stub.active == 0, "the server still generates"


@test
def regenerate_and_edit(p):
    page = p.open()
    p.send("one")
    p.send("two")
    first = p.words(1).inner_text()
    p.press("Regenerate")
    expect(page.locator("#send")).to_be_visible(timeout=SLOW)
    assert p.words(1).inner_text() != first, "a new seed"
    assert [m["role"] for m in p.stub.bodies[-1]["messages"]] == ["user", "assistant", "user"]
    page.locator("#prompt").press("ArrowUp")
    editor = page.get_by_label("Edit your message")
    expect(editor).to_have_value("two")
    editor.fill("three")
    editor.press("Enter")
    expect(page.locator(".asked .words").nth(1)).to_have_text("three")
    expect(page.locator("#send")).to_be_visible(timeout=SLOW)
    # A change of the first message takes away what was built on it.
    p.press("Edit", 0)
    page.get_by_label("Edit your message").fill("zero")
    page.get_by_label("Edit your message").press("Enter")
    expect(page.locator(".turn")).to_have_count(1)
    expect(page.locator("#send")).to_be_visible(timeout=SLOW)
    assert [m["content"] for m in p.stub.bodies[-1]["messages"]] == ["zero"]
    p.press("Delete")
    expect(page.locator(".turn")).to_have_count(0)


@test
def a_fixed_seed_gives_the_same_text(p):
    page = p.open()
    p.press("Settings")
    page.get_by_label("Seed").fill("42")
    page.get_by_label("Temperature").fill("0.5")
    page.get_by_label("System prompt").fill("Be brief.")
    page.get_by_role("button", name="Done").click()
    p.send("hello")
    first = p.words().inner_text()
    p.press("Regenerate")
    expect(page.locator("#send")).to_be_visible(timeout=SLOW)
    assert p.words().inner_text() == first
    body = p.stub.bodies[-1]
    assert body["seed"] == 42 and body["temperature"] == 0.5, body
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}, body


@test
def settings_and_chat_survive_a_reload(p):
    page = p.open()
    p.press("Settings")
    assert page.get_by_label("Temperature").get_attribute("placeholder") == "0.8"
    page.get_by_label("Top-k").fill("7")
    page.get_by_label("Colours").select_option("dark")
    page.keyboard.press("Escape")
    page.locator("#bits").fill("1")
    p.send("hello")
    text = p.words().inner_text()
    page.reload()
    expect(p.words()).to_have_text(text)
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    expect(page.locator("#bits-shown")).to_contain_text("4 bits")
    p.send("again")
    assert p.stub.bodies[-1]["top_k"] == 7 and p.stub.bodies[-1]["bits"] == 4
    assert p.stub.bodies[-1]["messages"][1]["role"] == "assistant"


@test
def dark_and_light(p):
    page = p.open()
    paper = lambda: page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.emulate_media(color_scheme="light")
    light = paper()
    page.emulate_media(color_scheme="dark")
    dark = paper()
    assert light != dark
    p.press("Settings")
    page.get_by_label("Colours").select_option("light")
    assert paper() == light
    page.get_by_label("Colours").select_option("dark")
    page.emulate_media(color_scheme="light")
    assert paper() == dark
    page.keyboard.press("Escape")
    p.press("Light or dark")
    assert paper() == light


@test
def new_chat_and_back(p):
    page = p.open()
    p.send("hello")
    page.keyboard.press("Control+Shift+O")
    expect(page.locator(".turn")).to_have_count(0)
    expect(page.locator("#welcome")).to_be_visible()
    p.press("Bring back")
    expect(page.locator(".turn")).to_have_count(1)
    p.send("and more")
    assert len(p.stub.bodies[-1]["messages"]) == 3


@test
def keyboard_alone(p):
    page = p.open()
    expect(page.locator("#prompt")).to_be_focused()
    page.keyboard.type("first")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("second")
    page.keyboard.press("Enter")
    expect(page.locator("#send")).to_be_visible(timeout=SLOW)
    assert p.stub.bodies[0]["messages"][0]["content"] == "first\nsecond"
    for _ in range(12):
        page.keyboard.press("Shift+Tab")
        if page.evaluate("document.activeElement.textContent") == "Regenerate":
            break
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid", "focus is visible"
    page.keyboard.press("Enter")
    expect(page.locator("#stop")).to_be_focused()
    expect(page.locator("#prompt")).to_be_focused(timeout=SLOW)
    assert len(p.stub.bodies) == 2


@test
def copying(p):
    p.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = p.open()
    p.send("/md")
    clipboard = lambda: page.evaluate("navigator.clipboard.readText()")
    page.locator(".answer > .actions").get_by_role("button", name="Copy").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert clipboard().startswith("# A heading\nA paragraph with *emphasis*")
    page.locator(".code button").click()
    expect(page.locator(".code button")).to_have_text("Copied")
    assert clipboard().startswith("fn main() {\n    println!")


@test
def markdown(p):
    page = p.open()
    p.send("/md")
    words = p.words()
    expect(words.locator("h1")).to_have_text("A heading")
    expect(words.locator("p em").first).to_have_text("emphasis")
    expect(words.locator("p > strong").nth(1)).to_have_text("both")
    expect(words.locator("p del")).to_have_text("struck")
    expect(words.locator("p code").first).to_have_text("code")
    assert words.locator("a").evaluate_all("all => all.map(a => a.href)") == [
        "https://example.org/a_(b)", "https://example.org/x?y=1"]
    assert words.locator("a").first.get_attribute("rel") == "noopener noreferrer"
    expect(words).to_contain_text("snake_case_words stay")
    expect(words.locator("ol > li")).to_have_count(2)
    expect(words.locator("ol > li > ul > li")).to_have_text(["inner one", "inner two"])
    expect(words.locator("blockquote p")).to_have_text("A quote, with\na second line.")
    expect(words.locator("tbody tr").nth(1).locator("td")).to_have_text(["b", "8", "y"])
    expect(words.locator("pre code")).to_contain_text('println!("<b>no markup</b>");')
    expect(words.locator(".code span")).to_have_text("rust")
    expect(words.locator("hr")).to_have_count(1)
    expect(words).to_contain_text("Left alone: 2 * 3, **open, [x], a_b_c and `tick.")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing stretches the page"


@test
def hostile_answers_are_text(p):
    page = p.open()
    allowed = ("DIV P H1 H2 H3 H4 H5 H6 UL OL LI BLOCKQUOTE HR PRE CODE EM STRONG DEL A "
               "TABLE THEAD TBODY TR TH TD SPAN BUTTON")
    for number, text in enumerate(HOSTILE):
        began = time.monotonic()
        p.send(f"/hostile {number}")
        expect(p.words()).not_to_be_empty(timeout=SLOW)
        tags = p.words().evaluate("node => [...new Set([...node.querySelectorAll('*')].map(n => n.tagName))]")
        assert set(tags) <= set(allowed.split()), (number, tags)
        links = p.words().locator("a").evaluate_all("all => all.map(a => a.getAttribute('href'))")
        assert all(re.match(r"(https?:|mailto:)", href) for href in links), (number, links)
        names = p.words().evaluate("n => [...new Set([...n.querySelectorAll('*')].flatMap(e => e.getAttributeNames()))]")
        known = {"class", "dir", "href", "title", "target", "rel", "type", "tabindex", "start"}
        assert set(names) <= known, (number, names)
        assert page.title() == "stub-1b"
        deepest = p.words().evaluate("""node => {
            const depth = n => (n === node ? 0 : 1 + depth(n.parentNode));
            return [...node.querySelectorAll("*")].map(depth).reduce((a, b) => Math.max(a, b), 0);
        }""")
        assert deepest < 64, (number, deepest)
        print(f"      hostile {number}: {len(text)} characters, {time.monotonic() - began:.1f} s")
        page.keyboard.press("Control+Shift+O")
    p.send("/hostile 0")
    expect(p.words()).to_contain_text("<img src=x onerror=")
    p.send("/hostile 2")
    expect(p.words().locator("a").first).to_have_attribute("href", "http://127.0.0.1:9/pixel.png?secret")


@test
def random_markdown_loses_no_word(p):
    """Whatever marks stand around them, the words of a text are all shown, in order, and growing changes no result."""
    page = p.open()
    p.lay_open("Markdown")
    show = """async texts => {
        const { Markdown } = await import("/open.js");
        return texts.map(text => {
            const [once, grown] = [document.createElement("div"), document.createElement("div")];
            new Markdown(once).show(text);
            const view = new Markdown(grown);
            for (let n = 1; n < text.length; n += 7) view.show(text.slice(0, n));
            view.show(text);
            return [once.textContent, once.innerHTML === grown.innerHTML];
        });
    }"""
    draw = random.Random(7)
    marks = ["*", "**", "***", "_", "__", "~~", "`", "``", "[", "]", "](", "](https://a.b/)", "![", ")", "\n", "\n\n", "> ", "- ",
             "1. ", "2) ", "# ", "---", "  ", "    ", "\\", "<", ">", "http://", "\t"]
    # Words may be the language of a fence, or stand between the head and the rows of a table or beyond its columns.
    hiding = ["```", "~~~", "|", "\n|-|-|\n"]
    gap = lambda: draw.choice(["", " ", "\n"])
    texts, words = [], []
    for number in range(600):
        own = [f"w{i}x" for i in range(draw.randrange(1, 30))]
        may_hide = number % 2 == 1
        texts.append("".join(w + gap() + draw.choice(marks + hiding * may_hide) + gap() for w in own))
        words.append([] if may_hide else own)
    for text, own, (shown, same) in zip(texts, words, page.evaluate(show, texts)):
        assert same, ("growing gives another result", text)
        assert re.findall(r"w\d+x", shown) == own or not own, (text, shown)


@test
def events_cut_anywhere(p):
    p.open()
    p.send("/split grün")
    split = p.words().inner_text()
    assert split == "grün 雨 🌧 " * 3 + "grün 雨 🌧", split


@test
def eight_runs_are_compared(p):
    page = p.open()
    p.send("/slow a story")
    text = "".join(page.evaluate("JSON.parse(sessionStorage['rserve.chat'])[0].answer.text"))
    p.press("Run 8 times")
    expect(page.locator(".runs li")).to_have_count(8)
    expect(page.locator(".verdict")).to_have_text(
        "All 8 texts are equal, byte for byte, and equal to the answer above.", timeout=SLOW)
    digest = hashlib.sha256(text.encode()).hexdigest()
    expect(page.locator(".comparison > .hash")).to_contain_text(digest)
    for title in page.locator(".runs li").evaluate_all("all => all.map(n => n.title)"):
        assert title == digest
    bodies = p.stub.bodies
    assert len(bodies) == 9 and all(b == bodies[0] for b in bodies), "the same request nine times"
    assert p.stub.most_active == 8, p.stub.most_active
    p.press("Close")
    expect(page.locator(".comparison")).to_have_count(0)


@test
def a_difference_is_seen(p):
    page = p.open()
    p.send("/differ")
    p.press("Run 8 times")
    expect(page.locator(".verdict")).to_contain_text("texts differ, first at byte", timeout=SLOW)
    assert page.locator(".runs li.other").count() > 0
    # What was shown of a stopped answer is the same in all of them; their ends are not.
    p.send("/differ", wait=False)
    expect(p.words()).not_to_be_empty(timeout=SLOW)
    page.keyboard.press("Escape")
    p.press("Run 8 times")
    expect(page.locator(".verdict").last).to_contain_text("texts differ, first at byte", timeout=SLOW)


@test
def eight_equal_texts_that_are_not_the_answer_are_no_success(p):
    page = p.open()
    p.send("/later")
    p.press("Run 8 times")
    expect(page.locator(".verdict")).to_contain_text("8 of 8 texts differ, first at byte", timeout=SLOW)


@test
def a_stopped_answer_is_compared_as_far_as_it_goes(p):
    page = p.open()
    p.send("/slow", wait=False)
    expect(p.words()).not_to_be_empty(timeout=SLOW)
    page.keyboard.press("Escape")
    p.press("Run 8 times")
    expect(page.locator(".verdict")).to_have_text(
        "All 8 texts are equal, byte for byte, and begin with the answer above.", timeout=SLOW)


@test
def sha256_at_the_borders_of_blocks(p):
    page = p.open()
    p.lay_open("sha256")
    texts = ["", "abc", "ü雨🌧"] + ["x" * n for n in range(50, 130)] + ["é" * 5000]
    got = page.evaluate("async texts => { const { sha256 } = await import('/open.js'); return texts.map(sha256); }", texts)
    assert got == [hashlib.sha256(t.encode()).hexdigest() for t in texts]


@test
def precision_changes_bits(p):
    page = p.open()
    expect(page.locator("#bits-shown")).to_have_text("8 bits")
    page.locator("#bits").focus()
    for _ in range(5):
        page.keyboard.press("ArrowLeft")
    expect(page.locator("#bits-shown")).to_have_text("3 bits")
    p.send("hello")
    assert p.stub.bodies[-1]["bits"] == 3 and p.stub.bodies[-1]["model"] == "stub-1b"
    expect(page.locator(".figures")).to_contain_text("3 bits")


@test
def a_model_without_template_continues_texts(p):
    p.stub.template = ""
    page = p.open()
    expect(page.locator("#welcome-title")).to_have_text("Begin a text")
    p.send("Once upon a time ")
    assert p.stub.bodies[0]["prompt"] == "Once upon a time " and "messages" not in p.stub.bodies[0]
    text = page.locator(".plain").inner_text()
    assert text.startswith("Once upon a time ") and len(text) > 40
    p.press("Go on")
    expect(page.locator("#send")).to_be_visible(timeout=SLOW)
    assert p.stub.bodies[1]["prompt"].startswith("Once upon a time ") and len(p.stub.bodies[1]["prompt"]) > 40
    p.press("Run 8 times", 0)
    expect(page.locator(".verdict")).to_contain_text("All 8 texts are equal", timeout=SLOW)
    p.send("/hostile 0")
    expect(page.locator(".made").last).to_contain_text("<img src=x onerror=")


@test
def a_key_is_asked_for(p):
    p.expected = ["401"]
    p.stub.key = "secret"
    page = p.open(ready=False)
    expect(page.locator("#key")).to_be_visible(timeout=SLOW)
    page.locator("#key-value").fill("wrong")
    page.keyboard.press("Enter")
    expect(page.locator("#key-value")).to_have_value("")
    expect(page.locator("#key-why")).to_have_text("Invalid API Key")
    page.locator("#key-value").fill("secret")
    page.keyboard.press("Enter")
    expect(page.locator("#status")).to_have_attribute("data-state", "ready")
    p.send("hello")
    text = p.words().inner_text()
    assert text
    assert "secret" not in page.evaluate("JSON.stringify(localStorage)"), "the key goes with the tab"
    # A key that was changed in between is asked for again, and the question is not lost.
    p.stub.key = "other"
    p.send("more", wait=False)
    expect(page.locator("#key")).to_be_visible(timeout=SLOW)
    page.locator("#key-value").fill("other")
    page.keyboard.press("Enter")
    expect(p.words(1)).not_to_be_empty(timeout=SLOW)
    expect(page.locator("#send")).to_be_visible(timeout=SLOW)
    assert p.words(0).inner_text() == text


@test
def a_busy_server_gets_the_time_it_asks_for_once(p):
    p.expected = ["429"]
    page = p.open()
    p.send("/busy 1", wait=False)
    expect(page.locator(".note")).to_contain_text("The server is busy. Trying once more in 2 s.", timeout=SLOW)
    expect(page.locator("#send")).to_be_visible(timeout=SLOW)
    assert p.words().inner_text() and not page.locator(".note").is_visible()
    p.stub.refused = 0
    p.send("/busy 2")
    expect(page.locator(".fault").last).to_have_text("the server is busy: 9 requests are waiting")
    p.press("Try again")
    expect(p.words(1)).not_to_be_empty(timeout=SLOW)
    assert p.stub.bodies[-1] == p.stub.bodies[-2]


@test
def loading_and_draining_are_shown(p):
    p.expected = ["503"]
    p.stub.loading = 4
    page = p.open(ready=False)
    expect(page.locator("#status")).to_have_text("Loading model", timeout=SLOW)
    expect(page.locator("#status")).to_have_attribute("data-state", "ready", timeout=SLOW)
    p.send("/draining")
    expect(page.locator(".fault")).to_have_text("The server takes no requests now: the server is shutting down")


@test
def a_lost_connection_keeps_the_text(p):
    p.expected = ["ERR_"]
    page = p.open()
    p.send("/cut")
    expect(page.locator(".fault")).to_have_text("The connection to the server was lost.")
    assert len(p.words().inner_text().split()) == 5
    p.send("/fault")
    expect(page.locator(".fault").last).to_have_text("a value in the logits is no number")
    assert len(p.words().inner_text().split()) == 5


@test
def a_server_that_is_gone_is_waited_for(p):
    p.expected = ["ERR_"]
    page = p.open()
    p.send("hello")
    text = p.words().inner_text()
    port = p.stub.server_port
    p.stub.shutdown()
    p.stub.server_close()
    page.route("**/*", lambda route: route.abort("connectionrefused"))
    p.send("more")
    expect(page.locator(".fault").last).to_have_text("The server cannot be reached.")
    expect(page.locator("#status")).to_have_text("not reachable")
    assert p.words(0).inner_text() == text
    page.unroute("**/*")
    p.stub = Stub(port).start()
    expect(page.locator("#status")).to_have_attribute("data-state", "ready", timeout=SLOW)
    p.press("Try again")
    expect(p.words(1)).not_to_be_empty(timeout=SLOW)


@test
def a_chat_that_outgrows_the_context_loses_its_oldest_turns(p):
    p.expected = ["400"]
    page = p.open()
    for text in ("one", "two", "three"):
        p.send(text)
    p.send("/full 3")
    expect(page.locator(".note").last).to_contain_text("The first 2 messages of this chat no longer fit", timeout=SLOW)
    assert [m["content"] for m in p.stub.bodies[-1]["messages"] if m["role"] == "user"] == ["three", "/full 3"]
    p.send("/full 0")
    expect(page.locator(".fault").last).to_contain_text("exceeds the available context size")


@test
def scrolling_follows_only_at_the_end(p):
    page = p.open()
    p.send("/md")
    p.send("/md")
    at_end = "innerHeight + scrollY >= document.documentElement.scrollHeight - 2"
    assert page.evaluate(at_end)
    p.send("/slow", wait=False)
    expect(p.words()).not_to_be_empty(timeout=SLOW)
    page.mouse.wheel(0, -2000)
    expect(page.locator("#send")).to_be_visible(timeout=SLOW)
    assert not page.evaluate(at_end)


@test
def limit_of_tokens_is_told(p):
    page = p.open()
    p.press("Settings")
    page.get_by_label("Most tokens per answer").fill("3")
    page.get_by_role("button", name="Done").click()
    p.send("hello")
    expect(page.locator(".figures")).to_contain_text("cut at the limit of tokens")


def shots(browser, folder):
    """Pictures of the page to look at: light and dark, wide and narrow."""
    folder.mkdir(parents=True, exist_ok=True)
    for scheme in ("light", "dark"):
        for width in (1100, 390):
            p = Page(browser, color_scheme=scheme, viewport={"width": width, "height": 800})
            shot = lambda name, **more: page.screenshot(path=folder / f"{name}-{scheme}-{width}.png", **more)
            page = p.open()
            shot("welcome")
            p.send("What can you write?\nShow me everything.")
            p.send("/md")
            shot("markdown", full_page=True)
            p.press("New chat")
            p.send("Tell me a story of the garden")
            p.press("Run 8 times")
            expect(page.locator(".verdict")).to_contain_text("equal", timeout=SLOW)
            shot("compare")
            p.press("Settings")
            shot("settings")
            page.keyboard.press("Escape")
            p.press("New chat")
            p.send("/differ")
            p.press("Run 8 times")
            expect(page.locator(".verdict")).to_contain_text("differ", timeout=SLOW)
            p.send("/cut")
            p.press("Edit", 0)
            shot("faults", full_page=True)
            p.press("New chat")
            p.send("/hostile 5")
            p.send("/slow", wait=False)
            expect(p.words()).not_to_be_empty(timeout=SLOW)
            shot("running")
            p.context.close()
            p = Page(browser, color_scheme=scheme, viewport={"width": width, "height": 800})
            p.stub.template = ""
            page = p.open()
            p.send("Once upon a time")
            shot("text")
            p.context.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="run the tests whose names contain one of these")
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    parser.add_argument("--shots", type=Path, help="take pictures into this folder instead")
    args = parser.parse_args()
    failed = 0
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=args.chromium, args=["--no-sandbox"])
        if args.shots:
            return shots(browser, args.shots)
        for run in TESTS:
            if args.names and not any(name in run.__name__ for name in args.names):
                continue
            p = Page(browser)
            try:
                run(p)
                p.close()
                print(f"ok    {run.__name__}")
            except Exception:
                failed += 1
                print(f"FAIL  {run.__name__}")
                traceback.print_exc()
        browser.close()
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
