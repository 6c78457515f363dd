//! One seed, one run.

use crate::{
    finish::finish,
    panics,
    plan::Plan,
    sim::{Counts, Sim},
    trace::Trace,
    violation::{Checked, Violation},
};

/// What a run came to.
#[derive(Debug)]
pub struct Report {
    /// The first promise that was not kept, if any.
    pub violation: Option<Violation>,
    /// What happened.
    pub counts: Counts,
    /// The hash of the trace.
    pub hash: u64,
    /// The trace, if it was asked for.
    pub lines: Vec<String>,
    /// The action of each step.
    pub taken: Vec<(u64, &'static str)>,
}

/// Runs a plan, in simulated time. The same plan is the same run.
pub fn run(plan: &Plan, keep_trace: bool) -> Report {
    panics::keep();
    let _ = panics::take();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime of one thread needs nothing");
    runtime.block_on(async {
        let mut sim = match Sim::begin(plan, Trace::new(keep_trace, plan.echo)).await {
            Ok(sim) => sim,
            Err(violation) => {
                return Report {
                    violation: Some(violation),
                    counts: Counts::default(),
                    hash: 0,
                    lines: Vec::new(),
                    taken: Vec::new(),
                };
            }
        };
        let mut outcome = all(&mut sim, plan).await;
        if let (Ok(()), Some(panic)) = (&outcome, panics::take()) {
            outcome = Err(Violation::new("nothing panics", panic));
        }
        let violation = outcome.err();
        if let Some(violation) = &violation {
            sim.note_progress().await;
            sim.note(format_args!("{violation}"));
        }
        Report {
            violation,
            counts: sim.counts,
            hash: sim.trace.hash(),
            lines: sim.trace.into_lines(),
            taken: sim.taken,
        }
    })
}

async fn all(sim: &mut Sim, plan: &Plan) -> Checked {
    let mut step = None;
    while let Some(number) = plan.next(step, sim.counts.ops) {
        sim.counts.steps = number + 1;
        sim.step(number, plan).await?;
        step = Some(number);
    }
    finish(sim).await
}
