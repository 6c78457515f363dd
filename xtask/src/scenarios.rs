//! The index of real faults names tests, actions of the simulator and mutants: each must
//! be there, so that a name that is changed is changed in the index, too.
//!
//! A text search is enough. It doesn't say that a test runs, which `cargo xtask test` does.

/// The indexes.
pub const PATHS: [&str; 2] = ["docs/SCENARIOS.md", "docs/RESTORE.md"];

const ACTIONS: &str = "xtask/sim/src/actions/mod.rs";
const MUTANTS: [&str; 2] = [
    "crates/pop-model/src/mutant.rs",
    "crates/kv-restore/src/mutant.rs",
];

/// What the index names and `files` (paths and contents) don't have.
pub fn unknown(index: &str, files: &[(String, String)]) -> Vec<String> {
    let names = index.split('`').skip(1).step_by(2);
    let unknown = names.filter(|name| !is_there(name, files));
    unknown
        .map(|name| format!("`{name}` is not there"))
        .collect()
}

fn is_there(name: &str, files: &[(String, String)]) -> bool {
    let any = |folder: &str, has: &dyn Fn(&str) -> bool| {
        let mut inside = files.iter().filter(|(path, _)| path.starts_with(folder));
        inside.any(|(_, content)| has(content))
    };
    match name.split_once('/') {
        Some(("action", action)) => any(ACTIONS, &|it| it.contains(&format!("\"{action}\""))),
        Some(("mutant", mutant)) => {
            let mut all = MUTANTS.iter();
            all.any(|path| any(path, &|it| has_line(it, &format!("{mutant},"))))
        }
        Some((package, test)) => {
            let test = test.rsplit("::").next().unwrap_or(test);
            any(&format!("crates/{package}/"), &|it| has_test(it, test))
        }
        // Prose.
        None => true,
    }
}

fn has_line(content: &str, line: &str) -> bool {
    content.lines().any(|it| it.trim() == line)
}

/// Whether there is a function of this name, or a macro that makes one: `name: …`.
fn has_test(content: &str, name: &str) -> bool {
    let goes_on = |rest: &str| rest.starts_with(|it: char| it.is_alphanumeric() || it == '_');
    let function = format!("fn {name}");
    let is_function = content.split(&function).skip(1).any(|rest| !goes_on(rest));
    let made = format!("{name}: ");
    is_function || content.lines().any(|it| it.trim_start().starts_with(&made))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(index: &str, unknown_names: &[&str]) {
        let files = [
            (
                "crates/a/tests/it/b.rs",
                "#[test]\nfn it_holds() {}\nmake! {\n    it_is_made: Write;\n}\n",
            ),
            ("crates/c/src/lib.rs", "fn it_holds_here() {}\n"),
            (MUTANTS[0], "mutants! {\n    /// A fault.\n    GoesOn,\n}\n"),
            (ACTIONS, "actions! {\n    \"do it\", 3, run;\n}\n"),
        ];
        let files = files.map(|(path, content)| (path.to_owned(), content.to_owned()));
        let expected: Vec<_> = unknown_names
            .iter()
            .map(|name| format!("`{name}` is not there"))
            .collect();
        assert_eq!(unknown(index, &files), expected);
    }

    #[test]
    fn what_is_there_may_be_named() {
        check(
            "| X | `a/it::b::it_holds`, `a/it::b::it_is_made`, `mutant/GoesOn`, `action/do it` |",
            &[],
        );
        check("a `Duration` is no test", &[]);
    }

    #[test]
    fn a_test_that_is_gone_is_named() {
        check("`a/it::b::it_held`", &["a/it::b::it_held"]);
        // Mutants: a prefix of a name is enough; any crate will do.
        check("`a/it::b::it_hold`", &["a/it::b::it_hold"]);
        check("`a/it_holds_here`", &["a/it_holds_here"]);
    }

    #[test]
    fn a_mutant_or_an_action_that_is_gone_is_named() {
        check("`mutant/GoesOff`", &["mutant/GoesOff"]);
        check("`mutant/Goes`", &["mutant/Goes"]);
        check("`action/do`", &["action/do"]);
    }
}
