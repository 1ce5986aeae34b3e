//! docs/ternary-models.md is true: what it names is there.

use std::fmt::Write;

use trine::arch::Arch;
use trine::convert::known_classes;
use trine_formats::types::TypeId;

const HEAD: &str = "\
# Public ternary, 1-bit and 2-bit models

One row for each family that was trained with so few bits: what its files are, and what trine does with them. The table is
made by `tests/archs/ternary.rs`, which checks that the architectures, types, classes and proofs that it names exist:
`TRINE_WRITE_DOCS=1 cargo test --release --workspace --test archs ternary` writes this file.

- **types** are those of the family's GGUF files, where there are some. Those of forks are known by the sizes of tensors and by keys, as their
  numbers mean other types elsewhere.
- **rconvert** names the class of its checkpoints, where they are read, and the form of their weights.
- **runs**: the graph is the reference's.
- **file**: how its published files are held. *Header replayed*: a file with every key and every tensor of the published one, in its types, is read and runs, with random
  weights and fewer of them, and numbers of the published file are those of the header (`headers/…`). *Keys of the converter*: the keys and names of tensors are those that llama.cpp's
  converter writes for such a checkpoint. *Architecture*: a small model of the architecture alone.
- **held by** names what proves a row: logits of a small random model of the architecture by llama.cpp (`archs/…`), vectors of the type by its maker's code, a small
  checkpoint whose file is that of llama.cpp's converter (`checkpoints/…`), or a header, all in `testdata`. No published file of these families was downloaded for it.

| family | parameters | architecture | types | runs | rconvert | file | held by |
|---|---|---|---|---|---|---|---|
";

const REST: &str = "
## Not read

| family | why |
|---|---|
";

/// A family, and what trine does with it.
struct Family {
    name: &'static str,
    parameters: &'static str,
    archs: &'static [&'static str],
    types: &'static [&'static str],
    runs: &'static str,
    /// Classes of checkpoints, and the form of their weights.
    classes: &'static [&'static str],
    form: &'static str,
    /// Paths in `testdata`.
    held: &'static [&'static str],
}

impl Family {
    /// How its published files are held.
    fn file(&self) -> &'static str {
        let any = |folder: &str| self.held.iter().any(|path| path.starts_with(folder));
        match (any("headers/"), any("checkpoints/")) {
            (true, _) => "header replayed",
            (_, true) => "keys of the converter",
            _ => "architecture",
        }
    }
}

const LATENT: &str = "latent, by BitNet's rule";
const PACKED: &str = "packed in bytes";
const BONSAI: &[&str] = &[
    "archs/qwen3-dense.txt",
    "archs/qwen35-dense.txt",
    "checkpoints/qwen35.json",
    "headers/bonsai-8b.txt",
    "headers/bonsai-27b.txt",
];
const HY_MT: &[&str] = &["archs/hunyuan-dense-dense.txt", "checkpoints/hunyuan-dense.json", "headers/hy-mt2-1.8b.txt"];
const FAKE: &str = "code times scale, by proof";
const NONE: Family =
    Family { name: "", parameters: "", archs: &[], types: &[], runs: "yes", classes: &[], form: "", held: &[] };

const FAMILIES: &[Family] = &[
    Family {
        name: "BitNet b1.58 reproduction (1bitLLM)",
        parameters: "0.7B to 3.3B",
        archs: &["bitnet"],
        types: &["i2_s", "tl1", "tl2"],
        classes: &["BitnetForCausalLM"],
        form: LATENT,
        held: &["archs/bitnet-long.txt", "bitnet/index.txt"],
        ..NONE
    },
    Family {
        name: "BitNet 2B-4T (Microsoft); Aramis, Bifrost",
        parameters: "2.4B",
        archs: &["bitnet-b1.58", "bitnet-25"],
        types: &["i2_s"],
        classes: &["BitNetForCausalLM"],
        form: PACKED,
        held: &[
            "archs/bitnet-b1.58-long.txt",
            "archs/bitnet-25-long.txt",
            "bitnet/index.txt",
            "headers/bitnet-b1.58-2b-4t.txt",
        ],
        ..NONE
    },
    Family {
        name: "TriLM (Spectra)",
        parameters: "99M to 3.9B",
        archs: &["llama"],
        types: &["tq1_0", "tq2_0"],
        classes: &["LlamaForCausalLM"],
        form: "latent, `--ternary trilm`",
        held: &["archs/llama-dense.txt", "models/README.md", "kernels/kernels-a.txt", "headers/trilm-3.9b.txt"],
        ..NONE
    },
    Family {
        name: "TriTera",
        parameters: "",
        archs: &["olmo2"],
        types: &["tq1_0", "tq2_0"],
        classes: &["Olmo2ForCausalLM"],
        form: "latent, `--ternary trilm`",
        held: &["archs/olmo2-dense.txt", "kernels/kernels-a.txt"],
        ..NONE
    },
    Family {
        name: "Llama3 8B 1.58 (HF1BitLLM)",
        parameters: "8B",
        archs: &["llama"],
        types: &["tq2_0", "i2_s"],
        classes: &["LlamaForCausalLM"],
        form: PACKED,
        held: &["archs/llama-dense.txt", "bitnet/index.txt", "headers/llama3-8b-1.58.txt"],
        ..NONE
    },
    Family {
        name: "Falcon3 1.58bit, Falcon-E (TII)",
        parameters: "1B to 10B",
        archs: &["llama"],
        types: &["i2_s"],
        classes: &["LlamaForCausalLM"],
        form: PACKED,
        held: &["archs/llama-dense.txt", "bitnet/index.txt", "headers/falcon-e-1b.txt"],
        ..NONE
    },
    Family {
        name: "bitnet-r1, Qwen3 8B BitNet, Qwen2.5 32B BitNet (a norm per projection)",
        parameters: "8B to 32B",
        archs: &["llama", "qwen2", "qwen3"],
        types: &["i2_s"],
        classes: &["LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"],
        form: LATENT,
        held: &["archs/qwen3-dense.txt", "bitnet/index.txt"],
        ..NONE
    },
    Family {
        name: "BitNet embeddings (Microsoft)",
        parameters: "270M, 0.6B",
        archs: &["qwen3", "gemma3"],
        types: &["i2_s"],
        classes: &["Qwen3Model"],
        form: "latent, `--ternary bitnet`",
        held: &[
            "archs/qwen3-dense.txt",
            "archs/gemma3-dense.txt",
            "checkpoints/qwen3-embedding.json",
            "headers/bitnet-embedding-0.6b.txt",
            "headers/bitnet-embedding-270m.txt",
        ],
        ..NONE
    },
    Family {
        name: "BitCPM4 (OpenBMB)",
        parameters: "0.5B, 1B, 8B",
        archs: &["minicpm"],
        classes: &["MiniCPMForCausalLM"],
        form: FAKE,
        held: &["archs/minicpm-dense.txt", "checkpoints/minicpm.json"],
        ..NONE
    },
    Family {
        name: "MobileLLM-ParetoQ (Meta)",
        parameters: "125M to 1.5B",
        archs: &["llama"],
        classes: &["MobileLLMForCausalLM", "LlamaForCausalLM"],
        form: "latent, by clip values",
        held: &["checkpoints/paretoq-0.json", "checkpoints/paretoq-1.json", "checkpoints/paretoq-2.json"],
        ..NONE
    },
    Family {
        name: "Bonsai 1-bit (PrismML)",
        parameters: "1.7B, 4B, 8B, 27B",
        archs: &["qwen3", "qwen35"],
        types: &["q1_0"],
        classes: &["Qwen3ForCausalLM", "Qwen3_5ForConditionalGeneration"],
        form: FAKE,
        held: BONSAI,
        ..NONE
    },
    Family {
        name: "Ternary Bonsai (PrismML)",
        parameters: "1.7B, 4B, 8B, 27B",
        archs: &["qwen3", "qwen35"],
        types: &["q2_0_g128", "q2_0", "pq2_0"],
        classes: &["Qwen3ForCausalLM", "Qwen3_5ForConditionalGeneration"],
        form: FAKE,
        held: BONSAI,
        ..NONE
    },
    Family {
        name: "Ternary Bonsai 2 (PrismML), rotated",
        parameters: "2B, 4B, 9B, 27B",
        archs: &["qwen35"],
        types: &["pq2_0", "ptq1_0", "q2_0"],
        held: &["archs/rotated.json", "headers/bonsai-2-27b.txt"],
        ..NONE
    },
    Family {
        name: "Maple preview (DeepGrove)",
        parameters: "20B-A1B",
        archs: &["maple"],
        types: &["tq1_0", "tq2_0"],
        classes: &["MapleForCausalLM"],
        form: FAKE,
        held: &["archs/maple-moe.txt", "checkpoints/maple.json"],
        ..NONE
    },
    Family {
        name: "Hy-MT 1.5 and 2, 1.25 bits (Tencent)",
        parameters: "1.8B",
        archs: &["hunyuan-dense"],
        types: &["stq1_0"],
        classes: &["HunYuanDenseV1ForCausalLM"],
        form: FAKE,
        held: HY_MT,
        ..NONE
    },
    Family {
        name: "Hy-MT 1.5 and 2, 2 bits (Tencent)",
        parameters: "1.8B",
        archs: &["hunyuan-dense"],
        types: &["q2_0c"],
        classes: &["HunYuanDenseV1ForCausalLM"],
        held: HY_MT,
        form: "floats",
        ..NONE
    },
    Family {
        name: "Hy4 preview (Tencent)",
        parameters: "experts",
        archs: &["hy_v4"],
        types: &["stq1_0_43"],
        classes: &["HYV4ForCausalLM"],
        form: "floats",
        held: &["archs/hy_v4-moe.txt", "checkpoints/hy_v4.json"],
        ..NONE
    },
    Family {
        name: "VibeVoice-ASR-BitNet, the language model (Microsoft)",
        parameters: "1.5B",
        archs: &["qwen2"],
        types: &["i2_s", "q6_k"],
        held: &["archs/qwen2-dense.txt", "bitnet/index.txt", "headers/vibevoice-asr-lm.txt"],
        ..NONE
    },
    Family {
        name: "Neutrino (FermionResearch)",
        parameters: "0.6B, 8B",
        archs: &["qwen3"],
        types: &["fv5", "fv5b"],
        held: &["archs/qwen3-dense.txt", "headers/neutrino-8b.txt"],
        ..NONE
    },
    Family {
        name: "IQ1_BN and IQ2_BN files of BitNets (ik_llama.cpp)",
        parameters: "",
        archs: &["bitnet-b1.58", "llama"],
        types: &["iq1_bn", "iq2_bn"],
        held: &["ik/index.txt", "headers/bitnet-25-iq2_bn.txt"],
        ..NONE
    },
    Family {
        name: "Qwen3.8 Flash Next, 2 bits (ISTA-DASLab)",
        parameters: "experts",
        archs: &["qwen4exp"],
        types: &["q2_0"],
        held: &["archs/qwen4exp-moe.txt"],
        ..NONE
    },
    Family { name: "Fairy2i W1, W2", parameters: "7B", archs: &["fairy2i"], held: &["widely/README.md"], ..NONE },
];

/// Families that trine does not read, and why.
const NOT_READ: &[(&str, &str)] = &[
    ("OneBit", "a layer norm after every projection: a graph of its own, and no GGUF file of it is known"),
    ("BitVLA", "a vision tower of ternary weights, and attention in both directions for actions"),
    (
        "Pestle 27B (Doses-AI)",
        "every matrix is two with three vectors of factors, which no graph of trine has; its types are known",
    ),
    ("EdgeRazor, PTQTP, AQLM-PV 1 bit", "formats of their own, without GGUF files"),
    ("Falcon3 `q2b`", "the layout of the type was never published; it is refused by its size"),
    ("Bonsai 2 for MLX", "the rotation stands in `hadamard.json`, which rconvert does not read; take the GGUF file"),
];

fn page() -> String {
    let mut out = HEAD.to_owned();
    let classes = known_classes();
    for f in FAMILIES {
        for arch in f.archs {
            assert!(Arch::find(arch).is_some(), "{}: no architecture {arch}", f.name);
        }
        for ty in f.types {
            let known = TypeId::from_name(ty).and_then(TypeId::info);
            let known = known.unwrap_or_else(|| panic!("{}: no type {ty}", f.name));
            assert!(known.dot_ref.is_some() || known.is_per_tensor(), "{}: {ty} is not multiplied", f.name);
        }
        for class in f.classes {
            let found =
                classes.iter().any(|(known, arch)| known == class && (f.archs.contains(arch) || *arch == "bitnet"));
            assert!(found, "{}: {class} makes none of {:?}", f.name, f.archs);
        }
        for path in f.held {
            assert!(trine_testkit::testdata(path).exists(), "{}: there is no testdata/{path}", f.name);
        }
        let code = |all: &[&str]| all.iter().map(|a| format!("`{a}`")).collect::<Vec<_>>().join(", ");
        let types: Vec<String> = f.types.iter().map(|t| t.to_uppercase()).collect();
        let convert = match f.classes {
            [] => String::new(),
            classes => format!("{}: {}", code(classes), f.form),
        };
        writeln!(
            out,
            "| {} | {} | {} | {} | {} | {convert} | {} | {} |",
            f.name,
            f.parameters,
            code(f.archs),
            types.join(", "),
            f.runs,
            f.file(),
            code(f.held)
        )
        .expect("text");
    }
    out += REST;
    for (name, why) in NOT_READ {
        writeln!(out, "| {name} | {why} |").expect("text");
    }
    out
}

#[test]
fn the_page_is_current() {
    trine_testkit::is_written("docs/ternary-models.md", &page());
}
