//! What may happen in a step. An action more is a line in the table.

mod consume;
mod damage;
mod delete;
mod operate;
mod power;
mod produce;
mod settle;
mod time;

use futures::future::LocalBoxFuture;
use pop_store::testkit::Random;

use crate::{sim::Sim, violation::Checked};

/// Something that may happen in a step.
#[derive(Clone, Copy)]
pub struct Action {
    /// Its name.
    pub name: &'static str,
    /// How often it happens, against the others.
    pub weight: u64,
    /// Makes it happen.
    pub run: for<'a> fn(&'a mut Sim, &'a mut Random) -> LocalBoxFuture<'a, Checked>,
}

impl std::fmt::Debug for Action {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

macro_rules! actions {
    ($($name:literal, $weight:literal, $run:path;)+) => {
        /// All actions.
        pub const ACTIONS: &[Action] = &[$(Action {
            name: $name,
            weight: $weight,
            run: |sim, random| Box::pin($run(sim, random)),
        }),+];
    };
}

actions! {
    "send", 20, produce::send;
    "send to a full disk", 1, produce::send_to_a_full_disk;
    "receive", 16, consume::receive;
    "receive twice at once", 4, consume::receive_twice;
    "drop a receive", 3, consume::drop_receive;
    "abandon a receive", 3, consume::abandon_receive;
    "wait for a message", 4, consume::wait_for_a_message;
    "repeat a receive", 3, consume::repeat_a_receive;
    "set where a group goes on", 1, operate::reset;
    "end what is old", 4, operate::end_the_old;
    "set how long messages are kept", 1, operate::keep_messages;
    "delete a topic", 1, delete::delete_a_topic;
    "delete a group", 1, delete::delete_a_group;
    "acknowledge", 18, settle::acknowledge;
    "acknowledge late", 3, settle::acknowledge_late;
    "acknowledge what may be over", 5, settle::acknowledge_any;
    "acknowledge twice at once", 2, settle::acknowledge_twice;
    "give up", 2, settle::give_up;
    "change", 7, settle::change;
    "change to an equal deadline", 2, settle::change_to_an_equal_deadline;
    "change what may be over", 2, settle::change_any;
    "everything at once", 5, settle::everything_at_once;
    "wait", 6, time::wait;
    "wait while nothing can be read", 2, time::wait_while_reads_fail;
    "shift the wall clock", 1, time::shift_the_wall_clock;
    "restart", 1, power::restart;
    "crash", 1, power::crash;
    "subscribe, and the power goes", 1, power::subscribe_and_crash;
    "damage a message", 1, damage::damage_a_message;
    "take up a record in quarantine", 2, damage::take_up_a_record;
}

/// The action of this name.
pub fn named(name: &str) -> Option<&'static Action> {
    ACTIONS.iter().find(|action| action.name == name)
}

/// The actions of a run, each as often as the run has it.
#[derive(Clone, Debug)]
pub struct Repertoire {
    weights: Vec<u64>,
    sum: u64,
}

impl Repertoire {
    /// Draws how often a run has which action: some it has not at all, some more often, so
    /// that runs differ.
    pub fn draw(random: &mut Random) -> Self {
        let weights: Vec<u64> = ACTIONS
            .iter()
            .map(|action| {
                let factor = [0, 1, 1, 1, 3][random.index(5)];
                let is_needed = matches!(action.name, "send" | "receive" | "acknowledge");
                action.weight * if is_needed { factor.max(1) } else { factor }
            })
            .collect();
        let sum = weights.iter().sum();
        Self { weights, sum }
    }

    /// Draws the action of one step.
    pub fn pick(&self, random: &mut Random) -> &'static Action {
        let mut ticket = random.below(self.sum);
        for (action, weight) in ACTIONS.iter().zip(&self.weights) {
            if ticket < *weight {
                return action;
            }
            ticket -= weight;
        }
        &ACTIONS[0]
    }
}
