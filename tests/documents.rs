//! What is generated from the code in `docs/`: the page of reasons, and the tables of parameters and metrics; and what is
//! quoted from it. A test fails if its document is outdated; to update what is generated: `UPDATE_DOCS=1 cargo test --test
//! documents`.

#![allow(clippy::unwrap_used, missing_docs)]

use std::path::Path;
use std::process::Command;

use serde_json::Value;

const RULES: &str = "deploy/monitoring/rules.yaml";
const RULES_TESTS: &str = "deploy/monitoring/rules_test.yaml";
const DASHBOARD: &str = "deploy/monitoring/dashboard.json";
const BEGIN: &str = "<!-- Generated from the code (tests/documents.rs). Do not edit. -->\n";
/// The same, of the alerts.
const ALERTS_BEGIN: &str = "<!-- Generated from deploy/monitoring/rules.yaml (tests/documents.rs). Do not edit. -->\n";
const END: &str = "<!-- Here it ends. -->\n";

/// What the operator prints by this command.
fn printed(command: &str) -> String {
    let done = Command::new(env!("CARGO_BIN_EXE_aws-s3-provisioner")).arg(command).output().unwrap();
    assert!(done.status.success(), "{command}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

#[test]
fn the_document_of_reasons_matches_the_code() {
    check("docs/reasons.md", |_| printed("reasons"));
}

#[test]
fn the_document_of_parameters_matches_the_code() {
    check("docs/parameters.md", |is| with_table(is, &printed("parameters")));
}

/// A parameter that the operator knows, and no other.
#[test]
fn the_schema_of_the_chart_has_each_class_parameter() {
    let schema: Value = serde_json::from_str(&read("deploy/helm/aws-s3-provisioner/values.schema.json")).unwrap();
    let class = &schema["properties"]["storageClasses"]["items"]["properties"]["parameters"];
    let table = printed("parameters");
    let known: Vec<_> = table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let mut known: Vec<_> = known.into_iter().map(str::to_owned).collect();
    known.sort();
    let mut has: Vec<_> = class["properties"].as_object().unwrap().keys().cloned().collect();
    has.sort();
    assert_eq!((has, &class["additionalProperties"]), (known, &Value::Bool(false)));
}

#[test]
fn the_document_of_metrics_matches_code_and_alerts() {
    check("docs/metrics.md", |is| {
        let is = with_table(is, &printed("metrics"));
        between(&is, ALERTS_BEGIN, &alerts_table())
    });
}

#[test]
fn each_alert_has_a_remedy_and_tests_for_firing_and_not_firing() {
    let tests = read_yaml(RULES_TESTS);
    let expects = |test: &Value, wanted: &dyn Fn(&Value) -> bool| {
        test["promql_expr_test"].as_array().is_some_and(|all| all.iter().any(|one| wanted(&one["exp_samples"])))
    };
    for alert in alerts() {
        let name = alert["alert"].as_str().unwrap_or_default();
        let annotation = |what: &str| alert["annotations"][what].as_str().unwrap_or_default();
        assert!(!annotation("summary").is_empty() && !annotation("description").is_empty(), "{name}");
        assert!(annotation("runbook").starts_with("docs/") && annotation("runbook").contains(".md#"), "{name}");
        let severity = alert["labels"]["severity"].as_str();
        assert!(matches!(severity, Some("critical" | "warning")), "{name}: {severity:?}");
        let fires = |samples: &Value| samples[0]["labels"].as_str().is_some_and(|text| text.contains(&quoted(name)));
        let is_tested = |test: &Value| expects(test, &fires) && expects(test, &Value::is_null);
        assert!(tests["tests"].as_array().is_some_and(|all| all.iter().any(is_tested)), "{name} has no test");
    }
}

#[test]
fn alerts_and_dashboard_use_metrics_and_reasons_that_exist() {
    let (table, reasons) = (printed("metrics"), printed("reasons"));
    let dashboard: Value = serde_json::from_str(&read(DASHBOARD)).unwrap_or_default();
    let rows = dashboard["panels"].as_array().into_iter().flatten();
    let panels = rows.flat_map(|row| [row].into_iter().chain(row["panels"].as_array().into_iter().flatten()));
    let queries = panels.filter_map(|panel| panel["targets"].as_array()).flatten();
    let rules = alerts();
    let all: Vec<_> = queries.chain(&rules).filter_map(|query| query["expr"].as_str()).collect();
    assert!(all.len() > 60, "{}", all.len());
    let words = |text: &str| -> Vec<String> {
        text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').map(str::to_owned).collect()
    };
    for word in all.iter().flat_map(|expr| words(expr)).filter(|word| is_metric(word)) {
        let base = ["_bucket", "_count"].iter().find_map(|end| word.strip_suffix(end)).unwrap_or(&word);
        assert!(table.contains(&format!("| `{base}` |")), "no metric is called {word}");
    }
    for expr in all.iter().filter(|expr| expr.contains("reason")) {
        let listed = expr.split('"').skip(1).step_by(2).filter(|text| *text != ".*" && !text.starts_with('$'));
        for reason in listed.flat_map(|text| text.split('|')).filter(|text| text.starts_with(char::is_uppercase)) {
            let is_known =
                reasons.contains(&format!("\n### {reason}\n")) || expr.contains(&format!("phase=\"{reason}"));
            assert!(is_known || expr.contains(&format!("phase!=\"{reason}")), "no reason is called {reason}");
        }
    }
}

fn is_metric(word: &str) -> bool {
    ["obc_provisioner_", "provisioner_", "process_", "controller_"].iter().any(|begin| word.starts_with(begin))
}

fn quoted(text: &str) -> String {
    format!("\"{text}\"")
}

/// The alerts, as they are in the file of rules.
fn alerts() -> Vec<Value> {
    let groups = read_yaml(RULES)["groups"].as_array().cloned().unwrap_or_default();
    groups.iter().filter_map(|group| group["rules"].as_array()).flatten().cloned().collect()
}

/// What people have to know of them, without what differs each time.
fn alerts_table() -> String {
    let mut text = "| alert | severity | after | meaning and remedy |\n|---|---|---|---|\n".to_owned();
    for alert in alerts() {
        let plain = |value: &Value| without_templates(value.as_str().unwrap_or_default());
        let (name, severity, after) =
            (plain(&alert["alert"]), plain(&alert["labels"]["severity"]), plain(&alert["for"]));
        let annotations = &alert["annotations"];
        let runbook = annotations["runbook"].as_str().unwrap_or_default();
        // The page of reasons has the rest.
        let more = match runbook.strip_prefix("docs/reasons.md#") {
            Some(reason) if reason.contains("{{") => "[Reasons](reasons.md)".to_owned(),
            Some(reason) => format!("[Reason](reasons.md#{reason})"),
            None => plain(&annotations["description"]),
        };
        text += &format!("| {name} | {severity} | {after} | {}. {more} |\n", plain(&annotations["summary"]));
    }
    text
}

/// `{{ $labels.reason }}` becomes *reason*, and `{{ $value }}` becomes *n*.
fn without_templates(text: &str) -> String {
    let mut parts = text.split("{{");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (template, rest) = part.split_once("}}").unwrap_or_default();
        let label = template.split_whitespace().find_map(|word| word.strip_prefix("$labels."));
        plain += &format!("*{}*{rest}", label.unwrap_or("n"));
    }
    plain
}

fn read_yaml(file: &str) -> Value {
    serde_saphyr::from_str(&read(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn read(file: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap_or_default()
}

/// So it is compiled, and passes the conformance kit.
#[test]
fn the_code_of_the_tutorial_is_that_of_the_example() {
    let example = ["main.rs", "client.rs", "tests/conformance.rs"]
        .map(|file| read(&format!("examples/http-provisioner/{file}")))
        .concat();
    let tutorial = read("docs/writing-a-provisioner.md");
    let blocks: Vec<_> = tutorial.split("```rust\n").skip(1).filter_map(|rest| rest.split_once("```\n")).collect();
    assert!(blocks.len() >= 10, "{} blocks of code", blocks.len());
    for (block, _) in blocks {
        assert!(example.contains(block), "not in examples/http-provisioner:\n{block}");
    }
}

fn with_table(is: &str, table: &str) -> String {
    between(is, BEGIN, table)
}

fn between(is: &str, begin: &str, table: &str) -> String {
    let parts = is.split_once(begin).and_then(|(head, rest)| Some((head, rest.split_once(END)?)));
    let Some((head, (_, tail))) = parts else { panic!("there is no place for the table") };
    format!("{head}{begin}\n{table}\n{END}{tail}")
}

fn check(document: &str, wanted: impl FnOnce(&str) -> String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(document);
    let is = std::fs::read_to_string(&path).unwrap_or_default();
    let should_be = wanted(&is);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &should_be).ok();
        return;
    }
    assert!(is == should_be, "to update {document}: UPDATE_DOCS=1 cargo test --test documents");
}
