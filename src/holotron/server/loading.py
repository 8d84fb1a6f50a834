"""The half of a served model that reads and writes text; the engine is built in a process of its own."""

from __future__ import annotations

from dataclasses import dataclass

from holotron.agent.policy_format import PolicyFormat, format_of
from holotron.engine.options import EngineOptions
from holotron.model.checkpoint.config_json import read_config
from holotron.model.config import ModelConfig
from holotron.model.loading import find_checkpoint
from holotron.model.presets import preset
from holotron.model.text.byte_tokenizer import byte_tokenizer
from holotron.model.text.chat_template import DEFAULT_TEMPLATE, ChatTemplate, load_chat_template
from holotron.model.text.conversation import ConversationWriter
from holotron.model.text.tokenizer import Tokenizer, load_tokenizer


@dataclass(frozen=True)
class Texts:
    """What the HTTP process needs of a model: it never loads weights. policy_format: as the checkpoint states it."""

    config: ModelConfig
    tokenizer: Tokenizer
    template: ChatTemplate
    prompts: ConversationWriter
    policy_format: PolicyFormat | None = None


def load_texts(options: EngineOptions) -> Texts:
    """The tokenizer and chat template of the model; a random one reads and writes bytes."""
    policy_format = None
    if options.random:
        config = preset(options.model).config
        tokenizer, template = byte_tokenizer(config), ChatTemplate(DEFAULT_TEMPLATE.read_text(encoding="utf-8"))
    else:
        folder = find_checkpoint(options.model)
        config = read_config(folder)
        tokenizer, template = load_tokenizer(folder), load_chat_template(folder)
        policy_format = format_of(folder)
    return Texts(config, tokenizer, template, ConversationWriter(tokenizer, template, config), policy_format)
