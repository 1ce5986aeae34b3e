//! Chat templates that overflow what a process can bear.

use std::fs;

use super::kit::*;

#[test]
fn no_template_ends_the_program() {
    let dir = with_model();
    let deep = |sign: &str| format!("{{{{ {}1 }}}}", sign.repeat(200_000));
    let wide = |sign: &str| format!("{{{{ 1{} }}}}", sign.repeat(200_000));
    let nested = |inside: &str| {
        format!("{{% set ns = namespace(a=1) %}}{{% for i in range(99999) %}}{{% set ns.a = {inside} %}}{{% endfor %}}")
    };
    let sources = [
        "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}".to_owned(),
        "{% set ns = namespace() %}{% set ns.a = [ns] %}{{ ns | tojson }}".to_owned(),
        "{% set ns = namespace() %}{% set ns.a = {'x': ns} %}{{ ns ~ '' }}".to_owned(),
        "{% set a = namespace() %}{% set b = namespace(a=a) %}{% set a.b = b %}{{ a == b }}{{ [a] | sort }}".to_owned(),
        deep("not "),
        deep("-"),
        deep("("),
        wide("+1"),
        wide("~'a'"),
        wide("|string"),
        wide(" and 1"),
        wide(".a"),
        wide("[0]"),
        wide(" if 1 else 1"),
        nested("[ns.a]") + "{{ ns.a }}",
        nested("{'a': ns.a}") + "{{ ns.a | tojson }}",
        nested("[ns.a]"),
        format!("{{% if 1 %}}{}{{% endif %}}", "{% elif 0 %}".repeat(80_000)),
    ];
    for source in &sources {
        let head: String = source.chars().take(60).collect();
        fs::write(path(&dir, "template"), source).unwrap();
        let words =
            ["-m", "m.gguf", "-cnv", "-st", "-n", "1", "-p", "x", "--seed", "1", "--chat-template-file", "template"];
        // A minute of a processor, however many others want it.
        let output = run_behind(dir.path(), "ulimit -t 60; exec \"$0\" \"$@\"", RGEN, &words);
        orderly(output.status, &head);
        if !output.status.success() {
            let error = refused(&output);
            assert!(error.len() < 5000, "{head}: {error}");
        }
    }
}
