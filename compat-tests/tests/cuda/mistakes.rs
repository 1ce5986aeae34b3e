//! The checked-in kernels with one mistake each. Every mistake has to be found within three schedules: by the emulator,
//! or by a bit that differs.

use trine_compat_tests::ptx::{Fault, Kind, Module, Schedule};
use trine_cuda::plan::Plan;
use trine_cuda::ptx::{DECODE, PREFILL, Text};
use trine_formats::types::TypeId;

use super::product::Product;

/// The text of one kernel of a module, replaced by what `change` makes of it.
pub fn with_mistake(text: Text, kernel: &str, change: impl Fn(&str) -> String) -> Module {
    let (before, changed, behind) = changed(text, kernel, change);
    Module::parse(&format!("{before}{changed}{behind}")).expect("PTX")
}

/// The same, without the other kernels of a long text.
pub fn alone_with_mistake(text: Text, kernel: &str, change: impl Fn(&str) -> String) -> Module {
    let (before, changed, _) = changed(text, kernel, change);
    let head = before.find(".visible").unwrap_or(before.len());
    Module::parse(&format!("{}.visible {changed}\n}}\n", &before[..head])).expect("PTX")
}

/// The text before a kernel, what `change` makes of it, and the text behind it.
fn changed(text: Text, kernel: &str, change: impl Fn(&str) -> String) -> (&'static str, String, &'static str) {
    let text = text.text();
    let start = text.find(&format!(".entry {kernel}(")).expect("the kernel");
    let end = text[start..].find("\n}").map_or(text.len(), |end| start + end);
    let changed = change(&text[start..end]);
    assert_ne!(changed, text[start..end], "nothing was changed");
    (&text[..start], changed, &text[end..])
}

/// How a mistake shows within three schedules: the kind of fault, or nothing where bits differ. `None` when it does not
/// show at all.
pub fn shows(expected: &[f32], run: impl Fn(Schedule) -> Result<Vec<f32>, Fault>) -> Option<Option<Kind>> {
    for schedule in [Schedule::InTurn, Schedule::Random(1), Schedule::Last(0)] {
        match run(schedule) {
            Err(fault) => return Some(Some(fault.kind)),
            Ok(out) => {
                let differ = |(a, b): (&f32, &f32)| a.to_bits() != b.to_bits();
                if out.iter().zip(expected).any(differ) {
                    return Some(None);
                }
            }
        }
    }
    None
}

/// How a mistake in a module shows.
fn found(product: &Product, module: &Module, plan: &Plan) -> Option<Option<Kind>> {
    shows(&product.expected(), |schedule| Ok(product.run_in(module, plan, schedule)?.0))
}

/// A product whose every output is a number, so that each wrong bit shows.
fn product(ty: TypeId, tokens: usize) -> Product {
    Product::usual(ty, 70, 2304, tokens, 21)
}

const TYPES: [(TypeId, &str); 3] = [(TypeId::TQ2_0, "tq2_0"), (TypeId::Q8_0, "q8_0"), (TypeId::Q4_0, "q4_0")];

#[test]
fn mistakes_in_the_pipeline_of_many_tokens() {
    for (ty, name) in TYPES {
        let product = product(ty, 70);
        let plan = product.plan_as(1, 1, false);
        let kernel = format!("{name}_prefill");
        let of = |change: &dyn Fn(&str) -> String| found(&product, &with_mistake(PREFILL, &kernel, change), &plan);
        let wait = of(&|text| text.replace("cp.async.wait_group 1;", "cp.async.wait_group 2;"));
        assert_eq!(wait, Some(Some(Kind::InFlight)), "{name}: a wait too few");
        let barrier = of(&|text| text.replacen("bar.sync", "// ", 1));
        assert!(
            matches!(barrier, Some(Some(Kind::Race | Kind::InFlight | Kind::Uninitialised))),
            "{name}: no barrier: {barrier:?}"
        );
        let commit = of(&|text| text.replace("cp.async.commit_group;", ""));
        assert_eq!(commit, Some(Some(Kind::InFlight)), "{name}: no groups");
        // Chunks are spread over the banks by an exclusive or; with another operation lanes meet in a bank, or read
        // what belongs to another one.
        let swizzle = of(&|text| text.replacen("xor.b32", "or.b32", 1));
        assert!(swizzle.is_some(), "{name}: another swizzle");
        let order = of(&|text| text.replacen("add.rn.f32", "sub.rn.f32", 1));
        assert_eq!(order, Some(None), "{name}: a difference instead of a sum");
        let lanes = of(&|text| {
            text.replacen(
                "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8",
                "mma.sync.aligned.m16n8k32.row.col.s32.s8.u8",
                1,
            )
            .replacen(
                "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8",
                "mma.sync.aligned.m16n8k32.row.col.s32.s8.u8",
                1,
            )
        });
        assert_eq!(lanes, Some(None), "{name}: another sign");
    }
}

#[test]
fn mistakes_in_the_exchange_of_few_tokens() {
    for (ty, name) in TYPES {
        let product = product(ty, 8);
        let plan = product.plan_as(3, 1, true);
        let kernel = format!("{name}_decode_8");
        let of = |change: &dyn Fn(&str) -> String| found(&product, &with_mistake(DECODE, &kernel, change), &plan);
        let first = of(&|text| text.replacen("bar.sync", "// ", 1));
        assert!(matches!(first, Some(Some(Kind::Race | Kind::Uninitialised))), "{name}: {first:?}");
        let second = of(&|text| {
            let (before, after) = text.split_once("bar.sync").expect("a barrier");
            format!("{before}bar.sync{}", after.replacen("bar.sync", "// ", 1))
        });
        assert!(matches!(second, Some(Some(Kind::Race | Kind::Uninitialised))), "{name}: {second:?}");
        let order = of(&|text| text.replace("add.rn.f32", "sub.rn.f32"));
        assert_eq!(order, Some(None), "{name}: a difference instead of a sum");
    }
}
