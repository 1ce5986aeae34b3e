//! The protocol on a model that is a hash function.

use super::base_file::{BaseError, BaseReader, BaseWriter, size};
use super::kld::{Divergence, divergence, log_ppl_base};
use super::perplexity::{Estimate, perplexity};
use super::{Chunks, EvalError, Evaluator, SessionError};

/// Logits that depend on all tokens before them, and a record of the calls.
struct Fake {
    n_vocab: usize,
    /// All logits equal.
    flat: bool,
    /// Gives a NaN at this position of every context.
    broken: Option<usize>,
    context: Vec<u32>,
    contexts: Vec<Vec<u32>>,
    wanted: usize,
}

impl Fake {
    fn new(n_vocab: usize) -> Fake {
        Fake {
            n_vocab,
            flat: false,
            broken: None,
            context: Vec::new(),
            contexts: Vec::new(),
            wanted: 0,
        }
    }
}

impl Evaluator for Fake {
    fn n_vocab(&self) -> usize {
        self.n_vocab
    }

    fn clear(&mut self) {
        let context = std::mem::take(&mut self.context);
        if !context.is_empty() {
            self.contexts.push(context);
        }
    }

    fn eval(
        &mut self,
        tokens: &[u32],
        from: usize,
        sink: &mut (dyn FnMut(usize, &[f32]) + Send),
    ) -> Result<(), SessionError> {
        for (i, &token) in tokens.iter().enumerate() {
            let position = self.context.len();
            self.context.push(token);
            if i < from {
                continue;
            }
            self.wanted += 1;
            let mut x = self
                .context
                .iter()
                .fold(7u32, |h, t| (h ^ t).wrapping_mul(16_777_619));
            let mut draw = || {
                x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (x >> 8) as f32 / 1_048_576.0
            };
            let mut logits: Vec<f32> = (0..self.n_vocab).map(|_| draw()).collect();
            if self.flat {
                logits.fill(2.5);
            }
            if self.broken == Some(position) {
                logits[self.n_vocab / 2] = f32::NAN;
            }
            sink(i, &logits);
        }
        Ok(())
    }
}

fn text(n: u32, n_vocab: u32) -> Vec<u32> {
    (0..n).map(|i| (i * i + 3 * i + 1) % n_vocab).collect()
}

fn run(fake: &mut Fake, chunks: &Chunks, n_batch: usize) -> Result<Estimate, EvalError> {
    perplexity::<Vec<u8>>(fake, chunks, n_batch, None, &mut |_, _| Ok(()))
}

#[test]
fn a_model_that_knows_nothing_has_the_perplexity_of_its_vocabulary() {
    let chunks = Chunks::new(text(64, 50), 16, None, None).unwrap();
    let mut fake = Fake {
        flat: true,
        ..Fake::new(50)
    };
    let estimate = run(&mut fake, &chunks, 2048).unwrap();
    assert_eq!(estimate.count, 4 * 7);
    assert!((estimate.ppl() - 50.0).abs() < 1e-12, "{}", estimate.ppl());
    assert!(estimate.ppl_error() < 1e-5);
}

#[test]
fn chunks_begin_with_bos_and_only_the_second_half_is_wanted() {
    let tokens = text(50, 40);
    let chunks = Chunks::new(tokens.clone(), 16, Some(33), Some(2)).unwrap();
    assert_eq!((chunks.count(), chunks.first(), chunks.scored()), (2, 8, 7));
    assert_eq!(chunks.tokens(), &tokens[..32]);
    let mut fake = Fake::new(40);
    run(&mut fake, &chunks, 5).unwrap();
    fake.clear();
    assert_eq!(fake.contexts.len(), 2);
    for (i, context) in fake.contexts.iter().enumerate() {
        assert_eq!(context[0], 33);
        assert_eq!(context[1..], tokens[i * 16 + 1..][..15]);
    }
    assert_eq!(fake.wanted, 2 * 8);
}

#[test]
fn batches_change_no_bit() {
    let n_vocab = 37;
    let chunks = Chunks::new(text(400, n_vocab), 100, None, None).unwrap();
    let whole = run(&mut Fake::new(n_vocab as usize), &chunks, 2048).unwrap();
    assert!(whole.ppl() > 1.0 && whole.ppl_error() > 0.0);
    for n_batch in [1, 7, 50, 51, 99, 100] {
        let batched = run(&mut Fake::new(n_vocab as usize), &chunks, n_batch).unwrap();
        assert_eq!(batched.nll.to_bits(), whole.nll.to_bits());
        assert_eq!(batched.nll2.to_bits(), whole.nll2.to_bits());
    }
    // Chunks are independent: the first two alone give what they gave among four.
    let mut after_two = None;
    perplexity::<Vec<u8>>(
        &mut Fake::new(n_vocab as usize),
        &chunks,
        64,
        None,
        &mut |done, e| {
            after_two = after_two.or((done == 2).then_some(*e));
            Ok(())
        },
    )
    .unwrap();
    let two = Chunks::new(text(400, n_vocab), 100, None, Some(2)).unwrap();
    assert_eq!(
        after_two,
        Some(run(&mut Fake::new(n_vocab as usize), &two, 2048).unwrap())
    );
}

#[test]
fn what_cannot_be_evaluated() {
    let e = Chunks::new(text(31, 40), 16, None, None)
        .unwrap_err()
        .to_string();
    assert!(e.contains("31 tokens") && e.contains("at least 32"), "{e}");
    assert!(matches!(
        Chunks::new(text(31, 40), 2, None, None),
        Err(EvalError::SmallContext(2))
    ));
    assert!(matches!(
        Chunks::new(text(32, 40), 16, None, Some(0)),
        Err(EvalError::NoChunks)
    ));
    let chunks = Chunks::new(text(48, 40), 16, None, None).unwrap();
    // The last position of a chunk is not scored, the first half is not looked at.
    for fine in [7, 15] {
        let mut fake = Fake {
            broken: Some(fine),
            ..Fake::new(40)
        };
        assert!(run(&mut fake, &chunks, 2048).is_ok());
    }
    let mut fake = Fake {
        broken: Some(9),
        ..Fake::new(40)
    };
    let e = run(&mut fake, &chunks, 2048).unwrap_err();
    assert!(
        matches!(
            e,
            EvalError::NonFinite {
                chunk: 1,
                position: 9
            }
        ),
        "{e}"
    );
    let stopped = perplexity::<Vec<u8>>(&mut Fake::new(40), &chunks, 2048, None, &mut |done, _| {
        if done == 2 {
            Err("stop".into())
        } else {
            Ok(())
        }
    });
    assert!(matches!(stopped, Err(EvalError::Interrupted)));
}

/// A base file of `chunks` by the fake model.
fn base(n_vocab: usize, chunks: &Chunks) -> Vec<u8> {
    let mut writer = BaseWriter::new(Vec::new(), chunks, n_vocab).unwrap();
    perplexity(
        &mut Fake::new(n_vocab),
        chunks,
        2048,
        Some(&mut writer),
        &mut |_, _| Ok(()),
    )
    .unwrap();
    writer.finish().unwrap()
}

fn open(bytes: &[u8], n_vocab: usize) -> Result<BaseReader<&[u8]>, EvalError> {
    BaseReader::new(bytes, bytes.len() as u64, n_vocab, None, None)
}

#[test]
fn a_base_file_is_laid_out_as_documented() {
    for n_vocab in [36, 37] {
        let tokens = text(40, n_vocab as u32);
        let chunks = Chunks::new(tokens.clone(), 16, None, None).unwrap();
        let bytes = base(n_vocab, &chunks);
        let row = 8 + 2 * n_vocab.next_multiple_of(2);
        assert_eq!(bytes.len(), 20 + 4 * 32 + 2 * 7 * row);
        assert_eq!(&bytes[..8], b"_logits_");
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!([word(8), word(12), word(16)], [16, n_vocab as u32, 2]);
        assert!((0..32).all(|i| word(20 + 4 * i) == tokens[i]));
        for i in 0..14 {
            let row = &bytes[20 + 4 * 32 + i * row..][..row];
            let code = |t: usize| u16::from_le_bytes([row[8 + 2 * t], row[9 + 2 * t]]);
            // The most likely token has the highest code, what is 16 nats or more below it has 0.
            assert_eq!((0..n_vocab).map(code).max(), Some(65535));
            assert!(n_vocab % 2 == 0 || row[row.len() - 2..] == [0, 0]);
        }
    }
}

#[test]
fn a_model_does_not_diverge_from_itself() {
    let chunks = Chunks::new(text(300, 37), 100, None, None).unwrap();
    let bytes = base(37, &chunks);
    assert_eq!(bytes.len() as u128, size(&chunks, 37));
    let mut reader = open(&bytes, 37).unwrap();
    assert_eq!(reader.chunks().tokens(), chunks.tokens());
    let mut counts = Vec::new();
    let d = divergence(
        &mut Fake::new(37),
        &mut reader,
        64,
        &mut |done, d: &Divergence| {
            counts.push((done, d.count()));
            Ok(())
        },
    )
    .unwrap();
    assert_eq!(counts, [(1, 49), (2, 98), (3, 147)]);
    assert!(d.kld().value.abs() < 1e-4, "{}", d.kld().value);
    assert_eq!(d.same_top().value, 1.0);
    assert!(d.log_ratio().value.abs() < 1e-4);
    assert!(
        d.report()
            .is_some_and(|r| r.contains("Same top p: 100.000 ± 0.000 %"))
    );
    // The base model's perplexity is in its file, to the last bit.
    let mut counts = Vec::new();
    let mut reader = open(&bytes, 37).unwrap();
    let alone = log_ppl_base(&mut reader, &mut |done, &count| {
        counts.push((done, count));
        Ok(())
    });
    assert_eq!(alone.unwrap(), d.log_ppl_base());
    assert_eq!(counts, [(1, 49), (2, 98), (3, 147)]);
    let mut reader = open(&bytes, 37).unwrap();
    let stopped = log_ppl_base(&mut reader, &mut |_, _| Err("enough".into()));
    assert!(matches!(stopped, Err(EvalError::Interrupted)));
    // Another model does diverge.
    let mut reader = open(&bytes, 37).unwrap();
    let mut flat = Fake {
        flat: true,
        ..Fake::new(37)
    };
    let d = divergence(&mut flat, &mut reader, 64, &mut |_, _| Ok(())).unwrap();
    assert!(d.kld().value > 1.0);
    assert!(d.sorted_kld().min() > 0.0 && d.sorted_kld().percentile(0.5) > d.sorted_kld().min());
}

#[test]
fn few_positions_give_no_statistics() {
    let chunks = Chunks::new(text(48, 37), 16, None, None).unwrap();
    let bytes = base(37, &chunks);
    let d = divergence(
        &mut Fake::new(37),
        &mut open(&bytes, 37).unwrap(),
        64,
        &mut |_, _| Ok(()),
    );
    assert!(d.unwrap().report().is_none());
}

#[test]
fn damaged_base_files_are_refused() {
    let chunks = Chunks::new(text(40, 37), 16, None, None).unwrap();
    let bytes = base(37, &chunks);
    let refused = |bytes: &[u8], n_vocab| match open(bytes, n_vocab) {
        Err(EvalError::Base(e)) => e,
        Err(e) => panic!("{e}"),
        Ok(_) => panic!("accepted"),
    };
    for cut in 0..bytes.len() {
        refused(&bytes[..cut], 37);
    }
    assert!(matches!(
        refused(&bytes[..bytes.len() - 1], 37),
        BaseError::Length { .. }
    ));
    assert!(matches!(refused(b"GGUF....", 37), BaseError::Magic));
    assert!(matches!(
        refused(&bytes, 38),
        BaseError::Vocabulary {
            file: 37,
            model: 38
        }
    ));
    let with = |at: usize, value: u32| {
        let mut bytes = bytes.clone();
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        bytes
    };
    for (at, value) in [
        (8, 0),
        (8, 2),
        (8, u32::MAX),
        (12, 0),
        (12, u32::MAX),
        (16, 0),
        (16, 1 << 31),
    ] {
        assert!(
            matches!(refused(&with(at, value), 37), BaseError::Header { .. }),
            "{at} {value}"
        );
    }
    assert!(matches!(
        refused(&with(16, i32::MAX as u32), 37),
        BaseError::Length { .. }
    ));
    for id in [37, u32::MAX] {
        assert!(matches!(
            refused(&with(24, id), 37),
            BaseError::Token { index: 1, .. }
        ));
    }
}

#[test]
fn a_full_disk_is_an_error() {
    struct Full(usize);
    impl std::io::Write for Full {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 = self
                .0
                .checked_sub(bytes.len())
                .ok_or(std::io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let chunks = Chunks::new(text(40, 37), 16, None, None).unwrap();
    let mut writer = BaseWriter::new(Full(600), &chunks, 37).unwrap();
    let result = perplexity(
        &mut Fake::new(37),
        &chunks,
        64,
        Some(&mut writer),
        &mut |_, _| Ok(()),
    );
    assert!(matches!(result, Err(EvalError::Write(_))));
    assert!(BaseWriter::new(Full(10), &chunks, 37).is_err());
}
