//! Random programs of file operations and links through the socket, against a model of the tree that knows no kernel: what
//! each call answers, what the workspace holds in the end, and that nothing outside was read or changed.

mod model;

use std::cell::RefCell;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::json;
use tokio::runtime::Runtime;

use crate::support::{Client, Executor, Reply, slow_tests_run, start_executor};
use model::{Shape, Tree};

#[derive(Debug, Clone)]
enum Step {
    Read(String),
    Write(String, String),
    Edit(String, &'static str, &'static str, bool),
    Link(String, String),
    HardLink(String, String),
    MakeDir(String),
    Remove(String),
    Mode(String, u32),
}

/// `<ws>` and `<out>` stand for the absolute paths of the workspace and of the directory beside it.
fn path() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec!["a", "b", "c", "d", "..", "."]);
    let prefix = prop::sample::select(vec!["", "", "", "<ws>/", "<out>/", "../out/"]);
    (prefix, prop::collection::vec(part, 1..5))
        .prop_map(|(prefix, parts)| format!("{prefix}{}", parts.join("/")))
}

fn name() -> impl Strategy<Value = String> {
    let names = vec!["a", "b", "c", "d", "a/b", "b/c", "c/a", "a/b/c"];
    prop::sample::select(names).prop_map(str::to_owned)
}

fn content() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec!["a", "b", "aa", "\n", "é", "\u{feff}"]);
    prop::collection::vec(part, 0..8).prop_map(|parts| parts.concat())
}

fn step() -> impl Strategy<Value = Step> {
    let old = prop::sample::select(vec!["a", "b", "aa", "a\n", "é", "ab"]);
    let new = prop::sample::select(vec!["", "b", "aa", "\n\n", "é"]);
    prop_oneof![
        3 => path().prop_map(Step::Read),
        4 => (path(), content()).prop_map(|(path, content)| Step::Write(path, content)),
        4 => (path(), old, new, any::<bool>())
            .prop_map(|(path, old, new, all)| Step::Edit(path, old, new, all)),
        4 => (path(), name()).prop_map(|(target, name)| Step::Link(target, name)),
        1 => (name(), name()).prop_map(|(of, name)| Step::HardLink(of, name)),
        2 => name().prop_map(Step::MakeDir),
        1 => name().prop_map(Step::Remove),
        1 => (name(), prop::sample::select(vec![0o755, 0o600, 0o664]))
            .prop_map(|(name, mode)| Step::Mode(name, mode)),
    ]
}

struct World {
    runtime: Runtime,
    executor: Executor,
    client: Client,
}

impl World {
    fn root(&self) -> &Path {
        self.executor.workspace()
    }

    fn spell(&self, path: &str) -> String {
        let root = self.root().to_str().unwrap();
        let out = root.strip_suffix("ws").unwrap().to_owned() + "out";
        path.replace("<ws>", root).replace("<out>", &out)
    }

    fn call(&mut self, name: &str, input: serde_json::Value) -> Reply {
        self.runtime.block_on(self.client.call(name, input))
    }

    /// Runs a step against the executor or the disk, and against the model; both must come to the same.
    fn run(&mut self, tree: &mut Tree, step: &Step) {
        match step {
            Step::Read(path) => {
                let reply = self.call("read", json!({"path": self.spell(path)}));
                let expected = tree.read(path);
                check_answer(step, &reply, expected.is_some());
                if let Some(content) = expected {
                    let empty = reply.details()["empty"] == true;
                    let data = if empty { "" } else { reply.data() };
                    assert_eq!(data, content, "{step:?}");
                }
            }
            Step::Write(path, content) => {
                let input = json!({"path": self.spell(path), "content": content});
                let reply = self.call("write", input);
                check_answer(step, &reply, tree.write(path, content));
            }
            Step::Edit(path, old, new, all) => {
                let path_in = self.spell(path);
                let input = json!({"path": path_in, "old_string": old, "new_string": new, "replace_all": all});
                let reply = self.call("edit", input);
                check_answer(step, &reply, tree.edit(path, old, new, *all));
            }
            // The test itself goes by plain names only, so that it never leaves the tree.
            Step::Link(target, name) => {
                if tree.link(target, name) {
                    symlink(self.spell(target), self.root().join(name)).unwrap();
                }
            }
            Step::HardLink(of, name) => {
                if tree.hard_link(of, name) {
                    std::fs::hard_link(self.root().join(of), self.root().join(name)).unwrap();
                }
            }
            Step::MakeDir(name) => {
                if tree.make_dir(name) {
                    std::fs::create_dir(self.root().join(name)).unwrap();
                }
            }
            Step::Remove(name) => {
                if tree.remove(name) {
                    std::fs::remove_file(self.root().join(name)).unwrap();
                }
            }
            Step::Mode(name, mode) => {
                if tree.set_mode(name, *mode) {
                    let mode = std::fs::Permissions::from_mode(*mode);
                    std::fs::set_permissions(self.root().join(name), mode).unwrap();
                }
            }
        }
    }
}

#[track_caller]
fn check_answer(step: &Step, reply: &Reply, done: bool) {
    let came_to = (reply.outcome(), reply.is_error());
    assert_eq!(came_to, ("succeeded", !done), "{step:?}: {:#}", reply.0);
    let text = reply.0.to_string();
    assert!(!text.contains("canary"), "the outside shows in {text}");
}

/// Every name below a directory with what stands there, in order.
fn picture(directory: &Path) -> Vec<(String, Shape)> {
    let mut all = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            let meta = std::fs::symlink_metadata(&path).unwrap();
            let shape = if meta.is_symlink() {
                Shape::Link(
                    std::fs::read_link(&path)
                        .unwrap()
                        .to_str()
                        .unwrap()
                        .to_owned(),
                )
            } else if meta.is_dir() {
                open.push(path.clone());
                Shape::Dir
            } else {
                let mode = meta.permissions().mode() & 0o7777;
                Shape::File(std::fs::read_to_string(&path).unwrap(), Some(mode))
            };
            let name = path.strip_prefix(directory).unwrap();
            all.push((name.to_str().unwrap().to_owned(), shape));
        }
    }
    all.sort();
    all
}

fn empty(directory: &Path) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        // A link to a directory is removed as a file.
        std::fs::remove_dir_all(&path)
            .or_else(|_| std::fs::remove_file(&path))
            .unwrap();
    }
}

#[test]
fn a_program_of_files_and_links_does_what_a_model_says_and_nothing_outside() {
    let cases = if slow_tests_run() { 1_500 } else { 64 };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let executor = start_executor();
    let client = runtime.block_on(executor.connect());
    let outside = executor.workspace().parent().unwrap().join("out");
    for directory in ["a/b", "b", "c"] {
        std::fs::create_dir_all(outside.join(directory)).unwrap();
    }
    for name in ["a/c", "a/b/c", "d", "b/a"] {
        std::fs::write(outside.join(name), "canary aa").unwrap();
    }
    let before = picture(&outside);
    let world = RefCell::new(World {
        runtime,
        executor,
        client,
    });
    let config = ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let programs = prop::collection::vec(step(), 1..30);
    TestRunner::new(config)
        .run(&programs, |steps| {
            let mut world = world.borrow_mut();
            empty(world.root());
            let mut tree = Tree::default();
            for step in &steps {
                world.run(&mut tree, step);
            }
            let mut found = picture(world.root());
            let spelled = tree.picture(|target| world.spell(target));
            // A mode that the program did not set is the umask's business.
            for ((_, found), (_, expected)) in found.iter_mut().zip(&spelled) {
                if let (Shape::File(_, mode), Shape::File(_, None)) = (found, expected) {
                    *mode = None;
                }
            }
            assert_eq!(found, spelled, "{steps:#?}");
            assert_eq!(picture(&outside), before, "{steps:#?}");
            Ok(())
        })
        .unwrap();
}
