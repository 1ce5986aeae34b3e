//! Sorting with the tie order of the reference.
//!
//! llama.cpp sorts candidates with `std::sort` and `std::partial_sort`, which are not stable: where two
//! candidates compare equal, the order that comes out is decided by the algorithm, and the sampled
//! token depends on it. Models do have equal logits (half-precision heads, banned tokens at -inf), so
//! these are the algorithms of libstdc++: introsort with a median of three and a final insertion sort
//! below 16 elements, and heap selection.
//!
//! `less(a, b)`: a comes before b. It must be a strict weak order, so callers refuse NaN first.

/// Runs shorter than this are left to the insertion sort.
const SHORT: usize = 16;

/// Sorts all of `v`.
pub fn sort<T: Copy>(v: &mut [T], less: impl Fn(&T, &T) -> bool + Copy) {
    if v.is_empty() {
        return;
    }
    introsort(v, 2 * v.len().ilog2(), less);
    let (head, rest) = (v.len().min(SHORT), v.len());
    for i in 1..head {
        insert(v, i, less);
    }
    for i in head..rest {
        insert(v, i, less);
    }
}

/// Brings the first `n` elements in order to the front; the rest is left in some order.
pub fn partial_sort<T: Copy>(v: &mut [T], n: usize, less: impl Fn(&T, &T) -> bool + Copy) {
    let n = n.min(v.len());
    if n == 0 {
        return;
    }
    for parent in (0..n / 2).rev() {
        let value = v[parent];
        sift(&mut v[..n], parent, value, less);
    }
    for i in n..v.len() {
        if less(&v[i], &v[0]) {
            let value = v[i];
            v[i] = v[0];
            sift(&mut v[..n], 0, value, less);
        }
    }
    for last in (1..n).rev() {
        let value = v[last];
        v[last] = v[0];
        sift(&mut v[..last], 0, value, less);
    }
}

/// Fills the hole at `top` of a heap: the larger child moves up all the way to a leaf, then `value`
/// climbs from there.
fn sift<T: Copy>(heap: &mut [T], top: usize, value: T, less: impl Fn(&T, &T) -> bool) {
    let mut hole = top;
    while 2 * hole + 2 < heap.len() {
        let right = 2 * hole + 2;
        let child = right - usize::from(less(&heap[right], &heap[right - 1]));
        heap[hole] = heap[child];
        hole = child;
    }
    if 2 * hole + 2 == heap.len() {
        heap[hole] = heap[2 * hole + 1];
        hole = 2 * hole + 1;
    }
    while hole > top && less(&heap[(hole - 1) / 2], &value) {
        heap[hole] = heap[(hole - 1) / 2];
        hole = (hole - 1) / 2;
    }
    heap[hole] = value;
}

/// Moves element `i` down to its place in the sorted run before it.
fn insert<T: Copy>(v: &mut [T], i: usize, less: impl Fn(&T, &T) -> bool) {
    let value = v[i];
    let mut to = i;
    while to > 0 && less(&value, &v[to - 1]) {
        v[to] = v[to - 1];
        to -= 1;
    }
    v[to] = value;
}

/// Quicksort down to short runs; heap sort where the pivots were bad `depth` times.
fn introsort<T: Copy>(mut v: &mut [T], mut depth: u32, less: impl Fn(&T, &T) -> bool + Copy) {
    while v.len() > SHORT {
        if depth == 0 {
            let n = v.len();
            partial_sort(v, n, less);
            return;
        }
        depth -= 1;
        let cut = partition(v, less);
        let (left, right) = v.split_at_mut(cut);
        introsort(right, depth, less);
        v = left;
    }
}

/// Splits around the median of the second, the middle and the last element, which goes to the front.
fn partition<T: Copy>(v: &mut [T], less: impl Fn(&T, &T) -> bool) -> usize {
    let (a, b, c) = (1, v.len() / 2, v.len() - 1);
    let median = if less(&v[a], &v[b]) {
        if less(&v[b], &v[c]) {
            b
        } else if less(&v[a], &v[c]) {
            c
        } else {
            a
        }
    } else if less(&v[a], &v[c]) {
        a
    } else if less(&v[b], &v[c]) {
        c
    } else {
        b
    };
    v.swap(0, median);
    let pivot = v[0];
    let (mut low, mut high) = (1, v.len());
    loop {
        while less(&v[low], &pivot) {
            low += 1;
        }
        high -= 1;
        while less(&pivot, &v[high]) {
            high -= 1;
        }
        if low >= high {
            return low;
        }
        v.swap(low, high);
        low += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::{partial_sort, sort};

    /// Keys and the positions they came from.
    fn keyed(n: usize, keys: u32) -> Vec<(u32, usize)> {
        let mut x = 12345u32;
        let mut draw = || {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            x >> 16
        };
        (0..n).map(|i| (draw() % keys, i)).collect()
    }

    #[test]
    fn sorted_and_complete() {
        for n in [0, 1, 2, 15, 16, 17, 100, 1000] {
            for keys in [1, 2, 7, 60000] {
                let mut v = keyed(n, keys);
                let mut expected: Vec<u32> = v.iter().map(|x| x.0).collect();
                expected.sort_unstable();
                sort(&mut v, |a, b| a.0 < b.0);
                assert!(v.iter().map(|x| x.0).eq(expected.iter().copied()));
                for k in [0, 1.min(n), n / 3, n] {
                    let mut v = keyed(n, keys);
                    partial_sort(&mut v, k, |a, b| a.0 < b.0);
                    assert!(v[..k].iter().map(|x| x.0).eq(expected[..k].iter().copied()));
                    v.sort_unstable_by_key(|x| x.1);
                    assert_eq!(v, keyed(n, keys));
                }
            }
        }
    }

    /// Position orders that g++ 12's `std::sort` and `std::partial_sort` give for `keyed(40, 3)`, and FNV-1a
    /// hashes of the position orders of longer runs.
    #[test]
    fn ties_as_libstdcxx() {
        let mut v = keyed(40, 3);
        sort(&mut v, |a, b| a.0 < b.0);
        let order: Vec<usize> = v.iter().map(|x| x.1).collect();
        assert_eq!(order, SORTED);
        let mut v = keyed(40, 3);
        partial_sort(&mut v, 10, |a, b| a.0 < b.0);
        let order: Vec<usize> = v[..10].iter().map(|x| x.1).collect();
        assert_eq!(order, PARTIAL);
        for (n, expected) in [(1000, 0x75b7_122a_460e_5fe5), (5000, 0x591d_d4f5_f46d_115f)] {
            let mut v = keyed(n, 50);
            sort(&mut v, |a, b| a.0 < b.0);
            assert_eq!(v.iter().fold(FNV, |h, x| (h ^ x.1 as u64).wrapping_mul(PRIME)), expected);
        }
    }

    const FNV: u64 = 1_469_598_103_934_665_603;
    const PRIME: u64 = 1_099_511_628_211;

    const SORTED: [usize; 40] = [
        20, 39, 37, 35, 34, 32, 30, 29, 28, 25, 23, 22, 17, 16, 15, 13, 14, 8, 1, 2, 31, 27, 26, 19, 12, 10, 11, 21, 0,
        7, 6, 9, 5, 33, 4, 3, 36, 18, 38, 24,
    ];
    const PARTIAL: [usize; 10] = [8, 15, 22, 13, 17, 14, 23, 25, 20, 16];
}
