//! Which threads of the program go behind which.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::PathBuf,
};

use crate::{bench::Bench, bootstrap::source};

const PEERS_MAX: usize = 50;

/// Catches: a data port among the threads that answer clients; one that does not go behind
/// them.
#[test]
fn who_fetches_data_goes_behind_clients() {
    let bench = Bench::new();
    let broker = source(&bench, &[]);
    let worked = |it: &Thread| it.name == "transfers" && it.switches > 1;
    let mut threads = Vec::new();
    // One peer may be served by a thread that has not waited for anything yet.
    for _ in 0..PEERS_MAX {
        let mut peer = TcpStream::connect(broker.field("data-listen").unwrap()).unwrap();
        peer.write_all(b"nonsense").unwrap();
        // A reset says the same as an end.
        let _ = peer.read_to_end(&mut Vec::new());
        threads = threads_with(&bench.data());
        if threads.iter().any(worked) {
            break;
        }
    }
    let behind = |name: &str, it: &Thread| it.name != name || it.niceness == 10;
    assert!(
        threads.iter().all(|it| behind("transfers", it)),
        "{threads:?}"
    );
    assert!(threads.iter().any(worked), "{threads:?}");
    let clients: Vec<_> = threads
        .iter()
        .filter(|it| it.name == "tokio-rt-worker")
        .collect();
    assert!(!clients.is_empty() && clients.iter().all(|it| it.niceness < 10));
    drop(broker);
}

#[derive(Debug)]
struct Thread {
    name: String,
    niceness: i32,
    switches: u64,
}

/// The threads of the process that was started with this argument.
fn threads_with(argument: &str) -> Vec<Thread> {
    let all = fs::read_dir("/proc").unwrap();
    let mut it = all.map(|entry| entry.unwrap().path()).filter(|process| {
        // One that is gone by now was another.
        let command = fs::read(process.join("cmdline")).unwrap_or_default();
        command
            .split(|it| *it == 0)
            .any(|it| it == argument.as_bytes())
    });
    let process = it.next().expect("the process is there");
    let threads = fs::read_dir(process.join("task")).unwrap();
    let thread = |path: PathBuf| {
        let status = fs::read_to_string(path.join("status")).unwrap();
        let stat = fs::read_to_string(path.join("stat")).unwrap();
        let (_, behind_name) = stat.rsplit_once(") ").unwrap();
        let after = |name: &str| status.lines().find_map(|it| it.strip_prefix(name));
        Thread {
            name: after("Name:").unwrap().trim().to_owned(),
            niceness: behind_name.split(' ').nth(16).unwrap().parse().unwrap(),
            switches: after("voluntary_ctxt_switches:")
                .unwrap()
                .trim()
                .parse()
                .unwrap(),
        }
    };
    threads.map(|it| thread(it.unwrap().path())).collect()
}
