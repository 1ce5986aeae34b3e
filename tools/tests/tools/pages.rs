//! `docs/tools`: a page for each tool, made from what its `--help` says.

use trine_tools::commands::{Tool, all};
use trine_tools::manual::{PAGES, Page};

fn page(tool: &mut Tool) -> String {
    let name = tool.name.to_owned();
    let help = tool.command().render_long_help().to_string();
    let mut page = format!(
        "# {name}\n\nWhat `{name} --help` says (this page is made from it: `TRINE_WRITE_DOCS=1 cargo test --release --workspace --test tools pages`). Options of\nllama.cpp that are not listed here are accepted with a note or refused with a reason: [migration.md](../migration.md).\n"
    );
    if !tool.short.is_empty() {
        let short = tool.short.iter();
        let short: Vec<String> = short.map(|(s, l)| format!("`{s}` is `{l}`")).collect();
        page += &format!("Short forms of several letters: {}.\n", short.join(", "));
    }
    page += "\n```text\n";
    for line in help.lines() {
        page += line.trim_end();
        page.push('\n');
    }
    page += "```\n";
    page
}

#[test]
fn every_tool_has_a_page_that_says_what_its_help_says() {
    for mut tool in all() {
        let name = tool.name.to_owned();
        let page = page(&mut tool);
        trine_testkit::is_written(&format!("docs/tools/{name}.md"), &page);
        // An example of each tool stands in its help, as people look for one there.
        assert!(help_has_an_example(&page, &name), "{name} --help has no example");
    }
}

/// True if a line of the page is a command line of the tool.
fn help_has_an_example(page: &str, name: &str) -> bool {
    let command = format!("{name} ");
    let mut lines = page.lines().map(str::trim_start);
    lines.any(|line| line.starts_with(&command) && !line.contains("[OPTIONS]"))
}

#[test]
fn manuals_and_completions_have_every_option() {
    for tool in all() {
        let command = tool.command();
        let long: Vec<&str> = command.get_arguments().filter_map(|a| a.get_long()).collect();
        assert!(long.contains(&"man") && long.contains(&"completion-zsh"));
        for page in PAGES {
            let text = String::from_utf8(page.of(&command, tool.short).unwrap()).unwrap();
            for option in &long {
                // The manual has escaped dashes, fish has none.
                let words = [format!("--{option}"), format!("--{option}").replace('-', "\\-"), format!("-l {option}")];
                let name = tool.name;
                assert!(words.iter().any(|w| text.contains(w)), "{name} {page:?}: {option}");
            }
        }
    }
}

#[test]
fn a_manual_keeps_the_lines_of_examples() {
    let tool = trine_tools::commands::rgen();
    let page = Page::Manual.of(&tool.command(), tool.short).unwrap();
    let page = String::from_utf8(page).unwrap();
    assert!(page.contains(".TH rgen 1"), "{page}");
    let (_, examples) = page.split_once(".SH EXAMPLES\n.nf\n").expect("examples");
    let (examples, _) = examples.split_once(".fi\n").expect("their end");
    let fourth = examples.lines().nth(3).expect("an example");
    assert_eq!(fourth, r"  rgen \-m model.gguf \-p \*(AqOnce upon a time\*(Aq \-n 100");
    assert!(page.contains(".SH \"EXIT STATUS\"") && page.contains(".SH \"SHORT FORMS\""));
}
