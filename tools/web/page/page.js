// The page: it loads a model, talks with it, and proves its logits.

import { Model } from "../package/index.js";
import { PROMPT, PUBLISHED } from "./published.js";

const $ = (id) => document.getElementById(id);
const state = { model: undefined, messages: [], stop: undefined };

function tell(text, error = false) {
    $("status").textContent = text;
    $("status").classList.toggle("error", error);
}

function show(progress) {
    $("progress").hidden = false;
    if (progress.all) $("progress").value = progress.done / progress.all;
    else $("progress").removeAttribute("value");
    const mib = (bytes) => (bytes / 2 ** 20).toFixed(1);
    const from = progress.cached ? "from this browser's storage" : progress.stage === "downloading" ? "downloaded" : "read";
    tell(`${mib(progress.done)} MiB ${progress.all ? `of ${mib(progress.all)} ` : ""}${from}`);
}

async function open(source, name) {
    state.model?.close();
    state.stop?.abort();
    Object.assign(state, { model: undefined, messages: [] });
    $("talk").hidden = $("proof").hidden = true;
    try {
        state.model = await Model.load(source, { onProgress: show });
    } catch (e) {
        return tell(e.message, true);
    } finally {
        $("progress").hidden = true;
    }
    const { architecture, nCtx, threads, isa, chatTemplate } = state.model.info;
    const how = chatTemplate ? "" : " It was not made to chat: it continues your text.";
    tell(`${state.model.info.name ?? name}: ${architecture}, ${nCtx} tokens of context, ${threads} ${threads === 1 ? "thread" : "threads"}, ${isa}.${how}`);
    $("log").replaceChildren();
    $("talk").hidden = false;
    $("text").focus();
    await prove(name.split("/").pop());
}

async function prove(name) {
    $("proof").hidden = false;
    $("prompt").textContent = PROMPT;
    $("here").textContent = "…";
    $("there").textContent = PUBLISHED[name] ?? "run the command with this file to see it";
    $("verdict").textContent = "";
    try {
        const { sha256 } = await state.model.logits(PROMPT);
        $("here").textContent = sha256;
        if (PUBLISHED[name]) $("verdict").textContent = sha256 === PUBLISHED[name] ? "Equal, to the last bit." : "They DIFFER: please report it.";
    } catch (e) {
        $("here").textContent = e.message;
    }
}

function line(who, text) {
    const p = document.createElement("p");
    p.className = who;
    p.textContent = text;
    $("log").append(p);
    return p;
}

async function say(text) {
    const { model, messages } = state;
    messages.push({ role: "user", content: text });
    line("user", text);
    const answer = line("assistant", "");
    const prompt = model.info.chatTemplate ? messages : text;
    state.stop = new AbortController();
    $("send").hidden = true;
    $("stop").hidden = false;
    try {
        const chunks = model.generate(prompt, { max_tokens: 256, signal: state.stop.signal });
        for (;;) {
            const { done, value } = await chunks.next();
            if (done) {
                if (value.textSeconds > 0) $("speed").textContent = `${(value.textTokens / value.textSeconds).toFixed(1)} tokens a second; prompt: ${(value.promptTokens / value.promptSeconds).toFixed(1)}`;
                break;
            }
            answer.textContent += value.text;
            $("log").scrollTop = $("log").scrollHeight;
        }
    } catch (e) {
        answer.textContent += ` (${e.message})`;
    }
    messages.push({ role: "assistant", content: answer.textContent });
    $("send").hidden = false;
    $("stop").hidden = true;
}

$("open").addEventListener("submit", (event) => {
    event.preventDefault();
    open($("url").value, $("url").value);
});
$("file").addEventListener("change", () => {
    const [file] = $("file").files;
    if (file) open(file, file.name);
});
$("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = $("text").value;
    if (!text || !state.model || !$("stop").hidden) return;
    $("text").value = "";
    say(text);
});
$("stop").addEventListener("click", () => state.stop?.abort());
