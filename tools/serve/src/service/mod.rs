//! A loaded model with all that answers need of it.

mod about;
mod breakers;
mod card;
mod encoder;
mod forms;
mod meters;
mod names;
mod saved;
mod work;

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Map, Value};
use tokio::sync::Semaphore;
use trine::formats::gguf::Metadata;
use trine::grammar::GrammarError;
use trine::isolate::Isolate;
use trine::sample::Recommended;
use trine::{ChatTemplate, DryBreakers, Grammar, NumberPath, Pooling, SamplerOptions};
use trine_tools::{load, templates};

use crate::args::{Args, ReasoningFormat};
use crate::engine::{Handle, Options};
use crate::error::ApiError;

pub use about::{About, now};
pub use card::Card;
pub use encoder::Encoder;
pub use forms::ResponseFormat;
pub use meters::{Histogram, Meters};
pub use names::{LONGEST_NAME, Names};
pub use saved::{Moved, Place, SavedSlots};
pub use work::{Weight, Work};

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
    /// Where texts of places are kept, if they are.
    pub saved: Option<SavedSlots>,
    /// The source of the chat template.
    pub template_source: Option<String>,
    template: Option<ChatTemplate>,
    longest_token: Option<usize>,
    controls: OnceLock<Vec<(u32, String)>>,
    forms: Forms,
    breakers: Breakers,
    work: Work,
    /// For compiling grammars, one at a time: it may take seconds, for which others do not wait.
    compiling: Arc<Semaphore>,
    /// Requests whose grammars are compiled, or wait for that.
    compiled: AtomicUsize,
}

/// Most requests whose grammars are compiled or wait for that, and the seconds after which others may come again.
const MOST_COMPILED: usize = 32;
const COMPILE_RETRY: u64 = 5;

/// A request whose grammar is compiled or waits for that, until it is dropped.
struct Waiting<'a> {
    service: &'a Service,
    /// Such requests before it.
    before: usize,
}

impl<'a> Waiting<'a> {
    fn new(service: &'a Service) -> Waiting<'a> {
        Waiting { service, before: service.compiled.fetch_add(1, SeqCst) }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.service.compiled.fetch_sub(1, SeqCst);
    }
}

/// Limits of requests, apart from those of the engine.
pub struct Limits {
    /// Choices.
    pub max_choices: usize,
    /// Tokens where a request does not say; -1 without a limit.
    pub predict: i64,
    /// True if a full context is shifted, and the tokens of a prompt that stay then where a request does not say; -1: all.
    pub shift: bool,
    /// See `shift`.
    pub keep: i64,
    /// Sampler where a request does not say.
    pub sampler: SamplerOptions,
    /// Variables of the chat template where a request does not say them.
    pub variables: Map<String, Value>,
    /// Seed where a request does not say; -1 for a random one.
    pub seed: i64,
    /// True if thoughts are told apart from answers where a request does not say.
    pub thoughts: bool,
    /// True if answers tell how they came about where a request does not say.
    pub verbose: bool,
    /// Most time that a request waits before anything is done for it.
    pub patience: Duration,
    /// Time of a request.
    pub request_timeout: Option<Duration>,
    /// Silence in a stream after which a comment is sent.
    pub ping: Option<Duration>,
}

impl Service {
    /// Loads the model that `args` name and starts its engine with `options`. Chat templates are rendered by `isolate`,
    /// and what takes a processor for a while is done at the places of `work`.
    ///
    /// # Errors
    /// The model cannot be used, or not with these options.
    pub fn load(
        args: &Args,
        options: Options,
        isolate: Arc<dyn Isolate>,
        work: Work,
    ) -> Result<(Service, JoinHandle<()>)> {
        let model = load::load_for_texts(&args.loading())?;
        let file = model.path().file_name().unwrap_or_default();
        let file = file.to_string_lossy().into_owned();
        let template_source = template_source(args, model.metadata())?;
        let template = template_source.as_ref().map(|(from, source)| {
            ChatTemplate::isolated(source, model.tokenizer(), isolate.clone()).context(from.clone())
        });
        let template = template.transpose()?;
        let template_source = template_source.map(|(_, source)| source);
        // These tokenizers change a text before they look for tokens, so its length says nothing.
        let normalizes = model.metadata().get_str("tokenizer.ggml.model")? == Some("t5");
        let longest_token = longest_token(model.tokenizer(), normalizes);
        let path = args.model.number_path.map(NumberPath::from);
        let about = About::of(&model, file.clone(), path.unwrap_or_default())?;
        let about = about.with(&args.model)?;
        let pooling = args.pooling.or(model.pooling()).unwrap_or(Pooling::Mean);
        let recommended = Recommended::of(model.metadata());
        let options = Options { drafts: args.drafts()?, ..options };
        let (engine, thread) = Handle::start(model, options)?;
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
                shift: args.context_shift,
                keep: args.keep,
                sampler: args.sampler.over(&recommended, SamplerOptions::default(), engine.options().n_ctx()),
                variables: args.variables(),
                seed: args.seed,
                thoughts: args.reasoning_format != ReasoningFormat::None,
                verbose: args.verbose,
                patience: args.queue_timeout,
                request_timeout: Some(args.request_timeout).filter(|t| !t.is_zero()),
                ping: u64::try_from(args.sse_ping_interval).ok().map(Duration::from_secs),
            },
            meters: Meters::default(),
            pooling,
            saved: args.slot_save_path.as_ref().map(|folder| SavedSlots::new(folder, &args.model)).transpose()?,
            template_source,
            template,
            longest_token,
            controls: OnceLock::new(),
            forms: Forms::new(isolate),
            breakers: Breakers::default(),
            work,
            compiling: Arc::new(Semaphore::new(1)),
            compiled: AtomicUsize::new(0),
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

    /// Returns the grammar of a form, or why there is none; `None` before [`Service::compile`].
    pub fn grammar(&self, form: &ResponseFormat) -> Option<Result<Grammar, GrammarError>> {
        self.forms.known(form)
    }

    /// Compiles the grammar of a form.
    pub fn compile_here(&self, form: &ResponseFormat) {
        self.forms.compile(self.engine.model().tokenizer(), form);
    }

    /// Compiles the grammar of a form where that keeps nobody waiting but those that ask for other forms.
    ///
    /// # Errors
    /// Too many wait for that already, or for too long.
    pub async fn compile(self: &Arc<Self>, form: ResponseFormat) -> Result<(), ApiError> {
        let waiting = Waiting::new(self);
        if waiting.before >= MOST_COMPILED {
            return Err(ApiError::busy("too many requests wait for their grammars", COMPILE_RETRY));
        }
        let permit = tokio::time::timeout(self.limits.patience, self.compiling.clone().acquire_owned());
        let late = |_| ApiError::unavailable("the grammar waited too long for others", COMPILE_RETRY);
        let permit = permit.await.map_err(late)?;
        let service = self.clone();
        let work = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            // Somebody before may have asked for the same.
            if service.grammar(&form).is_none() {
                service.compile_here(&form);
            }
        });
        work.await.map_err(|_| ApiError::server("the grammar could not be compiled"))
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
            cut: false,
        }
    }

    /// The control tokens of the model but for those that end texts, and their names.
    pub fn controls(&self) -> &[(u32, String)] {
        self.controls.get_or_init(|| {
            let tokenizer = self.engine.model().tokenizer();
            let ids = tokenizer.controls().filter(|&id| !tokenizer.is_eog(id));
            ids.map(|id| (id, self.text_of(&[id]))).collect()
        })
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
        weight: Weight,
        work: impl FnOnce(&Arc<Service>) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let service = self.clone();
        self.work.run(weight, move || work(&service)).await
    }
}

/// The source of the chat template of a model with this metadata, and where it is from; `None`: it has none.
///
/// # Errors
/// The file of a template cannot be read; the model's is no text.
pub fn template_source(args: &Args, metadata: &Metadata) -> Result<Option<(String, String)>> {
    const KEY: &str = "tokenizer.chat_template";
    if let Some(given) = templates::given(args.chat_template.as_deref(), args.chat_template_file.as_deref())? {
        return Ok(Some(given));
    }
    Ok(metadata.get_str(KEY)?.map(|source| (KEY.to_owned(), source.to_owned())))
}
