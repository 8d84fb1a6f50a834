"""What one request may ask of the sampler, for those that check requests without loading torch."""

MAX_LOGPROBS = 20
MAX_STOPS = 16
MAX_STOP_LENGTH = 256
