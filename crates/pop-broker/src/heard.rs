//! What was logged, for tests: of this thread, and so of all tasks of its runtime.

use std::{io, sync::Arc};

use parking_lot::Mutex;
use tracing::{Level, subscriber::DefaultGuard};
use tracing_subscriber::fmt::MakeWriter;

/// All lines from `Info` up since it was made.
#[derive(Debug)]
pub(crate) struct Heard {
    lines: Lines,
    _guard: DefaultGuard,
}

#[derive(Clone, Debug, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Heard {
    pub(crate) fn listen() -> Self {
        let lines = Lines::default();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(Level::INFO)
            .with_ansi(false)
            .without_time()
            .with_writer(lines.clone())
            .finish();
        let _guard = tracing::subscriber::set_default(subscriber);
        Self { lines, _guard }
    }

    /// The lines with all of these parts.
    pub(crate) fn lines(&self, parts: &[&str]) -> Vec<String> {
        let text = String::from_utf8_lossy(&self.lines.0.lock()).into_owned();
        let lines = text.lines().map(str::to_owned);
        lines
            .filter(|line| parts.iter().all(|part| line.contains(part)))
            .collect()
    }
}

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Lines {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}
