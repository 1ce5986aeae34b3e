//! Sensitivities from files, and inputs that are refused.

use std::path::PathBuf;

use tempfile::TempDir;
use trine::quant::anyprec::Sensitivity;
use trine::quant::{Importance, Plan, PlanError, QuantError, Recipe, Selection};
use trine_formats::anyprec::{AnyPrec, Calibration};
use trine_formats::gguf::{Metadata, ModelFile, Value};
use trine_formats::types::TypeId;

use super::model::*;

/// A matrix of sensitivities: name, rows, columns, values.
type Values = (String, usize, usize, Vec<f32>);

/// A safetensors file of matrices in F32.
fn safetensors(tensors: &[Values]) -> Vec<u8> {
    let mut header = Vec::new();
    let mut data = Vec::new();
    for (name, rows, columns, values) in tensors {
        let start = data.len();
        data.extend(values.iter().flat_map(|v| v.to_le_bytes()));
        header.push(format!(
            r#""{name}":{{"dtype":"F32","shape":[{rows},{columns}],"data_offsets":[{start},{}]}}"#,
            data.len()
        ));
    }
    let header = format!("{{{}}}", header.join(","));
    let mut out = (header.len() as u64).to_le_bytes().to_vec();
    out.extend(header.as_bytes());
    out.extend(data);
    out
}

const HF: [&str; 7] = [
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
];

/// Sensitivities of all matrices: in the model's order of rows and names, and as a checkpoint has them.
fn sensitivities(arch: &str) -> [Vec<Values>; 2] {
    let mut random = Random::new(99);
    let mut out = [Vec::new(), Vec::new()];
    for layer in 0..LAYERS {
        for ((kind, columns, rows), hf) in MATRICES.into_iter().zip(HF) {
            let values = random.sensitivities(columns * rows);
            let heads = match kind {
                "attn_q" if arch == "llama" => HEADS,
                "attn_k" if arch == "llama" => KV_HEADS,
                _ => rows, // heads of one row stay where they are
            };
            // the converter: (head, half, i) of the checkpoint becomes (head, i, half)
            let d = rows / heads;
            let mut checkpoint = vec![0.0; values.len()];
            for r in 0..rows {
                let (head, i) = (r / d, r % d);
                let from = if d == 1 { r } else { head * d + i % 2 * (d / 2) + i / 2 };
                checkpoint[from * columns..][..columns].copy_from_slice(&values[r * columns..][..columns]);
            }
            let name = format!("blk.{layer}.{kind}.weight");
            out[0].push((name, rows, columns, values));
            let name = format!("model.layers.{layer}.{hf}.weight");
            out[1].push((name, rows, columns, checkpoint));
        }
    }
    out
}

/// The weights of all matrices at 3 bits.
fn result(file: &std::path::Path) -> (Vec<f32>, AnyPrec) {
    let model = parse(std::fs::read(file).unwrap(), false);
    let ap = AnyPrec::read(&model).unwrap().unwrap();
    let row = |t: &trine_formats::anyprec::ApTensor| {
        let view = ap.view(&model, &t.name, 3).unwrap();
        (0..t.rows).flat_map(|r| view.row(r)).collect::<Vec<_>>()
    };
    (ap.tensors().iter().flat_map(row).collect(), ap)
}

fn files(files: &[PathBuf], square: bool) -> Sensitivity {
    Sensitivity::Weights { files: files.to_vec(), square }
}

/// Why files cannot be used for a model.
fn refused_files(model: &ModelFile, paths: &[PathBuf]) -> String {
    let error = Plan::new(model, &with(&recipe("AP3"), &files(paths, false))).unwrap_err();
    assert_eq!(error.to_string(), "--sensitivity");
    std::error::Error::source(&error).unwrap().to_string()
}

#[test]
fn checkpoints_are_brought_into_the_model_s_order() {
    let dir = TempDir::new().unwrap();
    let path = |name: &str| dir.path().join(name);
    for arch in ["llama", "qwen2"] {
        let mut draft = draft();
        draft.meta = metadata(arch);
        let model = draft.model();
        let [own, mut checkpoint] = sensitivities(arch);
        let norm = "model.norm.weight".to_owned();
        checkpoint.push((norm, 1, EMBD, vec![1.0; EMBD])); // not quantized, not minded
        let roots = own.iter().map(|(n, r, c, v)| {
            let signed = v.iter().enumerate();
            let root = signed.map(|(i, s)| if i % 2 == 0 { s.sqrt() } else { -s.sqrt() });
            (n.clone(), *r, *c, root.collect())
        });
        std::fs::write(path("roots"), safetensors(&roots.collect::<Vec<_>>())).unwrap();
        std::fs::write(path("own"), safetensors(&own)).unwrap();
        let (a, b) = checkpoint.split_at(9);
        std::fs::write(path("hf-1"), safetensors(a)).unwrap();
        std::fs::write(path("hf-2"), safetensors(b)).unwrap();
        let outputs =
            [(vec![path("own")], false), (vec![path("hf-1"), path("hf-2")], false), (vec![path("roots")], true)].map(
                |(paths, square)| {
                    let out = path("out.gguf");
                    quantize(&model, &recipe("AP3"), &files(&paths, square), &out, 2);
                    let (weights, ap) = result(&out);
                    assert_eq!(ap.header().sensitivity, "file");
                    assert_eq!(ap.header().calibration.sha256.is_some(), paths.len() == 1);
                    weights
                },
            );
        assert!(outputs[0] == outputs[1], "{arch}");
        // squares of rounded roots are a little off: nearly all clusters stay
        let same = outputs[0].iter().zip(&outputs[2]);
        let close = same.filter(|(a, b)| (*a - *b).abs() < 1e-3).count();
        assert!(close as f64 > 0.98 * outputs[0].len() as f64, "{close}");
        quantize(&model, &recipe("AP3"), &Sensitivity::Uniform, &path("u.gguf"), 2);
        assert!(outputs[0] != result(&path("u.gguf")).0);
    }
}

#[test]
fn importance_weighs_columns() {
    let dir = TempDir::new().unwrap();
    let model = draft().model();
    let mut columns = vec![0.0; EMBD];
    columns[..8].fill(1.0); // only eight columns matter: eight clusters hold them exactly
    let name = "blk.0.attn_q.weight".to_owned();
    let importance = |name: String, columns: Vec<f32>| {
        Importance::new("i.dat", None, 3, [(name, columns)], &Selection::default()).unwrap().unwrap()
    };
    let calibration = Calibration { dataset: Some("text".to_owned()), samples: Some(3), ..Calibration::default() };
    let sensitivity = Sensitivity::Columns(importance(name.clone(), columns), calibration.clone());
    let mut plan = Plan::new(&model, &with(&recipe("SQ3"), &sensitivity)).unwrap();
    let remarks = &plan.warnings;
    assert_eq!(remarks.len(), 1);
    assert!(remarks[0].contains("no weights for 13 of 14 tensors"), "{remarks:?}");
    let out = dir.path().join("o.gguf");
    carry_out(&model, &mut plan, &out, 2).unwrap();
    let file = parse(std::fs::read(&out).unwrap(), false);
    let ap = AnyPrec::read(&file).unwrap().unwrap();
    assert_eq!(ap.header().sensitivity, "imatrix");
    assert_eq!(ap.header().calibration, calibration);
    let view = ap.view(&file, &name, 3).unwrap();
    let weights = weights(&model, &name);
    for r in 0..EMBD {
        let row = view.row(r);
        for c in 0..8 {
            let w = weights[r * EMBD + c];
            assert!((row[c] - w).abs() <= 0.0005 * w.abs(), "row {r} column {c}");
        }
    }
    let refused = |name: &str, columns: Vec<f32>| {
        let sensitivity = Sensitivity::Columns(importance(name.to_owned(), columns), Calibration::default());
        Plan::new(&model, &with(&recipe("SQ3"), &sensitivity)).unwrap_err().to_string()
    };
    assert_eq!(
        refused(&name, vec![1.0; EMBD - 1]),
        "the importance matrix has 95 weights for tensor blk.0.attn_q.weight of 96 columns; it is of another model"
    );
    let mut negative = vec![1.0; EMBD];
    negative[7] = -2.0;
    assert_eq!(
        refused(&name, negative),
        "tensor blk.0.attn_q.weight: the sensitivity -2 at index 7 is not a finite number of at least 0"
    );
}

#[test]
fn sensitivities_of_another_model_are_refused() {
    let dir = TempDir::new().unwrap();
    let model = draft().model();
    let path = dir.path().join("s");
    let [own, checkpoint] = sensitivities("llama");
    let refused = |tensors: &[Values], files: usize| {
        std::fs::write(&path, safetensors(tensors)).unwrap();
        refused_files(&model, &vec![path.clone(); files])
    };
    let missing = refused(&checkpoint[..13], 1);
    assert_eq!(
        missing,
        "the sensitivities lack 1 of the model's 14 matrices, the first is blk.1.ffn_down.weight ('model.layers.1.mlp.down_proj.weight' in a checkpoint)"
    );
    let mut more = checkpoint.clone();
    more.push(("model.layers.2.mlp.up_proj.weight".into(), 1, 1, vec![1.0]));
    assert!(refused(&more, 1).contains("'model.layers.2.mlp.up_proj.weight', which is no matrix"));
    let mut turned = checkpoint.clone();
    (turned[4].1, turned[4].2) = (EMBD, FF);
    assert!(refused(&turned, 1).contains("have shape [96, 160], the weights 160 rows of 96 columns"));
    let mut both = checkpoint.clone();
    both.push(own[0].clone());
    assert!(refused(&both, 1).contains("two files have sensitivities for tensor blk.0.attn_q.weight"));
    assert!(refused(&checkpoint, 2).contains("two files have"));

    let mut unknown = draft();
    unknown.meta = metadata("eagle3");
    std::fs::write(&path, safetensors(&checkpoint)).unwrap();
    let error = refused_files(&unknown.model(), std::slice::from_ref(&path));
    assert!(error.contains("for architecture 'eagle3'"), "{error}");
    let mut odd = draft();
    odd.meta.set("llama.attention.head_count", Value::U32(5));
    let error = refused_files(&odd.model(), std::slice::from_ref(&path));
    assert!(error.contains("'llama.attention.head_count' does not divide the 96 rows"), "{error}");

    // values are looked at when they are read
    let mut negative = checkpoint.clone();
    negative[8].3[5 * EMBD + 2] = -1e-9;
    std::fs::write(&path, safetensors(&negative)).unwrap();
    let sensitivity = files(std::slice::from_ref(&path), false);
    let mut plan = Plan::new(&model, &with(&recipe("AP3"), &sensitivity)).unwrap();
    let out = dir.path().join("o.gguf");
    let error = carry_out(&model, &mut plan, &out, 1).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "tensor model.layers.1.self_attn.k_proj.weight: the sensitivity -0.000000001 at index {} is not a finite number of at least 0; if these are gradients, have them squared with --sens-is-gradient",
            5 * EMBD + 2
        )
    );
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "only the input is left");
}

fn refused(change: impl FnOnce(&mut Draft), recipe: &Recipe) -> String {
    let dir = TempDir::new().unwrap();
    let mut draft = draft();
    change(&mut draft);
    let model = draft.model();
    let run = |mut plan: Plan| carry_out(&model, &mut plan, &dir.path().join("o.gguf"), 2);
    let error = Plan::new(&model, recipe).map_err(QuantError::from).and_then(run).unwrap_err();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    error.to_string()
}

#[test]
fn weights_that_cannot_be_clustered_are_named() {
    let name = "blk.1.attn_q.weight"; // F32
    let set = |i: usize, x: f32| move |d: &mut Draft| d.values(name)[i] = x;
    let ap = recipe("AP3-4");
    let mut sparse = ap.clone();
    sparse.anyprec.outliers = Some(trine::quant::anyprec::outliers::Shares { sensitive: 0.05, magnitude: 0.4 });
    for recipe in [&ap, &sparse] {
        for (x, what) in [(f32::NAN, "a NaN"), (f32::NEG_INFINITY, "an infinity")] {
            assert_eq!(
                refused(set(1234, x), recipe),
                format!("tensor {name}: the input holds {what} in block 1234 (type f32); the model is damaged")
            );
        }
        assert_eq!(
            refused(set(1234, -65600.0), recipe),
            format!(
                "tensor {name}: the weight -65600 at index 1234 is larger than half precision holds (65504); leave the tensor as it is"
            )
        );
    }
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let none = |_: &mut Draft| {};
    let with = |change: fn(&mut Recipe)| {
        let mut recipe = recipe("AP3-5");
        change(&mut recipe);
        recipe
    };
    let cases: [(Recipe, &str); 8] = [
        (with(|r| r.anyprec.groups = 5), "5 groups do not divide the 96 columns of blk.0.attn_k.weight"),
        (with(|r| r.anyprec.groups = 0), "0 groups do not divide"),
        (with(|r| r.anyprec.seed_bits = Some(6)), "6 to 5 bits: the seed's bits"),
        (with(|r| r.anyprec.parent_bits = Some(9)), "3 to 9 bits"),
        (with(|r| r.anyprec.seed_bits = Some(0)), "0 to 5 bits"),
        (with(|r| r.anyprec.widths = Some(vec![5, 6])), "[5, 6] are not ascending widths of 3 to 5"),
        (
            with(|r| {
                r.anyprec.outliers = Some(trine::quant::anyprec::outliers::Shares { sensitive: -1.0, magnitude: 0.0 });
            }),
            "--outlier-sensitive: -1 is no share",
        ),
        (
            with(|r| {
                r.anyprec.outliers =
                    Some(trine::quant::anyprec::outliers::Shares { sensitive: 0.0, magnitude: f64::NAN });
            }),
            "--outlier-magnitude: NaN is no share",
        ),
    ];
    for (recipe, want) in cases {
        let got = refused(none, &recipe);
        assert!(got.contains(want), "{got}");
    }
    let requantize = |d: &mut Draft| {
        let tensor = &mut d.tensors.iter_mut().find(|t| t.0.name == "blk.0.ffn_up.weight").unwrap().0;
        tensor.ty = TypeId::Q8_0;
    };
    let got = refused(requantize, &recipe("AP3-5"));
    assert!(got.contains("1 tensors are quantized already (the first is blk.0.ffn_up.weight, q8_0)"), "{got}");
    let mut allowed = recipe("AP3");
    allowed.allow_requantize = true;
    let mut draft = draft();
    requantize(&mut draft);
    assert!(Plan::new(&draft.model(), &allowed).is_ok());
    let got = refused(|d| d.tensors.truncate(3), &recipe("AP3-5"));
    assert!(got.contains("has no block matrices"), "{got}");
    let already = |d: &mut Draft| d.meta.set("anyprec.version", Value::U32(1));
    assert!(refused(already, &recipe("AP3-5")).contains("any-precision already"));
    let mut empty = Metadata::default();
    empty.set("general.architecture", Value::str("llama"));
    let got = Plan::from_headers(&empty, Vec::new(), &recipe("AP3")).unwrap_err();
    assert!(matches!(got, PlanError::NoTensors));
}
