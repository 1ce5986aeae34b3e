//! What Ollama's API tells about models: `/api/tags`, `/api/show`, `/api/ps` and `/api/version`.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};
use trine::SamplerOptions;
use trine::chat::format_time;
use trine::formats::gguf::Value as Meta;
use trine::sample::OPTIONS;

use super::answer::probabilities::number;
use super::request::fields::Fields;
use super::request::thoughts::Thoughts;
use crate::error::ApiError;
use crate::service::{LONGEST_NAME, Service};

/// The version of Ollama whose API this is. Clients ask for it to see what they may use.
const VERSION: &str = "0.12.6";

/// Longest text of a model's metadata that is shown.
const LONGEST: usize = 4096;

/// The answer to `/api/version`.
pub fn version() -> Value {
    json!({"version": VERSION, "trine": env!("CARGO_PKG_VERSION")})
}

/// A time as RFC 3339 has it, in UTC.
pub fn timestamp(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = format_time(since.as_secs(), "%FT%H:%M:%S").unwrap_or_default();
    format!("{seconds}.{:06}Z", since.subsec_micros())
}

/// The model in the list of `/api/tags`: one for each of its names and widths.
pub fn tags(service: &Service) -> Vec<Value> {
    let about = &service.about;
    let tag = |name: String| {
        json!({
            "name": name,
            "model": name,
            "modified_at": timestamp(about.modified),
            "size": about.size,
            "digest": about.sha256,
            "details": details(service),
        })
    };
    service.names.ids().map(|(name, _)| tag(name)).collect()
}

/// The model in the list of `/api/ps`, from which it is gone at `expires`; `None`: it stays.
pub fn running(service: &Service, expires: Option<SystemTime>) -> Value {
    let about = &service.about;
    json!({
        "name": service.names.id(),
        "model": service.names.id(),
        "size": about.size,
        "digest": about.sha256,
        "details": details(service),
        "expires_at": expires.map_or("9999-12-31T23:59:59Z".to_owned(), timestamp),
        "size_vram": 0,
        "context_length": service.engine.options().n_ctx(),
    })
}

/// The answer to `/api/show`.
///
/// # Errors
/// The model that is named is another one, where that matters.
pub fn shown(service: &Service, body: &Value) -> Result<Value, ApiError> {
    let f = Fields::of(body)?;
    let name = f.short_text("model", LONGEST_NAME)?.or(f.short_text("name", LONGEST_NAME)?);
    service.names.resolve(name, None)?;
    Ok(show(service))
}

fn show(service: &Service) -> Value {
    let template = service.template_source.as_deref().unwrap_or_default();
    let parameters = parameters(service);
    json!({
        "modelfile": format!("FROM {}\n{}", service.about.file, parameters.lines().fold(String::new(), |all, line| {
            all + "PARAMETER " + line + "\n"
        })),
        "parameters": parameters,
        "template": template,
        "details": details(service),
        "model_info": info(service),
        "capabilities": capabilities(service),
        "modified_at": timestamp(service.about.modified),
    })
}

fn details(service: &Service) -> Value {
    let about = &service.about;
    json!({
        "parent_model": "",
        "format": "gguf",
        "family": about.family,
        "families": [about.family],
        "parameter_size": about.parameters,
        "quantization_level": about.kind,
    })
}

fn capabilities(service: &Service) -> Vec<&'static str> {
    let tools = service.template().is_ok_and(|template| template.knows_tools());
    let all = [("completion", true), ("tools", tools), ("thinking", Thoughts::are_known(service)), ("embedding", true)];
    all.into_iter().filter_map(|(name, can)| can.then_some(name)).collect()
}

/// What counts where a request does not say, as the lines of a Modelfile have it.
fn parameters(service: &Service) -> String {
    let (sampler, usual) = (&service.limits.sampler, SamplerOptions::default());
    // Writing to a String cannot fail.
    let mut out = format!("num_ctx {}\n", service.engine.options().n_ctx());
    for option in OPTIONS.iter().filter(|option| option.get(sampler) != option.get(&usual)) {
        let _ = writeln!(out, "{} {}", option.field, option.get(sampler) as f32);
    }
    out.trim_end().to_owned()
}

/// The metadata of the model's file. Lists are left out, as Ollama does it, and so are long texts.
fn info(service: &Service) -> Value {
    let mut out = Map::new();
    for (key, value) in service.engine.model().metadata().iter() {
        let value = match value {
            Meta::U8(n) => json!(n),
            Meta::I8(n) => json!(n),
            Meta::U16(n) => json!(n),
            Meta::I16(n) => json!(n),
            Meta::U32(n) => json!(n),
            Meta::I32(n) => json!(n),
            Meta::U64(n) => json!(n),
            Meta::I64(n) => json!(n),
            Meta::F32(x) => number(*x),
            Meta::F64(x) => json!(x),
            Meta::Bool(b) => json!(b),
            Meta::Str(text) => match text.as_str().filter(|text| text.len() <= LONGEST) {
                Some(text) => json!(text),
                None => continue,
            },
            Meta::Array(_) => Value::Null,
        };
        out.insert(key.to_owned(), value);
    }
    out.insert("general.parameter_count".into(), service.about.n_params.into());
    out.into()
}
