//! Texts with a gap: llama-server's `/infill`, and `suffix` of OpenAI's completions and Ollama's `/api/generate`.

use serde_json::Value;
use trine::generate::Infill;

use super::super::Route;
use super::fields::{Fields, wrong};
use super::prompt::Prompt;
use crate::error::ApiError;
use crate::service::Service;

/// Tokens around the gap at most, which is llama-server's default for a batch.
const BATCH: usize = 2048;
/// Tokens that are left for the text of the gap where a request does not say how many it may have.
const GAP: usize = 128;

/// The prompt of a request for the text of a gap; `None`: it asks for something else.
///
/// # Errors
/// Names the field; the model was not trained to fill gaps.
pub fn prompt(
    f: &Fields<'_>,
    route: Route,
    most: Option<usize>,
    service: &Service,
) -> Result<Option<Prompt>, ApiError> {
    let Some(text) = asked(f, route)? else { return Ok(None) };
    let tokenizer = service.engine.model().tokenizer();
    let Some(marks) = tokenizer.fill_in() else {
        return Err(ApiError::not_here(
            "the model fills no gaps: its vocabulary has no tokens for what is before and behind one",
        ));
    };
    let n_ctx = service.engine.options().n_ctx();
    let batch = BATCH.min(n_ctx / 2);
    let room = n_ctx.saturating_sub(batch + 2 * most.unwrap_or(GAP));
    let tokens = text.tokens(tokenizer, marks, batch, room).map_err(|e| ApiError::invalid(e.to_string()))?;
    Ok(Some(Prompt { tokens, text: None }))
}

/// The text with a gap that is asked about.
fn asked<'a>(f: &Fields<'a>, route: Route) -> Result<Option<Infill<'a>>, ApiError> {
    match route {
        Route::Infill => {
            let part = |name| f.text(name)?.ok_or_else(|| ApiError::field(name, "is required"));
            let (prefix, suffix) = (part("input_prefix")?, part("input_suffix")?);
            let extra = f.list("input_extra")?.unwrap_or_default();
            let extra = extra.iter().map(extra_text).collect::<Result<_, _>>()?;
            Ok(Some(Infill { prefix, suffix, begun: f.text("prompt")?.unwrap_or_default(), extra }))
        }
        Route::Text | Route::OllamaGenerate => {
            let Some(suffix) = f.text("suffix")?.filter(|text| !text.is_empty()) else { return Ok(None) };
            let prefix = f.text("prompt")?.unwrap_or_default();
            Ok(Some(Infill { prefix, suffix, ..Infill::default() }))
        }
        _ => Ok(None),
    }
}

/// The name and the text of another file.
fn extra_text(value: &Value) -> Result<(&str, &str), ApiError> {
    const NAME: &str = "input_extra";
    let Value::Object(map) = value else {
        return Err(wrong(NAME, "an array of {\"filename\": ..., \"text\": ...}", value));
    };
    let f = Fields::members(map);
    let text = f.text("text")?.ok_or_else(|| ApiError::field(NAME, "each needs a 'text'"))?;
    Ok((f.text("filename")?.unwrap_or("tmp"), text))
}
