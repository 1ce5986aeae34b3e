#!/usr/bin/env bash
# Plants faults in parsers and in the scheduler of a copy of the sources, one after the other, and sees that tests find each.
# Those of the pool are in pool-models/faults.sh. The sources stay as they are.
#
#     bash compat-tests/faults.sh            # all
#     bash compat-tests/faults.sh parser     # those whose names contain a word
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
copy=$root/target/faults/tree
log=$root/target/faults/log.txt
mkdir -p "$copy"
missed=0
word=${1:-}
# Longest run of the tests of a fault, in seconds: one that makes them wait for ever is found by that.
most=${TRINE_FAULT_SECONDS:-300}

# Copies the sources, as they are now; files that are the same keep their times, so that little is compiled again.
refresh() {
  git ls-files --cached --others --exclude-standard | python3 -c '
import filecmp, os, shutil, sys
copy = sys.argv[1]
for name in sys.stdin.read().splitlines():
    there = os.path.join(copy, name)
    if os.path.isfile(name) and not (os.path.isfile(there) and filecmp.cmp(name, there, shallow=False)):
        os.makedirs(os.path.dirname(there), exist_ok=True)
        shutil.copyfile(name, there)' "$copy"
}

# Cargo in the copy.
run() {
  (cd "$copy" && CARGO_TARGET_DIR=$root/target/faults/build "${limit[@]}" cargo test --quiet --release "$@") >"$log" 2>&1
}

# plant NAME FILE OPTIONS..., with the old lines and, after a line of ---, the new ones on standard input.
plant() {
  local name=$1 file=$2 edit status=0
  shift 2
  edit=$(cat)
  [[ $name == *"$word"* ]] || return 0
  refresh
  # Compiled, and seen to pass, without the fault.
  limit=()
  run "$@" || {
    cat "$log"
    echo "the tests fail without a fault: $name"
    exit 1
  }
  EDIT=$edit python3 "$root/compat-tests/plant.py" "$copy/$file"
  run --no-run "$@" || {
    cat "$log"
    echo "it does not compile: $name"
    missed=1
    return
  }
  local start=$SECONDS
  limit=(timeout "$most")
  run "$@" || status=$?
  local by
  by=$(sed -n 's/^---- \(.*\) stdout ----$/\1/p' "$log" | head -3 | paste -sd, || true)
  case $status in
    0) echo "MISSED: $name"; missed=1 ;;
    124) echo "found: $name, because tests wait for more than $most s" ;;
    *) echo "found: $name, in $((SECONDS - start)) s, by ${by:-a program that ended with $status}" ;;
  esac
}

formats="-p trine-formats"
scheduler="-p trine-serve --lib engine::"
drafts="-p trine-serve --test server drafts"
pages="-p trine --lib -- step:: kv::"

plant "parser: a count that the file cannot hold" formats/src/gguf/cursor.rs $formats <<'EDIT'
let (left, max) = (self.left(), self.left() / entry);
---
let (left, max) = (self.left(), self.left());
EDIT
plant "parser: a byte behind the end" formats/src/gguf/cursor.rs $formats <<'EDIT'
        if n > self.left() {
            return self.err(ErrorKind::Truncated { need: n, left: self.left() });
---
        if n > self.left() + 1 {
            return self.err(ErrorKind::Truncated { need: n, left: self.left() });
EDIT
plant "parser: a shape whose product wraps" formats/src/gguf/read.rs $formats <<'EDIT'
        elements = fits(u64::checked_mul(elements, dim))?;
---
        elements = u64::wrapping_mul(elements, dim);
EDIT
plant "parser: data that end one byte early" formats/src/gguf/read.rs $formats <<'EDIT'
        let cut_off = end > available && !(partial && row.size.is_some());
---
        let cut_off = end > available + 1 && !(partial && row.size.is_some());
EDIT
plant "parser: tensors with a gap between them" formats/src/gguf/read.rs $formats <<'EDIT'
        if offset != expected {
---
        if offset < expected {
EDIT
plant "parser: the budget of memory is not charged" formats/src/gguf/cursor.rs $formats <<'EDIT'
        self.memory -= need;
---
EDIT
plant "scheduler: indices after a preemption" tools/serve/src/engine/scheduler/plan.rs $scheduler <<'EDIT'
                *i -= usize::from(*i > youngest);
---
                *i -= usize::from(*i > youngest + 1);
EDIT
plant "scheduler: a client that leaves the queue stays counted" tools/serve/src/engine/scheduler/mod.rs $scheduler <<'EDIT'
            if !stays && !run.begun {
---
            if !stays && run.begun {
EDIT
plant "scheduler: clients that do not read take part in steps" tools/serve/src/engine/scheduler/plan.rs $scheduler <<'EDIT'
        let ready = |a: &Active| !a.stalled && a.rest() > 0;
---
        let ready = |a: &Active| a.rest() > 0;
EDIT
plant "scheduler: a rejected draft stays in the cache" tools/serve/src/engine/scheduler/step.rs $drafts <<'EDIT'
                active.seq.take_back(draft.before.len() + draft.of_text + accepted, &draft.before);
---
                active.seq.take_back(draft.before.len() + draft.of_text + accepted + 1, &draft.before);
EDIT
plant "scheduler: steps as long as all prompts" tools/serve/src/engine/scheduler/plan.rs $scheduler <<'EDIT'
                false => rest.min(most).min(budget),
---
                false => rest.min(most),
EDIT
plant "pages: a shared page is not copied before it is written" src/kv/sequence.rs $pages <<'EDIT'
        last.is_some_and(|page| Arc::strong_count(page) > 1)
---
        last.is_some_and(|page| Arc::strong_count(page) > 2)
EDIT
plant "pages: another salt finds a text" src/step/prefix.rs $pages <<'EDIT'
        let mut level = self.roots.get_mut(kind);
---
        let mut level = self.roots.iter_mut().find(|(k, _)| k.bits == kind.bits).map(|(_, edges)| edges);
EDIT
exit $missed
