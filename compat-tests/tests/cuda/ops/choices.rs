//! Experts that no router chooses: those of a token's number, and those that are given.

use trine::math::{EXP2_32, LOG_16};
use trine::ops::experts::{Choosing, Gating, combine};
use trine_compat_tests::inputs::Rng;
use trine_compat_tests::ptx::Emulated;
use trine_cuda::program::{ProgramError, Recorder, Span};
use trine_cuda::ptx::EXPERTS as TEXT;

use super::experts::rule;
use super::{Case, dot, matrices, shows};
use crate::product::assert_same;

#[test]
fn experts_by_the_token_have_the_weights_of_the_processor() {
    const EXPERTS: usize = 5;
    const USED: usize = 3;
    let mut rng = Rng::new(32);
    let weights: Vec<f32> = (0..EXPERTS * EXPERTS * EXPERTS).map(|_| 2.0 * rng.unit() - 1.0).collect();
    let matrices = matrices("experts", [EXPERTS, EXPERTS], &weights);
    static TABLE: [u32; EXPERTS * USED] = [4, 0, 2, 1, 3, 0, 0, 1, 2, 3, 2, 4, 2, 2, 1];
    // The last token's probabilities are next to nothing, and so is their sum.
    let x: Vec<f32> = (0..EXPERTS * EXPERTS).map(|i| if i < 20 { 6.0 * rng.unit() - 3.0 } else { -90.0 }).collect();
    let x: &'static [f32] = x.leak();
    for (normalize, scale) in [(true, 1.5), (false, 1.0)] {
        let rule = Choosing {
            gating: Gating::RootOfSoftplus,
            normalize,
            scale: Some(scale),
            table: Some(TABLE.to_vec()),
            ..rule(EXPERTS, USED)
        };
        let choices = rule.choose(&[0, 1, 2, 3, 4], &mut x.to_vec());
        let given = choices.iter().enumerate().flat_map(|(place, choice)| {
            let x = &x[place / USED * EXPERTS..][..EXPERTS];
            let own = weights[choice.expert * EXPERTS * EXPERTS..].chunks_exact(EXPERTS).take(EXPERTS);
            own.map(|w| dot(w, x)).collect::<Vec<f32>>()
        });
        let expected = combine(&given.collect::<Vec<f32>>(), &choices, USED, EXPERTS);
        let record = |r: &mut Recorder<'static>, x: Span| -> Result<Span, ProgramError> {
            let probabilities = r.copied(x)?;
            r.root_of_softplus(probabilities, [&EXP2_32, &LOG_16]);
            let chosen = r.choose_by_token(probabilities, (&TABLE, USED), normalize, scale)?;
            let y = r.product_of_chosen(&matrices, x, &chosen)?;
            r.combine(y, &chosen, true)
        };
        let case = Case::new(x, EXPERTS);
        assert_same(&case.run(record), &expected, "experts by the token");
        for [word, other] in [["mul.rn.f32", "add.rn.f32"], ["st.global.u32", "// "]] {
            let change = |t: &str| t.replace(word, other);
            assert!(shows((TEXT, "choose_by_token"), &change, &case, &expected, record), "{word}");
        }
    }
    let refused = Case::new(x, EXPERTS)
        .run_on(Emulated::new().expect("PTX"), |r, x| r.choose_by_token(x, (&TABLE[1..], USED), true, 1.0).map(|_| x));
    assert!(refused.expect_err("a refusal").to_string().contains("3 of 5 experts by a table of 14 numbers"));
}

#[test]
fn a_choice_that_is_given_goes_to_its_experts() {
    const EXPERTS: usize = 4;
    const WIDTH: usize = 8;
    const ROWS: usize = 9;
    let mut rng = Rng::new(31);
    let weights: Vec<f32> = (0..EXPERTS * ROWS * WIDTH).map(|_| 2.0 * rng.unit() - 1.0).collect();
    let matrices = matrices("experts", [ROWS, WIDTH], &weights);
    let numbers = [2, 0, 3, 3, 1, 0];
    let row = |expert: usize, rng: &mut Rng| {
        let x = (0..WIDTH).map(|_| rng.unit());
        std::iter::once(expert as f32).chain(x).collect::<Vec<f32>>()
    };
    let x: &'static [f32] = numbers.iter().flat_map(|&expert| row(expert, &mut rng)).collect::<Vec<f32>>().leak();
    let expected: Vec<f32> = x
        .chunks_exact(1 + WIDTH)
        .flat_map(|row| {
            let own = weights[row[0] as usize * ROWS * WIDTH..].chunks_exact(WIDTH).take(ROWS);
            own.map(|w| dot(w, &row[1..])).collect::<Vec<f32>>()
        })
        .collect();
    let record = |r: &mut Recorder<'static>, x: Span| -> Result<Span, ProgramError> {
        let parts = r.split(x, &[1, WIDTH])?;
        let chosen = r.take_choice(parts[0], EXPERTS)?;
        let y = r.product_of_chosen(&matrices, parts[1], &chosen)?;
        r.combine(y, &chosen, true)
    };
    let case = Case { results: ROWS, ..Case::new(x, 1 + WIDTH) };
    assert_same(&case.run(record), &expected, "a choice that is given");
    // The numbers, or the weights, which are stored behind them.
    let numbers = |t: &str| t.replacen("st.global", "// ", 1);
    let weights = |t: &str| t.rfind("st.global").map_or_else(String::new, |at| format!("{}// {}", &t[..at], &t[at..]));
    for (word, change) in [("numbers", &numbers as &dyn Fn(&str) -> String), ("weights", &weights)] {
        assert!(shows((TEXT, "take_choice"), change, &case, &expected, record), "{word}");
    }
    let refused = case.run_on(Emulated::new().expect("PTX"), |r, x| r.take_choice(x, EXPERTS).map(|_| x));
    assert!(refused.expect_err("a refusal").to_string().contains("a choice of 9 of 4 experts"));
}
