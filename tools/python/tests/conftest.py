"""What the tests share."""

from pathlib import Path

import pytest

import trine

ROOT = Path(__file__).resolve().parents[3]
MODEL = ROOT / "testdata/models/trilm-wt-5.8m-F16.gguf"


@pytest.fixture(scope="session")
def model():
    return trine.Model(MODEL)
