//! The options of tasks with choices: llama-perplexity's names and defaults.

use clap::Args;

use crate::load::{count, positive};

/// The options of tasks.
#[derive(Args)]
pub struct TaskArgs {
    /// Score HellaSwag tasks: which of four endings goes with a context? The text has six lines for each task: context,
    /// number of the right ending (0 to 3), four endings
    #[arg(long, conflicts_with_all = ["winogrande", "multiple_choice", "compare", "kl_divergence", "kl_divergence_base", "chunks", "ppl_output_type"])]
    pub hellaswag: bool,

    /// How many HellaSwag tasks are drawn, in the order of llama-perplexity
    #[arg(long, value_name = "N", default_value = "400", requires = "hellaswag", allow_negative_numbers = true, value_parser = positive)]
    pub hellaswag_tasks: usize,

    /// Score WinoGrande tasks: which of two words belongs into a gap? The text has a line for each: index, sentence
    /// with _ for the gap, two choices and the number of the right one, separated by commas. As in llama-perplexity the
    /// last line counts only where an empty one follows
    #[arg(long, conflicts_with_all = ["multiple_choice", "compare", "kl_divergence", "kl_divergence_base", "chunks", "ppl_output_type"])]
    pub winogrande: bool,

    /// How many WinoGrande tasks are drawn; 0 for all in the order of the file
    #[arg(long, value_name = "N", default_value = "0", requires = "winogrande", allow_negative_numbers = true, value_parser = count)]
    pub winogrande_tasks: usize,

    /// Score multiple-choice tasks of a binary file in llama-perplexity's form (ARC, MMLU, TruthfulQA): is a right
    /// answer the likeliest?
    #[arg(long, conflicts_with_all = ["compare", "kl_divergence", "kl_divergence_base", "chunks", "ppl_output_type"])]
    pub multiple_choice: bool,

    /// How many multiple-choice tasks are drawn; 0 for all in the order of the file
    #[arg(long, value_name = "N", default_value = "0", requires = "multiple_choice", allow_negative_numbers = true, value_parser = count)]
    pub multiple_choice_tasks: usize,

    /// Score questions with choices in JSON lines as lm-evaluation-harness does: acc, acc_norm for each byte, and their
    /// standard errors. A line has "question", "choices" and "answer" (a number from 0, a letter or the choice), or is one
    /// of ARC, PIQA, BoolQ, MMLU (with "subject") or LAMBADA ("text", whose last word is asked for)
    #[arg(long, conflicts_with_all = ["hellaswag", "winogrande", "multiple_choice", "compare", "kl_divergence", "kl_divergence_base", "chunks", "ppl_output_type"])]
    pub questions: bool,

    /// How many questions are scored, the first ones; 0 for all
    #[arg(long, value_name = "N", default_value = "0", requires = "questions", allow_negative_numbers = true, value_parser = count)]
    pub questions_tasks: usize,

    /// Texts that stand in a context of N times -c tokens together, at least 4; also -np. As in llama.cpp the last
    /// digits of scores depend on it
    #[arg(long, value_name = "N", default_value = "4", allow_negative_numbers = true, value_parser = positive)]
    pub parallel: usize,
}

impl TaskArgs {
    /// True if tasks are to be scored.
    pub fn wanted(&self) -> bool {
        self.hellaswag || self.winogrande || self.multiple_choice || self.questions
    }
}
