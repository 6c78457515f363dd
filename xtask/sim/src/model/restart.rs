//! What a restart forgets, and what is durable.

use std::collections::BTreeSet;

use super::{Millis, Model, State};

impl Model {
    /// Another life of the broker begins.
    pub fn lives_anew(&mut self) {
        self.of_this_life = self.deliveries.len();
        self.reads_anew();
        for group in 0..self.cast.groups.len() {
            let is_out = |state| matches!(state, State::Leased(_));
            let of_group = self.open[group].iter().flatten();
            let out = of_group.filter(|message| self.tracks[group][**message].maybe(is_out));
            self.of_earlier_lives[group] = out.count() as u64;
        }
    }

    /// A restart lost what was in memory alone, and what was not durable.
    pub fn restarted(&mut self, now: Millis) {
        self.lives_anew();
        let mut touched: BTreeSet<(usize, usize)> = self.open_tracks().collect();
        touched.extend(&self.recent);
        for (group, message) in touched {
            let attempts_max = self.cast.groups[group].attempts_max;
            let track = &mut self.tracks[group][message];
            track.restarted(
                self.durable_until,
                now,
                attempts_max,
                self.cast.groups[group].is_fifo,
            );
            self.file(group, message);
        }
    }

    /// Everything that was answered up to here is durable (P4).
    pub fn is_durable_until(&mut self, time: Millis) {
        self.durable_until = self.durable_until.max(time);
        let (until, tracks) = (self.durable_until, &mut self.tracks);
        self.recent
            .retain(|(group, message)| tracks[*group][*message].forget_until(until));
    }
}
