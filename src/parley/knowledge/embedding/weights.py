"""Where the embedding model that comes with Parley lies: files inside the package ``wordllama``.

The package itself is never imported: it sets up logging and brings clients we do not need.
"""

import importlib.util
from pathlib import Path
from typing import Final

NAME: Final = "wordllama-l2-supercat-256"
DIMENSION: Final = 256


def tokenizer_file() -> Path:
    """The tokenizer's JSON."""
    return _folder() / "tokenizers" / "l2_supercat_tokenizer_config.json"


def vectors_file() -> Path:
    """One vector of ``DIMENSION`` for each token, as safetensors."""
    return _folder() / "weights" / "l2_supercat_256.safetensors"


def _folder() -> Path:
    spec = importlib.util.find_spec("wordllama")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("the package wordllama, which holds the embedding model, is not installed")
    return Path(spec.submodule_search_locations[0])
