//! A loaded model with all that answers need of it.

mod about;
mod breakers;
mod encoder;
mod forms;
mod meters;
mod names;

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::sync::Semaphore;
use trine::grammar::GrammarError;
use trine::isolate::Isolate;
use trine::{ChatTemplate, DryBreakers, Grammar, NumberPath, Pooling, SamplerOptions};
use trine_tools::{load, templates};

use crate::args::Args;
use crate::engine::Handle;
use crate::error::ApiError;

pub use about::{About, now};
pub use encoder::Encoder;
pub use forms::Form;
pub use meters::{Histogram, Meters};
pub use names::Names;

use breakers::Breakers;
use encoder::longest_token;
use forms::Forms;

/// A loaded model with all that answers need of it.
pub struct Service {
    /// Generates.
    pub engine: Handle,
    /// Names of the model.
    pub names: Names,
    /// Its description.
    pub about: About,
    /// Words that say what it is for.
    pub tags: Vec<String>,
    /// Limits of requests.
    pub limits: Limits,
    /// Measurements.
    pub meters: Meters,
    /// How vectors are made where a request does not say.
    pub pooling: Pooling,
    /// The source of the chat template.
    pub template_source: Option<String>,
    template: Option<ChatTemplate>,
    longest_token: Option<usize>,
    forms: Forms,
    breakers: Breakers,
    /// For work that takes a processor: tokenizing, templates.
    work: Arc<Semaphore>,
}

/// Limits of requests, apart from those of the engine.
pub struct Limits {
    /// Choices.
    pub max_choices: usize,
    /// Tokens where a request does not say; -1 without a limit.
    pub predict: i64,
    /// Sampler where a request does not say.
    pub sampler: SamplerOptions,
    /// Seed where a request does not say; -1 for a random one.
    pub seed: i64,
    /// Time of a request.
    pub request_timeout: Option<Duration>,
    /// Silence in a stream after which a comment is sent.
    pub ping: Option<Duration>,
}

impl Service {
    /// Loads the model that `args` name and starts its engine. Chat templates are rendered by `isolate`.
    ///
    /// # Errors
    /// The model cannot be used, or not with these options.
    pub fn load(args: &Args, isolate: Arc<dyn Isolate>) -> Result<(Service, JoinHandle<()>)> {
        let model = load::load_for_texts(&args.model)?;
        let file = model.path().file_name().unwrap_or_default();
        let file = file.to_string_lossy().into_owned();
        let given = templates::given(args.chat_template.as_deref(), args.chat_template_file.as_deref())?;
        let (from, template_source) = match given {
            Some((from, source)) => (from, Some(source)),
            None => {
                const KEY: &str = "tokenizer.chat_template";
                let source = model.metadata().get_str(KEY)?.map(str::to_owned);
                (KEY.to_owned(), source)
            }
        };
        let template = template_source
            .as_ref()
            .map(|source| ChatTemplate::isolated(source, model.tokenizer(), isolate).context(from));
        let template = template.transpose()?;
        // These tokenizers change a text before they look for tokens, so its length says nothing.
        let normalizes = model.metadata().get_str("tokenizer.ggml.model")? == Some("t5");
        let longest_token = longest_token(model.tokenizer(), normalizes);
        let path = args.model.number_path.map(NumberPath::from);
        let about = About::of(&model, file.clone(), path.unwrap_or_default())?;
        let about = about.with(&args.model)?;
        let pooling = args.pooling.or(model.pooling()).unwrap_or(Pooling::Mean);
        let (engine, thread) = Handle::start(model, args.engine())?;
        let names = match args.alias.is_empty() {
            true => vec![file],
            false => args.alias.clone(),
        };
        let service = Service {
            names: Names { names, widths: engine.options().widths.clone(), strict: args.strict_model },
            about,
            tags: args.tags.clone(),
            limits: Limits {
                max_choices: args.max_choices,
                predict: args.predict,
                sampler: args.sampler.apply(SamplerOptions::default(), engine.options().n_ctx()),
                seed: args.seed,
                request_timeout: Some(args.request_timeout).filter(|t| !t.is_zero()),
                ping: u64::try_from(args.sse_ping_interval).ok().map(Duration::from_secs),
            },
            meters: Meters::default(),
            pooling,
            template_source,
            template,
            longest_token,
            forms: Forms::default(),
            breakers: Breakers::default(),
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
                "the model has no chat template, so it was not made to chat: use /v1/completions, or start the server with --chat-template or --chat-template-file",
            )
        })
    }

    /// The grammar of a form, which texts are asked to have.
    ///
    /// # Errors
    /// It cannot be followed.
    pub fn grammar(&self, form: &Form) -> Result<Grammar, GrammarError> {
        self.forms.grammar(self.engine.model().tokenizer(), form)
    }

    /// The texts that DRY breaks repetitions at, in tokens of the model.
    pub fn breakers(&self, texts: &[String]) -> DryBreakers {
        self.breakers.of(self.engine.model(), texts)
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
        work.await.unwrap_or_else(|_| Err(ApiError::server("the request could not be read")))
    }
}
