//! Drafts from the text itself.
//!
//! Texts repeat themselves: code its names, answers the words of a question. What followed the last tokens where they
//! stood before is a draft that costs nothing (prompt lookup decoding; llama.cpp's `--spec-type ngram-simple`).

use super::tail::Tail;

/// Fewest tokens that have to agree.
const SHORTEST: usize = 2;
/// Agreement beyond so many tokens makes no place better than another.
const LONGEST: usize = 12;

/// Tokens that followed the longest run of the text's last tokens where it stood before, the latest of equally long
/// ones; `None` where not two of them did.
pub(super) fn draft(tail: &Tail<'_>) -> Option<Vec<u32>> {
    let text = tail.text;
    let before = |end: usize| {
        let pairs = text[..end].iter().rev().zip(text.iter().rev());
        1 + pairs.take(LONGEST - 1).take_while(|(a, b)| a == b).count()
    };
    // The last token of the text stands behind `text`.
    let mut best = (0, 0);
    for end in (0..text.len()).rev().filter(|&end| text[end] == tail.last) {
        let same = before(end);
        if same > best.0 {
            best = (same, end + 1);
        }
        if same == LONGEST {
            break;
        }
    }
    let (same, from) = best;
    let followed = || text[from..].iter().copied().chain([tail.last]).take(tail.most);
    (same >= SHORTEST).then(|| followed().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drafted(text: &[u32], most: usize) -> Option<Vec<u32>> {
        let (&last, text) = text.split_last()?;
        draft(&Tail { text, last, most })
    }

    #[test]
    fn what_followed_before_follows_again() {
        assert_eq!(drafted(&[1, 2, 3, 4, 5, 9, 2, 3], 2), Some(vec![4, 5]));
        assert_eq!(drafted(&[1, 2, 3, 4, 5, 9, 2, 3], 9), Some(vec![4, 5, 9, 2, 3]));
    }

    #[test]
    fn the_longest_agreement_is_taken_and_of_equal_ones_the_latest() {
        assert_eq!(drafted(&[7, 2, 3, 4, 8, 2, 3, 5, 9, 7, 2, 3], 1), Some(vec![4]));
        assert_eq!(drafted(&[8, 2, 3, 4, 8, 2, 3, 5, 9, 2, 3], 1), Some(vec![5]));
        let mut long = vec![6; 30];
        long.push(6);
        assert_eq!(drafted(&long, 3), Some(vec![6]));
    }

    #[test]
    fn one_token_that_agrees_is_not_enough() {
        assert_eq!(drafted(&[1, 2, 3, 4, 9, 2], 4), None);
        assert_eq!(drafted(&[1, 2, 3], 4), None);
        assert_eq!(drafted(&[1], 4), None);
    }
}
