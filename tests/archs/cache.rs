//! Keys and values in other types than half floats, of layers whose heads differ: the logits are the reference's, which
//! rotates what it quantizes by the heads of the cache that a layer belongs to.

use trine::kv::CacheTypes;
use trine::model::{LoadOptions, Weights};
use trine::pool::Pool;
use trine::step::{Session, SessionOptions};
use trine_formats::types::TypeId;
use trine_testkit::sha256;

/// Tokens that are evaluated.
const TOKENS: usize = 150;

#[test]
fn quantized_keys_and_values_of_layers_with_other_heads() {
    let golden = crate::golden::read();
    let recorded = trine_testkit::golden::json("archs/cache.json");
    let recorded = recorded.as_object().expect("hashes by model and types");
    assert_eq!(recorded.len(), 12);
    for (entry, expected) in recorded {
        let [name, keys, values] = entry.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{entry}");
        };
        let [keys, values] = [keys, values].map(|ty| TypeId::from_name(ty).expect("a type"));
        let options = LoadOptions { cache: CacheTypes { keys, values }, ..LoadOptions::default() };
        let model = Weights::load(&trine_testkit::gguf::model(crate::made(name)), &options).expect("a model");
        let pool = Pool::new(2).expect("threads");
        let mut session = Session::new(&model, &pool, SessionOptions { n_ctx: 512, n_ubatch: 64 });
        let mut bytes = Vec::new();
        let sink = &mut |_: usize, logits: &[f32]| bytes.extend(logits.iter().flat_map(|v| v.to_le_bytes()));
        session.eval(&golden[name].tokens[..TOKENS], 0, sink).expect("room");
        assert_eq!(Some(sha256(&bytes).as_str()), expected.as_str(), "{entry}");
    }
}
