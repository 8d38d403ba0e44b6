//! A scratch workspace and readable answers for the tests of the search tools.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::limits::Limits;
use crate::process::Processes;
use crate::progress::{Progress, ProgressSink};
use crate::stop::Stop;
use crate::tools::{Ctx, ToolOutput};
use crate::wire::{
    ContentBlock, Details, GlobDetails, GlobInput, GrepDetails, GrepInput, ListFilesDetails,
    ListFilesInput, OutputStream,
};
use crate::workspace::Workspace;

/// A scratch workspace that vanishes with its test.
pub(in crate::tools) struct Scratch {
    pub(in crate::tools) dir: tempfile::TempDir,
    pub(in crate::tools) limits: Limits,
    pub(in crate::tools) stop: Stop,
    pub(in crate::tools) said: Arc<Mutex<Vec<String>>>,
    runtime: tokio::runtime::Runtime,
}

struct Listener(Arc<Mutex<Vec<String>>>);

impl ProgressSink for Listener {
    fn offer(&self, _: Option<OutputStream>, message: String, _: u64) {
        self.0.lock().unwrap().push(message);
    }
}

pub(in crate::tools) fn start_scratch(files: &[(&str, &str)]) -> Scratch {
    let scratch = Scratch {
        dir: tempfile::tempdir().unwrap(),
        limits: Limits::default(),
        stop: Stop::new(),
        said: Arc::default(),
        runtime: tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap(),
    };
    for (path, content) in files {
        scratch.file(path, content.as_bytes());
    }
    scratch
}

impl Scratch {
    pub(in crate::tools) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(in crate::tools) fn root(&self) -> String {
        self.path()
            .canonicalize()
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned()
    }

    pub(in crate::tools) fn file(&self, path: &str, content: &[u8]) {
        self.file_at(path.as_bytes(), content);
    }

    #[expect(clippy::disallowed_methods, reason = "tests lay out their trees")]
    pub(in crate::tools) fn file_at(&self, path: &[u8], content: &[u8]) {
        let full = self.path().join(std::ffi::OsStr::from_bytes(path));
        std::fs::create_dir_all(full.parent().unwrap()).unwrap();
        std::fs::write(full, content).unwrap();
    }

    pub(in crate::tools) fn link(&self, path: &str, target: &str) {
        std::os::unix::fs::symlink(target, self.path().join(path)).unwrap();
    }

    pub(in crate::tools) fn ctx(&self) -> Ctx {
        let limits = Arc::new(self.limits.clone());
        Ctx {
            workspace: Workspace::open(self.path(), &limits).unwrap(),
            processes: Processes::new(&limits, Vec::new()).session(Vec::new()),
            stop: self.stop.clone(),
            progress: Progress::new(Arc::new(Listener(Arc::clone(&self.said)))),
            limits,
            max_result_bytes: 1024 * 1024,
            near: None,
        }
    }

    pub(in crate::tools) fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(async {
            tokio::time::timeout(Duration::from_mins(1), future)
                .await
                .expect("the tool gave no answer within a minute")
        })
    }

    pub(in crate::tools) fn glob(&self, pattern: &str, path: Option<&str>) -> Answer {
        let input = GlobInput {
            pattern: pattern.to_owned(),
            path: path.map(str::to_owned),
        };
        Answer(self.wait(crate::tools::glob(&self.ctx(), input)))
    }

    pub(in crate::tools) fn grep(&self, pattern: &str, path: Option<&str>) -> Answer {
        self.grep_with(GrepInput {
            path: path.map(str::to_owned),
            ..grep_input(pattern)
        })
    }

    pub(in crate::tools) fn grep_with(&self, input: GrepInput) -> Answer {
        Answer(self.wait(crate::tools::grep(&self.ctx(), input)))
    }

    pub(in crate::tools) fn list(&self, path: Option<&str>) -> Answer {
        let input = ListFilesInput {
            path: path.map(str::to_owned),
        };
        Answer(self.wait(crate::tools::list_files(&self.ctx(), input)))
    }
}

pub(in crate::tools) fn grep_input(pattern: &str) -> GrepInput {
    GrepInput {
        pattern: pattern.to_owned(),
        path: None,
        glob: None,
        case_insensitive: None,
        context: None,
        multiline: None,
    }
}

/// A tool's output, taken apart.
#[derive(Debug)]
#[must_use]
pub(in crate::tools) struct Answer(pub(in crate::tools) ToolOutput);

impl Answer {
    fn texts(&self) -> Vec<String> {
        (self.0.content.iter())
            .map(|block| match block {
                ContentBlock::Text { text } => {
                    assert!(!text.is_empty(), "an empty text block");
                    text.plain()
                }
                ContentBlock::Image { .. } => panic!("an image"),
            })
            .collect()
    }

    fn is_empty(&self) -> bool {
        match self.0.details.as_ref() {
            Some(Details::Glob(details)) => details.empty,
            Some(Details::Grep(details)) => details.empty,
            Some(Details::ListFiles(details)) => details.empty,
            _ => true,
        }
    }

    /// The lines of block 0; none where there is no data.
    #[track_caller]
    pub(in crate::tools) fn lines(&self) -> Vec<String> {
        assert!(self.0.details.is_some(), "an error: {:?}", self.0.content);
        if self.is_empty() {
            return Vec::new();
        }
        self.texts()[0].lines().map(str::to_owned).collect()
    }

    /// Everything that is said beside the data.
    pub(in crate::tools) fn notes(&self) -> String {
        let texts = self.texts();
        texts[usize::from(!self.is_empty())..].join("\n")
    }

    #[track_caller]
    pub(in crate::tools) fn error(&self) -> String {
        assert!(
            self.0.is_error && self.0.details.is_none(),
            "no error: {self:?}"
        );
        self.texts().swap_remove(0)
    }

    pub(in crate::tools) fn glob_details(&self) -> &GlobDetails {
        match self.0.details.as_ref() {
            Some(Details::Glob(details)) => details,
            other => panic!("{other:?}"),
        }
    }

    pub(in crate::tools) fn grep_details(&self) -> &GrepDetails {
        match self.0.details.as_ref() {
            Some(Details::Grep(details)) => details,
            other => panic!("{other:?}"),
        }
    }

    pub(in crate::tools) fn list_details(&self) -> &ListFilesDetails {
        match self.0.details.as_ref() {
            Some(Details::ListFiles(details)) => details,
            other => panic!("{other:?}"),
        }
    }
}
