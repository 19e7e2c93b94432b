"""The command line, run as in its own tests."""

from tests.cli.conftest import posfeat as posfeat
