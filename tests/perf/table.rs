//! The table of a run: what was measured, its floor, its goal.

use std::time::Duration;

/// Rows in the order of measuring.
#[derive(Debug, Default)]
pub(crate) struct Table(Vec<Row>);

#[derive(Debug)]
struct Row {
    what: String,
    floor: Option<f64>,
    value: f64,
    goal: f64,
    unit: &'static str,
    /// Whether more is better.
    more: bool,
}

impl Table {
    /// Adds a value that must not exceed its goal.
    pub(crate) fn at_most(
        &mut self,
        what: &str,
        floor: Option<f64>,
        value: f64,
        goal: f64,
        unit: &'static str,
    ) {
        self.0.push(Row {
            what: what.to_owned(),
            floor,
            value,
            goal,
            unit,
            more: false,
        });
    }

    /// Adds a value that must reach its goal.
    pub(crate) fn at_least(
        &mut self,
        what: &str,
        floor: Option<f64>,
        value: f64,
        goal: f64,
        unit: &'static str,
    ) {
        self.0.push(Row {
            what: what.to_owned(),
            floor,
            value,
            goal,
            unit,
            more: true,
        });
    }

    /// Prints the table as Markdown.
    pub(crate) fn print(&self) {
        println!("| what | floor | measured | goal | |\n| --- | --- | --- | --- | --- |");
        for row in &self.0 {
            let floor = row
                .floor
                .map_or(String::new(), |floor| format!("{floor:.2} {}", row.unit));
            let sign = if row.more { '≥' } else { '≤' };
            let mark = if row.is_met() { "met" } else { "MISSED" };
            println!(
                "| {} | {floor} | {:.2} {unit} | {sign} {:.2} {unit} | {mark} |",
                row.what,
                row.value,
                row.goal,
                unit = row.unit
            );
        }
    }

    /// Returns how many goals were missed.
    pub(crate) fn missed(&self) -> usize {
        self.0.iter().filter(|row| !row.is_met()).count()
    }
}

impl Row {
    fn is_met(&self) -> bool {
        if self.more {
            self.value >= self.goal
        } else {
            self.value <= self.goal
        }
    }
}

/// Returns the median in milliseconds.
pub(crate) fn median_ms(times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1_000.0
}
