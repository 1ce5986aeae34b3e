//! How positions turn queries and keys, and which layers have windows.

use crate::arch::Pairing;

/// How positions turn queries and keys.
#[derive(Clone, Copy, Debug)]
pub struct RopeRule {
    /// Which elements are turned together.
    pub pairing: Pairing,
    /// The key of the base of the frequencies.
    pub base: &'static str,
    /// True if `rope.dimension_count` may restrict RoPE to some elements of a head.
    pub partial: bool,
    /// True if layers without a window turn half of the elements that `rope.dimension_count` says.
    pub global_half: bool,
    /// True if divisors of the frequencies (`rope_freqs`) count in layers with a window, too.
    pub factors_in_windows: bool,
    /// True if the base is 10000 and nothing is scaled, whatever the file says: the reference reads none of the keys.
    pub fixed: bool,
    /// The keys of YaRN that count.
    pub yarn: YarnKeys,
    /// Effect of the key `rope.scaling.yarn_log_multiplier` on YaRN's factor on sine and cosine.
    pub yarn_log: YarnLog,
    /// YaRN's `beta_fast` where the file says nothing, or nothing that counts.
    pub beta_fast: f32,
    /// Which layers have it.
    pub layers: RopeLayers,
    /// Positions of several dimensions, which are the same for text.
    pub sections: Sections,
    /// True if the key `rope.scaling.alpha` widens the base: `base * alpha^(d / (d - 2))` for heads of d elements.
    pub alpha: bool,
}

/// The keys of YaRN's band and factors (`rope.scaling.yarn_*`) that count, as the reference reads them for few architectures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum YarnKeys {
    /// None of them.
    None,
    /// The ends of its band, `yarn_beta_fast` and `yarn_beta_slow`.
    Band,
    /// These, the weight of the blend `yarn_ext_factor`, which turns YaRN on and off whatever `rope.scaling.type` says, and
    /// `yarn_attn_factor`, a factor on sine and cosine without YaRN.
    All,
}

/// Effect of the key `rope.scaling.yarn_log_multiplier` on YaRN's factor on sine and cosine, `0.1 * m * ln(s) + 1` for
/// positions scaled by s, m = 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum YarnLog {
    /// None.
    None,
    /// The factor is divided by that of the multiplier m.
    Divides,
    /// The same for ten times the multiplier, as whose tenth DeepSeek's converters store it.
    TenfoldDivides,
    /// None, and the factor is that which makes sine and cosine as long as without YaRN.
    Cancelled,
    /// The factor is that of ten times the multiplier, divided by itself; by the rule before where that is 1.
    TenfoldBoth,
}

/// Which layers have RoPE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RopeLayers {
    /// All.
    All,
    /// None: positions are embedded by other means.
    None,
    /// All, unless the key `rope.scaling.finetuned` is false.
    Finetuned,
    /// All layers in models with this number of layers, none in others.
    InModelsOf(u32),
    /// Those with a window.
    Windowed,
    /// Those with a window; all in models without windows.
    WindowedOrAll,
    /// Those with a window, and the first ones without experts.
    WindowedOrLeading,
    /// All but the last of every n layers.
    ButLastOf(u32),
    /// All but the last of every n layers; in models without windows all but the last layer.
    ButLastOfOrLast(u32),
    /// All but the first of every n layers; all in models without windows.
    ButFirstOf(u32),
    /// As the list `attention.rope_pattern` says; all without one.
    Pattern,
}

/// Positions of several dimensions (`rope.dimension_sections`): pairs of elements belong to one of four, of which the
/// first three are the position of a text's token and the last is 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sections {
    /// One dimension.
    One,
    /// The sections follow one another.
    InOrder,
    /// The first three alternate.
    Alternating,
    /// As in order where the key gives any; the pairs are then halves of a head.
    IfAny,
}

/// Which layers see only the last positions.
#[derive(Clone, Copy, Debug)]
pub struct WindowRule {
    /// Cells of the window.
    pub size: WindowSize,
    /// True if the window begins at a multiple of its size instead of moving with the query.
    pub chunked: bool,
    /// Period of layers without a window: one in every `period`, where the key `attention.sliding_window_pattern` does
    /// not say otherwise; 1: no layer has a window without the key; 0: all have, whatever it says.
    pub period: u32,
    /// True if that layer is the first of each period instead of the last.
    pub global_first: bool,
    /// RoPE in the layers with a window.
    pub rope: WindowRope,
}

/// Cells of a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WindowSize {
    /// The key `attention.sliding_window`; no windows where it is 0 or absent.
    Key,
    /// The same, and it has to be there.
    Needed,
    /// The key, or this number where it is absent.
    KeyOr(u32),
    /// This number, unless the key is 0.
    UnlessZero(u32),
    /// This number, where the key is there and not 0.
    Given(u32),
    /// The key, or the second number in models with this number of layers (first).
    InModelsOf(u32, u32),
}

/// RoPE in layers with a window.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct WindowRope {
    /// The base of the frequencies.
    pub base: WindowBase,
    /// Scaling of positions in layers with a window.
    pub scaling: WindowScaling,
    /// True if the key `rope.dimension_count_swa` gives the number of elements to turn.
    pub own_dimensions: bool,
}

/// The base of RoPE's frequencies in layers with a window.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum WindowBase {
    /// That of the other layers.
    Same,
    /// The key `rope.freq_base_swa`, or that of the other layers.
    Key,
    /// The key, or this number.
    KeyOr(f32),
    /// The key `rope.freq_base`, where that of the other layers is another key.
    Plain,
}

/// Scaling of positions in layers with a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WindowScaling {
    /// As in the other layers.
    Same,
    /// As in the other layers; and as `rope.scaling.factor` says even where `rope.scaling.type` is none.
    Stated,
    /// They are not scaled; the factor on sine and cosine, and the weight of YaRN's blend, are those of the other layers.
    FactorOnly,
    /// They are not scaled, and neither are sine and cosine.
    None,
}

impl RopeRule {
    /// The usual key of the base of the frequencies.
    pub const BASE: &str = "rope.freq_base";

    /// Halves of whole heads in all layers.
    pub const HALVES: RopeRule = RopeRule {
        pairing: Pairing::Halves,
        base: RopeRule::BASE,
        partial: false,
        global_half: false,
        factors_in_windows: true,
        fixed: false,
        yarn: YarnKeys::None,
        yarn_log: YarnLog::None,
        beta_fast: 32.0,
        layers: RopeLayers::All,
        sections: Sections::One,
        alpha: false,
    };

    /// Neighbours of whole heads in all layers.
    pub const ADJACENT: RopeRule = RopeRule { pairing: Pairing::Adjacent, ..RopeRule::HALVES };

    /// None at all.
    pub const NONE: RopeRule = RopeRule { partial: true, layers: RopeLayers::None, ..RopeRule::HALVES };

    /// Halves of some elements of a head.
    pub const PARTIAL: RopeRule = RopeRule { partial: true, ..RopeRule::HALVES };
}

impl WindowRope {
    /// As in the other layers.
    pub const SAME: WindowRope =
        WindowRope { base: WindowBase::Same, scaling: WindowScaling::Same, own_dimensions: false };

    /// The same with a base that the file may give, and with its factor.
    pub const KEYED: WindowRope =
        WindowRope { base: WindowBase::Key, scaling: WindowScaling::Stated, ..WindowRope::SAME };

    /// The same base, and positions that are not scaled.
    pub const UNSCALED: WindowRope = WindowRope { scaling: WindowScaling::None, ..WindowRope::SAME };

    /// A base of their own, 10000 where the file says nothing, and positions that are not scaled.
    pub const OWN: WindowRope =
        WindowRope { base: WindowBase::KeyOr(10000.0), scaling: WindowScaling::FactorOnly, own_dimensions: false };
}

impl WindowRule {
    /// A window of the file's size that moves with the query, RoPE as in the other layers.
    pub const fn every(period: u32) -> WindowRule {
        WindowRule { size: WindowSize::Key, chunked: false, period, global_first: false, rope: WindowRope::SAME }
    }

    /// The same, and a file has to say how large the window is.
    pub const fn needed(period: u32) -> WindowRule {
        WindowRule { size: WindowSize::Needed, ..WindowRule::every(period) }
    }
}
