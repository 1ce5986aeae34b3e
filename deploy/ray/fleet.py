"""trine on many machines by Ray: the files that come out are those of one machine, byte for byte.

Work is cut into shards of lines or of chunks of a text. A worker that dies costs its shard, which another computes again
to the same bits, since no processor, number of threads or batch changes one. Shards that are done stand in a folder beside
the output, so that a run that was stopped goes on where it was.

    python fleet.py generate model.gguf prompts.jsonl texts.jsonl --predict 64
    python fleet.py embed model.gguf texts.jsonl vectors.jsonl
    python fleet.py score model.gguf pairs.jsonl scores.jsonl
    python fleet.py perplexity model.gguf wiki.test.raw result.txt -- -c 512
    python fleet.py perplexity small.gguf - result.txt -- --kl-divergence --kl-divergence-base large.kld

Every line of prompts.jsonl is a string or an object with "prompt" and options of `Model.generate`; of texts.jsonl a
string; of pairs.jsonl an object with "prompt" and "continuation". perplexity needs rperplexity on every machine's PATH.
"""

import argparse
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import ray

# Bytes of a model that travel at once.
PIECE = 64 << 20


class Place:
    """A file that every machine gets once: where it is there already, under the same path and of the same size, or in a
    folder of the machine, named by its hash."""

    def __init__(self, path, ship):
        self.path = os.path.abspath(path)
        self.bytes = os.path.getsize(path)
        self.pieces, self.hash = [], None
        if ship:
            digest = hashlib.sha256()
            with open(path, "rb") as file:
                while piece := file.read(PIECE):
                    digest.update(piece)
                    self.pieces.append(ray.put(piece))
            self.hash = digest.hexdigest()

    def here(self):
        """The path of the file on this machine."""
        if not self.pieces:
            if not os.path.isfile(self.path) or os.path.getsize(self.path) != self.bytes:
                raise FileNotFoundError(f"'{self.path}' is not on every machine: put it there, or give --ship")
            return self.path
        folder = pathlib.Path(tempfile.gettempdir(), "trine-fleet", str(os.getuid()))
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        whole = folder / f"{self.hash}-{os.path.basename(self.path)}"
        if not whole.exists():
            # Two workers of a machine may both write it: the second name is the same file.
            with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
                for piece in self.pieces:
                    file.write(ray.get(piece))
            os.replace(file.name, whole)
        return str(whole)


def as_lines(values):
    """A line of JSON for each value."""
    return "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values).encode()


@ray.remote(max_restarts=-1, max_task_retries=-1)
class Worker:
    """A model on a machine."""

    def __init__(self, place, options):
        import trine

        self.model = trine.Model(place.here(), **options)

    def pid(self):
        return os.getpid()

    def generate(self, lines, first, options):
        def text(number, line):
            own = {"prompt": line} if isinstance(line, str) else dict(line)
            # Lines that choose at random begin with the number of the line, wherever it is done.
            return self.model.generate(own.pop("prompt"), **{"seed": number, **options, **own})

        texts = (text(number, line) for number, line in enumerate(lines, first))
        return as_lines({"text": text} for text in texts)

    def embed(self, lines, _, options):
        vectors = self.model.embed(lines, **options)
        return as_lines([float(x) for x in vector] for vector in vectors)

    def score(self, lines, _, options):
        def scored(line):
            logprobs, greedy = self.model.score(line["prompt"], line["continuation"], **options)
            return {"logprob": sum(logprobs), "tokens": len(logprobs), "greedy": all(greedy)}

        return as_lines(scored(line) for line in lines)


@ray.remote(max_retries=-1, retry_exceptions=[OSError])
def chunks(model, inputs, words, first, count):
    """The sums of some chunks of a text: a file that `rperplexity --partial` writes."""
    here = {name: place.here() for name, place in inputs.items()}
    words = [here.get(word, word) for word in words]
    with tempfile.TemporaryDirectory() as folder:
        part = os.path.join(folder, "part")
        part_of_text = ["--from-chunk", str(first), "--chunks", str(count), "--partial", part]
        run = subprocess.run(
            ["rperplexity", "-m", model.here(), *words, *part_of_text], capture_output=True, text=True
        )
        if run.returncode != 0:
            raise RuntimeError(run.stderr.strip().splitlines()[-1] if run.stderr.strip() else f"rperplexity: {run.returncode}")
        return pathlib.Path(part).read_bytes()


class Shards:
    """The folder of the shards that are done."""

    def __init__(self, out, key):
        self.out = pathlib.Path(out)
        self.folder = pathlib.Path(f"{out}.shards")
        self.folder.mkdir(exist_ok=True)
        of = self.folder / "of.json"
        if of.exists() and of.read_text() != key:
            sys.exit(f"error: '{self.folder}' is of other work: remove it, or give another output")
        write(of, key.encode())

    def file(self, index):
        return self.folder / f"{index:08}"

    def missing(self, count):
        return [index for index in range(count) if not self.file(index).exists()]

    def finish(self, whole):
        write(self.out, whole)
        shutil.rmtree(self.folder)


def write(path, data):
    """Writes a file that appears under its name when it is whole."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_bytes(data)
    os.replace(unfinished, path)


def gather(shards, missing, submit, slots):
    """Runs the missing shards, so many at a time as there are slots, and keeps each when it is done."""
    todo, running = list(reversed(missing)), {}
    free = list(range(slots))
    while todo or running:
        while todo and free:
            index, slot = todo.pop(), free.pop()
            running[submit(index, slot)] = (index, slot)
        [done], _ = ray.wait(list(running), num_returns=1)
        index, slot = running.pop(done)
        free.append(slot)
        write(shards.file(index), ray.get(done))
        print(f"\r{len(missing) - len(todo) - len(running)} of {len(missing)} shards", end="", file=sys.stderr)
    if missing:
        print(file=sys.stderr)


def by_lines(args, options):
    """generate, embed, score: shards of lines, by one worker for each machine."""
    lines = [json.loads(line) for line in pathlib.Path(args.input).read_text().splitlines() if line.strip()]
    key = json.dumps([args.work, os.path.basename(args.model), os.path.getsize(args.model), lines, options, args.shard])
    shards = Shards(args.out, hashlib.sha256(key.encode()).hexdigest())
    parts = [lines[at : at + args.shard] for at in range(0, len(lines), args.shard)]
    missing = shards.missing(len(parts))
    if missing:
        place = Place(args.model, args.ship)
        nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
        strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        # soft: where a machine does not come back its worker goes to another.
        workers = [
            Worker.options(num_cpus=1, scheduling_strategy=strategy(node["NodeID"], soft=True)).remote(
                place, {"threads": args.threads} if args.threads else {}
            )
            for node in nodes
        ]

        def submit(index, slot):
            return getattr(workers[slot], args.work).remote(parts[index], index * args.shard, options)

        gather(shards, missing, submit, len(workers))
    shards.finish(b"".join(shards.file(index).read_bytes() for index in range(len(parts))))


def by_chunks(args, words):
    """perplexity and divergence: shards of chunks, joined by rperplexity."""
    inputs = {} if args.input == "-" else {args.input: Place(args.input, args.ship)}
    if "--kl-divergence-base" in words:
        base = words[words.index("--kl-divergence-base") + 1]
        inputs[base] = Place(base, args.ship)
    words = words + (["-f", args.input] if args.input != "-" else []) + (["-t", str(args.threads)] if args.threads else [])
    sizes = {name: place.bytes for name, place in inputs.items()}
    key = json.dumps([os.path.basename(args.model), os.path.getsize(args.model), sizes, words, args.chunks, args.shard])
    shards = Shards(args.out, hashlib.sha256(key.encode()).hexdigest())
    count = -(-args.chunks // args.shard)
    missing = shards.missing(count)
    if missing:
        model = Place(args.model, args.ship)

        def submit(index, _):
            first = index * args.shard
            return chunks.remote(model, inputs, words, first, min(args.shard, args.chunks - first))

        slots = int(ray.cluster_resources().get("CPU", 1))
        gather(shards, missing, submit, slots)
    files = [str(shards.file(index)) for index in range(count)]
    joined = subprocess.run(["rperplexity", "--join", *files], capture_output=True)
    if joined.returncode != 0:
        sys.exit(joined.stderr.decode().strip().splitlines()[-1])
    shards.finish(joined.stdout)


def main():
    words = sys.argv[1:]
    words, rest = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", choices=["generate", "embed", "score", "perplexity"])
    parser.add_argument("model", help="the model's file")
    parser.add_argument("input", help="lines of JSON, or the text that is measured")
    parser.add_argument("out", help="the result, in the order of the input")
    parser.add_argument("--address", default="auto", help="the cluster; without it the one that RAY_ADDRESS names")
    parser.add_argument("--shard", type=int, default=16, help="lines or chunks of a shard")
    parser.add_argument("--chunks", type=int, help="perplexity: the number of chunks that are measured")
    parser.add_argument("--predict", type=int, default=128, help="generate: tokens of an answer at most")
    parser.add_argument("--threads", type=int, help="threads of a worker")
    parser.add_argument("--ship", action="store_true", help="send the files to machines that do not have them")
    args = parser.parse_args(words)
    if args.shard < 1:
        parser.error("--shard needs 1 or more")
    if args.work == "perplexity" and not args.chunks:
        parser.error("perplexity needs --chunks N, the number of chunks")
    for name in [args.model] + ([args.input] if args.input != "-" else []):
        if not os.path.isfile(name):
            parser.error(f"'{name}' is no file")
    ray.init(address=args.address, log_to_driver=False, logging_level="ERROR")
    if args.work == "perplexity":
        by_chunks(args, rest)
    else:
        options = {"generate": {"max_tokens": args.predict, "temperature": 0.0}}.get(args.work, {})
        by_lines(args, options)


if __name__ == "__main__":
    main()
