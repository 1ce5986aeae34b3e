//! Control flow, special registers, arguments, text.

use super::{module, run};
use trine_compat_tests::ptx::lint::Family;
use trine_compat_tests::ptx::{Argument, Device, Kind, Launch, Module, Schedule, lint};

#[test]
fn lanes_part_and_meet_again() {
    // The number of steps of Collatz's rule from 1 + the thread's number, with a loop that each lane leaves at another
    // time.
    let body = "add.s32 %r10, %r1, 1;\nmov.u32 %r11, 0;\nloop:\nsetp.eq.s32 %p1, %r10, 1;\n@%p1 bra done;\n\
                and.b32 %r12, %r10, 1;\nsetp.ne.s32 %p2, %r12, 0;\n@!%p2 bra even;\nmad.lo.s32 %r10, %r10, 3, 1;\nbra next;\n\
                even:\nshr.u32 %r10, %r10, 1;\nnext:\nadd.s32 %r11, %r11, 1;\nbra loop;\ndone:\nbar.sync 0;\n\
                mul.wide.u32 %rd3, %r1, 4;\nadd.s64 %rd3, %rd2, %rd3;\nst.global.u32 [%rd3], %r11;";
    let launch = Launch { threads: [64, 1, 1], ..Launch::default() };
    let (found, report) = run(body, 16, &[0], 256, &launch).expect("no fault");
    for (i, steps) in found.into_iter().enumerate() {
        let (mut n, mut expected) = (i + 1, 0);
        while n != 1 {
            n = if n % 2 == 1 { 3 * n + 1 } else { n / 2 };
            expected += 1;
        }
        assert_eq!(steps, expected, "from {}", i + 1);
    }
    assert!(report.instructions > 1000);
}

#[test]
fn special_registers_and_arguments() {
    let text = ".version 7.4 .target sm_80 .address_size 64 .extern .shared .align 16 .b8 more[];
        .visible .entry k(.param .u32 a, .param .u64 b, .param .u32 c) .maxntid 24, 1, 1 {
        .reg .b32 %r<20>; .reg .b64 %rd<9>; .shared .align 4 .b8 own[20];
        ld.param.u32 %r1, [a]; ld.param.u64 %rd1, [b]; ld.param.u32 %r2, [c];
        mov.u32 %r3, %tid.x; mov.u32 %r4, %tid.y; mov.u32 %r5, %tid.z; mov.u32 %r6, %ntid.y; mov.u32 %r7, %ctaid.x;
        mov.u32 %r8, %ctaid.y; mov.u32 %r9, %nctaid.x; mov.u32 %r10, %laneid; mov.u32 %r11, more;
        { .reg .b32 %r1; mov.u32 %r1, 5; }
        mad.lo.s32 %r12, %r5, 3, %r4; mad.lo.s32 %r12, %r12, 4, %r3;
        mad.lo.s32 %r13, %r8, %r9, %r7; mad.lo.s32 %r13, %r13, 24, %r12; mul.wide.u32 %rd2, %r13, 4; add.s64 %rd2, %rd1, %rd2;
        sub.s32 %r14, %r12, %r10; mad.lo.s32 %r14, %r6, 100, %r14; mad.lo.s32 %r14, %r11, 1000, %r14;
        mad.lo.s32 %r14, %r1, 100000, %r14; add.s32 %r14, %r14, %r2; st.global.u32 [%rd2], %r14; ret; }";
    let module = Module::parse(text).expect("a module");
    assert_eq!((module.version.as_str(), module.target.as_str()), ("7.4", "sm_80"));
    assert_eq!(module.kernels().len(), 1);
    let mut device = Device::new();
    let out = device.empty(4 * 24 * 6);
    let arguments = [Argument::U32(7), Argument::Buffer(out), Argument::U32(1_000_000)];
    let launch = Launch {
        blocks: [3, 2, 1],
        threads: [4, 3, 2],
        arguments: &arguments,
        schedule: Schedule::Random(4),
        ..Launch::default()
    };
    device.launch(&module, "k", &launch).expect("no fault");
    // Own shared memory has 20 bytes, so the launch's begins at 32.
    let expected = 1_000_000 + 700_000 + 32_000 + 300;
    let words = device.bytes(out).as_chunks::<4>().0;
    assert!(words.iter().all(|w| u32::from_le_bytes(*w) == expected));
    let refused = |launch: &Launch| device_refuses(&module, launch);
    refused(&Launch { threads: [25, 1, 1], ..launch.clone() });
    refused(&Launch { arguments: &arguments[..2], ..launch.clone() });
    refused(&Launch { arguments: &[arguments[0], arguments[0], arguments[2]], ..launch.clone() });
}

fn device_refuses(module: &Module, launch: &Launch) {
    let fault = Device::new().launch(module, "k", launch).expect_err("a refusal");
    assert_eq!(fault.kind, Kind::Launch, "{fault}");
}

#[test]
fn loads_fill_registers_as_their_types_say() {
    let body = "ld.global.u8 %r10, [%rd1];\nld.global.s8 %r11, [%rd1];\nld.global.u16 %r12, [%rd1+2];\nld.global.s16 %r13, [%rd1+2];\n\
                cvt.u32.u64 %r14, %rd1;\nst.global.v4.u32 [%rd2], {%r10,%r11,%r12,%r13};\nst.global.u16 [%rd2+16], %r11;\n\
                st.global.u8 [%rd2+18], %r12;\nst.global.u8 [%rd2+19], %r10;";
    let one = Launch { threads: [1, 1, 1], ..Launch::default() };
    let (found, _) = run(body, 16, &[0x8001_00f0], 20, &one).expect("no fault");
    assert_eq!(found, [0xf0, 0xffff_fff0, 0x8001, 0xffff_8001, 0xf001_fff0]);
    // Shared memory by generic addresses is translated back.
    let body = "mov.u32 %r2, s;\ncvt.u64.u32 %rd3, %r2;\ncvta.shared.u64 %rd4, %rd3;\ncvta.to.shared.u64 %rd5, %rd4;\n\
                st.shared.u32 [%rd5+4], 9;\nld.shared.u32 %r3, [s+4];\ncvta.to.global.u64 %rd6, %rd2;\nst.global.u32 [%rd6], %r3;";
    assert_eq!(run(body, 16, &[0], 4, &one).expect("no fault").0, [9]);
}

#[test]
fn text_that_is_not_understood_is_named() {
    let refused = |body: &str| {
        let text = format!(
            ".version 7.4\n.target sm_80\n.address_size 64\n.visible .entry k()\n{{\n.reg .b32 %r<9>;\n.reg .pred %p<2>;\n{body}\n}}"
        );
        Module::parse(&text).expect_err(body).to_string()
    };
    for (body, expected) in [
        ("ex2.approx.f32 %r1, %r2;", "line 8: unknown instruction 'ex2.approx.f32'"),
        ("add.sat.s32 %r1, %r2, %r3;", "line 8: unknown instruction 'add.sat.s32'"),
        ("ld.const.u32 %r1, [%r2];", "line 8: unknown instruction 'ld.const.u32'"),
        ("ld.global.v2.u32 %r1, [%r2];", "line 8: unknown instruction 'ld.global.v2.u32'"),
        (
            "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 %r1, %r1, %r1, %r1;",
            "line 8: unknown instruction 'mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32'",
        ),
        ("cp.async.cg.shared.global [%r1], [%r2], 8;", "line 8: unknown instruction 'cp.async.cg.shared.global'"),
        ("bar.sync 1;", "line 8: unknown instruction 'bar.sync'"),
        ("wgmma.fence.sync.aligned;", "line 8: unknown instruction 'wgmma.fence.sync.aligned'"),
        ("\nadd.s32 %r1, %r2;", "line 9: 'add.s32' with 2 operands"),
        ("add.s32 %r1, %r2, %r77;", "line 8: nothing is called '%r77'"),
        ("add.s32 5, %r2, %r3;", "line 8: Number(5) is no register"),
        ("bra nowhere;", "line 9: no label 'nowhere'"),
        ("here: here: ret;", "line 8: label 'here' stands twice"),
        ("mov.u32 %r1, 0x1g;", "line 8: '0x1g' is no number"),
        ("mov.u32 %r1, %r2", "line 7: a statement without an end"),
        ("§", "line 8: '§' is no part of PTX"),
        ("@%q ret;", "line 8: a guard that is no register"),
        (".local .b8 x[4];", "line 8: unknown directive '.local'"),
    ] {
        let found = refused(body);
        assert!(found.starts_with(expected), "{body}: {found}");
    }
    assert!(Module::parse(".global .b8 x[3];").is_err());
    let parsed = module(&[], 16, "/* a\ncomment */ ret; // and another");
    device_refuses(&parsed, &Launch { arguments: &[Argument::U64(0)], ..Launch::default() });
    device_refuses(&Module::parse("").expect("an empty module"), &Launch::default());
}

#[test]
fn what_exact_kernels_must_not_have_is_found() {
    let good = "mul.rn.f32 %f1, %f2, %f3;\nadd.rn.f64 %fd1, %fd1, %fd2; // fma.rn.f32\nmad.lo.s32 %r1, %r1, %r1, %r1;\n\
                mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {}, {}, {}, {};\natom.global.add.u32 %r1, [%rd1], 1;\nsub.s32 %r1, %r1, 1;";
    assert_eq!(lint::broken_rules(good, Family::Exact), Vec::<String>::new());
    for (line, reason) in [
        ("fma.rn.f32 %f1, %f1, %f1, %f1;", "rounded together"),
        ("fma.rn.f64 %f1, %f1, %f1, %f1;", "rounded together"),
        ("@%p1 mul.f32 %f1, %f1, %f1;", "contracted"),
        ("{add.f32 %f1, %f1, %f1;}", "contracted"),
        ("sub.f16x2 %r1, %r1, %r1;", "contracted"),
        ("rcp.approx.f32 %f1, %f1;", "approximation"),
        ("tanh.f32 %f1, %f1;", "approximation"),
        ("mul.rn.ftz.f32 %f1, %f1, %f1;", "normal"),
        ("red.global.add.f32 [%rd1], %f1;", "chance"),
        ("red.global.add.u32 [%rd1], %r1;", "no ticket"),
        ("atom.global.cas.b32 %r1, [%rd1], 0, 1;", "no ticket"),
        ("ld.acquire.gpu.global.u32 %r1, [%rd1];", "waits"),
        ("ld.volatile.global.u32 %r1, [%rd1];", "waits"),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {}, {}, {}, {};", "generation"),
    ] {
        let found = lint::broken_rules(&format!("{good}\n{line}"), Family::Exact);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("line 7: ") && found[0].contains(reason), "{found:?}");
        // Kernels with bits of their own may multiply f16 and round products and sums together, and no more.
        let fast = lint::broken_rules(line, Family::Fast);
        let allowed = ["rounded together", "generation"].contains(&reason);
        assert_eq!(fast.is_empty(), allowed, "{fast:?}");
    }
}
