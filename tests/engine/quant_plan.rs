//! Whole plans against what `llama-quantize --dry-run` prints, for models of many shapes.

use std::collections::HashMap;
use std::fs;

use trine::quant::{Fallback, Ftype, Plan, Problem, Reason, Recipe, Target};
use trine_formats::gguf::{GgufStr, Metadata, TensorInfo, Value};
use trine_formats::types::TypeId;
use trine_testkit::testdata;

/// One file of testdata/plans.
#[derive(Default)]
struct Golden {
    meta: Metadata,
    tensors: Vec<TensorInfo>,
    /// File type, whether pure, and the types of the tensors in output order.
    plans: Vec<(Target, bool, Vec<TypeId>)>,
    refused: Vec<(Target, bool)>,
}

fn golden(name: &str) -> Golden {
    let text = fs::read_to_string(testdata("plans").join(name)).unwrap();
    let code: HashMap<char, TypeId> = text
        .lines()
        .find_map(|l| l.strip_prefix("code "))
        .unwrap()
        .split(' ')
        .map(|pair| {
            let (letter, ty) = pair.split_once('=').unwrap();
            (letter.chars().next().unwrap(), TypeId::from_name(ty).unwrap())
        })
        .collect();
    let recipe = |words: &str| {
        let (name, pure) = words.strip_suffix(" --pure").map_or((words, false), |n| (n, true));
        (Target::parse(name).unwrap(), pure)
    };
    let mut out = Golden::default();
    for line in text.lines() {
        let (kind, rest) = line.split_once(' ').unwrap();
        match kind {
            "arch" => out.meta.set("general.architecture", Value::Str(GgufStr::from(rest))),
            "int" => {
                let (key, value) = rest.split_once(' ').unwrap();
                out.meta.set(key, Value::U32(value.parse().unwrap()));
            }
            "tensor" => {
                let mut words = rest.split(' ');
                let name = words.next().unwrap().to_owned();
                let ty = TypeId::from_name(words.next().unwrap()).unwrap();
                let shape: Vec<u64> = words.map(|w| w.parse().unwrap()).collect();
                let bytes = shape.iter().product::<u64>() * ty.info().unwrap().bytes as u64;
                out.tensors.push(TensorInfo { name, shape, ty, offset: 0, bytes });
            }
            "plan" => {
                let (words, letters) = rest.split_once(": ").unwrap();
                let (target, pure) = recipe(words);
                out.plans.push((target, pure, letters.chars().map(|c| code[&c]).collect()));
            }
            "refused" => out.refused.push(recipe(rest)),
            _ => assert_eq!(kind, "code"),
        }
    }
    assert!(!out.tensors.is_empty() && out.plans.len() > 30, "{name}");
    out
}

fn plan(golden: &Golden, target: Target, pure: bool, fallback: Fallback) -> Plan {
    let mut recipe = Recipe::new(target);
    (recipe.pure, recipe.fallback) = (pure, fallback);
    let sources = golden.tensors.iter().enumerate();
    let sources = sources.map(|(i, t)| (0, i as u64 * 32, t)).collect();
    Plan::from_headers(&golden.meta, sources, &recipe).unwrap()
}

/// Compares every plan of a file.
fn check(name: &str) {
    let golden = golden(name);
    for (target, pure, types) in &golden.plans {
        let plan = plan(&golden, *target, *pure, Fallback::Always);
        assert_eq!(plan.rows.len(), types.len());
        for (row, &want) in plan.rows.iter().zip(types) {
            let at = format!("{name}, {} pure {pure}: {}", target.name(), row.name);
            assert_eq!(row.to, want, "{at}");
            if !row.converts() {
                assert_eq!(row.bytes, row.bytes_from, "{at}");
            }
        }
    }
    for &(target, pure) in &golden.refused {
        let plan = plan(&golden, target, pure, Fallback::Always);
        let stuck = |p: &Problem| matches!(p, Problem::Misfit { instead: None, .. });
        assert!(plan.problems.iter().any(stuck), "{name}, {}", target.name());
        assert!(plan.check().is_err());
    }
}

#[test]
fn plain_llama_pure_or_not() {
    check("untied.txt");
}

#[test]
fn layer_counts() {
    check("mqa.txt");
    check("deep40.txt");
}

#[test]
fn seventy_billion_shapes() {
    check("l80.txt");
    check("q80.txt");
}

#[test]
fn experts() {
    check("moe4.txt");
    check("moe8.txt");
}

#[test]
fn other_architectures() {
    check("falcon.txt");
    check("gemma.txt");
}

#[test]
fn widths_that_do_not_fit() {
    check("odd80.txt");
    check("odd96.txt");
}

#[test]
fn without_fallback_every_misfit_is_a_problem() {
    let golden = golden("odd96.txt");
    for &ftype in Ftype::ALL {
        let refused = plan(&golden, Target::Ftype(ftype), false, Fallback::Never);
        let misfits = |p: &&Problem| matches!(p, Problem::Misfit { .. });
        let listed = refused.problems.iter().filter(misfits).count();
        let allowed = plan(&golden, Target::Ftype(ftype), false, Fallback::Always);
        let left = allowed.problems.iter().filter(misfits).count();
        assert_eq!(listed, allowed.n_fallback() + left, "{ftype}");
        let to = |p: &Plan| p.rows.iter().map(|r| r.to).collect::<Vec<_>>();
        assert_eq!(to(&refused), to(&allowed), "{ftype}");
    }
    let plan = plan(&golden, Target::Ftype(Ftype::TQ2_0), false, Fallback::Always);
    assert!(plan.rows.iter().any(|r| r.reason == Reason::Fallback(TypeId::TQ2_0)));
}

#[test]
fn types_of_ik_fall_back_to_the_next_larger_ones() {
    let golden = golden("odd96.txt");
    for (ftype, instead) in [
        (Ftype::IQ2_KL, TypeId::IQ4_NL),
        (Ftype::IQ4_KS, TypeId::IQ4_NL),
        (Ftype::IQ4_K, TypeId::Q5_0),
        (Ftype::IQ5_KS, TypeId::Q5_0),
        (Ftype::IQ5_K, TypeId::Q5_1),
        (Ftype::IQ6_K, TypeId::Q8_0),
    ] {
        let plan = plan(&golden, Target::Ftype(ftype), true, Fallback::Mixtures);
        assert!(plan.problems.is_empty(), "{ftype}: {:?}", plan.problems);
        let fallen: Vec<_> =
            plan.rows.iter().filter(|r| r.reason == Reason::Fallback(ftype.default_type())).map(|r| r.to).collect();
        // Rows that are no blocks of 32 either become floats.
        let fits = |to: &TypeId| *to == instead || *to == TypeId::F16;
        assert!(fallen.contains(&instead) && fallen.iter().all(fits), "{ftype}: {fallen:?}");
    }
}

#[test]
fn shared_values_of_ik_files_have_more_bits() {
    let golden = golden("mqa.txt");
    for (ftype, values) in
        [(Ftype::IQ4_K, TypeId::IQ5_K), (Ftype::IQ3_KS, TypeId::IQ4_K), (Ftype::IQ2_KL, TypeId::IQ3_K)]
    {
        let plan = plan(&golden, Target::Ftype(ftype), false, Fallback::Never);
        let of = |part: &str| plan.rows.iter().find(|r| r.name.contains(part)).map(|r| r.to);
        assert_eq!(of("attn_v"), Some(values), "{ftype}");
        assert_eq!(of("ffn_up"), Some(ftype.default_type()), "{ftype}");
    }
}

#[test]
fn missing_importance_is_named() {
    let golden = golden("mqa.txt");
    let plan = plan(&golden, Target::Ftype(Ftype::Q2_K_S), false, Fallback::Never);
    let needs = plan.rows.iter().filter(|r| r.to == TypeId::Q2_K).count();
    let embedding = 1;
    assert_eq!(plan.problems.len(), needs - embedding);
    assert!(plan.check().unwrap_err().to_string().contains("importance"));
}
