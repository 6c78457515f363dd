//! The waiter of one call: it is answered, whatever becomes of the thread that works for it.

use tokio::sync::oneshot;

use crate::{Error, ErrorKind, Result};

/// Sends one result. Dropped unsent, it answers by itself: an engine thread that dies
/// leaves no caller behind.
#[derive(Debug)]
pub(super) struct Answer<T> {
    sender: Option<oneshot::Sender<Result<T>>>,
    backend: &'static str,
    operation: &'static str,
    begun: bool,
}

impl<T> Answer<T> {
    pub(super) fn new(backend: &'static str, operation: &'static str) -> (Self, Waiter<T>) {
        let (sender, receiver) = oneshot::channel();
        let answer = Self {
            sender: Some(sender),
            backend,
            operation,
            begun: false,
        };
        let waiter = Waiter {
            receiver,
            backend,
            operation,
        };
        (answer, waiter)
    }

    /// States that from here on an unsent answer means that it may have happened.
    pub(super) fn begin(&mut self) {
        self.begun = true;
    }

    pub(super) fn send(mut self, result: Result<T>) {
        self.deliver(result);
    }

    fn deliver(&mut self, result: Result<T>) {
        if let Some(sender) = self.sender.take() {
            // A caller that dropped its future has asked for no answer.
            drop(sender.send(result));
        }
    }
}

impl<T> Drop for Answer<T> {
    fn drop(&mut self) {
        let kind = if self.begun {
            ErrorKind::InDoubt
        } else {
            ErrorKind::Poisoned
        };
        let error = Error::new(kind, self.backend, self.operation)
            .with_detail("the store's thread stopped before it answered: reopen the store");
        self.deliver(Err(error));
    }
}

/// The other end of an [`Answer`].
#[derive(Debug)]
pub(super) struct Waiter<T> {
    receiver: oneshot::Receiver<Result<T>>,
    backend: &'static str,
    operation: &'static str,
}

impl<T> Waiter<T> {
    pub(super) async fn wait(self) -> Result<T> {
        match self.receiver.await {
            Ok(result) => result,
            // `Answer` always sends; should that ever break, doubt is the safe reading.
            Err(_) => Err(Error::new(ErrorKind::InDoubt, self.backend, self.operation)),
        }
    }
}
