//! Targets on the forms that texts may have: grammars and schemas.

use std::sync::LazyLock;

use trine::grammar::{Grammar, GrammarError, Vocabulary};
use trine::tokenizer::Tokenizer;

use super::assert_message;

/// The vocabulary of a bundled model, and the number of its tokens.
static VOCABULARY: LazyLock<(Vocabulary, u32)> = LazyLock::new(|| {
    let file = trine::open_file(trine_testkit::trilm(), true).expect("a bundled model");
    let tokenizer = Tokenizer::from_metadata(file.meta()).expect("its tokenizer");
    let vocabulary = Vocabulary::new(&tokenizer).expect("its tokens");
    (vocabulary, tokenizer.n_vocab() as u32)
});

/// A grammar in GBNF, and the first tokens that fit it.
pub fn gbnf(data: &[u8]) {
    follow(|vocabulary| Grammar::gbnf(vocabulary, &String::from_utf8_lossy(data)));
}

/// A JSON schema, and the first tokens that fit it.
pub fn json_schema(data: &[u8]) {
    if let Ok(schema) = serde_json::from_slice(data) {
        follow(|vocabulary| Grammar::json_schema(vocabulary, &schema));
    }
}

/// Goes some tokens along a grammar.
fn follow(grammar: impl FnOnce(&Vocabulary) -> Result<Grammar, GrammarError>) {
    let (vocabulary, tokens) = &*VOCABULARY;
    match grammar(vocabulary) {
        Ok(grammar) => {
            let mut matcher = grammar.matcher();
            for _ in 0..4 {
                let Ok(allowed) = matcher.allowed() else {
                    return;
                };
                let first = (0..*tokens).find(|&id| allowed.token(id));
                if first.is_none_or(|id| matcher.accept(id).is_err()) {
                    return;
                }
            }
        }
        Err(e) => assert_message(&e),
    }
}
