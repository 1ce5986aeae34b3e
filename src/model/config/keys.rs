//! Metadata keys of one architecture, with their problems collected.

use trine_formats::gguf::{GgufError, Metadata, Value};

use crate::model::Problem;

/// The end of a sentence about a number that trine has one of for all layers.
const DIFFERS: &str = "differs between layers, which is not supported";

/// Reads keys of one architecture and collects what is wrong with them.
pub struct Keys<'a> {
    pub meta: &'a Metadata,
    pub prefix: &'static str,
    /// Layers of the file, for lists with an entry for each.
    pub layers: usize,
    pub problems: Vec<Problem>,
}

impl<'a> Keys<'a> {
    /// Keys of an architecture, before it is known how many layers the file has.
    pub fn new(meta: &'a Metadata, prefix: &'static str) -> Keys<'a> {
        Keys { meta, prefix, layers: 0, problems: Vec::new() }
    }
}

impl Keys<'_> {
    pub fn note<T>(&mut self, read: Result<Option<T>, GgufError>) -> Option<T> {
        read.unwrap_or_else(|e| {
            self.problems.push(e.into());
            None
        })
    }

    pub fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.prefix)
    }

    /// Notes that a required key is missing.
    pub fn missing(&mut self, key: &str) {
        self.problems.push(Problem::MissingKey(self.name(key)));
    }

    /// Notes what is wrong with the value of a key.
    pub fn wrong(&mut self, key: &str, what: impl Into<String>) {
        self.problems.push(Problem::Key { key: self.name(key), what: what.into() });
    }

    /// Notes numbers that contradict each other.
    pub fn contradiction(&mut self, what: String) {
        self.problems.push(Problem::Contradiction(what));
    }

    pub fn u32(&mut self, key: &str) -> Option<u32> {
        let read = self.meta.get_u32(&self.name(key));
        self.note(read)
    }

    pub fn f32(&mut self, key: &str) -> Option<f32> {
        let read = self.meta.get_f32(&self.name(key));
        self.note(read)
    }

    pub fn bool(&mut self, key: &str) -> Option<bool> {
        let read = self.meta.get_bool(&self.name(key));
        self.note(read)
    }

    /// A list of numbers.
    pub fn u32s(&mut self, key: &str) -> Option<Vec<u32>> {
        let read = self.meta.get_u32s(&self.name(key)).map(|list| list.map(|list| list.to_vec()));
        self.note(read)
    }

    /// Notes that a list has not one entry for every layer.
    pub fn entries(&mut self, key: &str, found: usize, layers: usize) {
        self.wrong(key, format!("has {found} entries for {layers} layers"));
    }

    /// A required count in `1..=max`; 1 stands in after a problem.
    pub fn count(&mut self, key: &str, max: u32) -> usize {
        let before = self.problems.len();
        match self.u32(key) {
            Some(n) if (1..=max).contains(&n) => return n as usize,
            Some(n) => self.wrong(key, format!("is {n}, it must be 1 to {max}")),
            // A value of the wrong type is there, and was complained about.
            None if self.problems.len() > before => {}
            None => self.missing(key),
        }
        1
    }

    /// A count that may stand once per layer; all layers must agree.
    pub fn count_per_layer(&mut self, key: &str, default: Option<usize>) -> usize {
        let (name, n_layer) = (self.name(key), self.layers);
        match (self.meta.get(&name), default) {
            (None, Some(n)) => n,
            (Some(Value::Array(_)), _) => {
                let Some(all) = self.u32s(key) else {
                    return 1;
                };
                match all.first() {
                    Some(&n) if n > 0 && all.len() == n_layer && all.iter().all(|&m| m == n) => n as usize,
                    Some(_) if all.len() == n_layer => {
                        self.wrong(key, DIFFERS);
                        1
                    }
                    _ => {
                        self.entries(key, all.len(), n_layer);
                        1
                    }
                }
            }
            _ => self.count(key, 1 << 20),
        }
    }

    /// A count for every layer, which may be 0 and stands once where all have the same.
    pub fn per_layer(&mut self, key: &str) -> Vec<u32> {
        let (name, layers) = (self.name(key), self.layers);
        if !matches!(self.meta.get(&name), Some(Value::Array(_))) {
            return vec![self.count(key, 1 << 20) as u32; layers];
        }
        let mut all = self.u32s(key).unwrap_or_default();
        if all.len() != layers {
            self.entries(key, all.len(), layers);
            all.resize(layers, 1);
        }
        all
    }

    /// The one number that all are; 1 where there is none, or after a problem.
    pub fn common(&mut self, key: &str, mut all: impl Iterator<Item = u32>) -> usize {
        let first = all.next().unwrap_or(1);
        if !(1..=1 << 20).contains(&first) {
            self.wrong(key, format!("is {first}, it must be 1 to {}", 1 << 20));
            return 1;
        }
        if all.any(|n| n != first) {
            self.wrong(key, DIFFERS);
        }
        first as usize
    }

    /// A required number, which is finite; 1 stands in after a problem.
    pub fn finite(&mut self, key: &str) -> f32 {
        match self.f32(key).filter(|x| x.is_finite()) {
            Some(number) => number,
            None => {
                self.wrong(key, "must be there, and a finite number");
                1.0
            }
        }
    }

    pub fn positive(&mut self, key: &str, value: f32) -> f32 {
        if !(value.is_finite() && value > 0.0) {
            self.wrong(key, format!("is {value}, it must be a positive number"));
            return 1.0;
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_mistake_is_one_problem() {
        let mut meta = Metadata::default();
        meta.set("llama.wrong", Value::F32(1.0));
        meta.set("llama.zero", Value::U32(0));
        let problems = |key: &str| {
            let mut keys = Keys::new(&meta, "llama");
            assert_eq!(keys.count(key, 9), 1);
            keys.problems.iter().map(Problem::to_string).collect::<Vec<_>>()
        };
        assert_eq!(problems("wrong"), ["key 'llama.wrong': is of type f32, expected u32"]);
        assert_eq!(problems("absent"), ["llama.absent is missing"]);
        assert_eq!(problems("zero"), ["llama.zero is 0, it must be 1 to 9"]);
    }
}
