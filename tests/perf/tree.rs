//! Trees of files like those of source code, the same on each machine.

use std::fmt::Write as _;
use std::path::Path;

/// Files of one directory.
const SIBLINGS: usize = 40;
/// Directories beside each other; each holds an ignore file.
const COUSINS: usize = 25;

/// Words of the lines, by weight of their place.
const WORDS: [&str; 24] = [
    "let", "self", "match", "value", "node", "buffer", "return", "index", "struct", "impl",
    "state", "None", "Some", "length", "reader", "fn", "pub", "async", "await", "error", "config",
    "stream", "usize", "vec",
];

/// Lines to cut files from: every hundredth or so holds what the searches look for.
#[derive(Debug)]
pub(crate) struct Source {
    text: String,
    lines: Vec<usize>,
    seed: u64,
}

impl Source {
    pub(crate) fn new() -> Self {
        let mut source = Self {
            text: String::new(),
            lines: Vec::new(),
            seed: 7,
        };
        for number in 0..20_000 {
            source.lines.push(source.text.len());
            let indent = ["", "    ", "        "][source.below(3)];
            source.text.push_str(indent);
            match number {
                number if number % 4_001 == 0 => {
                    source.text.push_str("unsafe impl Send for Node {}");
                }
                number if number % 1_009 == 0 => {
                    source.text.push_str("let it = open_handle(self);");
                }
                _ => (0..2 + source.below(9)).for_each(|_| {
                    let word = WORDS[source.below(WORDS.len())];
                    write!(source.text, "{word} ").unwrap();
                }),
            }
            source.text.push('\n');
        }
        source
    }

    /// The next number below a bound, the same in each run.
    fn below(&mut self, bound: usize) -> usize {
        self.seed = self
            .seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.seed >> 33).unwrap() % bound
    }

    /// A text of a number of lines from somewhere.
    fn cut(&mut self, lines: usize) -> &str {
        let first = self.below(self.lines.len() - lines);
        &self.text[self.lines[first]..self.lines[first + lines]]
    }

    /// Writes the files numbered `from` to `to` below a directory, of up to `most` lines each.
    pub(crate) fn grow(&mut self, root: &Path, from: usize, to: usize, most: usize) {
        for number in from..to {
            let directory = number / SIBLINGS;
            let top = root.join(format!("part{}", directory / COUSINS));
            let path = top.join(format!("room{}", directory % COUSINS));
            if number == from || number % SIBLINGS == 0 {
                std::fs::create_dir_all(&path).unwrap();
                std::fs::write(top.join(".gitignore"), "/target\n*.tmp\n").unwrap();
            }
            let ending = ["rs", "rs", "md", "toml", "txt"][number % 5];
            let lines = 1 + self.below(most);
            std::fs::write(path.join(format!("file{number}.{ending}")), self.cut(lines)).unwrap();
        }
    }
}
