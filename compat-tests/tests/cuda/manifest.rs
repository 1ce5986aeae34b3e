//! The checked-in PTX is what the sources say, and has nothing in it that an exact kernel must not have.

use std::collections::HashSet;
use std::fs;

use trine_compat_tests::ptx::lint::Family;
use trine_compat_tests::ptx::{Module, lint};
use trine_compat_tests::root;
use trine_cuda::ptx::{
    ALL, ATTENTION, BETWEEN, CELLS, EXPERTS, FLOATS, GATE, HALF, MANIFEST, PLANES, RECURRENT, Text, WHOLE,
};
use trine_testkit::sha256;

/// The lines of the manifest that begin with a word, without it, in words.
fn lines(word: &str) -> Vec<Vec<&'static str>> {
    let all = MANIFEST.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    all.filter(|line| line[0] == word).map(|line| line[1..].to_vec()).collect()
}

const TARGETS: [&str; 6] = ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"];

#[test]
fn the_ptx_was_made_of_these_sources() {
    let folder = root().join("src/cuda/kernels");
    let mut names = trine_testkit::names_in(&folder);
    names.sort();
    let found: Vec<(String, String)> = names
        .into_iter()
        .map(|name| {
            let hash = sha256(&fs::read(folder.join(&name)).expect("a source"));
            (name, hash)
        })
        .collect();
    let recorded: Vec<(String, String)> = lines("source").iter().map(|l| (l[0].to_owned(), l[1].to_owned())).collect();
    assert_eq!(found, recorded, "run cargo xtask ptx");
    let texts: Vec<[String; 2]> =
        ALL.iter().map(|t| [format!("{}.ptx", t.name), sha256(t.text().as_bytes())]).collect();
    let recorded: Vec<[String; 2]> = lines("ptx").iter().map(|l| [l[0].to_owned(), l[1].to_owned()]).collect();
    assert_eq!(texts, recorded, "run cargo xtask ptx");
    let flags = lines("flags").concat();
    for flag in ["-fmad=false", "-ftz=false", "-prec-div=true", "-prec-sqrt=true"] {
        assert!(flags.contains(&flag), "{flag}");
    }
}

#[test]
fn every_kernel_assembles_for_every_generation_and_spills_nothing() {
    let entries = lines("entry");
    let mut seen = HashSet::new();
    for entry in &entries {
        let [name, target, "registers", registers, "spills", spills, "shared", shared] = entry[..] else {
            panic!("{entry:?}");
        };
        seen.insert((name, target));
        assert_eq!(spills, "0", "{entry:?}");
        // Four blocks of eight warps on a multiprocessor where weights are read once, two where tokens are many.
        // Products of floats have two blocks, or one where a lane has many sums in double precision.
        let half = ["trirun_", "marlin_", "sparse_", "tensor_"].iter().any(|start| name.starts_with(start));
        let float = ["f16_", "bf16_", "f32_"].iter().any(|start| name.starts_with(start));
        let most = match name {
            _ if float && !name.ends_with("_8") => 128,
            _ if float || half || name.ends_with("prefill") || name.starts_with("many_chains") => 255,
            _ if name.starts_with("many_") => 128,
            // Three blocks, whose products take a sixth of the shared memory.
            _ if name.starts_with("few_") => 80,
            _ => 64,
        };
        let registers: usize = registers.parse().expect("a number");
        assert!(registers <= most, "{entry:?}");
        let shared: usize = shared.parse().expect("a number");
        assert!(shared <= 48 << 10, "{entry:?}");
    }
    let mut expected = HashSet::new();
    let modules = ALL.map(|text| Module::parse(text.text()).expect("PTX"));
    for kernel in modules.iter().flat_map(Module::kernels) {
        expected.extend(TARGETS.map(|target| (kernel.name(), target)));
    }
    assert_eq!(seen, expected);
    assert_eq!(seen.len(), entries.len(), "an entry stands twice");
}

/// The guarantee of a text.
fn family(text: &Text) -> Family {
    match text.is_exact() {
        true if [ATTENTION, BETWEEN, CELLS, EXPERTS, FLOATS, GATE, RECURRENT, WHOLE].contains(text) => Family::Glibc,
        true if *text == PLANES => Family::Fused,
        true => Family::Exact,
        false => Family::Fast,
    }
}

#[test]
fn old_drivers_load_it_and_no_rounding_is_left_open() {
    for text in ALL {
        let module = Module::parse(text.text()).expect("PTX");
        assert_eq!((module.version.as_str(), module.target.as_str()), ("7.4", "sm_80"));
        assert_eq!(lint::broken_rules(text.text(), family(&text)), Vec::<String>::new(), "{}", text.name);
    }
    assert!(!lint::broken_rules(HALF.text(), Family::Exact).is_empty());
    assert!(!lint::broken_rules(EXPERTS.text(), Family::Exact).is_empty());
    assert!(!lint::broken_rules(PLANES.text(), Family::Exact).is_empty());
    for text in ALL.into_iter().filter(Text::is_exact) {
        // A planted contraction is found, so the lint looks at this text.
        let product = text.text().lines().find(|line| line.contains("mul.rn.f32")).expect("a product of floats");
        let fused = if text == PLANES { "mad.rn.f32" } else { "fma.rn.f32" };
        let planted = text.text().replacen(product, &format!("\t{fused} %f1, %f2, %f3, %f4;"), 1);
        assert_eq!(lint::broken_rules(&planted, family(&text)).len(), 1);
    }
}
