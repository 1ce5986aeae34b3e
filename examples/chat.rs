//! A conversation: a line in, an answer out. What was said before is not evaluated again.
//!
//! ```sh
//! cargo run --release --example chat -- model.gguf
//! echo "Who won the game?" | cargo run --release --example chat       # the bundled model, which was not made to chat
//! ```

use std::io::{self, BufRead, Write};

use trine::{Chat, ChatTemplate, ContextOptions, GenerateOptions, Message};

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/models/trilm-wt-5.8m-F16.gguf");

/// For models that come without a template.
const PLAIN: &str = "\
{% for m in messages %}{{ m.role }}: {{ m.content }}
{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).unwrap_or(MODEL.to_owned());
    let model = trine::open(path)?;

    // model.chat(&options) is the short form where a model is known to have a template.
    let template = match model.chat_template()? {
        Some(template) => template,
        None => ChatTemplate::new(PLAIN, model.tokenizer())?,
    };
    let options =
        GenerateOptions { max_tokens: Some(80), stop: vec!["\nuser:".to_owned()], ..GenerateOptions::default() };
    let context = model.context(&ContextOptions::default());
    let mut chat = Chat::new(context, template, options);
    chat.push(Message::system("Be brief."));

    for line in io::stdin().lock().lines() {
        for chunk in chat.say(line?)? {
            print!("{}", chunk?.text);
            io::stdout().flush()?;
        }
        println!();
        let stats = chat.context().stats();
        eprintln!("[{} tokens of the conversation evaluated, {} reused]", stats.prompt.count, stats.reused);
    }
    Ok(())
}
