use super::cell::{Cell, Form};
use super::write::Table;

fn cells(name: &str, number: &str) -> Vec<Cell> {
    vec![
        Cell::left("model", 12, "llama").above(),
        Cell::left("file", 20, name).key().cut_to(8),
        Cell::right("MB", 6, number),
        Cell::right("PPL", 8, number),
        Cell::right("runs", 6, "7").wide_only(),
        Cell::right("KLD", 8, number),
    ]
}

fn shown(form: Form, columns: usize, rows: &[Vec<Cell>]) -> String {
    let mut out = Vec::new();
    let mut table = Table::within(form, columns);
    rows.iter().for_each(|row| table.row(row, &mut out).unwrap());
    table.finish(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn a_wide_table_has_all_cells_side_by_side() {
    let rows = [cells("one.gguf", "1.5"), cells("another.gguf", "2")];
    let text = shown(Form::Markdown, 100, &rows);
    let expected = "\
| model        | file                 |     MB |      PPL |   runs |      KLD |
| ------------ | -------------------- | -----: | -------: | -----: | -------: |
| llama        | one.gguf             |    1.5 |      1.5 |      7 |      1.5 |
| llama        | another.gguf         |      2 |        2 |      7 |        2 |
";
    assert_eq!(text, expected);
    assert_eq!(shown(Form::Markdown, 79, &rows), expected, "it has 79 columns");
    assert_ne!(shown(Form::Markdown, 78, &rows), expected);
}

#[test]
fn a_narrow_table_cuts_names_and_goes_on_below() {
    let mut rows = vec![cells("one.gguf", "1.5"), cells("a-long-name-of-a-file.gguf", "2")];
    let text = shown(Form::Spaces(0), 32, &rows);
    let expected = "\
model llama

file                MB       PPL
one.gguf           1.5       1.5
a-long-…e.gguf       2         2

file                       KLD
one.gguf                   1.5
a-long-nam…file.gguf         2
";
    assert_eq!(text, expected);

    // Another model begins another table, below all of the first.
    rows.push(cells("one.gguf", "3"));
    rows[2][0] = Cell::left("model", 12, "gemma").above();
    let text = shown(Form::Spaces(0), 32, &rows);
    let (first, second) = text.split_once("\nmodel gemma\n\n").unwrap();
    assert_eq!(first.matches("KLD").count(), 1, "{text}");
    assert_eq!(second.matches("KLD").count(), 1, "{text}");
}

#[test]
fn a_terminal_that_is_too_narrow_for_anything_has_a_table_for_each_column() {
    let text = shown(Form::Markdown, 5, &[cells("one.gguf", "1.5")]);
    assert_eq!(text.matches("| one.gguf |").count(), 3, "{text}");
}

#[test]
fn wide_texts_that_are_wanted_whole_stand_below_their_row() {
    let row = [
        Cell::left("name", 4, "a").key(),
        Cell::right("bytes", 5, "7"),
        Cell::left("sha256", 64, "0".repeat(64)).below(),
    ];
    let text = shown(Form::Spaces(2), 40, &[row.to_vec()]);
    assert_eq!(text, format!("  name  bytes\n  a         7\n      sha256 {}\n", "0".repeat(64)));
}
