//! The threads that read, so that a slow disk never holds a runtime worker.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender},
    },
    thread::{self, JoinHandle},
};

use parking_lot::Mutex;
use tokio::sync::OwnedSemaphorePermit;

use super::{Engine, core::Core};
use crate::{ErrorKind, Result};

type ReadFn<E> = Box<dyn FnOnce(&E) + Send>;

/// What a reader is told. The queue is bounded by the permits that the reads carry.
pub(super) enum Read<E> {
    Run(ReadFn<E>, OwnedSemaphorePermit),
    Stop,
}

impl<E> fmt::Debug for Read<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Run(..) => "Run",
            Self::Stop => "Stop",
        })
    }
}

/// A fixed number of reader threads on one queue.
#[derive(Debug)]
pub(super) struct Readers<E> {
    sender: Sender<Read<E>>,
    threads: Vec<JoinHandle<()>>,
}

impl<E: Engine> Readers<E> {
    pub(super) fn start(engine: &Arc<E>, core: &Arc<Core>, count: usize) -> Result<Self> {
        let (sender, receiver) = mpsc::channel();
        let inbox = Arc::new(Mutex::new(receiver));
        let mut readers = Self {
            sender,
            threads: Vec::new(),
        };
        for number in 0..count.max(1) {
            let (engine, shared) = (Arc::clone(engine), Arc::clone(core));
            let inbox = Arc::clone(&inbox);
            let thread = thread::Builder::new()
                .name(format!("store-reader-{number}"))
                .spawn(move || read_loop::<E>(&engine, &shared, &inbox));
            match thread {
                Ok(thread) => readers.threads.push(thread),
                Err(error) => {
                    readers.stop();
                    return Err(core
                        .error(ErrorKind::Unavailable, "open")
                        .with_detail("no reader thread could be started")
                        .with_source(error));
                }
            }
        }
        Ok(readers)
    }

    pub(super) fn sender(&self) -> Sender<Read<E>> {
        self.sender.clone()
    }

    /// Lets the readers finish what is queued before this call, and waits for them to end.
    pub(super) fn stop(&mut self) {
        for _ in &self.threads {
            // A reader that is gone needs no word.
            let _ = self.sender.send(Read::Stop);
        }
        for thread in self.threads.drain(..) {
            // A reader catches the panics of its reads.
            let _ = thread.join();
        }
    }
}

fn read_loop<E: Engine>(engine: &E, core: &Core, inbox: &Mutex<Receiver<Read<E>>>) {
    loop {
        // The lock is held while waiting: the other readers wait for it instead.
        let next = inbox.lock().recv();
        let Ok(Read::Run(read, _permit)) = next else {
            return;
        };
        if catch_unwind(AssertUnwindSafe(|| read(engine))).is_err() {
            core.stop("the engine panicked in a read: reopen the store");
        }
    }
}
