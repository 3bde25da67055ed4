"""Chat templates of the families whose models are met without one: made from nothing but the family's tokens.

A model that brings a template is always served by its own. Each family is told by a token that no other has.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

_SYSTEM_IN_USER = (
    "{%- if messages[0].role == 'system' %}{% set system = messages[0].content + '\n\n' %}"
    "{% set messages = messages[1:] %}{% else %}{% set system = '' %}{% endif %}"
)
_HARMONY = (
    "{%- for m in messages %}"
    "{%- if m.role == 'assistant' %}<|start|>assistant<|channel|>final<|message|>{{ m.content }}<|end|>"
    "{%- elif m.role == 'system' %}<|start|>developer<|message|># Instructions\n\n{{ m.content }}\n\n<|end|>"
    "{%- else %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endif %}{% endfor %}"
    "{%- if add_generation_prompt %}<|start|>assistant{% endif %}"
)
_CHATML = (
    "{%- for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_LLAMA3 = (
    "{{- bos_token | default('') }}{%- for m in messages %}"
    "{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + m.content + '<|eot_id|>' }}{% endfor %}"
    "{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
_GEMMA = (
    "{{- bos_token | default('') }}{%- for m in messages %}"
    "{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else 'user') + '\n' }}"
    "{{- (system if loop.first else '') + m.content + '<end_of_turn>\n' }}{% endfor %}"
    "{%- if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)
_MISTRAL = (
    "{{- bos_token | default('') }}{%- for m in messages %}"
    "{%- if m.role == 'assistant' %}{{ m.content + (eos_token | default('')) }}"
    "{%- else %}{{ '[INST]' + (system if loop.first else '') + m.content + '[/INST]' }}{% endif %}{% endfor %}"
)
# By name: the tokens that a member has, and the template.
FAMILIES: Mapping[str, tuple[tuple[str, ...], str]] = {
    "Harmony": (("<|start|>", "<|channel|>", "<|message|>", "<|end|>"), _HARMONY),
    "ChatML": (("<|im_start|>", "<|im_end|>"), _CHATML),
    "Llama 3": (("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"), _LLAMA3),
    "Gemma": (("<start_of_turn>", "<end_of_turn>"), _SYSTEM_IN_USER + _GEMMA),
    "Mistral": (("[INST]", "[/INST]"), _SYSTEM_IN_USER + _MISTRAL),
}


def template_for(tokens: Collection[str]) -> tuple[str, str] | None:
    """Name and template of the family to which a tokenizer with the control ``tokens`` belongs, if any."""
    for name, (marks, template) in FAMILIES.items():
        if all(mark in tokens for mark in marks):
            return name, template
    return None
