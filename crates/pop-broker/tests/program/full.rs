//! A disk that is full, and a place that can't be written: what the commands of operators
//! say, what they leave, and that the same command succeeds once there is room.

use std::{fs, path::Path, process::Command, time::Duration};

use crate::{
    bench::{Bench, DURABLE, END_MAX, client, run},
    bootstrap::{source, url},
    disk::Disk,
    process::Process,
};

/// What a store keeps free: on less, nothing is loaded.
const KEPT_FREE_KIB: u32 = 64 << 10;
/// Room for each store and what it makes beforehand.
const ENOUGH_KIB: u32 = 512 << 10;
/// In all some megabytes, so that not all of it is in one write.
const MESSAGES: usize = 20;
const BODY_BYTES: usize = 100_000;

fn mount(bench: &Bench, kib: u32) -> Option<Disk> {
    let path = bench.path("disk");
    fs::create_dir(&path).unwrap();
    Disk::mount(&path, &format!("size={kib}k"))
}

impl Disk {
    fn inside(&self, name: &str) -> String {
        self.path().join(name).to_str().unwrap().to_owned()
    }

    fn remount(&self, option: &str) {
        let remount = Command::new("mount")
            .args(["-o", &format!("remount,{option}")])
            .arg(self.path())
            .output();
        let output = remount.unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    fn resize(&self, kib: u32) {
        self.remount(&format!("size={kib}k"));
    }
}

/// What a command is told that does not come to its end: a line that says all of `parts`.
#[track_caller]
fn refused(arguments: &[&str], parts: &[&str]) {
    let output = run(arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{said}");
    for part in parts {
        assert!(said.contains(part), "{part:?} in {said}");
    }
    assert!(!said.contains("panicked"), "{said}");
    assert!(output.stdout.is_empty(), "{output:?}");
}

#[track_caller]
fn done(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// What all rows of a folder add up to.
fn digest(bench: &Bench, folder: &str) -> String {
    let file = bench.path("looked-at.backup");
    let told = done(&["backup", "--from", folder, "--to", file.to_str().unwrap()]);
    fs::remove_file(file).unwrap();
    let digest = told.lines().find_map(|it| it.strip_prefix("digest"));
    digest.unwrap().trim().to_owned()
}

async fn stop(mut broker: Process) {
    broker.signal("TERM").unwrap();
    broker.end(END_MAX).await.unwrap();
}

/// Messages of some size, through a broker that gives its data out.
async fn filled(bench: &Bench) -> Process {
    let broker = source(bench, &[]);
    let mut client = client(&broker, "orders", "billing").await;
    let body = "x".repeat(BODY_BYTES);
    for number in 0..MESSAGES {
        client.send(&number.to_string(), &body).await.unwrap();
    }
    broker
}

async fn receive_all(broker: &Process) -> usize {
    let mut client = client(broker, "orders", "billing").await;
    let mut count = 0;
    while count < MESSAGES {
        let received = client.receive(END_MAX, Duration::from_secs(1)).await;
        let received = received.unwrap();
        assert!(received.iter().all(|it| it.body.len() == BODY_BYTES));
        if received.is_empty() {
            break;
        }
        count += received.len();
    }
    count
}

/// Catches: take a full disk for any other failure; name the file before it is whole.
#[tokio::test]
async fn a_backup_on_a_full_disk_is_none_until_the_same_command_has_room() {
    let bench = Bench::new();
    let Some(disk) = mount(&bench, 512) else {
        return;
    };
    stop(filled(&bench).await).await;
    let expected = digest(&bench, &bench.data());
    let file = disk.inside("a.backup");
    let backup = ["backup", "--from", &bench.data(), "--to", &file];
    refused(&backup, &[&file, "No space left", "free some space"]);
    assert!(!Path::new(&file).exists() && !Path::new(&format!("{file}.toml")).exists());
    let left = format!("{file}.partial");
    refused(&["restore", "--from", &left, "--check"], &["is not whole"]);
    disk.resize(ENOUGH_KIB);
    let told = done(&backup);
    assert!(told.contains(&expected), "{expected} in {told}");
    done(&["restore", "--from", &file, "--check"]);
    assert!(!Path::new(&left).exists());
}

/// Catches: another exit code for a full disk; keep no room free; load into the content in
/// use.
#[tokio::test]
async fn a_folder_on_a_full_disk_gets_nothing_until_the_same_command_has_room() {
    let bench = Bench::new();
    let Some(disk) = mount(&bench, 64) else {
        return;
    };
    let broker = filled(&bench).await;
    let (from, data) = (url(&broker), bench.data());
    let (first, second) = (disk.inside("first"), disk.inside("second"));
    let to = |folder: &str| format!("{DURABLE}:{folder}");
    let (to_first, to_second) = (to(&first), to(&second));
    let bootstrap = ["bootstrap", "--from", &from, "--to", &to_first];
    // Too little for the files of a store, and too little for its rows.
    let on_full_disks = |command: &[&str], folder: &str| {
        disk.resize(64);
        refused(command, &[folder, "free some space"]);
        disk.resize(KEPT_FREE_KIB - 1);
        refused(command, &[folder, "free some space"]);
        disk.resize(ENOUGH_KIB);
        let empty = digest(&bench, folder);
        assert!(empty.chars().all(|it| it == '0'), "{empty}");
        done(command);
    };
    on_full_disks(&bootstrap, &first);
    stop(broker).await;
    let copy = bench.serve_logged("copy", &["--store", DURABLE, "--data", &first]);
    assert_eq!(receive_all(&copy).await, MESSAGES);
    stop(copy).await;
    fs::remove_dir_all(&first).unwrap();

    let expected = digest(&bench, &data);
    let migrate = ["migrate", "--from", &data, "--to", &to_first];
    on_full_disks(&migrate, &first);
    assert_eq!(digest(&bench, &first), expected);
    fs::remove_dir_all(&first).unwrap();

    let file = bench.path("a.backup");
    let file = file.to_str().unwrap();
    done(&["backup", "--from", &data, "--to", file]);
    let restore = ["restore", "--from", file, "--to", &to_second];
    on_full_disks(&restore, &second);
    assert_eq!(digest(&bench, &second), expected);
}

/// P8. Catches: the old rows go before there is room for the new ones; new rows that are loaded
/// among the old ones.
#[tokio::test]
async fn a_restore_over_data_on_a_full_disk_leaves_them_as_they_were() {
    let bench = Bench::new();
    let Some(disk) = mount(&bench, ENOUGH_KIB) else {
        return;
    };
    stop(filled(&bench).await).await;
    let file = bench.path("a.backup");
    let file = file.to_str().unwrap();
    done(&["backup", "--from", &bench.data(), "--to", file]);
    let folder = disk.inside("data");
    let serve = ["--store", DURABLE, "--data", &folder];
    let broker = bench.serve_logged("old", &serve);
    let mut producer = client(&broker, "orders", "billing").await;
    producer.send("old", "old").await.unwrap();
    stop(broker).await;
    let expected = digest(&bench, &folder);
    // Half of what a store keeps free.
    let filler = disk.fill(u64::from(KEPT_FREE_KIB) * 512);
    let restore = ["restore", "--from", file, "--to", &folder, "--replace"];
    for _ in 0..2 {
        refused(&restore, &[&folder, "free some space", "is unchanged"]);
        assert_eq!(digest(&bench, &folder), expected);
    }
    fs::remove_file(filler).unwrap();
    let broker = bench.serve_logged("again", &serve);
    let mut consumer = client(&broker, "orders", "billing").await;
    let received = consumer.receive(END_MAX, END_MAX).await.unwrap();
    assert_eq!(received[0].body, "old");
    stop(broker).await;
    done(&restore);
    assert_eq!(digest(&bench, &folder), digest(&bench, &bench.data()));
}

/// Catches: an error of the system without what to do about it.
#[tokio::test]
async fn a_place_that_is_there_to_be_read_alone_is_named_and_nothing_is_made() {
    let bench = Bench::new();
    let Some(disk) = mount(&bench, ENOUGH_KIB) else {
        return;
    };
    disk.remount("ro");
    let broker = filled(&bench).await;
    let (from, folder) = (url(&broker), disk.inside("folder"));
    let to = format!("{DURABLE}:{folder}");
    let says = [folder.as_str(), "Read-only", "choose another place"];
    refused(&["bootstrap", "--from", &from, "--to", &to], &says);
    stop(broker).await;
    let (data, file) = (bench.data(), bench.path("a.backup"));
    let file = file.to_str().unwrap();
    refused(&["migrate", "--from", &data, "--to", &to], &says);
    let refused_backup = ["backup", "--from", &data, "--to", &folder];
    refused(&refused_backup, &says);
    done(&["backup", "--from", &data, "--to", file]);
    refused(&["restore", "--from", file, "--to", &to], &says);
    disk.remount("rw");
    assert_eq!(fs::read_dir(disk.path()).unwrap().count(), 0);
    done(&["restore", "--from", file, "--to", &to]);
}

/// What lies in the way of a folder, without any right to mount.
/// Catches: an error that does not name it.
#[tokio::test]
async fn a_file_in_the_way_of_a_folder_is_named_and_left() {
    let bench = Bench::new();
    let broker = filled(&bench).await;
    let way = bench.write("way", "mine");
    let folder = format!("{way}/folder");
    let (from, to) = (url(&broker), format!("{DURABLE}:{folder}"));
    let says = |arguments: &[&str]| {
        let output = run(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(2 | 6)), "{said}");
        assert!(said.contains(&way) && !said.contains("panicked"), "{said}");
    };
    says(&["bootstrap", "--from", &from, "--to", &to]);
    stop(broker).await;
    let (data, file) = (bench.data(), bench.path("a.backup"));
    let file = file.to_str().unwrap();
    says(&["migrate", "--from", &data, "--to", &to]);
    says(&["backup", "--from", &data, "--to", &folder]);
    done(&["backup", "--from", &data, "--to", file]);
    says(&["restore", "--from", file, "--to", &to]);
    assert_eq!(fs::read_to_string(way).unwrap(), "mine");
}
