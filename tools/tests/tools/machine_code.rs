//! The inner loops of widely linear products as the shipped program has them: what the processor does for every chunk
//! of sixteen columns.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, Instruction, OpKind};
use object::{Object, ObjectSection, ObjectSymbol};

/// All instructions of the function whose mangled name contains `name`.
fn function(name: &str) -> Vec<Instruction> {
    let program = trine_testkit::read(env!("CARGO_BIN_EXE_rgen").as_ref());
    let file = object::File::parse(&program[..]).expect("a program");
    let found = file.symbols().find(|s| s.name().is_ok_and(|n| n.contains(name)) && s.size() > 0);
    let symbol = found.unwrap_or_else(|| panic!("{name} is not in the program"));
    let section = symbol.section_index().expect("a section");
    let section = file.section_by_index(section).expect("a section");
    let code = section.data_range(symbol.address(), symbol.size());
    let code = code.expect("readable").expect("code");
    Decoder::with_ip(64, code, symbol.address(), DecoderOptions::NONE).iter().collect()
}

/// The loops that have no loop inside: from the target of a jump backwards to the jump.
fn inner_loops(code: &[Instruction]) -> Vec<&[Instruction]> {
    let jumps = code.iter().enumerate().filter_map(|(end, i)| {
        let backwards =
            mnemonic(i).starts_with('j') && i.op0_kind() == OpKind::NearBranch64 && i.near_branch_target() <= i.ip();
        let start = code.iter().position(|j| j.ip() == i.near_branch_target());
        start.filter(|_| backwards).map(|start| start..end + 1)
    });
    let all: Vec<Range<usize>> = jumps.collect();
    let has_none_inside = |r: &&Range<usize>| {
        let inside = |o: &&Range<usize>| *o != *r && r.start <= o.start && o.end <= r.end;
        !all.iter().any(|o| inside(&o))
    };
    let inner = all.iter().filter(has_none_inside);
    inner.map(|r| &code[r.clone()]).collect()
}

fn mnemonic(i: &Instruction) -> String {
    format!("{:?}", i.mnemonic()).to_lowercase()
}

fn count(code: &[Instruction], name: &str) -> usize {
    code.iter().filter(|i| mnemonic(i) == name).count()
}

fn starts_with_one(name: &str, starts: &[&str]) -> bool {
    starts.iter().any(|start| name.starts_with(start))
}

/// Multiplications of any kind: of integers, floats, fused with additions, dot products.
fn multiplies(i: &Instruction) -> bool {
    let starts = ["mul", "imul", "vmul", "vfm", "vfnm", "vdp", "vpdp", "vpmul", "vpmadd"];
    starts_with_one(&mnemonic(i), &starts)
}

/// Shifts and rotations of vectors and of registers, by whatever. Those of mask registers are by constants alone: there
/// is no other form.
fn shifts(i: &Instruction) -> bool {
    let vectors = ["vpsl", "vpsr", "vprol", "vpror"];
    let registers = ["shl", "shr", "sal", "sar", "rol", "ror", "rcl", "rcr"];
    starts_with_one(&mnemonic(i), &[&vectors[..], &registers[..]].concat())
}

/// True if the distance of a shift is written in the instruction, so that no data decides it.
fn by_a_constant(i: &Instruction) -> bool {
    i.op_kind(i.op_count() - 1) == OpKind::Immediate8
}

fn stores_a_vector(i: &Instruction) -> bool {
    i.op0_kind() == OpKind::Memory && mnemonic(i).starts_with("vmov")
}

/// Instruction counts of one turn of a kernel's inner loop.
struct Turn {
    /// The function that the loop is in.
    kernel: &'static str,
    /// The instruction that selects or changes signs, and is in no other loop of the function that adds.
    selects: &'static str,
    /// Additions of vectors.
    adds: usize,
    /// Subtractions of vectors.
    subtractions: usize,
    /// Extractions of bits.
    pext: usize,
    /// Shifts, all of them by a constant.
    shifts: usize,
}

const TURNS: [Turn; 8] = [
    // of one stream: four accumulators of two registers
    Turn { kernel: "word_sums_avx2", selects: "vpcmpeqd", adds: 8, subtractions: 0, pext: 0, shifts: 0 },
    // the same for a lane of sixteen rows, whose words move on to the next code
    Turn { kernel: "lane_sums_avx2", selects: "vpermilps", adds: 8, subtractions: 0, pext: 0, shifts: 2 },
    // the same of two streams, whose rows have one register each
    Turn { kernel: "9tables5128multiply", selects: "vpermilps", adds: 8, subtractions: 0, pext: 0, shifts: 2 },
    // of sixteen tokens: a step of two chains, real and imaginary parts, in two registers each; a step's number becomes
    // its place by a shift
    Turn { kernel: "5batch11chains_avx2", selects: "tzcnt", adds: 8, subtractions: 0, pext: 0, shifts: 2 },
    // the same in one register each
    Turn { kernel: "5batch13chains_avx512", selects: "tzcnt", adds: 4, subtractions: 0, pext: 0, shifts: 2 },
    // the same by lists of places
    Turn { kernel: "5batch12chains_vbmi2", selects: "movzx", adds: 4, subtractions: 0, pext: 0, shifts: 0 },
    // of four streams: four accumulators each; the passes of two streams have half as many
    Turn { kernel: "plane_sums_avx512", selects: "vblendmps", adds: 16, subtractions: 0, pext: 0, shifts: 0 },
    Turn { kernel: "word_sums_avx512", selects: "pext", adds: 16, subtractions: 16, pext: 8, shifts: 0 },
];

#[test]
fn inner_loops_add_and_do_not_multiply() {
    for turn in TURNS {
        let code = function(turn.kernel);
        let mut loops = inner_loops(&code);
        loops.retain(|l| count(l, turn.selects) > 0 && count(l, "vaddps") > 0);
        let longest = loops.iter().max_by_key(|l| l.len());
        let longest = longest.unwrap_or_else(|| panic!("{} has no inner loop", turn.kernel));
        for code in &loops {
            let shown = || -> Vec<String> { code.iter().map(mnemonic).collect() };
            let multiplies = code.iter().any(multiplies);
            assert!(!multiplies, "{} multiplies: {:?}", turn.kernel, shown());
            let shifts: Vec<_> = code.iter().filter(|i| shifts(i)).collect();
            assert!(
                shifts.iter().all(|i| turn.shifts > 0 && by_a_constant(i)),
                "{} shifts: {:?}",
                turn.kernel,
                shown()
            );
            let stores = code.iter().any(stores_a_vector);
            assert!(!stores, "{} stores sums: {:?}", turn.kernel, shown());
        }
        // a loop may have several turns at a time
        let adds = count(longest, "vaddps");
        let turns = adds / turn.adds;
        assert!(turns > 0, "{} adds {adds} times", turn.kernel);
        assert_eq!(adds, turns * turn.adds, "{}", turn.kernel);
        let counts = [count(longest, "vsubps"), count(longest, "pext"), longest.iter().filter(|i| shifts(i)).count()];
        let wanted = [turn.subtractions, turn.pext, turn.shifts].map(|n| turns * n);
        assert_eq!(counts, wanted, "{}: subtractions, pext, shifts", turn.kernel);
    }
}

/// That the test above sees what it looks for: a block with 8-bit activations multiplies, and shifts by a constant.
#[test]
fn multiplications_and_shifts_are_seen_where_they_are() {
    let code = function("8bytes2564half");
    assert!(code.iter().any(multiplies));
    assert!(code.iter().any(|i| shifts(i) && by_a_constant(i)));
}
