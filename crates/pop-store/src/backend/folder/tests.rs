//! Folders that are someone else's, and marks that were torn.

use tempfile::TempDir;

use super::*;

const SECOND_SLOT: usize = 512;

#[test]
fn a_folder_that_is_open_is_refused_and_free_again_when_it_is_let_go() {
    let folder = TempDir::new().unwrap();
    let held = DataFolder::claim(folder.path(), "fjall").unwrap();
    let error = DataFolder::claim(folder.path(), "fjall").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked);
    let text = error.to_string();
    assert!(
        text.contains(&folder.path().display().to_string()),
        "{text}"
    );
    assert!(text.contains("stop that one"), "{text}");
    drop(held);
    DataFolder::claim(folder.path(), "fjall").unwrap();
}

#[test]
fn a_folder_of_another_backend_says_whose_it_is() {
    let folder = TempDir::new().unwrap();
    drop(DataFolder::claim(folder.path(), "fjall").unwrap());
    let error = DataFolder::claim(folder.path(), "rocksdb").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    assert!(error.to_string().contains("open it as fjall"), "{error}");
}

#[test]
fn a_folder_of_another_format_says_which() {
    let folder = TempDir::new().unwrap();
    drop(DataFolder::claim(folder.path(), "fjall").unwrap());
    let text = marker("fjall").replace("format 1", "format 9");
    fs::write(folder.path().join(MARKER), text).unwrap();
    let error = DataFolder::claim(folder.path(), "fjall").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    assert!(error.to_string().contains("format 9"), "{error}");
}

#[test]
fn engine_files_without_a_marker_are_left_alone() {
    let folder = TempDir::new().unwrap();
    fs::create_dir(folder.path().join(ENGINE)).unwrap();
    let error = DataFolder::claim(folder.path(), "fjall").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible);
}

/// Mutant: make the engine's files where they stay.
#[test]
fn an_engine_that_was_made_in_part_is_made_again() {
    let folder = TempDir::new().unwrap();
    let held = DataFolder::claim(folder.path(), "fjall").unwrap();
    let cut_short = |path: &Path| {
        fs::write(path.join("version"), b"").unwrap();
        Err(Error::new(ErrorKind::Unavailable, "fjall", "open"))
    };
    held.engine(cut_short).unwrap_err();
    let whole = |path: &Path| {
        assert_eq!(fs::read_dir(path).unwrap().count(), 0);
        fs::write(path.join("version"), b"3").unwrap();
        Ok(())
    };
    let engine = held.engine(whole).unwrap();
    assert_eq!(fs::read(engine.join("version")).unwrap(), b"3");
    let never = |_: &Path| panic!("it is there");
    assert_eq!(held.engine(never).unwrap(), engine);
    assert!(!folder.path().join("engine.new").exists());
}

/// Mutants: leave the copy that was not whole yet; take it for one that is.
#[cfg(any(feature = "fjall", feature = "rocksdb"))]
#[test]
fn a_crash_in_a_cut_on_trial_leaves_the_file_as_it_was_and_no_copy() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("1.jnl");
    fs::write(&file, b"whole").unwrap();
    let check = || {
        trial::Trial::recover(&file).unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"whole");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    };
    fs::write(folder.path().join("1.jnl.before-cut-new"), b"wh").unwrap();
    check();
    drop(trial::Trial::cut(&file, 2).unwrap());
    assert_eq!(fs::read(&file).unwrap(), b"wh");
    check();
}

#[test]
fn a_torn_mark_falls_back_to_the_one_before() {
    let folder = TempDir::new().unwrap();
    let held = DataFolder::claim(folder.path(), "fjall").unwrap();
    let mut mark = held.high_water().unwrap();
    mark.record(7).unwrap();
    mark.record(8).unwrap();
    assert_eq!(held.high_water().unwrap().sequence(), 8);
    // The second record went to the second slot.
    let path = folder.path().join(SYNCED);
    let mut content = fs::read(&path).unwrap();
    content[SECOND_SLOT + 5] ^= 1;
    fs::write(&path, &content).unwrap();
    assert_eq!(held.high_water().unwrap().sequence(), 7);
    content[5] ^= 1;
    fs::write(&path, &content).unwrap();
    assert_eq!(held.high_water().unwrap_err().kind(), ErrorKind::Corrupt);
}

// Catches: another place of the second slot, another text of the marker.
#[test]
fn the_marker_and_the_mark_keep_their_bytes() {
    let folder = TempDir::new().unwrap();
    let held = DataFolder::claim(folder.path(), "fjall").unwrap();
    let mut mark = held.high_water().unwrap();
    mark.record(7).unwrap();
    mark.record(8).unwrap();
    let mut expected = [0; 1_024];
    for (at, record) in [
        (0, *b"\x01\0\0\0\0\0\0\0\x07\x9b\x11\xda\x00"),
        (512, *b"\x01\0\0\0\0\0\0\0\x08\xc5\x02\xe6\x24"),
    ] {
        expected[at..at + record.len()].copy_from_slice(&record);
    }
    assert_eq!(
        fs::read(folder.path().join("pop.synced")).unwrap(),
        expected
    );
    assert_eq!(
        fs::read_to_string(folder.path().join("pop.store")).unwrap(),
        "pop-store\nformat 1\nbackend fjall\n"
    );
}
