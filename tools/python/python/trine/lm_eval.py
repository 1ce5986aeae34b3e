"""A model for lm-eval, EleutherAI's evaluation harness. lm-eval itself is needed only where it is used:

    from trine.lm_eval import TrineLM
    results = lm_eval.simple_evaluate(TrineLM("model.gguf"), tasks=["piqa"])

or, for lm-eval's own command line, `import trine.lm_eval; trine.lm_eval.register()` and then `--model trine
--model_args pretrained=model.gguf`.
"""

from typing import Any, Dict, List, Optional, Tuple

import trine

__all__ = ["TrineLM", "register"]

# Made when it is asked for, on top of lm-eval's class.
TrineLM: Any


class _Answers:
    """What lm-eval asks of a model, whether lm-eval is there or not."""

    def __init__(self, pretrained: Any, *, bits: Optional[int] = None, batch_size: Any = 1, device: Any = None,
                 max_gen_toks: int = 256, **options: Any) -> None:
        super().__init__()
        # lm-eval hands batch_size and device to every model; results depend on neither.
        self.model = pretrained if isinstance(pretrained, trine.Model) else trine.open(pretrained, **options)
        self.bits = bits
        self.max_gen_toks = int(max_gen_toks)

    @property
    def tokenizer_name(self) -> str:
        return str(self.model.path)

    def apply_chat_template(self, chat_history: List[Any], add_generation_prompt: bool = True) -> str:
        return self.model.apply_chat_template(chat_history, add_generation_prompt=add_generation_prompt)

    def _score(self, given: List[int], rest: List[int]) -> Tuple[float, bool]:
        longest = self.model.n_ctx_train
        # What does not fit is cut at the front, as lm-eval's own models do it.
        rest = rest[-longest:]
        given = given[max(0, len(given) + len(rest) - longest - 1):] if rest else given
        logprobs, greedy = self.model.score(given, rest, bits=self.bits)
        return sum(logprobs), all(greedy)

    def loglikelihood(self, requests: List[Any], disable_tqdm: bool = False) -> List[Tuple[float, bool]]:
        out = []
        for request in requests:
            context, continuation = request.args
            # White space between the two belongs to the continuation's first token.
            spaces = len(context) - len(context.rstrip())
            if spaces:
                continuation, context = context[-spaces:] + continuation, context[:-spaces]
            given = self.model.tokenize(context, parse_special=False) if context else self._start()
            whole = self.model.tokenize(context + continuation, parse_special=False)
            rest = whole[len(given):] if context else self.model.tokenize(continuation, add_special=False)
            out.append(self._score(given, rest))
        return out

    def loglikelihood_rolling(self, requests: List[Any], disable_tqdm: bool = False) -> List[float]:
        out = []
        for request in requests:
            (text,) = request.args
            tokens = self.model.tokenize(text, add_special=False, parse_special=False)
            total, longest = 0.0, self.model.n_ctx_train
            for at in range(0, len(tokens), longest):
                end = min(at + longest, len(tokens))
                # The last window is filled with what stands before it, as in lm-eval's own models.
                given = tokens[max(0, end - longest - 1):at] if at else self._start()
                total += self._score(given, tokens[at:end])[0]
            out.append(total)
        return out

    def generate_until(self, requests: List[Any], disable_tqdm: bool = False) -> List[str]:
        out = []
        for request in requests:
            context, wanted = request.args
            wanted = dict(wanted)
            stop = wanted.pop("until", None) or []
            options: Dict[str, Any] = {"temperature": 0}
            if wanted.pop("do_sample", None) or wanted.get("temperature"):
                options = {name: wanted[name] for name in ("temperature", "top_p", "top_k") if name in wanted}
            limit = int(wanted.get("max_gen_toks", self.max_gen_toks))
            tokens = self.model.tokenize(context)
            tokens = tokens[-max(1, self.model.n_ctx_train - limit - 4):]
            stop = [stop] if isinstance(stop, str) else [s for s in stop if s]
            out.append(self.model.generate(tokens, limit, stop=stop, bits=self.bits, **options))
        return out

    def _start(self) -> List[int]:
        """The tokens before a text that nothing precedes."""
        return self.model.tokenize("") or self.model.end_tokens[:1]


def _make() -> Any:
    from lm_eval.api.model import LM  # type: ignore[import-not-found, unused-ignore]

    about = "A GGUF model for lm-eval: a path or a trine.Model, the width `bits`, and options of trine.open."
    return type("TrineLM", (_Answers, LM), {"__doc__": about, "__module__": __name__})


def __getattr__(name: str) -> Any:
    if name == "TrineLM":
        made = globals()[name] = _make()
        return made
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def register() -> None:
    """Makes the model known to lm-eval's command line as `trine`."""
    from lm_eval.api.registry import register_model  # type: ignore[import-not-found, unused-ignore]

    register_model("trine")(__getattr__("TrineLM"))
