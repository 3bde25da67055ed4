"""Chat templates as functions, with the traits of real ones."""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from qmlx_lsp.errors import TemplateError

Messages = Sequence[Mapping[str, Any]]


class Rendered:
    """Renders as ``text`` says, given the variable that most templates have for thinking."""

    def render(self, messages: Messages, variables: Mapping[str, Any], *, generate: bool, day: date) -> str:
        return self.text(messages, generate=generate, thinking=bool(variables.get("enable_thinking")))

    def text(self, messages: Messages, *, generate: bool, thinking: bool) -> str:
        raise NotImplementedError


class ChatMl(Rendered):
    """``<|im_start|>role\\ntext<|im_end|>\\n``."""

    def text(self, messages: Messages, *, generate: bool, thinking: bool) -> str:
        return "".join(map(self.one, messages)) + (self.head(thinking=thinking) if generate else "")

    def one(self, message: Mapping[str, Any]) -> str:
        return f"<|im_start|>{message['role']}\n{message['content']}<|im_end|>\n"

    def head(self, *, thinking: bool) -> str:
        return "<|im_start|>assistant\n"


class Thinking(ChatMl):
    """As Qwen3.5: the prompt opens a thinking block (or an empty one), history shows the newest reply's only."""

    def text(self, messages: Messages, *, generate: bool, thinking: bool) -> str:
        last = messages[-1]
        if not generate and "reasoning_content" in last:
            text = f"<think>\n{last['reasoning_content']}\n</think>\n\n{last['content']}"
            messages = [*messages[:-1], {"role": "assistant", "content": text}]
        return super().text(messages, generate=generate, thinking=thinking)

    def head(self, *, thinking: bool) -> str:
        return super().head(thinking=thinking) + ("<think>\n" if thinking else "<think>\n\n</think>\n\n")


class Gemma(Rendered):
    """The system text stands in front of the first user's. Roles must alternate; text is trimmed."""

    def text(self, messages: Messages, *, generate: bool, thinking: bool) -> str:
        system = ""
        if messages[0]["role"] == "system":
            system, messages = messages[0]["content"] + "\n\n", messages[1:]
        text = "<bos>"
        for at, message in enumerate(messages):
            if message["role"] != ("user", "assistant")[at % 2]:
                raise TemplateError("Conversation roles must alternate user/assistant.")
            role = "user" if at % 2 == 0 else "model"
            text += f"<start_of_turn>{role}\n{system}{message['content'].strip()}<end_of_turn>\n"
            system = ""
        return text + ("<start_of_turn>model\n" if generate else "")


class NoSystem(Gemma):
    """As Gemma 2: refuses a system message."""

    def text(self, messages: Messages, *, generate: bool, thinking: bool) -> str:
        if messages[0]["role"] == "system":
            raise TemplateError("System role not supported.")
        return super().text(messages, generate=generate, thinking=thinking)


class SystemLast(ChatMl):
    """As Mistral Nemo: the system text is moved into the last user turn."""

    def text(self, messages: Messages, *, generate: bool, thinking: bool) -> str:
        if messages[0]["role"] == "system":
            system, *messages = messages
            messages[-1] = {**messages[-1], "content": f"{system['content']}\n\n{messages[-1]['content']}"}
        return super().text(messages, generate=generate, thinking=thinking)


class StopIsRole(Rendered):
    """As GLM: no end token, the model stops at the next role's."""

    def text(self, messages: Messages, *, generate: bool, thinking: bool) -> str:
        text = "".join(f"<|{m['role']}|>\n{m['content']}" for m in messages)
        return text + ("<|assistant|>\n" if generate else "")


class Counting(ChatMl):
    """Numbers its turns."""

    def text(self, messages: Messages, *, generate: bool, thinking: bool) -> str:
        text = "".join(
            f"<|im_start|>{m['role']} {at // 2}\n{m['content']}<|im_end|>\n" for at, m in enumerate(messages)
        )
        return text + ("<|im_start|>assistant\n" if generate else "")


class Echoing(ChatMl):
    """Shows every user's text twice."""

    def one(self, message: Mapping[str, Any]) -> str:
        again = f" ({message['content']})" if message["role"] == "user" else ""
        return f"<|im_start|>{message['role']}\n{message['content']}{again}<|im_end|>\n"


class Hiding(ChatMl):
    """Drops old replies."""

    def one(self, message: Mapping[str, Any]) -> str:
        return "" if message["role"] == "assistant" else super().one(message)


class Backwards(ChatMl):
    """Newest first."""

    def text(self, messages: Messages, *, generate: bool, thinking: bool) -> str:
        return super().text(messages[::-1], generate=generate, thinking=thinking)


class Wordy(ChatMl):
    """Repeats its instructions, at length, in every turn."""

    def one(self, message: Mapping[str, Any]) -> str:
        return super().one(message) + "Be good. " * 1000


class ShortIsOther(ChatMl):
    """Begins a reply otherwise in the first turn of all."""

    def head(self, *, thinking: bool) -> str:
        return "<|im_start|>assistant\n"

    def text(self, messages: Messages, *, generate: bool, thinking: bool) -> str:
        text = super().text(messages, generate=generate, thinking=thinking)
        return text + "Hello! " if len(messages) < 5 else text


class Refusing(ChatMl):
    """Cannot render at all."""

    def text(self, messages: Messages, *, generate: bool, thinking: bool) -> str:
        raise TemplateError("The chat template of m does not render a conversation: 'x' is undefined.")


# --- as Jinja -----------------------------------------------------------------------------------------------------

CALL = ("<tool_call>", "</tool_call>")
# As Qwen's: results of one reply stand together in a user's turn.
WITH_TOOLS = (
    "{%- for m in messages %}{%- if m.role == 'tool' %}"
    "{%- if messages[loop.index0 - 1].role != 'tool' %}{{ '<|im_start|>user' }}{% endif %}"
    "{{- '\n<tool_response>\n' + m.content + '\n</tool_response>' }}"
    "{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|im_end|>\n' }}{% endif %}"
    "{%- else %}{{ '<|im_start|>' + m.role + '\n' + m.content }}"
    "{%- for call in m.tool_calls or [] %}{{ '<tool_call>' + (call.function | tojson) + '</tool_call>' }}{% endfor %}"
    "{{- '<|im_end|>\n' }}{% endif %}{% endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# As gpt-oss: a result names its tool, and is JSON.
NAMED = (
    "{%- for m in messages %}{%- if m.role == 'tool' %}"
    "{{ '<|im_start|>' + m.name + '\n' + (m.content | tojson) + '<|im_end|>\n' }}"
    "{%- else %}{{ '<|im_start|>' + m.role + '\n' + m.content }}"
    "{%- for call in m.tool_calls or [] %}{{ call.function | tojson }}{% endfor %}{{ '<|im_end|>\n' }}"
    "{%- endif %}{% endfor %}{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# As Kimi K3: tags that the model opens and closes.
TAG_TEMPLATE = (
    "{%- for m in messages %}{{ '<|open|>message role=\"' + m.role + '\"<|sep|>' }}"
    "{%- if m.role == 'assistant' %}{{ '<|open|>response<|sep|>' + m.content + '<|close|>response<|sep|>' }}"
    "{%- else %}{{ m.content }}{% endif %}{{ '<|close|>message<|sep|><|end_of_msg|>' }}{% endfor %}"
    "{%- if add_generation_prompt %}"
    "{{ '<|open|>message role=\"assistant\"<|sep|><|open|>response<|sep|>' }}{% endif %}"
)
