//! `tidy`: what no lint sees.
//!
//! Each check is a function from the content of a file to what is wrong with it, so that
//! the checks can be tested without a repository.

use std::ffi::OsString;

use anyhow::{Context, Result, bail};
use xshell::{Shell, cmd};

use crate::flags::Xtask;
use crate::{readme, scenarios, workspace};

/// Text that must not stand in a file, why, and the one file where it may.
///
/// The words are put together here, so that this file isn't the first to be named.
const FORBIDDEN: [(&str, &str, Option<&str>); 8] = [
    (concat!("/ho", "me/"), "is a folder of one machine", None),
    (concat!("/ro", "ot/"), "is a folder of one machine", None),
    (concat!("/Us", "ers/"), "is a folder of one machine", None),
    (concat!("/wo", "rk/"), "is a folder of one machine", None),
    (
        concat!("../sha", "red/"),
        "is outside the repository",
        Some(".ci/run"),
    ),
    (
        concat!("TO", "DO"),
        "is no promise: do it or leave it",
        None,
    ),
    (
        concat!("FIX", "ME"),
        "is no promise: do it or leave it",
        None,
    ),
    (
        concat!("<<<<", "<<< "),
        "is a merge that was not finished",
        None,
    ),
];

/// Checks the whole repository.
///
/// # Errors
///
/// If something is untidy; each finding is printed with its file.
pub fn run() -> Result<()> {
    let sh = workspace::shell()?;
    let mut findings = missing_companions(&sh)?;
    let files = contents(&sh)?;
    for (path, content) in &files {
        let mut found = check(path, content);
        if scenarios::PATHS.contains(&path.as_str()) {
            found.extend(scenarios::unknown(content, &files));
        }
        findings.extend(found.iter().map(|it| format!("{path}: {it}")));
    }
    if findings.is_empty() {
        println!("Everything is tidy.");
        return Ok(());
    }
    for finding in &findings {
        eprintln!("  {finding}");
    }
    bail!("{} things are untidy", findings.len());
}

/// All files that are committed or would be.
fn files(sh: &Shell) -> Result<Vec<String>> {
    // A CI machine may have cloned as another user, and reading names is safe.
    let trust = ["-c", "safe.directory=*"];
    let files = cmd!(
        sh,
        "git {trust...} ls-files -z --cached --others --exclude-standard"
    )
    .quiet()
    .read()
    .context("tidy asks git which files are part of the repository")?;
    let files = files.split('\0').filter(|path| !path.is_empty());
    // A file that was removed but not yet committed as removed is still listed.
    Ok(files
        .filter(|path| sh.path_exists(path))
        .map(str::to_owned)
        .collect())
}

/// The same with what is in them. A fixture of bytes is nobody's prose and left out.
fn contents(sh: &Shell) -> Result<Vec<(String, String)>> {
    let files = files(sh)?.into_iter();
    let read = files.filter_map(|path| {
        let content = sh.read_file(&path).ok()?;
        Some((path, content))
    });
    Ok(read.collect())
}

fn missing_companions(sh: &Shell) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for package in workspace::packages(sh)? {
        if package.folder.starts_with("crates") {
            for name in ["README.md", "CHANGELOG.md"] {
                let path = package.folder.join(name);
                if !sh.path_exists(&path) {
                    findings.push(format!("{}: is missing", path.display()));
                }
            }
        }
    }
    Ok(findings)
}

fn check(path: &str, content: &str) -> Vec<String> {
    let mut findings = forbidden(path, content);
    if says_what_it_is_for(path) && !starts_with_docs(content) {
        findings.push("doesn't start with `//!` and what the file is for".to_owned());
    }
    if path == "README.md" {
        findings.extend(unknown_commands(content));
    }
    findings
}

fn forbidden(path: &str, content: &str) -> Vec<String> {
    FORBIDDEN
        .iter()
        .filter(|(text, _, home)| *home != Some(path) && content.contains(text))
        .map(|(text, why, _)| format!("`{text}` {why}"))
        .collect()
}

/// Whether a source file has to say at its top why it exists.
fn says_what_it_is_for(path: &str) -> bool {
    let is_source = path.strip_prefix("crates/").is_some_and(|path| {
        path.split_once('/')
            .is_some_and(|(_, inside)| inside.starts_with("src/"))
    });
    let is_ours = is_source || path.starts_with("xtask/src/") || path.starts_with("benches/");
    is_ours && path.ends_with(".rs")
}

/// A crate may take its docs from its README.
fn starts_with_docs(content: &str) -> bool {
    let content = content.trim_start();
    content.starts_with("//!") || content.starts_with("#![doc = include_str!")
}

fn unknown_commands(content: &str) -> Vec<String> {
    let commands = readme::commands(content);
    let unknown = commands.iter().filter_map(|command| {
        let args = command
            .split_whitespace()
            .skip(2)
            .map(OsString::from)
            .collect();
        let error = Xtask::from_vec(args).err()?;
        Some(format!("`{command}` is no command: {error}"))
    });
    unknown.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_findings(path: &str, content: &str, expected: usize) {
        let findings = check(path, content);
        assert_eq!(findings.len(), expected, "{findings:?}");
    }

    #[test]
    fn a_source_file_says_what_it_is_for() {
        check_findings("crates/a/src/b.rs", "use std::fs;\n", 1);
        check_findings("crates/a/src/b.rs", "//! What b is.\n", 0);
        check_findings(
            "crates/a/src/lib.rs",
            "#![doc = include_str!(\"../README.md\")]\n",
            0,
        );
        check_findings("crates/a/tests/it/b.rs", "use std::fs;\n", 0);
    }

    #[test]
    fn a_path_of_one_machine_is_named() {
        check_findings("docs/A.md", concat!("see /ho", "me/me/notes"), 1);
        check_findings("docs/A.md", "see $HOME/notes", 0);
    }

    #[test]
    fn what_stands_outside_may_be_named_in_one_file_alone() {
        let content = concat!("source ../sha", "red/env.sh");
        check_findings(".ci/run", content, 0);
        check_findings("docs/A.md", content, 1);
    }

    #[test]
    fn a_command_of_the_readme_that_does_not_exist_is_named() {
        check_findings(
            "README.md",
            "```sh\ncargo xtask demo --store fjall\n```\n",
            0,
        );
        check_findings("README.md", "```sh\ncargo xtask dance\n```\n", 1);
        check_findings(
            "README.md",
            "```sh\ncargo xtask demo --store floppy\n```\n",
            1,
        );
    }
}
