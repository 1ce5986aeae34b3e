//! The tokenizers against vocabularies and outputs of llama.cpp (testdata/vocab/README.md).

use std::path::PathBuf;

use sha2::{Digest, Sha256};
use trine::tokenizer::{Tokenizer, TokenizerError};
use trine_formats::gguf::{Array, Gguf, Limits, Metadata, Value};
use trine_testkit::{is_long, read, testdata};

const VOCABS: [&str; 7] = ["bert-bge", "gpt-2", "llama-bpe", "llama-spm", "phi-3", "qwen2", "deepseek-coder"];

fn path(name: &str) -> PathBuf {
    testdata("vocab").join(name)
}

fn gunzip(name: &str) -> Vec<u8> {
    read(&path(name))
}

fn metadata(name: &str) -> Metadata {
    Gguf::parse(&gunzip(name), &Limits::default()).unwrap().meta
}

fn tokenizer(vocab: &str) -> Tokenizer {
    Tokenizer::from_metadata(&metadata(&format!("ggml-vocab-{vocab}.gguf.gz"))).unwrap()
}

fn decode(t: &Tokenizer, ids: &[u32]) -> String {
    let mut stream = t.detokenizer(true);
    let mut text: String = ids.iter().map(|&id| stream.push(id)).collect();
    text.push_str(&stream.finish());
    text
}

fn ids_of(value: &serde_json::Value) -> Vec<u32> {
    let ids = value.as_array().unwrap().iter();
    ids.map(|id| id.as_u64().unwrap() as u32).collect()
}

#[test]
fn texts_of_llama_cpp_give_its_ids() {
    for vocab in VOCABS {
        let t = tokenizer(vocab);
        let texts = std::fs::read_to_string(path(&format!("ggml-vocab-{vocab}.gguf.inp"))).unwrap();
        let ids = std::fs::read_to_string(path(&format!("ggml-vocab-{vocab}.gguf.out"))).unwrap();
        let mut checked = 0;
        for (text, ids) in texts.split("\n__ggml_vocab_test__\n").zip(ids.lines()) {
            let expected: Vec<u32> = ids.split_whitespace().map(|i| i.parse().unwrap()).collect();
            assert_eq!(t.encode(text, false, false).unwrap(), expected, "{vocab}: {text:?}");
            checked += 1;
        }
        assert_eq!(checked, 46, "{vocab}");
    }
}

fn check_random(t: &Tokenizer, name: &str, n: usize) {
    let rows: Vec<serde_json::Value> = serde_json::from_slice(&gunzip(&format!("{name}.random.json.gz"))).unwrap();
    assert_eq!(rows.len(), n);
    for row in rows {
        let text = row[0].as_str().unwrap();
        let flags = row[1].as_u64().unwrap();
        let ids = t.encode(text, flags & 1 != 0, flags & 2 != 0).unwrap();
        assert_eq!(ids, ids_of(&row[2]), "{name}, flags {flags}: {text:?}");
    }
}

#[test]
fn random_texts_give_the_ids_of_the_reference() {
    for vocab in VOCABS {
        check_random(&tokenizer(vocab), vocab, 400);
    }
}

#[test]
fn random_texts_give_the_ids_of_the_reference_with_a_unigram_vocabulary() {
    let t = Tokenizer::from_metadata(&metadata("unigram.gguf.gz")).unwrap();
    check_random(&t, "unigram", 400);
}

#[test]
fn random_texts_give_the_ids_of_the_reference_with_words_in_both_cases_and_with_accents() {
    let normalizer = |lowercase, strip_accents| {
        let mut meta = metadata("ggml-vocab-bert-bge.gguf.gz");
        for (key, value) in [("lowercase", lowercase), ("strip_accents", strip_accents)] {
            if let Some(value) = value {
                let key = format!("tokenizer.ggml.normalizer.{key}");
                meta.set(&key, Value::Bool(value));
            }
        }
        Tokenizer::from_metadata(&meta).unwrap()
    };
    check_random(&normalizer(Some(false), None), "bert-cased", 200);
    check_random(&normalizer(None, Some(false)), "bert-accents", 200);
    check_random(&normalizer(Some(false), Some(true)), "bert-stripped", 200);
}

#[test]
fn random_texts_and_pieces_are_the_references_with_the_vocabularies_of_rwkv_and_plamo_2() {
    for (name, pieces) in [
        ("rwkv", "43a3e613b46ae57d5d709d8651ceb708ae92cefb5031fc45ef8749421eb9011c"),
        ("plamo2", "ba62ae5dcb2ea0a90a590695ea06f1ea9fd07270bc20074c2921ecb41929e3aa"),
    ] {
        let t = Tokenizer::from_metadata(&metadata(&format!("{name}.gguf.gz"))).unwrap();
        check_random(&t, name, 400);
        let hex = |bytes: Vec<u8>| -> String { bytes.iter().map(|b| format!("{b:02x}")).collect() };
        let all: String = (0..t.n_vocab() as u32)
            .map(|id| format!("{} {}\n", hex(t.piece(id, false)), hex(t.piece(id, true))))
            .collect();
        assert_eq!(hex(Sha256::digest(all).to_vec()), pieces, "{name}");
    }
}

#[test]
fn made_up_vocabularies_hash_texts_as_the_reference_does() {
    let mut meta = Metadata::default();
    let tokens = (0..128).map(|i| format!("tok_{i}")).collect();
    meta.set("tokenizer.ggml.model", Value::str("test"));
    meta.set("tokenizer.ggml.tokens", Value::Array(Array::Str(tokens)));
    let t = Tokenizer::from_metadata(&meta).unwrap();
    for (text, ids) in [
        ("Hello, world", &[50, 38, 120][..]),
        ("a", &[97]),
        ("héllo wörld 你好", &[46, 89, 46, 122]),
        ("0123456789", &[114, 55]),
        ("", &[]),
    ] {
        assert_eq!(t.encode(text, true, true).unwrap(), ids, "{text:?}");
    }
    assert_eq!(decode(&t, &[0, 10, 127]), "0a7f");
}

#[test]
fn a_stand_in_knows_ids_and_says_why_it_knows_no_texts() {
    let mut meta = metadata("ggml-vocab-gpt-2.gguf.gz");
    meta.set("tokenizer.ggml.model", Value::str("someday"));
    let why = Tokenizer::from_metadata(&meta).err().unwrap();
    assert!(why.leaves_ids());
    let t = Tokenizer::for_ids_only(&meta, 50257, &why).unwrap();
    assert_eq!((t.n_vocab(), t.eos(), t.is_eog(50256)), (50257, Some(50256), true));
    assert_eq!(t.piece(17, true), b"");
    let e = t.encode("a", true, true).unwrap_err().to_string();
    assert!(e.contains("'someday'") && e.ends_with("not on texts"), "{e}");
    meta.set("tokenizer.ggml.eos_token_id", Value::U32(50257));
    let e = Tokenizer::for_ids_only(&meta, 50257, &why).err().unwrap().to_string();
    assert!(e.contains("'tokenizer.ggml.eos_token_id'"), "{e}");
    // A damaged tokenizer is no unknown one.
    let mut meta = metadata("ggml-vocab-gpt-2.gguf.gz");
    meta.set("tokenizer.ggml.bos_token_id", Value::U32(50257));
    assert!(!Tokenizer::from_metadata(&meta).err().unwrap().leaves_ids());
}

#[test]
fn what_a_text_needs_and_a_vocabulary_lacks_is_named() {
    let mut meta = metadata("rwkv.gguf.gz");
    let tokens = |tokens: &[&str]| Value::Array(Array::Str(tokens.iter().collect()));
    meta.set("tokenizer.ggml.tokens", tokens(&["<s>", "a", "ab", r"\xe4\xbd"]));
    let t = Tokenizer::from_metadata(&meta).unwrap();
    assert_eq!(t.encode("aab", true, true).unwrap(), [1, 2]);
    let e = t.encode("a你", true, true).unwrap_err().to_string();
    assert!(e.contains("byte 0xA0"), "{e}");
    meta.set("tokenizer.ggml.unknown_token_id", Value::U32(0));
    let t = Tokenizer::from_metadata(&meta).unwrap();
    assert_eq!(t.encode("a你", true, true).unwrap(), [1, 3, 0]);

    let mut meta = metadata("plamo2.gguf.gz");
    meta.set("tokenizer.ggml.tokens", tokens(&["<unk>", "<s>", "</s>", "x", "<0x61>"]));
    meta.set("tokenizer.ggml.token_type", Value::Array(Array::I32(vec![2, 3, 3, 1, 6])));
    meta.set("tokenizer.ggml.scores", Value::Array(Array::F32(vec![0.0; 5])));
    let t = Tokenizer::from_metadata(&meta).unwrap();
    assert_eq!(t.encode("xa", true, true).unwrap(), [3, 4]);
    let e = t.encode("xb", true, true).unwrap_err().to_string();
    assert!(e.contains("byte 0x62"), "{e}");

    let mut meta = metadata("ggml-vocab-bert-bge.gguf.gz");
    meta.set("tokenizer.ggml.tokens", tokens(&["[PAD]", "▁a"]));
    meta.set("tokenizer.ggml.token_type", Value::Array(Array::I32(vec![3, 1])));
    for key in ["unknown", "seperator", "cls", "mask"] {
        meta.remove(&format!("tokenizer.ggml.{key}_token_id"));
    }
    let t = Tokenizer::from_metadata(&meta).unwrap();
    assert_eq!(t.encode(" A\ta ", false, true).unwrap(), [1, 1]);
    let e = t.encode("b", false, true).unwrap_err().to_string();
    assert!(e.contains("unknown words"), "{e}");
    let e = t.encode("a", true, true).unwrap_err().to_string();
    assert!(e.contains("BOS"), "{e}");
}

/// The metadata of a BPE vocabulary of single `symbols`, all pairs of them in the order that `step`
/// gives, and `more` tokens.
fn pairs(symbols: &[char], step: usize, more: &[&str]) -> Metadata {
    let n = symbols.len();
    let pairs: Vec<[char; 2]> = (0..n * n)
        .map(|i| i * step % (n * n))
        .map(|p| [symbols[p / n], symbols[p % n]])
        .filter(|pair| !pair.contains(&' '))
        .collect();
    let mut tokens: Vec<String> = symbols.iter().map(char::to_string).collect();
    tokens.extend(pairs.iter().map(String::from_iter));
    tokens.extend(more.iter().map(|&t| t.to_owned()));
    let merges: Vec<String> = pairs.iter().map(|[a, b]| format!("{a} {b}")).collect();
    let mut meta = Metadata::default();
    let strings = |v: Vec<String>| Value::Array(Array::Str(v.into_iter().collect()));
    meta.set("tokenizer.ggml.model", Value::str("gpt2"));
    meta.set("tokenizer.ggml.tokens", strings(tokens));
    meta.set("tokenizer.ggml.merges", strings(merges));
    meta.set("tokenizer.ggml.bos_token_id", Value::U32(0));
    meta.set("tokenizer.ggml.eos_token_id", Value::U32(0));
    meta
}

#[test]
fn every_pre_tokenizer_splits_like_the_reference() {
    // GPT-2's alphabet: visible Latin-1 is itself, the other bytes follow from U+0100 on.
    let visible = |b: u8| matches!(b, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let mut others = (0x100..).filter_map(char::from_u32);
    let bytes: Vec<char> = (0..=255u8).map(|b| if visible(b) { b as char } else { others.next().unwrap() }).collect();
    let spell = |s: &str| -> String { s.bytes().map(|b| bytes[usize::from(b)]).collect() };
    let words: Vec<String> = [" the", " Hello", "12345", "\n\n\n", "    ", " 你好", "IMGIMGAZ"].map(spell).to_vec();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut over_bytes = pairs(&bytes, 40503, &words);

    let chars: Vec<char> = (' '..='~').chain("▁\né中\u{301}".chars()).collect();
    let mut more: Vec<String> = (0..=255u8).map(|b| format!("<0x{b:02X}>")).collect();
    more.extend(["\n\n\n".to_owned(), "the▁end".to_owned()]);
    let more: Vec<&str> = more.iter().map(String::as_str).collect();
    let mut over_chars = pairs(&chars, 37, &more);

    let golden: serde_json::Value = serde_json::from_slice(&gunzip("pre.json.gz")).unwrap();
    let texts = golden["texts"].as_array().unwrap();
    let mut names = 0;
    for group in golden["groups"].as_array().unwrap() {
        for pre in group["pre"].as_array().unwrap() {
            let pre = pre.as_str().unwrap();
            let meta = if group["chars"] == true { &mut over_chars } else { &mut over_bytes };
            meta.set("tokenizer.ggml.pre", Value::str(pre));
            let t = Tokenizer::from_metadata(meta).unwrap();
            for (text, ids) in texts.iter().zip(group["ids"].as_array().unwrap()) {
                let mut text = text.as_str().unwrap().to_owned();
                if group["spaces_as_line_feeds"] == true {
                    text = text.replace(' ', "\n");
                }
                assert_eq!(t.encode(&text, true, false).unwrap(), ids_of(ids), "{pre}: {text:?}");
            }
            names += 1;
        }
    }
    assert_eq!(names, 91);
}

#[test]
fn long_and_hostile_texts_come_back_whole() {
    let long = if is_long() { 1 << 18 } else { 1 << 16 };
    let repeat = |s: &str| s.repeat(long / s.len());
    let texts = [
        " ".repeat(4 * long),
        repeat("\n"),
        repeat(" \t\r\n\u{3000}\u{85}"),
        repeat("a"),
        repeat("A"),
        repeat("1"),
        repeat("'"),
        repeat("中"),
        repeat("e\u{301}"),
        repeat("\0"),
        repeat("<|"),
        repeat("👩\u{200d}👧"),
        repeat("aA1! \u{e9}\n"),
        format!("{}x", repeat(" ")),
    ];
    for vocab in ["gpt-2", "qwen2", "deepseek-coder", "llama-bpe"] {
        let t = tokenizer(vocab);
        for text in &texts {
            let ids = t.encode(text, false, true).unwrap();
            assert!(decode(&t, &ids) == *text, "{vocab}: {:?}", text.get(..12));
        }
    }
    // SentencePiece puts a space before the text.
    let t = tokenizer("llama-spm");
    for text in &texts {
        let ids = t.encode(text, false, true).unwrap();
        assert!(decode(&t, &ids) == format!(" {text}"), "{:?}", text.get(..12));
    }
}

#[test]
fn pre_tokenizers_with_patterns_take_any_length_of_white_space() {
    let mut meta = metadata("ggml-vocab-gpt-2.gguf.gz");
    for pre in ["jais-2", "tekken", "gpt-4o", "deepseek-llm", "spark2_5", "exaone-moe", "viking"] {
        meta.set("tokenizer.ggml.pre", Value::str(pre));
        let t = Tokenizer::from_metadata(&meta).unwrap();
        let long = if is_long() { 1 << 20 } else { 1 << 17 };
        for text in [" ".repeat(long), format!("{}x", "\t ".repeat(long / 2))] {
            let ids = t.encode(&text, false, false).unwrap();
            assert!(decode(&t, &ids) == text, "{pre}");
        }
    }
}

#[test]
fn streaming_never_shows_half_a_character() {
    let t = tokenizer("gpt-2");
    let text = "héllo 👩\u{200d}👧 你好";
    let ids = t.encode(text, false, false).unwrap();
    let mut stream = t.detokenizer(false);
    let parts: Vec<String> = ids.iter().map(|&id| stream.push(id)).collect();
    assert!(parts.iter().any(String::is_empty), "{parts:?}");
    assert!(!parts.iter().any(|p| p.contains('\u{fffd}')), "{parts:?}");
    assert_eq!(parts.concat(), text);
    assert_eq!(stream.finish(), "");
    let half = t.encode("👩", false, false).unwrap()[0];
    assert_eq!(stream.push(half), "");
    assert_eq!(stream.finish(), "\u{fffd}");
}

#[test]
fn special_tokens_and_ends_are_the_references() {
    let t = tokenizer("llama-bpe");
    assert_eq!((t.bos(), t.eos(), t.add_bos()), (Some(128000), Some(128001), true));
    let eog: Vec<u32> = (0..t.n_vocab() as u32).filter(|&id| t.is_eog(id)).collect();
    assert_eq!(eog, [128001, 128009]);
    assert_eq!(t.piece(128009, true), b"<|eot_id|>");
    assert_eq!(t.piece(128009, false), b"");
    assert_eq!(t.token_text(220), "Ġ".as_bytes());
    assert_eq!(t.piece(220, false), b" ");
    assert_eq!(t.piece(u32::MAX, true), b"");

    let t = tokenizer("qwen2");
    let eog: Vec<u32> = (0..t.n_vocab() as u32).filter(|&id| t.is_eog(id)).collect();
    assert_eq!((t.add_bos(), eog), (false, vec![128247, 151643, 151645]));
}

#[test]
fn an_unknown_pre_tokenizer_or_model_is_refused_by_name() {
    let mut meta = metadata("ggml-vocab-gpt-2.gguf.gz");
    meta.set("tokenizer.ggml.pre", Value::str("gpt-17"));
    let e = Tokenizer::from_metadata(&meta).err().unwrap();
    assert!(matches!(&e, TokenizerError::UnknownPre { pre } if pre == "gpt-17"));
    assert!(e.to_string().contains("'tokenizer.ggml.pre'") && e.to_string().contains("'gpt-17'"));
    for model in ["hybriddna", "whitespace", "none", ""] {
        meta.set("tokenizer.ggml.model", Value::str(model));
        let e = Tokenizer::from_metadata(&meta).err().unwrap();
        assert!(matches!(&e, TokenizerError::UnknownModel { model: m } if m == model));
        assert!(e.to_string().contains(&format!("'{model}'")), "{e}");
    }
}
