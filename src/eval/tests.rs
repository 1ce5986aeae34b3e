//! The protocol on a model that is a hash function.

use std::io::Cursor;

use super::base_file::{BaseError, BaseReader, BaseWriter, size};
use super::kld::{self, Divergence, divergence, log_ppl_base};
use super::partial::ChunkSums;
use super::perplexity::{Estimate, by_chunk, perplexity};
use super::{Chunks, EvalError, Evaluator, Logits};
use crate::step::StepError;

/// Logits that depend on all tokens before them, and a record of the calls.
struct Fake {
    n_vocab: usize,
    side_by_side: usize,
    /// All logits equal.
    flat: bool,
    /// Gives a NaN at this position of every context.
    broken: Option<usize>,
    /// Is cancelled in the text of this number.
    cancelled: Option<usize>,
    contexts: Vec<Vec<u32>>,
    wanted: usize,
}

impl Fake {
    fn new(n_vocab: usize) -> Fake {
        Fake { n_vocab, side_by_side: 1, flat: false, broken: None, cancelled: None, contexts: Vec::new(), wanted: 0 }
    }
}

impl Evaluator for Fake {
    fn n_vocab(&self) -> usize {
        self.n_vocab
    }

    fn side_by_side(&self) -> usize {
        self.side_by_side
    }

    fn eval(&mut self, texts: &[Vec<u32>], from: usize, sink: Logits<'_>) -> Result<(), StepError> {
        assert!(texts.len() <= self.side_by_side);
        for (text, tokens) in texts.iter().enumerate() {
            if self.cancelled == Some(self.contexts.len()) {
                return Err(StepError::Cancelled);
            }
            self.contexts.push(tokens.clone());
            for position in from..tokens.len() {
                self.wanted += 1;
                let logits = self.logits(&tokens[..=position]);
                if sink(text, position, &logits).is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

impl Fake {
    fn logits(&self, context: &[u32]) -> Vec<f32> {
        let hash = |h: u32, t: &u32| (h ^ t).wrapping_mul(16_777_619);
        let mut x = context.iter().fold(7, hash);
        let mut draw = || {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (x >> 8) as f32 / 1_048_576.0
        };
        let mut logits: Vec<f32> = (0..self.n_vocab).map(|_| draw()).collect();
        if self.flat {
            logits.fill(2.5);
        }
        if self.broken == Some(context.len() - 1) {
            logits[self.n_vocab / 2] = f32::NAN;
        }
        logits
    }
}

fn text(n: u32, n_vocab: u32) -> Vec<u32> {
    (0..n).map(|i| (i * i + 3 * i + 1) % n_vocab).collect()
}

fn run(fake: &mut Fake, chunks: &Chunks) -> Result<Estimate, EvalError> {
    perplexity::<Vec<u8>>(fake, chunks, None, &mut |_, _| Ok(()))
}

#[test]
fn a_model_that_knows_nothing_has_the_perplexity_of_its_vocabulary() {
    let chunks = Chunks::new(text(64, 50), 16, None, None).unwrap();
    let mut fake = Fake { flat: true, ..Fake::new(50) };
    let estimate = run(&mut fake, &chunks).unwrap();
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
    run(&mut fake, &chunks).unwrap();
    assert_eq!(fake.contexts.len(), 2);
    for (i, context) in fake.contexts.iter().enumerate() {
        assert_eq!(context[0], 33);
        assert_eq!(context[1..], tokens[i * 16 + 1..][..15]);
    }
    assert_eq!(fake.wanted, 2 * 8);
}

#[test]
fn windows_are_scored_from_their_first_token() {
    let tokens = text(50, 40);
    let chunks = Chunks::all(tokens.clone(), 16, None).unwrap();
    assert_eq!((chunks.count(), chunks.first(), chunks.scored()), (3, 0, 15));
    let mut fake = Fake::new(40);
    let estimate = run(&mut fake, &chunks).unwrap();
    assert_eq!(estimate.count, 3 * 15);
    assert!(fake.contexts.iter().zip(tokens.chunks(16)).all(|(context, own)| context == own));
    let short = |n| Chunks::all(text(15, 40), n, None).unwrap_err().to_string();
    assert!(short(16).contains("15 tokens, but a context of 16 needs at least 16"), "{}", short(16));
    assert!(short(1).contains("leaves no position"), "{}", short(1));
}

#[test]
fn strided_chunks_overlap_and_only_their_ends_are_scored() {
    let tokens = text(600, 40);
    let chunks = Chunks::strided(tokens.clone(), 200, 100, None).unwrap();
    // 200 and half a stride, in whole 256s; the last one ends within the text
    assert_eq!((chunks.n_ctx(), chunks.step(), chunks.count()), (256, 100, 4));
    assert_eq!((chunks.first(), chunks.scored()), (155, 100));
    assert_eq!(chunks.tokens(), &tokens[..556]);
    let mut fake = Fake::new(40);
    assert_eq!(run(&mut fake, &chunks).unwrap().count, 400);
    for (i, context) in fake.contexts.iter().enumerate() {
        assert_eq!(context[..], tokens[i * 100..][..256]);
    }
    let refused = |n_ctx, stride, limit| Chunks::strided(tokens.clone(), n_ctx, stride, limit).unwrap_err().to_string();
    assert!(refused(200, 0, None).contains("a stride of 0"), "{}", refused(200, 0, None));
    assert!(refused(100, 312, None).contains("use 1 to 255"), "{}", refused(100, 312, None));
    assert!(refused(200, 150, None).contains("needs at least 1024"), "{}", refused(200, 150, None));
    assert!(refused(200, 50, Some(0)).contains("--chunks"), "{}", refused(200, 50, Some(0)));
    assert!(refused(usize::MAX, 50, None).contains("too short"), "{}", refused(usize::MAX, 50, None));
}

#[test]
fn chunks_beside_each_other_change_no_bit() {
    let n_vocab = 37;
    let chunks = Chunks::new(text(430, n_vocab), 70, None, None).unwrap();
    let estimates = |side_by_side| {
        let mut fake = Fake { side_by_side, ..Fake::new(n_vocab as usize) };
        let mut heard = Vec::new();
        perplexity::<Vec<u8>>(&mut fake, &chunks, None, &mut |done, e| {
            heard.push((done, e.nll.to_bits(), e.nll2.to_bits(), e.count));
            Ok(())
        })
        .unwrap();
        (heard, base(&mut fake, &chunks))
    };
    let alone = estimates(1);
    assert_eq!(alone.0.len(), 6);
    for side_by_side in [2, 4, 5, 6, 100] {
        assert!(estimates(side_by_side) == alone, "{side_by_side}");
    }
    // Chunks are independent: the first two alone give what they gave among six.
    let two = Chunks::new(text(430, n_vocab), 70, None, Some(2)).unwrap();
    let total = run(&mut Fake::new(n_vocab as usize), &two).unwrap();
    let bits = (2, total.nll.to_bits(), total.nll2.to_bits(), total.count);
    assert_eq!(alone.0[1], bits);
}

#[test]
fn a_run_ends_where_it_is_stopped() {
    let chunks = Chunks::new(text(160, 40), 16, None, None).unwrap();
    let fake = || Fake { side_by_side: 4, ..Fake::new(40) };
    // The observer says no after the sixth chunk, the second of its group: nothing more is wanted.
    let mut stopped = fake();
    let mut heard = 0;
    let result = perplexity::<Vec<u8>>(&mut stopped, &chunks, None, &mut |done, _| {
        heard = done;
        if done < 6 { Ok(()) } else { Err("stop".into()) }
    });
    assert!(matches!(result, Err(EvalError::Interrupted)));
    assert_eq!((heard, stopped.contexts.len()), (6, 6));
    let mut cancelled = Fake { cancelled: Some(6), ..fake() };
    let result = run(&mut cancelled, &chunks);
    assert!(matches!(result, Err(EvalError::Interrupted)));
    // What is wrong with a chunk is told with its own number.
    let mut broken = Fake { broken: Some(9), ..fake() };
    let result = run(&mut broken, &chunks);
    assert!(matches!(result, Err(EvalError::NonFinite { chunk: 1, position: 9 })));
}

#[test]
fn what_cannot_be_evaluated() {
    let e = Chunks::new(text(31, 40), 16, None, None).unwrap_err().to_string();
    assert!(e.contains("31 tokens") && e.contains("at least 32"), "{e}");
    assert!(matches!(Chunks::new(text(31, 40), 2, None, None), Err(EvalError::SmallContext(2))));
    assert!(matches!(Chunks::new(text(32, 40), 16, None, Some(0)), Err(EvalError::NoChunks)));
    let chunks = Chunks::new(text(48, 40), 16, None, None).unwrap();
    // The last position of a chunk is not scored, the first half is not looked at.
    for fine in [7, 15] {
        let mut fake = Fake { broken: Some(fine), ..Fake::new(40) };
        assert!(run(&mut fake, &chunks).is_ok());
    }
}

/// A base file of `chunks` by the fake model.
fn base(fake: &mut Fake, chunks: &Chunks) -> Vec<u8> {
    let mut writer = BaseWriter::new(Vec::new(), chunks, fake.n_vocab).unwrap();
    perplexity(fake, chunks, Some(&mut writer), &mut |_, _| Ok(())).unwrap();
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
        let bytes = base(&mut Fake::new(n_vocab), &chunks);
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
    let bytes = base(&mut Fake::new(37), &chunks);
    assert_eq!(bytes.len() as u128, size(&chunks, 37));
    let mut reader = open(&bytes, 37).unwrap();
    assert_eq!(reader.chunks().tokens(), chunks.tokens());
    let mut counts = Vec::new();
    let d = divergence(&mut Fake { side_by_side: 2, ..Fake::new(37) }, &mut reader, &mut |done, d: &Divergence| {
        counts.push((done, d.count()));
        Ok(())
    })
    .unwrap();
    assert_eq!(counts, [(1, 49), (2, 98), (3, 147)]);
    assert!(d.kld().value.abs() < 1e-4, "{}", d.kld().value);
    assert_eq!(d.same_top().value, 1.0);
    assert!(d.log_ratio().value.abs() < 1e-4);
    assert!(d.report().is_some_and(|r| r.contains("Same top p: 100.000 ± 0.000 %")));
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
    let mut flat = Fake { flat: true, ..Fake::new(37) };
    let d = divergence(&mut flat, &mut reader, &mut |_, _| Ok(())).unwrap();
    assert!(d.kld().value > 1.0);
    assert!(d.sorted_kld().min() > 0.0 && d.sorted_kld().percentile(0.5) > d.sorted_kld().min());
}

#[test]
fn few_positions_give_no_statistics() {
    let chunks = Chunks::new(text(48, 37), 16, None, None).unwrap();
    let bytes = base(&mut Fake::new(37), &chunks);
    let d = divergence(&mut Fake::new(37), &mut open(&bytes, 37).unwrap(), &mut |_, _| Ok(()));
    assert!(d.unwrap().report().is_none());
}

#[test]
fn damaged_base_files_are_refused() {
    let chunks = Chunks::new(text(40, 37), 16, None, None).unwrap();
    let bytes = base(&mut Fake::new(37), &chunks);
    let refused = |bytes: &[u8], n_vocab| match open(bytes, n_vocab) {
        Err(EvalError::Base(e)) => e,
        Err(e) => panic!("{e}"),
        Ok(_) => panic!("accepted"),
    };
    for cut in 0..bytes.len() {
        refused(&bytes[..cut], 37);
    }
    assert!(matches!(refused(&bytes[..bytes.len() - 1], 37), BaseError::Length { .. }));
    assert!(matches!(refused(b"GGUF....", 37), BaseError::Magic));
    assert!(matches!(refused(&bytes, 38), BaseError::Vocabulary { file: 37, model: 38 }));
    let with = |at: usize, value: u32| {
        let mut bytes = bytes.clone();
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        bytes
    };
    for (at, value) in [(8, 0), (8, 2), (8, u32::MAX), (12, 0), (12, u32::MAX), (16, 0), (16, 1 << 31)] {
        assert!(matches!(refused(&with(at, value), 37), BaseError::Header { .. }), "{at} {value}");
    }
    assert!(matches!(refused(&with(16, i32::MAX as u32), 37), BaseError::Length { .. }));
    for id in [37, u32::MAX] {
        assert!(matches!(refused(&with(24, id), 37), BaseError::Token { index: 1, .. }));
    }
}

#[test]
fn a_full_disk_is_an_error() {
    struct Full(usize);
    impl std::io::Write for Full {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let chunks = Chunks::new(text(40, 37), 16, None, None).unwrap();
    let mut writer = BaseWriter::new(Full(600), &chunks, 37).unwrap();
    let result = perplexity(&mut Fake::new(37), &chunks, Some(&mut writer), &mut |_, _| Ok(()));
    assert!(matches!(result, Err(EvalError::Write(_))));
    assert!(BaseWriter::new(Full(10), &chunks, 37).is_err());
}

#[test]
fn parts_of_a_text_give_the_bits_of_the_whole() {
    let n_vocab = 40;
    let chunks = Chunks::new(text(7 * 16, n_vocab), 16, None, None).unwrap();
    let mut fake = Fake { side_by_side: 2, ..Fake::new(n_vocab as usize) };
    let bytes = base(&mut fake, &chunks);
    let mut other = Fake { side_by_side: 3, ..Fake::new(n_vocab as usize) };
    let whole = run(&mut other, &chunks).unwrap();
    let mut reader = open(&bytes, n_vocab as usize).unwrap();
    let compared = divergence(&mut other, &mut reader, &mut |_, _| Ok(())).unwrap();

    // Computed from the last to the first, written down, read back, and added up in order.
    let (mut estimates, mut divergences) = (Vec::new(), Vec::new());
    for part in [5..7, 4..5, 0..4] {
        let mut heard = Vec::new();
        by_chunk::<Vec<u8>>(&mut other, &chunks.part(part.clone()).unwrap(), None, &mut |done, sums| {
            heard.push((done, sums.words()));
            Ok(())
        })
        .unwrap();
        assert_eq!(heard.iter().map(|(done, _)| done - 1).collect::<Vec<_>>(), part.clone().collect::<Vec<_>>());
        estimates.extend(heard);
        let mut reader = BaseReader::new(Cursor::new(&bytes), bytes.len() as u64, 40, None, None).unwrap();
        let all = reader.chunks().clone();
        reader.part(&all, part).unwrap();
        kld::by_chunk(&mut other, &mut reader, &mut |done, sums| {
            divergences.push((done, sums.words()));
            Ok(())
        })
        .unwrap();
    }
    fn joined<T: ChunkSums>(mut parts: Vec<(usize, Vec<u64>)>) -> Vec<u64> {
        parts.sort();
        let mut total = T::default();
        parts.iter().for_each(|(_, words)| total.add(&T::from_words(words).unwrap()));
        total.words()
    }
    assert_eq!(joined::<Estimate>(estimates), whole.words());
    assert_eq!(joined::<Divergence>(divergences), compared.words());
    assert!(Divergence::from_words(&compared.words()[1..]).is_none());
    for none in [3..3, 6..8, 9..12] {
        assert!(matches!(chunks.part(none), Err(EvalError::Part { count: 7, .. })));
    }
}
