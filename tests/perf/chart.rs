//! The growth curves as an SVG: one panel for each chart, readable on light and dark pages.

use std::fmt::Write as _;

use crate::print::slope;
use crate::table::{Curve, Fit};

/// Colours are classes, so that the page's scheme chooses; the background is drawn, so that neither scheme hides text.
const STYLE: &str = "\
text{font:13px sans-serif;fill:#1f2328}.t{font-size:15px;font-weight:600}.back{fill:#fff}\
.grid{stroke:#d1d9e0}.line{fill:none;stroke-width:2.2}.beside{stroke-dasharray:6 4}\
.c0{stroke:#0969da}.c1{stroke:#bc4c00}.c2{stroke:#1a7f37}.c3{stroke:#8250df}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.back{fill:#0d1117}.grid{stroke:#3d444d}\
.c0{stroke:#58a6ff}.c1{stroke:#f0883e}.c2{stroke:#3fb950}.c3{stroke:#bc8cff}}";

/// The size of a panel, and its plot within.
const PANEL: (f64, f64) = (400.0, 400.0);
const LEFT: f64 = 62.0;
const TOP: f64 = 44.0;
const PLOT: (f64, f64) = (316.0, 220.0);

/// Draws all charts beside each other.
pub(crate) fn draw(curves: &[&Curve]) -> String {
    let mut charts: Vec<(&str, Vec<&Curve>)> = Vec::new();
    for curve in curves {
        match charts.iter_mut().find(|(name, _)| *name == curve.chart) {
            Some((_, curves)) => curves.push(curve),
            None => charts.push((&curve.chart, vec![curve])),
        }
    }
    let (width, height) = (PANEL.0 * charts.len() as f64, PANEL.1);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         role=\"img\" aria-label=\"How latency, memory and search time grow\">\n<style>{STYLE}</style>\n\
         <rect class=\"back\" width=\"{width}\" height=\"{height}\"/>\n"
    );
    for (at, (name, curves)) in charts.iter().enumerate() {
        writeln!(
            svg,
            "<g transform=\"translate({} 0)\">",
            PANEL.0 * at as f64
        )
        .unwrap();
        panel(&mut svg, name, curves);
        svg.push_str("</g>\n");
    }
    svg + "</svg>\n"
}

fn panel(svg: &mut String, name: &str, curves: &[&Curve]) {
    let first = curves[0];
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let across = Axis::over(first.fit, points().map(|(x, _)| *x), PLOT.0);
    let up = Axis::over(first.fit, points().map(|(_, y)| *y), PLOT.1);
    let (right, bottom) = (LEFT + PLOT.0, TOP + PLOT.1);
    let title = format!("{name}, {} against {}", first.unit, first.along);
    text(svg, LEFT, 24.0, "start", " class=\"t\"", &title);
    for tick in &up.ticks {
        let y = bottom - up.place(*tick);
        writeln!(svg, "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right}\"/>").unwrap();
        text(svg, LEFT - 8.0, y + 4.0, "end", "", &label(*tick));
    }
    for tick in &across.ticks {
        let x = LEFT + across.place(*tick);
        writeln!(svg, "<path class=\"grid\" d=\"M{x:.1} {TOP}V{bottom}\"/>").unwrap();
        text(svg, x, bottom + 20.0, "middle", "", &label(*tick));
    }
    for (at, curve) in curves.iter().enumerate() {
        let beside = if curve.name.starts_with("rg") {
            " beside"
        } else {
            ""
        };
        let class = format!("line c{}{beside}", at % 4);
        let place = |(x, y): &(f64, f64)| {
            format!(
                "{:.1} {:.1}",
                LEFT + across.place(*x),
                bottom - up.place(*y)
            )
        };
        let path: Vec<_> = curve.points.iter().map(place).collect();
        writeln!(svg, "<path class=\"{class}\" d=\"M{}\"/>", path.join("L")).unwrap();
        let y = bottom + 50.0 + 20.0 * at as f64;
        writeln!(
            svg,
            "<path class=\"{class}\" d=\"M{LEFT} {}h32\"/>",
            y - 4.0
        )
        .unwrap();
        let legend = format!("{}, slope {}", curve.name, slope(curve));
        text(svg, LEFT + 42.0, y, "start", "", &legend);
    }
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, more: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;");
    writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\"{more}>{words}</text>"
    )
    .unwrap();
}

/// Where values come to stand along one direction.
struct Axis {
    fit: Fit,
    from: f64,
    to: f64,
    length: f64,
    ticks: Vec<f64>,
}

impl Axis {
    fn over(fit: Fit, values: impl Iterator<Item = f64>, length: f64) -> Self {
        let (least, most) = values.fold((f64::MAX, f64::MIN), |(least, most), value| {
            (least.min(value), most.max(value))
        });
        let (from, to, ticks) = if fit == Fit::LogLog {
            let (from, to) = (least.log10().floor(), most.log10().ceil());
            let decades = std::iter::successors(Some(from), |decade| Some(decade + 1.0));
            let ticks = decades.take_while(|decade| *decade <= to);
            (from, to, ticks.map(|decade| 10f64.powf(decade)).collect())
        } else {
            let step = round_step(most / 5.0);
            let steps = std::iter::successors(Some(0.0), |tick| Some(tick + step));
            let ticks: Vec<_> = steps.take_while(|tick| *tick < most + step).collect();
            (0.0, ticks.last().copied().unwrap_or(most), ticks)
        };
        Self {
            fit,
            from,
            to,
            length,
            ticks,
        }
    }

    fn place(&self, value: f64) -> f64 {
        let value = if self.fit == Fit::LogLog {
            value.log10()
        } else {
            value
        };
        (value - self.from) / (self.to - self.from) * self.length
    }
}

/// The next of 1, 2, 5, 10, 20, …
fn round_step(least: f64) -> f64 {
    let decade = 10f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * decade);
    steps
        .into_iter()
        .find(|step| *step >= least)
        .unwrap_or(least)
}

fn label(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{}M", value / 1e6),
        value if value >= 1e3 => format!("{}k", value / 1e3),
        value if value >= 1.0 || value == 0.0 => format!("{value:.0}"),
        value => format!("{value}"),
    }
}
