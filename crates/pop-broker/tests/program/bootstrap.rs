//! Starting a folder with the data of a running broker, copy and handover, by the program
//! itself.

use std::{
    io::{Read, Write},
    net::TcpStream,
    process::{Child, Command, Output, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use pop_proto::v2::Code;
use tokio::{task::spawn_blocking, time::Instant};

use crate::{
    bench::{BINARY, Bench, DURABLE, END_MAX, ask, client, run, until},
    client::Delivery,
    process::Process,
};

pub(crate) const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_secs(1);

/// A broker on the data folder that gives its data out.
pub(crate) fn source(bench: &Bench, flags: &[&str]) -> Process {
    let data = bench.data();
    let flags = [
        &[
            "--store",
            DURABLE,
            "--data",
            &data,
            "--data-listen",
            "127.0.0.1:0",
        ],
        flags,
    ];
    bench.serve(&flags.concat())
}

pub(crate) fn url(source: &Process) -> String {
    format!("tcp://{}", source.field("data-listen").unwrap())
}

pub(crate) fn to(bench: &Bench, folder: &str) -> String {
    format!("{DURABLE}:{}", bench.path(folder).to_str().unwrap())
}

fn bootstrap(url: &str, to: &str, flags: &[&str]) -> Output {
    run(&[&["bootstrap", "--from", url, "--to", to], flags].concat())
}

#[track_caller]
fn done(output: &Output) {
    assert!(output.status.success(), "{output:?}");
}

#[track_caller]
fn refused(output: &Output, code: i32, part: &str) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains(part), "{part} in {text}");
    assert_eq!(output.status.code(), Some(code), "{text}");
}

/// A broker on a folder that was filled.
pub(crate) fn serve(bench: &Bench, folder: &str) -> Process {
    let data = bench.path(folder);
    bench.serve_logged(
        folder,
        &["--store", DURABLE, "--data", data.to_str().unwrap()],
    )
}

/// All that can be received within a while, acknowledged.
async fn drain(broker: &Process) -> Vec<Delivery> {
    let mut consumer = client(broker, "orders", "billing").await;
    let mut all: Vec<Delivery> = Vec::new();
    let mut last = Instant::now();
    while last.elapsed() < Duration::from_secs(2) {
        for delivery in consumer.receive(LONG, SHORT).await.unwrap() {
            last = Instant::now();
            assert_eq!(consumer.ack(&delivery).await.unwrap(), Code::Ok);
            all.push(delivery);
        }
    }
    all
}

fn bodies(deliveries: &[Delivery]) -> Vec<&str> {
    let mut bodies: Vec<_> = deliveries.iter().map(|it| it.body.as_str()).collect();
    bodies.sort_unstable();
    bodies
}

/// Sends until it is stopped or refused; the numbers whose send was answered OK.
async fn send_until(broker: &Process, stop: &AtomicBool) -> Vec<u64> {
    let mut producer = client(broker, "orders", "billing").await;
    let mut sent = Vec::new();
    for number in 0.. {
        let text = number.to_string();
        let refused = producer.send(&text, &text).await.is_err();
        if refused || stop.load(Ordering::SeqCst) {
            break;
        }
        sent.push(number);
    }
    sent
}

/// Lets clients work for a while, and then a bootstrap beside them.
async fn bootstrap_beside(url: String, to: String, flags: &'static [&str]) -> Output {
    tokio::time::sleep(Duration::from_millis(300)).await;
    let output = spawn_blocking(move || bootstrap(&url, &to, flags)).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    output.unwrap()
}

/// P1 over a copy: what was answered before the copy began is in it, whatever goes on.
/// Catches: a copy that keeps the keys of handles; a source that serves nobody while it is
/// copied. That the rows are of one moment is shown in `data::tests::sessions`.
#[tokio::test]
async fn a_copy_has_all_that_was_answered_before_it_and_the_source_goes_on() {
    let bench = Bench::new();
    let broker = source(&bench, &[]);
    let stop = Arc::new(AtomicBool::new(false));
    let mut first = client(&broker, "orders", "billing").await;
    first.send("before", "before").await.unwrap();
    let leased = loop {
        let mut leased = first.receive(LONG, LONG).await.unwrap();
        if let Some(leased) = leased.pop() {
            break leased;
        }
    };
    let copied = async {
        let output = bootstrap_beside(url(&broker), to(&bench, "copy"), &[]).await;
        stop.store(true, Ordering::SeqCst);
        output
    };
    let (sent, output) = tokio::join!(send_until(&broker, &stop), copied);
    done(&output);
    // The lease of the source is its own, and still valid there.
    assert_eq!(first.ack(&leased).await.unwrap(), Code::Ok);
    let copy = serve(&bench, "copy");
    let mut other = client(&copy, "orders", "billing").await;
    assert_eq!(
        other.ack(&leased).await.unwrap(),
        Code::InvalidReceiptHandle
    );
    let there = drain(&copy).await;
    let there = bodies(&there);
    assert!(there.contains(&"before"), "{there:?}");
    // A prefix of what one producer sent in turn, without a hole, and not nothing.
    let mut numbers: Vec<u64> = there.iter().filter_map(|it| it.parse().ok()).collect();
    numbers.sort_unstable();
    assert!(numbers.len() > 10, "{numbers:?}");
    assert_eq!(numbers, sent[..numbers.len()]);
    assert!(
        numbers.len() < sent.len(),
        "nothing was sent after the snapshot"
    );
    let rest = drain(&broker).await;
    assert!(rest.len() >= sent.len(), "{} of {}", rest.len(), sent.len());
}

/// P1, P3, P4 over a handover. Catches: the source serves on while it is handed over; the
/// leases are not stored before the snapshot; the new owner draws other handle keys.
#[tokio::test]
async fn a_handover_keeps_every_answered_message_and_every_lease_and_the_old_folder_refuses() {
    let bench = Bench::new();
    let mut broker = source(&bench, &[]);
    let mut consumer = client(&broker, "orders", "billing").await;
    for number in ["a", "b", "c"] {
        consumer.send(number, number).await.unwrap();
    }
    let mut leased = Vec::new();
    while leased.len() < 3 {
        leased.extend(consumer.receive(10 * LONG, LONG).await.unwrap());
    }
    assert_eq!(consumer.ack(&leased[0]).await.unwrap(), Code::Ok);
    let stop = AtomicBool::new(false);
    let (sent, output) = tokio::join!(
        send_until(&broker, &stop),
        bootstrap_beside(url(&broker), to(&bench, "next"), &["--handover"])
    );
    done(&output);
    assert!(consumer.send("late", "late").await.is_err());
    let admin = broker.field("admin").unwrap().to_owned();
    assert!(crate::admin::health(&admin).contains("moved"));
    broker.signal("TERM").unwrap();
    assert_eq!(
        broker.end(END_MAX).await.unwrap().code(),
        Some(0),
        "{}",
        bench.log()
    );

    // The old folder says where its data went, and how to undo that.
    let data = bench.data();
    let again = run(&[
        "serve",
        "--store",
        DURABLE,
        "--data",
        &data,
        "--listen",
        "127.0.0.1:0",
        "--admin",
        "127.0.0.1:0",
    ]);
    refused(&again, 10, &bench.path("next").display().to_string());
    refused(&again, 10, "handover undo");

    let next = serve(&bench, "next");
    let mut after = client(&next, "orders", "billing").await;
    // A lease outlives the handover, and so does its handle.
    assert_eq!(after.ack(&leased[1]).await.unwrap(), Code::Ok);
    assert_eq!(
        after.ack(&leased[0]).await.unwrap(),
        Code::InvalidReceiptHandle
    );
    let there = drain(&next).await;
    // One is acknowledged, and one is out.
    let bodies_there = bodies(&there);
    assert!(!bodies_there.contains(&"b") && !bodies_there.contains(&"c"));
    let expected: Vec<String> = sent.iter().map(u64::to_string).collect();
    let mut expected: Vec<_> = expected.iter().map(String::as_str).collect();
    expected.sort_unstable();
    // Those that were sent and not answered may be there or not.
    let there: Vec<_> = bodies_there
        .into_iter()
        .filter(|it| it.parse::<u64>().is_ok())
        .collect();
    assert!(
        there.len() <= expected.len() + 1,
        "{} of {}",
        there.len(),
        expected.len()
    );
    for number in expected {
        assert!(
            there.contains(&number),
            "{number} was answered and is not there"
        );
    }
}

/// The target of a handover may be killed when it is the owner and has not said so.
/// Catches: the second one finds data that are not to be replaced; a source that says nothing
/// is taken at its word.
#[tokio::test]
async fn a_handover_that_is_done_is_said_to_be_so_when_it_is_typed_again() {
    let bench = Bench::new();
    let mut broker = source(&bench, &[]);
    ask(&broker, &["topic", "create", "orders"]);
    let (url, to) = (url(&broker), to(&bench, "next"));
    done(&bootstrap(&url, &to, &["--handover"]));
    for flags in [&["--handover"][..], &["--handover", "--replace"]] {
        let again = bootstrap(&url, &to, flags);
        done(&again);
        let said = String::from_utf8_lossy(&again.stdout);
        assert!(said.contains("everything had come before"), "{said}");
    }
    let finish = [
        "handover",
        "finish",
        "--to",
        &to,
        "--source-is-gone",
        "--yes",
    ];
    let again = run(&finish);
    done(&again);
    let said = String::from_utf8_lossy(&again.stdout);
    assert!(said.contains("is the owner already"), "{said}");
    broker.signal("TERM").unwrap();
    broker.end(END_MAX).await.unwrap();
    let again = bootstrap(&url, &to, &["--handover"]);
    refused(&again, 1, "is its owner");
    let next = serve(&bench, "next");
    assert!(ask(&next, &["topic", "list"]).contains("orders"));
}

/// Catches: the undo goes back to the epoch of before; the epoch of a folder is not looked at.
#[tokio::test]
async fn a_folder_that_is_taken_back_can_not_be_overwritten_by_the_one_that_had_it() {
    let bench = Bench::new();
    let mut broker = source(&bench, &[]);
    ask(&broker, &["topic", "create", "orders"]);
    let to = to(&bench, "next");
    done(&bootstrap(&url(&broker), &to, &["--handover"]));
    broker.signal("KILL").unwrap();
    broker.end(END_MAX).await.unwrap();
    let at = format!("{DURABLE}:{}", bench.data());
    refused(&run(&["handover", "undo", "--at", &at]), 2, "--yes");
    done(&run(&["handover", "undo", "--at", &at, "--yes"]));
    let again = run(&["handover", "undo", "--at", &at, "--yes"]);
    done(&again);
    let said = String::from_utf8_lossy(&again.stdout);
    assert!(said.contains("again already, as epoch 2"), "{said}");
    let other = run(&["handover", "undo", "--at", &to, "--yes"]);
    refused(&other, 10, "not handed over");
    let mut former = serve_data(&bench, "next");
    let back = bootstrap(&url(&former), &at, &["--replace"]);
    refused(&back, 1, "former owner");
    // Nor by handing it over; that is asked for and not done, so that it serves on.
    let admin = former.field("admin").unwrap().to_owned();
    let back = bootstrap(&url(&former), &at, &["--replace", "--handover"]);
    refused(&back, 1, "former owner");
    until(|| crate::admin::health(&admin).contains("serving")).await;
    former.signal("TERM").unwrap();
    former.end(END_MAX).await.unwrap();
    let owner = source(&bench, &[]);
    assert!(ask(&owner, &["topic", "list"]).contains("orders"));
}

/// A copy of what was handed over is stale, and does not pass for the owner's.
/// Catches: a backup of it that nobody is warned of; a copy of the epoch of the new owner; a
/// refusal that does not name the folder.
#[tokio::test]
async fn a_folder_that_was_handed_over_is_copied_only_when_told() {
    let bench = Bench::new();
    let mut broker = source(&bench, &[]);
    ask(&broker, &["topic", "create", "orders"]);
    let next = to(&bench, "next");
    done(&bootstrap(&url(&broker), &next, &["--handover"]));
    broker.signal("KILL").unwrap();
    broker.end(END_MAX).await.unwrap();
    let (data, copy) = (bench.data(), to(&bench, "copy"));
    let file = bench.path("a.backup");
    let file = file.to_str().unwrap();
    let backup = ["backup", "--from", &data, "--to", file];
    let migrate = ["migrate", "--from", &data, "--to", &copy];
    for command in [&backup, &migrate] {
        let output = run(command);
        refused(&output, 10, "--not-owned");
        refused(&output, 10, &data);
        done(&run(&[&command[..], &["--not-owned"]].concat()));
    }
    let stale = serve_data(&bench, "copy");
    for flags in [&["--replace"][..], &["--replace", "--handover"]] {
        refused(&bootstrap(&url(&stale), &next, flags), 1, "former owner");
    }
}

fn serve_data(bench: &Bench, folder: &str) -> Process {
    let data = bench.path(folder);
    let data = data.to_str().unwrap();
    bench.serve_logged(
        folder,
        &[
            "--store",
            DURABLE,
            "--data",
            data,
            "--data-listen",
            "127.0.0.1:0",
        ],
    )
}

/// Catches: a backup that is done and can't be made twice; any backup with the name for the one
/// that was asked for; its own one for ever.
#[tokio::test]
async fn a_running_broker_is_backed_up_and_brought_back() {
    let bench = Bench::new();
    let token = bench.write("token", "0123456789abcdef\n");
    let broker = source(&bench, &["--data-token-file", &token]);
    let stop = AtomicBool::new(false);
    let file = bench.path("monday.backup");
    let file = file.to_str().unwrap();
    let backed_up = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let arguments = [
            "backup",
            "--from",
            &url(&broker),
            "--to",
            file,
            "--token-file",
            &token,
        ];
        let arguments = arguments.map(str::to_owned);
        let output = spawn_blocking(move || run(&arguments.each_ref().map(String::as_str)));
        let output = output.await.unwrap();
        stop.store(true, Ordering::SeqCst);
        output
    };
    let (sent, output) = tokio::join!(send_until(&broker, &stop), backed_up);
    done(&output);
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("moved     "), "{told}");
    // As after a kill when all was done; its broker has no such snapshot any more, and once
    // somebody was told of it the name is that of another moment.
    let name = |ending: &str| format!("{file}{ending}");
    std::fs::rename(name(".toml"), name(".toml.partial")).unwrap();
    let from = url(&broker);
    let arguments = [
        "backup",
        "--from",
        &from,
        "--to",
        file,
        "--token-file",
        &token,
    ];
    let again = run(&arguments);
    done(&again);
    let again = String::from_utf8_lossy(&again.stdout).into_owned();
    let digest = |told: &str| told.split_once("digest").unwrap().1.to_owned();
    assert_eq!(digest(&again), digest(&told));
    refused(&run(&arguments), 1, "is there already: a backup as of 20");
    let to = to(&bench, "back");
    done(&run(&["restore", "--from", file, "--to", &to]));
    let there = drain(&serve(&bench, "back")).await;
    let mut numbers: Vec<u64> = there.iter().map(|it| it.body.parse().unwrap()).collect();
    numbers.sort_unstable();
    assert!(numbers.len() > 10, "{numbers:?}");
    assert_eq!(numbers, sent[..numbers.len()]);
}

/// Catches: data that are given up without being asked; a copy that nobody served for data.
#[tokio::test]
async fn a_folder_with_data_is_refused_unless_told() {
    let bench = Bench::new();
    let broker = source(&bench, &[]);
    ask(&broker, &["topic", "create", "orders"]);
    let (url, to) = (url(&broker), to(&bench, "copy"));
    done(&bootstrap(&url, &to, &[]));
    // Never served, it is nobody's yet.
    done(&bootstrap(&url, &to, &[]));
    drop(serve(&bench, "copy"));
    refused(&bootstrap(&url, &to, &[]), 1, "--replace");
    done(&bootstrap(&url, &to, &["--replace"]));
}

/// P5: nobody who comes with nonsense, with nothing, or slowly holds up another.
/// Catches: nonsense that is read on until its time is over; another version that is dropped
/// without a word.
#[tokio::test]
async fn what_is_no_peer_is_dropped_and_others_are_served() {
    let bench = Bench::new();
    let broker = source(&bench, &[]);
    let address = broker.field("data-listen").unwrap().to_owned();
    let silent = TcpStream::connect(&address).unwrap();
    for bytes in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"\x16\x03\x01\x02\x00\x01",
        b"POPD\0\0\0\x01\xff\xff\xff\xff",
        b"POPD\0\0\0\x01\0\0\0\x02{}",
        b"KR\x01\x01",
    ] {
        let mut peer = TcpStream::connect(&address).unwrap();
        peer.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        peer.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        // Closed at once, not after the time limit; a reset says the same.
        let read = peer.read_to_end(&mut answer);
        let timed_out = read.is_err_and(|it| it.kind() == std::io::ErrorKind::WouldBlock);
        assert!(!timed_out && answer.is_empty(), "{bytes:?}: {answer:?}");
    }
    let mut other = TcpStream::connect(&address).unwrap();
    other.write_all(b"POPD\0\0\0\x07").unwrap();
    let mut answer = Vec::new();
    other.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.contains("version 7"), "{answer}");
    done(&bootstrap(&url(&broker), &to(&bench, "copy"), &[]));
    let shown = ask(&broker, &["data", "show", "--json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["refused"], 6, "{shown}");
    drop(silent);
}

/// Catches: the token is not looked at; a missing one is let in; a token in the log.
#[tokio::test]
async fn a_token_is_asked_for_and_never_written_down() {
    let bench = Bench::new();
    let right = bench.write("token", "0123456789abcdef-right\n");
    let wrong = bench.write("wrong", "0123456789abcdef-wrong\n");
    let broker = source(&bench, &["--data-token-file", &right, "--log", "trace"]);
    let (url, to) = (url(&broker), to(&bench, "copy"));
    refused(&bootstrap(&url, &to, &[]), 1, "token is missing or wrong");
    refused(
        &bootstrap(&url, &to, &["--token-file", &wrong]),
        1,
        "token is missing or wrong",
    );
    let output = bootstrap(&url, &to, &["--token-file", &right]);
    done(&output);
    for secret in ["abcdef-right", "abcdef-wrong"] {
        assert!(!bench.log().contains(secret));
        assert!(!format!("{output:?}").contains(secret));
    }
}

/// A certificate authority, and a pair that it signed, as files.
fn pair(bench: &Bench, name: &str) -> [String; 3] {
    let ca_key = rcgen::KeyPair::generate().unwrap();
    let mut ca = rcgen::CertificateParams::new(Vec::new()).unwrap();
    ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca_certificate = ca.self_signed(&ca_key).unwrap();
    let issuer = rcgen::Issuer::new(ca, ca_key);
    let key = rcgen::KeyPair::generate().unwrap();
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let signed = rcgen::CertificateParams::new(names).unwrap();
    let signed = signed.signed_by(&key, &issuer).unwrap();
    [
        bench.write(&format!("{name}-ca.pem"), &ca_certificate.pem()),
        bench.write(&format!("{name}.pem"), &signed.pem()),
        bench.write(&format!("{name}.key"), &key.serialize_pem()),
    ]
}

/// Catches: the certificate of the source, or that of the peer, is not verified.
#[tokio::test]
async fn both_sides_are_known_by_their_certificates() {
    let bench = Bench::new();
    let [server_ca, certificate, key] = pair(&bench, "server");
    let [client_ca, client_certificate, client_key] = pair(&bench, "client");
    let [other_ca, other_certificate, other_key] = pair(&bench, "other");
    let broker = source(
        &bench,
        &[
            "--data-tls-certificate",
            &certificate,
            "--data-tls-key",
            &key,
            "--data-tls-client-ca",
            &client_ca,
        ],
    );
    ask(&broker, &["topic", "create", "orders"]);
    let tls = url(&broker).replace("tcp://", "tls://");
    let to = to(&bench, "copy");
    let show = |certificate, key| ["--tls-certificate", certificate, "--tls-key", key];
    let known = show(&client_certificate, &client_key);
    let unknown = show(&other_certificate, &other_key);
    let ca = |ca| ["--tls-ca", ca];
    refused(&bootstrap(&tls, &to, &[]), 2, "--tls-ca FILE");
    let nameless = bootstrap("tls://no_name-:1", &to, &ca(&server_ca));
    refused(&nameless, 2, "no certificate can be of it");
    refused(&bootstrap(&url(&broker), &to, &[]), 8, "does not answer");
    refused(
        &bootstrap(&tls, &to, &[&ca(&other_ca)[..], &known].concat()),
        8,
        "see that --tls-ca has what signed",
    );
    refused(&bootstrap(&tls, &to, &ca(&server_ca)), 8, "does not answer");
    refused(
        &bootstrap(&tls, &to, &[&ca(&server_ca)[..], &unknown].concat()),
        8,
        "does not answer",
    );
    done(&bootstrap(
        &tls,
        &to,
        &[&ca(&server_ca)[..], &known].concat(),
    ));
    let copy = serve(&bench, "copy");
    assert!(ask(&copy, &["topic", "list"]).contains("orders"));
}

/// Starts a bootstrap that goes on by itself.
pub(crate) fn begin(url: &str, to: &str, flags: &[&str]) -> Child {
    command(url, to, flags).spawn().unwrap()
}

/// A bootstrap that says nothing.
fn command(url: &str, to: &str, flags: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command
        .args(["bootstrap", "--from", url, "--to", to])
        .args(flags)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

pub(crate) fn shown(broker: &Process, field: &str) -> u64 {
    let shown = ask(broker, &["data", "show", "--json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    shown[field].as_u64().unwrap()
}

/// Two at once each have a snapshot of their own; a third is told to come later; and the
/// rate is changed while they run.
/// Catches: snapshots are not counted; a new rate that those who run don't notice.
#[tokio::test]
async fn two_run_at_once_and_the_rate_is_changed_while_they_do() {
    let bench = Bench::new();
    let broker = source(&bench, &["--data-rate", "20K"]);
    let mut producer = client(&broker, "orders", "billing").await;
    let body = "x".repeat(200 << 10);
    for number in 0..10 {
        producer.send(&number.to_string(), &body).await.unwrap();
    }
    let url = url(&broker);
    let mut running = ["one", "two"].map(|folder| begin(&url, &to(&bench, folder), &[]));
    until(|| shown(&broker, "running") == 2).await;
    let mut third = command(&url, &to(&bench, "three"), &[])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    until(|| third.try_wait().unwrap().is_some()).await;
    refused(
        &third.wait_with_output().unwrap(),
        1,
        "--data-snapshots-max",
    );
    // At 20 KiB a second these 4 MB take three minutes.
    let text = ask(&broker, &["data", "rate", "off"]);
    assert!(text.contains("sends off"), "{text}");
    for child in &mut running {
        until(|| child.try_wait().unwrap().is_some()).await;
        assert!(child.wait().unwrap().success());
    }
    until(|| shown(&broker, "snapshots") == 0).await;
    for folder in ["one", "two"] {
        let copy = serve(&bench, folder);
        assert_eq!(drain(&copy).await.len(), 10);
    }
    let metrics = crate::admin::metrics(broker.field("admin").unwrap());
    for line in [
        "pop_data_sessions_installed_total 2",
        "pop_data_snapshots 0",
        "pop_data_sessions 0",
    ] {
        assert!(metrics.lines().any(|it| it == line), "{line} in {metrics}");
    }
}

/// A source whose target leaves serves again, and a pin ends with who wanted it.
/// Catches: a source that stays paused; a snapshot that nobody lets go of.
#[tokio::test]
async fn a_source_whose_target_is_killed_serves_again() {
    let bench = Bench::new();
    let broker = source(&bench, &["--data-rate", "20K"]);
    let mut producer = client(&broker, "orders", "billing").await;
    let body = "x".repeat(200 << 10);
    producer.send("1", &body).await.unwrap();
    let mut child = begin(&url(&broker), &to(&bench, "next"), &["--handover"]);
    until(|| shown(&broker, "running") == 1).await;
    assert!(producer.send("2", "tea").await.is_err());
    child.kill().unwrap();
    child.wait().unwrap();
    let admin = broker.field("admin").unwrap().to_owned();
    until(|| crate::admin::health(&admin).contains("serving")).await;
    producer.send("3", "milk").await.unwrap();
    until(|| shown(&broker, "snapshots") == 0).await;
    // What was left in the folder holds nobody up.
    ask(&broker, &["data", "rate", "off"]);
    done(&bootstrap(
        &url(&broker),
        &to(&bench, "next"),
        &["--handover"],
    ));
    let next = serve(&bench, "next");
    assert_eq!(bodies(&drain(&next).await), ["milk", &body]);
}

/// What a target that was killed leaves is kept for a minute, and holds up none that comes.
/// Catches: the room of a snapshot whose holder left is given to nobody before its time.
#[tokio::test]
async fn a_target_that_is_killed_again_and_again_finds_room_at_each_retry() {
    let bench = Bench::new();
    let broker = source(&bench, &["--data-rate", "20K"]);
    let mut producer = client(&broker, "orders", "billing").await;
    producer.send("1", &"x".repeat(200 << 10)).await.unwrap();
    let (url, to) = (url(&broker), to(&bench, "copy"));
    for _ in 0..3 {
        let mut child = begin(&url, &to, &[]);
        until(|| shown(&broker, "running") == 1).await;
        child.kill().unwrap();
        child.wait().unwrap();
        until(|| shown(&broker, "running") == 0).await;
    }
    ask(&broker, &["data", "rate", "off"]);
    done(&bootstrap(&url, &to, &[]));
}
