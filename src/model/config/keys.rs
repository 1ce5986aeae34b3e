//! Metadata keys of one architecture, with their problems collected.

use trine_formats::gguf::{GgufError, Metadata, Value};

/// Reads keys of one architecture and collects what is wrong with them.
pub struct Keys<'a> {
    pub meta: &'a Metadata,
    pub prefix: &'static str,
    /// Layers of the file, for lists with an entry for each.
    pub layers: usize,
    pub problems: Vec<String>,
}

impl Keys<'_> {
    pub fn note<T>(&mut self, read: Result<Option<T>, GgufError>) -> Option<T> {
        read.unwrap_or_else(|e| {
            self.problems.push(e.to_string());
            None
        })
    }

    pub fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.prefix)
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

    /// A required count in `1..=max`; 1 stands in after a problem.
    pub fn count(&mut self, key: &str, max: u32) -> usize {
        let before = self.problems.len();
        match self.u32(key) {
            Some(n) if (1..=max).contains(&n) => return n as usize,
            Some(n) => self.problems.push(format!("{} is {n}, it must be 1 to {max}", self.name(key))),
            // A value of the wrong type is there, and was complained about.
            None if self.problems.len() > before => {}
            None => self.problems.push(format!("{} is missing", self.name(key))),
        }
        1
    }

    /// A count that may stand once per layer; all layers must agree.
    pub fn count_per_layer(&mut self, key: &str, default: Option<usize>) -> usize {
        let (name, n_layer) = (self.name(key), self.layers);
        match (self.meta.get(&name), default) {
            (None, Some(n)) => n,
            (Some(Value::Array(_)), _) => {
                let read = self.meta.get_u32s(&name);
                let Some(all) = self.note(read).map(|v| v.to_vec()) else {
                    return 1;
                };
                match all.first() {
                    Some(&n) if n > 0 && all.len() == n_layer && all.iter().all(|&m| m == n) => n as usize,
                    Some(_) if all.len() == n_layer => {
                        self.problems.push(format!("{name} differs between layers, which is not supported"));
                        1
                    }
                    _ => {
                        self.problems.push(format!("{name} has {} entries for {n_layer} layers", all.len()));
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
        let read = self.meta.get_u32s(&name);
        let mut all = self.note(read).map_or(Vec::new(), |v| v.to_vec());
        if all.len() != layers {
            self.problems.push(format!("{name} has {} entries for {layers} layers", all.len()));
            all.resize(layers, 1);
        }
        all
    }

    /// The one number that all are; 1 where there is none, or after a problem.
    pub fn common(&mut self, key: &str, mut all: impl Iterator<Item = u32>) -> usize {
        let first = all.next().unwrap_or(1);
        let name = self.name(key);
        if !(1..=1 << 20).contains(&first) {
            self.problems.push(format!("{name} is {first}, it must be 1 to {}", 1 << 20));
            return 1;
        }
        if all.any(|n| n != first) {
            self.problems.push(format!("{name} differs between layers, which is not supported"));
        }
        first as usize
    }

    /// A required number, which is finite; 1 stands in after a problem.
    pub fn finite(&mut self, key: &str) -> f32 {
        match self.f32(key).filter(|x| x.is_finite()) {
            Some(number) => number,
            None => {
                let name = self.name(key);
                self.problems.push(format!("{name} must be there, and a finite number"));
                1.0
            }
        }
    }

    pub fn positive(&mut self, key: &str, value: f32) -> f32 {
        if !(value.is_finite() && value > 0.0) {
            self.problems.push(format!("{} is {value}, it must be a positive number", self.name(key)));
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
            let mut keys = Keys { meta: &meta, prefix: "llama", layers: 0, problems: Vec::new() };
            assert_eq!(keys.count(key, 9), 1);
            keys.problems
        };
        assert_eq!(problems("wrong"), ["key 'llama.wrong': is of type f32, expected u32"]);
        assert_eq!(problems("absent"), ["llama.absent is missing"]);
        assert_eq!(problems("zero"), ["llama.zero is 0, it must be 1 to 9"]);
    }
}
