//! Ollama's API about models: `/api/tags`, `/api/show`, `/api/ps` and `/api/version`.

use std::fmt::Write as _;
use std::time::UNIX_EPOCH;

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use trine::SamplerOptions;
use trine::chat::ThoughtMarks;
use trine::formats::gguf::{Metadata, Value as Meta};
use trine::sample::{OPTIONS, Recommended};
use trine_tools::text;

use super::answer::probabilities::number;
use super::answer::shapes::timestamp;
use super::request::fields::Fields;
use crate::args::Args;
use crate::error::ApiError;
use crate::models::{Catalog, Entry, Loaded, header};
use crate::service::{Card, LONGEST_NAME, Service, template_source};

/// The version of Ollama whose API this is. Clients ask for it to see what they may use.
const VERSION: &str = "0.12.6";

/// Longest text of a model's metadata that is shown.
const LONGEST: usize = 4096;

/// The answer to `/api/version`.
pub fn version() -> Value {
    json!({"version": VERSION, "trine": env!("CARGO_PKG_VERSION")})
}

/// The model in the list of `/api/tags`: one for each of its widths.
pub fn tags(service: &Service) -> Vec<Value> {
    let about = &service.about;
    service.names.ids().map(|(name, _)| tag(&name, &about.card, &about.sha256)).collect()
}

/// The models of a folder in the list of `/api/tags`. One whose file is not to be read is left out.
pub fn tags_of_folder(catalog: &Catalog, entries: &[Entry]) -> Vec<Value> {
    let tags = entries.iter().filter_map(|entry| {
        let card = catalog.card(entry)?;
        Some(tag(&entry.name, &card, &digest(&entry.name, &card)))
    });
    tags.collect()
}

fn tag(name: &str, card: &Card, digest: &str) -> Value {
    json!({
        "name": name,
        "model": name,
        "modified_at": timestamp(card.modified),
        "size": card.size,
        "digest": digest,
        "details": details(card),
    })
}

/// A digest that tells the models of a folder apart: reading all of a file for its hash takes too long.
fn digest(name: &str, card: &Card) -> String {
    let modified = card.modified.duration_since(UNIX_EPOCH).unwrap_or_default();
    let known = format!("{name}\0{}\0{}", card.size, modified.as_nanos());
    text::hex(&Sha256::digest(known))
}

/// A loaded model in the list of `/api/ps`, the only one or one of a folder.
pub fn running(loaded: &Loaded, of_folder: bool) -> Value {
    let service = &loaded.service;
    let (about, name) = (&service.about, service.names.id());
    let digest = if of_folder { digest(name, &about.card) } else { about.sha256.clone() };
    let mut out = tag(name, &about.card, &digest);
    out.as_object_mut().into_iter().for_each(|members| drop(members.remove("modified_at")));
    out["expires_at"] = loaded.expires.map_or("9999-12-31T23:59:59Z".to_owned(), timestamp).into();
    out["size_vram"] = 0.into();
    out["context_length"] = service.engine.options().n_ctx().into();
    out
}

/// The answer to `/api/show`.
///
/// # Errors
/// The model that is named is another one, where that matters.
pub fn shown(service: &Service, body: &Value) -> Result<Value, ApiError> {
    let f = Fields::of(body)?;
    let name = f.short_text("model", LONGEST_NAME)?.or(f.short_text("name", LONGEST_NAME)?);
    service.names.resolve(name, None)?;
    Ok(show(&Shown {
        file: &service.about.file,
        card: &service.about.card,
        metadata: service.engine.model().metadata(),
        template: service.template_source.as_deref().unwrap_or_default(),
        sampler: &service.limits.sampler,
        n_ctx: service.engine.options().n_ctx(),
    }))
}

/// The answer to `/api/show` for a model of a folder, loaded or not: from the header of its file and the options that it
/// would be loaded with.
///
/// # Errors
/// The file cannot be read.
pub fn shown_of_folder(args: &Args, entry: &Entry) -> Result<Value, ApiError> {
    let file = header(entry)?;
    let metadata = file.meta();
    let failed = |e: anyhow::Error| ApiError::server(format!("cannot read '{}': {e:#}", entry.name));
    let template = template_source(args, metadata).map_err(failed)?.map(|(_, source)| source);
    let card = Card::of(&file);
    let trained = metadata.get_u32(&format!("{}.context_length", card.family)).ok().flatten();
    let n_ctx = Some(args.ctx_size).filter(|n| *n > 0).or(trained.map(|n| n as usize)).unwrap_or_default();
    let sampler = args.sampler.over(&Recommended::of(metadata), SamplerOptions::default(), n_ctx);
    let name = entry.path.file_name().unwrap_or_default().to_string_lossy();
    Ok(show(&Shown {
        file: &name,
        card: &card,
        metadata,
        template: template.as_deref().unwrap_or_default(),
        sampler: &sampler,
        n_ctx,
    }))
}

/// A model as it is shown.
struct Shown<'a> {
    /// The name of its file.
    file: &'a str,
    card: &'a Card,
    metadata: &'a Metadata,
    /// The source of its chat template.
    template: &'a str,
    /// Options that count where a request does not say.
    sampler: &'a SamplerOptions,
    n_ctx: usize,
}

fn show(model: &Shown<'_>) -> Value {
    let template = model.template;
    let parameters = parameters(model);
    json!({
        "modelfile": format!("FROM {}\n{}", model.file, parameters.lines().fold(String::new(), |all, line| {
            all + "PARAMETER " + line + "\n"
        })),
        "parameters": parameters,
        "template": template,
        "details": details(model.card),
        "model_info": info(model),
        "capabilities": capabilities(template, model.card.completes),
        "modified_at": timestamp(model.card.modified),
    })
}

fn details(card: &Card) -> Value {
    json!({
        "parent_model": "",
        "format": "gguf",
        "family": card.family,
        "families": [card.family],
        "parameter_size": card.parameters,
        "quantization_level": card.kind,
    })
}

fn capabilities(template: &str, completes: bool) -> Vec<&'static str> {
    let (tools, thoughts) = (template.contains("tools"), ThoughtMarks::of(template).is_some());
    let all = [("completion", completes), ("tools", tools), ("thinking", thoughts), ("embedding", true)];
    all.into_iter().filter_map(|(name, can)| can.then_some(name)).collect()
}

/// Options that count where a request does not say, as the lines of a Modelfile have it.
fn parameters(model: &Shown<'_>) -> String {
    let (sampler, usual) = (model.sampler, SamplerOptions::default());
    // Writing to a String cannot fail.
    let mut out = format!("num_ctx {}\n", model.n_ctx);
    for option in OPTIONS.iter().filter(|option| option.get(sampler) != option.get(&usual)) {
        let _ = writeln!(out, "{} {}", option.field, option.get(sampler) as f32);
    }
    out.trim_end().to_owned()
}

/// The metadata of the model's file. Lists are left out, as Ollama does it, and so are long texts.
fn info(model: &Shown<'_>) -> Value {
    let mut out = Map::new();
    for (key, value) in model.metadata.iter() {
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
            Meta::Str(words) => match words.as_str().filter(|words| words.len() <= LONGEST) {
                Some(words) => json!(words),
                None => continue,
            },
            Meta::Array(_) => Value::Null,
        };
        out.insert(key.to_owned(), value);
    }
    out.insert("general.parameter_count".into(), model.card.n_params.into());
    out.into()
}
