"""Puts a fault into a file: the lines of the variable EDIT before a line of --- become those behind it.

    EDIT=$'old\n---\nnew' python3 compat-tests/plant.py FILE
"""

import os
import sys

path, edit = sys.argv[1], os.environ["EDIT"]
old, new = edit.split("---\n") if "---\n" in edit else (edit.removesuffix("---"), "")
old, new = old.rstrip("\n"), new.rstrip("\n")
text = open(path).read()
if text.count(old) != 1:
    sys.exit(f"{path}: the lines stand there {text.count(old)} times:\n{old}")
open(path, "w").write(text.replace(old, new))
