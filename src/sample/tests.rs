//! Against the reference's own chain.
//!
//! The tokens were sampled by llama.cpp's samplers (penalties, top-k, typical, top-p, min-p,
//! temp-ext, dist, in a chain of `llama_sampler_chain_init`) on the logits that [`Logits`] makes.

use super::{SampleError, Sampler, SamplerOptions};

struct Case {
    n: usize,
    /// Logits rounded down to quarters, so that many are equal.
    steps: bool,
    scale: f32,
    options: SamplerOptions,
    tokens: &'static [u32],
}

/// `[temp, top_p, min_p, typical_p]` and `[repeat, frequency, presence]`.
fn options(seed: u32, p: [f32; 4], top_k: i32, repeat_last_n: usize, q: [f32; 3]) -> SamplerOptions {
    SamplerOptions {
        seed,
        temp: p[0],
        top_k,
        top_p: p[1],
        min_p: p[2],
        typical_p: p[3],
        repeat_penalty: q[0],
        repeat_last_n,
        frequency_penalty: q[1],
        presence_penalty: q[2],
        ..SamplerOptions::default()
    }
}

/// Sums of three uniform numbers from a linear congruential generator.
struct Logits(u32);

impl Logits {
    fn draw(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 8) as f32 / 16_777_216.0
    }

    fn next(&mut self, case: &Case) -> Vec<f32> {
        let one = |_| {
            let (a, b, c) = (self.draw(), self.draw(), self.draw());
            let l = (a + b + c - 1.5) * 12.0 * case.scale;
            if case.steps { (l * 4.0).floor() / 4.0 } else { l }
        };
        (0..case.n).map(one).collect()
    }
}

#[test]
fn same_tokens_as_the_reference() {
    for (i, case) in cases().iter().enumerate() {
        let mut sampler = Sampler::new(case.options.clone()).unwrap();
        for round in 0..2 {
            let mut logits = Logits(case.options.seed.wrapping_mul(7919).wrapping_add(1));
            for (step, &token) in case.tokens.iter().enumerate() {
                let id = sampler.sample(&logits.next(case)).unwrap();
                assert_eq!(id, token, "case {i}, round {round}, step {step}");
                sampler.accept(id);
            }
            sampler.reset();
        }
    }
}

/// The probabilities that `llama_sampler_dist` leaves behind a chain, as bits, the likeliest first.
#[test]
fn same_odds_as_the_reference() {
    let no_penalty = [1.0, 0.0, 0.0];
    let cases = [
        (
            Case {
                n: 300,
                steps: false,
                scale: 1.0,
                options: options(7, [0.7, 0.95, 0.0, 1.0], 12, 0, no_penalty),
                tokens: &[13],
            },
            11,
            &[
                (13, 0x3ea9_0cd6),
                (119, 0x3e19_28c4),
                (168, 0x3df4_83e9),
                (214, 0x3dc8_ee2a),
                (83, 0x3dbd_04d4),
                (108, 0x3d45_88da),
                (190, 0x3d27_59e7),
                (195, 0x3d18_0801),
                (272, 0x3cee_be30),
                (140, 0x3ce6_1f77),
                (143, 0x3cdd_5dbc),
            ][..],
        ),
        (
            Case {
                n: 300,
                steps: false,
                scale: 0.5,
                options: options(8, [1.3, 1.0, 0.02, 1.0], 0, 0, no_penalty),
                tokens: &[6],
            },
            21,
            &[(125, 0x3e81_d8c4), (75, 0x3dbe_c0ab), (129, 0x3da2_f341), (121, 0x3d81_dfc5), (268, 0x3d71_4595)],
        ),
    ];
    for (i, (case, count, expected)) in cases.iter().enumerate() {
        let mut sampler = Sampler::new(case.options.clone()).unwrap();
        sampler.keep_odds();
        let id = sampler.sample(&Logits(i as u32 + 1).next(case)).unwrap();
        assert_eq!(id, case.tokens[0]);
        let odds = sampler.odds().iter().map(|(id, p)| (*id, p.to_bits()));
        let odds: Vec<(u32, u32)> = odds.collect();
        assert_eq!(odds.len(), *count);
        assert_eq!(odds[..expected.len()], **expected);
    }
}

#[test]
fn greedy_takes_the_first_of_equal_maxima_of_a_short_list() {
    let options = SamplerOptions { temp: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0, ..SamplerOptions::default() };
    let mut sampler = Sampler::new(options).unwrap();
    assert_eq!(sampler.sample(&[1.0, 3.0, 3.0, 2.0]), Ok(1));
    assert_eq!(sampler.sample(&[f32::NEG_INFINITY, -7.0]), Ok(1));
}

#[test]
fn banned_tokens_are_never_chosen() {
    let options = SamplerOptions { temp: 5.0, banned: vec![1, 99], ..SamplerOptions::default() };
    let mut sampler = Sampler::new(options).unwrap();
    for _ in 0..200 {
        assert_ne!(sampler.sample(&[0.5, 9.0, 0.25]), Ok(1));
    }
}

#[test]
fn refuses_what_has_no_answer() {
    let mut sampler = Sampler::new(SamplerOptions::default()).unwrap();
    assert_eq!(sampler.sample(&[0.0, f32::NAN]), Err(SampleError::NotFinite { id: 1 }));
    assert_eq!(sampler.sample(&[f32::INFINITY]), Err(SampleError::NotFinite { id: 0 }));
    assert_eq!(sampler.sample(&[]), Err(SampleError::Empty));
    for bad in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        let options = SamplerOptions { repeat_penalty: bad, ..SamplerOptions::default() };
        assert!(Sampler::new(options).is_err());
    }
    let options = SamplerOptions { temp: f32::NAN, ..SamplerOptions::default() };
    assert!(Sampler::new(options).is_err());
}

fn cases() -> Vec<Case> {
    vec![
        Case {
            n: 4096,
            steps: false,
            scale: 1.0,
            options: options(1, [0.8, 0.95, 0.05, 1.0], 40, 64, [1.0, 0.0, 0.0]),
            tokens: &[
                715, 3989, 2952, 3928, 1055, 610, 125, 1800, 2530, 2861, 387, 3872, 1284, 241, 1573, 3314, 2431, 887,
                3775, 465, 927, 2374, 766, 3108, 1007, 1249, 938, 109, 1433, 2060, 280, 1821, 2844, 2415, 2814, 597,
                2981, 2442, 2875, 2628,
            ],
        },
        Case {
            n: 4096,
            steps: true,
            scale: 1.0,
            options: options(2, [0.8, 0.95, 0.05, 1.0], 40, 64, [1.0, 0.0, 0.0]),
            tokens: &[
                44, 633, 895, 2132, 2839, 1493, 2371, 1348, 631, 53, 2823, 952, 3792, 625, 1033, 1151, 2162, 994, 288,
                3206, 1351, 272, 3520, 4073, 973, 3535, 1547, 3194, 2025, 3032, 1464, 2745, 259, 222, 1975, 3888, 980,
                2208, 1786, 2978,
            ],
        },
        Case {
            n: 4096,
            steps: true,
            scale: 1.0,
            options: options(3, [1.5, 0.95, 0.0, 1.0], 0, 64, [1.0, 0.0, 0.0]),
            tokens: &[
                2159, 3303, 3117, 11, 3775, 2838, 1944, 1945, 129, 2841, 1726, 610, 987, 380, 3258, 3434, 1618, 2501,
                2332, 2790, 2478, 1354, 3131, 755, 743, 1329, 3091, 795, 2842, 2044, 514, 1072, 3329, 3624, 1035, 3493,
                2974, 1544, 3, 3477,
            ],
        },
        Case {
            n: 4096,
            steps: true,
            scale: 1.0,
            options: options(4, [1.0, 1.0, 0.05, 1.0], 0, 64, [1.0, 0.0, 0.0]),
            tokens: &[
                3579, 1081, 2248, 3520, 2875, 818, 182, 1445, 3944, 1895, 61, 3024, 355, 1529, 1430, 2879, 1793, 1919,
                2724, 3120, 962, 222, 3815, 1633, 1706, 236, 49, 2765, 3205, 3745, 3499, 3178, 1096, 647, 410, 209,
                765, 1150, 1714, 660,
            ],
        },
        Case {
            n: 4096,
            steps: true,
            scale: 1.0,
            options: options(5, [1.0, 0.9, 0.0, 1.0], 300, 64, [1.0, 0.0, 0.0]),
            tokens: &[
                3756, 689, 859, 2940, 304, 1106, 175, 1240, 4008, 2582, 4056, 2082, 401, 2372, 512, 2809, 4036, 3988,
                993, 3505, 2937, 3032, 1719, 1603, 2615, 1154, 2773, 2398, 1817, 2876, 348, 3021, 3081, 3807, 3503,
                653, 2988, 3222, 2797, 3572,
            ],
        },
        Case {
            n: 4096,
            steps: true,
            scale: 1.0,
            options: options(6, [0.7, 0.95, 0.02, 0.5], 100, 64, [1.0, 0.0, 0.0]),
            tokens: &[
                856, 124, 847, 1069, 1635, 3293, 3620, 2212, 2470, 3861, 3588, 1479, 3606, 2580, 2272, 1473, 1714,
                3779, 433, 2749, 1581, 3159, 2814, 1260, 2167, 1486, 1261, 3580, 2191, 2413, 1532, 648, 336, 3014,
                1451, 340, 3749, 3445, 3434, 3091,
            ],
        },
        Case {
            n: 500,
            steps: true,
            scale: 1.0,
            options: options(7, [1.0, 0.9, 0.0, 1.0], 0, 64, [1.0, 0.0, 0.0]),
            tokens: &[
                458, 247, 221, 214, 36, 63, 16, 102, 105, 491, 472, 15, 274, 303, 299, 391, 151, 422, 233, 374, 345,
                390, 474, 11, 211, 308, 107, 61, 369, 453, 407, 290, 339, 260, 72, 175, 383, 20, 111, 120,
            ],
        },
        Case {
            n: 4096,
            steps: true,
            scale: 1.0,
            options: options(8, [0.8, 0.95, 0.05, 1.0], 40, 16, [1.3, 0.5, 0.25]),
            tokens: &[
                3762, 2253, 712, 3541, 2552, 114, 3013, 2121, 2468, 2793, 1305, 993, 168, 1585, 429, 1202, 3251, 2830,
                2119, 2668, 1252, 209, 2189, 2383, 419, 55, 3104, 426, 3212, 1153, 428, 1528, 135, 1858, 1402, 373,
                3987, 736, 146, 1002,
            ],
        },
        Case {
            n: 4096,
            steps: true,
            scale: 1.0,
            options: options(9, [0.0, 0.95, 0.05, 1.0], 40, 64, [1.0, 0.0, 0.0]),
            tokens: &[
                1484, 2929, 3739, 3232, 3254, 3721, 2275, 3404, 2394, 111, 940, 2060, 1734, 2709, 2381, 2640, 820,
                1224, 3456, 4036, 1398, 1563, 2332, 3483, 3098, 336, 345, 2122, 2325, 941, 1313, 166, 3015, 3498, 3379,
                4035, 1121, 2944, 3235, 2085,
            ],
        },
        Case {
            n: 4096,
            steps: true,
            scale: 0.2,
            options: options(10, [0.0, 1.0, 0.0, 1.0], 0, 64, [1.1, 0.0, 0.0]),
            tokens: &[
                1388, 353, 1398, 3618, 274, 1120, 86, 1509, 1788, 309, 281, 1472, 2133, 2362, 784, 633, 143, 1247,
                2437, 1752, 928, 564, 161, 1669, 4027, 1936, 940, 2517, 667, 909, 1706, 3714, 562, 4008, 847, 120, 373,
                932, 696, 61,
            ],
        },
        Case {
            n: 4096,
            steps: true,
            scale: 0.3,
            options: options(4294967294, [2.0, 1.0, 0.0, 1.0], 0, 64, [1.0, 0.0, 0.0]),
            tokens: &[
                433, 3888, 3414, 1549, 2116, 1002, 3682, 3572, 2378, 820, 3059, 3031, 13, 3846, 3221, 2028, 397, 1863,
                3874, 810, 3672, 1013, 2362, 3464, 495, 3115, 3221, 947, 2115, 2363, 2644, 799, 1015, 1914, 3657, 3532,
                2599, 2252, 2115, 585,
            ],
        },
        Case {
            n: 100,
            steps: false,
            scale: 1.0,
            options: options(12, [1.0, 0.5, 1.5, 1.0], 0, 64, [1.0, 0.0, 0.0]),
            tokens: &[
                9, 38, 53, 93, 72, 90, 84, 78, 5, 96, 66, 16, 43, 85, 28, 30, 33, 10, 55, 97, 80, 36, 41, 50, 50, 5, 9,
                67, 53, 78, 39, 86, 21, 87, 56, 7, 4, 66, 36, 22,
            ],
        },
        Case {
            n: 4096,
            steps: true,
            scale: 0.5,
            options: options(13, [1.0, 1.0, 0.0, 0.9], 0, 64, [1.0, 0.0, 0.0]),
            tokens: &[
                3090, 70, 49, 3631, 2896, 1381, 3980, 1460, 621, 3143, 1822, 1465, 2272, 3085, 2543, 2828, 1559, 1648,
                685, 3878, 1689, 837, 955, 1051, 3389, 758, 3943, 3551, 1715, 2349, 3160, 3712, 2525, 3602, 3720, 513,
                3096, 533, 2854, 3,
            ],
        },
        Case {
            n: 4096,
            steps: true,
            scale: 0.1,
            options: options(14, [1.0, 0.999, 0.0, 1.0], 0, 64, [1.0, 0.0, 0.0]),
            tokens: &[
                2607, 563, 464, 3013, 3934, 904, 3994, 841, 232, 133, 223, 1088, 2679, 2447, 486, 2563, 660, 2921, 84,
                3836, 488, 2217, 246, 1343, 221, 2641, 752, 1438, 1242, 2405, 421, 3649, 3123, 1656, 3341, 2012, 2142,
                116, 552, 3089,
            ],
        },
        Case {
            n: 4096,
            steps: false,
            scale: 4.0,
            options: options(15, [1.0, 0.9, 0.0, 0.3], 50, 64, [1.0, 0.0, 0.0]),
            tokens: &[
                2873, 2892, 3426, 2392, 2089, 3868, 2199, 1239, 910, 2109, 2669, 2111, 3509, 260, 1381, 149, 1592,
                3086, 1119, 2411, 1855, 1194, 2263, 3906, 841, 2656, 69, 1726, 4, 2994, 4090, 159, 3185, 2292, 2031,
                773, 4069, 1818, 3351, 3621,
            ],
        },
    ]
}
