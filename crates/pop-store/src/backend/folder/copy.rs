//! A copy of a folder, as a test leaves it to a second store.

use std::{fs, path::Path};

/// Copies all of `from` into `to`. Nothing may delete files there meanwhile.
pub(crate) fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.path() {
            path if path.is_dir() => copy_folder(&path, &target),
            path => drop(fs::copy(path, target).unwrap()),
        }
    }
}
