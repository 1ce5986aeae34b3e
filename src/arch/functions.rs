//! Functions that descriptions name and [`ops`](crate::ops) computes.

/// The function of a gate.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub enum Activation {
    /// x / (1 + e^-x) (ggml `ggml_vec_swiglu_f32`, its 4-lane form).
    Silu,
    /// The tanh form of GELU, looked up by half float (ggml `ggml_vec_geglu_f32`).
    Gelu,
    /// max(x, 0).
    Relu,
    /// max(x, 0)^2: ReLU, square, product, each rounded.
    SquaredRelu,
    /// The hyperbolic tangent.
    Tanh,
    /// gpt-oss's: x / (1 + e^(1.702 -x)) * (up + 1), x at most 7 and up within 7 of 0 (ggml `swiglu_oai`).
    OpenAiSwiglu,
    /// x / (1 + e^-x) * up, x at most this and up within it of 0 (ggml `swiglu_clamp`).
    ClampedSilu(f32),
    /// x / (1 + e^-x), its 4-lane form, at most this; times up within it of 0 (ggml `silu` and `clamp`).
    LimitedSilu(f32),
    /// a x^2 + b x above zero, (e^min(x, c) - 1 - x) n + b x from there down (ggml `xielu`), for `[n, a, b, c]`.
    Xielu([f32; 4]),
    /// b tanh(x / b) / (1 + e^-x) * c tanh(up / c), for `[b, c]`; up as it is where c is not above 0 (llama.cpp's
    /// SiTU).
    Situ([f32; 2]),
}

/// The function of a gate on heads' outputs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum HeadGate {
    /// 1 / (1 + e^-x).
    Sigmoid,
    /// ln(1 + e^x), from 20 on x.
    Softplus,
    /// x.
    Itself,
}

/// From the router's scores of a token to probabilities.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Gating {
    /// Soft-max over all experts.
    SoftMax,
    /// 1 / (1 + e^-x) of each.
    Sigmoid,
    /// The square root of ln(1 + e^x) of each.
    RootOfSoftplus,
    /// The scores themselves; those of the chosen experts become their soft-max.
    SoftMaxOfChosen,
}

/// The values by which experts are ranked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Claim {
    /// Their probabilities.
    Probabilities,
    /// The router's scores.
    Scores,
    /// 1 / (1 + e^-x) of those.
    Sigmoids,
}

/// Which elements of a head are rotated together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pairing {
    /// `(2j, 2j + 1)`: llama.
    Adjacent,
    /// `(j, j + n_rot / 2)`: GPT-NeoX, gemma, bitnet.
    Halves,
}

/// How the hidden states of a text's tokens become one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pooling {
    /// Their mean.
    Mean,
    /// The state of the first token, which some models are trained to sum a text up in.
    Cls,
    /// The state of the last token: the only one that has seen all others in a model that reads forwards.
    Last,
    /// No pooling: each state is a vector of its own; they stand one behind the other.
    None,
    /// The outputs of the model's head for one of the others: how well a text answers another one.
    Rank,
}

impl Pooling {
    /// All of them with llama.cpp's names and the numbers that `pooling_type` of a file has.
    const ALL: [(Pooling, &'static str, u32); 5] = [
        (Pooling::Mean, "mean", 1),
        (Pooling::Cls, "cls", 2),
        (Pooling::Last, "last", 3),
        (Pooling::None, "none", 0),
        (Pooling::Rank, "rank", 4),
    ];

    /// llama.cpp's names of those that make vectors: all but [`Pooling::Rank`].
    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::ALL.iter().filter(|p| p.0 != Pooling::Rank).map(|p| p.1)
    }

    /// llama.cpp's name.
    pub fn name(self) -> &'static str {
        let of = |p: &&(Pooling, &'static str, u32)| p.0 == self;
        Self::ALL.iter().find(of).map_or("", |p| p.1)
    }

    /// The pooling of a name.
    pub fn by_name(name: &str) -> Option<Pooling> {
        Self::ALL.iter().find(|p| p.1 == name).map(|p| p.0)
    }

    /// The pooling of a number in a file.
    pub fn by_number(number: u32) -> Option<Pooling> {
        Self::ALL.iter().find(|p| p.2 == number).map(|p| p.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poolings_have_names_and_numbers() {
        for (pooling, name, number) in Pooling::ALL {
            assert_eq!(pooling.name(), name);
            assert_eq!(Pooling::by_name(name), Some(pooling));
            assert_eq!(Pooling::by_number(number), Some(pooling));
        }
        assert_eq!((Pooling::by_name("max"), Pooling::by_number(5)), (None, None));
    }
}
