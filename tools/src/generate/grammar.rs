//! The options that give a text a form: llama.cpp's grammars, and JSON schemas.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::Args;
use trine::Model;
use trine::grammar::{Grammar, Vocabulary};

use crate::isolate::OtherProcess;
use crate::text;

/// The form of the text.
#[derive(Args)]
#[group(multiple = false)]
pub struct GrammarArgs {
    /// A grammar in GBNF that the text follows: 'root ::= "yes" | "no"'
    #[arg(long, value_name = "GBNF", allow_hyphen_values = true)]
    pub grammar: Option<String>,

    /// A file with such a grammar
    #[arg(long, value_name = "FILE")]
    pub grammar_file: Option<PathBuf>,

    /// A JSON schema that the text follows; {} stands for any JSON object
    #[arg(short = 'j', long, value_name = "SCHEMA")]
    pub json_schema: Option<String>,

    /// A file with a JSON schema, also -jf
    #[arg(long, value_name = "FILE")]
    pub json_schema_file: Option<PathBuf>,
}

impl GrammarArgs {
    /// The grammar that was asked for.
    ///
    /// # Errors
    /// A file that cannot be read, what is no grammar or schema, and a schema that cannot be followed.
    pub(super) fn build(&self, model: &Model) -> Result<Option<Grammar>> {
        let file = |path: &PathBuf| -> Result<(String, String)> {
            let source = text::read_small_text(path)?;
            Ok((source, format!("'{}'", path.display())))
        };
        let option = |text: &String, name: &str| (text.clone(), name.to_owned());
        let gbnf = match (&self.grammar, &self.grammar_file) {
            (Some(text), _) => Some(option(text, "--grammar")),
            (None, path) => path.as_ref().map(file).transpose()?,
        };
        let schema = match (&self.json_schema, &self.json_schema_file) {
            (Some(text), _) => Some(option(text, "--json-schema")),
            (None, path) => path.as_ref().map(file).transpose()?,
        };
        if gbnf.is_none() && schema.is_none() {
            return Ok(None);
        }
        let vocabulary = Vocabulary::new(model.tokenizer())?.isolated(Arc::new(OtherProcess));
        if let Some((source, from)) = gbnf {
            return Ok(Some(Grammar::gbnf(&vocabulary, &source).context(from)?));
        }
        let Some((source, from)) = schema else {
            return Ok(None);
        };
        let schema: serde_json::Value = serde_json::from_str(&source).context(from.clone())?;
        let any = schema.as_object().is_some_and(serde_json::Map::is_empty);
        let grammar = match any {
            true => Grammar::json_object(&vocabulary),
            false => Grammar::json_schema(&vocabulary, &schema),
        };
        Ok(Some(grammar.context(from)?))
    }
}
