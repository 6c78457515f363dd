//! What the answer of each call tells the model.

use pop_broker::BrokerError;

use super::{Answer, Op, answer::told};
use crate::{
    model::{Delivery, Model, Told, Window},
    violation::{Checked, Violation},
};

impl Op {
    /// Tells the model what the call came to, but for messages that arrived.
    ///
    /// # Errors
    ///
    /// If the promises don't allow it.
    pub fn end(&self, answer: &Answer, at: Window, model: &mut Model) -> Checked {
        match (self, answer) {
            (Self::Send { topic, contents }, Answer::Sent(outcomes)) => {
                let may_be_gone = model.may_be_gone(None, *topic, at.asked);
                for (position, content) in contents.iter().enumerate() {
                    let outcome = match outcomes {
                        Ok(outcomes) => outcomes[position].as_ref(),
                        Err(error) => Err(error),
                    };
                    let place = outcome.ok().map(|it| (it.queue.get(), it.offset.get()));
                    model.sent(content.number, told(outcome, may_be_gone)?, place);
                }
                Ok(())
            }
            (
                Self::Receive {
                    group,
                    topic,
                    invisible_ms,
                    number,
                    ..
                },
                Answer::Received(outcome),
            ) => {
                if !at.is_calm {
                    model.may_have_failed_to_read(*group, *topic);
                }
                match outcome {
                    Some(Ok(_)) => {
                        model.has_received(*group, *topic);
                        Ok(())
                    }
                    Some(Err(error)) => {
                        told::<()>(
                            Err(error),
                            model.may_be_gone(Some(*group), *topic, at.asked),
                        )?;
                        let is_refused = match error {
                            BrokerError::Store(error) => error.kind().is_refusal(),
                            BrokerError::TooManyInFlight(_) => true,
                            _ => false,
                        };
                        if !is_refused {
                            let at = Window {
                                is_calm: false,
                                ..at
                            };
                            model.may_have_received(*group, *topic, *invisible_ms, at);
                        }
                        Ok(())
                    }
                    None => {
                        model.may_have_repeated(*group, *topic, *number, *invisible_ms, at);
                        model.may_have_received(*group, *topic, *invisible_ms, at);
                        Ok(())
                    }
                }
            }
            (Self::Ack { delivery, .. }, Answer::Acked(outcome)) => {
                let told = told_of(*delivery, outcome.as_ref(), at, model)?;
                model.acked(*delivery, told, at)
            }
            (Self::GiveUp { delivery, .. }, Answer::GivenUp(outcome)) => {
                let told = told_of(*delivery, outcome.as_ref(), at, model)?;
                model.given_up(*delivery, told, at)
            }
            (
                Self::Change {
                    delivery,
                    invisible_ms,
                    suspend,
                    ..
                },
                Answer::Changed(outcome),
            ) => {
                let told = told_of(*delivery, outcome.as_ref(), at, model)?;
                model.changed(*delivery, told, *invisible_ms, *suspend, at)?;
                if let Ok(handle) = outcome {
                    model.deliveries[*delivery].handles.push(handle.clone());
                }
                Ok(())
            }
            (Self::Reset { group, topic, to }, Answer::Reset(outcome)) => {
                let may_be_gone = model.may_be_gone(Some(*group), *topic, at.asked);
                let told = told(outcome.as_ref(), may_be_gone)?;
                model.was_reset(*group, *topic, *to, told);
                Ok(())
            }
            (Self::ConfirmClock, Answer::Confirmed(outcome)) => {
                told(outcome.as_ref(), false).map(drop)
            }
            (
                Self::Quarantined {
                    group,
                    message,
                    is_dropped,
                    ..
                },
                Answer::Quarantined(outcome),
            ) => {
                // A record that was not durable is gone with the power.
                let is_lost = matches!(outcome, Err(BrokerError::QuarantineNotFound(_)));
                if is_lost && !at.is_calm {
                    return Ok(());
                }
                let told = told(outcome.as_ref(), group.is_none())?;
                match group {
                    Some(group) if *is_dropped => model.dropped(*group, *message, told, at),
                    Some(group) => model.redriven(*group, *message, told, at)?,
                    None if told == Told::Ok && !is_dropped => {
                        let what = format!("a record of m{message} of a group that is deleted");
                        return Err(Violation::new(
                            "P6 what was put away is worked on again",
                            what,
                        ));
                    }
                    None => {}
                }
                Ok(())
            }
            // Whether it is done is asked once the broker is calm.
            (Self::DeleteTopic { .. } | Self::DeleteGroup { .. }, Answer::Deleted(outcome)) => {
                told(outcome.as_ref(), false).map(drop)
            }
            _ => Err(Violation::new(
                "P5 no wedge",
                format!("{} had no answer in time", self.text(model)),
            )),
        }
    }
}

/// What an outcome of a call with a handle means. A delivery of what is being deleted may be
/// over, or its topic or its group gone.
fn told_of<T>(
    delivery: Delivery,
    outcome: Result<T, &BrokerError>,
    at: Window,
    model: &Model,
) -> Checked<Told> {
    let may_be_gone = model.delivery_may_be_gone(delivery, at.asked);
    Ok(match told(outcome, may_be_gone)? {
        Told::Over if may_be_gone => Told::Gone,
        told => told,
    })
}
