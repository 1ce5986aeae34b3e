//! Attention to compressed keys.

use trine::math::{EXP2_32, expf, pexp};
use trine_compat_tests::inputs::Rng;
use trine_cuda::program::{Heads, ProgramError, Recorder, Span};
use trine_cuda::ptx::ATTENTION;
use trine_formats::types::num::{f16_to_f32, f32_to_f16};

use super::{dot, shows};
use crate::product::assert_same;

/// Attention of some heads to the keys of the last positions and to compressed keys, by its definition.
fn compressed(
    [q, own, packed]: [&[f32]; 3],
    [heads, size, window, ratio]: [usize; 4],
    scale: f32,
    sinks: &[f32],
) -> Vec<f32> {
    let half = |x: &[f32]| x.iter().map(|&x| f16_to_f32(f32_to_f16(x))).collect::<Vec<f32>>();
    let (q, own, packed) = (half(q), half(own), half(packed));
    let head = |position: usize, head: usize| {
        let begin = (position + 1).saturating_sub(window);
        let from = begin / 4 * 4;
        let in_window = (position + 1 - from).next_multiple_of(4);
        let q = &q[(position * heads + head) * size..][..size];
        let mut row = vec![f32::NEG_INFINITY; in_window];
        (begin..=position).for_each(|cell| row[cell - from] = dot(&own[cell * size..][..size], q));
        let blocks: Vec<&[f32]> =
            (1..=(position + 1) / ratio).map(|b| &packed[(b * ratio - 1) * size..][..size]).collect();
        row.extend(blocks.iter().map(|key| dot(key, q)));
        row.iter_mut().for_each(|w| *w = *w * scale + 0.0);
        let most = row.iter().chain(sinks.get(head)).copied().fold(f32::NEG_INFINITY, f32::max);
        row.iter_mut().for_each(|w| *w = pexp(*w - most));
        let mut total = row.chunks(4).fold(0f64, |total, e| {
            let e: [f32; 4] = std::array::from_fn(|i| e.get(i).copied().unwrap_or(0.0));
            total + f64::from((e[0] + e[1]) + (e[2] + e[3]))
        });
        if let Some(sink) = sinks.get(head) {
            total += f64::from(expf(sink - most));
        }
        let inverse = (1.0 / total) as f32;
        let p = half(&row.iter().map(|e| e * inverse).collect::<Vec<f32>>());
        let values = (from..=position).map(|cell| &own[cell * size..][..size]);
        let values = values.zip(&p).chain(blocks.iter().copied().zip(&p[in_window..]));
        let mut sums = vec![0f64; size];
        for (value, &p) in values {
            sums.iter_mut().zip(value).for_each(|(sum, v)| *sum += f64::from(p * v));
        }
        sums.into_iter().map(|sum| sum as f32).collect::<Vec<f32>>()
    };
    let tokens = own.len() / size;
    (0..tokens).flat_map(|position| (0..heads).flat_map(move |h| head(position, h)).collect::<Vec<f32>>()).collect()
}

#[test]
fn compressed_keys_beside_a_window() {
    const HEADS: usize = 3;
    const SIZE: usize = 16;
    static SINKS: [f32; HEADS] = [0.5, -2.0, 7.0];
    let widths = [HEADS * SIZE, SIZE, SIZE];
    let columns = widths.iter().sum();
    let mut rng = Rng::new(37);
    for (tokens, window, ratio, sinks) in [(1, 4, 4, true), (23, 6, 4, true), (30, 64, 3, false), (41, 9, 16, true)] {
        let x: Vec<f32> = (0..tokens * columns).map(|_| 4.0 * rng.unit() - 2.0).collect();
        let x: &'static [f32] = x.leak();
        let parts = trine::ops::rows::split(x, &widths);
        let sinks: &'static [f32] = if sinks { &SINKS } else { &[] };
        let expected = compressed([&parts[0], &parts[1], &parts[2]], [HEADS, SIZE, window, ratio], 0.7, sinks);
        let record = |r: &mut Recorder<'static>, x: Span| -> Result<Span, ProgramError> {
            let parts = r.split(x, &widths)?;
            let heads = Heads { queries: HEADS, keys: 1, key_size: SIZE, value_size: SIZE };
            let cells = r.store([parts[1], parts[2]], heads)?;
            let sinks = (!sinks.is_empty()).then_some((sinks, &EXP2_32));
            r.attend_compressed(parts[0], cells, [window, ratio], 0.7, sinks)
        };
        let case = super::Case { results: HEADS * SIZE, ..super::Case::new(x, columns) };
        let what = format!("{tokens} tokens, a window of {window}, blocks of {ratio}");
        assert_same(&case.run(record), &expected, &what);
        if tokens != 23 {
            continue;
        }
        let of =
            |change: &dyn Fn(&str) -> String| shows((ATTENTION, "attend_compressed"), change, &case, &expected, record);
        assert!(!of(&|t| format!("{t} ")), "no mistake");
        assert!(of(&|t| t.replace("bar.sync", "// ")), "no barriers");
        assert!(of(&|t| t.replace("add.rn.f64", "sub.rn.f64")), "differences");
        assert!(of(&|t| t.replace("mul.rn.f64", "add.rn.f64")), "another exponential of the sink");
        assert!(of(&|t| t.replace("cvt.rn.f16.f32", "cvt.u16.u32")), "queries that are not rounded");
    }
}
