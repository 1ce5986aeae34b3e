//! Places for the labels of points, so that they are read apart.

/// A rectangle in pixels: left, top, right, bottom.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Area(pub i32, pub i32, pub i32, pub i32);

impl Area {
    fn overlap(self, o: Area) -> i64 {
        let width = self.2.min(o.2) - self.0.max(o.0);
        let height = self.3.min(o.3) - self.1.max(o.1);
        i64::from(width.max(0)) * i64::from(height.max(0))
    }

    fn size(self) -> i64 {
        i64::from(self.2 - self.0) * i64::from(self.3 - self.1)
    }
}

/// Pixels that a text is high at `size`, and about as wide.
pub fn extent(text: &str, size: i32) -> (i32, i32) {
    let wide = text.chars().count() as i32 * size * 58 / 100;
    (wide, size)
}

/// The ends of a straight line, in pixels.
pub type Line = ((i32, i32), (i32, i32));

/// A label and its point.
pub struct Label {
    /// The text.
    pub text: String,
    /// The point.
    pub at: (i32, i32),
}

/// Distance between a point and its label.
const GAP: i32 = 7;

/// The cost of a pixel shared with another label, with a point, with a line or out of bounds.
const LABEL: i64 = 40;
const POINT: i64 = 30;
const STROKE: i64 = 12;
const OUTSIDE: i64 = 400;

/// The areas of `labels`, in their order, in `bounds`; `lines` are drawn there.
pub fn place(labels: &[Label], lines: &[Line], bounds: Area, size: i32) -> Vec<Area> {
    let points: Vec<Area> = labels.iter().map(|l| around(l.at, GAP - 1)).collect();
    let dots: Vec<Area> = lines.iter().flat_map(|&(a, b)| dots(a, b)).collect();
    let mut placed: Vec<Area> = Vec::new();
    for label in labels {
        let mut best: Option<(i64, Area)> = None;
        for (penalty, area) in candidates(label, size) {
            let wide = Area(area.0 - 4, area.1 - 1, area.2 + 4, area.3 + 1);
            let shared = |others: &[Area]| others.iter().map(|o| wide.overlap(*o)).sum::<i64>();
            let cost = penalty
                + LABEL * shared(&placed)
                + POINT * shared(&points)
                + STROKE * shared(&dots)
                + OUTSIDE * (area.size() - area.overlap(bounds));
            if best.is_none_or(|(least, _)| cost < least) {
                best = Some((cost, area));
            }
        }
        if let Some((_, area)) = best {
            placed.push(area);
        }
    }
    placed
}

fn around((x, y): (i32, i32), r: i32) -> Area {
    Area(x - r, y - r, x + r, y + r)
}

/// A line as small squares.
fn dots(a: (i32, i32), b: (i32, i32)) -> impl Iterator<Item = Area> {
    let n = (a.0 - b.0).abs().max((a.1 - b.1).abs()) / 4 + 1;
    (0..=n).map(move |i| {
        let on = |from: i32, to: i32| from + (to - from) * i / n;
        around((on(a.0, b.0), on(a.1, b.1)), 2)
    })
}

/// Places around the point, the better and nearer ones cheaper.
fn candidates(label: &Label, size: i32) -> impl Iterator<Item = (i64, Area)> {
    let (wide, high) = extent(&label.text, size);
    let (x, y) = label.at;
    (0..3).flat_map(move |ring| {
        let d = GAP + ring * (high + 2);
        let (left, middle, right) = (x - d - wide, x - wide / 2, x + d);
        let (above, level, below) = (y - d - high, y - high / 2, y + d);
        let corner = |d: i32| d * 7 / 10;
        let places = [
            (right, level),
            (left, level),
            (middle, above),
            (middle, below),
            (x + corner(d), y - corner(d) - high),
            (x + corner(d), y + corner(d)),
            (x - corner(d) - wide, y - corner(d) - high),
            (x - corner(d) - wide, y + corner(d)),
        ];
        places.into_iter().enumerate().map(move |(i, (left, top))| {
            let penalty = 60 * i as i64 + 2000 * i64::from(ring);
            (penalty, Area(left, top, left + wide, top + high))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_near_points_stand_apart() {
        let bounds = Area(0, 0, 400, 300);
        let label = |text: &str, x, y| Label { text: text.to_owned(), at: (x, y) };
        let labels =
            [label("Q4_K_M", 200, 150), label("Q4_0", 206, 152), label("ap 4", 198, 158), label("ap 8", 397, 2)];
        let lines = [((198, 158), (397, 2))];
        let areas = place(&labels, &lines, bounds, 13);
        assert_eq!(areas.len(), 4);
        for (i, a) in areas.iter().enumerate() {
            assert_eq!(a.overlap(bounds), a.size(), "{a:?}");
            assert!(areas[..i].iter().all(|b| a.overlap(*b) == 0), "{areas:?}");
        }
    }
}
