//! Answers in which calls of functions are found: the first byte chooses how the model writes them, the second how the
//! text is cut. However it is cut, the same is found.

use std::sync::{Arc, LazyLock};

use clap::Parser;
use trine::isolate::{Failure, Isolate, Job, Limits};
use trine_serve::api::request::fields::Fields;
use trine_serve::api::request::tools::reader::{Piece, Reader};
use trine_serve::api::request::tools::{Calls, Tools};
use trine_serve::args::Args;
use trine_serve::service::{Service, Work};

/// Renders templates in this process.
#[derive(Debug)]
struct Here;

impl Isolate for Here {
    fn run(&self, _: Job, request: &[u8], _: Limits) -> Result<Vec<u8>, Failure> {
        Ok(trine::chat::answer(request))
    }
}

/// The ways of the models of Hermes and of Llama 3.
static CALLS: LazyLock<Vec<Arc<Calls>>> = LazyLock::new(|| {
    let model = trine_testkit::trilm();
    let model = model.to_str().expect("a path");
    let body = serde_json::json!({"tools": [
        {"type": "function", "function": {"name": "go", "parameters": {}}},
        {"type": "function", "function": {"name": "got", "parameters": {}}},
    ]});
    let templates = ["{{ tools }}<tool_call>", "{{ tools }}<|python_tag|>"];
    let calls = templates.map(|template| {
        let args = Args::try_parse_from(["rserve", "-m", model, "--chat-template", template]).expect("options");
        let service = Service::load(&args, args.engine(), Arc::new(Here), Work::default()).expect("a model").0;
        let tools = Tools::read(&Fields::of(&body).expect("an object"), &service);
        tools.unwrap_or_else(|e| panic!("{e:?}")).expect("functions").calls.expect("calls")
    });
    calls.into()
});

/// The parts of a text of which `size` characters come at a time: neighbours of a kind are put together.
fn found(calls: &Calls, text: &[char], size: usize) -> Vec<Piece> {
    let (mut reader, mut pieces) = (Reader::default(), Vec::new());
    let mut add = |piece| match (pieces.last_mut(), piece) {
        (Some(Piece::Text(a)), Piece::Text(b)) => *a += &b,
        (Some(Piece::Arguments(a)), Piece::Arguments(b)) => *a += &b,
        (_, piece) => pieces.push(piece),
    };
    for part in text.chunks(size) {
        reader.read(calls, &String::from_iter(part)).into_iter().for_each(&mut add);
    }
    reader.finish().into_iter().for_each(&mut add);
    pieces
}

/// Reads an answer in parts of two sizes.
pub fn target(data: &[u8]) {
    let [way, size, text @ ..] = data else { return };
    let calls = &CALLS[usize::from(*way) % CALLS.len()];
    let text: Vec<char> = String::from_utf8_lossy(text).chars().collect();
    assert_eq!(found(calls, &text, usize::from(*size).max(1)), found(calls, &text, text.len().max(1)));
}
