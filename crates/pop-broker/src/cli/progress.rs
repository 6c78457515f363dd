//! How far a long command is: a bar on a terminal, else a line now and then. On stderr, so
//! that stdout has the result alone.

use std::{
    io::{self, IsTerminal},
    time::Duration,
};

use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};
use tokio::time::Instant;

use super::complain;

/// How often a line is printed where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);

const BAR: &str = "{msg} [{bar:30}] {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
const SPINNER: &str = "{spinner} {msg} {bytes}, {bytes_per_sec}, {elapsed}";

/// Shows one stretch of work, whose length in bytes may be known.
pub(super) struct Meter {
    what: &'static str,
    total: Option<u64>,
    bar: Option<ProgressBar>,
    begun: Instant,
    told: Instant,
}

impl Meter {
    pub(super) fn new(what: &'static str, total: Option<u64>) -> Self {
        let now = Instant::now();
        Self {
            what,
            total,
            bar: io::stderr().is_terminal().then(|| bar(what, total)),
            begun: now,
            told: now,
        }
    }

    /// So many rows and bytes are done.
    pub(super) fn at(&mut self, rows: u64, bytes: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(bytes);
            return;
        }
        let now = Instant::now();
        if now - self.told < LINE_EVERY {
            return;
        }
        self.told = now;
        let seconds = (now - self.begun).as_secs().max(1);
        let of = self.total.map(|it| format!(" of {}", HumanBytes(it)));
        complain(&format!(
            "{}: {} rows, {}{}, {}/s",
            self.what,
            HumanCount(rows),
            HumanBytes(bytes),
            of.unwrap_or_default(),
            HumanBytes(bytes / seconds)
        ));
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn bar(what: &'static str, total: Option<u64>) -> ProgressBar {
    let (bar, template) = match total {
        Some(total) => (ProgressBar::new(total), BAR),
        None => (ProgressBar::new_spinner(), SPINNER),
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    let bar = bar.with_message(what);
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// Rows and bytes, for a person.
pub(super) fn amount(rows: u64, bytes: u64) -> String {
    format!("{} rows, {}", HumanCount(rows), HumanBytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_templates_are_sound() {
        for template in [BAR, SPINNER] {
            ProgressStyle::with_template(template).unwrap();
        }
    }
}
