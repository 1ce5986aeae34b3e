//! Texts that grammars allow, on the vocabulary of the bundled model.

use serde_json::{Value, json};
use trine::grammar::{Grammar, GrammarError, Vocabulary};
use trine::{Model, Tokenizer};

fn model() -> Model {
    trine::open("testdata/models/trilm-wt-5.8m-F16.gguf").expect("the bundled model")
}

/// The longest tokens that `text` begins with, one after another.
fn tokens(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    let mut rest = text.as_bytes();
    let mut out = Vec::new();
    while !rest.is_empty() {
        let ids = 0..tokenizer.n_vocab() as u32;
        let fits = ids.filter(|&id| {
            let piece = tokenizer.piece(id, false);
            !piece.is_empty() && rest.starts_with(&piece)
        });
        let id = fits.max_by_key(|&id| (tokenizer.piece(id, false).len(), id));
        let id = id.expect("a token for every byte");
        rest = &rest[tokenizer.piece(id, false).len()..];
        out.push(id);
    }
    out
}

/// True if a text is a beginning that the grammar allows, and if it may end there.
fn follow(grammar: &Grammar, tokenizer: &Tokenizer, text: &str) -> (bool, bool) {
    let mut matcher = grammar.matcher();
    for id in tokens(tokenizer, text) {
        if !matcher.allowed().expect("a mask").token(id) {
            return (false, false);
        }
        matcher.accept(id).expect("an allowed token");
    }
    (true, matcher.allowed().expect("a mask").end())
}

/// Texts that the grammar allows from their beginning to their end, and texts that it does not.
#[track_caller]
fn check(grammar: &Grammar, tokenizer: &Tokenizer, whole: &[&str], not: &[&str]) {
    for text in whole {
        assert_eq!(follow(grammar, tokenizer, text), (true, true), "{text:?}");
    }
    for text in not {
        assert_ne!(follow(grammar, tokenizer, text), (true, true), "{text:?}");
    }
}

#[test]
fn a_schema_describes_json() {
    let model = model();
    let t = model.tokenizer();
    let v = Vocabulary::new(t).expect("a vocabulary");
    let schema = json!({
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 150}},
        "required": ["name", "age"],
        "additionalProperties": false,
    });
    let grammar = Grammar::json_schema(&v, &schema).expect("a grammar");
    check(
        &grammar,
        t,
        &[r#"{"name": "Ada", "age": 36}"#, r#"{"name":"","age":0}"#, r#"{"name": "naïve € \n", "age": 150}"#],
        &[
            "",
            "{",
            "[]",
            r#"{"name": "Ada"}"#,
            r#"{"name": "Ada", "age": 151}"#,
            r#"{"name": "Ada",  "age": 36}"#,
            r#"{"name": "Ada", "age": 36, "x": 1}"#,
            "{\n\"name\": \"Ada\", \"age\": 36}",
        ],
    );
    let grammar = Grammar::json_object(&v).expect("a grammar");
    check(
        &grammar,
        t,
        &["{}", r#"{"a": [1, 2.5e3, null, true, {"b": "c"}]}"#],
        &["[]", "1", r#"{"a": }"#, r#"{"a": 1"#],
    );
}

/// Expected: what llama.cpp makes of them, whose documents have the second.
#[test]
fn a_schema_without_a_type_is_of_the_one_that_its_keywords_are_for() {
    let model = model();
    let t = model.tokenizer();
    let v = Vocabulary::new(t).expect("a vocabulary");
    let all = ["{}", "[]", r#""ab""#, "1"];
    for (schema, fits) in [
        (json!({"properties": {"a": {"type": "integer"}}}), "{}"),
        (json!({"items": {"type": "string"}}), "[]"),
        (json!({"pattern": "^a"}), r#""ab""#),
        (json!({"$ref": "#/$defs/x", "$defs": {"x": {"items": {}}}}), "[]"),
        (json!({"anyOf": [{"prefixItems": [{"type": "integer"}]}]}), "[]"),
    ] {
        let grammar = Grammar::json_schema(&v, &schema).expect("a grammar");
        let not: Vec<&str> = all.into_iter().filter(|text| *text != fits).collect();
        check(&grammar, t, &[fits], &not);
    }
    // Without such keywords it is any value; and what a key is called is not what a schema says.
    let any = Grammar::json_schema(&v, &json!({"minItems": 0})).expect("a grammar");
    check(&any, t, &all, &[]);
    let named = json!({"type": "object", "properties": {"items": {"type": "integer"}}});
    let named = Grammar::json_schema(&v, &named).expect("a grammar");
    check(&named, t, &[r#"{"items": 3}"#], &[r#"{"items": []}"#]);
}

#[test]
fn schemas_that_cannot_be_enforced_are_refused() {
    let v = Vocabulary::new(model().tokenizer()).expect("a vocabulary");
    let deep = (0..100).fold(json!({}), |s, _| json!({"anyOf": [s, {"type": "null"}]}));
    for schema in [
        json!({"type": "bird"}),
        json!({"type": "array", "uniqueItems": true}),
        json!({"$ref": "https://example.com/schema"}),
        json!({"$ref": "#/definitions/missing"}),
        json!({"type": "string", "pattern": "(a"}),
        json!([1]),
        json!("x".repeat(256 << 10)),
        // A state for every remainder, and an object with too many members.
        json!({"type": "integer", "multipleOf": 2_147_483_648_u32}),
        json!({"anyOf": [{"type": "number", "multipleOf": 0.1234567}]}),
        json!({"type": "object", "properties": (0..1100).map(|i| (format!("p{i}"), json!({}))).collect::<Value>()}),
        // Numbers that would be written as the next one of double precision.
        json!({"const": 9_007_199_254_740_993_u64}),
        json!({"properties": {"a": {"enum": ["a", [{"b": -9_007_199_254_740_993_i64}]]}}}),
        json!({"anyOf": [{"const": u64::MAX}]}),
        json!({"const": 1e30}),
    ] {
        let text: String = schema.to_string().chars().take(80).collect();
        let e = Grammar::json_schema(&v, &schema).expect_err(&text);
        assert!(!e.to_string().contains('\n'), "{e}");
    }
    // These are slow or deep for others; here they are followed.
    for schema in [
        json!({"type": "integer", "multipleOf": 65536}),
        json!({"type": "number", "multipleOf": 0.01}),
        json!({"enum": [{"multipleOf": 9_999_999}]}),
        json!({"type": "string", "pattern": "^(a+)+b$"}),
        json!({"type": "array", "minItems": 1_000_000_000}),
        json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "type": "object"}),
        deep,
    ] {
        Grammar::json_schema(&v, &schema).expect("a grammar");
    }
}

/// The crate computes in double precision: nothing beyond what was asked for may be written for that.
#[test]
fn long_numbers_stay_within_their_bounds() {
    let model = model();
    let (t, v) = (model.tokenizer(), Vocabulary::new(model.tokenizer()).expect("a vocabulary"));
    let between = |low: Value, high: Value| {
        let schema = json!({"type": "object", "properties": {"maximum": {"type": "integer", "minimum": low, "maximum": high}},
            "required": ["maximum"], "additionalProperties": false});
        Grammar::json_schema(&v, &schema).expect("a grammar")
    };
    let text = |n: &str| format!("{{\"maximum\": {n}}}");
    for (low, high, fits, not) in [
        (json!(0), json!(9_007_199_254_740_993_u64), "9007199254740992", "9007199254740994"),
        (json!(-9_007_199_254_740_993_i64), json!(0), "-9007199254740992", "-9007199254740994"),
        (json!(0), json!(i64::MAX), "9223372036854774784", "9223372036854775808"),
        (json!(0), json!(12), "12", "13"),
    ] {
        check(&between(low, high), t, &[&text(fits)], &[&text(not)]);
    }
    let kept = Grammar::json_schema(&v, &json!({"const": 9_007_199_254_740_992_u64})).expect("a grammar");
    check(&kept, t, &["9007199254740992"], &["9007199254740993"]);
}

#[test]
fn gbnf_describes_texts() {
    let model = model();
    let t = model.tokenizer();
    let v = Vocabulary::new(t).expect("a vocabulary");
    let gbnf = |source: &str| Grammar::gbnf(&v, source).expect(source);
    check(&gbnf(r#"root ::= "yes" | "no" [!.]*"#), t, &["yes", "no", "no!.!"], &["", "ye", "yes!", "maybe"]);
    check(
        &gbnf("root ::= item{2,3} # some\nitem ::= [a-c] \"-\"?\n"),
        t,
        &["ab", "a-b", "a-b-c-"],
        &["a", "abca", "d"],
    );
    check(&gbnf(r#"root ::= [^"\x41-\x43\n]+ "\u20ac" ."#), t, &["xyz€\n", "€€€"], &["A€.", "xyz€", "\"€."]);
    // Rules that contain themselves.
    let arithmetic = "root ::= sum\nsum ::= term (\" + \" term)*\nterm ::= [0-9]+ | \"(\" sum \")\"";
    check(&gbnf(arithmetic), t, &["1", "12 + (3 + 4)", "((7))"], &["", "1 +", "(1", "1)"]);
    // A member that may be empty, and an alternative that is.
    check(
        &gbnf("root ::= ws pair ws\npair ::= \"[\" (pair | ) \"]\"\nws ::= [ ]*"),
        t,
        &["[]", " [[]] ", "[[[]]]"],
        &["", "[", "[]]"],
    );
}

#[test]
fn gbnf_that_is_not_well_formed_is_refused_with_its_line() {
    let v = Vocabulary::new(model().tokenizer()).expect("a vocabulary");
    for (source, line) in [
        ("root := \"a\"", 1),
        ("root ::= \"a\n", 1),
        ("root ::= a\n\nb ::= [", 3),
        ("root ::= b", 1),
        ("root ::= [b-a]", 1),
        ("root ::= *", 1),
        ("root ::= \"a\"{3,2}", 1),
        ("root ::= \"a\"{9999}", 1),
        ("root ::= \"\\q\"", 1),
        ("root ::= \"a\" )", 1),
        ("root ::= <think>", 1),
        ("# one\nroot ::= \"a\" extra ::= \"b\"", 2),
    ] {
        let e = Grammar::gbnf(&v, source).expect_err(source);
        assert!(matches!(&e, GrammarError::Syntax { line: l, .. } if *l == line), "{source:?}: {e}");
    }
    let deep = format!("root ::= {}\"a\"{}", "(".repeat(40), ")".repeat(40));
    assert!(Grammar::gbnf(&v, &deep).is_err());
    assert!(Grammar::gbnf(&v, "toor ::= \"a\"").is_err());
    let marks = |n: usize| format!("root ::= \"a\"{}", "?".repeat(n));
    assert!(Grammar::gbnf(&v, &marks(4)).is_ok());
    let row = |part: &str, n: usize| format!("root ::= {}", [part].repeat(n).join(" "));
    let twice: String = (1..41).map(|i| format!("r{i} ::= r{0} r{0}\n", i - 1)).collect();
    for (source, why) in [
        (marks(100_000), "more than 4 repetitions of repetitions"),
        (row("\"a\"?", 20_000), "more than 2048 parts"),
        (row("[a-z]*", 20_000), "more than 2048 parts"),
        (row(".?", 20_000), "more than 2048 parts"),
        (format!("root ::= r40\nr0 ::= \"a\"\n{twice}"), "more than 2048 parts"),
        ("r ::= \"a\"\n".repeat(20_000) + &twice.repeat(60), "there is no rule"),
        ((0..10_000).map(|i| format!("r{i} ::= \"a\"\n")).collect(), "more than 512 rules"),
    ] {
        let e = Grammar::gbnf(&v, &source).expect_err(why);
        assert!(e.to_string().contains(why), "{why}: {e}");
    }
    let many: String = (0..600).map(|i| format!("r{i} ::= \"a\"\n")).collect();
    assert!(Grammar::gbnf(&v, &format!("root ::= r0\n{many}")).is_err());
}

#[test]
fn matchers_share_nothing() {
    let model = model();
    let t = model.tokenizer();
    let v = Vocabulary::new(t).expect("a vocabulary");
    let grammar = Grammar::json_object(&v).expect("a grammar");
    let text = tokens(t, r#"{"a": 1}"#);
    let (mut one, mut other) = (grammar.matcher(), grammar.matcher());
    one.accept(text[0]).expect("a beginning");
    let mut copy = one.clone();
    one.accept(text[1]).expect("the next");
    // The others are where they were.
    assert!(other.allowed().expect("a mask").token(text[0]));
    assert!(copy.allowed().expect("a mask").token(text[1]));
    // What is not allowed is an error, and stays one.
    assert!(other.accept(text[3]).is_err());
    assert!(other.allowed().is_err());
}
