//! Threads whose work may wait.

/// A tenth of the share of an ordinary thread, where both want the same processor.
#[cfg(target_os = "linux")]
const NICE: i32 = 10;

/// Has the calling thread, and those that it starts from here on, go behind all others where
/// processors are scarce.
///
/// It is for threads that move a lot and that nobody waits for: the source and the target of
/// a restore do so by themselves in an engine that has a thread for them. Such a thread still
/// gets on, at a tenth of an ordinary one's share; on a processor that nobody wants it is as
/// fast as ever. There is no way back.
///
/// It does nothing but on Linux, nor where the system refuses it.
///
/// # Examples
///
/// A runtime for transfers, beside that of those who wait for an answer:
///
/// ```
/// let transfers = tokio::runtime::Builder::new_multi_thread()
///     .worker_threads(1)
///     .on_thread_start(pop_store::run_in_background)
///     .enable_all()
///     .build()?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn run_in_background() {
    // Zero is the calling thread there, not its process as POSIX has it.
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::setpriority_process(None, NICE) {
        tracing::debug!(%error, "a thread for the background is as urgent as any");
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::thread;

    use super::*;

    fn niceness() -> i32 {
        rustix::process::getpriority_process(None).expect("it is told to everybody")
    }

    // Mutant: do nothing.
    #[test]
    fn the_thread_and_those_that_it_starts_go_behind_and_no_other_does() {
        let before = niceness();
        thread::spawn(|| {
            run_in_background();
            let inherited = thread::spawn(niceness).join();
            assert_eq!([niceness(), inherited.expect("it ends")], [NICE; 2]);
        })
        .join()
        .expect("it is lowered");
        assert_eq!(niceness(), before);
    }
}
