//! How far a long command is: a bar on a terminal, else a line now and then. On stderr, so
//! that stdout has the result alone.

use std::{
    fmt,
    io::{self, IsTerminal},
    time::Duration,
};

use indicatif::{HumanBytes, HumanCount, HumanDuration, ProgressBar, ProgressStyle};
use kv_restore::{Phase, Progress, RestoreStats};
use pop_store::Estimate;
use tokio::time::Instant;

use super::complain;

/// How often a line is printed where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// What took less is not told.
const WORTH_A_WORD: Duration = Duration::from_millis(100);

const BAR: &str =
    "{msg} [{bar:30}] {bytes} of {prefix}{total_bytes} ({percent} %), {bytes_per_sec}, {eta} left";
const SPINNER: &str = "{spinner} {msg} {bytes}, {bytes_per_sec}, {elapsed}";

/// What is shown, for `--help`.
pub(super) const PROGRESS: &str = "\
Progress:
  On a terminal stderr has a bar, else a line every 5 s: what is done and in which phase, rows
  and bytes so far, bytes a second since the line before, and how often a connection that
  broke was made again. Where the source can say how much it has, also of how much, how many
  percent, and how long it still takes at that rate: about, as of fjall and rocksdb, whose
  rows that were deleted count for a while, or exactly, as of a backup; sled can't. At the
  end stdout says the same of all that was moved, and how long each phase took.";

/// Shows one stretch of work.
pub(super) struct Meter {
    what: &'static str,
    // Its length in bytes, where that is known beforehand.
    total: Option<u64>,
    bar: Option<ProgressBar>,
    begun: Instant,
    told: Instant,
    // Whether it was said that an earlier command is gone on with.
    goes_on: bool,
    // Where the last line was, and where it is now.
    told_bytes: u64,
    seen: Seen,
}

/// How far it is.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    rows: u64,
    bytes: u64,
    about: Option<Estimate>,
    phase: Option<Phase>,
    reconnects: u32,
}

/// How many bytes all of it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Total {
    Exactly(u64),
    About(u64),
}

/// What a command moved, how fast, and what it waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Moved {
    rows: u64,
    bytes: u64,
    took: Duration,
    reconnects: u32,
    phases: Vec<(Phase, Duration)>,
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
            goes_on: false,
            told_bytes: 0,
            seen: Seen::default(),
        }
    }

    /// So many rows and bytes are done.
    pub(super) fn at(&mut self, rows: u64, bytes: u64) {
        (self.seen.rows, self.seen.bytes) = (rows, bytes);
        self.show();
    }

    /// A session is so far.
    pub(super) fn see(&mut self, progress: &Progress) {
        if progress.rows_before > 0 && !std::mem::replace(&mut self.goes_on, true) {
            let before = amount(progress.rows_before, progress.bytes_before);
            let what = self.what;
            self.aside(&format!(
                "an earlier {what} was cut: going on behind its first {before}"
            ));
        }
        // What was there before was not moved in this time.
        if self.seen.bytes == 0 {
            self.told_bytes = progress.bytes_before;
        }
        self.seen = Seen {
            rows: progress.rows,
            bytes: progress.bytes,
            about: progress.about,
            phase: Some(progress.phase),
            reconnects: progress.attempt,
        };
        self.show();
    }

    /// What was moved until now, as whoever moved it counted.
    pub(super) fn moved(&self, stats: &RestoreStats) -> Moved {
        let phases = stats.phases.iter().map(|(phase, took)| (*phase, *took));
        Moved {
            rows: stats.rows,
            bytes: stats.bytes,
            took: self.begun.elapsed(),
            reconnects: self.seen.reconnects,
            phases: phases.filter(|(_, took)| *took >= WORTH_A_WORD).collect(),
        }
    }

    /// Says something beside the bar.
    fn aside(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| complain(text)),
            None => complain(text),
        }
    }

    fn show(&mut self) {
        if let Some(bar) = &self.bar {
            if let Some(total) = self.total() {
                show_total(bar, total);
            }
            bar.set_position(self.seen.bytes);
            bar.set_message(self.doing());
            return;
        }
        let now = Instant::now();
        if now - self.told >= LINE_EVERY {
            complain(&self.line(now - self.told));
            (self.told, self.told_bytes) = (now, self.seen.bytes);
        }
    }

    /// How much it is, never less than there was already.
    fn total(&self) -> Option<Total> {
        if let Some(total) = self.total {
            return Some(Total::Exactly(total));
        }
        let Seen { rows, bytes, .. } = self.seen;
        let about = self.seen.about?;
        let all = match about.bytes {
            Some(all) => all,
            // As large as those that came, on average.
            None if rows > 0 => {
                let all = u128::from(bytes) * u128::from(about.rows) / u128::from(rows);
                u64::try_from(all).unwrap_or(u64::MAX)
            }
            None => return None,
        };
        Some(Total::About(all.max(bytes)))
    }

    /// What is being done.
    fn doing(&self) -> String {
        let phase = self.seen.phase.map(|it| format!(" ({it})"));
        let broke = reconnected(self.seen.reconnects);
        format!("{}{}{broke}", self.what, phase.unwrap_or_default())
    }

    /// Where it is, so long after the last line.
    fn line(&self, since: Duration) -> String {
        let Seen { rows, bytes, .. } = self.seen;
        let total = self.total();
        let late = bytes.saturating_sub(self.told_bytes);
        let of = total.map(|total| format!(" of {total} ({} %)", total.percent(bytes)));
        let left = total.and_then(|total| total.left(bytes, late, since));
        let left = left.map(|time| format!(", about {} left", HumanDuration(time)));
        format!(
            "{}: {}{}, {}{}",
            self.doing(),
            amount(rows, bytes),
            of.unwrap_or_default(),
            rate(late, since),
            left.unwrap_or_default()
        )
    }
}

impl Total {
    fn bytes(self) -> u64 {
        match self {
            Self::Exactly(bytes) | Self::About(bytes) => bytes,
        }
    }

    fn percent(self, done: u64) -> u64 {
        let percent = u128::from(done) * 100 / u128::from(self.bytes().max(1));
        u64::try_from(percent.min(100)).unwrap_or(100)
    }

    /// How long the rest takes at the rate of late; nobody knows if nothing came.
    fn left(self, done: u64, late: u64, since: Duration) -> Option<Duration> {
        let left = u128::from(self.bytes().saturating_sub(done));
        let millis = left
            .saturating_mul(since.as_millis())
            .checked_div(late.into())?;
        let millis = u64::try_from(millis).ok().filter(|it| *it > 0)?;
        Some(Duration::from_millis(millis))
    }
}

impl fmt::Display for Total {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(bytes) => write!(f, "{}", HumanBytes(*bytes)),
            Self::About(bytes) => write!(f, "about {}", HumanBytes(*bytes)),
        }
    }
}

impl fmt::Display for Moved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} in {:.1} s, {}{}",
            amount(self.rows, self.bytes),
            self.took.as_secs_f64(),
            rate(self.bytes, self.took),
            reconnected(self.reconnects)
        )?;
        for (at, (phase, took)) in self.phases.iter().enumerate() {
            let before = if at == 0 { "; " } else { ", " };
            write!(f, "{before}{:.1} s {phase}", took.as_secs_f64())?;
        }
        Ok(())
    }
}

/// The line of a result that says what was moved, if anything was.
pub(super) fn moved_line(moved: Option<Moved>) -> String {
    moved.map_or_else(String::new, |it| format!("moved     {it}\n"))
}

fn rate(bytes: u64, time: Duration) -> String {
    let millis = time.as_millis().max(1);
    let rate = u128::from(bytes) * 1_000 / millis;
    format!("{}/s", HumanBytes(u64::try_from(rate).unwrap_or(u64::MAX)))
}

/// Nothing, of what never broke.
fn reconnected(times: u32) -> String {
    match times {
        0 => String::new(),
        1 => ", reconnected once".into(),
        times => format!(", reconnected {times} times"),
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
    let bar = ProgressBar::new_spinner().with_message(what);
    match total {
        Some(total) => show_total(&bar, Total::Exactly(total)),
        None => set_template(&bar, SPINNER),
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// From here on it has a length, which may still change.
fn show_total(bar: &ProgressBar, total: Total) {
    if bar.length().is_none() {
        set_template(bar, BAR);
        if matches!(total, Total::About(_)) {
            bar.set_prefix("about ");
        }
    }
    bar.set_length(total.bytes());
}

fn set_template(bar: &ProgressBar, template: &str) {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
}

/// Rows and bytes, for a person.
pub(super) fn amount(rows: u64, bytes: u64) -> String {
    format!("{} rows, {}", HumanCount(rows), HumanBytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(meter: &mut Meter, phase: Phase, rows: u64, bytes: u64, attempt: u32) {
        let mut progress = Progress::default();
        (progress.phase, progress.attempt) = (phase, attempt);
        (progress.rows, progress.bytes) = (rows, bytes);
        (progress.rows_before, progress.bytes_before) = (10, 4_096);
        meter.see(&progress);
    }

    // Catches: a rate over the whole time, which hides that nothing comes; what an earlier
    // command moved as if this one had.
    #[tokio::test(start_paused = true)]
    async fn a_line_says_the_phase_the_rate_of_late_and_how_often_it_broke() {
        let mut meter = Meter::new("backup", Some(1 << 20));
        seen(&mut meter, Phase::Pulling, 10, 4_096, 0);
        seen(&mut meter, Phase::Receiving, 20, 4_096 + (64 << 10), 0);
        assert_eq!(
            meter.line(Duration::from_secs(2)),
            "backup (receiving rows): 20 rows, 68.00 KiB of 1.00 MiB (6 %), 32.00 KiB/s, about 30 seconds left"
        );
        tokio::time::advance(LINE_EVERY).await;
        seen(&mut meter, Phase::Pulling, 20, 4_096 + (64 << 10), 3);
        assert_eq!(
            meter.line(LINE_EVERY),
            "backup (asking the source), reconnected 3 times: 20 rows, 68.00 KiB of 1.00 MiB (6 %), 0 B/s"
        );
        let mut stats = RestoreStats::default();
        (stats.rows, stats.bytes) = (10, 64 << 10);
        for (phase, millis) in [
            (Phase::Opening, 20),
            (Phase::Pulling, 1_200),
            (Phase::Receiving, 3_700),
        ] {
            stats.phases.insert(phase, Duration::from_millis(millis));
        }
        assert_eq!(
            meter.moved(&stats).to_string(),
            "10 rows, 64.00 KiB in 5.0 s, 12.80 KiB/s, reconnected 3 times; 1.2 s asking the source, 3.7 s receiving rows"
        );
        // What has no session has neither phase nor connection.
        let mut meter = Meter::new("reading the backup", None);
        meter.at(1, 1_024);
        let line = meter.line(Duration::from_secs(1));
        assert_eq!(line, "reading the backup: 1 rows, 1.00 KiB, 1.00 KiB/s");
    }

    // Catches: what a source says is taken for exact; more than all of it; a time out of nothing.
    #[tokio::test(start_paused = true)]
    async fn what_a_source_says_of_its_size_is_about_right_and_gives_way_to_what_came() {
        let line = |rows, bytes, about| {
            let mut meter = Meter::new("bootstrap", None);
            let mut progress = Progress::default();
            progress.phase = Phase::Receiving;
            (progress.rows, progress.bytes, progress.about) = (rows, bytes, Some(about));
            meter.see(&progress);
            let line = meter.line(Duration::from_secs(1));
            line.strip_prefix("bootstrap (receiving rows): ")
                .unwrap()
                .to_owned()
        };
        let bytes = Some(300 << 10);
        let about = Estimate { rows: 30, bytes };
        assert_eq!(
            line(1, 100 << 10, about),
            "1 rows, 100.00 KiB of about 300.00 KiB (33 %), 100.00 KiB/s, about 2 seconds left"
        );
        assert_eq!(
            line(31, 400 << 10, about),
            "31 rows, 400.00 KiB of about 400.00 KiB (100 %), 400.00 KiB/s"
        );
        // Where only rows are known the others are taken to be as large.
        let about = Estimate {
            bytes: None,
            ..about
        };
        assert_eq!(
            line(10, 100 << 10, about),
            "10 rows, 100.00 KiB of about 300.00 KiB (33 %), 100.00 KiB/s, about 2 seconds left"
        );
        assert_eq!(line(0, 0, about), "0 rows, 0 B, 0 B/s");
    }

    #[test]
    fn the_templates_are_sound() {
        for template in [BAR, SPINNER] {
            ProgressStyle::with_template(template).unwrap();
        }
    }
}
