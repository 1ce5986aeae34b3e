//! Blocks of rows.

use crate::pool::{Pool, blocks_mut};

#[test]
fn blocks_of_rows_are_each_visited_once() {
    let pool = Pool::new(2).expect("threads");
    let mut data = vec![0usize; 9 * 10];
    pool.install(|| {
        blocks_mut(&mut data, 10, &[4..9, 1..4, 0..0], 4, |block, mut tile| {
            for i in 0..tile.rows.len() {
                tile.row(i).iter_mut().for_each(|v| *v += block + 1);
            }
        });
    });
    let row = |v: usize| [v; 10];
    let expected = [0, 2, 2, 2, 1, 1, 1, 1, 1].map(row);
    assert_eq!(data, expected.concat());
}

#[test]
#[should_panic(expected = "overlap")]
fn blocks_that_overlap_are_refused() {
    blocks_mut(&mut [0u8; 40], 10, &[0..2, 1..3], 4, |_, _| ());
}
