//! `/metrics`, in the text format of Prometheus.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::state::State;
use crate::engine::{Counters, Drafts};
use crate::service::{Histogram, Service};

/// A page of metrics.
#[derive(Default)]
struct Page {
    families: Vec<Family>,
    /// Labels before the others of samples: the model, where there may be several.
    model: String,
}

/// A metric with all of its samples, of all models.
struct Family {
    name: String,
    /// Its description and type.
    head: String,
    samples: String,
}

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        if !self.families.iter().any(|family| family.name == name) {
            let head = format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
            self.families.push(Family { name: name.to_owned(), head, samples: String::new() });
        }
    }

    /// A sample of the metric `name` and what follows its name, such as `_bucket`.
    fn sample_of(&mut self, name: &str, suffix: &str, labels: &str, value: f64) {
        let labels = match (self.model.is_empty(), labels.is_empty()) {
            (true, true) => String::new(),
            (true, false) => format!("{{{labels}}}"),
            (false, true) => format!("{{{}}}", self.model),
            (false, false) => format!("{{{},{labels}}}", self.model),
        };
        if let Some(family) = self.families.iter_mut().find(|family| family.name == name) {
            // Writing to a String cannot fail.
            let _ = writeln!(family.samples, "{name}{suffix}{labels} {value}");
        }
    }

    fn sample(&mut self, name: &str, labels: &str, value: f64) {
        self.sample_of(name, "", labels, value);
    }

    fn text(self) -> String {
        self.families.into_iter().map(|family| family.head + &family.samples).collect()
    }

    fn one(&mut self, kind: &str, name: &str, help: &str, value: f64) {
        self.head(name, kind, help);
        self.sample(name, "", value);
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.one("counter", name, help, value as f64);
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.one("gauge", name, help, value);
    }

    fn histogram(&mut self, name: &str, help: &str, h: &Histogram) {
        self.head(name, "histogram", help);
        let (buckets, sum) = h.read();
        let all = buckets.last().map_or(0, |b| b.1);
        for (bound, count) in buckets {
            let le = bound.map_or("+Inf".to_owned(), |b| b.to_string());
            self.sample_of(name, "_bucket", &format!("le=\"{le}\""), count as f64);
        }
        self.sample_of(name, "_sum", "", sum);
        self.sample_of(name, "_count", "", all as f64);
    }
}

/// All metrics, those of each loaded model with its name where there may be several.
pub fn page(state: &State) -> String {
    let mut page = Page::default();
    for loaded in state.models.loaded() {
        if state.models.folder().is_some() {
            page.model = format!("model={}", quoted(loaded.service.names.id()));
        }
        llama_server(&mut page, state, &loaded.service);
        own(&mut page, &loaded.service);
    }
    page.model.clear();
    page.head("trine:requests_total", "counter", "Answers by status.");
    for (code, n) in state.responses() {
        page.sample("trine:requests_total", &format!("code=\"{code}\""), n as f64);
    }
    page.text()
}

/// The value of a label.
fn quoted(text: &str) -> String {
    let escaped: String = text
        .chars()
        .map(|c| match c {
            '\\' => "\\\\".to_owned(),
            '"' => "\\\"".to_owned(),
            '\n' => "\\n".to_owned(),
            c => c.to_string(),
        })
        .collect();
    format!("\"{escaped}\"")
}

fn get(n: &AtomicU64) -> u64 {
    n.load(Relaxed)
}

/// The names of llama-server.
fn llama_server(page: &mut Page, state: &State, service: &Service) {
    let c = service.engine.counters();
    let [prompt, prompt_micros, generated, generated_micros] = totals(c);
    page.counter("llamacpp:prompt_tokens_total", "Tokens of prompts that were read.", prompt);
    page.counter(
        "llamacpp:prompt_tokens_cached_total",
        "Tokens of prompts that were found in the cache.",
        get(&c.cached_tokens),
    );
    let seconds = |micros: u64| micros as f64 / 1e6;
    page.one("counter", "llamacpp:prompt_seconds_total", "Time of reading prompts.", seconds(prompt_micros));
    page.counter("llamacpp:tokens_predicted_total", "Tokens that were generated.", generated);
    page.one(
        "counter",
        "llamacpp:tokens_predicted_seconds_total",
        "Time of generating tokens.",
        seconds(generated_micros),
    );
    page.counter("llamacpp:n_decode_total", "Steps of the engine.", get(&c.steps));
    page.counter("llamacpp:n_tokens_max", "Most tokens that a text had.", get(&c.longest));
    drafts(page, &c.drafts());
    let since = state.since_last_scrape(service.names.id(), totals(c));
    let rate = |tokens: u64, micros: u64| {
        if micros > 0 { tokens as f64 * 1e6 / micros as f64 } else { 0.0 }
    };
    page.gauge(
        "llamacpp:prompt_tokens_seconds",
        "Tokens of prompts read per second, since the metrics were last asked for.",
        rate(since[0], since[1]),
    );
    page.gauge(
        "llamacpp:predicted_tokens_seconds",
        "Tokens generated per second, since the metrics were last asked for.",
        rate(since[2], since[3]),
    );
    page.gauge("llamacpp:requests_processing", "Texts that are generated.", c.running() as f64);
    page.gauge("llamacpp:requests_deferred", "Requests that wait.", service.engine.waiting() as f64);
    let steps = get(&c.steps).max(1) as f64;
    page.gauge(
        "llamacpp:n_busy_slots_per_decode",
        "Texts that got a token in a step, on average.",
        get(&c.decode_rows) as f64 / steps,
    );
}

/// Metrics of drafts.
fn drafts(page: &mut Page, drafts: &Drafts) {
    page.counter("llamacpp:spec_decode_num_drafts_total", "Drafts that were verified.", drafts.drafts);
    page.counter("llamacpp:spec_decode_num_draft_tokens_total", "Tokens of drafts.", drafts.drafted);
    page.counter(
        "llamacpp:spec_decode_num_accepted_tokens_total",
        "Tokens of drafts that texts have.",
        drafts.accepted.iter().sum(),
    );
    let name = "llamacpp:spec_decode_num_accepted_tokens_per_pos_total";
    page.head(name, "counter", "Tokens of drafts that texts have, by their place in the draft.");
    for (position, n) in drafts.accepted.iter().enumerate() {
        page.sample(name, &format!("position=\"{position}\""), *n as f64);
    }
}

/// Metrics for which llama-server has no names.
fn own(page: &mut Page, service: &Service) {
    let c = service.engine.counters();
    let m = &service.meters;
    page.histogram("trine:time_to_first_token_seconds", "From the request to its first token.", &m.first_token);
    page.histogram("trine:inter_token_seconds", "From token to token, the mean of each text.", &m.between);
    page.histogram("trine:request_seconds", "From the request to its end.", &m.whole);
    page.gauge("trine:requests_running", "Texts that are generated.", c.running() as f64);
    page.gauge("trine:requests_waiting", "Requests that wait.", service.engine.waiting() as f64);
    let (pages, free) = (get(&c.pages), get(&c.free_pages));
    let used = pages.saturating_sub(free) as f64 / pages.max(1) as f64;
    page.gauge("trine:kv_pages_used_ratio", "Share of the memory for keys and values that is in use.", used);
    page.counter("trine:preemptions_total", "Texts that gave their memory back and began again.", get(&c.preemptions));
    page.head("trine:prefix_tokens_total", "counter", "Tokens of prompts, found in the cache or not.");
    page.sample("trine:prefix_tokens_total", "hit=\"0\"", get(&c.prompt_tokens) as f64);
    page.sample("trine:prefix_tokens_total", "hit=\"1\"", get(&c.cached_tokens) as f64);
    page.head("trine:tokens_total", "counter", "Tokens of finished texts by bits per weight and kind.");
    for ((bits, kind), n) in m.tokens() {
        let labels = format!("bits=\"{bits}\",kind=\"{kind}\"");
        page.sample("trine:tokens_total", &labels, n as f64);
    }
    page.head("trine:build_info", "gauge", "What runs.");
    let about = &service.about;
    let labels = format!(
        "version=\"{}\",model_sha256=\"{}\",fingerprint=\"{}\"",
        env!("CARGO_PKG_VERSION"),
        about.sha256,
        about.fingerprint
    );
    page.sample("trine:build_info", &labels, 1.0);
}

/// Tokens read, their time, tokens generated, their time.
fn totals(c: &Counters) -> [u64; 4] {
    [&c.prompt_tokens, &c.prompt_micros, &c.generated_tokens, &c.generated_micros].map(get)
}
