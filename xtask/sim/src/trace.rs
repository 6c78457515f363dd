//! What happened in a run, line by line, and a hash of it: the same seed has the same one.

use std::fmt::Write;

/// The trace of a run.
#[derive(Debug)]
pub struct Trace {
    hash: u64,
    line: String,
    lines: Option<Vec<String>>,
    echo: bool,
}

impl Trace {
    /// An empty trace, which keeps its lines, or prints them, if asked.
    pub fn new(keep: bool, echo: bool) -> Self {
        Self {
            hash: 0xCBF2_9CE4_8422_2325,
            line: String::new(),
            lines: keep.then(Vec::new),
            echo,
        }
    }

    /// Adds a line.
    #[expect(clippy::print_stdout, reason = "only if somebody watches")]
    pub fn note(&mut self, text: std::fmt::Arguments<'_>) {
        self.line.clear();
        // Writing to a string can't fail.
        let _ = self.line.write_fmt(text);
        self.hash = self.line.bytes().fold(self.hash, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
        });
        if self.echo {
            println!("{}", self.line);
        }
        if let Some(lines) = &mut self.lines {
            lines.push(self.line.clone());
        }
    }

    /// What the lines come to.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The lines, if they were kept.
    pub fn into_lines(self) -> Vec<String> {
        self.lines.unwrap_or_default()
    }
}
