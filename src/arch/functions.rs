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
}

/// From the router's scores of a token to probabilities.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Gating {
    /// Soft-max over all experts.
    SoftMax,
    /// 1 / (1 + e^-x) of each.
    Sigmoid,
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
