//! `layers`: the crates depend on each other strictly downward.
//!
//! A crate that is taken alone must not drag the broker along, and a crate that knows
//! nothing of the one above can't be changed by it. Cargo refuses cycles only; what else is
//! wrong stands in no manifest, so the edges that are right stand here. A new edge is a
//! change of this table, in a commit of its own: it is the one change that is hard to take
//! back.

use anyhow::{Result, bail};

use crate::workspace::{self, Package};

/// Each crate, lowest first, and all that it may use of this workspace. What a crate needs
/// only for its tests is free.
const ALLOWED: [(&str, &[&str]); 7] = [
    ("pop-model", &[]),
    ("pop-proto", &[]),
    ("pop-store", &["pop-model"]),
    ("pop-cache", &["pop-store", "pop-model"]),
    ("pop-revive", &["pop-cache", "pop-store", "pop-model"]),
    ("kv-restore", &["pop-store", "pop-model"]),
    (
        "pop-broker",
        &[
            "pop-cache",
            "pop-revive",
            "kv-restore",
            "pop-store",
            "pop-model",
            "pop-proto",
        ],
    ),
];

/// Checks the manifests below `crates/`.
///
/// # Errors
///
/// At an edge that the table doesn't allow, or a crate that it doesn't know.
pub fn run() -> Result<()> {
    let packages = workspace::packages(&workspace::shell()?)?;
    let violations = violations(&packages);
    if violations.is_empty() {
        println!("Every edge between the crates points down.");
        return Ok(());
    }
    for violation in &violations {
        eprintln!("  {violation}");
    }
    bail!(
        "{} edges are not allowed by xtask/src/layers.rs",
        violations.len()
    );
}

fn violations(packages: &[Package]) -> Vec<String> {
    let crates = packages
        .iter()
        .filter(|package| package.folder.starts_with("crates"));
    crates
        .flat_map(|package| violations_of(package, packages))
        .collect()
}

fn violations_of(package: &Package, packages: &[Package]) -> Vec<String> {
    let name = &package.name;
    let Some((_, allowed)) = ALLOWED.iter().find(|(known, _)| known == name) else {
        return vec![format!("{name} has no place in the table yet")];
    };
    package
        .dependencies
        .iter()
        .filter(|used| packages.iter().any(|member| member.name == **used))
        .filter(|used| !allowed.contains(&used.as_str()))
        .map(|used| format!("{name} must not use {used}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, folder: &str, dependencies: &[&str]) -> Package {
        Package {
            name: name.to_owned(),
            folder: folder.into(),
            dependencies: dependencies.iter().map(|&it| it.to_owned()).collect(),
        }
    }

    #[track_caller]
    fn check(name: &str, dependencies: &[&str], expected: &[&str]) {
        let mut packages = vec![package("xtask", "xtask", &["pop-broker"])];
        packages.extend(
            ALLOWED
                .iter()
                .filter(|(known, _)| *known != name)
                .map(|(known, _)| package(known, &format!("crates/{known}"), &[])),
        );
        packages.push(package(name, &format!("crates/{name}"), dependencies));
        assert_eq!(violations(&packages), expected);
    }

    #[test]
    fn edges_that_point_down_pass() {
        check("pop-broker", &["pop-cache", "pop-proto", "tokio"], &[]);
        check("pop-cache", &["pop-store", "pop-model"], &[]);
    }

    #[test]
    fn an_edge_that_points_up_is_named() {
        check(
            "pop-store",
            &["pop-cache"],
            &["pop-store must not use pop-cache"],
        );
        check(
            "pop-model",
            &["pop-store"],
            &["pop-model must not use pop-store"],
        );
    }

    #[test]
    fn an_edge_that_points_sideways_is_named() {
        check(
            "kv-restore",
            &["pop-cache"],
            &["kv-restore must not use pop-cache"],
        );
        check(
            "pop-proto",
            &["pop-model"],
            &["pop-proto must not use pop-model"],
        );
    }

    #[test]
    fn nothing_uses_what_stands_beside_the_crates() {
        check("pop-broker", &["xtask"], &["pop-broker must not use xtask"]);
    }

    #[test]
    fn a_crate_that_the_table_does_not_know_is_named() {
        check("pop-new", &[], &["pop-new has no place in the table yet"]);
    }

    #[test]
    fn the_table_itself_points_down() {
        for (position, (name, allowed)) in ALLOWED.iter().enumerate() {
            let below = &ALLOWED[..position];
            for used in *allowed {
                assert!(
                    below.iter().any(|(lower, _)| lower == used),
                    "{name} uses {used}"
                );
            }
        }
    }
}
