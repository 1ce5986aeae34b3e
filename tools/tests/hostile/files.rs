//! Links, rights, long names and files that shrink.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

use super::kit::*;

#[test]
fn a_link_to_nothing_is_followed() {
    let dir = with_model();
    fs::create_dir(path(&dir, "there")).unwrap();
    symlink("there/file.gguf", path(&dir, "out.gguf")).unwrap();
    fs::write(path(&dir, "t.txt"), "The game was good. ".repeat(60)).unwrap();
    symlink("there/i.gguf", path(&dir, "second")).unwrap();
    symlink("second", path(&dir, "i.gguf")).unwrap();
    succeeded(&run(dir.path(), RQUANTIZE, &["m.gguf", "out.gguf", "Q8_0"]));
    let words = ["-m", "m.gguf", "-f", "t.txt", "-c", "64", "--chunks", "1", "-o", "i.gguf"];
    succeeded(&run(dir.path(), RIMATRIX, &words));
    for link in ["out.gguf", "i.gguf"] {
        assert!(path(&dir, link).is_symlink(), "{link}");
    }
    assert_eq!(names_in(&path(&dir, "there")), ["file.gguf", "i.gguf"]);
    symlink("circle", path(&dir, "circle")).unwrap();
    let error = refused(&run(dir.path(), RQUANTIZE, &["m.gguf", "circle", "Q8_0"]));
    assert!(error.contains("circle"), "{error}");
}

#[test]
fn rights_stay() {
    let dir = with_model();
    for mode in [0o600, 0o640, 0o666] {
        let out = path(&dir, "out.gguf");
        fs::write(&out, "old").unwrap();
        fs::set_permissions(&out, fs::Permissions::from_mode(mode)).unwrap();
        succeeded(&run(dir.path(), RQUANTIZE, &["m.gguf", "out.gguf", "Q8_0"]));
        assert_eq!(fs::metadata(&out).unwrap().permissions().mode() & 0o777, mode);
    }
}

#[test]
fn names_may_be_as_long_as_the_system_takes_them() {
    let dir = with_model();
    for n in [200, 240, 255] {
        for letter in ["a", "é"] {
            let name = letter.repeat(n / letter.len());
            succeeded(&run(dir.path(), RQUANTIZE, &["m.gguf", &name, "Q8_0"]));
            assert_eq!(names_in(dir.path()).len(), 2, "{n}");
            fs::remove_file(path(&dir, &name)).unwrap();
        }
    }
    let long = "a".repeat(256);
    let error = refused(&run(dir.path(), RQUANTIZE, &["m.gguf", &long, "Q8_0"]));
    assert!(error.contains("too long"), "{error}");
}

#[test]
fn what_cannot_be_written_is_known_before_the_work() {
    let dir = with_model();
    for out in ["absent/i.gguf", "."] {
        let words = ["-m", "m.gguf", "-f", "absent.txt", "-o", out];
        let error = refused(&run(dir.path(), RIMATRIX, &words));
        assert!(error.contains("cannot write"), "{error}");
    }
}

/// A bad byte or a bad command of a piped conversation does not end it.
#[test]
fn a_conversation_goes_on() {
    let dir = with_model();
    fs::write(path(&dir, "template"), "{{ messages[-1].content }}").unwrap();
    fs::write(path(&dir, "said"), b"one \xff\xfe\n/bits x\n/bits\nlast\n").unwrap();
    let words = ["-m", "m.gguf", "-cnv", "-n", "2", "--temp", "0", "--chat-template-file", "template"];
    let mut talk = command(dir.path(), RGEN, &words);
    let output = talk.stdin(fs::File::open(path(&dir, "said")).unwrap()).output().unwrap();
    let text = succeeded(&output);
    assert_eq!(text.lines().count(), 2, "{text}");
}

/// A mapped file that is cut short is one line and no SIGBUS; a file that was read is out of danger.
#[test]
fn files_that_shrink_are_an_error() {
    let dir = folder();
    for no_mmap in [false, true] {
        let mut ended = 0;
        // As often as it takes to be in time.
        for i in 0..64 {
            if i >= 8 && (no_mmap || ended > 0) {
                break;
            }
            fs::copy(trilm(), path(&dir, "m.gguf")).unwrap();
            // Far from its end, so that the file shrinks before.
            let tokens = if no_mmap { "20" } else { "500" };
            let mut words = vec!["-m", "m.gguf", "-p", "a", "-n", tokens, "--ignore-eos", "--no-repack"];
            if no_mmap {
                words.push("--no-mmap");
            }
            let mut child =
                command(dir.path(), RGEN, &words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            // At any time, and when some of the text is there.
            match i % 2 {
                0 => sleep(Duration::from_millis(60 + 15 * (i % 8))),
                _ => {
                    let text = child.stdout.as_mut().unwrap();
                    text.read_exact(&mut [0; 20]).unwrap();
                }
            }
            let file = fs::File::options().write(true).open(path(&dir, "m.gguf")).unwrap();
            file.set_len(4096).unwrap();
            let output = child.wait_with_output().unwrap();
            orderly(output.status, "shrunk");
            if output.status.code() == Some(1) {
                let error = refused(&output);
                let early = error.contains("truncated") || error.contains("cut off");
                assert!(error.starts_with("rgen: error: ") && (early || error.contains("became shorter")), "{error}");
                ended += usize::from(!early);
            }
        }
        if no_mmap {
            assert_eq!(ended, 0);
        } else {
            assert!(ended > 0);
        }
    }
}
