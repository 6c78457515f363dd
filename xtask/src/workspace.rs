//! Where the workspace is, what is in it, and the broker's program built from it.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;
use xshell::{Shell, cmd};

use crate::backends::{Backend, broker_features};
use crate::native;

/// The folder of the root manifest.
pub fn root() -> PathBuf {
    // Cargo sets the variable at run time as well, which holds when the clone was moved or
    // shares its target folder with another one.
    let manifest = env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest.parent().map(Path::to_path_buf).unwrap_or(manifest)
}

/// A shell that stands in [`root`].
///
/// # Errors
///
/// If the folder is gone.
pub fn shell() -> Result<Shell> {
    let sh = Shell::new()?;
    sh.change_dir(root());
    Ok(sh)
}

/// A package of this workspace.
#[derive(Debug)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// The folder of its manifest, relative to the root.
    pub folder: PathBuf,
    /// Names of what it needs to run and to build; not what its tests need.
    pub dependencies: Vec<String>,
}

/// All packages of the workspace.
///
/// # Errors
///
/// If Cargo can't read a manifest.
pub fn packages(sh: &Shell) -> Result<Vec<Package>> {
    let metadata = cmd!(sh, "cargo metadata --format-version 1 --no-deps")
        .quiet()
        .read()?;
    parse_packages(&metadata, &root())
}

fn parse_packages(metadata: &str, root: &Path) -> Result<Vec<Package>> {
    let metadata: Value = serde_json::from_str(metadata)?;
    let packages = array(&metadata, "packages");
    packages
        .iter()
        .map(|package| parse_package(package, root))
        .collect()
}

fn parse_package(package: &Value, root: &Path) -> Result<Package> {
    let manifest = Path::new(text(package, "manifest_path")?);
    let folder = manifest.parent().unwrap_or(manifest);
    let dependencies = array(package, "dependencies")
        .iter()
        .filter(|dependency| dependency.get("kind").and_then(Value::as_str) != Some("dev"))
        .map(|dependency| text(dependency, "name").map(str::to_owned));
    Ok(Package {
        name: text(package, "name")?.to_owned(),
        folder: folder.strip_prefix(root).unwrap_or(folder).to_path_buf(),
        dependencies: dependencies.collect::<Result<_>>()?,
    })
}

fn array<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value
        .get(key)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, key: &str) -> Result<&'a str> {
    value
        .get(key)
        .and_then(Value::as_str)
        .with_context(|| format!("cargo metadata has no text `{key}`"))
}

/// Builds the broker with `backends` and returns the path of its program.
///
/// # Errors
///
/// If a backend needs something that isn't installed, or the build fails.
pub fn broker(sh: &Shell, backends: &[Backend]) -> Result<PathBuf> {
    native::require(sh, backends)?;
    let features = broker_features(backends);
    let messages = cmd!(
        sh,
        "cargo build -p pop-broker --bin pop-broker --no-default-features --features {features}
         --message-format json-render-diagnostics"
    )
    .read()?;
    let broker = built(&messages, "pop-broker").into_iter().next();
    broker.context("cargo built the broker but named no program")
}

/// The files that Cargo's messages name for the target `name`: the program, or what a
/// library became. Asking Cargo holds wherever its target folder is.
pub fn built(messages: &str, name: &str) -> Vec<PathBuf> {
    let messages = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let ours = messages.filter(|message| {
        let target = message.get("target").and_then(|target| target.get("name"));
        target.and_then(Value::as_str) == Some(name)
    });
    let files = ours.flat_map(|message| {
        let program = message.get("executable").and_then(Value::as_str);
        match program {
            Some(program) => vec![program.into()],
            None => array(&message, "filenames")
                .iter()
                .filter_map(|it| Some(it.as_str()?.into()))
                .collect(),
        }
    });
    files.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_of_tests_are_left_out() {
        let metadata = r#"{"packages": [{
            "name": "a", "manifest_path": "/w/crates/a/Cargo.toml",
            "dependencies": [
                {"name": "normal", "kind": null},
                {"name": "build", "kind": "build"},
                {"name": "dev", "kind": "dev"}
            ]
        }]}"#;
        let packages = parse_packages(metadata, Path::new("/w")).expect("the JSON is valid");
        assert_eq!(packages[0].folder, Path::new("crates/a"));
        assert_eq!(packages[0].dependencies, ["normal", "build"]);
    }

    #[test]
    fn the_broker_is_found_among_what_cargo_built() {
        let messages = r#"{"reason":"compiler-artifact","target":{"name":"pop_broker"},"executable":null}
{"reason":"compiler-artifact","target":{"name":"helper"},"executable":"/t/debug/helper"}
{"reason":"compiler-artifact","target":{"name":"pop-broker"},"executable":"/t/debug/pop-broker"}
{"reason":"build-finished","success":true}"#;
        assert_eq!(
            built(messages, "pop-broker"),
            [PathBuf::from("/t/debug/pop-broker")]
        );
        let library = r#"{"target":{"name":"a"},"executable":null,"filenames":["/t/liba.so"]}"#;
        assert_eq!(built(library, "a"), [PathBuf::from("/t/liba.so")]);
    }
}
