"""Text in and out of the model: tokenizers, chat templates, conversations."""
