//! `rgen -cnv` in a terminal, which a pseudo terminal stands for.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use nix::pty::{Winsize, openpty};
use trine_testkit::{tool, trilm};

use super::rgen::TEMPLATE;

/// Sequences that a terminal sends before and after pasted text.
const PASTE: [&str; 2] = ["\x1b[200~", "\x1b[201~"];

/// The editor's output when a message is sent.
const SENT: &str = "\x1b[?2004l\r\n";

/// How long to wait for what never comes.
const PATIENCE: Duration = Duration::from_secs(120);

/// A chat, and the terminal that it is in.
struct Screen {
    child: Child,
    keys: File,
    shown: Receiver<Vec<u8>>,
    text: String,
}

impl Screen {
    /// Begins a chat; what it keeps of itself is in `folder`.
    fn new(folder: &Path, args: &[&str], variables: &[(&str, &str)]) -> Screen {
        let template = folder.join("chat.jinja");
        fs::write(&template, TEMPLATE).unwrap();
        let size = Winsize { ws_row: 24, ws_col: 60, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(Some(&size), None).unwrap();
        let stdio = || Stdio::from(pty.slave.try_clone().unwrap());
        let mut command = tool::command(env!("CARGO_BIN_EXE_rgen"));
        let usual = ["-cnv", "-n", "6", "--temp", "0", "--chat-template-file"];
        command.arg("-m").arg(trilm()).args(usual).arg(&template);
        command.args(args).env("XDG_STATE_HOME", folder);
        command.env("TERM", "xterm").env_remove("NO_COLOR");
        command.envs(variables.iter().copied());
        let child = command.stdin(stdio()).stdout(stdio()).stderr(stdio());
        let child = child.spawn().unwrap();
        drop(pty.slave);
        let keys = File::from(pty.master);
        let mut read = keys.try_clone().unwrap();
        let (send, shown) = channel();
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            // The end of the last program in the terminal is an error of reading.
            while let Ok(n @ 1..) = read.read(&mut bytes) {
                if send.send(bytes[..n].to_vec()).is_err() {
                    break;
                }
            }
        });
        Screen { child, keys, shown, text: String::new() }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until `text` is shown; gives all that was shown up to its end since the last time.
    fn until(&mut self, text: &str) -> String {
        loop {
            if let Some(at) = self.text.find(text) {
                let rest = self.text.split_off(at + text.len());
                return std::mem::replace(&mut self.text, rest);
            }
            match self.shown.recv_timeout(PATIENCE) {
                Ok(bytes) => self.text += &String::from_utf8_lossy(&bytes),
                Err(_) => panic!("{text:?} does not come: {:?}", self.text),
            }
        }
    }

    /// The exit code, when the program has ended.
    fn end(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

#[test]
fn a_pasted_text_is_one_message_and_is_remembered() {
    let dir = tempfile::tempdir().unwrap();
    let mut screen = Screen::new(dir.path(), &[], &[]);
    // A narrow terminal has it on two lines.
    let greeting = screen.until("\x1b[1;32m> ").replace("\r\n", " ");
    assert!(greeting.contains("/help lists all commands"), "{greeting:?}");
    screen.press(&format!("{}One\rTwo{}\r", PASTE[0], PASTE[1]));
    screen.until("\x1b[1;32m> ");
    screen.press("/save talk.json\x15");
    screen.press(&format!("/save {}\r", dir.path().join("talk.json").display()));
    screen.until("2 messages are in");
    // Before the editor has the terminal again keys mean something else.
    screen.until("\x1b[1;32m> ");
    screen.press("\x04");
    assert_eq!(screen.end(), Some(0));
    let saved = fs::read_to_string(dir.path().join("talk.json")).unwrap();
    assert!(saved.contains(r#""One\nTwo""#), "{saved}");
    let history = fs::read_to_string(dir.path().join("trine/rgen_history")).unwrap();
    assert!(history.contains("One") && history.contains("/save"), "{history}");
    // The next chat has it: the arrow goes up to /save and further up to the text.
    let mut next = Screen::new(dir.path(), &[], &[("NO_COLOR", "1")]);
    let greeting = next.until("> ");
    assert!(!greeting.contains("\x1b[1;32m"), "{greeting:?}");
    next.press("\x1b[A\x1b[A");
    next.until("Two");
    next.press("\x03");
    next.until("ends the chat)");
    next.until("> ");
    next.press("\x03");
    assert_eq!(next.end(), Some(130));
}

#[test]
fn blocks_have_lines_and_no_history_is_kept_if_unwanted() {
    let dir = tempfile::tempdir().unwrap();
    let mut screen = Screen::new(dir.path(), &["--no-history", "--color", "off"], &[]);
    screen.until("> ");
    screen.press("\"\"\"One\rTwo\rThree\"\"\"\r");
    screen.until(SENT);
    screen.until("\x1b[K> ");
    screen.press(&format!("/save {}\r", dir.path().join("talk.json").display()));
    screen.until("2 messages are in");
    screen.until("\x1b[K> ");
    screen.press("/exit\r");
    assert_eq!(screen.end(), Some(0));
    let saved = fs::read_to_string(dir.path().join("talk.json")).unwrap();
    assert!(saved.contains(r#""One\nTwo\nThree""#), "{saved}");
    assert!(!dir.path().join("trine").exists());
}

#[test]
fn what_is_typed_during_an_answer_comes_after_it() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["-n", "400", "--ignore-eos", "--no-history", "--color", "off"];
    let mut screen = Screen::new(dir.path(), &args, &[]);
    screen.until("> ");
    screen.press("One\r");
    screen.until(SENT);
    // Some of the answer is there, most of it is not.
    screen.until(" ");
    screen.press("/unheard\r");
    screen.press("/nothing\r");
    let answer = screen.until("\x1b[K> ");
    assert!(!answer.contains("(interrupted)"), "{answer:?}");
    assert!(!answer.contains("/nothing") && !answer.contains("/unheard"), "{answer:?}");
    screen.until("there is no command /unheard");
    screen.until("there is no command /nothing");
    screen.until("\x1b[K> ");
    screen.press("/exit\r");
    assert_eq!(screen.end(), Some(0));
}

#[test]
fn an_answer_that_is_interrupted_says_so_and_the_chat_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["-n", "400", "--ignore-eos", "--no-history", "--color", "off"];
    let mut screen = Screen::new(dir.path(), &args, &[]);
    screen.until("> ");
    screen.press("One\r");
    screen.until(SENT);
    screen.until(" ");
    // The keys of this terminal send no signals, because it is not the one that the program was started from.
    let ended = Command::new("kill").args([tool::end_signal(), &screen.child.id().to_string()]).status().unwrap();
    assert!(ended.success());
    screen.until("(interrupted)");
    screen.until("\x1b[K> ");
    screen.press("/bye\r");
    assert_eq!(screen.end(), Some(0));
}

#[test]
fn thoughts_are_dimmed_on_a_screen_alone() {
    let dir = tempfile::tempdir().unwrap();
    // The template begins a thought, as those of models do that think.
    let thinking = |screen: &str| TEMPLATE.replace("assistant:", screen);
    let mut screen = Screen::new(dir.path(), &["--no-history"], &[]);
    screen.until("> ");
    screen.press("One\r");
    let plain = screen.until("\x1b[1;32m> ");
    assert!(!plain.contains("\x1b[2m"), "{plain:?}");
    drop(screen.child.kill());
    let template = dir.path().join("thinking.jinja");
    fs::write(&template, thinking("assistant:<think>\\n")).unwrap();
    let file = template.to_str().unwrap();
    let mut screen = Screen::new(dir.path(), &["--chat-template-file", file, "--no-history"], &[]);
    screen.until("> ");
    screen.press("One\r");
    let dimmed = screen.until("\x1b[1;32m> ");
    assert!(dimmed.contains("\x1b[2m") && dimmed.contains("\x1b[0m"), "{dimmed:?}");
    drop(screen.child.kill());
}

/// A pipe or a device in the place of the history holds nobody up.
#[test]
fn a_history_that_is_none_is_not_kept() {
    let history = |make: &dyn Fn(&Path)| {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("trine")).unwrap();
        make(&dir.path().join("trine/rgen_history"));
        let mut screen = Screen::new(dir.path(), &["--color", "off"], &[]);
        let greeting = screen.until("\x1b[K> ").replace("\r\n", " ");
        screen.press("One\r");
        screen.until(SENT);
        screen.until("\x1b[K> ");
        screen.press("/exit\r");
        assert_eq!(screen.end(), Some(0));
        greeting
    };
    let link = |to: &'static str| move |path: &Path| std::os::unix::fs::symlink(to, path).unwrap();
    let fifo = |path: &Path| assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    let not_a_file: [&dyn Fn(&Path); 4] =
        [&fifo, &link("/dev/zero"), &link("/dev/full"), &|path| fs::create_dir(path).unwrap()];
    for make in not_a_file {
        let greeting = history(make);
        assert!(greeting.contains("no history is kept") && greeting.contains("not a regular file"), "{greeting:?}");
    }
    let greeting = history(&|path| fs::write(path, "#V2\n".to_owned() + &"x".repeat(1 << 20)).unwrap());
    assert!(greeting.contains("has a line of more than"), "{greeting:?}");
    let greeting = history(&|path| fs::write(path, "#V2\nOne\n").unwrap());
    assert!(!greeting.contains("no history"), "{greeting:?}");
}

/// A long line costs the terminal no more than some bytes for each of its characters, and the message is all of it.
#[test]
fn long_lines_are_drawn_as_marks() {
    let dir = tempfile::tempdir().unwrap();
    let mut screen = Screen::new(dir.path(), &["--color", "off"], &[]);
    screen.until("\x1b[K> ");
    // Terminals without marks of pasted text: it comes as if it were typed.
    let typed = "ab ".repeat(5_000);
    let limit = 20 * typed.len();
    screen.press(&format!("{typed}\r"));
    let drawn = screen.until(SENT);
    assert!(drawn.len() < limit, "{} bytes for {}", drawn.len(), typed.len());
    assert!(drawn.contains("[text 1]"), "{drawn:?}");
    screen.until("\x1b[K> ");
    // A mark goes like a character, and the rest of the line is what is sent.
    let pasted = "cd ".repeat(30_000);
    screen.press(&format!("{0}{pasted}{1}x{0}{pasted}{1}\x7f\r", PASTE[0], PASTE[1]));
    let drawn = screen.until(SENT);
    assert!(drawn.contains("[text 1: 90000 characters]"), "{drawn:?}");
    assert!(drawn.len() < 10_000, "{} bytes", drawn.len());
    let error = screen.until("\x1b[K> ").replace("\r\n", " ");
    assert!(error.contains("error: "), "{error:?}");
    screen.press("/exit\r");
    assert_eq!(screen.end(), Some(0));
    // What is kept of the first is all of it; the second is too long to be kept.
    let history = fs::read_to_string(dir.path().join("trine/rgen_history")).unwrap();
    assert!(history.contains(typed.trim_end()), "{history:?}");
    assert!(!history.contains("cd"), "{history:?}");
}

/// A terminal that never says where a pasted text ends does not take the keyboard away.
#[test]
fn a_paste_without_an_end_is_ended() {
    let dir = tempfile::tempdir().unwrap();
    let mut screen = Screen::new(dir.path(), &["--color", "off"], &[]);
    screen.until("\x1b[K> ");
    screen.press(&format!("{}One\rTwo", PASTE[0]));
    screen.until("Ctrl-C ends it");
    screen.press("\x03\r");
    screen.until(SENT);
    screen.until("\x1b[K> ");
    screen.press("/exit\r");
    assert_eq!(screen.end(), Some(0));
    let history = fs::read_to_string(dir.path().join("trine/rgen_history")).unwrap();
    assert!(history.contains("One\\nTwo"), "{history:?}");
}
