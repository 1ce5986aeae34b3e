//! Vectors of texts: those of llama.cpp's portable build, and the same in any company.

use sha2::{Digest, Sha256};
use trine::step::{Pooled, Setting, Sink};
use trine::{EmbedError, EmbedOptions, Pooling, Scale, Segment, StepOptions};

use super::{bits, model};

/// `n` tokens.
fn tokens(n: u32) -> Vec<u32> {
    (0..n).map(|i| 3 + i * 37 % 4000).collect()
}

fn options(pooling: Pooling, scale: Scale) -> EmbedOptions {
    EmbedOptions { pooling: Some(pooling), scale, ..EmbedOptions::default() }
}

/// SHA-256 of the bytes of a vector.
fn hash(vector: &[f32]) -> String {
    let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
    let digest = Sha256::digest(bytes);
    digest.iter().map(|b| format!("{b:02x}")).collect()
}

/// Tokens of the text, pooling, SHA-256 of the vector's bytes: `llama_get_embeddings_seq` of llama.cpp's portable build
/// (0c1e57098, no SIMD, flash attention off), without and with `common_embd_normalize(2)`.
const GOLDEN: &[(u32, Pooling, &str, &str)] = &[
    (
        1,
        Pooling::Mean,
        "284fa5b97d6309667a4aab9b04c6455479b4a8383b8ca349471f5caa31f0c6c5",
        "5abd8f7161d43d3498219d5b568992dc616126a1a7abbcb9dc1c205c79509477",
    ),
    (
        1,
        Pooling::Cls,
        "284fa5b97d6309667a4aab9b04c6455479b4a8383b8ca349471f5caa31f0c6c5",
        "5abd8f7161d43d3498219d5b568992dc616126a1a7abbcb9dc1c205c79509477",
    ),
    (
        1,
        Pooling::Last,
        "284fa5b97d6309667a4aab9b04c6455479b4a8383b8ca349471f5caa31f0c6c5",
        "5abd8f7161d43d3498219d5b568992dc616126a1a7abbcb9dc1c205c79509477",
    ),
    (
        9,
        Pooling::Mean,
        "1a334dfb7ab6d76bf36083cfb3b7b0a2518ec0bf0bb2f72ccdfcfdaca60f0557",
        "d6021b7ee1b2a833a24f29476b7a50987cc30dca688139db5a4575e410c2adff",
    ),
    (
        9,
        Pooling::Cls,
        "284fa5b97d6309667a4aab9b04c6455479b4a8383b8ca349471f5caa31f0c6c5",
        "5abd8f7161d43d3498219d5b568992dc616126a1a7abbcb9dc1c205c79509477",
    ),
    (
        9,
        Pooling::Last,
        "7dc7f3d7ce1a6dd489132e426dc6c553d519ed948669bd3d011658cf085aeab8",
        "569ff8ea925e2b6e79436893ba34ae44414a8e8df995d22ae547a4f3a3a540ff",
    ),
    (
        200,
        Pooling::Mean,
        "ad13976750fe5f578a7328d2e9964137aedc79f677dfb65a14408544f134db65",
        "06940959c2fb686ee7657e929529dba7716a2ec6af2a5c00aa21318e71a76e3c",
    ),
    (
        200,
        Pooling::Cls,
        "284fa5b97d6309667a4aab9b04c6455479b4a8383b8ca349471f5caa31f0c6c5",
        "5abd8f7161d43d3498219d5b568992dc616126a1a7abbcb9dc1c205c79509477",
    ),
    (
        200,
        Pooling::Last,
        "940be921a4c80906c1c7ea2bb141201998d6d53960e1c7342dc33867dba2c1e7",
        "ad2c1e99685b639c3c9237ac3e4c7f7824fc9cefbf90250781fe98faeb57b37e",
    ),
];

#[test]
fn vectors_are_those_of_llama_cpp() {
    for &(n, pooling, plain, unit) in GOLDEN {
        for (scale, expected) in [(Scale::None, plain), (Scale::Length, unit)] {
            let vector = model().embed(&tokens(n), &options(pooling, scale));
            let vector = vector.expect("a vector");
            assert_eq!(hash(&vector), expected, "{n} tokens, {pooling:?}, {scale:?}");
        }
    }
}

#[test]
fn the_largest_number_as_llama_cpp_has_it() {
    let options = options(Pooling::Mean, Scale::Largest);
    let vector = model().embed(&tokens(200), &options).expect("a vector");
    assert_eq!(hash(&vector), "6123272846a2fcae31470e201ec7c1436cf32bdc9261da1fcf3f46d27b1ccb59");
}

/// Hears states of some segments and logits of the others.
struct Mixed {
    pooled: Vec<Option<Pooled>>,
    /// Positions that were there before the step.
    before: Vec<usize>,
    logits: Vec<Vec<u32>>,
}

impl Sink for Mixed {
    fn wants_hidden(&self, segment: usize) -> bool {
        self.pooled[segment].is_some()
    }

    fn logits(&mut self, segment: usize, _: usize, logits: &[f32]) {
        assert!(self.pooled[segment].is_none());
        self.logits.push(bits(logits));
    }

    fn hidden(&mut self, segment: usize, index: usize, state: &[f32]) {
        let position = self.before[segment] + index;
        let pooled = self.pooled[segment].as_mut().expect("a segment that was asked for");
        pooled.take(position, state);
    }
}

#[test]
fn company_and_cuts_change_no_bit() {
    let model = model();
    let texts = [tokens(90), tokens(41), tokens(90)];
    let poolings = [Some(Pooling::Mean), Some(Pooling::Last), None];
    for (cut, n_ubatch) in [(1, 512), (7, 512), (90, 512), (90, 16)] {
        let engine = model.engine(64 << 20);
        let mut seqs: Vec<_> = texts.iter().map(|_| engine.sequence()).collect();
        let mut sink = Mixed {
            pooled: poolings
                .iter()
                .zip(&texts)
                .map(|(p, t)| p.map(|p| Pooled::new(model.weights(), Setting::default(), p, t.len())))
                .collect(),
            before: Vec::new(),
            logits: Vec::new(),
        };
        let step = StepOptions { n_ubatch, ..StepOptions::default() };
        while seqs[0].len() < 90 {
            sink.before = seqs.iter().map(|s| s.len()).collect();
            let segments = seqs.iter_mut().zip(&texts).zip(&poolings);
            let mut segments: Vec<Segment<'_>> = segments
                .map(|((seq, text), pooling)| {
                    let rest = &text[seq.len()..];
                    let tokens = &rest[..rest.len().min(cut)];
                    let logits_from = match pooling {
                        Some(_) => 0,
                        None => tokens.len() - 1,
                    };
                    Segment { seq, tokens, logits_from }
                })
                .collect();
            engine.step_into(&mut segments, &step, &mut sink).expect("a step");
        }
        for ((pooled, text), pooling) in sink.pooled.iter_mut().zip(&texts).zip(poolings) {
            let (Some(pooled), Some(pooling)) = (pooled, pooling) else {
                continue;
            };
            let alone = model.embed(text, &options(pooling, Scale::None));
            let vector = pooled.vector().expect("numbers").expect("a whole text");
            assert_eq!(bits(&vector), bits(&alone.expect("a vector")), "{cut}, {pooling:?}");
        }
        assert_eq!(sink.logits.len(), 90_usize.div_ceil(cut));
    }
}

#[test]
fn what_has_no_vector() {
    let model = model();
    let embed = |tokens: &[u32]| model.embed(tokens, &EmbedOptions::default());
    assert_eq!(embed(&[]), Err(EmbedError::Empty));
    let n_ctx = model.n_ctx_train();
    assert_eq!(embed(&vec![5; n_ctx + 1]), Err(EmbedError::TooLong { tokens: n_ctx + 1, n_ctx }));
    assert!(embed(&vec![5; n_ctx]).is_ok());
    assert!(matches!(embed(&[u32::MAX]), Err(EmbedError::Step(_))));
    let narrow = EmbedOptions { bits: Some(4), ..EmbedOptions::default() };
    assert!(matches!(model.embed(&[5], &narrow), Err(EmbedError::Step(_))));
    assert_eq!(model.pooling(), None);
}
