//! Servers in this process.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Duration;

use clap::Parser;
use tokio::runtime::Runtime;
use trine::isolate::Isolate;
use trine::{Model, Recipe, Target};
use trine_serve::args::Args;
use trine_serve::http::Server;
use trine_tools::isolate::OtherProgram;

/// A template for a model that has none.
const TEMPLATE: &str = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}";

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("threads"));

/// A server, with its address.
pub struct Local {
    pub to: SocketAddr,
    pub server: Option<Server>,
    /// Models of a folder read the template when they are loaded.
    _folder: tempfile::TempDir,
}

/// Starts a server of the bundled model.
#[track_caller]
pub fn start(more: &[&str]) -> Local {
    let model = trine_testkit::trilm();
    start_with(model.to_str().expect("a path"), more)
}

/// The model of a file, in this process. The threads are the servers', which could not start theirs behind others.
#[track_caller]
pub fn open(path: impl AsRef<Path>) -> Model {
    start_threads();
    trine::open(path).expect("a model")
}

/// Starts the threads of this process, as many as every server here wants.
fn start_threads() {
    trine_tools::threads::start(Some(2)).expect("threads");
}

/// Writes the bundled model at 1 to 3 bits per weight into a folder; its path.
pub fn any_precision(folder: &Path) -> String {
    start_threads();
    let path = folder.join("ap.gguf");
    let file = trine::open_file(trine_testkit::trilm(), true).expect("a file");
    let recipe = Recipe::new(Target::parse("AP1-3").expect("a target"));
    trine::quantize(&file, &recipe, &path).expect("a file");
    path.to_str().expect("a path").to_owned()
}

/// Starts a server and waits until its model is loaded.
#[track_caller]
pub fn start_with(model: &str, more: &[&str]) -> Local {
    launch(["-m", model], more, isolate())
}

/// Starts a server of the bundled model that gives its jobs to `isolate`.
#[track_caller]
pub fn start_isolated(more: &[&str], isolate: Arc<dyn Isolate>) -> Local {
    launch(["-m", trine_testkit::trilm().to_str().expect("a path")], more, isolate)
}

/// Starts a server of the models of a folder.
#[track_caller]
pub fn start_folder(folder: &Path, more: &[&str]) -> Local {
    launch(["--models", folder.to_str().expect("a path")], more, isolate())
}

#[track_caller]
fn launch(of: [&str; 2], more: &[&str], isolate: Arc<dyn Isolate>) -> Local {
    let folder = trine_testkit::folder();
    let template = folder.path().join("template.jinja");
    std::fs::write(&template, TEMPLATE).expect("a file");
    let template = template.to_str().expect("a path").to_owned();
    let own = ["rserve", of[0], of[1], "-t", "2", "--port", "0", "--log-format", "none", "--seed", "7"];
    let template = ["--chat-template-file", &template];
    let args = Args::try_parse_from(own.iter().chain(&template).chain(more)).expect("options");
    RUNTIME.block_on(async {
        let mut server = Server::start(&args, isolate).await.expect("a server");
        server.ready().await.expect("a model");
        let to = server.urls()[0].trim_start_matches("http://").parse().expect("an address");
        Local { to, server: Some(server), _folder: folder }
    })
}

/// Renderer of chat templates: the program, because these tests are none of this crate's programs.
pub fn isolate() -> Arc<OtherProgram> {
    Arc::new(OtherProgram(env!("CARGO_BIN_EXE_rserve").into()))
}

impl Local {
    /// Ends it as a signal would.
    pub fn drain(&mut self, delay: Duration, most: Duration) {
        if let Some(server) = self.server.take() {
            RUNTIME.block_on(server.drain(delay, most));
        }
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.drain(Duration::ZERO, Duration::ZERO);
    }
}

/// A server for all tests that leave it as it is.
pub fn shared() -> SocketAddr {
    static SERVER: OnceLock<Local> = OnceLock::new();
    let server = SERVER.get_or_init(|| start(&["--alias", "m,other", "--metrics", "--max-queue", "256"]));
    server.to
}
