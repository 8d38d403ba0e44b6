//! Every bound of the daemon, in one place.
//!
//! A bound that is not here does not exist: no queue, buffer or wait elsewhere carries a number of its own.

use std::time::Duration;

use crate::wire::AdvertisedLimits;

/// The bounds of one daemon. Sizes are bytes, times are [`Duration`]s, the rest are counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Calls that run or wait for their answer to be written, for the whole daemon.
    /// Beyond it a call is refused at once (protocol section 6).
    pub max_concurrent_calls: usize,
    /// Open sessions of the daemon (protocol section 6).
    pub max_sessions: usize,
    /// Harness connections at one time; each costs two tasks and their buffers.
    pub max_connections: usize,
    /// Handshakes at one time; where they are more the oldest ends, so that whoever only opens sockets locks nobody out.
    pub max_handshakes: usize,
    /// Largest message taken from a harness (protocol section 7: 16 MiB).
    pub max_inbound_bytes: usize,
    /// Largest message sent to a harness that does not say what it can take (protocol section 3: 1 MiB).
    pub default_outbound_bytes: usize,
    /// Ceiling for what a harness may ask for in `max_message_bytes` (protocol section 3: 64 MiB).
    pub max_outbound_bytes: usize,
    /// Messages above this are sent as fragments of this size (protocol section 1): one frame of many
    /// megabytes holds up pings and doubles its memory.
    pub fragment_bytes: usize,
    /// Buffer for reading from and for writing to one socket.
    pub socket_buffer_bytes: usize,
    /// Bytes asked of a socket at one time. The library clears as many before each read, so much more costs each small
    /// message, and much less each large one.
    pub socket_read_bytes: usize,
    /// Results written before a flush.
    pub write_batch: usize,
    /// How long a closed connection is waited for, so that the peer gets the close frame.
    pub close_timeout: Duration,
    /// Refusals and notices waiting for one connection's writer. A peer that overflows it sends garbage
    /// faster than it reads the answers, and is disconnected.
    pub control_lane: usize,
    /// Progress messages waiting for one connection's writer; the oldest is dropped and counted.
    pub progress_lane: usize,
    /// Results waiting for one connection's writer, in bytes; above it that connection's calls are refused until it reads.
    /// Half of the daemon's memory for results, so that one deaf harness leaves room for others.
    pub outbox_bytes: usize,
    /// Shortest time between two progress messages of one stream of one call.
    pub progress_interval: Duration,
    /// Largest text of one progress message.
    pub progress_bytes: usize,
    /// Finished calls remembered for each session (protocol section 7).
    pub max_finished_calls: usize,
    /// How long a finished call is remembered (protocol section 7).
    pub finished_ttl: Duration,
    /// Finished calls remembered for the whole daemon, some 2 KiB each with a short result; above it those that were delivered longest ago
    /// are forgotten, whichever session they are of.
    pub max_remembered_calls: usize,
    /// Results kept whole for each session that no harness has (protocol section 7); of older ones only that they are gone.
    pub max_kept_results: usize,
    /// Largest result that the journal keeps (protocol section 7: 64 KiB).
    pub journal_result_bytes: usize,
    /// The journal is written anew where it is longer than twice what was worth keeping last time, and this.
    pub journal_slack_bytes: u64,
    /// A journal that could not be written anew is given up at this length.
    pub journal_most_bytes: u64,
    /// Acknowledgements that wait to be written, which the next record takes along or 5 ms end; above it they are not kept, and after a restart those results come again.
    pub journal_queue: usize,
    /// Results kept for the whole daemon, in bytes (protocol section 7).
    pub result_memory_bytes: usize,
    /// How long a cancel that overtook its call is remembered (protocol section 6).
    pub early_cancel_ttl: Duration,
    /// Cancels remembered for each session that overtook their calls.
    pub max_early_cancels: usize,
    /// How long a session without a connection lives (protocol section 7).
    pub session_ttl: Duration,
    /// Ping interval; a peer silent for two of them is dead (protocol section 7).
    pub heartbeat: Duration,
    /// Connections of the admin port at one time; where it is full, the oldest is dropped, which a slow client is.
    pub admin_connections: usize,
    /// Longest head of a request to the admin port; the rest of a request is not read.
    pub admin_head_bytes: usize,
    /// Time for one request to the admin port and its answer, and for the question of `healthcheck`.
    pub admin_timeout: Duration,
    /// How long the workspace may take to answer before `/readyz` says that it does not (a hung mount).
    pub workspace_check: Duration,
    /// Pause after a connection could not be accepted.
    pub accept_pause: Duration,
    /// First bound of the pause before a harness is dialled again; it doubles (protocol section 7).
    pub redial_first: Duration,
    /// Last bound of that pause; one to two of it where this executor is not wanted.
    pub redial_most: Duration,
    /// A connection that has lived so long was established, though its harness said nothing.
    pub established_after: Duration,
    /// Time for the WebSocket handshake, so that a silent dialler holds no place.
    pub handshake_timeout: Duration,
    /// Time that running calls get at shutdown before they are ended (protocol section 10).
    pub drain_timeout: Duration,
    /// Time to write the last results at shutdown. With the defaults of drain and grace it ends the stop well before the 5 s that
    /// protocol section 10 allows, also on a busy machine.
    pub flush_timeout: Duration,
    /// Time between TERM and KILL (protocol section 5.1).
    pub kill_grace: Duration,
    /// How long output is awaited after the shell has ended (protocol section 5.1).
    pub drain_grace: Duration,
    /// How long killed processes are awaited before they are reported as survivors: one in an uninterruptible
    /// wait may take for ever.
    pub kill_settle: Duration,
    /// `timeout_ms` of a bash call that gives none (protocol section 5).
    pub bash_timeout: Duration,
    /// Ceiling of `timeout_ms` (protocol section 5); a larger value is clamped, with a note.
    pub max_bash_timeout: Duration,
    /// Rendered bash output above this becomes a preview of head and tail (protocol section 5.1: 48 KiB).
    pub bash_preview_bytes: usize,
    /// Output taken from a pipe at one time: what a pipe holds.
    pub pipe_chunk_bytes: usize,
    /// Output that waits for the disk before the command is throttled.
    pub spill_waiting_bytes: usize,
    /// Whole output kept on disk for one stream of one bash call (protocol section 5.1: 64 MiB per call).
    pub spill_call_bytes: u64,
    /// Whole outputs kept on disk for one workspace, oldest removed first (protocol section 5.1: 1 GiB).
    pub spill_workspace_bytes: u64,
    /// Background processes kept for one session.
    pub max_background: usize,
    /// Environment given to commands; above it functions of the login shell are left out. The kernel refuses
    /// arguments and environment above 2 MiB together (execve(2), with the usual 8 MiB stack).
    pub login_env_bytes: usize,
    /// How long a login shell that is slow may go on behind the commands; ended in the middle of its work, a
    /// start-up file may leave a lock behind that holds up every later login.
    pub login_env_patience: Duration,
    /// Longest that capturing the login environment may hold up a command (protocol section 5.1).
    pub login_env_timeout: Duration,
    /// File and search jobs that run at one time: more of them only cost memory (measured: four keep a
    /// two-core machine busy).
    pub max_blocking_jobs: usize,
    /// How long a stopped file job is waited for before its call is answered without it (a hung mount).
    pub blocking_grace: Duration,
    /// Lines that `read` returns without a `limit` (protocol section 5).
    pub read_lines: usize,
    /// Bytes that `read` returns without a `limit` (protocol section 5.2: 256 KiB).
    pub read_bytes: usize,
    /// A longer line is clipped by `read` (protocol section 5.2: 64 KiB).
    pub read_line_bytes: usize,
    /// Largest image that `read` returns as a block, before base64.
    pub read_image_bytes: usize,
    /// `read` counts the lines of files up to this size to their end; of a larger one only up to the window.
    pub read_count_bytes: u64,
    /// `read` gives the digest of a wholly returned file up to this size: hashing takes 0.7 ms for a MiB, more than
    /// everything else together, and what is read without a `limit` is never larger.
    pub read_digest_bytes: usize,
    /// Largest file that `read` takes on the call's own thread where all of it is in memory: it takes no longer there
    /// than a look through a command's output, and spares two changes of thread.
    pub read_inline_bytes: u64,
    /// Largest file in memory that `read` takes between two messages of a connection, on the thread of all connections: some
    /// 50 µs.
    pub read_glance_bytes: u64,
    /// How long a command that finds nothing else running is watched on the thread of all connections, which is asked for its
    /// start and what it says until then. The quickest take one or two milliseconds; longer ones do not gain by it.
    pub brief_command: Duration,
    /// Largest UTF-16 file that `read` decodes; it has to be taken whole.
    pub read_utf16_bytes: usize,
    /// Largest file that `edit` takes into memory, and largest that it makes.
    pub edit_bytes: u64,
    /// Replacements that one `edit` makes: each takes memory.
    pub edit_replacements: usize,
    /// Longest that a start looks for temporary files left behind by a killed daemon.
    pub leftovers_time: Duration,
    /// Paths that `glob` returns (protocol section 5.3).
    pub glob_paths: usize,
    /// Matches that `grep` returns (protocol section 5.3).
    pub grep_matches: usize,
    /// Bytes of block 0 that `grep` returns (protocol section 5.3: 256 KiB).
    pub grep_bytes: usize,
    /// Characters of one excerpt of `grep` (protocol section 5.3).
    pub grep_excerpt_chars: usize,
    /// Entries that `list_files` returns (protocol section 5.3).
    pub list_entries: usize,
    /// Matching lines that `grep` counts beyond those it returns; above it the total is "at least" this.
    pub grep_counted: u64,
    /// Entries that a search visits on one thread before it asks for more: starting threads costs more than
    /// a small tree (measured: 0.2 ms serial, 3 ms parallel for 40 entries).
    pub search_serial_entries: u64,
    /// Threads of one search: a shared walk gains nothing beyond a few.
    pub search_threads: usize,
    /// Directories that wait with an open descriptor in one search; deeper trees reopen them.
    pub search_handles: usize,
    /// A file up to this size is searched in one piece, without a rolling buffer.
    pub search_whole_bytes: usize,
    /// Buffer of one search thread for one line, or for one file where a match may span lines.
    /// A longer one is not searched, with a note.
    pub search_line_bytes: usize,
    /// Bytes at the head of a file in which a NUL makes it binary; a later one only ends its search.
    pub search_binary_head: usize,
    /// Largest ignore file taken; the rest of a longer one is not read.
    pub ignore_file_bytes: u64,
    /// Plain patterns that the braces of one glob may stand for.
    pub glob_alternatives: usize,
    /// Paths that a search names in its notes for each reason.
    pub search_named: usize,
    /// Memory of one compiled pattern of `grep`; `a{99999999}` is refused rather than built.
    pub pattern_bytes: usize,
    /// Steps of a pattern (its states times the bytes of the text) that are done without a look at the stop: the
    /// engine takes at most some 10 ns for each, so 200 ms.
    pub pattern_steps: usize,
    /// Patterns that are kept compiled, for all sessions together.
    pub patterns_kept: usize,
    /// A pattern with more states alive at one place of a text is not kept: it may take more than 2 MiB.
    pub pattern_kept_weight: usize,
    /// Memory that one search thread may use to run a pattern faster.
    pub pattern_cache_bytes: usize,
    /// How long a stopped search is waited for before its call is answered without it: only a costly pattern on a
    /// very long line takes that long (protocol section 5.3: within 500 ms).
    pub search_grace: Duration,
    /// Characters of a path, pattern or reason that a note of a search repeats; the rest of a longer one is cut.
    pub quoted_chars: usize,
    /// Time between two progress messages of a search (protocol section 5.3).
    pub search_progress: Duration,
    /// Size of a result beside block 0: envelope, notes and counts.
    pub result_overhead_bytes: usize,
}

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

impl Default for Limits {
    #[expect(clippy::too_many_lines, reason = "one line for each bound")]
    fn default() -> Self {
        Self {
            max_concurrent_calls: 256,
            max_sessions: 1_000,
            max_connections: 256,
            max_handshakes: 64,
            max_inbound_bytes: 16 * MIB,
            default_outbound_bytes: MIB,
            max_outbound_bytes: 64 * MIB,
            fragment_bytes: 256 * KIB,
            socket_buffer_bytes: 64 * KIB,
            socket_read_bytes: 8 * KIB,
            write_batch: 64,
            close_timeout: Duration::from_secs(1),
            control_lane: 1_024,
            progress_lane: 256,
            outbox_bytes: 32 * MIB,
            progress_interval: Duration::from_millis(100),
            progress_bytes: 16 * KIB,
            max_finished_calls: 10_000,
            finished_ttl: Duration::from_mins(10),
            max_remembered_calls: 50_000,
            max_kept_results: 1_000,
            journal_result_bytes: 64 * KIB,
            journal_slack_bytes: 8 * MIB as u64,
            journal_most_bytes: 512 * MIB as u64,
            journal_queue: 4_096,
            result_memory_bytes: 64 * MIB,
            early_cancel_ttl: Duration::from_secs(30),
            max_early_cancels: 1_000,
            session_ttl: Duration::from_mins(10),
            heartbeat: Duration::from_secs(15),
            admin_connections: 16,
            admin_head_bytes: 8 * KIB,
            admin_timeout: Duration::from_secs(3),
            workspace_check: Duration::from_millis(500),
            accept_pause: Duration::from_millis(100),
            redial_first: Duration::from_millis(500),
            redial_most: Duration::from_secs(30),
            established_after: Duration::from_secs(10),
            handshake_timeout: Duration::from_secs(10),
            drain_timeout: Duration::from_secs(2),
            flush_timeout: Duration::from_millis(600),
            kill_grace: Duration::from_secs(2),
            drain_grace: Duration::from_millis(100),
            kill_settle: Duration::from_secs(2),
            bash_timeout: Duration::from_mins(2),
            max_bash_timeout: Duration::from_hours(1),
            bash_preview_bytes: 48 * KIB,
            pipe_chunk_bytes: 64 * KIB,
            spill_waiting_bytes: 256 * KIB,
            spill_call_bytes: 64 * MIB as u64,
            spill_workspace_bytes: 1_024 * MIB as u64,
            max_background: 64,
            login_env_bytes: MIB,
            login_env_patience: Duration::from_secs(10),
            login_env_timeout: Duration::from_secs(1),
            max_blocking_jobs: 4,
            blocking_grace: Duration::from_secs(2),
            read_lines: 2_000,
            read_bytes: 256 * KIB,
            read_line_bytes: 64 * KIB,
            read_image_bytes: 8 * MIB,
            read_count_bytes: 64 * MIB as u64,
            read_digest_bytes: 256 * KIB,
            read_inline_bytes: MIB as u64,
            read_glance_bytes: 64 * KIB as u64,
            brief_command: Duration::from_millis(5),
            read_utf16_bytes: 16 * MIB,
            edit_bytes: 256 * MIB as u64,
            edit_replacements: 1_000_000,
            leftovers_time: Duration::from_secs(5),
            glob_paths: 1_000,
            grep_matches: 500,
            grep_bytes: 256 * KIB,
            grep_excerpt_chars: 500,
            list_entries: 2_000,
            grep_counted: 100_000,
            search_serial_entries: 1_000,
            search_threads: 4,
            search_handles: 32,
            search_whole_bytes: 256 * KIB,
            search_line_bytes: 32 * MIB,
            search_binary_head: 64 * KIB,
            ignore_file_bytes: 256 * KIB as u64,
            glob_alternatives: 256,
            search_named: 20,
            pattern_bytes: 10 * MIB,
            pattern_steps: 20_000_000,
            patterns_kept: 16,
            pattern_kept_weight: 100,
            pattern_cache_bytes: 16 * MIB,
            search_grace: Duration::from_millis(300),
            quoted_chars: 300,
            search_progress: Duration::from_secs(1),
            result_overhead_bytes: 16 * KIB,
        }
    }
}

impl From<&Limits> for AdvertisedLimits {
    fn from(limits: &Limits) -> Self {
        Self {
            max_concurrent_calls: limits.max_concurrent_calls as u64,
            max_sessions: limits.max_sessions as u64,
            max_message_bytes: limits.max_inbound_bytes as u64,
            progress_interval_ms: u64::try_from(limits.progress_interval.as_millis())
                .unwrap_or(u64::MAX),
            result_memory_bytes: limits.result_memory_bytes as u64,
            bash_preview_bytes: limits.bash_preview_bytes as u64,
        }
    }
}
