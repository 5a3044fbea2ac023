"""Certificates for all tests of TLS."""

from __future__ import annotations

import pytest

from tests.support.certificates import Certificates, make_certificates


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """The files of `make_certificates`, made once. No test changes them."""
    return make_certificates(tmp_path_factory.mktemp("certificates"))
