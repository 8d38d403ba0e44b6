//! What `deploy/` says, held against what the daemon does: times, ports, places, rights, and where the key comes from.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use bma_executor::limits::Limits;
use serde_json::Value;

use crate::support::binary::{BINARY, command, run, start_scratch, start_server_by};
use crate::support::wrapped::command_through;

/// How long the guardian may go on after the daemon to end what it left.
const GUARDIAN: Duration = Duration::from_secs(3);

fn deploy(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("deploy")
        .join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The longest orderly stop with the default bounds.
fn longest_stop() -> Duration {
    let limits = Limits::default();
    limits.drain_timeout
        + limits.kill_grace
        + limits.flush_timeout
        + limits.close_timeout
        + GUARDIAN
}

/// The values of a key of the unit.
fn values<'a>(unit: &'a str, key: &str) -> Vec<&'a str> {
    let lines = unit.lines().filter_map(|line| line.split_once('='));
    lines
        .filter(|(name, _)| *name == key)
        .map(|(_, value)| value)
        .collect()
}

fn seconds(text: &str) -> Duration {
    Duration::from_secs(text.trim_end_matches('s').parse().unwrap())
}

#[test]
fn systemd_s_own_check_finds_nothing_in_the_unit() {
    if Command::new("systemd-analyze")
        .arg("--version")
        .output()
        .is_err()
    {
        println!("not run: systemd-analyze is not installed");
        return;
    }
    let scratch = start_scratch();
    let unit = scratch.path().join("bma-executor.service");
    let text = deploy("bma-executor.service").replace("/usr/local/bin/bma-executor", BINARY);
    fs::write(&unit, text).unwrap();
    let checked = run(Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .arg(&unit));
    // It looks at the units of this machine as well, which are not ours to judge.
    let found: Vec<&str> = checked
        .stderr
        .lines()
        .filter(|line| line.contains("bma-executor"))
        .collect();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn the_unit_fits_the_guardian_the_watchdog_and_the_stop() {
    let unit = deploy("bma-executor.service");
    let one = |key: &str| -> &str {
        let found = values(&unit, key);
        assert_eq!(found.len(), 1, "{key}: {found:?}");
        found[0]
    };
    for (key, value) in [
        ("Type", "notify"),
        // Commands share the control group: they must not be able to speak for the daemon.
        ("NotifyAccess", "main"),
        // The guardian hands TERM on; commands get the daemon's own order of ending.
        ("KillMode", "mixed"),
        // A command that runs out of memory is not the daemon's end.
        ("OOMPolicy", "continue"),
        ("NoNewPrivileges", "yes"),
        ("RestartPreventExitStatus", "2"),
        ("LoadCredential", "key:/etc/bma-executor/key"),
        ("ExecReload", "/bin/kill -HUP $MAINPID"),
    ] {
        assert_eq!(one(key), value, "{key}");
    }
    assert!(
        seconds(one("TimeoutStopSec")) > longest_stop(),
        "{:?}",
        longest_stop()
    );
    assert!(seconds(one("WatchdogSec")) >= Duration::from_secs(10));
    assert!(
        values(&unit, "Environment").is_empty(),
        "anybody may read these"
    );
}

/// Replaces the places and ports of a deployment by such as a test may have.
fn here(text: &str, scratch: &Path) -> String {
    let place = |name: &str| scratch.join(name).to_str().unwrap().to_owned();
    let text = text.replace("/var/lib/bma-executor/workspace", &place("ws"));
    let text = text.replace("/var/lib/bma-executor/state", &place("own-state"));
    let text = text.replace("/var/lib/bma-executor", &place("own-state"));
    let text = text
        .replace("/workspace", &place("ws"))
        .replace("%d/key", &place("key"));
    text.replace(":8787", ":0").replace(":8788", ":0")
}

#[test]
fn the_unit_s_command_line_starts_a_daemon() {
    let scratch = start_scratch();
    fs::write(scratch.path().join("key"), "a-key-of-sixteen-and-more\n").unwrap();
    let unit = deploy("bma-executor.service");
    let line = here(values(&unit, "ExecStart")[0], scratch.path());
    let arguments: Vec<&str> = line.split(' ').skip(1).collect();
    let mut command = command_through(BINARY, &arguments, scratch.path());
    command.env_remove("HOME").env_remove("XDG_STATE_HOME");
    let _server = start_server_by(scratch, command);
}

/// The documents of the Kubernetes manifests that `kustomization.yaml` lists.
fn manifests() -> Vec<Value> {
    let list: Value = serde_saphyr::from_str(&deploy("kubernetes/kustomization.yaml")).unwrap();
    let names = list["resources"].as_array().unwrap().iter();
    names
        .map(|name| deploy(&format!("kubernetes/{}", name.as_str().unwrap())))
        .map(|text| serde_saphyr::from_str(&text).unwrap())
        .collect()
}

fn manifest<'a>(all: &'a [Value], kind: &str) -> &'a Value {
    all.iter()
        .find(|one| one["kind"] == kind)
        .unwrap_or_else(|| panic!("there is no {kind}"))
}

#[test]
fn the_stateful_set_gives_the_stop_its_time_and_commands_no_rights() {
    let all = manifests();
    let pod = &manifest(&all, "StatefulSet")["spec"]["template"]["spec"];
    let grace = Duration::from_secs(pod["terminationGracePeriodSeconds"].as_u64().unwrap());
    assert!(
        grace > longest_stop(),
        "{grace:?} is less than {:?}",
        longest_stop()
    );
    assert_eq!(pod["automountServiceAccountToken"], false);
    assert_eq!(pod["enableServiceLinks"], false);
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(
        pod["securityContext"]["seccompProfile"]["type"],
        "RuntimeDefault"
    );
    let container = &pod["containers"][0];
    let rights = &container["securityContext"];
    assert_eq!(rights["allowPrivilegeEscalation"], false);
    assert_eq!(rights["readOnlyRootFilesystem"], true);
    assert_eq!(rights["capabilities"]["drop"], serde_json::json!(["ALL"]));
    for (probe, path) in [
        ("startupProbe", "/livez"),
        ("livenessProbe", "/livez"),
        ("readinessProbe", "/readyz"),
    ] {
        assert_eq!(container[probe]["httpGet"]["path"], path, "{probe}");
        assert_eq!(container[probe]["httpGet"]["port"], "admin", "{probe}");
    }
    // With a read-only root, whatever is written to needs a mount.
    let mounts: Vec<&str> = container["volumeMounts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|mount| mount["mountPath"].as_str().unwrap())
        .collect();
    for path in ["/workspace", "/var/lib/bma-executor", "/tmp", "/home/agent"] {
        assert!(mounts.contains(&path), "{path} is not mounted: {mounts:?}");
    }
    assert_eq!(
        container["resources"]["limits"]["memory"]
            .as_str()
            .map(str::is_empty),
        Some(false)
    );
}

/// The variables of the container, as names and values.
fn variables(all: &[Value]) -> Vec<(String, Value)> {
    let pod = &manifest(all, "StatefulSet")["spec"]["template"]["spec"];
    let list = pod["containers"][0]["env"].as_array().unwrap().iter();
    list.map(|one| (one["name"].as_str().unwrap().to_owned(), one.clone()))
        .collect()
}

#[test]
fn the_key_is_never_written_down_and_the_ports_agree() {
    let all = manifests();
    let variables = variables(&all);
    let (_, key) = variables
        .iter()
        .find(|(name, _)| name == "BMA_ENVIRONMENT_KEY")
        .unwrap();
    assert!(
        key["value"].is_null() && key["valueFrom"]["secretKeyRef"]["name"].is_string(),
        "{key}"
    );
    assert!(
        all.iter().all(|one| one["kind"] != "Secret"),
        "a secret is in the repository"
    );
    let value = |name: &str| -> &str {
        let found = variables.iter().find(|(other, _)| other == name);
        found.unwrap_or_else(|| panic!("{name} is not set")).1["value"]
            .as_str()
            .unwrap()
    };
    let pod = &manifest(&all, "StatefulSet")["spec"]["template"]["spec"];
    let port = |name: &str| -> u64 {
        let list = pod["containers"][0]["ports"].as_array().unwrap();
        list.iter().find(|port| port["name"] == name).unwrap()["containerPort"]
            .as_u64()
            .unwrap()
    };
    let (harness, admin) = (port("harness"), port("admin"));
    assert_eq!(value("BMA_EXECUTOR_LISTEN"), format!("0.0.0.0:{harness}"));
    assert_eq!(
        value("BMA_EXECUTOR_ADMIN_LISTEN"),
        format!("0.0.0.0:{admin}")
    );
    let service = &manifest(&all, "Service")["spec"];
    assert_eq!(service["ports"][0]["port"], harness);
    assert_eq!(
        service["clusterIP"], "None",
        "any executor would answer for any workspace"
    );
    let policy = &manifest(&all, "NetworkPolicy")["spec"];
    assert_eq!(
        policy["policyTypes"],
        serde_json::json!(["Ingress", "Egress"])
    );
    let open: Vec<&Value> = policy["ingress"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rule| &rule["ports"][0]["port"])
        .collect();
    assert_eq!(open, [&Value::from(harness), &Value::from(admin)]);
    for rule in policy["ingress"].as_array().unwrap() {
        assert!(rule["from"].is_array(), "anybody may come in by {rule}");
    }
    let labels = &manifest(&all, "StatefulSet")["spec"]["template"]["metadata"]["labels"];
    for selector in [
        &service["selector"],
        &policy["podSelector"]["matchLabels"],
        &manifest(&all, "StatefulSet")["spec"]["selector"]["matchLabels"],
    ] {
        assert_eq!(selector, labels);
    }
}

/// Starts the daemon by variables alone, as a container does.
#[track_caller]
fn check_variables_start_a_daemon(variables: &[(String, String)]) {
    let scratch = start_scratch();
    let mut command = command_through(BINARY, &["serve"], scratch.path());
    command
        .env_remove("XDG_STATE_HOME")
        .env("BMA_ENVIRONMENT_KEY", "a-key-of-sixteen-and-more");
    for (name, value) in variables {
        command.env(name, here(value, scratch.path()));
    }
    let _server = start_server_by(scratch, command);
}

#[test]
fn the_stateful_set_s_variables_start_a_daemon() {
    let own = variables(&manifests()).into_iter();
    let own = own.filter_map(|(name, one)| Some((name, one["value"].as_str()?.to_owned())));
    check_variables_start_a_daemon(&own.collect::<Vec<_>>());
}

/// The instructions of the Dockerfile, each on one line.
fn instructions() -> Vec<String> {
    let text = deploy("Dockerfile").replace("\\\n", " ");
    let lines = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect()
}

#[test]
fn the_image_s_variables_start_a_daemon() {
    let all = instructions();
    let own = all
        .iter()
        .filter_map(|line| line.strip_prefix("ENV "))
        .flat_map(|line| line.split(' '));
    let own = own.map(|pair| pair.split_once('=').unwrap());
    check_variables_start_a_daemon(
        &own.map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect::<Vec<_>>(),
    );
}

#[test]
fn the_image_is_pinned_without_rights_and_without_secrets() {
    let all = instructions();
    let of = |name: &str| -> Vec<&str> {
        all.iter()
            .filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
            .collect()
    };
    for base in of("ARG")
        .iter()
        .filter_map(|line| line.split_once("_IMAGE="))
    {
        let (_, tag) = base
            .1
            .split_once(':')
            .unwrap_or_else(|| panic!("{base:?} has no version"));
        assert!(
            tag.contains('.') && tag.contains("slim"),
            "{base:?} is not pinned"
        );
    }
    assert_eq!(of("USER"), ["10001:10001"]);
    assert_eq!(of("ENTRYPOINT"), [r#"["bma-executor"]"#]);
    assert_eq!(of("CMD"), [r#"["serve"]"#]);
    assert_eq!(of("STOPSIGNAL"), ["SIGTERM"]);
    assert!(of("HEALTHCHECK")[0].ends_with(r#"CMD ["bma-executor", "healthcheck"]"#));
    assert!(
        of("RUN")
            .iter()
            .filter(|line| line.contains("cargo build"))
            .all(|line| line.contains("--locked"))
    );
    for line in of("ARG").into_iter().chain(of("ENV")) {
        for word in ["KEY", "TOKEN", "SECRET", "PASSWORD"] {
            assert!(
                !line.to_uppercase().contains(word),
                "a secret in a layer: {line}"
            );
        }
    }
    // Docker kills after 10 s.
    assert!(longest_stop() < Duration::from_secs(10));
}

#[test]
fn the_image_takes_what_the_build_needs_and_nothing_else() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let ignore = deploy("Dockerfile.dockerignore");
    let let_in: Vec<&str> = ignore
        .lines()
        .filter_map(|line| line.strip_prefix('!'))
        .collect();
    assert!(
        ignore.lines().any(|line| line == "*"),
        "everything else is left out"
    );
    for line in instructions() {
        let Some(copied) = line
            .strip_prefix("COPY ")
            .filter(|line| !line.starts_with("--from"))
        else {
            continue;
        };
        let mut names: Vec<&str> = copied.split(' ').collect();
        names.pop();
        for name in names {
            assert!(let_in.contains(&name), "`{name}` is copied but not let in");
            assert!(
                root.join(name).exists(),
                "`{name}` is copied but does not exist"
            );
        }
    }
}

#[test]
fn a_health_check_by_the_image_s_variables_asks_its_own_admin_port() {
    let scratch = start_scratch();
    let asked = run(command(scratch.path())
        .args(["healthcheck"])
        .env("BMA_EXECUTOR_LISTEN", "0.0.0.0:1")
        .env("BMA_EXECUTOR_ADMIN_LISTEN", "127.0.0.1:1"));
    assert_eq!(asked.code, 1, "{}", asked.stderr);
    assert!(asked.stderr.contains("127.0.0.1:1"), "{}", asked.stderr);
}
