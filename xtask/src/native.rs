//! What RocksDB needs beside rustc: libclang and a C++ compiler.
//!
//! A prebuilt library (`ROCKSDB_LIB_DIR`) saves compiling the C++, but neither of the two:
//! the bindings are made by libclang in every build, and the C++ runtime has to be linked.
//! Found missing by Cargo, they are a page of errors after minutes; here they are one line
//! before anything is built.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use xshell::{Shell, cmd};

use crate::backends::Backend;

/// Makes sure that `backends` can be built.
///
/// # Errors
///
/// If something is missing that can't be installed without asking; the message is the
/// command to type.
pub fn require(sh: &Shell, backends: &[Backend]) -> Result<()> {
    if !backends.contains(&Backend::Rocksdb) {
        return Ok(());
    }
    let missing = missing(sh);
    if missing.is_empty() {
        return Ok(());
    }
    let missing = missing.join(" and ");
    let system = System::here();
    if system == System::Debian && is_root(sh) {
        println!("RocksDB needs {missing}, which this machine lacks: installing.");
        install(sh)?;
        return match self::missing(sh).as_slice() {
            [] => Ok(()),
            still => bail!(
                "installed the packages, but {} is still missing",
                still.join(" and ")
            ),
        };
    }
    bail!(
        "RocksDB needs {missing}, which this machine lacks; {}",
        system.advice()
    );
}

/// Whether RocksDB can be built as the machine is.
pub fn is_ready(sh: &Shell) -> bool {
    missing(sh).is_empty()
}

fn missing(sh: &Shell) -> Vec<&'static str> {
    let mut missing = Vec::new();
    if !has_libclang() {
        missing.push("libclang with its headers");
    }
    if !has_cxx(sh) {
        missing.push("a C++ compiler");
    }
    missing
}

fn install(sh: &Shell) -> Result<()> {
    let _noninteractive = sh.push_env("DEBIAN_FRONTEND", "noninteractive");
    let install = || -> Result<()> {
        cmd!(sh, "apt-get update -qq").run()?;
        cmd!(
            sh,
            "apt-get install -y -qq --no-install-recommends build-essential libclang-dev"
        )
        .run()?;
        Ok(())
    };
    install().with_context(|| format!("could not install by itself; {}", System::Debian.advice()))
}

fn is_root(sh: &Shell) -> bool {
    cmd!(sh, "id -u")
        .quiet()
        .ignore_stderr()
        .read()
        .is_ok_and(|id| id == "0")
}

fn has_cxx(sh: &Shell) -> bool {
    let compilers = env::var("CXX").map_or_else(
        |_| vec!["c++".to_owned(), "g++".to_owned(), "clang++".to_owned()],
        |named| vec![named],
    );
    compilers.iter().any(|cxx| {
        cmd!(sh, "{cxx} --version")
            .quiet()
            .ignore_stdout()
            .ignore_stderr()
            .run()
            .is_ok()
    })
}

fn has_libclang() -> bool {
    if let Some(path) = env::var_os("LIBCLANG_PATH") {
        // It names the folder or the file, and whoever sets it answers for the headers.
        let path = Path::new(&path);
        return contains_libclang(path) || (is_libclang(path) && path.exists());
    }
    let folders = library_folders();
    // Debian's libclang1 is the library without the compiler's own headers (stddef.h), and
    // the bindings fail on it.
    folders.iter().any(|folder| contains_libclang(folder))
        && folders.iter().any(|folder| contains_headers(folder))
}

/// Where systems keep the library, without starting a search of the whole disk.
fn library_folders() -> Vec<PathBuf> {
    let fixed = [
        "/usr/lib",
        "/usr/lib64",
        "/usr/local/lib",
        "/Library/Developer/CommandLineTools/usr/lib",
        "/Applications/Xcode.app/Contents/Developer/Toolchains/XcodeDefault.xctoolchain/usr/lib",
        "/opt/homebrew/opt/llvm/lib",
        "/usr/local/opt/llvm/lib",
    ];
    let mut folders: Vec<_> = fixed.iter().map(PathBuf::from).collect();
    for below in ["/usr/lib", "/usr/lib64"]
        .iter()
        .flat_map(|it| entries(Path::new(it)))
    {
        // /usr/lib/llvm-14/lib and /usr/lib/x86_64-linux-gnu.
        folders.push(below.join("lib"));
        folders.push(below);
    }
    folders
}

fn contains_libclang(folder: &Path) -> bool {
    entries(folder).iter().any(|file| is_libclang(file))
}

fn contains_headers(folder: &Path) -> bool {
    let versions = entries(&folder.join("clang"));
    versions
        .iter()
        .any(|version| version.join("include/stddef.h").is_file())
}

/// Whether a file is the shared library: `libclang.so`, `libclang-14.so.1`,
/// `libclang.dylib`, but neither the C++ interface `libclang-cpp.so` nor an archive.
fn is_libclang(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let Some(rest) = name.strip_prefix("libclang") else {
        return false;
    };
    let rest = rest.trim_start_matches(|c: char| c == '-' || c == '.' || c.is_ascii_digit());
    rest == "dylib" || rest == "so" || rest.starts_with("so.")
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect()
}

/// Systems that differ in how the packages are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum System {
    Debian,
    Fedora,
    MacOs,
    Other,
}

impl System {
    fn here() -> Self {
        if cfg!(target_os = "macos") {
            Self::MacOs
        } else if Path::new("/etc/debian_version").exists() {
            Self::Debian
        } else if Path::new("/etc/fedora-release").exists() {
            Self::Fedora
        } else {
            Self::Other
        }
    }

    /// What to type.
    fn advice(self) -> &'static str {
        match self {
            Self::Debian => "run: sudo apt-get install build-essential libclang-dev",
            Self::Fedora => "run: sudo dnf install gcc-c++ clang-devel",
            Self::MacOs => "run: xcode-select --install",
            Self::Other => {
                "install a C++ compiler and libclang with its headers (package clang or \
                 libclang-dev), or set LIBCLANG_PATH to the folder of libclang"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_told_from_its_neighbours() {
        let check = |name: &str, expected| {
            assert_eq!(is_libclang(Path::new(name)), expected, "{name}");
        };
        check("/usr/lib/llvm-14/lib/libclang.so", true);
        check("libclang-14.so.13", true);
        check("libclang.so.1", true);
        check("libclang.dylib", true);
        check("libclang-cpp.so.14", false);
        check("libclang.a", false);
        check("libclangAST.so", false);
    }

    #[test]
    fn a_backend_of_rust_alone_needs_nothing() {
        let sh = Shell::new().expect("there is a current folder");
        // An empty path: a compiler could not be found if it were looked for.
        let _path = sh.push_env("PATH", "");
        require(&sh, &Backend::RUST_ALONE).expect("nothing is needed");
    }
}
