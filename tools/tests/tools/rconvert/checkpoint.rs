//! Small checkpoints, written to folders.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use trine_formats::types::TypeId;

/// A tensor of a checkpoint: element type, shape, bytes.
pub type Tensor = (&'static str, Vec<u64>, Vec<u8>);

/// A checkpoint that is written to a folder of its own.
pub struct Checkpoint {
    pub config: Value,
    pub tensors: BTreeMap<String, Tensor>,
    pub files: BTreeMap<&'static str, Vec<u8>>,
    /// Further files, some in folders of their own.
    pub more: BTreeMap<String, Vec<u8>>,
    pub shards: usize,
    seed: u32,
}

pub const EMBD: u64 = 64;
pub const HEADS: u64 = 4;
pub const KV_HEADS: u64 = 2;
pub const HEAD: u64 = 16;
pub const FF: u64 = 96;
pub const VOCAB: u64 = 12;

impl Checkpoint {
    pub fn new(class: &str, config: Value) -> Checkpoint {
        let mut all = json!({
            "architectures": [class], "hidden_size": EMBD, "intermediate_size": FF, "num_hidden_layers": 2,
            "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "vocab_size": VOCAB,
            "rms_norm_eps": 1e-5, "max_position_embeddings": 256, "tie_word_embeddings": true, "hidden_act": "silu",
        });
        for (k, v) in config.as_object().expect("an object") {
            all[k] = v.clone();
        }
        Checkpoint::of(all)
    }

    /// A checkpoint with this `config.json` and no tensors yet.
    pub fn of(config: Value) -> Checkpoint {
        let mut files = BTreeMap::new();
        files.insert("tokenizer.json", tokenizer().to_string().into_bytes());
        let tokenizer = json!({"bos_token": "<s>", "chat_template": "{{ messages }}",
            "tokenizer_class": "PreTrainedTokenizerFast"});
        files.insert("tokenizer_config.json", tokenizer.to_string().into_bytes());
        Checkpoint { config, tensors: BTreeMap::new(), files, more: BTreeMap::new(), shards: 1, seed: 1 }
    }

    pub fn values(&mut self, n: u64) -> Vec<f32> {
        let mut next = || {
            self.seed = self.seed.wrapping_mul(1664525).wrapping_add(1013904223);
            (self.seed >> 16) as f32 / 65536.0 - 0.5
        };
        (0..n).map(|_| next()).collect()
    }

    pub fn add(&mut self, name: &str, dtype: &'static str, shape: &[u64]) {
        let values = self.values(shape.iter().product());
        self.put(name, dtype, shape, &values);
    }

    pub fn put(&mut self, name: &str, dtype: &'static str, shape: &[u64], values: &[f32]) {
        let bytes = values
            .iter()
            .flat_map(|v| match dtype {
                // all sampled values have few bits, so that nothing is rounded
                "BF16" => v.to_le_bytes()[2..].to_vec(),
                "F32" => v.to_le_bytes().to_vec(),
                other => panic!("{other}"),
            })
            .collect();
        self.tensors.insert(name.into(), (dtype, shape.to_vec(), bytes));
    }

    /// The seven matrices of each block, and norms and biases of these names.
    pub fn blocks(mut self, dtype: &'static str, head: u64, vectors: &[(&str, u64)]) -> Checkpoint {
        self.add("model.embed_tokens.weight", dtype, &[VOCAB, EMBD]);
        self.add("model.norm.weight", dtype, &[EMBD]);
        for n in 0..2 {
            for (name, rows, columns) in [
                ("self_attn.q_proj", HEADS * head, EMBD),
                ("self_attn.k_proj", KV_HEADS * head, EMBD),
                ("self_attn.v_proj", KV_HEADS * head, EMBD),
                ("self_attn.o_proj", EMBD, HEADS * head),
                ("mlp.gate_proj", FF, EMBD),
                ("mlp.up_proj", FF, EMBD),
                ("mlp.down_proj", EMBD, FF),
            ] {
                self.add(&format!("model.layers.{n}.{name}.weight"), dtype, &[rows, columns]);
            }
            for (name, len) in vectors {
                self.add(&format!("model.layers.{n}.{name}"), dtype, &[*len]);
            }
        }
        self
    }

    pub fn llama(config: Value) -> Checkpoint {
        let norms = [("input_layernorm.weight", EMBD), ("post_attention_layernorm.weight", EMBD)];
        Checkpoint::new("LlamaForCausalLM", config).blocks("BF16", HEAD, &norms)
    }

    /// Tensors from a list, `name rows columns` in BF16 or `name TYPE rows columns`. A name may have numbers,
    /// `experts.0-3.w1`, for as many tensors; a type of whole numbers a bound, `I32%3`, or the numbers, `I64=64,96`, and bytes a range, `U8=120..126`.
    pub fn list(mut self, prefix: &str, list: &str) -> Checkpoint {
        for line in list.split(';').map(str::trim).filter(|l| !l.is_empty()) {
            let mut words = line.split_whitespace().peekable();
            let name = words.next().expect("a name");
            let dtype = words.next_if(|w| !w.starts_with(|c: char| c.is_ascii_digit())).unwrap_or("BF16");
            let shape: Vec<u64> = words.map(|w| w.parse().expect("an extent")).collect();
            for name in numbered(name) {
                self.of_type(&format!("{prefix}{name}"), dtype, &shape);
            }
        }
        self
    }

    /// A tensor of a type that a list names.
    fn of_type(&mut self, name: &str, dtype: &str, shape: &[u64]) {
        let (kind, rest) = dtype.find(['%', '=']).map_or((dtype, ""), |at| dtype.split_at(at));
        let n: u64 = shape.iter().product();
        let (kind, size) = match kind {
            "BF16" => return self.add(name, "BF16", shape),
            "F32" => return self.add(name, "F32", shape),
            "F16" => ("F16", 2),
            "I32" => ("I32", 4),
            "I64" => ("I64", 8),
            "I8" => ("I8", 1),
            "U8" => ("U8", 1),
            "BOOL" => ("BOOL", 1),
            "U32" => ("U32", 4),
            "F8_E4M3" => ("F8_E4M3", 1),
            "F8_E8M0" => ("F8_E8M0", 1),
            other => panic!("{other}"),
        };
        let whole = |v: f32, of: f32| ((v + 0.5) * of) as u32;
        let bytes: Vec<u8> = if let Some((least, most)) = rest.strip_prefix('=').and_then(|r| r.split_once("..")) {
            let [least, most] = [least, most].map(|n| n.parse::<u8>().expect("a byte"));
            let byte = |v| least + whole(v, 256.0) as u8 % (most - least + 1);
            self.values(n).into_iter().map(byte).collect()
        } else if let Some(numbers) = rest.strip_prefix('=') {
            numbers.split(',').flat_map(|n| n.parse::<i64>().expect("a number").to_le_bytes()).collect()
        } else if let Some(bound) = rest.strip_prefix('%') {
            let bound: u32 = bound.parse().expect("a bound");
            self.values(n).into_iter().flat_map(|v| (whole(v, 65536.0) % bound).to_le_bytes()).collect()
        } else if kind == "F16" {
            let mut bytes = vec![0; n as usize * 2];
            let encode = TypeId::F16.info().and_then(|t| t.encode).expect("an encoder");
            encode(&self.values(n), None, &mut bytes);
            bytes
        } else {
            let bytes = self.values(n * size).into_iter().map(|v| whole(v, 256.0) as u8);
            // no float is none
            bytes.map(|b| if kind == "F8_E4M3" && b & 0x7F == 0x7F { b & 0x83 } else { b }).collect()
        };
        self.tensors.insert(name.into(), (kind, shape.to_vec(), bytes));
    }

    /// Further special tokens of `tokenizer.json`.
    pub fn specials<'a>(mut self, tokens: impl Iterator<Item = &'a str>) -> Checkpoint {
        let mut all = tokenizer();
        for (n, token) in tokens.enumerate() {
            let entry = json!({"id": 8 + n, "content": token, "special": true, "normalized": false,
                "single_word": false, "lstrip": false, "rstrip": false});
            all["added_tokens"].as_array_mut().expect("a list").push(entry);
        }
        if self.files.contains_key("tokenizer.json") {
            self.files.insert("tokenizer.json", all.to_string().into_bytes());
        }
        self
    }

    /// A SentencePiece model instead of `tokenizer.json`, with added tokens.
    pub fn pieces(mut self) -> Checkpoint {
        self.files.remove("tokenizer.json");
        self.files.insert("tokenizer.model", sentencepiece());
        let added = json!({"add_bos_token": true, "bos_token": "<s>", "tokenizer_class": "LlamaTokenizer",
            "added_tokens_decoder": {"1": {"content": "<s>", "special": true},
                "8": {"content": "x\u{2581}y", "special": false}}});
        self.files.insert("tokenizer_config.json", added.to_string().into_bytes());
        self
    }

    /// A unigram SentencePiece model, with rules for characters, instead of `tokenizer.json`.
    pub fn unigram(mut self) -> Checkpoint {
        self.files.remove("tokenizer.json");
        self.files.insert("spiece.model", unigram());
        self
    }

    pub fn tensor(&self, name: &str) -> &Tensor {
        &self.tensors[name]
    }

    /// Writes the folder `name` and returns it.
    pub fn write(&self, dir: &Path, name: &str) -> PathBuf {
        let path = dir.join(name);
        fs::create_dir(&path).unwrap();
        fs::write(path.join("config.json"), self.config.to_string()).unwrap();
        for (file, bytes) in &self.files {
            fs::write(path.join(file), bytes).unwrap();
        }
        for (file, bytes) in &self.more {
            let file = path.join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, bytes).unwrap();
        }
        if self.shards == 1 {
            let all: Vec<_> = self.tensors.iter().collect();
            fs::write(path.join("model.safetensors"), safetensors(&all)).unwrap();
            return path;
        }
        let mut map = serde_json::Map::new();
        for shard in 0..self.shards {
            let file = format!("model-0000{}-of-0000{}.safetensors", shard + 1, self.shards);
            let part: Vec<_> = self.tensors.iter().skip(shard).step_by(self.shards).collect();
            part.iter().for_each(|(name, _)| {
                map.insert((*name).clone(), json!(file));
            });
            fs::write(path.join(file), safetensors(&part)).unwrap();
        }
        let index = json!({"weight_map": map}).to_string();
        fs::write(path.join("model.safetensors.index.json"), index).unwrap();
        path
    }
}

/// The names that one with ranges of numbers stands for, the last range first.
fn numbered(name: &str) -> Vec<String> {
    let range = |part: &str| {
        let (a, b) = part.split_once('-')?;
        Some(a.parse::<u64>().ok()?..=b.parse().ok()?)
    };
    let mut names = vec![String::new()];
    for part in name.split('.') {
        let choices = range(part).map_or(vec![part.to_owned()], |numbers| numbers.map(|n| n.to_string()).collect());
        let point = if names[0].is_empty() { "" } else { "." };
        names = names.iter().flat_map(|n| choices.iter().map(move |c| format!("{n}{point}{c}"))).collect();
    }
    names
}

fn safetensors(tensors: &[(&String, &Tensor)]) -> Vec<u8> {
    let mut header = serde_json::Map::new();
    let mut data = Vec::new();
    for (name, (dtype, shape, bytes)) in tensors {
        let start = data.len();
        data.extend_from_slice(bytes);
        let entry = json!({"dtype": dtype, "shape": shape, "data_offsets": [start, data.len()]});
        header.insert((*name).clone(), entry);
    }
    let header = Value::Object(header).to_string();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.extend_from_slice(&data);
    file
}

/// Byte-level BPE with eight tokens and GPT-2's expression.
pub fn tokenizer() -> Value {
    json!({
        "version": "1.0",
        "added_tokens": [
            {"id": 6, "content": "<s>", "special": true, "normalized": false, "single_word": false,
                "lstrip": false, "rstrip": false},
            {"id": 7, "content": "<tool>", "special": false, "normalized": true, "single_word": false,
                "lstrip": false, "rstrip": false},
        ],
        "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "Ġ": 2, "ab": 3, "Ġa": 4, "Ġab": 5},
            "merges": ["a b", "Ġ a", "Ġ ab"]},
    })
}

/// A SentencePiece model with seven pieces, of type BPE.
fn sentencepiece() -> Vec<u8> {
    let mut model = pieces();
    model.extend_from_slice(&[0x12, 2, 0x18, 2]);
    model
}

/// The same of type unigram, whose rules make A an a: a trie with one entry, as SentencePiece's trainer writes it, and one
/// text.
fn unigram() -> Vec<u8> {
    let mut model = pieces();
    model.extend_from_slice(&[0x12, 2, 0x18, 1]);
    let trie = (0..256u32).map(|unit| match unit {
        0 => 1 << 16,
        1 => 0xd41,
        2 => 1 << 31,
        other => other ^ 1,
    });
    let charsmap: Vec<u8> = [1024].into_iter().chain(trie).flat_map(u32::to_le_bytes).chain(*b"a\0").collect();
    // the rules are a field of 1030 bytes, the flags behind them take four
    model.extend_from_slice(&[0x1a, 0x8d, 0x08, 0x12, 0x86, 0x08]);
    model.extend_from_slice(&charsmap);
    model.extend_from_slice(&[0x18, 1, 0x20, 0]);
    model
}

fn pieces() -> Vec<u8> {
    let mut model = Vec::new();
    for (text, score, kind) in [
        ("<unk>", 0.0f32, 2u8),
        ("<s>", 0.0, 3),
        ("</s>", 0.0, 3),
        ("c", 0.5, 1),
        ("ab", -1.0, 1),
        ("a", -2.0, 1),
        ("b", -3.0, 1),
    ] {
        let mut piece = vec![0x0a, text.len() as u8];
        piece.extend_from_slice(text.as_bytes());
        piece.push(0x15);
        piece.extend_from_slice(&score.to_le_bytes());
        piece.extend_from_slice(&[0x18, kind]);
        model.extend_from_slice(&[0x0a, piece.len() as u8]);
        model.extend_from_slice(&piece);
    }
    model
}

/// Llama 3: BF16 in three shards, biases, an output matrix, scaled RoPE, sampling defaults, a card.
pub fn llama3() -> Checkpoint {
    let rope = json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64});
    let mut c = Checkpoint::llama(json!({"model_type": "llama", "tie_word_embeddings": false, "attention_bias": true,
        "rope_theta": 500000.0, "rope_scaling": rope}));
    for n in 0..2 {
        for (name, len) in [("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)] {
            c.add(&format!("model.layers.{n}.self_attn.{name}_proj.bias"), "BF16", &[len * HEAD]);
        }
        c.add(&format!("model.layers.{n}.self_attn.o_proj.bias"), "BF16", &[EMBD]);
    }
    c.add("lm_head.weight", "BF16", &[VOCAB, EMBD]);
    let generation = json!({"temperature": 0.5, "top_k": 40});
    c.files.insert("generation_config.json", generation.to_string().into_bytes());
    let card = "---\nlicense: mit\nlanguage:\n- en\nbase_model: org/Base-7B\n---\n# A model\n";
    c.files.insert("README.md", card.into());
    c.shards = 3;
    c
}

pub fn qwen3() -> Checkpoint {
    let c = Checkpoint::new("Qwen3ForCausalLM", json!({"model_type": "qwen3", "head_dim": 32, "rope_theta": 1e6}));
    let vectors = [
        ("input_layernorm.weight", EMBD),
        ("post_attention_layernorm.weight", EMBD),
        ("self_attn.q_norm.weight", 32),
        ("self_attn.k_norm.weight", 32),
    ];
    c.blocks("F32", 32, &vectors)
}

pub fn gemma3() -> Checkpoint {
    let mut c = Checkpoint::new(
        "Gemma3ForCausalLM",
        json!({"model_type": "gemma3_text", "head_dim": 32, "hidden_activation": "gelu_pytorch_tanh", "hidden_act": null,
            "sliding_window": 32, "rope_theta": 1e6, "rope_local_base_freq": 10000.0, "sliding_window_pattern": 6}),
    );
    c.files.remove("tokenizer.json");
    c.files.insert("tokenizer.model", sentencepiece());
    let added = json!({"add_bos_token": true, "bos_token": "<s>", "added_tokens_decoder": {
        "1": {"content": "<s>", "special": true}, "8": {"content": "x\u{2581}y", "special": false}}});
    c.files.insert("tokenizer_config.json", added.to_string().into_bytes());
    let vectors = [
        ("input_layernorm.weight", EMBD),
        ("post_attention_layernorm.weight", EMBD),
        ("pre_feedforward_layernorm.weight", EMBD),
        ("post_feedforward_layernorm.weight", EMBD),
        ("self_attn.q_norm.weight", 32),
        ("self_attn.k_norm.weight", 32),
    ];
    c.blocks("BF16", 32, &vectors)
}
