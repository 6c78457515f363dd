//! Closing the cache to a topic or a group that is deleted.

use std::{collections::HashSet, sync::Arc};

use pop_model::{GroupId, Mutant, SubscriptionQueue, TopicId};

use crate::{CacheError, CachedQueue, LeaseCache, Result, RetrySink};

/// What nothing is loaded of any more. Ids are not used again, so nothing leaves it.
#[derive(Debug, Default)]
pub(crate) struct Closed {
    topics: HashSet<TopicId>,
    groups: HashSet<GroupId>,
}

impl<K: RetrySink> LeaseCache<K> {
    /// Forgets everything of a topic. Once this returns nothing is written of it any more
    /// by this cache, and nothing is loaded again.
    pub async fn close_topic(&self, topic: TopicId) {
        self.inner.closed.lock().topics.insert(topic);
        self.forget(|queue| queue.topic == topic).await;
    }

    /// Forgets everything of a group. Once this returns nothing is written of it any more
    /// by this cache, and nothing is loaded again.
    pub async fn close_group(&self, group: GroupId) {
        self.inner.closed.lock().groups.insert(group);
        self.forget(|queue| queue.group == group).await;
    }

    /// Refuses what is closed.
    pub(crate) fn check_open(&self, queue: SubscriptionQueue) -> Result<()> {
        let closed = self.inner.closed.lock();
        if closed.topics.contains(&queue.topic) || closed.groups.contains(&queue.group) {
            return Err(CacheError::Closed(queue));
        }
        Ok(())
    }

    async fn forget(&self, is_closed: impl Fn(SubscriptionQueue) -> bool) {
        let mut cells: Vec<_> = {
            let queues = self.inner.queues.lock();
            let closed = queues.iter().filter(|(queue, _)| is_closed(**queue));
            closed
                .map(|(queue, cell)| (*queue, Arc::clone(cell)))
                .collect()
        };
        // One order for one content, so that one seed of a simulation is one run.
        cells.sort_by_key(|(queue, _)| *queue);
        for (_, cell) in cells {
            // Waits for a load that is running; one that comes later is refused.
            let closed = || async { Err::<Arc<CachedQueue>, _>(()) };
            if let Ok(cached) = cell.get_or_try_init(closed).await {
                self.forget_queue(cached).await;
            }
        }
        self.inner
            .queues
            .lock()
            .retain(|queue, _| !is_closed(*queue));
    }

    async fn forget_queue(&self, cached: &Arc<CachedQueue>) {
        // A write that is running comes to its end first. Whoever has a turn after this
        // finds the queue given up, and its epoch over.
        let _turn = cached.turn.acquire().await;
        // Given up and no longer listed in one step, as in an eviction: a receive that finds
        // the one without the other looks it up again and again.
        let follow = {
            let mut queues = self.inner.queues.lock();
            let mut state = cached.state.lock();
            let leases = &state.leases;
            let (after, committed) = (leases.epoch().next(), leases.committed());
            state.begin_anew(after, committed);
            if !Mutant::ClosedStaysListed.is_on() {
                queues.remove(&cached.queue);
            }
            state.give_up()
        };
        self.follow(cached, follow);
        cached.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use pop_model::{
        Checkpoint, Incarnation, LeaseTime, LogBounds, ManualClock, Offset, QueueId, StartPosition,
        WallTime,
    };
    use pop_store::{
        Durable, MemStore, Outcome, Scan, Store, WriteBatch,
        table::{DueSchedule, KEYSPACES, META, PROGRESS},
    };

    use super::*;
    use crate::{CacheOptions, Foundation, Revival, SinkError, Subscribe};

    #[derive(Debug)]
    struct NoSink;

    #[async_trait]
    impl RetrySink for NoSink {
        type Token = ();

        async fn revive(&self, _due: &Checkpoint) -> Result<Revival<()>, SinkError> {
            Err("nothing is due here".into())
        }

        fn settled(&self, _due: &Checkpoint, _token: Durable<()>) {}

        fn unsettled(&self, _due: &Checkpoint, _token: (), _outcome: Outcome) {}
    }

    const BOUNDS: LogBounds = LogBounds {
        start: Offset::ZERO,
        end: Offset::new(3),
    };

    fn subscribe(topic: u64) -> Subscribe {
        subscribe_queue(topic, 0)
    }

    fn subscribe_queue(topic: u64, queue: u32) -> Subscribe {
        Subscribe {
            queue: SubscriptionQueue {
                group: GroupId::new(1),
                topic: TopicId::new(topic),
                queue: QueueId::new(queue),
            },
            bounds: BOUNDS,
            found_end: BOUNDS.end,
            start: StartPosition::Earliest,
            ordered: false,
        }
    }

    fn cache(store: &MemStore) -> LeaseCache<NoSink> {
        let clock = ManualClock::new(LeaseTime::from_millis(1), WallTime::default());
        let on = Foundation {
            store: Arc::new(store.clone()),
            clock: Arc::new(clock),
            due: DueSchedule::restore(|_| LeaseTime::ZERO),
            quarantine: Arc::default(),
            sink: Arc::new(NoSink),
            incarnation: Incarnation::new(1),
            previous: None,
        };
        LeaseCache::new(on, CacheOptions::default())
    }

    #[tokio::test]
    async fn what_is_closed_is_not_loaded_again() {
        let store = MemStore::new(&KEYSPACES);
        let cache = cache(&store);
        cache.subscribe(subscribe(1)).await.unwrap();
        cache.close_topic(TopicId::new(1)).await;
        // Mutant: it is only forgotten; whoever still holds the topic subscribes anew.
        let error = cache.subscribe(subscribe(1)).await.unwrap_err();
        assert!(matches!(error, CacheError::Closed(_)), "{error}");
        cache.subscribe(subscribe(2)).await.unwrap();
        cache.close_group(GroupId::new(1)).await;
        let error = cache.subscribe(subscribe(2)).await.unwrap_err();
        assert!(matches!(error, CacheError::Closed(_)), "{error}");
    }

    #[tokio::test]
    async fn a_receive_of_what_is_being_closed_is_refused_and_does_not_spin() {
        let store = MemStore::new(&KEYSPACES);
        let cache = cache(&store);
        let first = cache.subscribe(subscribe_queue(1, 0)).await.unwrap();
        let second = cache.subscribe(subscribe_queue(1, 1)).await.unwrap();
        let running = second.turn.try_acquire().unwrap();
        let closer = cache.clone();
        let closing = tokio::spawn(async move { closer.close_topic(TopicId::new(1)).await });
        tokio::task::yield_now().await;
        let error = cache.reserve(&first, 1, BOUNDS).unwrap_err();
        assert!(matches!(error, CacheError::Evicted(_)), "{error}");
        // Mutant: ClosedStaysListed.
        assert!(cache.loaded(first.queue()).is_none());
        let error = cache.subscribe(subscribe_queue(1, 0)).await.unwrap_err();
        assert!(matches!(error, CacheError::Closed(_)), "{error}");
        drop(running);
        closing.await.unwrap();
    }

    #[tokio::test]
    async fn nothing_is_written_of_what_is_closed() {
        let store = MemStore::new(&KEYSPACES);
        let cache = cache(&store);
        let cached = cache.subscribe(subscribe(1)).await.unwrap();
        let mut reserved = cache.reserve(&cached, 2, BOUNDS).unwrap();
        reserved.skip(&[Offset::ZERO]);
        cache.close_topic(TopicId::new(1)).await;
        // Mutant: the state stays as it was; both are written behind the sweep.
        let mut batch = WriteBatch::new();
        batch.put(META, "late".into(), "row".into());
        reserved.settle(Offset::new(1), batch).await.unwrap();
        cache.flush().await.unwrap();
        assert_eq!(store.get(META, b"late").await.unwrap(), None);
        assert_eq!(store.scan(PROGRESS, Scan::all()).await.unwrap(), []);
    }
}
