"""Three machines of a local cluster with different instruction sets and threads, workers that are killed: the files are
those of one machine. Needs `pip install ray pytest`, the package trine and the tools on the PATH:

    python -m pytest deploy/ray/test_fleet.py
"""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest
import ray.cluster_utils
import trine

HERE = pathlib.Path(__file__).parent
DATA = HERE.parent.parent / "testdata"
MODEL = DATA / "models" / "trilm-wt-5.8m-F16.gguf"
TEXT = DATA / "wikitext-2" / "wiki.test.raw"


@pytest.fixture(scope="module")
def cluster():
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    cluster = ray.cluster_utils.Cluster()
    for isa, threads in [("scalar", "1"), ("avx2", "2"), ("", "3")]:
        # An empty name is no choice.
        env = {"RAYON_NUM_THREADS": threads, "PATH": os.environ["PATH"]} | ({"TRINE_ISA": isa} if isa else {})
        cluster.add_node(num_cpus=1, env_vars=env)
    yield cluster
    cluster.shutdown()


def fleet(cluster, *words, kill=None):
    """Runs the script; meanwhile workers whose titles begin with `kill` are killed, a few of them."""
    command = [sys.executable, str(HERE / "fleet.py"), "--address", cluster.address, *map(str, words)]
    killed, over = [], threading.Event()

    def hunt():
        chance = random.Random(7)
        while not over.wait(0.2) and len(killed) < 4:
            found = [p for p in psutil.process_iter(["cmdline"]) if " ".join(p.info["cmdline"] or []).startswith(kill)]
            if found and chance.random() < 0.5:
                victim = chance.choice(found)
                try:
                    os.kill(victim.pid, signal.SIGKILL)
                    killed.append(victim.pid)
                except ProcessLookupError:
                    pass
                time.sleep(1)

    hunter = threading.Thread(target=hunt) if kill else None
    if hunter:
        hunter.start()
    done = subprocess.run(command, capture_output=True, text=True)
    over.set()
    if hunter:
        hunter.join()
    return done, killed


def test_lines(cluster, tmp_path):
    words = TEXT.read_text().split()
    prompts = [" ".join(words[i * 50 : i * 50 + 20]) for i in range(24)]
    prompts[3] = {"prompt": prompts[3], "temperature": 1.0}
    (tmp_path / "prompts").write_text("".join(json.dumps(p) + "\n" for p in prompts))
    model = trine.Model(str(MODEL))
    expected = []
    for number, line in enumerate(prompts):
        own = {"prompt": line, "temperature": 0.0} if isinstance(line, str) else dict(line)
        expected.append(model.generate(own.pop("prompt"), 200, seed=number, **own))
    args = ["generate", MODEL, tmp_path / "prompts", tmp_path / "texts", "--predict", 200, "--shard", 3, "--ship"]
    done, killed = fleet(cluster, *args, kill="ray::Worker")
    assert done.returncode == 0, done.stderr
    assert killed, "nothing was killed"
    assert [json.loads(line)["text"] for line in (tmp_path / "texts").read_text().splitlines()] == expected

    pairs = [{"prompt": " ".join(words[i : i + 9]), "continuation": " " + words[i + 9]} for i in range(0, 200, 10)]
    (tmp_path / "pairs").write_text("".join(json.dumps(p) + "\n" for p in pairs))
    done, _ = fleet(cluster, "score", MODEL, tmp_path / "pairs", tmp_path / "scores", "--shard", 3)
    assert done.returncode == 0, done.stderr
    scores = [json.loads(line) for line in (tmp_path / "scores").read_text().splitlines()]
    alone = [model.score(p["prompt"], p["continuation"]) for p in pairs]
    assert [s["logprob"] for s in scores] == [sum(logprobs) for logprobs, _ in alone]

    texts = [p["prompt"] for p in pairs]
    (tmp_path / "lines").write_text("".join(json.dumps(text) + "\n" for text in texts))
    done, _ = fleet(cluster, "embed", MODEL, tmp_path / "lines", tmp_path / "vectors", "--shard", 3)
    assert done.returncode == 0, done.stderr
    vectors = [json.loads(line) for line in (tmp_path / "vectors").read_text().splitlines()]
    assert vectors == [[float(x) for x in vector] for vector in model.embed(texts)]


def test_sixty_chunks(cluster, tmp_path):
    one = subprocess.run(
        ["rperplexity", "-m", MODEL, "-f", TEXT, "-c", "128", "--chunks", "60"], capture_output=True, check=True
    ).stdout
    args = ["perplexity", MODEL, TEXT, tmp_path / "result", "--chunks", 60, "--shard", 4]
    done, killed = fleet(cluster, *args, "--", "-c", "128", kill="ray::chunks")
    assert done.returncode == 0, done.stderr
    assert killed, "nothing was killed"
    assert (tmp_path / "result").read_bytes() == one
    assert not (tmp_path / "result.shards").exists()


def test_a_run_goes_on_and_a_mistake_is_said(cluster, tmp_path):
    args = ["perplexity", MODEL, TEXT, tmp_path / "result", "--chunks", 4, "--shard", 2]
    (tmp_path / "result.shards").mkdir()
    (tmp_path / "result.shards" / "of.json").write_text("other")
    done, _ = fleet(cluster, *args)
    assert done.returncode != 0 and "is of other work" in done.stderr
    done, _ = fleet(cluster, "perplexity", MODEL, TEXT, tmp_path / "x", "--chunks", 4, "--", "-c", "1")
    assert done.returncode != 0 and "context" in done.stderr, done.stderr
    assert not (tmp_path / "x").exists()


def test_ten_thousand_chunks_are_kept_account_of(tmp_path, monkeypatch):
    """The bookkeeping alone, with results that come in any order and a run that ends in between."""
    sys.path.insert(0, str(HERE))
    import fleet as script

    chance = random.Random(1)
    monkeypatch.setattr(script.ray, "wait", lambda running, num_returns: ([chance.choice(running)], []))
    monkeypatch.setattr(script.ray, "get", lambda index: b"%d\n" % index)
    shards = script.Shards(tmp_path / "out", "key")

    class Killed(Exception):
        pass

    def submit(limit):
        left = [limit]

        def one(index, _):
            left[0] -= 1
            if left[0] < 0:
                raise Killed
            return index

        return one

    with pytest.raises(Killed):
        script.gather(shards, shards.missing(10_000), submit(4321), 7)
    missing = shards.missing(10_000)
    assert 10_000 - 4321 <= len(missing) <= 10_000 - 4321 + 7
    script.gather(shards, missing, submit(len(missing)), 3)
    shards.finish(b"".join(shards.file(i).read_bytes() for i in range(10_000)))
    assert (tmp_path / "out").read_bytes() == b"".join(b"%d\n" % i for i in range(10_000))
