//! One step: what happens, what goes wrong meanwhile, and what is looked at after it.

use pop_store::testkit::{Fault, Random};

use super::{DURABLE_WITHIN, NOTICED_WITHIN, Sim, TRIED_AGAIN_WITHIN, WOKEN_WITHIN, millis};
use crate::{
    chaos,
    model::Window,
    op::{Answer, Op},
    panics,
    plan::Plan,
    violation::{Checked, Violation},
    world::{STORE_TIME_MAX, SYNC_EVERY},
};

impl Sim {
    /// One step: something that clients, time or the machine do, while things go wrong.
    pub async fn step(&mut self, number: u64, plan: &Plan) -> Checked {
        let mut random = plan.random_of(number);
        let picked = self.repertoire.pick(&mut random);
        let action = plan.action_at(number).unwrap_or(picked);
        self.taken.push((number, action.name));
        let mut of_faults = Random::new(random.next_u64());
        self.begin_step();
        self.trace
            .note(format_args!("--- step {number}: {}", action.name));
        if plan.has_faults_at(number) {
            let armed = self.odds.arm(&mut of_faults, &self.world.faults);
            for (call, nth, fault) in armed.iter().filter(|it| chaos::is_trouble(it.2)) {
                self.note(format_args!("armed: {fault:?} at {call:?} {nth}"));
            }
        }
        (action.run)(self, &mut random).await?;
        self.end_step().await?;
        let rest = [0, 0, 0, 1, 5, 20, 60, 200][random.index(8)];
        self.rest(rest).await;
        self.look_around().await
    }

    fn begin_step(&mut self) {
        self.faults_before = self.world.faults.injected_count();
        self.unheard.clear();
        self.has_restarted_in_step = false;
        let time = self.time();
        if time >= self.calm_since + TRIED_AGAIN_WITHIN + DURABLE_WITHIN {
            self.model.is_durable_until(time - DURABLE_WITHIN);
        }
    }

    /// What went wrong goes on until it has been dealt with.
    async fn end_step(&mut self) -> Checked {
        self.world.faults.disarm();
        let injected = self.world.faults.injected();
        let own = injected.get(self.faults_before..).unwrap_or_default();
        if own.is_empty() {
            return self.note_restarts().await.map(drop);
        }
        let trouble: Vec<_> = own
            .iter()
            .filter(|it| chaos::is_trouble(it.fault))
            .collect();
        self.counts.faults += trouble.len() as u64;
        for injected in &trouble {
            self.trace.note(format_args!("hit: {injected:?}"));
        }
        if trouble.is_empty() {
            self.rest(10).await;
            return self.note_restarts().await.map(drop);
        }
        let hangs = trouble.iter().any(|it| matches!(it.fault, Fault::Hang(_)));
        let limit = if hangs {
            STORE_TIME_MAX
        } else {
            chaos::DELAY_MAX
        };
        self.rest(millis(limit) + millis(SYNC_EVERY)).await;
        self.world.faults.release();
        self.what_was_unheard_may_be_out()?;
        self.rest(NOTICED_WITHIN).await;
        self.until_serving().await?;
        self.trouble_is_over();
        Ok(())
    }

    /// What nobody heard of is released, but for the trouble.
    fn what_was_unheard_may_be_out(&mut self) -> Checked {
        for (op, asked) in std::mem::take(&mut self.unheard) {
            let at = Window {
                time: self.time(),
                asked,
                answered: self.world.now(),
                is_calm: false,
            };
            op.end(&Answer::Received(None), at, &mut self.model)?;
        }
        Ok(())
    }

    /// From here on nothing goes wrong, until it does.
    pub(super) fn trouble_is_over(&mut self) {
        self.calm_since = self.time();
        self.lease_calm_since = self.lease_calm_since.max(self.world.now());
    }

    /// After a step: nothing panicked, and nobody waits for what is there.
    async fn look_around(&mut self) -> Checked {
        self.perform(Vec::new()).await?;
        if let Some(panic) = panics::take() {
            return Err(Violation::new("nothing panics", panic));
        }
        if self.background.is_empty() || !self.is_calm() {
            return Ok(());
        }
        self.rest(WOKEN_WITHIN).await;
        self.perform(Vec::new()).await?;
        for waiting in &self.background {
            let Op::Receive { group, topic, .. } = waiting.op else {
                continue;
            };
            if self.ready_count(group, topic) > 0 {
                let what = format!(
                    "a receive of group {group} still waits although messages of topic {topic} are ready"
                );
                return Err(Violation::new("P5 what is ready wakes who waits", what));
            }
        }
        Ok(())
    }

    /// Nothing goes wrong from here on.
    pub async fn begin_end(&mut self) -> Checked {
        self.begin_step();
        self.note(format_args!("--- the end: nothing goes wrong any more"));
        self.end_background().await?;
        self.trouble_is_over();
        if self.model.keep().is_some() {
            // From here on everything comes to its end by what its consumers do.
            self.keep(None).await?;
        }
        Ok(())
    }
}
