//! The model of the fault: a registry as the ancestor has it. It keeps the last session with
//! a future that is completed by whoever ends the session well, hands it out again while
//! that future is not done, and swallows a start that throws.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use pop_store::Store;
use tokio::sync::watch;

use crate::kit::{A, B, World};

type Done = watch::Receiver<Option<bool>>;

#[derive(Default)]
struct Naive {
    last: Mutex<Option<(u128, Done)>>,
}

impl Naive {
    async fn restore(&self, target: &dyn Store, snapshot: u128) -> Done {
        if let Some((last, done)) = &*self.last.lock()
            && *last == snapshot
            && done.borrow().is_none()
        {
            return done.clone();
        }
        let (complete, done) = watch::channel(None);
        let complete = Arc::new(complete);
        *self.last.lock() = Some((snapshot, done.clone()));
        match target.begin_replace(&[A, B]).await {
            Ok(staging) => {
                let ok = staging.publish().await.is_ok();
                complete.send_replace(Some(ok));
            }
            // "Failed to start the restore", says its log; and nobody completes anything.
            Err(_) => std::mem::forget(complete),
        }
        done
    }
}

/// How often the target is asked for a staging, and whether the second request ends.
pub(crate) async fn twice(world: &World) -> (u64, bool) {
    let naive = Naive::default();
    let store: &dyn Store = &world.target;
    let first = naive.restore(store, 1).await;
    assert!(first.borrow().is_none(), "the first one waits for ever");
    let mut second = naive.restore(store, 1).await;
    let ends = second.wait_for(Option::is_some);
    let ends = tokio::time::timeout(Duration::from_secs(600), ends).await;
    (world.begins(), ends.is_ok())
}
