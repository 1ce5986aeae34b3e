//! A loaded model with all that answers need of it.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use trine::formats::gguf::TensorInfo;
use trine::{ChatTemplate, Model, NumberPath};
use trine_tools::{load, text};

use crate::api::ApiError;
use crate::api::models::Names;
use crate::api::prompt::{Encoder, longest_token};
use crate::api::reply::now;
use crate::args::Args;
use crate::engine::Handle;
use crate::meters::Meters;

/// A loaded model with all that answers need of it.
pub struct Service {
    /// Generates.
    pub engine: Handle,
    /// What the model is called.
    pub names: Names,
    /// What is told of it.
    pub about: About,
    /// What requests may ask for.
    pub limits: Limits,
    /// What was measured.
    pub meters: Meters,
    /// The source of the chat template.
    pub template_source: Option<String>,
    template: Option<ChatTemplate>,
    longest_token: Option<usize>,
    /// For work that takes a processor: tokenizing, templates.
    work: Arc<Semaphore>,
}

/// What is told of a model.
pub struct About {
    /// The name of its file.
    pub file: String,
    /// SHA-256 of the bytes of its file, or of its files one after another.
    pub sha256: String,
    /// Version, model and number path: servers with the same give the same texts.
    pub fingerprint: String,
    /// Bytes of its file.
    pub size: u64,
    /// Number of weights.
    pub n_params: u64,
    /// When it was loaded, in seconds since 1970.
    pub created: u64,
}

/// What requests may ask for, apart from what the engine says.
pub struct Limits {
    /// Choices.
    pub max_choices: usize,
    /// Tokens where a request does not say; -1 without a limit.
    pub predict: i64,
    /// Time of a request.
    pub request_timeout: Option<Duration>,
    /// Silence in a stream after which a comment is sent.
    pub ping: Option<Duration>,
}

impl Service {
    /// Loads the model that `args` name and starts its engine.
    ///
    /// # Errors
    /// The model cannot be used, or not with these options.
    pub fn load(args: &Args) -> Result<(Service, JoinHandle<()>)> {
        let model = load::load(&args.model)?;
        let file = model.path().file_name().unwrap_or_default();
        let file = file.to_string_lossy().into_owned();
        let (template, template_source) = match &args.chat_template_file {
            Some(path) => {
                let from = format!("'{}'", path.display());
                let source = text::utf8(text::read_file(path)?, &from)?;
                let template = ChatTemplate::new(&source, model.tokenizer()).context(from)?;
                (Some(template), Some(source))
            }
            None => {
                const KEY: &str = "tokenizer.chat_template";
                let source = model.metadata().get_str(KEY)?.map(str::to_owned);
                (model.chat_template().context(KEY)?, source)
            }
        };
        // These tokenizers change a text before they look for tokens, so its length says nothing.
        let normalizes = model.metadata().get_str("tokenizer.ggml.model")? == Some("t5");
        let longest_token = longest_token(model.tokenizer(), normalizes);
        let path = args.model.number_path.map(NumberPath::from);
        let about = About::of(&model, file.clone(), path.unwrap_or_default())?;
        let (engine, thread) = Handle::start(model, args.engine())?;
        let names = match args.alias.is_empty() {
            true => vec![file],
            false => args.alias.clone(),
        };
        let service = Service {
            names: Names {
                names,
                widths: engine.options().widths.clone(),
                strict: args.strict_model,
            },
            about,
            limits: Limits {
                max_choices: args.max_choices,
                predict: args.predict,
                request_timeout: Some(args.request_timeout).filter(|t| !t.is_zero()),
                ping: u64::try_from(args.sse_ping_interval)
                    .ok()
                    .map(Duration::from_secs),
            },
            meters: Meters::default(),
            template_source,
            template,
            longest_token,
            work: Arc::new(Semaphore::new(trine_tools::args::threads(None))),
            engine,
        };
        Ok((service, thread))
    }

    /// The chat template.
    ///
    /// # Errors
    /// The model has none.
    pub fn template(&self) -> Result<&ChatTemplate, ApiError> {
        self.template.as_ref().ok_or_else(|| {
            ApiError::invalid(
                "the model has no chat template, so it was not made to chat: use /v1/completions, or start the server with --chat-template-file",
            )
        })
    }

    /// Text to tokens, within the context.
    pub fn encoder(&self) -> Encoder<'_> {
        Encoder {
            tokenizer: self.engine.model().tokenizer(),
            n_ctx: self.engine.options().n_ctx(),
            longest: self.longest_token,
        }
    }

    /// The text of tokens, control tokens included.
    pub fn text_of(&self, tokens: &[u32]) -> String {
        let mut stream = self.engine.model().tokenizer().detokenizer(true);
        let mut text = String::new();
        for id in tokens {
            text += &stream.push(*id);
        }
        text + &stream.finish()
    }

    /// Does work that takes a processor for a while where it keeps nobody from being served.
    ///
    /// # Errors
    /// Those of `work`; it panicked.
    pub async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Arc<Service>) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let permit = self.work.clone().acquire_owned().await;
        let service = self.clone();
        let work = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work(&service)
        });
        work.await
            .unwrap_or_else(|_| Err(ApiError::server("the request could not be read")))
    }
}

impl About {
    fn of(model: &Model, file: String, path: NumberPath) -> Result<About> {
        let shards = model.file().shards();
        let sha256 = sha256(shards.iter().map(|s| s.path.as_path()))?;
        let weights = model.weights();
        let path = match (weights.any_precision(), weights.widely_linear(), path) {
            (_, Some(_), NumberPath::I8) => "i8",
            (None, ..) => "exact",
            (Some(_), _, NumberPath::F32) => "f32",
            (Some(_), ..) => "i16",
        };
        Ok(About {
            fingerprint: format!("b{}-{}-{path}", env!("CARGO_PKG_VERSION"), &sha256[..12]),
            file,
            sha256,
            size: shards
                .iter()
                .map(|s| (*s.bytes).as_ref().len() as u64)
                .sum(),
            n_params: model.file().tensors().map(TensorInfo::elements).sum(),
            created: now(),
        })
    }
}

/// The hash of files one after another. They are read anew: where they are mapped, looking at the bytes there would
/// make all of them resident again.
fn sha256<'a>(paths: impl Iterator<Item = &'a Path>) -> Result<String> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    for path in paths {
        let context = || format!("cannot read '{}'", path.display());
        let mut file = File::open(path).with_context(context)?;
        loop {
            match file.read(&mut buffer).with_context(context)? {
                0 => break,
                n => hash.update(&buffer[..n]),
            }
        }
    }
    Ok(text::hex(&hash.finalize()))
}
