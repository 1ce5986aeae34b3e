//! The tables of papers that can be measured again: their models, types and figures.

use super::experiment::Experiment;

/// Llama with the sizes of TriLM (Spectra suite).
macro_rules! trilm {
    ($hidden:literal, $ffn:literal, $layers:literal, $heads:literal, $dim:literal, $vocab:literal) => {
        concat!(
            "llama:hidden=",
            $hidden,
            ",ffn=",
            $ffn,
            ",layers=",
            $layers,
            ",heads=",
            $heads,
            ",head_dim=",
            $dim,
            ",vocab=",
            $vocab,
            ",context=2048"
        )
    };
}

/// All of them. Figures are tokens per second as printed; 0 where the paper has none.
#[rustfmt::skip]
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "bitnet-table7",
        source: "bitnet.cpp (2025), Table 7 and Figure 7, on an Intel i7-13700H",
        tests: &[(0, 128)],
        types: &["F16-ternary", "Q4_0-ternary", "TQ1_0", "TQ2_0", "TL2", "I2_S"],
        rows: &[
            ("700m", "bitnet:700m", &[&[30.73, 67.57, 114.20, 123.94, 126.99, 125.37]]),
            ("1.5b", "bitnet:1.5b", &[&[15.02, 35.46, 64.86, 71.92, 74.16, 77.75]]),
            ("3.8b", "bitnet:3.8b", &[&[5.85, 16.33, 26.59, 33.19, 35.43, 35.04]]),
            ("7b", "bitnet:7b", &[&[3.30, 9.09, 17.96, 19.92, 20.72, 20.62]]),
            ("13b", "bitnet:13b", &[&[1.78, 5.04, 10.55, 11.21, 11.41, 10.62]]),
            ("30b", "bitnet:30b", &[&[0.0, 2.13, 4.62, 5.25, 4.99, 5.70]]),
            ("70b", "bitnet:70b", &[&[0.0, 0.94, 2.09, 2.32, 2.42, 2.30]]),
            ("100b", "bitnet:100b", &[&[0.0, 0.67, 1.48, 1.61, 1.69, 1.65]]),
        ],
        missing: "T-MAC and the tables of 8 bits (TL1_0, TL2_0) are not in trine: beside TL2_0 stands TL2, whose bits are those \
                  of multiplications",
    },
    Experiment {
        name: "trilm-fig10",
        source: "Spectra 1.1 (TriTera), Figure 10 and Table 5, on an AMD EPYC 7502",
        tests: &[(128, 0), (0, 128), (256, 64)],
        types: &["F16-ternary", "Q4_0-ternary", "TQ2_0", "TQ1_0"],
        rows: &[
            ("560m", trilm!(1280, 3072, 24, 20, 64, 50304), &[&[228.6, 179.2, 305.2, 177.2], &[37.2, 85.6, 131.4, 104.4], &[103.8, 133.4, 206.4, 141.6]]),
            ("1.1b", trilm!(1792, 5120, 24, 28, 64, 50432), &[&[116.2, 97.0, 174.8, 90.4], &[18.7, 47.9, 82.2, 60.5], &[52.3, 72.4, 123.5, 74.5]]),
            ("1.5b", trilm!(2048, 6144, 24, 32, 64, 50432), &[&[81.1, 69.3, 124.2, 65.8], &[14.3, 37.5, 64.1, 47.7], &[41.8, 57.3, 103.3, 59.2]]),
            ("2.4b", trilm!(2304, 7680, 30, 36, 64, 50304), &[&[51.5, 44.8, 81.9, 40.5], &[8.7, 23.6, 43.1, 31.8], &[25.1, 35.2, 62.1, 35.9]]),
            ("3.9b", trilm!(3072, 9216, 30, 24, 128, 50688), &[&[32.1, 27.9, 51.5, 25.5], &[5.4, 15.0, 28.8, 20.8], &[15.1, 23.5, 43.7, 23.7]]),
        ],
        missing: "the paper does not say which type of 4 bits, nor how many threads; its captions of Tables 5 and 6 name each \
                  other's processors",
    },
    Experiment {
        name: "fairyfuse-fig4",
        source: "FairyFuse (2026), Table 5 and Figure 4, on 48 cores of an Intel Xeon",
        tests: &[(0, 64)],
        types: &["llama:7b:F16", "llama:7b:Q4_K_M", "fairy2i:7b:W2", "llama:7b:Q2_K"],
        rows: &[("7b", "", &[&[8.24, 26.15, 32.43, 20.10]])],
        missing: "its quality (perplexity, tasks) needs the trained model: rperplexity measures that",
    },
];
