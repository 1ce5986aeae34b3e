use trine::model::{LoadOptions, NumberPath, Weights};
use trine_formats::anyprec::{AnyPrec, Part};
use trine_formats::gguf::{Limits, ModelFile};
use trine_kernels::testing::isas;

use super::fixture::{WIDTHS, files, logits, model_file, options, session, session_of, tokens, whole};

pub const PATHS: [NumberPath; 2] = [NumberPath::F32, NumberPath::I16];

fn floats(logits: &[Vec<u32>]) -> impl Iterator<Item = f32> {
    logits.iter().flatten().map(|&bits| f32::from_bits(bits))
}

/// Largest difference, as a share of the largest logit.
fn distance(a: &[Vec<u32>], b: &[Vec<u32>]) -> f32 {
    let largest = floats(a).fold(0.0f32, |max, l| max.max(l.abs()));
    let differences = floats(a).zip(floats(b)).map(|(a, b)| (a - b).abs());
    differences.fold(0.0f32, f32::max) / largest
}

#[test]
fn every_width_computes_with_its_weights() {
    let tokens = tokens(40);
    let mut all = Vec::new();
    for (width, plain) in WIDTHS.into_iter().zip(&files().plain) {
        let model = Weights::load(&model_file(plain.clone()), &options(NumberPath::F32));
        let mut plain = trine::step::Session::new(
            &model.expect("a model"),
            &trine::pool::Pool::new(2).expect("threads"),
            trine::step::SessionOptions { n_ctx: 64, n_ubatch: 512 },
        );
        assert_eq!(plain.bits(), None);
        let expected = logits(&mut plain, &tokens);
        for (path, most) in [(NumberPath::F32, 1e-3), (NumberPath::I16, 0.05)] {
            let got = logits(&mut session(&whole(path), width), &tokens);
            let distance = distance(&expected, &got);
            assert!(distance < most, "{path:?} {width} bits: {distance}");
        }
        all.push(expected);
    }
    // and these are not the same at all widths
    for (a, b) in [(0, 1), (1, 2)] {
        assert!(distance(&all[a], &all[b]) > 0.01);
    }
}

#[test]
fn a_width_by_itself_gives_the_same_logits() {
    let tokens = tokens(20);
    for path in PATHS {
        let whole = whole(path);
        assert_eq!(whole.widths(), WIDTHS);
        for (width, single) in WIDTHS.into_iter().zip(&files().single) {
            let model = Weights::load(&model_file(single.clone()), &options(path)).expect("a model");
            assert_eq!(model.widths(), [width]);
            let expected = logits(&mut session(&whole, width), &tokens);
            assert!(logits(&mut session(&model, width), &tokens) == expected);
        }
    }
}

#[test]
fn neither_threads_nor_instructions_nor_batches_change_a_bit() {
    let file = model_file(files().whole.clone());
    let tokens = tokens(24);
    for path in PATHS {
        for bits in [3, 6] {
            let expected = logits(&mut session(&whole(path), bits), &tokens);
            for isa in isas() {
                for (threads, repack) in [(1, true), (3, true), (2, false)] {
                    let options = LoadOptions { isa, repack, ..options(path) };
                    let model = Weights::load(&file, &options).expect("a model");
                    let mut session = session_of(&model, bits, threads);
                    let mut got = Vec::new();
                    // one token, a few, many
                    let mut rest = &tokens[..];
                    for n in [1, 2, 1, 5, 15] {
                        let (some, after) = rest.split_at(n);
                        got.extend(logits(&mut session, some));
                        rest = after;
                    }
                    assert!(got == expected, "{path:?} {bits} bits, {isa}, {threads} threads, repack {repack}");
                }
            }
        }
    }
}

#[test]
fn the_width_changes_between_evaluations() {
    let (tokens, model) = (tokens(60), whole(NumberPath::I16));
    let mut changing = session(&model, 6);
    assert_eq!(changing.bits(), Some(6));
    let first = logits(&mut changing, &tokens[..30]);
    // a few tokens at another width, taken back
    changing.set_bits(3).expect("a width of the file");
    let low = logits(&mut changing, &tokens[30..36]);
    changing.truncate(30);
    changing.set_bits(6).expect("a width of the file");
    let second = logits(&mut changing, &tokens[30..]);
    let expected = logits(&mut session(&model, 6), &tokens);
    assert!(first == expected[..30]);
    assert!(low != expected[30..36]);
    assert!(second == expected[30..]);
    // what was evaluated at one width is the context of another
    let mut mixed = session(&model, 6);
    logits(&mut mixed, &tokens[..30]);
    mixed.set_bits(3).expect("a width of the file");
    assert!(logits(&mut mixed, &tokens[30..36]) == low);
    assert!(low != logits(&mut session(&model, 3), &tokens[..36])[30..]);
}

/// Where in the file a part of every matrix is.
fn places(file: &ModelFile, part: Part) -> Vec<std::ops::Range<usize>> {
    let gguf = &file.shards()[0].gguf;
    let of = |name: &str| {
        let info = file.tensor_info(&part.name(name)).expect("it is there");
        let start = (gguf.data_offset + info.offset) as usize;
        start..start + info.bytes as usize
    };
    let anyprec = AnyPrec::read(file).expect("valid").expect("any-precision");
    anyprec.tensors().iter().map(|t| of(&t.name)).collect()
}

#[test]
fn only_the_planes_of_the_width_are_read() {
    let bytes = &files().whole;
    let file = model_file(bytes.clone());
    let tokens = tokens(20);
    for (path, repack) in PATHS.into_iter().flat_map(|p| [(p, true), (p, false)]) {
        let options = |path| LoadOptions { repack, ..options(path) };
        let model = whole(path);
        for width in [3u8, 4] {
            let expected = logits(&mut session(&model, width), &tokens);
            let mut damaged = bytes.clone();
            let planes = (width..6).map(Part::Plane);
            let luts = WIDTHS.into_iter().filter(|b| *b != width).map(Part::Lut);
            for part in planes.chain(luts) {
                for (i, range) in places(&file, part).into_iter().enumerate() {
                    damaged[range].fill(0x5A ^ i as u8);
                }
            }
            let damaged = Weights::load(&model_file(damaged), &options(path)).expect("a model");
            assert!(logits(&mut session(&damaged, width), &tokens) == expected);
            assert!(logits(&mut session(&damaged, 6), &tokens) != expected);

            let end = places(&file, Part::Lut(width)).last().expect("matrices").end;
            let cut = Weights::load(&model_file(bytes[..end].to_vec()), &options(path));
            let cut = cut.expect("a model");
            assert_eq!(cut.widths(), if width == 3 { &[3][..] } else { &[3, 4] });
            let mut session = session(&cut, width);
            assert!(logits(&mut session, &tokens) == expected);
            let refused = session.set_bits(6).expect_err("it is not there").to_string();
            assert!(refused.contains('6') && refused.contains('3'), "{refused}");
            assert_eq!(session.bits(), Some(width));
        }
    }
}

#[test]
fn what_cannot_run_is_named() {
    let bytes = &files().whole;
    let file = model_file(bytes.clone());
    let refused = |bytes: Vec<u8>| match Weights::load(&model_file(bytes), &options(PATHS[0])) {
        Ok(_) => panic!("it was loaded"),
        Err(e) => e.to_string(),
    };
    // not even the first width is whole
    let end = places(&file, Part::Lut(3)).last().expect("matrices").end;
    let text = refused(bytes[..end - 1].to_vec());
    assert!(text.contains("blk.5.") && text.contains(".ap.lut3"), "{text}");
    // a part of another name is missing, and one too many
    let mut renamed = bytes.clone();
    let name = b"blk.2.ffn_up.weight.ap.p1";
    let at = renamed.windows(name.len()).position(|w| w == name);
    renamed[at.expect("it is there") + name.len() - 1] = b'x';
    let text = refused(renamed);
    assert!(text.contains("blk.2.ffn_up.weight.ap.p1"), "{text}");
    // no width to choose
    let plain = Weights::load(&model_file(files().plain[0].clone()), &options(PATHS[0]));
    let plain = plain.expect("a model");
    assert!(plain.widths().is_empty());
    let text = plain.check_width(4).expect_err("one width only").to_string();
    assert!(text.contains("4-bit"), "{text}");
    let model = whole(NumberPath::I16);
    let text = model.check_width(5).expect_err("not among them").to_string();
    assert!(["5", "3, 4 and 6"].iter().all(|s| text.contains(s)), "{text}");
    // the limits that let a file end early are for these files only
    let strict = trine_formats::gguf::Gguf::parse(&bytes[..end], &Limits::default());
    assert!(strict.is_err());
}
