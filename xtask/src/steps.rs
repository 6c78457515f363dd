//! Steps with a headline, a duration and an answer to "how do I run just this?".

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// A row of steps; the first that fails ends it.
#[derive(Debug)]
pub struct Steps {
    started: Instant,
    done: Vec<(String, Outcome)>,
}

#[derive(Debug)]
enum Outcome {
    Passed(Duration),
    Skipped(String),
}

impl Steps {
    /// Starts the clock.
    pub fn start() -> Self {
        Self {
            started: now(),
            done: Vec::new(),
        }
    }

    /// Runs one step. `alone` is the command that runs it by itself.
    ///
    /// # Errors
    ///
    /// What `work` failed with, named after the step.
    pub fn run(
        &mut self,
        title: &str,
        alone: &str,
        work: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        println!("\n==> {title}");
        let started = now();
        let result = work();
        let took = started.elapsed();
        result.with_context(|| {
            format!(
                "step `{title}` failed after {}; alone: {alone}",
                seconds(took)
            )
        })?;
        println!("<== {title}: {}", seconds(took));
        self.done.push((title.to_owned(), Outcome::Passed(took)));
        Ok(())
    }

    /// Notes a step that can't run here. A skipped step is never counted as passed.
    pub fn skip(&mut self, title: &str, why: &str) {
        println!("\n==> {title}: skipped, {why}");
        self.done
            .push((title.to_owned(), Outcome::Skipped(why.to_owned())));
    }

    /// Prints what ran and how long it took.
    pub fn finish(self) {
        println!("\nAll steps passed in {}:", seconds(self.started.elapsed()));
        for (title, outcome) in &self.done {
            match outcome {
                Outcome::Passed(took) => println!("  {:>9}  {title}", seconds(*took)),
                Outcome::Skipped(why) => println!("  {:>9}  {title} ({why})", "skipped"),
            }
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the reader of a build log wants real time"
)]
fn now() -> Instant {
    Instant::now()
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_step_names_itself_its_cause_and_its_command() {
        let failing = || anyhow::bail!("no such thing");
        let error = Steps::start()
            .run("layers", "cargo xtask layers", failing)
            .expect_err("the step failed");
        let line = format!("{error:#}");
        for part in ["`layers`", "cargo xtask layers", "no such thing"] {
            assert!(line.contains(part), "{line}");
        }
    }
}
