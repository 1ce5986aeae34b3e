//! Any-precision files: what is read back, what a file that ends early still has, what is refused.

use std::path::PathBuf;
use std::sync::Arc;

use trine_formats::anyprec::{
    ALIGNMENT, AnyPrec, AnyPrecError, Calibration, Header, MatrixExtents, Part, SparseShares, file_order, pack_row,
    words,
};
use trine_formats::gguf::write::NewTensor;
use trine_formats::gguf::{
    Array, Bytes, ErrorKind, Gguf, GgufError, Limits, Metadata, ModelFile, Shard, StrArray, Value,
};
use trine_formats::types::TypeId;
use trine_formats::types::num::{f16_to_f32, f32_to_f16};
use trine_testkit::gguf;

/// A file under construction: tensors with their data, in order.
struct File {
    meta: Metadata,
    tensors: Vec<(NewTensor, Vec<u8>)>,
}

/// 70 columns in 2 groups, codes of 5 bits, tables for 3 and 5.
const SHAPES: [(&str, u64, u64); 2] = [("blk.0.attn_q.weight", 3, 4), ("blk.0.ffn_up.weight", 5, 0)];
const COLUMNS: usize = 70;
const GROUPS: u64 = 2;
const WIDTHS: [u8; 2] = [3, 5];

fn code(row: usize, column: usize) -> u8 {
    ((row * 31 + column * 7 + column / 3) % 32) as u8
}

fn centroid(width: u8, row: usize, group: usize, code: u8) -> f32 {
    f32::from(width) * 64.0 + (row * 2 + group) as f32 + f32::from(code) / 64.0
}

/// The sparse entries of the first matrix: row 0 has none.
const SPARSE: [(usize, usize, f32); 4] = [(1, 0, -3.5), (1, 69, 0.25), (2, 5, 1.5), (2, 6, -65504.0)];

fn data(matrix: &MatrixExtents, part: Part) -> Vec<u8> {
    let rows = matrix.rows as usize;
    let ints = |values: Vec<i32>| values.into_iter().flat_map(i32::to_le_bytes).collect();
    match part {
        Part::Plane(p) => {
            let bytes = 8 * words(COLUMNS);
            let mut plane = Vec::new();
            for row in 0..rows {
                let codes: Vec<u8> = (0..COLUMNS).map(|c| code(row, c)).collect();
                let mut planes = vec![vec![0; bytes]; 5];
                let mut places: Vec<&mut [u8]> = planes.iter_mut().map(|p| &mut p[..]).collect();
                pack_row(&codes, &mut places);
                plane.extend_from_slice(&planes[usize::from(p)]);
            }
            plane
        }
        Part::Lut(width) => {
            let mut lut = Vec::new();
            for row in 0..rows {
                for group in 0..GROUPS as usize {
                    for code in 0..1 << width {
                        let c = f32_to_f16(centroid(width, row, group, code));
                        lut.extend_from_slice(&c.to_le_bytes());
                    }
                }
            }
            lut
        }
        Part::Scale(_) | Part::Class => unreachable!("rows have tables of their own"),
        Part::SparsePtr => ints((0..=rows).map(|r| SPARSE.iter().filter(|s| s.0 < r).count() as i32).collect()),
        Part::SparseCol => ints(SPARSE.iter().map(|s| s.1 as i32).collect()),
        Part::SparseVal => SPARSE.iter().flat_map(|s| f32_to_f16(s.2).to_le_bytes()).collect(),
    }
}

fn matrices() -> Vec<MatrixExtents> {
    let matrix = |&(name, rows, sparse): &(&str, u64, u64)| MatrixExtents {
        name: name.to_owned(),
        columns: COLUMNS as u64,
        rows,
        groups: GROUPS,
        tables: 0,
        sparse,
    };
    SHAPES.iter().map(matrix).collect()
}

fn header() -> Header {
    Header {
        seed_bits: 3,
        parent_bits: 5,
        bits: WIDTHS.to_vec(),
        groups: GROUPS as u32,
        tables: 0,
        tensors: SHAPES.iter().map(|s| s.0.to_owned()).collect(),
        columns: vec![COLUMNS as u64; 2],
        seed_method: "dp".to_owned(),
        sensitivity: "imatrix".to_owned(),
        calibration: Calibration {
            dataset: Some("wiki.txt".to_owned()),
            samples: Some(10),
            seq_len: Some(512),
            sha256: Some("ab".repeat(32)),
        },
        sparse: Some(SparseShares { sensitivity: 0.05, magnitude: 0.4 }),
        source_sha256: vec!["cd".repeat(32)],
    }
}

fn file() -> File {
    let mut meta = Metadata::default();
    meta.set("general.architecture", Value::str("llama"));
    meta.set("general.alignment", Value::U32(ALIGNMENT));
    header().write(&mut meta);
    let matrices = matrices();
    let plain = NewTensor::new("output_norm.weight", [7], TypeId::F32);
    let mut tensors = vec![(plain, vec![1; 28])];
    for section in file_order(&matrices, &WIDTHS) {
        for (i, part) in section.parts {
            tensors.push((matrices[i].tensor(part), data(&matrices[i], part)));
        }
    }
    File { meta, tensors }
}

impl File {
    fn bytes(&self) -> Vec<u8> {
        gguf::bytes(&self.meta, &self.tensors)
    }

    fn part(&mut self, name: &str) -> &mut (NewTensor, Vec<u8>) {
        self.tensors.iter_mut().find(|t| t.0.name == name).unwrap()
    }

    fn read(&self) -> Result<AnyPrec, AnyPrecError> {
        read(&model(self.bytes(), false).unwrap())
    }
}

fn model(bytes: Vec<u8>, partial: bool) -> Result<ModelFile, GgufError> {
    let limits = Limits { partial, ..Limits::default() };
    let gguf = Gguf::parse(&bytes, &limits)?;
    let bytes: Bytes = Arc::new(bytes);
    ModelFile::new(vec![Shard { path: PathBuf::new(), gguf, bytes }])
}

fn read(model: &ModelFile) -> Result<AnyPrec, AnyPrecError> {
    AnyPrec::read(model).map(|a| a.expect("an any-precision file"))
}

#[test]
fn what_was_written_is_read() {
    let model = model(file().bytes(), false).unwrap();
    let ap = read(&model).unwrap();
    assert_eq!(*ap.header(), header());
    assert_eq!(ap.widths(), WIDTHS);
    assert!(ap.is_whole() && AnyPrec::is(model.meta()));
    for (name, rows, sparse) in SHAPES {
        let tensor = ap.tensor(name).unwrap();
        assert_eq!((tensor.rows, tensor.columns, tensor.sparse), (rows as usize, COLUMNS, sparse as usize));
        for width in WIDTHS {
            let view = ap.view(&model, name, width).unwrap();
            assert_eq!(view.planes.len(), usize::from(width));
            for row in 0..rows as usize {
                let mut codes = vec![0; COLUMNS];
                view.codes(row, &mut codes);
                let weights = view.row(row);
                for (column, &got) in codes.iter().enumerate() {
                    let want = code(row, column) >> (5 - width);
                    assert_eq!(got, want, "{name} {width} {row} {column}");
                    let kept = SPARSE.iter().find(|s| sparse > 0 && (s.0, s.1) == (row, column));
                    let group = column / (COLUMNS / 2);
                    let want = kept.map_or(centroid(width, row, group, want), |s| s.2);
                    let want = f16_to_f32(f32_to_f16(want));
                    assert_eq!(weights[column], want, "{name} {width} {row} {column}");
                }
            }
        }
        assert!(matches!(ap.view(&model, name, 4), Err(AnyPrecError::Width { asked: 4, .. })));
    }
    let missing = ap.view(&model, "output_norm.weight", 3).err();
    assert_eq!(missing, Some(AnyPrecError::NoTensor("output_norm.weight".to_owned())));
}

#[test]
fn other_files_are_not_meant() {
    let mut file = file();
    file.meta = Metadata::default();
    let model = model(file.bytes(), false).unwrap();
    assert!(AnyPrec::read(&model).unwrap().is_none());
}

#[test]
fn a_file_may_end_after_any_width() {
    let file = file();
    let bytes = file.bytes();
    let whole = model(bytes.clone(), false).unwrap();
    let gguf = &whole.shards()[0].gguf;
    let end = |name: &str| {
        let t = whole.tensor_info(name).unwrap();
        (gguf.data_offset + t.offset + t.bytes) as usize
    };
    let first = end(&Part::Lut(3).name(SHAPES[1].0));
    let last = end(&Part::Lut(5).name(SHAPES[1].0));
    for len in 0..=bytes.len() {
        let strict = model(bytes[..len].to_vec(), false);
        assert_eq!(strict.is_ok(), len >= last, "{len}");
        let Ok(partial) = model(bytes[..len].to_vec(), true) else {
            assert!((len as u64) < gguf.data_offset, "{len}");
            continue;
        };
        let want: &[u8] = match len {
            l if l >= last => &[3, 5],
            l if l >= first => &[3],
            _ => &[],
        };
        match read(&partial) {
            Ok(ap) => {
                assert_eq!(ap.widths(), want, "{len}");
                assert_eq!(ap.is_whole(), len >= last);
                for &width in want {
                    for (name, rows, _) in SHAPES {
                        let view = ap.view(&partial, name, width).unwrap();
                        let same = ap.view(&whole, name, width).unwrap();
                        assert!((0..rows as usize).all(|r| view.row(r) == same.row(r)));
                    }
                }
                if want == [3] {
                    let e = ap.check_width(5).unwrap_err().to_string();
                    assert_eq!(e, "5 bits are not in the file: it has 3; the rest of it is not there");
                }
            }
            Err(AnyPrecError::TooShort { have, .. }) => {
                assert_eq!((have, want), (len as u64, &[][..]), "{len}");
            }
            Err(other) => panic!("{len}: {other}"),
        }
    }
}

#[test]
fn damaged_keys_are_named() {
    let refused = |key: &str, value: Value| {
        let mut file = file();
        file.meta.set(key, value);
        file.read().unwrap_err().to_string()
    };
    let u32s = |values: &[u32]| Value::Array(Array::U32(values.to_vec()));
    let names = |names: &[&str]| Value::Array(Array::Str(names.iter().collect::<StrArray>()));
    let cases = [
        ("anyprec.version", Value::U32(3), "is 3, and only versions 1 and 2"),
        ("anyprec.version", Value::str("1"), "is of type str"),
        ("anyprec.bit_order", Value::str("msb0"), "is 'msb0'"),
        ("anyprec.seed_bits", Value::U32(0), "0 is no width"),
        ("anyprec.seed_bits", Value::U32(4), "4 is more than the first of [3, 5]"),
        ("anyprec.parent_bits", Value::U32(9), "9 is no width"),
        ("anyprec.parent_bits", Value::U32(6), "end with parent_bits, 6"),
        ("anyprec.bits", u32s(&[5, 3]), "not ascending"),
        ("anyprec.bits", u32s(&[]), "not ascending"),
        ("anyprec.bits", u32s(&[3, 4, 5]), "lut4' is missing"),
        ("anyprec.bits", u32s(&[3, 3, 5]), "not ascending"),
        ("anyprec.bits", u32s(&[5]), "lut3' belongs to no tensor"),
        ("anyprec.group_count", Value::U32(0), "is 0"),
        ("anyprec.group_count", Value::U32(3), "are not 3 groups"),
        ("anyprec.group_count", Value::U32(1), "has shape [8, 2, 3], expected [8, 3]"),
        ("anyprec.in_features", u32s(&[70]), "has 1 entries for 2 tensors"),
        ("anyprec.in_features", u32s(&[70, 0]), "0 columns of 'blk.0.ffn_up.weight'"),
        ("anyprec.in_features", u32s(&[64, 70]), "has shape [16, 3], expected [8, 3]"),
        ("anyprec.tensors", names(&["blk.0.attn_q.weight", "x"]), "'x.ap.p0' is missing"),
        ("anyprec.tensors", names(&["blk.0.attn_q.weight"]), "2 entries for 1 tensors"),
        ("anyprec.tensors", names(&["blk.0.attn_q.weight"; 2]), "appears twice"),
    ];
    for (key, value, want) in cases {
        let shown = format!("{value:?}");
        let got = refused(key, value);
        assert!(got.contains(want), "{key} = {shown}: {got}");
    }
    for key in ["seed_bits", "parent_bits", "bits", "group_count", "bit_order", "tensors", "in_features"] {
        let mut file = file();
        assert!(file.meta.remove(&format!("anyprec.{key}")));
        let got = file.read().unwrap_err().to_string();
        assert_eq!(got, format!("key 'anyprec.{key}': is missing"));
    }
}

#[test]
fn damaged_parts_are_named() {
    let q = |part: Part| part.name(SHAPES[0].0);
    // a part is gone
    for part in
        [Part::Plane(0), Part::Plane(4), Part::Lut(3), Part::Lut(5), Part::SparsePtr, Part::SparseCol, Part::SparseVal]
    {
        let mut file = file();
        file.tensors.retain(|t| t.0.name != q(part));
        let want = AnyPrecError::MissingPart { tensor: q(part) };
        assert_eq!(file.read().unwrap_err(), want);
    }
    // a part is of another type or shape, its size the same or not
    let changed = |part: Part, shape: &[u64], ty: TypeId| {
        let mut file = file();
        let name = q(part);
        let place = file.part(&name);
        place.0 = NewTensor::new(name, shape, ty);
        let bytes = place.0.ty.info().unwrap().bytes as u64 * shape.iter().product::<u64>();
        place.1.resize(bytes as usize, 0);
        file.read().unwrap_err().to_string()
    };
    for (part, shape, ty, want) in [
        (Part::Plane(1), &[8, 3][..], TypeId::I16, "is i16, expected i8"),
        (Part::Plane(1), &[8, 6], TypeId::I8, "has shape [8, 6], expected [16, 3]"),
        (Part::Plane(1), &[16, 4], TypeId::I8, "has shape [16, 4], expected [16, 3]"),
        (Part::Plane(0), &[16, 4], TypeId::I8, "expected [16, 4]"),
        (Part::Lut(3), &[8, 2, 3], TypeId::BF16, "is bf16, expected f16"),
        (Part::Lut(3), &[16, 3], TypeId::F16, "has shape [16, 3], expected [8, 2, 3]"),
        (Part::Lut(5), &[16, 2, 3], TypeId::F16, "has shape [16, 2, 3], expected [32, 2, 3]"),
        (Part::SparsePtr, &[3], TypeId::I32, "has shape [3], expected [4]"),
        (Part::SparsePtr, &[4], TypeId::F32, "is f32, expected i32"),
        (Part::SparseCol, &[3], TypeId::I32, "has shape [4], expected [3]"),
        (Part::SparseCol, &[0], TypeId::I32, "sp_val' has shape [4], expected [0]"),
        (Part::SparseVal, &[5], TypeId::F16, "has shape [5], expected [4]"),
    ] {
        let got = changed(part, shape, ty);
        assert!(got.contains(want), "{part:?} {shape:?} {ty}: {got}");
    }
    // nothing there
    let mut file = self::file();
    for (t, data) in &mut file.tensors {
        if t.name.starts_with(&format!("{}.ap.", SHAPES[0].0)) && !t.name.contains(".sp_") {
            *t.shape.last_mut().unwrap() = 0;
            data.clear();
        }
        if t.name == q(Part::SparsePtr) {
            (t.shape, *data) = (vec![1], vec![0; 4]);
        }
    }
    let tensor = q(Part::Plane(0));
    assert_eq!(file.read().unwrap_err(), AnyPrecError::Empty { tensor });
    let mut file = self::file();
    for part in [Part::SparseCol, Part::SparseVal] {
        let (t, data) = file.part(&q(part));
        t.shape = vec![0];
        data.clear();
    }
    let tensor = q(Part::SparseCol);
    assert_eq!(file.read().unwrap_err(), AnyPrecError::Empty { tensor });
    // a plane of its own, or the matrix itself as well
    let added = |name: &str| {
        let mut file = self::file();
        let tensor = NewTensor::new(name, [1], TypeId::F32);
        file.tensors.push((tensor, vec![0; 4]));
        file.read().unwrap_err().to_string()
    };
    assert!(added("blk.0.attn_q.weight").contains("is there both"));
    assert!(added("blk.0.attn_q.weight.ap.p5").contains("belongs to no tensor"));
    assert!(added("blk.9.attn_q.weight.ap.p0").contains("belongs to no tensor"));
}

#[test]
fn damaged_sparse_entries_are_named() {
    let ints = |values: &[i32]| -> Vec<u8> { values.iter().flat_map(|v| v.to_le_bytes()).collect() };
    let refused = |part: Part, data: Vec<u8>| {
        let mut file = file();
        let place = file.part(&part.name(SHAPES[0].0));
        assert_eq!(place.1.len(), data.len());
        place.1 = data;
        match file.read() {
            Err(AnyPrecError::Sparse { tensor, index, .. }) => {
                assert_eq!(tensor, part.name(SHAPES[0].0));
                Some(index)
            }
            Err(other) => panic!("{other}"),
            Ok(_) => None,
        }
    };
    let ptr = |p: [i32; 4]| refused(Part::SparsePtr, ints(&p));
    assert_eq!(ptr([0, 0, 2, 4]), None);
    assert_eq!(ptr([1, 1, 2, 4]), Some(0));
    assert_eq!(ptr([0, -1, 2, 4]), Some(1));
    assert_eq!(ptr([0, 3, 2, 4]), Some(2));
    assert_eq!(ptr([0, 0, 2, 5]), Some(3));
    assert_eq!(ptr([0, 0, 2, i32::MAX]), Some(3));
    assert_eq!(ptr([0, 0, 2, 3]), Some(3));
    let col = |c: [i32; 4]| refused(Part::SparseCol, ints(&c));
    assert_eq!(col([0, 69, 5, 6]), None);
    assert_eq!(col([0, 70, 5, 6]), Some(1));
    assert_eq!(col([-1, 69, 5, 6]), Some(0));
    assert_eq!(col([9, 9, 5, 6]), Some(1));
    assert_eq!(col([0, 69, 6, 5]), Some(3));
    let val = |v: [u16; 4]| {
        let bytes = v.iter().flat_map(|v| v.to_le_bytes()).collect();
        refused(Part::SparseVal, bytes)
    };
    assert_eq!(val([0, 0x7bff, 0x8000, 1]), None);
    assert_eq!(val([0, 0x7c00, 0, 0]), Some(1));
    assert_eq!(val([0, 0, 0, 0xfe00]), Some(3));
}

#[test]
fn places_outside_the_file_are_refused() {
    let bytes = file().bytes();
    let name = Part::Plane(1).name(SHAPES[0].0);
    let at = bytes.windows(name.len()).position(|w| w == name.as_bytes()).unwrap();
    // dimensions u32, two extents, type, offset
    let offset = at + name.len() + 4 + 2 * 8 + 4;
    for (value, partial) in [0, 64, !63u64, 1 << 40].into_iter().flat_map(|v| [(v, false), (v, true)]) {
        let mut bytes = bytes.clone();
        bytes[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
        let error = model(bytes, partial).err().expect("a wrong place");
        assert!(matches!(error.kind, ErrorKind::Layout { .. } | ErrorKind::Overflow { .. }), "{error}");
    }
}

/// A file whose rows share two tables.
fn shared() -> File {
    let mut meta = Metadata::default();
    meta.set("general.architecture", Value::str("llama"));
    meta.set("general.alignment", Value::U32(ALIGNMENT));
    Header { groups: 1, tables: 2, sparse: None, ..header() }.write(&mut meta);
    let matrices: Vec<MatrixExtents> =
        matrices().into_iter().map(|m| MatrixExtents { groups: 1, tables: 2, sparse: 0, ..m }).collect();
    let halves = |values: Vec<f32>| values.into_iter().flat_map(|v| f32_to_f16(v).to_le_bytes()).collect();
    let mut tensors = Vec::new();
    for section in file_order(&matrices, &WIDTHS) {
        for (i, part) in section.parts {
            let rows = matrices[i].rows as usize;
            let bytes = match part {
                Part::Class => (0..rows).map(|r| (r % 2) as u8).collect(),
                Part::Scale(width) => halves((0..rows).map(|r| scale(width, r)).collect()),
                Part::Lut(width) => {
                    let all = (0..2).flat_map(|class| (0..1u8 << width).map(move |c| centroid(width, class, 0, c)));
                    halves(all.collect())
                }
                part => data(&matrices[i], part),
            };
            tensors.push((matrices[i].tensor(part), bytes));
        }
    }
    File { meta, tensors }
}

fn scale(width: u8, row: usize) -> f32 {
    (row as f32 - 1.0) * 0.3 + f32::from(width) / 7.0
}

#[test]
fn shared_tables_are_multiplied_by_the_factor_of_the_row() {
    let model = model(shared().bytes(), false).unwrap();
    let ap = read(&model).unwrap();
    assert_eq!((ap.header().tables, ap.widths()), (2, &WIDTHS[..]));
    let half = |x: f32| f16_to_f32(f32_to_f16(x));
    for (name, rows, _) in SHAPES {
        assert_eq!(ap.tensor(name).unwrap().tables, 2);
        for width in WIDTHS {
            let view = ap.view(&model, name, width).unwrap();
            for row in 0..rows as usize {
                for (column, got) in view.row(row).into_iter().enumerate() {
                    let centroid = centroid(width, row % 2, 0, code(row, column) >> (5 - width));
                    assert_eq!(got, half(half(scale(width, row)) * half(centroid)), "{name} {width} {row} {column}");
                }
            }
        }
    }
}

#[test]
fn damaged_shared_tables_are_named() {
    let refused = |change: &dyn Fn(&mut File)| {
        let mut file = shared();
        change(&mut file);
        file.read().unwrap_err().to_string()
    };
    let class = "blk.0.ffn_up.weight.ap.class";
    assert_eq!(
        refused(&|f| f.part(class).1[3] = 2),
        format!("tensor '{class}': row 3 takes table 2, of 2: the file is damaged")
    );
    assert_eq!(
        refused(&|f| f.tensors.retain(|t| t.0.name != class)),
        format!("tensor '{class}' is missing: the file is damaged")
    );
    for count in [0, 257] {
        let text = refused(&|f| f.meta.set("anyprec.table_count", Value::U32(count)));
        assert_eq!(text, format!("key 'anyprec.table_count': {count} tables cannot be shared, 1 to 256 can"));
    }
    // One more than there are is another shape; a row cannot have groups as well.
    let text = refused(&|f| f.meta.set("anyprec.table_count", Value::U32(3)));
    assert!(text.contains("has shape [8, 2], expected [8, 3]"), "{text}");
    let text = refused(&|f| f.meta.set("anyprec.group_count", Value::U32(2)));
    assert!(text.contains("group_count': is 2, and shared tables are for whole rows"), "{text}");
    // The first version has no such parts.
    let text = refused(&|f| f.meta.set("anyprec.version", Value::U32(1)));
    assert!(text.contains("has shape [8, 2], expected [8, 3]"), "{text}");
    let text = refused(&|f| f.meta.set("anyprec.version", Value::U32(3)));
    assert!(text.contains("only versions 1 and 2 are known"), "{text}");
}
