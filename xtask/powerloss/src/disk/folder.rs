//! Between a disk on paper and a real folder.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, Result, bail, ensure};
use pop_store::testkit::Random;

use super::{
    Disk, Rules,
    file::{File, Survival},
    image::Image,
    names::{NodeId, ROOT, Tree},
};

impl Disk {
    /// What is in `folder`, all of it durable.
    pub(crate) fn of(folder: &Path, rules: Rules) -> Result<Self> {
        let mut disk = Self::new(rules, Arc::default());
        for path in files_below(folder)? {
            let inside = path.strip_prefix(folder)?.to_str();
            let inside = inside.context("our engines name files in ASCII")?;
            let node = disk.next_node();
            if path.is_file() {
                let content = fs::read(&path)?;
                disk.files.insert(node, File::holding(&content));
            }
            let made = disk.names.put(disk.moment, inside, node, true);
            made.with_context(|| format!("{inside} is nowhere"))?;
        }
        disk.names.sync_all();
        Ok(disk)
    }

    /// Lays out in `target`, an empty folder, what a power cut now may leave.
    pub(crate) fn lay_out_after_cut(&self, target: &Path, random: &mut Random) -> Result<()> {
        let model = self.rules.model;
        let tree = self.names.after_cut(model, random);
        // A file under two names is one file.
        let mut images: HashMap<NodeId, Image> = HashMap::new();
        let mut lay_out = |node: NodeId, file: &File, path: &Path| {
            let image = images.entry(node).or_insert_with(|| {
                file.after_cut(Survival::draw(random), model, random, &self.log)
            });
            image.store(path)
        };
        for (path, node) in reachable(&tree) {
            let path = target.join(path);
            let laid_out = match self.files.get(&node) {
                Some(file) => lay_out(node, file, &path),
                None => fs::create_dir(&path),
            };
            laid_out.with_context(|| format!("{} can't be written", path.display()))?;
        }
        Ok(())
    }

    /// Checks that the record, followed to its end, is the folder it was made of.
    pub(crate) fn check_is(&self, folder: &Path) -> Result<()> {
        let mut expected: BTreeSet<PathBuf> = BTreeSet::new();
        for (path, node) in reachable(self.names.now()) {
            let real = folder.join(&path);
            if let Some(file) = self.files.get(&node) {
                let differs = file.now(&self.log).differs_from(&real);
                let differs = differs.with_context(|| format!("{path} can't be compared"))?;
                if let Some(at) = differs {
                    bail!("the record misses a change of {path} at byte {at}");
                }
            } else {
                ensure!(real.is_dir(), "the record has a folder {path} too many");
            }
            expected.insert(real);
        }
        for real in files_below(folder)? {
            ensure!(
                expected.contains(&real),
                "the record misses the making of {}",
                real.display()
            );
        }
        Ok(())
    }
}

/// All paths, folders before what is in them.
fn reachable(tree: &Tree) -> BTreeMap<String, NodeId> {
    let mut found = BTreeMap::new();
    let mut folders = vec![(String::new(), ROOT)];
    while let Some((path, folder)) = folders.pop() {
        for (name, node) in tree.get(&folder).into_iter().flatten() {
            let path = match path.as_str() {
                "" => name.clone(),
                path => format!("{path}/{name}"),
            };
            found.insert(path.clone(), *node);
            folders.push((path, *node));
        }
    }
    found
}

fn files_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path.clone());
            }
            found.push(path);
        }
    }
    Ok(found)
}
