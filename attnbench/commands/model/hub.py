"""Models on the Hugging Face Hub, by the package of the extra `hub`."""

from contextlib import suppress
from pathlib import Path

from attnbench.commands.model.configuration import INDEX
from attnbench.errors import UsageError, one_line


def fetch(model: str) -> Path:
    """The config.json of OWNER/MODEL in the hub's cache, with the index of its weights beside it.

    A model whose weights are one file has no index. Raises `UsageError`.
    """
    try:
        import huggingface_hub as hub
    except ImportError as error:
        raise UsageError(
            f"there is no file {model!r}; to read a model of that name from the Hugging Face Hub,"
            " pip install 'attnbench[hub]'"
        ) from error
    try:
        config = Path(hub.hf_hub_download(model, "config.json"))
    except Exception as error:  # of names, access and networks, each from another library
        reason = one_line(error)
        raise UsageError(
            f"{model!r} cannot be fetched from the Hugging Face Hub: {reason}"
        ) from error
    with suppress(Exception):
        hub.hf_hub_download(model, INDEX)
    return config
