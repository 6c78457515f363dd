//! Calls: made at once or while steps pass, and each answer held against the model.

use std::time::Duration;

use futures::future::join_all;
use tokio::task::JoinHandle;

use super::{Sim, millis};
use crate::{
    model::{Millis, Window},
    op::{self, Answer, Op},
    violation::Checked,
    world::lease_millis,
};

/// A call that goes on while steps pass.
#[derive(Debug)]
pub(super) struct Background {
    pub(super) op: Op,
    asked: Millis,
    task: JoinHandle<Answered>,
}

#[derive(Debug)]
struct Answered {
    answer: Answer,
    lease: Millis,
    time: Millis,
}

impl Answered {
    fn window(&self, asked: Millis, is_calm: bool) -> Window {
        Window {
            time: self.time,
            asked,
            answered: self.lease,
            is_calm,
        }
    }
}

impl Sim {
    /// Makes calls at once, and holds their answers against the model.
    pub async fn perform(&mut self, ops: Vec<Op>) -> Checked<Vec<Answer>> {
        self.perform_while_time_passes(ops, None).await
    }

    /// As [`Sim::perform`]; after so much simulated time, lease time moves by so much.
    pub async fn perform_while_time_passes(
        &mut self,
        mut ops: Vec<Op>,
        passing: Option<(Millis, Millis)>,
    ) -> Checked<Vec<Answer>> {
        // Receives first: what is sent meanwhile may already be for a group that begins.
        ops.sort_by_key(|op| !matches!(op, Op::Receive { .. }));
        let asked = self.world.now();
        for op in &mut ops {
            op.begin(&mut self.model, asked);
            self.counts.ops += 1;
        }
        let calls: Vec<_> = ops.iter().map(|op| self.call(op)).collect();
        let clock = self.world.clock();
        let pass = async {
            if let Some((after, by)) = passing {
                tokio::time::sleep(Duration::from_millis(after)).await;
                clock.advance(Duration::from_millis(by));
            }
        };
        let (answers, ()) = tokio::join!(join_all(calls), pass);
        self.read_the_clocks();
        let is_calm = self.is_calm();
        let mut done = self.finished_in_background().await;
        let others = done.len();
        done.extend(ops.into_iter().zip(answers).map(|(op, it)| (op, asked, it)));
        self.note_restarts().await?;
        // What ended in the background may have ended before it.
        let restarted = self.has_restarted_in_step;
        for (op, asked, answered) in &done {
            let at = answered.window(*asked, is_calm);
            if matches!(answered.answer, Answer::Received(None)) {
                self.unheard.push((op.clone(), *asked));
            }
            let text = op.text(&self.model);
            self.note(format_args!("{text}: {}", answered.answer.text()));
            op.end(&answered.answer, at, &mut self.model)?;
            self.may_have_restarted(restarted);
        }
        // What the others made ready may have arrived at the same moment, and what arrived
        // may have been over and arrived again.
        let arrivals = done.iter().flat_map(|(op, asked, answered)| {
            op::arrivals(op, &answered.answer, answered.window(*asked, is_calm))
        });
        let mut arrivals: Vec<_> = arrivals.collect();
        arrivals.sort_by_key(|arrival| arrival.delivery.delivery_attempt);
        let mut anew = Vec::new();
        for arrival in &arrivals {
            self.counts.deliveries += 1;
            let number = self.model.deliveries.len();
            let (id, attempt) = (
                &arrival.delivery.message.message_id,
                arrival.delivery.delivery_attempt,
            );
            self.trace
                .note(format_args!("#{number} is {id}, attempt {attempt}"));
            if arrival.note(&mut self.model)? {
                anew.push(arrival);
            }
            self.may_have_restarted(restarted);
        }
        for arrival in anew {
            arrival.check_order(&arrivals, &self.model, self.world.now())?;
        }
        let own = done.split_off(others).into_iter();
        Ok(own.map(|(_, _, answered)| answered.answer).collect())
    }

    /// Before or after an answer of a moment in which the broker restarted, nobody can say.
    fn may_have_restarted(&mut self, restarted: bool) {
        if restarted {
            self.model.restarted(self.world.now());
        }
    }

    fn call(&self, op: &Op) -> impl Future<Output = Answered> + use<> {
        let call = op.call(&self.world.broker, &self.cast, &self.model);
        let clock = self.world.clock();
        let started = self.started;
        async move {
            let answer = call.await;
            Answered {
                answer,
                lease: lease_millis(&clock),
                time: millis(started.elapsed()),
            }
        }
    }

    /// Makes a call that goes on while steps pass.
    pub fn begin_in_background(&mut self, mut op: Op) {
        op.begin(&mut self.model, self.world.now());
        self.counts.ops += 1;
        let text = op.text(&self.model);
        self.note(format_args!("{text} begins"));
        let task = tokio::spawn(self.call(&op));
        let asked = self.world.now();
        self.background.push(Background { op, asked, task });
    }

    /// Whether a receive of this group and topic waits.
    pub fn waits(&self, group: usize, topic: usize) -> bool {
        self.has_waiting(|op| is_of(op, group, topic))
    }

    /// Whether a call of this kind goes on.
    pub fn has_waiting(&self, is_of: impl Fn(&Op) -> bool) -> bool {
        self.background.iter().any(|it| is_of(&it.op))
    }

    async fn finished_in_background(&mut self) -> Vec<(Op, Millis, Answered)> {
        let mut finished = Vec::new();
        for waiting in std::mem::take(&mut self.background) {
            if waiting.task.is_finished() {
                if let Ok(answered) = waiting.task.await {
                    finished.push((waiting.op, waiting.asked, answered));
                }
            } else {
                self.background.push(waiting);
            }
        }
        finished
    }

    /// Waits for the calls that go on.
    pub async fn end_background(&mut self) -> Checked {
        while let Some(waiting) = self.background.iter().find(|it| !it.task.is_finished()) {
            let _ = waiting;
            self.rest(100).await;
        }
        self.perform(Vec::new()).await.map(drop)
    }
}

fn is_of(op: &Op, of_group: usize, of_topic: usize) -> bool {
    matches!(op, Op::Receive { group, topic, .. } if *group == of_group && *topic == of_topic)
}
