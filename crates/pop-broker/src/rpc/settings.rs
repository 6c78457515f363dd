//! The answer to a client's settings: the same ones, with what the broker decides.
//!
//! Clients hang or crash on what is missing here, each in its own way, so everything is
//! always there.

use std::time::Duration;

use pop_model::{
    Backoff, RetryPolicy,
    limits::{BODY_BYTES_MAX, RECEIVE_BATCH_MAX},
};
use pop_proto::v2::{
    CustomizedBackoff, ExponentialBackoff, Metric, Publishing, RetryPolicy as ProtoPolicy,
    Settings, Subscription, retry_policy::Strategy, settings::PubSub,
};

use super::{
    Messaging,
    convert::proto_duration,
    headers::{Caller, Language},
};
use crate::BrokerError;

impl Messaging {
    /// What a client is told of its settings.
    pub(super) fn merged(
        &self,
        caller: &Caller,
        mut settings: Settings,
    ) -> Result<Settings, BrokerError> {
        let (policy, pub_sub) = match settings.pub_sub.take() {
            Some(PubSub::Publishing(publishing)) => {
                for topic in &publishing.topics {
                    caller.topic(Some(topic))?;
                }
                (
                    producer_policy(),
                    PubSub::Publishing(merged_publishing(publishing)),
                )
            }
            Some(PubSub::Subscription(subscription)) => {
                let policy = self.policy(caller, &subscription)?;
                let policy = consumer_policy(&policy, caller.language);
                (
                    policy,
                    PubSub::Subscription(self.merged_subscription(subscription)),
                )
            }
            None => {
                return Err(BrokerError::Unsupported(
                    "settings need a publishing or a subscription part",
                ));
            }
        };
        settings.backoff_policy = Some(policy);
        settings.pub_sub = Some(pub_sub);
        settings.metric = Some(Metric {
            on: false,
            endpoints: None,
        });
        Ok(settings)
    }

    fn policy(
        &self,
        caller: &Caller,
        subscription: &Subscription,
    ) -> Result<RetryPolicy, BrokerError> {
        for entry in &subscription.subscriptions {
            caller.topic(entry.topic.as_ref())?;
        }
        let name = caller.group(subscription.group.as_ref())?;
        let group = self.broker.group(&name)?;
        Ok(group.map_or_else(RetryPolicy::default, |group| group.policy.clone()))
    }

    fn merged_subscription(&self, subscription: Subscription) -> Subscription {
        Subscription {
            fifo: Some(false),
            receive_batch_size: i32::try_from(RECEIVE_BATCH_MAX).ok(),
            long_polling_timeout: Some(proto_duration(self.options.long_poll_max)),
            ..subscription
        }
    }
}

fn merged_publishing(publishing: Publishing) -> Publishing {
    Publishing {
        max_body_size: i32::try_from(BODY_BYTES_MAX).unwrap_or(i32::MAX),
        validate_message_type: true,
        ..publishing
    }
}

/// How a producer repeats a failed send (the reference server's). Node.js ends its process
/// where this is not exponential.
fn producer_policy() -> ProtoPolicy {
    ProtoPolicy {
        max_attempts: 3,
        strategy: Some(Strategy::ExponentialBackoff(exponential(
            Duration::from_millis(10),
            Duration::from_secs(1),
            2.0,
        ))),
    }
}

fn consumer_policy(policy: &RetryPolicy, language: Language) -> ProtoPolicy {
    let strategy = match (policy.backoff(), language) {
        // Node.js knows no table, and takes the seconds of an exponential delay for
        // milliseconds: a thousand times as many give it true delays.
        (_, Language::Node) => {
            let first = policy.delay_after(1).max(Duration::from_secs(1));
            let last = policy.delay_after(u32::MAX).max(first);
            Strategy::ExponentialBackoff(exponential(first * 1_000, last * 1_000, 2.0))
        }
        (Backoff::Customized(delays), _) => Strategy::CustomizedBackoff(CustomizedBackoff {
            next: delays.iter().map(|delay| proto_duration(*delay)).collect(),
        }),
        (
            Backoff::Exponential {
                initial,
                max,
                multiplier,
            },
            _,
        ) => Strategy::ExponentialBackoff(exponential(*initial, *max, *multiplier)),
    };
    ProtoPolicy {
        max_attempts: i32::try_from(policy.delivery_attempts_max()).unwrap_or(i32::MAX),
        strategy: Some(strategy),
    }
}

fn exponential(initial: Duration, max: Duration, multiplier: f32) -> ExponentialBackoff {
    ExponentialBackoff {
        initial: Some(proto_duration(initial)),
        max: Some(proto_duration(max)),
        multiplier,
    }
}
