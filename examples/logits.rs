//! Logits themselves: the hash of those after every token, the proof that a machine computes the same bits, and the
//! most likely tokens at the end.
//!
//! ```sh
//! cargo run --release --example logits                          # the bundled model
//! cargo run --release --example logits -- model.gguf "A text"
//! ```

use sha2::{Digest, Sha256};
use trine::SessionOptions;

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/models/trilm-wt-5.8m-F16.gguf");

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().unwrap_or(MODEL.to_owned());
    let text = args.next().unwrap_or("The game was played in".to_owned());

    let model = trine::open(path)?;
    let tokenizer = model.tokenizer();
    let tokens = tokenizer.encode(&text, true, true)?;

    let mut session = model.session(SessionOptions { n_ctx: tokens.len(), n_ubatch: 512 });
    let mut last = Vec::new();
    // From index 0 on: the logits of every token. `tokens.len() - 1` would ask for those of the last one only.
    session.eval(&tokens, 0, &mut |i, logits: &[f32]| {
        let mut hash = Sha256::new();
        logits.iter().for_each(|l| hash.update(l.to_le_bytes()));
        let hash: String = hash.finalize().iter().map(|b| format!("{b:02x}")).collect();
        println!("{i} {} {hash}", tokens[i]);
        last = logits.to_vec();
    })?;

    let mut likely: Vec<u32> = (0..last.len() as u32).collect();
    likely.sort_by(|&a, &b| last[b as usize].total_cmp(&last[a as usize]));
    println!("next:");
    for &id in &likely[..5.min(likely.len())] {
        let text = tokenizer.piece(id, true);
        println!("{:8.4} {:?}", last[id as usize], String::from_utf8_lossy(&text));
    }
    Ok(())
}
