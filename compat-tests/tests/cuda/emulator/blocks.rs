//! Atomic operations, and what one block may know of another.

use trine_compat_tests::ptx::{Argument, Device, Fault, Kind, Launch, Schedule};

use super::module;

const BLOCKS: u32 = 5;

/// Every block writes 100 + its number, once for each of 64 threads, takes a ticket, and the last one adds what all
/// have written. `parts` are what stands between the write and the ticket, at the ticket, and behind it.
fn meet([before, ticket, behind]: [&str; 3], schedule: Schedule) -> Result<Vec<u32>, Fault> {
    let body = format!(
        "ld.param.u64 %rd1, [a0];\nld.param.u64 %rd2, [a1];\nld.param.u64 %rd3, [a2];\nmov.u32 %r1, %tid.x;\nmov.u32 %r2, %ctaid.x;\n\
         mad.lo.s32 %r3, %r2, 64, %r1;\nmul.wide.u32 %rd4, %r3, 4;\nadd.s64 %rd5, %rd1, %rd4;\nadd.s32 %r4, %r2, 100;\n\
         mov.u32 %r10, s;\nst.global.u32 [%rd5], %r4;\n{before}\nsetp.ne.s32 %p1, %r1, 0;\n@%p1 bra together;\n\
         {ticket}\nst.shared.u32 [%r10], %r5;\n{behind}\ntogether:\nbar.sync 0;\nld.shared.u32 %r5, [%r10];\n\
         setp.ne.s32 %p2, %r5, {};\n@%p2 bra end;\nmul.wide.u32 %rd6, %r1, 4;\nadd.s64 %rd7, %rd1, %rd6;\nmov.u32 %r6, 0;\n\
         mov.u32 %r7, 0;\nloop:\nld.global.u32 %r8, [%rd7];\nadd.s32 %r6, %r6, %r8;\nadd.s64 %rd7, %rd7, 256;\nadd.s32 %r7, %r7, 1;\n\
         setp.lt.u32 %p3, %r7, {BLOCKS};\n@%p3 bra loop;\nadd.s64 %rd8, %rd3, %rd6;\nst.global.u32 [%rd8], %r6;\nend:\nret;",
        BLOCKS - 1
    );
    let module = module(&["u64", "u64", "u64"], 16, &body);
    let mut device = Device::new();
    let workspace = device.empty(4 * 64 * BLOCKS as usize);
    let tickets = device.variable(vec![0; 4]);
    let out = device.empty(4 * 64);
    let launch = Launch {
        blocks: [BLOCKS, 1, 1],
        threads: [64, 1, 1],
        arguments: &[workspace, tickets, out].map(Argument::Buffer),
        schedule,
        ..Launch::default()
    };
    device.launch(&module, "k", &launch)?;
    assert_eq!(device.bytes(tickets), BLOCKS.to_le_bytes(), "a sum of tickets");
    let words = device.bytes(out).as_chunks::<4>().0;
    Ok(words.iter().map(|w| u32::from_le_bytes(*w)).collect())
}

const FENCE: &str = "fence.acq_rel.gpu;";
const BARRIER: &str = "bar.sync 0;";
const TICKET: &str = "atom.relaxed.gpu.global.add.u32 %r5, [%rd2], 1;";
const SCHEDULES: [Schedule; 3] = [Schedule::InTurn, Schedule::Random(3), Schedule::Last(1)];

#[test]
fn the_last_block_knows_what_all_have_written() {
    let one = format!("{FENCE}\n{TICKET}");
    let old = format!("membar.gl;\n{}", TICKET.replace("relaxed.gpu.", ""));
    for parts in [[BARRIER, one.as_str(), FENCE], [BARRIER, old.as_str(), "membar.gl;"]] {
        for schedule in SCHEDULES {
            let found = meet(parts, schedule).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(found, [100 + 101 + 102 + 103 + 104; 64]);
        }
    }
}

#[test]
fn without_a_fence_or_a_barrier_it_does_not() {
    let each = format!("{FENCE}\n{BARRIER}");
    let one = format!("{FENCE}\n{TICKET}");
    let late = format!("{TICKET}\n{FENCE}");
    for (parts, what) in [
        ([BARRIER, TICKET, FENCE], "no fence before the ticket"),
        ([BARRIER, one.as_str(), ""], "no fence behind the ticket"),
        (["", one.as_str(), FENCE], "no barrier before the ticket"),
        // A fence orders what comes before it, and what others wrote comes behind the barrier.
        ([each.as_str(), TICKET, FENCE], "fences before the barrier"),
        ([BARRIER, late.as_str(), ""], "a fence too late"),
        (["", TICKET, ""], "nothing"),
    ] {
        for schedule in SCHEDULES {
            let fault = meet(parts, schedule).expect_err(what);
            assert_eq!(fault.kind, Kind::Race, "{what}: {fault}");
        }
    }
}

#[test]
fn tickets_are_not_written_as_other_words_are() {
    // A plain store to a word that other blocks apply atomic operations to, before anything orders the two.
    let store = format!("{FENCE}\n{TICKET}\nst.global.u32 [%rd2], %r5;");
    let fault = meet([BARRIER, &store, FENCE], Schedule::InTurn).expect_err("a race");
    assert_eq!(fault.kind, Kind::Race, "{fault}");
    // And one that nobody has written.
    let body = "ld.param.u64 %rd2, [a0];\natom.relaxed.gpu.global.add.u32 %r5, [%rd2], 1;\nret;";
    let mut device = Device::new();
    let launch = Launch { arguments: &[Argument::Buffer(device.empty(4))], ..Launch::default() };
    let fault = device.launch(&module(&["u64"], 16, body), "k", &launch).expect_err("nothing to add to");
    assert_eq!(fault.kind, Kind::Uninitialised);
}

#[test]
fn lanes_add_one_after_the_other() {
    let body = "ld.param.u64 %rd1, [a0];\nld.param.u64 %rd2, [a1];\nmov.u32 %r1, %tid.x;\nmul.wide.u32 %rd3, %r1, 4;\n\
                add.s64 %rd3, %rd1, %rd3;\nadd.s32 %r2, %r1, 0xfffffff0;\natom.global.add.u32 %r3, [%rd2], %r2;\n\
                st.global.u32 [%rd3], %r3;\nret;";
    let mut device = Device::new();
    let (out, sum) = (device.empty(128), device.variable(vec![7, 0, 0, 0]));
    let launch = Launch { arguments: &[Argument::Buffer(out), Argument::Buffer(sum)], ..Launch::default() };
    device.launch(&module(&["u64", "u64"], 16, body), "k", &launch).unwrap_or_else(|e| panic!("{e}"));
    let mut expected = 7u32;
    for (lane, found) in device.bytes(out).as_chunks::<4>().0.iter().enumerate() {
        assert_eq!(u32::from_le_bytes(*found), expected);
        expected = expected.wrapping_add(lane as u32).wrapping_sub(16);
    }
    assert_eq!(device.bytes(sum), expected.to_le_bytes());
}

#[test]
fn nothing_is_left_of_an_earlier_block() {
    // Only the first block to run writes a register, shared memory, or begins a copy.
    let uses = [
        ("@%p1 mov.u32 %r5, 1;\nadd.s32 %r6, %r5, 1;", Kind::Uninitialised),
        ("@%p1 st.shared.u32 [%r10], %r1;\nld.shared.u32 %r6, [%r10];", Kind::Uninitialised),
        (
            "@%p1 cp.async.ca.shared.global [%r10], [%rd1], 4;\ncp.async.wait_all;\nld.shared.u32 %r6, [%r10];",
            Kind::Uninitialised,
        ),
    ];
    for (body, kind) in uses {
        let body = format!(
            "ld.param.u64 %rd1, [a0];\nmov.u32 %r1, %ctaid.x;\nmov.u32 %r10, s;\nsetp.eq.s32 %p1, %r1, 0;\n{body}\nret;"
        );
        let module = module(&["u64"], 16, &body);
        let run = |blocks: u32| {
            let mut device = Device::new();
            let arguments = [Argument::Buffer(device.constant(vec![0; 4]))];
            // One thread, so that none is in another's way.
            let launch =
                Launch { blocks: [blocks, 1, 1], threads: [1, 1, 1], arguments: &arguments, ..Launch::default() };
            device.launch(&module, "k", &launch)
        };
        run(1).unwrap_or_else(|e| panic!("{e}"));
        let fault = run(2).expect_err("what the first block has left");
        assert_eq!((fault.kind, fault.block), (kind, [1, 0, 0]), "{fault}");
    }
}

#[test]
fn a_launch_comes_after_all_before_it_and_its_blocks_are_counted_from_zero() {
    // Every block writes the same word.
    let body = "ld.param.u64 %rd1, [a0];\nmov.u32 %r1, %ctaid.x;\nst.global.u32 [%rd1], %r1;\nret;";
    let store = module(&["u64"], 16, body);
    let body = "ld.param.u64 %rd1, [a0];\natom.global.add.u32 %r1, [%rd1], 1;\nret;";
    let add = module(&["u64"], 16, body);
    let mut device = Device::new();
    let word = device.variable(vec![0; 4]);
    let mut run = |module, blocks: u32| {
        let arguments = [Argument::Buffer(word)];
        let launch = Launch { blocks: [blocks, 1, 1], threads: [1, 1, 1], arguments: &arguments, ..Launch::default() };
        device.launch(module, "k", &launch)
    };
    for module in [&store, &add, &add, &store, &store] {
        run(module, 1).unwrap_or_else(|e| panic!("{e}"));
    }
    let fault = run(&store, 3).expect_err("a race");
    assert!(fault.kind == Kind::Race && fault.block == [1, 0, 0], "{fault}");
    assert!(fault.what.contains("thread 0 of block number 0 "), "{fault}");
}

#[test]
fn a_read_before_an_atomic_operation_has_to_be_ordered() {
    // The first block, or the first thread, reads and the second one adds; an earlier launch has added too.
    for (place, blocks, threads) in [("%ctaid.x", 2, 1), ("%tid.x", 1, 2)] {
        let body = format!(
            "ld.param.u64 %rd1, [a0];\nmov.u32 %r1, {place};\nsetp.eq.s32 %p1, %r1, 0;\n\
             @%p1 ld.global.u32 %r2, [%rd1];\n@!%p1 atom.global.add.u32 %r1, [%rd1], 1;\nret;"
        );
        let both = module(&["u64"], 16, &body);
        let add = module(&["u64"], 16, "ld.param.u64 %rd1, [a0];\natom.global.add.u32 %r1, [%rd1], 1;\nret;");
        let mut device = Device::new();
        let word = device.variable(vec![0; 4]);
        let mut run = |module| {
            let arguments = [Argument::Buffer(word)];
            let (blocks, threads) = ([blocks, 1, 1], [threads, 1, 1]);
            device.launch(module, "k", &Launch { blocks, threads, arguments: &arguments, ..Launch::default() })
        };
        run(&add).unwrap_or_else(|e| panic!("{e}"));
        let fault = run(&both).expect_err("a race");
        assert_eq!(
            (fault.kind, fault.block, fault.thread),
            (Kind::Race, [blocks - 1, 0, 0], threads as usize - 1),
            "{fault}"
        );
    }
}
