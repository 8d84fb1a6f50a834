"""The engine over HTTP: what OpenAI clients expect, sessions beside it, and what training loops need."""
