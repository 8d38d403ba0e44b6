//! The findings as a table for a terminal, as Markdown for the README, or as JSON.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::plan::Form;
use crate::table::{Area, Curve, Fit, Goal, Row, Table, Verdict};

impl Table {
    /// Prints everything.
    pub(crate) fn print(&self, form: Form) {
        if form == Form::Json {
            println!("{}", serde_json::to_string_pretty(self).unwrap());
            return;
        }
        if form == Form::Text {
            println!("{}", self.taken_on());
        }
        for grid in [self.rows(), self.slopes(), self.tallies()] {
            if grid.len() > 1 {
                print_grid(&grid, form);
            }
        }
        if form == Form::Markdown {
            println!("{}", self.taken_on());
        }
    }

    /// A sentence on machine, dates and load.
    fn taken_on(&self) -> String {
        let said = |value: &Value| value.as_str().unwrap_or("unknown").to_owned();
        let dates: BTreeSet<_> = self.areas.iter().map(|area| said(&area.date)).collect();
        let dates: BTreeSet<_> = [dates.first(), dates.last()]
            .into_iter()
            .flatten()
            .collect();
        let dates: Vec<_> = dates.into_iter().map(String::as_str).collect();
        let load = |area: &Area| {
            let (before, after) = (area.load_before, area.load_after);
            format!("{} {before:.1}/{after:.1}", area.name)
        };
        let loads: Vec<_> = self.areas.iter().map(load).collect();
        format!(
            "{}, {} cores, {}, {}; {}. Load average before/after: {}.",
            said(&self.machine["cpu"]),
            self.machine["cores"],
            said(&self.machine["kernel"]),
            said(&self.machine["compiler"]),
            dates.join(" to "),
            loads.join(", ")
        )
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let rows: Vec<&Row> = self.areas.iter().flat_map(|area| &area.rows).collect();
        let peers: BTreeSet<&String> = rows.iter().flat_map(|row| row.peers.keys()).collect();
        let heads = ["what", "value", "floor", "ratio", "goal", "verdict"];
        let heads = heads.map(str::to_owned).into_iter();
        let mut grid = vec![heads.chain(peers.iter().copied().cloned()).collect()];
        for row in rows {
            let with_unit = |value: f64| format!("{} {}", short(value), row.unit);
            let goal = row.goal.map(|goal| match goal {
                Goal::AtMost(most) => format!("≤ {}", with_unit(most)),
                Goal::AtLeast(least) => format!("≥ {}", with_unit(least)),
            });
            let verdict = row.verdict.map_or("", |verdict| match verdict {
                Verdict::Met => "met",
                Verdict::Missed => "missed",
            });
            let mut cells = vec![
                row.what.clone(),
                with_unit(row.value),
                row.floor.map(with_unit).unwrap_or_default(),
                row.ratio
                    .map(|ratio| format!("{ratio:.2}"))
                    .unwrap_or_default(),
                goal.unwrap_or_default(),
                verdict.to_owned(),
            ];
            let of_peer = |name: &&String| row.peers.get(*name).copied().map(with_unit);
            cells.extend(peers.iter().map(|name| of_peer(name).unwrap_or_default()));
            grid.push(cells);
        }
        grid
    }

    fn slopes(&self) -> Vec<Vec<String>> {
        let heads = ["growth", "along", "slope", "points"];
        let mut grid = vec![heads.map(str::to_owned).to_vec()];
        for curve in self.areas.iter().flat_map(|area| &area.curves) {
            let point = |(along, value): &(f64, f64)| format!("{along}: {}", short(*value));
            let points: Vec<_> = curve.points.iter().map(point).collect();
            grid.push(vec![
                format!("{}: {}", curve.chart, curve.name),
                curve.along.clone(),
                slope(curve),
                format!("{} {}", points.join(", "), curve.unit),
            ]);
        }
        grid
    }

    fn tallies(&self) -> Vec<Vec<String>> {
        let tallies: Vec<_> = self.areas.iter().flat_map(|area| &area.tallies).collect();
        let names: BTreeSet<&String> = tallies.iter().flat_map(|tally| tally.each.keys()).collect();
        let heads = tallies.iter().map(|tally| tally.what.clone());
        let mut grid = vec![
            [String::from("each call")]
                .into_iter()
                .chain(heads)
                .collect(),
        ];
        if tallies.is_empty() {
            return grid;
        }
        let mut line = |name: &str, value: &dyn Fn(usize) -> f64| {
            let values = (0..tallies.len()).map(value);
            let cell = |value: f64| {
                if value < 0.05 {
                    String::new()
                } else {
                    format!("{value:.1}")
                }
            };
            let cells: Vec<_> = values.map(cell).collect();
            if cells.iter().any(|cell| !cell.is_empty()) {
                grid.push([name.to_owned()].into_iter().chain(cells).collect());
            }
        };
        for name in names {
            line(name, &|at| {
                tallies[at].each.get(name).copied().unwrap_or(0.0)
            });
        }
        line("all", &|at| tallies[at].each.values().sum());
        grid
    }
}

/// A curve's slope, with what it means.
pub(crate) fn slope(curve: &Curve) -> String {
    match curve.fit {
        Fit::LogLog => format!("{:.2} (log-log)", curve.slope),
        Fit::Linear => format!("{:.2} {} each (linear)", curve.slope, curve.unit),
    }
}

/// Three digits or so.
fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn print_grid(grid: &[Vec<String>], form: Form) {
    let columns = 0..grid[0].len();
    let width = |column: usize| grid.iter().map(|line| line[column].chars().count()).max();
    let widths: Vec<_> = columns.map(|column| width(column).unwrap_or(0)).collect();
    for (at, line) in grid.iter().enumerate() {
        if form == Form::Markdown {
            let cells: Vec<_> = line.iter().map(|cell| cell.replace('|', "\\|")).collect();
            println!("| {} |", cells.join(" | "));
            if at == 0 {
                println!("|{}", " --- |".repeat(line.len()));
            }
        } else {
            let pad = |(cell, width): (&String, &usize)| {
                format!("{cell}{}", " ".repeat(width - cell.chars().count()))
            };
            let cells: Vec<_> = line.iter().zip(&widths).map(pad).collect();
            println!("{}", cells.join("  ").trim_end());
        }
    }
    println!();
}
