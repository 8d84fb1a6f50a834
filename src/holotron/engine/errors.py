"""What a caller of the engine can do wrong, and what can go wrong for one session alone."""


class EngineError(ValueError):
    """Anything the engine refuses; other sessions are not affected."""


class SessionClosed(EngineError):
    """The session was closed, or never existed."""


class SessionBusy(EngineError):
    """The session is generating; wait for it or cancel it."""


class TooLong(EngineError):
    """More tokens than the engine's memory or the model can ever hold."""


class GenerationFailed(EngineError):
    """One generation could not go on: not a number in the logits, say."""


class GrammarFailed(GenerationFailed):
    """A grammar could not be followed to its end: it is too complex, or has no way out."""
