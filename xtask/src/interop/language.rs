//! The table of languages: what each needs, how its program is built and how it is started.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Result, bail};

use super::process::{Ended, run_limited, tail};

/// A first build of the Rust client compiles some two hundred crates.
const STEP_MAX: Duration = Duration::from_secs(20 * 60);

/// What a client makes of the broker's self-signed certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// Trusts any.
    Any,
    /// Verifies against the roots that [`ROOTS_VARIABLE`] names.
    Roots,
    /// Can't do TLS at all.
    NoTls,
}

/// Names the broker's certificate, for clients that verify. A variable of our own, because gRPC's may
/// be set on a machine for other reasons.
pub(super) const ROOTS_VARIABLE: &str = "POP_INTEROP_ROOTS";

/// How gRPC's libraries take another set of roots.
const GRPC_ROOTS_VARIABLE: &str = "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH";

/// One client.
pub(super) struct Language {
    pub(super) name: &'static str,
    /// Where its program is, and what it shares with others there.
    folder: &'static str,
    /// Name and version as the program itself reports them, so that another one shows.
    pub(super) client: &'static str,
    /// Commands that succeed where the toolchain is there.
    tools: &'static [&'static [&'static str]],
    pub(super) trust: Trust,
    /// Whether it leaves every second message alone until that comes back.
    pub(super) leaves_half: bool,
    prepare: fn(&Places) -> Result<()>,
    program: fn(&Places) -> Command,
}

pub(super) const LANGUAGES: &[Language] = &[
    Language {
        name: "python",
        folder: "python",
        client: "rocketmq-python-client 5.1.2",
        tools: &[&["python3", "-c", "import ensurepip, venv"]],
        trust: Trust::Roots,
        leaves_half: true,
        prepare: prepare_python,
        program: |places| python(places, "roundtrip.py"),
    },
    Language {
        name: "python-push",
        folder: "python",
        client: "rocketmq-python-client 5.1.2",
        tools: &[&["python3", "-c", "import ensurepip, venv"]],
        trust: Trust::Roots,
        leaves_half: false,
        prepare: prepare_python,
        program: |places| python(places, "push.py"),
    },
    Language {
        name: "node",
        folder: "node",
        client: "rocketmq-client-nodejs 1.0.8",
        tools: &[&["node", "--version"], &["npm", "--version"]],
        trust: Trust::Roots,
        leaves_half: true,
        prepare: prepare_node,
        program: |places| {
            let mut command = Command::new("node");
            command.arg(places.output.join("roundtrip.js"));
            command
        },
    },
    Language {
        name: "rust",
        folder: "rust",
        client: "rocketmq 5.0.0",
        tools: &[&["cargo", "--version"]],
        trust: Trust::NoTls,
        leaves_half: true,
        prepare: prepare_rust,
        program: |places| {
            let mut command = Command::new(places.output.join("debug/pop-interop-rust"));
            // The client panics on what it does not know, and one line says enough.
            command.env("RUST_BACKTRACE", "0");
            command
        },
    },
    Language {
        name: "java",
        folder: "java",
        client: "rocketmq-client-java 5.2.0",
        tools: &[&["javac", "--version"], &["mvn", "--version"]],
        trust: Trust::Any,
        leaves_half: true,
        prepare: prepare_java,
        program: |places| {
            let mut home = OsString::from("-Duser.home=");
            home.push(&places.home);
            let mut classes = places.output.join("interop.jar").into_os_string();
            classes.push(":");
            classes.push(places.output.join("lib/*"));
            let mut command = Command::new("java");
            command
                .arg(home)
                .arg("-cp")
                .arg(classes)
                .arg("interop.RoundTrip");
            command
        },
    },
    Language {
        name: "go",
        folder: "go",
        client: "rocketmq-clients/golang/v5 5.1.4",
        tools: &[&["go", "version"]],
        trust: Trust::Any,
        leaves_half: true,
        prepare: prepare_go,
        program: |places| Command::new(places.output.join("roundtrip")),
    },
];

impl Language {
    /// The first tool that is absent, if any is.
    pub(super) fn absent_tool(&self) -> Option<&'static str> {
        self.tools
            .iter()
            .filter(|tool| !runs(tool))
            .find_map(|tool| tool.first().copied())
    }

    /// Installs the client and builds the program. What is there already is kept.
    pub(super) fn prepare(&self, places: &Places) -> Result<()> {
        fs::create_dir_all(&places.output)?;
        fs::create_dir_all(&places.home)?;
        (self.prepare)(places)
    }

    /// The program, without its arguments.
    pub(super) fn program(&self, places: &Places) -> Command {
        let mut command = (self.program)(places);
        // The clients write their logs to the home folder.
        command.env("HOME", &places.home);
        if let Some(roots) = env::var_os(ROOTS_VARIABLE) {
            command.env(GRPC_ROOTS_VARIABLE, roots);
        }
        command
    }
}

/// Where a language's program comes from and where what is built goes.
pub(super) struct Places {
    source: PathBuf,
    output: PathBuf,
    home: PathBuf,
    log: PathBuf,
}

impl Places {
    /// Nothing is ever written to the source tree, so that a clean clone stays clean.
    pub(super) fn new(language: &Language, output: &Path) -> Self {
        let root = output.join(language.folder);
        Self {
            source: crate::workspace::root()
                .join("xtask/interop")
                .join(language.folder),
            home: root.join("home"),
            log: root.join("prepare.log"),
            output: root.join("build"),
        }
    }

    /// Runs one step of a preparation in the folder `within`.
    fn step(&self, within: &Path, command: &mut Command) -> Result<()> {
        let ended = run_limited(command.current_dir(within), &self.log, &self.log, STEP_MAX)?.ended;
        match ended {
            Ended::With(status) if status.success() => Ok(()),
            Ended::With(status) => bail!("{}", self.failed(command, &status.to_string())),
            Ended::Killed => bail!(
                "{}",
                self.failed(command, &format!("killed after {STEP_MAX:?}"))
            ),
        }
    }

    fn failed(&self, command: &Command, how: &str) -> String {
        format!("{command:?}: {how}\n{}", tail(&self.log, super::TAIL_LINES))
    }

    /// Does `install` unless it has been done for just this content of the source file `pins`.
    fn once_for(&self, pins: &str, install: impl FnOnce() -> Result<()>) -> Result<()> {
        let wanted = fs::read(self.source.join(pins))?;
        let mark = self.output.join(format!("installed-{pins}"));
        if fs::read(&mark).is_ok_and(|installed| installed == wanted) {
            return Ok(());
        }
        install()?;
        // Last, so that a broken installation is done again.
        fs::write(mark, wanted)?;
        Ok(())
    }
}

fn python(places: &Places, program: &str) -> Command {
    let mut command = Command::new(places.output.join("venv/bin/python"));
    command.arg("-B").arg(places.source.join(program));
    command
}

fn prepare_python(places: &Places) -> Result<()> {
    places.once_for("requirements.txt", || {
        let venv = places.output.join("venv");
        let mut create = Command::new("python3");
        places.step(
            &places.output,
            create.args(["-m", "venv", "--clear"]).arg(&venv),
        )?;
        let mut install = Command::new(venv.join("bin/pip"));
        install.args(["install", "--quiet", "-r"]);
        places.step(
            &places.output,
            install.arg(places.source.join("requirements.txt")),
        )
    })
}

fn prepare_node(places: &Places) -> Result<()> {
    // Node looks for packages beside the program, so that the program is copied to them.
    for file in fs::read_dir(&places.source)? {
        let file = file?;
        fs::copy(file.path(), places.output.join(file.file_name()))?;
    }
    places.once_for("package-lock.json", || {
        let mut install = Command::new("npm");
        install.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]);
        places.step(&places.output, &mut install)
    })
}

fn prepare_rust(places: &Places) -> Result<()> {
    let mut build = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build
        .args(["build", "--locked", "--target-dir"])
        .arg(&places.output);
    places.step(&places.source, &mut build)
}

fn prepare_java(places: &Places) -> Result<()> {
    let mut target = OsString::from("-Dinterop.target=");
    target.push(&places.output);
    let mut package = Command::new("mvn");
    places.step(
        &places.source,
        package.args(["-q", "-B"]).arg(target).arg("package"),
    )
}

fn prepare_go(places: &Places) -> Result<()> {
    let mut build = Command::new("go");
    build
        .args(["build", "-mod=readonly", "-o"])
        .arg(places.output.join("roundtrip"))
        .arg(".");
    places.step(&places.source, &mut build)
}

fn runs(tool: &[&str]) -> bool {
    let Some((program, arguments)) = tool.split_first() else {
        return false;
    };
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .is_ok_and(|output| output.status.success())
}
