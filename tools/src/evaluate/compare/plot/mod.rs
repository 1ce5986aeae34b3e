//! The picture: perplexity and divergence against size and speed, a colour for each file.

mod labels;
mod legend;

use anyhow::{Result, anyhow};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use trine::eval::kld::Uncertain;

use super::entry::Entry;
use super::frontier;
use crate::drawing::{Axis, Canvas, Failure, GREY, MARGIN, PALE, SMALL, TEXT, TITLE, colour, printable, text};
use labels::{Area, Label, Line, place};
use legend::legend;

/// Size of a panel in pixels.
const PANEL: (u32, u32) = (620, 430);

/// The least divergence that a logarithmic axis shows: that of a model from its own base file, whose values have 16
/// bits.
const LEAST_KLD: f64 = 1e-6;

/// Ratio from which on perplexities are drawn on a logarithmic axis.
const WIDE: f64 = 5.0;

/// A point of a panel.
struct Point {
    file: usize,
    bits: Option<u8>,
    label: String,
    x: f64,
    y: f64,
    /// Standard error of `y`.
    error: f64,
}

/// One of the four panels of the plot.
struct Panel {
    x_name: String,
    y_name: String,
    points: Vec<Point>,
    /// The height of the reference.
    level: Option<f64>,
    /// True if the vertical axis is logarithmic.
    logarithmic: bool,
    /// True if less is better on both axes, so that the points that no other beats are joined.
    front: bool,
}

/// Draws `entries` as SVG; `labels` are those of the files, `reference` that of the reference.
///
/// # Errors
/// The drawing library's.
pub fn draw(title: &str, entries: &[Entry], reference: &str, labels: &[&str]) -> Result<String> {
    picture(title, entries, reference, labels).map_err(|e| anyhow!("cannot draw the plot: {e}"))
}

fn picture(title: &str, entries: &[Entry], reference: &str, labels: &[&str]) -> Result<String, Failure> {
    let reference = printable(reference);
    let labels: Vec<String> = labels.iter().map(|l| printable(l)).collect();
    let rows = panels(entries, &labels);
    let columns = rows.iter().map(Vec::len).max().unwrap_or(1);
    let width = PANEL.0 * columns as u32;
    let used: Vec<usize> = (0..labels.len()).filter(|&i| entries.iter().any(|e| e.file == Some(i))).collect();
    let keys = legend(entries, &reference, &labels, &used, width as i32 - 2 * MARGIN);
    let top_of_keys = MARGIN + TITLE + 12;
    let head = top_of_keys + legend::height(&keys) + 4;

    let mut svg = String::new();
    {
        let size = (width, head as u32 + PANEL.1 * rows.len() as u32);
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE)?;
        let (top, body) = root.split_vertically(head);
        let title = printable(title);
        top.draw(&Text::new(title, (MARGIN, MARGIN), text(TITLE, &BLACK, HPos::Left, VPos::Top)))?;
        for key in &keys {
            key.draw(&top, top_of_keys)?;
        }
        let areas = body.split_evenly((rows.len(), columns));
        for (panel, area) in rows.iter().flatten().zip(&areas) {
            panel.draw(&root, area)?;
        }
        root.present()?;
    }
    Ok(svg)
}

/// The rows of panels; without speeds there is one in each.
fn panels(entries: &[Entry], labels: &[String]) -> [Vec<Panel>; 2] {
    let points = |x: &dyn Fn(&Entry) -> Option<f64>, y: &dyn Fn(&Entry) -> Uncertain| -> Vec<Point> {
        let all = entries.iter().filter_map(|e| {
            let file = e.file?;
            let label = match e.footprint.bits {
                Some(bits) => format!("{} {bits}", labels[file]),
                None => labels[file].clone(),
            };
            let (x, Uncertain { value: y, error }) = (x(e)?, y(e));
            Some(Point { file, bits: e.footprint.bits, label, x, y, error })
        });
        all.filter(|p| p.x.is_finite() && p.y.is_finite()).collect()
    };
    let level = entries.iter().find(|e| e.file.is_none()).map(|e| e.ppl.value);
    let size = |e: &Entry| Some(e.bits_per_weight);
    let speed = |e: &Entry| e.generation;
    let ppl = |e: &Entry| e.ppl;
    let kld = |e: &Entry| Uncertain { value: e.kld.value.max(LEAST_KLD), error: e.kld.error };
    let mut rows = [Vec::new(), Vec::new()];
    for (x, x_name, front) in [
        (&size as &dyn Fn(&Entry) -> Option<f64>, "bits per weight of the whole model", true),
        (&speed, "tokens per second, one by one", false),
    ] {
        let of_ppl = points(x, &ppl);
        if of_ppl.is_empty() && !rows[0].is_empty() {
            continue;
        }
        let values = || of_ppl.iter().map(|p| p.y).chain(level);
        let wide = values().fold(0.0, f64::max) > WIDE * values().fold(f64::INFINITY, f64::min);
        rows[0].push(Panel {
            x_name: x_name.to_owned(),
            y_name: "perplexity".to_owned(),
            logarithmic: wide,
            points: of_ppl,
            level,
            front,
        });
        rows[1].push(Panel {
            x_name: x_name.to_owned(),
            y_name: "KL divergence from the reference, nats".to_owned(),
            logarithmic: true,
            points: points(x, &kld),
            level: None,
            front,
        });
    }
    rows
}

type Axes = Cartesian2d<Axis, Axis>;

impl Panel {
    fn draw(&self, root: &Canvas<'_>, area: &Canvas<'_>) -> Result<(), Failure> {
        let xs: Vec<f64> = self.points.iter().map(|p| p.x).collect();
        let level = self.level.filter(|l| l.is_finite());
        let ys: Vec<f64> = self.points.iter().map(|p| p.y).chain(level).collect();
        if xs.is_empty() {
            return Ok(());
        }
        let (x, y) = (Axis::around(&xs, false), Axis::around(&ys, self.logarithmic));
        let (across, down) = (x.range(), y.range());
        let mut chart =
            ChartBuilder::on(area).margin(12).x_label_area_size(48).y_label_area_size(72).build_cartesian_2d(x, y)?;
        chart
            .configure_mesh()
            .x_desc(&self.x_name)
            .y_desc(&self.y_name)
            .bold_line_style(PALE)
            .axis_style(GREY)
            .label_style(text(SMALL, &GREY, HPos::Left, VPos::Top))
            .axis_desc_style(text(TEXT, &BLACK, HPos::Left, VPos::Top))
            .draw()?;
        let mut lines = Vec::new();
        if let Some(level) = level {
            let ends = [(across.start, level), (across.end, level)];
            chart.draw_series(DashedLineSeries::new(ends, 6, 5, GREY.stroke_width(1)))?;
            lines.push(ends.map(|e| chart.backend_coord(&e)).into());
        }
        if self.front {
            let front = frontier::of(self.points.iter().map(|p| (p.x, p.y)));
            let at: Vec<(f64, f64)> = front.iter().map(|&place| (self.points[place].x, self.points[place].y)).collect();
            chart.draw_series(DashedLineSeries::new(at, 2, 4, GREY.stroke_width(1)))?;
        }
        for points in self.points.chunk_by(|a, b| a.file == b.file) {
            let colour = colour(points[0].file);
            let mut widths: Vec<&Point> = points.iter().collect();
            widths.sort_by_key(|p| p.bits);
            let at: Vec<(f64, f64)> = widths.iter().map(|p| (p.x, p.y)).collect();
            chart.draw_series(at.iter().map(|&p| Circle::new(p, 4, colour.filled())))?;
            chart.draw_series(widths.iter().map(|p| {
                let low = (p.y - p.error).max(down.start);
                PathElement::new([(p.x, low), (p.x, (p.y + p.error).min(down.end))], colour.stroke_width(1))
            }))?;
            if at.len() > 1 {
                chart.draw_series(LineSeries::new(at.clone(), colour.stroke_width(2)))?;
            }
            let pixels: Vec<_> = at.iter().map(|p| chart.backend_coord(p)).collect();
            lines.extend(pixels.windows(2).map(|w| (w[0], w[1])));
        }
        self.label(root, &chart, &lines)
    }

    /// Writes beside each point what it is.
    fn label(
        &self,
        root: &Canvas<'_>,
        chart: &ChartContext<'_, SVGBackend<'_>, Axes>,
        lines: &[Line],
    ) -> Result<(), Failure> {
        let all = self.points.iter().map(|p| Label { text: p.label.clone(), at: chart.backend_coord(&(p.x, p.y)) });
        let all: Vec<Label> = all.collect();
        let (across, down) = chart.plotting_area().get_pixel_range();
        let bounds = Area(across.start, down.start, across.end, down.end);
        let places = place(&all, lines, bounds, SMALL);
        for ((label, area), point) in all.iter().zip(places).zip(&self.points) {
            let style = text(SMALL, &colour(point.file), HPos::Left, VPos::Center);
            let middle = (area.1 + area.3) / 2;
            root.draw(&Text::new(label.text.clone(), (area.0, middle), style))?;
        }
        Ok(())
    }
}
