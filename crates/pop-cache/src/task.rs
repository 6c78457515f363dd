//! Work that comes to its end although nobody may wait for it any longer.

use pop_store::{Error, ErrorKind, Store};

/// Runs `work` in a task of its own. Dropping this future drops only the answer: a write
/// whose outcome nobody takes would leave its queue with a plan that never ends.
pub(crate) async fn to_end<T, E>(
    store: &dyn Store,
    work: impl Future<Output = Result<T, E>> + Send + 'static,
) -> Result<T, E>
where
    T: Send + 'static,
    E: From<Error> + Send + 'static,
{
    match tokio::spawn(work).await {
        Ok(outcome) => outcome,
        // A fault of ours, or of the sink: nobody can say how far it came.
        Err(ended) => {
            let error = Error::new(ErrorKind::InDoubt, store.name(), "settle");
            Err(error
                .with_detail(format!("the task that writes ended: {ended}"))
                .into())
        }
    }
}
