//! Parts of a model's name: `Org/Base-7B-Instruct-v0.2` taken apart as llama.cpp's converter does.

use super::row::Size;

/// The parts of a name that were recognised.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Parts {
    pub name: String,
    pub organization: Option<String>,
    pub basename: Option<String>,
    pub finetune: Option<String>,
    pub version: Option<String>,
    pub size_label: Option<String>,
}

/// Possible kinds of a part between dashes; a base name may be a version at the same time.
#[derive(Clone, Copy, Default)]
struct Marks {
    basename: bool,
    size: bool,
    finetune: bool,
    version: bool,
    ty: bool,
}

impl Marks {
    fn count(self) -> usize {
        [self.basename, self.size, self.finetune, self.version, self.ty].iter().filter(|m| **m).count()
    }
}

fn digits(s: &str) -> bool {
    !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit())
}

/// `v1.2`, `iter3`, `2`.
fn is_version(s: &str) -> bool {
    let s = s.to_ascii_lowercase();
    let rest = s.strip_prefix("iter").or(s.strip_prefix('v')).unwrap_or(&s);
    rest.split('.').all(digits)
}

/// `q4_K_M`, `iq2_XS`, `f16`, `bf16`, `fp32`.
fn is_type(s: &str) -> bool {
    let s = s.to_ascii_lowercase();
    let float = s.strip_prefix('b').unwrap_or(&s);
    let float = float.strip_prefix("fp").or(float.strip_prefix('f')).unwrap_or(float);
    if float == "16" || float == "32" {
        return true;
    }
    let Some(rest) = s.strip_prefix('i').unwrap_or(&s).strip_prefix('q') else {
        return false;
    };
    let Some((first, rest)) = rest.split_at_checked(1) else {
        return false;
    };
    let word = |p: &str| p.chars().count() == 1 && p.chars().all(|c| c.is_alphanumeric() || c == '_');
    digits(first) && (rest.is_empty() || rest.strip_prefix('_').is_some_and(|r| r.split('_').all(word)))
}

/// `7B`, `1.5b`, `8x7B`, `A3B`, `7b1`, `small`.
fn is_size(s: &str) -> bool {
    let s = s.to_ascii_lowercase();
    if ["small", "mini", "medium", "large", "l", "xl", "xxl"].contains(&s.as_str()) {
        return s != "l";
    }
    let number = match s.strip_prefix('a') {
        Some(rest) => rest,
        None => match s.split_once('x') {
            Some((experts, rest)) if digits(experts) => rest,
            Some(_) => return false,
            None => &s,
        },
    };
    let Some(unit) = number.find(|c: char| "kmbt".contains(c)) else {
        return false;
    };
    let (value, rest) = (&number[..unit], &number[unit + 1..]);
    let value_ok = match value.split_once(['.', '_']) {
        Some((a, b)) => digits(a) && digits(b),
        None => digits(value),
    };
    value_ok && (rest.is_empty() || (rest.len() == 1 && digits(rest)))
}

/// `7b` as `7B`, `7b1` as `7.1B`, `1_5B` as `1.5B`.
fn normal_size(s: &str) -> String {
    let mut part = s.replace('_', ".");
    if part.ends_with(|c: char| c.is_ascii_digit()) && part.len() > 2 {
        let (head, tail) = part.split_at(part.len() - 2);
        part = format!("{head}.{}{}", &tail[1..], &tail[..1]);
    }
    let bytes = part.as_bytes();
    if part.len() > 1 && bytes[part.len() - 2].is_ascii_digit() && b"kmbt".contains(&bytes[part.len() - 1]) {
        let unit = part.split_off(part.len() - 1).to_ascii_uppercase();
        part.push_str(&unit);
    }
    part
}

/// True if a size is far from the number of weights: `32K` is a context length.
fn contradicts(size: &str, parameters: u64) -> bool {
    let Some(unit) = size.chars().last().and_then(|c| " KMBT".find(c)) else {
        return false;
    };
    let Ok(value) = size[..size.len() - 1].parse::<f64>() else {
        return false;
    };
    let claimed = value * [1.0, 1e3, 1e6, 1e9, 1e12][unit];
    parameters > 0 && (claimed - parameters as f64).abs() > (7 * parameters / 8) as f64
}

/// Takes a name apart. `parameters` is the number of weights, 0 when not known.
pub(super) fn parts(id: &str, parameters: u64) -> Parts {
    if id.contains(' ') {
        return Parts { name: id.to_owned(), ..Parts::default() };
    }
    let (organization, full) = match id.split_once('/') {
        Some((org, name)) => (Some(org.to_owned()).filter(|o| !o.starts_with('.')), name),
        None => (None, id),
    };
    let mut split: Vec<(String, Marks)> =
        full.split('-').filter(|p| !p.is_empty()).map(|p| (p.to_owned(), Marks::default())).collect();
    for (i, (part, marks)) in split.iter_mut().enumerate() {
        if is_version(part) {
            marks.version = true;
        } else if is_type(part) {
            marks.ty = true;
            *part = part.to_uppercase();
        } else if i > 0 && is_size(part) {
            let mut size = normal_size(part);
            if contradicts(&size, parameters) {
                marks.finetune = true;
                let unit = size.split_off(size.len() - 1).to_ascii_lowercase();
                size.push_str(&unit);
            } else {
                marks.size = true;
            }
            *part = size;
        } else if i > 0 && ["chat", "instruct", "vision", "lora"].contains(&part.to_ascii_lowercase().as_str()) {
            marks.finetune = true;
        }
    }
    if split.iter().any(|(p, m)| m.size && p.contains(|c: char| c.is_ascii_digit())) {
        for (part, marks) in &mut split {
            marks.size &= !part.chars().all(char::is_alphabetic);
        }
    }
    let mut at_start = true;
    for (part, marks) in &mut split {
        let plain = marks.count() == 0;
        if at_start && ((plain && part.starts_with(char::is_alphabetic)) || marks.version) {
            marks.basename = true;
        } else {
            at_start = false;
            marks.finetune |= plain;
        }
    }
    for (_, marks) in split.iter_mut().rev() {
        if !(marks.basename && marks.count() > 1) {
            break;
        }
        marks.basename = false;
    }
    let join = |wanted: fn(Marks) -> bool| {
        let chosen: Vec<&str> = split.iter().filter(|(_, m)| wanted(*m)).map(|(p, _)| p.as_str()).collect();
        (!chosen.is_empty()).then(|| chosen.join("-"))
    };
    let mut sizes: Vec<&str> = Vec::new();
    for (part, _) in split.iter().filter(|(_, m)| m.size) {
        if !sizes.contains(&part.as_str()) {
            sizes.push(part);
        }
    }
    let size_label = (!sizes.is_empty()).then(|| sizes.join("-"));
    let finetune = join(|m| m.finetune);
    let version = join(|m| m.version && !m.basename);
    // a name with nothing but a base says too little
    let ambiguous = size_label.is_none() && finetune.is_none() && version.is_none();
    Parts {
        name: full.to_owned(),
        organization,
        basename: join(|m| m.basename).filter(|_| !ambiguous),
        finetune,
        version,
        size_label,
    }
}

/// `mistral-7B-v0.2` as `Mistral 7B v0.2`.
pub(super) fn title(id: &str) -> String {
    let word = |w: &str| {
        let lower = w.chars().any(char::is_alphabetic) && !w.chars().any(char::is_uppercase);
        let version = w.starts_with(|c: char| c.is_ascii_digit())
            || w.strip_prefix('v').is_some_and(|r| r.split('.').all(digits));
        if !lower || version {
            return w.to_owned();
        }
        let mut after_letter = false;
        let mut out = String::new();
        for c in w.chars() {
            if after_letter {
                out.push(c);
            } else {
                out.extend(c.to_uppercase());
            }
            after_letter = c.is_alphabetic();
        }
        out
    };
    let words: Vec<String> = id.replace('-', " ").split_whitespace().map(word).collect();
    words.join(" ")
}

/// The size class: `135M`, with experts `8x7.2B` for their number and the weights of a model with one of each.
pub(super) fn size_class(size: &Size) -> String {
    match size.experts {
        0 => size_label(size.all),
        n => format!("{n}x{}", size_label(size.shared + size.expert)),
    }
}

/// `5.8M`, `135M`, `1.1B`: two digits at least.
pub(super) fn size_label(parameters: u64) -> String {
    let n = parameters as f64;
    let (value, unit) = match n {
        n if n > 1e12 => (n * 1e-12, 'T'),
        n if n > 1e9 => (n * 1e-9, 'B'),
        n if n > 1e6 => (n * 1e-6, 'M'),
        n => (n * 1e-3, 'K'),
    };
    let whole = format!("{}", value.round_ties_even());
    let decimals = 2usize.saturating_sub(whole.trim_start_matches('0').len());
    format!("{value:.decimals$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Results of gguf-py's `Metadata.get_model_id_components`, `id_to_title` and `size_label`.
    #[test]
    fn names_are_taken_apart_as_the_reference_does() {
        let row = |id: &str, n| {
            let p = parts(id, n);
            [p.organization, p.basename, p.finetune, p.version, p.size_label].map(Option::unwrap_or_default).join("|")
        };
        for (id, n, expected) in NAMES {
            assert_eq!(row(id, *n), *expected, "{id}");
        }
    }

    #[test]
    fn titles() {
        for (id, expected) in TITLES {
            assert_eq!(title(id), *expected);
        }
    }

    #[test]
    fn labels() {
        for (n, expected) in LABELS {
            assert_eq!(size_label(*n), *expected);
        }
    }

    const NAMES: &[(&str, u64, &str)] = &[
        ("trilm-wt-5.8m-hf", 5770496, "|trilm-wt|hf||5.8M"),
        ("mistralai/Mistral-7B-Instruct-v0.2", 7241732096, "mistralai|Mistral|Instruct|v0.2|7B"),
        ("Llama-3.2-1B", 1235814400, "|Llama-3.2|||1B"),
        ("Qwen/Qwen2.5-0.5B-Instruct", 0, "Qwen|Qwen2.5|Instruct||0.5B"),
        ("bitnet-b1.58-2B-4T", 2412820480, "|bitnet-b1.58|4t||2B"),
        ("1bitLLM/bitnet_b1_58-3B", 3300000000, "1bitLLM|bitnet_b1_58|||3B"),
        ("SpectraSuite/TriLM_3.9B_Unpacked", 3990000000, "SpectraSuite||||"),
        ("gemma-3-270m-it", 268098176, "|gemma-3|it||270M"),
        ("Mixtral-8x7B-v0.1", 46702792704, "|Mixtral||v0.1|8x7B"),
        ("bloom-7b1", 0, "|bloom|||7.1B"),
        ("Phi-3-mini-4k-instruct", 3821079552, "|Phi-3|4k-instruct||mini"),
        ("SmolLM2-135M-Instruct", 134515008, "|SmolLM2|Instruct||135M"),
        ("model", 10, "||||"),
        ("a model name", 5, "||||"),
        ("./hf", 3, "||||"),
        ("Falcon3-1B-Instruct-1.58bit", 1600000000, "|Falcon3|Instruct-1.58bit||1B"),
        ("OLMo-2-1124-7B", 7298617344, "|OLMo-2-1124|||7B"),
        ("Qwen3-30B-A3B-q4_K_M", 30532122624, "|Qwen3|||30B-A3B"),
        ("deepseek-coder-1.3b-base", 0, "|deepseek-coder|base||1.3B"),
        ("x-large-2-v3.1.4-xl", 0, "|x||2-v3.1.4|large-xl"),
        ("Llama3-8B-1.58-100B-tokens", 8030261248, "|Llama3|100b-tokens|1.58|8B"),
        ("--a--b-", 7, "||||"),
    ];
    const TITLES: &[(&str, &str)] = &[
        ("trilm-wt-5.8m-hf", "Trilm Wt 5.8m Hf"),
        ("mistral-7B-v0.2", "Mistral 7B v0.2"),
        ("SmolLM2-135M-Instruct", "SmolLM2 135M Instruct"),
        ("1bitLLM x", "1bitLLM X"),
        ("v1.0 v2 vx", "v1.0 v2 Vx"),
        ("a1b2c", "A1B2C"),
        ("o'neil d.e.f", "O'Neil D.E.F"),
        ("3b", "3b"),
        ("model_name-x", "Model_Name X"),
    ];
    const LABELS: &[(u64, &str)] = &[
        (0, "0.00K"),
        (5, "0.01K"),
        (999, "1.0K"),
        (1000, "1.0K"),
        (9999, "10K"),
        (123456, "123K"),
        (999499, "999K"),
        (1000000, "1000K"),
        (1000001, "1.0M"),
        (5770496, "5.8M"),
        (9500000, "10M"),
        (9499999, "9.5M"),
        (10500000, "10M"),
        (134515008, "135M"),
        (1000000000, "1000M"),
        (1000000001, "1.0B"),
        (2412820480, "2.4B"),
        (46702792704, "47B"),
        (1200000000000, "1.2T"),
    ];
}
