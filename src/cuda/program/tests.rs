use std::collections::BTreeSet;

use trine_formats::types::TypeId;

use super::*;

const LIMITS: Limits = Limits { tokens: 5, wanted: 2, context: 100, page: 16, pages: 21, slots: 2 };

const WIDTH: usize = 64;
const VOCABULARY: usize = 10;

/// Zeros of a matrix in half floats.
fn halves(rows: usize, columns: usize) -> Matrix<'static> {
    Matrix { name: "a matrix", ty: TypeId::F16, rows, columns, data: vec![0; 2 * rows * columns].leak(), scale: 1.0 }
}

/// A block of attention and what stands around it.
fn block(limits: Limits) -> Result<(Program, Vec<Weights<'static>>), ProgramError> {
    block_of(limits, None)
}

/// The same on a device that has its share of the matrices' rows.
fn block_of(limits: Limits, share: Option<Share>) -> Result<(Program, Vec<Weights<'static>>), ProgramError> {
    let gains: &[f32] = &[1.0; WIDTH];
    let mut r = Recorder::new(limits, VOCABULARY)?;
    share.map_or(Ok(()), |share| r.share(share))?;
    let x = r.embed(halves(VOCABULARY, WIDTH))?;
    let u = r.norm(x, gains, WIDTH, 1e-5)?;
    let [q, k, v] = [64, 32, 32].map(|rows| r.product(halves(rows, WIDTH), u));
    let (q, k, v) = (q?, k?, v?);
    let rotation = r.rotation(8, true)?;
    r.rotate(q, rotation, 16)?;
    r.rotate(k, rotation, 16)?;
    let heads = Heads { queries: 4, keys: 2, key_size: 16, value_size: 16 };
    let a = r.attend([q, k, v], heads, 0.25, Some((7, false)), &Rules::default())?;
    let y = r.product(halves(WIDTH, WIDTH), a)?;
    r.add(x, y);
    let u = r.norm(x, gains, WIDTH, 1e-5)?;
    let u = r.take_wanted(u)?;
    let logits = r.product(halves(VOCABULARY, WIDTH), u)?;
    r.finish(logits)
}

/// All launches of a pass.
fn flat(stretches: Result<Vec<Stretch>, ProgramError>) -> Vec<Call> {
    stretches.expect("launches").into_iter().flat_map(|stretch| stretch.calls).collect()
}

fn names(program: &Program, tokens: usize) -> Vec<String> {
    let calls = [program.body(tokens, 0, Caches::default()), program.logits_of(1, 0)].map(flat);
    calls.into_iter().flatten().map(|call| call.launch.kernel).collect()
}

#[test]
fn operations_become_launches_in_their_order() {
    let (program, weights) = block(LIMITS).expect("a program");
    assert_eq!(
        names(&program, 3),
        [
            "embed_f16",
            "rms_norm",
            "f16_product_8",
            "f16_product_8",
            "f16_product_8",
            "rope",
            "rope",
            "store",
            "store",
            "attend",
            "f16_product_8",
            "add_rms_norm",
            "take_rows",
            "f16_product_1"
        ]
    );
    // Every memory of weights is filled once, with as many bytes as were counted for it.
    let mut filled = vec![0; program.memories().len()];
    for weights in &weights {
        for (i, bytes) in weights.pack().expect("weights").iter().enumerate() {
            let memory = weights.memory + i;
            filled[memory] += 1;
            assert_eq!(program.memories()[memory].bytes, bytes.len());
        }
    }
    for (memory, filled) in program.memories().iter().zip(filled) {
        assert_eq!(filled, usize::from(memory.kind == Kind::Weights));
    }
    // Grids and counts follow the tokens; places do not, but of what a pass is told, which lies in one memory.
    let [few, many] = [1, 5].map(|tokens| flat(program.body(tokens, 0, Caches::default())));
    assert_eq!(few.len(), many.len());
    assert_eq!((few[0].launch.blocks[1], many[0].launch.blocks[1]), (1, 5));
    let memories = |call: &Call| -> Vec<Operand> {
        let of = call.operands.iter();
        let places = of.filter(|o| matches!(o, Operand::Memory(..))).copied();
        places
            .map(|o| if matches!(o, Operand::Memory(fixed::TOKENS, _)) { Operand::Memory(fixed::TOKENS, 0) } else { o })
            .collect()
    };
    let told = |calls: &[Call]| -> BTreeSet<usize> {
        let operands = calls.iter().flat_map(|call| &call.operands);
        operands.filter_map(|o| if let Operand::Memory(fixed::TOKENS, at) = o { Some(*at) } else { None }).collect()
    };
    // Numbers, places, cells, angles of eight pairs, and pages: of five tokens the first take 20 bytes, filled up to 32.
    assert_eq!(told(&few), BTreeSet::from([0, 16, 32, 64, 128]));
    assert_eq!(told(&many), BTreeSet::from([0, 32, 80, 176, 496]));
    assert_eq!(program.memories()[fixed::TOKENS].bytes, 496 + 5 * 7 * 4 + 4);
    assert!(few.iter().zip(&many).all(|(a, b)| memories(a) == memories(b)));
}

#[test]
fn devices_exchange_outputs_before_they_are_used() {
    let (whole, _) = block(LIMITS).expect("a program");
    let programs = [0, 1].map(|number| block_of(LIMITS, Some(Share::new(&[1.0, 1.0], number))).expect("a program"));
    for tokens in [1, 3] {
        let [first, second] = [0, 1].map(|number: usize| programs[number].0.body(tokens, 0, Caches::default()));
        let (first, second) = (first.expect("launches"), second.expect("launches"));
        // Queries before they are turned, and outputs of attention before they are added. Keys, values and logits have one
        // tile of rows.
        assert_eq!(first.len(), 3);
        for (a, b) in first.iter().zip(&second) {
            let kernels = |stretch: &Stretch| stretch.calls.iter().map(|c| c.launch.kernel.clone()).collect::<Vec<_>>();
            assert_eq!(kernels(a), kernels(b));
            let bounds = |stretch: &Stretch| stretch.exchange.as_ref().map(|e| e.pieces[0].bounds.clone());
            assert_eq!(bounds(a), bounds(b));
            assert!(bounds(a).is_none_or(|bounds| bounds == [0, 32, 64].map(|row| 4 * tokens * row)));
        }
        assert_eq!(first.iter().filter(|stretch| stretch.exchange.is_some()).count(), 2);
        // Rows of several tokens are put together, a part of each device at a time.
        let copies = flat(Ok(first)).iter().filter(|call| call.launch.kernel == "copy_part").count();
        assert_eq!(copies, if tokens == 1 { 0 } else { 2 * 2 });
    }
    // Each has half of two matrices of 64 x 64 half floats, and of the two bounds of each row.
    for (program, _) in &programs {
        assert_eq!(whole.table().weights - program.table().weights, 64 * 64 * 2 + 64 * 8);
        assert_eq!(program.memories()[fixed::PARTS].bytes, 4 * LIMITS.tokens * 64);
    }
}

#[test]
fn a_device_may_have_no_rows_of_a_matrix() {
    let shares = [3.0, 1.0];
    assert_eq!(Share::new(&shares, 1).rows(Some(TypeId::F16), 64), Some(64..64));
    let programs = [0, 1].map(|number| block_of(LIMITS, Some(Share::new(&shares, number))).expect("a program"));
    for (program, _) in &programs {
        let kernels = flat(program.body(2, 0, Caches::default()));
        assert!(!kernels.is_empty());
    }
}

#[test]
fn memory_is_counted_and_values_share_it() {
    let (program, _) = block(LIMITS).expect("a program");
    let table = program.table();
    assert_eq!(table.cells, 2 * 21 * 2 * 16 * 16 * 2);
    // Two numbers bound the sums of each row.
    let rows = VOCABULARY + 64 + 2 * 32 + 64 + VOCABULARY;
    let weights = rows * (2 * WIDTH + 8);
    // Both norms have the same gains, which are there once.
    assert_eq!(table.weights, (weights + 4 * WIDTH) as u64);
    let values = program.memories().iter().filter(|m| m.kind == Kind::Values);
    // The residual stream, its norm, queries, keys, values, the attention output, and the work.
    assert!(values.count() <= 7, "{:?}", program.memories());
    assert_eq!(
        table.to_string(),
        format!(
            "weights {:.1} MiB, keys and values {:.1} MiB, activations {:.1} MiB",
            table.weights as f64 / 1048576.0,
            table.cells as f64 / 1048576.0,
            table.values as f64 / 1048576.0
        )
    );
    assert_eq!(table.total(), table.weights + table.cells + table.values);
}

#[test]
fn a_table_that_is_multiplied_by_too_is_there_once() {
    let table = halves(VOCABULARY, WIDTH);
    let pruned: &BTreeSet<String> = Box::leak(Box::default());
    for is_fast in [false, true] {
        let mut r = Recorder::new(LIMITS, VOCABULARY).expect("a recorder");
        if is_fast {
            r.in_halves(pruned);
        }
        let x = r.embed(table).expect("rows");
        let x = r.take_wanted(x).expect("rows");
        let logits = r.product(table, x).expect("logits");
        let (program, weights) = r.finish(logits).expect("a program");
        assert_eq!(weights.len(), 1);
        assert_eq!(program.table().weights, (VOCABULARY * (2 * WIDTH + 8)) as u64);
    }
}

/// No value is overwritten while another one that is still to be read lies in its memory.
#[test]
fn values_that_share_a_memory_are_never_alive_together() {
    let (program, _) = block(LIMITS).expect("a program");
    let mut life: Vec<Option<(usize, usize)>> = vec![None; program.values.len()];
    for (at, operation) in program.operations.iter().enumerate() {
        operation.values(|value| {
            let (first, _) = life[value].unwrap_or((at, at));
            life[value] = Some((first, at));
        });
    }
    let pairs = (0..life.len()).flat_map(|a| (0..a).map(move |b| (a, b)));
    let mut shared = 0;
    for (a, b) in pairs.filter(|&(a, b)| program.values[a].memory == program.values[b].memory) {
        let (Some(a), Some(b)) = (life[a], life[b]) else {
            panic!("a value that nothing uses");
        };
        assert!(a.1 < b.0 || b.1 < a.0, "{a:?} and {b:?}");
        shared += 1;
    }
    assert!(shared > 0, "nothing shares memory");
}

#[test]
fn activations_are_quantized_once_until_they_change() {
    let matrix = Matrix { ty: TypeId::Q8_0, data: vec![0; 10 * 2 * 34].leak(), ..halves(10, WIDTH) };
    let mut r = Recorder::new(LIMITS, VOCABULARY).expect("a recorder");
    let x = r.embed(halves(VOCABULARY, WIDTH)).expect("rows");
    let x = r.take_wanted(x).expect("rows");
    for _ in 0..2 {
        r.product(matrix, x).expect("a product");
    }
    r.scale(x, 2.0);
    let logits = r.product(matrix, x).expect("a product");
    let (program, _) = r.finish(logits).expect("a program");
    let quantizers = names(&program, 1).into_iter().filter(|name| name == "quantize_q8_0");
    assert_eq!(quantizers.count(), 2);
}

/// A matrix of bytes.
fn bytes(rows: usize) -> Matrix<'static> {
    Matrix { ty: TypeId::Q8_0, data: vec![0; rows * 2 * 34].leak(), ..halves(rows, WIDTH) }
}

/// The kernels of a pass that begins with rows, does something to them and makes logits of the result.
fn kernels(
    record: impl Fn(&mut Recorder<'static>, Span) -> Result<Span, ProgramError>,
) -> Result<[Vec<String>; 2], ProgramError> {
    let mut r = Recorder::new(LIMITS, VOCABULARY)?;
    let x = r.embed(halves(VOCABULARY, WIDTH))?;
    let y = record(&mut r, x)?;
    let y = r.take_wanted(y)?;
    let logits = r.product(bytes(VOCABULARY), y)?;
    let (program, _) = r.finish(logits)?;
    let [body, head] = [program.body(3, 0, Caches::default())?, program.logits_of(1, 0)?];
    Ok([body, head].map(|stretches| flat(Ok(stretches)).into_iter().map(|call| call.launch.kernel).collect()))
}

#[test]
fn gates_quantize_what_products_alone_read() {
    const PRODUCT: &str = "q8_0_decode_8";
    let of = |record: &dyn Fn(&mut Recorder<'static>, Span) -> Result<Span, ProgramError>| {
        kernels(record).expect("launches")[0][1..].to_vec()
    };
    let alone = of(&|r, x| {
        r.gate(Gate::Silu, x, None);
        r.product(bytes(WIDTH), x)
    });
    assert_eq!(alone, ["gate_q8_0", PRODUCT]);
    let pruned: &BTreeSet<String> = Box::leak(Box::default());
    let halved = of(&|r, x| {
        r.in_halves(pruned);
        let up = r.product(halves(WIDTH, WIDTH), x)?;
        let gate = r.product(halves(WIDTH, WIDTH), x)?;
        r.gate(Gate::Relu, gate, Some(up));
        r.product(halves(WIDTH, WIDTH), gate)
    });
    assert_eq!(halved, ["halve", "tensor_f16_8", "tensor_f16_8", "gate_halves", "tensor_f16_8"]);
    // Something else reads the floats, or changes them.
    let read = of(&|r, x| {
        r.gate(Gate::Silu, x, None);
        let y = r.product(bytes(WIDTH), x)?;
        r.add(y, x);
        Ok(y)
    });
    assert_eq!(read, ["silu_alone", "quantize_q8_0", PRODUCT, "add"]);
    let changed = of(&|r, x| {
        r.gate(Gate::Silu, x, None);
        r.scale(x, 2.0);
        r.product(bytes(WIDTH), x)
    });
    assert_eq!(changed, ["silu_alone", "scale", "quantize_q8_0", PRODUCT]);
}

#[test]
fn norms_quantize_what_products_of_bytes_alone_read() {
    const GAINS: &[f32] = &[1.0; WIDTH];
    const PRODUCT: &str = "q8_0_decode_8";
    let head = ["take_rows", "quantize_q8_0", PRODUCT];
    let of = |record: &dyn Fn(&mut Recorder<'static>, Span) -> Result<Span, ProgramError>| {
        let [body, found] = kernels(record).expect("launches");
        assert_eq!(found, head);
        body[1..].to_vec()
    };
    let two = of(&|r, x| {
        let u = r.norm(x, GAINS, WIDTH, 1e-5)?;
        r.product(bytes(WIDTH), u)?;
        r.product(bytes(WIDTH), u)
    });
    assert_eq!(two, ["norm_q8_0", PRODUCT, PRODUCT]);
    let sum = of(&|r, x| {
        let y = r.product(bytes(WIDTH), x)?;
        r.add(x, y);
        let u = r.norm(x, GAINS, WIDTH, 1e-5)?;
        r.product(bytes(WIDTH), u)
    });
    assert_eq!(sum, ["quantize_q8_0", PRODUCT, "norm_q8_0", PRODUCT]);
    // A router reads the floats first; what reads them later has them too.
    let router = of(&|r, x| {
        let u = r.norm(x, GAINS, WIDTH, 1e-5)?;
        r.product(halves(4, WIDTH), u)?;
        let y = r.product(bytes(WIDTH), u)?;
        r.add(y, u);
        Ok(y)
    });
    assert_eq!(router, ["norm_q8_0", "f16_product_8", PRODUCT, "add"]);
    // Nothing else reads the norms that lie where their values were.
    let in_place = of(&|r, x| {
        r.norm_in_place(x, GAINS, WIDTH, 1e-5)?;
        r.product(bytes(WIDTH), x)
    });
    assert_eq!(in_place, ["norm_q8_0", PRODUCT]);
    // Others are read before they are quantized, by what may change them, or are no norms of whole rows; or they lie
    // where their values were, and something else reads them.
    let apart = [
        of(&|r, x| {
            let u = r.norm(x, GAINS, WIDTH, 1e-5)?;
            r.scale(u, 2.0);
            r.product(bytes(WIDTH), u)
        }),
        of(&|r, x| {
            let u = r.norm(x, &GAINS[..16], 16, 1e-5)?;
            r.product(bytes(WIDTH), u)
        }),
        of(&|r, x| {
            r.norm_in_place(x, GAINS, WIDTH, 1e-5)?;
            let y = r.product(bytes(WIDTH), x)?;
            r.add(y, x);
            Ok(y)
        }),
        of(&|r, x| {
            let u = r.layer_norm(x, GAINS, WIDTH, 1e-5)?;
            r.product(bytes(WIDTH), u)
        }),
    ];
    for kernels in apart {
        assert!(kernels.contains(&"quantize_q8_0".to_owned()), "{kernels:?}");
    }
    // The norm of all rows and the quantizer of some; then the norm of these.
    let [body, _] = kernels(|r, x| r.norm(x, GAINS, WIDTH, 1e-5)).expect("launches");
    assert_eq!(body[1..], ["rms_norm"]);
    let mut r = Recorder::new(LIMITS, VOCABULARY).expect("a recorder");
    let x = r.embed(halves(VOCABULARY, WIDTH)).expect("rows");
    let u = r.norm(x, GAINS, WIDTH, 1e-5).expect("rows");
    let y = r.product(bytes(WIDTH), u).expect("rows");
    let y = r.take_wanted(y).expect("rows");
    let u = r.norm(y, GAINS, WIDTH, 1e-5).expect("rows");
    let logits = r.product(bytes(VOCABULARY), u).expect("rows");
    let (program, _) = r.finish(logits).expect("a program");
    let all = names(&program, 2);
    assert_eq!(all, ["embed_f16", "norm_q8_0", PRODUCT, "take_rows", "norm_q8_0", PRODUCT]);
    // Where another part of the model reads the floats they are written.
    let mut r = Recorder::new(LIMITS, VOCABULARY).expect("a recorder");
    let x = r.embed(halves(VOCABULARY, WIDTH)).expect("rows");
    let u = r.norm(x, GAINS, WIDTH, 1e-5).expect("rows");
    let y = r.product(bytes(WIDTH), u).expect("rows");
    let (program, _) = r.finish_part(&[u, y]).expect("a program");
    let rules = |call: &Call| call.operands.last().copied();
    let calls = flat(program.body(1, 0, Caches::default()));
    assert_eq!((calls[1].launch.kernel.as_str(), rules(&calls[1])), ("norm_q8_0", Some(Operand::U32(2))));
    assert!(calls[1].operands.contains(&Operand::Memory(program.leaving().next().expect("a value").0, 0)));
}

#[test]
fn what_no_gpu_takes_is_refused() {
    let refused = |limits: Limits| block(limits).expect_err("a refusal").to_string();
    let huge = [
        Limits { page: 1 << 29, pages: 1 << 30, ..LIMITS },
        Limits { context: usize::MAX, ..LIMITS },
        Limits { pages: usize::MAX / 2, ..LIMITS },
        Limits { tokens: 1 << 29, ..LIMITS },
        Limits { tokens: 70_000, ..LIMITS },
        Limits { wanted: usize::MAX, ..LIMITS },
        Limits { tokens: 0, ..LIMITS },
    ];
    for limits in huge {
        let text = refused(limits);
        assert!(text.contains("more than"), "{limits:?}: {text}");
    }
    let (program, _) = block(LIMITS).expect("a program");
    for tokens in [0, 6] {
        assert!(program.body(tokens, 0, Caches::default()).is_err(), "{tokens}");
    }
    for wanted in [0, 3] {
        assert!(program.logits_of(wanted, 0).is_err(), "{wanted}");
    }
    let text = refused(Limits { page: 12, ..LIMITS });
    assert!(text.contains("pages of 12 positions"), "{text}");
}

#[test]
fn matrices_that_do_not_fit_are_refused_by_name() {
    let mut r = Recorder::new(LIMITS, VOCABULARY).expect("a recorder");
    let x = r.embed(halves(VOCABULARY, WIDTH)).expect("rows");
    let mut refused = |matrix: Matrix<'static>| r.product(matrix, x).expect_err("a refusal").to_string();
    assert_eq!(refused(halves(3, 32)), "the GPU has no kernel for a matrix: 32 columns for rows of 64");
    let of = |ty, rows, data: &'static [u8]| Matrix { ty, data, ..Matrix { rows, ..halves(0, WIDTH) } };
    assert!(refused(of(TypeId::Q2_0C, 1, &[])).contains("products with q2_0c"));
    assert!(refused(of(TypeId::Q8_0, 1, &[0; 67])).contains("67 elements, where 1 x 64 take 68"));
    assert!(refused(of(TypeId::Q6_K, 1, &[])).contains("64 columns are not whole blocks of 256"));
    for rows in [usize::MAX, usize::MAX / 128, 1 << 60] {
        let text = refused(of(TypeId::Q8_0, rows, &[]));
        assert!(text.contains("more than a GPU takes"), "{text}");
    }
    let table = r.embed(halves(VOCABULARY - 1, WIDTH));
    assert!(table.is_err(), "fewer rows than tokens");
    let table = of(TypeId::IQ4_XS, VOCABULARY, &[]);
    assert!(r.embed(table).is_err(), "no kernel decodes it");
}

#[test]
fn shapes_of_operations_are_checked() {
    let mut r = Recorder::new(LIMITS, VOCABULARY).expect("a recorder");
    let x = r.embed(halves(VOCABULARY, WIDTH)).expect("rows");
    assert!(r.norm(x, &[1.0; 48], 48, 0.0).is_err());
    assert!(r.norm(x, &[1.0; 64], 48, 0.0).is_err());
    assert!(r.norm(x, &[], 0, 0.0).is_err());
    assert!(r.add_row(x, &[0.0; 63]).is_err());
    let rotation = r.rotation(9, false).expect("angles");
    assert!(r.rotate(x, rotation, 16).is_err());
    assert!(r.rotate(x, rotation, 0).is_err());
    let heads = Heads { queries: 4, keys: 4, key_size: 16, value_size: 16 };
    for wrong in [
        Heads { keys: 0, ..heads },
        Heads { keys: 3, ..heads },
        Heads { queries: 8, ..heads },
        Heads { value_size: 8, ..heads },
    ] {
        assert!(r.attend([x; 3], wrong, 1.0, None, &Rules::default()).is_err(), "{wrong:?}");
    }
    assert!(r.attend([x; 3], heads, 1.0, Some((0, false)), &Rules::default()).is_err());
    let odd = Heads { queries: 1, keys: 1, key_size: 64, value_size: 64 };
    assert!(r.attend([x; 3], odd, 1.0, None, &Rules::default()).is_ok());
    assert!(r.finish(x).is_err(), "no logits");
}
