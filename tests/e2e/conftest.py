from pathlib import Path

import pytest

from tests import models


@pytest.fixture(scope="session")
def model_dir() -> Path:
    """The folder that holds `smollm2-135m/`; pulls the model if it is not there yet."""
    return models.pulled().parent
