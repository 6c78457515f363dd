//! Child processes that end: with a limit, their output in a file.
//!
//! Real time is met here alone.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

const TICK: Duration = Duration::from_millis(50);

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// By itself.
    With(ExitStatus),
    /// It was still there at its limit and has been killed.
    Killed,
}

/// A child that ended.
pub(super) struct Finished {
    pub(super) ended: Ended,
    pub(super) took: Duration,
}

/// Starts `command` with its output in the new file `log` and its errors in `errors`, which may be
/// the same file.
pub(super) fn start(command: &mut Command, log: &Path, errors: &Path) -> Result<Child> {
    let create = |path: &Path| {
        File::create(path).with_context(|| format!("cannot write {}", path.display()))
    };
    let file = create(log)?;
    let errors = if errors == log {
        file.try_clone()?
    } else {
        create(errors)?
    };
    let name = command.get_program().display().to_string();
    command
        .stdin(Stdio::null())
        .stdout(file)
        .stderr(errors)
        .spawn()
        .with_context(|| format!("cannot start {name}"))
}

/// Runs `command` to its end or to `limit`, whichever comes first.
pub(super) fn run_limited(
    command: &mut Command,
    log: &Path,
    errors: &Path,
    limit: Duration,
) -> Result<Finished> {
    let mut child = start(command, log, errors)?;
    let started_at = now();
    let ended = wait_limited(&mut child, limit)?;
    Ok(Finished {
        ended,
        took: started_at.elapsed(),
    })
}

/// Waits for `child` at most `limit`, then kills it.
pub(super) fn wait_limited(child: &mut Child, limit: Duration) -> Result<Ended> {
    let mut status = None;
    if poll(limit, || {
        status = child.try_wait()?;
        Ok(status.is_some())
    })? && let Some(status) = status
    {
        return Ok(Ended::With(status));
    }
    child.kill()?;
    child.wait()?;
    Ok(Ended::Killed)
}

/// Asks `done` again and again until it is true or `limit` is over; says which.
pub(super) fn poll(limit: Duration, mut done: impl FnMut() -> Result<bool>) -> Result<bool> {
    let started_at = now();
    loop {
        if done()? {
            return Ok(true);
        }
        if started_at.elapsed() >= limit {
            return Ok(false);
        }
        pause();
    }
}

/// The last lines of the file at `path`, empty if there is none.
pub(super) fn tail(path: &Path, lines: usize) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<&str> = text.lines().collect();
    let kept = all
        .get(all.len().saturating_sub(lines)..)
        .unwrap_or_default();
    kept.iter().map(|line| format!("    | {line}\n")).collect()
}

/// The last line of the file at `path` that is not blank, empty if there is none.
pub(super) fn last_line(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    text.lines()
        .rfind(|line| !line.trim().is_empty())
        .unwrap_or_default()
        .to_owned()
}

#[allow(clippy::print_stdout, reason = "what a person who runs this waits for")]
pub(super) fn say(text: &str) {
    println!("{text}");
}

#[allow(clippy::disallowed_methods, reason = "other programs run in real time")]
fn now() -> Instant {
    Instant::now()
}

#[allow(clippy::disallowed_methods, reason = "other programs run in real time")]
fn pause() {
    thread::sleep(TICK);
}
