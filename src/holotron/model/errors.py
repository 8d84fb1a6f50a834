"""What can go wrong with a model that is not a bug: each message names the thing, its value and the way out."""


class ModelError(ValueError):
    """Anything wrong with a model, its files or its inputs."""


class ConfigError(ModelError):
    """A description of a model that contradicts itself or that is not supported."""


class CheckpointError(ModelError):
    """A checkpoint that is incomplete, damaged or not what its config says."""


class ImageError(ModelError):
    """An image that cannot be used: broken, empty, too large."""
