//! Speed and size, side by side with floors measured in the same run.
//!
//! `cargo bench --locked --bench perf -- [AREA…] [--quick] [--json | --markdown] [--check] [--save]`; README.md here says
//! what each does. The daemon measured is the one of the bench profile, that is a release build. Without cargo's
//! `--bench` (`cargo test`, nextest) each area runs one tiny round, so that the benches keep working.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::exit,
    clippy::cast_precision_loss,
    reason = "a bench stops where these would, prints its table and looks at processes from outside"
)]

mod bash;
mod chart;
mod client;
mod figures;
mod files;
mod growth;
mod journal;
mod machine;
mod memory;
mod output;
mod peers;
mod plan;
mod print;
mod sample;
mod search;
mod server;
mod soak;
mod socket;
mod start;
mod syscalls;
mod table;
mod tree;

use plan::{Asked, Plan};
use table::Table;

/// An area measures its rows into the table.
type Area = fn(&Plan, &mut Table);

/// In the order of measuring. Asking for `growth` runs all that begin with it.
const AREAS: [(&str, Area); 11] = [
    ("start", start::measure),
    ("bash", bash::measure),
    ("files", files::measure),
    ("search", search::measure),
    ("output", output::measure),
    ("journal", journal::measure),
    ("memory", memory::measure),
    ("syscalls", syscalls::measure),
    ("growth-calls", growth::calls),
    ("growth-sessions", growth::sessions),
    ("growth-files", growth::files),
];

fn main() {
    let mut words = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with("--"));
    if words.next().is_some_and(|word| word == "soak") {
        std::process::exit(soak::run(words.next().as_ref()));
    }
    let names = AREAS.map(|(name, _)| name);
    match plan::read(std::env::args().skip(1), &names) {
        Err(fault) => {
            eprintln!("{fault}");
            std::process::exit(2);
        }
        Ok(Asked::List) => names.iter().for_each(|name| println!("{name}: test")),
        Ok(Asked::Nothing) => {}
        Ok(Asked::Saved(plan)) => {
            let mut table = figures::load();
            table.areas.retain(|area| plan.wants(&area.name));
            table.print(plan.form);
        }
        Ok(Asked::Measure(plan)) => measure(&plan),
    }
}

fn measure(plan: &Plan) {
    let mut table = Table::default();
    for (name, measure) in AREAS.iter().filter(|(name, _)| plan.wants(name)) {
        eprintln!("measuring {name} …");
        table.begin(name);
        measure(plan, &mut table);
        table.end();
    }
    table.print(plan.form);
    if plan.save {
        figures::save(&table);
    }
    if plan.check && table.missed() > 0 {
        eprintln!("goals missed: {}", table.missed());
        std::process::exit(1);
    }
}
