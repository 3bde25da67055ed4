"""qmlx-lsp: a coding assistant on the user's own machine, next to the editor.

One daemon keeps one long-lived conversation per project with a large local model. Everything the model is told
is appended as a short suffix of tokens; nothing it has read is ever rendered again. ARCHITECTURE.md is the map.
"""

__version__ = "0.1.0"
