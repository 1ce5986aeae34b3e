//! One table for many rows: their weights, divided by the rows' factors, clustered together.

use super::rows::{Rows, Taken};
use crate::quant::anyprec::cluster::{Clusterer, Method, Nesting};

/// Points that are clustered; neighbouring weights are joined until there are no more.
const POINTS: usize = 2048;

/// The tables of a class; `None` where no row of it has a weight that is not zero.
pub fn tables(nesting: Nesting, rows: &Rows<'_>, taken: &[Taken], class: usize) -> Option<Vec<Vec<f64>>> {
    let mut own = vec![0.0; rows.columns];
    let mut points: Vec<(f32, f32)> = Vec::new();
    for (i, taken) in taken.iter().enumerate().filter(|(_, t)| t.class == class) {
        let scale = taken.scales.last().copied().unwrap_or(0.0);
        if scale > 0.0 {
            rows.sensitivities.copy(i, &mut own);
            let point = |(&w, &s): (&f32, &f32)| ((f64::from(w) / scale) as f32, (f64::from(s) * scale * scale) as f32);
            points.extend(rows.row(i).iter().zip(&own).map(point));
        }
    }
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let count = points.len().min(POINTS);
    let (mut values, mut masses) = (Vec::with_capacity(count), Vec::with_capacity(count));
    for p in 0..count {
        let joined = &points[p * points.len() / count..(p + 1) * points.len() / count];
        let (mass, moment) = joined.iter().fold((0.0, 0.0), |(mass, moment), &(w, s)| {
            let (w, s) = (f64::from(w), f64::from(s));
            (mass + s, moment + s * w)
        });
        values.push(if mass > 0.0 { (moment / mass) as f32 } else { joined[0].0 });
        masses.push(mass as f32);
    }
    let (mut clusterer, mut codes) = (Clusterer::new(nesting, Method::Exact), vec![0; count]);
    clusterer.cluster(&values, &masses, &mut codes).ok().filter(|()| count > 0)?;
    let lut = |lut: &Vec<f32>| lut.iter().map(|&c| c.into()).collect();
    Some(clusterer.luts().iter().map(lut).collect())
}
