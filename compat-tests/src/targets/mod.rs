//! The fuzz targets: functions of any bytes that must not panic, hang or take much memory.
//!
//! `compat-tests/fuzz` gives them to libFuzzer, `tests/hostile.rs` to proptest and to the corpus in
//! `testdata/hostile`.

mod beside;
mod forms;

use std::path::PathBuf;
use std::sync::Arc;

use trine::Isa;
use trine::chat::{ChatTemplate, Message};
use trine::convert::{Options, plan};
use trine::eval::base_file::BaseReader;
use trine::eval::kld::log_ppl_base;
use trine::model::{LoadOptions, Weights};
use trine::pool::Pool;
use trine::step::{Session, SessionOptions};
use trine::tokenizer::Tokenizer;
use trine_formats::anyprec::AnyPrec;
use trine_formats::gguf::write::Layout;
use trine_formats::gguf::{ErrorKind, Gguf, Limits, ModelFile, Shard};
use trine_formats::imatrix::{FileFormat, Imatrix};
use trine_formats::safetensors;

use crate::samples;

pub use beside::{adapter, hessian, saved_context};
pub use forms::{gbnf, json_schema};

/// A target.
pub type Target = fn(&[u8]);

/// All targets on files, by name.
pub const FILES: [(&str, Target); 9] = [
    ("gguf_read", gguf_read),
    ("decode_tensors", decode_tensors),
    ("rewrite", rewrite),
    ("tokenizer_from_meta", tokenizer_from_meta),
    ("imatrix_read", imatrix_read),
    ("model_load", model_load),
    ("any_precision", any_precision),
    ("adapter", adapter),
    ("hessian", hessian),
];

/// An error is one line that says something.
#[track_caller]
fn assert_message(error: &dyn std::fmt::Display) {
    let text = error.to_string();
    assert!(!text.is_empty(), "an empty message");
    assert!(text.len() < 100_000, "a message of {} bytes", text.len());
}

/// Reads a header.
pub fn gguf_read(data: &[u8]) {
    match Gguf::parse(data, &Limits::default()) {
        Ok(gguf) => {
            // Whatever the header says lies in the file.
            for t in &gguf.tensors {
                let end = gguf.data_offset + t.offset + t.bytes;
                assert!(end <= data.len() as u64, "{} ends at {end}", t.name);
            }
        }
        Err(e) => assert_message(&e),
    }
}

/// Reads a header and decodes the first 64 KiB of every tensor.
pub fn decode_tensors(data: &[u8]) {
    let Ok(gguf) = Gguf::parse(data, &Limits::default()) else {
        return;
    };
    for t in &gguf.tensors {
        let Some(info) = t.ty.info() else { continue };
        let Some(decode) = info.decode else { continue };
        let start = (gguf.data_offset + t.offset) as usize;
        let bytes = (t.bytes as usize).min(64 << 10);
        let blocks = bytes.saturating_sub(info.head) / info.bytes;
        let mut out = vec![0.0; blocks * info.block];
        decode(&data[start..start + bytes], &mut out);
    }
}

/// The copy of a file; `None` where its padding would make another type of the last tensor's number and
/// the writer says so.
fn rewritten(gguf: &Gguf, data: &[u8]) -> Option<Vec<u8>> {
    let layout = match Layout::copy_of(gguf) {
        Err(e) if matches!(e.kind, ErrorKind::Misread { .. }) => return None,
        layout => layout.expect("what was read can be written"),
    };
    let mut out = layout.header().to_vec();
    let start = out.len();
    out.resize(layout.file_bytes() as usize, 0);
    for (to, from) in layout.tensors().iter().zip(&gguf.tensors) {
        let source = (gguf.data_offset + from.offset) as usize;
        let bytes = &data[source..source + from.bytes as usize];
        out[start + to.offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }
    Some(out)
}

/// Writes what was read: reading it again gives the same, and writing that the same bytes.
pub fn rewrite(data: &[u8]) {
    let Ok(gguf) = Gguf::parse(data, &Limits::default()) else {
        return;
    };
    let Some(once) = rewritten(&gguf, data) else {
        return;
    };
    let again = Gguf::parse(&once, &Limits::default()).expect("what was written can be read");
    // As text: a NaN is not equal to itself.
    assert_eq!(format!("{:?}", again.meta), format!("{:?}", gguf.meta));
    assert_eq!(rewritten(&again, &once), Some(once));
}

/// Makes a tokenizer of a file's metadata and uses it.
pub fn tokenizer_from_meta(data: &[u8]) {
    let Ok(gguf) = Gguf::parse(data, &Limits::default()) else {
        return;
    };
    let tokenizer = match Tokenizer::from_metadata(&gguf.meta) {
        Ok(tokenizer) => tokenizer,
        Err(e) => return assert_message(&e),
    };
    for text in ["", "abc a", " é\u{1f600}\0<s></s><unk>", "!!!!abcabcabc \n\t "] {
        for special in [false, true] {
            if let Ok(ids) = tokenizer.encode(text, special, special) {
                let mut detokenizer = tokenizer.detokenizer(special);
                for id in ids {
                    assert!((id as usize) < tokenizer.n_vocab(), "id {id}");
                    detokenizer.push(id);
                }
                detokenizer.finish();
            }
        }
    }
    for id in 0..tokenizer.n_vocab().min(512) as u32 {
        tokenizer.piece(id, true);
        tokenizer.is_eog(id);
    }
}

/// Reads an importance matrix of either form, adds it to another and writes it.
pub fn imatrix_read(data: &[u8]) {
    match Imatrix::parse(data) {
        Ok(imatrix) => {
            for name in imatrix.entries.keys() {
                assert!(imatrix.importance(name).is_some());
            }
            let mut sum = Imatrix::new(512);
            if let Err(e) = sum.merge(&imatrix) {
                return assert_message(&e);
            }
            for form in [FileFormat::Gguf, FileFormat::Legacy] {
                match sum.to_bytes(form).map(|bytes| Imatrix::parse(&bytes)) {
                    Ok(Ok(again)) => assert!(again.entries.len() <= imatrix.entries.len()),
                    Ok(Err(e)) | Err(e) => assert_message(&e),
                }
            }
        }
        Err(e) => assert_message(&e),
    }
}

/// Loads a model and evaluates a few tokens.
pub fn model_load(data: &[u8]) {
    let Ok(gguf) = Gguf::parse(data, &Limits::default()) else {
        return;
    };
    let shard = Shard { path: PathBuf::new(), gguf, bytes: Arc::new(data.to_vec()) };
    let Ok(file) = ModelFile::new(vec![shard]) else {
        return;
    };
    let options = LoadOptions { isa: Isa::scalar(), ..LoadOptions::default() };
    let model = match Weights::load(&file, &options) {
        Ok(model) => model,
        Err(e) => return assert_message(&e),
    };
    let options = SessionOptions { n_ctx: 4, n_ubatch: 4 };
    let mut session = Session::new(&model, &Pool::new(1).expect("threads"), options);
    if let Err(e) = session.eval(&[1, 2, 5], 2, &mut |_, _| {}) {
        assert_message(&e);
    }
}

/// Describes an any-precision file that may end early, and reads a row of every matrix at every width.
pub fn any_precision(data: &[u8]) {
    let limits = Limits { partial: true, ..Limits::default() };
    let Ok(gguf) = Gguf::parse(data, &limits) else {
        return;
    };
    let shard = Shard { path: PathBuf::new(), gguf, bytes: Arc::new(data.to_vec()) };
    let Ok(file) = ModelFile::new(vec![shard]) else {
        return;
    };
    let ap = match AnyPrec::read(&file) {
        Ok(Some(ap)) => ap,
        Ok(None) => return,
        Err(e) => return assert_message(&e),
    };
    assert!(!ap.widths().is_empty() && !ap.tensors().is_empty());
    for &width in ap.widths() {
        for t in ap.tensors() {
            let view = ap.view(&file, &t.name, width).expect("a width that is there");
            for row in [0, t.rows - 1] {
                assert_eq!(view.row(row).len(), t.columns);
            }
        }
    }
}

/// Renders a chat template.
pub fn template_render(data: &[u8]) {
    let Ok(source) = std::str::from_utf8(data) else {
        return;
    };
    let tokenizer = Tokenizer::from_metadata(&samples::vocabulary("llama"));
    let tokenizer = tokenizer.expect("the sample's vocabulary");
    let template = match ChatTemplate::new(source, &tokenizer) {
        Ok(template) => template,
        Err(e) => return assert_message(&e),
    };
    let messages = [Message::user("abc </s> {{ x }}"), Message::assistant("a\nb")];
    match template.render(&messages, true) {
        Ok(text) => assert!(text.len() <= 64 << 20),
        Err(e) => assert_message(&e),
    }
}

/// Renders a chat template, in the way of the process that may fail.
pub fn template_answer(data: &[u8]) {
    trine::chat::answer(data);
}

/// A folder of a sound checkpoint in which `name` holds `data` is converted, as far as it goes without writing.
fn checkpoint_with(name: &str, data: &[u8]) {
    let dir = trine_testkit::folder();
    let config = br#"{"architectures":["LlamaForCausalLM"],"hidden_size":8,"intermediate_size":8,"num_hidden_layers":1,
        "num_attention_heads":2,"vocab_size":4,"rms_norm_eps":1e-5,"max_position_embeddings":8,"hidden_act":"silu"}"#;
    let tokenizer = br#"{"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}}"#;
    let sound: [(&str, &[u8]); 2] = [("config.json", config), ("tokenizer.json", tokenizer)];
    for (other, bytes) in sound.into_iter().filter(|(other, _)| *other != name) {
        std::fs::write(dir.path().join(other), bytes).expect("a file");
    }
    std::fs::write(dir.path().join(name), data).expect("a file");
    let options = Options { vocab_only: name != "model.safetensors", ..Options::default() };
    if let Err(e) = plan(dir.path(), &options) {
        assert_message(&e);
    }
}

/// Hyper-parameters of a checkpoint.
pub fn config_json(data: &[u8]) {
    checkpoint_with("config.json", data);
}

/// The tokenizer of a checkpoint.
pub fn tokenizer_json(data: &[u8]) {
    checkpoint_with("tokenizer.json", data);
}

/// A SentencePiece model.
pub fn sentence_piece(data: &[u8]) {
    checkpoint_with("tokenizer.model", data);
}

/// The header of a safetensors file, its metadata, and a checkpoint of it.
pub fn safetensors_header(data: &[u8]) {
    let len = data.len() as u64;
    match safetensors::parse(data, len) {
        Ok(tensors) => assert!(tensors.iter().all(|t| t.offset + t.bytes <= len)),
        Err(e) => assert_message(&e),
    }
    if let Err(e) = safetensors::metadata(data, len) {
        assert_message(&e);
    }
    if let Err(e) = safetensors::parse_index(data) {
        assert_message(&e);
    }
    checkpoint_with("model.safetensors", data);
}

/// A file of log-probabilities, for vocabularies of several sizes, read to its end.
pub fn base_file(data: &[u8]) {
    for n_vocab in [1, 7, 270] {
        let input = std::io::Cursor::new(data);
        let mut reader = match BaseReader::new(input, data.len() as u64, n_vocab, Some(1), None) {
            Ok(reader) => reader,
            Err(e) => {
                assert_message(&e);
                continue;
            }
        };
        if let Err(e) = log_ppl_base(&mut reader, &mut |_, _| Ok(())) {
            assert_message(&e);
        }
    }
}

/// All targets on other files than GGUF, by name.
pub const OTHERS: [(&str, Target); 9] = [
    ("config_json", config_json),
    ("tokenizer_json", tokenizer_json),
    ("sentence_piece", sentence_piece),
    ("safetensors_header", safetensors_header),
    ("base_file", base_file),
    ("template_answer", template_answer),
    ("gbnf", gbnf),
    ("json_schema", json_schema),
    ("saved_context", saved_context),
];

/// Damages a valid file field by field as `data` says, three bytes an edit, and gives it to all file
/// targets: sample, then (field, field, value) ...
pub fn damaged_fields(data: &[u8]) {
    let Some((&which, edits)) = data.split_first() else {
        return;
    };
    let samples = samples::all();
    let mut file = samples[which as usize % samples.len()].clone();
    let fields = fields(&file);
    for edit in edits.as_chunks::<3>().0.iter().take(8) {
        let at = usize::from(u16::from_le_bytes([edit[0], edit[1]]));
        damage(&mut file, &fields, at, edit[2]);
    }
    for (_, target) in FILES {
        target(&file);
    }
}

/// Sets one field to a value that has broken readers before.
fn damage(file: &mut Vec<u8>, fields: &[(usize, usize)], at: usize, value: u8) {
    let Some(&(start, width)) = fields.get(at % fields.len().max(1)) else {
        file.truncate(at);
        return;
    };
    let len = file.len() as u64;
    let Some(field) = file.get_mut(start..start + width) else {
        return;
    };
    let mut word = [0; 8];
    word[..width].copy_from_slice(field);
    let old = u64::from_le_bytes(word);
    let values = [
        0,
        1,
        1 << 31,
        1 << 32,
        i64::MAX as u64,
        u64::MAX,
        1 << 62,
        1 << 63,
        0x7fff_ffff_ffff_ffc0,
        len,
        len + 1,
        old.wrapping_add(1),
        old.wrapping_sub(1),
        old.wrapping_mul(2),
        u64::from(value),
        0x7fc0_0000,
    ];
    if value >= 248 {
        // Cut off inside the field.
        file.truncate(start + width / 2);
    } else {
        let new = values[usize::from(value) % values.len()].to_le_bytes();
        field.copy_from_slice(&new[..width]);
    }
}

/// Start and width of every number in a valid file's header: counts, lengths, types, values, places.
/// For other files every aligned word.
pub fn fields(file: &[u8]) -> Vec<(usize, usize)> {
    let mut walk = Walk { file, at: 4, fields: Vec::new() };
    if file.starts_with(b"GGUF") && walk.header().is_some() {
        return walk.fields;
    }
    (0..file.len() / 4).map(|i| (4 * i, 4)).collect()
}

struct Walk<'a> {
    file: &'a [u8],
    at: usize,
    fields: Vec<(usize, usize)>,
}

impl Walk<'_> {
    fn number(&mut self, width: usize) -> Option<u64> {
        let bytes = self.file.get(self.at..self.at + width)?;
        let mut word = [0; 8];
        word[..width].copy_from_slice(bytes);
        self.fields.push((self.at, width));
        self.at += width;
        Some(u64::from_le_bytes(word))
    }

    fn string(&mut self) -> Option<()> {
        let n = self.number(8)?;
        self.at += n as usize;
        Some(())
    }

    fn value(&mut self, ty: u64) -> Option<()> {
        match ty {
            0 | 1 | 7 => self.number(1).map(drop),
            2 | 3 => self.number(2).map(drop),
            4..=6 => self.number(4).map(drop),
            10..=12 => self.number(8).map(drop),
            8 => self.string(),
            9 => {
                let ty = self.number(4)?;
                let n = self.number(8)?;
                for _ in 0..n {
                    self.value(ty)?;
                }
                Some(())
            }
            _ => None,
        }
    }

    fn header(&mut self) -> Option<()> {
        self.number(4)?;
        let (tensors, keys) = (self.number(8)?, self.number(8)?);
        for _ in 0..keys {
            self.string()?;
            let ty = self.number(4)?;
            self.value(ty)?;
        }
        for _ in 0..tensors {
            self.string()?;
            for _ in 0..self.number(4)? {
                self.number(8)?;
            }
            self.number(4)?;
            self.number(8)?;
        }
        Some(())
    }
}
