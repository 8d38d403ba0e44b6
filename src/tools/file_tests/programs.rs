//! Random programs of file operations and links, against the system's own view of the same tree.
//!
//! Two rooms run the same program, one for each way of resolving: they must agree, what they say must be what the
//! system says, and nothing outside may change.

use std::os::unix::ffi::OsStrExt;

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Read(String),
    Write(String, u8),
    Edit(String),
    Link(Target, String),
    Remove(String),
}

/// Where a link leads.
#[derive(Debug, Clone)]
enum Target {
    Relative(String),
    Inside(String),
    Outside(String),
}

fn path() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec!["a", "b", "c", "..", "."]);
    prop::collection::vec(part, 1..5).prop_map(|parts| parts.join("/"))
}

fn name() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "c", "a/b", "b/c", "c/a"]).prop_map(str::to_owned)
}

fn step() -> impl Strategy<Value = Step> {
    let target = prop_oneof![
        4 => path().prop_map(Target::Relative),
        2 => path().prop_map(Target::Inside),
        2 => path().prop_map(Target::Outside),
    ];
    prop_oneof![
        3 => path().prop_map(Step::Read),
        4 => (path(), any::<u8>()).prop_map(|(path, byte)| Step::Write(path, byte)),
        2 => path().prop_map(Step::Edit),
        4 => (target, name()).prop_map(|(target, name)| Step::Link(target, name)),
        1 => name().prop_map(Step::Remove),
    ]
}

/// Runs a step and returns what it came to, without the room's own path in it.
async fn run(room: &Room, step: &Step) -> String {
    let output = match step {
        Step::Read(path) => room.read(path).await,
        Step::Write(path, byte) => room.write(path, &format!("old {byte}")).await,
        Step::Edit(path) => room.edit(path, "old", "new").await,
        Step::Link(target, name) => {
            let target = match target {
                Target::Relative(path) => PathBuf::from(path),
                Target::Inside(path) => room.at(path),
                Target::Outside(path) => room.beside("canary").join(path),
            };
            let linked = stays_inside(room, name)
                && std::os::unix::fs::symlink(target, room.at(name)).is_ok();
            return linked.to_string();
        }
        Step::Remove(name) => {
            let removed = stays_inside(room, name) && std::fs::remove_file(room.at(name)).is_ok();
            return removed.to_string();
        }
    };
    if let (Step::Read(path), false) = (step, output.is_error) {
        // The test's own names are never special, so the system opens what we opened.
        let real = room.at(path).canonicalize().unwrap();
        assert!(real.starts_with(room.at("").canonicalize().unwrap()));
        assert_eq!(data_or_note(&output), disk(&real), "{step:?}");
    }
    if let (Step::Write(path, byte), false) = (step, output.is_error) {
        let real = room.at(path).canonicalize().unwrap();
        assert!(real.starts_with(room.at("").canonicalize().unwrap()));
        assert_eq!(disk(&real), format!("old {byte}").as_bytes(), "{step:?}");
    }
    let shown = format!("{} {output:?}", output.is_error);
    shown.replace(&*room.beside("").to_string_lossy(), "<room>/")
}

/// Tells whether the test itself would stay inside.
fn stays_inside(room: &Room, name: &str) -> bool {
    let inside = room.at("").canonicalize().unwrap();
    let parent = room.at(name).parent().unwrap().canonicalize();
    parent.is_ok_and(|real| real.starts_with(inside))
}

fn data_or_note(output: &ToolOutput) -> Vec<u8> {
    if read_details(output).empty {
        Vec::new()
    } else {
        data(output).as_bytes().to_vec()
    }
}

#[expect(clippy::disallowed_methods, reason = "a test looks at the disk itself")]
fn disk(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap()
}

/// Returns every name below a directory with what stands there.
fn picture(dir: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut all = Vec::new();
    let mut dirs = vec![dir.to_path_buf()];
    while let Some(next) = dirs.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            let meta = std::fs::symlink_metadata(&path).unwrap();
            let content = if meta.is_symlink() {
                b"link".to_vec()
            } else if meta.is_dir() {
                dirs.push(path.clone());
                b"directory".to_vec()
            } else {
                disk(&path)
            };
            all.push((
                path.strip_prefix(dir)
                    .unwrap()
                    .as_os_str()
                    .as_bytes()
                    .to_vec(),
                content,
            ));
        }
    }
    all.sort();
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn both_ways_of_resolving_agree_with_the_system_and_never_leave(steps in prop::collection::vec(step(), 1..25)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let rooms = [Confinement::Openat2, Confinement::Walk].map(|confinement| {
            let room = start_room_with(Limits::default(), Some(confinement));
            for part in ["canary/a/b", "canary/b", "ws/b"] {
                std::fs::create_dir_all(room.beside(part)).unwrap();
            }
            room.link("../../elsewhere", "../canary/c");
            room
        });
        let outside = |room: &Room| {
            let mut all = picture(&room.beside(""));
            all.retain(|(path, _)| !path.starts_with(b"ws"));
            all
        };
        let before = outside(&rooms[0]);
        for step in &steps {
            let [one, other] = [&rooms[0], &rooms[1]].map(|room| runtime.block_on(run(room, step)));
            prop_assert_eq!(one, other, "{:?}", step);
        }
        prop_assert_eq!(picture(&rooms[0].at("")), picture(&rooms[1].at("")));
        for room in &rooms {
            prop_assert_eq!(outside(room), before.clone());
            room.check_no_leftovers();
        }
    }
}
