"""Stands in for the conftest.py of llama.cpp's server tests, which starts every preset once, downloads included."""

import os
import sys

import pytest

sys.path.insert(0, os.environ["LLAMA_SERVER_TESTS"])
from utils import server_instances  # noqa: E402


@pytest.fixture(autouse=True)
def stop_server_after_each_test():
    yield
    for server in set(server_instances):
        server.stop()
