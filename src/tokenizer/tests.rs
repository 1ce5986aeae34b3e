//! Damaged metadata: a typed error that names the key, never a panic. No vocabulary file needed.

use proptest::prelude::*;
use trine_formats::gguf::{Array, Metadata, Value};

use super::{Tokenizer, TokenizerError};

fn strings(values: &[&str]) -> Value {
    Value::Array(Array::Str(values.iter().collect()))
}

fn bpe(tokens: &[&str], merges: &[&str]) -> Metadata {
    let mut meta = Metadata::default();
    meta.set("tokenizer.ggml.model", Value::str("gpt2"));
    meta.set("tokenizer.ggml.pre", Value::str("gpt-2"));
    meta.set("tokenizer.ggml.tokens", strings(tokens));
    meta.set("tokenizer.ggml.merges", strings(merges));
    meta
}

fn spm(tokens: &[&str], scores: &[f32], types: &[i32]) -> Metadata {
    let mut meta = Metadata::default();
    meta.set("tokenizer.ggml.model", Value::str("llama"));
    meta.set("tokenizer.ggml.tokens", strings(tokens));
    meta.set("tokenizer.ggml.scores", Value::Array(Array::F32(scores.to_vec())));
    meta.set("tokenizer.ggml.token_type", Value::Array(Array::I32(types.to_vec())));
    meta
}

fn small_spm() -> Metadata {
    spm(
        &["<unk>", "<s>", "</s>", "▁", "a", "b", "ab", "<0x0A>"],
        &[0.0, 0.0, 0.0, -3.0, -1.0, -1.0, -2.0, 0.0],
        &[2, 3, 3, 1, 1, 1, 1, 6],
    )
}

fn unigram(charsmap: Option<Array>) -> Metadata {
    let mut meta = spm(&["<pad>", "</s>", "<unk>", "▁", "a"], &[0.0, 0.0, 0.0, -1.0, -1.0], &[3, 3, 2, 1, 1]);
    meta.set("tokenizer.ggml.model", Value::str("t5"));
    if let Some(map) = charsmap {
        meta.set("tokenizer.ggml.precompiled_charsmap", Value::Array(map));
    }
    meta
}

fn error(meta: &Metadata) -> String {
    Tokenizer::from_metadata(meta).err().unwrap().to_string()
}

#[test]
fn missing_keys_and_wrong_types_are_named() {
    for key in ["model", "tokens", "merges"] {
        let key = format!("tokenizer.ggml.{key}");
        let mut meta = bpe(&["a"], &[]);
        meta.remove(&key);
        assert!(error(&meta).contains(&format!("'{key}' is missing")));
        meta.set(&key, Value::U32(1));
        let e = error(&meta);
        assert!(e.contains(&format!("'{key}'")) && e.contains("u32"), "{e}");
    }
    for key in ["bos_token_id", "fim_pad_token_id", "add_bos_token", "add_space_prefix", "token_type", "scores"] {
        let key = format!("tokenizer.ggml.{key}");
        let mut meta = small_spm();
        meta.set(&key, Value::str("x"));
        let e = error(&meta);
        assert!(e.contains(&format!("'{key}'")) && e.contains("str"), "{e}");
    }
}

#[test]
fn scores_and_types_must_fit_the_tokens() {
    let mut meta = small_spm();
    meta.set("tokenizer.ggml.scores", Value::Array(Array::U8(vec![0; 8])));
    assert_eq!(error(&meta), "key 'tokenizer.ggml.scores': is of type array of u8, expected array of f32 or i32");
    for key in ["scores", "token_type"] {
        let key = format!("tokenizer.ggml.{key}");
        let mut meta = small_spm();
        meta.set(&key, Value::Array(Array::I32(vec![1; 7])));
        assert_eq!(error(&meta), format!("key '{key}' has 7 entries for 8 tokens"));
    }
    let mut scores = vec![0.0; 8];
    scores[5] = f32::NAN;
    meta.set("tokenizer.ggml.scores", Value::Array(Array::F32(scores)));
    assert!(error(&meta).contains("'tokenizer.ggml.scores', entry 5"));
}

#[test]
fn byte_tokens_must_name_a_byte() {
    for text in ["<0x-1>", "<0xZZ>", "<0x0>", "<0x000>", "x", "<0x+1>"] {
        let e = error(&spm(&["<unk>", text], &[0.0; 2], &[2, 6]));
        assert!(e.contains("'tokenizer.ggml.tokens', entry 1"), "{e}");
    }
    let xverse = Tokenizer::from_metadata(&spm(&["<unk>", r"<b'\x00'>"], &[0.0; 2], &[2, 6])).expect("byte 0");
    assert_eq!(xverse.piece(1, false), [0]);
}

#[test]
fn ids_must_be_in_the_vocabulary() {
    for key in ["bos", "eos", "unknown"] {
        for id in [8, u32::MAX] {
            let key = format!("tokenizer.ggml.{key}_token_id");
            let mut meta = small_spm();
            meta.set(&key, Value::U32(id));
            assert_eq!(error(&meta), format!("key '{key}': token id {id} is outside the vocabulary of 8 tokens"));
        }
    }
    // Roles that encoding does not use are ignored instead, as in llama.cpp.
    let mut meta = small_spm();
    meta.set("tokenizer.ggml.eot_token_id", Value::U32(8));
    assert!(Tokenizer::from_metadata(&meta).is_ok());
}

#[test]
fn merges_must_be_two_tokens_that_make_a_token() {
    let tokens = ["a", "b", "c", "ab"];
    assert!(Tokenizer::from_metadata(&bpe(&tokens, &["a b"])).is_ok());
    for (merge, what) in [
        ("ab", "not two pieces"),
        ("", "not two pieces"),
        (" a", "not two pieces"),
        ("a x", "'x' is not a token"),
        ("x a", "'x' is not a token"),
        ("b c", "'bc' is not a token"),
        ("a ", "'' is not a token"),
        ("a b c", "'b c' is not a token"),
    ] {
        let e = error(&bpe(&tokens, &["a b", merge]));
        assert!(e.contains("'tokenizer.ggml.merges', entry 1") && e.contains(what), "{e}");
    }
    let mut meta = bpe(&tokens, &[]);
    let broken = Array::Str([&b"\xff a"[..]].into_iter().collect());
    meta.set("tokenizer.ggml.merges", Value::Array(broken));
    assert!(error(&meta).contains("is not UTF-8"));
}

#[test]
fn a_token_must_not_appear_twice() {
    assert_eq!(
        error(&bpe(&["a", "b", "a"], &[])),
        "key 'tokenizer.ggml.tokens', entry 2: 'a' is already token 0; ids would be ambiguous"
    );
}

#[test]
fn a_damaged_table_of_replacements_is_refused() {
    let cases = [
        (vec![], "shorter than its header"),
        (vec![1, 0, 0], "shorter than its header"),
        (vec![4, 0, 0, 0], "longer than the data"),
        (vec![255; 9], "longer than the data"),
        (vec![4, 0, 0, 0, 1, 2, 3, 4], "longer than the data"),
    ];
    for (bytes, what) in cases {
        let e = error(&unigram(Some(Array::U8(bytes))));
        assert!(e.contains("precompiled_charsmap") && e.contains(what), "{e}");
    }
    let e = error(&unigram(Some(Array::F32(vec![0.0]))));
    assert!(e.contains("precompiled_charsmap") && e.contains("array of f32"), "{e}");
    // The root points far outside.
    let mut bytes = vec![4, 0, 0, 0];
    bytes.extend((0xff_ff_fc_00u32).to_le_bytes());
    bytes.extend(b"x\0");
    let t = Tokenizer::from_metadata(&unigram(Some(Array::U8(bytes)))).unwrap();
    let e = t.encode("a", false, false).unwrap_err();
    assert!(matches!(e, TokenizerError::Charsmap { .. }), "{e}");
}

#[test]
fn a_text_that_needs_an_absent_token_is_an_error() {
    let t = Tokenizer::from_metadata(&small_spm()).unwrap();
    assert_eq!(t.encode("ab\n", true, false).unwrap(), [1, 3, 6, 7]);
    assert_eq!(
        t.encode("é", false, false).unwrap_err().to_string(),
        "the vocabulary has no token for the byte 0xC3, which this text needs"
    );
    // Token 11 would be BOS by default.
    let mut meta = bpe(&["a"], &[]);
    meta.set("tokenizer.ggml.add_bos_token", Value::Bool(true));
    let t = Tokenizer::from_metadata(&meta).unwrap();
    assert_eq!(t.bos(), None);
    assert!(t.encode("a", true, false).is_err());
    assert_eq!(t.encode("a", false, false).unwrap(), [0]);
}

#[test]
fn empty_tokens_and_an_empty_vocabulary_do_no_harm() {
    let t = Tokenizer::from_metadata(&bpe(&["", "a", ""], &[])).unwrap();
    assert_eq!(t.token_text(2), b"[EMPTY_2]");
    assert_eq!(t.encode("aé", true, true).unwrap(), [1]);
    let t = Tokenizer::from_metadata(&bpe(&[], &[])).unwrap();
    assert!(t.encode("a", false, true).unwrap().is_empty());
    assert_eq!((t.bos(), t.n_vocab()), (None, 0));
}

proptest! {
    /// Whatever the arrays hold, building and encoding end without a panic.
    #[test]
    fn arbitrary_metadata_never_panics(
        model in prop::sample::select(vec!["gpt2", "gemma4", "llama", "t5"]),
        pre in prop::sample::select(vec!["default", "llama3", "gpt-4o", "superbpe", "whitespace", "kimi-k2"]),
        tokens in prop::collection::vec("[ab▁<>0xAF\n ]{0,6}", 0..40),
        merges in prop::collection::vec("[ab▁ ]{0,4}", 0..3),
        types in prop::collection::vec(0i32..8, 40),
        scores in prop::collection::vec(prop::num::f32::ANY, 40),
        charsmap in prop::option::of(prop::collection::vec(any::<u8>(), 0..64)),
        flag in any::<bool>(),
        text in "[ab<>0xAF\n '1é▁]{0,40}",
    ) {
        let tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
        let merges: Vec<&str> = merges.iter().map(String::as_str).collect();
        let mut meta = spm(&tokens, &scores, &types);
        meta.set("tokenizer.ggml.model", Value::str(model));
        meta.set("tokenizer.ggml.pre", Value::str(pre));
        meta.set("tokenizer.ggml.merges", strings(&merges));
        meta.set("tokenizer.ggml.remove_extra_whitespaces", Value::Bool(flag));
        meta.set("tokenizer.ggml.add_space_prefix", Value::Bool(flag));
        if let Some(bytes) = charsmap {
            let key = "tokenizer.ggml.precompiled_charsmap";
            meta.set(key, Value::Array(Array::U8(bytes)));
        }
        if let Ok(t) = Tokenizer::from_metadata(&meta)
            && let Ok(ids) = t.encode(&text, true, flag)
        {
            let mut stream = t.detokenizer(flag);
            for id in ids {
                stream.push(id);
            }
            stream.finish();
        }
    }
}
