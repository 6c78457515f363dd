//! What a power cut may leave, over many seeds: everything that a disk may do must come up,
//! and nothing else.

use std::{collections::BTreeSet, fs};

use pop_powerloss_trace::SyncCall::{Data, Full, Range as Part};
use pop_store::testkit::Random;

use super::*;

const SEEDS: u64 = 150;

/// A record by hand. Descriptors are given out by path.
#[derive(Default)]
struct Script {
    log: Vec<u8>,
    events: Vec<Event<Range<usize>>>,
    open: Vec<String>,
    syncs: u64,
}

impl Script {
    fn fd(&self, path: &str) -> u64 {
        let known = self.open.iter().position(|it| it == path);
        known.unwrap_or_else(|| panic!("{path} is not open")) as u64
    }

    fn open(&mut self, path: &str, (create, truncate, sync): (bool, bool, bool)) -> &mut Self {
        self.open.push(path.to_owned());
        self.events.push(Event::Open {
            fd: self.open.len() as u64 - 1,
            path: path.to_owned(),
            create,
            truncate,
            sync,
        });
        self
    }

    fn create(&mut self, path: &str) -> &mut Self {
        self.open(path, (true, false, false))
    }

    fn write(&mut self, path: &str, offset: u64, data: &[u8]) -> &mut Self {
        let (fd, start) = (self.fd(path), self.log.len());
        self.log.extend_from_slice(data);
        let data = start..self.log.len();
        self.events.push(Event::Write { fd, offset, data });
        self
    }

    fn begin(&mut self, path: &str, call: SyncCall) -> &mut Self {
        let (fd, id) = (self.fd(path), self.syncs);
        self.events.push(Event::SyncBegin { id, fd, call });
        self
    }

    fn end(&mut self) -> &mut Self {
        self.events.push(Event::SyncEnd { id: self.syncs });
        self.syncs += 1;
        self
    }

    fn sync(&mut self, path: &str) -> &mut Self {
        self.begin(path, Full).end()
    }

    fn folder(&mut self, path: &str) -> &mut Self {
        let path = path.to_owned();
        self.events.push(Event::MakeFolder { path });
        self
    }

    fn rename(&mut self, from: &str, to: &str) -> &mut Self {
        let (from, to) = (from.to_owned(), to.to_owned());
        self.events.push(Event::Rename { from, to });
        self
    }

    fn disk(&self, rules: Rules) -> Disk {
        let mut disk = Disk::new(rules, Arc::new(self.log.clone()));
        for event in &self.events {
            disk.follow(event).unwrap();
        }
        disk
    }

    /// What there may be at each of `paths`, `-` being nothing.
    fn outcomes<const N: usize>(&self, rules: &Rules, paths: [&str; N]) -> BTreeSet<[String; N]> {
        let disk = self.disk(rules.clone());
        let outcomes = (0..SEEDS).map(|seed| {
            let folder = tempfile::tempdir().unwrap();
            disk.lay_out_after_cut(folder.path(), &mut Random::new(seed))
                .unwrap();
            paths.map(|path| match fs::read(folder.path().join(path)) {
                Ok(content) => String::from_utf8(content).unwrap().replace('\0', "0"),
                Err(_) => "-".to_owned(),
            })
        });
        outcomes.collect()
    }

    #[track_caller]
    fn check<const N: usize>(&self, rules: &Rules, paths: [&str; N], expected: &[[&str; N]]) {
        let expected = expected.iter().map(|it| it.map(str::to_owned)).collect();
        assert_eq!(self.outcomes(rules, paths), expected, "{rules:?}");
    }
}

fn ext4() -> Rules {
    Rules::of(Model::Ext4)
}

fn strict() -> Rules {
    Rules::of(Model::Strict)
}

/// Mutant: let a sync promise what was written while it ran.
#[test]
fn a_sync_promises_what_was_written_before_it_began_once_it_returned() {
    let mut script = Script::default();
    script.create("a").write("a", 0, b"1").begin("a", Full);
    script.check(&ext4(), ["a"], &[["-"], [""], ["1"]]);
    script.write("a", 1, b"2").end();
    script.check(&ext4(), ["a"], &[["1"], ["12"]]);
    script.sync("a");
    script.check(&ext4(), ["a"], &[["12"]]);
}

/// Mutants: either model with the other's rule.
#[test]
fn a_name_is_durable_with_its_file_or_with_its_folder() {
    let mut script = Script::default();
    script.create("a").write("a", 0, b"1").sync("a");
    script.check(&ext4(), ["a"], &[["1"]]);
    script.check(&strict(), ["a"], &[["-"], ["1"]]);
    script.open("", (false, false, false)).sync("");
    script.check(&strict(), ["a"], &[["1"]]);
}

/// Mutant: take any of the changes instead of a prefix.
#[test]
fn changes_of_names_that_were_not_synced_survive_as_a_prefix() {
    let mut script = Script::default();
    script.create("a").write("a", 0, b"1").sync("a");
    script.open("", (false, false, false)).sync("");
    script.rename("a", "b").create("c");
    for rules in [ext4(), strict()] {
        let expected = [["1", "-", "-"], ["-", "1", "-"], ["-", "1", ""]];
        script.check(&rules, ["a", "b", "c"], &expected);
    }
    script.sync("");
    script.check(&strict(), ["a", "b", "c"], &[["-", "1", ""]]);
}

/// Mutant: one order for the names of all folders under the strict model.
#[test]
fn folders_keep_an_order_among_each_other_only_where_one_journal_does() {
    let mut script = Script::default();
    script.folder("d").create("d/a").create("b");
    let one_order = [["-", "-"], ["", "-"], ["", ""]];
    script.check(&ext4(), ["d/a", "b"], &one_order);
    script.open("", (false, false, false)).sync("");
    script.check(&strict(), ["d/a", "b"], &[["-", ""], ["", ""]]);
}

/// Mutant: `sync_file_range` counts.
#[test]
fn a_part_that_was_written_back_is_not_durable() {
    let mut script = Script::default();
    script.create("a").sync("a").write("a", 0, b"1");
    script.begin("a", Part).end();
    script.check(&ext4(), ["a"], &[[""], ["1"]]);
    let counting = Rules {
        range_counts: true,
        ..ext4()
    };
    script.check(&counting, ["a"], &[["1"]]);
}

/// Mutants: count every sync; go by the call alone, or by the file alone.
#[test]
fn a_sync_that_is_ignored_promises_nothing() {
    let ignoring = Rules {
        ignored: vec![(Data, "db".to_owned())],
        ..ext4()
    };
    let outcomes = |path: &str, call| {
        let mut script = Script::default();
        script.create(path).sync(path).write(path, 0, b"1");
        script.begin(path, call).end();
        script.outcomes(&ignoring, [path]).len()
    };
    assert_eq!(outcomes("db", Data), 2);
    assert_eq!(outcomes("db", Full), 1);
    assert_eq!(outcomes("log", Data), 1);
}

/// Mutant: forget the flag of the open.
#[test]
fn a_write_through_o_sync_is_durable_and_others_are_not() {
    let mut script = Script::default();
    script.create("a").sync("a").write("a", 0, b"1");
    script.open.clear();
    script.open("a", (false, false, true)).write("a", 1, b"2");
    // Of one sector, the one that was written last has both.
    script.check(&ext4(), ["a"], &[["12"]]);
}

/// Mutant: draw a moment for the file instead of one a sector.
#[test]
fn sectors_survive_each_by_itself_and_the_length_only_over_what_was_written() {
    let mut script = Script::default();
    script.create("a").write("a", 0, &[b'.'; 1_024]).sync("a");
    script.write("a", 0, b"1").write("a", 512, b"2");
    let outcomes = script.outcomes(&ext4(), ["a"]);
    assert_eq!(
        outcomes.len(),
        4,
        "each of two sectors, old or with its write"
    );
    script.write("a", 1_024, &[b'3'; 512]);
    let ends = |rules: Rules| -> BTreeSet<String> {
        let outcomes = script.outcomes(&rules, ["a"]);
        let end = |it: &[String; 1]| it[0].get(1_024..).unwrap_or_default().to_owned();
        outcomes.iter().map(end).collect()
    };
    let whole = "3".repeat(512);
    assert_eq!(ends(ext4()), BTreeSet::from([String::new(), whole.clone()]));
    assert_eq!(
        ends(strict()),
        BTreeSet::from([String::new(), whole, "0".repeat(512)])
    );
}

/// Mutant: keep what was cut off.
#[test]
fn a_file_that_was_emptied_has_its_old_content_or_none_of_it() {
    let mut script = Script::default();
    script.create("a").write("a", 0, b"old").sync("a");
    script.open.clear();
    script.open("a", (false, true, false)).write("a", 0, b"n");
    script.check(&ext4(), ["a"], &[["old"], ["nld"], [""], ["n"]]);
}

/// Mutant: compare lengths alone.
#[test]
fn a_record_that_misses_a_change_does_not_explain_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let mut script = Script::default();
    script.create("a").write("a", 0, b"1");
    let check = || script.disk(ext4()).check_is(folder.path());
    assert!(check().is_err());
    fs::write(folder.path().join("a"), "1").unwrap();
    check().unwrap();
    fs::write(folder.path().join("a"), "2").unwrap();
    assert!(check().unwrap_err().to_string().contains("a at byte 0"));
    fs::write(folder.path().join("a"), "1").unwrap();
    fs::write(folder.path().join("b"), "").unwrap();
    assert!(check().unwrap_err().to_string().contains("the making of"));
}

#[test]
fn a_folder_taken_as_it_is_survives_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("d")).unwrap();
    fs::write(folder.path().join("d/a"), "1").unwrap();
    let disk = Disk::of(folder.path(), strict()).unwrap();
    let target = tempfile::tempdir().unwrap();
    disk.lay_out_after_cut(target.path(), &mut Random::new(1))
        .unwrap();
    disk.check_is(target.path()).unwrap();
}
