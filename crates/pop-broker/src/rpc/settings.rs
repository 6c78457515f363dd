//! Settings: the client's own, with what the broker decides filled in.
//!
//! Most clients hang, fail or spin if one of these fields is missing, and they do not
//! agree on the form of the back-off; see each function for who needs what.

use std::time::Duration;

use pop_model::{Backoff, RetryPolicy, limits};
use pop_proto::v2::{
    self, Code, CustomizedBackoff, ExponentialBackoff, Metric, Publishing, Settings, Subscription,
    retry_policy::Strategy, settings::PubSub,
};

use super::{
    headers::{Caller, Language},
    status::Refusal,
    time::wire_duration,
};
use crate::Broker;

/// The Node.js client reads the seconds of an exponential back-off as milliseconds.
const NODE_SECONDS: u32 = 1_000;

/// Merges settings for the clients of a broker.
pub(super) struct Merge {
    pub(super) broker: Broker,
    pub(super) long_poll_max: Duration,
}

impl Merge {
    /// The settings to answer with.
    pub(super) fn settings(
        &self,
        mut settings: Settings,
        caller: &Caller,
    ) -> Result<Settings, Refusal> {
        match &mut settings.pub_sub {
            Some(PubSub::Publishing(publishing)) => {
                merge_publishing(publishing, caller)?;
                settings.backoff_policy = Some(producer_policy());
            }
            Some(PubSub::Subscription(subscription)) => {
                let policy = self.merge_subscription(subscription, caller)?;
                settings.backoff_policy = Some(consumer_policy(&policy, caller.language));
            }
            None => {
                return Err(Refusal::new(
                    Code::BadRequest,
                    "the settings say neither what is published nor what is subscribed to",
                ));
            }
        }
        settings.metric = Some(Metric {
            on: false,
            endpoints: None,
        });
        Ok(settings)
    }

    fn merge_subscription(
        &self,
        subscription: &mut Subscription,
        caller: &Caller,
    ) -> Result<RetryPolicy, Refusal> {
        let group = caller.group(&subscription.group.clone().unwrap_or_default())?;
        for entry in &subscription.subscriptions {
            caller.readable_topic(&entry.topic.clone().unwrap_or_default())?;
        }
        // A group that is not there yet, or can't be looked up now, gets the defaults.
        let group = self.broker.group(&group).ok().flatten();
        let batch = i32::try_from(limits::RECEIVE_BATCH_MAX).unwrap_or(i32::MAX);
        subscription.fifo = Some(group.as_ref().is_some_and(|group| group.fifo));
        subscription.receive_batch_size = Some(batch);
        subscription.long_polling_timeout = Some(wire_duration(self.long_poll_max));
        Ok(group.map_or_else(RetryPolicy::default, |group| group.policy.clone()))
    }
}

fn merge_publishing(publishing: &mut Publishing, caller: &Caller) -> Result<(), Refusal> {
    for topic in &publishing.topics {
        caller.user_topic(topic)?;
    }
    publishing.max_body_size = i32::try_from(limits::BODY_BYTES_MAX).unwrap_or(i32::MAX);
    publishing.validate_message_type = true;
    Ok(())
}

/// How producers try again. Without it, or in another form, some fail at their start.
fn producer_policy() -> v2::RetryPolicy {
    v2::RetryPolicy {
        max_attempts: 3,
        strategy: Some(Strategy::ExponentialBackoff(ExponentialBackoff {
            initial: Some(wire_duration(Duration::from_millis(10))),
            max: Some(wire_duration(Duration::from_secs(1))),
            multiplier: 2.0,
        })),
    }
}

/// How push consumers delay a message that failed: a table of whole seconds, which all
/// but one client understand, and exponential for that one.
fn consumer_policy(policy: &RetryPolicy, language: Language) -> v2::RetryPolicy {
    let strategy = match language {
        Language::Node => Strategy::ExponentialBackoff(node_backoff(policy.backoff())),
        _ => Strategy::CustomizedBackoff(CustomizedBackoff {
            next: table(policy).into_iter().map(wire_duration).collect(),
        }),
    };
    v2::RetryPolicy {
        max_attempts: i32::try_from(policy.delivery_attempts_max()).unwrap_or(i32::MAX),
        strategy: Some(strategy),
    }
}

fn node_backoff(backoff: &Backoff) -> ExponentialBackoff {
    let (initial, max, multiplier) = match backoff {
        Backoff::Customized(delays) => (delays.first(), delays.iter().max(), 2.0),
        Backoff::Exponential {
            initial,
            max,
            multiplier,
        } => (Some(initial), Some(max), *multiplier),
    };
    let scaled = |delay: Option<&Duration>| {
        let delay = whole_seconds(delay.copied().unwrap_or_default());
        Some(wire_duration(delay.saturating_mul(NODE_SECONDS)))
    };
    ExponentialBackoff {
        initial: scaled(initial),
        max: scaled(max),
        multiplier,
    }
}

fn table(policy: &RetryPolicy) -> Vec<Duration> {
    /// Clients use the last delay from there on.
    const DELAYS_MAX: u32 = 64;
    match policy.backoff() {
        Backoff::Customized(delays) => delays.iter().copied().map(whole_seconds).collect(),
        Backoff::Exponential { .. } => {
            let retries = policy.delivery_attempts_max().clamp(2, DELAYS_MAX + 1) - 1;
            (1..=retries)
                .map(|attempt| whole_seconds(policy.delay_after(attempt)))
                .collect()
        }
    }
}

/// Rounded up: clients read the seconds alone, and none at all makes them spin.
fn whole_seconds(delay: Duration) -> Duration {
    let more = u64::from(delay.subsec_nanos() > 0);
    Duration::from_secs(delay.as_secs().saturating_add(more).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(delays: &[prost_types::Duration]) -> Vec<i64> {
        assert!(delays.iter().all(|delay| delay.nanos == 0));
        delays.iter().map(|delay| delay.seconds).collect()
    }

    #[test]
    fn consumers_get_whole_seconds_and_node_a_thousand_times_as_many() {
        let policy = RetryPolicy::default();
        let other = consumer_policy(&policy, Language::Other);
        assert_eq!(other.max_attempts, 17);
        let Some(Strategy::CustomizedBackoff(customized)) = other.strategy else {
            panic!("not a table");
        };
        let delays = seconds(&customized.next);
        assert_eq!(delays.len(), 18);
        assert_eq!(delays[..5], [1, 5, 10, 30, 60]);
        assert_eq!(delays[17], 7_200);

        let node = consumer_policy(&policy, Language::Node);
        assert_eq!(node.max_attempts, 17);
        let Some(Strategy::ExponentialBackoff(exponential)) = node.strategy else {
            panic!("not exponential");
        };
        assert_eq!(exponential.initial.unwrap().seconds, 1_000);
        assert_eq!(exponential.max.unwrap().seconds, 7_200_000);
        assert_eq!(exponential.multiplier, 2.0);
    }

    #[test]
    fn an_exponential_policy_becomes_a_table_that_is_never_empty_or_zero() {
        let backoff = Backoff::Exponential {
            initial: Duration::from_millis(300),
            max: Duration::from_secs(7),
            multiplier: 3.0,
        };
        for (attempts, delays) in [(1, vec![1]), (5, vec![1, 1, 3, 7])] {
            let policy = RetryPolicy::new(attempts, backoff.clone()).unwrap();
            let table: Vec<_> = table(&policy).into_iter().map(wire_duration).collect();
            assert_eq!(seconds(&table), delays);
        }
    }
}
