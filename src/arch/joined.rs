//! Lists that begin with those of others.

/// Two lists one after the other, `N` entries in all; the first has some.
pub const fn joined<T: Copy, const N: usize>(first: &[T], more: &[T]) -> [T; N] {
    assert!(first.len() + more.len() == N);
    let mut all = [first[0]; N];
    let mut i = 0;
    while i < N {
        all[i] = if i < first.len() { first[i] } else { more[i - first.len()] };
        i += 1;
    }
    all
}
