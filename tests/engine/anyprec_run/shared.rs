//! Files whose rows share tables compute as the same file with a table for every row.

use trine::model::{LoadOptions, NumberPath, Weights};
use trine_formats::anyprec::{AnyPrec, Header, MatrixExtents, Part, file_order};
use trine_formats::gguf::ModelFile;
use trine_formats::gguf::write::NewTensor;
use trine_kernels::testing::isas;
use trine_testkit::gguf;

use super::fixture::{WIDTHS, logits, made, model_file, options, session_of, tokens, width_of};
use super::widths::PATHS;

/// The file with tables of every row's own.
fn with_own_tables(model: &ModelFile) -> Vec<u8> {
    let ap = AnyPrec::read(model).expect("valid").expect("any-precision");
    let header = Header { tables: 0, ..ap.header().clone() };
    let mut meta = model.meta().clone();
    meta.remove("anyprec.table_count");
    header.write(&mut meta);
    let plain = model.tensors().filter(|t| !t.name.contains(Part::INFIX));
    let data = |name: &str| model.tensor(name).expect("it is there").data.to_vec();
    let mut tensors: Vec<(NewTensor, Vec<u8>)> = plain.map(|t| (NewTensor::from(t), data(&t.name))).collect();
    let matrices: Vec<MatrixExtents> = ap
        .tensors()
        .iter()
        .map(|t| MatrixExtents {
            name: t.name.clone(),
            columns: t.columns as u64,
            rows: t.rows as u64,
            groups: 1,
            tables: 0,
            sparse: 0,
        })
        .collect();
    for (i, part) in file_order(&matrices, &header.bits).into_iter().flat_map(|s| s.parts) {
        let matrix = &matrices[i];
        let bytes = match part {
            Part::Lut(width) => ap.view(model, &matrix.name, width).expect("a view").lut.to_vec(),
            part => data(&part.name(&matrix.name)),
        };
        tensors.push((matrix.tensor(part), bytes));
    }
    gguf::bytes(&meta, &tensors)
}

#[test]
fn shared_tables_give_the_logits_of_tables_of_their_own() {
    let shared = made(|recipe| recipe.anyprec.tables = Some(5));
    let file = model_file(shared.clone());
    let own = with_own_tables(&file);
    assert!(own.len() > shared.len() + shared.len() / 10, "{} {}", own.len(), shared.len());
    let own = model_file(own);
    let tokens = tokens(12);
    for path in PATHS {
        for width in [WIDTHS[0], WIDTHS[2]] {
            let expected = {
                let options = LoadOptions { isa: trine::Isa::scalar(), ..options(path) };
                let own = Weights::load(&own, &options).expect("a model");
                logits(&mut session_of(&own, width, 1), &tokens)
            };
            for isa in isas() {
                for (threads, repack) in [(1, true), (2, false)] {
                    let options = LoadOptions { isa, repack, ..options(path) };
                    let model = Weights::load(&file, &options).expect("a model");
                    let got = logits(&mut session_of(&model, width, threads), &tokens);
                    assert!(got == expected, "{path:?} {width} bits, {isa}, repack {repack}");
                }
            }
        }
    }
}

#[test]
fn a_width_of_shared_tables_can_be_taken_out() {
    let shared = made(|recipe| recipe.anyprec.tables = Some(5));
    let tokens = tokens(8);
    let options = options(NumberPath::I16);
    let all = Weights::load(&model_file(shared.clone()), &options).expect("a model");
    let four = Weights::load(&model_file(width_of(&shared, 4)), &options).expect("a model");
    assert_eq!(four.widths(), [4]);
    assert!(logits(&mut session_of(&all, 4, 2), &tokens) == logits(&mut session_of(&four, 4, 2), &tokens));
    // A download that stops behind 4 bits.
    let file = model_file(shared.clone());
    let last = |part: fn(u8) -> Part| {
        let ap = AnyPrec::read(&file).expect("valid").expect("any-precision");
        let ends = ap.tensors().iter().map(|t| {
            let info = file.tensor_info(&part(4).name(&t.name)).expect("it is there");
            (file.shards()[0].gguf.data_offset + info.offset + info.bytes) as usize
        });
        ends.max().expect("matrices")
    };
    let cut = Weights::load(&model_file(shared[..last(Part::Scale)].to_vec()), &options).expect("a model");
    assert_eq!(cut.widths(), [3, 4]);
    assert!(logits(&mut session_of(&all, 4, 2), &tokens) == logits(&mut session_of(&cut, 4, 2), &tokens));
    let short = Weights::load(&model_file(shared[..last(Part::Scale) - 1].to_vec()), &options).expect("a model");
    assert_eq!(short.widths(), [3]);
}
