//! The command line, and the text that `--help` prints.

use std::ffi::OsString;

use crate::backends::{Backend, Selection};

xflags::xflags! {
    /// Builds, runs, tests and checks this workspace. Everything goes through here.
    ///
    /// First steps, on a machine that has rustup and nothing else:
    ///
    ///   cargo xtask demo     build the broker, start it, watch a message go through
    ///   cargo xtask run      build the broker and keep it serving
    ///   cargo xtask test     pass the tests
    ///
    /// Before a commit: `cargo xtask fix`, then `cargo xtask ci`.
    ///
    /// A BACKEND is memory, fjall, sled or rocksdb. The first three need rustc alone.
    /// RocksDB is C++: it needs libclang and a C++ compiler, and half an hour on two cores
    /// the first time. Where they can be installed without asking (root on Debian or
    /// Ubuntu) they are; elsewhere the exact command is printed.
    cmd xtask {
        /// Prints this text.
        default cmd help {}

        /// Builds the broker and serves in the foreground until Ctrl-C.
        cmd run {
            /// The store to build in and to use; fjall unless said otherwise.
            optional -s, --store backend: Backend
            /// Handed to `pop-broker serve` as they are, after `--`.
            repeated args: OsString
        }

        /// Builds the broker, starts it as its own process on a temporary folder, and talks
        /// to it through gRPC: send, receive, let a lease run out, acknowledge. Each step is
        /// printed.
        cmd demo {
            /// The store to build in and to use; fjall unless said otherwise.
            optional -s, --store backend: Backend
        }

        /// Runs unit, integration and documentation tests. Alone, it runs all that rustc
        /// can build by itself: every crate, and memory, fjall and sled.
        cmd test {
            /// Only the store and the broker on this backend; `all` is everything, RocksDB
            /// included.
            optional -b, --backend backend: Selection
        }

        /// Sends and receives with the unmodified official clients. A language whose
        /// toolchain is absent is named as skipped.
        cmd interop {
            /// python, node, rust, java or go; may be repeated; all of them if absent.
            repeated -l, --lang language: String
            /// The store under the broker; may be repeated; fjall if absent.
            repeated -b, --backend backend: Backend
            /// How many messages each client sends; 1000 if absent.
            optional -n, --messages count: u32
            /// Through TLS instead of plain text.
            optional --tls
        }

        /// Random clients on a store that refuses, fails, hangs and loses power, checked
        /// against a plain model after each step. One seed is one run, each time the same.
        cmd sim {
            /// How many seeds to run; 250 if absent. With mutants, within how many each
            /// must be noticed.
            optional -n, --seeds count: u64
            /// The first of them; 0 if absent.
            optional --from seed: u64
            /// Begin no seed after so many seconds.
            optional -t, --time seconds: u64
            /// This seed alone, with its trace, as a failure names it.
            optional -s, --seed seed: u64
            /// Only these steps of it, as `3,7,9-12`.
            optional --only steps: String
            /// Nothing goes wrong in the store in these steps of it.
            optional --no-faults steps: String
            /// Print what the broker logs, too, as `debug` or `pop_cache=debug`.
            optional --log filter: String
            /// Put deliberate faults into the broker, one after another: each must be
            /// noticed.
            optional --mutants
            /// This deliberate fault alone.
            optional --mutant name: String
        }

        /// Sessions that move snapshots, on a network, sources and a target that fail, checked
        /// against invariants after each step. One seed is one schedule.
        cmd restore-sim {
            /// How many seeds to run; 20000 if absent. With mutants, within how many each
            /// must be noticed.
            optional -n, --seeds count: u64
            /// The first of them; 0 if absent.
            optional --from seed: u64
            /// Begin no seed after so many seconds.
            optional -t, --time seconds: u64
            /// Threads; 2 if absent.
            optional -j, --jobs count: u64
            /// This seed alone, with its trace, as a failure names it.
            optional -s, --seed seed: u64
            /// With the real tasks on a paused clock, not the machines alone.
            optional --driver
            /// Put deliberate faults into the sessions, one after another: each must be
            /// noticed.
            optional --mutants
            /// This deliberate fault alone.
            optional --mutant name: String
        }

        /// Fills a store through a broker with something of everything, then backs up,
        /// restores and migrates it into every other one with the real program. Each copy
        /// must have the same rows and give out every message that it must.
        cmd restore-check {
            /// The durable stores, each of which is moved to each; all of them if absent.
            repeated -b, --backend backend: Backend
            /// Kill so many times at random moments, instead; all must come to its end when it
            /// is started again.
            optional -k, --kills count: u32
            /// What is killed, in turn: backup, restore, migrate, failed-restore, and of a
            /// broker that serves live-backup, copy, handover; all of it if absent.
            repeated -a, --action action: String
            /// What the moments follow from; 1 if absent.
            optional -s, --seed seed: u64
        }

        /// Kills the broker with SIGKILL in the middle of sends, receives and
        /// acknowledgements, again and again, and checks that nothing that was promised is
        /// lost.
        cmd torture {
            /// How often to kill; 20 if absent.
            optional -k, --kills count: u32
            /// The durable store to torture; fjall if absent; `all` is each durable one.
            optional -b, --backend backend: Selection
            /// How many synced sends are spread over the kills; 10000 if absent.
            optional -o, --ops count: u32
        }

        /// Cuts the power of a store on paper: records every change of its folder while it
        /// works, lays out what a disk may have at chosen moments, opens that and checks that
        /// nothing that was promised is lost. On Linux.
        cmd powerloss {
            /// The durable store to cut; fjall if absent; `all` is each durable one.
            optional -b, --backend backend: Selection
            /// store, broker or replace; may be repeated; each of them if absent.
            repeated -w, --workload name: String
            /// Cuts per workload and model of a file system; 200 if absent.
            optional -c, --cuts count: u32
            /// Goes through the record step by step instead; for `replace`, whose record is
            /// short. Cuts between every two of its writes, returns of syncs, changes of names
            /// and answers, and says how many writes it left out.
            optional --each-step
            /// With `--each-step`: how many layouts of the disk are drawn before a sync
            /// returns and after a write; 2 if absent.
            optional --layouts count: u32
            /// With `--each-step`: after how many writes it cuts, at most, besides those of a
            /// switch and those before a sync returns; 500 if absent.
            optional --writes count: u32
            /// With `--each-step`, on sled: counts apart what its known refusal of a log
            /// breaks, unless that is more than one cut in 50.
            optional --sled-may-refuse
            /// Cuts only within appends to a file whose name begins with this: RocksDB's
            /// `MANIFEST`.
            optional --within-appends name: String
            /// After how many cuts the recovery is recorded, and cut in its turn; 3 if absent.
            optional -r, --recoveries count: u32
            /// Chooses the cuts and what survives them; 1 if absent.
            optional -s, --seed seed: u64
            /// Takes syncs away, and checks that this is noticed.
            optional --convict
        }

        /// Runs the benchmarks and prints throughput and latencies.
        cmd bench {
            /// One benchmark (a file or folder in benches/benches, without `.rs`); all if
            /// absent.
            optional name: String
            /// The backend to build in beside memory; fjall if absent; `all` is every one.
            optional -b, --backend backend: Selection
        }

        /// Checks that the crates depend on each other strictly downward.
        cmd layers {}

        /// Checks what no lint sees: module docs, a README and a changelog per crate, paths
        /// of one machine, commands in the README that don't exist.
        cmd tidy {}

        /// Formats, and applies what Clippy can repair. The only command that writes.
        cmd fix {}

        /// All of the above that decides whether a change is good, cheap checks first: format,
        /// layers, tidy, Clippy, docs, tests on every backend, both simulators, the demo, the
        /// official clients, copies between all stores and kills of them; torture and power
        /// cuts, in short. Stops at the first failure and says how to run that step alone.
        cmd ci {}
    }
}

impl Xtask {
    /// The whole help text.
    pub fn help() -> &'static str {
        Self::HELP_
    }
}
