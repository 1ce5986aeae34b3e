//! Guesses what a file that is not GGUF may be, so that the message can say what to do.

/// Probable format of a file that is not GGUF.
pub fn guess(bytes: &[u8]) -> String {
    let head = &bytes[..bytes.len().min(512)];
    let text = head.trim_ascii_start();
    let starts = |s: &str| text.len() >= s.len() && text[..s.len()].eq_ignore_ascii_case(s.as_bytes());
    let known = [
        ("<!doctype", "a web page; the download went wrong"),
        ("<html", "a web page; the download went wrong"),
        ("version https://git-lfs", "a git-lfs pointer; fetch the model itself with `git lfs pull`"),
        ("{", "JSON"),
        ("PK\x03\x04", "a zip archive or a PyTorch checkpoint; convert it to GGUF first"),
        ("lmgg", "an old GGML model; convert it to GGUF first"),
        ("fmgg", "an old GGML model; convert it to GGUF first"),
        ("tjgg", "an old GGML model; convert it to GGUF first"),
    ];
    if let Some((_, what)) = known.iter().find(|(magic, _)| starts(magic)) {
        return (*what).to_owned();
    }
    if head.starts_with(b"\x1f\x8b") {
        return "a gzip archive; unpack it first".to_owned();
    }
    if head.len() > 9 && head[8] == b'{' && head[4..8] == [0; 4] {
        return "a safetensors file; convert it to GGUF first".to_owned();
    }
    if head.iter().all(|&b| b == 0) {
        return "nothing but zero bytes: an interrupted conversion or download".to_owned();
    }
    let line = text.split(|&b| b == b'\n').next().unwrap_or_default();
    match std::str::from_utf8(&line[..line.len().min(40)]) {
        Ok(line) if !line.contains(|c: char| c.is_control() && c != '\t' && c != '\r') => {
            format!("text, it starts with \"{}\"", line.trim_end().escape_default())
        }
        _ => format!("binary data, it starts with \"{}\"", head[..head.len().min(8)].escape_ascii()),
    }
}

#[cfg(test)]
mod tests {
    use super::guess;

    #[test]
    fn usual_mistakes_are_recognized() {
        for (bytes, looks) in [
            (&b"<!DOCTYPE html><html>"[..], "a web page"),
            (b"version https://git-lfs.github.com/spec/v1", "git lfs pull"),
            (b"{\"a\": 1}", "JSON"),
            (b"PK\x03\x04", "PyTorch"),
            (b"\x1f\x8b\x08", "gzip"),
            (b"\x10\0\0\0\0\0\0\0{\"a\"", "safetensors"),
            (&[0; 64], "zero bytes"),
            (b"Once upon a time\nthere", "\"Once upon a time\""),
            (b"\x01\x02\x03\xff", "binary data"),
        ] {
            let said = guess(bytes);
            assert!(said.contains(looks), "{said}");
        }
    }
}
