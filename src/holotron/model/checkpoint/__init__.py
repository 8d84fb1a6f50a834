"""Checkpoint folders: config.json, tensor names, safetensors files; reading and writing models."""
