//! A linear or logarithmic axis with round ticks.

use std::f64::consts::LN_10;
use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use trine::math::{exp, log};

/// Where values go on an axis and which of them are written beside it.
#[derive(Clone, Debug)]
pub struct Axis {
    logarithmic: bool,
    /// Ends, as positions: values or their decimal logarithms.
    range: (f64, f64),
    /// Values that have a tick, ascending.
    ticks: Vec<f64>,
}

/// Ticks that are enough, about.
const ENOUGH: f64 = 6.0;

impl Axis {
    /// An axis with room around `values`, of which there is at least one; all are finite, and positive where the axis
    /// is logarithmic.
    pub fn around(values: &[f64], logarithmic: bool) -> Axis {
        let mut axis = Axis { logarithmic, range: (0.0, 0.0), ticks: Vec::new() };
        let positions = values.iter().map(|&v| axis.position(v));
        let low = positions.clone().fold(f64::INFINITY, f64::min);
        let high = positions.fold(f64::NEG_INFINITY, f64::max);
        let least = if logarithmic { 0.1 } else { (0.002 * high.abs()).max(1e-3) };
        let room = (0.1 * (high - low)).max(least);
        axis.range = (low - room, high + room);
        if !logarithmic && low >= 0.0 {
            axis.range.0 = axis.range.0.max(0.0);
        }
        axis.ticks = axis.round();
        axis
    }

    fn position(&self, value: f64) -> f64 {
        if self.logarithmic { log(value) / LN_10 } else { value }
    }

    fn name(value: f64) -> String {
        if value != 0.0 && !(0.9e-3..1e5).contains(&value.abs()) {
            let text = format!("{value:.1e}");
            return text.replace(".0e", "e");
        }
        let text = format!("{value:.4}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }

    fn value(&self, position: f64) -> f64 {
        if self.logarithmic { exp(position * LN_10) } else { position }
    }

    fn round(&self) -> Vec<f64> {
        let (low, high) = (self.value(self.range.0), self.value(self.range.1));
        if self.logarithmic {
            for steps in [&[1.0][..], &[1.0, 3.0], &[1.0, 2.0, 5.0]] {
                let ticks = self.in_decades(steps);
                if ticks.len() as f64 >= ENOUGH / 2.0 {
                    return ticks;
                }
            }
        }
        let step = round_step((high - low) / ENOUGH);
        let first = (low / step).ceil() as i64;
        let last = (high / step).floor() as i64;
        (first..=last).map(|i| i as f64 * step).collect()
    }

    /// The multiples `steps` of powers of ten that are on the axis.
    fn in_decades(&self, steps: &[f64]) -> Vec<f64> {
        let (first, last) = (self.range.0.floor() as i32, self.range.1.ceil() as i32);
        let all = (first..=last).flat_map(|d| {
            let power = exp(f64::from(d) * LN_10);
            steps.iter().map(move |s| s * power)
        });
        let (low, high) = self.range;
        all.filter(|&v| (low..=high).contains(&self.position(v))).collect()
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let (low, high) = self.range;
        let share = (self.position(*value) - low) / (high - low);
        limit.0 + (share * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<H: KeyPointHint>(&self, hint: H) -> Vec<f64> {
        // asked for twice: for the ticks with names, and for finer ones, of which there are none
        match hint.weight().allow_light_points() {
            true => Vec::new(),
            false => self.ticks.clone(),
        }
    }

    fn range(&self) -> Range<f64> {
        self.value(self.range.0)..self.value(self.range.1)
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        Axis::name(*value)
    }
}

/// The least of 1, 2, 5, 10, 20 … that is not below `step`, which is positive.
fn round_step(step: f64) -> f64 {
    let power = exp((log(step) / LN_10).floor() * LN_10);
    let round = [1.0, 2.0, 5.0].into_iter().map(|m| m * power);
    round.into_iter().find(|r| *r >= step).unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use plotters::coord::ranged1d::Ranged;

    use super::Axis;

    fn names(values: &[f64], logarithmic: bool) -> Vec<String> {
        let axis = Axis::around(values, logarithmic);
        axis.ticks.iter().map(|&t| Axis::name(t)).collect()
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(names(&[2.0, 8.0], false), ["2", "4", "6", "8"]);
        assert_eq!(names(&[20.1, 20.9], false), ["20.2", "20.4", "20.6", "20.8"]);
        assert_eq!(names(&[1e-4, 1.0], true), ["1e-4", "0.001", "0.01", "0.1", "1"]);
        assert_eq!(names(&[0.01, 0.2], true), ["0.01", "0.03", "0.1"]);
        assert_eq!(names(&[0.02, 0.03], true), ["0.02", "0.025", "0.03", "0.035"]);
    }

    #[test]
    fn one_value_has_an_axis_too() {
        for (value, logarithmic) in [(0.0, false), (5.0, false), (1e9, false), (1e-5, true)] {
            let axis = Axis::around(&[value], logarithmic);
            let (low, high) = axis.range;
            let at = axis.position(value);
            assert!((low..high).contains(&at) && low < high, "{axis:?}");
            let ticks = axis.ticks.iter().map(|&t| axis.position(t));
            assert!(ticks.clone().count() > 0);
            assert!(ticks.into_iter().all(|t| (low..=high).contains(&t)));
            assert_eq!(axis.map(&axis.range().start, (10, 110)), 10);
            assert_eq!(axis.map(&axis.range().end, (110, 10)), 10);
        }
    }
}
