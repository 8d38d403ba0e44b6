//! A tree of files, directories and links in memory, and what read, write and edit make of a path in it.

use std::collections::BTreeMap;

/// What stands at a name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shape {
    Dir,
    /// Content, and the mode where it is known.
    File(String, Option<u32>),
    Link(String),
}

#[derive(Debug, Clone)]
enum Node {
    Dir,
    /// Which file: hard links share one.
    File(usize),
    Link(String),
}

/// The tree; keys are paths without links.
#[derive(Debug, Default)]
pub struct Tree {
    nodes: BTreeMap<Vec<String>, Node>,
    files: Vec<(String, Option<u32>)>,
}

/// Where a path leads.
enum Place {
    /// Something, links resolved.
    At(Vec<String>),
    /// Nothing: these names are missing below a directory.
    Missing(Vec<String>, Vec<String>),
}

fn split(path: &str) -> Vec<String> {
    let parts = path.split('/').filter(|part| !part.is_empty());
    parts.map(str::to_owned).collect()
}

impl Tree {
    fn node(&self, path: &[String]) -> Option<&Node> {
        if path.is_empty() {
            return Some(&Node::Dir);
        }
        self.nodes.get(path)
    }

    /// Follows a path and its links; nothing where it leads outside or cannot be followed.
    fn resolve(&self, path: &str) -> Option<Place> {
        let mut pending = split(path.strip_prefix("<ws>").unwrap_or(path));
        if path.starts_with("<out>") {
            return None;
        }
        pending.reverse();
        let mut at: Vec<String> = Vec::new();
        let mut links = 0;
        while let Some(name) = pending.pop() {
            if !matches!(self.node(&at)?, Node::Dir) {
                return None;
            }
            match name.as_str() {
                "." => continue,
                ".." => {
                    at.pop()?;
                    continue;
                }
                _ => at.push(name),
            }
            match self.node(&at) {
                Some(Node::Link(target)) => {
                    links += 1;
                    if links > 40 || target.starts_with("<out>") {
                        return None;
                    }
                    at.pop();
                    let target = match target.strip_prefix("<ws>") {
                        Some(inside) => {
                            at.clear();
                            inside
                        }
                        None => target,
                    };
                    pending.extend(split(target).into_iter().rev());
                }
                Some(Node::Dir | Node::File(_)) => {}
                None => {
                    let mut names = vec![at.pop()?];
                    names.extend(pending.into_iter().rev());
                    return Some(Place::Missing(at, names));
                }
            }
        }
        Some(Place::At(at))
    }

    fn file(&self, path: &str) -> Option<usize> {
        match self.resolve(path)? {
            Place::At(at) => match self.node(&at)? {
                Node::File(file) => Some(*file),
                Node::Dir | Node::Link(_) => None,
            },
            Place::Missing(..) => None,
        }
    }

    /// What `read` gives; nothing where it is an error.
    pub fn read(&self, path: &str) -> Option<&str> {
        Some(&self.files[self.file(path)?].0)
    }

    /// Tells whether `write` succeeds.
    pub fn write(&mut self, path: &str, content: &str) -> bool {
        if let Some(file) = self.file(path) {
            content.clone_into(&mut self.files[file].0);
            return true;
        }
        let Some(Place::Missing(mut at, names)) = self.resolve(path) else {
            return false;
        };
        if names.iter().any(|name| name == ".." || name == ".") {
            // Nothing is made for the sake of a step back, and a name with `/.` behind it is a directory's.
            let steps_back = names.iter().any(|name| name == "..");
            let last_is_dot = names.last().is_some_and(|name| name == ".");
            if steps_back || last_is_dot {
                return false;
            }
        }
        let names: Vec<String> = names.into_iter().filter(|name| name != ".").collect();
        let (last, parents) = names.split_last().expect("a missing name");
        for name in parents {
            at.push(name.clone());
            self.nodes.insert(at.clone(), Node::Dir);
        }
        at.push(last.clone());
        self.nodes.insert(at, Node::File(self.files.len()));
        self.files.push((content.to_owned(), None));
        true
    }

    /// Tells whether `edit` succeeds.
    pub fn edit(&mut self, path: &str, old: &str, new: &str, all: bool) -> bool {
        let Some(file) = self.file(path) else {
            return false;
        };
        let content = &mut self.files[file].0;
        // Overlapping ones count: which of them was meant cannot be told.
        let starts =
            (0..content.len()).filter(|at| content.as_bytes()[*at..].starts_with(old.as_bytes()));
        let count = starts.count();
        if old == new || count == 0 || (!all && count > 1) {
            return false;
        }
        *content = content.replace(old, new);
        true
    }

    /// Tells whether a plain name is free in a real directory.
    fn is_free(&self, name: &[String]) -> bool {
        let (_, parent) = name.split_last().expect("a name");
        self.node(name).is_none() && matches!(self.node(parent), Some(Node::Dir))
    }

    /// Makes a link, or tells that it cannot be made.
    pub fn link(&mut self, target: &str, name: &str) -> bool {
        let name = split(name);
        let free = self.is_free(&name);
        if free {
            self.nodes.insert(name, Node::Link(target.to_owned()));
        }
        free
    }

    /// Makes a directory, or tells that it cannot be made.
    pub fn make_dir(&mut self, name: &str) -> bool {
        let name = split(name);
        let free = self.is_free(&name);
        if free {
            self.nodes.insert(name, Node::Dir);
        }
        free
    }

    /// Gives a file a second name, or tells that it cannot.
    pub fn hard_link(&mut self, of: &str, name: &str) -> bool {
        let name = split(name);
        let Some(Node::File(file)) = self.node(&split(of)) else {
            return false;
        };
        let file = *file;
        let free = self.is_free(&name);
        if free {
            self.nodes.insert(name, Node::File(file));
        }
        free
    }

    /// Removes a file or a link, or tells that there is none.
    pub fn remove(&mut self, name: &str) -> bool {
        let name = split(name);
        let there = matches!(self.node(&name), Some(Node::File(_) | Node::Link(_)));
        if there {
            self.nodes.remove(&name);
        }
        there
    }

    /// Gives a file a mode, or tells that there is none.
    pub fn set_mode(&mut self, name: &str, mode: u32) -> bool {
        let Some(Node::File(file)) = self.node(&split(name)) else {
            return false;
        };
        let file = *file;
        self.files[file].1 = Some(mode);
        true
    }

    /// Every name with what stands there, in order.
    pub fn picture(&self, spell: impl Fn(&str) -> String) -> Vec<(String, Shape)> {
        let nodes = self.nodes.iter().map(|(name, node)| {
            let shape = match node {
                Node::Dir => Shape::Dir,
                Node::File(file) => {
                    let (content, mode) = &self.files[*file];
                    Shape::File(content.clone(), *mode)
                }
                Node::Link(target) => Shape::Link(spell(target)),
            };
            (name.join("/"), shape)
        });
        let mut all: Vec<_> = nodes.collect();
        all.sort();
        all
    }
}
