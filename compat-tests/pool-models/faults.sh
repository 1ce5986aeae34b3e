#!/usr/bin/env bash
# Plants faults in a copy of the pool, one after the other, and sees that a model finds each. Leaves the sources as they are.
#
#     bash compat-tests/pool-models/faults.sh         # all
#     bash compat-tests/pool-models/faults.sh wake    # those whose names contain a word
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
copy=$root/target/models/faulty
missed=0

# plant NAME FILE TEST, with the old lines and, after a line of ---, the new ones on standard input.
plant() {
  local name=$1 file=$2 test=$3 edit
  edit=$(cat)
  [[ $name == *"$word"* ]] || return 0
  rm -rf "$copy"
  mkdir -p "$copy/src" "$copy/compat-tests"
  cp -r "$root/src/pool" "$copy/src/pool"
  cp -r "$root/compat-tests/pool-models" "$copy/compat-tests/pool-models"
  EDIT=$edit python3 "$root/compat-tests/plant.py" "$copy/src/pool/$file"
  local log=$root/target/models/fault.txt start=$SECONDS status=0
  (cd "$copy/compat-tests/pool-models" && CARGO_TARGET_DIR=$root/target/models/faults \
    cargo test --quiet --release -- --test-threads 1 "$test") >"$log" 2>&1 || status=$?
  local found
  found=$(grep -aoE 'Causality violation[^.]*|deadlock; threads|left: .*|maximum number of branches|the panic of a task' "$log" | head -1 | cut -c1-160 || true)
  if grep -aqE '^test result: FAILED|^error: test failed' "$log"; then
    echo "found: $name, by $test, in $((SECONDS - start)) s: $found"
  elif [ "$status" -ne 0 ] && ! grep -aq 'running ' "$log"; then
    cat "$log"
    echo "it does not compile: $name"
    missed=1
  elif [ "$status" -ne 0 ]; then
    echo "found: $name, by $test, in $((SECONDS - start)) s: the program ended with $status"
  else
    echo "MISSED: $name"
    missed=1
  fi
}

word=${1:-}
plant "weaker order: tasks finish without releasing" region.rs regions::tasks_run_once <<'EDIT'
self.helped.fetch_add(taken, Ordering::Release)
---
self.helped.fetch_add(taken, Ordering::Relaxed)
EDIT
plant "weaker order: tasks are taken without acquiring" region.rs regions::a_helper_that <<'EDIT'
rest, Ordering::Acquire, Ordering::Relaxed)
---
rest, Ordering::Relaxed, Ordering::Relaxed)
EDIT
plant "weaker order: a region opens with a release alone" region.rs sleep::a_helper_comes <<'EDIT'
self.left.store(tasks, Ordering::SeqCst)
---
self.left.store(tasks, Ordering::Release)
EDIT
plant "weaker order: a slot is given back without releasing" helpers.rs callers::a_helper_of_two <<'EDIT'
fetch_and(!(1 << self.slot), Ordering::Release)
---
fetch_and(!(1 << self.slot), Ordering::Relaxed)
EDIT
plant "lost wake: a helper looks before it says that it sleeps" helpers.rs sleep::a_helper_comes <<'EDIT'
            self.asleep.store(true, Ordering::SeqCst);
            if self.neediest(None).is_some() || self.stop.load(Ordering::SeqCst) {
                return;
            }
---
            if self.neediest(None).is_some() || self.stop.load(Ordering::SeqCst) {
                return;
            }
            self.asleep.store(true, Ordering::SeqCst);
EDIT
plant "lost wake: the end is told without the lock" helpers.rs regions::the_last_handle <<'EDIT'
        // Under the lock: a helper has either seen `stop` or waits already.
        let _guard = self.guard();
---
EDIT
plant "early leave: the caller waits for all helpers' tasks but one" region.rs regions::tasks_run_once <<'EDIT'
Acquire) != tasks - own
---
Acquire) + 1 < tasks - own
EDIT
plant "early leave: tasks count as finished before they have run" region.rs regions::tasks_run_once <<'EDIT'
        let taken = run.len() as u32;
        // SAFETY: this thread has
---
        let taken = 0;
        self.helped.fetch_add(run.len() as u32, Ordering::Release);
        // SAFETY: this thread has
EDIT
plant "missed panic: nobody is told" region.rs regions::a_panic <<'EDIT'
            self.panicked.store(true, Ordering::Relaxed);
---
EDIT
exit $missed
