//! Kernels with one mistake each, which has to be found, beside the same kernels without it, in which nothing may be
//! found.

use super::run;
use trine_compat_tests::ptx::{Fault, Kind, Launch, Schedule};

/// Schedules that every kernel is run under.
const SCHEDULES: [Schedule; 5] =
    [Schedule::InTurn, Schedule::Random(1), Schedule::Random(2), Schedule::Last(0), Schedule::Last(1)];

/// Two warps.
fn launch(schedule: Schedule) -> Launch<'static> {
    Launch { threads: [64, 1, 1], schedule, ..Launch::default() }
}

/// Runs a body under all schedules; the results, or the first fault.
fn results(body: &str) -> Result<Vec<u32>, Fault> {
    let input: Vec<u32> = (0..256).map(|i| i * 3).collect();
    let mut all = SCHEDULES.map(|schedule| run(body, 1024, &input, 256, &launch(schedule)).map(|r| r.0)).into_iter();
    let first = all.next().expect("a schedule")?;
    for other in all {
        assert_eq!(other?, first, "the order of warps shows");
    }
    Ok(first)
}

/// Checks that a body is right, and that each replacement in it is found as this kind under every schedule.
fn check(body: &str, mistakes: &[(&str, &str, Kind)]) -> Vec<u32> {
    let right = results(body).unwrap_or_else(|e| panic!("{e}\n{body}"));
    for (part, replacement, kind) in mistakes {
        assert!(body.contains(part), "{part} is no part of {body}");
        let wrong = body.replacen(part, replacement, 1);
        for schedule in SCHEDULES {
            let input: Vec<u32> = (0..256).map(|i| i * 3).collect();
            let fault = run(&wrong, 1024, &input, 256, &launch(schedule)).expect_err(part);
            assert_eq!(fault.kind, *kind, "{part} -> {replacement:?}: {fault}");
        }
    }
    right
}

/// Each thread's own dword of both buffers and of shared memory, and that of the thread across.
const PLACES: &str = "mul.wide.u32 %rd3, %r1, 4;\nadd.s64 %rd4, %rd1, %rd3;\nadd.s64 %rd5, %rd2, %rd3;\n\
     mov.u32 %r2, s;\nmad.lo.s32 %r3, %r1, 4, %r2;\nxor.b32 %r4, %r1, 63;\nmad.lo.s32 %r5, %r4, 4, %r2;\n";

#[test]
fn threads_that_exchange_values_need_a_barrier() {
    let body = format!(
        "{PLACES}ld.global.u32 %r10, [%rd4];\nst.shared.u32 [%r3], %r10;\nbar.sync 0;\nld.shared.u32 %r11, [%r5];\n\
         bar.sync 0; \nst.shared.u32 [%r3], %r11;\nst.global.u32 [%rd5], %r11;"
    );
    // The first warp reads what the second one has not written yet, or what it wrote without a barrier.
    let right = results(&body).expect("no fault");
    assert_eq!(right, (0..64).map(|i| (63 - i) * 3).collect::<Vec<u32>>());
    for schedule in SCHEDULES {
        let wrong = body.replacen("bar.sync 0;\n", "\n", 1);
        let fault = run(&wrong, 1024, &[0; 64], 256, &launch(schedule)).expect_err("a race");
        assert!(matches!(fault.kind, Kind::Race | Kind::Uninitialised), "{fault}");
        let wrong = body.replacen("bar.sync 0; \n", "\n", 1);
        let fault = run(&wrong, 1024, &[0; 64], 256, &launch(schedule)).expect_err("a race");
        assert_eq!(fault.kind, Kind::Race, "{fault}");
    }
}

#[test]
fn lanes_of_a_warp_need_a_barrier_of_the_warp() {
    let body = format!(
        "{PLACES}xor.b32 %r4, %r1, 1;\nmad.lo.s32 %r5, %r4, 4, %r2;\nld.global.u32 %r10, [%rd4];\n\
         st.shared.u32 [%r3], %r10;\nbar.warp.sync -1;\nld.shared.u32 %r11, [%r5];\nst.global.u32 [%rd5], %r11;"
    );
    let right = check(&body, &[("bar.warp.sync -1;", "", Kind::Race)]);
    assert_eq!(right[..4], [3, 0, 9, 6]);
}

#[test]
fn two_threads_do_not_write_one_byte() {
    let body = format!("{PLACES}st.shared.u32 [%r3], %r1;\nst.global.u32 [%rd5], %r1;");
    check(
        &body,
        &[
            ("st.shared.u32 [%r3]", "st.shared.u32 [s]", Kind::Race),
            ("st.global.u32 [%rd5]", "st.global.u32 [%rd2]", Kind::Race),
        ],
    );
}

/// Each warp copies and uses bytes of its own; then all use those of the others.
const COPY: &str = "mul.wide.u32 %rd3, %r1, 16;\nadd.s64 %rd4, %rd1, %rd3;\nmul.wide.u32 %rd5, %r1, 4;\nadd.s64 %rd5, %rd2, %rd5;\n\
     mov.u32 %r2, s;\nmad.lo.s32 %r3, %r1, 16, %r2;\nxor.b32 %r4, %r1, 63;\nmad.lo.s32 %r5, %r4, 16, %r2;\n\
     cp.async.cg.shared.global [%r3], [%rd4], 16;\ncp.async.commit_group;\ncp.async.wait_group 0;\nbar.sync 0;\n\
     ld.shared.v4.u32 {%r10,%r11,%r12,%r13}, [%r5];\nst.global.u32 [%rd5], %r13;";

#[test]
fn copies_are_waited_for_by_their_thread_and_then_by_all() {
    let overwritten = "st.shared.v4.u32 [%r3], {%r1,%r1,%r1,%r1};";
    let right = check(
        COPY,
        &[
            ("cp.async.wait_group 0;", "cp.async.wait_group 1;", Kind::InFlight),
            ("cp.async.wait_group 0;", "", Kind::InFlight),
            ("cp.async.commit_group;", "", Kind::InFlight),
            ("cp.async.wait_group 0;", overwritten, Kind::Race),
        ],
    );
    assert_eq!(right[..2], [255 * 3, 251 * 3]);
    for schedule in SCHEDULES {
        let wrong = COPY.replace("bar.sync 0;", "");
        let fault = run(&wrong, 1024, &[0; 256], 256, &launch(schedule)).expect_err("no barrier");
        assert!(matches!(fault.kind, Kind::Race | Kind::InFlight | Kind::Uninitialised), "{fault}");
    }
}

#[test]
fn a_copy_may_be_cut_short_and_wait_all_needs_no_group() {
    let body = COPY
        .replace("[%rd4], 16;", "[%rd4], 16, %r6;")
        .replace("mov.u32 %r2, s;", "mov.u32 %r2, s;\nmov.u32 %r6, 12;")
        .replace("cp.async.commit_group;\ncp.async.wait_group 0;", "cp.async.wait_all;");
    let (found, _) = run(&body, 1024, &[7; 256], 256, &launch(Schedule::InTurn)).expect("no fault");
    assert_eq!(found, [0; 64]);
    // Nothing is read at all, so the address may be any.
    let body = body.replace("%r6, 12", "%r6, 0").replace("[%rd4]", "[%rd4+512]");
    run(&body, 1024, &[7; 256], 256, &launch(Schedule::InTurn)).expect("no fault");
}

#[test]
fn groups_are_counted_newest_first() {
    // Two groups under way; waiting for all but one brings the first alone.
    let body = format!(
        "{}{}",
        PLACES.replace("mad.lo.s32 %r3, %r1, 4, %r2", "mad.lo.s32 %r3, %r1, 8, %r2"),
        "cp.async.ca.shared.global [%r3], [%rd4], 4;\ncp.async.commit_group;\n\
         cp.async.ca.shared.global [%r3+4], [%rd4], 4;\ncp.async.commit_group;\ncp.async.wait_group 1;\n\
         ld.shared.u32 %r10, [%r3];\nst.global.u32 [%rd5], %r10;"
    );
    let loose = |schedule| Launch { wavefronts: 2, ..launch(schedule) };
    for schedule in SCHEDULES {
        let input: Vec<u32> = (0..64).collect();
        let (found, _) = run(&body, 1024, &input, 256, &loose(schedule)).expect("no fault");
        assert_eq!(found, input);
        let wrong = body.replace("ld.shared.u32 %r10, [%r3];", "ld.shared.u32 %r10, [%r3+4];");
        let fault = run(&wrong, 1024, &input, 256, &loose(schedule)).expect_err("the second");
        assert_eq!(fault.kind, Kind::InFlight);
    }
}

#[test]
fn what_nobody_wrote_is_not_read() {
    let body = format!("{PLACES}st.shared.u32 [%r3], %r1;\nld.shared.u32 %r10, [%r3];\nst.global.u32 [%rd5], %r10;");
    check(
        &body,
        &[
            ("ld.shared.u32 %r10, [%r3]", "ld.shared.u32 %r10, [%r3+256]", Kind::Uninitialised),
            ("ld.shared.u32 %r10, [%r3]", "ld.global.u32 %r10, [%rd5]", Kind::Uninitialised),
            ("[%rd5], %r10", "[%rd5], %r11", Kind::Uninitialised),
            ("ld.shared.u32 %r10, [%r3]", "@%p1 mov.u32 %r10, 0", Kind::Uninitialised),
        ],
    );
}

#[test]
fn addresses_stay_in_their_buffers() {
    let body = format!("{PLACES}ld.global.u32 %r10, [%rd4];\nst.shared.u32 [%r3], %r10;\nst.global.u32 [%rd5], %r10;");
    check(
        &body,
        &[
            ("ld.global.u32 %r10, [%rd4]", "ld.global.u32 %r10, [%rd4+772]", Kind::OutOfBounds),
            ("ld.global.u32 %r10, [%rd4]", "ld.global.u32 %r10, [%rd4+-4]", Kind::OutOfBounds),
            ("ld.global.u32 %r10, [%rd4]", "ld.global.u32 %r10, [%rd4+2]", Kind::Misaligned),
            ("ld.global.u32 %r10, [%rd4]", "ld.global.v2.u32 {%r10,%r11}, [%rd4]", Kind::Misaligned),
            ("[%r3], %r10", "[%r3+772], %r10", Kind::OutOfBounds),
            ("[%r3], %r10", "[%r3+-4], %r10", Kind::OutOfBounds),
            ("[%r3], %r10", "[%r3+1], %r10", Kind::Misaligned),
            ("st.global.u32 [%rd5]", "st.global.u32 [%rd4]", Kind::OutOfBounds),
        ],
    );
}

#[test]
fn banks_give_one_dword_at_a_time() {
    let body = format!("{PLACES}st.shared.u32 [%r3], %r1;\nst.global.u32 [%rd5], %r1;");
    check(
        &body,
        &[("st.shared.u32 [%r3], %r1", "mad.lo.s32 %r3, %r1, 8, %r2;\nst.shared.u32 [%r3], %r1", Kind::BankConflict)],
    );
    // Lanes that read the same dword are served together; two wavefronts may be allowed.
    let body = format!("{PLACES}mad.lo.s32 %r3, %r1, 8, %r2;\nst.shared.u32 [%r3], %r1;\nst.global.u32 [%rd5], %r1;");
    let loose = Launch { wavefronts: 2, ..launch(Schedule::InTurn) };
    let (_, report) = run(&body, 1024, &[0], 256, &loose).expect("no fault");
    assert_eq!(report.worst_wavefronts, 2);
    // Two bytes are looked up in a table, at a place of each lane's own.
    let lookup = body
        .replace("st.shared.u32 [%r3], %r1;", ".reg .b16 %rs1;\ncvt.u16.u32 %rs1, %r1;\nst.shared.u16 [%r3], %rs1;");
    run(&lookup, 1024, &[0], 256, &launch(Schedule::InTurn)).expect("no fault");
    // 16 bytes a lane, every second chunk: two of eight lanes meet in each bank, which is never allowed.
    let body = format!("{PLACES}mad.lo.s32 %r3, %r1, 32, %r2;\nst.shared.v4.u32 [%r3], {{%r1,%r1,%r1,%r1}};");
    let narrow = Launch { threads: [32, 1, 1], wavefronts: 9, ..Launch::default() };
    let fault = run(&body, 1024, &[0], 0, &narrow).expect_err("a conflict");
    assert_eq!(fault.kind, Kind::BankConflict);
}

#[test]
fn warps_that_end_are_not_waited_for_and_loops_without_end_are_cut_off() {
    let body = "setp.lt.u32 %p1, %r1, 32;\n@%p1 bra there;\nbar.sync 0;\nthere:\n";
    for schedule in SCHEDULES {
        let fault = run(body, 16, &[0], 0, &launch(schedule)).expect_err("nobody comes");
        assert_eq!(fault.kind, Kind::Barrier, "{fault}");
    }
    let endless = Launch { budget: 1000, ..Launch::default() };
    let fault = run("again:\nbra again;", 16, &[0], 0, &endless).expect_err("no end");
    assert_eq!(fault.kind, Kind::Budget);
}

#[test]
fn a_fault_names_its_place() {
    let body = format!("{PLACES}st.shared.u32 [s], %r1;");
    let fault = run(&body, 16, &[0], 0, &Launch::default()).expect_err("a race");
    let text = fault.to_string();
    assert!(text.starts_with("k, line ") && text.contains("`st.shared.u32 [ s ] , %r1`"), "{text}");
    assert!(
        text.ends_with("thread 1: Race: byte 0 is written and was written by thread 0 with no barrier between"),
        "{text}"
    );
}
