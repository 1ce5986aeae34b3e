//! Which table, and which of its rows.

use std::str::FromStr;

use super::experiment::{Experiment, Row};
use super::tables::EXPERIMENTS;

/// An experiment, and the rows of it that are wanted.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The table.
    pub experiment: &'static Experiment,
    /// Its rows.
    pub rows: Vec<&'static Row>,
}

impl FromStr for Wanted {
    type Err = String;

    /// Reads `NAME` or `NAME:ROW,...`.
    fn from_str(text: &str) -> Result<Wanted, String> {
        let (name, rows) = text.split_once(':').map_or((text, None), |(name, rows)| (name, Some(rows)));
        let experiment = EXPERIMENTS.iter().find(|e| e.name == name).ok_or_else(|| {
            let names: Vec<&str> = EXPERIMENTS.iter().map(|e| e.name).collect();
            format!("give one of {}", names.join(", "))
        })?;
        let all = experiment.rows.iter();
        let Some(rows) = rows else {
            return Ok(Wanted { experiment, rows: all.collect() });
        };
        let find = |wanted: &str| {
            let found = all.clone().find(|row| row.0.eq_ignore_ascii_case(wanted));
            let names: Vec<&str> = all.clone().map(|row| row.0).collect();
            found.ok_or_else(|| format!("{name} has no row '{wanted}': give some of {}", names.join(",")))
        };
        Ok(Wanted { experiment, rows: rows.split(',').map(find).collect::<Result<_, _>>()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_model_of_every_table_can_be_made() {
        for experiment in EXPERIMENTS {
            for row in experiment.rows {
                assert_eq!(row.2.len(), experiment.tests.len(), "{} {}", experiment.name, row.0);
                for (ty, figure) in experiment.types.iter().zip(row.2[0]) {
                    let spec = experiment.spec(row, ty, None).expect("a model");
                    assert!(spec.bytes().expect("a plan") > 0, "{spec} {figure}");
                    assert_eq!(experiment.spec(row, ty, Some(2)).expect("a model").layers(), 2);
                }
                assert!(row.2.iter().all(|figures| figures.len() == experiment.types.len()));
            }
        }
    }

    #[test]
    fn rows_are_chosen_by_their_names() {
        let rows = |text: &str| text.parse::<Wanted>().map(|wanted| wanted.rows.len());
        assert_eq!(rows("bitnet-table7"), Ok(8));
        assert_eq!(rows("bitnet-table7:7b,100B"), Ok(2));
        assert!(rows("bitnet-table7:8b").unwrap_err().contains("700m,1.5b"));
        assert!(rows("table").unwrap_err().contains("trilm-fig10"));
    }
}
