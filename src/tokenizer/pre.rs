//! The table of pre-tokenizers: what each value of `tokenizer.ggml.pre` means.

use super::error::TokenizerError;
use super::split::Step::{self, DigitGroups, Find, FindChars, Gpt2, KimiK2, Lines, Llama3, Thousands, Words};
use super::split::Tail::{ButLast, PowersOfTwo};

/// Pre-tokenizers of models that compare texts with a separator between them.
pub(super) const SEPARATING: [&str; 3] = ["jina-v1-en", "jina-v2-code", "roberta-bpe"];

/// How a vocabulary splits its texts, and the defaults that come with that.
#[derive(Clone, Copy)]
pub(super) struct Pre {
    pub steps: &'static [Step],
    /// A word that is a token is taken whole, whatever the merges say.
    pub ignore_merges: bool,
    /// Begin with BOS unless the file says otherwise.
    pub add_bos: bool,
    /// Begin with BOS even if the file says otherwise.
    pub force_bos: bool,
    /// True if token 11 is BOS unless the file names another.
    pub default_bos: bool,
    /// Tokens spell bytes with GPT-2's alphabet; otherwise they are plain text with `<0xHH>` tokens
    /// for the rest.
    pub byte_level: bool,
    /// Spaces become U+2581 before anything else.
    pub escape_spaces: bool,
    /// A run of line feeds that is a token is taken whole.
    pub whole_line_feeds: bool,
}

const PLAIN: Pre = Pre {
    steps: &[Gpt2],
    ignore_merges: false,
    add_bos: false,
    force_bos: false,
    default_bos: true,
    byte_level: true,
    escape_spaces: false,
    whole_line_feeds: false,
};

const DIGIT: Step = Find(r"\p{N}");
const UP_TO_3_DIGITS: Step = Find(r"\p{N}{1,3}");
const LLAMA3: Step = Llama3(3, false);
const QWEN2: Step = Llama3(1, false);

const HAN_KANA: Step = FindChars(r"[\u{4e00}-\u{9fa5}\u{3040}-\u{309f}\u{30a0}-\u{30ff}]+");
/// DeepSeek's: everything from Samaritan to the end of the common ideographs, and Hangul.
const CJK: Step = FindChars(r"[\u{4e00}-\u{9fa5}\u{800}-\u{4e00}\u{ac00}-\u{d7ff}]+");
const AFMOE_SCRIPTS: Step = FindChars(concat!(
    "[",
    r"\u{4e00}-\u{9fff}\u{3400}-\u{4dbf}\u{8c48}-\u{faff}\u{3040}-\u{309f}\u{30a0}-\u{30ff}",
    r"\u{ff65}-\u{ff9f}\u{2f00}-\u{2fdf}\u{e40}-\u{e7f}\u{e80}-\u{eff}\u{1780}-\u{17ff}",
    r"\u{1000}-\u{109f}\u{aa60}-\u{aa7f}\u{a9e0}-\u{a9ff}\u{ac00}-\u{d7af}\u{1100}-\u{11ff}",
    "]+",
));
const YOUTU_SCRIPTS: Step = FindChars(concat!(
    r"[\u{ac00}-\u{d7a3}\u{3131}-\u{318e}]+",
    r"|[\u{ff01}\u{2026}\u{201c}\u{201d}\u{2018}\u{2019}\u{2014}\u{ff1a}\u{ff1b}\u{ff0c}",
    r"\u{3001}-\u{303f}\u{fe30}-\u{fe4f}]+",
    r"|[\u{3105}-\u{312f}]+",
    r"|[\u{4e00}-\u{9fa5}\u{3040}-\u{309f}\u{30a0}-\u{30ff}]+",
));
/// DeepSeek LLM's: cased letters of the scripts that have case.
const CASED_LETTERS: Step = FindChars(concat!(
    r"[\t-\r ]?[",
    r"A-Za-z\u{b5}\u{c0}-\u{d6}\u{d8}-\u{f6}\u{f8}-\u{1ba}\u{1bc}-\u{1bf}\u{1c4}-\u{293}",
    r"\u{295}-\u{2af}\u{370}-\u{373}\u{376}\u{377}\u{37b}-\u{37d}\u{37f}\u{386}\u{388}-\u{38a}",
    r"\u{38c}\u{38e}-\u{3a1}\u{3a3}-\u{3f5}\u{3f7}-\u{481}\u{48a}-\u{52f}\u{531}-\u{556}",
    r"\u{10a0}-\u{10c5}\u{13a0}-\u{13f5}\u{13f8}-\u{13fd}\u{1c90}-\u{1cba}\u{1cbd}-\u{1cbf}",
    r"\u{1d00}-\u{1d2b}\u{1d6b}-\u{1d77}\u{1d79}-\u{1d9a}\u{1e00}-\u{1f15}\u{1f18}-\u{1f1d}",
    r"\u{1f20}-\u{1f45}\u{1f48}-\u{1f4d}\u{1f50}-\u{1f57}\u{1f59}\u{1f5b}\u{1f5d}\u{1f5f}-\u{1f7d}",
    r"\u{1f80}-\u{1fb4}\u{1fb6}-\u{1fbc}\u{1fbe}\u{1fc2}-\u{1fc4}\u{1fc6}-\u{1fcc}",
    r"\u{1fd0}-\u{1fd3}\u{1fd6}-\u{1fdb}\u{1fe0}-\u{1fec}\u{1ff2}-\u{1ff4}\u{1ff6}-\u{1ffc}",
    r"\u{2102}\u{2107}\u{210a}-\u{2113}\u{2115}\u{2119}-\u{211d}\u{2124}\u{2126}\u{2128}",
    r"\u{212a}-\u{212d}\u{212f}-\u{2134}\u{2139}\u{213c}-\u{213f}\u{2145}-\u{2149}\u{214e}\u{2183}",
    r"\u{2184}\u{2c00}-\u{2c7b}\u{2c7e}-\u{2ce4}\u{2ceb}-\u{2cee}\u{2cf2}\u{2cf3}\u{a640}-\u{a66d}",
    r"\u{a680}-\u{a69b}\u{a722}-\u{a76f}\u{a771}-\u{a787}\u{a78b}-\u{a78e}\u{ab70}-\u{abbf}",
    r"\u{fb00}-\u{fb06}\u{fb13}-\u{fb17}\u{ff21}-\u{ff3a}\u{ff41}-\u{ff5a}\u{10400}-\u{1044f}",
    r"\u{104b0}-\u{104d3}\u{104d8}-\u{104fb}\u{10c80}-\u{10cb2}\u{10cc0}-\u{10cf2}",
    r"\u{118a0}-\u{118df}\u{1e900}-\u{1e943}",
    "]+",
));
const DEEPSEEK_PUNCTUATION: Step =
    FindChars(concat!(r"[\t-\r ]?", r"[!-/:-~\u{ff01}-\u{ff0f}\u{ff1a}-\u{ff5e}\u{2018}-\u{201f}\u{3000}-\u{3002}]+",));
const BETWEEN_STOPS: Step = FindChars(r" ?[^(\t-\r |.,!?\u{2026}\u{3002}\u{ff0c}\u{3001}\u{964}\u{6d4}\u{60c})]+");

const DEEPSEEK3_WORDS: Step = Words(
    concat!(r"[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+", r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+",),
    ButLast,
);
const SPARK_WORDS: Step = Words(
    concat!(r"[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+", r"| ?[\p{P}\p{S}]+|[\r\n]",),
    ButLast,
);
const YOUTU_WORDS: Step = Words(
    concat!(r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+(?:\p{Apostrophe})?|\p{N}", r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+",),
    ButLast,
);
const AYA_WORDS: Step = Words(
    concat!(
        r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+(?:\p{Apostrophe})?|\p{N}{1,3}",
        r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+",
    ),
    ButLast,
);
const TEKKEN_WORDS: Step = Words(
    concat!(
        r"[^\r\n\p{L}\p{N}]?\p{Upper}*\p{Lower}+|[^\r\n\p{L}\p{N}]?\p{Upper}+\p{Lower}*",
        r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+",
    ),
    ButLast,
);
const GPT4O_WORDS: Step = Words(
    concat!(
        r"[^\r\n\p{L}\p{N}]?\p{Upper}*\p{Lower}+(?:\p{Apostrophe})?",
        r"|[^\r\n\p{L}\p{N}]?\p{Upper}+\p{Lower}*(?:\p{Apostrophe})?",
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+",
    ),
    ButLast,
);
/// GPT-4o's with marks among the letters.
const GRANITE_WORDS: Step = Words(
    concat!(
        r"[^\r\n\p{L}\p{N}]?[\p{Upper}\p{M}]*[\p{Lower}\p{M}]+(?:\p{Apostrophe})?",
        r"|[^\r\n\p{L}\p{N}]?[\p{Upper}\p{M}]+[\p{Lower}\p{M}]*(?:\p{Apostrophe})?",
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+",
    ),
    ButLast,
);
const JAIS2_WORDS: Step = Words(
    concat!(r"\p{Apostrophe}|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}", r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+",),
    PowersOfTwo,
);
const BAILING_WORDS: Step =
    Words(concat!(r"\p{Apostrophe}|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}", r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]",), ButLast);
const SEED_WORDS: Step =
    Words(concat!(r"\p{Apostrophe}|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}", r"| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+",), ButLast);
/// Without contractions: Turkish suffixes stay with their apostrophe.
const UFAKZEKA_WORDS: Step = Words(r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+", ButLast);
const EXAONE_MOE_WORDS: Step = Words(
    concat!(
        r"\p{Apostrophe}|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}",
        r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]",
    ),
    ButLast,
);
const MINICPM5_WORDS: Step = Words(
    concat!(r"\p{Apostrophe}|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+", r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+",),
    ButLast,
);

/// The row of the table for `pre`; a file without the key has the row `default`.
///
/// # Errors
/// An unknown name: any other splitting would give wrong tokens without a word.
pub(super) fn find(pre: Option<&str>) -> Result<Pre, TokenizerError> {
    let steps = |steps: &'static [Step]| Pre { steps, ..PLAIN };
    let whole_words = |steps: &'static [Step]| Pre { steps, ignore_merges: true, ..PLAIN };
    let like_gemma4 = Pre { steps: &[Lines], byte_level: false, escape_spaces: true, ..PLAIN };
    Ok(match pre.unwrap_or_default() {
        "" | "default" => steps(&[Find(r"[\p{P}$+<=>^~|]+"), Gpt2, Find(r"\p{N}+"), Find("[0-9][0-9][0-9]")]),
        "llama3" | "llama-v3" | "llama-bpe" | "falcon3" | "falcon_e" | "falcon-h1" | "pixtral" | "midm-2.0"
        | "lfm2" | "jina-v5-nano" => Pre { add_bos: true, ..whole_words(&[LLAMA3]) },
        "dbrx" | "smaug-bpe" => steps(&[LLAMA3]),
        "chatglm-bpe" => Pre { default_bos: false, ..steps(&[LLAMA3]) },
        "glm4" | "glm5" => Pre { default_bos: false, ..whole_words(&[LLAMA3]) },
        "jais-2" => steps(&[JAIS2_WORDS]),
        "minicpm5" => whole_words(&[UP_TO_3_DIGITS, MINICPM5_WORDS]),
        "deepseek-llm" => {
            steps(&[Find(r"[\r\n]"), CASED_LETTERS, DEEPSEEK_PUNCTUATION, Find(r"\s+\z"), CJK, Find(r"\p{N}+")])
        }
        "deepseek-coder" => steps(&[Find(r"[\r\n]"), Find(r"\s?\p{L}+"), Find(r"\s?\p{P}+"), CJK, DIGIT]),
        "deepseek-v3" | "hunyuan-dense" | "joyai-llm" | "hy_v4" => steps(&[UP_TO_3_DIGITS, HAN_KANA, DEEPSEEK3_WORDS]),
        "spark2_5" => steps(&[UP_TO_3_DIGITS, HAN_KANA, SPARK_WORDS, DIGIT]),
        "youtu" => whole_words(&[YOUTU_SCRIPTS, YOUTU_WORDS]),
        "falcon" => steps(&[Find(r"[\p{P}$+<=>^~|`]+"), Gpt2, Find("[0-9][0-9][0-9]")]),
        "starcoder" | "refact" | "command-r" | "smollm" | "codeshell" | "exaone" | "minerva-7b" | "mellum2" => {
            steps(&[DIGIT, Gpt2])
        }
        "gpt-2" | "phi-2" | "jina-es" | "jina-de" | "gigachat" | "jina-v2-es" | "jina-v2-de" | "a.x-4.0" | "mellum"
        | "modern-bert" | "jina-v1-en" | "jina-v2-code" | "roberta-bpe" | "mpt" | "olmo" | "jais" | "exaone4"
        | "trillion" | "granite-docling" => PLAIN,
        "qwen2" | "deepseek-r1-qwen" | "kormo" | "f2llmv2" | "megrez" | "stablelm2" | "hunyuan" | "solar-open"
        | "grok-2" => steps(&[QWEN2]),
        "qwen35" => steps(&[Llama3(1, true)]),
        "laguna" => steps(&[Lines, QWEN2]),
        "poro-chat" | "bloom" | "gpt3-finnish" => steps(&[BETWEEN_STOPS]),
        "viking" => steps(&[BETWEEN_STOPS, DIGIT]),
        "tekken" => Pre { add_bos: true, ..whole_words(&[TEKKEN_WORDS]) },
        "chameleon" => Pre {
            add_bos: true,
            ..steps(&[
                Find("<sentinel:[0-9]+>"),
                Find("IMGIMG[A-I]{1,4}Z"),
                Find(r"[\t\n]|    |  "),
                DIGIT,
                Find(r"[\p{P}!-/:-@\[-`{-~]"),
                Gpt2,
            ])
        },
        "gpt-4o" | "llama4" | "kanana2" | "talkie" | "minimax-m2" => steps(&[GPT4O_WORDS]),
        "granite-embed-multi-97m" => whole_words(&[GRANITE_WORDS]),
        "tiny_aya" | "cohere2moe" => steps(&[DigitGroups, AYA_WORDS]),
        "superbpe" => steps(&[Find(r"\p{N}+"), Thousands]),
        "bailingmoe" | "bailingmoe2" | "llada-moe" => steps(&[BAILING_WORDS]),
        "seed-coder" => steps(&[SEED_WORDS]),
        "kimi-k2" => steps(&[KimiK2]),
        "ufakzeka" => steps(&[UFAKZEKA_WORDS]),
        "afmoe" => steps(&[DigitGroups, AFMOE_SCRIPTS, DEEPSEEK3_WORDS]),
        "exaone-moe" => steps(&[EXAONE_MOE_WORDS]),
        "gemma4" | "granite-embed-multi-311m" => Pre { force_bos: true, whole_line_feeds: true, ..like_gemma4 },
        "sarvam-moe" => like_gemma4,
        "whitespace" => Pre { byte_level: false, ..steps(&[Find(r"\S+")]) },
        pre => {
            return Err(TokenizerError::UnknownPre { pre: pre.to_owned() });
        }
    })
}
