//! Power cuts, restarts, and what the broker does about a store that failed.

use super::Sim;
use crate::{chaos, model::Millis, violation::Checked};

impl Sim {
    /// Finds out whether the broker lost what it had in memory. Returns whether it did.
    pub(super) async fn note_restarts(&mut self) -> Checked<bool> {
        let lost_power = self.world.has_lost_power();
        if lost_power {
            self.note(format_args!("the power went"));
            self.counts.crashes += 1;
            self.lease_calm_since = self.lease_calm_since.max(self.world.now());
            self.world.crash(0).await?;
        } else if self.world.opens() == self.opens_known {
            return Ok(false);
        } else {
            self.note(format_args!("the store was opened anew"));
            self.counts.recoveries += self.world.opens() - self.opens_known;
        }
        self.has_restarted();
        Ok(true)
    }

    /// Waits until the broker serves, and notes what that took.
    ///
    /// # Errors
    ///
    /// If it doesn't in time (P5).
    pub async fn until_serving(&mut self) -> Checked {
        self.note_restarts().await?;
        self.world.until_serving().await?;
        self.note_restarts().await.map(drop)
    }

    fn has_restarted(&mut self) {
        self.read_the_clocks();
        self.opens_known = self.world.opens();
        self.has_restarted_in_step = true;
        // By the latest that lease time was: it may have gone back a little.
        self.lease_calm_since = self.lease_calm_since.max(self.revived_until);
        self.trouble_is_over();
        self.model
            .restarted(self.world.now().max(self.lease_calm_since));
    }

    /// Cuts the power and starts again.
    pub async fn crash(&mut self, keep: usize) -> Checked {
        self.note(format_args!(
            "power cut that keeps {keep} of what is not synced"
        ));
        self.lease_calm_since = self.lease_calm_since.max(self.world.now());
        self.world.crash(keep).await?;
        self.counts.crashes += 1;
        self.has_restarted();
        Ok(())
    }

    /// Shuts down and starts again.
    pub async fn restart(&mut self) -> Checked {
        self.note(format_args!("restart"));
        self.lease_calm_since = self.lease_calm_since.max(self.world.now());
        let went_well = self.world.restart().await?;
        self.read_the_clocks();
        self.counts.restarts += 1;
        if went_well && self.is_calm_but_for_the_restart() {
            // All was durable when it ended: nothing is lost, nothing comes again.
            self.model.lives_anew();
            self.opens_known = self.world.opens();
            self.trouble_is_over();
        } else {
            self.has_restarted();
        }
        Ok(())
    }

    /// An operator says how long messages are kept, which counts from the next start on.
    pub async fn keep(&mut self, keep: Option<Millis>) -> Checked {
        self.note(format_args!("messages are kept for {keep:?} ms"));
        self.world.keep(keep);
        self.restart().await?;
        self.model.keeps(keep);
        Ok(())
    }

    fn is_calm_but_for_the_restart(&self) -> bool {
        let injected = self.world.faults.injected();
        let own = injected.get(self.faults_before..).unwrap_or_default();
        !own.iter().any(|it| chaos::is_trouble(it.fault))
    }
}
