// The page of rserve: a chat with the model that is served, or continuations of texts where it has no chat template.
//
// What a model writes is not trusted. It becomes DOM nodes through `textContent` and never markup, links lead to http, https
// and mailto only, and an image is shown as a link, because a picture that loads by itself can carry a chat away.
//
// From top to bottom: helpers, what is kept, the server, Markdown, SHA-256, turns and their views, generating,
// comparing, controls.

// ---------------------------------------------------------------------------------------------------- helpers

const $ = id => document.getElementById(id);

/** An element with properties and children: nodes, strings, which become text, and lists of both. */
function el(tag, properties = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  for (const child of children.flat()) node.append(child);
  return node;
}

/** A button that does `act`; it sends no form. */
const button = (label, act, title = "") => el("button", { type: "button", title, onclick: act }, label);

const plural = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`;

/** Resolves after `ms`, or rejects as soon as `signal` is aborted. */
function sleep(ms, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => (clearTimeout(timer), reject(signal.reason)), { once: true });
  });
}

/** Puts a text on the clipboard and says so on the button. */
async function copy(text, from) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Browsers have no clipboard object on pages that came over plain http from another machine.
    const field = el("textarea", { value: text, className: "offscreen" });
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
    from.focus();
  }
  const label = from.textContent;
  if (label === "Copied") return;
  from.textContent = "Copied";
  setTimeout(() => (from.textContent = label), 1200);
}

// ----------------------------------------------------------------------------------------------- what is kept

/** Reads and writes a value as JSON. A browser may forbid to store or be out of space; then nothing is kept. */
const kept = {
  get(storage, name, otherwise) {
    try {
      return JSON.parse(window[storage].getItem(name)) ?? otherwise;
    } catch {
      return otherwise;
    }
  },
  set(storage, name, value) {
    try {
      window[storage].setItem(name, JSON.stringify(value));
    } catch { /* see above */ }
  },
};

/** As in the form: texts, where an empty one leaves the choice to the server. */
const DEFAULTS = {
  system: "", temperature: "", top_k: "", top_p: "", min_p: "", max_tokens: "512", seed: "", bits: "", theme: "auto",
};
const SAMPLING = ["temperature", "top_k", "top_p", "min_p", "max_tokens"];
const settings = { ...DEFAULTS, ...kept.get("localStorage", "rserve.settings", {}) };
let key = kept.get("sessionStorage", "rserve.key", "");

function set(changes) {
  Object.assign(settings, changes);
  kept.set("localStorage", "rserve.settings", settings);
  document.documentElement.dataset.theme = settings.theme;
}

function setKey(value) {
  key = value;
  kept.set("sessionStorage", "rserve.key", key);
}

// ------------------------------------------------------------------------------------------------- the server

/** What the server said about itself; `widths` are those of an any-precision model, in bits. */
const server = { model: "", chat: true, widths: [], defaultBits: 0, context: 0 };

/** A request that failed: `status` is HTTP's, or 0 where the connection did. */
class Fault extends Error {
  constructor(status, message, { type = "", retryAfter = 0 } = {}) {
    super(message);
    Object.assign(this, { status, type, retryAfter });
  }
}

/** Sends a request; `body` makes it a POST. Throws a `Fault` where the answer is not 2xx, or what aborted `signal`. */
async function call(path, { body, signal, credentials } = {}) {
  const headers = { "Content-Type": "application/json" };
  if (key) headers.Authorization = `Bearer ${key}`;
  const init = { headers, signal, credentials, cache: "no-store" };
  if (body) Object.assign(init, { method: "POST", body: JSON.stringify(body) });
  let response;
  try {
    response = await fetch(path, init);
  } catch (fault) {
    if (signal?.aborted) throw fault;
    throw new Fault(0, "The server cannot be reached.");
  }
  if (response.ok) return response;
  const said = await response.json().catch(() => ({}));
  const message = said.error?.message ?? said.status ?? `The server answered ${response.status}.`;
  const retryAfter = Number(response.headers.get("Retry-After")) || 0;
  throw new Fault(response.status, message, { type: said.error?.type, retryAfter });
}

/** The data of a stream of server-sent events, one string for each event. The server writes an event on one line. */
async function* events(response, signal) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read().catch(fault => {
      throw signal.aborted ? fault : new Fault(0, "The connection to the server was lost.");
    });
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) if (line.startsWith("data:")) yield line.slice(5).trim();
  }
}

/** Runs a request to its end. `answer` grows as its text arrives, and `changed` is called after every event. */
async function run({ path, body }, answer, changed, signal, credentials) {
  const sent = performance.now();
  for await (const data of events(await call(path, { body, signal, credentials }), signal)) {
    if (data === "[DONE]") break;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new Fault(chunk.error.code, chunk.error.message, chunk.error);
    const choice = chunk.choices?.[0];
    const text = choice?.delta?.content ?? choice?.text ?? "";
    if (text) answer.first ??= performance.now() - sent;
    answer.text += text;
    answer.finish = choice?.finish_reason ?? answer.finish;
    answer.timings = chunk.timings ?? answer.timings;
    answer.usage = chunk.usage ?? answer.usage;
    answer.trine = chunk.trine ?? answer.trine;
    changed();
  }
  if (!answer.finish) throw new Fault(0, "The connection to the server was lost.");
}

/** `run`, but a missing key is asked for, and a busy server gets the time it asks for, once. */
async function patientRun(request, answer, changed, signal, credentials) {
  for (let waited = false; ;) {
    try {
      return await run(request, answer, changed, signal, credentials);
    } catch (fault) {
      if (fault.status === 401 && await askForKey(fault.message)) continue;
      if (fault.status !== 429 || waited) throw fault;
      waited = true;
      for (let left = fault.retryAfter || 1; left > 0; left--) {
        answer.note = `The server is busy. Trying once more in ${left} s.`;
        changed();
        await sleep(1000, signal);
      }
      answer.note = "";
      changed();
    }
  }
}

// --------------------------------------------------------------------------------------------------- Markdown

// Everything here takes time in proportion to the text, whatever the text is, and builds no deep tree. Directions of writing
// are left to the style sheet: the attribute `dir="auto"` makes browsers read the whole block again for each child it gets.

/** Lists and quotes stand in one another to this depth, and marks in a line; what is deeper is text. */
const DEEPEST = 8;
const OPEN_MARKS = 16;
/** A table with more columns is text: browsers take minutes for one of some thousands. */
const MOST_COLUMNS = 64;

const FENCE = /^( {0,3})(`{3,}|~{3,})([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6}) +(.*)$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])( +|$)/;

const isRule = line => /^(\*{3,}|-{3,}|_{3,})$/.test(line.replaceAll(" ", ""));
const isTable = (line, below = "") =>
  line.includes("|") && line.split("|").length < MOST_COLUMNS + 3 &&
  below.includes("|") && below.includes("-") && /^[ |:-]+$/.test(below);
const indentOf = line => line.length - line.trimStart().length;

/** Whether a line ends the paragraph above it. A number does so only if it is a list's first. */
function interrupts(line, below) {
  const item = ITEM.exec(line);
  const opensList = item?.[3] && (!/\d/.test(item[2]) || parseInt(item[2]) === 1);
  return opensList || FENCE.test(line) || HEADING.test(line) || QUOTE.test(line) || isRule(line) || isTable(line, below);
}

/** The blocks of a text, in order: the lines each comes from, and `build` that makes its element from them. */
function* blocks(lines, depth = 0) {
  let at = 0;
  const take = (count, build) => {
    const own = lines.slice(at, at + count);
    at += count;
    return { source: own.join("\n"), build: () => build(own) };
  };
  /** How many lines from the one after `at` on belong to what starts there. */
  const span = belongs => {
    let end = at + 1;
    while (end < lines.length && belongs(lines[end], end)) end++;
    return end - at;
  };
  while (at < lines.length) {
    const line = lines[at];
    const fence = FENCE.exec(line);
    if (line.trim() === "") {
      at++;
    } else if (fence) {
      const [, , mark] = fence;
      const closes = l => l.trim().startsWith(mark) && l.trim().replaceAll(mark[0], "") === "";
      const inside = span(l => !closes(l));
      yield take(inside + 1, own => codeBlock(own.slice(1, inside), fence));
    } else if (HEADING.test(line)) {
      yield take(1, ([l]) => {
        const [, marks, text] = HEADING.exec(l);
        return el(`h${marks.length}`, {}, inline(text.replace(/ #+ *$/, "")));
      });
    } else if (isRule(line)) {
      yield take(1, () => el("hr"));
    } else if (isTable(line, lines[at + 1])) {
      yield take(span(l => l.includes("|")), table);
    } else if (QUOTE.test(line) && depth < DEEPEST) {
      yield take(span(l => QUOTE.test(l)), own =>
        el("blockquote", {}, build(own.map(l => l.replace(QUOTE, "")), depth + 1)));
    } else if (ITEM.test(line) && depth < DEEPEST) {
      const [, indent, mark] = ITEM.exec(line);
      const ordered = /\d/.test(mark);
      const another = l => ITEM.test(l) && /\d/.test(ITEM.exec(l)[2]) === ordered && !isRule(l);
      const goesOn = l => l.trim() !== "" && (indentOf(l) >= indent.length + 2 || another(l));
      const belongs = (l, i) =>
        l.trim() === "" ? goesOn(lines[i + 1] ?? "")
          : goesOn(l) || (lines[i - 1].trim() !== "" && !interrupts(l, lines[i + 1]));
      yield take(span(belongs), own => list(own, indent.length, ordered, depth));
    } else {
      yield take(span((l, i) => l.trim() !== "" && !interrupts(l, lines[i + 1])), own =>
        el("p", {}, inline(own.map(l => l.trim()).join("\n"))));
    }
  }
}

const build = (lines, depth) => Array.from(blocks(lines, depth), block => block.build());

function codeBlock(lines, [, indent, , language]) {
  const text = lines.map(l => l.slice(Math.min(indent.length, indentOf(l)))).join("\n");
  const copied = button("Copy", () => copy(text, copied));
  return el("div", { className: "code", dir: "ltr" },
    el("div", {}, el("span", {}, language.trim()), copied),
    el("pre", { tabIndex: 0 }, el("code", {}, text)));
}

function table(lines) {
  const cells = l => l.trim().replace(/^\|/, "").replace(/\|$/, "").split(/(?<!\\)\|/)
    .map(c => c.trim().replaceAll("\\|", "|"));
  const columns = cells(lines[0]).length;
  const row = (tag, l) => el("tr", {}, cells(l).slice(0, columns).map(c => el(tag, {}, inline(c))));
  return el("div", { className: "table" }, el("table", {},
    el("thead", {}, row("th", lines[0])),
    el("tbody", {}, lines.slice(2).map(l => row("td", l)))));
}

/** A list; what is indented under an item, or goes on without a mark, belongs to the item. */
function list(lines, indent, ordered, depth) {
  const items = [];
  for (const line of lines) {
    const item = indentOf(line) < indent + 2 && ITEM.exec(line);
    if (item) {
      const offset = item[1].length + item[2].length + 1;
      items.push({ offset, lines: [line.slice(item[0].length)] });
    } else {
      const own = items.at(-1);
      own.lines.push(line.slice(Math.min(own.offset, indentOf(line))));
    }
  }
  const made = items.map(item => el("li", {}, build(item.lines, depth + 1)));
  const node = el(ordered ? "ol" : "ul", {}, made);
  if (ordered) node.start = parseInt(lines[0].trimStart());
  return node;
}

const MARKS = new RegExp([
  /\\[!-\/:-@[-`{-~]/,                  // a mark that is meant as itself
  /`+/,
  /\*+|_+|~~/,
  /!?\[/,
  /\]\(\s*<?([^\s()<>]{0,2000}(?:\([^\s()<>]{0,2000}\)[^\s()<>]{0,2000}){0,8})>?(?:\s+"[^"]{0,500}")?\s*\)/,
  /\]/,
  /https?:\/\/[^\s<>"`*\]|]{1,2000}/,
].map(r => r.source).join("|"), "g");

/** The address of a link if it is one that a reader may follow. */
function safeAddress(text) {
  if (!URL.canParse(text)) return null;
  const { protocol, href } = new URL(text);
  return ["http:", "https:", "mailto:"].includes(protocol) ? href : null;
}

/** A link that shows where it leads, and tells the other side nothing of this page. */
const link = (href, ...children) =>
  el("a", { href, title: href, target: "_blank", rel: "noopener noreferrer" }, children);

/** The text of a block with emphasis, code and links. */
function inline(text) {
  const root = document.createDocumentFragment();
  const open = [];   // marks that still wait for their end, the outermost first: { mark, kind, outer, node }
  let said = "";     // text that is not in the tree yet
  const here = () => open.at(-1)?.node ?? root;
  const add = node => {
    if (said) here().append(said);
    said = "";
    if (node) here().append(node);
  };
  /** The innermost mark turned out to be text. */
  const dissolve = () => {
    add();
    const { mark, node } = open.pop();
    here().append(mark);
    while (node.firstChild) here().append(node.firstChild);
  };
  const dissolveAbove = index => {
    while (open.length > index) dissolve();
  };
  const close = index => {
    dissolveAbove(index + 1);
    add();
    const { outer } = open.pop();
    add(outer);
    return outer;
  };
  const begin = (mark, kind, outer, node = outer) => {
    if (open.length === OPEN_MARKS) return void (said += mark);
    add();
    open.push({ mark, kind, outer, node });
  };

  const ticks = new Map();   // length of a run of backticks -> where such runs stand, the last first
  for (const found of [...text.matchAll(/`+/g)].reverse()) {
    const { length } = found[0];
    if (!ticks.has(length)) ticks.set(length, []);
    ticks.get(length).push(found.index);
  }

  /** A run of `*`, `_` or `~`, and the characters on both sides of it. */
  function emphasis(mark, before, after) {
    const kind = mark[0];
    const inWord = kind === "_" && /[\p{L}\p{N}]/u.test(before) && /[\p{L}\p{N}]/u.test(after);
    if (mark.length > 3 || inWord) return void (said += mark);
    let left = mark.length;
    while (left > 0 && before.trim() !== "") {
      const index = open.findLastIndex(o => o.kind === kind && o.mark.length <= left);
      if (index < 0) break;
      left -= open[index].mark.length;
      close(index);
    }
    if (left === 0) return;
    const rest = kind.repeat(left);
    const inner = el(kind === "~" ? "del" : left === 2 ? "strong" : "em");
    if (after.trim() === "") said += rest;
    else begin(rest, kind, left === 3 ? el("strong", {}, inner) : inner, inner);
  }

  let done = 0;
  MARKS.lastIndex = 0;
  for (let found; (found = MARKS.exec(text));) {
    const [mark, address] = found;
    said += text.slice(done, found.index);
    done = MARKS.lastIndex;
    if (mark[0] === "\\") {
      said += mark[1];
    } else if (mark[0] === "`") {
      const ends = ticks.get(mark.length);
      while (ends.at(-1) <= found.index) ends.pop();
      if (ends.length) {
        add(el("code", { dir: "ltr" }, text.slice(done, ends.at(-1))));
        done = MARKS.lastIndex = ends.at(-1) + mark.length;
      } else {
        said += mark;
      }
    } else if (mark.endsWith("[")) {
      begin(mark, "[", link(""));
    } else if (mark[0] === "]") {
      const index = open.findLastIndex(o => o.kind === "[");
      const href = address === undefined ? null : safeAddress(address);
      if (index < 0 || !href) {
        if (index >= 0) dissolveAbove(index);
        said += mark;
      } else {
        const a = close(index);
        a.href = a.title = href;
        a.textContent ||= href;
        for (const outer of open) if (outer.kind === "[") outer.kind = "";   // no link stands in a link
      }
    } else if (mark[0] === "h") {
      let end = mark.length;
      while (".,;:!?)'_~".includes(mark[end - 1])) end--;
      const shown = mark.slice(0, end);
      const href = open.some(o => o.kind === "[") ? null : safeAddress(shown);
      if (href) add(link(href, shown));
      else said += shown;
      done = MARKS.lastIndex = found.index + end;
    } else {
      emphasis(mark, text[found.index - 1] ?? " ", text[done] ?? " ");
    }
  }
  said += text.slice(done);
  dissolveAbove(0);
  add();
  return root;
}

/** Shows a growing text in `node`. Blocks that did not change stay as they are, so that a selection in them stays too. */
class Markdown {
  constructor(node) {
    this.node = node;
    this.shown = [];
  }

  show(text) {
    const lines = text.replaceAll("\r\n", "\n").replaceAll("\t", "    ").split("\n");
    let count = 0;
    for (const block of blocks(lines)) {
      const old = this.shown[count];
      if (old?.source !== block.source) {
        const node = block.build();
        if (old) old.node.replaceWith(node);
        else this.node.append(node);
        this.shown[count] = { source: block.source, node };
      }
      count++;
    }
    for (const old of this.shown.splice(count)) old.node.remove();
  }
}

// ---------------------------------------------------------------------------------------------------- SHA-256

/** The first 32 bits of the fractional parts of the cube roots of the first 64 primes (FIPS 180-4, 4.2.2). */
const ROUNDS = Uint32Array.from(`
  428a2f98 71374491 b5c0fbcf e9b5dba5 3956c25b 59f111f1 923f82a4 ab1c5ed5
  d807aa98 12835b01 243185be 550c7dc3 72be5d74 80deb1fe 9bdc06a7 c19bf174
  e49b69c1 efbe4786 0fc19dc6 240ca1cc 2de92c6f 4a7484aa 5cb0a9dc 76f988da
  983e5152 a831c66d b00327c8 bf597fc7 c6e00bf3 d5a79147 06ca6351 14292967
  27b70a85 2e1b2138 4d2c6dfc 53380d13 650a7354 766a0abb 81c2c92e 92722c85
  a2bfe8a1 a81a664b c24b8b70 c76c51a3 d192e819 d6990624 f40e3585 106aa070
  19a4c116 1e376c08 2748774c 34b0bcb5 391c0cb3 4ed8aa4a 5b9cca4f 682e6ff3
  748f82ee 78a5636f 84c87814 8cc70208 90befffa a4506ceb bef9a3f7 c67178f2`.trim().split(/\s+/), word => parseInt(word, 16));

/**
 * The SHA-256 of a text in UTF-8, in hexadecimal. Browsers have one, but not for a page that came over plain http from
 * another machine.
 */
function sha256(text) {
  const bytes = new TextEncoder().encode(text);
  const padded = new Uint8Array((bytes.length + 9 + 63) & ~63);
  padded.set(bytes);
  padded[bytes.length] = 0x80;
  const view = new DataView(padded.buffer);
  view.setBigUint64(padded.length - 8, BigInt(bytes.length) * 8n);
  const rotate = (x, n) => (x >>> n) | (x << (32 - n));
  const hash = Uint32Array.of(
    0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19);
  const w = new Uint32Array(64);
  for (let block = 0; block < padded.length; block += 64) {
    for (let i = 0; i < 16; i++) w[i] = view.getUint32(block + 4 * i);
    for (let i = 16; i < 64; i++) {
      const s0 = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ (w[i - 15] >>> 3);
      const s1 = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ (w[i - 2] >>> 10);
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    let [a, b, c, d, e, f, g, h] = hash;
    for (let i = 0; i < 64; i++) {
      const s1 = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25);
      const t1 = (h + s1 + ((e & f) ^ (~e & g)) + ROUNDS[i] + w[i]) | 0;
      const s0 = rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22);
      const t2 = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      [h, g, f, e, d, c, b, a] = [g, f, e, (d + t1) | 0, c, b, a, (t1 + t2) | 0];
    }
    [a, b, c, d, e, f, g, h].forEach((value, i) => (hash[i] += value));
  }
  return Array.from(hash, word => word.toString(16).padStart(8, "0")).join("");
}

// ---------------------------------------------------------------------------------------- turns and their views

/** What was asked and answered, in order: { prompt, answer }. Where the model has no chat template each stands alone. */
let turns = [];
/** The turns that "New chat" took away. */
let before = [];
/** Aborts what is being generated; null while nothing is. */
let running = null;

const views = new WeakMap();
const turnsKept = () => (server.chat ? "rserve.chat" : "rserve.texts");
const save = () => kept.set("sessionStorage", turnsKept(), turns);

/** The seed is chosen here and not by the server, so that an answer that was stopped can be replayed too. */
function newAnswer(seed, skip) {
  const drawn = crypto.getRandomValues(new Uint32Array(1))[0] >>> 1;
  const sampling = { seed: seed ?? (settings.seed === "" ? drawn : Number(settings.seed)) };
  for (const name of SAMPLING) if (settings[name] !== "") sampling[name] = Number(settings[name]);
  if (server.widths.length) sampling.bits = chosenBits();
  return { text: "", state: "running", note: "", fault: "", sampling, system: settings.system, skip };
}

/** The request that an answer is the answer to. Turns after it do not matter, and those before it do not change. */
function requestOf(turn) {
  const { sampling, system, skip } = turn.answer;
  const stream = { stream: true, stream_options: { include_usage: true }, timings_per_token: true };
  const body = { model: server.model, ...sampling, ...stream };
  if (!server.chat) return { path: "v1/completions", body: { ...body, prompt: turn.prompt } };
  const messages = system ? [{ role: "system", content: system }] : [];
  for (const { prompt, answer } of turns.slice(skip, turns.indexOf(turn))) {
    // Templates want the roles in turns, so a question without an answer is left out.
    if (answer?.text) messages.push({ role: "user", content: prompt }, { role: "assistant", content: answer.text });
  }
  messages.push({ role: "user", content: turn.prompt });
  return { path: "v1/chat/completions", body: { ...body, messages } };
}

/** What was measured, and what it takes to get the same text again. */
function figures({ text, finish, timings = {}, usage = {}, trine = {}, first, sampling }) {
  const parts = [];
  const add = (value, unit) => parts.push(el("span", {}, el("b", {}, String(value)), ` ${unit}`));
  const tokens = usage.completion_tokens ?? timings.predicted_n;
  const prompt = usage.prompt_tokens ?? (timings.prompt_n ?? 0) + (timings.cache_n ?? 0);
  const cached = usage.prompt_tokens_details?.cached_tokens ?? timings.cache_n;
  const bits = trine.bits || sampling.bits;
  if (timings.predicted_per_second) add(timings.predicted_per_second.toFixed(1), "tokens/s");
  if (first !== undefined) add(`${(first / 1000).toFixed(2)} s`, "to first token");
  if (tokens !== undefined) add(tokens, tokens === 1 ? "token" : "tokens");
  if (prompt) add(prompt, `in the prompt${cached ? `, ${cached} from cache` : ""}`);
  if (bits) add(bits, "bits");
  if (text) parts.push(el("span", {}, "seed ", el("b", {}, String(trine.seed ?? sampling.seed))));
  if (trine.ended_by) parts.push(el("span", {}, `ended by ${trine.ended_by}`));
  else if (finish === "length") parts.push(el("span", {}, "cut at the limit of tokens"));
  return parts;
}

/** The element of a turn; `view.paint()` shows what changed, at most once per frame. */
function viewOf(turn) {
  if (views.has(turn)) return views.get(turn);
  const idle = act => () => running || act();
  const words = el("div", { className: server.chat ? "words" : "plain" });
  const made = server.chat ? words : el("span", { className: "made" });
  const note = el("p", { className: "note", hidden: true });
  const fault = el("p", { className: "fault", hidden: true });
  fault.role = "alert";
  const measured = el("p", { className: "figures" });
  const copied = button("Copy", () => copy(turn.answer.text, copied));
  const again = button("Regenerate", idle(() => regenerate(turn)));
  const retried = button("Try again", idle(() => regenerate(turn, turn.answer.sampling.seed)),
    "With the same seed: the same text, to its end");
  const compared = button(`Run ${RUNS} times and compare`, idle(() => compare(turn, view)));
  compared.className = "test";
  const edited = button("Edit", idle(() => edit(turn, view)));
  const removed = button("Delete", idle(() => remove(turn)));
  const goneOn = button("Go on", idle(() => ask(turn.prompt + turn.answer.text)), "Continues this text");
  const asked = el("div", { className: "asked" });
  const answer = el("section", { className: "answer" }, words, note, fault, measured);
  answer.ariaLabel = "Answer";
  if (server.chat) {
    asked.append(
      el("div", { className: "words" }, turn.prompt),
      el("div", { className: "actions" }, edited, removed));
    answer.append(el("div", { className: "actions" }, copied, again, retried, compared));
  } else {
    words.append(el("span", { className: "given" }, turn.prompt), made);
    answer.append(
      el("div", { className: "actions" }, copied, goneOn, again, retried, compared, edited, removed));
  }
  const node = el("article", { className: "turn" }, asked, answer);
  const markdown = new Markdown(words);
  let shown = null;
  let waiting = false;
  const show = () => {
    waiting = false;
    const a = turn.answer;
    const follow = atBottom();
    const busy = a.state === "running";
    if (a.text !== shown) server.chat ? markdown.show(a.text) : (made.textContent = a.text);
    shown = a.text;
    answer.classList.toggle("running", busy);
    answer.ariaBusy = String(busy);
    const skipped = a.skip &&
      `The first ${plural(a.skip, "message")} of this chat no longer fit into the context and were left out.`;
    note.textContent = a.note || skipped || (a.state === "stopped" ? "Stopped." : "");
    note.hidden = !note.textContent;
    fault.textContent = a.fault;
    fault.hidden = !a.fault;
    measured.replaceChildren(...figures(a));
    for (const b of answer.querySelectorAll(".actions button")) b.hidden = busy;
    if (!busy) {
      retried.hidden = a.state !== "failed";
      again.hidden = a.state === "failed";
      copied.hidden = compared.hidden = goneOn.hidden = !a.text;
    }
    if (follow) toBottom();
  };
  const view = {
    node, asked, answer,
    paint() {
      if (!waiting) requestAnimationFrame(show);
      waiting = true;
    },
  };
  views.set(turn, view);
  return view;
}

const atBottom = () => innerHeight + scrollY >= document.documentElement.scrollHeight - 48;
const toBottom = () => scrollTo(0, document.documentElement.scrollHeight);

/** Puts the turns on the page. */
function showTurns() {
  const log = $("log");
  const nodes = turns.map(turn => viewOf(turn).node);
  for (const node of [...log.children]) if (!nodes.includes(node)) node.remove();
  nodes.forEach((node, i) => log.children[i] === node || log.insertBefore(node, log.children[i] ?? null));
  for (const turn of turns) viewOf(turn).paint();
  $("welcome").hidden = turns.length > 0;
  $("bring-back").hidden = before.length === 0;
}

// -------------------------------------------------------------------------------------------------- generating

/** Does work that generates; until it ends, or is stopped, nothing else is generated. */
async function generating(work) {
  running = new AbortController();
  showBusy();
  try {
    await work(running.signal);
  } finally {
    running = null;
    showBusy();
    save();
  }
}

/** What to tell of a fault. Where the server is away, the page waits for it. */
function explain(fault) {
  if (fault.status === 0 || fault.status === 503) connect();
  if (fault.status === 401) return "This server asks for a key. It can be given in the settings.";
  if (fault.status === 503) return `The server takes no requests now: ${fault.message}`;
  return fault.message;
}

/** Asks for the answer of a turn. A chat that outgrew the context loses its oldest turns. */
function generate(turn, seed) {
  const { skip = 0 } = turns[turns.indexOf(turn) - 1]?.answer ?? {};
  const answer = turn.answer = newAnswer(seed, skip);
  const { paint } = viewOf(turn);
  showTurns();
  toBottom();
  return generating(async signal => {
    for (;;) {
      try {
        await patientRun(requestOf(turn), answer, paint, signal);
        answer.state = "done";
      } catch (fault) {
        if (fault.type === "exceed_context_size_error" && server.chat && answer.skip < turns.indexOf(turn)) {
          answer.skip++;
          continue;
        }
        answer.state = signal.aborted ? "stopped" : "failed";
        answer.fault = signal.aborted ? "" : explain(fault);
      }
      break;
    }
    answer.note = "";
    paint();
  });
}

function ask(prompt) {
  const turn = { prompt };
  turns.push(turn);
  return generate(turn);
}

/** What comes after a turn of a chat builds on it, and goes when it changes. */
function cutAfter(turn) {
  if (server.chat) turns.length = turns.indexOf(turn) + 1;
}

function regenerate(turn, seed) {
  viewOf(turn).answer.querySelector(".comparison")?.remove();
  cutAfter(turn);
  return generate(turn, seed);
}

function remove(turn) {
  cutAfter(turn);
  turns.splice(turns.indexOf(turn), 1);
  save();
  showTurns();
  $("prompt").focus();
}

/** Opens what was asked for a change; sending it asks anew. */
function edit(turn, { asked }) {
  const field = el("textarea", { value: turn.prompt, rows: Math.min(12, turn.prompt.split("\n").length + 1), dir: "auto" });
  field.ariaLabel = "Edit your message";
  const cancel = () => {
    form.replaceWith(asked);
    $("prompt").focus();
  };
  const send = () => {
    if (running || !field.value.trim()) return;
    const changed = { prompt: field.value };
    cutAfter(turn);
    turns[turns.indexOf(turn)] = changed;
    generate(changed);
    $("prompt").focus();
  };
  const form = el("div", { className: "editor" }, field,
    el("div", { className: "buttons" },
      button("Cancel", cancel), Object.assign(button("Send", send), { className: "primary" })));
  form.onkeydown = event => {
    if (event.key === "Escape") {
      event.stopPropagation();
      cancel();
    } else if (sends(event) && event.target === field) {
      event.preventDefault();
      send();
    }
  };
  asked.replaceWith(form);
  field.focus();
}

function newChat() {
  running?.abort();
  if (turns.length) before = turns;
  turns = [];
  save();
  showTurns();
  $("prompt").focus();
}

// --------------------------------------------------------------------------------------------------- comparing

/** How many times a request is run at once to see whether its text depends on that. */
const RUNS = 8;

/** Runs the request of an answer several times at once, with its seed, and shows whether all texts are equal. */
function compare(turn, view) {
  view.answer.querySelector(".comparison")?.remove();
  const request = requestOf(turn);
  request.body.seed = turn.answer.trine?.seed ?? request.body.seed;
  const verdict = el("p", { className: "verdict" }, "Running …");
  verdict.role = "status";
  const details = el("p", { className: "hash" });
  const hint = el("p", { className: "hint" });
  const close = button("Close", () => (running?.abort(), box.remove()));
  const runs = Array.from({ length: RUNS }, (_, i) => runView(i + 1));
  const box = el("section", { className: "comparison" },
    el("div", { className: "head" }, verdict, close), details, hint,
    el("ol", { className: "runs" }, runs.map(r => r.node)));
  box.ariaLabel = "Comparison";
  view.answer.append(box);
  box.scrollIntoView({ block: "nearest" });
  let most = 0;
  return generating(async signal => {
    await Promise.all(runs.map(async (r, i) => {
      const changed = () => {
        most = Math.max(most, runs.filter(r => r.answer.text && r.answer.state === "running").length);
        r.paint();
      };
      try {
        // Browsers open six connections to a server for requests with credentials, which here are none, and six more for
        // requests without.
        await patientRun(request, r.answer, changed, signal, i % 2 ? "omit" : "same-origin");
        r.answer.state = "done";
      } catch (fault) {
        r.answer.state = signal.aborted ? "stopped" : "failed";
        r.answer.fault = signal.aborted ? "stopped" : explain(fault);
      }
      r.paint();
    }));
    judge(turn.answer, runs, { box, verdict, details });
    hint.textContent = `Seed ${request.body.seed}; up to ${plural(most, "text")} grew at the same moment.`;
  });
}

/** One of the runs of a comparison. */
function runView(number) {
  const answer = { text: "", state: "running", fault: "", note: "" };
  const state = el("span", {}, "waiting");
  const tail = el("span", { className: "tail", ariaHidden: "true" });
  const hash = el("span", { className: "hash" });
  const node = el("li", {}, el("p", {}, el("b", {}, String(number)), state), tail, hash);
  const paint = () => {
    const { text, timings } = answer;
    const speed = timings?.predicted_per_second;
    tail.textContent = text.length > 80 ? `…${text.slice(-80)}` : text;
    if (answer.state === "done") {
      node.title = sha256(text);
      hash.textContent = `${node.title.slice(0, 16)}…`;
    }
    const rate = speed && `${speed.toFixed(1)} tokens/s`;
    state.textContent = answer.fault || answer.note || rate || (answer.state === "done" ? "done" : text ? "running" : "waiting");
  };
  return { answer, node, paint };
}

/** Says whether the texts of all runs are those of the answer. One that was cut short is compared as far as it goes. */
function judge(original, runs, { box, verdict, details }) {
  const whole = original.state === "done";
  const fits = ({ text }) => (whole ? text === original.text : text.startsWith(original.text));
  const ended = runs.filter(r => r.answer.state === "done");
  const others = ended.filter(r => !fits(r.answer) || r.answer.text !== ended[0].answer.text);
  for (const r of ended) r.node.className = others.includes(r) ? "other" : "same";
  box.classList.add(others.length ? "unequal" : ended.length === runs.length ? "equal" : "open");
  if (!ended.length) {
    verdict.textContent = "No run came to its end.";
  } else if (others.length) {
    const expected = fits(ended[0].answer) ? ended[0].answer.text : original.text;
    const at = firstDifference(others[0].answer.text, expected);
    verdict.textContent = `${others.length} of ${plural(ended.length, "text")} differ, first at byte ${at}.`;
  } else {
    const { text } = ended[0].answer;
    const all = ended.length === runs.length;
    const which = all ? `All ${runs.length} texts` : `The ${ended.length} of ${runs.length} texts that came to their end`;
    verdict.textContent = `${which} are equal, byte for byte, and ${whole ? "equal to" : "begin with"} the answer above.`;
    details.textContent = `SHA-256 ${sha256(text)}, ${plural(new TextEncoder().encode(text).length, "byte")}`;
  }
}

function firstDifference(one, other) {
  const [a, b] = [one, other].map(text => new TextEncoder().encode(text));
  const at = a.findIndex((byte, i) => byte !== b[i]);
  return at < 0 ? a.length : at;
}

// ---------------------------------------------------------------------------------------------------- controls

function showStatus(state, text) {
  $("status").dataset.state = state;
  $("status").textContent = text;
}

/** While something is generated there is a button to stop it, and those that would generate something else are off. */
function showBusy() {
  const busy = running !== null;
  const fromKeyboard = document.activeElement?.matches(":focus-visible");
  const moves = fromKeyboard && document.activeElement !== $("prompt");
  $("stop").hidden = !busy;
  if (moves) $(busy ? "stop" : "prompt").focus();
  $("send").hidden = busy;
  document.body.classList.toggle("busy", busy);
}

/** Widths of an any-precision model stand in the list of models as NAME:3bit … NAME:8bit. */
function readModels(list) {
  const width = /:(\d+)bit$/;
  server.model = (list.find(m => !width.test(m.id)) ?? list[0]).id;
  const named = list.filter(m => width.test(m.id) && m.id.startsWith(`${server.model}:`));
  server.widths = named.map(m => Number(width.exec(m.id)[1])).sort((a, b) => a - b);
}

function readProps(props) {
  const { params = {}, n_ctx = 0 } = props.default_generation_settings ?? {};
  server.chat = Boolean(props.chat_template);
  server.context = n_ctx;
  server.defaultBits = params.bits ?? server.widths.at(-1);
  for (const name of SAMPLING) {
    const value = params[name] ?? (name === "max_tokens" ? params.n_predict : undefined);
    const shown = value === undefined ? "" : value < 0 ? "no limit" : String(Number(value.toFixed(4)));
    $("settings-form").elements[name].placeholder = shown;
  }
}

let connecting = null;

/** Learns what is served, and waits for a server that is loading or away. */
function connect() {
  connecting ??= (async () => {
    for (;;) {
      const shown = server.model && turnsKept();
      try {
        const read = async path => (await call(path)).json();
        readModels((await read("v1/models")).data);
        readProps(await read(`props?model=${encodeURIComponent(server.model)}`));
        if (shown !== turnsKept()) turns = kept.get("sessionStorage", turnsKept(), []);
        for (const { answer } of turns) if (answer.state === "running" && !running) answer.state = "stopped";
        showServer();
        return;
      } catch (fault) {
        if (!(fault instanceof Fault)) throw fault;
        if (fault.status === 401) {
          showStatus("fault", "needs a key");
          if (!await askForKey(fault.message)) return;
        } else {
          showStatus("fault", fault.status === 0 ? "not reachable" : fault.message);
          await sleep(2000);
        }
      }
    }
  })().finally(() => (connecting = null));
  return connecting;
}

function showServer() {
  document.title = $("model").textContent = server.model;
  showStatus("ready", server.context ? `ready, context ${server.context}` : "ready");
  $("welcome-title").textContent = server.chat ? "Ask something" : "Begin a text";
  $("welcome-text").textContent = server.chat ? "" : "This model has no chat template: it goes on with what you write.";
  $("prompt").placeholder = server.chat ? "Write a message" : "Once upon a time";
  $("prompt").ariaLabel = server.chat ? "Your message" : "Your text";
  $("new").textContent = server.chat ? "New chat" : "Clear";
  $("system-field").hidden = !server.chat;
  $("precision").hidden = server.widths.length < 2;
  $("bits").max = server.widths.length - 1;
  $("bits").value = server.widths.indexOf(chosenBits());
  $("bits-marks").replaceChildren(...server.widths.map((_, i) => el("option", { value: i })));
  showBits();
  if (!running) showTurns();
}

const chosenBits = () => (server.widths.includes(Number(settings.bits)) ? Number(settings.bits) : server.defaultBits);

function showBits() {
  const bits = chosenBits();
  $("bits-shown").textContent = `${bits} bits`;
  $("bits").ariaValueText = `${bits} bits`;
}

let keyAsked = null;

/** Asks for the key, once for all who need it; tells whether there is one now. */
function askForKey(why) {
  keyAsked ??= new Promise(resolve => {
    $("key-why").textContent = why;
    $("key-value").value = "";
    $("key").onclose = () => {
      keyAsked = null;
      resolve($("key").returnValue === "given");
    };
    $("key").returnValue = "";
    $("key").showModal();
  });
  return keyAsked;
}

/** Enter sends, Shift+Enter starts a line, and an Enter that chooses a word of an input method does neither. */
const sends = event => event.key === "Enter" && !event.shiftKey && !event.isComposing;

/** A field as high as its text. */
function fit(field) {
  field.style.height = "auto";
  field.style.height = `${field.scrollHeight}px`;
}

function send() {
  const prompt = $("prompt").value;
  if (!server.model) connect();
  if (running || !server.model || !prompt.trim()) return;
  $("prompt").value = "";
  fit($("prompt"));
  ask(server.chat ? prompt.trim() : prompt);
}

function openSettings() {
  const { elements } = $("settings-form");
  for (const name of Object.keys(settings)) if (elements[name]) elements[name].value = settings[name];
  $("settings-key").value = key;
  $("settings").showModal();
}

$("composer").onsubmit = event => (event.preventDefault(), send());
$("stop").onclick = () => running?.abort();
$("new").onclick = newChat;
$("bring-back").onclick = () => {
  [turns, before] = [before, []];
  save();
  showTurns();
};
$("prompt").oninput = event => fit(event.target);
$("prompt").onkeydown = event => {
  if (sends(event)) {
    event.preventDefault();
    send();
  } else if (event.key === "ArrowUp" && !event.target.value && turns.length && !running) {
    event.preventDefault();
    edit(turns.at(-1), viewOf(turns.at(-1)));
  }
};
$("bits").oninput = event => {
  set({ bits: String(server.widths[event.target.value]) });
  showBits();
};

$("theme").onclick = () => {
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const seen = settings.theme === "auto" ? system : settings.theme;
  set({ theme: seen === "dark" ? "light" : "dark" });
};
$("open-settings").onclick = openSettings;
$("settings-form").oninput = ({ target }) => {
  if (target.name && target.validity.valid) set({ [target.name]: target.value });
};
$("settings-form").onsubmit = event => {
  event.preventDefault();
  $("settings").close();
};
$("settings").onclose = () => {
  if ($("settings-key").value === key) return;
  setKey($("settings-key").value);
  connect();
};
$("reset").onclick = () => {
  set({ ...DEFAULTS, theme: settings.theme, bits: settings.bits });
  $("settings").close();
  openSettings();
};
$("key-form").onsubmit = event => {
  event.preventDefault();
  setKey($("key-value").value);
  $("key").close("given");
};
$("key-cancel").onclick = () => $("key").close("");

document.onkeydown = event => {
  if (event.key === "Escape" && !document.querySelector("dialog[open]")) running?.abort();
  if (event.ctrlKey && event.shiftKey && event.key.toLowerCase() === "o") {
    event.preventDefault();
    newChat();
  }
};

set({});
connect();
