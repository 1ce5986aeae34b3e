//! Bodies that no client would send: names that are known with values of any kind, on every route.
//!
//! `RSERVE_RANDOM=20000 cargo test --release --workspace --test server random` is the long form.

use proptest::prelude::Rng as _;
use proptest::test_runner::{RngAlgorithm, TestRng};
use serde_json::{Map, Value, json};
use trine::sample::OPTIONS;

use crate::client::{ask, get, post};
use crate::local::start;

const ROUTES: &[&str] = &[
    "/completion",
    "/v1/completions",
    "/v1/chat/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/embeddings",
    "/embedding",
    "/tokenize",
    "/detokenize",
    "/apply-template",
    "/v1/chat/completions/input_tokens",
    "/v1/responses/input_tokens",
    "/v1/messages/count_tokens",
];

const NAMES: &[&str] = &[
    "prompt",
    "messages",
    "input",
    "content",
    "tokens",
    "system",
    "instructions",
    "n_predict",
    "max_tokens",
    "max_output_tokens",
    "stream",
    "stream_options",
    "n",
    "seed",
    "dry_sequence_breakers",
    "samplers",
    "logit_bias",
    "ignore_eos",
    "stop",
    "stop_sequences",
    "n_probs",
    "logprobs",
    "top_logprobs",
    "echo",
    "return_tokens",
    "return_progress",
    "response_fields",
    "timings_per_token",
    "verbose",
    "bits",
    "model",
    "cache_salt",
    "cache_prompt",
    "resume_tokens",
    "grammar",
    "json_schema",
    "response_format",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "chat_template_kwargs",
    "reasoning_effort",
    "add_generation_prompt",
    "continue_final_message",
    "encoding_format",
    "dimensions",
    "pooling",
    "embd_normalize",
    "sse_ping_interval",
    "add_special",
    "parse_special",
    "with_pieces",
    "regex",
    "repetition_penalty",
    "suppress_tokens",
    "thinking_budget_tokens",
    "text",
    "format",
    "output_config",
    "role",
    "type",
    "function",
    "name",
    "arguments",
    "schema",
];

struct Random(TestRng);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0.next_u64() as usize % n
    }

    fn one<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    /// A name that is known: one of the list, or of the sampler's options.
    fn name(&mut self) -> &'static str {
        let at = self.below(NAMES.len() + OPTIONS.len());
        NAMES.get(at).copied().unwrap_or_else(|| OPTIONS[at - NAMES.len()].field)
    }

    fn text(&mut self) -> String {
        let parts = [
            "The game",
            "",
            "user",
            "assistant",
            "system",
            "json_object",
            "json_schema",
            "auto",
            "required",
            "root ::= [a-z]+",
            "</s>",
            "<|im_end|>",
            "\0",
            "\u{feff}é\u{1F600}",
            "base64",
            "last",
            "kptx",
            "top_k",
            "{{ 7 }}",
            "a/b",
            "%n",
        ];
        let n = self.below(3);
        (0..=n).map(|_| *self.one(&parts)).collect()
    }

    fn value(&mut self, depth: usize) -> Value {
        match self.below(if depth == 0 { 8 } else { 11 }) {
            0 => Value::Null,
            1 => json!(self.below(2) == 0),
            2 => json!(self.below(9)),
            3 => json!(*self.one(&[-1, -2, 0, 1, i64::MIN, i64::MAX, 1 << 31, 4_294_967_295])),
            4 => json!(*self.one(&[0.5, -0.5, 1e-45, 1e38, 1e39, 1e308, -1e308, 1.0])),
            5 | 6 => json!(self.text()),
            7 => json!(u64::MAX),
            8 => (0..self.below(4)).map(|_| self.value(depth - 1)).collect(),
            _ => Value::Object(self.object(depth - 1)),
        }
    }

    fn object(&mut self, depth: usize) -> Map<String, Value> {
        let n = self.below(5);
        let member = |_| {
            let name = self.name();
            (name.to_owned(), self.value(depth))
        };
        (0..n).map(member).collect()
    }

    /// A request that makes sense as a whole, with a few members that need not.
    fn body(&mut self) -> Value {
        let mut body = json!({
            "prompt": "The game", "input": "The game", "content": "The game", "tokens": [5],
            "messages": [{"role": "user", "content": "Hi"}],
        });
        for _ in 0..=self.below(4) {
            let name = self.name();
            body[name] = self.value(3);
        }
        // Short, so that many can be asked; this is a limit that none of the others changes.
        for name in ["n_predict", "max_tokens", "max_output_tokens"] {
            body[name] = json!(3);
        }
        body
    }
}

#[test]
fn bodies_of_any_kind_have_a_documented_answer() {
    let count = std::env::var("RSERVE_RANDOM").ok().and_then(|n| n.parse().ok());
    let local = start(&["--parallel", "4"]);
    let good = json!({"prompt": "The game", "max_tokens": 8, "seed": 3});
    let expected = ask(local.to, "/v1/completions", &good)["choices"].clone();
    let mut random = Random(TestRng::from_seed(RngAlgorithm::ChaCha, &[11; 32]));
    let mut answered = 0;
    for _ in 0..count.unwrap_or(600) {
        let (route, body) = (*random.one(ROUTES), random.body());
        let response = post(local.to, route, &body);
        match response.status {
            200 => answered += 1,
            // Names the field, or says what is wrong otherwise; in one line.
            status @ (400 | 404 | 501) => {
                let message = response.error(status)["message"].clone();
                let line = message.as_str().is_some_and(|m| !m.is_empty() && !m.contains('\n'));
                assert!(line, "{route} {body}: {message}");
            }
            status => panic!("{route} {body}: {status} {}", response.text()),
        }
    }
    assert!(answered > 0);
    assert_eq!(ask(local.to, "/v1/completions", &good)["choices"], expected);
    assert_eq!(get(local.to, "/health").status, 200);
}
