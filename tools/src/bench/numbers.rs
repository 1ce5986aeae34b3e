//! Numbers and ranges of numbers, as llama-bench takes them.

/// The most numbers of a range: each is a test.
const MAX_NUMBERS: usize = 1000;

/// The numbers of one part of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbers(Vec<usize>);

impl Numbers {
    /// Reads `N`, `FIRST-LAST`, `FIRST-LAST+STEP` or `FIRST-LAST*FACTOR`; `one` reads each of the first two.
    ///
    /// # Errors
    /// The errors of `one`; a range that has no number, too many or no end.
    pub fn parse(text: &str, one: fn(&str) -> Result<usize, String>) -> Result<Numbers, String> {
        // A dash in front is of a number, such as the -1 that stands for all layers.
        let range = text.split_once('-').filter(|(first, _)| !first.is_empty());
        let Some((first, rest)) = range else {
            return one(text).map(|n| Numbers(vec![n]));
        };
        let (last, by) = rest.split_at(rest.find(['+', '*']).unwrap_or(rest.len()));
        let by = if by.is_empty() { "+1" } else { by };
        let (first, last) = (one(first)?, one(last)?);
        let step: usize =
            by[1..].parse().map_err(|_| "a range is FIRST-LAST, FIRST-LAST+STEP or FIRST-LAST*FACTOR".to_owned())?;
        if first > last {
            return Err("the range ends before it begins".to_owned());
        }
        let mut numbers = Vec::new();
        let mut next = Some(first);
        while let Some(n) = next.filter(|&n| n <= last) {
            if numbers.last().is_some_and(|&before| n <= before) {
                return Err("the range does not come to its end".to_owned());
            }
            if numbers.len() == MAX_NUMBERS {
                return Err(format!("the range has more than {MAX_NUMBERS} numbers"));
            }
            numbers.push(n);
            next = match by.starts_with('*') {
                true => n.checked_mul(step),
                false => n.checked_add(step),
            };
        }
        Ok(Numbers(numbers))
    }
}

/// All numbers of a list, in its order.
pub fn all(list: &[Numbers]) -> Vec<usize> {
    list.iter().flat_map(|part| &part.0).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<usize>, String> {
        let one = |text: &str| text.parse().map_err(|_| "no number".to_owned());
        Numbers::parse(text, one).map(|part| all(&[part]))
    }

    /// Expected: what llama-bench makes of them.
    #[test]
    fn ranges_are_those_of_llama_bench() {
        for (text, numbers) in [
            ("7", &[7][..]),
            ("1-4", &[1, 2, 3, 4]),
            ("3-3", &[3]),
            ("0-10+4", &[0, 4, 8]),
            ("1-16*2", &[1, 2, 4, 8, 16]),
            ("3-20*3", &[3, 9]),
        ] {
            assert_eq!(read(text).unwrap(), numbers, "{text}");
        }
    }

    #[test]
    fn ranges_without_an_end_are_refused() {
        for (text, why) in [
            ("", "no number"),
            ("-4", "no number"),
            ("1-", "no number"),
            ("1-4+", "a range is"),
            ("1-4*x", "a range is"),
            ("4-1", "ends before"),
            ("1-4+0", "does not come"),
            ("1-4*1", "does not come"),
            ("0-4*2", "does not come"),
            ("0-1000", "more than"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
        let end = usize::MAX;
        assert_eq!(read(&format!("{end}-{end}*2")).unwrap(), [end]);
    }
}
