"""What can go wrong with stored episodes: each message names the file or the episode, and the way out."""


class EpisodeError(ValueError):
    """Anything wrong with an episode or the place it is kept."""


class StoreFull(EpisodeError):
    """There is no room left on the disk; what was being written is not there, and can be written again later."""


class Damaged(EpisodeError):
    """A file that is not what was written: cut off, changed or missing."""


class NewerSchema(EpisodeError):
    """Written by a later version than this one can read."""


class AlreadyFinished(EpisodeError):
    """The episode is there already, with an outcome."""


class BeingWritten(EpisodeError):
    """Another writer, here or in another process, has this episode open."""
