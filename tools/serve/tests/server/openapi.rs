//! The description of the routes says what the server does.

use std::net::SocketAddr;
use std::sync::LazyLock;

use serde_json::{Value, json};
use trine_testkit::TempDir;
use trine_testkit::archs::{listing, of_vectors};

use crate::client::{ask, get, post};
use crate::infill::filling;
use crate::local::{Local, shared, start, start_with};

fn document() -> Value {
    get(shared(), "/openapi.json").json()
}

/// The meaning of a reference or an `allOf`: the properties and the names of those that are required.
fn schema(document: &Value, of: &Value) -> (Vec<(String, Value)>, Vec<String>) {
    if let Some(name) = of["$ref"].as_str() {
        let path = name.strip_prefix('#').expect("a reference within");
        let of = document.pointer(path);
        return schema(document, of.unwrap_or_else(|| panic!("no {name}")));
    }
    let own = of["properties"].as_object().into_iter().flatten();
    let mut properties: Vec<_> = own.map(|(k, v)| (k.clone(), v.clone())).collect();
    let own = of["required"].as_array().into_iter().flatten();
    let mut required: Vec<String> = own.map(|v| v.as_str().expect("a name").to_owned()).collect();
    for part in of["allOf"].as_array().into_iter().flatten() {
        let (more, names) = schema(document, part);
        properties.extend(more);
        required.extend(names);
    }
    (properties, required)
}

/// A server that has what a route is for.
fn server_of(path: &str) -> SocketAddr {
    static RANKING: LazyLock<(TempDir, Local)> = LazyLock::new(|| {
        let folder = trine_testkit::folder();
        let path = folder.path().join("rank.gguf");
        std::fs::write(&path, listing(&of_vectors("bert-rank-plain")).file()).expect("room for the model");
        let local = start_with(path.to_str().expect("a path"), &[]);
        (folder, local)
    });
    static FILLING: LazyLock<Local> = LazyLock::new(|| filling(true));
    static KEEPING: LazyLock<(TempDir, Local)> = LazyLock::new(|| {
        let folder = trine_testkit::folder();
        let local = start(&["--slot-save-path", folder.path().to_str().expect("a path")]);
        (folder, local)
    });
    match path {
        "/infill" => FILLING.to,
        "/slots/{id}" => KEEPING.1.to,
        _ if path.contains("rank") => RANKING.1.to,
        _ => shared(),
    }
}

/// A route as it is asked for.
fn asked(path: &str) -> &str {
    if path == "/slots/{id}" { "/slots/0?action=erase" } else { path }
}

/// A request that works, for a route with a body.
fn example(path: &str) -> Value {
    let chat = json!([{"role": "user", "content": "Hi"}]);
    match path {
        "/v1/responses" | "/v1/responses/input_tokens" => {
            json!({"input": "Hi", "max_output_tokens": 2})
        }
        "/v1/embeddings" | "/embedding" | "/embeddings" => json!({"input": "Hi"}),
        "/v1/rerank" | "/v1/reranking" | "/rerank" | "/reranking" => json!({"query": "Hi", "documents": ["Ho"]}),
        "/api/chat" => json!({"messages": chat, "options": {"num_predict": 2}, "stream": false}),
        "/api/generate" => json!({"prompt": "Hi", "options": {"num_predict": 2}, "stream": false}),
        "/api/embed" => json!({"input": "Hi"}),
        "/api/embeddings" => json!({"prompt": "Hi"}),
        "/api/show" => json!({"model": "m"}),
        "/tokenize" => json!({"content": "Hi"}),
        "/slots/{id}" => json!({}),
        "/detokenize" => json!({"tokens": [5]}),
        "/infill" => json!({"input_prefix": "Hi", "input_suffix": "Ho", "n_predict": 2}),
        "/completion" | "/completions" | "/v1/completions" => {
            json!({"prompt": "Hi", "max_tokens": 2})
        }
        _ => json!({"messages": chat, "max_tokens": 2}),
    }
}

fn posts(document: &Value) -> Vec<(String, Value)> {
    let paths = document["paths"].as_object().expect("paths").iter();
    let posts = paths.filter_map(|(path, item)| Some((path.clone(), item.get("post")?.clone())));
    posts.collect()
}

#[test]
fn it_has_all_routes_and_no_other() {
    let document = document();
    let paths = document["paths"].as_object().expect("paths");
    for (path, item) in paths {
        if item.get("get").is_some() {
            assert_eq!(get(shared(), &path.replace("{id}", "m")).status, 200, "{path}");
        }
    }
    let source = include_str!("../../src/http/routes.rs");
    let (elsewhere, here) = source.split_once("/// All routes.").expect("the list of those not here");
    let literals = here.split('"').skip(1).step_by(2).filter(|text| text.starts_with('/'));
    let literals: Vec<&str> = literals.collect();
    assert!(literals.len() > 30 && elsewhere.contains("/v1/moderations"));
    let page = ["/", "/style.css", "/app.js"];
    for path in literals.iter().filter(|path| !page.contains(path)) {
        assert!(paths.contains_key(*path), "{path} is not described");
    }
    for path in paths.keys() {
        assert!(literals.contains(&path.as_str()), "{path} is no route");
    }
}

#[test]
fn answers_have_what_it_says() {
    let document = document();
    for (path, post) in posts(&document) {
        let answer = ask(server_of(&path), asked(&path), &example(&path));
        let described = &post["responses"]["200"]["content"]["application/json"]["schema"];
        let (described, answer) = match described.get("items") {
            Some(items) => (items, &answer[0]),
            None => (described, &answer),
        };
        for name in schema(&document, described).1 {
            assert!(answer.get(&name).is_some(), "{path}: no {name} in {answer}");
        }
    }
}

/// A value of none of the types of a property.
fn wrong(property: &Value) -> Option<Value> {
    let types = match &property["type"] {
        Value::String(one) => vec![one.as_str()],
        Value::Array(list) => list.iter().filter_map(Value::as_str).collect(),
        _ => return None,
    };
    let values = [("object", json!({"x": 1})), ("boolean", json!(true))];
    let other = values.into_iter().find(|(name, _)| !types.contains(name));
    other.map(|(_, value)| value)
}

#[track_caller]
fn refused(to: SocketAddr, path: &str, name: &str, body: &Value) {
    let response = post(to, asked(path), body);
    assert_eq!(response.status, 400, "{path} {name}: {}", response.text());
    let error = response.error_of(400);
    let message = error["message"].as_str().or(error.as_str()).expect("a message");
    assert!(message.contains(name), "{path} {name}: {message}");
}

#[test]
fn what_it_describes_is_read() {
    let document = document();
    for (path, post) in posts(&document) {
        let described = &post["requestBody"]["content"]["application/json"]["schema"];
        let (properties, required) = schema(&document, described);
        for (name, property) in &properties {
            let Some(value) = wrong(property) else {
                continue;
            };
            let mut body = example(&path);
            body[name] = value;
            refused(server_of(&path), &path, name, &body);
        }
        for name in required {
            let mut body = example(&path);
            body.as_object_mut().expect("an object").remove(&name);
            refused(server_of(&path), &path, &name, &body);
        }
    }
}
