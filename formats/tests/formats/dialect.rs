//! Type numbers that programs use differently: what each file means by them, and what is refused.

use trine_formats::gguf::{
    Blob, Dialect, ErrorKind, Gguf, KEY_DIALECT, Limits, Metadata, PackingOptions, TensorView, Value, packing,
    set_tiles,
    write::{Layout, NewTensor},
};
use trine_formats::types::TypeId;
use trine_formats::types::ternary::{Packing, Tiles};
use trine_testkit::raw::File;

/// A file with these tensors, each with room for `sizes` bytes and padding, and an architecture.
fn file(arch: &str, tensors: &[(&str, &[u64], u32, u64)]) -> File {
    let mut f = File::new(tensors.len() as u64, 1).key("general.architecture", 8).str(arch);
    f = rows(f, tensors);
    f
}

fn rows(mut f: File, tensors: &[(&str, &[u64], u32, u64)]) -> File {
    let mut offset = 0;
    for &(name, shape, ty, size) in tensors {
        f = f.tensor(name, shape, ty, offset);
        offset += size.next_multiple_of(32);
    }
    f.pad(32).data(offset as usize)
}

fn types(f: &File) -> (Dialect, Vec<TypeId>) {
    let gguf = f.parse().unwrap();
    // Whatever was recognised, a copy has the original's bytes.
    let header = &f.0[..gguf.data_offset as usize];
    assert_eq!(Layout::copy_of(&gguf).unwrap().header(), header);
    (gguf.dialect, gguf.tensors.iter().map(|t| t.ty).collect())
}

fn refused(f: &File, words: &[&str]) {
    let message = f.parse().unwrap_err().to_string();
    for word in words {
        assert!(message.contains(word), "{message:?} lacks {word:?}");
    }
}

/// The tensors and keys of BitNet b1.58 2B-4T as Microsoft published it, cut to 2 layers and 64 tokens.
#[test]
fn the_published_2b_model() {
    const LAYERS: u64 = 2;
    let matrices: [(&str, [u64; 2]); 7] = [
        ("attn_q", [2560, 2560]),
        ("attn_k", [2560, 640]),
        ("attn_v", [2560, 640]),
        ("attn_output", [2560, 2560]),
        ("ffn_gate", [2560, 6912]),
        ("ffn_up", [2560, 6912]),
        ("ffn_down", [6912, 2560]),
    ];
    let vectors = [("attn_norm", 2560), ("attn_sub_norm", 2560), ("ffn_norm", 2560), ("ffn_sub_norm", 6912)];
    let mut tensors = vec![("token_embd.weight".to_owned(), vec![2560, 64], 1, 2560 * 64 * 2)];
    for l in 0..LAYERS {
        for (name, shape) in matrices {
            let bytes = shape[0] * shape[1] / 4 + 32;
            tensors.push((format!("blk.{l}.{name}.weight"), shape.to_vec(), 36, bytes));
        }
        for (name, n) in vectors {
            tensors.push((format!("blk.{l}.{name}.weight"), vec![n], 0, 4 * n));
        }
    }
    tensors.push(("output_norm.weight".to_owned(), vec![2560], 0, 2560 * 4));
    let keys = [
        ("vocab_size", 64),
        ("context_length", 4096),
        ("embedding_length", 2560),
        ("block_count", LAYERS as u32),
        ("feed_forward_length", 6912),
        ("rope.dimension_count", 128),
        ("attention.head_count", 20),
        ("attention.head_count_kv", 5),
    ];
    let mut f = File::new(tensors.len() as u64, 4 + keys.len() as u64)
        .key("general.architecture", 8)
        .str("bitnet-b1.58")
        // What the published file carries; other programs of the family mean Q1_0 by it.
        .kv_u32("general.file_type", 40)
        .key("bitnet-b1.58.attention.layer_norm_rms_epsilon", 6)
        .raw(&1e-5f32.to_le_bytes())
        .key("bitnet-b1.58.rope.freq_base", 6)
        .raw(&500_000f32.to_le_bytes());
    for (key, value) in keys {
        f = f.kv_u32(&format!("bitnet-b1.58.{key}"), value);
    }
    let borrowed: Vec<(&str, &[u64], u32, u64)> =
        tensors.iter().map(|(name, shape, ty, bytes)| (&name[..], &shape[..], *ty, *bytes)).collect();
    let f = rows(f, &borrowed);

    let (dialect, all) = types(&f);
    assert_eq!(dialect, Dialect::BitnetCpp);
    assert!(dialect.describe().contains("bitnet.cpp"));
    let count = |ty| all.iter().filter(|&&t| t == ty).count();
    assert_eq!([count(TypeId::I2_S), count(TypeId::F32), count(TypeId::F16)], [14, 9, 1]);
    let gguf = f.parse().unwrap();
    for (t, (name, shape, ty, bytes)) in gguf.tensors.iter().zip(&tensors) {
        assert_eq!((&t.name, &t.shape, t.bytes), (name, shape, *bytes));
        assert_eq!(t.ty.file_id(), *ty);
    }
    let down = gguf.tensors.iter().find(|t| t.shape == [6912, 2560]).unwrap();
    assert_eq!((down.bytes, down.ty.to_string()), (4_423_712, "i2_s".into()));

    // Cut off anywhere it is said to be cut off.
    let cut = File(f.0[..f.0.len() - 20_000].to_vec());
    refused(&cut, &["blk.1.ffn_sub_norm.weight", "truncated"]);
    let cut = File(f.0[..f.0.len() - 1_000_000].to_vec());
    refused(&cut, &["blk.1.ffn_down.weight", "truncated"]);
}

const M: u64 = 64;
const K: u64 = 512;
/// Bytes of an M x K matrix in the types that share numbers.
const I2_S: u64 = K * M / 4 + 32;
const TL2: u64 = ((K - 256) * M / 3 * 5 / 8 + 64 * M).next_multiple_of(32) + 32;
const MXFP4: u64 = K * M / 32 * 17;
const Q2_0: u64 = K * M / 64 * 18;
const Q2_0_G128: u64 = K * M / 128 * 34;
const IQ4_NL: u64 = K * M / 32 * 18;
const STQ1_0: u64 = K * M / 256 * 42;

#[test]
fn sizes_tell_whose_number_it_is() {
    use Dialect::{BitnetCpp, Ggml, IkLlama, Neutrino, Pestle, Prism, Tencent};
    for (id, size, ty, dialect) in [
        (36, I2_S, TypeId::I2_S, BitnetCpp),
        (36, IQ4_NL, TypeId(36), Ggml),
        (36, 7 * 32, TypeId(36), Ggml),
        (38, I2_S, TypeId::TL1, BitnetCpp),
        (38, IQ4_NL, TypeId(38), Ggml),
        (39, MXFP4, TypeId::MXFP4, Ggml),
        (39, TL2, TypeId::TL2, BitnetCpp),
        (41, K * M / 128 * 18, TypeId::Q1_0, Ggml),
        (42, Q2_0, TypeId::Q2_0, Ggml),
        (42, Q2_0_G128, TypeId::Q2_0_G128, Prism),
        (142, Q2_0_G128, TypeId::PQ2_0, Prism),
        (142, Q2_0, TypeId(142), Ggml),
        (143, K * M / 128 * 28, TypeId::PTQ1_0, Prism),
        (37, K * M, TypeId::I8_S, BitnetCpp),
        (37, IQ4_NL, TypeId(37), Ggml),
        (40, K * M / 64 * 36, TypeId::NVFP4, Ggml),
        (40, K * M / 512 * 130, TypeId::Q2_0C, Tencent),
        (42, STQ1_0, TypeId::STQ1_0, Tencent),
        (43, STQ1_0, TypeId::STQ1_0_43, Tencent),
        (43, K * M / 256 * 104, TypeId::FV5, Neutrino),
        (43, Q2_0, TypeId(43), Ggml),
        (44, K * M / 256 * 260, TypeId::FV5B, Neutrino),
        (44, Q2_0, TypeId(44), Ggml),
        (143, K * M / 32 * 16, TypeId::G8_0, Pestle),
        (134, M * (2 + K / 64 * 13), TypeId::IQ1_BN, IkLlama),
        (135, M * (4 + K / 64 * 16), TypeId::IQ2_BN, IkLlama),
        (133, K * M / 32 * 26, TypeId::Q6_0, IkLlama),
        (144, M * (4 + K / 256 * 136), TypeId::IQ4_KS, IkLlama),
        (151, M * (8 + K), TypeId::Q8_KV, IkLlama),
        (155, M * (4 + K / 256 * 128), TypeId::IQ4_KT, IkLlama),
        (155, M * (8 + K / 256 * 128), TypeId(155), IkLlama),
        (219, M * (2 + K / 32 * 6), TypeId::IQ1_S_R4, IkLlama),
        (339, K * M / 256 * 144, TypeId::IQ4_K_R4, IkLlama),
        // as they were before rows had scales
        (135, M * K / 64 * 16, TypeId(135), IkLlama),
    ] {
        let matrix: &[u64] = &[K, M];
        let f32s: (&str, &[u64], u32, u64) = ("b", &[8], 0, 32);
        // The architecture has no say where sizes do.
        for arch in ["llama", "bitnet", "bitnet-b1.58", "qwen3"] {
            let between = file(arch, &[("a", matrix, id, size), f32s]);
            assert_eq!(types(&between), (dialect, vec![ty, TypeId::F32]), "{id} {size}");
            let twice = [("a", matrix, id, size), f32s, ("c", matrix, id, size)];
            assert_eq!(types(&file(arch, &twice)).1[2], ty, "{id} {size}");
        }
        let last = file("llama", &[f32s, ("a", matrix, id, size)]);
        assert_eq!(types(&last), (dialect, vec![TypeId::F32, ty]), "{id} {size}");
    }
}

/// Newer programs of bitnet.cpp have TL2 under another number. A copy has the older one, which sizes tell as well.
#[test]
fn tl2_has_two_numbers() {
    let read = |id| file("bitnet-b1.58", &[("a", &[K, M], id, TL2), ("b", &[8], 0, 32)]).parse().unwrap();
    let (newer, older) = (read(42), read(39));
    assert_eq!((newer.dialect, newer.tensors[0].ty), (Dialect::BitnetCpp, TypeId::TL2));
    assert_eq!(Layout::copy_of(&newer).unwrap().header(), Layout::copy_of(&older).unwrap().header());
}

/// The Fairy2i fork of llama.cpp is known by its architecture and its keys together.
#[test]
fn numbers_of_the_fairy2i_fork_count_with_its_keys_alone() {
    let matrix: &[u64] = &[K, M];
    let f32s: (&str, &[u64], u32, u64) = ("b", &[8], 0, 32);
    let blocks = K * M / 64 * 20;
    let of_fork = |arch: &str| {
        let f = File::new(2, 2).key("general.architecture", 8).str(arch).kv_u32("fairy2i.schema_version", 1);
        rows(f, &[("a", matrix, 42, blocks), f32s])
    };
    let want = vec![TypeId::FAIRY2I_TILE64, TypeId::F32];
    assert_eq!(types(&of_fork("fairy2i")), (Dialect::Fairy2i, want));
    let mut cut = of_fork("fairy2i");
    cut.0.truncate(cut.0.len() - 64);
    refused(&cut, &["'a'", "truncated"]);
    refused(&of_fork("llama"), &["'a'", "42", "Fairy2i fork"]);
    // 256 codes in 68 bytes, 64 pairs of bytes and two scales, 64 codes in 20 bytes
    for (id, size) in [(40, K * M / 256 * 68), (41, K * M / 64 * 132), (42, blocks)] {
        for arch in ["llama", "fairy2i", "ifairy"] {
            let f = file(arch, &[("a", matrix, id, size), f32s]);
            let message = f.parse().unwrap_err().to_string();
            assert!(message.contains("'a'") || message.contains("'b'"), "{message}");
        }
    }
}

#[test]
fn numbers_are_decided_one_by_one() {
    let matrix: &[u64] = &[K, M];
    let f = file("llama", &[("a", matrix, 36, I2_S), ("b", matrix, 39, MXFP4), ("c", matrix, 39, MXFP4)]);
    let want = vec![TypeId::I2_S, TypeId::MXFP4, TypeId::MXFP4];
    assert_eq!(types(&f), (Dialect::BitnetCpp, want));
    // One number has one meaning in a file: one tensor that contradicts it is damage.
    let f = file("llama", &[("a", matrix, 39, MXFP4), ("b", matrix, 39, TL2), ("c", &[8], 0, 32)]);
    refused(&f, &["tensor 'a'", "17408 bytes as mxfp4 (ggml)", "tl2 (bitnet.cpp)"]);
}

#[test]
fn ik_llama_files_are_known_by_their_own_numbers() {
    let matrix: &[u64] = &[K, M];
    let f = file("bitnet-b1.58", &[("a", matrix, 36, I2_S), ("b", matrix, 134, 6688), ("c", &[8], 0, 32)]);
    let want = vec![TypeId::I2_S, TypeId(134), TypeId::F32];
    assert_eq!(types(&f), (Dialect::IkLlama, want));
    assert_eq!(f.parse().unwrap().tensors[1].bytes, 6688);
}

#[test]
fn a_private_type_under_a_ggml_number_is_refused_by_name() {
    let size = K * M / 4 + 32;
    let f = file("llama", &[("blk.0.ffn_up.weight", &[K, M], 42, size), ("b", &[8], 0, 32)]);
    refused(
        &f,
        &[
            "tensor 'blk.0.ffn_up.weight'",
            "9216 bytes as q2_0 (ggml)",
            "8704 bytes as q2_0 of groups of 128 (PrismML)",
            "5376 bytes as stq1_0 (Tencent)",
            "q2b type of Falcon3-1.58bit",
        ],
    );
    let i16_scales = file("llama", &[("a", &[K, M], 40, STQ1_0), ("b", &[8], 0, 32)]);
    refused(&i16_scales, &["'a'", "nvfp4 (ggml)", "8320 bytes as q2_0c (Tencent)", "stq1_0 with an integer"]);
    // A width that no meaning can have is ggml's error as before.
    refused(&file("llama", &[("a", &[33], 42, 32), ("b", &[8], 0, 32)]), &["no multiple"]);
}

/// 3 rows of 32 take 64 bytes with padding both as I2_S and as the removed type.
#[test]
fn what_sizes_leave_open_needs_other_evidence() {
    let tensors: [(&str, &[u64], u32, u64); 2] = [("a", &[32, 3], 36, 64), ("b", &[8], 0, 32)];
    refused(
        &file("llama", &tensors),
        &["tensor 'a'", "36", "i2_s (bitnet.cpp)", "iq4_nl_4_4 (removed from ggml)", "trine.dialect"],
    );
    assert_eq!(types(&file("bitnet", &tensors)).1[0], TypeId::I2_S);

    let stated = |dialect: &str| {
        let f = File::new(2, 1).key(KEY_DIALECT, 8).str(dialect);
        rows(f, &tensors)
    };
    let first = |f: &File| (types(f).0, types(f).1[0]);
    assert_eq!(first(&stated("bitnet.cpp")), (Dialect::BitnetCpp, TypeId::I2_S));
    assert_eq!(first(&stated("ik_llama.cpp")), (Dialect::IkLlama, TypeId::I2_S));
    assert_eq!(first(&stated("ggml")), (Dialect::Ggml, TypeId(36)));
    assert_eq!(first(&stated("prismml")), (Dialect::Prism, TypeId(36)));
    // Nothing but the key tells the first version of STQ1_0 from the one that files have.
    let groups: [(&str, &[u64], u32, u64); 2] = [("a", &[K, M], 42, STQ1_0), ("b", &[8], 0, 32)];
    let named = |dialect: &str| rows(File::new(2, 1).key(KEY_DIALECT, 8).str(dialect), &groups);
    assert_eq!(first(&named("tencent")), (Dialect::Tencent, TypeId::STQ1_0));
    assert_eq!(first(&named("tencent-contiguous")), (Dialect::TencentFirst, TypeId::STQ1_0_CONTIGUOUS));
    refused(&stated("llamafile"), &["trine.dialect", "'llamafile'", "ik_llama.cpp"]);
    refused(&rows(File::new(2, 1).kv_u32(KEY_DIALECT, 1), &tensors), &["trine.dialect", "u32"]);
    // What is stated is held to the sizes as well.
    let wrong: [(&str, &[u64], u32, u64); 2] = [("a", &[K, M], 36, IQ4_NL), ("b", &[8], 0, 32)];
    let f = rows(File::new(2, 1).key(KEY_DIALECT, 8).str("bitnet.cpp"), &wrong);
    refused(&f, &["tensor 'b'", "data offset"]);
    let narrow: [(&str, &[u64], u32, u64); 1] = [("a", &[96, M], 39, 3264)];
    let f = rows(File::new(1, 1).key(KEY_DIALECT, 8).str("bitnet.cpp"), &narrow);
    refused(&f, &["tensor 'a'", "fewer than 256 columns"]);

    // A tiny tensor of a type that ggml has today is ggml's.
    let tiny: [(&str, &[u64], u32, u64); 2] = [("a", &[128], 42, 36), ("b", &[8], 0, 32)];
    assert_eq!(types(&file("llama", &tiny)).1[0], TypeId::Q2_0);
}

#[test]
fn a_file_cut_off_is_not_taken_for_another_dialect() {
    let whole = file("llama", &[("a", &[K, M], 39, MXFP4)]);
    let header = whole.0.len() - MXFP4 as usize;
    for left in (0..MXFP4).step_by(96).filter(|&n| n.next_multiple_of(32) != TL2) {
        let cut = File(whole.0[..header + left as usize].to_vec());
        refused(&cut, &["tensor 'a'", "truncated"]);
    }
    let whole = file("bitnet-25", &[("a", &[K, M], 36, I2_S)]);
    for left in (0..I2_S).step_by(96) {
        let cut = File(whole.0[..whole.0.len() - I2_S as usize + left as usize].to_vec());
        refused(&cut, &["tensor 'a'", "truncated"]);
    }
}

#[test]
fn what_is_written_is_read_as_the_same() {
    let all = [
        TypeId::I2_S,
        TypeId::TL1,
        TypeId::TL2,
        TypeId::Q2_0_G128,
        TypeId::PQ2_0,
        TypeId::PTQ1_0,
        TypeId::I8_S,
        TypeId::Q2_0C,
        TypeId::STQ1_0,
        TypeId::G8_0,
        TypeId::FV5,
        TypeId::FV5B,
        TypeId::IQ1_BN,
        TypeId::IQ2_BN,
        TypeId::IQ4_KS,
        TypeId::Q8_KV,
    ];
    for ty in all {
        let info = ty.info().unwrap();
        assert_eq!(TypeId::from_name(info.name), Some(ty));
        assert_eq!(info.row_bytes(K).is_none(), info.is_per_tensor());
        let tensors = [
            NewTensor::new("a", [K, M], ty),
            NewTensor::new("b", [8], TypeId::F32),
            NewTensor::new("c", [K, 3 * M], ty),
        ];
        let layout = Layout::new(&Metadata::default(), &tensors).unwrap();
        let mut bytes = layout.header().to_vec();
        bytes.resize(layout.file_bytes() as usize, 0);
        let gguf = Gguf::parse(&bytes, &Limits::default()).unwrap();
        assert_eq!(gguf.tensors, layout.tensors());
        assert_eq!(gguf.tensors[0].ty, ty);
    }
    // Two meanings of one number in one file, and one that sizes do not settle.
    let mixed = [NewTensor::new("a", [K, M], TypeId::MXFP4), NewTensor::new("b", [K, M], TypeId::TL2)];
    assert!(Layout::new(&Metadata::default(), &mixed).is_err());
    let tiny = [NewTensor::new("a", [128], TypeId::Q2_0_G128), NewTensor::new("b", [8], TypeId::F32)];
    let mut meta = Metadata::default();
    let e = Layout::new(&meta, &tiny).unwrap_err();
    let ErrorKind::Misread { ty, read, .. } = e.kind else { panic!("{e}") };
    assert_eq!((ty, read), (TypeId::Q2_0_G128, TypeId::Q2_0));
    assert!(e.to_string().contains("'prismml'"), "{e}");
    meta.set(KEY_DIALECT, Value::str("prismml"));
    assert!(Layout::new(&meta, &tiny).is_ok());
}

fn view(ty: TypeId, columns: u64, rows: u64, data: Vec<u8>) -> TensorView {
    let f = NewTensor::new("blk.0.attn_q.weight", [columns, rows], ty);
    let layout = Layout::new(&Metadata::default(), &[f, NewTensor::new("b", [8], TypeId::F32)]);
    TensorView { info: layout.unwrap().tensors()[0].clone(), data: Blob::from_vec(data) }
}

#[test]
fn tiles_are_given_recorded_or_published() {
    let of = |columns, rows, meta: &Metadata, options: &PackingOptions| {
        packing(&view(TypeId::TL1, columns, rows, Vec::new()).info, meta, options)
    };
    let (none, default) = (Metadata::default(), PackingOptions::default());
    let e = of(K, M, &none, &default).unwrap_err().to_string();
    assert!(e.contains("tensor 'blk.0.attn_q.weight'") && e.contains("--tl-tiles 64x512=BM,BK,bm"), "{e}");
    // The published kernels of bitnet_b1_58-3B.
    let published = Packing::Tl1(Tiles::new(160, 64, 32));
    assert_eq!(of(8640, 3200, &none, &default), Ok(published));
    let mut meta = Metadata::default();
    let recorded = ["64x512=32,128,32", "3200x8640=320,64,64"].map(|s| s.parse().unwrap());
    set_tiles(&mut meta, TypeId::TL1, &recorded).unwrap();
    assert_eq!(of(K, M, &meta, &default), Ok(Packing::Tl1(Tiles::new(32, 128, 32))));
    assert_eq!(of(8640, 3200, &meta, &default), Ok(Packing::Tl1(Tiles::new(320, 64, 64))));
    let given = PackingOptions { tiles: vec!["64x512=64,64,64".parse().unwrap()], ..default.clone() };
    assert_eq!(of(K, M, &meta, &given), Ok(Packing::Tl1(Tiles::new(64, 64, 64))));
    // TL2 has a list of its own.
    let tl2 = view(TypeId::TL2, K, M, Vec::new());
    assert!(packing(&tl2.info, &meta, &default).is_err());
    let i2_s = view(TypeId::I2_S, K, M, Vec::new());
    assert_eq!(packing(&i2_s.info, &none, &default), Ok(Packing::I2S(Default::default())));
    assert!(set_tiles(&mut meta, TypeId::I2_S, &recorded).is_err());
    let mut f32s = i2_s.info.clone();
    f32s.ty = TypeId::F32;
    let e = packing(&f32s, &none, &default).unwrap_err();
    assert_eq!(e.kind, ErrorKind::NotPerTensor(TypeId::F32));

    for bad in [vec![1, 2, 3, 4], vec![64, 512, 0, 64, 32]] {
        let list = trine_formats::gguf::Array::U32(bad);
        meta.set("trine.tl1.tiles", Value::Array(list));
        let e = of(K, M, &meta, &default).unwrap_err();
        assert!(e.kind == ErrorKind::TileList && e.field.contains("trine.tl1.tiles"), "{e}");
    }
    for bad in ["", "64x512", "64=1,2,3", "64x512=1", "64x512=1,2,3,4", "ax512=1,2,3", "64x512=-1,2"] {
        assert!(bad.parse::<trine_formats::gguf::ShapeTiles>().is_err(), "{bad}");
    }
    assert_eq!(recorded[0].to_string(), "64x512=32,128,32");
}

/// Damage in the data is reported by the tensor's name and the place in it.
#[test]
fn damaged_tensors_are_named() {
    let read = |v: &TensorView, tiles: &[&str]| {
        let options =
            PackingOptions { tiles: tiles.iter().map(|s| s.parse().unwrap()).collect(), ..PackingOptions::default() };
        let e = v.ternary_codes(&Metadata::default(), &options).unwrap_err().to_string();
        assert!(e.starts_with("tensor 'blk.0.attn_q.weight': "), "{e}");
        e
    };
    let (k, m) = (K as usize, M as usize);
    let zeros = vec![0; k * m];
    let pack = |p: Packing| p.pack(k, m, 0.5, &zeros).unwrap();

    let mut data = pack(Packing::I2S(Default::default()));
    data[3 * k / 4 + 32 + 5] |= 0b11 << 2;
    let v = view(TypeId::I2_S, K, M, data.clone());
    assert!(read(&v, &[]).contains("row 3, column 197: i2_s code 3"), "{}", read(&v, &[]));
    let v = view(TypeId::I2_S, K, M, data[..data.len() - 32].to_vec());
    assert!(read(&v, &[]).contains("scale are missing"));
    let v = view(TypeId::I2_S, K, M, data[..data.len() - 1].to_vec());
    assert!(read(&v, &[]).contains("has 8223 bytes"));
    let v = view(TypeId::I2_S, 320, M, vec![0; 320 * m / 4 + 32]);
    assert!(read(&v, &[]).contains("320, which is no multiple"));

    let tiles = Tiles::new(32, 128, 32);
    let at = 32 * k / 4 + 64 + 16 + 2;
    for index in 9..=15 {
        let mut data = pack(Packing::Tl1(tiles));
        data[at] = data[at] & 0xF0 | index;
        let v = view(TypeId::TL1, K, M, data);
        let e = read(&v, &["64x512=32,128,32"]);
        assert!(e.contains(&format!("row 34, column 14: tl1 code {index}")), "{e}");
    }
    let tiles = Tiles::new(32, 96, 32);
    for index in 14..=15 {
        let mut data = pack(Packing::Tl2(tiles));
        data[33] = index << 4;
        let v = view(TypeId::TL2, K, M, data);
        let e = read(&v, &["64x512=32,96,32"]);
        assert!(e.contains(&format!("row 1, column 6: tl2 code {index}")), "{e}");
    }
    let v = view(TypeId::TL2, K, M, pack(Packing::Tl2(tiles)));
    for (given, rule) in [
        ("64x512=32,96,64", "bm must be 32"),
        ("64x512=48,96,32", "BM must be a multiple of 32"),
        ("64x512=32,100,32", "BK must be a multiple of 24"),
        ("64x512=128,96,32", "rows must be a multiple of BM"),
        ("64x512=32,72,32", "multiple of 32"),
        ("64x512=32,600,32", "BK must not be more"),
        ("64x512=32,0,32", "BK must be"),
        ("64x512=0,96,32", "BM must be"),
    ] {
        let e = read(&v, &[given]);
        assert!(e.contains(rule) && e.contains("tl2 cannot have tiles of BM"), "{e}");
    }
    let v = view(TypeId::TL1, K, M, pack(Packing::Tl1(Tiles::new(32, 128, 32))));
    for (given, rule) in [
        ("64x512=32,128,16", "bm must be 32 or 64"),
        ("64x512=32,128,64", "BM must be a multiple of bm"),
        ("64x512=32,100,32", "BK must be a multiple of 256 / bm"),
        ("64x512=96,128,32", "rows must be a multiple of BM"),
        ("64x512=32,96,32", "columns must be a multiple of BK"),
        ("64x512=0,128,32", "BM must be"),
        ("64x512=32,0,32", "BK must be"),
    ] {
        assert!(read(&v, &[given]).contains(rule), "{given}: {}", read(&v, &[given]));
    }
}
