//! Options of other servers that this one lacks. They are refused where they would change the text, never ignored.

use serde_json::Value;

use super::super::Route;
use super::fields::Fields;
use crate::error::ApiError;

/// Refuses what this server does not do.
///
/// # Errors
/// Names the field.
pub fn check(f: &Fields<'_>, route: Route) -> Result<(), ApiError> {
    numbers(f)?;
    texts(f)?;
    constraints(f)?;
    // OpenAI's shape of completions has no place for it.
    if route == Route::Text {
        refuse("post_sampling_probs", f.is_set("post_sampling_probs")?)?;
    }
    match route {
        Route::Chat | Route::Responses | Route::Messages | Route::OllamaChat => chat(f),
        Route::Text => text(f),
        Route::Native | Route::Infill | Route::OllamaGenerate => Ok(()),
    }
}

/// Numbers that would change the text, by the values that switch them off, and those that cannot.
fn numbers(f: &Fields<'_>) -> Result<(), ApiError> {
    for name in ["n_indent", "t_max_predict_ms"] {
        refuse(name, f.number(name)?.is_some_and(|n| n != 0.0))?;
    }
    // Half of what may be forgotten is, and any place gives the same text.
    for name in ["n_discard", "n_cache_reuse"] {
        f.integer(name, 0..=i64::from(i32::MAX))?;
    }
    f.integer("n_keep", -1..=i64::from(i32::MAX))?;
    Ok(())
}

/// Fields of OpenAI's older API and of vLLM that say which tokens may come: whoever sends one relies on it.
fn constraints(f: &Fields<'_>) -> Result<(), ApiError> {
    for name in ["functions", "function_call"] {
        if f.get(name).is_some_and(|v| !is_empty(v)) {
            return Err(ApiError::field(name, "not supported; use 'tools' and 'tool_choice'"));
        }
    }
    let others = [
        "guided_regex",
        "guided_grammar",
        "guided_whitespace_pattern",
        "structural_tag",
        "stop_token_ids",
        "allowed_token_ids",
        "bad_words",
        "bad_words_ids",
        "logits_processors",
        "truncate_prompt_tokens",
    ];
    for name in others {
        refuse(name, f.get(name).is_some_and(|v| !is_empty(v)))?;
    }
    for name in ["use_beam_search", "include_stop_str_in_output"] {
        refuse(name, f.is_set(name)?)?;
    }
    refuse("min_tokens", f.integer("min_tokens", 0..=i64::from(i32::MAX))?.is_some_and(|n| n > 0))
}

fn texts(f: &Fields<'_>) -> Result<(), ApiError> {
    refuse("chat_template", f.get("chat_template").is_some_and(|v| !is_empty(v)))?;
    refuse("backend_sampling", f.is_set("backend_sampling")?)
}

fn chat(f: &Fields<'_>) -> Result<(), ApiError> {
    for name in ["audio", "prediction"] {
        f.object(name)?;
    }
    if let Some(list) = f.list("modalities")? {
        refuse("modalities", list.iter().any(|m| m != "text"))?;
    }
    Ok(())
}

fn text(f: &Fields<'_>) -> Result<(), ApiError> {
    let best_of = f.integer("best_of", 1..=i64::MAX)?;
    refuse("best_of", best_of.is_some_and(|n| n > 1))
}

fn refuse(name: &str, asked: bool) -> Result<(), ApiError> {
    if asked {
        return Err(ApiError::unsupported(name));
    }
    Ok(())
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::String(s) => s.is_empty(),
        Value::Array(a) => a.is_empty(),
        Value::Object(o) => o.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn checked(body: Value) -> Result<(), ApiError> {
        check(&Fields::of(&body).unwrap(), Route::Chat)
    }

    #[test]
    fn what_is_switched_off_is_no_request() {
        let off = json!({
            "n_indent": 0, "t_max_predict_ms": 0, "n_discard": 0, "min_tokens": 0, "stop_token_ids": [],
            "functions": null, "guided_regex": null, "use_beam_search": false,
        });
        assert_eq!(checked(off), Ok(()));
    }

    #[test]
    fn what_is_asked_for_is_refused_by_name() {
        for (name, value) in [
            ("n_indent", json!(4)),
            ("t_max_predict_ms", json!(100)),
            ("n_discard", json!(-1)),
            ("chat_template", json!("{{ x }}")),
            ("functions", json!([{"name": "f"}])),
            ("guided_regex", json!("a+")),
            ("stop_token_ids", json!([2])),
            ("bad_words", json!(["no"])),
            ("min_tokens", json!(8)),
            ("use_beam_search", json!(true)),
        ] {
            let e = checked(json!({ name: value })).unwrap_err();
            assert_eq!(e.status, 400);
            assert!(e.message.contains(&format!("'{name}'")), "{}", e.message);
        }
    }
}
