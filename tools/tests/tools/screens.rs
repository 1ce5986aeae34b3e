//! The screen when a tool has ended: results whole, and nothing left of bars.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::Stdio;

use nix::pty::{Winsize, openpty};
use trine_testkit::{folder, tool, trilm, wikitext};

/// The output that a tool sends to a terminal of `columns` columns.
fn sent(dir: &Path, program: &str, args: &[&str], columns: u16) -> String {
    let size = Winsize { ws_row: 50, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    let pty = openpty(Some(&size), None).unwrap();
    let stdio = || Stdio::from(pty.slave.try_clone().unwrap());
    let mut command = tool::command(program);
    command.current_dir(dir).args(args).env("TERM", "xterm");
    command.stdin(Stdio::null()).stdout(stdio()).stderr(stdio());
    let mut child = command.spawn().unwrap();
    drop((command, pty.slave));
    let mut bytes = Vec::new();
    // The end of the last program in the terminal is an error of reading.
    let _ = File::from(pty.master).read_to_end(&mut bytes);
    assert!(child.wait().unwrap().success());
    String::from_utf8(bytes).unwrap()
}

/// The lines of the screen, as a terminal of `columns` columns makes them.
fn screen(sent: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![Vec::new()];
    let (mut row, mut column) = (0, 0);
    let mut rest = sent.chars();
    while let Some(c) = rest.next() {
        match c {
            '\r' => column = 0,
            '\n' => (row, column) = (row + 1, 0),
            '\x1b' => {
                assert_eq!(rest.next(), Some('['));
                let mut number = String::new();
                let what = rest.by_ref().find(|c| match c.is_ascii_alphabetic() {
                    true => true,
                    false => {
                        number.push(*c);
                        false
                    }
                });
                let n = number.parse().unwrap_or(1);
                match what.unwrap() {
                    'A' => row -= n,
                    'B' => row += n,
                    'K' if number == "2" => lines[row].clear(),
                    'K' => lines[row].truncate(column),
                    'J' => lines.truncate(row + 1),
                    'm' | 'h' | 'l' => {}
                    other => panic!("what does {number}{other} do?"),
                }
            }
            c => {
                if column == columns {
                    (row, column) = (row + 1, 0);
                }
                lines.resize(lines.len().max(row + 1), Vec::new());
                let width = lines[row].len().max(column + 1);
                lines[row].resize(width, ' ');
                lines[row][column] = c;
                column += 1;
            }
        }
        lines.resize(lines.len().max(row + 1), Vec::new());
    }
    lines.iter().map(|line| line.iter().collect()).collect()
}

#[test]
fn bars_erase_no_results_and_leave_nothing() {
    let dir = folder();
    let (model, text) = (trilm(), wikitext());
    let (model, text) = (model.to_str().unwrap(), text.to_str().unwrap());
    let chunks = ["-m", model, "-f", text, "-c", "64", "--chunks", "6"];
    let runs: [(&str, Vec<&str>, &str); 5] = [
        (env!("CARGO_BIN_EXE_rperplexity"), chunks.to_vec(), "[6]"),
        (env!("CARGO_BIN_EXE_rperplexity"), [&chunks[..], &["--ppl-output-type", "1"]].concat(), "     320  "),
        (env!("CARGO_BIN_EXE_rimatrix"), [&chunks[..], &["-o", "i.gguf"]].concat(), "[6]"),
        (env!("CARGO_BIN_EXE_rquantize"), vec!["-v", model, "q.gguf", "Q4_K_M"], "output_norm.weight"),
        (env!("CARGO_BIN_EXE_rimatrix"), [&chunks[..], &["--no-ppl", "-o", "n.gguf"]].concat(), "n.gguf: "),
    ];
    for (program, args, last) in &runs {
        for columns in [44, 160] {
            let sent = sent(dir.path(), program, args, columns);
            let shown = screen(&sent, columns.into());
            let whole = shown.concat();
            assert!(whole.contains(last), "{args:?}: {shown:#?}");
            assert!(!whole.contains(['░', '█']), "{args:?}: {shown:#?}");
            // All that is on the screen without a terminal is on it here, one after the other.
            if *last == "[6]" {
                let values = whole.split_once("[1]").unwrap().1;
                assert!((2..=6).all(|i| values.contains(&format!(",[{i}]"))), "{shown:#?}");
            }
        }
    }
}

#[test]
fn rates_have_units() {
    let dir = folder();
    let (model, text) = (trilm(), wikitext());
    let args = ["-m", model.to_str().unwrap(), "-f", text.to_str().unwrap()];
    let more = ["-c", "64", "--chunks", "40", "--no-ppl", "-o", "i.gguf"];
    let program = env!("CARGO_BIN_EXE_rimatrix");
    let sent = sent(dir.path(), program, &[&args[..], &more].concat(), 160);
    assert!(sent.contains(" tokens/s, ETA "), "{sent:?}");
}

#[test]
fn tables_are_as_wide_as_the_terminal() {
    let dir = folder();
    let words = "--synthetic llama:tiny:Q8_0 -p 4 -n 0 -r 1 -t 1".split(' ').collect::<Vec<_>>();
    let table = |columns: u16| {
        screen(&sent(dir.path(), env!("CARGO_BIN_EXE_rbench"), &words, columns), columns.into()).join("\n")
    };
    let wide = table(160);
    assert!(wide.contains("| model  ") && wide.contains(" | threads | "), "{wide}");
    let narrow = table(60);
    assert!(narrow.contains("model llama 1M Q8_0, size ") && narrow.contains("\n|           test |"), "{narrow}");
}
