//! Requests to end, at any time.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::kit::*;

fn signal(child: &Child, name: &str) {
    let id = child.id().to_string();
    let sent = std::process::Command::new("kill").args([name, &id]).status();
    assert!(sent.unwrap().success());
}

/// The statement about the disk is true, whenever the request comes.
#[test]
fn interrupted_is_true() {
    let dir = with_model();
    let old = b"what was there before".to_vec();
    let target = path(&dir, "out.gguf");
    let mut counts = [0; 3];
    // As often as it takes to be in time.
    for i in 0..1200u64 {
        if i >= 60 && counts[1] > 0 {
            break;
        }
        std::fs::write(&target, &old).unwrap();
        let mut child = command(dir.path(), RQUANTIZE, &["m.gguf", "out.gguf", "Q4_0"]);
        let mut child = child.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        // At any time, and in the middle of the work, however long either takes on this machine.
        match i % 4 {
            0 => drop(writes(&mut child, dir.path())),
            _ => sleep(Duration::from_millis(i * 3 % 120)),
        }
        signal(&child, ["-INT", "-TERM", "-HUP"][i as usize % 3]);
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let untouched = std::fs::read(&target).unwrap() == old;
        assert_eq!(unfinished(dir.path()), [""; 0], "{said}");
        match output.status.code() {
            Some(0) => {
                assert!(!untouched, "{said}");
                counts[0] += 1;
            }
            Some(130) if said.contains("nothing was written") => {
                assert!(untouched, "{said}");
                counts[1] += 1;
            }
            // Before it knew that it would write.
            Some(130) if said.trim() == "rquantize: interrupted" => assert!(untouched, "{said}"),
            Some(130) => {
                assert!(!untouched && said.contains("after 'out.gguf' was written"), "{said}");
                counts[2] += 1;
            }
            // Before it could hear anything.
            None => assert!(untouched, "{said}"),
            other => panic!("{other:?}: {said}"),
        }
    }
    assert!(counts[1] > 0, "{counts:?}");
}

/// A terminal that has gone or that takes no more does not keep a program alive.
#[test]
fn nobody_has_to_read_the_last_words() {
    let dir = with_model();
    for fault in [Fault::Full, Fault::Closed] {
        let words = ["-m", "m.gguf", "-p", "a", "-c", "100000", "--ignore-eos"];
        let mut child = command(dir.path(), RGEN, &words);
        let mut child = child.stdout(Stdio::piped()).stderr(fault.stream()).spawn().unwrap();
        let mut text = child.stdout.take().unwrap();
        text.read_exact(&mut [0; 4]).unwrap();
        let reader = std::thread::spawn(move || text.read_to_end(&mut Vec::new()));
        // Not SIGHUP: where these tests run under nohup, nobody hears it.
        signal(&child, "-TERM");
        assert_eq!(child.wait().unwrap().code(), Some(130));
        reader.join().unwrap().unwrap();
    }
    // A pipe whose reader sleeps, and is full.
    let (reader, writer) = std::io::pipe().unwrap();
    let words = ["-v", "m.gguf", "out.gguf", "AP2-6"];
    let child =
        command(dir.path(), RQUANTIZE, &words).stdout(Stdio::null()).stderr(writer.try_clone().unwrap()).spawn();
    let mut child = child.unwrap();
    assert!(writes(&mut child, dir.path()), "it ended by itself");
    let full = writer.try_clone().unwrap();
    let mut filler = writer;
    std::thread::spawn(move || filler.write_all(&[b'x'; 1 << 17]));
    let mut room = [PollFd::new(full.as_fd(), PollFlags::POLLOUT)];
    while poll(&mut room, PollTimeout::ZERO).unwrap() > 0 {
        sleep(Duration::from_millis(1));
    }
    signal(&child, "-TERM");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    drop(reader);
    assert_eq!(unfinished(dir.path()), [""; 0]);
}

/// nohup and background jobs of a script do not want to be ended.
#[test]
fn signals_that_were_ignored_stay_so() {
    let dir = with_model();
    for (name, trap) in [("-HUP", "HUP"), ("-INT", "INT")] {
        let shell = format!("trap '' {trap}; exec \"$0\" \"$@\"");
        let words = ["-c", &shell, RQUANTIZE, "m.gguf", "out.gguf", "AP2-6"];
        let mut child = command(dir.path(), "sh", &words);
        let mut child = child.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        assert!(writes(&mut child, dir.path()), "it ended by itself");
        signal(&child, name);
        assert!(child.wait().unwrap().success(), "{name}");
    }
}

/// The remains of a killed program are removed by the next one for the same file, whatever numbers processes have by
/// then; the files of a living one are not.
#[test]
fn remains_of_the_dead_are_removed() {
    let dir = with_model();
    let start = || {
        let mut child = command(dir.path(), RQUANTIZE, &["m.gguf", "out.gguf", "AP2-6"]);
        child.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let wait_for_part = |n: usize| {
        while unfinished(dir.path()).len() < n {
            sleep(Duration::from_millis(5));
        }
    };
    let mut killed = start();
    wait_for_part(1);
    signal(&killed, "-KILL");
    killed.wait().unwrap();
    assert_eq!(unfinished(dir.path()).len(), 1);
    let mut living = start();
    wait_for_part(1);
    let others = ["m.gguf", "out.gguf", "Q8_0"];
    succeeded(&run(dir.path(), RQUANTIZE, &others));
    assert_eq!(unfinished(dir.path()).len(), 1);
    assert!(living.wait().unwrap().success());
    assert_eq!(names_in(dir.path()), ["m.gguf", "out.gguf"]);
}
