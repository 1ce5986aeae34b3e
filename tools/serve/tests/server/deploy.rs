//! The files of `deploy/` say what is true.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use clap::CommandFactory;
use trine_serve::args::Args;
use trine_tools::models::takes_value;

use crate::client::get;
use crate::local::start;

fn read(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name);
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// The words of a text that begin so.
fn words<'a>(text: &'a str, start: &str) -> BTreeSet<&'a str> {
    let own = |c: char| c.is_ascii_alphanumeric() || "_:/".contains(c);
    let words = text.split(|c| !own(c));
    words.filter(|w| w.starts_with(start) && w.len() > start.len()).collect()
}

#[test]
fn metrics_and_paths_exist() {
    let local = start(&["--metrics"]);
    let page = get(local.to, "/metrics").text();
    let files = ["helm/prometheus-adapter.yaml", "prometheus-alerts.yml"].map(read);
    assert!(!words(&files[0], "trine:").is_empty(), "the autoscaler has a metric");
    let text = files.concat();
    let names = words(&text, "trine:");
    assert!(names.len() > 3, "{names:?}");
    for name in names {
        let base = name.strip_suffix("_bucket").unwrap_or(name);
        assert!(page.contains(&format!("# TYPE {base} ")), "{name}");
    }
    let text = read("kubernetes.yaml");
    let probes: BTreeSet<&str> =
        text.lines().filter_map(|l| l.split("httpGet: {path: ").nth(1)?.split(',').next()).collect();
    assert_eq!(probes, BTreeSet::from(["/livez", "/readyz"]));
    for path in probes {
        assert_eq!(get(local.to, path).status, 200, "{path}");
    }
}

#[test]
fn options_exist() {
    let command = Args::command();
    let variables = command.get_arguments().filter_map(|a| a.get_env()?.to_str());
    let variables: BTreeSet<&str> = variables.collect();
    // The chart has names that depend on its values, kubernetes.yaml what they are without.
    let text = ["kubernetes.yaml", "helm/rserve/templates/deployment.yaml"].map(read).concat();
    let named = words(&text, "RSERVE_");
    // Options that fetch models are read by themselves.
    let fetches = |name: &str| {
        let option = name.trim_start_matches("RSERVE_").to_ascii_lowercase().replace('_', "-");
        takes_value("rserve", &format!("--{option}")).is_some()
    };
    let strange: Vec<&&str> = named.iter().filter(|name| !variables.contains(**name) && !fetches(name)).collect();
    assert!(named.len() > 4 && strange.is_empty(), "{strange:?}");
    let port = command.get_arguments().find(|a| a.get_id() == "port").expect("a port");
    assert_eq!(port.get_default_values(), ["8080"]);
    assert!(text.contains("containerPort: 8080"));
    let unit = read("rserve.service");
    let line = unit.lines().find_map(|l| l.strip_prefix("ExecStart=")).expect("a command");
    let words: Vec<&str> = line.split(' ').map(|w| w.rsplit('/').next().unwrap_or(w)).collect();
    Args::command().try_get_matches_from(words).expect("options");
}

/// Each program checks its own file, where the machine has it.
#[test]
fn the_programs_take_their_files() {
    let at = |name: &str| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name);
    let checks: [(&str, &[&str], &str); 3] = [
        ("haproxy", &["-c", "-f"], "haproxy.cfg"),
        ("promtool", &["check", "config"], "prometheus.yml"),
        ("promtool", &["check", "rules"], "prometheus-alerts.yml"),
    ];
    for (program, args, file) in checks {
        match Command::new(program).args(args).arg(at(file)).output() {
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                assert!(output.status.success(), "{file}: {said}");
            }
            Err(_) => println!("SKIPPED {file}: there is no {program} here"),
        }
    }
}

/// systemd counts what a service may do that it needs not, from 0 to 10; 1.5 and less is far below its "OK".
#[test]
fn the_unit_may_do_little() {
    let unit = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy/rserve.service");
    let mut analyze = Command::new("systemd-analyze");
    let Ok(output) = analyze.args(["security", "--offline=true", "--threshold=15"]).arg(unit).output() else {
        return trine_testkit::skipped("systemd-analyze is not here");
    };
    let told = String::from_utf8_lossy(&output.stderr);
    if told.contains("unrecognized option") {
        return trine_testkit::skipped("this systemd-analyze reads no files");
    }
    assert!(output.status.success(), "{told}{}", String::from_utf8_lossy(&output.stdout));
}
