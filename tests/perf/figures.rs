//! The committed figures: `figures/perf.json`, area by area, and the chart drawn from it.

use std::path::PathBuf;

use crate::chart;
use crate::table::Table;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/perf/figures")
        .join(name)
}

/// Reads the committed figures.
pub(crate) fn load() -> Table {
    let text = std::fs::read_to_string(path("perf.json")).expect("figures have been saved");
    serde_json::from_str(&text).expect("the figures are as this program writes them")
}

/// Replaces the figures of the areas measured, and draws the chart anew.
pub(crate) fn save(measured: &Table) {
    let mut table = if path("perf.json").exists() {
        load()
    } else {
        Table::default()
    };
    table.append(measured);
    let json = serde_json::to_string_pretty(&table).unwrap();
    std::fs::create_dir_all(path("")).unwrap();
    std::fs::write(path("perf.json"), json + "\n").unwrap();
    let curves: Vec<_> = table.areas.iter().flat_map(|area| &area.curves).collect();
    if !curves.is_empty() {
        std::fs::write(path("growth.svg"), chart::draw(&curves)).unwrap();
    }
}
