//! Speed of attention's exact sums, in order and in tiles.
//!
//! ```sh
//! cargo run --release -p trine-kernels --example attention -- ELEMENTS,.. ROWS,.. CELLS,..
//! ```
//!
//! Billions of products per second of one thread, medians of some rounds in turns; keys and queries are normal with one
//! outlier in a hundred, probabilities are the soft-max of the scores, and all rows see all cells. `TRINE_ISA` chooses
//! the instruction set; only AMX has tiles.

#[cfg(target_arch = "x86_64")]
mod tiles {
    use std::error::Error;
    use std::hint::black_box;
    use std::time::Instant;

    use trine_kernels::Isa;
    use trine_kernels::elements::soft_max;
    use trine_kernels::halves::exact::{self, CELLS, Outputs, Queries};
    use trine_kernels::halves::{self, BLOCK, Coefficients, F16Encoding, LANES, LINE, Line, STEPS, Tiles};
    use trine_kernels::testing::Random;

    const ROUNDS: usize = 9;
    /// Products of a round, about.
    const ROUND: usize = 60_000_000;

    pub fn main() -> Result<(), Box<dyn Error>> {
        let isa = Isa::from_env()?;
        let args: Vec<String> = std::env::args().skip(1).collect();
        let [sizes, rows, cells] = args.as_slice() else {
            return Err("usage: attention ELEMENTS,.. ROWS,.. CELLS,..".into());
        };
        let list = |s: &str| s.split(',').map(str::parse).collect::<Result<Vec<usize>, _>>();
        println!("GMAC/s           scores: in order, in tiles (open)   outputs: in order, in tiles (open)");
        for size in list(sizes)? {
            for rows in list(rows)? {
                for cells in list(cells)? {
                    measure(isa, size, rows, cells);
                }
            }
        }
        Ok(())
    }

    fn measure(isa: Isa, size: usize, rows: usize, cells: usize) {
        let in_tiles = exact::fits(isa, size, size);
        let few = rows <= halves::rows_at_once(isa);
        let mut random = Random(7);
        let mut normal = |n: usize| -> Vec<f32> {
            let value = |r: &mut Random| match r.below(100) {
                0 => 10.0 * r.normal(),
                _ => r.normal(),
            };
            (0..n).map(|_| value(&mut random)).collect()
        };
        let (q, k, v) = (normal(rows * size), normal(cells * size), normal(cells * size));
        let (quads, lines) = (size / STEPS, size / LINE);
        let mut keys = vec![Line::default(); cells / LANES * quads * BLOCK];
        let mut values = vec![Line::default(); cells / STEPS * lines];
        for cell in 0..cells {
            let tile = &mut keys[cell / LANES * quads * BLOCK..][..quads * BLOCK];
            halves::put_lane(isa, &k[cell * size..][..size], tile, cell % LANES, F16Encoding::Normalized);
            let tile = &mut values[cell / LANES * 8 * lines..][..8 * lines];
            halves::put_step(isa, &v[cell * size..][..size], tile, 8, cell % LANES, F16Encoding::Normalized);
        }
        let mut coefs = vec![0.0; rows * size];
        halves::coefficients(isa, &q, &mut coefs);
        let (mut one, mut other) = (vec![0f32; rows * cells], vec![0f32; rows * cells]);
        let turns = ROUND.div_ceil(rows * cells * size);
        let mut times = [const { Vec::new() }; 4];
        let mut open = vec![false; rows];
        let [mut open_scores, mut open_rows] = [0; 2];
        let mut p = vec![0f32; rows * cells];
        let (mut sums, mut chunk) = (vec![0.0; rows * size], vec![0.0; rows * CELLS]);
        let mut out = vec![0f32; rows * size];
        for _ in 0..ROUNDS {
            times[0].push(time(turns, || {
                halves::coefficients(isa, &q, &mut coefs);
                for (tile, keys) in keys.chunks_exact(quads * BLOCK).enumerate() {
                    let coefs = Coefficients { data: &coefs, stride: size, rows };
                    halves::dots(isa, (keys, F16Encoding::Normalized), quads, coefs, &mut one[tile * LANES..], cells);
                }
            }));
            times[1].push(time(if in_tiles { turns } else { 0 }, || {
                let mut queries = Queries::new(isa, size, q.chunks_exact(size));
                open_scores = 0;
                for (tile, keys) in keys.chunks_exact(quads * BLOCK).enumerate() {
                    open.fill(false);
                    queries.scores(
                        (keys, F16Encoding::Normalized),
                        LANES,
                        0..rows,
                        (&mut other[tile * LANES..], cells),
                        &mut open,
                    );
                    open_scores += open.iter().filter(|open| **open).count();
                }
            }));
            p.copy_from_slice(&one);
            for p in p.chunks_exact_mut(cells) {
                soft_max(isa, p, 0..cells, 1.0 / (size as f32).sqrt());
            }
            let tiles = |cell: usize| Tiles {
                words: &values[cell / LANES * 8 * lines..],
                lines,
                wanted: (0, lines),
                quads: 8,
                at_once: if few { LANES } else { CELLS } / STEPS,
            };
            times[2].push(time(turns, || {
                sums.fill(0.0);
                for cell in (0..cells).step_by(CELLS) {
                    let count = CELLS.min(cells - cell);
                    for (p, to) in p.chunks_exact(cells).zip(chunk.chunks_exact_mut(CELLS)) {
                        halves::coefficients(isa, &p[cell..][..count], &mut to[..count]);
                    }
                    let coefs = Coefficients { data: &chunk, stride: CELLS, rows };
                    halves::accumulate(isa, tiles(cell), &|_| 0..count, coefs, &mut sums, size);
                }
            }));
            times[3].push(time(if in_tiles { turns } else { 0 }, || {
                let mut outputs = Outputs::new(isa, rows, size);
                for cell in (0..cells).step_by(CELLS) {
                    let count = CELLS.min(cells - cell);
                    let forms = [F16Encoding::Normalized; CELLS / LANES];
                    let forms = &forms[..count / LANES];
                    assert!(outputs.add(tiles(cell), forms, count, (&p[cell..], cells), 0..rows, |_| count));
                }
                open_rows = 0;
                for (row, out) in out.chunks_exact_mut(size).enumerate() {
                    open_rows += usize::from(!outputs.finish(row, out));
                }
            }));
        }
        let wrong = one.iter().zip(&other).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
        let wrong_sums = sums.iter().zip(&out).filter(|(a, b)| (**a as f32).to_bits() != b.to_bits()).count();
        let products = (turns * rows * cells * size) as f64;
        let rate = |times: &mut Vec<f64>| {
            times.sort_by(f64::total_cmp);
            products / times[ROUNDS / 2] / 1e9
        };
        let [a, b, c, d] = times.each_mut().map(rate);
        if !in_tiles {
            println!("{size:4} {rows:4} {cells:5}   {a:6.1} {:27} {c:6.1}", "");
            return;
        }
        println!(
            "{size:4} {rows:4} {cells:5}   {a:6.1} {b:6.1} {:5.2} ({open_scores}, {wrong})   {c:6.1} {d:6.1} {:5.2} ({open_rows}, {wrong_sums})",
            b / a,
            d / c
        );
        black_box((&one, &other, &out));
    }

    fn time(turns: usize, mut work: impl FnMut()) -> f64 {
        let start = Instant::now();
        (0..turns).for_each(|_| work());
        start.elapsed().as_secs_f64()
    }
}

#[cfg(target_arch = "x86_64")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    tiles::main()
}

#[cfg(not(target_arch = "x86_64"))]
fn main() {
    eprintln!("attention: tiles are of x86-64 alone");
}
