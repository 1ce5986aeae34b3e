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
    of_other_routes(f, route)?;
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
    for name in CONSTRAINTS {
        refuse(name, f.get(name).is_some_and(|v| !is_empty(v)))?;
    }
    for name in ["use_beam_search", "include_stop_str_in_output", "ban_eos_token", "grammar_lazy"] {
        refuse(name, f.is_set(name)?)?;
    }
    for name in ["min_tokens", "min_new_tokens", "no_repeat_ngram_size"] {
        refuse(name, f.integer(name, 0..=i64::from(i32::MAX))?.is_some_and(|n| n > 0))?;
    }
    for name in ["thinking_token_budget", "thinking_budget_tokens", "reasoning_budget_tokens"] {
        refuse(name, f.number(name)?.is_some_and(|n| n >= 0.0))?;
    }
    refuse("num_beams", f.integer("num_beams", 1..=i64::from(i32::MAX))?.is_some_and(|n| n > 1))?;
    match f.number("repetition_penalty")? {
        None | Some(1.0) => Ok(()),
        Some(_) => {
            Err(ApiError::field("repetition_penalty", "not supported; use 'repeat_penalty' and 'repeat_last_n'"))
        }
    }
}

/// Fields of vLLM, SGLang, Transformers and others that say which tokens may come or where the text ends, which this
/// server does not follow.
const CONSTRAINTS: &[&str] = &[
    "guided_regex",
    "guided_grammar",
    "guided_whitespace_pattern",
    "structural_tag",
    "regex",
    "ebnf",
    "grammar_string",
    "stop_token_ids",
    "stop_regex",
    "allowed_token_ids",
    "bad_words",
    "bad_words_ids",
    "banned_tokens",
    "banned_strings",
    "custom_token_bans",
    "suppress_tokens",
    "begin_suppress_tokens",
    "force_words_ids",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "sequence_bias",
    "logits_processors",
    "custom_logit_processor",
    "lora_path",
    "lora_request",
    "truncate_prompt_tokens",
    "max_new_tokens",
    "max_length",
    "random_seed",
];

/// Fields of other routes that say the same there: on this one nobody would follow them.
fn of_other_routes(f: &Fields<'_>, route: Route) -> Result<(), ApiError> {
    let has = |name: &str, member: &str| f.get(name).is_some_and(|v| !v[member].is_null());
    let chats = !matches!(route, Route::Native | Route::Infill | Route::Text);
    let ollama = matches!(route, Route::OllamaChat | Route::OllamaGenerate);
    let limited = ["n_predict", "max_tokens", "max_completion_tokens"].iter().any(|name| f.get(name).is_some());
    let most = route != Route::Responses && !limited && f.get("max_output_tokens").is_some();
    for (name, asked, instead) in [
        ("tools", !chats && f.get("tools").is_some_and(|v| !is_empty(v)), "functions are for the routes of chats"),
        ("format", !ollama && f.get("format").is_some_and(|v| !is_empty(v)), "use 'response_format'"),
        ("text", route != Route::Responses && has("text", "format"), "use 'response_format'"),
        ("output_config", route != Route::Messages && has("output_config", "format"), "use 'response_format'"),
        ("output_format", route != Route::Messages && has("output_format", "schema"), "use 'response_format'"),
        ("max_output_tokens", most, "use 'max_tokens'"),
        ("stop_sequences", f.get("stop_sequences").is_some_and(|v| !is_empty(v)), "use 'stop'"),
    ] {
        if asked {
            return Err(ApiError::field(name, format!("not supported on this route; {instead}")));
        }
    }
    Ok(())
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
            "functions": null, "guided_regex": null, "use_beam_search": false, "repetition_penalty": 1, "num_beams": 1,
            "regex": "", "no_repeat_ngram_size": 0, "thinking_budget_tokens": -1, "output_config": {"effort": "low"},
            "text": {"verbosity": "low"}, "stop_sequences": [],
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
            ("regex", json!("[0-9]+")),
            ("ebnf", json!("root ::= \"a\"")),
            ("stop_regex", json!("a")),
            ("min_new_tokens", json!(3)),
            ("max_new_tokens", json!(3)),
            ("no_repeat_ngram_size", json!(2)),
            ("repetition_penalty", json!(1.1)),
            ("suppress_tokens", json!([5])),
            ("forced_eos_token_id", json!(2)),
            ("num_beams", json!(4)),
            ("lora_path", json!("x")),
            ("grammar_lazy", json!(true)),
            ("thinking_budget_tokens", json!(0)),
            ("format", json!({"type": "integer"})),
            ("text", json!({"format": {"type": "json_object"}})),
            ("output_config", json!({"format": {"type": "json_schema", "schema": {}}})),
            ("output_format", json!({"type": "json_schema", "schema": {}})),
            ("max_output_tokens", json!(3)),
            ("stop_sequences", json!(["a"])),
        ] {
            let e = checked(json!({ name: value })).unwrap_err();
            assert_eq!(e.status, 400);
            assert!(e.message.contains(&format!("'{name}'")), "{}", e.message);
        }
    }

    #[test]
    fn what_other_routes_follow_is_not_ignored_on_this_one() {
        let on = |body: Value, route| check(&Fields::of(&body).unwrap(), route);
        let tools = json!({"tools": [{"type": "function", "function": {"name": "f"}}]});
        assert_eq!(on(tools.clone(), Route::Chat), Ok(()));
        assert!(on(tools, Route::Text).is_err());
        for (body, route) in [
            (json!({"output_format": {"type": "json_schema", "schema": {}}}), Route::Messages),
            (json!({"format": "json"}), Route::OllamaGenerate),
        ] {
            assert_eq!(on(body.clone(), route), Ok(()));
            assert!(on(body, Route::Native).is_err());
        }
    }
}
