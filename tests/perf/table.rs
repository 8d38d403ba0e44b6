//! What a run found: rows against floors and goals, curves, tallies; by area, with the time and the load they were taken at.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::machine;

/// The findings of a run, or of several put together.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Table {
    /// Its machine, compiler and date.
    pub(crate) machine: Value,
    /// In the order of measuring.
    pub(crate) areas: Vec<Area>,
}

/// The findings of one area.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Area {
    pub(crate) name: String,
    pub(crate) date: Value,
    pub(crate) load_before: f64,
    pub(crate) load_after: f64,
    #[serde(default)]
    pub(crate) rows: Vec<Row>,
    #[serde(default)]
    pub(crate) curves: Vec<Curve>,
    #[serde(default)]
    pub(crate) tallies: Vec<Tally>,
}

/// One value.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) unit: String,
    pub(crate) value: f64,
    /// What the machine itself takes for it.
    pub(crate) floor: Option<f64>,
    pub(crate) ratio: Option<f64>,
    pub(crate) goal: Option<Goal>,
    pub(crate) verdict: Option<Verdict>,
    /// What others take for it, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) peers: BTreeMap<String, f64>,
}

/// A bound of a value.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Goal {
    AtMost(f64),
    AtLeast(f64),
}

/// Whether a goal is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    Met,
    Missed,
}

/// How something grows.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Curve {
    /// The chart that it belongs to.
    pub(crate) chart: String,
    pub(crate) name: String,
    pub(crate) along: String,
    pub(crate) unit: String,
    pub(crate) fit: Fit,
    /// The exponent of a log-log fit; of a linear one, units for each step along.
    pub(crate) slope: f64,
    pub(crate) points: Vec<(f64, f64)>,
}

/// How a slope was found; least squares either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Fit {
    LogLog,
    Linear,
}

/// How often a call does what, by name.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Tally {
    pub(crate) what: String,
    pub(crate) calls: usize,
    pub(crate) each: BTreeMap<String, f64>,
}

impl Row {
    /// Makes a row without floor and goal.
    pub(crate) fn new(what: &str, value: f64, unit: &str) -> Self {
        Self {
            what: what.to_owned(),
            unit: unit.to_owned(),
            value,
            floor: None,
            ratio: None,
            goal: None,
            verdict: None,
            peers: BTreeMap::new(),
        }
    }

    /// Sets its floor.
    pub(crate) fn floor(mut self, floor: f64) -> Self {
        self.floor = Some(floor);
        self.ratio = Some(self.value / floor);
        self
    }

    /// Sets its goal.
    pub(crate) fn goal(mut self, goal: Goal) -> Self {
        let met = match goal {
            Goal::AtMost(most) => self.value <= most,
            Goal::AtLeast(least) => self.value >= least,
        };
        self.verdict = Some(if met { Verdict::Met } else { Verdict::Missed });
        self.goal = Some(goal);
        self
    }

    /// Adds what others take.
    pub(crate) fn peers<'a>(mut self, peers: impl IntoIterator<Item = (&'a str, f64)>) -> Self {
        let named = peers
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value));
        self.peers.extend(named);
        self
    }
}

impl Default for Table {
    fn default() -> Self {
        Self {
            machine: machine::describe(),
            areas: Vec::new(),
        }
    }
}

impl Table {
    /// Begins an area; what is added from now on is its.
    pub(crate) fn begin(&mut self, name: &str) {
        self.areas.push(Area {
            name: name.to_owned(),
            date: self.machine["date"].clone(),
            load_before: machine::load(),
            load_after: 0.0,
            rows: Vec::new(),
            curves: Vec::new(),
            tallies: Vec::new(),
        });
    }

    /// Ends the area.
    pub(crate) fn end(&mut self) {
        self.area().load_after = machine::load();
    }

    /// The area that is being measured.
    pub(crate) fn area(&mut self) -> &mut Area {
        self.areas.last_mut().expect("an area has begun")
    }

    /// Adds a row.
    pub(crate) fn add(&mut self, row: Row) {
        self.area().rows.push(row);
    }

    /// Takes the areas of another run; they replace those of the same names.
    pub(crate) fn append(&mut self, other: &Self) {
        self.machine = other.machine.clone();
        for area in &other.areas {
            match self.areas.iter_mut().find(|known| known.name == area.name) {
                Some(known) => *known = area.clone(),
                None => self.areas.push(area.clone()),
            }
        }
    }

    /// Returns how many goals were missed.
    pub(crate) fn missed(&self) -> usize {
        let rows = self.areas.iter().flat_map(|area| &area.rows);
        rows.filter(|row| row.verdict == Some(Verdict::Missed))
            .count()
    }
}
