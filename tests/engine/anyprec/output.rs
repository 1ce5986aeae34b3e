//! Contents of a file.

use tempfile::TempDir;
use trine::quant::anyprec::outliers::{Rule, Shares};
use trine::quant::anyprec::{Clusterer, Method, Nesting, Sensitivity};
use trine::quant::{Plan, Recipe};
use trine_formats::anyprec::{AnyPrec, Part};
use trine_formats::gguf::ModelFile;
use trine_formats::types::TypeId;
use trine_formats::types::num::{f16_to_f32, f32_to_f16};

use super::model::*;

fn sq(x: f64) -> f64 {
    x * x
}

/// Quantizes the small model; the file is read back.
fn quantized(recipe: &Recipe, threads: usize) -> (ModelFile, ModelFile, AnyPrec) {
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("ap.gguf");
    let model = draft().model();
    let (plan, size) = quantize(&model, recipe, &Sensitivity::Uniform, &out, threads);
    let bytes = std::fs::read(&out).unwrap();
    assert_eq!(bytes.len() as u64, size);
    let file = parse(bytes, false);
    let ap = AnyPrec::read(&file).unwrap().unwrap();
    assert_eq!(*ap.header(), report(&plan).header);
    (model, file, ap)
}

#[test]
fn codes_and_tables_are_the_clusterer_s() {
    for (target, groups, method) in [
        ("AP3-6", 1, Method::Exact),
        ("AP2-5", 2, Method::Exact),
        ("AP3-6", 2, Method::BestAt(5)),
        ("AP3-5", 1, Method::Compat { seed: 3 }),
        ("SQ4", 1, Method::Exact),
    ] {
        let mut recipe = recipe(target);
        (recipe.anyprec.groups, recipe.anyprec.method) = (groups, method);
        let (model, file, ap) = quantized(&recipe, 2);
        let header = ap.header();
        let nesting = Nesting::new(header.seed_bits, header.parent_bits).unwrap();
        let mut clusterer = Clusterer::new(nesting, method);
        assert_eq!(ap.tensors().len(), 7 * LAYERS);
        for tensor in ap.tensors() {
            let weights = weights(&model, &tensor.name);
            let group = tensor.columns / groups as usize;
            let views: Vec<_> = ap.widths().iter().map(|&w| ap.view(&file, &tensor.name, w).unwrap()).collect();
            for row in 0..tensor.rows {
                let weights = &weights[row * tensor.columns..][..tensor.columns];
                let mut codes = vec![0; tensor.columns];
                let mut luts = vec![Vec::new(); views.len()];
                for (w, codes) in weights.chunks(group).zip(codes.chunks_mut(group)) {
                    clusterer.cluster(w, &vec![1.0; group], codes).unwrap();
                    let tables = luts.iter_mut().zip(clusterer.luts());
                    tables.for_each(|(all, lut)| all.extend(lut.iter().map(|&c| f32_to_f16(c))));
                }
                for (view, lut) in views.iter().zip(luts) {
                    // the planes alone: the narrower code is the leading bits of the wider
                    let mut got = vec![0; tensor.columns];
                    view.codes(row, &mut got);
                    let shift = header.parent_bits - view.width;
                    assert!(got.iter().zip(&codes).all(|(g, c)| *g == c >> shift));
                    assert!(view.row_lut(row).eq(lut), "{target} {} {row}", tensor.name);
                }
            }
        }
    }
}

#[test]
fn the_rest_is_copied_in_front() {
    let (model, file, _) = quantized(&recipe("AP3-5"), 1);
    let names: Vec<&str> = file.tensors().map(|t| t.name.as_str()).collect();
    assert_eq!(
        names[..6],
        [
            "output_norm.weight",
            "token_embd.weight",
            "blk.0.attn_norm.weight",
            "blk.1.attn_norm.weight",
            "blk.0.attn_k.weight.ap.p0",
            "blk.0.attn_k.weight.ap.p1",
        ]
    );
    for name in &names[..4] {
        let (a, b) = (model.tensor(name).unwrap(), file.tensor(name).unwrap());
        assert_eq!((a.info.ty, &*a.data), (b.info.ty, &*b.data), "{name}");
    }
    assert_eq!(file.meta().get("general.file_type"), None);
    assert_eq!(file.shards()[0].gguf.alignment, 64);
    assert!(file.meta().get("llama.attention.head_count").is_some());
}

#[test]
fn embeddings_can_have_a_type_of_their_own() {
    let name = "token_embd.weight";
    for option in ["embeddings", "output they serve as"] {
        let mut recipe = recipe("AP3-5");
        if option == "embeddings" {
            recipe.embedding_type = Some(TypeId::Q8_0);
        } else {
            recipe.output_type = Some(TypeId::Q8_0);
        }
        let (model, file, _) = quantized(&recipe, 2);
        let tensor = file.tensor(name).unwrap();
        let columns = tensor.info.shape[0] as usize;
        let mut expected = Vec::new();
        let encode = TypeId::Q8_0.info().unwrap().encode.unwrap();
        for row in weights(&model, name).chunks(columns) {
            let mut out = vec![0; columns / 32 * 34];
            encode(row, None, &mut out);
            expected.extend(out);
        }
        assert_eq!(tensor.info.ty, TypeId::Q8_0, "{option}");
        assert!(*tensor.data == expected, "{option}");
        let footprint = footprint(&Plan::new(&model, &recipe).unwrap());
        let rest = file.tensors().filter(|t| !t.name.contains(".ap."));
        assert_eq!(footprint.copied_bytes, rest.map(|t| t.bytes).sum::<u64>());
    }
    for (ty, why) in [
        (TypeId::Q4_K, "96 weights are not whole blocks of 256"),
        (TypeId::TQ2_0, "tq2_0 is not for them"),
        (TypeId::Q8_K, "q8_K is not for them"),
    ] {
        let mut recipe = recipe("AP3-5");
        recipe.embedding_type = Some(ty);
        let error = Plan::new(&draft().model(), &recipe).unwrap_err().to_string();
        assert!(error.contains(why) && error.contains(name), "{error}");
    }
}

#[test]
fn bytes_do_not_depend_on_threads() {
    let dir = TempDir::new().unwrap();
    let model = draft().model();
    let mut recipe = recipe("AP3-8");
    recipe.anyprec.outliers = Some(Shares { sensitive: 0.1, magnitude: 0.5 });
    let mut all = [1, 2, 7].map(|threads| {
        let out = dir.path().join(format!("{threads}.gguf"));
        quantize(&model, &recipe, &Sensitivity::Uniform, &out, threads);
        std::fs::read(out).unwrap()
    });
    let first = std::mem::take(&mut all[0]);
    assert!(all[1..].iter().all(|bytes| *bytes == first));
}

#[test]
fn more_bits_have_smaller_errors() {
    let dir = TempDir::new().unwrap();
    let model = draft().model();
    for method in [Method::Exact, Method::Compat { seed: 0 }] {
        let mut recipe = recipe("AP3-8");
        recipe.anyprec.method = method;
        let out = dir.path().join("ap.gguf");
        let (plan, _) = quantize(&model, &recipe, &Sensitivity::Uniform, &out, 0);
        let report = report(&plan);
        let errors: Vec<f64> = report.errors.iter().map(|e| e.1).collect();
        let widths: Vec<u8> = report.errors.iter().map(|e| e.0).collect();
        assert_eq!(widths, [3, 4, 5, 6, 7, 8]);
        assert!(errors.is_sorted_by(|a, b| a > b), "{errors:?}");
        // 8 levels of a normal distribution have 3.45 % of its variance, 16 1.15 % (Max, 1960)
        assert!(errors[0] < 0.045 && errors[0] > 0.02, "{errors:?}");
        // and what the file says is what was reported
        let file = parse(std::fs::read(&out).unwrap(), false);
        let ap = AnyPrec::read(&file).unwrap().unwrap();
        for &(width, error) in &report.errors {
            let (mut sum, mut all) = (0.0, 0.0);
            for t in ap.tensors() {
                let weights = weights(&model, &t.name);
                let view = ap.view(&file, &t.name, width).unwrap();
                let got = (0..t.rows).flat_map(|r| view.row(r));
                let (mut e, mut energy) = (0.0, 0.0);
                for (&w, c) in weights.iter().zip(got) {
                    e += sq(f64::from(w) - f64::from(c));
                    energy += sq(w.into());
                }
                sum += e / energy * weights.len() as f64;
                all += weights.len() as f64;
            }
            assert!((sum / all - error).abs() < 1e-9 * error, "{width} bits");
        }
    }
}

#[test]
fn sizes_are_as_planned() {
    let model = draft().model();
    for (target, widths) in [("AP3-8", None), ("AP3-6", Some(vec![3, 6])), ("SQ3", None)] {
        let mut recipe = recipe(target);
        recipe.anyprec.widths = widths;
        let plan = Plan::new(&model, &recipe).unwrap();
        let planned = footprint(&plan);
        let (_, file, ap) = quantized(&recipe, 2);
        let gguf = &file.shards()[0].gguf;
        let bytes = (*file.shards()[0].bytes).as_ref().len() as u64;
        // hashes and the like make the header longer by a few hundred bytes
        assert!((planned.file_bytes..planned.file_bytes + 512).contains(&bytes));
        let mut sum = 0;
        for t in ap.tensors() {
            let words = t.columns.div_ceil(64) as u64;
            sum += u64::from(ap.header().parent_bits) * 8 * words * t.rows as u64;
            sum += ap.header().bits.iter().map(|b| (2 * t.rows as u64) << b).sum::<u64>();
        }
        let parts = file.tensors().filter(|t| t.name.contains(Part::INFIX));
        let parts: Vec<_> = parts.collect();
        assert_eq!(parts.iter().map(|t| t.bytes).sum::<u64>(), sum);
        let last = planned.widths.last().unwrap();
        assert!((last.stored_bits - sum as f64 * 8.0 / planned.weights as f64).abs() < 1e-9);
        let padding = 64 * file.n_tensors() as u64;
        let data = planned.copied_bytes + sum;
        assert!((data..data + padding).contains(&(bytes - gguf.data_offset)));
    }
}

#[test]
fn widths_can_be_taken_out_of_whole_and_cut_files() {
    let dir = TempDir::new().unwrap();
    let mut recipe = recipe("AP3-6");
    recipe.anyprec.widths = Some(vec![3, 4, 6]);
    recipe.anyprec.outliers = Some(Shares { sensitive: 0.0, magnitude: 0.5 });
    let (_, file, ap) = quantized(&recipe, 2);
    let whole = (*file.shards()[0].bytes).as_ref().to_vec();
    let footprint_end = |width: u8| {
        let last = ap.tensors().last().unwrap();
        let t = file.tensor_info(&Part::Lut(width).name(&last.name)).unwrap();
        (file.shards()[0].gguf.data_offset + t.offset + t.bytes) as usize
    };
    for width in [3, 4, 6] {
        let out = dir.path().join(format!("{width}.gguf"));
        let size = extract(&file, width, &out).unwrap();
        let bytes = std::fs::read(&out).unwrap();
        assert_eq!(size, bytes.len() as u64);
        let small = parse(bytes.clone(), false);
        let own = AnyPrec::read(&small).unwrap().unwrap();
        assert_eq!(own.widths(), [width]);
        assert_eq!(own.header().parent_bits, width);
        assert_eq!(own.header().source_sha256, ap.header().source_sha256);
        for t in ap.tensors() {
            let (a, b) = (ap.view(&file, &t.name, width).unwrap(), own.view(&small, &t.name, width).unwrap());
            assert!((0..t.rows).all(|r| a.row(r) == b.row(r)), "{}", t.name);
        }
        let embedding = |m: &ModelFile| m.tensor("token_embd.weight").unwrap().data.to_vec();
        assert_eq!(embedding(&small), embedding(&file));

        let cut = parse(whole[..footprint_end(width)].to_vec(), true);
        let out = dir.path().join("cut.gguf");
        extract(&cut, width, &out).unwrap();
        assert!(std::fs::read(&out).unwrap() == bytes, "{width}");
        let short = parse(whole[..footprint_end(width) - 1].to_vec(), true);
        let refused = extract(&short, width, &out).unwrap_err().to_string();
        assert!(refused.contains("the rest of it is not there") || refused.contains("every width needs"), "{refused}");
    }
    let refused = extract(&file, 5, &dir.path().join("x")).unwrap_err();
    assert_eq!(refused.to_string(), "5 bits are not in the file: it has 3, 4 and 6");
    let refused = extract(&draft().model(), 4, &dir.path().join("x")).unwrap_err();
    assert!(refused.to_string().contains("not any-precision"), "{refused}");
    assert!(!dir.path().join("x").exists());
}

#[test]
fn odd_matrices_do_not_decide_what_is_an_outlier() {
    let shares = Shares { sensitive: 0.2, magnitude: 0.5 };
    type Fill = fn(usize) -> f32;
    let odd: [(&str, Fill); 4] = [
        ("one negative value", |_| -0.05),
        ("one positive value", |_| 0.05),
        ("mostly zeros", |i| if i % 50 == 0 { 0.3 } else { 0.0 }),
        ("ternary", |i| [-0.07, 0.0, 0.07][i * i % 7 % 3]),
    ];
    let name = "blk.1.ffn_up.weight";
    for (what, fill) in odd {
        for rule in ["AP4", "SQ4"] {
            let dir = TempDir::new().unwrap();
            let mut draft = draft();
            let values = draft.values(name).iter_mut().enumerate();
            values.for_each(|(i, w)| *w = fill(i));
            let mut recipe = recipe(rule);
            recipe.anyprec.outliers = Some(shares);
            let out = dir.path().join("ap.gguf");
            let model = draft.model();
            let (plan, _) = quantize(&model, &recipe, &Sensitivity::Uniform, &out, 2);
            let report = report(&plan);
            let share = 100.0 * report.sparse as f64 / report.footprint.weights as f64;
            assert!((0.4..0.8).contains(&share), "{what}, {rule}: {share} %");
            let ap = AnyPrec::read(&parse(std::fs::read(&out).unwrap(), false)).unwrap();
            let ap = ap.unwrap();
            let own = ap.tensors().iter().find(|t| t.name == name).unwrap();
            let most = 0.002 * (own.rows * own.columns) as f64;
            assert!(own.sparse as f64 <= most, "{what}, {rule}: {}", own.sparse);
        }
    }
}

#[test]
fn outliers_are_kept_as_they_are() {
    for rule in ["AP4", "SQ4"] {
        let shares = Shares { sensitive: 0.2, magnitude: 0.5 };
        let mut recipe = recipe(rule);
        recipe.anyprec.outliers = Some(shares);
        let (model, file, ap) = quantized(&recipe, 3);
        let mut without = recipe.clone();
        without.anyprec.outliers = None;
        let (_, plain_file, plain) = quantized(&without, 3);
        assert!(plain.tensors().iter().all(|t| t.sparse == 0));
        let (mut kept, mut all) = (0, 0);
        for t in ap.tensors() {
            let weights = weights(&model, &t.name);
            let view = ap.view(&file, &t.name, 4).unwrap();
            let sparse = view.sparse.as_ref().unwrap();
            let sensitive = (0.2 / 100.0 * weights.len() as f64) as usize;
            assert!(t.sparse >= sensitive - 1, "{}", t.name);
            let mut least = f32::INFINITY;
            let mut large = 0f32;
            for r in 0..t.rows {
                let original = &weights[r * t.columns..][..t.columns];
                let row = view.row(r);
                let columns: Vec<usize> = sparse.row(r).map(|e| e.0).collect();
                for c in 0..t.columns {
                    if columns.contains(&c) {
                        assert_eq!(row[c], f16_to_f32(f32_to_f16(original[c])));
                        least = least.min(original[c].abs());
                    } else {
                        large = large.max(original[c].abs());
                    }
                }
                kept += columns.len();
                all += t.columns;
                // nothing else stands in the way of the small ones
                let widest = view.row_lut(r).map(f16_to_f32).fold(0f32, |m, c| m.max(c.abs()));
                assert!(widest <= large.max(least));
            }
            // without sensitivities the most sensitive are the largest: all kept are larger than all others
            assert!(large <= least, "{}: {large} {least}", t.name);
            let plain = plain.view(&plain_file, &t.name, 4).unwrap();
            let error = |rows: &dyn Fn(usize) -> Vec<f32>| -> f64 {
                let got = (0..t.rows).flat_map(rows);
                let terms = weights.iter().zip(got);
                terms.map(|(&w, c)| sq((w - c).into())).sum()
            };
            assert!(error(&|r| view.row(r)) < error(&|r| plain.row(r)));
        }
        let percent = kept as f64 / all as f64 * 100.0;
        assert!((percent - 0.7).abs() < 0.05, "{rule}: {percent}");
        let recorded = ap.header().sparse.unwrap();
        assert_eq!(recorded.sensitivity, 0.2);
        assert!((f64::from(recorded.magnitude) - 0.5).abs() < 0.02);
        if rule == "AP4" {
            let most = shares.sensitive + f64::from(recorded.magnitude);
            assert!(percent <= most + 1e-6, "{percent} {most}");
        }
        assert_eq!(plain.header().sparse, None);
    }
    assert_eq!(Shares::default_of(Rule::SqueezeLlm).magnitude, 0.45);
}
