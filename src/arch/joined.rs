//! Lists that begin with those of others.

/// Lists one after the other, `N` entries in all; the first has some.
pub const fn one_after_another<T: Copy, const N: usize>(lists: &[&[T]]) -> [T; N] {
    let mut all = [lists[0][0]; N];
    let (mut list, mut n) = (0, 0);
    while list < lists.len() {
        let mut i = 0;
        while i < lists[list].len() {
            all[n] = lists[list][i];
            (i, n) = (i + 1, n + 1);
        }
        list += 1;
    }
    assert!(n == N);
    all
}

/// Lists of a length that is known, one after the other.
macro_rules! joined {
    ($($list:expr),+ $(,)?) => {
        &$crate::arch::joined::one_after_another::<_, { 0 $(+ $list.len())+ }>(&[$($list),+])
    };
}
pub(super) use joined;
