//! Times against load, in the form of Figure 14 of MARLIN (Frantar et al. 2024): a line for each server or width,
//! requests a second or clients across, time per token and time to the first token up.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};
use serde_json::{Map, Value};

use crate::drawing::{Axis, Canvas, Failure, GREY, MARGIN, PALE, SMALL, TEXT, TITLE, colour, printable, text};
use crate::text::read_small;

/// Size of a panel in pixels.
const PANEL: (u32, u32) = (560, 380);
/// Height of a line of the legend.
const LINE: i32 = 22;
/// Ratio from which on times are drawn on a logarithmic axis.
const WIDE: f64 = 20.0;

/// The fields of a measured load.
type Row = Map<String, Value>;

/// The rows of files that earlier runs wrote with `-o json` or `-o jsonl`.
///
/// # Errors
/// A file that cannot be read or holds something else.
pub fn rows(files: &[PathBuf]) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for path in files {
        let name = path.display();
        let bytes = read_small(path).with_context(|| format!("cannot read '{name}'"))?;
        let values = serde_json::Deserializer::from_slice(&bytes).into_iter::<Value>();
        for value in values {
            let value = value.with_context(|| format!("'{name}' is no JSON"))?;
            let list = match value {
                Value::Array(list) => list,
                one => vec![one],
            };
            for row in list {
                match row {
                    Value::Object(row) if row.contains_key("tpot_ms_p50") => rows.push(row),
                    _ => bail!("'{name}' holds no results of rbench --serve"),
                }
            }
        }
    }
    Ok(rows)
}

/// The horizontal axis.
struct Load {
    field: &'static str,
    name: &'static str,
}

const LOADS: [Load; 2] = [
    Load { field: "rate", name: "requests a second, at random times" },
    Load { field: "clients", name: "clients, each of which asks again when it has its answer" },
];

/// The vertical axes.
const TIMES: [(&str, &str); 2] =
    [("tpot", "time per token (TPOT), ms"), ("ttft", "time to the first token (TTFT), ms")];

/// The points of a server in a panel, by load: the load, the median, the 99th of a hundred.
struct Series {
    label: usize,
    points: Vec<(f64, f64, f64)>,
}

/// Draws the rows as SVG.
///
/// # Errors
/// Nothing to draw; the drawing library's.
pub fn draw(rows: &[Row]) -> Result<String> {
    let mut labels: Vec<String> = Vec::new();
    for row in rows {
        let label = label(row);
        if !labels.contains(&label) {
            labels.push(label);
        }
    }
    let loads = LOADS.iter().filter(|l| rows.iter().any(|r| number(r, l.field).is_some()));
    let loads: Vec<&Load> = loads.collect();
    if loads.is_empty() {
        bail!("--plot: there is nothing to draw");
    }
    picture(rows, &labels, &loads).map_err(|e| anyhow!("cannot draw the plot: {e}"))
}

fn label(row: &Row) -> String {
    let label = row.get("label").and_then(Value::as_str);
    printable(label.unwrap_or("a server"))
}

fn number(row: &Row, field: &str) -> Option<f64> {
    let number = row.get(field).and_then(Value::as_f64);
    number.filter(|n| n.is_finite() && *n > 0.0)
}

fn picture(rows: &[Row], labels: &[String], loads: &[&Load]) -> Result<String, Failure> {
    let width = PANEL.0 * TIMES.len() as u32;
    let head = MARGIN + TITLE + 12 + LINE * (labels.len() as i32 + 1);
    let mut svg = String::new();
    {
        let size = (width, head as u32 + PANEL.1 * loads.len() as u32);
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE)?;
        let (top, body) = root.split_vertically(head);
        legend(&top, rows, labels)?;
        let areas = body.split_evenly((loads.len(), TIMES.len()));
        let panels = loads.iter().flat_map(|load| TIMES.map(|time| (*load, time)));
        for (area, (load, (time, name))) in areas.iter().zip(panels) {
            let series = series(rows, labels, load.field, time);
            panel(area, &series, load.name, name)?;
        }
        root.present()?;
    }
    Ok(svg)
}

/// The workload, and the colours of the servers.
fn legend(area: &Canvas<'_>, rows: &[Row], labels: &[String]) -> Result<(), Failure> {
    let of = |field: &str| rows.first().and_then(|r| number(r, field)).unwrap_or(0.0);
    let title = format!("Prompts of {} tokens, texts of {}", of("n_prompt"), of("n_gen"));
    let style = |size| text(size, &BLACK, HPos::Left, VPos::Center);
    area.draw(&Text::new(title, (MARGIN, MARGIN + TITLE / 2), style(TITLE)))?;
    let lines = labels.iter().map(String::as_str).enumerate();
    let middle = |line: usize| MARGIN + TITLE + 12 + LINE * line as i32 + LINE / 2;
    for (i, label) in lines {
        let (left, y) = (MARGIN, middle(i));
        let stroke = vec![(left, y), (left + 26, y)];
        area.draw(&PathElement::new(stroke, colour(i).stroke_width(2)))?;
        area.draw(&Circle::new((left + 13, y), 4, colour(i).filled()))?;
        area.draw(&Text::new(label.to_owned(), (left + 34, y), style(TEXT)))?;
    }
    let note = "line: the median; dashed: the 99th of a hundred";
    let at = (MARGIN, middle(labels.len()));
    let small = text(SMALL, &GREY, HPos::Left, VPos::Center);
    area.draw(&Text::new(note, at, small))?;
    Ok(())
}

fn series(rows: &[Row], labels: &[String], load: &str, time: &str) -> Vec<Series> {
    let of = |name: &String| -> Vec<(f64, f64, f64)> {
        let own = rows.iter().filter(|r| label(r) == *name);
        let points = own.filter_map(|r| {
            let at = |quantile: &str| number(r, &format!("{time}_ms_{quantile}"));
            Some((number(r, load)?, at("p50")?, at("p99")?))
        });
        let mut points: Vec<_> = points.collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points
    };
    let all = labels.iter().enumerate().map(|(label, name)| Series { label, points: of(name) });
    all.filter(|s| !s.points.is_empty()).collect()
}

fn panel(area: &Canvas<'_>, series: &[Series], across: &str, up: &str) -> Result<(), Failure> {
    let points = || series.iter().flat_map(|s| &s.points);
    let xs: Vec<f64> = points().map(|p| p.0).collect();
    let ys: Vec<f64> = points().flat_map(|p| [p.1, p.2]).collect();
    if xs.is_empty() {
        return Ok(());
    }
    let least = ys.iter().copied().fold(f64::INFINITY, f64::min);
    let wide = ys.iter().copied().fold(0.0, f64::max) > WIDE * least;
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(48)
        .y_label_area_size(72)
        .build_cartesian_2d(Axis::around(&xs, false), Axis::around(&ys, wide))?;
    chart
        .configure_mesh()
        .x_desc(across)
        .y_desc(up)
        .bold_line_style(PALE)
        .axis_style(GREY)
        .label_style(text(SMALL, &GREY, HPos::Left, VPos::Top))
        .axis_desc_style(text(TEXT, &BLACK, HPos::Left, VPos::Top))
        .draw()?;
    for one in series {
        let colour = colour(one.label);
        let median: Vec<(f64, f64)> = one.points.iter().map(|p| (p.0, p.1)).collect();
        let slow = one.points.iter().map(|p| (p.0, p.2));
        chart.draw_series(median.iter().map(|&p| Circle::new(p, 4, colour.filled())))?;
        chart.draw_series(LineSeries::new(median, colour.stroke_width(2)))?;
        chart.draw_series(DashedLineSeries::new(slow, 6, 4, colour.stroke_width(1)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row(label: &str, load: &str, x: f64, tpot: f64) -> Row {
        let fields = json!({
            "label": label, load: x, "n_prompt": 256, "n_gen": 64, "tpot_ms_p50": tpot, "tpot_ms_p99": 2.0 * tpot,
            "ttft_ms_p50": 10.0 * tpot, "ttft_ms_p99": 90.0 * tpot,
        });
        fields.as_object().cloned().unwrap_or_default()
    }

    #[test]
    fn a_line_for_each_server_and_a_row_for_each_load() {
        let both = [
            row("one <&>", "rate", 1.0, 20.0),
            row("one <&>", "rate", 2.0, 30.0),
            row("two", "rate", 1.0, 60.0),
            row("two", "clients", 4.0, 60.0),
        ];
        let svg = draw(&both).expect("a picture");
        for text in
            ["one &lt;&amp;&gt;", "two", "requests a second", "clients, each", "Prompts of 256 tokens, texts of 64"]
        {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        // Points: two and one of the rates, one of the clients, for each of two times; and two in the legend.
        assert_eq!(svg.matches("<circle").count(), 2 * 4 + 2);
        let open = draw(&both[..3]).expect("a picture");
        assert!(!open.contains("clients, each"));
        assert!(draw(&[]).is_err());
    }

    #[test]
    fn files_of_earlier_runs() {
        let folder = trine_testkit::folder();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).expect("a file");
            path
        };
        let one = Value::from(row("a", "rate", 1.0, 5.0));
        let list = write("a.json", &json!([one, one]).to_string());
        let lines = write("b.jsonl", &format!("{one}\n{one}\n{one}\n"));
        assert_eq!(rows(&[list, lines]).expect("rows").len(), 5);
        for (name, text) in [("c", "[{}]"), ("d", "[1]"), ("e", "{"), ("f", "3")] {
            assert!(rows(&[write(name, text)]).is_err(), "{text}");
        }
        assert!(rows(&[folder.path().join("nothing")]).is_err());
    }
}
