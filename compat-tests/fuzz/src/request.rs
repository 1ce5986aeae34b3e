//! Bodies of requests to the server: the first byte chooses the route, the others are the body.

use std::sync::{Arc, LazyLock};

use clap::Parser;
use trine::isolate::{Failure, Isolate, Job, Limits};
use trine_serve::api::Route;
use trine_serve::api::request::{Asked, Caller, Unread};
use trine_serve::args::Args;
use trine_serve::service::{Service, Work};

/// Renders templates in this process: the fuzzer watches it anyway.
#[derive(Debug)]
struct Here;

impl Isolate for Here {
    fn run(&self, job: Job, request: &[u8], _: Limits) -> Result<Vec<u8>, Failure> {
        match job {
            Job::Template => Ok(trine::chat::answer(request)),
            Job::Grammar => Ok(trine::grammar::answer(request)),
            _ => Err(Failure::Broken("no other job is asked for".to_owned())),
        }
    }
}

static SERVICE: LazyLock<Service> = LazyLock::new(|| {
    let model = trine_testkit::trilm();
    let model = model.to_str().expect("a path");
    let args = ["rserve", "-m", model, "--chat-template", "chatml"];
    let args = Args::try_parse_from(args).expect("options");
    Service::load(&args, args.engine(), Arc::new(Here), Work::default()).expect("a model").0
});

/// Reads a request of one of the routes that take a model's time.
pub fn target(data: &[u8]) {
    let Some((&route, body)) = data.split_first() else {
        return;
    };
    let routes = [
        Route::Native,
        Route::Text,
        Route::Chat,
        Route::Responses,
        Route::Messages,
        Route::OllamaChat,
        Route::OllamaGenerate,
    ];
    let route = routes[usize::from(route) % routes.len()];
    if let Ok(body) = serde_json::from_slice(body) {
        while let Err(Unread::Form(form)) = Asked::read(route, &SERVICE, &body, &Caller::default()) {
            SERVICE.compile_here(&form);
        }
    }
}
