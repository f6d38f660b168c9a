//! Model of a disk that loses power.
//!
//! The model guarantees what a file system promises (POSIX and the documented behavior of Linux file systems), and
//! nothing more:
//!
//! * The content of a file is durable as of its last `fsync` or `fdatasync`. Each block of 512 bytes that was written
//!   later may be on the disk or not. The size may be the old one, the new one, or a multiple of 512 between them;
//!   bytes that were never written read as zeros. If a block was written several times since the last sync, only the
//!   last write is modeled.
//! * A change of a directory (a created, renamed or removed entry) is durable after an `fsync` of this directory. A
//!   rename is one change of two directories: both have it or neither does, and an `fsync` of either makes it durable.
//! * An `fsync` of a file does not make its name durable, and an `fsync` of a directory does not do so for its own name
//!   in its parent.
//! * Changes that were not synced may be lost in any combination ([`Loss::Random`]) or, as on a journaling file system,
//!   from some change on ([`Loss::Journal`]). There, any sync makes all earlier changes of directories durable, but not
//!   the content of other files.
//!
//! Not modeled: disks that lose or alter what they have confirmed, and an `fsync` that fails.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;

use crate::record::Op;
use crate::tree::Tree;

/// Size of the blocks that a disk writes as a whole.
const BLOCK: usize = 512;

/// Content of a file.
type Bytes = Rc<Vec<u8>>;
/// Content of a disk: paths and, for files, bytes.
pub type Content = BTreeMap<String, Option<Bytes>>;

/// What a power cut does to changes that are not durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// All changes are lost.
    Everything,
    /// Changes of directories are kept, and the content of files is lost.
    Data,
    /// Every change of a directory and every block of a file may be kept or lost.
    Random,
    /// Changes of directories are kept up to some point; blocks of files may be kept or lost.
    Journal,
}

impl Loss {
    pub const ALL: [Self; 4] = [Self::Everything, Self::Data, Self::Random, Self::Journal];
}

/// Index of a file or directory in [`Disk::nodes`], independent of its names.
type NodeId = usize;
type Entries = BTreeMap<String, NodeId>;

enum Node {
    File { synced: Bytes, current: Bytes },
    Dir { initial: Entries, current: Entries },
}

/// One change of directories.
struct Change {
    /// Directory, name, and the node that the name refers to afterwards.
    edits: Vec<(NodeId, String, Option<NodeId>)>,
    durable: bool,
}

pub struct Disk {
    /// The first node is the root.
    nodes: Vec<Node>,
    changes: Vec<Change>,
    /// Number of changes before the last sync of any file or directory.
    journaled: usize,
}

impl Disk {
    /// Creates a disk on which `content` is durable.
    pub fn new(content: &Content) -> Self {
        let mut disk = Self { nodes: vec![Node::empty_dir()], changes: Vec::new(), journaled: 0 };
        for (path, bytes) in content {
            match bytes {
                None => disk.make(path, Node::empty_dir()),
                Some(bytes) => disk.make(path, Node::File { synced: bytes.clone(), current: bytes.clone() }),
            }
        }
        for node in &mut disk.nodes {
            if let Node::Dir { initial, current } = node {
                initial.clone_from(current);
            }
        }
        disk.changes.clear();
        disk
    }

    pub fn apply(&mut self, op: &Op) {
        match op {
            Op::Create(path) => {
                if self.find(path).is_none() {
                    self.make(path, Node::File { synced: Rc::default(), current: Rc::default() });
                }
            }
            Op::Write { path, at, data } => {
                let bytes = self.bytes(path);
                bytes.resize(bytes.len().max(at + data.len()), 0);
                bytes[*at..at + data.len()].copy_from_slice(data);
            }
            Op::SetLength(path, length) => self.bytes(path).resize(*length, 0),
            Op::Sync(path) => self.sync(path),
            Op::Rename(from, to) => {
                let node = self.find(from);
                let (old, new) = (self.entry(from), self.entry(to));
                self.change(vec![(old.0, old.1, None), (new.0, new.1, node)]);
            }
            Op::Unlink(path) | Op::RemoveDir(path) => {
                let (dir, name) = self.entry(path);
                self.change(vec![(dir, name, None)]);
            }
            Op::MakeDir(path) => self.make(path, Node::empty_dir()),
        }
    }

    /// Returns the content without a power cut.
    pub fn content(&self) -> Content {
        let entries = |node: NodeId| match &self.nodes[node] {
            Node::Dir { current, .. } => current.clone(),
            Node::File { .. } => Entries::new(),
        };
        self.walk(&entries, &mut |_, current| current.clone())
    }

    /// Returns the content after a power cut. `random` returns numbers below its argument.
    pub fn after_power_cut(&self, loss: Loss, random: &mut dyn FnMut(usize) -> usize) -> Content {
        let kept = match loss {
            Loss::Journal => self.journaled + random(self.changes.len() - self.journaled + 1),
            _ => 0,
        };
        let mut entries: Vec<Entries> = self
            .nodes
            .iter()
            .map(|node| match node {
                Node::Dir { initial, .. } => initial.clone(),
                Node::File { .. } => Entries::new(),
            })
            .collect();
        for (place, change) in self.changes.iter().enumerate() {
            let is_kept = match loss {
                Loss::Everything => false,
                Loss::Data => true,
                Loss::Random => random(2) == 0,
                Loss::Journal => place < kept,
            };
            if change.durable || is_kept {
                for (dir, name, node) in &change.edits {
                    match node {
                        Some(node) => drop(entries[*dir].insert(name.clone(), *node)),
                        None => drop(entries[*dir].remove(name)),
                    }
                }
            }
        }
        let loses_data = matches!(loss, Loss::Everything | Loss::Data);
        self.walk(&|node| entries[node].clone(), &mut |synced, current| {
            if Rc::ptr_eq(synced, current) {
                synced.clone()
            } else if loses_data {
                Rc::new(without_writes(synced, current, random))
            } else {
                Rc::new(torn(synced, current, random))
            }
        })
    }

    /// Returns everything below the root. `bytes` computes the bytes of a file from the synced and the current ones.
    fn walk(
        &self,
        entries: &dyn Fn(NodeId) -> Entries,
        bytes: &mut dyn FnMut(&Bytes, &Bytes) -> Bytes,
    ) -> Content {
        let mut content = Content::new();
        let mut dirs = vec![(0, String::new())];
        // A directory whose renames were lost in part could be below itself.
        let mut seen = BTreeSet::new();
        while let Some((dir, path)) = dirs.pop() {
            if !seen.insert(dir) {
                continue;
            }
            for (name, node) in entries(dir) {
                let path = if path.is_empty() { name } else { format!("{path}/{name}") };
                match &self.nodes[node] {
                    Node::File { synced, current } => {
                        content.insert(path, Some(bytes(synced, current)));
                    }
                    Node::Dir { .. } => {
                        content.insert(path.clone(), None);
                        dirs.push((node, path));
                    }
                }
            }
        }
        content
    }

    fn sync(&mut self, path: &str) {
        let Some(synced) = self.find(path) else { return };
        self.journaled = self.changes.len();
        match &mut self.nodes[synced] {
            Node::File { synced, current } => synced.clone_from(current),
            Node::Dir { .. } => {
                let concerned = |change: &&mut Change| change.edits.iter().any(|(dir, ..)| *dir == synced);
                self.changes.iter_mut().filter(concerned).for_each(|change| change.durable = true);
            }
        }
    }

    fn make(&mut self, path: &str, node: Node) {
        let (dir, name) = self.entry(path);
        self.nodes.push(node);
        self.change(vec![(dir, name, Some(self.nodes.len() - 1))]);
    }

    fn change(&mut self, edits: Vec<(NodeId, String, Option<NodeId>)>) {
        for (dir, name, node) in &edits {
            let Node::Dir { current, .. } = &mut self.nodes[*dir] else {
                panic!("{name} is in no directory")
            };
            match node {
                Some(node) => drop(current.insert(name.clone(), *node)),
                None => drop(current.remove(name)),
            }
        }
        self.changes.push(Change { edits, durable: false });
    }

    fn find(&self, path: &str) -> Option<NodeId> {
        path.split('/').filter(|name| !name.is_empty()).try_fold(0, |dir, name| match &self.nodes[dir] {
            Node::Dir { current, .. } => current.get(name).copied(),
            Node::File { .. } => None,
        })
    }

    /// Returns the directory that contains `path`, and its name there.
    fn entry(&self, path: &str) -> (NodeId, String) {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        (self.find(dir).unwrap_or_else(|| panic!("{path} is in no directory")), name.to_owned())
    }

    fn bytes(&mut self, path: &str) -> &mut Vec<u8> {
        match self.find(path).map(|node| &mut self.nodes[node]) {
            Some(Node::File { current, .. }) => Rc::make_mut(current),
            _ => panic!("{path} is not a file"),
        }
    }
}

impl Node {
    fn empty_dir() -> Self {
        Self::Dir { initial: Entries::new(), current: Entries::new() }
    }
}

/// Returns a file without the writes since the last sync, but possibly with the new size.
fn without_writes(synced: &[u8], current: &[u8], random: &mut dyn FnMut(usize) -> usize) -> Vec<u8> {
    let mut bytes = synced.to_vec();
    if random(2) == 0 {
        bytes.resize(current.len(), 0);
    }
    bytes
}

/// Returns a file with only some of the blocks that were written since the last sync.
fn torn(synced: &[u8], current: &[u8], random: &mut dyn FnMut(usize) -> usize) -> Vec<u8> {
    let (least, most) = (synced.len().min(current.len()), synced.len().max(current.len()));
    let length = match random(3) {
        0 => synced.len(),
        1 => current.len(),
        _ => ((least + random(most - least + 1)) / BLOCK * BLOCK).max(least),
    };
    let mut bytes = vec![0; length];
    let mut block = |from: &[u8], start: usize| {
        let end = (start + BLOCK).min(length).min(from.len());
        if start < end {
            bytes[start..end].copy_from_slice(&from[start..end]);
        }
    };
    for start in (0..length).step_by(BLOCK) {
        block(if random(2) == 0 { synced } else { current }, start);
    }
    bytes
}

/// Reads everything below `dir`.
pub fn content_of(dir: &Path) -> Content {
    let mut content = Content::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = entry.path().strip_prefix(dir).unwrap().to_str().unwrap().to_owned();
            if entry.file_type().unwrap().is_dir() {
                content.insert(name, None);
                folders.push(entry.path());
            } else {
                content.insert(name, Some(Rc::new(std::fs::read(entry.path()).unwrap())));
            }
        }
    }
    content
}

/// Returns the files of the output directory, without the work files of the run.
pub fn visible(content: &Content) -> Tree {
    let files = content.iter().filter_map(|(path, bytes)| {
        let name = path.strip_prefix("out/")?;
        let bytes = bytes.as_ref().filter(|_| !name.starts_with(".dsconvert/"))?;
        Some((name.to_owned(), bytes.to_vec()))
    });
    files.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(ops: &[Op]) -> Disk {
        let mut disk = Disk::new(&Content::new());
        ops.iter().for_each(|op| disk.apply(op));
        disk
    }

    fn paths(disk: &Disk, loss: Loss) -> Vec<String> {
        disk.after_power_cut(loss, &mut |_| 0).into_keys().collect()
    }

    fn write(path: &str, data: &str) -> Op {
        Op::Write { path: path.into(), at: 0, data: data.into() }
    }

    #[test]
    fn a_file_is_durable_when_it_and_its_directory_are_synced() {
        let (file, root) = (Op::Sync("a".into()), Op::Sync(String::new()));
        let ops = [Op::Create("a".into()), write("a", "x"), file, root];
        assert_eq!(paths(&disk(&ops[..3]), Loss::Everything), [""; 0]);
        assert_eq!(paths(&disk(&ops[..3]), Loss::Data), ["a"]);
        let content = disk(&ops).after_power_cut(Loss::Everything, &mut |_| 1);
        assert_eq!(content["a"].as_deref().unwrap(), b"x");
        let unsynced = disk(&[ops[0].clone(), ops[1].clone(), ops[3].clone()]);
        let content = unsynced.after_power_cut(Loss::Everything, &mut |_| 1);
        assert_eq!(content["a"].as_deref().unwrap(), b"");
        let content = unsynced.after_power_cut(Loss::Everything, &mut |_| 0);
        assert_eq!(content["a"].as_deref().unwrap(), b"\0");
    }

    #[test]
    fn a_rename_between_directories_is_one_change() {
        let ops = ["d", "e"].map(|dir| Op::MakeDir(dir.into()));
        let mut ops = ops.to_vec();
        ops.extend([Op::Sync(String::new()), Op::Create("d/a".into()), Op::Sync("d".into())]);
        ops.push(Op::Rename("d/a".into(), "e/b".into()));
        assert_eq!(paths(&disk(&ops), Loss::Everything), ["d", "d/a", "e"]);
        ops.push(Op::Sync("e".into()));
        assert_eq!(paths(&disk(&ops), Loss::Everything), ["d", "e", "e/b"]);
    }

    #[test]
    fn a_journal_loses_the_latest_changes() {
        let make = |path: &str| Op::Create(path.into());
        let disk = disk(&[make("a"), make("b"), Op::Sync("b".into()), make("c"), make("d")]);
        let kept = |kept: usize| disk.after_power_cut(Loss::Journal, &mut |_| kept).len();
        assert_eq!([kept(0), kept(1), kept(2)], [2, 3, 4]);
        assert_eq!(disk.content().len(), 4);
    }
}
