//! What came out: judging a program's closing line, and the table at the end.

use std::fmt;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::Value;

use super::language::Language;
use super::process::{Ended, say, tail};

/// What came out of one client on one store.
#[derive(Clone, Debug)]
pub(super) enum Verdict {
    Passed(Duration),
    /// What went wrong first; lines after the first one are for the reader of the log.
    Failed(String),
    Skipped(String),
}

impl Verdict {
    pub(super) fn failed(error: &anyhow::Error) -> Self {
        Self::Failed(format!("{error:#}"))
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed(took) => write!(formatter, "passed in {:.0} s", took.as_secs_f64()),
            Self::Failed(problem) => {
                write!(
                    formatter,
                    "FAILED: {}",
                    problem.lines().next().unwrap_or_default()
                )
            }
            Self::Skipped(reason) => write!(formatter, "skipped: {reason}"),
        }
    }
}

/// One line of the table.
pub(super) struct Row {
    pub(super) language: &'static str,
    pub(super) client: &'static str,
    pub(super) backend: String,
    pub(super) verdict: Verdict,
}

impl Row {
    /// The problem, where there is one.
    pub(super) fn problem(&self) -> Option<&str> {
        match &self.verdict {
            Verdict::Failed(problem) => Some(problem),
            Verdict::Passed(_) | Verdict::Skipped(_) => None,
        }
    }
}

/// Passes a program that says that all is well, about the pinned client, with exit code 0.
///
/// `log` is what it printed, `errors` what it or its client printed as errors.
pub(super) fn judge(
    language: &Language,
    messages: u32,
    ended: Ended,
    log: &Path,
    errors: &Path,
) -> Result<()> {
    let printed = fs::read(log)?;
    let judged = judge_text(
        language,
        messages,
        ended,
        &String::from_utf8_lossy(&printed),
    );
    judged.map_err(|error| {
        let (out, err) = (
            tail(log, super::TAIL_LINES),
            tail(errors, super::TAIL_LINES / 3),
        );
        anyhow!("{error:#}\n{out}its errors, {}:\n{err}", errors.display())
    })
}

fn judge_text(language: &Language, messages: u32, ended: Ended, text: &str) -> Result<()> {
    let line = text.lines().rev().find(|line| line.starts_with('{'));
    let line = line.with_context(|| format!("it ended without a result: {ended:?}"))?;
    let result: Value = serde_json::from_str(line).context("its last line is no result")?;
    let field = |name: &str| result.get(name).unwrap_or(&Value::Null);
    if let Some(problem) = field("problems").get(0) {
        bail!("{}", problem.as_str().unwrap_or("a problem without a text"));
    }
    ensure!(*field("ok") == true, "it is not ok and names no problem");
    ensure!(
        matches!(ended, Ended::With(status) if status.success()),
        "ok, but {ended:?}"
    );
    for name in ["sent", "received_first"] {
        ensure!(
            *field(name) == messages,
            "{name} is {}, not {messages}",
            field(name)
        );
    }
    let client = field("client");
    ensure!(
        *client == language.client,
        "it ran {client}, pinned is {}",
        language.client
    );
    Ok(())
}

/// Prints the table; an error if a row is a failure.
pub(super) fn conclude(rows: &[Row]) -> Result<()> {
    say(&format!(
        "\n{:<13}{:<34}{:<9}result",
        "language", "client", "store"
    ));
    for Row {
        language,
        client,
        backend,
        verdict,
    } in rows
    {
        say(&format!("{language:<13}{client:<34}{backend:<9}{verdict}"));
    }
    let failed = rows.iter().filter(|row| row.problem().is_some()).count();
    ensure!(failed == 0, "interop: {failed} of {} failed", rows.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::super::language::LANGUAGES;
    use super::*;

    const GOOD: &str = r#"{"client":"rocketmq-python-client 5.1.2","sent":10,"received_first":10,"ok":true,"problems":[]}"#;

    fn check(text: &str, code: i32) -> Result<(), String> {
        let ended = Ended::With(ExitStatus::from_raw(code << 8));
        let text = format!("   0.1 s  sent 10 of 10\n{text}\n");
        judge_text(&LANGUAGES[0], 10, ended, &text).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn a_program_passes_only_if_all_of_it_says_so() {
        assert_eq!(check(GOOD, 0), Ok(()));
        for (from, to, expected) in [
            (
                r#""problems":[]"#,
                r#""problems":["lost one","lost two"]"#,
                "lost one",
            ),
            ("true", "false", "it is not ok and names no problem"),
            (r#""sent":10"#, r#""sent":9"#, "sent is 9, not 10"),
            (
                r#","received_first":10"#,
                "",
                "received_first is null, not 10",
            ),
            (
                "5.1.2",
                "5.1.1",
                "it ran \"rocketmq-python-client 5.1.1\", pinned is",
            ),
        ] {
            let problem = check(&GOOD.replace(from, to), 0).unwrap_err();
            assert!(problem.starts_with(expected), "{problem}");
        }
    }

    #[test]
    fn a_program_that_claims_success_and_exits_otherwise_fails() {
        assert!(check(GOOD, 1).unwrap_err().starts_with("ok, but"));
    }

    #[test]
    fn a_program_that_ends_without_a_result_fails() {
        assert!(
            check("", 0)
                .unwrap_err()
                .starts_with("it ended without a result")
        );
    }
}
